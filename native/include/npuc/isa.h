/*
 * npuc: the instruction set, made by `make docs` from src/npuc/program/isa.py. Do not edit.
 *
 * An instruction is a record of NPUC_RECORD bytes, little-endian: the head, then the fields of its opcode. docs/isa.md has the
 * same table in words. The structs have the layout of the records on every machine whose integers are aligned by their size;
 * copy a record into its struct before reading it.
 */
#ifndef NPUC_ISA_H
#define NPUC_ISA_H

#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus)
#  define NPUC_ISA_CHECK(type) static_assert(sizeof(type) == NPUC_RECORD, "a record has one size")
#else
#  define NPUC_ISA_CHECK(type) _Static_assert(sizeof(type) == NPUC_RECORD, "a record has one size")
#endif

#define NPUC_ISA_VERSION 1
#define NPUC_RECORD 160
#define NPUC_NONE 0xFFFFFFFFu /* a local address that means: not there */
#define NPUC_SHARED_SEGMENT 255 /* the segment that means the shared memory on the chip */
#define NPUC_ANY_QUEUE 255
#define NPUC_MULTICAST 1 /* the flag of a load that all cores do at the same time */
#define NPUC_COMPRESSED 2 /* the flag of a load that decodes */
#define NPUC_SPARSE 4 /* the flag of a convolution whose weights are sparse */

/* Queues of a core. */
typedef enum npuc_queue {
    NPUC_QUEUE_LOAD = 0,
    NPUC_QUEUE_STORE = 1,
    NPUC_QUEUE_MATRIX = 2,
    NPUC_QUEUE_VECTOR = 3,
    NPUC_QUEUES = 4
} npuc_queue;

typedef enum npuc_opcode {
    NPUC_OP_LOAD = 1,
    NPUC_OP_STORE = 2,
    NPUC_OP_BARRIER = 3,
    NPUC_OP_CONV = 8,
    NPUC_OP_MATMUL = 9,
    NPUC_OP_RECURRENT = 10,
    NPUC_OP_QUANTIZED_LSTM = 11,
    NPUC_OP_COPY = 16,
    NPUC_OP_FILL = 17,
    NPUC_OP_GATHER = 18,
    NPUC_OP_ADD = 20,
    NPUC_OP_MUL = 21,
    NPUC_OP_REQUANT = 22,
    NPUC_OP_TABLE = 23,
    NPUC_OP_MINMAX = 24,
    NPUC_OP_CAST = 25,
    NPUC_OP_MAX_POOL = 28,
    NPUC_OP_AVG_POOL = 29,
    NPUC_OP_REDUCE = 30,
    NPUC_OP_TOPK = 38,
    NPUC_OP_SOFTMAX = 31,
    NPUC_OP_NORM = 32,
    NPUC_OP_RESIZE = 33,
    NPUC_OP_CUSTOM = 64,
    NPUC_OP_CUSTOM_LOCAL = 65,
    NPUC_OP_CUSTOM_GLOBAL = 66
} npuc_opcode;

/* X(name, opcode, queue) for every instruction. */
#define NPUC_INSTRUCTIONS(X) \
    X(load, 1, NPUC_QUEUE_LOAD) \
    X(store, 2, NPUC_QUEUE_STORE) \
    X(barrier, 3, NPUC_ANY_QUEUE) \
    X(conv, 8, NPUC_QUEUE_MATRIX) \
    X(matmul, 9, NPUC_QUEUE_MATRIX) \
    X(recurrent, 10, NPUC_QUEUE_MATRIX) \
    X(quantized_lstm, 11, NPUC_QUEUE_MATRIX) \
    X(copy, 16, NPUC_QUEUE_VECTOR) \
    X(fill, 17, NPUC_QUEUE_VECTOR) \
    X(gather, 18, NPUC_QUEUE_VECTOR) \
    X(add, 20, NPUC_QUEUE_VECTOR) \
    X(mul, 21, NPUC_QUEUE_VECTOR) \
    X(requant, 22, NPUC_QUEUE_VECTOR) \
    X(table, 23, NPUC_QUEUE_VECTOR) \
    X(minmax, 24, NPUC_QUEUE_VECTOR) \
    X(cast, 25, NPUC_QUEUE_VECTOR) \
    X(max_pool, 28, NPUC_QUEUE_VECTOR) \
    X(avg_pool, 29, NPUC_QUEUE_VECTOR) \
    X(reduce, 30, NPUC_QUEUE_VECTOR) \
    X(topk, 38, NPUC_QUEUE_VECTOR) \
    X(softmax, 31, NPUC_QUEUE_VECTOR) \
    X(norm, 32, NPUC_QUEUE_VECTOR) \
    X(resize, 33, NPUC_QUEUE_VECTOR) \
    X(custom, 64, NPUC_QUEUE_VECTOR) \
    X(custom_local, 65, NPUC_QUEUE_VECTOR) \
    X(custom_global, 66, NPUC_QUEUE_VECTOR)

/* What all records begin with. */
typedef struct npuc_head {
    uint8_t opcode; /* which instruction */
    uint8_t queue; /* which queue it is in: an index of load, store, matrix, vector */
    uint16_t flags; /* of a load, the sum of 1 if all cores do it at the same time (multicast) and 2 if it decodes (compressed); of a conv, 4 if its weights are sparse; otherwise 0 */
    uint32_t layer; /* the layer that it works for: an index of the layer table */
    uint32_t wait[4]; /* what the semaphores of the four queues of its core have to have reached */
} npuc_head;

/* Copy a block of up to four axes into local memory, or decode constants into a dense one (docs/weight-compression.md). */
typedef struct npuc_i_load {
    npuc_head head;
    uint8_t segment; /* segment of DRAM, or 255 for the shared memory */
    uint64_t offset; /* byte in the segment */
    uint32_t local; /* byte in local memory */
    uint32_t size[4]; /* elements moved of each axis, outermost first; the last axis is bytes */
    int64_t far_stride[3]; /* bytes from one element to the next in DRAM, of the first three axes */
    int32_t near_stride[3]; /* the same in local memory */
    uint32_t stored; /* compressed: bytes in DRAM that stand for the bytes of `size`, all in its last axis; otherwise 0 */
    uint8_t rest[56];
} npuc_i_load;
NPUC_ISA_CHECK(npuc_i_load);

/* Copy a block of up to four axes out of local memory. */
typedef struct npuc_i_store {
    npuc_head head;
    uint8_t segment; /* segment of DRAM, or 255 for the shared memory */
    uint64_t offset; /* byte in the segment */
    uint32_t local; /* byte in local memory */
    uint32_t size[4]; /* elements moved of each axis, outermost first; the last axis is bytes */
    int64_t far_stride[3]; /* bytes from one element to the next in DRAM, of the first three axes */
    int32_t near_stride[3]; /* the same in local memory */
    uint8_t rest[60];
} npuc_i_store;
NPUC_ISA_CHECK(npuc_i_store);

/* Wait until this queue of every core has come to the barrier of this number. */
typedef struct npuc_i_barrier {
    npuc_head head;
    uint32_t number; /* counts up from 1 */
    uint8_t rest[132];
} npuc_i_barrier;
NPUC_ISA_CHECK(npuc_i_barrier);

/* Convolution, plain, grouped, depthwise or transposed; fully connected as 1 x 1. Of integers, floats or blocks. */
typedef struct npuc_i_conv {
    npuc_head head;
    uint32_t x; /* the operand */
    uint8_t x_dtype; /* its type */
    int32_t x_zero_point; /* its zero point */
    uint32_t n; /* images */
    uint32_t h; /* rows of x */
    uint32_t w; /* columns of x */
    uint32_t c; /* channels of x */
    uint32_t out_h; /* rows of y */
    uint32_t out_w; /* columns of y */
    uint16_t kernel[2]; /* height and width */
    uint16_t stride[2]; /* down and right */
    uint16_t dilation[2]; /* down and right */
    int16_t pad[2]; /* rows above and columns left of x; what lies beyond x at any side is padding */
    uint32_t weight; /* (out_c, c / groups, kernel) of w_dtype, dense or sparse; i4 two to a byte, others packed */
    uint8_t w_dtype; /* its type, or 32 + b for integers of b bits that lie packed */
    int32_t w_zero_point; /* its zero point */
    uint32_t bias; /* i32[out_c], or i64 if wide, or f32 of floats; or none */
    uint8_t wide; /* 1: 64-bit biases and sums */
    uint8_t transposed; /* 1: transposed convolution */
    uint32_t groups; /* groups */
    uint32_t out_c; /* channels of y that are made */
    uint32_t y; /* the result */
    uint8_t y_dtype; /* its type */
    uint32_t y_stride; /* elements from one pixel of y to the next: out_c, or more if y has other channels beside */
    uint8_t kind; /* requantization: an index of double_rounding, single_rounding, single_even, pow2, float_scale */
    uint32_t count; /* sets of parameters: 1, or one a channel */
    uint32_t multiplier; /* i32[count]; for kind float_scale f32[count]; none for pow2 */
    uint32_t shift; /* i32[count]; none for float_scale */
    int32_t zero_point; /* of the output */
    int32_t lo; /* the least output */
    int32_t hi; /* the greatest output */
    uint32_t table; /* 256 entries of y_dtype (or 513 of i16) that the outputs go through; or none */
    uint8_t s_dtype; /* type of the outputs before the table */
    uint8_t sparse_n; /* of sparse weights, the values that are stored of a block; 0: they are dense */
    uint8_t sparse_m; /* input channels of a block, 2, 4, 8 or 16 (docs/weight-sparsity.md); 0: they are dense */
    uint8_t rest[9];
} npuc_i_conv;
NPUC_ISA_CHECK(npuc_i_conv);

/* Matrix products of two activations: y[i] = a[i] x b[i] for each of `batch` pairs. */
typedef struct npuc_i_matmul {
    npuc_head head;
    uint32_t x; /* the operand */
    uint8_t x_dtype; /* its type */
    int32_t x_zero_point; /* its zero point */
    uint32_t b; /* the second operand */
    uint8_t b_dtype; /* its type */
    int32_t b_zero_point; /* its zero point */
    uint32_t batch; /* pairs */
    uint32_t m; /* rows of a */
    uint32_t k; /* columns of a */
    uint32_t cols; /* columns of b */
    uint32_t a_step; /* elements from one a to the next; 0: the same one */
    uint32_t b_step; /* elements from one b to the next; 0: the same one */
    uint8_t transposed_b; /* 1: b is (cols, k) */
    uint8_t wide; /* 1: 64-bit sums */
    uint32_t y; /* the result */
    uint8_t y_dtype; /* its type */
    uint8_t kind; /* requantization: an index of double_rounding, single_rounding, single_even, pow2, float_scale */
    uint32_t count; /* sets of parameters: 1, or one a channel */
    uint32_t multiplier; /* i32[count]; for kind float_scale f32[count]; none for pow2 */
    uint32_t shift; /* i32[count]; none for float_scale */
    int32_t zero_point; /* of the output */
    int32_t lo; /* the least output */
    int32_t hi; /* the greatest output */
    uint8_t rest[52];
} npuc_i_matmul;
NPUC_ISA_CHECK(npuc_i_matmul);

/* One direction of a recurrent layer over all its steps, with its state in local memory (docs/arithmetic-recurrent.md). */
typedef struct npuc_i_recurrent {
    npuc_head head;
    uint32_t x; /* the operand */
    uint8_t x_dtype; /* its type */
    int32_t x_zero_point; /* its zero point */
    uint32_t steps; /* x is (steps, batch, inputs) */
    uint32_t batch;
    uint32_t inputs;
    uint32_t hidden; /* units */
    uint8_t gates; /* 1 a simple layer, 3 a GRU, 4 an LSTM */
    uint8_t reverse; /* 1: from the last step to the first */
    uint8_t linear_before_reset; /* of a GRU: 1 if the reset gate works behind the product */
    uint8_t coupled; /* of an LSTM: 1 if the forget gate is 1 less the input gate */
    uint8_t peephole; /* of an LSTM: 1 if it has peepholes */
    uint8_t cell_bits; /* of an LSTM: bits of a cell behind the point */
    uint8_t w_dtype; /* the type of the weights, or 32 + b for integers of b bits that lie packed */
    int32_t limit; /* arguments of gates are clamped to +-limit; 32768: to 16 bits */
    uint32_t constants; /* weights, parameters and tables in the order of docs/arithmetic-recurrent.md */
    uint32_t first_h; /* (batch, outputs) of y_dtype, what h begins with; or none: 0 */
    uint32_t first_state; /* (batch, hidden) of i16, what the cell or the state begins with; or none: 0 */
    uint32_t last_h; /* (batch, outputs) of y_dtype, what h ends with; or none */
    uint32_t last_state; /* (batch, hidden) of i16, what the cell or the state ends with; or none */
    uint32_t y; /* the result */
    uint8_t y_dtype; /* its type */
    uint32_t y_stride; /* elements from one step of y, (batch, outputs), to the next */
    int32_t multiplier; /* of the output */
    int32_t shift; /* of the output */
    int32_t zero_point; /* of the output */
    int32_t lo; /* the least output */
    int32_t hi; /* the greatest output */
    uint32_t projected; /* of an LSTM with a projection: its outputs; 0: as many as there are units */
    uint8_t rest[40];
} npuc_i_recurrent;
NPUC_ISA_CHECK(npuc_i_recurrent);

/* TFLite's integer LSTM over all its steps, with its state in local memory (docs/arithmetic-recurrent.md). */
typedef struct npuc_i_quantized_lstm {
    npuc_head head;
    uint32_t x; /* the sequence, i8: rows of `inputs` for each step and sample */
    uint32_t y; /* the outputs, i8: rows of `outputs` for each step and sample */
    uint32_t constants; /* scales, biases, peepholes and weights in the order of docs/arithmetic-recurrent.md */
    uint32_t steps;
    uint32_t batch; /* samples */
    uint32_t inputs;
    uint32_t cells; /* units */
    uint32_t outputs; /* as many as there are cells, unless they are projected */
    uint32_t x_step; /* elements from one step of x to the next */
    uint32_t x_sample; /* elements from one sample of x to the next */
    uint32_t y_step; /* elements from one step of y to the next */
    uint32_t y_sample; /* elements from one sample of y to the next */
    uint8_t coupled; /* 1: the input gate is 1 less the forget gate, and has no constants */
    uint8_t norm; /* 1: gates have layer norms */
    uint8_t projected; /* 1: outputs are a product of what the units give */
    uint8_t integer_bits; /* of a cell: 0 to 6 */
    uint32_t peephole_rows; /* of peepholes: 1, or one for each sample; 0: there are none */
    int32_t cell_clip; /* the largest cell; 0: 16 bits */
    int32_t first_h; /* what the state begins with: its zero point */
    uint8_t rest[72];
} npuc_i_quantized_lstm;
NPUC_ISA_CHECK(npuc_i_quantized_lstm);

/* Copy elements between strided views of local memory. */
typedef struct npuc_i_copy {
    npuc_head head;
    uint32_t x; /* the source */
    uint32_t y; /* the destination */
    uint8_t bytes; /* of an element: 1, 2, 4 or 8 */
    uint32_t size[6]; /* of each axis, outermost first */
    int32_t x_stride[6]; /* elements */
    int32_t y_stride[6]; /* elements */
    uint8_t rest[52];
} npuc_i_copy;
NPUC_ISA_CHECK(npuc_i_copy);

/* Fill a dense range. */
typedef struct npuc_i_fill {
    npuc_head head;
    uint32_t y; /* the destination */
    uint8_t bytes; /* of an element: 1, 2, 4 or 8 */
    uint32_t count; /* elements */
    int32_t value; /* what it is filled with */
    uint8_t rest[120];
} npuc_i_fill;
NPUC_ISA_CHECK(npuc_i_fill);

/* y[o, i] = x[o, index[i]] for each of `outer`, blocks of `inner` elements: nearest-neighbour resize, any map of an axis. */
typedef struct npuc_i_gather {
    npuc_head head;
    uint32_t x; /* (outer, x_size, inner) */
    uint32_t y; /* (outer, y_size, inner) */
    uint32_t index; /* i32[y_size]; negative ones count from the end */
    uint8_t bytes; /* of an element: 1, 2, 4 or 8 */
    uint32_t outer;
    uint32_t x_size;
    uint32_t y_size;
    uint32_t inner;
    uint8_t rest[104];
} npuc_i_gather;
NPUC_ISA_CHECK(npuc_i_gather);

/* a + b or a - b (docs/arithmetic-eltwise.md). */
typedef struct npuc_i_add {
    npuc_head head;
    uint32_t x; /* the operand */
    uint8_t x_dtype; /* its type */
    int32_t x_zero_point; /* its zero point */
    uint32_t b; /* the second operand */
    uint8_t b_dtype; /* its type */
    int32_t b_zero_point; /* its zero point */
    uint32_t size[4]; /* of each axis of y, outermost first; y is dense */
    int32_t a_stride[4]; /* elements; 0 repeats */
    int32_t b_stride[4]; /* elements; 0 repeats */
    uint32_t y; /* the result */
    uint8_t y_dtype; /* its type */
    uint8_t kind; /* as everywhere */
    uint8_t subtract; /* 1: a - b */
    int32_t left; /* shift to the left */
    int32_t multiplier[3]; /* of a, of b, of the sum; for kind float_scale the bits of two f32 */
    int32_t shift[3]; /* of a, of b, of the sum */
    int32_t zero_point; /* of the output */
    int32_t lo; /* the least output */
    int32_t hi; /* the greatest output */
    uint8_t rest[16];
} npuc_i_add;
NPUC_ISA_CHECK(npuc_i_add);

/* a * b. */
typedef struct npuc_i_mul {
    npuc_head head;
    uint32_t x; /* the operand */
    uint8_t x_dtype; /* its type */
    int32_t x_zero_point; /* its zero point */
    uint32_t b; /* the second operand */
    uint8_t b_dtype; /* its type */
    int32_t b_zero_point; /* its zero point */
    uint32_t size[4]; /* of each axis of y, outermost first; y is dense */
    int32_t a_stride[4]; /* elements; 0 repeats */
    int32_t b_stride[4]; /* elements; 0 repeats */
    uint32_t y; /* the result */
    uint8_t y_dtype; /* its type */
    uint8_t kind; /* requantization: an index of double_rounding, single_rounding, single_even, pow2, float_scale */
    uint32_t count; /* sets of parameters: 1, or one a channel */
    uint32_t multiplier; /* i32[count]; for kind float_scale f32[count]; none for pow2 */
    uint32_t shift; /* i32[count]; none for float_scale */
    int32_t zero_point; /* of the output */
    int32_t lo; /* the least output */
    int32_t hi; /* the greatest output */
    uint8_t rest[32];
} npuc_i_mul;
NPUC_ISA_CHECK(npuc_i_mul);

/* rq(x - x_zero_point) of dense elements. */
typedef struct npuc_i_requant {
    npuc_head head;
    uint32_t x; /* the operand */
    uint8_t x_dtype; /* its type */
    int32_t x_zero_point; /* its zero point */
    uint32_t elements; /* how many */
    uint32_t y; /* the result */
    uint8_t y_dtype; /* its type */
    uint8_t kind; /* requantization: an index of double_rounding, single_rounding, single_even, pow2, float_scale */
    uint32_t count; /* sets of parameters: 1, or one a channel */
    uint32_t multiplier; /* i32[count]; for kind float_scale f32[count]; none for pow2 */
    uint32_t shift; /* i32[count]; none for float_scale */
    int32_t zero_point; /* of the output */
    int32_t lo; /* the least output */
    int32_t hi; /* the greatest output */
    uint8_t rest[88];
} npuc_i_requant;
NPUC_ISA_CHECK(npuc_i_requant);

/* A function by table: 256 entries of y_dtype for 8 bits, 513 for i16, 65536 for bf16 and f16, polynomials for f32. */
typedef struct npuc_i_table {
    npuc_head head;
    uint32_t x; /* the operand */
    uint8_t x_dtype; /* its type */
    int32_t x_zero_point; /* its zero point */
    uint32_t outer; /* x is (outer, channels, inner) */
    uint32_t channels; /* tables; 1 for one table */
    uint32_t inner;
    uint32_t table; /* the entries, ascending, of one table after the other */
    uint32_t y; /* the result */
    uint8_t y_dtype; /* its type */
    uint8_t segments; /* not 0: one table of 2^segments + 1 entries, linear between them */
    uint32_t pieces; /* of f32: polynomials of the table, at a multiple of 8 (docs/arithmetic-float.md); otherwise 0 */
    uint8_t rest[96];
} npuc_i_table;
NPUC_ISA_CHECK(npuc_i_table);

/* The smaller or the larger of two tensors of one type. */
typedef struct npuc_i_minmax {
    npuc_head head;
    uint32_t x; /* the operand */
    uint8_t x_dtype; /* its type */
    int32_t x_zero_point; /* its zero point */
    uint32_t b; /* the second operand */
    uint32_t size[4]; /* of each axis of y, outermost first; y is dense */
    int32_t a_stride[4]; /* elements; 0 repeats */
    int32_t b_stride[4]; /* elements; 0 repeats */
    uint8_t larger; /* 1: the larger */
    uint32_t y; /* the result */
    uint8_t y_dtype; /* its type */
    int32_t lo; /* the least output */
    int32_t hi; /* the greatest output */
    uint8_t rest[52];
} npuc_i_minmax;
NPUC_ISA_CHECK(npuc_i_minmax);

/* Dense elements as another type: between f32, bf16 and f16, these and integers with a scale, or as blocks. */
typedef struct npuc_i_cast {
    npuc_head head;
    uint32_t x; /* the operand */
    uint8_t x_dtype; /* its type */
    int32_t x_zero_point; /* its zero point */
    uint32_t elements; /* how many */
    uint32_t y; /* the result */
    uint8_t y_dtype; /* its type */
    int32_t scale; /* of the integers: the bits of an f32; 0 between floats */
    uint8_t rounding; /* an index of half_away, half_even, half_up */
    int32_t zero_point; /* of y */
    int32_t lo; /* the least integer; of blocks, the numbers of a row */
    int32_t hi; /* the greatest integer */
    uint8_t rest[92];
} npuc_i_cast;
NPUC_ISA_CHECK(npuc_i_cast);

/* The largest of each window; padding never wins. */
typedef struct npuc_i_max_pool {
    npuc_head head;
    uint32_t x; /* the operand */
    uint8_t x_dtype; /* its type */
    int32_t x_zero_point; /* its zero point */
    uint32_t n; /* images */
    uint32_t h; /* rows of x */
    uint32_t w; /* columns of x */
    uint32_t c; /* channels of x */
    uint32_t out_h; /* rows of y */
    uint32_t out_w; /* columns of y */
    uint16_t kernel[2]; /* height and width */
    uint16_t stride[2]; /* down and right */
    uint16_t dilation[2]; /* down and right */
    int16_t pad[2]; /* rows above and columns left of x; what lies beyond x at any side is padding */
    uint32_t y; /* the result */
    uint8_t y_dtype; /* its type */
    uint8_t rest[79];
} npuc_i_max_pool;
NPUC_ISA_CHECK(npuc_i_max_pool);

/* The mean of each window (docs/arithmetic-pooling.md); `count` is 1 or has a set for each count of elements. */
typedef struct npuc_i_avg_pool {
    npuc_head head;
    uint32_t x; /* the operand */
    uint8_t x_dtype; /* its type */
    int32_t x_zero_point; /* its zero point */
    uint32_t n; /* images */
    uint32_t h; /* rows of x */
    uint32_t w; /* columns of x */
    uint32_t c; /* channels of x */
    uint32_t out_h; /* rows of y */
    uint32_t out_w; /* columns of y */
    uint16_t kernel[2]; /* height and width */
    uint16_t stride[2]; /* down and right */
    uint16_t dilation[2]; /* down and right */
    int16_t pad[2]; /* rows above and columns left of x; what lies beyond x at any side is padding */
    uint8_t include_pad; /* 1: padding counts */
    uint32_t y; /* the result */
    uint8_t y_dtype; /* its type */
    uint8_t kind; /* requantization: an index of double_rounding, single_rounding, single_even, pow2, float_scale */
    uint32_t count; /* sets of parameters: 1, or one a channel */
    uint32_t multiplier; /* i32[count]; for kind float_scale f32[count]; none for pow2 */
    uint32_t shift; /* i32[count]; none for float_scale */
    int32_t zero_point; /* of the output */
    int32_t lo; /* the least output */
    int32_t hi; /* the greatest output */
    uint8_t rest[48];
} npuc_i_avg_pool;
NPUC_ISA_CHECK(npuc_i_avg_pool);

/* Over the middle of (outer, count, inner): a sum through the output stage, the largest or the smallest, or where it is. */
typedef struct npuc_i_reduce {
    npuc_head head;
    uint32_t x; /* the operand */
    uint8_t x_dtype; /* its type */
    int32_t x_zero_point; /* its zero point */
    uint8_t mode; /* 0 sum, 1 largest, 2 smallest, 3 place of the largest, 4 place of the smallest, 5 mean (floats) */
    uint8_t last; /* for places: 1 the last, 0 the first */
    uint32_t outer;
    uint32_t reduced;
    uint32_t inner;
    uint32_t y; /* the result */
    uint8_t y_dtype; /* its type */
    uint8_t kind; /* requantization: an index of double_rounding, single_rounding, single_even, pow2, float_scale */
    uint32_t count; /* sets of parameters: 1, or one a channel */
    uint32_t multiplier; /* i32[count]; for kind float_scale f32[count]; none for pow2 */
    uint32_t shift; /* i32[count]; none for float_scale */
    int32_t zero_point; /* of the output */
    int32_t lo; /* the least output */
    int32_t hi; /* the greatest output */
    uint8_t rest[76];
} npuc_i_reduce;
NPUC_ISA_CHECK(npuc_i_reduce);

/* The k best over the middle of (outer, reduced, inner), in order, or their places; of equal ones the first come first. */
typedef struct npuc_i_topk {
    npuc_head head;
    uint32_t x; /* the operand */
    uint8_t x_dtype; /* its type */
    int32_t x_zero_point; /* its zero point */
    uint8_t places; /* 1: their places; 0: they themselves */
    uint8_t largest; /* 1: the largest; 0: the smallest */
    uint32_t outer;
    uint32_t reduced;
    uint32_t inner;
    uint32_t k; /* how many, 1 to reduced */
    uint32_t y; /* the result */
    uint8_t y_dtype; /* its type */
    uint8_t rest[99];
} npuc_i_topk;
NPUC_ISA_CHECK(npuc_i_topk);

/* Softmax of dense rows (docs/arithmetic-softmax.md). */
typedef struct npuc_i_softmax {
    npuc_head head;
    uint32_t x; /* the operand */
    uint8_t x_dtype; /* its type */
    int32_t x_zero_point; /* its zero point */
    uint32_t rows;
    uint32_t width;
    uint8_t form; /* 0 the general one, 1 TFLite's of 8 bits, 2 TFLite's of 16 bits, 3 of floats */
    uint32_t coarse; /* 256 u32; form 2: 513 i16 of exponentials; or none */
    uint32_t fine; /* 256 u32; form 2: 513 i16 of reciprocals; or none */
    int32_t multiplier;
    int32_t shift; /* form 1: the shift to the left */
    int32_t diff_min; /* form 1 */
    uint8_t rounding; /* an index of half_away, half_even, half_up */
    uint32_t y; /* the result */
    uint8_t y_dtype; /* its type */
    int32_t zero_point;
    int32_t lo;
    int32_t hi;
    uint8_t rest[68];
} npuc_i_softmax;
NPUC_ISA_CHECK(npuc_i_softmax);

/* Rows divided by their root (docs/arithmetic-norm.md). */
typedef struct npuc_i_norm {
    npuc_head head;
    uint32_t x; /* the operand */
    uint8_t x_dtype; /* its type */
    int32_t x_zero_point; /* its zero point */
    uint32_t rows;
    uint32_t width;
    uint8_t form; /* 0 the general one, 1 TFLite's L2 of 8 bits; of floats, 2 by the mean of squares, 3 by their sum */
    uint8_t center; /* 1: the mean is taken away first */
    uint64_t epsilon; /* of forms 2 and 3 the bits of an f32 */
    uint32_t row_modulus; /* entry of gain and bias: row % row_modulus * row_factor + column / column_divisor */
    uint32_t row_factor;
    uint32_t column_divisor;
    uint32_t entries; /* of gain and bias */
    uint32_t gain; /* i32[entries], or f32 */
    uint32_t bias; /* i64[entries], or f32 */
    int32_t shift;
    uint8_t rounding; /* an index of half_away, half_even, half_up */
    uint32_t y; /* the result */
    uint8_t y_dtype; /* its type */
    int32_t zero_point;
    int32_t lo;
    int32_t hi;
    uint8_t rest[52];
} npuc_i_norm;
NPUC_ISA_CHECK(npuc_i_norm);

/* Bilinear resize of rows and columns (docs/arithmetic-resize.md). */
typedef struct npuc_i_resize {
    npuc_head head;
    uint32_t x; /* the operand */
    uint8_t x_dtype; /* its type */
    int32_t x_zero_point; /* its zero point */
    uint32_t n; /* images */
    uint32_t h; /* rows of x */
    uint32_t w; /* columns of x */
    uint32_t c; /* channels of x */
    uint32_t out_h; /* rows of y */
    uint32_t out_w; /* columns of y */
    uint32_t rows; /* i32[out_h] low, i32[out_h] high, i32[out_h] weight, all relative to the rows at x */
    uint32_t columns; /* the same with out_w */
    uint8_t bits; /* of a weight */
    uint8_t rounding; /* an index of half_away, half_even, half_up */
    uint32_t y; /* the result */
    uint8_t y_dtype; /* its type */
    uint8_t rest[83];
} npuc_i_resize;
NPUC_ISA_CHECK(npuc_i_resize);

/* A kernel that a plugin provides, by its name, on dense blocks of local memory (docs/plugins.md). */
typedef struct npuc_i_custom {
    npuc_head head;
    uint8_t kernel[32]; /* its name: letters, digits, underscores, dots and dashes, then zeros, one at least */
    uint32_t x; /* the first operand */
    uint32_t x_bytes; /* its size */
    uint32_t b; /* the second operand, or none */
    uint32_t b_bytes; /* its size, or 0 */
    uint32_t constants; /* constants, at a multiple of 16, or none */
    uint32_t constant_bytes; /* their size, or 0 */
    uint32_t y; /* the result, apart from all others */
    uint32_t y_bytes; /* its size */
    uint32_t work; /* elements that the lanes of the vector engine take one cycle each for */
    int32_t parameters[16]; /* what the kernel is told */
    uint8_t bytes; /* x, b and y are at multiples of this, and their sizes are: 1, 2, 4 or 8 */
    uint8_t rest[3];
} npuc_i_custom;
NPUC_ISA_CHECK(npuc_i_custom);

/* A kernel that a plugin provides, on dense blocks of local memory, with a workspace there (docs/plugins.md). */
typedef struct npuc_i_custom_local {
    npuc_head head;
    uint8_t kernel[32]; /* its name: letters, digits, underscores, dots and dashes, then zeros, one at least */
    uint32_t x; /* the first operand */
    uint32_t x_bytes; /* its size */
    uint32_t b; /* the second operand, or none */
    uint32_t b_bytes; /* its size, or 0 */
    uint32_t constants; /* i32[16], what the kernel is told, then its constants; at a multiple of 16 */
    uint32_t constant_bytes; /* their size, at least 64 */
    uint32_t y; /* the result, apart from all others */
    uint32_t y_bytes; /* its size */
    uint32_t workspace; /* bytes that the kernel may use as it likes, at a multiple of 16, apart from all others */
    uint32_t workspace_bytes; /* their number */
    uint32_t work; /* elements that the lanes of the vector engine take one cycle each for */
    uint8_t bytes; /* x, b and y are at multiples of this, and their sizes are: 1, 2, 4 or 8 */
    uint8_t rest[59];
} npuc_i_custom_local;
NPUC_ISA_CHECK(npuc_i_custom_local);

/* A kernel that a plugin provides, on whole tensors in global memory, with workspaces (docs/plugins.md). */
typedef struct npuc_i_custom_global {
    npuc_head head;
    uint8_t kernel[32]; /* its name: letters, digits, underscores, dots and dashes, then zeros, one at least */
    uint64_t x; /* the first operand */
    uint64_t x_bytes; /* its size */
    uint64_t b; /* the second operand */
    uint64_t b_bytes; /* its size; 0: there is none */
    uint64_t y; /* the result, apart from all others */
    uint64_t y_bytes; /* its size */
    uint64_t workspace; /* bytes that the kernel may use as it likes, at a multiple of 16, apart from all others */
    uint64_t workspace_bytes; /* their number; 0: there are none */
    uint64_t work; /* elements that the lanes of the vector engine take one cycle each for */
    uint64_t traffic; /* bytes that the kernel moves from and to global memory */
    uint32_t constants; /* i32[16], what the kernel is told, then its constants; at a multiple of 16 */
    uint32_t constant_bytes; /* their size, at least 64 */
    uint32_t local_workspace; /* a workspace in local memory, at a multiple of 16, or none */
    uint32_t local_workspace_bytes; /* its size, or 0 */
    uint8_t x_segment; /* of x: a segment of DRAM, or 255 for the shared memory */
    uint8_t b_segment; /* of b; 0 if there is none */
    uint8_t y_segment; /* of y */
    uint8_t workspace_segment; /* of the workspace; 0 if there is none */
    uint8_t bytes; /* x, b and y are at multiples of this, and their sizes are: 1, 2, 4 or 8 */
    uint8_t rest[3];
} npuc_i_custom_global;
NPUC_ISA_CHECK(npuc_i_custom_global);

#endif /* NPUC_ISA_H */
