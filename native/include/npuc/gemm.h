/*
 * npuc: the layers that multiply: convolution, transposed convolution, fully connected, matmul.
 *
 * acc = bias[c] + sum (q_x - z_x) * (q_w - z_w), exact, then the output stage. A layer with constant weights is prepared once
 * into a buffer of the caller's, which holds everything (packed weights, folded biases, the output stage) and is then only
 * read: any number of threads may run it.
 */
#ifndef NPUC_GEMM_H
#define NPUC_GEMM_H

#include "npuc/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The instruction set in use: "avx512vnni" or "avx2", "neondot" or "neon", or "portable". The environment variable NPUC_ISA, read once, forces one. */
NPUC_API const char *npuc_isa(void);

/* Choose one (NULL: the best). NPUC_UNSUPPORTED if this CPU cannot run it. Results never depend on it. */
NPUC_API npuc_status npuc_isa_select(const char *name);

/* A convolution, or a transposed one. A fully connected layer is a 1 x 1 convolution over a batch of pixels. */
typedef struct npuc_conv {
    int32_t transposed;
    int32_t groups;
    int32_t in_channels, out_channels;
    int32_t kernel_h, kernel_w;
    int32_t stride_h, stride_w;
    int32_t dilation_h, dilation_w;
    int32_t pad_top, pad_left;
    int32_t x_dtype; /* NPUC_I8, NPUC_U8 or NPUC_I16 */
    int32_t x_zero_point;
    int32_t y_dtype; /* NPUC_I8, NPUC_U8, NPUC_I16, or NPUC_I32 */
    int32_t wide;    /* accumulate in 64 bits */
} npuc_conv;

/*
 * Bytes of the prepared layer, or 0 for a layer that makes no sense.
 */
NPUC_API size_t npuc_conv_size(const npuc_conv *conv);

/*
 * Prepare a layer into `buffer` (64-byte aligned, npuc_conv_size() bytes).
 *
 * `weight` is q_w - z_w, (out_channels, in_channels / groups, kernel_h, kernel_w), also for the transposed layer; `bias` has
 * one entry for each output channel, or is NULL. Without `requant` the outputs are the accumulators, y_dtype NPUC_I32. Unless
 * the layer is `wide`, the caller has proved that no accumulator leaves int32.
 */
NPUC_API npuc_status npuc_conv_prepare(const npuc_conv *conv, const int16_t *weight, const int64_t *bias,
                                       const npuc_requant *requant, void *buffer, size_t size);

/* x (batch, height, width, in_channels) to y (batch, out_height, out_width, out_channels), both dense. */
NPUC_API npuc_status npuc_conv_run(const void *prepared, const void *x, int64_t batch, int64_t height, int64_t width, void *y,
                                   int64_t out_height, int64_t out_width, int32_t threads);

/* y = a * b for each of `batch` pairs of matrices, both activations; offsets are in elements, y is dense. */
typedef struct npuc_matmul {
    int32_t a_dtype, b_dtype, y_dtype;
    int32_t a_zero_point, b_zero_point;
    int32_t transposed_b; /* b is (n, k) in memory */
    int32_t wide;
    int32_t threads;
    int64_t m, k, n;
    int64_t batch;
    const int64_t *a_offset, *b_offset; /* `batch` entries each */
} npuc_matmul;

/* `requant` has one set of parameters, or one for each column; NULL: raw accumulators. */
NPUC_API npuc_status npuc_matmul_run(const npuc_matmul *matmul, const void *a, const void *b, const npuc_requant *requant,
                                     void *y);

#ifdef __cplusplus
}
#endif

#endif /* NPUC_GEMM_H */
