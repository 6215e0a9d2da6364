/*
 * npuc: codes of element types, requantization kinds and roundings, made by `make docs` from src/npuc/arithmetic. Do not edit.
 */
#ifndef NPUC_KINDS_H
#define NPUC_KINDS_H

/* Element types of activations and weights. */
typedef enum npuc_dtype {
    NPUC_I8 = 0,
    NPUC_U8 = 1,
    NPUC_I16 = 2,
    NPUC_I32 = 3,
    NPUC_I4 = 4, /* two to a byte, the even element in the low nibble */
    NPUC_F32 = 5,
    NPUC_BF16 = 6,
    NPUC_F16 = 7,
    NPUC_I64 = 8,
    NPUC_MX6 = 9, /* packed blocks: docs/arithmetic-float.md */
    NPUC_MX9 = 10 /* packed blocks, too */
} npuc_dtype;

/*
 * Weights may also be signed integers of b bits that lie packed, from the lowest bit of each byte up; their code is
 * NPUC_PACKED + b. The macro has the bits of a packed weight, 0 for types that are not packed.
 */
#define NPUC_PACKED 32
#define NPUC_ODD_BITS(b) ((b) >= 2 && (b) <= 15 && (b) != 4 && (b) != 8 ? (b) : 0)
#define NPUC_PACKED_BITS(dtype) ((dtype) == NPUC_I4 ? 4 : NPUC_ODD_BITS((dtype) - NPUC_PACKED))

/* How an accumulator becomes an output: docs/arithmetic.md. */
typedef enum npuc_requant_kind {
    NPUC_DOUBLE_ROUNDING = 0, /* two roundings, as TFLite and gemmlowp have them */
    NPUC_SINGLE_ROUNDING = 1, /* one rounding, ties up */
    NPUC_SINGLE_EVEN = 2, /* one rounding, ties to even */
    NPUC_POW2 = 3, /* a shift alone, for scales that are powers of two */
    NPUC_FLOAT_SCALE = 4 /* a factor in float32, as ONNX Runtime has it */
} npuc_requant_kind;

#define NPUC_REQUANT_KINDS 5

/* Whether a kind is in a set of kinds; -1, a layer without an output stage, is in none. */
#define NPUC_KIND_IN(set, kind) ((unsigned)(kind) < NPUC_REQUANT_KINDS && ((set) >> (unsigned)(kind) & 1u))
#define NPUC_HAS_MULTIPLIER(kind) NPUC_KIND_IN(0x7u, kind) /* whether a kind has a multiplier, of 31 bits at most */
#define NPUC_HAS_SHIFT(kind) NPUC_KIND_IN(0xfu, kind) /* whether a kind has a shift */
#define NPUC_HAS_SCALE(kind) NPUC_KIND_IN(0x10u, kind) /* whether a kind has a scale in float32 */

/* How a number between two integers is rounded. */
typedef enum npuc_rounding {
    NPUC_HALF_AWAY = 0, /* to the nearest, ties away from zero */
    NPUC_HALF_EVEN = 1, /* to the nearest, ties to the even one */
    NPUC_HALF_UP = 2 /* to the nearest, ties towards +infinity */
} npuc_rounding;

#endif /* NPUC_KINDS_H */
