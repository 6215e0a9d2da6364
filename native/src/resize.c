/*
 * Bilinear resize of NHWC with fixed-point weights: four products an element, one rounding.
 *
 * Where an output row or column lies between the input's is given as tables, so that this code knows no coordinate
 * conventions: docs/arithmetic-resize.md says how the tables are made.
 */
#include "loops.h"

typedef struct resize_job {
    npuc_resize resize;
    const void *x;
    void *y;
} resize_job;

/* 8-bit: |q| <= 255 and weights of 2^22 in all stay below 2^30. */
#define BLEND(type, wide)                                                                                                                  \
    NPUC_INLINE void blend_##type##_body(const type *restrict a, const type *restrict b, const type *restrict c, const type *restrict d,   \
                                         int32_t wy, int32_t wx, int bits, int rounding, int64_t n, type *restrict y)                      \
    {                                                                                                                                      \
        const int32_t vy = (1 << bits) - wy, vx = (1 << bits) - wx;                                                                        \
        const int shift = 2 * bits;                                                                                                        \
        const wide half = (wide)1 << (shift - 1), mask = half + (half - 1);                                                                \
        if (rounding == NPUC_HALF_AWAY) {                                                                                                  \
            for (int64_t i = 0; i < n; i++) {                                                                                              \
                wide sum = (wide)(a[i] * vy + c[i] * wy) * vx + (wide)(b[i] * vy + d[i] * wy) * wx;                                        \
                /* half away from zero: a tie below zero goes down */                                                                      \
                y[i] = (type)((sum + half - (sum < 0)) >> shift);                                                                          \
            }                                                                                                                              \
        } else {                                                                                                                           \
            const wide even = rounding == NPUC_HALF_EVEN;                                                                                  \
            for (int64_t i = 0; i < n; i++) {                                                                                              \
                wide sum = (wide)(a[i] * vy + c[i] * wy) * vx + (wide)(b[i] * vy + d[i] * wy) * wx + half;                                 \
                wide whole = sum >> shift;                                                                                                 \
                y[i] = (type)(whole - (((sum & mask) == 0) & whole & even));                                                               \
            }                                                                                                                              \
        }                                                                                                                                  \
    }                                                                                                                                      \
    NPUC_TWICE(blend_##type,                                                                                                               \
               (const type *restrict a, const type *restrict b, const type *restrict c, const type *restrict d, int32_t wy, int32_t wx,    \
                int bits, int rounding, int64_t n, type *restrict y),                                                                      \
               (a, b, c, d, wy, wx, bits, rounding, n, y))

BLEND(int8_t, int32_t)
BLEND(uint8_t, int32_t)
BLEND(int16_t, int64_t)

#define ROW(type)                                                                                                                          \
    {                                                                                                                                      \
        const type *top = (const type *)j->x + (image * p->h + p->row_low[row]) * p->w * p->c;                                             \
        const type *bottom = (const type *)j->x + (image * p->h + p->row_high[row]) * p->w * p->c;                                         \
        type *y = (type *)j->y + index * p->out_w * p->c;                                                                                  \
        for (int64_t i = 0; i < p->out_w; i++, y += p->c) {                                                                                \
            int64_t left = p->column_low[i] * p->c, right = p->column_high[i] * p->c;                                                      \
            blend_##type(top + left, top + right, bottom + left, bottom + right, p->row_weight[row], p->column_weight[i], p->bits,         \
                         p->rounding, p->c, y);                                                                                            \
        }                                                                                                                                  \
    }

static void resize_part(void *context, int64_t begin, int64_t end)
{
    const resize_job *j = context;
    const npuc_resize *p = &j->resize;
    for (int64_t index = begin; index < end; index++) {
        int64_t image = index / p->out_h, row = index % p->out_h;
        switch (p->dtype) {
        case NPUC_I8: ROW(int8_t) break;
        case NPUC_U8: ROW(uint8_t) break;
        default: ROW(int16_t)
        }
    }
}

static int table(const int64_t *low, const int64_t *high, const int32_t *weight, int64_t count, int64_t size, int32_t one)
{
    if (count > 0 && (!low || !high || !weight)) return 0;
    for (int64_t i = 0; i < count; i++)
        if (low[i] < 0 || low[i] >= size || high[i] < 0 || high[i] >= size || weight[i] < 0 || weight[i] > one) return 0;
    return 1;
}

npuc_status npuc_resize_bilinear(const npuc_resize *resize, const void *x, void *y, int32_t threads)
{
    int64_t lo, hi;
    const npuc_resize *p = resize;
    const int64_t limit = (int64_t)1 << 24;
    if (!p || !npuc_limits(p->dtype, &lo, &hi) || p->bits < 1 || p->bits > 11) return NPUC_BAD_ARGUMENT;
    if (p->rounding != NPUC_HALF_AWAY && p->rounding != NPUC_HALF_UP && p->rounding != NPUC_HALF_EVEN) return NPUC_BAD_ARGUMENT;
    const int64_t sizes[] = {p->n, p->h, p->w, p->c, p->out_h, p->out_w};
    for (int i = 0; i < 6; i++)
        if (sizes[i] < 0 || sizes[i] > limit) return NPUC_BAD_ARGUMENT;
    if (!table(p->row_low, p->row_high, p->row_weight, p->out_h, p->h, 1 << p->bits) ||
        !table(p->column_low, p->column_high, p->column_weight, p->out_w, p->w, 1 << p->bits))
        return NPUC_BAD_ARGUMENT;
    resize_job j = {.resize = *p, .x = x, .y = y};
    if (p->n == 0 || p->out_h == 0 || p->out_w == 0 || p->c == 0) return NPUC_OK;
    npuc_in_parts(threads, p->n * p->out_h, (1 << 14) / (p->out_w * p->c) + 1, resize_part, &j);
    return NPUC_OK;
}
