/*
 * npuc: bf16, f16 and f32, one call an op, whole tensors.
 *
 * The arithmetic is docs/arithmetic-float.md, to the bit: operands are widened to f32, a product is exact, sums run in f32 in
 * a fixed order (kernel row, kernel column, input channel), and the result is rounded to nearest even. Activations of rank 4
 * are NHWC in memory. `dtype` is NPUC_BF16, NPUC_F16 or NPUC_F32, of all tensors but biases, gains and offsets, which are f32.
 */
#ifndef NPUC_FLOAT_H
#define NPUC_FLOAT_H

#include "npuc/kernels.h"
#include "npuc/vector.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether a type is a float: the types that the kernels below compute with. */
static inline int npuc_is_float(int32_t dtype) { return dtype == NPUC_BF16 || dtype == NPUC_F16 || dtype == NPUC_F32; }

/* Whether it is one of 16 bits, whose functions are tables. */
static inline int npuc_is_narrow(int32_t dtype) { return dtype == NPUC_BF16 || dtype == NPUC_F16; }

/* Whether a type is of packed blocks. */
static inline int npuc_is_block(int32_t dtype) { return dtype == NPUC_MX6 || dtype == NPUC_MX9; }

/* A convolution, or a transposed one. A fully connected layer is a 1 x 1 convolution over a batch of pixels. */
typedef struct npuc_float_conv {
    int32_t transposed;
    int32_t groups;
    int32_t in_channels, out_channels;
    int32_t kernel_h, kernel_w;
    int32_t stride_h, stride_w;
    int32_t dilation_h, dilation_w;
    int32_t pad_top, pad_left;
    int32_t dtype;
    int32_t relu;
    float relu_limit; /* the upper limit of the relu if it is positive */
} npuc_float_conv;

/* Bytes of the prepared layer, or 0 for a layer that makes no sense. */
NPUC_API size_t npuc_float_conv_size(const npuc_float_conv *conv);

/*
 * Prepare a layer into `buffer` (64-byte aligned, npuc_float_conv_size() bytes), which is then only read.
 *
 * `weight` has the layer's dtype, (out_channels, in_channels / groups, kernel_h, kernel_w), also for the transposed layer, and
 * must be finite; `bias` has one entry for each output channel, or is NULL.
 */
NPUC_API npuc_status npuc_float_conv_prepare(const npuc_float_conv *conv, const void *weight, const float *bias,
                                             void *buffer, size_t size);

/* x (batch, height, width, in_channels) to y (batch, out_height, out_width, out_channels), both dense. */
NPUC_API npuc_status npuc_float_conv_run(const void *prepared, const void *x, int64_t batch, int64_t height, int64_t width,
                                         void *y, int64_t out_height, int64_t out_width, int32_t threads);

/* y = relu(a * b + bias) for each of `batch` pairs of matrices; offsets are in elements, y is dense. */
typedef struct npuc_float_matmul {
    int32_t dtype;
    int32_t transposed_b; /* b is (n, k) in memory */
    int32_t threads;
    int32_t relu;
    float relu_limit;
    int64_t m, k, n;
    int64_t batch;
    const int64_t *a_offset, *b_offset; /* `batch` entries each */
} npuc_float_matmul;

/* `bias` has an entry for each column, or is NULL. */
NPUC_API npuc_status npuc_float_matmul_run(const npuc_float_matmul *matmul, const void *a, const void *b,
                                           const float *bias, void *y);

/* y = x as another type, each of NPUC_F32, NPUC_BF16 and NPUC_F16: exact, or rounded to nearest even. */
NPUC_API npuc_status npuc_float_cast(const void *x, int32_t x_dtype, int64_t count, void *y, int32_t y_dtype, int32_t threads);

/* y = table[x], x and y of 16 bits, the table by the bits of x. */
NPUC_API npuc_status npuc_float_table(const uint16_t *x, int64_t count, const uint16_t *table, uint16_t *y, int32_t threads);

/*
 * A function of f32 by `pieces` polynomials, which lie behind a directory of NPUC_PIECEWISE_WORDS words (docs/arithmetic-float.md). A table
 * whose directory leaves its pieces is refused. y may be x.
 */
enum { NPUC_PIECEWISE_SIGN = 280, NPUC_PIECEWISE_WORDS = 2 * NPUC_PIECEWISE_SIGN, NPUC_PIECE = 8 /* numbers of f64 */ };
NPUC_API npuc_status npuc_float_piecewise(const float *x, int64_t count, const void *table, int64_t pieces, float *y, int32_t threads);

/*
 * y = relu(a + b), a - b, a * b, or the larger or the smaller of both in IEEE's total order (operation 0 to 4) under
 * broadcasting: strides of `rank` entries, in elements; y is dense.
 */
typedef struct npuc_float_binary {
    int32_t dtype;
    int32_t operation;
    int32_t relu;
    float relu_limit;
    int32_t rank; /* at most 8 */
    int32_t threads;
    const int64_t *shape, *a_stride, *b_stride;
} npuc_float_binary;

NPUC_API npuc_status npuc_float_binary_run(const npuc_float_binary *binary, const void *a, const void *b, void *y);

/* The sum of each window in f32, rows first, divided by its count of real positions, or of all (`include_pad`). */
NPUC_API npuc_status npuc_float_average_pool(const npuc_pool *pool, const void *x, int32_t dtype, int32_t include_pad,
                                             void *y, int32_t threads);

/* The largest of each window in IEEE's total order. */
NPUC_API npuc_status npuc_float_max_pool(const npuc_pool *pool, const void *x, int32_t dtype, void *y, int32_t threads);

/* Softmax of dense rows: e^(x - the largest) over the sum of all, which runs in the order of the elements. */
NPUC_API npuc_status npuc_float_softmax(const void *x, int32_t dtype, int64_t rows, int64_t width, void *y, int32_t threads);

/*
 * Dense rows, less their mean (`center`), divided by a root: of the mean of squares plus epsilon (`mean`), or of the sum of
 * squares, at least epsilon (a row whose root is zero becomes zeros); then times gain, plus bias. An element has the entry
 * row % row_modulus * row_factor + column / column_divisor of both.
 */
typedef struct npuc_float_norm {
    int32_t dtype;
    int32_t center;
    int32_t mean;
    float epsilon;
    int64_t rows, width;
    int64_t row_modulus, row_factor, column_divisor;
} npuc_float_norm;

NPUC_API npuc_status npuc_float_normalize(const npuc_float_norm *norm, const void *x, const float *gain, const float *bias,
                                          int64_t entries, void *y, int32_t threads);

/* The sum over the middle of (outer, count, inner), or the sum divided by count (`mean`). */
NPUC_API npuc_status npuc_float_reduce_sum(const void *x, int32_t dtype, int64_t outer, int64_t count, int64_t inner,
                                           int32_t mean, void *y, int32_t threads);

/* The largest or the smallest over the middle of (outer, count, inner), in IEEE's total order. */
NPUC_API npuc_status npuc_float_reduce_extreme(const void *x, int32_t dtype, int64_t outer, int64_t count, int64_t inner,
                                               int32_t larger, void *y, int32_t threads);

/* Bytes of a row of `width` numbers in packed blocks; 0 for a type that has none. */
NPUC_API int64_t npuc_block_bytes(int32_t format, int64_t width);

/* Rows of floats as packed blocks of NPUC_MX6 or NPUC_MX9, and back to f32, which holds them exactly. */
NPUC_API npuc_status npuc_block_pack(const void *x, int32_t dtype, int64_t rows, int64_t width, int32_t format, uint8_t *y,
                                     int32_t threads);
NPUC_API npuc_status npuc_block_unpack(const uint8_t *x, int64_t rows, int64_t width, int32_t format, float *y, int32_t threads);

/* The bits of bf16 or f16 as integers of the same order, IEEE's total order; applied twice it gives the floats back. */
NPUC_API npuc_status npuc_float_order(const uint16_t *x, int64_t count, int16_t *y);

#ifdef __cplusplus
}
#endif

#endif /* NPUC_FLOAT_H */
