/*
 * The kernels for 64-bit ARM with the dot products of Armv8.2: sdot, 16 products of bytes an instruction, exact for any bytes.
 *
 * A tile is up to 6 rows by one panel: 24 accumulators, four weight registers and a group of activations. Without the flag of
 * the compiler that allows these instructions the table is empty, and isa.c passes over it.
 */
#include "gemm.h"

#if NPUC_NEON && !defined(__ARM_FEATURE_DOTPROD)
const npuc_gemm_ops npuc_gemm_neondot = {0};
#elif NPUC_NEON
#include <arm_neon.h>

static inline __attribute__((always_inline)) int32x4_t dot4(int32x4_t acc, int8x16_t x, int8x16_t w) { return vdotq_s32(acc, x, w); }

#include "gemm_neon.h"

#define BYTE_ROWS 6

ALWAYS void byte_tile(int rows, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, int flip, const int8_t *b, const int32_t *bias, int32_t *c)
{
    const int8x16_t sign = vdupq_n_s8(INT8_MIN);
    int32x4_t acc[BYTE_ROWS][4];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) acc[r][q] = vld1q_s32(bias + 4 * q);
    for (ptrdiff_t i = 0; i < k; i++, a += 4, b += 64) {
        const int8x16_t w[4] = {vld1q_s8(b), vld1q_s8(b + 16), vld1q_s8(b + 32), vld1q_s8(b + 48)};
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            int8x16_t x = spread(a + r * stride);
            if (flip) x = veorq_s8(x, sign);
#pragma GCC unroll 4
            for (int q = 0; q < 4; q++) acc[r][q] = vdotq_s32(acc[r][q], x, w[q]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) vst1q_s32(c + r * NPUC_PANEL + 4 * q, acc[r][q]);
}

ALWAYS void byte_tiles(int rows, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, int flip, const int8_t *b, const int32_t *bias,
                       int32_t *c)
{
    if (flip)
        byte_tile(rows, k, a, stride, 1, b, bias, c);
    else
        byte_tile(rows, k, a, stride, 0, b, bias, c);
}

static void tile8(int rows, int panels, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, int flip, const int8_t *b, ptrdiff_t panel_bytes,
                  const int32_t *bias, int32_t *c)
{
    (void)panels, (void)panel_bytes; /* one panel at a time */
    switch (rows) {
    case 1: byte_tiles(1, k, a, stride, flip, b, bias, c); break;
    case 2: byte_tiles(2, k, a, stride, flip, b, bias, c); break;
    case 3: byte_tiles(3, k, a, stride, flip, b, bias, c); break;
    case 4: byte_tiles(4, k, a, stride, flip, b, bias, c); break;
    case 5: byte_tiles(5, k, a, stride, flip, b, bias, c); break;
    default: byte_tiles(6, k, a, stride, flip, b, bias, c);
    }
}

const npuc_gemm_ops npuc_gemm_neondot = {
    .name = "neondot",
    .bytes = 1,
    .least_weight = -128,
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
