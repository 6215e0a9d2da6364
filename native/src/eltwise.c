/*
 * Elementwise kernels of one or two inputs: add, sub, mul, min, max, requant, quantize, dequantize.
 *
 * Each output is computed in blocks: the inputs are read through their strides as q - zero_point in int32, the formula runs
 * on the blocks, and the result is clamped and narrowed. Which loop runs is chosen once a tensor, by the largest value that
 * its inputs allow; all of them give the same numbers.
 */
#include <math.h>

#include "loops.h"

enum { SUM_DOUBLE, SUM_SMALL, SUM_SPLIT, SUM_LONG, SUM_SLOW, SUM_FLOAT };

typedef struct sum_plan {
    int32_t form;
    int32_t even; /* ties to even, not up */
    int32_t shift;
    int64_t ma, mb;
    int32_t high_a, low_a, high_b, low_b; /* m = high * 2^16 + low */
    float fa, fb;
    npuc_output stage_a, stage_b, stage_y; /* SUM_DOUBLE */
    int32_t left;
    int32_t subtract;
    int32_t lo, hi, zero; /* lo and hi without the zero point */
} sum_plan;

typedef struct job {
    npuc_operand a, b;
    sum_plan sum;
    npuc_output stage;
    int32_t wide; /* products beyond int32 */
    int32_t larger, lo, hi;
    int32_t dtype;
    int32_t rounding;
    float scale;
    const float *real;
    float *out;
    void *y;
} job;

enum { GRAIN = 1 << 15 };

/* The largest magnitude of q - zero, or -1 where the type or the zero point is wrong. */
static int64_t reach(int32_t dtype, int32_t zero)
{
    int64_t lo, hi;
    if (!npuc_limits(dtype, &lo, &hi) || zero < lo || zero > hi) return -1;
    return zero - lo > hi - zero ? zero - lo : hi - zero;
}

/* The number of elements, or -1. */
static int64_t volume(int32_t rank, const int64_t *shape)
{
    int64_t n = 1;
    if (rank < 0 || rank > NPUC_MAX_RANK || (rank > 0 && !shape)) return -1;
    for (int32_t i = 0; i < rank; i++) {
        if (shape[i] < 0 || (shape[i] > 0 && n > INT64_MAX / 16 / shape[i])) return -1;
        n *= shape[i];
    }
    return n;
}

static npuc_status two_operands(job *j, const npuc_view *a, const npuc_view *b, int32_t rank, const int64_t *shape)
{
    if (!a || !b || (rank > 0 && (!a->stride || !b->stride))) return NPUC_BAD_ARGUMENT;
    npuc_operand_init(&j->a, a->data, a->dtype, a->zero_point, rank, shape, a->stride);
    npuc_operand_init(&j->b, b->data, b->dtype, b->zero_point, rank, shape, b->stride);
    return NPUC_OK;
}

/* ---- add and sub ---- */

static npuc_status plan_sum(sum_plan *s, const npuc_add_parameters *p, int64_t reach_a, int64_t reach_b, int32_t dtype)
{
    int64_t least, most;
    if (!p || !npuc_limits(dtype, &least, &most)) return NPUC_BAD_ARGUMENT;
    if (p->lo < least || p->hi > most || p->lo > p->hi || p->zero_point < least || p->zero_point > most) return NPUC_BAD_ARGUMENT;
    *s = (sum_plan){.subtract = p->subtract != 0,
                    .zero = p->zero_point,
                    .shift = p->shift,
                    .left = p->left,
                    .lo = p->lo - p->zero_point,
                    .hi = p->hi - p->zero_point,
                    .even = p->kind == NPUC_SINGLE_EVEN};
    switch (p->kind) {
    case NPUC_FLOAT_SCALE:
        if (!(p->scale_a >= 0 && p->scale_a <= 1e30f && p->scale_b >= 0 && p->scale_b <= 1e30f)) return NPUC_BAD_ARGUMENT;
        s->form = SUM_FLOAT;
        s->fa = p->scale_a;
        s->fb = p->subtract ? -p->scale_b : p->scale_b;
        return NPUC_OK;
    case NPUC_DOUBLE_ROUNDING: {
        const int64_t full = (int64_t)1 << 31;
        npuc_requant a = {.kind = NPUC_DOUBLE_ROUNDING, .count = 1, .multiplier = &p->multiplier_a, .shift = &p->shift_a};
        npuc_requant b = {.kind = NPUC_DOUBLE_ROUNDING, .count = 1, .multiplier = &p->multiplier_b, .shift = &p->shift_b};
        npuc_requant y = {.kind = NPUC_DOUBLE_ROUNDING, .count = 1, .multiplier = &p->multiplier, .shift = &p->shift};
        if (p->left < 0 || p->left > 31 || reach_a << p->left > full || reach_b << p->left > full) return NPUC_BAD_ARGUMENT;
        if (npuc_output_init(&s->stage_a, &a, 0, full, NPUC_I16) || npuc_output_init(&s->stage_b, &b, 0, full, NPUC_I16) ||
            npuc_output_init(&s->stage_y, &y, 0, full, NPUC_I16))
            return NPUC_BAD_ARGUMENT;
        s->form = SUM_DOUBLE;
        return NPUC_OK;
    }
    case NPUC_POW2:
        if (p->shift_a < 0 || p->shift_a > 31 || p->shift_b < 0 || p->shift_b > 31) return NPUC_BAD_ARGUMENT;
        s->ma = (int64_t)1 << p->shift_a;
        s->mb = (int64_t)1 << p->shift_b;
        break;
    case NPUC_SINGLE_ROUNDING:
    case NPUC_SINGLE_EVEN:
        if (p->multiplier_a < 0 || p->multiplier_b < 0) return NPUC_BAD_ARGUMENT;
        s->ma = p->multiplier_a;
        s->mb = p->multiplier_b;
        break;
    default: return NPUC_BAD_ARGUMENT;
    }
    if (p->shift < -31 || p->shift > 62) return NPUC_BAD_ARGUMENT;
    /* reach < 2^17 and m <= 2^31: the sum is below 2^49, and with its rounding term below 2^62. */
    int64_t half = p->shift > 0 ? (int64_t)1 << (p->shift - 1) : 0;
    int64_t bound = reach_a * s->ma + reach_b * s->mb + half;
    if (p->subtract) s->mb = -s->mb;
    int64_t high_a = (s->ma + 0x8000) >> 16, high_b = (s->mb + 0x8000) >> 16;
    int64_t low_a = s->ma - high_a * 65536, low_b = s->mb - high_b * 65536;
    int64_t bound_low = reach_a * (low_a < 0 ? -low_a : low_a) + reach_b * (low_b < 0 ? -low_b : low_b);
    int64_t bound_high = reach_a * high_a + reach_b * (high_b < 0 ? -high_b : high_b) + (bound_low >> 16) + 1;
    if (p->shift >= 1 && p->shift <= 30 && bound <= INT32_MAX)
        s->form = SUM_SMALL;
    else if (p->shift >= 17 && p->shift <= 46 && bound_low <= INT32_MAX && bound_high + (half >> 16) <= INT32_MAX)
        s->form = SUM_SPLIT;
    else if (p->shift >= 1 && bound >> p->shift <= INT32_MAX - 1 && s->ma <= INT32_MAX && s->mb >= -INT32_MAX && s->mb <= INT32_MAX)
        s->form = SUM_LONG;
    else
        s->form = SUM_SLOW;
    s->high_a = (int32_t)high_a, s->high_b = (int32_t)high_b, s->low_a = (int32_t)low_a, s->low_b = (int32_t)low_b;
    return NPUC_OK;
}

#define SUM_PARAMETERS (const sum_plan *s, const int32_t *restrict a, const int32_t *restrict b, int32_t *restrict y, int64_t n)
#define SUM_ARGUMENTS (s, a, b, y, n)

/* The sum fits in int32. */
NPUC_INLINE void sum_small_body SUM_PARAMETERS
{
    int32_t ma = (int32_t)s->ma, mb = (int32_t)s->mb, half = 1 << (s->shift - 1), mask = half + (half - 1), even = s->even;
    int shift = s->shift;
    for (int64_t i = 0; i < n; i++) {
        int32_t sum = a[i] * ma + b[i] * mb + half;
        int32_t rounded = sum >> shift;
        y[i] = rounded - (((sum & mask) == 0) & rounded & even);
    }
}
NPUC_TWICE(sum_small, SUM_PARAMETERS, SUM_ARGUMENTS)

/*
 * The sum is high * 2^16 + low, both in int32. With shift >= 17 the rounding term is a multiple of 2^16, so that
 * floor((high * 2^16 + low + half) / 2^shift) = floor((high + floor(low / 2^16) + half / 2^16) / 2^(shift - 16)).
 */
NPUC_INLINE void sum_split_body SUM_PARAMETERS
{
    int32_t ha = s->high_a, hb = s->high_b, la = s->low_a, lb = s->low_b;
    int32_t half = 1 << (s->shift - 17), mask = half + (half - 1), even = s->even;
    int shift = s->shift - 16;
    for (int64_t i = 0; i < n; i++) {
        int32_t low = a[i] * la + b[i] * lb;
        int32_t high = a[i] * ha + b[i] * hb + (low >> 16) + half;
        int32_t rounded = high >> shift;
        y[i] = rounded - ((((high & mask) | (low & 0xffff)) == 0) & rounded & even);
    }
}
NPUC_TWICE(sum_split, SUM_PARAMETERS, SUM_ARGUMENTS)

/* The sum needs int64, the result does not; the offset makes the shift a logical one. */
NPUC_INLINE void sum_long_body SUM_PARAMETERS
{
    int shift = s->shift;
    int32_t ma = (int32_t)s->ma, mb = (int32_t)s->mb;
    uint64_t half = (uint64_t)1 << (shift - 1), offset = ((uint64_t)1 << 63) + half, mask = half + (half - 1);
    uint64_t back = ((uint64_t)1 << 63) >> shift, even = (uint64_t)s->even;
    for (int64_t i = 0; i < n; i++) {
        uint64_t sum = (uint64_t)((int64_t)a[i] * ma) + (uint64_t)((int64_t)b[i] * mb) + offset;
        uint64_t rounded = (sum >> shift) - back;
        y[i] = (int32_t)(uint32_t)(rounded - ((sum & mask) == 0 ? rounded & even : 0));
    }
}
NPUC_TWICE(sum_long, SUM_PARAMETERS, SUM_ARGUMENTS)

static void sum_slow SUM_PARAMETERS
{
    for (int64_t i = 0; i < n; i++) {
        int64_t sum = a[i] * s->ma + b[i] * s->mb, rounded;
        if (s->shift > 0) {
            int64_t half = (int64_t)1 << (s->shift - 1);
            rounded = (sum + half) >> s->shift;
            if (s->even && ((sum + half) & (half + (half - 1))) == 0) rounded -= rounded & 1;
        } else {
            /* below 2^49, so that clamping first keeps the left shift in range */
            sum = npuc_clamp64(sum, -((int64_t)1 << 30), (int64_t)1 << 30);
            rounded = sum * ((int64_t)1 << -s->shift);
        }
        y[i] = (int32_t)npuc_clamp64(rounded, s->lo, s->hi);
    }
}

/* TFLite's MultiplyByQuantizedMultiplier for a multiplier below one. */
NPUC_INLINE int32_t scaled(int32_t x, int32_t m, int left, int right, int32_t mask)
{
    x = (int32_t)((uint32_t)x << left);
    int32_t high = (int32_t)(uint32_t)(((uint64_t)((int64_t)x * m) + ((uint64_t)1 << 30)) >> 31);
    int32_t threshold = (mask >> 1) + (high < 0);
    return (high >> right) + ((high & mask) > threshold);
}

NPUC_INLINE void sum_double_body SUM_PARAMETERS
{
    int ea = 31 - s->stage_a.shift, eb = 31 - s->stage_b.shift, ey = 31 - s->stage_y.shift;
    int left_a = s->left + (ea > 0 ? ea : 0), left_b = s->left + (eb > 0 ? eb : 0), left_y = ey > 0 ? ey : 0;
    int right_a = ea > 0 ? 0 : -ea, right_b = eb > 0 ? 0 : -eb, right_y = ey > 0 ? 0 : -ey;
    int32_t mask_a = (int32_t)((1u << right_a) - 1), mask_b = (int32_t)((1u << right_b) - 1);
    int32_t mask_y = (int32_t)((1u << right_y) - 1);
    int32_t ma = s->stage_a.multiplier, mb = s->stage_b.multiplier, my = s->stage_y.multiplier;
    uint32_t flip = s->subtract ? UINT32_MAX : 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t of_a = (uint32_t)scaled(a[i], ma, left_a, right_a, mask_a);
        uint32_t of_b = (uint32_t)scaled(b[i], mb, left_b, right_b, mask_b);
        y[i] = scaled((int32_t)(of_a + ((of_b ^ flip) - flip)), my, left_y, right_y, mask_y);
    }
}
NPUC_TWICE(sum_double, SUM_PARAMETERS, SUM_ARGUMENTS)

NPUC_INLINE void sum_float_body SUM_PARAMETERS
{
    const float magic = 12582912.0f, lo = (float)s->lo, hi = (float)s->hi, fa = s->fa, fb = s->fb;
    for (int64_t i = 0; i < n; i++) {
        float of_a = (float)a[i] * fa, of_b = (float)b[i] * fb;
        float v = of_a + of_b;
        v = v < lo ? lo : v;
        v = v > hi ? hi : v;
        y[i] = (int32_t)((v + magic) - magic);
    }
}
NPUC_TWICE(sum_float, SUM_PARAMETERS, SUM_ARGUMENTS)

static void sum_part(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    int32_t a[NPUC_BLOCK], b[NPUC_BLOCK], y[NPUC_BLOCK];
    for (int64_t i = begin; i < end; i += NPUC_BLOCK) {
        int64_t n = end - i < NPUC_BLOCK ? end - i : NPUC_BLOCK;
        npuc_load_block(&j->a, i, n, a);
        npuc_load_block(&j->b, i, n, b);
        switch (j->sum.form) {
        case SUM_DOUBLE: sum_double(&j->sum, a, b, y, n); break;
        case SUM_SMALL: sum_small(&j->sum, a, b, y, n); break;
        case SUM_SPLIT: sum_split(&j->sum, a, b, y, n); break;
        case SUM_LONG: sum_long(&j->sum, a, b, y, n); break;
        case SUM_SLOW: sum_slow(&j->sum, a, b, y, n); break;
        default: sum_float(&j->sum, a, b, y, n);
        }
        npuc_store_block(y, n, j->sum.lo, j->sum.hi, j->sum.zero, j->dtype, j->y, i);
    }
}

npuc_status npuc_add(const npuc_view *a, const npuc_view *b, int32_t rank, const int64_t *shape, const npuc_add_parameters *parameters,
                     int32_t dtype, void *y, int32_t threads)
{
    job j = {.dtype = dtype, .y = y};
    int64_t n = volume(rank, shape);
    if (n < 0 || two_operands(&j, a, b, rank, shape)) return NPUC_BAD_ARGUMENT;
    int64_t reach_a = reach(a->dtype, a->zero_point), reach_b = reach(b->dtype, b->zero_point);
    if (reach_a < 0 || reach_b < 0) return NPUC_BAD_ARGUMENT;
    npuc_status status = plan_sum(&j.sum, parameters, reach_a, reach_b, dtype);
    if (status || n == 0) return status;
    npuc_in_parts(threads, n, GRAIN, sum_part, &j);
    return NPUC_OK;
}

/* ---- mul ---- */

NPUC_INLINE void product_body(int32_t *restrict a, const int32_t *restrict b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) a[i] *= b[i];
}
NPUC_TWICE(product, (int32_t *restrict a, const int32_t *restrict b, int64_t n), (a, b, n))

static void mul_part(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    int32_t a[NPUC_BLOCK], b[NPUC_BLOCK];
    for (int64_t i = begin; i < end; i += NPUC_BLOCK) {
        int64_t n = end - i < NPUC_BLOCK ? end - i : NPUC_BLOCK;
        npuc_load_block(&j->a, i, n, a);
        npuc_load_block(&j->b, i, n, b);
        if (j->wide) {
            for (int64_t k = 0; k < n; k++) a[k] = npuc_output_one(&j->stage, (int64_t)a[k] * b[k]) - j->stage.zero;
        } else {
            product(a, b, n);
            npuc_output_block(&j->stage, a, a, n);
        }
        npuc_store_block(a, n, j->stage.lo, j->stage.hi, j->stage.zero, j->dtype, j->y, i);
    }
}

npuc_status npuc_mul(const npuc_view *a, const npuc_view *b, int32_t rank, const int64_t *shape, const npuc_requant *rq, int32_t dtype,
                     void *y, int32_t threads)
{
    job j = {.dtype = dtype, .y = y};
    int64_t n = volume(rank, shape);
    if (n < 0 || two_operands(&j, a, b, rank, shape)) return NPUC_BAD_ARGUMENT;
    int64_t reach_a = reach(a->dtype, a->zero_point), reach_b = reach(b->dtype, b->zero_point);
    if (reach_a < 0 || reach_b < 0) return NPUC_BAD_ARGUMENT;
    npuc_status status = npuc_output_init(&j.stage, rq, 0, reach_a * reach_b, dtype);
    j.wide = reach_a * reach_b > INT32_MAX;
    if (status || n == 0) return status;
    npuc_in_parts(threads, n, GRAIN, mul_part, &j);
    return NPUC_OK;
}

/* ---- min and max ---- */

NPUC_INLINE void choose_body(const int32_t *restrict a, int32_t *restrict b, int32_t larger, int64_t n)
{
    if (larger)
        for (int64_t i = 0; i < n; i++) b[i] = a[i] > b[i] ? a[i] : b[i];
    else
        for (int64_t i = 0; i < n; i++) b[i] = a[i] < b[i] ? a[i] : b[i];
}
NPUC_TWICE(choose, (const int32_t *restrict a, int32_t *restrict b, int32_t larger, int64_t n), (a, b, larger, n))

static void choose_part(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    int32_t a[NPUC_BLOCK], b[NPUC_BLOCK];
    for (int64_t i = begin; i < end; i += NPUC_BLOCK) {
        int64_t n = end - i < NPUC_BLOCK ? end - i : NPUC_BLOCK;
        npuc_load_block(&j->a, i, n, a);
        npuc_load_block(&j->b, i, n, b);
        choose(a, b, j->larger, n);
        npuc_store_block(b, n, j->lo, j->hi, 0, j->dtype, j->y, i);
    }
}

npuc_status npuc_minmax(const npuc_view *a, const npuc_view *b, int32_t rank, const int64_t *shape, int32_t larger, int32_t lo, int32_t hi,
                        int32_t dtype, void *y, int32_t threads)
{
    job j = {.dtype = dtype, .y = y, .larger = larger, .lo = lo, .hi = hi};
    int64_t n = volume(rank, shape), least, most;
    if (n < 0 || two_operands(&j, a, b, rank, shape)) return NPUC_BAD_ARGUMENT;
    if (a->dtype != dtype || b->dtype != dtype || a->zero_point != b->zero_point) return NPUC_BAD_ARGUMENT;
    if (!npuc_limits(dtype, &least, &most) || lo < least || hi > most || lo > hi) return NPUC_BAD_ARGUMENT;
    j.a.zero = j.b.zero = 0;
    if (n > 0) npuc_in_parts(threads, n, GRAIN, choose_part, &j);
    return NPUC_OK;
}

/* ---- requant, quantize, dequantize ---- */

static void requant_part(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    int32_t a[NPUC_BLOCK];
    for (int64_t i = begin; i < end; i += NPUC_BLOCK) {
        int64_t n = end - i < NPUC_BLOCK ? end - i : NPUC_BLOCK;
        npuc_load_block(&j->a, i, n, a);
        npuc_output_block(&j->stage, a, a, n);
        npuc_store_block(a, n, j->stage.lo, j->stage.hi, j->stage.zero, j->dtype, j->y, i);
    }
}

/* The largest magnitude of an input that may also be NPUC_I32. */
static int64_t wide_reach(int32_t dtype, int32_t zero)
{
    if (dtype != NPUC_I32) return reach(dtype, zero);
    return zero == 0 ? (int64_t)1 << 31 : -1;
}

npuc_status npuc_requant_tensor(const void *x, int32_t x_dtype, int32_t zero_point, int64_t n, const npuc_requant *rq, int32_t dtype,
                                void *y, int32_t threads)
{
    job j = {.dtype = dtype, .y = y};
    int64_t bound = wide_reach(x_dtype, zero_point), one = 1;
    if (n < 0 || bound < 0) return NPUC_BAD_ARGUMENT;
    npuc_status status = npuc_output_init(&j.stage, rq, 0, bound, dtype);
    if (status || n == 0) return status;
    npuc_operand_init(&j.a, x, x_dtype, zero_point, 1, &n, &one);
    npuc_in_parts(threads, n, GRAIN, requant_part, &j);
    return NPUC_OK;
}

/* A comparison with NaN is false, so that NaN ends as 0, the zero point. */
NPUC_INLINE void quantize_block_body(const float *restrict x, int64_t n, float scale, float lo, float hi, int32_t even, int32_t *restrict y)
{
    const float magic = 12582912.0f;
    if (even) {
        for (int64_t i = 0; i < n; i++) {
            float v = x[i] / scale;
            v = v == v ? v : 0.0f;
            v = v < lo ? lo : v;
            v = v > hi ? hi : v;
            y[i] = (int32_t)((v + magic) - magic);
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            float v = x[i] / scale;
            v = v == v ? v : 0.0f;
            v = v < lo ? lo : v;
            v = v > hi ? hi : v;
            int32_t whole = (int32_t)v;
            float rest = v - (float)whole;
            y[i] = whole + (rest >= 0.5f) - (rest <= -0.5f);
        }
    }
}
NPUC_TWICE(quantize_block, (const float *restrict x, int64_t n, float scale, float lo, float hi, int32_t even, int32_t *restrict y),
           (x, n, scale, lo, hi, even, y))

static void quantize_part(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    int32_t y[NPUC_BLOCK];
    int32_t lo = j->lo - j->sum.zero, hi = j->hi - j->sum.zero;
    for (int64_t i = begin; i < end; i += NPUC_BLOCK) {
        int64_t n = end - i < NPUC_BLOCK ? end - i : NPUC_BLOCK;
        quantize_block(j->real + i, n, j->scale, (float)lo, (float)hi, j->rounding == NPUC_HALF_EVEN, y);
        npuc_store_block(y, n, lo, hi, j->sum.zero, j->dtype, j->y, i);
    }
}

npuc_status npuc_quantize(const float *x, int64_t n, float scale, int32_t zero_point, int32_t rounding, int32_t lo, int32_t hi,
                          int32_t dtype, void *y, int32_t threads)
{
    job j = {.dtype = dtype, .y = y, .real = x, .scale = scale, .rounding = rounding, .lo = lo, .hi = hi};
    int64_t least, most;
    j.sum.zero = zero_point;
    if (n < 0 || !(scale > 0 && isfinite(scale)) || (rounding != NPUC_HALF_AWAY && rounding != NPUC_HALF_EVEN)) return NPUC_BAD_ARGUMENT;
    if (reach(dtype, zero_point) < 0 || !npuc_limits(dtype, &least, &most) || lo < least || hi > most || lo > hi) return NPUC_BAD_ARGUMENT;
    if (n > 0) npuc_in_parts(threads, n, GRAIN, quantize_part, &j);
    return NPUC_OK;
}

NPUC_INLINE void to_real_body(const int32_t *restrict x, int64_t n, float scale, float *restrict y)
{
    for (int64_t i = 0; i < n; i++) y[i] = (float)x[i] * scale;
}
NPUC_TWICE(to_real, (const int32_t *restrict x, int64_t n, float scale, float *restrict y), (x, n, scale, y))

static void dequantize_part(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    int32_t a[NPUC_BLOCK];
    for (int64_t i = begin; i < end; i += NPUC_BLOCK) {
        int64_t n = end - i < NPUC_BLOCK ? end - i : NPUC_BLOCK;
        npuc_load_block(&j->a, i, n, a);
        to_real(a, n, j->scale, j->out + i);
    }
}

npuc_status npuc_dequantize(const void *x, int32_t x_dtype, int64_t n, float scale, int32_t zero_point, float *y, int32_t threads)
{
    job j = {.out = y, .scale = scale};
    int64_t one = 1;
    if (n < 0 || !(scale > 0 && isfinite(scale)) || wide_reach(x_dtype, zero_point) < 0) return NPUC_BAD_ARGUMENT;
    if (n == 0) return NPUC_OK;
    npuc_operand_init(&j.a, x, x_dtype, zero_point, 1, &n, &one);
    npuc_in_parts(threads, n, GRAIN, dequantize_part, &j);
    return NPUC_OK;
}
