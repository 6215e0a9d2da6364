/*
 * Softmax over rows: TFLite's two integer algorithms and one of our own, docs/arithmetic-softmax.md.
 *
 * An 8-bit row has at most 256 different differences from its largest element, so that the exponentials are a table,
 * computed once a call.
 */
#include "loops.h"

typedef struct softmax_job {
    const void *x;
    void *y;
    int32_t x_dtype, dtype;
    int64_t width;
    uint32_t e[256];      /* 8-bit: exponential of d = max - q */
    int32_t rounded[256]; /* TFLite: e >> 12, rounded */
    int32_t counted;      /* TFLite: differences below this one count */
    const uint32_t *coarse, *fine;
    int32_t multiplier, shift, even;
    int32_t zero, lo, hi;
    const int16_t *exp_table, *reciprocal_table;
} softmax_job;

static int32_t element(const softmax_job *j, int64_t i)
{
    switch (j->x_dtype) {
    case NPUC_I8: return ((const int8_t *)j->x)[i];
    case NPUC_U8: return ((const uint8_t *)j->x)[i];
    default: return ((const int16_t *)j->x)[i];
    }
}

static void put(const softmax_job *j, int64_t i, int32_t value)
{
    switch (j->dtype) {
    case NPUC_I8: ((int8_t *)j->y)[i] = (int8_t)value; return;
    case NPUC_U8: ((uint8_t *)j->y)[i] = (uint8_t)value; return;
    default: ((int16_t *)j->y)[i] = (int16_t)value;
    }
}

static int32_t largest(const softmax_job *j, int64_t row)
{
    int32_t top = element(j, row);
    for (int64_t i = 1; i < j->width; i++) {
        int32_t q = element(j, row + i);
        top = q > top ? q : top;
    }
    return top;
}

static int bits(uint64_t x)
{
    int n = 0;
    for (; x; x >>= 1) n++;
    return n;
}

/* ---- our own ---- */

static uint32_t exponential(const softmax_job *j, int32_t d)
{
    if (j->x_dtype != NPUC_I16) return j->e[d];
    return (uint32_t)(((uint64_t)j->coarse[d >> 8] * j->fine[d & 255] + ((uint64_t)1 << 29)) >> 30);
}

static void rows_part(void *context, int64_t begin, int64_t end)
{
    const softmax_job *j = context;
    for (int64_t r = begin; r < end; r++) {
        int64_t row = r * j->width;
        int32_t top = largest(j, row);
        uint64_t sum = 0;
        for (int64_t i = 0; i < j->width; i++) sum += exponential(j, top - element(j, row + i));
        int b = bits(sum);
        uint64_t divisor = b <= 32 ? sum << (32 - b) : (sum + ((uint64_t)1 << (b - 33))) >> (b - 32);
        uint64_t inverse = (((uint64_t)1 << 62) + divisor / 2) / divisor;
        uint64_t factor = (inverse * (uint64_t)j->multiplier + ((uint64_t)1 << 30)) >> 31;
        int shift = b + j->shift - 1;
        for (int64_t i = 0; i < j->width; i++) {
            uint64_t product = exponential(j, top - element(j, row + i)) * factor;
            int64_t y = 0;
            if (shift < 63) { /* and at least 30 */
                uint64_t half = (uint64_t)1 << (shift - 1);
                y = (int64_t)((product + half) >> shift);
                if (j->even && ((product + half) & (half + half - 1)) == 0) y -= y & 1;
            }
            put(j, row + i, (int32_t)npuc_clamp64(y + j->zero, j->lo, j->hi));
        }
    }
}

npuc_status npuc_softmax(const void *x, int32_t x_dtype, int64_t rows, int64_t width, const uint32_t *coarse, const uint32_t *fine,
                         int32_t multiplier, int32_t shift, int32_t rounding, int32_t zero_point, int32_t lo, int32_t hi, int32_t dtype,
                         void *y, int32_t threads)
{
    int64_t least, most, unused;
    if (rows < 0 || width < 0 || width > (int64_t)1 << 32 || !coarse || !fine) return NPUC_BAD_ARGUMENT;
    if (!npuc_limits(x_dtype, &unused, &unused) || !npuc_limits(dtype, &least, &most)) return NPUC_BAD_ARGUMENT;
    if (lo < least || hi > most || lo > hi || zero_point < least || zero_point > most) return NPUC_BAD_ARGUMENT;
    if (multiplier < 0 || shift < 0 || shift > 62) return NPUC_BAD_ARGUMENT;
    if (rounding != NPUC_HALF_UP && rounding != NPUC_HALF_EVEN) return NPUC_BAD_ARGUMENT;
    for (int i = 0; i < 256; i++)
        if (coarse[i] > 1u << 30 || fine[i] > 1u << 30) return NPUC_BAD_ARGUMENT;
    if (coarse[0] != 1u << 30 || fine[0] != 1u << 30) return NPUC_BAD_ARGUMENT;
    softmax_job j = {.x = x,
                     .y = y,
                     .x_dtype = x_dtype,
                     .dtype = dtype,
                     .width = width,
                     .coarse = coarse,
                     .fine = fine,
                     .multiplier = multiplier,
                     .shift = shift,
                     .even = rounding == NPUC_HALF_EVEN,
                     .zero = zero_point,
                     .lo = lo,
                     .hi = hi};
    for (int i = 0; i < 256; i++) j.e[i] = (uint32_t)(((uint64_t)coarse[0] * fine[i] + ((uint64_t)1 << 29)) >> 30);
    if (rows == 0 || width == 0) return NPUC_OK;
    npuc_in_parts(threads, rows, 4096 / width + 1, rows_part, &j);
    return NPUC_OK;
}

/* ---- TFLite, 8-bit: gemmlowp's fixed point ---- */

static int32_t wrapping_add(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }

/* exp of a Q5.26 number that is not positive, as Q0.31. */
static int32_t exp_negative(int32_t a)
{
    static const int32_t factors[] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
    const int32_t quarter = 1 << 24;
    if (a == 0) return INT32_MAX;
    int32_t rest = (a & (quarter - 1)) - quarter;
    int32_t x = rest * 32 + (1 << 28);
    int32_t x2 = npuc_srdhm(x, x), x3 = npuc_srdhm(x2, x), x4 = npuc_srdhm(x2, x2);
    int32_t poly = npuc_rdbp(npuc_srdhm(npuc_rdbp(x4, 2) + x3, 715827883) + x2, 1);
    int64_t sum = (int64_t)1895147668 + npuc_srdhm(1895147668, x + poly);
    int32_t result = (int32_t)npuc_clamp64(sum, INT32_MIN, INT32_MAX);
    int32_t remainder = rest - a;
    for (int i = 0; i < 7; i++)
        if (remainder & (1 << (24 + i))) result = npuc_srdhm(result, factors[i]);
    return result;
}

static int32_t times_power(int32_t x, int exponent)
{
    return (int32_t)npuc_clamp64((int64_t)x * ((int64_t)1 << exponent), INT32_MIN, INT32_MAX);
}

/* 1 / (1 + a) of a Q0.31 number in [0, 1), as Q0.31. */
static int32_t reciprocal(int32_t a)
{
    int32_t half = (int32_t)(((int64_t)a + INT32_MAX + 1) / 2);
    int32_t x = 1515870810 + npuc_srdhm(half, -1010580540);
    for (int i = 0; i < 3; i++) {
        int32_t error = (1 << 29) - npuc_srdhm(half, x);
        x = wrapping_add(x, times_power(npuc_srdhm(x, error), 2));
    }
    return times_power(x, 1);
}

static void tflite8_part(void *context, int64_t begin, int64_t end)
{
    const softmax_job *j = context;
    const int width = j->dtype == NPUC_I16 ? 16 : 8;
    for (int64_t r = begin; r < end; r++) {
        int64_t row = r * j->width;
        int32_t top = largest(j, row);
        int32_t sum = 0;
        for (int64_t i = 0; i < j->width; i++) sum += j->rounded[top - element(j, row + i)];
        int headroom = 32 - bits((uint32_t)sum);
        int32_t scale = reciprocal((int32_t)(((uint32_t)sum << headroom) - ((uint32_t)1 << 31)));
        int right = 12 - headroom + 31 - width;
        int32_t out[256];
        for (int d = 0; d < 256; d++) {
            int32_t product = npuc_srdhm(scale, (int32_t)j->e[d]);
            int32_t y = d >= j->counted ? j->lo : (right > 31 ? 0 : npuc_rdbp(product, right)) + j->lo;
            out[d] = y < j->lo ? j->lo : y > j->hi ? j->hi : y;
        }
        for (int64_t i = 0; i < j->width; i++) put(j, row + i, out[top - element(j, row + i)]);
    }
}

npuc_status npuc_softmax_tflite8(const void *x, int32_t x_dtype, int64_t rows, int64_t width, int32_t multiplier, int32_t left,
                                 int32_t diff_min, int32_t dtype, void *y, int32_t threads)
{
    int64_t least, most;
    if (rows < 0 || width < 0 || width >= 4096 || (x_dtype != NPUC_I8 && x_dtype != NPUC_U8)) return NPUC_BAD_ARGUMENT;
    if (!npuc_limits(dtype, &least, &most)) return NPUC_BAD_ARGUMENT;
    if (multiplier < 0 || left < 0 || left > 31 || diff_min > 0) return NPUC_BAD_ARGUMENT;
    softmax_job j = {.x = x, .y = y, .x_dtype = x_dtype, .dtype = dtype, .width = width, .lo = (int32_t)least, .hi = (int32_t)most};
    j.counted = diff_min < -255 ? 256 : 1 - diff_min;
    for (int d = 0; d < j.counted; d++) {
        int64_t shifted = -(int64_t)d * ((int64_t)1 << left);
        if (shifted < INT32_MIN) return NPUC_BAD_ARGUMENT;
        int32_t e = exp_negative(npuc_srdhm((int32_t)shifted, multiplier));
        j.e[d] = (uint32_t)e;
        j.rounded[d] = npuc_rdbp(e, 12);
    }
    if (rows == 0 || width == 0) return NPUC_OK;
    npuc_in_parts(threads, rows, 4096 / width + 1, tflite8_part, &j);
    return NPUC_OK;
}

/* ---- TFLite, 16-bit: two tables ---- */

static int32_t lookup(int32_t q, const int16_t *table)
{
    int32_t entry = (q >> 7) + 256, rest = q & 127;
    return table[entry] + (((table[entry + 1] - table[entry]) * rest + 64) >> 7);
}

static int32_t tflite_exp(const softmax_job *j, int32_t d)
{
    int64_t scaled = (int64_t)npuc_rq_double(d, j->multiplier, j->shift) + 32767;
    return lookup((int32_t)npuc_clamp64(scaled, -32768, 32767), j->exp_table);
}

/* Exponentials to probabilities: e * inverse < 2^30, and so is what rounds it. */
NPUC_INLINE void divide_body(int16_t *y, int64_t n, int32_t inverse, int32_t shift)
{
    const int32_t half = 1 << (shift - 1);
    for (int64_t i = 0; i < n; i++) {
        int32_t q = (y[i] * inverse + half) >> shift;
        q = q < 0 ? 0 : q;
        y[i] = (int16_t)(q > 32767 ? 32767 : q);
    }
}
NPUC_TWICE(divide, (int16_t *y, int64_t n, int32_t inverse, int32_t shift), (y, n, inverse, shift))

static void tflite16_part(void *context, int64_t begin, int64_t end)
{
    const softmax_job *j = context;
    for (int64_t r = begin; r < end; r++) {
        int64_t row = r * j->width;
        int16_t *y = (int16_t *)j->y + row;
        int32_t top = largest(j, row);
        int64_t sum = 0;
        for (int64_t i = 0; i < j->width; i++) {
            y[i] = (int16_t)tflite_exp(j, element(j, row + i) - top);
            sum += y[i];
        }
        int headroom = 32 - bits((uint64_t)sum);
        int64_t shifted = ((sum << (headroom - 1)) + (1 << 13)) >> 14;
        int32_t inverse = lookup((int32_t)npuc_clamp64(shifted - 98304, -32768, 32767), j->reciprocal_table);
        divide(y, j->width, inverse, 31 - headroom);
    }
}

npuc_status npuc_softmax_tflite16(const int16_t *x, int64_t rows, int64_t width, int32_t multiplier, int32_t shift,
                                  const int16_t *exp_table, const int16_t *reciprocal_table, int16_t *y, int32_t threads)
{
    if (rows < 0 || width < 0 || width > 65535 || !exp_table || !reciprocal_table) return NPUC_BAD_ARGUMENT;
    if (multiplier < 0 || shift < 16 || shift > 62) return NPUC_BAD_ARGUMENT;
    /* An exponential is never negative, and that of the largest element is near one, so that no sum is zero. */
    for (int i = 0; i < 513; i++)
        if (exp_table[i] < 0) return NPUC_BAD_ARGUMENT;
    if (exp_table[511] < 4 || exp_table[512] < 4) return NPUC_BAD_ARGUMENT;
    softmax_job j = {.x = x,
                     .y = y,
                     .x_dtype = NPUC_I16,
                     .dtype = NPUC_I16,
                     .width = width,
                     .multiplier = multiplier,
                     .shift = shift,
                     .exp_table = exp_table,
                     .reciprocal_table = reciprocal_table};
    if (rows == 0 || width == 0) return NPUC_OK;
    npuc_in_parts(threads, rows, 4096 / width + 1, tflite16_part, &j);
    return NPUC_OK;
}
