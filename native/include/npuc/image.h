/*
 * npuc: images of bytes before they become tensors. Rows of pixels of interleaved channels (height x width x channels), dense.
 *
 * A kernel of resampling is named after the library whose results it has. Pointers must be valid for the sizes; all else is
 * checked, and a call that cannot be carried out returns an npuc_status and touches nothing.
 */
#ifndef NPUC_IMAGE_H
#define NPUC_IMAGE_H

#include "npuc/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Pillow's filters widen when an image shrinks; OpenCV's have fixed reach. All have the bits of their library but
 * NPUC_OPENCV_LINEAR, which OpenCV itself computes in several ways: that one is within 1.
 */
typedef enum npuc_image_kernel {
    NPUC_PILLOW_NEAREST = 0,
    NPUC_PILLOW_BILINEAR = 1,
    NPUC_PILLOW_BICUBIC = 2,
    NPUC_OPENCV_NEAREST = 3,
    NPUC_OPENCV_NEAREST_EXACT = 4,
    NPUC_OPENCV_LINEAR = 5,
    NPUC_OPENCV_LINEAR_EXACT = 6
} npuc_image_kernel;

/* The longest side of an image, and the most pixels of one. */
#define NPUC_IMAGE_MOST_SIDE 65535
#define NPUC_IMAGE_MOST_PIXELS ((int64_t)1 << 28)

/* Resize h x w x c to out_h x out_w x c; 1 to 4 channels. */
NPUC_API npuc_status npuc_image_resize(int32_t kernel, const uint8_t *x, int64_t h, int64_t w, int64_t c, uint8_t *y, int64_t out_h,
                                       int64_t out_w);

/*
 * How luma (Y) and the two chroma samples (U, V) of a picture lie in memory. 4:2:0 has one U and one V for 2 x 2 pixels, and
 * both sides are even; 4:2:2 has them for two pixels of a row, and the width is even.
 */
typedef enum npuc_yuv_format {
    NPUC_I420 = 0, /* all Y, all U, all V */
    NPUC_YV12 = 1, /* all Y, all V, all U */
    NPUC_NV12 = 2, /* all Y, then U V U V ... */
    NPUC_NV21 = 3, /* all Y, then V U V U ... */
    NPUC_YUYV = 4, /* Y U Y V ... */
    NPUC_UYVY = 5  /* U Y V Y ... */
} npuc_yuv_format;

/* BT.601 of limited range (luma 16 to 235) to h x w x 3 in the order red, green, blue, with the bits of OpenCV's cvtColor. */
NPUC_API npuc_status npuc_image_from_yuv(int32_t format, const uint8_t *x, int64_t h, int64_t w, uint8_t *rgb);

#ifdef __cplusplus
}
#endif

#endif /* NPUC_IMAGE_H */
