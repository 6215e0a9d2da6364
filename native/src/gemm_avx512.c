/*
 * The kernels for AVX-512 with VNNI: vpdpbusd for bytes (64 products an instruction), vpdpwssd for words (32).
 *
 * A tile is up to 12 rows by 2 panels: 24 accumulators, two weight registers and one broadcast of four activations fill the
 * register file, and hide the latency of the multiply-add.
 */
#if defined(__x86_64__)
#include "gemm.h"

#include <immintrin.h>
#include <string.h>

#define ALWAYS static inline __attribute__((always_inline))
#define ROWS 12

ALWAYS void copy_bytes(uint8_t *dst, const uint8_t *src, ptrdiff_t n, int flip) {
    const __m512i sign = _mm512_set1_epi8(flip ? (char)0x80 : 0);
    for (; n > 64; n -= 64, src += 64, dst += 64)
        _mm512_storeu_si512(dst, _mm512_xor_si512(_mm512_loadu_si512(src), sign));
    const __mmask64 mask = n >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << n) - 1;
    _mm512_mask_storeu_epi8(dst, mask, _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, src), sign));
}

ALWAYS void widen_bytes(uint8_t *dst, const uint8_t *src, ptrdiff_t n, int is_signed) {
    for (; n > 0; n -= 32, src += 32, dst += 64) {
        const __mmask32 mask = n >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << n) - 1;
        const __m256i bytes = _mm256_maskz_loadu_epi8(mask, src);
        _mm512_mask_storeu_epi16(dst, mask, is_signed ? _mm512_cvtepi8_epi16(bytes) : _mm512_cvtepu8_epi16(bytes));
    }
}

#include "gemm_common.h"

ALWAYS __m512i broadcast(const uint8_t *p) {
    int32_t word;
    memcpy(&word, p, 4);
    return _mm512_set1_epi32(word);
}

/* rows, panels, flip and words are constants in every caller, so that the accumulators live in registers. */
ALWAYS void tile(int rows, int panels, int flip, int words, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, const uint8_t *b,
                 ptrdiff_t panel_bytes, const int32_t *bias, int32_t *c) {
    __m512i acc[ROWS][NPUC_MAX_PANELS];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++) acc[r][p] = _mm512_loadu_si512(bias + p * NPUC_PANEL);
    const __m512i sign = _mm512_set1_epi8((char)0x80);
    const uint8_t *a0 = a, *a1 = a + 4 * stride, *a2 = a + 8 * stride;
    const ptrdiff_t stride3 = 3 * stride;
    for (ptrdiff_t i = 0; i < k; i++) {
        __m512i w[NPUC_MAX_PANELS];
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++) w[p] = _mm512_loadu_si512(b + p * panel_bytes);
        b += 64;
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            const uint8_t *base = r < 4 ? a0 : r < 8 ? a1 : a2;
            __m512i x = broadcast(base + (r % 4 == 3 ? stride3 : r % 4 * stride));
            if (flip) x = _mm512_xor_si512(x, sign);
#pragma GCC unroll 2
            for (int p = 0; p < panels; p++)
                acc[r][p] = words ? _mm512_dpwssd_epi32(acc[r][p], x, w[p]) : _mm512_dpbusd_epi32(acc[r][p], x, w[p]);
        }
        a0 += 4, a1 += 4, a2 += 4;
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++) _mm512_storeu_si512(c + (r * panels + p) * NPUC_PANEL, acc[r][p]);
}

typedef void tile_function(ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, const uint8_t *b, ptrdiff_t panel_bytes,
                           const int32_t *bias, int32_t *c);

#define TILE(rows, panels, flip, words)                                                                                       \
    static void tile_##rows##_##panels##_##flip##_##words(ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, const uint8_t *b,  \
                                                          ptrdiff_t panel_bytes, const int32_t *bias, int32_t *c) {           \
        tile(rows, panels, flip, words, k, a, stride, b, panel_bytes, bias, c);                                               \
    }
#define TILES(flip, words)                                                                                                    \
    TILE(1, 1, flip, words) TILE(2, 1, flip, words) TILE(3, 1, flip, words) TILE(4, 1, flip, words) TILE(5, 1, flip, words)   \
    TILE(6, 1, flip, words) TILE(7, 1, flip, words) TILE(8, 1, flip, words) TILE(9, 1, flip, words) TILE(10, 1, flip, words)  \
    TILE(11, 1, flip, words) TILE(12, 1, flip, words) TILE(1, 2, flip, words) TILE(2, 2, flip, words) TILE(3, 2, flip, words) \
    TILE(4, 2, flip, words) TILE(5, 2, flip, words) TILE(6, 2, flip, words) TILE(7, 2, flip, words) TILE(8, 2, flip, words)   \
    TILE(9, 2, flip, words) TILE(10, 2, flip, words) TILE(11, 2, flip, words) TILE(12, 2, flip, words)
TILES(0, 0)
TILES(1, 0)
TILES(0, 1)

#define ROW(panels, flip, words)                                                                                              \
    {                                                                                                                         \
        tile_1_##panels##_##flip##_##words, tile_2_##panels##_##flip##_##words, tile_3_##panels##_##flip##_##words,           \
            tile_4_##panels##_##flip##_##words, tile_5_##panels##_##flip##_##words, tile_6_##panels##_##flip##_##words,       \
            tile_7_##panels##_##flip##_##words, tile_8_##panels##_##flip##_##words, tile_9_##panels##_##flip##_##words,       \
            tile_10_##panels##_##flip##_##words, tile_11_##panels##_##flip##_##words, tile_12_##panels##_##flip##_##words     \
    }
static tile_function *const tiles8[2][2][ROWS] = {{ROW(1, 0, 0), ROW(2, 0, 0)}, {ROW(1, 1, 0), ROW(2, 1, 0)}};
static tile_function *const tiles16[2][ROWS] = {ROW(1, 0, 1), ROW(2, 0, 1)};

static void tile8(int rows, int panels, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, int flip, const int8_t *b,
                  ptrdiff_t panel_bytes, const int32_t *bias, int32_t *c) {
    tiles8[flip != 0][panels - 1][rows - 1](k, a, stride, (const uint8_t *)b, panel_bytes, bias, c);
}

static void tile16(int rows, int panels, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, const int16_t *b,
                   ptrdiff_t panel_bytes, const int32_t *bias, int32_t *c) {
    tiles16[panels - 1][rows - 1](k, a, stride, (const uint8_t *)b, panel_bytes, bias, c);
}

/* --- the output stage ------------------------------------------------------------------------------------------------ */

/* The parameters of one panel, in the form its kind wants them. Even and odd lanes are the two halves of 64-bit products. */
typedef struct {
    __m512i even, odd;             /* multipliers */
    __m512i left, right;           /* double: shifts; pow2: `right` */
    __mmask16 rounds;              /* double, pow2: lanes whose right shift is not 0 */
    __m512i shift_even, shift_odd; /* single: 64-bit shifts */
    __m512i half_even, half_odd;
    __m512 scale;
    __m512i lo, hi, zero_point;
} parameters;

ALWAYS parameters load_parameters(const npuc_stage *s, int panel, int kind) {
    parameters q;
    const ptrdiff_t at = (ptrdiff_t)panel * NPUC_PANEL;
    const __m512i one = _mm512_set1_epi64(1);
    if (kind < NPUC_POW2) {
        q.even = _mm512_loadu_si512(s->multiplier + at);
        q.odd = _mm512_srli_epi64(q.even, 32);
    }
    if (kind == NPUC_DOUBLE) {
        const __m512i shift = _mm512_loadu_si512(s->shift + at), bits = _mm512_set1_epi32(31), zero = _mm512_setzero_si512();
        q.left = _mm512_max_epi32(_mm512_sub_epi32(bits, shift), zero);
        q.right = _mm512_max_epi32(_mm512_sub_epi32(shift, bits), zero);
        q.rounds = _mm512_test_epi32_mask(q.right, q.right);
        q.right = _mm512_sub_epi32(q.right, _mm512_set1_epi32(1));
    } else if (kind == NPUC_POW2) {
        q.right = _mm512_loadu_si512(s->shift + at);
        q.rounds = _mm512_test_epi32_mask(q.right, q.right);
    } else if (kind == NPUC_FLOAT) {
        q.scale = _mm512_loadu_ps(s->scale + at);
    } else if (kind == NPUC_SINGLE || kind == NPUC_SINGLE_EVEN) {
        const __m512i shift = _mm512_loadu_si512(s->shift + at);
        q.shift_even = _mm512_and_si512(shift, _mm512_set1_epi64(0xffffffff));
        q.shift_odd = _mm512_srli_epi64(shift, 32);
        q.half_even = _mm512_sllv_epi64(one, _mm512_sub_epi64(q.shift_even, one));
        q.half_odd = _mm512_sllv_epi64(one, _mm512_sub_epi64(q.shift_odd, one));
        if (kind == NPUC_SINGLE_EVEN) {
            q.half_even = _mm512_sub_epi64(q.half_even, one);
            q.half_odd = _mm512_sub_epi64(q.half_odd, one);
        }
    }
    if (kind >= 0) {
        /* Clamping before the zero point is added is the same, and cannot overflow. */
        const int64_t lo = (int64_t)s->lo - s->zero_point, hi = (int64_t)s->hi - s->zero_point;
        q.lo = _mm512_set1_epi32(lo < INT32_MIN ? INT32_MIN : lo > INT32_MAX ? INT32_MAX : (int32_t)lo);
        q.hi = _mm512_set1_epi32(hi > INT32_MAX ? INT32_MAX : hi < INT32_MIN ? INT32_MIN : (int32_t)hi);
        q.zero_point = _mm512_set1_epi32(s->zero_point);
    }
    return q;
}

ALWAYS __m512i shift_product(__m512i product, __m512i half, __m512i shift, int even) {
    if (even) {
        const __m512i one = _mm512_set1_epi64(1);
        product = _mm512_add_epi64(product, _mm512_and_si512(_mm512_srlv_epi64(product, shift), one));
    }
    return _mm512_srav_epi64(_mm512_add_epi64(product, half), shift);
}

ALWAYS __m512i requantize(__m512i acc, const parameters *q, int kind) {
    if (kind < 0) return acc;
    __m512i y;
    if (kind == NPUC_DOUBLE) {
        /* srdhm is a floor shift of the product + 2^30 (no multiplier is negative); the odd result is left where it is. */
        const __m512i nudge = _mm512_set1_epi64((int64_t)1 << 30);
        acc = _mm512_sllv_epi32(acc, q->left);
        const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(acc, q->even), nudge);
        const __m512i odd = _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(acc, 32), q->odd), nudge);
        const __m512i high = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 31), 0xaaaa, _mm512_slli_epi64(odd, 1));
        /* Half away from zero: (((x - (x < 0)) >> (s - 1)) + 1) >> 1. */
        y = _mm512_add_epi32(high, _mm512_srai_epi32(high, 31));
        y = _mm512_srai_epi32(_mm512_sub_epi32(_mm512_srav_epi32(y, q->right), _mm512_set1_epi32(-1)), 1);
        y = _mm512_mask_mov_epi32(high, q->rounds, y);
    } else if (kind == NPUC_SINGLE || kind == NPUC_SINGLE_EVEN) {
        const int to_even = kind == NPUC_SINGLE_EVEN;
        const __m512i even = shift_product(_mm512_mul_epi32(acc, q->even), q->half_even, q->shift_even, to_even);
        const __m512i odd =
            shift_product(_mm512_mul_epi32(_mm512_srli_epi64(acc, 32), q->odd), q->half_odd, q->shift_odd, to_even);
        y = _mm512_mask_mov_epi32(even, 0xaaaa, _mm512_slli_epi64(odd, 32));
    } else if (kind == NPUC_POW2) {
        /* (x >> s) + bit s - 1 of x. */
        const __m512i one = _mm512_set1_epi32(1);
        const __m512i bit = _mm512_and_si512(_mm512_srav_epi32(acc, _mm512_sub_epi32(q->right, one)), one);
        y = _mm512_srav_epi32(acc, q->right);
        y = _mm512_mask_add_epi32(y, q->rounds, y, bit);
    } else {
        /* Too negative a value converts to INT32_MIN, which is right; too positive a one must be clamped first. */
        const __m512 scaled = _mm512_min_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(acc), q->scale), _mm512_set1_ps(2147483520.0f));
        y = _mm512_cvtps_epi32(scaled);
    }
    y = _mm512_min_epi32(_mm512_max_epi32(y, q->lo), q->hi);
    return _mm512_add_epi32(y, q->zero_point);
}

ALWAYS void store(int32_t dtype, uint8_t *out, __mmask16 mask, __m512i y) {
    if (dtype == NPUC_I16)
        _mm512_mask_cvtepi32_storeu_epi16(out, mask, y);
    else if (dtype == NPUC_I32)
        _mm512_mask_storeu_epi32(out, mask, y);
    else if (mask == 0xffff)
        _mm_storeu_si128((__m128i *)(void *)out, _mm512_cvtepi32_epi8(y));
    else
        _mm_mask_storeu_epi8(out, mask, _mm512_cvtepi32_epi8(y));
}

ALWAYS void finish_kind(const npuc_stage *s, int kind, int rows, int panels, int first_panel, ptrdiff_t channels,
                        const int32_t *acc, uint8_t *const *out) {
    const int32_t dtype = s->dtype;
    const ptrdiff_t size = npuc_element_size(dtype);
    for (int p = 0; p < panels; p++) {
        const ptrdiff_t left = channels - p * NPUC_PANEL;
        if (kind >= 0 && !s->vectorable[first_panel + p]) {
            finish_scalar(s, rows, (ptrdiff_t)panels * NPUC_PANEL, first_panel + p, left < NPUC_PANEL ? (int)left : NPUC_PANEL,
                          acc + p * NPUC_PANEL, out, p * NPUC_PANEL * size);
            continue;
        }
        const __mmask16 mask = left >= NPUC_PANEL ? 0xffff : (__mmask16)((1u << left) - 1);
        const parameters q = load_parameters(s, first_panel + p, kind);
        for (int r = 0; r < rows; r++)
            store(dtype, out[r] + p * NPUC_PANEL * size, mask,
                  requantize(_mm512_loadu_si512(acc + ((ptrdiff_t)r * panels + p) * NPUC_PANEL), &q, kind));
    }
}

static void finish(const npuc_stage *s, int rows, int panels, int first_panel, ptrdiff_t channels, const int32_t *acc,
                   uint8_t *const *out) {
    switch (s->kind) {
    case NPUC_DOUBLE: finish_kind(s, NPUC_DOUBLE, rows, panels, first_panel, channels, acc, out); break;
    case NPUC_SINGLE: finish_kind(s, NPUC_SINGLE, rows, panels, first_panel, channels, acc, out); break;
    case NPUC_SINGLE_EVEN: finish_kind(s, NPUC_SINGLE_EVEN, rows, panels, first_panel, channels, acc, out); break;
    case NPUC_POW2: finish_kind(s, NPUC_POW2, rows, panels, first_panel, channels, acc, out); break;
    case NPUC_FLOAT: finish_kind(s, NPUC_FLOAT, rows, panels, first_panel, channels, acc, out); break;
    default: finish_kind(s, -1, rows, panels, first_panel, channels, acc, out);
    }
}

/* --- depthwise ------------------------------------------------------------------------------------------------------- */

ALWAYS __m512i load_wide(const void *p, ptrdiff_t at, int dtype, __mmask16 mask) {
    if (dtype == NPUC_I16) return _mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(mask, (const int16_t *)p + at));
    const __m128i bytes = _mm_maskz_loadu_epi8(mask, (const uint8_t *)p + at);
    return dtype == NPUC_I8 ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
}

/* The weight stands in the low half of each lane and 0 in the high half, so vpdpwssd is a 16 x 16 multiply-add. */
ALWAYS void depthwise_pixels(const npuc_depthwise *d, int pixels, int dtype) {
    int32_t tile_acc[NPUC_MAX_PIXELS * NPUC_PANEL];
    uint8_t *out[NPUC_MAX_PIXELS];
    const ptrdiff_t size = npuc_element_size(d->stage->dtype);
    const int taps = d->tap_count;
    for (ptrdiff_t c0 = 0; c0 < d->channels; c0 += NPUC_PANEL) {
        const ptrdiff_t left = d->channels - c0;
        const __mmask16 mask = left >= NPUC_PANEL ? 0xffff : (__mmask16)((1u << left) - 1);
        __m512i acc[NPUC_MAX_PIXELS];
#pragma GCC unroll 8
        for (int p = 0; p < pixels; p++) acc[p] = _mm512_loadu_si512(d->bias + c0);
        for (int t = 0; t < taps; t++) {
            const __m512i w = _mm512_loadu_si512(d->weights + t * d->weight_stride + c0);
#pragma GCC unroll 8
            for (int p = 0; p < pixels; p++)
                acc[p] = _mm512_dpwssd_epi32(acc[p], load_wide(d->taps[p * taps + t], c0, dtype, mask), w);
        }
#pragma GCC unroll 8
        for (int p = 0; p < pixels; p++) {
            _mm512_storeu_si512(tile_acc + p * NPUC_PANEL, acc[p]);
            out[p] = d->out[p] + c0 * size;
        }
        finish(d->stage, pixels, 1, d->first_panel + (int)(c0 / NPUC_PANEL), left, tile_acc, out);
    }
}

#define DEPTHWISE(n)                                                                                                          \
    static void depthwise_##n(const npuc_depthwise *d) {                                                                      \
        if (d->dtype == NPUC_I8)                                                                                              \
            depthwise_pixels(d, n, NPUC_I8);                                                                                  \
        else if (d->dtype == NPUC_U8)                                                                                         \
            depthwise_pixels(d, n, NPUC_U8);                                                                                  \
        else                                                                                                                  \
            depthwise_pixels(d, n, NPUC_I16);                                                                                 \
    }
DEPTHWISE(1) DEPTHWISE(2) DEPTHWISE(3) DEPTHWISE(4) DEPTHWISE(5) DEPTHWISE(6) DEPTHWISE(7) DEPTHWISE(8)

static void depthwise(const npuc_depthwise *d) {
    static void (*const by_pixels[NPUC_MAX_PIXELS])(const npuc_depthwise *) = {
        depthwise_1, depthwise_2, depthwise_3, depthwise_4, depthwise_5, depthwise_6, depthwise_7, depthwise_8};
    by_pixels[d->pixels - 1](d);
}

const npuc_gemm_ops npuc_gemm_avx512 = {
    .name = "avx512vnni",
    .bytes = 1,
    .rows8 = ROWS,
    .rows16 = ROWS,
    .panels = 2,
    .tile8 = tile8,
    .tile16 = tile16,
    .finish = finish,
    .gather8 = gather8,
    .gather16 = gather16,
    .depthwise = depthwise,
};
#endif
