/*
 * npuc: the integer kernels that are no matrix products: elementwise, pools, tables, softmax, norms, reductions, resizing.
 *
 * The arithmetic is docs/arithmetic.md and the docs/arithmetic-*.md beside it, to the bit. Inputs may be NPUC_I8, NPUC_U8 or
 * NPUC_I16 unless a function says otherwise. Pointers must be valid for the sizes that the shapes give; everything else is
 * checked, and a call that cannot be carried out returns an npuc_status and touches nothing. `threads` is the most threads to
 * use (0: as many as the machine has); the result does not depend on it.
 */
#ifndef NPUC_VECTOR_H
#define NPUC_VECTOR_H

#include "npuc/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor read through strides (in elements; 0 repeats), one for each dimension of the output: at most 8. */
typedef struct npuc_view {
    const void *data;
    const int64_t *stride;
    int32_t dtype;
    int32_t zero_point;
} npuc_view;

/* The parameters of an addition; which are used depends on the kind (docs/arithmetic-eltwise.md). */
typedef struct npuc_add_parameters {
    int32_t kind; /* npuc_requant_kind */
    int32_t subtract;
    int32_t left;
    int32_t multiplier_a;
    int32_t shift_a;
    int32_t multiplier_b;
    int32_t shift_b;
    int32_t multiplier;
    int32_t shift;
    float scale_a;
    float scale_b;
    int32_t zero_point;
    int32_t lo;
    int32_t hi;
} npuc_add_parameters;

/* y = a + b or a - b. `y` is contiguous and of type `dtype`. */
NPUC_API npuc_status npuc_add(
    const npuc_view *a, const npuc_view *b, int32_t rank, const int64_t *shape, const npuc_add_parameters *parameters,
    int32_t dtype, void *y, int32_t threads);

/* y = a * b through an output stage. */
NPUC_API npuc_status npuc_mul(
    const npuc_view *a, const npuc_view *b, int32_t rank, const int64_t *shape, const npuc_requant *rq, int32_t dtype,
    void *y, int32_t threads);

/* The smaller (or the larger) of two tensors of one type, scale and zero point, within [lo, hi]. */
NPUC_API npuc_status npuc_minmax(
    const npuc_view *a, const npuc_view *b, int32_t rank, const int64_t *shape, int32_t larger, int32_t lo, int32_t hi,
    int32_t dtype, void *y, int32_t threads);

/* y = rq(x - zero_point), n contiguous elements; x may also be NPUC_I32 (zero_point 0). */
NPUC_API npuc_status npuc_requant_tensor(
    const void *x, int32_t x_dtype, int32_t zero_point, int64_t n, const npuc_requant *rq, int32_t dtype, void *y,
    int32_t threads);

/* y = sat(round(x / scale) + zero_point); the division is in float32; NaN becomes the zero point; half away or half even. */
NPUC_API npuc_status npuc_quantize(
    const float *x, int64_t n, float scale, int32_t zero_point, int32_t rounding, int32_t lo, int32_t hi, int32_t dtype,
    void *y, int32_t threads);

/* y = scale * (x - zero_point) in float32; x may also be NPUC_I32. */
NPUC_API npuc_status npuc_dequantize(
    const void *x, int32_t x_dtype, int64_t n, float scale, int32_t zero_point, float *y, int32_t threads);

/* The windows of a pool over an NHWC tensor; what lies outside of the input is padding. */
typedef struct npuc_pool {
    int64_t n, h, w, c;
    int64_t out_h, out_w;
    int64_t kernel_h, kernel_w;
    int64_t stride_h, stride_w;
    int64_t dilation_h, dilation_w;
    int64_t pad_top, pad_left;
} npuc_pool;

/* The largest element of each window; padding never wins, and each window must hold an element. */
NPUC_API npuc_status npuc_max_pool(const npuc_pool *pool, const void *x, int32_t dtype, void *y, int32_t threads);

/*
 * The mean of each window. NPUC_DOUBLE_ROUNDING: the sum of the integers over their count, rounded half away from zero, within
 * [lo, hi]; `rq` needs no multiplier. Other kinds: rq(sum of (q - zero_point)), entry count - 1 of `rq` for a window of count
 * elements, or the one entry of `rq` for all. With `include_pad` padding counts, as elements of value zero_point.
 */
NPUC_API npuc_status npuc_average_pool(
    const npuc_pool *pool, const void *x, int32_t x_dtype, int32_t zero_point, int32_t include_pad, const npuc_requant *rq,
    int32_t dtype, void *y, int32_t threads);

/* y = table[x - lowest x]: 256 entries of an 8-bit x in ascending order; `dtype` is the type of entries and output. */
NPUC_API npuc_status npuc_table8(
    const void *x, int32_t x_dtype, int64_t n, const void *table, int32_t dtype, void *y, int32_t threads);

/* The same with a table of its own for each of `channels`: x is [outer, channels, inner], the tables are [channels, 256]. */
NPUC_API npuc_status npuc_channel_table8(
    const void *x, int32_t x_dtype, int64_t outer, int64_t channels, int64_t inner, const void *table, int32_t dtype, void *y,
    int32_t threads);

/*
 * x of 8 or 16 bits through 2^segments + 1 entries of type `dtype`, linear between them, rounding half up; fewer segments than x has
 * values. Entries of i16 for an x of i16.
 */
NPUC_API npuc_status npuc_table_between(
    const void *x, int32_t x_dtype, int64_t n, const void *table, int32_t dtype, int32_t segments, void *y, int32_t threads);

/* A 16-bit x through 513 entries, one every 128 steps, linear between them, rounding half up. */
NPUC_API npuc_status npuc_table16(const int16_t *x, int64_t n, const int16_t *table, int16_t *y, int32_t threads);

/*
 * Softmax of contiguous rows (docs/arithmetic-softmax.md). `coarse` and `fine` have 256 entries of exponentials as 2^30, of
 * multiples of 256 and of 1; multiplier and shift are those of 1 / scale of the output. NPUC_HALF_UP or NPUC_HALF_EVEN.
 */
NPUC_API npuc_status npuc_softmax(
    const void *x, int32_t x_dtype, int64_t rows, int64_t width, const uint32_t *coarse, const uint32_t *fine,
    int32_t multiplier, int32_t shift, int32_t rounding, int32_t zero_point, int32_t lo, int32_t hi, int32_t dtype, void *y,
    int32_t threads);

/* TFLite's softmax of 8-bit rows (below 4096 elements). */
NPUC_API npuc_status npuc_softmax_tflite8(
    const void *x, int32_t x_dtype, int64_t rows, int64_t width, int32_t multiplier, int32_t left, int32_t diff_min,
    int32_t dtype, void *y, int32_t threads);

/* TFLite's softmax of 16-bit rows (up to 65535 elements); tables of 513 entries. */
NPUC_API npuc_status npuc_softmax_tflite16(
    const int16_t *x, int64_t rows, int64_t width, int32_t multiplier, int32_t shift, const int16_t *exp_table,
    const int16_t *reciprocal_table, int16_t *y, int32_t threads);

/*
 * Rows, each divided by its root (docs/arithmetic-norm.md): layer norm and its kin.
 *
 * An element of row r and column c takes entry r % row_modulus * row_factor + c / column_divisor of gain and bias.
 */
typedef struct npuc_norm {
    int32_t x_dtype, dtype;
    int64_t rows, width;
    int32_t x_zero_point;
    int32_t center; /* take the row's mean away first */
    uint64_t epsilon;
    int64_t row_modulus, row_factor, column_divisor;
    int32_t shift;
    int32_t rounding; /* NPUC_HALF_UP or NPUC_HALF_EVEN */
    int32_t zero_point, lo, hi;
} npuc_norm;

/* |gain| up to 2^30 and |bias| up to 2^60, `entries` of each. */
NPUC_API npuc_status npuc_normalize(
    const npuc_norm *norm, const void *x, const int32_t *gain, const int64_t *bias, int64_t entries, void *y,
    int32_t threads);

/* TFLite's L2 normalization of 8-bit rows of up to 32768 elements; the output has scale 1/128 and the middle as zero point. */
NPUC_API npuc_status npuc_l2_norm_tflite8(
    const void *x, int32_t dtype, int32_t zero_point, int64_t rows, int64_t width, void *y, int32_t threads);

/* rq(sum of (x - zero_point)) over the middle of [outer, count, inner]. */
NPUC_API npuc_status npuc_reduce_sum(
    const void *x, int32_t x_dtype, int32_t zero_point, int64_t outer, int64_t count, int64_t inner, const npuc_requant *rq,
    int32_t dtype, void *y, int32_t threads);

/* The largest (or smallest) element over the middle of [outer, count, inner]. */
NPUC_API npuc_status npuc_reduce_extreme(
    const void *x, int32_t dtype, int64_t outer, int64_t count, int64_t inner, int32_t larger, void *y, int32_t threads);

/* Where it is: the first place, or the last. */
NPUC_API npuc_status npuc_reduce_where(
    const void *x, int32_t dtype, int64_t outer, int64_t count, int64_t inner, int32_t larger, int32_t last, int64_t *y,
    int32_t threads);

/* The places of the k largest (or smallest) elements over the middle of [outer, count, inner], in order; of equal ones the first
 * come first. */
NPUC_API npuc_status npuc_top_k(
    const void *x, int32_t dtype, int64_t outer, int64_t count, int64_t inner, int64_t k, int32_t larger, int64_t *places,
    int32_t threads);

/* A bilinear resize of NHWC; an output row lies `row_weight / 2^bits` of the way from row_low to row_high of the input. */
typedef struct npuc_resize {
    int64_t n, h, w, c;
    int64_t out_h, out_w;
    const int64_t *row_low, *row_high;
    const int32_t *row_weight;
    const int64_t *column_low, *column_high;
    const int32_t *column_weight;
    int32_t bits; /* 1 to 11 */
    int32_t rounding;
    int32_t dtype;
} npuc_resize;

NPUC_API npuc_status npuc_resize_bilinear(const npuc_resize *resize, const void *x, void *y, int32_t threads);

/*
 * One direction of an LSTM (4 gates, in the order input, forget, cell, output), a GRU (3 gates: update, reset, new) or a simple
 * recurrent layer (1): docs/arithmetic-recurrent.md. Rows of weights and parameters are gate * hidden + unit.
 */
typedef struct npuc_recurrent {
    int32_t gates;
    int32_t linear_before_reset; /* GRU */
    int32_t coupled;             /* LSTM: the forget gate is 1 less the input gate */
    int32_t reverse;             /* from the last step to the first */
    int32_t cell_bits;           /* LSTM: bits behind the point of a cell */
    int32_t limit;               /* arguments of gates are clamped to +-limit; 32768: to 16 bits only */
    int64_t steps, batch, inputs, hidden;
    int64_t projected; /* LSTM with a projection: its outputs, which are h then; otherwise 0 */
    int64_t y_stride;  /* elements from one step of y to the next: batch * outputs, or more */
    int32_t x_dtype, x_zero_point;
    int32_t h_dtype, h_zero_point;
    int32_t lo, hi;
    const int16_t *w, *r;
    const int32_t *multiplier_x, *multiplier_h, *shift;
    const int64_t *bias;
    const int64_t *bias_h;   /* GRU with linear_before_reset: of the new gate, behind the reset */
    const int16_t *peephole; /* LSTM, or NULL: 3 * hidden, of the input, forget and output gate */
    const int32_t *multiplier_c;
    const int16_t *projection; /* projected * hidden */
    const int32_t *multiplier_p, *shift_p;
    const int16_t *sigmoid, *tanh, *cell_tanh; /* 513 entries each; a simple layer has `tanh` only, a GRU the first two */
    int32_t out_multiplier, out_shift;
} npuc_recurrent;

/*
 * x is [steps, batch, inputs], y [steps, batch, outputs] with its stride; h, [batch, outputs], and state, [batch, hidden], hold the
 * start and then the end; there are as many outputs as units, unless they are projected. The state is the cell of an LSTM and the inner state of a GRU, whose h follows from it; a simple layer has h only.
 */
NPUC_API npuc_status npuc_recurrent_run(
    const npuc_recurrent *recurrent, const void *x, void *h, int16_t *state, void *y, int32_t threads);

/* The same with memory of the caller's own, and its bytes. */
int64_t npuc_recurrent_room(const npuc_recurrent *recurrent);
npuc_status npuc_recurrent_check(const npuc_recurrent *recurrent);
npuc_status npuc_recurrent_run_in(
    const npuc_recurrent *recurrent, int16_t *room, const void *x, void *h, int16_t *state, void *y, int32_t threads);

/*
 * TFLite's integer LSTM over a whole sequence, of 8-bit x, h and weights and 16-bit gates and cells: docs/arithmetic-recurrent.md.
 * Gates are in the order input, forget, cell, output, without the first where it is coupled to the second. Scales are pairs of a
 * multiplier and a shift.
 */
typedef struct npuc_quantized_lstm {
    int32_t coupled;       /* the input gate is 1 less the forget gate */
    int32_t integer_bits;  /* of a cell, 0 to 6 */
    int32_t cell_clip;     /* the largest cell; 0 is no limit */
    int32_t first_h;       /* what the state begins with; cells begin with 0 */
    int64_t steps, batch, inputs, cells, outputs;
    int64_t x_step, x_sample, y_step, y_sample; /* elements from one step, one sample to the next */
    int64_t peephole_rows;                      /* 1, or one for each sample */
    const int32_t *scales_x, *scales_h;         /* a pair for each gate */
    const int32_t *scales_c;                    /* with peepholes: a pair for each gate but that of cells */
    const int32_t *norm_scales;                 /* with a layer norm: multiplier, shift, what stands for no variance */
    const int32_t *hidden;                      /* multiplier, shift, zero point */
    const int32_t *projected;                   /* with a projection: multiplier, shift, zero point, the largest output (0: no limit) */
    const int32_t *bias_x, *bias_h, *norm_bias; /* an entry a row */
    const int32_t *projection_bias;
    const int16_t *norm_weight; /* or NULL */
    const int16_t *peephole;    /* or NULL: a set a gate but that of cells, of peephole_rows rows of cells */
    const int8_t *w, *r;
    const int8_t *projection; /* or NULL: outputs * cells */
} npuc_quantized_lstm;

NPUC_API npuc_status npuc_quantized_lstm_run(const npuc_quantized_lstm *lstm, const int8_t *x, int8_t *y, int32_t threads);

/* The same with memory of the caller's own, and its bytes. */
int64_t npuc_quantized_lstm_room(const npuc_quantized_lstm *lstm);
npuc_status npuc_quantized_lstm_check(const npuc_quantized_lstm *lstm);
npuc_status npuc_quantized_lstm_run_in(const npuc_quantized_lstm *lstm, int16_t *room, const int8_t *x, int8_t *y, int32_t threads);

#ifdef __cplusplus
}
#endif

#endif /* NPUC_VECTOR_H */
