/* Luma and chroma to red, green and blue: BT.601 of limited range with 20 fractional bits, as OpenCV's cvtColor has it. */
#include "npuc/image.h"

#define SHIFT 20
#define FROM_LUMA 1220542
#define BLUE_FROM_U 2116026
#define GREEN_FROM_U (-409993)
#define GREEN_FROM_V (-852492)
#define RED_FROM_V 1673527

static uint8_t byte_of(int32_t sum)
{
    const int32_t value = sum >> SHIFT;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* The pixels of `count` samples of luma, `step` bytes apart, that share one U and one V. */
static void share_chroma(const uint8_t *luma, int64_t step, int64_t count, int u, int v, uint8_t *rgb)
{
    const int32_t half = 1 << (SHIFT - 1);
    const int32_t red = half + RED_FROM_V * (v - 128), green = half + GREEN_FROM_V * (v - 128) + GREEN_FROM_U * (u - 128);
    const int32_t blue = half + BLUE_FROM_U * (u - 128);
    for (int64_t i = 0; i < count; i++, luma += step, rgb += 3) {
        const int32_t y = (*luma > 16 ? *luma - 16 : 0) * FROM_LUMA;
        rgb[0] = byte_of(y + red), rgb[1] = byte_of(y + green), rgb[2] = byte_of(y + blue);
    }
}

/* Where the samples of a format are: the bytes between neighbours in a row and between rows. */
typedef struct samples {
    const uint8_t *luma, *u, *v;
    int64_t luma_step, luma_pitch, chroma_step, chroma_pitch;
    int rows; /* of luma to a row of chroma */
} samples;

static int locate(int32_t format, const uint8_t *x, int64_t h, int64_t w, samples *s)
{
    const uint8_t *chroma = x + h * w;
    const int64_t quarter = (h / 2) * (w / 2);
    *s = (samples){x, chroma, chroma, 1, w, 2, w, 2};
    switch (format) {
    case NPUC_I420:
    case NPUC_YV12:
        s->chroma_step = 1, s->chroma_pitch = w / 2;
        *(format == NPUC_I420 ? &s->v : &s->u) = chroma + quarter;
        return 1;
    case NPUC_NV12: s->v = chroma + 1; return 1;
    case NPUC_NV21: s->u = chroma + 1; return 1;
    case NPUC_YUYV: *s = (samples){x, x + 1, x + 3, 2, 2 * w, 4, 2 * w, 1}; return 1;
    case NPUC_UYVY: *s = (samples){x + 1, x, x + 2, 2, 2 * w, 4, 2 * w, 1}; return 1;
    default: return 0;
    }
}

npuc_status npuc_image_from_yuv(int32_t format, const uint8_t *x, int64_t h, int64_t w, uint8_t *rgb)
{
    samples s;
    if (h < 1 || w < 1 || h > NPUC_IMAGE_MOST_SIDE || w > NPUC_IMAGE_MOST_SIDE || h * w > NPUC_IMAGE_MOST_PIXELS) return NPUC_BAD_ARGUMENT;
    if (!x || !rgb || !locate(format, x, h, w, &s) || w % 2 || h % s.rows) return NPUC_BAD_ARGUMENT;
    for (int64_t row = 0; row < h; row++) {
        const uint8_t *luma = s.luma + row * s.luma_pitch;
        const int64_t chroma = row / s.rows * s.chroma_pitch;
        for (int64_t pair = 0; pair < w / 2; pair++)
            share_chroma(luma + 2 * pair * s.luma_step, s.luma_step, 2, s.u[chroma + pair * s.chroma_step],
                         s.v[chroma + pair * s.chroma_step], rgb + (row * w + 2 * pair) * 3);
    }
    return NPUC_OK;
}
