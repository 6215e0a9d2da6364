/* The kernels in plain C11: what every CPU runs, and what the others are compared with. */
#include "gemm.h"

#include <string.h>

static inline void copy_bytes(uint8_t *dst, const uint8_t *src, ptrdiff_t n, int flip)
{
    if (!flip) {
        memcpy(dst, src, (size_t)n);
        return;
    }
    for (ptrdiff_t i = 0; i < n; i++) dst[i] = src[i] ^ 0x80;
}

static inline void widen_bytes(uint8_t *dst, const uint8_t *src, ptrdiff_t n, int is_signed)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        const int16_t word = is_signed ? (int16_t)(int8_t)src[i] : (int16_t)src[i];
        memcpy(dst + 2 * i, &word, 2);
    }
}

#include "gemm_common.h"

static void tile8(int rows, int panels, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, int flip, const int8_t *b, ptrdiff_t panel_bytes,
                  const int32_t *bias, int32_t *c)
{
    const uint8_t sign = flip ? 0x80 : 0;
    for (int r = 0; r < rows; r++, a += stride)
        for (int p = 0; p < panels; p++, c += NPUC_PANEL) {
            const int8_t *w = b + p * panel_bytes;
            uint32_t acc[NPUC_PANEL];
            for (int n = 0; n < NPUC_PANEL; n++) acc[n] = (uint32_t)bias[p * NPUC_PANEL + n];
            for (ptrdiff_t i = 0; i < k; i++)
                for (int t = 0; t < 4; t++) {
                    const int32_t x = (npuc_activation)(a[4 * i + t] ^ sign);
                    for (int n = 0; n < NPUC_PANEL; n++) acc[n] += (uint32_t)(x * w[(i * NPUC_PANEL + n) * 4 + t]);
                }
            for (int n = 0; n < NPUC_PANEL; n++) c[n] = (int32_t)acc[n];
        }
}

static void tile16(int rows, int panels, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, const int16_t *b, ptrdiff_t panel_bytes,
                   const int32_t *bias, int32_t *c)
{
    for (int r = 0; r < rows; r++, a += stride)
        for (int p = 0; p < panels; p++, c += NPUC_PANEL) {
            const int16_t *w = b + p * (panel_bytes / 2);
            uint32_t acc[NPUC_PANEL];
            for (int n = 0; n < NPUC_PANEL; n++) acc[n] = (uint32_t)bias[p * NPUC_PANEL + n];
            for (ptrdiff_t i = 0; i < k; i++) {
                int16_t x[2];
                memcpy(x, a + 4 * i, 4);
                for (int n = 0; n < NPUC_PANEL; n++) {
                    const int16_t *pair = w + (i * NPUC_PANEL + n) * 2;
                    acc[n] += (uint32_t)(x[0] * pair[0]) + (uint32_t)(x[1] * pair[1]);
                }
            }
            for (int n = 0; n < NPUC_PANEL; n++) c[n] = (int32_t)acc[n];
        }
}

static void finish(const npuc_stage *stage, int rows, int panels, int first_panel, ptrdiff_t channels, const int32_t *acc,
                   uint8_t *const *out)
{
    const ptrdiff_t size = npuc_element_size(stage->dtype);
    for (int p = 0; p < panels; p++) {
        const ptrdiff_t left = channels - p * NPUC_PANEL;
        finish_scalar(stage, rows, (ptrdiff_t)panels * NPUC_PANEL, first_panel + p, left < NPUC_PANEL ? (int)left : NPUC_PANEL,
                      acc + p * NPUC_PANEL, out, p * NPUC_PANEL * size);
    }
}

static void depthwise(const npuc_depthwise *d)
{
    const ptrdiff_t size = npuc_element_size(d->stage->dtype);
    for (ptrdiff_t c0 = 0; c0 < d->channels; c0 += NPUC_PANEL) {
        const int channels = d->channels - c0 < NPUC_PANEL ? (int)(d->channels - c0) : NPUC_PANEL;
        int32_t acc[NPUC_MAX_PIXELS * NPUC_PANEL];
        for (int p = 0; p < d->pixels; p++) {
            uint32_t sum[NPUC_PANEL];
            for (int n = 0; n < NPUC_PANEL; n++) sum[n] = (uint32_t)d->bias[c0 + n];
            for (int t = 0; t < d->tap_count; t++) {
                const int32_t *w = d->weights + t * d->weight_stride + c0;
                const void *x = d->taps[p * d->tap_count + t];
                for (int n = 0; n < channels; n++) {
                    const int32_t value = d->dtype == NPUC_I16  ? ((const int16_t *)x)[c0 + n]
                                          : d->dtype == NPUC_I8 ? ((const int8_t *)x)[c0 + n]
                                                                : ((const uint8_t *)x)[c0 + n];
                    /* The low half of the pair, sign extended. */
                    sum[n] += (uint32_t)(value * (int16_t)(uint16_t)((uint32_t)w[n] & 0xffff));
                }
            }
            for (int n = 0; n < NPUC_PANEL; n++) acc[p * NPUC_PANEL + n] = (int32_t)sum[n];
        }
        finish_scalar(d->stage, d->pixels, NPUC_PANEL, d->first_panel + (int)(c0 / NPUC_PANEL), channels, acc, d->out, c0 * size);
    }
}

static void depthwise8(const npuc_depthwise8 *d)
{
    const ptrdiff_t size = npuc_element_size(d->stage->dtype), lanes = (d->channels + NPUC_PANEL - 1) / NPUC_PANEL;
    const ptrdiff_t groups = (d->tap_count + 3) / 4;
    const uint8_t sign = d->flip ? 0x80 : 0;
    const npuc_stage *s = d->stage;
    const npuc_requant rq = {s->kind, 2, s->multiplier, s->shift, s->scale, s->zero_point, s->lo, s->hi};
    for (ptrdiff_t p = 0; p < d->pixels; p++)
        for (ptrdiff_t block = 0; block < lanes; block += npuc_block_lanes(block, lanes)) {
            const int width = npuc_block_lanes(block, lanes);
            for (ptrdiff_t c = 0; c < width * NPUC_PANEL && block * NPUC_PANEL + c < d->channels; c++) {
                const ptrdiff_t channel = block * NPUC_PANEL + c;
                const ptrdiff_t slot = (c % 16 / 4 * width + c / 16) * 4 + c % 4;
                const int8_t *w = d->weights + block * NPUC_PANEL * groups * 4;
                uint32_t acc = (uint32_t)d->bias[block * NPUC_PANEL + slot];
                for (int t = 0; t < d->tap_count; t++) {
                    const uint8_t *x = d->taps ? d->taps[p * d->tap_count + t] : d->base + p * d->step + d->offset[t];
                    acc += (uint32_t)((npuc_activation)(x[channel] ^ sign) * w[(t / 4 * width * NPUC_PANEL + slot) * 4 + t % 4]);
                }
                int32_t value = (int32_t)acc;
                if (s->kind >= 0) value = npuc_requantize(&rq, value, (int32_t)((d->first_lane + block) * NPUC_PANEL + slot));
                npuc_store(s->dtype, d->out + p * d->out_step + channel * size, value);
            }
        }
}

const npuc_gemm_ops npuc_gemm_portable = {
    .name = "portable",
    .bytes = 0,
    .least_weight = -128,
    .rows8 = 4,
    .rows16 = 4,
    .panels = 1,
    .tile8 = tile8,
    .tile16 = tile16,
    .finish = finish,
    .gather8 = gather8,
    .gather16 = gather16,
    .depthwise = depthwise,
    .depthwise8 = depthwise8,
};
