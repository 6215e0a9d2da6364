/*
 * Convolution, transposed convolution and fully connected layers as GEMMs over gathered windows.
 *
 * A convolution is one job: a grid of output pixels and a list of taps. A transposed convolution is one job for each phase of
 * its stride: the output pixels (phase + stride * j) see a fixed subset of the taps, so each phase is a plain convolution
 * over the input and nothing is multiplied by an inserted zero. Each job has its own packed weights and folded bias.
 */
#include <limits.h>
#include <stdatomic.h>
#include <string.h>

#include "gemm.h"
#include "npuc/gemm.h"
#include "threads.h"
#include "stage.h"
#include "wide.h"

#define MAGIC 0x317663636e75706eu
#define ALIGN 64
#define A_BLOCK (128 * 1024) /* bytes of activations that a task keeps in the second-level cache */

enum { DEPTHWISE, DEPTHWISE_BYTES, BYTES, WORDS };

static int is_bytes(int32_t layout) { return layout == BYTES || layout == DEPTHWISE_BYTES; }

typedef struct {
    int32_t first_y, first_x; /* first output pixel; the next are a stride (transposed) or one further */
    int32_t ny, nx;
    int64_t dy, dx; /* offsets of the tap tables in the buffer */
    int64_t weight; /* offset of the packed weights */
    int64_t bias;   /* offset of the folded biases */
} job;

typedef struct {
    uint64_t magic;
    npuc_conv conv;
    int32_t layout;
    int32_t kind, y_zero_point, lo, hi;
    int32_t job_count;
    int32_t least_weight;
    int32_t k_block;  /* wide: channels x taps whose sum fits int32; 0: not even two */
    int32_t channels; /* output channels, each group padded to whole panels */
    int64_t jobs, multiplier, shift, scale, pre, add, post, level;
} header;

static int32_t icg(const npuc_conv *c) { return c->in_channels / c->groups; }
static int32_t ocg(const npuc_conv *c) { return c->out_channels / c->groups; }
static int32_t panels_of(const npuc_conv *c) { return (ocg(c) + NPUC_PANEL - 1) / NPUC_PANEL; }

/* Bounds that keep every product of sizes far from 2^63. */
static int valid(const npuc_conv *c)
{
    const int32_t limit = 1 << 24;
    if (!c || c->groups < 1 || c->in_channels < 1 || c->out_channels < 1) return 0;
    if (c->in_channels > limit || c->out_channels > limit || c->in_channels % c->groups || c->out_channels % c->groups) return 0;
    if (c->kernel_h < 1 || c->kernel_w < 1 || c->kernel_h > 1 << 12 || c->kernel_w > 1 << 12) return 0;
    if (c->stride_h < 1 || c->stride_w < 1 || c->stride_h > 1 << 12 || c->stride_w > 1 << 12) return 0;
    if (c->dilation_h < 1 || c->dilation_w < 1 || c->dilation_h > 1 << 12 || c->dilation_w > 1 << 12) return 0;
    if (c->pad_top < -limit || c->pad_left < -limit || c->pad_top > limit || c->pad_left > limit) return 0;
    switch (c->x_dtype) {
    case NPUC_I8: return c->x_zero_point >= -128 && c->x_zero_point <= 127;
    case NPUC_U8: return c->x_zero_point >= 0 && c->x_zero_point <= 255;
    case NPUC_I16: return c->x_zero_point >= -32768 && c->x_zero_point <= 32767;
    default: return 0;
    }
}

static int is_depthwise(const npuc_conv *c)
{
    return c->groups > 1 && c->groups == c->in_channels && c->groups == c->out_channels && !c->wide;
}

static int32_t phases(const npuc_conv *c) { return c->transposed ? c->stride_h * c->stride_w : 1; }

/* Taps of one axis that phase `p` sees: the kernel index and the input offset of each, offsets ascending. */
static int32_t taps(int32_t transposed, int32_t kernel, int32_t stride, int32_t dilation, int32_t pad, int32_t p, int32_t *index,
                    int32_t *offset)
{
    int32_t n = 0;
    for (int32_t i = 0; i < kernel; i++) {
        const int32_t k = transposed ? kernel - 1 - i : i;
        if (!transposed) {
            if (index) index[n] = k, offset[n] = k * dilation - pad;
            n++;
        } else if ((p + pad - k * dilation) % stride == 0) {
            if (index) index[n] = k, offset[n] = (p + pad - k * dilation) / stride;
            n++;
        }
    }
    return n;
}

static int32_t taps_y(const npuc_conv *c, int32_t p, int32_t *index, int32_t *offset)
{
    return taps(c->transposed, c->kernel_h, c->stride_h, c->dilation_h, c->pad_top, p, index, offset);
}

static int32_t taps_x(const npuc_conv *c, int32_t p, int32_t *index, int32_t *offset)
{
    return taps(c->transposed, c->kernel_w, c->stride_w, c->dilation_w, c->pad_left, p, index, offset);
}

static int64_t align(int64_t x) { return (x + ALIGN - 1) / ALIGN * ALIGN; }

/* Bytes of the packed weights of a job with `taps` taps. */
static int64_t weight_bytes(const npuc_conv *c, int32_t layout, int64_t tap_count)
{
    const int64_t channels = (int64_t)c->groups * panels_of(c) * NPUC_PANEL;
    if (layout == DEPTHWISE) return tap_count * align(c->out_channels) * 4;
    if (layout == DEPTHWISE_BYTES) return (tap_count + 3) / 4 * 4 * align(c->out_channels);
    const int64_t k = tap_count * icg(c);
    return layout == BYTES ? channels * ((k + 3) / 4 * 4) : channels * ((k + 1) / 2 * 2) * 2;
}

/* Lays the buffer out; fills `h` and `jobs` when given. Returns its size. */
static int64_t arrange(const npuc_conv *c, int32_t layout, header *h, uint8_t *buffer)
{
    const int32_t count = phases(c);
    const int64_t channels = is_depthwise(c) ? align(c->out_channels) : (int64_t)c->groups * panels_of(c) * NPUC_PANEL;
    int64_t at = align(sizeof(header));
    const int64_t jobs = at;
    at = align(at + count * (int64_t)sizeof(job));
    for (int32_t p = 0; p < count; p++) {
        job j = {.first_y = p / (c->transposed ? c->stride_w : 1), .first_x = p % (c->transposed ? c->stride_w : 1)};
        j.ny = taps_y(c, j.first_y, NULL, NULL);
        j.nx = taps_x(c, j.first_x, NULL, NULL);
        j.dy = at;
        j.dx = at + c->kernel_h * 4;
        at = align(j.dx + c->kernel_w * 4);
        j.weight = at;
        j.bias = align(at + weight_bytes(c, layout, (int64_t)j.ny * j.nx));
        at = align(j.bias + channels * (c->wide ? 8 : 4));
        if (h) memcpy(buffer + jobs + p * (int64_t)sizeof(job), &j, sizeof j);
    }
    int64_t tables[6];
    for (int i = 0; i < 6; i++, at = align(at + channels * 4)) tables[i] = at;
    if (h) {
        h->job_count = count;
        h->channels = (int32_t)channels;
        h->jobs = jobs;
        h->multiplier = tables[0];
        h->shift = tables[1];
        h->scale = tables[2];
        h->pre = tables[3];
        h->add = tables[4];
        h->post = tables[5];
        h->level = at;
    }
    return align(at + channels / NPUC_PANEL);
}

static int reasonable(const npuc_conv *c)
{
    const int64_t weights = (int64_t)c->out_channels * icg(c) * c->kernel_h; /* below 2^60 */
    return valid(c) && weights <= ((int64_t)1 << 36) / c->kernel_w && (int64_t)c->groups * panels_of(c) <= 1 << 26 && phases(c) <= 1 << 14;
}

size_t npuc_conv_size(const npuc_conv *conv)
{
    if (!valid(conv) || !reasonable(conv)) return 0;
    return (size_t)arrange(conv, is_depthwise(conv) ? DEPTHWISE : WORDS, NULL, NULL);
}

/* Whether every run of `block` weights of every channel sums to a value that fits int32 with any activation. */
static int block_fits(const int16_t *weight, int64_t outputs, int64_t k, int64_t block, int64_t limit)
{
    for (int64_t o = 0; o < outputs; o++) {
        /* The order of the packed weights is a permutation inside a channel, so the largest `block` weights decide; the
           bound of block times the largest one is simple and never too small. */
        int64_t largest = 0;
        for (int64_t i = 0; i < k; i++) {
            const int64_t w = weight[o * k + i] < 0 ? -(int64_t)weight[o * k + i] : weight[o * k + i];
            if (w > largest) largest = w;
        }
        if (largest * block > limit) return 0;
    }
    return 1;
}

/* Where channel `c` stands in the tables of biases and of the output stage. */
static int64_t slot_of(const npuc_conv *c, int32_t layout, int64_t channel)
{
    if (layout == DEPTHWISE) return channel;
    if (layout == DEPTHWISE_BYTES) {
        const int64_t lanes = (c->out_channels + NPUC_PANEL - 1) / NPUC_PANEL, lane = channel / NPUC_PANEL;
        const int64_t block = lane / 4 * 4 + (lanes - lane / 4 * 4 == 3 && lane % 4 == 2 ? 2 : 0);
        const int64_t width = npuc_block_lanes(block, lanes);
        return block * NPUC_PANEL + (channel % 16 / 4 * width + lane - block) * 4 + channel % 4;
    }
    return channel / ocg(c) * panels_of(c) * NPUC_PANEL + channel % ocg(c);
}

static void pack_job(const npuc_conv *c, int32_t layout, const job *j, const int16_t *weight, const int64_t *bias, uint8_t *buffer,
                     int32_t *index_y, int32_t *index_x)
{
    int32_t *dy = (int32_t *)(void *)(buffer + j->dy), *dx = (int32_t *)(void *)(buffer + j->dx);
    taps_y(c, j->first_y, index_y, dy);
    taps_x(c, j->first_x, index_x, dx);
    const int32_t inputs = icg(c), outputs = ocg(c);
    const int64_t kernel = (int64_t)c->kernel_h * c->kernel_w;
    const int64_t k_all = (int64_t)j->ny * j->nx * inputs;
    const int64_t k_padded = layout == BYTES ? (k_all + 3) / 4 * 4 : (k_all + 1) / 2 * 2;
    const int64_t zero_point = is_bytes(layout) ? npuc_flipped(c->x_dtype, c->x_zero_point) : c->x_zero_point;
    for (int32_t g = 0; g < c->groups; g++)
        for (int32_t o = 0; o < outputs; o++) {
            const int64_t channel = (int64_t)g * outputs + o;
            const int64_t slot = slot_of(c, layout, channel);
            const int16_t *from = weight + channel * inputs * kernel;
            uint8_t *panel = buffer + j->weight + (slot / NPUC_PANEL) * NPUC_PANEL * k_padded * (layout == BYTES ? 1 : 2);
            const int64_t lane = slot % NPUC_PANEL;
            int64_t sum = 0, k = 0;
            for (int32_t a = 0; a < j->ny; a++)
                for (int32_t b = 0; b < j->nx; b++)
                    for (int32_t i = 0; i < inputs; i++, k++) {
                        const int16_t w = from[i * kernel + (int64_t)index_y[a] * c->kernel_w + index_x[b]];
                        sum += w;
                        if (layout == BYTES) {
                            ((int8_t *)panel)[(k / 4 * NPUC_PANEL + lane) * 4 + k % 4] = (int8_t)w;
                        } else if (layout == WORDS) {
                            memcpy(panel + ((k / 2 * NPUC_PANEL + lane) * 2 + k % 2) * 2, &w, 2);
                        } else if (layout == DEPTHWISE_BYTES) {
                            /* [block][4 taps][slot][tap]: blocks before this one have 16 x 4 bytes a lane and group. */
                            const int64_t lanes = (c->out_channels + NPUC_PANEL - 1) / NPUC_PANEL;
                            const int64_t block = slot / 64 * 4 + (lanes - slot / 64 * 4 == 3 && slot % 64 >= 32 ? 2 : 0);
                            const int64_t width = npuc_block_lanes(block, lanes), group_count = (k_all + 3) / 4;
                            const int64_t at =
                                block * NPUC_PANEL * group_count * 4 + (k / 4 * width * NPUC_PANEL + slot - block * NPUC_PANEL) * 4 + k % 4;
                            ((int8_t *)buffer + j->weight)[at] = (int8_t)w;
                        } else {
                            const int32_t pair = (int32_t)(uint16_t)w;
                            memcpy(buffer + j->weight + (k * align(c->out_channels) + slot) * 4, &pair, 4);
                        }
                    }
            const int64_t folded = (bias ? bias[channel] : 0) - zero_point * sum;
            if (c->wide) {
                memcpy(buffer + j->bias + slot * 8, &folded, 8);
            } else {
                const uint32_t wrapped = (uint32_t)(uint64_t)folded;
                memcpy(buffer + j->bias + slot * 4, &wrapped, 4);
            }
        }
}

static void pack_stage(const header *h, const int16_t *weight, int64_t k, int64_t bias, const npuc_requant *requant, int32_t channel,
                       uint8_t *bytes)
{
    const npuc_conv *c = &h->conv;
    const int64_t slot = slot_of(c, h->layout, channel);
    const int32_t i = requant->count == 1 ? 0 : channel;
    const int64_t low = c->x_dtype == NPUC_I8 ? -128 : c->x_dtype == NPUC_U8 ? 0 : -32768;
    const int64_t high = c->x_dtype == NPUC_I8 ? 127 : c->x_dtype == NPUC_U8 ? 255 : 32767;
    const int64_t below = c->x_zero_point - low, above = high - c->x_zero_point, largest = below > above ? below : above;
    int64_t bound = 0;
    for (int64_t j = 0; j < k; j++) bound += weight[j] < 0 ? -(int64_t)weight[j] : weight[j];
    bound = bound * largest + (bias < 0 ? -bias : bias);
    int32_t fast[3];
    const int level = npuc_stage_level(requant, i, bound, fast, fast + 1, fast + 2);
    uint8_t *worst = bytes + h->level + (h->layout == DEPTHWISE_BYTES ? channel : slot) / NPUC_PANEL;
    if (level < *worst) *worst = (uint8_t)level;
    if (NPUC_HAS_MULTIPLIER(requant->kind)) memcpy(bytes + h->multiplier + slot * 4, requant->multiplier + i, 4);
    if (NPUC_HAS_SHIFT(requant->kind)) memcpy(bytes + h->shift + slot * 4, requant->shift + i, 4);
    if (requant->kind == NPUC_FLOAT_SCALE) memcpy(bytes + h->scale + slot * 4, requant->scale + i, 4);
    memcpy(bytes + h->pre + slot * 4, fast, 4);
    memcpy(bytes + h->add + slot * 4, fast + 1, 4);
    memcpy(bytes + h->post + slot * 4, fast + 2, 4);
}

npuc_status npuc_conv_prepare(const npuc_conv *conv, const int16_t *weight, const int64_t *bias, const npuc_requant *requant, void *buffer,
                              size_t size)
{
    const size_t needed = npuc_conv_size(conv);
    if (!needed || !weight || !buffer || size < needed || (uintptr_t)buffer % ALIGN) return NPUC_BAD_ARGUMENT;
    if (!npuc_stage_valid(requant, conv->y_dtype, conv->out_channels, conv->wide)) return NPUC_BAD_ARGUMENT;
    int32_t *index = npuc_scratch((size_t)(conv->kernel_h + conv->kernel_w) * 4);
    if (!index) return NPUC_NO_MEMORY;

    const int64_t k = (int64_t)icg(conv) * conv->kernel_h * conv->kernel_w;
    int fits = conv->x_dtype != NPUC_I16 && !conv->wide && npuc_gemm()->bytes;
    int32_t least = 0;
    for (int64_t i = 0; i < conv->out_channels * k && fits; i++) {
        if (weight[i] < least) least = weight[i];
        fits = least >= npuc_gemm()->least_weight && weight[i] <= 127;
    }
    const int32_t layout = is_depthwise(conv) ? (fits ? DEPTHWISE_BYTES : DEPTHWISE) : fits ? BYTES : WORDS;
    uint8_t *bytes = buffer;
    header h = {.magic = MAGIC, .conv = *conv, .layout = layout, .kind = -1, .least_weight = least};
    memset(buffer, 0, (size_t)arrange(conv, layout, NULL, NULL));
    arrange(conv, layout, &h, bytes);
    if (conv->wide) {
        const int64_t limit = conv->x_dtype == NPUC_I16 ? 65535 : INT32_MAX / 255;
        h.k_block = 2;
        while (h.k_block < k && h.k_block < 1 << 20) h.k_block *= 2;
        while (h.k_block && !block_fits(weight, conv->out_channels, k, h.k_block, limit)) h.k_block /= 2;
        if (h.k_block < 2) h.k_block = 0;
    }
    const job *jobs = (const job *)(const void *)(bytes + h.jobs);
    for (int32_t p = 0; p < h.job_count; p++) pack_job(conv, layout, jobs + p, weight, bias, bytes, index, index + conv->kernel_h);

    memset(bytes + h.level, NPUC_FAST, (size_t)(h.channels / NPUC_PANEL));
    if (requant) {
        h.kind = requant->kind;
        h.y_zero_point = requant->zero_point;
        h.lo = requant->lo;
        h.hi = requant->hi;
        for (int32_t channel = 0; channel < conv->out_channels; channel++)
            pack_stage(&h, weight + channel * k, k, bias ? bias[channel] : 0, requant, channel, bytes);
    }
    memcpy(buffer, &h, sizeof h);
    return NPUC_OK;
}

/* --- running -------------------------------------------------------------------------------------------------------- */

typedef struct {
    const npuc_gemm_ops *ops;
    const header *h;
    const job *job;
    const uint8_t *bytes;
    npuc_stage stage;
    npuc_window window;
    int in_place;
    uint8_t *y;
    ptrdiff_t out_height, out_width;
    ptrdiff_t rows; /* of the GEMM: output pixels of the job in all images */
    ptrdiff_t row_blocks, panel_blocks;
    int flip;
    ptrdiff_t k_steps, panel_bytes, a_stride;
    uint8_t *scratch;
    ptrdiff_t scratch_stride;
    const int32_t *zeros;     /* a bias of nothing */
    const ptrdiff_t *offsets; /* depthwise: from the first tap of a window to each */
} run;

/* Addresses of the outputs of rows [first, first + count) of the job at `channel`. */
static void output_rows(const run *g, ptrdiff_t first, int count, ptrdiff_t channel, uint8_t **out)
{
    const npuc_conv *c = &g->h->conv;
    const ptrdiff_t size = npuc_element_size(c->y_dtype), pixel = c->out_channels * size;
    if (!c->transposed) {
        for (int r = 0; r < count; r++) out[r] = g->y + (first + r) * pixel + channel * size;
        return;
    }
    const npuc_window *w = &g->window;
    for (int r = 0; r < count; r++) {
        const ptrdiff_t m = first + r, n = m / (w->rows * w->columns), j = m / w->columns % w->rows, i = m % w->columns;
        const ptrdiff_t y = g->job->first_y + j * c->stride_h, x = g->job->first_x + i * c->stride_w;
        out[r] = g->y + ((n * g->out_height + y) * g->out_width + x) * pixel + channel * size;
    }
}

static void wide_tile(const run *g, int rows, int panels, const uint8_t *a, ptrdiff_t slot, ptrdiff_t channels, int32_t *part,
                      uint8_t *const *out)
{
    const header *h = g->h;
    const uint8_t *b = g->bytes + g->job->weight + slot / NPUC_PANEL * g->panel_bytes;
    const int64_t *bias = (const int64_t *)(const void *)(g->bytes + g->job->bias) + slot;
    int64_t acc[NPUC_MAX_ROWS * NPUC_MAX_PANELS * NPUC_PANEL];
    const int width = panels * NPUC_PANEL;
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < width; n++) acc[r * width + n] = bias[n];
    const ptrdiff_t block = h->k_block / 2;
    for (ptrdiff_t k = 0; block && k < g->k_steps; k += block) {
        const ptrdiff_t steps = g->k_steps - k < block ? g->k_steps - k : block;
        g->ops->tile16(rows, panels, steps, a + k * 4, g->a_stride, (const int16_t *)(const void *)(b + k * NPUC_PANEL * 4), g->panel_bytes,
                       g->zeros, part);
        for (int i = 0; i < rows * width; i++) acc[i] += part[i];
    }
    for (ptrdiff_t k = 0; !block && k < g->k_steps; k++)
        for (int r = 0; r < rows; r++) {
            int16_t x[2];
            memcpy(x, a + r * g->a_stride + k * 4, 4);
            for (int n = 0; n < width; n++) {
                int16_t w[2];
                memcpy(w, b + n / NPUC_PANEL * g->panel_bytes + (k * NPUC_PANEL + n % NPUC_PANEL) * 4, 4);
                acc[r * width + n] += (int64_t)x[0] * w[0] + (int64_t)x[1] * w[1];
            }
        }
    const npuc_requant rq = {h->kind, 2, g->stage.multiplier, g->stage.shift, g->stage.scale, h->y_zero_point, h->lo, h->hi};
    const ptrdiff_t size = npuc_element_size(h->conv.y_dtype);
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < width && n < channels; n++) {
            const int32_t value = npuc_requantize_wide(&rq, acc[r * width + n], (int32_t)(slot + n));
            uint8_t *to = out[r] + n * size;
            if (size == 4) {
                memcpy(to, &value, 4);
            } else if (size == 2) {
                const int16_t word = (int16_t)value;
                memcpy(to, &word, 2);
            } else {
                *to = (uint8_t)value;
            }
        }
}

static void gemm_task(void *context, ptrdiff_t index, int worker)
{
    const run *g = context;
    const npuc_conv *c = &g->h->conv;
    const npuc_gemm_ops *ops = g->ops;
    const ptrdiff_t panels = panels_of(c), outputs = ocg(c);
    const ptrdiff_t pb = index % g->panel_blocks, rb = index / g->panel_blocks % g->row_blocks,
                    group = index / g->panel_blocks / g->row_blocks;
    const ptrdiff_t r0 = g->rows * rb / g->row_blocks, r1 = g->rows * (rb + 1) / g->row_blocks;
    const ptrdiff_t p0 = panels * pb / g->panel_blocks, p1 = panels * (pb + 1) / g->panel_blocks;
    const int bytes = g->h->layout == BYTES;

    npuc_window window = g->window;
    window.offset = group * icg(c) * npuc_element_size(c->x_dtype);
    uint8_t *scratch = g->scratch + worker * g->scratch_stride;
    int32_t *acc = (int32_t *)(void *)scratch;
    scratch += NPUC_MAX_ROWS * NPUC_MAX_PANELS * NPUC_PANEL * 4;
    const uint8_t *a = window.x + r0 * window.pixel + window.offset;
    if (!g->in_place) {
        if (bytes)
            ops->gather8(&window, r0, r1 - r0, scratch, g->a_stride, g->flip);
        else
            ops->gather16(&window, r0, r1 - r0, scratch, g->a_stride);
        a = scratch;
    }
    const int flip = g->in_place && g->flip;
    const ptrdiff_t largest = bytes ? ops->rows8 : ops->rows16;
    const ptrdiff_t tiles = (r1 - r0 + largest - 1) / largest;
    for (ptrdiff_t p = p0; p < p1;) {
        const int width = p1 - p < ops->panels ? (int)(p1 - p) : ops->panels;
        const ptrdiff_t slot = (group * panels + p) * NPUC_PANEL;
        const uint8_t *b = g->bytes + g->job->weight + slot / NPUC_PANEL * g->panel_bytes;
        const int32_t *bias = (const int32_t *)(const void *)(g->bytes + g->job->bias) + slot;
        const ptrdiff_t channels = outputs - p * NPUC_PANEL;
        for (ptrdiff_t t = 0; t < tiles; t++) {
            const ptrdiff_t first = npuc_tile_start(r1 - r0, largest, tiles, t);
            const int rows = (int)(npuc_tile_start(r1 - r0, largest, tiles, t + 1) - first);
            const uint8_t *at = a + first * g->a_stride;
            uint8_t *out[NPUC_MAX_ROWS];
            output_rows(g, r0 + first, rows, group * outputs + p * NPUC_PANEL, out);
            if (c->wide) {
                wide_tile(g, rows, width, at, slot, channels, acc, out);
                continue;
            }
            if (bytes && ops->fused8 &&
                ops->fused8(rows, width, g->k_steps, at, g->a_stride, flip, (const int8_t *)b, g->panel_bytes, bias, &g->stage,
                            (int)(slot / NPUC_PANEL), channels, out))
                continue;
            if (bytes)
                ops->tile8(rows, width, g->k_steps, at, g->a_stride, flip, (const int8_t *)b, g->panel_bytes, bias, acc);
            else
                ops->tile16(rows, width, g->k_steps, at, g->a_stride, (const int16_t *)(const void *)b, g->panel_bytes, bias, acc);
            ops->finish(&g->stage, rows, width, (int)(slot / NPUC_PANEL), channels, acc, out);
        }
        p += width;
    }
}

/*
 * Whether windows can be read where they are, in a copy of the image with its border, which has each pixel once and not once
 * for each tap: lines of a window that are whole groups of four bytes, and lines of outputs that are whole runs of neighbours.
 */
static int can_read_lines(const run *g)
{
    const npuc_conv *c = &g->h->conv;
    const npuc_window *w = &g->window;
    const npuc_gemm_ops *ops = g->ops;
    const ptrdiff_t size = ops->bytes ? 1 : 2;
    if (!ops->lines || g->h->layout != (ops->bytes ? BYTES : WORDS) || c->wide || c->transposed) return 0;
    if (!w->adjacent || !w->ny || w->ny * w->nx == 1 || w->nx * icg(c) * size % 4 || w->columns % ops->neighbours) return 0;
    if (g->stage.kind < 0 || npuc_element_size(c->y_dtype) != 1 || npuc_border_width(w) * w->run * size > A_BLOCK / 4) return 0;
    for (ptrdiff_t p = 0; p < panels_of(c); p++)
        if (g->stage.level[p] != NPUC_FAST) return 0;
    return 1;
}

static void lines_task(void *context, ptrdiff_t index, int worker)
{
    const run *g = context;
    const npuc_window *w = &g->window;
    const npuc_gemm_ops *ops = g->ops;
    const ptrdiff_t panels = panels_of(&g->h->conv), outputs = g->h->conv.out_channels;
    const ptrdiff_t n = index / g->row_blocks, part = index % g->row_blocks;
    const ptrdiff_t j0 = w->rows * part / g->row_blocks, j1 = w->rows * (part + 1) / g->row_blocks;
    const ptrdiff_t seen = w->dy[w->ny - 1] - w->dy[0] + 1; /* lines that the windows of a line of outputs see */
    uint8_t *image = g->scratch + worker * g->scratch_stride;
    const ptrdiff_t size = ops->bytes ? 1 : 2, run = ops->neighbours;
    ops->border(w, n, j0 * w->step_y + w->dy[0], (j1 - j0 - 1) * w->step_y + seen, image, g->a_stride, g->flip);
    const ptrdiff_t count = (j1 - j0) * w->columns;
    for (ptrdiff_t p = 0; p < panels; p += ops->panels) {
        const int width = panels - p < ops->panels ? (int)(panels - p) : ops->panels;
        const uint8_t *b = g->bytes + g->job->weight + p * g->panel_bytes;
        const int32_t *bias = (const int32_t *)(const void *)(g->bytes + g->job->bias) + p * NPUC_PANEL;
        npuc_lines l = {.a = {image, image, image},
                        .stride = w->step_x * w->run * size,
                        .line = g->a_stride,
                        .steps = w->nx * w->run * size / 4,
                        .lines = w->ny};
        if (w->ny > 1) l.line *= w->dy[1] - w->dy[0];
        uint8_t *y = g->y + (n * w->rows + j0) * w->columns * outputs + p * NPUC_PANEL, *out[NPUC_MAX_ROWS];
        const uint8_t *line = image;
        for (ptrdiff_t row = 0, i = 0; row < count;) {
            const int rows = (int)(count - row >= 3 * run ? 3 * run : run);
            for (int q = 0; q < rows / run; q++) {
                l.a[q] = line + i * l.stride;
                i += run;
                if (i == w->columns) i = 0, line += w->step_y * g->a_stride;
            }
            for (int r = 0; r < rows; r++) out[r] = y + (row + r) * outputs;
            ops->lines(rows, width, &l, b, g->panel_bytes, bias, &g->stage, (int)p, outputs - p * NPUC_PANEL, out);
            row += rows;
        }
    }
}

static npuc_status run_lines(run *g, int threads)
{
    const npuc_window *w = &g->window;
    const ptrdiff_t images = g->rows / (w->rows * w->columns), seen = w->dy[w->ny - 1] - w->dy[0] + 1;
    g->flip = npuc_flips(g->h->conv.x_dtype);
    const ptrdiff_t size = g->ops->bytes ? 1 : 2;
    g->panel_bytes = (ptrdiff_t)w->ny * w->nx * w->run * size * NPUC_PANEL;
    g->a_stride = npuc_round_up(npuc_border_width(w) * w->run * size, 64);
    if (g->a_stride % 1024 == 0) g->a_stride += 64; /* lines a power of two apart would share a few cache sets */
    ptrdiff_t most = (A_BLOCK / g->a_stride - seen) / w->step_y + 1;
    if (most < 1) most = 1;
    g->row_blocks = (w->rows + most - 1) / most;
    if (threads > 1 && g->row_blocks * images < 3 * threads) {
        const ptrdiff_t wanted = (3 * threads + images - 1) / images;
        g->row_blocks = wanted < w->rows ? wanted : w->rows;
    }
    const ptrdiff_t block = (w->rows + g->row_blocks - 1) / g->row_blocks;
    g->scratch_stride = npuc_round_up(((block - 1) * w->step_y + seen) * g->a_stride + NPUC_SLACK, 64);
    g->scratch = npuc_scratch((size_t)(g->scratch_stride * threads));
    if (!g->scratch) return NPUC_NO_MEMORY;
    npuc_parallel(g->row_blocks * images, threads, lines_task, g);
    return NPUC_OK;
}

static npuc_status run_gemm(run *g, int threads)
{
    if (can_read_lines(g)) return run_lines(g, threads);
    const npuc_conv *c = &g->h->conv;
    const npuc_window *w = &g->window;
    const int bytes = g->h->layout == BYTES;
    const ptrdiff_t k = (ptrdiff_t)g->job->ny * g->job->nx * icg(c);
    const ptrdiff_t size = bytes ? 1 : 2, group = bytes ? 4 : 2;
    g->k_steps = (k + group - 1) / group;
    g->panel_bytes = g->k_steps * 4 * NPUC_PANEL;
    g->window.padded = g->k_steps * 4;
    g->flip = bytes && npuc_flips(c->x_dtype);
    g->in_place = k % group == 0 && npuc_element_size(c->x_dtype) == size && w->ny == 1 && w->nx == 1 && w->dy[0] == 0 && w->dx[0] == 0 &&
                  w->step_y == 1 && w->step_x == 1 && w->rows == w->height && w->columns == w->width;
    g->a_stride = w->pixel;
    if (!g->in_place) {
        g->a_stride = npuc_round_up(g->window.padded, 64);
        if (g->a_stride % 1024 == 0) g->a_stride += 64; /* rows a power of two apart would share a few cache sets */
    }
    const ptrdiff_t largest = bytes ? g->ops->rows8 : g->ops->rows16;
    ptrdiff_t block = A_BLOCK / (g->window.padded > 0 ? g->window.padded : 1) / largest * largest;
    if (block > 32 * largest) block = 32 * largest;
    if (block < 2 * largest) block = 2 * largest;
    const ptrdiff_t panels = panels_of(c);
    g->row_blocks = (g->rows + block - 1) / block;
    g->panel_blocks = 1;
    if (threads > 1) {
        /* Enough tasks that a slow thread does not hold up the others: rows first, then panels where rows are few. */
        const ptrdiff_t wanted = 3 * threads, most = (g->rows + 2 * largest - 1) / (2 * largest);
        if (g->row_blocks * c->groups < wanted && most > g->row_blocks) {
            const ptrdiff_t blocks = (wanted + c->groups - 1) / c->groups;
            g->row_blocks = blocks < most ? blocks : most;
        }
        if (g->row_blocks * c->groups < wanted) {
            const ptrdiff_t pairs = (panels + g->ops->panels - 1) / g->ops->panels;
            const ptrdiff_t split = (wanted + g->row_blocks * c->groups - 1) / (g->row_blocks * c->groups);
            g->panel_blocks = split < pairs ? split : pairs;
        }
    }
    block = (g->rows + g->row_blocks - 1) / g->row_blocks;
    g->scratch_stride =
        npuc_round_up(NPUC_MAX_ROWS * NPUC_MAX_PANELS * NPUC_PANEL * 4 + (g->in_place ? 0 : block * g->a_stride + NPUC_SLACK), 64);
    const ptrdiff_t zeros = NPUC_MAX_PANELS * NPUC_PANEL * 4;
    uint8_t *memory = npuc_scratch((size_t)(zeros + g->scratch_stride * threads));
    if (!memory) return NPUC_NO_MEMORY;
    memset(memory, 0, (size_t)zeros);
    g->zeros = (const int32_t *)(void *)memory;
    g->scratch = memory + zeros;
    npuc_parallel(g->row_blocks * g->panel_blocks * c->groups, threads, gemm_task, g);
    return NPUC_OK;
}

/* --- depthwise ------------------------------------------------------------------------------------------------------ */

static void depthwise_task(void *context, ptrdiff_t index, int worker)
{
    const run *g = context;
    const npuc_conv *c = &g->h->conv;
    const npuc_window *w = &g->window;
    const ptrdiff_t x_size = npuc_element_size(c->x_dtype);
    const ptrdiff_t panels = (c->out_channels + NPUC_PANEL - 1) / NPUC_PANEL;
    const ptrdiff_t pb = index % g->panel_blocks, line = index / g->panel_blocks;
    const ptrdiff_t p0 = panels * pb / g->panel_blocks, p1 = panels * (pb + 1) / g->panel_blocks;
    const ptrdiff_t c0 = p0 * NPUC_PANEL, c1 = p1 * NPUC_PANEL < c->out_channels ? p1 * NPUC_PANEL : c->out_channels;
    const ptrdiff_t n = line / w->rows, j = line % w->rows;
    const uint8_t *image = w->x + n * w->height * w->width * w->pixel + c0 * x_size;
    const uint8_t *outside = g->bytes; /* a pixel of zero points */
    const void **tap = (const void **)(void *)(g->scratch + worker * g->scratch_stride);
    const int tap_count = w->ny * w->nx;
    uint8_t *out[NPUC_MAX_PIXELS];
    npuc_depthwise d = {
        .taps = tap,
        .tap_count = tap_count,
        .dtype = c->x_dtype,
        .weights = (const int32_t *)(const void *)((const uint8_t *)g->h + g->job->weight) + c0,
        .weight_stride = align(c->out_channels),
        .bias = (const int32_t *)(const void *)((const uint8_t *)g->h + g->job->bias) + c0,
        .channels = c1 - c0,
        .first_panel = (int32_t)p0,
        .stage = &g->stage,
        .out = out,
    };
    const ptrdiff_t blocks = (w->columns + NPUC_MAX_PIXELS - 1) / NPUC_MAX_PIXELS;
    for (ptrdiff_t q = 0; q < blocks; q++) {
        const ptrdiff_t i0 = w->columns * q / blocks;
        d.pixels = (int32_t)(w->columns * (q + 1) / blocks - i0);
        for (int p = 0; p < d.pixels; p++) {
            const void **to = tap + (ptrdiff_t)p * tap_count;
            for (int32_t a = 0; a < w->ny; a++) {
                const ptrdiff_t y = j * w->step_y + w->dy[a];
                for (int32_t b = 0; b < w->nx; b++) {
                    const ptrdiff_t x = (i0 + p) * w->step_x + w->dx[b];
                    const int there = y >= 0 && y < w->height && x >= 0 && x < w->width;
                    *to++ = there ? image + (y * w->width + x) * w->pixel : outside;
                }
            }
        }
        output_rows(g, line * w->columns + i0, d.pixels, c0, out);
        g->ops->depthwise(&d);
    }
}

static void depthwise8_task(void *context, ptrdiff_t index, int worker)
{
    const run *g = context;
    const npuc_conv *c = &g->h->conv;
    const npuc_window *w = &g->window;
    const ptrdiff_t y_size = npuc_element_size(c->y_dtype);
    const ptrdiff_t blocks = (c->out_channels + 63) / 64;
    const ptrdiff_t pb = index % g->panel_blocks, line = index / g->panel_blocks;
    const ptrdiff_t b0 = blocks * pb / g->panel_blocks, b1 = blocks * (pb + 1) / g->panel_blocks;
    const ptrdiff_t c0 = b0 * 64, c1 = b1 * 64 < c->out_channels ? b1 * 64 : c->out_channels;
    const ptrdiff_t n = line / w->rows, j = line % w->rows;
    const int tap_count = w->ny * w->nx;
    const uint8_t *image = w->x + n * w->height * w->width * w->pixel + c0;
    const uint8_t **tap = (const uint8_t **)(void *)(g->scratch + worker * g->scratch_stride);
    const uint8_t *own = (const uint8_t *)g->h;
    npuc_depthwise8 d = {
        .step = w->step_x * w->pixel,
        .offset = g->offsets,
        .tap_count = tap_count,
        .flip = npuc_flips(c->x_dtype),
        .weights = (const int8_t *)own + g->job->weight + c0 * ((tap_count + 3) / 4 * 4),
        .bias = (const int32_t *)(const void *)(own + g->job->bias) + c0,
        .first_lane = c0 / NPUC_PANEL,
        .channels = c1 - c0,
        .stage = &g->stage,
        .out_step = (c->transposed ? c->stride_w : 1) * c->out_channels * y_size,
    };
    ptrdiff_t from, to;
    npuc_inside(w, &from, &to);
    const ptrdiff_t top = j * w->step_y;
    if (!w->ny || top + w->dy[0] < 0 || top + w->dy[w->ny - 1] >= w->height) from = to = 0;
    for (ptrdiff_t i = 0; i < w->columns;) {
        uint8_t *out;
        output_rows(g, line * w->columns + i, 1, c0, &out);
        d.out = out;
        if (i == from && from < to) {
            d.taps = NULL;
            d.base = image + ((top + w->dy[0]) * w->width + i * w->step_x + w->dx[0]) * w->pixel;
            d.pixels = to - from;
        } else {
            const ptrdiff_t end = i < from ? from : w->columns;
            d.pixels = end - i < NPUC_MAX_PIXELS ? end - i : NPUC_MAX_PIXELS;
            d.taps = tap;
            const uint8_t **next = tap;
            for (ptrdiff_t p = i; p < i + d.pixels; p++)
                for (int32_t a = 0; a < w->ny; a++)
                    for (int32_t b = 0; b < w->nx; b++) {
                        const ptrdiff_t y = top + w->dy[a], x = p * w->step_x + w->dx[b];
                        const int there = y >= 0 && y < w->height && x >= 0 && x < w->width;
                        *next++ = there ? image + (y * w->width + x) * w->pixel : g->bytes;
                    }
        }
        g->ops->depthwise8(&d);
        i += d.pixels;
    }
}

static npuc_status run_depthwise(run *g, int threads)
{
    const npuc_conv *c = &g->h->conv;
    const ptrdiff_t x_size = npuc_element_size(c->x_dtype);
    const ptrdiff_t lines = g->rows / g->window.columns;
    const ptrdiff_t panels = (c->out_channels + NPUC_PANEL - 1) / NPUC_PANEL;
    g->panel_blocks = 1;
    while (threads > 1 && lines * g->panel_blocks < 4 * threads && g->panel_blocks * 4 <= panels) g->panel_blocks++;
    const npuc_window *w = &g->window;
    const int bytes = g->h->layout == DEPTHWISE_BYTES;
    if (bytes) { /* blocks of 64 channels are not divided */
        const ptrdiff_t most = (c->out_channels + 63) / 64;
        if (g->panel_blocks > most) g->panel_blocks = most;
    }
    const ptrdiff_t outside = npuc_round_up(c->in_channels * x_size, 64);
    const ptrdiff_t offsets = npuc_round_up((ptrdiff_t)w->ny * w->nx * (ptrdiff_t)sizeof(ptrdiff_t), 64);
    g->scratch_stride = npuc_round_up(NPUC_MAX_PIXELS * (ptrdiff_t)g->window.ny * g->window.nx * (ptrdiff_t)sizeof(void *), 64);
    uint8_t *memory = npuc_scratch((size_t)(outside + offsets + g->scratch_stride * threads));
    if (!memory) return NPUC_NO_MEMORY;
    ptrdiff_t *offset = (ptrdiff_t *)(void *)(memory + outside);
    for (int32_t t = 0; t < w->ny * w->nx; t++)
        offset[t] = ((ptrdiff_t)(w->dy[t / w->nx] - w->dy[0]) * w->width + w->dx[t % w->nx] - w->dx[0]) * w->pixel;
    g->offsets = offset;
    if (x_size == 1) {
        memset(memory, (uint8_t)c->x_zero_point, (size_t)outside);
    } else {
        const int16_t value = (int16_t)c->x_zero_point;
        for (ptrdiff_t i = 0; i < outside; i += 2) memcpy(memory + i, &value, 2);
    }
    g->bytes = memory;
    g->scratch = memory + outside + offsets;
    npuc_parallel(lines * g->panel_blocks, threads, bytes ? depthwise8_task : depthwise_task, g);
    return NPUC_OK;
}

/* The kernels in use, if they can read what others have packed. */
static const npuc_gemm_ops *kernels_for(const header *h)
{
    const npuc_gemm_ops *ops = npuc_gemm();
    return is_bytes(h->layout) && (!ops->bytes || h->least_weight < ops->least_weight) ? &npuc_gemm_portable : ops;
}

npuc_status npuc_conv_run(const void *prepared, const void *x, int64_t batch, int64_t height, int64_t width, void *y, int64_t out_height,
                          int64_t out_width, int32_t threads)
{
    const header *h = prepared;
    if (!h || (uintptr_t)prepared % ALIGN || h->magic != MAGIC || !x || !y || threads < 1) return NPUC_BAD_ARGUMENT;
    const int64_t limit = (int64_t)1 << 24;
    if (batch < 0 || height < 1 || width < 1 || out_height < 0 || out_width < 0) return NPUC_BAD_ARGUMENT;
    if (batch > limit || height > limit || width > limit || out_height > limit || out_width > limit) return NPUC_BAD_ARGUMENT;
    if (threads > 64) threads = 64;
    const npuc_conv *c = &h->conv;
    if (c->x_dtype == NPUC_I16 && (uintptr_t)x % 2) return NPUC_BAD_ARGUMENT;
    const uint8_t *bytes = prepared;
    for (int32_t p = 0; p < h->job_count; p++) {
        const job *j = (const job *)(const void *)(bytes + h->jobs) + p;
        run g = {.ops = kernels_for(h), .h = h, .job = j, .bytes = bytes, .y = y, .out_height = out_height, .out_width = out_width};
        g.stage = (npuc_stage){
            .kind = h->kind,
            .dtype = c->y_dtype,
            .zero_point = h->y_zero_point,
            .lo = h->lo,
            .hi = h->hi,
            .multiplier = (const int32_t *)(const void *)(bytes + h->multiplier),
            .shift = (const int32_t *)(const void *)(bytes + h->shift),
            .scale = (const float *)(const void *)(bytes + h->scale),
            .pre = (const int32_t *)(const void *)(bytes + h->pre),
            .add = (const int32_t *)(const void *)(bytes + h->add),
            .post = (const int32_t *)(const void *)(bytes + h->post),
            .level = bytes + h->level,
        };
        const int64_t phase_h = c->transposed ? c->stride_h : 1, phase_w = c->transposed ? c->stride_w : 1;
        g.window = (npuc_window){
            .x = x,
            .height = height,
            .width = width,
            .pixel = c->in_channels * npuc_element_size(c->x_dtype),
            .run = icg(c),
            .dtype = c->x_dtype,
            .zero_point = c->x_zero_point,
            .rows = (out_height - j->first_y + phase_h - 1) / phase_h,
            .columns = (out_width - j->first_x + phase_w - 1) / phase_w,
            .step_y = c->transposed ? 1 : c->stride_h,
            .step_x = c->transposed ? 1 : c->stride_w,
            .ny = j->ny,
            .nx = j->nx,
            .dy = (const int32_t *)(const void *)(bytes + j->dy),
            .dx = (const int32_t *)(const void *)(bytes + j->dx),
        };
        g.window.adjacent = c->groups == 1;
        for (int32_t b = 1; b < j->nx; b++) g.window.adjacent &= g.window.dx[b] == g.window.dx[b - 1] + 1;
        if (batch == 0 || g.window.rows <= 0 || g.window.columns <= 0) continue;
        g.rows = batch * g.window.rows * g.window.columns;
        /* In cycles of one core, about: */
        const double cycles = (double)g.rows * c->out_channels * (1 + (double)j->ny * j->nx * icg(c) / (is_depthwise(c) ? 8 : 50));
        const int useful = cycles < 64 * NPUC_GRAIN ? 1 + (int)(cycles / NPUC_GRAIN) : 64;
        const npuc_status status =
            is_depthwise(c) ? run_depthwise(&g, threads < useful ? threads : useful) : run_gemm(&g, threads < useful ? threads : useful);
        if (status != NPUC_OK) return status;
    }
    return NPUC_OK;
}
