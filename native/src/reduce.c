/*
 * Reductions of one axis of [outer, count, inner]: sum (and mean) through an output stage, largest, smallest, and where.
 *
 * Sums are exact: int32 where the largest possible one fits, int64 otherwise.
 */
#include <string.h>

#include "loops.h"

typedef struct reduce_job {
    const void *x;
    void *y;
    int32_t x_dtype, dtype, zero;
    int64_t count, inner, blocks;
    npuc_output stage;
    int32_t wide, larger, last;
} reduce_job;

static int check(int64_t outer, int64_t count, int64_t inner)
{
    const int64_t limit = (int64_t)1 << 40;
    if (outer < 0 || inner < 0 || count < 1 || outer > limit || inner > limit || count > limit) return 0;
    if (outer == 0 || inner == 0) return 1;
    return count <= limit / outer && inner <= limit / (outer * count);
}

#define RUNS(type)                                                                                                                         \
    NPUC_INLINE void add_##type##_body(const type *restrict x, int64_t n, int32_t *restrict acc)                                           \
    {                                                                                                                                      \
        for (int64_t i = 0; i < n; i++) acc[i] += x[i];                                                                                    \
    }                                                                                                                                      \
    NPUC_TWICE(add_##type, (const type *restrict x, int64_t n, int32_t *restrict acc), (x, n, acc))                                        \
    NPUC_INLINE void total_##type##_body(const type *restrict x, int64_t n, int32_t *restrict acc)                                         \
    {                                                                                                                                      \
        int32_t sum = 0;                                                                                                                   \
        for (int64_t i = 0; i < n; i++) sum += x[i];                                                                                       \
        *acc = sum;                                                                                                                        \
    }                                                                                                                                      \
    NPUC_TWICE(total_##type, (const type *restrict x, int64_t n, int32_t *restrict acc), (x, n, acc))                                      \
    NPUC_INLINE void best_##type##_body(const type *restrict x, int64_t n, int32_t larger, type *restrict y)                               \
    {                                                                                                                                      \
        if (larger)                                                                                                                        \
            for (int64_t i = 0; i < n; i++) y[i] = x[i] > y[i] ? x[i] : y[i];                                                              \
        else                                                                                                                               \
            for (int64_t i = 0; i < n; i++) y[i] = x[i] < y[i] ? x[i] : y[i];                                                              \
    }                                                                                                                                      \
    NPUC_TWICE(best_##type, (const type *restrict x, int64_t n, int32_t larger, type *restrict y), (x, n, larger, y))

RUNS(int8_t)
RUNS(uint8_t)
RUNS(int16_t)

static int32_t element(const reduce_job *j, int64_t at)
{
    switch (j->x_dtype) {
    case NPUC_I8: return ((const int8_t *)j->x)[at];
    case NPUC_U8: return ((const uint8_t *)j->x)[at];
    default: return ((const int16_t *)j->x)[at];
    }
}

static void sum_narrow(const reduce_job *j, int64_t from, int64_t n, int32_t *acc)
{
    if (j->inner == 1) {
        switch (j->x_dtype) {
        case NPUC_I8: total_int8_t((const int8_t *)j->x + from, j->count, acc); return;
        case NPUC_U8: total_uint8_t((const uint8_t *)j->x + from, j->count, acc); return;
        default: total_int16_t((const int16_t *)j->x + from, j->count, acc); return;
        }
    }
    memset(acc, 0, (size_t)n * sizeof *acc);
    for (int64_t k = 0; k < j->count; k++, from += j->inner) {
        switch (j->x_dtype) {
        case NPUC_I8: add_int8_t((const int8_t *)j->x + from, n, acc); break;
        case NPUC_U8: add_uint8_t((const uint8_t *)j->x + from, n, acc); break;
        default: add_int16_t((const int16_t *)j->x + from, n, acc);
        }
    }
}

static void sum_part(void *context, int64_t begin, int64_t end)
{
    const reduce_job *j = context;
    int32_t acc[NPUC_BLOCK];
    for (int64_t index = begin; index < end; index++) {
        int64_t outer = index / j->blocks, at = index % j->blocks * NPUC_BLOCK;
        int64_t n = j->inner - at < NPUC_BLOCK ? j->inner - at : NPUC_BLOCK;
        int64_t from = outer * j->count * j->inner + at, to = outer * j->inner + at;
        if (j->wide) {
            for (int64_t i = 0; i < n; i++) {
                int64_t sum = 0;
                for (int64_t k = 0; k < j->count; k++) sum += element(j, from + k * j->inner + i) - j->zero;
                acc[i] = npuc_output_one(&j->stage, sum) - j->stage.zero;
            }
        } else {
            int32_t zeros = (int32_t)(j->zero * j->count);
            sum_narrow(j, from, n, acc);
            for (int64_t i = 0; i < n; i++) acc[i] -= zeros;
            npuc_output_block(&j->stage, acc, acc, n);
        }
        npuc_store_block(acc, n, j->stage.lo, j->stage.hi, j->stage.zero, j->dtype, j->y, to);
    }
}

npuc_status npuc_reduce_sum(const void *x, int32_t x_dtype, int32_t zero_point, int64_t outer, int64_t count, int64_t inner,
                            const npuc_requant *rq, int32_t dtype, void *y, int32_t threads)
{
    int64_t lo, hi;
    if (!check(outer, count, inner) || !npuc_limits(x_dtype, &lo, &hi) || zero_point < lo || zero_point > hi) return NPUC_BAD_ARGUMENT;
    reduce_job j = {.x = x,
                    .y = y,
                    .x_dtype = x_dtype,
                    .dtype = dtype,
                    .zero = zero_point,
                    .count = count,
                    .inner = inner,
                    .blocks = (inner + NPUC_BLOCK - 1) / NPUC_BLOCK};
    int64_t reach = zero_point - lo > hi - zero_point ? zero_point - lo : hi - zero_point;
    npuc_status status = npuc_output_init(&j.stage, rq, 0, reach * count, dtype);
    /* Also the raw sum and the sum of the zero points stay in int32. */
    j.wide = (hi - lo + 1) * count > INT32_MAX;
    if (status || outer == 0 || inner == 0) return status;
    npuc_in_parts(threads, outer * j.blocks, (1 << 15) / (count * (inner < NPUC_BLOCK ? inner : NPUC_BLOCK)) + 1, sum_part, &j);
    return NPUC_OK;
}

static void best_part(void *context, int64_t begin, int64_t end)
{
    const reduce_job *j = context;
    const int64_t size = j->x_dtype == NPUC_I16 ? 2 : 1;
    for (int64_t outer = begin; outer < end; outer++) {
        const char *x = (const char *)j->x + outer * j->count * j->inner * size;
        char *y = (char *)j->y + outer * j->inner * size;
        memcpy(y, x, (size_t)(j->inner * size));
        for (int64_t k = 1; k < j->count; k++) {
            const char *row = x + k * j->inner * size;
            switch (j->x_dtype) {
            case NPUC_I8: best_int8_t((const int8_t *)row, j->inner, j->larger, (int8_t *)y); break;
            case NPUC_U8: best_uint8_t((const uint8_t *)row, j->inner, j->larger, (uint8_t *)y); break;
            default: best_int16_t((const int16_t *)(const void *)row, j->inner, j->larger, (int16_t *)(void *)y);
            }
        }
    }
}

npuc_status npuc_reduce_extreme(const void *x, int32_t dtype, int64_t outer, int64_t count, int64_t inner, int32_t larger, void *y,
                                int32_t threads)
{
    int64_t lo, hi;
    if (!check(outer, count, inner) || !npuc_limits(dtype, &lo, &hi)) return NPUC_BAD_ARGUMENT;
    reduce_job j = {.x = x, .y = y, .x_dtype = dtype, .count = count, .inner = inner, .larger = larger};
    if (outer == 0 || inner == 0) return NPUC_OK;
    npuc_in_parts(threads, outer, (1 << 15) / (count * inner) + 1, best_part, &j);
    return NPUC_OK;
}

static void where_part(void *context, int64_t begin, int64_t end)
{
    const reduce_job *j = context;
    int64_t *y = j->y;
    for (int64_t index = begin; index < end; index++) {
        int64_t from = index / j->inner * j->count * j->inner + index % j->inner, found = 0;
        int32_t best = element(j, from);
        for (int64_t k = 1; k < j->count; k++) {
            int32_t q = element(j, from + k * j->inner);
            if ((j->larger ? q > best : q < best) || (j->last && q == best)) {
                best = q;
                found = k;
            }
        }
        y[index] = found;
    }
}

npuc_status npuc_reduce_where(const void *x, int32_t dtype, int64_t outer, int64_t count, int64_t inner, int32_t larger, int32_t last,
                              int64_t *y, int32_t threads)
{
    int64_t lo, hi;
    if (!check(outer, count, inner) || !npuc_limits(dtype, &lo, &hi)) return NPUC_BAD_ARGUMENT;
    reduce_job j = {.x = x, .y = y, .x_dtype = dtype, .count = count, .inner = inner, .larger = larger, .last = last};
    if (outer == 0 || inner == 0) return NPUC_OK;
    npuc_in_parts(threads, outer * inner, (1 << 14) / count + 1, where_part, &j);
    return NPUC_OK;
}

/* The places of the k best elements of a column, which lie `inner` apart, are a heap with the worst of them first. */
typedef struct top_job {
    reduce_job reduction;
    int64_t k;
    int64_t *places;
} top_job;

/* Whether the element at place a comes before the one at place b. */
static int precedes(const reduce_job *j, int64_t from, int64_t a, int64_t b)
{
    const int32_t p = element(j, from + a * j->inner), q = element(j, from + b * j->inner);
    if (p != q) return j->larger ? p > q : p < q;
    return a < b;
}

/* A place sinks from `at` to where it belongs among the first n. */
static void sink(const reduce_job *j, int64_t from, int64_t *heap, int64_t place, int64_t at, int64_t n)
{
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && precedes(j, from, heap[child * j->inner], heap[(child + 1) * j->inner])) child++;
        if (!precedes(j, from, place, heap[child * j->inner])) break;
        heap[at * j->inner] = heap[child * j->inner];
    }
    heap[at * j->inner] = place;
}

static void top_part(void *context, int64_t begin, int64_t end)
{
    const top_job *t = context;
    const reduce_job *j = &t->reduction;
    for (int64_t index = begin; index < end; index++) {
        const int64_t outer = index / j->inner, column = index % j->inner;
        const int64_t from = outer * j->count * j->inner + column;
        int64_t *heap = t->places + outer * t->k * j->inner + column;
        for (int64_t i = 0; i < t->k; i++) heap[i * j->inner] = i;
        for (int64_t i = t->k / 2 - 1; i >= 0; i--) sink(j, from, heap, heap[i * j->inner], i, t->k);
        for (int64_t i = t->k; i < j->count; i++)
            if (precedes(j, from, i, heap[0])) sink(j, from, heap, i, 0, t->k);
        for (int64_t last = t->k - 1; last > 0; last--) { /* the worst goes to the end */
            const int64_t place = heap[last * j->inner];
            heap[last * j->inner] = heap[0];
            sink(j, from, heap, place, 0, last);
        }
    }
}

npuc_status npuc_top_k(const void *x, int32_t dtype, int64_t outer, int64_t count, int64_t inner, int64_t k, int32_t larger,
                       int64_t *places, int32_t threads)
{
    int64_t lo, hi;
    if (!check(outer, count, inner) || !npuc_limits(dtype, &lo, &hi) || k < 1 || k > count) return NPUC_BAD_ARGUMENT;
    top_job t = {.reduction = {.x = x, .x_dtype = dtype, .count = count, .inner = inner, .larger = larger}, .k = k, .places = places};
    if (outer == 0 || inner == 0) return NPUC_OK;
    npuc_in_parts(threads, outer * inner, (1 << 12) / count + 1, top_part, &t);
    return NPUC_OK;
}
