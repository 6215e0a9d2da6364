/*
 * Layer, RMS, instance, group and L2 normalization, all as one: rows, each divided by its own root.
 *
 * docs/arithmetic-norm.md. The sums are exact, the root is the exact integer root of a number scaled to 64 bits, and one
 * division a row gives its reciprocal; an element costs two products.
 */
#include <math.h>

#include "loops.h"

enum { FRACTION = 18 }; /* bits behind the point of a normalized element */

typedef struct norm_job {
    npuc_norm norm;
    npuc_operand x;
    const int32_t *gain;
    const int64_t *bias;
    void *y;
    int32_t spare; /* bits that a deviation is shortened by, to fit 31 */
} norm_job;

static int bits(uint64_t x)
{
    int n = 0;
    for (; x; x >>= 1) n++;
    return n;
}

/* floor(sqrt(x)); the floating-point root is off by a little at most. */
static uint64_t root(uint64_t x)
{
    uint64_t r = (uint64_t)sqrt((double)x);
    if (r > UINT32_MAX) r = UINT32_MAX;
    while (r * r > x) r--;
    while (r < UINT32_MAX && (r + 1) * (r + 1) <= x) r++;
    return r;
}

NPUC_INLINE int64_t rounded(int64_t x, int shift, int even)
{
    int64_t half = (int64_t)1 << (shift - 1), sum = x + half, y = sum >> shift;
    return y - ((sum & (half + (half - 1))) == 0 ? y & even : 0);
}

static void norm_part(void *context, int64_t begin, int64_t end)
{
    const norm_job *j = context;
    const npuc_norm *p = &j->norm;
    const int64_t width = p->width;
    const int32_t lo = p->lo - p->zero_point, hi = p->hi - p->zero_point;
    const int even = p->rounding == NPUC_HALF_EVEN;
    int32_t d[NPUC_BLOCK];
    for (int64_t r = begin; r < end; r++) {
        int64_t sum = 0;
        uint64_t squares = 0;
        for (int64_t i = 0; i < width; i += NPUC_BLOCK) {
            int64_t n = width - i < NPUC_BLOCK ? width - i : NPUC_BLOCK;
            npuc_load_block(&j->x, r * width + i, n, d);
            for (int64_t k = 0; k < n; k++) {
                sum += d[k];
                squares += (uint64_t)((int64_t)d[k] * d[k]);
            }
        }
        /* Modulo 2^64, where the true value fits. */
        uint64_t spread = (uint64_t)width * squares;
        if (p->center)
            spread -= (uint64_t)sum * (uint64_t)sum;
        else
            sum = 0;
        spread += p->epsilon;
        uint64_t inverse = 0;
        int shift = 1;
        if (spread) {
            int up = (64 - bits(spread)) & ~1;
            uint64_t scale = root(spread << up);
            inverse = (((uint64_t)1 << 62) + scale / 2) / scale;
            shift = 62 - FRACTION - up / 2 - j->spare;
        }
        int64_t first = r % p->row_modulus * p->row_factor;
        for (int64_t i = 0; i < width; i += NPUC_BLOCK) {
            int64_t n = width - i < NPUC_BLOCK ? width - i : NPUC_BLOCK;
            npuc_load_block(&j->x, r * width + i, n, d);
            for (int64_t k = 0; k < n; k++) {
                int64_t deviation = width * d[k] - sum;
                if (j->spare) deviation = rounded(deviation, j->spare, 0);
                int64_t unit = rounded(deviation * (int64_t)inverse, shift, 0);
                int64_t entry = first + (i + k) / p->column_divisor;
                int64_t y = rounded(unit * j->gain[entry] + j->bias[entry], p->shift, even);
                d[k] = (int32_t)npuc_clamp64(y, lo, hi);
            }
            npuc_store_block(d, n, lo, hi, p->zero_point, p->dtype, j->y, r * width + i);
        }
    }
}

npuc_status npuc_normalize(const npuc_norm *norm, const void *x, const int32_t *gain, const int64_t *bias, int64_t entries, void *y,
                           int32_t threads)
{
    int64_t x_lo, x_hi, lo, hi;
    if (!norm || !npuc_limits(norm->x_dtype, &x_lo, &x_hi) || !npuc_limits(norm->dtype, &lo, &hi)) return NPUC_BAD_ARGUMENT;
    const npuc_norm *p = norm;
    if (p->rows < 0 || p->width < 1 || p->width > (int64_t)1 << 25 || p->rows > ((int64_t)1 << 40) / p->width) return NPUC_BAD_ARGUMENT;
    if (p->x_zero_point < x_lo || p->x_zero_point > x_hi || p->zero_point < lo || p->zero_point > hi) return NPUC_BAD_ARGUMENT;
    if (p->lo < lo || p->hi > hi || p->lo > p->hi || p->shift < 1 || p->shift > 62) return NPUC_BAD_ARGUMENT;
    if (p->rounding != NPUC_HALF_UP && p->rounding != NPUC_HALF_EVEN) return NPUC_BAD_ARGUMENT;
    if (p->row_modulus < 1 || p->row_factor < 0 || p->column_divisor < 1 || entries < 1 || entries > (int64_t)1 << 40)
        return NPUC_BAD_ARGUMENT;
    if (p->row_modulus - 1 > entries || p->row_factor > entries ||
        (p->row_modulus - 1) * p->row_factor + (p->width - 1) / p->column_divisor >= entries)
        return NPUC_BAD_ARGUMENT;
    for (int64_t i = 0; i < entries; i++)
        if (gain[i] < -(1 << 30) || gain[i] > 1 << 30 || bias[i] < -((int64_t)1 << 60) || bias[i] > (int64_t)1 << 60)
            return NPUC_BAD_ARGUMENT;
    int64_t below = p->x_zero_point - x_lo, above = x_hi - p->x_zero_point, reach = below > above ? below : above;
    /* A variance is at most that of halves at both ends. */
    uint64_t largest = (uint64_t)p->width * (uint64_t)(p->center ? (x_hi - x_lo + 1) / 2 : reach);
    if (largest > UINT32_MAX || p->epsilon > UINT64_MAX - largest * largest) return NPUC_BAD_ARGUMENT;
    norm_job j = {.norm = *norm, .gain = gain, .bias = bias, .y = y};
    int size = bits((uint64_t)p->width * (uint64_t)(p->center ? x_hi - x_lo : reach));
    j.spare = size > 31 ? size - 31 : 0;
    int64_t count = p->rows * p->width, one = 1;
    if (count == 0) return NPUC_OK;
    npuc_operand_init(&j.x, x, p->x_dtype, p->x_zero_point, 1, &count, &one);
    npuc_in_parts(threads, p->rows, 4096 / p->width + 1, norm_part, &j);
    return NPUC_OK;
}

/* ---- TFLite's L2 normalization of 8-bit rows ---- */

static int32_t times_power(int32_t x, int exponent)
{
    return (int32_t)npuc_clamp64((int64_t)x * ((int64_t)1 << exponent), INT32_MIN, INT32_MAX);
}

/* 1 / sqrt(sum) as a multiplier and a right shift, by five Newton steps on Q3.28. */
static void inverse_root(int32_t sum, int32_t *multiplier, int *right)
{
    if (sum <= 1) {
        *multiplier = INT32_MAX;
        *right = 0;
        return;
    }
    int shift = 11;
    while (sum >= 1 << 29) {
        sum /= 4;
        shift++;
    }
    int pairs = (32 - bits((uint32_t)sum) - 1) / 2 - 1;
    shift -= pairs;
    sum = (int32_t)((uint32_t)sum << (2 * pairs));
    const int32_t input = sum >> 1, half = npuc_rdbp(input, 1), three_halves = (1 << 28) + (1 << 27);
    int32_t x = 1 << 28;
    for (int i = 0; i < 5; i++) {
        int32_t cube = times_power(npuc_srdhm(npuc_srdhm(x, x), x), 6);
        x = times_power(npuc_srdhm(three_halves, x) - npuc_srdhm(half, cube), 3);
    }
    x = npuc_srdhm(x, 1518500250);
    if (shift < 0) {
        x = (int32_t)((uint32_t)x << -shift);
        shift = 0;
    }
    *multiplier = x;
    *right = shift;
}

typedef struct l2_job {
    const void *x;
    void *y;
    int64_t width;
    int32_t dtype, zero;
} l2_job;

static void l2_part(void *context, int64_t begin, int64_t end)
{
    const l2_job *j = context;
    const int8_t *a = j->x;
    const uint8_t *b = j->x;
    for (int64_t r = begin; r < end; r++) {
        int64_t row = r * j->width;
        int32_t sum = 0, multiplier;
        int right;
        for (int64_t i = row; i < row + j->width; i++) {
            int32_t d = (j->dtype == NPUC_I8 ? a[i] : b[i]) - j->zero;
            sum += d * d;
        }
        inverse_root(sum, &multiplier, &right);
        for (int64_t i = row; i < row + j->width; i++) {
            int32_t d = (j->dtype == NPUC_I8 ? a[i] : b[i]) - j->zero;
            /* int8 folds the scale of 128 into the shift, uint8 into the element: not the same bits. */
            if (j->dtype == NPUC_I8) {
                int32_t y = npuc_rq_double(d, multiplier, 24 + right);
                ((int8_t *)j->y)[i] = (int8_t)npuc_clamp64(y, -128, 127);
            } else {
                int32_t y = npuc_rdbp(npuc_srdhm(128 * d, multiplier), right);
                ((uint8_t *)j->y)[i] = (uint8_t)npuc_clamp64(128 + (int64_t)y, 0, 255);
            }
        }
    }
}

npuc_status npuc_l2_norm_tflite8(const void *x, int32_t dtype, int32_t zero_point, int64_t rows, int64_t width, void *y, int32_t threads)
{
    int64_t lo, hi;
    if ((dtype != NPUC_I8 && dtype != NPUC_U8) || !npuc_limits(dtype, &lo, &hi)) return NPUC_BAD_ARGUMENT;
    if (zero_point < lo || zero_point > hi || rows < 0 || width < 0 || width > 32768) return NPUC_BAD_ARGUMENT;
    l2_job j = {.x = x, .y = y, .width = width, .dtype = dtype, .zero = zero_point};
    if (rows > 0 && width > 0) npuc_in_parts(threads, rows, 4096 / width + 1, l2_part, &j);
    return NPUC_OK;
}
