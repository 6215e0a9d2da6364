/*
 * npu: compiled models (.npu files) from C. Load, ask what goes in and out, run, wait; nothing but libc, libm and threads.
 *
 * This runtime executes the model's instructions on the CPU, to the bit. CPU subgraphs run in host operators of its own, within
 * rounding of ONNX Runtime; docs/host-ops.md lists them.
 * Tensors are dense arrays of their logical shape (N x C x H x W for pictures), of the type that the model states; where that
 * is float32, or plain integers that the network takes as reals, the conversion to the integers of the network is part of the run.
 *
 * Every call that can fail returns an npu_status, and npu_error() has the reason in words. A model may be used from many
 * threads: its runs take turns, or, after npu_set_runs, so many of them go on at once. The caller owns all tensors; they have to stay as they are until the run or the job is done.
 */
#ifndef NPU_H
#define NPU_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#  define NPU_API __attribute__((visibility("default")))
#else
#  define NPU_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define NPU_MOST_AXES 8

typedef enum npu_status {
    NPU_OK = 0,
    NPU_NO_FILE = 1,     /* cannot be opened or read */
    NPU_BAD_FILE = 2,    /* not a sound .npu file */
    NPU_UNSUPPORTED = 3, /* has an operator on the CPU (npu_error() says which), or a type, that this runtime has not */
    NPU_BAD_ARGUMENT = 4,
    NPU_NO_MEMORY = 5,
    NPU_RUN_FAILED = 6, /* an instruction was refused */
    NPU_TIMEOUT = 7,    /* the job is not done yet */
    NPU_CANCELLED = 8,  /* the model was freed before the job began */
    NPU_BAD_SIGNATURE = 9 /* not signed by this key, or changed since */
} npu_status;

typedef enum npu_dtype {
    NPU_I8 = 0,
    NPU_U8 = 1,
    NPU_I16 = 2,
    NPU_I32 = 3,
    NPU_F32 = 5,
    NPU_BF16 = 6,
    NPU_F16 = 7,
    NPU_I64 = 8,
    NPU_BOOL = 9, /* a byte, 0 or 1 */
    NPU_U16 = 10,
    NPU_U32 = 11,
    NPU_U64 = 12,
    NPU_F64 = 13
} npu_dtype;

/* An input or output. */
typedef struct npu_tensor {
    const char *name;
    int32_t dtype; /* npu_dtype */
    int32_t rank;
    int64_t shape[NPU_MOST_AXES];
    int64_t elements;
    size_t size;  /* bytes */
    double scale; /* real = scale * (q - zero_point); 0: the elements are plain numbers */
    int32_t zero_point;
} npu_tensor;

typedef struct npu_model npu_model;
typedef struct npu_job npu_job;

/*
 * Map a file. It must not change while the model is in use. Everything is checked but the checksums of the weights, so that the
 * time does not grow with them; the first run compares those, and returns NPU_BAD_FILE if the weights are damaged.
 */
NPU_API npu_status npu_load(const char *path, npu_model **model);

/* Use a file that is in memory, at an address that is a multiple of 8. The bytes stay the caller's and must not change. */
NPU_API npu_status npu_load_memory(const void *bytes, size_t size, npu_model **model);

/*
 * Refuse a model that the owner of a public key (Ed25519, 32 bytes) has not signed (`npuc sign`), with NPU_BAD_SIGNATURE. To be
 * called between loading and the first run, which compares the weights with the digests that are signed; without it, a signature
 * is passed over. Entries are signed as one.
 */
NPU_API npu_status npu_verify(const npu_model *model, const uint8_t *key);

/* Compare the checksums of the weights now, and not in the first run: NPU_OK, or NPU_BAD_FILE if they are damaged. */
NPU_API npu_status npu_check_weights(npu_model *model);

/* Wait for the runs that are going on, cancel the jobs that have not begun, and free the model. NULL is nothing. */
NPU_API void npu_free(npu_model *model);

/* The name of the model, as the compiler was told. */
NPU_API const char *npu_name(const npu_model *model);

NPU_API int32_t npu_input_count(const npu_model *model);
NPU_API int32_t npu_output_count(const npu_model *model);

/* An input or output, valid as long as the model is; NULL if there is none of this number. */
NPU_API const npu_tensor *npu_input(const npu_model *model, int32_t index);
NPU_API const npu_tensor *npu_output(const npu_model *model, int32_t index);

/*
 * A program may have several entries: networks, batch sizes or resolutions over one set of weights (`npuc combine`). The model
 * that is loaded is the first. Another is a model of its own, with runs and jobs of its own; it belongs to the one that was
 * loaded and is freed with it (npu_free of an entry does nothing). Its memory is made when it is first asked for.
 */
NPU_API int32_t npu_entry_count(const npu_model *model);

/* The name of an entry; "" if there is none of this number, or if the program has but one. */
NPU_API const char *npu_entry_name(const npu_model *model, int32_t index);

/* An entry by its name. */
NPU_API npu_status npu_entry(npu_model *model, const char *name, npu_model **entry);

/*
 * The first entry that takes inputs of these shapes: of `inputs`, one for each input in their order, rank and shape are read, and
 * name where it is not NULL.
 */
NPU_API npu_status npu_entry_for(npu_model *model, const npu_tensor *inputs, int32_t count, npu_model **entry);

/*
 * A subgraph as a model of its own, by its number in npu_times (from 1): it takes and gives the tensors of that subgraph as they
 * are in the program, which for the NPU are its integers. It belongs to the model that was loaded and is freed with it. NPU_BAD_ARGUMENT
 * for a subgraph that converts tensors at the ends, and for a number that there is not.
 */
NPU_API npu_status npu_part(npu_model *model, int32_t index, npu_model **part);

/* How many CPU threads a run may use, 1 to 64; 1 unless it is stated. */
NPU_API npu_status npu_set_threads(npu_model *model, int32_t threads);

/*
 * How many runs of the model may go on at once, 1 to 64; 1 unless it is stated. Each has memory of its own, which is made when
 * runs first overlap and kept until the model is freed. Jobs have as many worker threads.
 */
NPU_API npu_status npu_set_runs(npu_model *model, int32_t runs);

/*
 * States: what the model carries from one run to the next. The input of a state takes what its output gave in the run before, and
 * zeros in the first run and after npu_reset. In npu_run and npu_submit, NULL stands for the input of a state (a pointer is taken
 * instead of what the model carries) and for its output, if the caller does not want it. A model is one stream: its runs take turns.
 */
NPU_API int32_t npu_state_count(const npu_model *model);

/* The numbers of the input and the output of a state. */
NPU_API npu_status npu_state(const npu_model *model, int32_t index, int32_t *input, int32_t *output);

/* Begin a new stream; waits for a run that goes on. */
NPU_API npu_status npu_reset(npu_model *model);

/* Run: one pointer for each input and each output, in their order. */
NPU_API npu_status npu_run(npu_model *model, const void *const *inputs, void *const *outputs);

/* A tensor with gaps: its first element, and the bytes from an element to the next along each axis. */
typedef struct npu_view {
    void *data;
    int64_t stride[NPU_MOST_AXES];
} npu_view;

/*
 * The strides of a tensor whose `dense` innermost axes have no gaps and whose every such line begins at a multiple of `alignment`
 * bytes: of N x C x H x W, 1 aligns rows; of N x H x W x C, 2 does. Returns the bytes that the tensor then takes; -1 for nonsense.
 */
NPU_API int64_t npu_strides(const npu_tensor *tensor, int32_t dense, int64_t alignment, int64_t *stride);

/* Run on tensors with gaps, such as images in a camera's buffers; nothing is copied beyond what npu_run copies. */
NPU_API npu_status npu_run_views(npu_model *model, const npu_view *inputs, const npu_view *outputs);

/* npu_run in the background. Jobs of a model begin in the order in which they were submitted. */
NPU_API npu_status npu_submit(npu_model *model, const void *const *inputs, void *const *outputs, npu_job **job);

/*
 * Wait for a job, at most `seconds` (less than 0: for ever; 0: only look). Returns what its run returned, or NPU_TIMEOUT, after
 * which the job still goes on and can be waited for again.
 */
NPU_API npu_status npu_wait(npu_job *job, double seconds);

/* Wait until a job is done and free it. NULL is nothing. */
NPU_API void npu_job_free(npu_job *job);

/*
 * How long runs took: part 0 is the whole run, the others are the subgraphs in their order. Only runs that succeeded count. With the
 * environment variable NPUC_TRACE=FILE.json, all of it is also a trace for chrome://tracing and https://ui.perfetto.dev.
 */
typedef struct npu_time {
    const char *name;
    int32_t device; /* -1: the whole, 0: the NPU, 1: the CPU, 2: a conversion by the host */
    int64_t runs;
    double least, mean, most; /* seconds */
} npu_time;
NPU_API int32_t npu_time_count(const npu_model *model);
NPU_API npu_status npu_times(npu_model *model, int32_t index, npu_time *time);

/* Count anew. */
NPU_API npu_status npu_reset_times(npu_model *model);

/* All of it as lines of text. Returns the bytes of the whole text, without its zero, of which `size` - 1 are written at most. */
NPU_API int64_t npu_summary(npu_model *model, char *text, size_t size);

/* Why the last call of this thread failed; "" if none did. Valid until the next call that fails in this thread. */
NPU_API const char *npu_error(void);

#ifdef __cplusplus
}
#endif

#endif /* NPU_H */
