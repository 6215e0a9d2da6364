/*
 * Softmax, normalization and reductions of bf16, f16 and f32: docs/arithmetic-float.md.
 *
 * Elements are widened to f32; every step below is one IEEE operation, and sums run in the order of the elements, so that no
 * vector width or thread count changes a bit. Threads hold different rows.
 */
#include <math.h>
#include <string.h>

#include "floats.h"
#include "npuc/float.h"

enum { GRAIN = 1 << 13, TERMS = 11 };

static const double LOG2_E = 1.4426950408889634;
/* ln 2 in two parts: the first has 32 bits, so that its product with an exponent is exact. */
static const double LN2_HIGH = 0.6931471803691238, LN2_LOW = 1.9082149292705877e-10;
static const float LEAST_EXPONENT = -104.0f; /* below, e^x rounds to zero in f32 */

/* 1 / n! from the highest power down. */
static const double TAYLOR[TERMS] = {2.755731922398589e-07,
                                     2.7557319223985893e-06,
                                     2.48015873015873e-05,
                                     0.0001984126984126984,
                                     0.001388888888888889,
                                     0.008333333333333333,
                                     0.041666666666666664,
                                     0.16666666666666666,
                                     0.5,
                                     1.0,
                                     1.0};

/*
 * e^x for x <= 0, computed in f64 and rounded once to f32: x = n ln 2 + r, |r| <= ln 2 / 2, and e^r by ten terms of its series
 * (off by less than 2^-42), which is then scaled by 2^n.
 */
NPUC_INLINE float exp_of(float x)
{
    const double wide = x >= LEAST_EXPONENT ? x : LEAST_EXPONENT; /* also for NaN, which has no exponent */
    const double n = floor(wide * LOG2_E + 0.5), r = (wide - n * LN2_HIGH) - n * LN2_LOW;
    double series = TAYLOR[0];
    for (int i = 1; i < TERMS; i++) series = series * r + TAYLOR[i];
    const uint64_t bits = (uint64_t)((int64_t)n + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    const float e = (float)(series * scale);
    return x < LEAST_EXPONENT ? 0.0f : x != x ? x : e;
}

typedef struct rows_job {
    const void *x;
    void *y;
    const float *gain, *bias;
    const npuc_float_norm *norm;
    int64_t width;
    int32_t dtype;
} rows_job;

NPUC_INLINE void softmax_typed(const rows_job *j, int64_t begin, int64_t end, int32_t dtype)
{
    const int64_t width = j->width;
    for (int64_t row = begin; row < end; row++) {
        const void *x = npuc_float_at(j->x, row * width, dtype);
        void *y = npuc_float_to(j->y, row * width, dtype);
        float largest = npuc_widen(x, 0, dtype), sum = 0.0f;
        for (int64_t i = 1; i < width; i++) {
            const float value = npuc_widen(x, i, dtype);
            largest = value > largest || value != value ? value : largest;
        }
        float e[NPUC_BLOCK];
        for (int64_t i = 0; i < width; i += NPUC_BLOCK) {
            const int64_t n = width - i < NPUC_BLOCK ? width - i : NPUC_BLOCK;
            for (int64_t k = 0; k < n; k++) e[k] = exp_of(npuc_widen(x, i + k, dtype) - largest);
            for (int64_t k = 0; k < n; k++) sum += e[k];
        }
        for (int64_t i = 0; i < width; i += NPUC_BLOCK) {
            const int64_t n = width - i < NPUC_BLOCK ? width - i : NPUC_BLOCK;
            if (width > NPUC_BLOCK)
                for (int64_t k = 0; k < n; k++) e[k] = exp_of(npuc_widen(x, i + k, dtype) - largest);
            for (int64_t k = 0; k < n; k++) npuc_narrow(y, i + k, e[k] / sum, dtype);
        }
    }
}

NPUC_INLINE void softmax_rows_body(const rows_job *j, int64_t begin, int64_t end)
{
    NPUC_BY_FLOAT(j->dtype, softmax_typed, j, begin, end);
}
NPUC_TWICE(softmax_rows, (const rows_job *j, int64_t begin, int64_t end), (j, begin, end))

static void softmax_run(void *context, int64_t begin, int64_t end) { softmax_rows(context, begin, end); }

npuc_status npuc_float_softmax(const void *x, int32_t dtype, int64_t rows, int64_t width, void *y, int32_t threads)
{
    if (!npuc_is_float(dtype)) return NPUC_UNSUPPORTED;
    if (rows < 0 || width < 1 || (rows && (!x || !y))) return NPUC_BAD_ARGUMENT;
    rows_job j = {.x = x, .y = y, .width = width, .dtype = dtype};
    npuc_in_parts(threads, rows, GRAIN / width + 1, softmax_run, &j);
    return NPUC_OK;
}

/* 1 / sqrt(mean of squares + epsilon), or, without `mean`, 1 / max(sqrt(sum of squares), epsilon), 0 where that is 1 / 0. */
NPUC_INLINE float inverse_root(const npuc_float_norm *p, float squares)
{
    if (p->mean) return 1.0f / sqrtf(squares / (float)p->width + p->epsilon);
    const float root = sqrtf(squares);
    const float divisor = root < p->epsilon ? p->epsilon : root;
    return divisor == 0.0f ? 0.0f : 1.0f / divisor;
}

NPUC_INLINE void norm_typed(const rows_job *j, int64_t begin, int64_t end, int32_t dtype)
{
    const npuc_float_norm *p = j->norm;
    const int64_t width = p->width;
    for (int64_t row = begin; row < end; row++) {
        const void *x = npuc_float_at(j->x, row * width, dtype);
        void *y = npuc_float_to(j->y, row * width, dtype);
        float sum = 0.0f, squares = 0.0f;
        for (int64_t i = 0; p->center && i < width; i++) sum += npuc_widen(x, i, dtype);
        const float middle = sum / (float)width;
        for (int64_t i = 0; i < width; i++) {
            const float d = npuc_widen(x, i, dtype) - middle;
            squares += d * d;
        }
        const float r = inverse_root(p, squares);
        const int64_t first = row % p->row_modulus * p->row_factor;
        for (int64_t i = 0; i < width; i++) {
            const int64_t entry = first + i / p->column_divisor;
            npuc_narrow(y, i, (npuc_widen(x, i, dtype) - middle) * r * j->gain[entry] + j->bias[entry], dtype);
        }
    }
}

static void norm_run(void *context, int64_t begin, int64_t end)
{
    const rows_job *j = context;
    NPUC_BY_FLOAT(j->dtype, norm_typed, j, begin, end);
}

npuc_status npuc_float_normalize(const npuc_float_norm *norm, const void *x, const float *gain, const float *bias, int64_t entries,
                                 void *y, int32_t threads)
{
    const int64_t limit = (int64_t)1 << 40;
    if (!norm || !npuc_is_float(norm->dtype)) return NPUC_UNSUPPORTED;
    const npuc_float_norm *p = norm;
    if (p->rows < 0 || p->rows > limit || p->width < 1 || p->width > limit || p->row_modulus < 1 || p->row_modulus > limit ||
        p->row_factor < 0 || p->row_factor > limit || p->column_divisor < 1 || !(p->epsilon >= 0.0f))
        return NPUC_BAD_ARGUMENT;
    const int64_t last = p->row_factor > limit / p->row_modulus ? limit : (p->row_modulus - 1) * p->row_factor;
    if (last + (p->width - 1) / p->column_divisor >= entries) return NPUC_BAD_ARGUMENT;
    if (!gain || !bias || (p->rows && (!x || !y))) return NPUC_BAD_ARGUMENT;
    rows_job j = {.x = x, .y = y, .gain = gain, .bias = bias, .norm = p, .width = p->width, .dtype = p->dtype};
    npuc_in_parts(threads, p->rows, GRAIN / p->width + 1, norm_run, &j);
    return NPUC_OK;
}

typedef struct sum_job {
    const void *x;
    void *y;
    int64_t count, inner;
    int32_t dtype, mean, larger;
} sum_job;

NPUC_INLINE void sum_typed(const sum_job *j, int64_t index, int64_t first, int64_t n, int32_t dtype)
{
    float sum[NPUC_BLOCK];
    for (int64_t i = 0; i < n; i++) sum[i] = 0.0f;
    for (int64_t k = 0; k < j->count; k++) {
        const void *x = npuc_float_at(j->x, (index * j->count + k) * j->inner + first, dtype);
        for (int64_t i = 0; i < n; i++) sum[i] += npuc_widen(x, i, dtype);
    }
    const float divisor = j->mean ? (float)j->count : 1.0f;
    void *y = npuc_float_to(j->y, index * j->inner + first, dtype);
    for (int64_t i = 0; i < n; i++) npuc_narrow(y, i, sum[i] / divisor, dtype);
}

NPUC_INLINE void sum_block_body(const sum_job *j, int64_t index, int64_t first, int64_t n)
{
    NPUC_BY_FLOAT(j->dtype, sum_typed, j, index, first, n);
}
NPUC_TWICE(sum_block, (const sum_job *j, int64_t index, int64_t first, int64_t n), (j, index, first, n))

static void sum_run(void *context, int64_t begin, int64_t end)
{
    const sum_job *j = context;
    for (int64_t index = begin; index < end; index++)
        for (int64_t i = 0; i < j->inner; i += NPUC_BLOCK) sum_block(j, index, i, j->inner - i < NPUC_BLOCK ? j->inner - i : NPUC_BLOCK);
}

static npuc_status reduce_all(sum_job *j, int64_t outer, npuc_part *run, int32_t threads)
{
    const int64_t limit = (int64_t)1 << 40, count = j->count, inner = j->inner;
    if (!npuc_is_float(j->dtype)) return NPUC_UNSUPPORTED;
    if (outer < 0 || outer > limit || count < 1 || count > limit || inner < 0 || inner > limit) return NPUC_BAD_ARGUMENT;
    if (!outer || !inner) return NPUC_OK;
    if (!j->x || !j->y) return NPUC_BAD_ARGUMENT;
    npuc_in_parts(threads, outer, GRAIN / (inner < GRAIN ? inner : GRAIN) / (count < GRAIN ? count : GRAIN) + 1, run, j);
    return NPUC_OK;
}

npuc_status npuc_float_reduce_sum(const void *x, int32_t dtype, int64_t outer, int64_t count, int64_t inner, int32_t mean, void *y,
                                  int32_t threads)
{
    return reduce_all(&(sum_job){x, y, count, inner, dtype, mean, 0}, outer, sum_run, threads);
}

NPUC_INLINE void extreme_typed(const sum_job *j, int64_t index, int64_t first, int64_t n, int32_t dtype)
{
    float best[NPUC_BLOCK];
    for (int64_t k = 0; k < j->count; k++) {
        const void *x = npuc_float_at(j->x, (index * j->count + k) * j->inner + first, dtype);
        if (!k)
            for (int64_t i = 0; i < n; i++) best[i] = npuc_widen(x, i, dtype);
        else
            for (int64_t i = 0; i < n; i++) best[i] = npuc_float_choice(best[i], npuc_widen(x, i, dtype), j->larger);
    }
    void *y = npuc_float_to(j->y, index * j->inner + first, dtype);
    for (int64_t i = 0; i < n; i++) npuc_narrow(y, i, best[i], dtype);
}

NPUC_INLINE void extreme_block_body(const sum_job *j, int64_t index, int64_t first, int64_t n)
{
    NPUC_BY_FLOAT(j->dtype, extreme_typed, j, index, first, n);
}
NPUC_TWICE(extreme_block, (const sum_job *j, int64_t index, int64_t first, int64_t n), (j, index, first, n))

static void extreme_run(void *context, int64_t begin, int64_t end)
{
    const sum_job *j = context;
    for (int64_t index = begin; index < end; index++)
        for (int64_t i = 0; i < j->inner; i += NPUC_BLOCK)
            extreme_block(j, index, i, j->inner - i < NPUC_BLOCK ? j->inner - i : NPUC_BLOCK);
}

npuc_status npuc_float_reduce_extreme(const void *x, int32_t dtype, int64_t outer, int64_t count, int64_t inner, int32_t larger, void *y,
                                      int32_t threads)
{
    return reduce_all(&(sum_job){x, y, count, inner, dtype, 0, larger}, outer, extreme_run, threads);
}

npuc_status npuc_float_order(const uint16_t *x, int64_t count, int16_t *y)
{
    if (count < 0 || (count && (!x || !y))) return NPUC_BAD_ARGUMENT;
    for (int64_t i = 0; i < count; i++) y[i] = (int16_t)(x[i] ^ (x[i] & 0x8000u ? 0x7fffu : 0u));
    return NPUC_OK;
}
