/* Images: from a PPM, PGM, BMP, JPEG or PNG file to the tensor that the network takes. */
#ifndef IMAGE_H
#define IMAGE_H

#include <stdio.h>

#include "npu.h"
#include "npuc/image.h"

/* How an image becomes an input; settings.c has the values that the model was compiled with. */
typedef struct preprocess {
    int resize_height, resize_width;
    int crop_height, crop_width; /* 0: no crop */
    int keep_aspect_ratio;
    int pad_value, pad_center;
    int channels;       /* 1 gray, 3 RGB, 4 RGBA */
    int blue_first;     /* the network wants BGR */
    int channels_first; /* N x C x H x W */
    npuc_image_kernel interpolation;
    int standardize; /* by the image's own mean and deviation: 1 of all channels, 2 of each; 0: by these */
    float mean[4], scale[4];
} preprocess;

/* One for each input of the model, entry after entry; NULL for an input that takes no image. */
extern const preprocess *const settings[];
extern const int settings_count;
/* Where the inputs of each entry begin among them. */
extern const int settings_first[];

typedef struct image {
    int width, height, channels;
    uint8_t *pixels; /* height x width x channels */
} image;

/* Room for an image of a possible size; NULL, or what is wrong. */
const char *image_allocate(image *into, uint32_t width, uint32_t height, int channels);

/* decode.c, where the libraries are there. */
const char *image_read_jpeg(FILE *file, image *into);
const char *image_read_png(FILE *file, image *into);

/* Read a file of 8-bit samples: a binary PPM (P6) or PGM (P5), a BMP, a JPEG or a PNG. Returns NULL, or what is wrong. */
const char *image_read(const char *path, image *into);
void image_free(image *img);

/* Resize, crop, subtract the mean, scale; `tensor` says what `data` has to be. Returns NULL, or what is wrong. */
const char *image_to_tensor(const image *from, const preprocess *how, const npu_tensor *tensor, void *data);

#endif /* IMAGE_H */
