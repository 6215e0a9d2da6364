/*
 * Resampling of images with the results of Pillow and OpenCV.
 *
 * Pillow filters one axis after the other, each with weights of 22 fractional bits and a result of 8 bits; a filter covers all
 * of the input that an output pixel stands for. OpenCV mixes two neighbours of each axis: INTER_LINEAR_EXACT with weights of
 * 8 bits and one rounding at the end, INTER_LINEAR with 11 bits and two.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "npuc/image.h"

typedef struct image_job {
    const uint8_t *x;
    uint8_t *y;
    int64_t h, w, c, out_h, out_w;
} image_job;

/* ---- nearest: an input row and column for each of the output ---- */

static int64_t within(int64_t index, int64_t size)
{
    return index < 0 ? 0 : index < size ? index : size - 1;
}

static void nearest_indices(int32_t kernel, int64_t from, int64_t to, int64_t *index)
{
    const double step = (double)from / (double)to;
    if (kernel == NPUC_PILLOW_NEAREST) {
        double at = step * 0.5; /* added up, as Pillow does, not multiplied */
        for (int64_t i = 0; i < to; i++, at += step) index[i] = within((int64_t)at, from);
    } else if (kernel == NPUC_OPENCV_NEAREST) {
        const double inverse = 1.0 / ((double)to / (double)from);
        for (int64_t i = 0; i < to; i++) index[i] = within((int64_t)floor((double)i * inverse), from);
    } else {
        /* 16 fractional bits; of an odd size, half of the smallest step to the left, so that the middle stays the middle. */
        const int64_t fixed = ((from << 16) + to / 2) / to, first = fixed / 2 - from % 2;
        for (int64_t i = 0; i < to; i++) index[i] = within((fixed * i + first) >> 16, from);
    }
}

static npuc_status nearest(const image_job *j, int32_t kernel)
{
    int64_t *rows = malloc((size_t)(j->out_h + j->out_w) * sizeof *rows), *columns = rows + j->out_h;
    if (!rows) return NPUC_NO_MEMORY;
    nearest_indices(kernel, j->h, j->out_h, rows);
    nearest_indices(kernel, j->w, j->out_w, columns);
    uint8_t *y = j->y;
    for (int64_t row = 0; row < j->out_h; row++) {
        const uint8_t *x = j->x + rows[row] * j->w * j->c;
        for (int64_t i = 0; i < j->out_w; i++)
            for (int64_t c = 0; c < j->c; c++) *y++ = x[columns[i] * j->c + c];
    }
    free(rows);
    return NPUC_OK;
}

/* ---- Pillow's filters ---- */

#define WEIGHT_BITS 22

static double pillow_filter(int32_t kernel, double x)
{
    x = fabs(x);
    if (kernel == NPUC_PILLOW_BILINEAR) return x < 1.0 ? 1.0 - x : 0.0;
    const double a = -0.5;
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * a : 0.0;
}

/* For each output the first input, how many there are, and their weights. */
typedef struct taps {
    int64_t most;
    int64_t *first, *count;
    int32_t *weight; /* `most` for each output */
} taps;

static void taps_free(taps *t)
{
    free(t->first);
    free(t->count);
    free(t->weight);
}

static int taps_make(taps *t, int64_t from, int64_t to, int32_t kernel)
{
    const double step = (double)from / (double)to, wide = step < 1.0 ? 1.0 : step;
    const double support = (kernel == NPUC_PILLOW_BILINEAR ? 1.0 : 2.0) * wide, narrow = 1.0 / wide;
    t->most = (int64_t)ceil(support) * 2 + 1;
    t->first = malloc((size_t)to * sizeof *t->first);
    t->count = malloc((size_t)to * sizeof *t->count);
    t->weight = malloc((size_t)to * (size_t)t->most * sizeof *t->weight);
    double *exact = malloc((size_t)t->most * sizeof *exact);
    const int ready = t->first && t->count && t->weight && exact;
    for (int64_t i = 0; ready && i < to; i++) {
        const double center = ((double)i + 0.5) * step;
        const int64_t low = (int64_t)(center - support + 0.5), high = (int64_t)(center + support + 0.5);
        const int64_t first = low < 0 ? 0 : low, end = high > from ? from : high;
        double sum = 0.0;
        for (int64_t k = 0; k < end - first; k++)
            sum += exact[k] = pillow_filter(kernel, ((double)(k + first) - center + 0.5) * narrow);
        for (int64_t k = 0; k < end - first; k++) {
            const double weight = sum != 0.0 ? exact[k] / sum : exact[k];
            t->weight[i * t->most + k] = (int32_t)((weight < 0 ? -0.5 : 0.5) + weight * (1 << WEIGHT_BITS));
        }
        t->first[i] = first;
        t->count[i] = end - first;
    }
    free(exact);
    return ready;
}

static uint8_t pillow_byte(int32_t sum)
{
    const int32_t value = sum < 0 ? -1 : sum >> WEIGHT_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* Rows of `from` pixels to rows of `to`; the number of channels is a constant where this is inlined. */
static inline void across(const taps *t, const uint8_t *x, uint8_t *y, int64_t rows, int64_t from, int64_t to, const int64_t channels)
{
    for (int64_t row = 0; row < rows; row++, x += from * channels)
        for (int64_t i = 0; i < to; i++, y += channels) {
            const uint8_t *at = x + t->first[i] * channels;
            const int32_t *weight = t->weight + i * t->most;
            int32_t sum[4] = {1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1)};
            for (int64_t k = 0; k < t->count[i]; k++)
                for (int64_t c = 0; c < channels; c++) sum[c] += at[k * channels + c] * weight[k];
            for (int64_t c = 0; c < channels; c++) y[c] = pillow_byte(sum[c]);
        }
}

static void filter_width(const taps *t, const uint8_t *x, uint8_t *y, int64_t rows, int64_t from, int64_t to, int64_t channels)
{
    switch (channels) {
    case 1: across(t, x, y, rows, from, to, 1); break;
    case 3: across(t, x, y, rows, from, to, 3); break;
    case 4: across(t, x, y, rows, from, to, 4); break;
    default: across(t, x, y, rows, from, to, channels);
    }
}

/* Columns to columns of `to` pixels: a row of the output is a sum of rows of the input. */
static void filter_height(const taps *t, const uint8_t *x, uint8_t *y, int64_t to, int64_t pitch, int32_t *restrict sum)
{
    for (int64_t i = 0; i < to; i++, y += pitch) {
        for (int64_t at = 0; at < pitch; at++) sum[at] = 1 << (WEIGHT_BITS - 1);
        for (int64_t k = 0; k < t->count[i]; k++) {
            const uint8_t *restrict row = x + (t->first[i] + k) * pitch;
            const int32_t weight = t->weight[i * t->most + k];
            for (int64_t at = 0; at < pitch; at++) sum[at] += row[at] * weight;
        }
        for (int64_t at = 0; at < pitch; at++) y[at] = pillow_byte(sum[at]);
    }
}

static npuc_status pillow(const image_job *j, int32_t kernel)
{
    /* Rows first if that saves much more: the rule is Pillow's, and the order changes bits. */
    const int rows_first = j->out_h < j->h && j->h - j->out_h > 2 * (j->w - j->out_w);
    const int has_width = j->w != j->out_w, has_height = j->h != j->out_h;
    const int64_t middle_h = rows_first ? j->out_h : j->h, middle_w = rows_first ? j->w : j->out_w;
    taps columns = {0}, rows = {0};
    uint8_t *middle = malloc((size_t)(middle_h * middle_w * j->c));
    int32_t *sum = malloc((size_t)((rows_first ? j->w : j->out_w) * j->c) * sizeof *sum);
    const int ready = middle && sum && taps_make(&columns, j->w, j->out_w, kernel) && taps_make(&rows, j->h, j->out_h, kernel);
    const uint8_t *x = j->x;
    int64_t w = j->w, h = j->h;
    for (int pass = 0; ready && pass < 2; pass++) {
        const int is_width = pass == rows_first;
        if (!(is_width ? has_width : has_height)) continue;
        const int is_last = pass == 1 || !(is_width ? has_height : has_width);
        uint8_t *y = is_last ? j->y : middle;
        if (is_width)
            filter_width(&columns, x, y, h, w, j->out_w, j->c), w = j->out_w;
        else
            filter_height(&rows, x, y, j->out_h, w * j->c, sum), h = j->out_h;
        x = y;
    }
    if (ready && !has_width && !has_height) memcpy(j->y, j->x, (size_t)(j->h * j->w * j->c));
    taps_free(&columns);
    taps_free(&rows);
    free(middle);
    free(sum);
    return ready ? NPUC_OK : NPUC_NO_MEMORY;
}

/* ---- OpenCV's two neighbours ---- */

/* For each output two inputs and their weights, which add up to 1. */
typedef struct pairs {
    int64_t *low, *high;
    int32_t *low_weight, *high_weight;
} pairs;

static void pairs_free(pairs *p)
{
    free(p->low);
    free(p->low_weight);
}

static int pairs_make(pairs *p, int64_t from, int64_t to, int32_t kernel)
{
    p->low = malloc(2 * (size_t)to * sizeof *p->low), p->high = p->low + to;
    p->low_weight = malloc(2 * (size_t)to * sizeof *p->low_weight), p->high_weight = p->low_weight + to;
    if (!p->low || !p->low_weight) return 0;
    const double step = 1.0 / ((double)to / (double)from);
    const int exact = kernel == NPUC_OPENCV_LINEAR_EXACT;
    const int32_t one = exact ? 1 << 8 : 1 << 11;
    for (int64_t i = 0; i < to; i++) {
        double at = step * ((double)i + 0.5) - 0.5;
        if (!exact) at = (float)at;
        const int64_t low = (int64_t)floor(at);
        double part = at - (double)low;
        if (low < 0 || low >= from - 1) part = 0.0;
        p->low[i] = within(low, from), p->high[i] = within(p->low[i] + 1, from);
        p->high_weight[i] = (int32_t)nearbyint((exact ? part : (double)(float)part) * one);
        p->low_weight[i] = exact ? one - p->high_weight[i] : (int32_t)nearbyint((double)(1.0f - (float)part) * one);
    }
    return 1;
}

static void mix_columns(const pairs *p, const uint8_t *x, int64_t to, int64_t channels, int32_t *y)
{
    for (int64_t i = 0; i < to; i++) {
        const uint8_t *low = x + p->low[i] * channels, *high = x + p->high[i] * channels;
        for (int64_t c = 0; c < channels; c++) *y++ = low[c] * p->low_weight[i] + high[c] * p->high_weight[i];
    }
}

static void mix_rows(const int32_t *restrict low, const int32_t *restrict high, int32_t low_weight, int32_t high_weight, int exact,
                     int64_t count, uint8_t *restrict y)
{
    if (exact)
        for (int64_t i = 0; i < count; i++) y[i] = (uint8_t)((low[i] * low_weight + high[i] * high_weight + (1 << 15)) >> 16);
    else
        for (int64_t i = 0; i < count; i++)
            y[i] = (uint8_t)((((low_weight * (low[i] >> 4)) >> 16) + ((high_weight * (high[i] >> 4)) >> 16) + 2) >> 2);
}

/* INTER_LINEAR at half the size is the mean of four pixels. */
static void halve(const image_job *j)
{
    uint8_t *y = j->y;
    const int64_t pitch = j->w * j->c;
    for (int64_t row = 0; row < j->out_h; row++)
        for (int64_t i = 0; i < j->out_w; i++)
            for (int64_t c = 0; c < j->c; c++) {
                const uint8_t *at = j->x + 2 * row * pitch + 2 * i * j->c + c;
                *y++ = (uint8_t)((at[0] + at[j->c] + at[pitch] + at[pitch + j->c] + 2) >> 2);
            }
}

static npuc_status linear(const image_job *j, int32_t kernel)
{
    const int exact = kernel == NPUC_OPENCV_LINEAR_EXACT;
    if (!exact && j->h == 2 * j->out_h && j->w == 2 * j->out_w) {
        halve(j);
        return NPUC_OK;
    }
    const int64_t pitch = j->out_w * j->c;
    pairs columns = {0}, rows = {0};
    int32_t *mixed[2] = {malloc((size_t)pitch * sizeof **mixed), malloc((size_t)pitch * sizeof **mixed)};
    int64_t held[2] = {-1, -1}; /* which rows of x they are */
    const int ready = mixed[0] && mixed[1] && pairs_make(&columns, j->w, j->out_w, kernel) && pairs_make(&rows, j->h, j->out_h, kernel);
    for (int64_t row = 0; ready && row < j->out_h; row++) {
        if (held[1] == rows.low[row] && held[0] != rows.low[row]) {
            int32_t *spare = mixed[0];
            mixed[0] = mixed[1], mixed[1] = spare;
            held[0] = held[1], held[1] = -1;
        }
        const int64_t wanted[2] = {rows.low[row], rows.high[row]};
        for (int k = 0; k < 2; k++)
            if (held[k] != wanted[k]) mix_columns(&columns, j->x + wanted[k] * j->w * j->c, j->out_w, j->c, mixed[k]), held[k] = wanted[k];
        mix_rows(mixed[0], mixed[1], rows.low_weight[row], rows.high_weight[row], exact, pitch, j->y + row * pitch);
    }
    free(mixed[0]);
    free(mixed[1]);
    pairs_free(&columns);
    pairs_free(&rows);
    return ready ? NPUC_OK : NPUC_NO_MEMORY;
}

npuc_status npuc_image_resize(int32_t kernel, const uint8_t *x, int64_t h, int64_t w, int64_t c, uint8_t *y, int64_t out_h, int64_t out_w)
{
    const int64_t sides[] = {h, w, out_h, out_w};
    for (int i = 0; i < 4; i++)
        if (sides[i] < 1 || sides[i] > NPUC_IMAGE_MOST_SIDE) return NPUC_BAD_ARGUMENT;
    if (!x || !y || c < 1 || c > 4 || h * w > NPUC_IMAGE_MOST_PIXELS || out_h * out_w > NPUC_IMAGE_MOST_PIXELS) return NPUC_BAD_ARGUMENT;
    const image_job job = {x, y, h, w, c, out_h, out_w};
    switch (kernel) {
    case NPUC_PILLOW_NEAREST:
    case NPUC_OPENCV_NEAREST:
    case NPUC_OPENCV_NEAREST_EXACT: return nearest(&job, kernel);
    case NPUC_PILLOW_BILINEAR:
    case NPUC_PILLOW_BICUBIC: return pillow(&job, kernel);
    case NPUC_OPENCV_LINEAR:
    case NPUC_OPENCV_LINEAR_EXACT: return linear(&job, kernel);
    default: return NPUC_BAD_ARGUMENT;
    }
}
