/* Checking an output stage and padding it to whole panels. */
#ifndef NPUC_STAGE_H
#define NPUC_STAGE_H

#include "gemm.h"

/* Whether a layer of `channels` output channels can use `rq` (NULL: raw accumulators) with outputs of `y_dtype`. */
static inline int npuc_stage_valid(const npuc_requant *rq, int32_t y_dtype, int32_t channels, int wide)
{
    int32_t low, high;
    switch (y_dtype) {
    case NPUC_I8: low = -128, high = 127; break;
    case NPUC_U8: low = 0, high = 255; break;
    case NPUC_I16: low = -32768, high = 32767; break;
    case NPUC_I32: low = INT32_MIN, high = INT32_MAX; break;
    default: return 0;
    }
    if (!rq) return y_dtype == NPUC_I32 && !wide;
    if (rq->kind < 0 || rq->kind >= NPUC_REQUANT_KINDS || (rq->count != 1 && rq->count != channels)) return 0;
    if (rq->lo > rq->hi || rq->lo < low || rq->hi > high) return 0;
    if (rq->kind == NPUC_DOUBLE_ROUNDING && wide) return 0;
    const int multiplies = NPUC_HAS_MULTIPLIER(rq->kind), shifts = NPUC_HAS_SHIFT(rq->kind);
    const int scales = NPUC_HAS_SCALE(rq->kind);
    if ((multiplies && !rq->multiplier) || (shifts && !rq->shift) || (scales && !rq->scale)) return 0;
    for (int32_t i = 0; i < rq->count; i++) {
        if (multiplies && rq->multiplier[i] < 0) return 0;
        if (shifts && rq->shift[i] < (multiplies ? 0 : -31)) return 0;
        if (scales && !(rq->scale[i] >= 0 && rq->scale[i] <= 3.402823466e38f)) return 0;
    }
    return 1;
}

/* How much of the vector code serves a channel, or a panel: the least of its channels. */
enum { NPUC_SCALAR, NPUC_VECTOR, NPUC_FAST };

/*
 * The level of channel `i` and the constants of the fast form, for accumulators of at most `bound` in magnitude.
 *
 * Shifting the accumulator left by `pre` puts the wanted bits of the 64-bit product in its high half, so that the rest is
 * 32-bit work: half = 2^(post - 1) is added and `post` is shifted out. That needs room above the accumulator.
 */
static inline int npuc_stage_level(const npuc_requant *rq, int32_t i, int64_t bound, int32_t *pre, int32_t *add, int32_t *post)
{
    *pre = *add = *post = 0;
    if (rq->kind == NPUC_FLOAT_SCALE) return (double)bound * (double)rq->scale[i] < 2147483392.0 ? NPUC_FAST : NPUC_VECTOR;
    const int32_t s = rq->shift[i];
    switch (rq->kind) {
    case NPUC_DOUBLE_ROUNDING: {
        const int32_t left = s < 31 ? 31 - s : 0, right = s > 31 ? s - 31 : 0;
        if (right > 31 || left > 29 || bound > INT32_MAX >> (left + 1)) return NPUC_VECTOR;
        *pre = left + 1;
        *add = right ? (int32_t)1 << (right - 1) : 0;
        *post = right;
        return NPUC_FAST;
    }
    case NPUC_SINGLE_ROUNDING: {
        const int32_t whole = s > 33 ? s : 33;
        if (s <= 62 && whole - s < 31 && bound <= INT32_MAX >> (whole - s)) {
            *pre = whole - s;
            *add = (int32_t)1 << (whole - 33);
            *post = whole - 32;
            return NPUC_FAST;
        }
    }
    /* fall through */
    case NPUC_SINGLE_EVEN: /* the general form needs a result that fits int32; ties to even have no faster one */
        if (s < 1 || s > 62 || rq->multiplier[i] > (int64_t)1 << s) return NPUC_SCALAR;
        return rq->kind == NPUC_SINGLE_ROUNDING ? NPUC_VECTOR : NPUC_FAST;
    case NPUC_POW2:
        if (s < 0) return NPUC_SCALAR;
        if (s > 31 || bound > INT32_MAX - (s ? (int64_t)1 << (s - 1) : 0)) return NPUC_VECTOR;
        *add = s ? (int32_t)1 << (s - 1) : 0;
        *post = s;
        return NPUC_FAST;
    default: return NPUC_SCALAR; /* a kind that has no vector code */
    }
}

#endif /* NPUC_STAGE_H */
