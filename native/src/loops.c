/*
 * The output stage on blocks of accumulators, and the reading and writing of blocks.
 *
 * Each form below gives exactly the numbers of requant.h; it is chosen once a tensor from the kind and from the largest
 * accumulator, so that the loops need neither 64-bit comparisons nor 64-bit arithmetic shifts, which AVX2 does not have.
 */
#include "loops.h"

#include <string.h>

#include "npuc/gemm.h"
#include "threads.h"

int npuc_use_avx2(void) { return npuc_isa()[0] == 'a'; }

int npuc_use_avx512(void) { return strncmp(npuc_isa(), "avx512", 6) == 0; }

typedef struct parts {
    npuc_part *body;
    void *context;
    int64_t count, size;
} parts;

static void run_part(void *context, ptrdiff_t index, int worker)
{
    const parts *p = context;
    int64_t begin = index * p->size, end = begin + p->size;
    (void)worker;
    p->body(p->context, begin, end < p->count ? end : p->count);
}

void npuc_in_parts(int32_t threads, int64_t count, int64_t grain, npuc_part *body, void *context)
{
    if (threads <= 1 || count <= grain) {
        body(context, 0, count);
        return;
    }
    /* A few parts a thread, so that a slow one can be helped. */
    int64_t size = count / ((int64_t)threads * 4) + 1;
    if (size < grain) size = grain;
    parts p = {body, context, count, size};
    npuc_parallel((ptrdiff_t)((count + size - 1) / size), threads, run_part, &p);
}

#define WIDE32 ((int64_t)1 << 31) /* the largest magnitude of an int32 */

enum { FORM_DOUBLE, FORM_UP, FORM_EVEN, FORM_SHIFT, FORM_FLOAT, FORM_UP_WIDE, FORM_EVEN_WIDE, FORM_SHIFT_WIDE };

/* x * 2^s where it fits; the largest magnitudes otherwise (they are clamped to an 8- or 16-bit range anyhow). */
NPUC_INLINE int64_t shifted_left(int64_t x, int s)
{
    int64_t limit = s < 62 ? ((int64_t)1 << 62) >> s : 0;
    if (x > limit) return (int64_t)1 << 62;
    if (x < -limit) return -((int64_t)1 << 62);
    return x * ((int64_t)1 << (s < 62 ? s : 0));
}

NPUC_INLINE int64_t up(int64_t x, int s) { return s <= 0 ? shifted_left(x, -s) : (x + ((int64_t)1 << (s - 1))) >> s; }

NPUC_INLINE int64_t even(int64_t x, int s)
{
    if (s <= 0) return shifted_left(x, -s);
    int64_t half = (int64_t)1 << (s - 1);
    int64_t y = (x + half) >> s;
    int64_t rest = (x + half) & (half + half - 1);
    return y - (rest == 0 && (y & 1));
}

npuc_status npuc_output_init(npuc_output *stage, const npuc_requant *rq, int32_t index, int64_t bound, int32_t dtype)
{
    int64_t least, most;
    if (!rq || !npuc_limits(dtype, &least, &most)) return NPUC_BAD_ARGUMENT;
    if (rq->lo < least || rq->hi > most || rq->lo > rq->hi) return NPUC_BAD_ARGUMENT;
    if (rq->zero_point < least || rq->zero_point > most) return NPUC_BAD_ARGUMENT;
    if (index < 0 || index >= rq->count) return NPUC_BAD_ARGUMENT;
    *stage = (npuc_output){.zero = rq->zero_point, .lo = rq->lo - rq->zero_point, .hi = rq->hi - rq->zero_point};
    if (rq->kind == NPUC_FLOAT_SCALE) {
        if (!rq->scale || !(rq->scale[index] >= 0.0f && rq->scale[index] <= 3.0e38f)) return NPUC_BAD_ARGUMENT;
        stage->form = FORM_FLOAT;
        stage->scale = rq->scale[index];
        return NPUC_OK;
    }
    if (!rq->shift || (rq->kind != NPUC_POW2 && !rq->multiplier)) return NPUC_BAD_ARGUMENT;
    int32_t shift = stage->shift = rq->shift[index];
    int64_t multiplier = stage->multiplier = rq->kind == NPUC_POW2 ? 1 : rq->multiplier[index];
    if (multiplier < 0 || shift < -62 || shift > 62) return NPUC_BAD_ARGUMENT;
    /* The product and the rounding term must fit in 63 bits. */
    int64_t half = shift > 0 ? (int64_t)1 << (shift - 1) : 0;
    if (bound > (INT64_MAX - half) / (multiplier ? multiplier : 1)) return NPUC_BAD_ARGUMENT;
    int narrow = bound <= WIDE32 && shift > 0 && (bound * multiplier + half) >> shift <= INT32_MAX - 1;
    switch (rq->kind) {
    case NPUC_DOUBLE_ROUNDING:
        if (bound > WIDE32 || shift < 0) return NPUC_BAD_ARGUMENT;
        stage->form = FORM_DOUBLE;
        return NPUC_OK;
    case NPUC_SINGLE_ROUNDING: stage->form = narrow ? FORM_UP : FORM_UP_WIDE; return NPUC_OK;
    case NPUC_SINGLE_EVEN: stage->form = narrow ? FORM_EVEN : FORM_EVEN_WIDE; return NPUC_OK;
    case NPUC_POW2: stage->form = narrow && shift < 31 && bound + half <= INT32_MAX ? FORM_SHIFT : FORM_SHIFT_WIDE; return NPUC_OK;
    default: return NPUC_BAD_ARGUMENT;
    }
}

/* srdhm is half_up(a * b, 31), and only the low 32 bits of the shifted product are wanted, so a logical shift will do. */
NPUC_INLINE void double_block_body(const npuc_output *stage, const int32_t *acc, int32_t *y, int64_t n)
{
    int exponent = 31 - stage->shift;
    int left = exponent > 0 ? exponent : 0, right = exponent > 0 ? 0 : -exponent;
    int32_t m = stage->multiplier, mask = (int32_t)((1u << right) - 1);
    for (int64_t i = 0; i < n; i++) {
        int32_t a = (int32_t)((uint32_t)acc[i] << left);
        int32_t high = (int32_t)(uint32_t)(((uint64_t)((int64_t)a * m) + ((uint64_t)1 << 30)) >> 31);
        int32_t threshold = (mask >> 1) + (high < 0);
        y[i] = (high >> right) + ((high & mask) > threshold);
    }
}
NPUC_TWICE(double_block, (const npuc_output *stage, const int32_t *acc, int32_t *y, int64_t n), (stage, acc, y, n))

/* Offset by 2^63, so that the shift is a logical one. */
NPUC_INLINE void up_block_body(const npuc_output *stage, const int32_t *acc, int32_t *y, int64_t n)
{
    int s = stage->shift;
    int32_t m = stage->multiplier;
    uint64_t offset = ((uint64_t)1 << 63) + ((uint64_t)1 << (s - 1));
    uint32_t back = (uint32_t)(((uint64_t)1 << 63) >> s);
    for (int64_t i = 0; i < n; i++) y[i] = (int32_t)((uint32_t)(((uint64_t)((int64_t)acc[i] * m) + offset) >> s) - back);
}
NPUC_TWICE(up_block, (const npuc_output *stage, const int32_t *acc, int32_t *y, int64_t n), (stage, acc, y, n))

NPUC_INLINE void even_block_body(const npuc_output *stage, const int32_t *acc, int32_t *y, int64_t n)
{
    int s = stage->shift;
    int32_t m = stage->multiplier;
    uint64_t offset = ((uint64_t)1 << 63) + ((uint64_t)1 << (s - 1)), mask = ((uint64_t)1 << s) - 1;
    uint64_t back = ((uint64_t)1 << 63) >> s;
    for (int64_t i = 0; i < n; i++) {
        uint64_t sum = (uint64_t)((int64_t)acc[i] * m) + offset;
        uint64_t rounded = (sum >> s) - back;
        uint64_t odd_tie = (sum & mask) == 0 ? rounded & 1 : 0;
        y[i] = (int32_t)(uint32_t)(rounded - odd_tie);
    }
}
NPUC_TWICE(even_block, (const npuc_output *stage, const int32_t *acc, int32_t *y, int64_t n), (stage, acc, y, n))

NPUC_INLINE void shift_block_body(const npuc_output *stage, const int32_t *acc, int32_t *y, int64_t n)
{
    int s = stage->shift;
    int32_t half = (int32_t)1 << (s - 1);
    for (int64_t i = 0; i < n; i++) y[i] = (acc[i] + half) >> s;
}
NPUC_TWICE(shift_block, (const npuc_output *stage, const int32_t *acc, int32_t *y, int64_t n), (stage, acc, y, n))

/*
 * Clamping to the output's range before rounding changes nothing, the range being whole numbers, and brings the value
 * below 2^22, where adding and taking away 1.5 * 2^23 rounds half to even.
 */
NPUC_INLINE void float_block_body(const npuc_output *stage, const int32_t *acc, int32_t *y, int64_t n)
{
    const float magic = 12582912.0f, scale = stage->scale, lo = (float)stage->lo, hi = (float)stage->hi;
    for (int64_t i = 0; i < n; i++) {
        float v = (float)acc[i] * scale;
        v = v < lo ? lo : v;
        v = v > hi ? hi : v;
        y[i] = (int32_t)((v + magic) - magic);
    }
}
NPUC_TWICE(float_block, (const npuc_output *stage, const int32_t *acc, int32_t *y, int64_t n), (stage, acc, y, n))

int32_t npuc_output_one(const npuc_output *stage, int64_t acc)
{
    int64_t y;
    switch (stage->form) {
    case FORM_DOUBLE: y = npuc_rq_double((int32_t)acc, stage->multiplier, stage->shift); break;
    case FORM_UP:
    case FORM_UP_WIDE: y = up(acc * stage->multiplier, stage->shift); break;
    case FORM_EVEN:
    case FORM_EVEN_WIDE: y = even(acc * stage->multiplier, stage->shift); break;
    case FORM_SHIFT:
    case FORM_SHIFT_WIDE: y = up(acc, stage->shift); break;
    default: {
        float v = (float)acc * stage->scale;
        v = v<(float)stage->lo ? (float)stage->lo : v>(float) stage->hi ? (float)stage->hi : v;
        y = (int64_t)((v + 12582912.0f) - 12582912.0f);
    }
    }
    return (int32_t)npuc_clamp64(y, stage->lo, stage->hi) + stage->zero;
}

void npuc_output_block(const npuc_output *stage, const int32_t *acc, int32_t *y, int64_t n)
{
    switch (stage->form) {
    case FORM_DOUBLE: double_block(stage, acc, y, n); return;
    case FORM_UP: up_block(stage, acc, y, n); return;
    case FORM_EVEN: even_block(stage, acc, y, n); return;
    case FORM_SHIFT: shift_block(stage, acc, y, n); return;
    case FORM_FLOAT: float_block(stage, acc, y, n); return;
    default:
        for (int64_t i = 0; i < n; i++) y[i] = npuc_output_one(stage, acc[i]) - stage->zero;
    }
}

void npuc_operand_init(npuc_operand *operand, const void *data, int32_t dtype, int32_t zero, int32_t rank, const int64_t *shape,
                       const int64_t *stride)
{
    int32_t k = 0;
    operand->data = data;
    operand->dtype = dtype;
    operand->zero = zero;
    for (int32_t i = 0; i < rank; i++) {
        if (shape[i] == 1) continue;
        if (k > 0 && operand->stride[k - 1] == stride[i] * shape[i]) {
            operand->shape[k - 1] *= shape[i];
            operand->stride[k - 1] = stride[i];
        } else {
            operand->shape[k] = shape[i];
            operand->stride[k++] = stride[i];
        }
    }
    if (k == 0) {
        operand->shape[0] = 1;
        operand->stride[k++] = 1;
    }
    operand->rank = k;
}

#define LOAD_RUN(type)                                                                                                                     \
    NPUC_INLINE void load_##type##_body(const type *restrict x, int64_t n, int64_t stride, int32_t zero, int32_t *restrict block)          \
    {                                                                                                                                      \
        if (stride == 1)                                                                                                                   \
            for (int64_t i = 0; i < n; i++) block[i] = x[i] - zero;                                                                        \
        else                                                                                                                               \
            for (int64_t i = 0; i < n; i++) block[i] = x[i * stride] - zero;                                                               \
    }                                                                                                                                      \
    NPUC_TWICE(load_##type, (const type *restrict x, int64_t n, int64_t stride, int32_t zero, int32_t *restrict block),                    \
               (x, n, stride, zero, block))

LOAD_RUN(int8_t)
LOAD_RUN(uint8_t)
LOAD_RUN(int16_t)
LOAD_RUN(int32_t)

static void load_run(const npuc_operand *x, int64_t at, int64_t n, int64_t stride, int32_t *block)
{
    switch (x->dtype) {
    case NPUC_I8: load_int8_t((const int8_t *)x->data + at, n, stride, x->zero, block); return;
    case NPUC_U8: load_uint8_t((const uint8_t *)x->data + at, n, stride, x->zero, block); return;
    case NPUC_I16: load_int16_t((const int16_t *)x->data + at, n, stride, x->zero, block); return;
    default: load_int32_t((const int32_t *)x->data + at, n, stride, x->zero, block); return;
    }
}

void npuc_load_block(const npuc_operand *x, int64_t start, int64_t n, int32_t *block)
{
    int64_t index[NPUC_MAX_RANK], rest = start, at = 0;
    int32_t last = x->rank - 1;
    for (int32_t i = last; i >= 0; i--) {
        index[i] = rest % x->shape[i];
        rest /= x->shape[i];
        at += index[i] * x->stride[i];
    }
    while (n > 0) {
        int64_t run = x->shape[last] - index[last];
        if (run > n) run = n;
        load_run(x, at, run, x->stride[last], block);
        block += run;
        n -= run;
        at += run * x->stride[last];
        index[last] += run;
        for (int32_t i = last; i > 0 && index[i] == x->shape[i]; i--) {
            at += x->stride[i - 1] - index[i] * x->stride[i];
            index[i] = 0;
            index[i - 1]++;
        }
    }
}

#define STORE_RUN(type)                                                                                                                    \
    NPUC_INLINE void store_##type##_body(const int32_t *restrict block, int64_t n, int32_t lo, int32_t hi, int32_t zero, type *restrict y) \
    {                                                                                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                                                                  \
            int32_t v = block[i] < lo ? lo : block[i];                                                                                     \
            v = v > hi ? hi : v;                                                                                                           \
            y[i] = (type)(v + zero);                                                                                                       \
        }                                                                                                                                  \
    }                                                                                                                                      \
    NPUC_TWICE(store_##type, (const int32_t *restrict block, int64_t n, int32_t lo, int32_t hi, int32_t zero, type *restrict y),           \
               (block, n, lo, hi, zero, y))

STORE_RUN(int8_t)
STORE_RUN(uint8_t)
STORE_RUN(int16_t)

void npuc_store_block(const int32_t *block, int64_t n, int32_t lo, int32_t hi, int32_t zero, int32_t dtype, void *y, int64_t start)
{
    switch (dtype) {
    case NPUC_I8: store_int8_t(block, n, lo, hi, zero, (int8_t *)y + start); return;
    case NPUC_U8: store_uint8_t(block, n, lo, hi, zero, (uint8_t *)y + start); return;
    default: store_int16_t(block, n, lo, hi, zero, (int16_t *)y + start); return;
    }
}
