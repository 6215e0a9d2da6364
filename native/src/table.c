/*
 * Functions of one 8- or 16-bit input by table.
 *
 * With AVX-512 VBMI the whole 256-entry table lives in four registers; elsewhere a lookup is a load. The 16-bit table is
 * unfolded to values and slopes, so that the loop is two gathers and a multiplication.
 */
#include <string.h>

#include "cpu.h"
#include "loops.h"

#if NPUC_HAVE_AVX2
#include <immintrin.h>
#endif

typedef struct table_job {
    const uint8_t *x;
    uint8_t bytes[256]; /* indexed by the bits of x */
    int16_t words[256];
    int32_t value[512], slope[512];
    int32_t vbmi;
    void *y;
} table_job;

#if NPUC_HAVE_AVX2
__attribute__((target("avx512f,avx512bw,avx512vbmi"))) static void bytes_vbmi(const uint8_t *restrict x, int64_t n, const uint8_t *table,
                                                                              uint8_t *restrict y)
{
    const __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64);
    const __m512i t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);
    for (int64_t i = 0; i < n; i += 64) {
        __mmask64 mask = n - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (n - i)) - 1;
        __m512i index = _mm512_maskz_loadu_epi8(mask, x + i);
        __m512i low = _mm512_permutex2var_epi8(t0, index, t1), high = _mm512_permutex2var_epi8(t2, index, t3);
        _mm512_mask_storeu_epi8(y + i, mask, _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), low, high));
    }
}

static int has_vbmi(void) { return npuc_use_avx512() && npuc_cpu_avx512vbmi(); }
#else
static int has_vbmi(void) { return 0; }
#endif

static void bytes_part(void *context, int64_t begin, int64_t end)
{
    const table_job *j = context;
    const uint8_t *restrict x = j->x, *restrict table = j->bytes;
    uint8_t *restrict y = j->y;
#if NPUC_HAVE_AVX2
    if (j->vbmi) {
        bytes_vbmi(x + begin, end - begin, table, y + begin);
        return;
    }
#endif
    for (int64_t i = begin; i < end; i++) y[i] = table[x[i]];
}

static void words_part(void *context, int64_t begin, int64_t end)
{
    const table_job *j = context;
    const uint8_t *restrict x = j->x;
    const int16_t *restrict table = j->words;
    int16_t *restrict y = j->y;
    for (int64_t i = begin; i < end; i++) y[i] = table[x[i]];
}

npuc_status npuc_table8(const void *x, int32_t x_dtype, int64_t n, const void *table, int32_t dtype, void *y, int32_t threads)
{
    int64_t lo, hi;
    if (n < 0 || (x_dtype != NPUC_I8 && x_dtype != NPUC_U8) || !npuc_limits(dtype, &lo, &hi)) return NPUC_BAD_ARGUMENT;
    if (n == 0) return NPUC_OK;
    table_job j = {.x = x, .y = y, .vbmi = has_vbmi()};
    for (int i = 0; i < 256; i++) {
        int entry = x_dtype == NPUC_I8 ? i ^ 128 : i;
        if (dtype == NPUC_I16)
            j.words[i] = ((const int16_t *)table)[entry];
        else
            j.bytes[i] = ((const uint8_t *)table)[entry];
    }
    npuc_in_parts(threads, n, 1 << 16, dtype == NPUC_I16 ? words_part : bytes_part, &j);
    return NPUC_OK;
}

typedef struct channels_job {
    const uint8_t *x;
    const void *table;
    void *y;
    int64_t channels, inner;
    int32_t flip; /* 128 where x is signed: its bits as a place in ascending order */
    int32_t words;
} channels_job;

/* Row r holds `inner` elements of channel r % channels. */
static void channels_part(void *context, int64_t begin, int64_t end)
{
    const channels_job *j = context;
    const int64_t inner = j->inner;
    int64_t channel = begin % j->channels;
    for (int64_t row = begin; row < end; row++) {
        const int64_t first = channel * 256;
        const uint8_t *x = j->x + row * inner;
        if (j->words) {
            const int16_t *table = (const int16_t *)j->table + first;
            int16_t *y = (int16_t *)j->y + row * inner;
            for (int64_t i = 0; i < inner; i++) y[i] = table[x[i] ^ j->flip];
        } else {
            const uint8_t *table = (const uint8_t *)j->table + first;
            uint8_t *y = (uint8_t *)j->y + row * inner;
            for (int64_t i = 0; i < inner; i++) y[i] = table[x[i] ^ j->flip];
        }
        if (++channel == j->channels) channel = 0;
    }
}

npuc_status npuc_channel_table8(const void *x, int32_t x_dtype, int64_t outer, int64_t channels, int64_t inner, const void *table,
                                int32_t dtype, void *y, int32_t threads)
{
    const int64_t limit = (int64_t)1 << 40;
    int64_t lo, hi;
    if ((x_dtype != NPUC_I8 && x_dtype != NPUC_U8) || !npuc_limits(dtype, &lo, &hi)) return NPUC_BAD_ARGUMENT;
    if (outer < 0 || channels < 0 || inner < 0 || outer > limit || channels > limit || inner > limit) return NPUC_BAD_ARGUMENT;
    if (outer == 0 || channels == 0 || inner == 0) return NPUC_OK;
    if (channels > limit / outer || inner > limit / (outer * channels)) return NPUC_BAD_ARGUMENT;
    channels_job j = {.x = x,
                      .table = table,
                      .y = y,
                      .channels = channels,
                      .inner = inner,
                      .flip = x_dtype == NPUC_I8 ? 128 : 0,
                      .words = dtype == NPUC_I16};
    npuc_in_parts(threads, outer * channels, (1 << 15) / inner + 1, channels_part, &j);
    return NPUC_OK;
}

NPUC_INLINE void between_body(const int16_t *restrict x, int64_t n, const int32_t *restrict value, const int32_t *restrict slope,
                              int16_t *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        int32_t at = x[i] + 32768, entry = at >> 7, rest = at & 127;
        y[i] = (int16_t)(value[entry] + ((slope[entry] * rest + 64) >> 7));
    }
}
NPUC_TWICE(between,
           (const int16_t *restrict x, int64_t n, const int32_t *restrict value, const int32_t *restrict slope, int16_t *restrict y),
           (x, n, value, slope, y))

static void between_part(void *context, int64_t begin, int64_t end)
{
    const table_job *j = context;
    between((const int16_t *)(const void *)j->x + begin, end - begin, j->value, j->slope, (int16_t *)j->y + begin);
}

npuc_status npuc_table16(const int16_t *x, int64_t n, const int16_t *table, int16_t *y, int32_t threads)
{
    if (n < 0) return NPUC_BAD_ARGUMENT;
    if (n == 0) return NPUC_OK;
    table_job j = {.x = (const uint8_t *)x, .y = y};
    for (int i = 0; i < 512; i++) {
        j.value[i] = table[i];
        j.slope[i] = table[i + 1] - table[i];
    }
    npuc_in_parts(threads, n, 1 << 14, between_part, &j);
    return NPUC_OK;
}

typedef struct between_job {
    const int16_t *x, *table;
    int16_t *y;
    int32_t shift;
} between_job;

/* The line from one entry to the next, `rest` of 2^shift steps on. */
NPUC_INLINE int32_t on_line(int32_t low, int32_t high, int32_t rest, int32_t shift)
{
    return low + (int32_t)(((int64_t)(high - low) * rest + ((int64_t)1 << (shift - 1))) >> shift);
}

static void segments_part(void *context, int64_t begin, int64_t end)
{
    const between_job *j = context;
    const int32_t mask = (1 << j->shift) - 1;
    for (int64_t i = begin; i < end; i++) {
        const int32_t at = j->x[i] + 32768, entry = at >> j->shift;
        j->y[i] = (int16_t)on_line(j->table[entry], j->table[entry + 1], at & mask, j->shift);
    }
}

npuc_status npuc_table_between(const void *x, int32_t x_dtype, int64_t n, const void *table, int32_t dtype, int32_t segments, void *y,
                               int32_t threads)
{
    const int32_t wide = x_dtype == NPUC_I16, shift = (wide ? 16 : 8) - segments;
    int64_t lo, hi;
    if (n < 0 || segments < 1 || shift < 1 || !npuc_limits(dtype, &lo, &hi)) return NPUC_BAD_ARGUMENT;
    if ((!wide && x_dtype != NPUC_I8 && x_dtype != NPUC_U8) || (wide && dtype != NPUC_I16)) return NPUC_BAD_ARGUMENT;
    if (wide) {
        between_job j = {.x = x, .table = table, .y = y, .shift = shift};
        npuc_in_parts(threads, n, 1 << 14, segments_part, &j);
        return NPUC_OK;
    }
    int16_t words[256]; /* an entry for each value, after all */
    uint8_t bytes[256];
    for (int32_t i = 0; i < 256; i++) {
        int32_t ends[2];
        for (int32_t k = 0; k < 2; k++) {
            const int32_t entry = (i >> shift) + k;
            ends[k] = dtype == NPUC_I16  ? ((const int16_t *)table)[entry]
                      : dtype == NPUC_I8 ? ((const int8_t *)table)[entry]
                                         : ((const uint8_t *)table)[entry];
        }
        words[i] = (int16_t)on_line(ends[0], ends[1], i & ((1 << shift) - 1), shift);
        bytes[i] = (uint8_t)words[i];
    }
    return npuc_table8(x, x_dtype, n, dtype == NPUC_I16 ? (const void *)words : (const void *)bytes, dtype, y, threads);
}
