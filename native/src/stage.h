/* Checking an output stage and padding it to whole panels. */
#ifndef NPUC_STAGE_H
#define NPUC_STAGE_H

#include "gemm.h"

/* Whether a layer of `channels` output channels can use `rq` (NULL: raw accumulators) with outputs of `y_dtype`. */
static inline int npuc_stage_valid(const npuc_requant *rq, int32_t y_dtype, int32_t channels, int wide) {
    int32_t low, high;
    switch (y_dtype) {
    case NPUC_I8: low = -128, high = 127; break;
    case NPUC_U8: low = 0, high = 255; break;
    case NPUC_I16: low = -32768, high = 32767; break;
    case NPUC_I32: low = INT32_MIN, high = INT32_MAX; break;
    default: return 0;
    }
    if (!rq) return y_dtype == NPUC_I32 && !wide;
    if (rq->kind < NPUC_DOUBLE || rq->kind > NPUC_FLOAT || (rq->count != 1 && rq->count != channels)) return 0;
    if (rq->lo > rq->hi || rq->lo < low || rq->hi > high) return 0;
    if (rq->kind == NPUC_DOUBLE && wide) return 0;
    if (rq->kind == NPUC_FLOAT ? !rq->scale : !rq->shift) return 0;
    if (rq->kind < NPUC_POW2 && !rq->multiplier) return 0;
    for (int32_t i = 0; i < rq->count; i++) {
        if (rq->kind < NPUC_POW2 && (rq->multiplier[i] < 0 || rq->shift[i] < 0)) return 0;
        if (rq->kind == NPUC_POW2 && rq->shift[i] < -31) return 0;
        if (rq->kind == NPUC_FLOAT && !(rq->scale[i] >= 0 && rq->scale[i] <= 3.402823466e38f)) return 0;
    }
    return 1;
}

/* Whether the vector code computes channel `i` right: its result must fit int32 before the zero point is added. */
static inline int npuc_stage_vectorable(const npuc_requant *rq, int32_t i) {
    switch (rq->kind) {
    case NPUC_DOUBLE: return 1;
    case NPUC_SINGLE:
    case NPUC_SINGLE_EVEN: return rq->shift[i] >= 1 && rq->shift[i] <= 62 && rq->multiplier[i] <= (int64_t)1 << rq->shift[i];
    case NPUC_POW2: return rq->shift[i] >= 0;
    default: return 1;
    }
}

#endif /* NPUC_STAGE_H */
