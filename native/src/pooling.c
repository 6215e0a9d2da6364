/*
 * Max and average pool over NHWC: an output pixel takes its window's pixels one after another, all channels at once.
 *
 * The window is cut to the part that lies inside the input, so that padding is never read. Sums are int32 where the largest
 * possible one fits, and int64 otherwise.
 */
#include <string.h>

#include "loops.h"

typedef struct pool_job {
    npuc_pool pool;
    const char *x;
    char *y;
    int32_t x_dtype, dtype, size; /* size of an x element, in bytes */
    int32_t zero;
    int32_t include_pad;
    const npuc_requant *rq;
    int64_t bound;
    int64_t blocks; /* blocks of channels */
} pool_job;

typedef struct span {
    int64_t first, last; /* taps inside the input: [first, last) */
} span;

static span taps(int64_t at, int64_t kernel, int64_t dilation, int64_t size)
{
    span s = {0, kernel};
    if (at < 0) s.first = (-at + dilation - 1) / dilation;
    if (at + (kernel - 1) * dilation >= size) s.last = at >= size ? 0 : (size - 1 - at) / dilation + 1;
    if (s.first > s.last) s.first = s.last;
    return s;
}

static int covered(int64_t out, int64_t size, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad)
{
    for (int64_t i = 0; i < out; i++) {
        span s = taps(i * stride - pad, kernel, dilation, size);
        if (s.first == s.last) return 0;
    }
    return 1;
}

int npuc_pool_valid(const npuc_pool *p)
{
    if (!p) return 0;
    const int64_t sizes[] = {p->kernel_h, p->kernel_w, p->stride_h, p->stride_w, p->dilation_h, p->dilation_w};
    const int64_t others[] = {p->n, p->h, p->w, p->c, p->out_h, p->out_w, p->pad_top, p->pad_left};
    const int64_t limit = (int64_t)1 << 24;
    for (int i = 0; i < 6; i++)
        if (sizes[i] < 1 || sizes[i] > limit) return 0;
    for (int i = 0; i < 8; i++)
        if (others[i] < 0 || others[i] > limit) return 0;
    if (p->n == 0 || p->c == 0 || p->out_h == 0 || p->out_w == 0) return 1;
    return covered(p->out_h, p->h, p->kernel_h, p->stride_h, p->dilation_h, p->pad_top) &&
           covered(p->out_w, p->w, p->kernel_w, p->stride_w, p->dilation_w, p->pad_left);
}

static int element_size(int32_t dtype) { return dtype == NPUC_I16 ? 2 : 1; }

/* Where output pixel `index` reads: the taps of its window and its image. */
typedef struct window {
    span rows, columns;
    int64_t top, left; /* of tap (0, 0) */
    const char *image;
} window;

static window window_of(const pool_job *j, int64_t index)
{
    const npuc_pool *p = &j->pool;
    int64_t column = index % p->out_w, row = index / p->out_w % p->out_h, n = index / p->out_w / p->out_h;
    window w = {.top = row * p->stride_h - p->pad_top, .left = column * p->stride_w - p->pad_left};
    w.rows = taps(w.top, p->kernel_h, p->dilation_h, p->h);
    w.columns = taps(w.left, p->kernel_w, p->dilation_w, p->w);
    w.image = j->x + n * p->h * p->w * p->c * j->size;
    return w;
}

static const char *pixel(const pool_job *j, const window *w, int64_t row, int64_t column)
{
    const npuc_pool *p = &j->pool;
    return w->image + ((w->top + row * p->dilation_h) * p->w + w->left + column * p->dilation_w) * p->c * j->size;
}

#define LARGER(type)                                                                                                                       \
    NPUC_INLINE void larger_##type##_body(type *restrict y, const type *restrict x, int64_t n)                                             \
    {                                                                                                                                      \
        for (int64_t i = 0; i < n; i++) y[i] = x[i] > y[i] ? x[i] : y[i];                                                                  \
    }                                                                                                                                      \
    NPUC_TWICE(larger_##type, (type *restrict y, const type *restrict x, int64_t n), (y, x, n))

LARGER(int8_t)
LARGER(uint8_t)
LARGER(int16_t)

static void max_part(void *context, int64_t begin, int64_t end)
{
    const pool_job *j = context;
    const npuc_pool *p = &j->pool;
    for (int64_t i = begin; i < end; i++) {
        window w = window_of(j, i);
        char *y = j->y + i * p->c * j->size;
        memcpy(y, pixel(j, &w, w.rows.first, w.columns.first), (size_t)(p->c * j->size));
        for (int64_t row = w.rows.first; row < w.rows.last; row++)
            for (int64_t column = w.columns.first; column < w.columns.last; column++) {
                const char *x = pixel(j, &w, row, column);
                switch (j->dtype) {
                case NPUC_I8: larger_int8_t((int8_t *)y, (const int8_t *)x, p->c); break;
                case NPUC_U8: larger_uint8_t((uint8_t *)y, (const uint8_t *)x, p->c); break;
                default: larger_int16_t((int16_t *)y, (const int16_t *)x, p->c);
                }
            }
    }
}

npuc_status npuc_max_pool(const npuc_pool *pool, const void *x, int32_t dtype, void *y, int32_t threads)
{
    int64_t lo, hi;
    if (!npuc_pool_valid(pool) || !npuc_limits(dtype, &lo, &hi)) return NPUC_BAD_ARGUMENT;
    pool_job j = {.pool = *pool, .x = x, .y = y, .dtype = dtype, .size = element_size(dtype)};
    int64_t pixels = pool->n * pool->out_h * pool->out_w;
    if (pool->c == 0 || pixels == 0) return NPUC_OK;
    npuc_in_parts(threads, pixels, (1 << 15) / (pool->c * pool->kernel_h * pool->kernel_w) + 1, max_part, &j);
    return NPUC_OK;
}

#define ADD_UP(type, sum)                                                                                                                  \
    NPUC_INLINE void add_##type##_##sum##_body(sum *restrict acc, const type *restrict x, int64_t n)                                       \
    {                                                                                                                                      \
        for (int64_t i = 0; i < n; i++) acc[i] += x[i];                                                                                    \
    }                                                                                                                                      \
    NPUC_TWICE(add_##type##_##sum, (sum *restrict acc, const type *restrict x, int64_t n), (acc, x, n))

ADD_UP(int8_t, int32_t)
ADD_UP(uint8_t, int32_t)
ADD_UP(int16_t, int32_t)
ADD_UP(int8_t, int64_t)
ADD_UP(uint8_t, int64_t)
ADD_UP(int16_t, int64_t)

static void add_pixel(int32_t dtype, int wide, void *acc, const char *x, int64_t n)
{
    switch (dtype * 2 + (wide != 0)) {
    case NPUC_I8 * 2: add_int8_t_int32_t(acc, (const int8_t *)x, n); return;
    case NPUC_U8 * 2: add_uint8_t_int32_t(acc, (const uint8_t *)x, n); return;
    case NPUC_I16 * 2: add_int16_t_int32_t(acc, (const int16_t *)x, n); return;
    case NPUC_I8 * 2 + 1: add_int8_t_int64_t(acc, (const int8_t *)x, n); return;
    case NPUC_U8 * 2 + 1: add_uint8_t_int64_t(acc, (const uint8_t *)x, n); return;
    default: add_int16_t_int64_t(acc, (const int16_t *)x, n);
    }
}

/*
 * trunc(v / count) as trunc((v + 0.5) * (1 / count)), v >= 0: the exact product is at least 0.5 / count from a
 * whole number, and rounding moves it by less than 2^-22 of itself in single, 2^-51 in double. So single serves where
 * v < 2^21 (v + 0.5 is exact then), and double always, since the quotient is below 2^16 and v below 2^31.
 */
#define DIVIDE(type)                                                                                                                       \
    NPUC_INLINE void divide_##type##_body(int32_t *acc, int64_t n, int32_t more, int32_t count)                                            \
    {                                                                                                                                      \
        const type inverse = 1 / (type)count;                                                                                              \
        const type half = (type)(count / 2) + (type)0.5;                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                                                                  \
            int32_t sum = acc[i] + more, size = sum < 0 ? -sum : sum;                                                                      \
            int32_t quotient = (int32_t)(((type)size + half) * inverse);                                                                   \
            acc[i] = sum < 0 ? -quotient : quotient;                                                                                       \
        }                                                                                                                                  \
    }                                                                                                                                      \
    NPUC_TWICE(divide_##type, (int32_t *acc, int64_t n, int32_t more, int32_t count), (acc, n, more, count))

DIVIDE(float)
DIVIDE(double)

static void average_part(void *context, int64_t begin, int64_t end)
{
    const pool_job *j = context;
    const npuc_pool *p = &j->pool;
    union {
        int32_t narrow[NPUC_BLOCK];
        int64_t wide[NPUC_BLOCK];
    } acc;
    const int wide = j->bound > INT32_MAX;
    const int64_t whole = p->kernel_h * p->kernel_w;
    for (int64_t index = begin; index < end; index++) {
        int64_t at = index / j->blocks, channel = index % j->blocks * NPUC_BLOCK;
        int64_t n = p->c - channel < NPUC_BLOCK ? p->c - channel : NPUC_BLOCK;
        window w = window_of(j, at);
        memset(&acc, 0, (size_t)n * (wide ? sizeof acc.wide[0] : sizeof acc.narrow[0]));
        for (int64_t row = w.rows.first; row < w.rows.last; row++)
            for (int64_t column = w.columns.first; column < w.columns.last; column++)
                add_pixel(j->x_dtype, wide, &acc, pixel(j, &w, row, column) + channel * j->size, n);
        int64_t real = (w.rows.last - w.rows.first) * (w.columns.last - w.columns.first);
        int64_t count = j->include_pad ? whole : real;
        int64_t out = at * p->c + channel;
        if (j->rq->kind == NPUC_DOUBLE_ROUNDING) {
            int64_t more = j->zero * (count - real);
            if (wide) {
                for (int64_t i = 0; i < n; i++) {
                    int64_t sum = acc.wide[i] + more;
                    acc.wide[i] = (sum > 0 ? sum + count / 2 : sum - count / 2) / count;
                }
                for (int64_t i = 0; i < n; i++) acc.narrow[i] = (int32_t)acc.wide[i];
            } else if (j->bound < 1 << 21) {
                divide_float(acc.narrow, n, (int32_t)more, (int32_t)count);
            } else {
                divide_double(acc.narrow, n, (int32_t)more, (int32_t)count);
            }
            npuc_store_block(acc.narrow, n, j->rq->lo, j->rq->hi, 0, j->dtype, j->y, out);
            continue;
        }
        npuc_output stage;
        npuc_output_init(&stage, j->rq, j->rq->count == 1 ? 0 : (int32_t)count - 1, j->bound, j->dtype);
        int64_t less = j->zero * real;
        if (wide) {
            for (int64_t i = 0; i < n; i++) acc.wide[i] = npuc_output_one(&stage, acc.wide[i] - less) - stage.zero;
            for (int64_t i = 0; i < n; i++) acc.narrow[i] = (int32_t)acc.wide[i];
        } else {
            for (int64_t i = 0; i < n; i++) acc.narrow[i] -= (int32_t)less;
            npuc_output_block(&stage, acc.narrow, acc.narrow, n);
        }
        npuc_store_block(acc.narrow, n, stage.lo, stage.hi, stage.zero, j->dtype, j->y, out);
    }
}

npuc_status npuc_average_pool(const npuc_pool *pool, const void *x, int32_t x_dtype, int32_t zero_point, int32_t include_pad,
                              const npuc_requant *rq, int32_t dtype, void *y, int32_t threads)
{
    int64_t lo, hi, least, most;
    if (!npuc_pool_valid(pool) || !rq || !npuc_limits(x_dtype, &lo, &hi) || !npuc_limits(dtype, &least, &most)) return NPUC_BAD_ARGUMENT;
    if (zero_point < lo || zero_point > hi) return NPUC_BAD_ARGUMENT;
    int64_t whole = pool->kernel_h * pool->kernel_w;
    pool_job j = {.pool = *pool,
                  .x = x,
                  .y = y,
                  .x_dtype = x_dtype,
                  .dtype = dtype,
                  .size = element_size(x_dtype),
                  .zero = zero_point,
                  .include_pad = include_pad,
                  .rq = rq};
    j.blocks = (pool->c + NPUC_BLOCK - 1) / NPUC_BLOCK;
    /* Neither the raw sum, nor the sum of q - zero_point, nor the sum and half a count can be larger. */
    j.bound = (hi - lo + 1) * (whole + 1);
    if (whole > (int64_t)1 << 40) return NPUC_BAD_ARGUMENT;
    if (rq->kind == NPUC_DOUBLE_ROUNDING) {
        if (x_dtype != dtype || rq->zero_point != zero_point || rq->lo < least || rq->hi > most || rq->lo > rq->hi)
            return NPUC_BAD_ARGUMENT;
    } else {
        int64_t used = pool->h * pool->w < whole ? pool->h * pool->w : whole;
        if (include_pad) used = whole;
        if (rq->count != 1 && rq->count < used) return NPUC_BAD_ARGUMENT;
        for (int32_t i = 0; i < rq->count; i++) {
            npuc_output stage;
            npuc_status status = npuc_output_init(&stage, rq, i, j.bound, dtype);
            if (status) return status;
        }
    }
    int64_t items = pool->n * pool->out_h * pool->out_w * j.blocks;
    if (items == 0) return NPUC_OK;
    int64_t work = (pool->c < NPUC_BLOCK ? pool->c : NPUC_BLOCK) * whole;
    npuc_in_parts(threads, items, (1 << 15) / work + 1, average_part, &j);
    return NPUC_OK;
}
