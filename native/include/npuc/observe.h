/*
 * npuc: statistics of float tensors, for calibration.
 *
 * One call takes in one tensor: smallest and largest value, sums, and a histogram that grows by powers of two, so that
 * one pass over the data is enough. Nothing is kept of the tensor itself. A value that is not a number, or whose
 * magnitude is above a bound, is counted and otherwise left out.
 *
 * Calls on different statistics may run at the same time.
 */
#ifndef NPUC_OBSERVE_H
#define NPUC_OBSERVE_H

#include <stddef.h>
#include <stdint.h>

#include "npuc/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The exponent of statistics that have seen no value yet. */
#define NPUC_OBSERVE_EMPTY INT32_MIN

/* Values of `flags`. */
#define NPUC_OBSERVE_PORTABLE 1 /* use no instructions beyond the compiler's baseline; the results are the same bits */

/*
 * What has been seen so far. Zero everything before the first call, but set `exponent` to NPUC_OBSERVE_EMPTY.
 *
 * The histogram has `bins` equal bins over [-2^exponent, 2^exponent): a value x is in bin floor(x / width) + bins / 2,
 * width = 2^(exponent + 1) / bins. The tail has `bins / 2` bins of |x| over [0, 2^exponent).
 */
typedef struct npuc_statistics {
    int64_t count;    /* values that were taken in */
    int64_t nans;     /* left out: not a number */
    int64_t infinite; /* left out: magnitude above the bound */
    double sum;
    double square;   /* sum of x * x */
    double absolute; /* sum of |x| */
    float min;       /* of everything; 0 before the first value */
    float max;
    float batch_min; /* of the last call; 0 if it had no value */
    float batch_max;
    int64_t batch_count;
    int32_t exponent;
    int32_t reserved;
} npuc_statistics;

/*
 * Take in `n` values.
 *
 * `bound`: finite, positive and at most 2^100. `bins`: a power of two, 4 to 2^20. `histogram` has `bins` entries, `tail`
 * half as many (it may be null). The tail collects, for each call, its ceil(tail_ratio * n) largest magnitudes, at least one.
 */
NPUC_API npuc_status npuc_observe(
    const float *x, size_t n, float bound, int32_t bins, double tail_ratio, int32_t flags, npuc_statistics *statistics,
    uint64_t *histogram, uint64_t *tail);

/*
 * Smallest and largest value of each channel of a tensor of shape [outer, channels, inner], combined with what `min`
 * and `max` (of `channels` entries) hold: start them at +infinity and -infinity. Values are left out as above.
 */
NPUC_API npuc_status npuc_observe_channels(
    const float *x, size_t outer, size_t channels, size_t inner, float bound, float *min, float *max);

#ifdef __cplusplus
}
#endif

#endif /* NPUC_OBSERVE_H */
