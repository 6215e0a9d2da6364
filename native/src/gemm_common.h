/*
 * The parts that every instruction set compiles with its own flags: gathering windows and the scalar output stage.
 *
 * The including file defines `copy_bytes(dst, src, n, flip)` and `widen_bytes(dst, src, n, is_signed)` first.
 */
#ifndef NPUC_GEMM_COMMON_H
#define NPUC_GEMM_COMMON_H

#include <string.h>

#include "gemm.h"
#include "requant.h"
#include "stage.h"

static inline void npuc_store(int32_t dtype, uint8_t *out, int32_t value)
{
    switch (dtype) {
    case NPUC_I32: memcpy(out, &value, 4); break;
    case NPUC_I16: {
        int16_t word = (int16_t)value;
        memcpy(out, &word, 2);
        break;
    }
    default: *out = (uint8_t)value;
    }
}

static void finish_scalar(const npuc_stage *stage, int rows, ptrdiff_t acc_stride, int panel, int channels, const int32_t *acc,
                          uint8_t *const *out, ptrdiff_t out_offset)
{
    const ptrdiff_t size = npuc_element_size(stage->dtype);
    const npuc_requant rq = {stage->kind, 2, stage->multiplier, stage->shift, stage->scale, stage->zero_point, stage->lo, stage->hi};
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < channels; c++) {
            int32_t value = acc[r * acc_stride + c];
            if (stage->kind >= 0) value = npuc_requantize(&rq, value, panel * NPUC_PANEL + c);
            npuc_store(stage->dtype, out[r] + out_offset + c * size, value);
        }
}

static inline void fill_zero_point(const npuc_window *w, uint8_t *dst, ptrdiff_t n, int flip)
{
    memset(dst, (uint8_t)w->zero_point ^ (flip ? 0x80 : 0), (size_t)n);
}

static inline void fill_zero_point16(const npuc_window *w, uint8_t *dst, ptrdiff_t n)
{
    const int16_t value = (int16_t)w->zero_point;
    for (ptrdiff_t i = 0; i < n; i++) memcpy(dst + 2 * i, &value, 2);
}

static inline void copy_words(const npuc_window *w, uint8_t *dst, const uint8_t *src, ptrdiff_t n)
{
    if (w->dtype == NPUC_I16)
        memcpy(dst, src, (size_t)(2 * n));
    else
        widen_bytes(dst, src, n, w->dtype == NPUC_I8);
}

/* One row of the im2col matrix, wherever its window lies: output pixel (j, i) of `image`. */
static inline __attribute__((always_inline)) void gather_row(const npuc_window *w, const uint8_t *image, ptrdiff_t j, ptrdiff_t i,
                                                             uint8_t *to, int flip, int words)
{
    const ptrdiff_t size = words ? 2 : 1;
    for (int32_t a = 0; a < w->ny; a++) {
        const ptrdiff_t y = j * w->step_y + w->dy[a];
        for (int32_t b = 0; b < w->nx; b++, to += w->run * size) {
            const ptrdiff_t x = i * w->step_x + w->dx[b];
            const int inside = y >= 0 && y < w->height && x >= 0 && x < w->width;
            const uint8_t *from = image + (inside ? (y * w->width + x) * w->pixel : 0);
            if (words) {
                if (inside)
                    copy_words(w, to, from, w->run);
                else
                    fill_zero_point16(w, to, w->run);
            } else if (inside) {
                copy_bytes(to, from, w->run, flip);
            } else {
                fill_zero_point(w, to, w->run, flip);
            }
        }
    }
}

/*
 * `words`: the gathered elements are int16. Constant in each caller.
 *
 * Where the windows of neighbouring outputs lie inside the image and a row of a window is one run of memory, which is nearly
 * everywhere in nearly every layer, there is nothing to decide: one copy for each row of the window.
 */
static inline __attribute__((always_inline)) void gather(const npuc_window *w, ptrdiff_t first, ptrdiff_t count, uint8_t *dst,
                                                         ptrdiff_t stride, int flip, int words)
{
    const ptrdiff_t size = words ? 2 : 1;
    const ptrdiff_t run = w->nx * w->run, used = w->ny * run * size;
    const ptrdiff_t per_image = w->rows * w->columns;
    ptrdiff_t n = first / per_image, j = first % per_image / w->columns, i = first % w->columns;
    ptrdiff_t from = 0, to = 0; /* columns whose windows lie inside */
    if (w->adjacent && w->nx && w->ny) npuc_inside(w, &from, &to);
    while (count > 0) {
        const uint8_t *image = w->x + n * w->height * w->width * w->pixel + w->offset;
        const ptrdiff_t top = j * w->step_y;
        if (i >= from && i < to && top + w->dy[0] >= 0 && top + w->dy[w->ny - 1] < w->height) {
            const ptrdiff_t pixels = to - i < count ? to - i : count;
            ptrdiff_t corner = (top * w->width + i * w->step_x + w->dx[0]) * w->pixel;
            for (ptrdiff_t p = 0; p < pixels; p++, dst += stride, corner += w->step_x * w->pixel) {
                for (int32_t a = 0; a < w->ny; a++) {
                    const uint8_t *line = image + (corner + w->dy[a] * w->width * w->pixel);
                    if (words)
                        copy_words(w, dst + a * run * 2, line, run);
                    else
                        copy_bytes(dst + a * run, line, run, flip);
                }
                for (ptrdiff_t z = used; z < w->padded; z++) dst[z] = 0;
            }
            i += pixels;
            count -= pixels;
        } else {
            gather_row(w, image, j, i, dst, flip, words);
            for (ptrdiff_t z = used; z < w->padded; z++) dst[z] = 0;
            dst += stride;
            i++;
            count--;
        }
        if (i == w->columns) {
            i = 0;
            if (++j == w->rows) {
                j = 0;
                n++;
            }
        }
    }
}

static void gather8(const npuc_window *w, ptrdiff_t first, ptrdiff_t count, uint8_t *dst, ptrdiff_t stride, int flip)
{
    gather(w, first, count, dst, stride, flip, 0);
}

static void gather16(const npuc_window *w, ptrdiff_t first, ptrdiff_t count, uint8_t *dst, ptrdiff_t stride)
{
    gather(w, first, count, dst, stride, 0, 1);
}

/* Lines of an image with the border that its windows see; `words`, constant in each caller: as int16. */
static inline __attribute__((always_inline, unused)) void border(const npuc_window *w, ptrdiff_t n, ptrdiff_t first, ptrdiff_t count, uint8_t *dst,
                                                         ptrdiff_t line, int flip, int words)
{
    const ptrdiff_t size = words ? 2 : 1, width = npuc_border_width(w), before = w->dx[0] < 0 ? -w->dx[0] : 0;
    const ptrdiff_t left = before < width ? before : width, last = w->width - w->dx[0];
    const ptrdiff_t right = last < left ? left : last < width ? last : width; /* where the border begins again */
    const uint8_t *image = w->x + n * w->height * w->width * w->pixel;
    for (ptrdiff_t y = first; y < first + count; y++, dst += line) {
        const int there = y >= 0 && y < w->height && left < right;
        const ptrdiff_t to = there ? left : width; /* of the border on the left */
        const uint8_t *from = image + (there ? (y * w->width + w->dx[0] + left) * w->pixel : 0);
        if (words) {
            fill_zero_point16(w, dst, to * w->run);
            if (!there) continue;
            copy_words(w, dst + left * w->run * size, from, (right - left) * w->run);
            fill_zero_point16(w, dst + right * w->run * size, (width - right) * w->run);
        } else {
            fill_zero_point(w, dst, to * w->run, flip);
            if (!there) continue;
            copy_bytes(dst + left * w->run, from, (right - left) * w->run, flip);
            fill_zero_point(w, dst + right * w->run, (width - right) * w->run, flip);
        }
    }
}

#endif /* NPUC_GEMM_COMMON_H */
