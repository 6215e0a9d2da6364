/*
 * The kernels for AVX-512 with VNNI: vpdpbusd for bytes (64 products an instruction), vpdpwssd for words (32).
 *
 * A tile is up to 12 rows by 2 panels: 24 accumulators, two weight registers and one broadcast of four activations fill the
 * register file, and hide the latency of the multiply-add.
 */
#include "gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define ALWAYS static inline __attribute__((always_inline))
#define ROWS 12

/*
 * Copies write whole vectors, up to 63 bytes past the end: what follows in the gathered rows is written later, and there is
 * room behind the last one. (Masked stores of bytes are slow on some CPUs; masked loads are not.)
 */
ALWAYS void copy_bytes(uint8_t *dst, const uint8_t *src, ptrdiff_t n, int flip)
{
    const __m512i sign = _mm512_set1_epi8(flip ? (char)0x80 : 0);
    for (; n > 64; n -= 64, src += 64, dst += 64) _mm512_storeu_si512(dst, _mm512_xor_si512(_mm512_loadu_si512(src), sign));
    const __mmask64 mask = ~(__mmask64)0 >> (64 - n);
    _mm512_storeu_si512(dst, _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, src), sign));
}

ALWAYS void widen_bytes(uint8_t *dst, const uint8_t *src, ptrdiff_t n, int is_signed)
{
    for (; n > 0; n -= 32, src += 32, dst += 64) {
        const __mmask32 mask = n >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << n) - 1;
        const __m256i bytes = _mm256_maskz_loadu_epi8(mask, src);
        _mm512_storeu_si512(dst, is_signed ? _mm512_cvtepi8_epi16(bytes) : _mm512_cvtepu8_epi16(bytes));
    }
}

/* Stores of the first bytes; whole vectors without a mask. */
ALWAYS void store64(uint8_t *out, __mmask64 mask, __m512i x)
{
    if (mask == ~(__mmask64)0)
        _mm512_storeu_si512(out, x);
    else
        _mm512_mask_storeu_epi8(out, mask, x);
}

ALWAYS void store32(uint8_t *out, __mmask32 mask, __m256i x)
{
    if (mask == ~(__mmask32)0)
        _mm256_storeu_si256((__m256i *)(void *)out, x);
    else
        _mm256_mask_storeu_epi8(out, mask, x);
}

ALWAYS void store16(uint8_t *out, __mmask16 mask, __m128i x)
{
    if (mask == 0xffff)
        _mm_storeu_si128((__m128i *)(void *)out, x);
    else
        _mm_mask_storeu_epi8(out, mask, x);
}

#include "gemm_common.h"

ALWAYS __m512i broadcast(const uint8_t *p)
{
    int32_t word;
    memcpy(&word, p, 4);
    return _mm512_set1_epi32(word);
}

/* rows, panels, flip and words are constants in every caller, so that the accumulators live in registers. */
ALWAYS void begin(__m512i acc[ROWS][NPUC_MAX_PANELS], int rows, int panels, const int32_t *bias)
{
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++) acc[r][p] = _mm512_loadu_si512(bias + p * NPUC_PANEL);
}

/* Rows 0, 4 and 8 begin at a0, a1 and a2. */
ALWAYS void add_products(__m512i acc[ROWS][NPUC_MAX_PANELS], int rows, int panels, int flip, int words, ptrdiff_t k, const uint8_t *a0,
                         const uint8_t *a1, const uint8_t *a2, ptrdiff_t stride, const uint8_t *b, ptrdiff_t panel_bytes)
{
    const __m512i sign = _mm512_set1_epi8((char)0x80);
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
}

ALWAYS void accumulate(__m512i acc[ROWS][NPUC_MAX_PANELS], int rows, int panels, int flip, int words, ptrdiff_t k, const uint8_t *a,
                       ptrdiff_t stride, const uint8_t *b, ptrdiff_t panel_bytes, const int32_t *bias)
{
    begin(acc, rows, panels, bias);
    add_products(acc, rows, panels, flip, words, k, a, a + 4 * stride, a + 8 * stride, stride, b, panel_bytes);
}

ALWAYS void tile(int rows, int panels, int flip, int words, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, const uint8_t *b,
                 ptrdiff_t panel_bytes, const int32_t *bias, int32_t *c)
{
    __m512i acc[ROWS][NPUC_MAX_PANELS];
    accumulate(acc, rows, panels, flip, words, k, a, stride, b, panel_bytes, bias);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++) _mm512_storeu_si512(c + (r * panels + p) * NPUC_PANEL, acc[r][p]);
}

typedef void tile_function(ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, const uint8_t *b, ptrdiff_t panel_bytes, const int32_t *bias,
                           int32_t *c);

#define TILE(rows, panels, flip, words)                                                                                                    \
    static void tile_##rows##_##panels##_##flip##_##words(ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, const uint8_t *b,               \
                                                          ptrdiff_t panel_bytes, const int32_t *bias, int32_t *c)                          \
    {                                                                                                                                      \
        tile(rows, panels, flip, words, k, a, stride, b, panel_bytes, bias, c);                                                            \
    }
#define TILES(flip, words)                                                                                                                 \
    TILE(1, 1, flip, words)                                                                                                                \
    TILE(2, 1, flip, words) TILE(3, 1, flip, words) TILE(4, 1, flip, words) TILE(5, 1, flip, words) TILE(6, 1, flip, words)                \
        TILE(7, 1, flip, words) TILE(8, 1, flip, words) TILE(9, 1, flip, words) TILE(10, 1, flip, words) TILE(11, 1, flip, words)          \
            TILE(12, 1, flip, words) TILE(1, 2, flip, words) TILE(2, 2, flip, words) TILE(3, 2, flip, words) TILE(4, 2, flip, words)       \
                TILE(5, 2, flip, words) TILE(6, 2, flip, words) TILE(7, 2, flip, words) TILE(8, 2, flip, words) TILE(9, 2, flip, words)    \
                    TILE(10, 2, flip, words) TILE(11, 2, flip, words) TILE(12, 2, flip, words)
TILES(0, 0)
TILES(1, 0)
TILES(0, 1)

#define ROW(panels, flip, words)                                                                                                           \
    {tile_1_##panels##_##flip##_##words,  tile_2_##panels##_##flip##_##words,  tile_3_##panels##_##flip##_##words,                         \
     tile_4_##panels##_##flip##_##words,  tile_5_##panels##_##flip##_##words,  tile_6_##panels##_##flip##_##words,                         \
     tile_7_##panels##_##flip##_##words,  tile_8_##panels##_##flip##_##words,  tile_9_##panels##_##flip##_##words,                         \
     tile_10_##panels##_##flip##_##words, tile_11_##panels##_##flip##_##words, tile_12_##panels##_##flip##_##words}
static tile_function *const tiles8[2][2][ROWS] = {{ROW(1, 0, 0), ROW(2, 0, 0)}, {ROW(1, 1, 0), ROW(2, 1, 0)}};
static tile_function *const tiles16[2][ROWS] = {ROW(1, 0, 1), ROW(2, 0, 1)};

static void tile8(int rows, int panels, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, int flip, const int8_t *b, ptrdiff_t panel_bytes,
                  const int32_t *bias, int32_t *c)
{
    tiles8[flip != 0][panels - 1][rows - 1](k, a, stride, (const uint8_t *)b, panel_bytes, bias, c);
}

static void tile16(int rows, int panels, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, const int16_t *b, ptrdiff_t panel_bytes,
                   const int32_t *bias, int32_t *c)
{
    tiles16[panels - 1][rows - 1](k, a, stride, (const uint8_t *)b, panel_bytes, bias, c);
}

/* --- the output stage ------------------------------------------------------------------------------------------------ */

/* The parameters of 16 channels. Even and odd lanes are the two halves of 64-bit products. */
typedef struct {
    __m512i even, odd; /* multipliers */
    __m512i pre, add, post, unit;
    __m512 scale;
    /* The general form. */
    __m512i left, right;
    __mmask16 rounds;
    __m512i shift_even, shift_odd, half_even, half_odd;
} parameters;

/* How 16 channels lie in memory: one after the other, or 8 or 4 of them repeated (blocks of 2 lanes or 1 in depthwise). */
ALWAYS __m512i load_table(const int32_t *p, int repeat)
{
    if (repeat == 1) return _mm512_loadu_si512(p);
    if (repeat == 2) return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)p));
}

ALWAYS parameters load_parameters(const npuc_stage *s, ptrdiff_t slot, int repeat, int kind, int level)
{
    parameters q;
    const __m512i one = _mm512_set1_epi64(1), zero = _mm512_setzero_si512();
    if (kind == NPUC_FLOAT_SCALE) q.scale = _mm512_castsi512_ps(load_table((const int32_t *)(const void *)(s->scale + slot), repeat));
    if (NPUC_HAS_MULTIPLIER(kind)) {
        q.even = load_table(s->multiplier + slot, repeat);
        q.odd = _mm512_srli_epi64(q.even, 32);
    }
    if (kind == NPUC_SINGLE_EVEN) level = NPUC_VECTOR; /* it has the general form only */
    if (level == NPUC_FAST) {
        if (NPUC_HAS_MULTIPLIER(kind)) q.pre = load_table(s->pre + slot, repeat);
        q.add = load_table(s->add + slot, repeat);
        q.post = load_table(s->post + slot, repeat);
        q.unit = _mm512_min_epi32(q.post, _mm512_set1_epi32(1));
    } else if (kind == NPUC_DOUBLE_ROUNDING) {
        const __m512i shift = load_table(s->shift + slot, repeat), bits = _mm512_set1_epi32(31);
        q.left = _mm512_max_epi32(_mm512_sub_epi32(bits, shift), zero);
        q.right = _mm512_max_epi32(_mm512_sub_epi32(shift, bits), zero);
        q.rounds = _mm512_test_epi32_mask(q.right, q.right);
        q.right = _mm512_sub_epi32(q.right, _mm512_set1_epi32(1));
    } else if (kind == NPUC_POW2) {
        q.right = load_table(s->shift + slot, repeat);
        q.rounds = _mm512_test_epi32_mask(q.right, q.right);
    } else if (kind == NPUC_SINGLE_ROUNDING || kind == NPUC_SINGLE_EVEN) {
        const __m512i shift = load_table(s->shift + slot, repeat);
        q.shift_even = _mm512_and_si512(shift, _mm512_set1_epi64(0xffffffff));
        q.shift_odd = _mm512_srli_epi64(shift, 32);
        q.half_even = _mm512_sllv_epi64(one, _mm512_sub_epi64(q.shift_even, one));
        q.half_odd = _mm512_sllv_epi64(one, _mm512_sub_epi64(q.shift_odd, one));
        if (kind == NPUC_SINGLE_EVEN) {
            q.half_even = _mm512_sub_epi64(q.half_even, one);
            q.half_odd = _mm512_sub_epi64(q.half_odd, one);
        }
    }
    return q;
}

ALWAYS __m512i shift_product(__m512i product, __m512i half, __m512i shift, int even)
{
    if (even) {
        const __m512i one = _mm512_set1_epi64(1);
        product = _mm512_add_epi64(product, _mm512_and_si512(_mm512_srlv_epi64(product, shift), one));
    }
    return _mm512_srav_epi64(_mm512_add_epi64(product, half), shift);
}

/* The high halves of the products in the even and in the odd lanes, in their lanes. */
ALWAYS __m512i high_halves(__m512i even, __m512i odd)
{
    return _mm512_castps_si512(_mm512_mask_movehdup_ps(_mm512_castsi512_ps(odd), 0x5555, _mm512_castsi512_ps(even)));
}

/* rq(acc), neither zero point nor saturation yet. The formulas of the fast form are explained in stage.h. */
ALWAYS __m512i rescale(__m512i acc, const parameters *q, int kind, int level)
{
    __m512i y;
    if (kind == NPUC_DOUBLE_ROUNDING && level == NPUC_FAST) {
        /* srdhm is a floor shift of the product + 2^30 (no multiplier is negative), here of both twice. */
        const __m512i nudge = _mm512_set1_epi64((int64_t)1 << 31);
        acc = _mm512_sllv_epi32(acc, q->pre);
        const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(acc, q->even), nudge);
        const __m512i odd = _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(acc, 32), q->odd), nudge);
        const __m512i high = high_halves(even, odd);
        /* Half away from zero: one less for a negative number, where anything is rounded at all. */
        y = _mm512_add_epi32(high, q->add);
        y = _mm512_mask_sub_epi32(y, _mm512_movepi32_mask(high), y, q->unit);
        return _mm512_srav_epi32(y, q->post);
    }
    if (kind == NPUC_DOUBLE_ROUNDING) {
        const __m512i nudge = _mm512_set1_epi64((int64_t)1 << 30);
        acc = _mm512_sllv_epi32(acc, q->left);
        const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(acc, q->even), nudge);
        const __m512i odd = _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(acc, 32), q->odd), nudge);
        const __m512i high = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 31), 0xaaaa, _mm512_slli_epi64(odd, 1));
        /* Half away from zero: (((x - (x < 0)) >> (s - 1)) + 1) >> 1. */
        y = _mm512_add_epi32(high, _mm512_srai_epi32(high, 31));
        y = _mm512_srai_epi32(_mm512_sub_epi32(_mm512_srav_epi32(y, q->right), _mm512_set1_epi32(-1)), 1);
        return _mm512_mask_mov_epi32(high, q->rounds, y);
    }
    if (kind == NPUC_SINGLE_ROUNDING && level == NPUC_FAST) {
        acc = _mm512_sllv_epi32(acc, q->pre);
        const __m512i even = _mm512_mul_epi32(acc, q->even), odd = _mm512_mul_epi32(_mm512_srli_epi64(acc, 32), q->odd);
        return _mm512_srav_epi32(_mm512_add_epi32(high_halves(even, odd), q->add), q->post);
    }
    if (kind == NPUC_SINGLE_ROUNDING || kind == NPUC_SINGLE_EVEN) {
        const int to_even = kind == NPUC_SINGLE_EVEN;
        const __m512i even = shift_product(_mm512_mul_epi32(acc, q->even), q->half_even, q->shift_even, to_even);
        const __m512i odd = shift_product(_mm512_mul_epi32(_mm512_srli_epi64(acc, 32), q->odd), q->half_odd, q->shift_odd, to_even);
        return _mm512_mask_mov_epi32(even, 0xaaaa, _mm512_slli_epi64(odd, 32));
    }
    if (kind == NPUC_POW2 && level == NPUC_FAST) return _mm512_srav_epi32(_mm512_add_epi32(acc, q->add), q->post);
    if (kind == NPUC_POW2) {
        /* (x >> s) + bit s - 1 of x. */
        const __m512i one = _mm512_set1_epi32(1);
        const __m512i bit = _mm512_and_si512(_mm512_srav_epi32(acc, _mm512_sub_epi32(q->right, one)), one);
        y = _mm512_srav_epi32(acc, q->right);
        return _mm512_mask_add_epi32(y, q->rounds, y, bit);
    }
    /* Too negative a value converts to INT32_MIN, which is right; too positive a one must be clamped first. */
    __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(acc), q->scale);
    if (level != NPUC_FAST) scaled = _mm512_min_ps(scaled, _mm512_set1_ps(2147483520.0f));
    return _mm512_cvtps_epi32(scaled);
}

/* What follows rq, for bytes: saturating packs and adds, which clamp as late as they can and so change nothing. */
typedef struct {
    __m512i zero_point; /* 16 bits */
    __m512i lo, hi;     /* 8 bits */
    int is_signed;
} saturation;

ALWAYS saturation load_saturation(const npuc_stage *s)
{
    const saturation t = {_mm512_set1_epi16((int16_t)s->zero_point), _mm512_set1_epi8((char)s->lo), _mm512_set1_epi8((char)s->hi),
                          s->dtype == NPUC_I8};
    return t;
}

/* Four vectors as bytes: 128-bit lane l has channels 4 l .. 4 l + 3 of each. */
ALWAYS __m512i pack(const __m512i y[4], const saturation *t)
{
    const __m512i a = _mm512_adds_epi16(_mm512_packs_epi32(y[0], y[1]), t->zero_point);
    const __m512i b = _mm512_adds_epi16(_mm512_packs_epi32(y[2], y[3]), t->zero_point);
    if (t->is_signed) return _mm512_min_epi8(_mm512_max_epi8(_mm512_packs_epi16(a, b), t->lo), t->hi);
    return _mm512_min_epu8(_mm512_max_epu8(_mm512_packus_epi16(a, b), t->lo), t->hi);
}

/* Up to four vectors of two panels of two rows, or one panel of four, starting at row r. `mask`: of the last panel. */
ALWAYS void store_rows(const __m512i y[4], const saturation *t, int panels, int r, int rows, __mmask16 mask, uint8_t *const *out)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i bytes = _mm512_permutexvar_epi32(order, pack(y, t));
    if (panels == 2) {
        const __mmask32 both = 0xffff | (__mmask32)mask << 16;
        store32(out[r], both, _mm512_castsi512_si256(bytes));
        if (r + 1 < rows) store32(out[r + 1], both, _mm512_extracti64x4_epi64(bytes, 1));
    } else {
        store16(out[r], mask, _mm512_castsi512_si128(bytes));
        if (r + 1 < rows) store16(out[r + 1], mask, _mm512_extracti32x4_epi32(bytes, 1));
        if (r + 2 < rows) store16(out[r + 2], mask, _mm512_extracti32x4_epi32(bytes, 2));
        if (r + 3 < rows) store16(out[r + 3], mask, _mm512_extracti32x4_epi32(bytes, 3));
    }
}

/* The channels of the last of `panels` panels. */
ALWAYS __mmask16 last_mask(int panels, ptrdiff_t channels)
{
    const ptrdiff_t last = channels - (panels - 1) * NPUC_PANEL;
    return last >= NPUC_PANEL ? 0xffff : (__mmask16)((1u << last) - 1);
}

ALWAYS void finish_bytes(const npuc_stage *s, int kind, int level, int rows, int panels, ptrdiff_t first_panel, ptrdiff_t channels,
                         const int32_t *acc, uint8_t *const *out)
{
    parameters q[NPUC_MAX_PANELS];
    for (int p = 0; p < panels; p++) q[p] = load_parameters(s, (first_panel + p) * NPUC_PANEL, 1, kind, level);
    const saturation t = load_saturation(s);
    const __mmask16 mask = last_mask(panels, channels);
    for (int r = 0; r < rows; r += 4 / panels) {
        __m512i y[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const int row = r + i / panels < rows ? r + i / panels : rows - 1;
            const __m512i a = _mm512_loadu_si512(acc + ((ptrdiff_t)row * panels + i % panels) * NPUC_PANEL);
            y[i] = rescale(a, &q[i % panels], kind, level);
        }
        store_rows(y, &t, panels, r, rows, mask, out);
    }
}

/* From the sums of a tile to its outputs, without a detour through memory. */
ALWAYS void finish_tile(__m512i acc[ROWS][NPUC_MAX_PANELS], int kind, int rows, int panels, const npuc_stage *s, ptrdiff_t first_panel,
                        ptrdiff_t channels, uint8_t *const *out)
{
    /* Nothing of this may be loaded before the loop over the products ends: the loop needs every register. */
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++) __asm__ volatile("" : "+v"(acc[r][p]) : : "memory");
    const saturation t = load_saturation(s);
    const __mmask16 mask = last_mask(panels, channels);
    parameters q[NPUC_MAX_PANELS];
#pragma GCC unroll 2
    for (int p = 0; p < panels; p++) q[p] = load_parameters(s, (first_panel + p) * NPUC_PANEL, 1, kind, NPUC_FAST);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r += 4 / panels) {
        __m512i y[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) y[i] = rescale(acc[r + i / panels][i % panels], &q[i % panels], kind, NPUC_FAST);
        store_rows(y, &t, panels, r, rows, mask, out);
    }
}

/* A whole tile of bytes. */
ALWAYS void fused(int kind, int panels, int flip, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, const uint8_t *b, ptrdiff_t panel_bytes,
                  const int32_t *bias, const npuc_stage *s, ptrdiff_t first_panel, ptrdiff_t channels, uint8_t *const *out)
{
    __m512i acc[ROWS][NPUC_MAX_PANELS];
    accumulate(acc, ROWS, panels, flip, 0, k, a, stride, b, panel_bytes, bias);
    finish_tile(acc, kind, ROWS, panels, s, first_panel, channels, out);
}

typedef void fused_function(ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, const uint8_t *b, ptrdiff_t panel_bytes, const int32_t *bias,
                            const npuc_stage *s, ptrdiff_t first_panel, ptrdiff_t channels, uint8_t *const *out);

#define FUSED(kind, panels, flip)                                                                                                          \
    static void fused_##kind##_##panels##_##flip(ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, const uint8_t *b, ptrdiff_t panel_bytes, \
                                                 const int32_t *bias, const npuc_stage *s, ptrdiff_t first_panel, ptrdiff_t channels,      \
                                                 uint8_t *const *out)                                                                      \
    {                                                                                                                                      \
        fused(kind, panels, flip, k, a, stride, b, panel_bytes, bias, s, first_panel, channels, out);                                      \
    }
#define FUSED4(kind) FUSED(kind, 1, 0) FUSED(kind, 1, 1) FUSED(kind, 2, 0) FUSED(kind, 2, 1)
FUSED4(NPUC_DOUBLE_ROUNDING)
FUSED4(NPUC_SINGLE_ROUNDING)
FUSED4(NPUC_SINGLE_EVEN)
FUSED4(NPUC_POW2)
FUSED4(NPUC_FLOAT_SCALE)
#define FUSED_ROW(kind)                                                                                                                    \
    {                                                                                                                                      \
        {fused_##kind##_1_0, fused_##kind##_1_1}, { fused_##kind##_2_0, fused_##kind##_2_1 }                                               \
    }
static fused_function *const fused_tiles[NPUC_REQUANT_KINDS][2][2] = {
    FUSED_ROW(NPUC_DOUBLE_ROUNDING), FUSED_ROW(NPUC_SINGLE_ROUNDING), FUSED_ROW(NPUC_SINGLE_EVEN), FUSED_ROW(NPUC_POW2),
    FUSED_ROW(NPUC_FLOAT_SCALE)};

static int fused8(int rows, int panels, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, int flip, const int8_t *b, ptrdiff_t panel_bytes,
                  const int32_t *bias, const npuc_stage *s, int first_panel, ptrdiff_t channels, uint8_t *const *out)
{
    if (rows != ROWS || s->kind < 0 || npuc_element_size(s->dtype) != 1) return 0;
    for (int p = 0; p < panels; p++)
        if (s->level[first_panel + p] != NPUC_FAST) return 0;
    fused_tiles[s->kind][panels - 1][flip != 0](k, a, stride, (const uint8_t *)b, panel_bytes, bias, s, first_panel, channels, out);
    return 1;
}

/* --- windows in an image with its border ----------------------------------------------------------------------------- */

ALWAYS void lines(int kind, int rows, int panels, const npuc_lines *l, const uint8_t *b, ptrdiff_t panel_bytes, const int32_t *bias,
                  const npuc_stage *s, ptrdiff_t first_panel, ptrdiff_t channels, uint8_t *const *out)
{
    __m512i acc[ROWS][NPUC_MAX_PANELS];
    begin(acc, rows, panels, bias);
    for (int32_t i = 0; i < l->lines; i++, b += l->steps * 64) {
        const ptrdiff_t at = i * l->line;
        add_products(acc, rows, panels, 0, 0, l->steps, l->a[0] + at, l->a[1] + at, l->a[2] + at, l->stride, b, panel_bytes);
    }
    finish_tile(acc, kind, rows, panels, s, first_panel, channels, out);
}

typedef void lines_function(const npuc_lines *l, const uint8_t *b, ptrdiff_t panel_bytes, const int32_t *bias, const npuc_stage *s,
                            ptrdiff_t first_panel, ptrdiff_t channels, uint8_t *const *out);

#define LINES(kind, rows, panels)                                                                                                          \
    static void lines_##kind##_##rows##_##panels(const npuc_lines *l, const uint8_t *b, ptrdiff_t panel_bytes, const int32_t *bias,        \
                                                 const npuc_stage *s, ptrdiff_t first_panel, ptrdiff_t channels, uint8_t *const *out)      \
    {                                                                                                                                      \
        lines(kind, rows, panels, l, b, panel_bytes, bias, s, first_panel, channels, out);                                                 \
    }
#define LINES4(kind) LINES(kind, 4, 1) LINES(kind, 4, 2) LINES(kind, 12, 1) LINES(kind, 12, 2)
LINES4(NPUC_DOUBLE_ROUNDING)
LINES4(NPUC_SINGLE_ROUNDING)
LINES4(NPUC_SINGLE_EVEN)
LINES4(NPUC_POW2)
LINES4(NPUC_FLOAT_SCALE)
#define LINES_ROW(kind)                                                                                                                    \
    {                                                                                                                                      \
        {lines_##kind##_4_1, lines_##kind##_4_2}, { lines_##kind##_12_1, lines_##kind##_12_2 }                                             \
    }
static lines_function *const lines_tiles[NPUC_REQUANT_KINDS][2][2] = {
    LINES_ROW(NPUC_DOUBLE_ROUNDING), LINES_ROW(NPUC_SINGLE_ROUNDING), LINES_ROW(NPUC_SINGLE_EVEN), LINES_ROW(NPUC_POW2),
    LINES_ROW(NPUC_FLOAT_SCALE)};

static void lines8(int rows, int panels, const npuc_lines *l, const uint8_t *b, ptrdiff_t panel_bytes, const int32_t *bias,
                   const npuc_stage *s, int first_panel, ptrdiff_t channels, uint8_t *const *out)
{
    lines_tiles[s->kind][rows == ROWS][panels - 1](l, b, panel_bytes, bias, s, first_panel, channels, out);
}

static void border8(const npuc_window *w, ptrdiff_t n, ptrdiff_t first, ptrdiff_t count, uint8_t *dst, ptrdiff_t line, int flip)
{
    border(w, n, first, count, dst, line, flip, 0);
}

/* Words and accumulators, one panel at a time. */
ALWAYS void finish_words(const npuc_stage *s, int kind, int rows, int panels, ptrdiff_t first_panel, ptrdiff_t channels, const int32_t *acc,
                         uint8_t *const *out)
{
    const ptrdiff_t size = npuc_element_size(s->dtype);
    /* Clamping before the zero point is added is the same, and cannot overflow. */
    const int64_t low = (int64_t)s->lo - s->zero_point, high = (int64_t)s->hi - s->zero_point;
    const __m512i lo = _mm512_set1_epi32(low < INT32_MIN ? INT32_MIN : low > INT32_MAX ? INT32_MAX : (int32_t)low);
    const __m512i hi = _mm512_set1_epi32(high > INT32_MAX ? INT32_MAX : high < INT32_MIN ? INT32_MIN : (int32_t)high);
    const __m512i zero_point = _mm512_set1_epi32(s->zero_point);
    for (int p = 0; p < panels; p++) {
        const ptrdiff_t left = channels - p * NPUC_PANEL;
        const __mmask16 mask = left >= NPUC_PANEL ? 0xffff : (__mmask16)((1u << left) - 1);
        const parameters q = load_parameters(s, (first_panel + p) * NPUC_PANEL, 1, kind, NPUC_VECTOR);
        for (int r = 0; r < rows; r++) {
            __m512i y = _mm512_loadu_si512(acc + ((ptrdiff_t)r * panels + p) * NPUC_PANEL);
            if (kind >= 0) {
                y = rescale(y, &q, kind, NPUC_VECTOR);
                y = _mm512_add_epi32(_mm512_min_epi32(_mm512_max_epi32(y, lo), hi), zero_point);
            }
            uint8_t *to = out[r] + p * NPUC_PANEL * size;
            if (size == 1)
                _mm512_mask_cvtepi32_storeu_epi8(to, mask, y);
            else if (size == 2)
                _mm512_mask_cvtepi32_storeu_epi16(to, mask, y);
            else
                _mm512_mask_storeu_epi32(to, mask, y);
        }
    }
}

ALWAYS void finish_kind(const npuc_stage *s, int kind, int rows, int panels, int first_panel, ptrdiff_t channels, const int32_t *acc,
                        uint8_t *const *out)
{
    int level = NPUC_FAST;
    for (int p = 0; p < panels && kind >= 0; p++)
        if (s->level[first_panel + p] < level) level = s->level[first_panel + p];
    if (level == NPUC_SCALAR) {
        for (int p = 0; p < panels; p++) {
            const ptrdiff_t left = channels - p * NPUC_PANEL;
            finish_scalar(s, rows, (ptrdiff_t)panels * NPUC_PANEL, first_panel + p, left < NPUC_PANEL ? (int)left : NPUC_PANEL,
                          acc + p * NPUC_PANEL, out, p * NPUC_PANEL * npuc_element_size(s->dtype));
        }
    } else if (kind < 0 || level == NPUC_VECTOR || npuc_element_size(s->dtype) != 1) {
        finish_words(s, kind, rows, panels, first_panel, channels, acc, out);
    } else if (panels == 2) {
        finish_bytes(s, kind, NPUC_FAST, rows, 2, first_panel, channels, acc, out);
    } else {
        finish_bytes(s, kind, NPUC_FAST, rows, 1, first_panel, channels, acc, out);
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

/* --- depthwise ------------------------------------------------------------------------------------------------------- */

ALWAYS __m512i load_wide(const void *p, ptrdiff_t at, int dtype, __mmask16 mask)
{
    if (dtype == NPUC_I16) return _mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(mask, (const int16_t *)p + at));
    const __m128i bytes = _mm_maskz_loadu_epi8(mask, (const uint8_t *)p + at);
    return dtype == NPUC_I8 ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
}

/* The weight stands in the low half of each lane and 0 in the high half, so vpdpwssd is a 16 x 16 multiply-add. */
ALWAYS void depthwise_pixels(const npuc_depthwise *d, int pixels, int dtype)
{
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
            for (int p = 0; p < pixels; p++) acc[p] = _mm512_dpwssd_epi32(acc[p], load_wide(d->taps[p * taps + t], c0, dtype, mask), w);
        }
#pragma GCC unroll 8
        for (int p = 0; p < pixels; p++) {
            _mm512_storeu_si512(tile_acc + p * NPUC_PANEL, acc[p]);
            out[p] = d->out[p] + c0 * size;
        }
        finish(d->stage, pixels, 1, d->first_panel + (int)(c0 / NPUC_PANEL), left, tile_acc, out);
    }
}

#define DEPTHWISE(n)                                                                                                                       \
    static void depthwise_##n(const npuc_depthwise *d)                                                                                     \
    {                                                                                                                                      \
        if (d->dtype == NPUC_I8)                                                                                                           \
            depthwise_pixels(d, n, NPUC_I8);                                                                                               \
        else if (d->dtype == NPUC_U8)                                                                                                      \
            depthwise_pixels(d, n, NPUC_U8);                                                                                               \
        else                                                                                                                               \
            depthwise_pixels(d, n, NPUC_I16);                                                                                              \
    }
DEPTHWISE(1)
DEPTHWISE(2) DEPTHWISE(3) DEPTHWISE(4) DEPTHWISE(5) DEPTHWISE(6) DEPTHWISE(7) DEPTHWISE(8)

    static void depthwise(const npuc_depthwise *d)
{
    static void (*const by_pixels[NPUC_MAX_PIXELS])(const npuc_depthwise *) = {depthwise_1, depthwise_2, depthwise_3, depthwise_4,
                                                                               depthwise_5, depthwise_6, depthwise_7, depthwise_8};
    by_pixels[d->pixels - 1](d);
}

/* One block of `lanes` lanes for 4 / lanes pixels at a time: 64 bytes of every tap. */
ALWAYS __m512i load_lanes(const uint8_t *const *from, int lanes, __mmask64 mask, int whole)
{
    if (whole && lanes == 4) return _mm512_loadu_si512(from[0]);
    if (whole && lanes == 2)
        return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)from[0])),
                                  _mm256_loadu_si256((const __m256i *)(const void *)from[1]), 1);
    if (lanes == 4) return _mm512_maskz_loadu_epi8(mask, from[0]);
    if (lanes == 2) {
        const __mmask32 m = (__mmask32)mask;
        return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_maskz_loadu_epi8(m, from[0])), _mm256_maskz_loadu_epi8(m, from[1]), 1);
    }
    const __mmask16 m = (__mmask16)mask;
    __m512i x = _mm512_castsi128_si512(_mm_maskz_loadu_epi8(m, from[0]));
    x = _mm512_inserti32x4(x, _mm_maskz_loadu_epi8(m, from[1]), 1);
    x = _mm512_inserti32x4(x, _mm_maskz_loadu_epi8(m, from[2]), 2);
    return _mm512_inserti32x4(x, _mm_maskz_loadu_epi8(m, from[3]), 3);
}

ALWAYS void depthwise_block(const npuc_depthwise8 *d, int kind, int lanes, int whole, int inside, ptrdiff_t c0, int flip)
{
    const npuc_stage *s = d->stage;
    const int together = 4 / lanes, taps = d->tap_count;
    const ptrdiff_t groups = (taps + 3) / 4, slot = d->first_lane * NPUC_PANEL + c0;
    const ptrdiff_t left = d->channels - c0 < lanes * NPUC_PANEL ? d->channels - c0 : lanes * NPUC_PANEL;
    const __mmask64 mask = left >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << left) - 1;
    const int8_t *weights = d->weights + c0 * groups * 4;
    const __m512i sign = _mm512_set1_epi8(flip ? (char)0x80 : 0);
    const saturation t = load_saturation(s);
    int level = NPUC_FAST;
    for (int l = 0; l < lanes && kind >= 0; l++)
        if (s->level[d->first_lane + c0 / NPUC_PANEL + l] < level) level = s->level[d->first_lane + c0 / NPUC_PANEL + l];
    const int quick = kind >= 0 && level == NPUC_FAST && npuc_element_size(s->dtype) == 1;
    for (ptrdiff_t p = 0; p < d->pixels; p += together) {
        __m512i acc[4];
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) acc[q] = load_table(d->bias + c0 + q * lanes * 4, 4 / lanes);
        const int8_t *w = weights;
        for (int t0 = 0; t0 < taps; t0 += 4, w += lanes * 64) {
            __m512i x[4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                if (t0 + i >= taps) {
                    x[i] = _mm512_setzero_si512();
                    continue;
                }
                const uint8_t *from[4];
#pragma GCC unroll 4
                for (int j = 0; j < together; j++) {
                    /* Past the last pixel, the last one again. */
                    const ptrdiff_t pixel = p + j < d->pixels ? p + j : d->pixels - 1;
                    from[j] = inside ? d->base + pixel * d->step + d->offset[t0 + i] + c0 : d->taps[pixel * taps + t0 + i] + c0;
                }
                x[i] = load_lanes(from, lanes, mask, whole);
                if (flip) x[i] = _mm512_xor_si512(x[i], sign);
            }
            const __m512i low01 = _mm512_unpacklo_epi8(x[0], x[1]), high01 = _mm512_unpackhi_epi8(x[0], x[1]);
            const __m512i low23 = _mm512_unpacklo_epi8(x[2], x[3]), high23 = _mm512_unpackhi_epi8(x[2], x[3]);
            const __m512i four[4] = {_mm512_unpacklo_epi16(low01, low23), _mm512_unpackhi_epi16(low01, low23),
                                     _mm512_unpacklo_epi16(high01, high23), _mm512_unpackhi_epi16(high01, high23)};
#pragma GCC unroll 4
            for (int q = 0; q < 4; q++)
                acc[q] = _mm512_dpbusd_epi32(acc[q], four[q], load_table((const int32_t *)(const void *)(w + q * lanes * 16), 4 / lanes));
        }
        uint8_t *out = d->out + p * d->out_step;
        if (quick) {
#pragma GCC unroll 4
            for (int q = 0; q < 4; q++) {
                const parameters k = load_parameters(s, slot + q * lanes * 4, 4 / lanes, kind, NPUC_FAST);
                acc[q] = rescale(acc[q], &k, kind, NPUC_FAST);
            }
            const __m512i bytes = pack(acc, &t);
            out += c0;
            const ptrdiff_t last = d->pixels - 1 - p;
            if (lanes == 4) {
                store64(out, mask, bytes);
            } else if (lanes == 2) {
                store32(out, (__mmask32)mask, _mm512_castsi512_si256(bytes));
                if (last >= 1) store32(out + d->out_step, (__mmask32)mask, _mm512_extracti64x4_epi64(bytes, 1));
            } else {
                store16(out, (__mmask16)mask, _mm512_castsi512_si128(bytes));
                if (last >= 1) store16(out + d->out_step, (__mmask16)mask, _mm512_extracti32x4_epi32(bytes, 1));
                if (last >= 2) store16(out + 2 * d->out_step, (__mmask16)mask, _mm512_extracti32x4_epi32(bytes, 2));
                if (last >= 3) store16(out + 3 * d->out_step, (__mmask16)mask, _mm512_extracti32x4_epi32(bytes, 3));
            }
            continue;
        }
        /* Rare parameters or wider outputs: through memory, one by one. */
        int32_t sums[64];
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) _mm512_storeu_si512(sums + 16 * q, acc[q]);
        const npuc_requant rq = {s->kind, 2, s->multiplier, s->shift, s->scale, s->zero_point, s->lo, s->hi};
        const ptrdiff_t size = npuc_element_size(s->dtype);
        for (int j = 0; j < together && p + j < d->pixels; j++)
            for (ptrdiff_t c = 0; c < left; c++) {
                const ptrdiff_t q = c % 16 / 4, lane = c / 16;
                int32_t value = sums[q * 16 + (j * lanes + lane) * 4 + c % 4];
                if (kind >= 0) value = npuc_requantize(&rq, value, (int32_t)(slot + (q * lanes + lane) * 4 + c % 4));
                npuc_store(s->dtype, out + j * d->out_step + (c0 + c) * size, value);
            }
    }
}

ALWAYS void depthwise8_kind(const npuc_depthwise8 *d, int kind, int inside, int flip)
{
    const ptrdiff_t lanes = (d->channels + NPUC_PANEL - 1) / NPUC_PANEL;
    ptrdiff_t lane = 0;
    for (; (lane + 4) * NPUC_PANEL <= d->channels; lane += 4) depthwise_block(d, kind, 4, 1, inside, lane * NPUC_PANEL, flip);
    if (lane + 4 <= lanes) {
        depthwise_block(d, kind, 4, 0, inside, lane * NPUC_PANEL, flip);
        lane += 4;
    }
    if (lane + 2 <= lanes) {
        if ((lane + 2) * NPUC_PANEL <= d->channels)
            depthwise_block(d, kind, 2, 1, inside, lane * NPUC_PANEL, flip);
        else
            depthwise_block(d, kind, 2, 0, inside, lane * NPUC_PANEL, flip);
        lane += 2;
    }
    if (lane < lanes) depthwise_block(d, kind, 1, 0, inside, lane * NPUC_PANEL, flip);
}

#define DEPTHWISE8(name, kind)                                                                                                             \
    static void depthwise8_##name(const npuc_depthwise8 *d)                                                                                \
    {                                                                                                                                      \
        if (d->taps)                                                                                                                       \
            depthwise8_kind(d, kind, 0, d->flip);                                                                                          \
        else if (d->flip)                                                                                                                  \
            depthwise8_kind(d, kind, 1, 1);                                                                                                \
        else                                                                                                                               \
            depthwise8_kind(d, kind, 1, 0);                                                                                                \
    }
DEPTHWISE8(double, NPUC_DOUBLE_ROUNDING)
DEPTHWISE8(single, NPUC_SINGLE_ROUNDING)
DEPTHWISE8(even, NPUC_SINGLE_EVEN)
DEPTHWISE8(pow2, NPUC_POW2)
DEPTHWISE8(float, NPUC_FLOAT_SCALE)
DEPTHWISE8(raw, -1)

static void depthwise8(const npuc_depthwise8 *d)
{
    switch (d->stage->kind) {
    case NPUC_DOUBLE_ROUNDING: depthwise8_double(d); break;
    case NPUC_SINGLE_ROUNDING: depthwise8_single(d); break;
    case NPUC_SINGLE_EVEN: depthwise8_even(d); break;
    case NPUC_POW2: depthwise8_pow2(d); break;
    case NPUC_FLOAT_SCALE: depthwise8_float(d); break;
    default: depthwise8_raw(d);
    }
}

const npuc_gemm_ops npuc_gemm_avx512 = {
    .name = "avx512vnni",
    .bytes = 1,
    .least_weight = -128,
    .rows8 = ROWS,
    .rows16 = ROWS,
    .panels = 2,
    .tile8 = tile8,
    .tile16 = tile16,
    .fused8 = fused8,
    .lines = lines8,
    .border = border8,
    .neighbours = 4,
    .finish = finish,
    .gather8 = gather8,
    .gather16 = gather16,
    .depthwise = depthwise,
    .depthwise8 = depthwise8,
};
#endif
