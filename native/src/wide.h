/* The output stage for accumulators of up to 63 bits, whose products need 128: 16-bit activations, never the hot path. */
#ifndef NPUC_WIDE_H
#define NPUC_WIDE_H

#include "requant.h"

__extension__ typedef __int128 npuc_int128;

static inline npuc_int128 npuc_half_wide(npuc_int128 x, int s, int even)
{
    if (s == 0) return x;
    if (s < 0) return x * ((npuc_int128)1 << (-s < 62 ? -s : 62)); /* beyond that, any x but 0 saturates anyway */
    if (s > 124) s = 124;
    npuc_int128 floor = x >> s;
    npuc_int128 rest = x - floor * ((npuc_int128)1 << s);
    npuc_int128 half = (npuc_int128)1 << (s - 1);
    return floor + (rest > half || (rest == half && (!even || (floor & 1))));
}

/* Every kind but NPUC_DOUBLE_ROUNDING, which is defined on 32 bits. */
static inline int32_t npuc_requantize_wide(const npuc_requant *rq, int64_t acc, int32_t channel)
{
    int32_t i = rq->count > 1 ? channel : 0;
    npuc_int128 y;
    switch (rq->kind) {
    case NPUC_SINGLE_ROUNDING: y = npuc_half_wide((npuc_int128)acc * rq->multiplier[i], rq->shift[i], 0); break;
    case NPUC_SINGLE_EVEN: y = npuc_half_wide((npuc_int128)acc * rq->multiplier[i], rq->shift[i], 1); break;
    case NPUC_POW2: y = npuc_half_wide(acc, rq->shift[i], 0); break;
    default: return npuc_requantize(rq, acc, channel);
    }
    y += rq->zero_point;
    return (int32_t)(y < rq->lo ? rq->lo : y > rq->hi ? rq->hi : y);
}

#endif /* NPUC_WIDE_H */
