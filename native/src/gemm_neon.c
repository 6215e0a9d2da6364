/*
 * The kernels for every 64-bit ARM: smull, smlal and sadalp on bytes, smlal on words.
 *
 * Two products of bytes are added in 16 bits before their sum goes to 32: (-128 * -128) * 2 is the one sum that does not fit, so
 * that the byte kernels take weights of -127 or more. A sum of four products stands in two halves of 32 bits, which are added at
 * the end of a tile; hence two accumulators for four channels, and tiles of three rows.
 */
#include "gemm.h"

#if NPUC_NEON
#include <arm_neon.h>

static inline __attribute__((always_inline)) int32x4_t dot4(int32x4_t acc, int8x16_t x, int8x16_t w)
{
    const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(x), vget_low_s8(w))), high = vpaddlq_s16(vmull_high_s8(x, w));
    return vaddq_s32(acc, vpaddq_s32(low, high));
}

#include "gemm_neon.h"

#define BYTE_ROWS 3

ALWAYS void byte_tile(int rows, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, int flip, const int8_t *b, const int32_t *bias, int32_t *c)
{
    const int8x16_t sign = vdupq_n_s8(flip ? INT8_MIN : 0);
    int32x4_t acc[BYTE_ROWS][8];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int h = 0; h < 8; h++) acc[r][h] = vdupq_n_s32(0);
    ptrdiff_t i = 0;
    for (; i + 2 <= k; i += 2, a += 8, b += 128) {
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) {
            const int8x16_t w0 = vld1q_s8(b + 16 * q), w1 = vld1q_s8(b + 64 + 16 * q);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                const int8x16_t x0 = veorq_s8(spread(a + r * stride), sign), x1 = veorq_s8(spread(a + r * stride + 4), sign);
                const int16x8_t low = vmlal_s8(vmull_s8(vget_low_s8(x0), vget_low_s8(w0)), vget_low_s8(x1), vget_low_s8(w1));
                const int16x8_t high = vmlal_high_s8(vmull_high_s8(x0, w0), x1, w1);
                acc[r][2 * q] = vpadalq_s16(acc[r][2 * q], low);
                acc[r][2 * q + 1] = vpadalq_s16(acc[r][2 * q + 1], high);
            }
        }
    }
    for (; i < k; i++, a += 4, b += 64) {
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) {
            const int8x16_t w = vld1q_s8(b + 16 * q);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                const int8x16_t x = veorq_s8(spread(a + r * stride), sign);
                acc[r][2 * q] = vpadalq_s16(acc[r][2 * q], vmull_s8(vget_low_s8(x), vget_low_s8(w)));
                acc[r][2 * q + 1] = vpadalq_s16(acc[r][2 * q + 1], vmull_high_s8(x, w));
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++)
            vst1q_s32(c + r * NPUC_PANEL + 4 * q, vaddq_s32(vld1q_s32(bias + 4 * q), vpaddq_s32(acc[r][2 * q], acc[r][2 * q + 1])));
}

static void tile8(int rows, int panels, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, int flip, const int8_t *b, ptrdiff_t panel_bytes,
                  const int32_t *bias, int32_t *c)
{
    (void)panels, (void)panel_bytes; /* one panel at a time */
    switch (rows) {
    case 1: byte_tile(1, k, a, stride, flip, b, bias, c); break;
    case 2: byte_tile(2, k, a, stride, flip, b, bias, c); break;
    default: byte_tile(3, k, a, stride, flip, b, bias, c);
    }
}

const npuc_gemm_ops npuc_gemm_neon = {
    .name = "neon",
    .bytes = 1,
    .least_weight = -127,
    .rows8 = BYTE_ROWS,
    .rows16 = WORD_ROWS,
    .panels = 1,
    .tile8 = tile8,
    .tile16 = tile16,
    .finish = finish,
    .gather8 = gather8,
    .gather16 = gather16,
    .depthwise = depthwise,
    .depthwise8 = depthwise8,
};
#endif
