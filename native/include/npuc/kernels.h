/*
 * npuc: the integer kernels, one call an op, whole tensors.
 *
 * The arithmetic is docs/arithmetic.md, to the bit. Pointers must be valid for the sizes that the shapes give; everything
 * else is checked, and a call that cannot be carried out returns an npuc_status and touches nothing.
 *
 * Activations of rank 4 are NHWC in memory: channels are innermost, where the multiply-add instructions want them.
 */
#ifndef NPUC_KERNELS_H
#define NPUC_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "npuc/npuc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum npuc_status {
    NPUC_OK = 0,
    NPUC_BAD_ARGUMENT = 1, /* a shape, stride or parameter that makes no sense */
    NPUC_NO_MEMORY = 2,
    NPUC_UNSUPPORTED = 3 /* a combination of types that this kernel has no code for */
} npuc_status;

/* Element types of activations and weights. */
typedef enum npuc_dtype {
    NPUC_I8 = 0,
    NPUC_U8 = 1,
    NPUC_I16 = 2,
    NPUC_I32 = 3,
    NPUC_I4 = 4, /* two to a byte, the even element in the low nibble */
    NPUC_F32 = 5,
    NPUC_BF16 = 6,
    NPUC_F16 = 7
} npuc_dtype;

/* How an accumulator becomes an output: ARITHMETIC section 4. */
typedef enum npuc_requant_kind {
    NPUC_DOUBLE = 0,
    NPUC_SINGLE = 1,
    NPUC_SINGLE_EVEN = 2,
    NPUC_POW2 = 3,
    NPUC_FLOAT = 4
} npuc_requant_kind;

/*
 * The output stage y = sat(zero_point + rq(acc), lo, hi).
 *
 * `multiplier` and `shift` have `count` entries: 1, or one for each output channel. NPUC_POW2 has no multiplier; NPUC_FLOAT
 * has neither, but `scale`.
 */
typedef struct npuc_requant {
    int32_t kind; /* npuc_requant_kind */
    int32_t count;
    const int32_t *multiplier;
    const int32_t *shift;
    const float *scale;
    int32_t zero_point;
    int32_t lo;
    int32_t hi;
} npuc_requant;

#ifdef __cplusplus
}
#endif

#endif /* NPUC_KERNELS_H */
