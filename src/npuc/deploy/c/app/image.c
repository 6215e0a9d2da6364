/* Preprocessing, with the bits of npuc's own; the runtime resizes, with those of Pillow 13 or of OpenCV. */
#include "image.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PIXELS 80000000

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
    if (first != 'P' || (kind != '5' && kind != '6')) return "not a BMP, a binary PPM (P6) or PGM (P5), JPEG or PNG file";
    const long width = header_number(file), height = header_number(file), most = header_number(file);
    if (width < 1 || height < 1 || width > MOST_PIXELS / height) return "the image has an impossible size";
    if (most != 255) return "only samples of 8 bits (0 to 255) are read";
    if (!allocate(into, (int)width, (int)height, kind == '6' ? 3 : 1)) return no_memory;
    const size_t size = (size_t)width * (size_t)height * (size_t)into->channels;
    return fread(into->pixels, 1, size, file) == size ? NULL : "the image ends too early";
}

const char *image_allocate(image *into, uint32_t width, uint32_t height, int channels)
{
    if (width < 1 || height < 1 || width > MOST_PIXELS / height) return "the image has an impossible size";
    return allocate(into, (int)width, (int)height, channels) ? NULL : no_memory;
}

static uint32_t little_endian(const unsigned char *bytes, int count)
{
    uint32_t value = 0;
    while (count--) value = value << 8 | bytes[count];
    return value;
}

/* A BMP of 24 or 32 bits a pixel without compression; rows are blue first and begin at the bottom, unless the height is negative. */
static const char *read_bmp(FILE *file, image *into)
{
    unsigned char head[54];
    if (fread(head, 1, sizeof head, file) != sizeof head) return "the image ends too early";
    const uint32_t start = little_endian(head + 10, 4), width = little_endian(head + 18, 4);
    const uint32_t stated = little_endian(head + 22, 4), compression = little_endian(head + 30, 4);
    const uint32_t bits = little_endian(head + 28, 2);
    const int from_top = stated >> 31 != 0;
    if ((bits != 24 && bits != 32) || (compression != 0 && !(compression == 3 && bits == 32)))
        return "only BMP files of 24 or 32 bits without compression are read";
    const char *why = image_allocate(into, width, from_top ? 0u - stated : stated, 3);
    if (why) return why;
    const size_t bytes = bits / 8, row = ((size_t)width * bytes + 3) / 4 * 4;
    unsigned char *line = malloc(row);
    if (!line) return no_memory;
    if (start > 0x7FFFFFFF || fseek(file, (long)start, SEEK_SET)) why = "the image ends too early";
    for (int y = 0; !why && y < into->height; y++) {
        uint8_t *out = into->pixels + (size_t)(from_top ? y : into->height - 1 - y) * (size_t)width * 3;
        if (fread(line, 1, row, file) != row) why = "the image ends too early";
        for (size_t x = 0; !why && x < width; x++)
            for (size_t c = 0; c < 3; c++) out[3 * x + c] = line[bytes * x + 2 - c];
    }
    free(line);
    return why;
}

/* By the first bytes: names of files may lie. */
static const char *read_any(FILE *file, image *into)
{
    unsigned char first[2] = {0};
    const size_t got = fread(first, 1, sizeof first, file);
    rewind(file);
    if (got == 2 && first[0] == 0xFF && first[1] == 0xD8) return image_read_jpeg(file, into);
    if (got == 2 && first[0] == 0x89 && first[1] == 'P') return image_read_png(file, into);
    if (got == 2 && first[0] == 'B' && first[1] == 'M') return read_bmp(file, into);
    return read_pixels(file, into);
}

const char *image_read(const char *path, image *into)
{
    *into = (image){0};
    FILE *file = fopen(path, "rb");
    if (!file) return "the file cannot be opened";
    const char *why = read_any(file, into);
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

/* Replaces an image by a resized one. */
static const char *resize(image *img, int height, int width, npuc_image_kernel kernel)
{
    image resized = {0};
    if (!allocate(&resized, width, height, img->channels)) return no_memory;
    const npuc_status status = npuc_image_resize(kernel, img->pixels, img->height, img->width, img->channels, resized.pixels, height, width);
    image_free(status ? &resized : img);
    if (!status) *img = resized;
    return status == NPUC_NO_MEMORY ? no_memory : status ? "the image cannot be resized" : NULL;
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

/* The mean and the deviation of the pixels of a channel, or of all if it is -1; sums are whole numbers, and so exact. */
static void measure(const image *img, int channel, double *mean, double *deviation)
{
    const size_t pixels = (size_t)img->width * (size_t)img->height * (size_t)img->channels;
    int64_t count = 0, total = 0, squares = 0;
    for (size_t i = channel < 0 ? 0 : (size_t)channel; i < pixels; i += channel < 0 ? 1 : (size_t)img->channels) {
        const int64_t value = img->pixels[i];
        count++;
        total += value;
        squares += value * value;
    }
    const double least = 1 / sqrt((double)count);
    *mean = (double)total / (double)count;
    *deviation = sqrt((double)(count * squares - total * total)) / (double)count;
    if (*deviation < least) *deviation = least;
}

static void write_tensor(const image *from, const preprocess *how, int dtype, void *data)
{
    const int channels = from->channels;
    const size_t pixels = (size_t)from->width * (size_t)from->height;
    double mean[4] = {0}, deviation[4] = {0};
    for (int c = 0; how->standardize && c < channels; c++) measure(from, how->standardize == 1 ? -1 : c, &mean[c], &deviation[c]);
    for (size_t i = 0; i < pixels; i++)
        for (int c = 0; c < channels; c++) {
            const int source = how->blue_first ? channels - 1 - c : c;
            const uint8_t pixel = from->pixels[i * (size_t)channels + (size_t)source];
            const size_t at = how->channels_first ? (size_t)c * pixels + i : i * (size_t)channels + (size_t)c;
            if (dtype == NPU_F32 && how->standardize)
                ((float *)data)[at] = (float)((pixel - mean[source]) / deviation[source]);
            else if (dtype == NPU_F32)
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
