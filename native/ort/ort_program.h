/* A compiled part of a model: an .npu program in memory, and which of its tensors each input and output of a fused node is. */
#ifndef NPUC_ORT_PROGRAM_H
#define NPUC_ORT_PROGRAM_H

#include "npu.h"
#include "ort_abi.h"

#include <stdatomic.h>

typedef struct ort_program {
    npu_model *model;
    uint8_t *bytes; /* the .npu file */
    size_t size;
    bool batched; /* compiled for one sample: axis 0 of all tensors is the batch, and samples run one after the other */
    char *name;
    atomic_int holders;
    atomic_uint_fast64_t calls, nanoseconds, least, most; /* of all runs, for the profile */
} ort_program;

/* Take bytes over (from malloc) and load them; NULL and the reason in `why` if they are no sound program. */
ort_program *ort_program_load(uint8_t *bytes, size_t size, bool batched, const char *name, int threads, char *why, size_t room);
void ort_program_release(ort_program *program);

/*
 * An initializer that the model also lists as an input: a run may give another value for it, but the program has the one of the
 * file. It is compared in every run.
 */
#define ORT_CONSTANT SIZE_MAX
typedef struct ort_constant {
    uint8_t digest[32];
} ort_constant;

void ort_digest(const void *data, size_t size, uint8_t digest[32]);

/* What runs for a fused node: begins with what ORT calls. */
typedef struct ort_kernel {
    ort_compute_info info;
    const ort_api *api;
    ort_program *program;
    size_t input_count, output_count;
    size_t *inputs, *outputs; /* the tensor of the program for each input and output of the fused node */
    ort_constant *constants;  /* for inputs that are `ORT_CONSTANT` */
    bool timed;
} ort_kernel;

ort_kernel *ort_kernel_new(const ort_api *api, ort_program *program, size_t inputs, size_t outputs, bool timed);
void ort_kernel_free(ort_kernel *kernel);

/* Whether places are below `end`, and each number below it is among them. */
bool ort_all_given(const size_t *places, size_t count, size_t end);

/* The whole of a file, NULL if it cannot be read or has more than `most` bytes; freed by the caller. */
uint8_t *ort_read_file(const char *path, size_t most, size_t *size);

#endif
