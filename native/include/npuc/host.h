/*
 * npuc: host operators, made by `make docs` from src/npuc/program/host_ops.py. Do not edit.
 *
 * The section .npu.host.S has these records: one header, tensors, nodes, operands (uint32_t, numbers of tensors; up to the next
 * multiple of 8), numbers (int64_t), strings, and at the next multiple of 64 the constants. docs/host-ops.md has the operators.
 */
#ifndef NPUC_HOST_H
#define NPUC_HOST_H

#include <stdint.h>

#include "npuc/file.h"

#ifdef __cplusplus
#  define NPUC_HOST_CHECK(type, size) static_assert(sizeof(type) == (size), "records have the layout of the file")
#else
#  define NPUC_HOST_CHECK(type, size) _Static_assert(sizeof(type) == (size), "records have the layout of the file")
#endif

#define NPUC_HOST_VERSION 1
#define NPUC_HOST_NONE 0xFFFFFFFFu /* an operand that is left out */
#define NPUC_HOST_OPERANDS 16 /* of a node, at most */

typedef enum npuc_host_place_kind {
    NPUC_HOST_PLACE_ARENA = 0,
    NPUC_HOST_PLACE_CONSTANT = 1,
    NPUC_HOST_PLACE_INPUT = 2,
    NPUC_HOST_PLACE_OUTPUT = 3,
    NPUC_HOST_PLACES = 4
} npuc_host_place_kind;

typedef enum npuc_host_op_kind {
    NPUC_HOST_OP_COPY = 0,
    NPUC_HOST_OP_FILL = 1,
    NPUC_HOST_OP_UNARY = 2,
    NPUC_HOST_OP_BINARY = 3,
    NPUC_HOST_OP_SELECT = 4,
    NPUC_HOST_OP_CAST = 5,
    NPUC_HOST_OP_REDUCE = 6,
    NPUC_HOST_OP_ARG_REDUCE = 7,
    NPUC_HOST_OP_SOFTMAX = 8,
    NPUC_HOST_OP_NORMALIZE = 9,
    NPUC_HOST_OP_LRN = 10,
    NPUC_HOST_OP_CONVOLUTION = 11,
    NPUC_HOST_OP_DECONVOLUTION = 12,
    NPUC_HOST_OP_MATMUL = 13,
    NPUC_HOST_OP_POOL = 14,
    NPUC_HOST_OP_RESAMPLE = 15,
    NPUC_HOST_OP_GATHER = 16,
    NPUC_HOST_OP_GATHER_ELEMENTS = 17,
    NPUC_HOST_OP_GATHER_ND = 18,
    NPUC_HOST_OP_SCATTER_ELEMENTS = 19,
    NPUC_HOST_OP_SCATTER_ND = 20,
    NPUC_HOST_OP_PAD = 21,
    NPUC_HOST_OP_TOP_K = 22,
    NPUC_HOST_OP_CUMULATIVE_SUM = 23,
    NPUC_HOST_OP_QUANTIZE = 24,
    NPUC_HOST_OP_DEQUANTIZE = 25,
    NPUC_HOST_OP_CONCAT = 26,
    NPUC_HOST_OP_NMS = 27,
    NPUC_HOST_OP_RECURRENT = 28,
    NPUC_HOST_OP_GRID_SAMPLE = 29,
    NPUC_HOST_OP_CUSTOM = 30,
    NPUC_HOST_OPS = 31
} npuc_host_op_kind;

/* X(name, NAME) of every operator, by code. */
#define NPUC_HOST_OPERATORS(X) \
    X(copy, COPY) \
    X(fill, FILL) \
    X(unary, UNARY) \
    X(binary, BINARY) \
    X(select, SELECT) \
    X(cast, CAST) \
    X(reduce, REDUCE) \
    X(arg_reduce, ARG_REDUCE) \
    X(softmax, SOFTMAX) \
    X(normalize, NORMALIZE) \
    X(lrn, LRN) \
    X(convolution, CONVOLUTION) \
    X(deconvolution, DECONVOLUTION) \
    X(matmul, MATMUL) \
    X(pool, POOL) \
    X(resample, RESAMPLE) \
    X(gather, GATHER) \
    X(gather_elements, GATHER_ELEMENTS) \
    X(gather_nd, GATHER_ND) \
    X(scatter_elements, SCATTER_ELEMENTS) \
    X(scatter_nd, SCATTER_ND) \
    X(pad, PAD) \
    X(top_k, TOP_K) \
    X(cumulative_sum, CUMULATIVE_SUM) \
    X(quantize, QUANTIZE) \
    X(dequantize, DEQUANTIZE) \
    X(concat, CONCAT) \
    X(nms, NMS) \
    X(recurrent, RECURRENT) \
    X(grid_sample, GRID_SAMPLE) \
    X(custom, CUSTOM) \

typedef enum npuc_host_unary_kind {
    NPUC_HOST_UNARY_COPY = 0,
    NPUC_HOST_UNARY_ABS = 1,
    NPUC_HOST_UNARY_NEG = 2,
    NPUC_HOST_UNARY_SIGN = 3,
    NPUC_HOST_UNARY_CEIL = 4,
    NPUC_HOST_UNARY_FLOOR = 5,
    NPUC_HOST_UNARY_ROUND = 6,
    NPUC_HOST_UNARY_SQRT = 7,
    NPUC_HOST_UNARY_RECIPROCAL = 8,
    NPUC_HOST_UNARY_EXP = 9,
    NPUC_HOST_UNARY_LOG = 10,
    NPUC_HOST_UNARY_SIN = 11,
    NPUC_HOST_UNARY_COS = 12,
    NPUC_HOST_UNARY_TAN = 13,
    NPUC_HOST_UNARY_ASIN = 14,
    NPUC_HOST_UNARY_ACOS = 15,
    NPUC_HOST_UNARY_ATAN = 16,
    NPUC_HOST_UNARY_SINH = 17,
    NPUC_HOST_UNARY_COSH = 18,
    NPUC_HOST_UNARY_TANH = 19,
    NPUC_HOST_UNARY_ASINH = 20,
    NPUC_HOST_UNARY_ACOSH = 21,
    NPUC_HOST_UNARY_ATANH = 22,
    NPUC_HOST_UNARY_ERF = 23,
    NPUC_HOST_UNARY_RELU = 24,
    NPUC_HOST_UNARY_LEAKY_RELU = 25,
    NPUC_HOST_UNARY_THRESHOLDED_RELU = 26,
    NPUC_HOST_UNARY_ELU = 27,
    NPUC_HOST_UNARY_SELU = 28,
    NPUC_HOST_UNARY_CELU = 29,
    NPUC_HOST_UNARY_SIGMOID = 30,
    NPUC_HOST_UNARY_HARD_SIGMOID = 31,
    NPUC_HOST_UNARY_HARD_SWISH = 32,
    NPUC_HOST_UNARY_SOFTPLUS = 33,
    NPUC_HOST_UNARY_SOFTSIGN = 34,
    NPUC_HOST_UNARY_GELU = 35,
    NPUC_HOST_UNARY_GELU_TANH = 36,
    NPUC_HOST_UNARY_MISH = 37,
    NPUC_HOST_UNARY_SWISH = 38,
    NPUC_HOST_UNARY_SHRINK = 39,
    NPUC_HOST_UNARY_CLIP = 40,
    NPUC_HOST_UNARY_NOT = 41,
    NPUC_HOST_UNARY_BITWISE_NOT = 42,
    NPUC_HOST_UNARY_IS_NAN = 43,
    NPUC_HOST_UNARY_IS_INF = 44,
    NPUC_HOST_UNARYS = 45
} npuc_host_unary_kind;

typedef enum npuc_host_binary_kind {
    NPUC_HOST_BINARY_ADD = 0,
    NPUC_HOST_BINARY_SUB = 1,
    NPUC_HOST_BINARY_MUL = 2,
    NPUC_HOST_BINARY_DIV = 3,
    NPUC_HOST_BINARY_POW = 4,
    NPUC_HOST_BINARY_MIN = 5,
    NPUC_HOST_BINARY_MAX = 6,
    NPUC_HOST_BINARY_MOD = 7,
    NPUC_HOST_BINARY_FMOD = 8,
    NPUC_HOST_BINARY_EQUAL = 9,
    NPUC_HOST_BINARY_LESS = 10,
    NPUC_HOST_BINARY_LESS_EQUAL = 11,
    NPUC_HOST_BINARY_GREATER = 12,
    NPUC_HOST_BINARY_GREATER_EQUAL = 13,
    NPUC_HOST_BINARY_AND = 14,
    NPUC_HOST_BINARY_OR = 15,
    NPUC_HOST_BINARY_XOR = 16,
    NPUC_HOST_BINARY_BIT_AND = 17,
    NPUC_HOST_BINARY_BIT_OR = 18,
    NPUC_HOST_BINARY_BIT_XOR = 19,
    NPUC_HOST_BINARY_SHIFT_LEFT = 20,
    NPUC_HOST_BINARY_SHIFT_RIGHT = 21,
    NPUC_HOST_BINARY_PRELU = 22,
    NPUC_HOST_BINARYS = 23
} npuc_host_binary_kind;

typedef enum npuc_host_reduce_kind {
    NPUC_HOST_REDUCE_SUM = 0,
    NPUC_HOST_REDUCE_MEAN = 1,
    NPUC_HOST_REDUCE_MAX = 2,
    NPUC_HOST_REDUCE_MIN = 3,
    NPUC_HOST_REDUCE_PROD = 4,
    NPUC_HOST_REDUCE_L1 = 5,
    NPUC_HOST_REDUCE_L2 = 6,
    NPUC_HOST_REDUCE_SUM_SQUARE = 7,
    NPUC_HOST_REDUCE_LOG_SUM = 8,
    NPUC_HOST_REDUCE_LOG_SUM_EXP = 9,
    NPUC_HOST_REDUCES = 10
} npuc_host_reduce_kind;

typedef enum npuc_host_softmax_kind {
    NPUC_HOST_SOFTMAX_SOFTMAX = 0,
    NPUC_HOST_SOFTMAX_LOG_SOFTMAX = 1,
    NPUC_HOST_SOFTMAX_HARDMAX = 2,
    NPUC_HOST_SOFTMAX_L1 = 3,
    NPUC_HOST_SOFTMAX_L2 = 4,
    NPUC_HOST_SOFTMAXS = 5
} npuc_host_softmax_kind;

typedef enum npuc_host_normalize_kind {
    NPUC_HOST_NORMALIZE_VARIANCE = 0,
    NPUC_HOST_NORMALIZE_RMS = 1,
    NPUC_HOST_NORMALIZES = 2
} npuc_host_normalize_kind;

typedef enum npuc_host_pool_kind {
    NPUC_HOST_POOL_MAX = 0,
    NPUC_HOST_POOL_MEAN = 1,
    NPUC_HOST_POOL_MEAN_WITH_PADS = 2,
    NPUC_HOST_POOL_LP = 3,
    NPUC_HOST_POOLS = 4
} npuc_host_pool_kind;

typedef enum npuc_host_scatter_kind {
    NPUC_HOST_SCATTER_NONE = 0,
    NPUC_HOST_SCATTER_ADD = 1,
    NPUC_HOST_SCATTER_MUL = 2,
    NPUC_HOST_SCATTER_MIN = 3,
    NPUC_HOST_SCATTER_MAX = 4,
    NPUC_HOST_SCATTERS = 5
} npuc_host_scatter_kind;

typedef enum npuc_host_pad_kind {
    NPUC_HOST_PAD_EDGE = 0,
    NPUC_HOST_PAD_REFLECT = 1,
    NPUC_HOST_PAD_WRAP = 2,
    NPUC_HOST_PADS = 3
} npuc_host_pad_kind;

typedef enum npuc_host_recurrent_kind {
    NPUC_HOST_RECURRENT_RNN = 0,
    NPUC_HOST_RECURRENT_GRU = 1,
    NPUC_HOST_RECURRENT_LSTM = 2,
    NPUC_HOST_RECURRENTS = 3
} npuc_host_recurrent_kind;

typedef enum npuc_host_grid_kind {
    NPUC_HOST_GRID_NEAREST = 0,
    NPUC_HOST_GRID_LINEAR = 1,
    NPUC_HOST_GRID_CUBIC = 2,
    NPUC_HOST_GRIDS = 3
} npuc_host_grid_kind;

typedef enum npuc_host_outside_kind {
    NPUC_HOST_OUTSIDE_ZEROS = 0,
    NPUC_HOST_OUTSIDE_BORDER = 1,
    NPUC_HOST_OUTSIDE_REFLECTION = 2,
    NPUC_HOST_OUTSIDES = 3
} npuc_host_outside_kind;

/* Section .npu.host.S: how the host operators of a CPU subgraph follow each other. */
typedef struct npuc_host_header {
    uint32_t version; /* NPUC_HOST_VERSION */
    uint32_t tensors;
    uint32_t nodes; /* 0 if the subgraph has an operator that C has not */
    uint32_t operands;
    uint32_t numbers;
    uint32_t refusal; /* in the strings: which operator that is, and why */
    uint64_t arena; /* bytes for the tensors in between */
    uint64_t strings; /* bytes */
    uint64_t constants; /* bytes */
} npuc_host_header;

/* A tensor, dense in the order of its axes. */
typedef struct npuc_host_tensor {
    uint16_t dtype; /* an npuc_tensor_dtype */
    uint16_t rank;
    uint32_t place; /* an npuc_host_place_kind */
    uint64_t offset; /* arena, constants: the first byte; inputs, outputs: which one */
    uint64_t size; /* bytes */
    uint32_t shape[8]; /* at most: the first axis may be shorter */
    uint32_t rows; /* NPUC_HOST_NONE, or the tensor whose first element (i64) is the length of the first axis */
    uint32_t reserved; /* 0 */
} npuc_host_tensor;

/* An operator at work. */
typedef struct npuc_host_node {
    uint16_t op; /* an npuc_host_op_kind */
    uint16_t inputs;
    uint16_t outputs; /* behind the inputs in the operands */
    uint16_t reserved; /* 0 */
    uint32_t first_operand;
    uint32_t first_number;
    uint32_t numbers;
    uint32_t name; /* of the layer, in the strings */
} npuc_host_node;

NPUC_HOST_CHECK(npuc_host_header, 48);
NPUC_HOST_CHECK(npuc_host_tensor, 64);
NPUC_HOST_CHECK(npuc_host_node, 24);

#endif /* NPUC_HOST_H */
