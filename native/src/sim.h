/*
 * What the simulators share: an instruction as the bytes it touches, and the order of queues.
 *
 * Every instruction is decoded into a list of accesses: regular blocks of bytes that it reads or writes. Bounds, overlaps, the
 * sanitizer and bank conflicts all work on that list, so that a new instruction states its operands once.
 */
#ifndef NPUC_SIM_INTERNAL_H
#define NPUC_SIM_INTERNAL_H

#include "npuc/float.h"
#include "npuc/sim.h"

enum { NPUC_ACCESS_AXES = 6, NPUC_ACCESSES = 8, NPUC_LOCAL = -1 };

/* What a `reduce` makes of its elements, and the forms of `norm` and `softmax` on bf16 and f16. */
enum { NPUC_REDUCE_SUM, NPUC_REDUCE_MAX, NPUC_REDUCE_MIN, NPUC_REDUCE_ARGMAX, NPUC_REDUCE_ARGMIN, NPUC_REDUCE_MEAN };
enum { NPUC_NORM_MEAN = 2, NPUC_NORM_SUM = 3, NPUC_SOFTMAX_FLOAT = 3 };

/* Larger than any memory, and small enough that sums of a few never overflow. */
#define NPUC_HUGE ((int64_t)1 << 50)

/* Blocks of `run` bytes, repeated along up to six axes, outermost first; no axis has one element, no stride merges. */
typedef struct npuc_access {
    const char *what; /* the field */
    int32_t space;    /* NPUC_LOCAL, or a segment */
    int32_t write;
    int32_t in_place; /* the output of an elementwise instruction may lie exactly here */
    int32_t axes;
    int64_t at;
    int64_t run;
    int64_t size[NPUC_ACCESS_AXES], stride[NPUC_ACCESS_AXES];
    int64_t low, high; /* all bytes are in [low, high) */
    int64_t bytes;     /* of all blocks, without repeats */
} npuc_access;

#define MEMBER(name, opcode, queue) npuc_i_##name name;
typedef union npuc_record {
    npuc_head head;
    uint8_t bytes[NPUC_RECORD];
    NPUC_INSTRUCTIONS(MEMBER)
} npuc_record;
#undef MEMBER

typedef struct npuc_decoded {
    npuc_record record;
    int32_t count;
    npuc_access access[NPUC_ACCESSES];
    npuc_sim_error *error;
} npuc_decoded;

/* "conv", or "?" for a byte that is no opcode. */
const char *npuc_opcode_name(int32_t opcode);

/* State an error; always returns NPUC_BAD_ARGUMENT. The place is filled in by whoever knows it. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
npuc_status npuc_sim_fail(npuc_sim_error *error, const char *format, ...);

/* Where the failed instruction is. */
npuc_status npuc_sim_at(npuc_sim_error *error, npuc_status status, int32_t core, int64_t instruction, int32_t opcode);

/* Bytes of an element of a type, 0 for i4 and codes that are no type. */
int64_t npuc_sim_size(int32_t dtype);

/* Bytes of the constants of a recurrent layer. */
int64_t npuc_recurrent_constants(const npuc_i_recurrent *r);
int64_t npuc_quantized_lstm_constants(const npuc_i_quantized_lstm *r);

/* Reads a record into `decoded` and lists what it touches; no memory is looked at. */
npuc_status npuc_decode(const uint8_t *record, npuc_decoded *decoded, npuc_sim_error *error);

/* The number of blocks of an access, and the first byte of each in turn. */
int64_t npuc_access_blocks(const npuc_access *access);
typedef struct npuc_blocks {
    const npuc_access *access;
    int64_t index[NPUC_ACCESS_AXES];
    int64_t at, left;
} npuc_blocks;
npuc_blocks npuc_blocks_of(const npuc_access *access);
int npuc_next_block(npuc_blocks *blocks, int64_t *at);

/*
 * A 64-byte aligned buffer that never keeps its contents. It grows, except where there is no heap (NPUC_NO_HEAP): there it has
 * the memory that it was given.
 */
typedef struct npuc_buffer {
    uint8_t *data;
    int64_t size;
    int64_t most; /* the largest size that was asked for */
} npuc_buffer;
uint8_t *npuc_buffer_get(npuc_buffer *buffer, int64_t size);
void npuc_buffer_free(npuc_buffer *buffer);

/* The queues of a core: which instructions each has, and how many of them are done. */
typedef struct npuc_core_order {
    int64_t count;
    const uint8_t *stream;
    int64_t *place;             /* count entries: the queues one after the other */
    int64_t first[NPUC_QUEUES]; /* in place */
    int64_t length[NPUC_QUEUES];
    int64_t done[NPUC_QUEUES];
} npuc_core_order;

typedef struct npuc_order {
    int32_t cores;
    npuc_core_order *core;
    npuc_buffer own;
} npuc_order;

/*
 * Checks the heads of all records (opcode, queue, waits, numbers of barriers) and sorts them into queues. The tables are in
 * `memory`, or in a buffer of the order's own if that is NULL.
 */
npuc_status npuc_order_make(npuc_order *order, const npuc_sim_program *program, npuc_buffer *memory, npuc_sim_error *error);
void npuc_order_free(npuc_order *order);

/* The instruction at the head of a queue, or -1. */
int64_t npuc_order_head(const npuc_core_order *core, int queue);
const uint8_t *npuc_order_record(const npuc_core_order *core, int64_t instruction);

/* The number of the barrier at the head of a queue, if it is one that has nothing else to wait for; otherwise 0. */
uint32_t npuc_order_barrier(const npuc_core_order *core, int queue);

/*
 * What looks on while a program runs: before and after each instruction, and at a barrier that opens at the heads of a queue of
 * all cores. What is NULL is not called.
 */
typedef struct npuc_observer {
    npuc_status (*instruction)(void *context, int32_t core, int64_t instruction, const npuc_decoded *decoded);
    void (*barrier)(void *context, const npuc_order *order, int queue);
    void *context;
    npuc_status (*finished)(void *context, int32_t core, int64_t instruction, const npuc_decoded *decoded);
} npuc_observer;

/* The memory that an access of a core is in, and its size; NULL if there is no such segment. */
uint8_t *npuc_sim_memory_of(const npuc_sim *sim, const npuc_sim_program *program, int32_t core, const npuc_access *access, int64_t *size);

/* Executes a program in an order that its waits and barriers allow: each core in the order of its stream, where it can. */
npuc_status npuc_sim_execute(npuc_sim *sim, const npuc_sim_program *program, int32_t threads, const npuc_observer *observer,
                             npuc_sim_error *error);

/* The shadow of memories between runs: owned by the simulator, known to the sanitizer. */
typedef struct npuc_shadow npuc_shadow;
void npuc_shadow_free(npuc_shadow *shadow);
npuc_shadow **npuc_sim_shadow(npuc_sim *sim);
int64_t npuc_sim_local_size(const npuc_sim *sim);
int64_t npuc_sim_shared_size(const npuc_sim *sim);
int32_t npuc_sim_core_count(const npuc_sim *sim);

/* Whether kernels of plugins are called with guards around what they write. */
void npuc_sim_guard(npuc_sim *sim, int32_t guarded);

/* What a run takes if it packs every layer anew: bytes. */
enum { NPUC_SIM_BUFFERS = 6 };
typedef struct npuc_sim_needs {
    int64_t local, shared;            /* of the memories of the machine, up to the last byte that is used */
    int64_t buffer[NPUC_SIM_BUFFERS]; /* the largest packed layer, its weights, its biases, scratch, tables, the order */
} npuc_sim_needs;

#if defined(NPUC_NO_HEAP)
/* A simulator in memory that the caller gives, 64-byte aligned; NULL counts the bytes. Returns NULL if they are too few. */
npuc_sim *npuc_sim_create_at(uint8_t *memory, int64_t *size, const npuc_sim_needs *needs, int32_t cores, const uint8_t *constants,
                             int64_t constants_size);
#else
/* Forget packed layers and keep none from now on, so that runs show what a machine without a heap needs. */
void npuc_sim_be_frugal(npuc_sim *sim);
void npuc_sim_needed(const npuc_sim *sim, npuc_sim_needs *needs);
#endif

#endif /* NPUC_SIM_INTERNAL_H */
