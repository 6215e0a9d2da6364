/*
 * The kernels for AVX2: vpmaddwd on sign-extended operands, 16 products an instruction, exact for any bytes.
 *
 * (vpmaddubsw would take bytes, but saturates its pairs at 16 bits.) A tile is up to 6 rows by one panel: 12 accumulators,
 * two weight registers, one broadcast pair and one product.
 */
#include "gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define ALWAYS static inline __attribute__((always_inline))
#define ROWS 6
#define PIXELS 4 /* of a depthwise tile */

ALWAYS void copy_bytes(uint8_t *dst, const uint8_t *src, ptrdiff_t n, int flip)
{
    if (!flip) {
        memcpy(dst, src, (size_t)n);
        return;
    }
    for (ptrdiff_t i = 0; i < n; i++) dst[i] = src[i] ^ 0x80;
}

ALWAYS void widen_bytes(uint8_t *dst, const uint8_t *src, ptrdiff_t n, int is_signed)
{
    ptrdiff_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(src + i));
        _mm256_storeu_si256((__m256i *)(void *)(dst + 2 * i), is_signed ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes));
    }
    for (; i < n; i++) {
        const int16_t word = is_signed ? (int16_t)(int8_t)src[i] : (int16_t)src[i];
        memcpy(dst + 2 * i, &word, 2);
    }
}

#include "gemm_common.h"

ALWAYS __m256i load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }

/* rows is a constant in every caller, so that the accumulators live in registers. */
ALWAYS void begin(__m256i acc[ROWS][2], int rows, const int32_t *bias)
{
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) acc[r][0] = load(bias), acc[r][1] = load(bias + 8);
}

/* Rows 0, 2 and 4 begin at a0, a1 and a2. */
ALWAYS void add_products(__m256i acc[ROWS][2], int rows, ptrdiff_t k, const uint8_t *a0, const uint8_t *a1, const uint8_t *a2,
                         ptrdiff_t stride, const uint8_t *b)
{
    for (ptrdiff_t i = 0; i < k; i++, b += 64, a0 += 4, a1 += 4, a2 += 4) {
        const __m256i w0 = load(b), w1 = load(b + 32);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            int32_t pair;
            memcpy(&pair, (r < 2 ? a0 : r < 4 ? a1 : a2) + r % 2 * stride, 4);
            const __m256i x = _mm256_set1_epi32(pair);
            acc[r][0] = _mm256_add_epi32(acc[r][0], _mm256_madd_epi16(x, w0));
            acc[r][1] = _mm256_add_epi32(acc[r][1], _mm256_madd_epi16(x, w1));
        }
    }
}

ALWAYS void end(__m256i acc[ROWS][2], int rows, int32_t *c)
{
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        _mm256_storeu_si256((__m256i *)(void *)(c + r * NPUC_PANEL), acc[r][0]);
        _mm256_storeu_si256((__m256i *)(void *)(c + r * NPUC_PANEL + 8), acc[r][1]);
    }
}

ALWAYS void tile(int rows, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, const uint8_t *b, const int32_t *bias, int32_t *c)
{
    __m256i acc[ROWS][2];
    begin(acc, rows, bias);
    add_products(acc, rows, k, a, a + 2 * stride, a + 4 * stride, stride, b);
    end(acc, rows, c);
}

static void tile16(int rows, int panels, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, const int16_t *b, ptrdiff_t panel_bytes,
                   const int32_t *bias, int32_t *c)
{
    (void)panels, (void)panel_bytes; /* one panel at a time */
    const uint8_t *w = (const uint8_t *)b;
    switch (rows) {
    case 1: tile(1, k, a, stride, w, bias, c); break;
    case 2: tile(2, k, a, stride, w, bias, c); break;
    case 3: tile(3, k, a, stride, w, bias, c); break;
    case 4: tile(4, k, a, stride, w, bias, c); break;
    case 5: tile(5, k, a, stride, w, bias, c); break;
    default: tile(6, k, a, stride, w, bias, c);
    }
}

/* --- the output stage ------------------------------------------------------------------------------------------------ */

/* The parameters of half a panel; see gemm_avx512.c, whose formulas these are. */
typedef struct {
    __m256i even, odd;
    __m256i pre, add, post, unit;
    __m256i left, right, rounds;
    __m256i shift_even, shift_odd, half_even, half_odd, bias_even, bias_odd;
    __m256 scale;
    __m256i lo, hi, zero_point;
} parameters;

ALWAYS parameters load_parameters(const npuc_stage *s, ptrdiff_t at, int kind, int level)
{
    parameters q;
    const __m256i one64 = _mm256_set1_epi64x(1), zero = _mm256_setzero_si256();
    if (kind == NPUC_SINGLE_EVEN) level = NPUC_VECTOR; /* it has the general form only */
    if (NPUC_HAS_MULTIPLIER(kind)) {
        q.even = load(s->multiplier + at);
        q.odd = _mm256_srli_epi64(q.even, 32);
    }
    if (level == NPUC_FAST && kind != NPUC_FLOAT_SCALE) {
        q.pre = load(s->pre + at);
        q.add = load(s->add + at);
        q.post = load(s->post + at);
        q.unit = _mm256_min_epi32(q.post, _mm256_set1_epi32(1));
    } else if (kind == NPUC_DOUBLE_ROUNDING) {
        const __m256i shift = load(s->shift + at), bits = _mm256_set1_epi32(31);
        q.left = _mm256_max_epi32(_mm256_sub_epi32(bits, shift), zero);
        q.right = _mm256_max_epi32(_mm256_sub_epi32(shift, bits), zero);
        q.rounds = _mm256_cmpgt_epi32(q.right, zero);
        q.right = _mm256_sub_epi32(q.right, _mm256_set1_epi32(1));
    } else if (kind == NPUC_POW2) {
        q.right = load(s->shift + at);
        q.rounds = _mm256_cmpgt_epi32(q.right, zero);
    } else if (kind == NPUC_FLOAT_SCALE) {
        q.scale = _mm256_loadu_ps(s->scale + at);
    } else if (kind == NPUC_SINGLE_ROUNDING || kind == NPUC_SINGLE_EVEN) {
        const __m256i shift = load(s->shift + at);
        q.shift_even = _mm256_and_si256(shift, _mm256_set1_epi64x(0xffffffff));
        q.shift_odd = _mm256_srli_epi64(shift, 32);
        q.half_even = _mm256_sllv_epi64(one64, _mm256_sub_epi64(q.shift_even, one64));
        q.half_odd = _mm256_sllv_epi64(one64, _mm256_sub_epi64(q.shift_odd, one64));
        /* No 64-bit arithmetic shift here: add 2^63, shift logically, subtract 2^63 >> shift. */
        q.bias_even = _mm256_srlv_epi64(_mm256_set1_epi64x(INT64_MIN), q.shift_even);
        q.bias_odd = _mm256_srlv_epi64(_mm256_set1_epi64x(INT64_MIN), q.shift_odd);
        if (kind == NPUC_SINGLE_EVEN) {
            q.half_even = _mm256_sub_epi64(q.half_even, one64);
            q.half_odd = _mm256_sub_epi64(q.half_odd, one64);
        }
    }
    if (kind >= 0) {
        const int64_t lo = (int64_t)s->lo - s->zero_point, hi = (int64_t)s->hi - s->zero_point;
        q.lo = _mm256_set1_epi32(lo < INT32_MIN ? INT32_MIN : lo > INT32_MAX ? INT32_MAX : (int32_t)lo);
        q.hi = _mm256_set1_epi32(hi > INT32_MAX ? INT32_MAX : hi < INT32_MIN ? INT32_MIN : (int32_t)hi);
        q.zero_point = _mm256_set1_epi32(s->zero_point);
    }
    return q;
}

ALWAYS __m256i shift_product(__m256i product, __m256i half, __m256i shift, __m256i bias, int even)
{
    if (even) product = _mm256_add_epi64(product, _mm256_and_si256(_mm256_srlv_epi64(product, shift), _mm256_set1_epi64x(1)));
    const __m256i up = _mm256_xor_si256(_mm256_add_epi64(product, half), _mm256_set1_epi64x(INT64_MIN));
    return _mm256_sub_epi64(_mm256_srlv_epi64(up, shift), bias);
}

/* The high halves of the products of accumulators, and of `nudge` added to each. */
ALWAYS __m256i high_halves(__m256i acc, const parameters *q, int64_t nudge)
{
    __m256i even = _mm256_mul_epi32(acc, q->even), odd = _mm256_mul_epi32(_mm256_srli_epi64(acc, 32), q->odd);
    if (nudge) even = _mm256_add_epi64(even, _mm256_set1_epi64x(nudge)), odd = _mm256_add_epi64(odd, _mm256_set1_epi64x(nudge));
    return _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
}

/* rq(acc) where the panel is NPUC_FAST, neither zero point nor saturation yet; stage.h explains the formulas. */
ALWAYS __m256i rescale_fast(__m256i acc, const parameters *q, int kind)
{
    if (kind == NPUC_POW2) return _mm256_srav_epi32(_mm256_add_epi32(acc, q->add), q->post);
    if (kind == NPUC_FLOAT_SCALE) return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_cvtepi32_ps(acc), q->scale));
    acc = _mm256_sllv_epi32(acc, q->pre);
    if (kind == NPUC_SINGLE_ROUNDING) return _mm256_srav_epi32(_mm256_add_epi32(high_halves(acc, q, 0), q->add), q->post);
    /* Half away from zero: one less for a negative number, where anything is rounded at all. */
    const __m256i high = high_halves(acc, q, (int64_t)1 << 31);
    const __m256i less = _mm256_and_si256(_mm256_srai_epi32(high, 31), q->unit);
    return _mm256_srav_epi32(_mm256_sub_epi32(_mm256_add_epi32(high, q->add), less), q->post);
}

/* The same for all parameters that vectors can do. */
ALWAYS __m256i rescale(__m256i acc, const parameters *q, int kind)
{
    __m256i y;
    if (kind == NPUC_DOUBLE_ROUNDING) {
        const __m256i nudge = _mm256_set1_epi64x((int64_t)1 << 30);
        acc = _mm256_sllv_epi32(acc, q->left);
        const __m256i even = _mm256_add_epi64(_mm256_mul_epi32(acc, q->even), nudge);
        const __m256i odd = _mm256_add_epi64(_mm256_mul_epi32(_mm256_srli_epi64(acc, 32), q->odd), nudge);
        const __m256i high = _mm256_blend_epi32(_mm256_srli_epi64(even, 31), _mm256_slli_epi64(odd, 1), 0xaa);
        y = _mm256_add_epi32(high, _mm256_srai_epi32(high, 31));
        y = _mm256_srai_epi32(_mm256_sub_epi32(_mm256_srav_epi32(y, q->right), _mm256_set1_epi32(-1)), 1);
        y = _mm256_blendv_epi8(high, y, q->rounds);
    } else if (kind == NPUC_SINGLE_ROUNDING || kind == NPUC_SINGLE_EVEN) {
        const int to_even = kind == NPUC_SINGLE_EVEN;
        const __m256i even = shift_product(_mm256_mul_epi32(acc, q->even), q->half_even, q->shift_even, q->bias_even, to_even);
        const __m256i odd =
            shift_product(_mm256_mul_epi32(_mm256_srli_epi64(acc, 32), q->odd), q->half_odd, q->shift_odd, q->bias_odd, to_even);
        y = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
    } else if (kind == NPUC_POW2) {
        const __m256i one = _mm256_set1_epi32(1);
        const __m256i bit = _mm256_and_si256(_mm256_srav_epi32(acc, _mm256_sub_epi32(q->right, one)), one);
        y = _mm256_add_epi32(_mm256_srav_epi32(acc, q->right), _mm256_and_si256(bit, q->rounds));
    } else {
        const __m256 scaled = _mm256_min_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(acc), q->scale), _mm256_set1_ps(2147483520.0f));
        y = _mm256_cvtps_epi32(scaled);
    }
    return y;
}

ALWAYS __m256i requantize(__m256i acc, const parameters *q, int kind)
{
    if (kind < 0) return acc;
    const __m256i y = _mm256_min_epi32(_mm256_max_epi32(rescale(acc, q, kind), q->lo), q->hi);
    return _mm256_add_epi32(y, q->zero_point);
}

/* Up to 8 channels. */
ALWAYS void store(int32_t dtype, uint8_t *out, int channels, __m256i y)
{
    uint8_t bytes[32];
    ptrdiff_t size = 4;
    if (dtype == NPUC_I32) {
        _mm256_storeu_si256((__m256i *)(void *)bytes, y);
    } else {
        /* The values fit already, so the saturating packs change nothing. */
        const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
        size = 2;
        if (dtype == NPUC_I16) {
            _mm_storeu_si128((__m128i *)(void *)bytes, words);
        } else {
            const __m128i low = dtype == NPUC_I8 ? _mm_packs_epi16(words, words) : _mm_packus_epi16(words, words);
            if (channels == 8) {
                _mm_storel_epi64((__m128i *)(void *)out, low);
                return;
            }
            _mm_storel_epi64((__m128i *)(void *)bytes, low);
            size = 1;
        }
    }
    memcpy(out, bytes, (size_t)(channels * size));
}

/* A panel of bytes, NPUC_FAST: two rows at a time. Saturating packs and adds clamp as late as they can and so change nothing. */
ALWAYS void finish_bytes(const npuc_stage *s, int kind, int rows, ptrdiff_t acc_stride, ptrdiff_t panel, ptrdiff_t channels,
                         const int32_t *acc, uint8_t *const *out, ptrdiff_t offset)
{
    const parameters q[2] = {load_parameters(s, panel * NPUC_PANEL, kind, NPUC_FAST),
                             load_parameters(s, panel * NPUC_PANEL + 8, kind, NPUC_FAST)};
    const __m256i zero_point = _mm256_set1_epi16((int16_t)s->zero_point), lo = _mm256_set1_epi8((char)s->lo);
    const __m256i hi = _mm256_set1_epi8((char)s->hi), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (int r = 0; r < rows; r += 2) {
        __m256i y[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const int row = r + i / 2 < rows ? r + i / 2 : r;
            const __m256i a = load(acc + row * acc_stride + i % 2 * 8);
            y[i] = kind == NPUC_SINGLE_EVEN ? rescale(a, &q[i % 2], kind) : rescale_fast(a, &q[i % 2], kind);
        }
        const __m256i first = _mm256_adds_epi16(_mm256_packs_epi32(y[0], y[1]), zero_point);
        const __m256i second = _mm256_adds_epi16(_mm256_packs_epi32(y[2], y[3]), zero_point);
        __m256i bytes;
        if (s->dtype == NPUC_I8)
            bytes = _mm256_min_epi8(_mm256_max_epi8(_mm256_packs_epi16(first, second), lo), hi);
        else
            bytes = _mm256_min_epu8(_mm256_max_epu8(_mm256_packus_epi16(first, second), lo), hi);
        bytes = _mm256_permutevar8x32_epi32(bytes, order);
        const __m128i each[2] = {_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)};
        for (int i = 0; i < 2 && r + i < rows; i++) {
            uint8_t *to = out[r + i] + offset;
            if (channels >= NPUC_PANEL)
                _mm_storeu_si128((__m128i *)(void *)to, each[i]);
            else
                memcpy(to, &each[i], (size_t)channels);
        }
    }
}

ALWAYS void finish_kind(const npuc_stage *s, int kind, int rows, int panels, int first_panel, ptrdiff_t channels, const int32_t *acc,
                        uint8_t *const *out)
{
    const int32_t dtype = s->dtype;
    const ptrdiff_t size = npuc_element_size(dtype);
    for (int p = 0; p < panels; p++) {
        const ptrdiff_t left = channels - p * NPUC_PANEL;
        if (kind >= 0 && s->level[first_panel + p] == NPUC_SCALAR) {
            finish_scalar(s, rows, (ptrdiff_t)panels * NPUC_PANEL, first_panel + p, left < NPUC_PANEL ? (int)left : NPUC_PANEL,
                          acc + p * NPUC_PANEL, out, p * NPUC_PANEL * size);
            continue;
        }
        if (kind >= 0 && size == 1 && s->level[first_panel + p] == NPUC_FAST) {
            finish_bytes(s, kind, rows, (ptrdiff_t)panels * NPUC_PANEL, first_panel + p, left, acc + p * NPUC_PANEL, out, p * NPUC_PANEL);
            continue;
        }
        for (int half = 0; half < NPUC_PANEL && half < left; half += 8) {
            const parameters q = load_parameters(s, (ptrdiff_t)(first_panel + p) * NPUC_PANEL + half, kind, NPUC_VECTOR);
            const int count = left - half < 8 ? (int)(left - half) : 8;
            for (int r = 0; r < rows; r++)
                store(dtype, out[r] + (p * NPUC_PANEL + half) * size, count,
                      requantize(load(acc + ((ptrdiff_t)r * panels + p) * NPUC_PANEL + half), &q, kind));
        }
    }
}

static void finish(const npuc_stage *s, int rows, int panels, int first_panel, ptrdiff_t channels, const int32_t *acc, uint8_t *const *out)
{
    switch (s->kind) {
    case NPUC_DOUBLE_ROUNDING: finish_kind(s, NPUC_DOUBLE_ROUNDING, rows, panels, first_panel, channels, acc, out); break;
    case NPUC_SINGLE_ROUNDING: finish_kind(s, NPUC_SINGLE_ROUNDING, rows, panels, first_panel, channels, acc, out); break;
    case NPUC_SINGLE_EVEN: finish_kind(s, NPUC_SINGLE_EVEN, rows, panels, first_panel, channels, acc, out); break;
    case NPUC_POW2: finish_kind(s, NPUC_POW2, rows, panels, first_panel, channels, acc, out); break;
    case NPUC_FLOAT_SCALE: finish_kind(s, NPUC_FLOAT_SCALE, rows, panels, first_panel, channels, acc, out); break;
    default: finish_kind(s, -1, rows, panels, first_panel, channels, acc, out);
    }
}

/* --- windows in an image with its border ----------------------------------------------------------------------------- */

ALWAYS void line_tile(int rows, const npuc_lines *l, const uint8_t *b, const int32_t *bias, int32_t *c)
{
    __m256i acc[ROWS][2];
    begin(acc, rows, bias);
    for (int32_t i = 0; i < l->lines; i++, b += l->steps * 64) {
        const ptrdiff_t at = i * l->line;
        add_products(acc, rows, l->steps, l->a[0] + at, l->a[1] + at, l->a[2] + at, l->stride, b);
    }
    end(acc, rows, c);
}

static void lines16(int rows, int panels, const npuc_lines *l, const uint8_t *b, ptrdiff_t panel_bytes, const int32_t *bias,
                    const npuc_stage *s, int first_panel, ptrdiff_t channels, uint8_t *const *out)
{
    (void)panels, (void)panel_bytes; /* one panel at a time */
    int32_t acc[ROWS * NPUC_PANEL];
    if (rows == ROWS)
        line_tile(ROWS, l, b, bias, acc);
    else
        line_tile(2, l, b, bias, acc);
    finish(s, rows, 1, first_panel, channels, acc, out);
}

static void border16(const npuc_window *w, ptrdiff_t n, ptrdiff_t first, ptrdiff_t count, uint8_t *dst, ptrdiff_t line, int flip)
{
    border(w, n, first, count, dst, line, flip, 1);
}

/* --- depthwise ------------------------------------------------------------------------------------------------------- */

/* Eight channels as int32; fewer come through a buffer, since nothing beyond the row may be read. */
ALWAYS __m256i load_wide(const void *p, ptrdiff_t at, int channels, int dtype)
{
    const ptrdiff_t size = dtype == NPUC_I16 ? 2 : 1;
    const uint8_t *from = (const uint8_t *)p + at * size;
    uint8_t buffer[16] = {0};
    if (channels < 8) {
        memcpy(buffer, from, (size_t)(channels * size));
        from = buffer;
    }
    if (dtype == NPUC_I16) return _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)(const void *)from));
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)from);
    return dtype == NPUC_I8 ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
}

ALWAYS void depthwise_block(const npuc_depthwise *d, int first, int pixels, ptrdiff_t c0, int channels, int dtype, int32_t *to)
{
    __m256i acc[PIXELS];
#pragma GCC unroll 4
    for (int p = 0; p < pixels; p++) acc[p] = load(d->bias + c0);
    for (int t = 0; t < d->tap_count; t++) {
        const __m256i w = load(d->weights + t * d->weight_stride + c0);
#pragma GCC unroll 4
        for (int p = 0; p < pixels; p++) {
            const __m256i x = load_wide(d->taps[(first + p) * d->tap_count + t], c0, channels, dtype);
            acc[p] = _mm256_add_epi32(acc[p], _mm256_madd_epi16(x, w));
        }
    }
#pragma GCC unroll 4
    for (int p = 0; p < pixels; p++) _mm256_storeu_si256((__m256i *)(void *)(to + (first + p) * NPUC_PANEL), acc[p]);
}

ALWAYS void depthwise_panel(const npuc_depthwise *d, ptrdiff_t c0, int dtype, int32_t *to)
{
    for (int half = 0; half < NPUC_PANEL && c0 + half < d->channels; half += 8) {
        const ptrdiff_t left = d->channels - c0 - half;
        int first = 0;
        if (left >= 8)
            for (; first + PIXELS <= d->pixels; first += PIXELS) depthwise_block(d, first, PIXELS, c0 + half, 8, dtype, to + half);
        for (; first < d->pixels; first++) depthwise_block(d, first, 1, c0 + half, left < 8 ? (int)left : 8, dtype, to + half);
    }
}

static void depthwise(const npuc_depthwise *d)
{
    const ptrdiff_t size = npuc_element_size(d->stage->dtype);
    int32_t acc[NPUC_MAX_PIXELS * NPUC_PANEL] = {0};
    uint8_t *out[NPUC_MAX_PIXELS];
    for (ptrdiff_t c0 = 0; c0 < d->channels; c0 += NPUC_PANEL) {
        if (d->dtype == NPUC_I8)
            depthwise_panel(d, c0, NPUC_I8, acc);
        else if (d->dtype == NPUC_U8)
            depthwise_panel(d, c0, NPUC_U8, acc);
        else
            depthwise_panel(d, c0, NPUC_I16, acc);
        for (int p = 0; p < d->pixels; p++) out[p] = d->out[p] + c0 * size;
        finish(d->stage, d->pixels, 1, d->first_panel + (int)(c0 / NPUC_PANEL), d->channels - c0, acc, out);
    }
}

const npuc_gemm_ops npuc_gemm_avx2 = {
    .name = "avx2",
    .bytes = 0,
    .rows8 = ROWS,
    .rows16 = ROWS,
    .panels = 1,
    .tile16 = tile16,
    .lines = lines16,
    .border = border16,
    .neighbours = 2,
    .finish = finish,
    .gather8 = gather8,
    .gather16 = gather16,
    .depthwise = depthwise,
};
#endif
