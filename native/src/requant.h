/*
 * The output stage: an exact accumulator to a quantized output. ARITHMETIC section 4, each kind one function.
 *
 * All are written on int64 so that no intermediate can overflow for any accumulator of 48 bits; shifts of negative numbers
 * are arithmetic on every compiler that this library builds with (checked by a static assertion).
 */
#ifndef NPUC_REQUANT_H
#define NPUC_REQUANT_H

#include <math.h>
#include <stdint.h>

#include "npuc/kernels.h"

_Static_assert((-1 >> 1) == -1, "right shifts of negative numbers must be arithmetic");

static inline int64_t npuc_clamp64(int64_t x, int64_t lo, int64_t hi) { return x < lo ? lo : x > hi ? hi : x; }

/* x / 2^s to the nearest integer, ties towards +infinity; a negative s shifts left. */
static inline int64_t npuc_half_up(int64_t x, int s)
{
    if (s <= 0) return s <= -63 ? 0 : (int64_t)((uint64_t)x << -s);
    if (s >= 63) return 0;
    return (x + ((int64_t)1 << (s - 1))) >> s;
}

/* x / 2^s to the nearest integer, ties to the even one; a negative s shifts left. */
static inline int64_t npuc_half_even(int64_t x, int s)
{
    if (s <= 0) return s <= -63 ? 0 : (int64_t)((uint64_t)x << -s);
    if (s >= 63) return 0;
    int64_t floor = x >> s;
    int64_t rest = x - (int64_t)((uint64_t)floor << s);
    int64_t half = (int64_t)1 << (s - 1);
    return floor + (rest > half || (rest == half && (floor & 1)));
}

/* gemmlowp's SaturatingRoundingDoublingHighMul. */
static inline int32_t npuc_srdhm(int32_t a, int32_t b)
{
    if (a == INT32_MIN && b == INT32_MIN) return INT32_MAX;
    int64_t ab = (int64_t)a * b;
    int64_t nudge = ab >= 0 ? ((int64_t)1 << 30) : 1 - ((int64_t)1 << 30);
    return (int32_t)((ab + nudge) / ((int64_t)1 << 31));
}

/* gemmlowp's RoundingDivideByPOT, 0 <= s <= 31. */
static inline int32_t npuc_rdbp(int32_t x, int s)
{
    int64_t mask = ((int64_t)1 << s) - 1;
    int64_t rest = x & mask;
    int64_t threshold = (mask >> 1) + (x < 0);
    return (x >> s) + (rest > threshold);
}

/* TFLite's MultiplyByQuantizedMultiplier with `shift` = 31 - exponent; the left shift wraps as TFLite's does. */
static inline int32_t npuc_rq_double(int32_t acc, int32_t multiplier, int32_t shift)
{
    int e = 31 - shift;
    int left = e > 0 ? e : 0, right = e > 0 ? 0 : -e;
    if (right > 31) return 0;
    return npuc_rdbp(npuc_srdhm((int32_t)((uint32_t)acc << left), multiplier), right);
}

/* One accumulator through the output stage; `channel` picks the parameters. */
static inline int32_t npuc_requantize(const npuc_requant *rq, int64_t acc, int32_t channel)
{
    int32_t i = rq->count > 1 ? channel : 0;
    int64_t y;
    switch (rq->kind) {
    case NPUC_DOUBLE_ROUNDING: y = npuc_rq_double((int32_t)acc, rq->multiplier[i], rq->shift[i]); break;
    case NPUC_SINGLE_ROUNDING: y = npuc_half_up(acc * rq->multiplier[i], rq->shift[i]); break;
    case NPUC_SINGLE_EVEN: y = npuc_half_even(acc * rq->multiplier[i], rq->shift[i]); break;
    case NPUC_POW2: y = npuc_half_up(acc, rq->shift[i]); break;
    default: {
        float scaled = (float)acc * rq->scale[i];
        scaled = scaled < -2147483648.0f ? -2147483648.0f : scaled > 2147483520.0f ? 2147483520.0f : scaled;
        y = (int64_t)nearbyintf(scaled);
    }
    }
    return (int32_t)npuc_clamp64(y + rq->zero_point, rq->lo, rq->hi);
}

#endif /* NPUC_REQUANT_H */
