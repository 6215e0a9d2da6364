/*
 * npuc: the simulators. Instruction mode executes a program on real memories, to the bit; with the sanitizer it also proves
 * that no byte is read before it is written and that no two engines race. Cycle mode plays the queues against the rates of
 * a machine. docs/simulator.md and docs/cycles.md say what they do.
 *
 * Programs are hostile: every field of every instruction is checked before use, and a program that cannot be executed ends
 * with an npuc_sim_error that names the instruction. What the caller states beside the program (memories, pointers, the
 * machine) must be true.
 */
#ifndef NPUC_SIM_H
#define NPUC_SIM_H

#include "npuc/isa.h"
#include "npuc/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where and why a program stopped; `core` and `instruction` are -1 where none is to blame. */
typedef struct npuc_sim_error {
    int32_t core;
    int32_t opcode;
    int64_t instruction; /* index in the stream of the core */
    char message[232];
} npuc_sim_error;

/* A part of DRAM. Segment 0, the constants, is only read. */
typedef struct npuc_sim_segment {
    uint8_t *data;
    int64_t size;
} npuc_sim_segment;

/* One stream of records for each core. */
typedef struct npuc_sim_program {
    int32_t cores;
    int32_t segment_count;
    const uint8_t *const *streams;
    const int64_t *counts; /* instructions of each stream */
    const npuc_sim_segment *segments;
} npuc_sim_program;

/*
 * Memories of a machine, and what is worth keeping from run to run: convolutions whose weights come from the constants are
 * packed for this CPU once. The constants must stay where they are, unchanged, until the simulator is destroyed. NULL when
 * memory is short or a size makes no sense.
 */
typedef struct npuc_sim npuc_sim;
NPUC_API npuc_sim *npuc_sim_create(int32_t cores, int64_t local_size, int64_t shared_size, const uint8_t *constants,
                                   int64_t constants_size);
NPUC_API void npuc_sim_destroy(npuc_sim *sim);

/* Execute a program; segments[0] is replaced by the constants of the simulator. */
NPUC_API npuc_status npuc_sim_run(npuc_sim *sim, const npuc_sim_program *program, int32_t threads, npuc_sim_error *error);

/* An object in the local memory of a core, and the instructions of its stream that may touch it, both ends included. */
typedef struct npuc_sim_allocation {
    int32_t core;
    int64_t address, size;
    int64_t first, last;
} npuc_sim_allocation;

/* What a finding is. */
typedef enum npuc_sim_fault {
    NPUC_SIM_UNWRITTEN = 1, /* a byte is read that nobody has written */
    NPUC_SIM_OUTSIDE = 2,   /* an access that is not inside a live allocation */
    NPUC_SIM_RACE = 3       /* two accesses, one of them a write, that nothing orders */
} npuc_sim_fault;

typedef struct npuc_sim_finding {
    int32_t fault;                    /* npuc_sim_fault */
    int32_t space;                    /* segment of the byte; -1: local memory of `core` */
    int32_t core, other_core;         /* of the two instructions; other_core is -1 where there is no other one */
    int64_t instruction, other;       /* index in the stream */
    int32_t opcode, other_opcode;
    uint32_t layer, other_layer;
    int32_t write, other_write;       /* whether the access is a write */
    int64_t address;                  /* the first byte */
    int64_t bytes;                    /* how many bytes of this access have the fault */
    char operand[16];                 /* field of the instruction */
} npuc_sim_finding;

/* State what the host has written before a run with the sanitizer; all that runs write is known. */
NPUC_API npuc_status npuc_sim_mark_written(npuc_sim *sim, int32_t segment, int64_t offset, int64_t size);

/*
 * Execute a program under the sanitizer: at most `most` findings, one for each pair of instructions and fault; *found is how
 * many there were. Accesses are checked against allocations only if there are any.
 */
NPUC_API npuc_status npuc_sim_sanitize(npuc_sim *sim, const npuc_sim_program *program, int32_t threads,
                                       const npuc_sim_allocation *allocations, int64_t allocation_count,
                                       npuc_sim_finding *findings, int64_t most, int64_t *found, npuc_sim_error *error);

/* A tensor that is watched while a program makes it. */
typedef struct npuc_sim_tensor {
    uint8_t *data;       /* gets its bytes as they are written */
    uint8_t *written;    /* gets a 1 for each of them */
    const uint8_t *forced; /* if not NULL, what is written is replaced by these bytes, and the two above are not used */
    int64_t size;        /* bytes of each of the three */
} npuc_sim_tensor;

/* A part of a tensor in memory while some instructions write it: `size` bytes from `address` on are those from `at` on. */
typedef struct npuc_sim_view {
    int32_t tensor;
    int32_t space; /* -1: local memory of the core that writes; else a segment */
    int64_t address, size, at;
} npuc_sim_view;

/*
 * What is watched. The views that instruction i of core c writes are views[entries[k]] for k from starts[c][i] to
 * starts[c][i + 1] - 1. `finished` is told of each tensor after the last instruction that writes it, and stops the run by
 * returning anything but 0.
 */
typedef struct npuc_sim_watch {
    const npuc_sim_tensor *tensors;
    const npuc_sim_view *views;
    const int32_t *entries;
    const int64_t *const *starts;
    int64_t *left; /* for each tensor, how many entries are its own; counted down */
    int32_t (*finished)(int32_t tensor);
} npuc_sim_watch;

/* Execute a program as npuc_sim_run does, and watch it; *stopped tells whether `finished` ended the run. */
NPUC_API npuc_status npuc_sim_run_watched(npuc_sim *sim, const npuc_sim_program *program, int32_t threads,
                                          const npuc_sim_watch *watch, int32_t *stopped, npuc_sim_error *error);

/* How a depthwise convolution fares on the matrix array. */
typedef enum npuc_depthwise_mode { NPUC_IDLE_INPUT_LANES = 0, NPUC_DEPTHWISE_FULL = 1, NPUC_DEPTHWISE_VECTOR = 2 } npuc_depthwise_mode;

/* A rate as a fraction; 0 / 1: not there. */
typedef struct npuc_rate {
    int64_t numerator, denominator;
} npuc_rate;

#define NPUC_SIM_TYPES 11
#define NPUC_SIM_WEIGHT_TYPES (NPUC_PACKED + 16)
#define NPUC_SIM_PATTERNS 8

/* What cycle mode knows of a machine. */
typedef struct npuc_machine {
    int32_t cores;
    int32_t input_lanes, output_lanes, pixel_lanes;
    int32_t depthwise; /* npuc_depthwise_mode */
    int32_t vector_lanes;
    int32_t table_units; /* 0: tables run on the vector lanes */
    int32_t banks;
    int64_t local_size;
    int64_t start;         /* cycles that every instruction of an engine costs beside its work */
    int64_t dram_latency, shared_latency;
    int64_t burst;         /* bytes */
    npuc_rate dram_bytes;  /* a cycle */
    npuc_rate shared_bytes;
    int64_t bank_bytes;    /* bytes a cycle of a bank: what a transfer takes away from an engine in the same bank */
    npuc_rate rates[NPUC_SIM_TYPES][NPUC_SIM_WEIGHT_TYPES]; /* activation type, weight type: share of the array's multiplications */
    npuc_rate decoder_bytes; /* a cycle, decoded; 0 / 1: constants cannot be compressed */
    int32_t patterns;        /* of N:M sparse weights that the array skips the zeros of */
    uint8_t sparse_n[NPUC_SIM_PATTERNS], sparse_m[NPUC_SIM_PATTERNS];
} npuc_machine;

/*
 * The cycles of each of `count` records on its own: start and work of an engine's instruction, the data cycles of a transfer
 * without latency (of a compressed one, of the channel or the decoder, whichever takes longer), 0 for a barrier.
 */
NPUC_API npuc_status npuc_sim_cost(const npuc_machine *machine, const uint8_t *records, int64_t count, int64_t *cycles,
                                   npuc_sim_error *error);

/*
 * Play the queues. issue, start and end have an entry for each instruction, those of core 0 first: when it left its queue,
 * when its work or data began, when it was finished. *total is the last end. Segments of the program are not looked at.
 */
NPUC_API npuc_status npuc_sim_cycles(const npuc_machine *machine, const npuc_sim_program *program, int64_t *issue,
                                     int64_t *start, int64_t *end, int64_t *total, npuc_sim_error *error);

#ifdef __cplusplus
}
#endif

#endif /* NPUC_SIM_H */
