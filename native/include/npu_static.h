/*
 * npu: a model without a heap, files or threads, for small machines.
 *
 * Of npu.h, npu_run, npu_verify, npu_entry, npu_error and the questions (npu_name, npu_input, ...) work on a model made here; there is
 * nothing to free. The arena has room for one entry at a time: npu_entry and npu_entry_for put an entry in the place of the one before
 * and return the same model, whose inputs, outputs and states are then those of that entry.
 * The runtime has to be compiled with NPUC_NO_HEAP for this: npu_init is in no other form of it. Models take turns: they share
 * the scratch memory of the kernels, and only the model that was made last may run.
 */
#ifndef NPU_STATIC_H
#define NPU_STATIC_H

#include "npu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The memory that a model needs, in bytes. */
typedef struct npu_needs {
    int64_t arena;         /* all of it */
    int64_t local, shared; /* the parts: local memory of a core and shared memory, as far as the model uses them */
    int64_t buffer[6];     /* a packed layer, its weights, its biases, scratch, tables, the order of instructions */
    int64_t kernels;       /* scratch of the kernels */
} npu_needs;

/*
 * Find out by a run on what the inputs of the model hold now; of a program with several entries, by runs of all of them, for an arena
 * in which any can run; of an entry that npu_entry gave, of that one. For a runtime with a heap; no other model may run meanwhile.
 * States that operators of plugins keep are freed: the next run begins with new ones.
 */
NPU_API npu_status npu_measure(npu_model *model, npu_needs *needs);

/*
 * Use the bytes of a .npu file (at a multiple of 8) with all memory in an arena (at a multiple of 64) of at least needs->arena
 * bytes. No allocator is called, neither here nor in a run.
 */
npu_status npu_init(const void *bytes, size_t size, const npu_needs *needs, void *arena, size_t arena_size, npu_model **model);

#ifdef __cplusplus
}
#endif

#endif /* NPU_STATIC_H */
