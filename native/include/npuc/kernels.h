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

#include "npuc/kinds.h"
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

/*
 * The output stage y = sat(zero_point + rq(acc), lo, hi).
 *
 * `multiplier` and `shift` have `count` entries: 1, or one for each output channel. NPUC_POW2 has no multiplier; NPUC_FLOAT_SCALE
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
