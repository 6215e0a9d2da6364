/*
 * Preprocessing, with the bits of npuc's own (which are those of Pillow 13): filters are widened when an image shrinks,
 * weights have 22 fractional bits, one axis is filtered after the other, and the result of each step is 8 bits.
 */
#include "image.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PIXELS 80000000
#define WEIGHT_BITS 22

static const char no_memory[] = "there is not enough memory";

static int allocate(image *img, int width, int height, int channels)
{
    *img = (image){width, height, channels, malloc((size_t)width * (size_t)height * (size_t)channels)};
    return img->pixels != NULL;
}

void image_free(image *img)
{
    free(img->pixels);
    *img = (image){0};
}

/* ---- files ---- */

/* The next number of a header, behind spaces and comments; -1 if there is none. */
static long header_number(FILE *file)
{
    int c = getc(file);
    while (c == '#' || c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        while (c == '#' && (c = getc(file)) != '\n' && c != EOF) c = '#';
        c = getc(file);
    }
    if (c < '0' || c > '9') return -1;
    long value = 0;
    for (; c >= '0' && c <= '9'; c = getc(file))
        if ((value = value * 10 + (c - '0')) > MOST_PIXELS) return -1;
    return value; /* the one space behind it is read too */
}

static const char *read_pixels(FILE *file, image *into)
{
    const int first = getc(file), kind = getc(file);
    if (first != 'P' || (kind != '5' && kind != '6')) return "not a binary PPM (P6) or PGM (P5) file";
    const long width = header_number(file), height = header_number(file), most = header_number(file);
    if (width < 1 || height < 1 || width > MOST_PIXELS / height) return "the image has an impossible size";
    if (most != 255) return "only samples of 8 bits (0 to 255) are read";
    if (!allocate(into, (int)width, (int)height, kind == '6' ? 3 : 1)) return no_memory;
    const size_t size = (size_t)width * (size_t)height * (size_t)into->channels;
    return fread(into->pixels, 1, size, file) == size ? NULL : "the image ends too early";
}

const char *image_read(const char *path, image *into)
{
    *into = (image){0};
    FILE *file = fopen(path, "rb");
    if (!file) return "the file cannot be opened";
    const char *why = read_pixels(file, into);
    fclose(file);
    if (why) image_free(into);
    return why;
}

/* ---- channels ---- */

static const char *with_channels(const image *from, int channels, image *to)
{
    if (!allocate(to, from->width, from->height, channels)) return no_memory;
    const size_t pixels = (size_t)from->width * (size_t)from->height;
    for (size_t i = 0; i < pixels; i++) {
        const uint8_t *p = from->pixels + i * (size_t)from->channels;
        const uint8_t red = p[0], green = p[from->channels > 1 ? 1 : 0], blue = p[from->channels > 1 ? 2 : 0];
        uint8_t *q = to->pixels + i * (size_t)channels;
        if (channels == 1) {
            q[0] = from->channels == 1 ? red : (uint8_t)((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16);
        } else {
            q[0] = red, q[1] = green, q[2] = blue;
            if (channels == 4) q[3] = 255;
        }
    }
    return NULL;
}

/* ---- resize ---- */

static double filter(enum interpolation kind, double x)
{
    x = fabs(x);
    if (kind == BILINEAR) return x < 1.0 ? 1.0 - x : 0.0;
    const double a = -0.5;
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * a : 0.0;
}

/* For each output the first input, how many there are, and their weights. */
typedef struct taps {
    int most;
    int *first, *count;
    int32_t *weight; /* `most` for each output */
    double *exact;
} taps;

static void taps_free(taps *t)
{
    free(t->first);
    free(t->count);
    free(t->weight);
    free(t->exact);
}

static int taps_make(taps *t, int from, int to, enum interpolation kind)
{
    const double step = (double)from / to, wide = step < 1.0 ? 1.0 : step;
    const double support = (kind == BILINEAR ? 1.0 : 2.0) * wide, narrow = 1.0 / wide;
    t->most = (int)ceil(support) * 2 + 1;
    t->first = malloc((size_t)to * sizeof *t->first);
    t->count = malloc((size_t)to * sizeof *t->count);
    t->weight = malloc((size_t)to * (size_t)t->most * sizeof *t->weight);
    t->exact = malloc((size_t)t->most * sizeof *t->exact);
    if (!t->first || !t->count || !t->weight || !t->exact) return 0;
    for (int i = 0; i < to; i++) {
        const double center = (i + 0.5) * step;
        int first = (int)(center - support + 0.5), end = (int)(center + support + 0.5);
        if (first < 0) first = 0;
        if (end > from) end = from;
        double sum = 0.0;
        for (int k = 0; k < end - first; k++) sum += t->exact[k] = filter(kind, (k + first - center + 0.5) * narrow);
        for (int k = 0; k < end - first; k++) {
            const double weight = sum != 0.0 ? t->exact[k] / sum : t->exact[k];
            t->weight[i * t->most + k] = (int32_t)((weight < 0 ? -0.5 : 0.5) + weight * (1 << WEIGHT_BITS));
        }
        t->first[i] = first;
        t->count[i] = end - first;
    }
    return 1;
}

static uint8_t rounded(int32_t sum)
{
    const int32_t value = sum < 0 ? -1 : sum >> WEIGHT_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* One axis: `lines` times `to` outputs; the inputs of an output are `step` bytes apart, the lines `pitch` bytes. */
static void resize_axis(const taps *t, const uint8_t *x, size_t x_step, size_t x_pitch, uint8_t *y, size_t y_step, size_t y_pitch,
                        int lines, int to, int channels)
{
    for (int line = 0; line < lines; line++)
        for (int i = 0; i < to; i++)
            for (int c = 0; c < channels; c++) {
                const uint8_t *at = x + (size_t)line * x_pitch + (size_t)t->first[i] * x_step + c;
                int32_t sum = 1 << (WEIGHT_BITS - 1);
                for (int k = 0; k < t->count[i]; k++) sum += at[(size_t)k * x_step] * t->weight[i * t->most + k];
                y[(size_t)line * y_pitch + (size_t)i * y_step + (size_t)c] = rounded(sum);
            }
}

static const char *filter_axis(const image *from, int to, int is_width, enum interpolation kind, image *out)
{
    taps t = {0};
    const size_t channels = (size_t)from->channels;
    const int ready = taps_make(&t, is_width ? from->width : from->height, to, kind) &&
                      allocate(out, is_width ? to : from->width, is_width ? from->height : to, from->channels);
    if (ready && is_width)
        resize_axis(&t, from->pixels, channels, channels * (size_t)from->width, out->pixels, channels, channels * (size_t)to,
                    from->height, to, from->channels);
    else if (ready)
        resize_axis(&t, from->pixels, channels * (size_t)from->width, channels, out->pixels, channels * (size_t)from->width,
                    channels, from->width, to, from->channels);
    taps_free(&t);
    return ready ? NULL : no_memory;
}

static const char *nearest(const image *from, int height, int width, image *to)
{
    if (!allocate(to, width, height, from->channels)) return no_memory;
    const double step_y = (double)from->height / height, step_x = (double)from->width / width;
    const size_t channels = (size_t)from->channels;
    double at_y = step_y * 0.5;
    for (int y = 0; y < height; y++, at_y += step_y) {
        const int row = at_y < from->height ? (int)at_y : from->height - 1;
        double at_x = step_x * 0.5;
        for (int x = 0; x < width; x++, at_x += step_x) {
            const int column = at_x < from->width ? (int)at_x : from->width - 1;
            memcpy(to->pixels + ((size_t)y * (size_t)width + (size_t)x) * channels,
                   from->pixels + ((size_t)row * (size_t)from->width + (size_t)column) * channels, channels);
        }
    }
    return NULL;
}

/* Replaces an image by a resized one. */
static const char *resize(image *img, int height, int width, enum interpolation kind)
{
    image resized = {0};
    const char *why = NULL;
    if (kind == NEAREST) {
        why = nearest(img, height, width, &resized);
        if (!why) image_free(img), *img = resized;
        return why;
    }
    /* Rows first if that saves much more: the rule is Pillow's, and the order changes bits. */
    const int rows_first = height < img->height && img->height - height > 2 * (img->width - width);
    for (int pass = 0; pass < 2 && !why; pass++) {
        const int is_width = pass == rows_first;
        if ((is_width ? width : height) == (is_width ? img->width : img->height)) continue;
        why = filter_axis(img, is_width ? width : height, is_width, kind, &resized);
        if (!why) image_free(img), *img = resized;
    }
    return why;
}

/* ---- geometry ---- */

/* Replaces an image by its part at (top, left), or by a larger one that it is a part of: what is outside has one value. */
static const char *window(image *img, int top, int left, int height, int width, int value)
{
    image cut;
    if (!allocate(&cut, width, height, img->channels)) return no_memory;
    const int channels = img->channels;
    memset(cut.pixels, value, (size_t)width * (size_t)height * (size_t)channels);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            if (y + top >= 0 && y + top < img->height && x + left >= 0 && x + left < img->width)
                memcpy(cut.pixels + ((size_t)y * (size_t)width + (size_t)x) * (size_t)channels,
                       img->pixels + ((size_t)(y + top) * (size_t)img->width + (size_t)(x + left)) * (size_t)channels,
                       (size_t)channels);
    image_free(img);
    *img = cut;
    return NULL;
}

static const char *fit(image *img, const preprocess *how)
{
    const int height = how->resize_height, width = how->resize_width, cover = how->crop_height > 0;
    if (!how->keep_aspect_ratio) return resize(img, height, width, how->interpolation);
    const double tall = (double)height / img->height, broad = (double)width / img->width;
    const double ratio = cover == (tall > broad) ? tall : broad;
    const double rows = fmax(1.0, rint(img->height * ratio)), columns = fmax(1.0, rint(img->width * ratio));
    if (rows * columns > MOST_PIXELS) return "the resized image would be too large";
    const int new_height = (int)rows, new_width = (int)columns;
    const char *why = resize(img, new_height, new_width, how->interpolation);
    if (why || cover) return why;
    const int top = how->pad_center ? (height - new_height) / 2 : 0, left = how->pad_center ? (width - new_width) / 2 : 0;
    return window(img, -top, -left, height, width, how->pad_value);
}

/* ---- values ---- */

static void write_tensor(const image *from, const preprocess *how, int dtype, void *data)
{
    const int channels = from->channels;
    const size_t pixels = (size_t)from->width * (size_t)from->height;
    for (size_t i = 0; i < pixels; i++)
        for (int c = 0; c < channels; c++) {
            const int source = how->blue_first ? channels - 1 - c : c;
            const uint8_t pixel = from->pixels[i * (size_t)channels + (size_t)source];
            const size_t at = how->channels_first ? (size_t)c * pixels + i : i * (size_t)channels + (size_t)c;
            if (dtype == NPU_F32)
                ((float *)data)[at] = ((float)pixel - how->mean[c]) * how->scale[c];
            else
                ((uint8_t *)data)[at] = pixel;
        }
}

const char *image_to_tensor(const image *from, const preprocess *how, const npu_tensor *tensor, void *data)
{
    image img = {0};
    if (tensor->dtype != NPU_F32 && tensor->dtype != NPU_U8) return "this input takes neither float32 nor uint8";
    const char *why = with_channels(from, how->channels, &img);
    if (!why) why = fit(&img, how);
    if (!why && how->crop_height)
        why = window(&img, (img.height - how->crop_height) / 2, (img.width - how->crop_width) / 2, how->crop_height,
                     how->crop_width, 0);
    if (!why && (int64_t)img.width * img.height * img.channels != tensor->elements)
        why = "this input takes more than one image";
    if (!why) write_tensor(&img, how, tensor->dtype, data);
    image_free(&img);
    return why;
}
