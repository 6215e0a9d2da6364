/* Elementwise ops, tables and pools of bf16, f16 and f32: widened to f32, computed there, rounded once. */
#include "floats.h"
#include "npuc/float.h"

#include <math.h>
#include <string.h>

enum { GRAIN = 1 << 14 };

typedef struct cast_job {
    const void *x;
    void *y;
    int32_t from, to;
} cast_job;

NPUC_INLINE void cast_body(const cast_job *j, int64_t begin, int64_t end, int32_t from, int32_t to)
{
    for (int64_t i = begin; i < end; i++) {
        const float value = npuc_widen(j->x, i, from);
        if (to == NPUC_F32)
            ((float *)j->y)[i] = value;
        else
            npuc_narrow(j->y, i, value, to);
    }
}

NPUC_INLINE void cast_part_body(const cast_job *j, int64_t begin, int64_t end)
{
    if (j->from == NPUC_F32 && j->to == NPUC_BF16)
        cast_body(j, begin, end, NPUC_F32, NPUC_BF16);
    else if (j->from == NPUC_F32)
        cast_body(j, begin, end, NPUC_F32, NPUC_F16);
    else if (j->from == NPUC_BF16 && j->to == NPUC_F32)
        cast_body(j, begin, end, NPUC_BF16, NPUC_F32);
    else if (j->from == NPUC_BF16)
        cast_body(j, begin, end, NPUC_BF16, NPUC_F16);
    else if (j->to == NPUC_F32)
        cast_body(j, begin, end, NPUC_F16, NPUC_F32);
    else
        cast_body(j, begin, end, NPUC_F16, NPUC_BF16);
}
NPUC_TWICE(cast_part, (const cast_job *j, int64_t begin, int64_t end), (j, begin, end))

static void cast_run(void *context, int64_t begin, int64_t end) { cast_part(context, begin, end); }

npuc_status npuc_float_cast(const void *x, int32_t x_dtype, int64_t count, void *y, int32_t y_dtype, int32_t threads)
{
    if (!npuc_is_float(x_dtype) || !npuc_is_float(y_dtype) || x_dtype == y_dtype) return NPUC_UNSUPPORTED;
    if (count < 0 || (count && (!x || !y))) return NPUC_BAD_ARGUMENT;
    cast_job j = {x, y, x_dtype, y_dtype};
    npuc_in_parts(threads, count, GRAIN, cast_run, &j);
    return NPUC_OK;
}

typedef struct table_job {
    const uint16_t *x, *table;
    uint16_t *y;
} table_job;

static void table_run(void *context, int64_t begin, int64_t end)
{
    const table_job *j = context;
    for (int64_t i = begin; i < end; i++) j->y[i] = j->table[j->x[i]];
}

npuc_status npuc_float_table(const uint16_t *x, int64_t count, const uint16_t *table, uint16_t *y, int32_t threads)
{
    if (count < 0 || !table || (count && (!x || !y))) return NPUC_BAD_ARGUMENT;
    table_job j = {x, table, y};
    npuc_in_parts(threads, count, GRAIN, table_run, &j);
    return NPUC_OK;
}

typedef struct piecewise_job {
    const float *x;
    const uint32_t *directory;
    const double *pieces;
    float *y;
} piecewise_job;

/* The word of the directory for a number that is no NaN, and the 23 bits behind its highest one. */
NPUC_INLINE uint32_t binade_of(uint32_t bits, uint32_t *fraction)
{
    const uint32_t magnitude = bits & 0x7fffffffu, sign = (bits >> 31) * NPUC_PIECEWISE_SIGN;
    *fraction = magnitude & 0x7fffffu;
    if (magnitude >> 23) return sign + 23 + (magnitude >> 23);
    if (!magnitude) return sign;
    uint32_t highest = 0;
    while (magnitude >> (highest + 1)) highest++;
    *fraction = magnitude << (23 - highest) & 0x7fffffu;
    return sign + 1 + highest;
}

static void piecewise_run(void *context, int64_t begin, int64_t end)
{
    const piecewise_job *j = context;
    for (int64_t i = begin; i < end; i++) {
        const float x = j->x[i];
        uint32_t bits, fraction;
        if (x != x) {
            npuc_narrow(j->y, i, x, NPUC_F32);
            continue;
        }
        memcpy(&bits, &x, sizeof bits);
        const uint32_t word = j->directory[binade_of(bits, &fraction)];
        const double *piece = j->pieces + ((int64_t)(word >> 4) + (fraction >> (23 - (word & 15)))) * NPUC_PIECE;
        double y = piece[1];
        if (!isinf(x)) {
            const double d = (double)x - piece[0];
            y = piece[NPUC_PIECE - 1];
            for (int k = NPUC_PIECE - 2; k >= 1; k--) y = y * d + piece[k];
        }
        npuc_narrow(j->y, i, (float)y, NPUC_F32);
    }
}

npuc_status npuc_float_piecewise(const float *x, int64_t count, const void *table, int64_t pieces, float *y, int32_t threads)
{
    if (count < 0 || !table || pieces < 1 || (count && (!x || !y))) return NPUC_BAD_ARGUMENT;
    piecewise_job j = {x, table, (const double *)(const void *)((const uint32_t *)table + NPUC_PIECEWISE_WORDS), y};
    for (int i = 0; i < NPUC_PIECEWISE_WORDS; i++)
        if ((int64_t)(j.directory[i] >> 4) + ((int64_t)1 << (j.directory[i] & 15)) > pieces) return NPUC_BAD_ARGUMENT;
    npuc_in_parts(threads, count, GRAIN, piecewise_run, &j);
    return NPUC_OK;
}

/* Operands that are read through strides; the innermost dimension is walked by the loop, the others by counting. */
typedef struct binary_job {
    const npuc_float_binary *b;
    const void *left, *right;
    void *y;
    int64_t inner;
} binary_job;

enum { ADD, SUBTRACT, MULTIPLY, LARGER, SMALLER, OPERATIONS };

NPUC_INLINE float binary_of(float a, float b, int32_t operation)
{
    if (operation >= LARGER) return npuc_float_choice(a, b, operation == LARGER);
    return operation == ADD ? a + b : operation == SUBTRACT ? a - b : a * b;
}

NPUC_INLINE void binary_line(const npuc_float_binary *b, const void *left, const void *right, void *y, int64_t n, int64_t ls,
                             int64_t rs, int32_t dtype, int32_t operation)
{
    const int32_t relu = b->relu;
    const float limit = b->relu_limit;
    for (int64_t i = 0; i < n; i++) {
        const float value = binary_of(npuc_widen(left, i * ls, dtype), npuc_widen(right, i * rs, dtype), operation);
        npuc_narrow(y, i, npuc_relu(value, relu, limit), dtype);
    }
}

NPUC_INLINE void binary_typed(const npuc_float_binary *b, const void *left, const void *right, void *y, int64_t n, int64_t ls, int64_t rs,
                              int32_t operation, int32_t dtype)
{
    if (ls == 1 && rs == 1)
        binary_line(b, left, right, y, n, 1, 1, dtype, operation);
    else if (ls == 1 && rs == 0)
        binary_line(b, left, right, y, n, 1, 0, dtype, operation);
    else
        binary_line(b, left, right, y, n, ls, rs, dtype, operation);
}

NPUC_INLINE void binary_row_body(const npuc_float_binary *b, const void *left, const void *right, void *y, int64_t n, int64_t ls,
                                 int64_t rs)
{
    switch (b->operation) {
    case ADD: NPUC_BY_FLOAT(b->dtype, binary_typed, b, left, right, y, n, ls, rs, ADD); break;
    case SUBTRACT: NPUC_BY_FLOAT(b->dtype, binary_typed, b, left, right, y, n, ls, rs, SUBTRACT); break;
    case MULTIPLY: NPUC_BY_FLOAT(b->dtype, binary_typed, b, left, right, y, n, ls, rs, MULTIPLY); break;
    case LARGER: NPUC_BY_FLOAT(b->dtype, binary_typed, b, left, right, y, n, ls, rs, LARGER); break;
    default: NPUC_BY_FLOAT(b->dtype, binary_typed, b, left, right, y, n, ls, rs, SMALLER); break;
    }
}
NPUC_TWICE(binary_row,
           (const npuc_float_binary *b, const void *left, const void *right, void *y, int64_t n, int64_t ls, int64_t rs),
           (b, left, right, y, n, ls, rs))

/* Lines [begin, end) of the innermost dimension. */
static void binary_run(void *context, int64_t begin, int64_t end)
{
    const binary_job *j = context;
    const npuc_float_binary *b = j->b;
    const int last = b->rank - 1;
    for (int64_t line = begin; line < end; line++) {
        int64_t rest = line, left = 0, right = 0;
        for (int axis = last - 1; axis >= 0; axis--) {
            const int64_t at = rest % b->shape[axis];
            rest /= b->shape[axis];
            left += at * b->a_stride[axis];
            right += at * b->b_stride[axis];
        }
        binary_row(b, npuc_float_at(j->left, left, b->dtype), npuc_float_at(j->right, right, b->dtype),
                   npuc_float_to(j->y, line * j->inner, b->dtype), j->inner, b->a_stride[last], b->b_stride[last]);
    }
}

npuc_status npuc_float_binary_run(const npuc_float_binary *binary, const void *a, const void *b, void *y)
{
    if (!binary || binary->rank < 1 || binary->rank > NPUC_MAX_RANK || binary->operation < 0 || binary->operation >= OPERATIONS)
        return NPUC_BAD_ARGUMENT;
    if (!npuc_is_float(binary->dtype)) return NPUC_UNSUPPORTED;
    int64_t lines = 1;
    for (int i = 0; i < binary->rank; i++) {
        if (binary->shape[i] < 0) return NPUC_BAD_ARGUMENT;
        if (i < binary->rank - 1) lines *= binary->shape[i];
    }
    const int64_t inner = binary->shape[binary->rank - 1];
    if (!lines || !inner) return NPUC_OK;
    if (!a || !b || !y) return NPUC_BAD_ARGUMENT;
    binary_job j = {binary, a, b, y, inner};
    npuc_in_parts(binary->threads, lines, GRAIN / inner + 1, binary_run, &j);
    return NPUC_OK;
}

typedef struct pool_job {
    npuc_pool pool;
    const void *x;
    void *y;
    int32_t dtype, largest, include_pad;
} pool_job;

/* One output pixel, `n` channels from `first` on. */
NPUC_INLINE void pool_typed(const pool_job *j, int64_t index, int64_t first, int64_t n, int32_t largest, int32_t dtype)
{
    const npuc_pool *p = &j->pool;
    const int64_t column = index % p->out_w, row = index / p->out_w % p->out_h, image = index / p->out_w / p->out_h;
    float value[NPUC_BLOCK];
    int64_t count = 0;
    for (int64_t c = 0; c < n; c++) value[c] = 0.0f;
    for (int64_t ky = 0; ky < p->kernel_h; ky++) {
        const int64_t iy = row * p->stride_h - p->pad_top + ky * p->dilation_h;
        for (int64_t kx = 0; kx < p->kernel_w; kx++) {
            const int64_t ix = column * p->stride_w - p->pad_left + kx * p->dilation_w;
            if (iy < 0 || iy >= p->h || ix < 0 || ix >= p->w) continue;
            const void *x = npuc_float_at(j->x, ((image * p->h + iy) * p->w + ix) * p->c + first, dtype);
            if (!largest)
                for (int64_t c = 0; c < n; c++) value[c] += npuc_widen(x, c, dtype);
            else if (!count)
                for (int64_t c = 0; c < n; c++) value[c] = npuc_widen(x, c, dtype);
            else
                for (int64_t c = 0; c < n; c++) value[c] = npuc_float_choice(value[c], npuc_widen(x, c, dtype), 1);
            count++;
        }
    }
    const float divisor = (float)(largest ? 1 : j->include_pad ? p->kernel_h * p->kernel_w : count);
    void *y = npuc_float_to(j->y, index * p->c + first, dtype);
    for (int64_t c = 0; c < n; c++) npuc_narrow(y, c, largest ? value[c] : value[c] / divisor, dtype);
}

NPUC_INLINE void pool_body(const pool_job *j, int64_t index, int64_t first, int64_t n)
{
    if (j->largest)
        NPUC_BY_FLOAT(j->dtype, pool_typed, j, index, first, n, 1);
    else
        NPUC_BY_FLOAT(j->dtype, pool_typed, j, index, first, n, 0);
}
NPUC_TWICE(pool, (const pool_job *j, int64_t index, int64_t first, int64_t n), (j, index, first, n))

static void pool_run(void *context, int64_t begin, int64_t end)
{
    const pool_job *j = context;
    for (int64_t index = begin; index < end; index++)
        for (int64_t c = 0; c < j->pool.c; c += NPUC_BLOCK) pool(j, index, c, j->pool.c - c < NPUC_BLOCK ? j->pool.c - c : NPUC_BLOCK);
}

static npuc_status pool_all(pool_job *j, int32_t threads)
{
    const npuc_pool *p = &j->pool;
    const int64_t pixels = p->n * p->out_h * p->out_w;
    if (!pixels || !p->c) return NPUC_OK;
    if (!j->x || !j->y) return NPUC_BAD_ARGUMENT;
    npuc_in_parts(threads, pixels, GRAIN / (p->c * p->kernel_h * p->kernel_w) + 1, pool_run, j);
    return NPUC_OK;
}

npuc_status npuc_float_average_pool(const npuc_pool *pool, const void *x, int32_t dtype, int32_t include_pad, void *y, int32_t threads)
{
    if (!npuc_is_float(dtype)) return NPUC_UNSUPPORTED;
    if (!npuc_pool_valid(pool)) return NPUC_BAD_ARGUMENT;
    pool_job j = {*pool, x, y, dtype, 0, include_pad};
    return pool_all(&j, threads);
}

npuc_status npuc_float_max_pool(const npuc_pool *pool, const void *x, int32_t dtype, void *y, int32_t threads)
{
    if (!npuc_is_float(dtype)) return NPUC_UNSUPPORTED;
    if (!npuc_pool_valid(pool)) return NPUC_BAD_ARGUMENT;
    pool_job j = {*pool, x, y, dtype, 1, 0};
    return pool_all(&j, threads);
}
