/*
 * What the GEMM driver (conv.c, matmul.c) and the instruction sets share.
 *
 * A GEMM is cut in tiles of a few rows (output pixels) by a few panels of 16 output channels. Packed weights are panels,
 * [panel][k / 4][16][4] bytes for the byte kernels and [panel][k / 2][16][2] int16 for the word kernels, k padded with zeros:
 * exactly the operand order of vpdpbusd and vpmaddwd. Rows of activations are plain memory, `stride` bytes apart.
 *
 * Sums are taken modulo 2^32. That is exact: the caller has proved that the true accumulator fits, and the offset of bytes that
 * change their sign and the zero point are folded into the bias, so an intermediate may wrap but the sum cannot.
 */
#ifndef NPUC_GEMM_INTERNAL_H
#define NPUC_GEMM_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "npuc/kernels.h"

/* Little-endian 64-bit ARM, whose byte kernels multiply signed by signed bytes; those of x86 unsigned by signed ones. */
#if defined(__GNUC__) && defined(__aarch64__) && !defined(__AARCH64EB__)
#define NPUC_NEON 1
typedef int8_t npuc_activation;
#else
#define NPUC_NEON 0
typedef uint8_t npuc_activation;
#endif

/*
 * Cycles of work that a further thread is worth: layers follow each other sooner than a worker falls asleep (threads.c), and one
 * that is awake costs little to call. One that sleeps comes late and holds nobody up.
 */
#define NPUC_GRAIN 25000.0

#define NPUC_PANEL 16    /* output channels of a panel */
#define NPUC_MAX_ROWS 16 /* rows of the largest tile of any instruction set */
#define NPUC_MAX_PANELS 2
#define NPUC_SLACK 64     /* bytes that gathering may write past its last row */
#define NPUC_MAX_PIXELS 8 /* output pixels of the largest depthwise tile */

/* The output stage of a layer, its parameters padded to whole panels. */
typedef struct npuc_stage {
    int32_t kind; /* npuc_requant_kind, or -1: raw accumulators */
    int32_t dtype;
    int32_t zero_point, lo, hi;
    const int32_t *multiplier, *shift;
    const float *scale;
    const int32_t *pre, *add, *post; /* the fast form, see stage.h */
    const uint8_t *level;            /* one for each panel: how much of the vector code serves it */
} npuc_stage;

/* A window over an NHWC image: input pixel (j * step_y + dy[a], i * step_x + dx[b]) for output pixel (j, i) of the job. */
typedef struct npuc_window {
    const uint8_t *x;
    ptrdiff_t height, width;
    ptrdiff_t pixel;  /* bytes from a pixel to the next */
    ptrdiff_t offset; /* bytes from a pixel to the first channel of the group */
    ptrdiff_t run;    /* channels of the group */
    int32_t dtype;
    int32_t zero_point;
    ptrdiff_t rows, columns; /* output pixels of the job, a batch entry */
    ptrdiff_t step_y, step_x;
    int32_t ny, nx;
    const int32_t *dy, *dx;
    ptrdiff_t padded; /* bytes of a gathered row, zeros at its end included */
    int adjacent;     /* dx counts up by one and the group is the whole pixel: a row of the window is one run of memory */
} npuc_window;

/* The first output column whose windows lie inside the image, and the first after those; both within [0, columns]. */
static inline void npuc_inside(const npuc_window *w, ptrdiff_t *from, ptrdiff_t *to)
{
    const ptrdiff_t first = w->nx ? -w->dx[0] : 0, last = w->width - 1 - (w->nx ? w->dx[w->nx - 1] : 0);
    *from = first <= 0 ? 0 : (first + w->step_x - 1) / w->step_x;
    *to = last < 0 ? 0 : last / w->step_x + 1;
    if (*from > w->columns) *from = w->columns;
    if (*to > w->columns) *to = w->columns;
    if (*to < *from) *to = *from;
}

/* One block of output pixels of a depthwise layer: `pixels` neighbours of one output row, `panels` panels of channels. */
typedef struct npuc_depthwise {
    const void *const *taps; /* [pixel][tap]: the first channel of the block */
    int32_t pixels, tap_count;
    int32_t dtype;
    const int32_t *weights;  /* [tap][padded channels]: the weight in the low half, zero in the high half */
    ptrdiff_t weight_stride; /* channels */
    const int32_t *bias;
    ptrdiff_t channels; /* real channels, the last panel may be partial */
    int32_t first_panel;
    const npuc_stage *stage;
    uint8_t *const *out; /* [pixel] */
} npuc_depthwise;

/*
 * The same for bytes: four taps of 16 channels are interleaved to the operand of vpdpbusd by two unpackings, and the channels
 * come back in order when the outputs are packed to bytes. In between they stand in the order of the unpackings: a block is
 * 4, 2 or 1 lanes of 16 channels, and slot (4 q + i) of lane l, for q < 4 and i < 4, is at (q * lanes + l) * 4 + i. Weights
 * are [block][4 taps][slot][tap], biases and the output stage [block][slot].
 */
typedef struct npuc_depthwise8 {
    const uint8_t *const *taps; /* [pixel][tap]; or NULL: tap t of pixel p is at base + p * step + offset[t] */
    const uint8_t *base;
    ptrdiff_t step;
    const ptrdiff_t *offset;
    ptrdiff_t pixels;
    int32_t tap_count;
    int flip;
    const int8_t *weights;
    const int32_t *bias;
    ptrdiff_t first_lane; /* a multiple of 4, here and in what follows the counting starts */
    ptrdiff_t channels;
    const npuc_stage *stage;
    uint8_t *out;
    ptrdiff_t out_step;
} npuc_depthwise8;

/*
 * Rows of activations of a tile that are not gathered: a window begins at each, in an image that has its border around it, so
 * that the lines of a window are runs of memory `line` bytes apart.
 */
typedef struct npuc_lines {
    const uint8_t *a[3]; /* where the windows of the first row of each run of neighbours begin; those after it, `stride` bytes on */
    ptrdiff_t stride, line;
    ptrdiff_t steps; /* groups of 4 bytes in a line of a window */
    int32_t lines;
} npuc_lines;

/* Lanes of the block that starts at lane `at` of `lanes`. */
static inline int npuc_block_lanes(ptrdiff_t at, ptrdiff_t lanes) { return lanes - at >= 4 ? 4 : lanes - at >= 2 ? 2 : 1; }

typedef struct npuc_gemm_ops {
    const char *name;
    int bytes;                 /* the byte kernels are worth using */
    int32_t least_weight;      /* that they take */
    int rows8, rows16, panels; /* the largest tile */
    /* c[rows][panels * 16] = bias + a * b. `k` counts groups of 4 bytes or 2 words; `flip` adds 128 to each byte. */
    void (*tile8)(int rows, int panels, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, int flip, const int8_t *b, ptrdiff_t panel_bytes,
                  const int32_t *bias, int32_t *c);
    void (*tile16)(int rows, int panels, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, const int16_t *b, ptrdiff_t panel_bytes,
                   const int32_t *bias, int32_t *c);
    /* tile8 and finish in one, or 0 and nothing done where there is no such code. NULL: never. */
    int (*fused8)(int rows, int panels, ptrdiff_t k, const uint8_t *a, ptrdiff_t stride, int flip, const int8_t *b, ptrdiff_t panel_bytes,
                  const int32_t *bias, const npuc_stage *stage, int first_panel, ptrdiff_t channels, uint8_t *const *out);
    /*
     * A tile and its output stage for rows that are not gathered: three runs of `neighbours` rows, or one, of bytes where `bytes` is
     * set and of words elsewhere; for outputs of bytes whose panels are all NPUC_FAST. NULL: not there.
     */
    void (*lines)(int rows, int panels, const npuc_lines *l, const uint8_t *b, ptrdiff_t panel_bytes, const int32_t *bias,
                  const npuc_stage *stage, int first_panel, ptrdiff_t channels, uint8_t *const *out);
    /* `count` lines of image n with its border, from line `first` (-1 is above the image), to `dst`, `line` bytes apart. */
    void (*border)(const npuc_window *w, ptrdiff_t n, ptrdiff_t first, ptrdiff_t count, uint8_t *dst, ptrdiff_t line, int flip);
    int neighbours;
    /* The output stage over a tile; out[row] is the address of the tile's first channel. */
    void (*finish)(const npuc_stage *stage, int rows, int panels, int first_panel, ptrdiff_t channels, const int32_t *acc,
                   uint8_t *const *out);
    /* Rows [first, first + count) of the im2col matrix, to `dst`, rows `stride` bytes apart. */
    void (*gather8)(const npuc_window *w, ptrdiff_t first, ptrdiff_t count, uint8_t *dst, ptrdiff_t stride, int flip);
    void (*gather16)(const npuc_window *w, ptrdiff_t first, ptrdiff_t count, uint8_t *dst, ptrdiff_t stride);
    void (*depthwise)(const npuc_depthwise *d);
    void (*depthwise8)(const npuc_depthwise8 *d);
} npuc_gemm_ops;

extern const npuc_gemm_ops npuc_gemm_portable;
#if defined(__x86_64__)
extern const npuc_gemm_ops npuc_gemm_avx2;
extern const npuc_gemm_ops npuc_gemm_avx512;
#elif NPUC_NEON
extern const npuc_gemm_ops npuc_gemm_neon;
extern const npuc_gemm_ops npuc_gemm_neondot; /* without a name where the compiler did not have it */
#endif

/*
 * Bytes of activations as the byte kernels multiply them: whether 128 is added to those of a type, and what the zero point of that
 * type becomes by it.
 */
static inline int npuc_flips(int32_t dtype) { return dtype == (NPUC_NEON ? NPUC_U8 : NPUC_I8); }
static inline int32_t npuc_flipped(int32_t dtype, int32_t zero_point)
{
    return npuc_flips(dtype) ? zero_point + (NPUC_NEON ? -128 : 128) : zero_point;
}

/* Pixels of a line with its border: what the windows of a line of outputs see. */
static inline ptrdiff_t npuc_border_width(const npuc_window *w) { return (w->columns - 1) * w->step_x + w->nx; }

/* The kernels in use: the best of this CPU, or what NPUC_ISA or npuc_isa_select() says. */
const npuc_gemm_ops *npuc_gemm(void);

static inline ptrdiff_t npuc_element_size(int32_t dtype) { return dtype == NPUC_I32 ? 4 : dtype == NPUC_I16 ? 2 : 1; }

/* Row `t` of the cut of `count` rows into tiles: whole ones, and two about equal ones at the end. */
static inline ptrdiff_t npuc_tile_start(ptrdiff_t count, ptrdiff_t largest, ptrdiff_t tiles, ptrdiff_t t)
{
    if (t >= tiles) return count;
    const ptrdiff_t whole = (tiles - 2) * largest;
    return t <= tiles - 2 ? t * largest : tiles == 1 ? 0 : whole + (count - whole + 1) / 2;
}

static inline ptrdiff_t npuc_round_up(ptrdiff_t x, ptrdiff_t to) { return (x + to - 1) / to * to; }

#endif /* NPUC_GEMM_INTERNAL_H */
