/*
 * Statistics of float tensors, in one pass over memory: block by block, extremes and sums first, then counts.
 *
 * The AVX2 code and the portable code give the same bits: sums run in eight lanes of double in both, and the square of a
 * float is exact in double. A histogram whose range is a power of two can double it by adding neighbours, which gives
 * exactly the counts of the wider bins: so the range may grow at any block.
 */
#include "cpu.h"
#include "npuc/observe.h"
#include "npuc/gemm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) && defined(__x86_64__)
#define HAVE_AVX2 1
#include <immintrin.h>
#else
#define HAVE_AVX2 0
#endif

enum {
    LANES = 8,
    TABLES = 4,         /* consecutive values count in different tables, so that equal ones do not wait for each other */
    BLOCK = 8192,       /* values that are looked at twice while they are in cache; a multiple of LANES */
    PART = 1024,        /* values binned at a time */
    FEW = 1 << 14,      /* below this many values one table is faster */
    MANY = 1 << 30,     /* values a table of 32-bit counts can take in */
    MIN_EXPONENT = -60, /* of the range; an all-zero tensor has this one */
    MAX_EXPONENT = 100,
    MAX_BINS = 1 << 20
};

typedef struct summary {
    double sum[LANES];
    double square[LANES];
    double absolute[LANES];
    float min;
    float max;
    int64_t nans;
    int64_t infinite;
} summary;

static void take(summary *s, float x, float bound, int lane)
{
    if (!(fabsf(x) <= bound)) {
        if (isnan(x))
            s->nans++;
        else
            s->infinite++;
        return;
    }
    s->sum[lane] += (double)x;
    s->square[lane] += (double)x * (double)x;
    s->absolute[lane] += fabs((double)x);
    s->min = x < s->min ? x : s->min;
    s->max = x > s->max ? x : s->max;
}

static void summarize_portable(const float *x, size_t n, float bound, summary *s)
{
    for (size_t i = 0; i < n; i++) take(s, x[i], bound, (int)(i % LANES));
}

/*
 * Bin numbers of values that are all inside the range; `scale` is 1 / width, a power of two, so that nothing rounds but
 * what is far smaller than a bin: that may become zero, and if it was negative it still belongs below.
 */
static void bin_portable(const float *x, size_t n, float scale, int32_t half, int32_t *bins)
{
    for (size_t i = 0; i < n; i++) {
        float v = x[i] * scale;
        int32_t whole = (int32_t)v;
        whole -= v < (float)whole || (v == 0.0f && x[i] < 0.0f);
        bins[i] = whole + half;
    }
}

#if HAVE_AVX2
__attribute__((target("avx2"))) static void summarize_avx2(const float *x, size_t n, float bound, summary *s)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const __m256 limit = _mm256_set1_ps(bound);
    const __m256d wide_sign = _mm256_set1_pd(-0.0);
    const __m256 top = _mm256_set1_ps(INFINITY), bottom = _mm256_set1_ps(-INFINITY);
    __m256 low = _mm256_set1_ps(s->min), high = _mm256_set1_ps(s->max);
    __m256d sum0 = _mm256_loadu_pd(s->sum), sum1 = _mm256_loadu_pd(s->sum + 4);
    __m256d square0 = _mm256_loadu_pd(s->square), square1 = _mm256_loadu_pd(s->square + 4);
    __m256d absolute0 = _mm256_loadu_pd(s->absolute), absolute1 = _mm256_loadu_pd(s->absolute + 4);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256 v = _mm256_loadu_ps(x + i);
        __m256 good = _mm256_cmp_ps(_mm256_andnot_ps(sign, v), limit, _CMP_LE_OQ);
        if (_mm256_movemask_ps(good) != 0xff) {
            for (int lane = 0; lane < LANES; lane++) {
                float one = x[i + (size_t)lane];
                if (isnan(one))
                    s->nans++;
                else if (!(fabsf(one) <= bound))
                    s->infinite++;
            }
            low = _mm256_min_ps(low, _mm256_blendv_ps(top, v, good));
            high = _mm256_max_ps(high, _mm256_blendv_ps(bottom, v, good));
            v = _mm256_and_ps(v, good);
        } else {
            low = _mm256_min_ps(low, v);
            high = _mm256_max_ps(high, v);
        }
        __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(v)), b = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
        sum0 = _mm256_add_pd(sum0, a);
        sum1 = _mm256_add_pd(sum1, b);
        square0 = _mm256_add_pd(square0, _mm256_mul_pd(a, a));
        square1 = _mm256_add_pd(square1, _mm256_mul_pd(b, b));
        absolute0 = _mm256_add_pd(absolute0, _mm256_andnot_pd(wide_sign, a));
        absolute1 = _mm256_add_pd(absolute1, _mm256_andnot_pd(wide_sign, b));
    }
    float lows[LANES], highs[LANES];
    _mm256_storeu_ps(lows, low);
    _mm256_storeu_ps(highs, high);
    for (int lane = 0; lane < LANES; lane++) {
        s->min = lows[lane] < s->min ? lows[lane] : s->min;
        s->max = highs[lane] > s->max ? highs[lane] : s->max;
    }
    _mm256_storeu_pd(s->sum, sum0);
    _mm256_storeu_pd(s->sum + 4, sum1);
    _mm256_storeu_pd(s->square, square0);
    _mm256_storeu_pd(s->square + 4, square1);
    _mm256_storeu_pd(s->absolute, absolute0);
    _mm256_storeu_pd(s->absolute + 4, absolute1);
    for (; i < n; i++) take(s, x[i], bound, (int)(i % LANES));
}

__attribute__((target("avx2"))) static void bin_avx2(const float *x, size_t n, float scale, int32_t half, int32_t *bins)
{
    const __m256 factor = _mm256_set1_ps(scale);
    const __m256 zero = _mm256_setzero_ps();
    const __m256i offset = _mm256_set1_epi32(half);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256 value = _mm256_loadu_ps(x + i);
        __m256 v = _mm256_mul_ps(value, factor);
        __m256 vanished = _mm256_and_ps(_mm256_cmp_ps(v, zero, _CMP_EQ_OQ), _mm256_cmp_ps(value, zero, _CMP_LT_OQ));
        __m256i whole = _mm256_add_epi32(_mm256_cvttps_epi32(_mm256_floor_ps(v)), _mm256_castps_si256(vanished));
        _mm256_storeu_si256((__m256i *)(bins + i), _mm256_add_epi32(whole, offset));
    }
    bin_portable(x + i, n - i, scale, half, bins + i);
}
#endif

static int use_avx2(int32_t flags)
{
#if HAVE_AVX2
    return !(flags & NPUC_OBSERVE_PORTABLE) && strcmp(npuc_isa(), "portable") != 0 && npuc_cpu_avx2();
#else
    (void)flags;
    return 0;
#endif
}

static double total(const double *lanes)
{
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

static int32_t floor_shift(int32_t value, int shift) { return value >= 0 ? value >> shift : -(((-value - 1) >> shift) + 1); }

/* The exponent of the smallest range that holds a magnitude. */
static int32_t exponent_for(float magnitude)
{
    int exponent = MIN_EXPONENT;
    if (magnitude > 0.0f) (void)frexpf(magnitude, &exponent); /* magnitude < 2^exponent */
    return exponent < MIN_EXPONENT ? MIN_EXPONENT : exponent;
}

/* Merge bins so that the range is 2^steps as wide. */
static void widen(uint64_t *histogram, int32_t bins, uint64_t *tail, int32_t steps)
{
    int32_t half = bins / 2;
    int shift = steps < 30 ? (int)steps : 30;
    /* From the middle outwards a bin only ever moves to one that is already read. */
    for (int32_t i = 0; i < half; i++) {
        int32_t to = half + floor_shift(i, shift);
        uint64_t count = histogram[half + i];
        histogram[half + i] = 0;
        histogram[to] += count;
        to = half + floor_shift(-1 - i, shift);
        count = histogram[half - 1 - i];
        histogram[half - 1 - i] = 0;
        histogram[to] += count;
        if (tail != NULL) {
            count = tail[i];
            tail[i] = 0;
            tail[i >> shift] += count;
        }
    }
}

/* Count one block in `tables`: all values are in range if `clean`, else those beyond the bound are passed over. */
static void count_block(const float *x, size_t n, float bound, int clean, float scale, int32_t bins, int tables, int avx2, uint32_t *counts)
{
    int32_t number[PART];
    float kept[PART];
    int32_t half = bins / 2;
    for (size_t start = 0; start < n; start += PART) {
        size_t size = n - start < PART ? n - start : PART;
        const float *part = x + start;
        if (!clean) {
            size_t good = 0;
            for (size_t i = 0; i < size; i++)
                if (fabsf(part[i]) <= bound) kept[good++] = part[i];
            part = kept;
            size = good;
        }
#if HAVE_AVX2
        if (avx2)
            bin_avx2(part, size, scale, half, number);
        else
#endif
            bin_portable(part, size, scale, half, number);
        size_t i = 0;
        if (tables == TABLES) {
            uint32_t *second = counts + bins, *third = second + bins, *fourth = third + bins;
            for (; i + TABLES <= size; i += TABLES) {
                counts[number[i]]++;
                second[number[i + 1]]++;
                third[number[i + 2]]++;
                fourth[number[i + 3]]++;
            }
        }
        for (; i < size; i++) counts[number[i]]++;
    }
    (void)avx2;
}

/* Move what the tables hold to `merged`. */
static void flush(uint32_t *counts, int tables, int32_t bins, uint64_t *merged)
{
    for (int table = 0; table < tables; table++) {
        uint32_t *one = counts + (size_t)table * (size_t)bins;
        for (int32_t i = 0; i < bins; i++) merged[i] += one[i];
    }
    memset(counts, 0, (size_t)tables * (size_t)bins * sizeof *counts);
}

/* Add the `left` largest magnitudes that `counts` holds to the tail. */
static void collect_tail(const uint64_t *counts, int32_t bins, uint64_t left, uint64_t *tail)
{
    int32_t half = bins / 2;
    for (int32_t i = half - 1; i >= 0 && left > 0; i--) {
        uint64_t both = counts[half + i] + counts[half - 1 - i];
        uint64_t used = both < left ? both : left;
        tail[i] += used;
        left -= used;
    }
}

NPUC_API npuc_status npuc_observe(const float *x, size_t n, float bound, int32_t bins, double tail_ratio, int32_t flags,
                                  npuc_statistics *statistics, uint64_t *histogram, uint64_t *tail)
{
    if ((x == NULL && n > 0) || statistics == NULL || histogram == NULL || bins < 4 || bins > MAX_BINS || (bins & (bins - 1)) != 0 ||
        !(bound > 0.0f) || !(bound <= 0x1p100f) || !(tail_ratio >= 0.0) || tail_ratio > 1.0 || n > (size_t)INT64_MAX)
        return NPUC_BAD_ARGUMENT;
    if (statistics->exponent != NPUC_OBSERVE_EMPTY && (statistics->exponent < MIN_EXPONENT || statistics->exponent > MAX_EXPONENT + 1))
        return NPUC_BAD_ARGUMENT;

    int tables = n < FEW ? 1 : TABLES;
    uint32_t *counts = calloc((size_t)tables * (size_t)bins, sizeof *counts);
    uint64_t *merged = calloc((size_t)bins, sizeof *merged);
    if (counts == NULL || merged == NULL) {
        free(counts);
        free(merged);
        return NPUC_NO_MEMORY;
    }

    summary s;
    memset(&s, 0, sizeof s);
    s.min = INFINITY;
    s.max = -INFINITY;
    int avx2 = use_avx2(flags);
    int32_t exponent = statistics->exponent;
    size_t waiting = 0; /* values in the tables */
    for (size_t start = 0; start < n; start += BLOCK) {
        size_t size = n - start < BLOCK ? n - start : BLOCK;
        int64_t bad = s.nans + s.infinite;
#if HAVE_AVX2
        if (avx2)
            summarize_avx2(x + start, size, bound, &s);
        else
#endif
            summarize_portable(x + start, size, bound, &s);
        if (s.min > s.max) continue; /* no value yet */
        int32_t needed = exponent_for(-s.min > s.max ? -s.min : s.max);
        if (exponent == NPUC_OBSERVE_EMPTY) {
            exponent = needed;
        } else if (needed > exponent) {
            flush(counts, tables, bins, merged);
            waiting = 0;
            widen(merged, bins, NULL, needed - exponent);
            widen(histogram, bins, tail, needed - exponent);
            exponent = needed;
        } else if (waiting > MANY) {
            flush(counts, tables, bins, merged);
            waiting = 0;
        }
        float scale = (float)ldexp((double)(bins / 2), -exponent);
        count_block(x + start, size, bound, bad == s.nans + s.infinite, scale, bins, tables, avx2, counts);
        waiting += size;
    }
    flush(counts, tables, bins, merged);

    int64_t count = (int64_t)n - s.nans - s.infinite;
    /* Which zero came first is the one thing the two variants may see differently. */
    float min = count > 0 ? s.min + 0.0f : 0.0f, max = count > 0 ? s.max + 0.0f : 0.0f;
    int first = statistics->exponent == NPUC_OBSERVE_EMPTY;
    statistics->nans += s.nans;
    statistics->infinite += s.infinite;
    statistics->batch_count = count;
    statistics->batch_min = min;
    statistics->batch_max = max;
    if (count > 0) {
        statistics->exponent = exponent;
        statistics->min = first || min < statistics->min ? min : statistics->min;
        statistics->max = first || max > statistics->max ? max : statistics->max;
        statistics->count += count;
        statistics->sum += total(s.sum);
        statistics->square += total(s.square);
        statistics->absolute += total(s.absolute);
        for (int32_t i = 0; i < bins; i++) histogram[i] += merged[i];
        if (tail != NULL) {
            double wanted = ceil(tail_ratio * (double)count);
            collect_tail(merged, bins, wanted < 1.0 ? 1 : (uint64_t)wanted, tail);
        }
    }
    free(counts);
    free(merged);
    return NPUC_OK;
}

NPUC_API npuc_status npuc_observe_channels(const float *x, size_t outer, size_t channels, size_t inner, float bound, float *min, float *max)
{
    if (min == NULL || max == NULL || !(bound > 0.0f) || (x == NULL && outer > 0 && channels > 0 && inner > 0)) return NPUC_BAD_ARGUMENT;
    for (size_t o = 0; o < outer; o++) {
        for (size_t c = 0; c < channels; c++) {
            const float *row = x + (o * channels + c) * inner;
            /* Four of each, so that one comparison does not wait for the one before. */
            float low[4], high[4];
            for (int lane = 0; lane < 4; lane++) {
                low[lane] = min[c];
                high[lane] = max[c];
            }
            for (size_t i = 0; i < inner; i++) {
                float v = row[i];
                int good = fabsf(v) <= bound, lane = (int)(i & 3);
                low[lane] = good && v < low[lane] ? v : low[lane];
                high[lane] = good && v > high[lane] ? v : high[lane];
            }
            for (int lane = 0; lane < 4; lane++) {
                min[c] = low[lane] < min[c] ? low[lane] : min[c];
                max[c] = high[lane] > max[c] ? high[lane] : max[c];
            }
        }
    }
    return NPUC_OK;
}
