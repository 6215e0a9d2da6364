/*
 * npu: kernels of custom instructions. A plugin of the compiler gives an instruction its meaning by a kernel; a program in C
 * that runs such a model registers the same kernel under the same name before the first run (docs/plugins.md).
 */
#ifndef NPU_KERNEL_H
#define NPU_KERNEL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "npu.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NPU_KERNEL_NAME 32
#define NPU_KERNEL_PARAMETERS 16
#define NPU_MOST_KERNELS 64

/*
 * One instruction: dense blocks, and the numbers that the compiler wrote for the kernel. The sizes are those of the
 * instruction and the blocks lie inside of memory, but whether they fit each other is for the kernel to say: a model file may be
 * damaged. x, b and y are aligned to `bytes`, constants and workspaces to 16; y and workspaces overlap nothing.
 *
 * Of a kernel for local memory, x, b, y and workspace are there; of one for global memory they are in global memory, x, b and y whole
 * tensors, and local_workspace is in local memory. What is in a workspace before the kernel has written it is undefined.
 */
typedef struct npu_kernel_call {
    const void *x, *b, *constants; /* b and constants may be NULL */
    void *y;
    int64_t x_bytes, b_bytes, constant_bytes, y_bytes;
    const int32_t *parameters; /* NPU_KERNEL_PARAMETERS */
    int32_t bytes;             /* 1, 2, 4 or 8 */
    void *workspace, *local_workspace; /* NULL if the plugin asked for none */
    int64_t workspace_bytes, local_workspace_bytes;
} npu_kernel_call;

/* Returns 0, or anything else if it refuses its operands; y counts only after a 0. It may be called from several threads. */
typedef int32_t (*npu_kernel)(const npu_kernel_call *call);

/* A parameter that the compiler stated as a real number. */
static inline float npu_kernel_real(const npu_kernel_call *call, int32_t index)
{
    float value;
    memcpy(&value, &call->parameters[index], sizeof value);
    return value;
}

/*
 * One of several constants, at a multiple of 16, and its size; NULL if there is none of this number. Of a text, a zero follows, which the
 * size does not count.
 */
static inline const void *npu_kernel_constant(const npu_kernel_call *call, int32_t index, int64_t *bytes)
{
    int32_t count, place[2];
    const char *base = (const char *)call->constants;
    *bytes = 0;
    if (!base || call->constant_bytes < (int64_t)sizeof count) return NULL;
    memcpy(&count, base, sizeof count);
    const int64_t at = (int64_t)sizeof count + index * (int64_t)sizeof place;
    if (index < 0 || index >= count || at > call->constant_bytes - (int64_t)sizeof place) return NULL;
    memcpy(place, base + at, sizeof place);
    if (place[0] < 0 || place[1] < 0 || place[0] > call->constant_bytes - place[1]) return NULL;
    *bytes = place[1];
    return base + place[0];
}

/* Give a kernel its name; a later one takes the place of an earlier one of the same name. */
NPU_API npu_status npu_register_kernel(const char *name, npu_kernel kernel);

#ifdef __cplusplus
}
#endif

#endif /* NPU_KERNEL_H */
