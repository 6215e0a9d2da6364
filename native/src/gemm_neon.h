/*
 * The parts that both kernels for 64-bit ARM compile with their own flags: 16-bit products, the output stage, depthwise layers.
 *
 * Byte kernels of ARM multiply signed by signed, so that the bytes of activations are signed here (NPUC_SIGNED_BYTES) where
 * those of x86 are unsigned. The including file defines, beside what gemm_common.h asks for,
 * `dot4(int32x4_t acc, int8x16_t x, int8x16_t w)`: four sums of four products, each added to a lane of acc.
 */
#ifndef NPUC_GEMM_NEON_H
#define NPUC_GEMM_NEON_H

#include <arm_neon.h>
#include <string.h>

#include "gemm.h"

#define ALWAYS static inline __attribute__((always_inline))
#define WORD_ROWS 6

ALWAYS void copy_bytes(uint8_t *dst, const uint8_t *src, ptrdiff_t n, int flip)
{
    if (!flip) {
        memcpy(dst, src, (size_t)n);
        return;
    }
    const uint8x16_t sign = vdupq_n_u8(0x80);
    ptrdiff_t i = 0;
    for (; i + 16 <= n; i += 16) vst1q_u8(dst + i, veorq_u8(vld1q_u8(src + i), sign));
    for (; i < n; i++) dst[i] = src[i] ^ 0x80;
}

ALWAYS void widen_bytes(uint8_t *dst, const uint8_t *src, ptrdiff_t n, int is_signed)
{
    ptrdiff_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const uint8x8_t bytes = vld1_u8(src + i);
        const uint16x8_t words = is_signed ? vreinterpretq_u16_s16(vmovl_s8(vreinterpret_s8_u8(bytes))) : vmovl_u8(bytes);
        vst1q_u8(dst + 2 * i, vreinterpretq_u8_u16(words));
    }
    for (; i < n; i++) {
        const int16_t word = is_signed ? (int16_t)(int8_t)src[i] : (int16_t)src[i];
        memcpy(dst + 2 * i, &word, 2);
    }
}

#include "gemm_common.h"

/* A group of activations, 4 bytes or 2 words, in every group of the vector. */
ALWAYS int8x16_t spread(const uint8_t *a)
{
    int32_t group;
    memcpy(&group, a, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(group));
}

/* --- words ------------------------------------------------------------------------------------------------------------ */

/* rows is a constant in every caller, so that the accumulators live in registers. */
ALWAYS void word_tile(int rows, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, const int16_t *b, const int32_t *bias, int32_t *c)
{
    int32x4_t acc[WORD_ROWS][4];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) acc[r][q] = vld1q_s32(bias + 4 * q);
    for (ptrdiff_t i = 0; i < k; i++, a += 4, b += 2 * NPUC_PANEL) {
        const int16x8x2_t low = vld2q_s16(b), high = vld2q_s16(b + NPUC_PANEL);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const int16x4_t x = vget_low_s16(vreinterpretq_s16_s8(spread(a + r * stride)));
            acc[r][0] = vmlal_lane_s16(vmlal_lane_s16(acc[r][0], vget_low_s16(low.val[0]), x, 0), vget_low_s16(low.val[1]), x, 1);
            acc[r][1] = vmlal_high_lane_s16(vmlal_high_lane_s16(acc[r][1], low.val[0], x, 0), low.val[1], x, 1);
            acc[r][2] = vmlal_lane_s16(vmlal_lane_s16(acc[r][2], vget_low_s16(high.val[0]), x, 0), vget_low_s16(high.val[1]), x, 1);
            acc[r][3] = vmlal_high_lane_s16(vmlal_high_lane_s16(acc[r][3], high.val[0], x, 0), high.val[1], x, 1);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) vst1q_s32(c + r * NPUC_PANEL + 4 * q, acc[r][q]);
}

static void tile16(int rows, int panels, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, const int16_t *b, ptrdiff_t panel_bytes,
                   const int32_t *bias, int32_t *c)
{
    (void)panels, (void)panel_bytes; /* one panel at a time */
    switch (rows) {
    case 1: word_tile(1, k, a, stride, b, bias, c); break;
    case 2: word_tile(2, k, a, stride, b, bias, c); break;
    case 3: word_tile(3, k, a, stride, b, bias, c); break;
    case 4: word_tile(4, k, a, stride, b, bias, c); break;
    case 5: word_tile(5, k, a, stride, b, bias, c); break;
    default: word_tile(6, k, a, stride, b, bias, c);
    }
}

/* --- the output stage ------------------------------------------------------------------------------------------------- */

/*
 * The parameters of 4 channels. Shifts by a register go left, or right where they are negative; those that round add half of
 * what they shift out and need no room for the sum. They read the last byte of a lane: larger shifts are cut, which changes nothing.
 */
typedef struct {
    int32x4_t multiplier, left, right;
    int64x2_t right_low, right_high, half_low, half_high;
    float32x4_t scale;
} parameters;

ALWAYS parameters load_parameters(const npuc_stage *s, ptrdiff_t slot, int kind)
{
    parameters q;
    const int32x4_t zero = vdupq_n_s32(0), most = vdupq_n_s32(40);
    if (NPUC_HAS_MULTIPLIER(kind)) q.multiplier = vld1q_s32(s->multiplier + slot);
    if (kind == NPUC_DOUBLE_ROUNDING) {
        const int32x4_t over = vsubq_s32(vld1q_s32(s->shift + slot), vdupq_n_s32(31));
        q.left = vmaxq_s32(vnegq_s32(over), zero);
        q.right = vnegq_s32(vminq_s32(vmaxq_s32(over, zero), most));
    } else if (kind == NPUC_POW2) {
        q.right = vnegq_s32(vminq_s32(vld1q_s32(s->shift + slot), most));
    } else if (kind == NPUC_FLOAT_SCALE) {
        q.scale = vld1q_f32(s->scale + slot);
    } else if (kind == NPUC_SINGLE_ROUNDING || kind == NPUC_SINGLE_EVEN) {
        const int32x4_t shift = vld1q_s32(s->shift + slot);
        const int64x2_t one = vdupq_n_s64(1);
        q.right_low = vnegq_s64(vmovl_s32(vget_low_s32(shift)));
        q.right_high = vnegq_s64(vmovl_high_s32(shift));
        q.half_low = vsubq_s64(vshlq_s64(one, vsubq_s64(vnegq_s64(q.right_low), one)), one);
        q.half_high = vsubq_s64(vshlq_s64(one, vsubq_s64(vnegq_s64(q.right_high), one)), one);
    }
    return q;
}

/* Ties to even: half less one, and one more where the result is odd. */
ALWAYS int64x2_t shift_to_even(int64x2_t x, int64x2_t half, int64x2_t right)
{
    const int64x2_t odd = vandq_s64(vshlq_s64(x, right), vdupq_n_s64(1));
    return vshlq_s64(vaddq_s64(vaddq_s64(x, odd), half), right);
}

/* rq(acc), neither zero point nor saturation yet. */
ALWAYS int32x4_t rescale(int32x4_t acc, const parameters *q, int kind)
{
    if (kind == NPUC_DOUBLE_ROUNDING) {
        /* sqrdmulh is srdhm where the multiplier is not negative; then half away from zero: one less for a negative number. */
        const int32x4_t high = vqrdmulhq_s32(vshlq_s32(acc, q->left), q->multiplier);
        const int32x4_t less = vshrq_n_s32(vandq_s32(high, q->right), 31);
        return vrshlq_s32(vqaddq_s32(high, less), q->right);
    }
    if (kind == NPUC_SINGLE_ROUNDING || kind == NPUC_SINGLE_EVEN) {
        int64x2_t low = vmull_s32(vget_low_s32(acc), vget_low_s32(q->multiplier)), high = vmull_high_s32(acc, q->multiplier);
        if (kind == NPUC_SINGLE_EVEN) {
            low = shift_to_even(low, q->half_low, q->right_low);
            high = shift_to_even(high, q->half_high, q->right_high);
        } else {
            low = vrshlq_s64(low, q->right_low);
            high = vrshlq_s64(high, q->right_high);
        }
        return vcombine_s32(vmovn_s64(low), vmovn_s64(high));
    }
    if (kind == NPUC_POW2) return vrshlq_s32(acc, q->right);
    const float32x4_t scaled = vmulq_f32(vcvtq_f32_s32(acc), q->scale);
    return vcvtnq_s32_f32(vminq_f32(scaled, vdupq_n_f32(2147483520.0f)));
}

/* What follows rq. Clamping before the zero point is added is the same, and cannot overflow. */
typedef struct {
    int32x4_t lo, hi, zero_point;
} saturation;

ALWAYS saturation load_saturation(const npuc_stage *s)
{
    const int64_t lo = (int64_t)s->lo - s->zero_point, hi = (int64_t)s->hi - s->zero_point;
    const saturation t = {vdupq_n_s32((int32_t)npuc_clamp64(lo, INT32_MIN, INT32_MAX)),
                          vdupq_n_s32((int32_t)npuc_clamp64(hi, INT32_MIN, INT32_MAX)), vdupq_n_s32(s->zero_point)};
    return t;
}

ALWAYS int32x4_t requantize(int32x4_t acc, const parameters *q, const saturation *t, int kind)
{
    if (kind < 0) return acc;
    return vaddq_s32(vminq_s32(vmaxq_s32(rescale(acc, q, kind), t->lo), t->hi), t->zero_point);
}

/* Up to 16 channels: values that fit their type already. */
ALWAYS void store(int32_t dtype, uint8_t *out, ptrdiff_t channels, const int32x4_t y[4])
{
    uint8_t bytes[64];
    ptrdiff_t size = 4;
    if (dtype == NPUC_I32) {
        for (int q = 0; q < 4; q++) vst1q_u8(bytes + 16 * q, vreinterpretq_u8_s32(y[q]));
    } else {
        const int16x8_t low = vcombine_s16(vmovn_s32(y[0]), vmovn_s32(y[1])), high = vcombine_s16(vmovn_s32(y[2]), vmovn_s32(y[3]));
        size = 2;
        if (dtype == NPUC_I16) {
            vst1q_u8(bytes, vreinterpretq_u8_s16(low));
            vst1q_u8(bytes + 16, vreinterpretq_u8_s16(high));
        } else {
            const uint8x16_t all = vreinterpretq_u8_s8(vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
            size = 1;
            if (channels >= NPUC_PANEL) {
                vst1q_u8(out, all);
                return;
            }
            vst1q_u8(bytes, all);
        }
    }
    memcpy(out, bytes, (size_t)((channels < NPUC_PANEL ? channels : NPUC_PANEL) * size));
}

ALWAYS void finish_kind(const npuc_stage *s, int kind, int rows, int panels, int first_panel, ptrdiff_t channels, const int32_t *acc,
                        uint8_t *const *out)
{
    const ptrdiff_t size = npuc_element_size(s->dtype);
    const saturation t = load_saturation(s);
    for (int p = 0; p < panels; p++, channels -= NPUC_PANEL) {
        if (kind >= 0 && s->level[first_panel + p] == NPUC_SCALAR) {
            finish_scalar(s, rows, (ptrdiff_t)panels * NPUC_PANEL, first_panel + p, channels < NPUC_PANEL ? (int)channels : NPUC_PANEL,
                          acc + p * NPUC_PANEL, out, p * NPUC_PANEL * size);
            continue;
        }
        parameters parameter[4];
        for (int q = 0; q < 4 && kind >= 0; q++)
            parameter[q] = load_parameters(s, (ptrdiff_t)(first_panel + p) * NPUC_PANEL + 4 * q, kind);
        for (int r = 0; r < rows; r++) {
            int32x4_t y[4];
#pragma GCC unroll 4
            for (int q = 0; q < 4; q++)
                y[q] = requantize(vld1q_s32(acc + ((ptrdiff_t)r * panels + p) * NPUC_PANEL + 4 * q), &parameter[q], &t, kind);
            store(s->dtype, out[r] + p * NPUC_PANEL * size, channels, y);
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

/* --- depthwise -------------------------------------------------------------------------------------------------------- */

/* Eight channels as int16; fewer come through a buffer, since nothing beyond the row may be read. */
ALWAYS int16x8_t load_wide(const void *p, ptrdiff_t at, ptrdiff_t channels, int dtype)
{
    const ptrdiff_t size = dtype == NPUC_I16 ? 2 : 1;
    const uint8_t *from = (const uint8_t *)p + at * size;
    uint8_t buffer[16] = {0};
    if (channels < 8) {
        memcpy(buffer, from, (size_t)(channels * size));
        from = buffer;
    }
    if (dtype == NPUC_I16) return vreinterpretq_s16_u8(vld1q_u8(from));
    const uint8x8_t bytes = vld1_u8(from);
    return dtype == NPUC_I8 ? vmovl_s8(vreinterpret_s8_u8(bytes)) : vreinterpretq_s16_u16(vmovl_u8(bytes));
}

ALWAYS void depthwise_pixels(const npuc_depthwise *d, int first, int pixels, ptrdiff_t c0, ptrdiff_t channels, int dtype, int32_t *to)
{
    int32x4_t acc[4][2];
#pragma GCC unroll 4
    for (int p = 0; p < pixels; p++) acc[p][0] = vld1q_s32(d->bias + c0), acc[p][1] = vld1q_s32(d->bias + c0 + 4);
    for (int t = 0; t < d->tap_count; t++) {
        /* The weight is the low half of each lane. */
        const int32_t *from = d->weights + t * d->weight_stride + c0;
        const int16x4_t w0 = vmovn_s32(vld1q_s32(from)), w1 = vmovn_s32(vld1q_s32(from + 4));
#pragma GCC unroll 4
        for (int p = 0; p < pixels; p++) {
            const int16x8_t x = load_wide(d->taps[(first + p) * d->tap_count + t], c0, channels, dtype);
            acc[p][0] = vmlal_s16(acc[p][0], vget_low_s16(x), w0);
            acc[p][1] = vmlal_s16(acc[p][1], vget_high_s16(x), w1);
        }
    }
#pragma GCC unroll 4
    for (int p = 0; p < pixels; p++) {
        vst1q_s32(to + (first + p) * NPUC_PANEL, acc[p][0]);
        vst1q_s32(to + (first + p) * NPUC_PANEL + 4, acc[p][1]);
    }
}

ALWAYS void depthwise_panel(const npuc_depthwise *d, ptrdiff_t c0, int dtype, int32_t *to)
{
    for (int half = 0; half < NPUC_PANEL && c0 + half < d->channels; half += 8) {
        const ptrdiff_t left = d->channels - c0 - half;
        int first = 0;
        if (left >= 8)
            for (; first + 4 <= d->pixels; first += 4) depthwise_pixels(d, first, 4, c0 + half, 8, dtype, to + half);
        for (; first < d->pixels; first++) depthwise_pixels(d, first, 1, c0 + half, left < 8 ? left : 8, dtype, to + half);
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

/*
 * One lane of 16 channels, from channel `at` on, of pixel `p`. Four taps are interleaved by two zips to four vectors of four channels; their sums go to
 * `to`, where the slots of a block of `width` lanes are (see gemm.h).
 */
ALWAYS void depthwise_lane(const npuc_depthwise8 *d, ptrdiff_t p, ptrdiff_t at, const int8_t *weights, const int32_t *bias, int width,
                           int32_t *to)
{
    const ptrdiff_t channels = d->channels - at;
    const int8x16_t sign = vdupq_n_s8(d->flip ? INT8_MIN : 0);
    int32x4_t acc[4];
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++) acc[q] = vld1q_s32(bias + 4 * q * width);
    for (int t0 = 0; t0 < d->tap_count; t0 += 4, weights += 64 * width) {
        int8x16_t x[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            x[i] = vdupq_n_s8(0);
            if (t0 + i >= d->tap_count) continue;
            const uint8_t *from = (d->taps ? d->taps[p * d->tap_count + t0 + i] : d->base + p * d->step + d->offset[t0 + i]) + at;
            uint8_t buffer[16] = {0};
            if (channels < 16) {
                memcpy(buffer, from, (size_t)channels);
                from = buffer;
            }
            x[i] = veorq_s8(vreinterpretq_s8_u8(vld1q_u8(from)), sign);
        }
        const int16x8_t low01 = vreinterpretq_s16_s8(vzip1q_s8(x[0], x[1])), high01 = vreinterpretq_s16_s8(vzip2q_s8(x[0], x[1]));
        const int16x8_t low23 = vreinterpretq_s16_s8(vzip1q_s8(x[2], x[3])), high23 = vreinterpretq_s16_s8(vzip2q_s8(x[2], x[3]));
        const int16x8_t four[4] = {vzip1q_s16(low01, low23), vzip2q_s16(low01, low23), vzip1q_s16(high01, high23),
                                   vzip2q_s16(high01, high23)};
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) acc[q] = dot4(acc[q], vreinterpretq_s8_s16(four[q]), vld1q_s8(weights + 16 * q * width));
    }
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++) vst1q_s32(to + 4 * q * width, acc[q]);
}

/* A block of `width` lanes at slot `slot` through the output stage; its levels stand at `panel`. */
ALWAYS void finish_lanes(const npuc_stage *s, int kind, int width, ptrdiff_t slot, ptrdiff_t panel, ptrdiff_t channels,
                         const int32_t *acc, uint8_t *out)
{
    const ptrdiff_t size = npuc_element_size(s->dtype);
    const saturation t = load_saturation(s);
    const npuc_requant rq = {s->kind, 2, s->multiplier, s->shift, s->scale, s->zero_point, s->lo, s->hi};
    for (int lane = 0; lane < width; lane++, channels -= NPUC_PANEL, out += NPUC_PANEL * size) {
        int32x4_t y[4];
        if (kind >= 0 && s->level[panel + lane] == NPUC_SCALAR) {
            for (int c = 0; c < NPUC_PANEL && c < channels; c++) {
                const int at = (c / 4 * width + lane) * 4 + c % 4;
                npuc_store(s->dtype, out + c * size, npuc_requantize(&rq, acc[at], (int32_t)slot + at));
            }
            continue;
        }
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) {
            const int at = (q * width + lane) * 4;
            const parameters parameter = load_parameters(s, slot + at, kind);
            y[q] = requantize(vld1q_s32(acc + at), &parameter, &t, kind);
        }
        store(s->dtype, out, channels, y);
    }
}

ALWAYS void depthwise8_kind(const npuc_depthwise8 *d, int kind)
{
    const ptrdiff_t lanes = (d->channels + NPUC_PANEL - 1) / NPUC_PANEL, groups = (d->tap_count + 3) / 4;
    const ptrdiff_t size = npuc_element_size(d->stage->dtype);
    for (ptrdiff_t block = 0, width; block < lanes; block += width) {
        width = npuc_block_lanes(block, lanes);
        const ptrdiff_t c0 = block * NPUC_PANEL;
        const int8_t *weights = d->weights + c0 * groups * 4;
        for (ptrdiff_t p = 0; p < d->pixels; p++) {
            int32_t acc[4 * NPUC_PANEL];
            for (ptrdiff_t lane = 0; lane < width; lane++)
                depthwise_lane(d, p, c0 + lane * NPUC_PANEL, weights + 16 * lane, d->bias + c0 + 4 * lane, (int)width, acc + 4 * lane);
            finish_lanes(d->stage, kind, (int)width, (d->first_lane + block) * NPUC_PANEL, d->first_lane + block, d->channels - c0, acc,
                         d->out + p * d->out_step + c0 * size);
        }
    }
}

static void depthwise8(const npuc_depthwise8 *d)
{
    switch (d->stage->kind) {
    case NPUC_DOUBLE_ROUNDING: depthwise8_kind(d, NPUC_DOUBLE_ROUNDING); break;
    case NPUC_SINGLE_ROUNDING: depthwise8_kind(d, NPUC_SINGLE_ROUNDING); break;
    case NPUC_SINGLE_EVEN: depthwise8_kind(d, NPUC_SINGLE_EVEN); break;
    case NPUC_POW2: depthwise8_kind(d, NPUC_POW2); break;
    case NPUC_FLOAT_SCALE: depthwise8_kind(d, NPUC_FLOAT_SCALE); break;
    default: depthwise8_kind(d, -1);
    }
}

#endif /* NPUC_GEMM_NEON_H */
