/*
 * Batched matrix products of two activations: `b` is packed for each entry of the batch, then it is a GEMM like any other.
 *
 * (a - za)(b - zb): b's zero point is subtracted while packing, a's is folded into a bias through the column sums of b.
 */
#include <string.h>

#include "gemm.h"
#include "npuc/gemm.h"
#include "threads.h"
#include "stage.h"
#include "wide.h"

typedef struct {
    const npuc_gemm_ops *ops;
    const npuc_matmul *mm;
    const uint8_t *a, *b;
    uint8_t *y;
    npuc_stage stage;
    int bytes; /* the byte kernels serve */
    ptrdiff_t panels, row_blocks;
    ptrdiff_t k_steps, panel_bytes, a_stride;
    int in_place;
    uint8_t *packed; /* panels, then the folded bias, for the present entry of the batch */
    int32_t *bias;
    ptrdiff_t entry;
    uint8_t *scratch;
    ptrdiff_t scratch_stride;
} run;

static inline int32_t element(const uint8_t *p, int32_t dtype)
{
    if (dtype == NPUC_I16) {
        int16_t word;
        memcpy(&word, p, 2);
        return word;
    }
    return dtype == NPUC_I8 ? (int8_t)*p : *p;
}

static void pack_task(void *context, ptrdiff_t panel, int worker)
{
    (void)worker;
    const run *g = context;
    const npuc_matmul *mm = g->mm;
    const ptrdiff_t size = npuc_element_size(mm->b_dtype);
    const ptrdiff_t k_stride = (mm->transposed_b ? 1 : mm->n) * size, n_stride = (mm->transposed_b ? mm->k : 1) * size;
    const uint8_t *b = g->b + mm->b_offset[g->entry] * size + panel * NPUC_PANEL * n_stride;
    const ptrdiff_t lanes = mm->n - panel * NPUC_PANEL < NPUC_PANEL ? mm->n - panel * NPUC_PANEL : NPUC_PANEL;
    uint8_t *to = g->packed + panel * g->panel_bytes;
    const int group = g->bytes ? 4 : 2;
    const int32_t zero_point = mm->b_zero_point, dtype = mm->b_dtype;
    uint32_t sums[NPUC_PANEL] = {0};
    for (ptrdiff_t step = 0; step < g->k_steps; step++, to += 64)
        for (ptrdiff_t lane = 0; lane < NPUC_PANEL; lane++)
            for (int t = 0; t < group; t++) {
                const ptrdiff_t k = step * group + t;
                const int32_t w = k < mm->k && lane < lanes ? element(b + k * k_stride + lane * n_stride, dtype) - zero_point : 0;
                sums[lane] += (uint32_t)w;
                if (g->bytes) {
                    to[lane * 4 + t] = (uint8_t)w;
                } else {
                    const int16_t word = (int16_t)w;
                    memcpy(to + (lane * 2 + t) * 2, &word, 2);
                }
            }
    const int64_t a_zero = g->bytes ? npuc_flipped(mm->a_dtype, mm->a_zero_point) : mm->a_zero_point;
    for (ptrdiff_t lane = 0; lane < NPUC_PANEL; lane++) g->bias[panel * NPUC_PANEL + lane] = (int32_t)(0u - (uint32_t)a_zero * sums[lane]);
}

static void product_task(void *context, ptrdiff_t index, int worker)
{
    const run *g = context;
    const npuc_matmul *mm = g->mm;
    const npuc_gemm_ops *ops = g->ops;
    const ptrdiff_t r0 = mm->m * index / g->row_blocks, r1 = mm->m * (index + 1) / g->row_blocks;
    const ptrdiff_t a_size = npuc_element_size(mm->a_dtype), y_size = npuc_element_size(mm->y_dtype);
    const uint8_t *a = g->a + (mm->a_offset[g->entry] + r0 * mm->k) * a_size;
    uint8_t *scratch = g->scratch + worker * g->scratch_stride;
    int32_t *acc = (int32_t *)(void *)scratch;
    scratch += NPUC_MAX_ROWS * NPUC_MAX_PANELS * NPUC_PANEL * 4;
    if (!g->in_place) {
        /* Rows of a matrix are the windows of a 1 x 1 layer. */
        const int32_t nothing = 0;
        const npuc_window w = {.x = a,
                               .height = 1,
                               .width = r1 - r0,
                               .pixel = mm->k * a_size,
                               .run = mm->k,
                               .dtype = mm->a_dtype,
                               .rows = 1,
                               .columns = r1 - r0,
                               .step_y = 1,
                               .step_x = 1,
                               .ny = 1,
                               .nx = 1,
                               .dy = &nothing,
                               .dx = &nothing,
                               .padded = g->k_steps * 4,
                               .adjacent = 1};
        if (g->bytes)
            ops->gather8(&w, 0, r1 - r0, scratch, g->a_stride, npuc_flips(mm->a_dtype));
        else
            ops->gather16(&w, 0, r1 - r0, scratch, g->a_stride);
        a = scratch;
    }
    const ptrdiff_t largest = g->bytes ? ops->rows8 : ops->rows16, tiles = (r1 - r0 + largest - 1) / largest;
    for (ptrdiff_t p = 0; p < g->panels;) {
        const int width = g->panels - p < ops->panels ? (int)(g->panels - p) : ops->panels;
        for (ptrdiff_t t = 0; t < tiles; t++) {
            const ptrdiff_t first = (r1 - r0) * t / tiles;
            const int rows = (int)((r1 - r0) * (t + 1) / tiles - first);
            const uint8_t *at = a + first * g->a_stride, *b = g->packed + p * g->panel_bytes;
            const int32_t *bias = g->bias + p * NPUC_PANEL;
            uint8_t *out[NPUC_MAX_ROWS];
            for (int r = 0; r < rows; r++) out[r] = g->y + ((g->entry * mm->m + r0 + first + r) * mm->n + p * NPUC_PANEL) * y_size;
            if (g->bytes)
                ops->tile8(rows, width, g->k_steps, at, g->a_stride, g->in_place && npuc_flips(mm->a_dtype), (const int8_t *)b,
                           g->panel_bytes, bias, acc);
            else
                ops->tile16(rows, width, g->k_steps, at, g->a_stride, (const int16_t *)(const void *)b, g->panel_bytes, bias, acc);
            ops->finish(&g->stage, rows, width, (int)p, mm->n - p * NPUC_PANEL, acc, out);
        }
        p += width;
    }
}

/* One row of the product with 64-bit sums: 16-bit operands, whose pairs of products do not fit 32 bits. */
static void wide_task(void *context, ptrdiff_t index, int worker)
{
    const run *g = context;
    const npuc_matmul *mm = g->mm;
    const ptrdiff_t entry = index / mm->m, row = index % mm->m;
    const ptrdiff_t a_size = npuc_element_size(mm->a_dtype), b_size = npuc_element_size(mm->b_dtype),
                    y_size = npuc_element_size(mm->y_dtype);
    int64_t *acc = (int64_t *)(void *)(g->scratch + worker * g->scratch_stride);
    memset(acc, 0, (size_t)mm->n * 8);
    const uint8_t *a = g->a + (mm->a_offset[entry] + row * mm->k) * a_size;
    const uint8_t *b = g->b + mm->b_offset[entry] * b_size;
    for (ptrdiff_t k = 0; k < mm->k; k++) {
        const int64_t x = element(a + k * a_size, mm->a_dtype) - mm->a_zero_point;
        for (ptrdiff_t n = 0; n < mm->n; n++)
            acc[n] += x * (element(b + (mm->transposed_b ? n * mm->k + k : k * mm->n + n) * b_size, mm->b_dtype) - mm->b_zero_point);
    }
    const npuc_requant rq = {g->stage.kind,       2,           g->stage.multiplier, g->stage.shift, g->stage.scale,
                             g->stage.zero_point, g->stage.lo, g->stage.hi};
    for (ptrdiff_t n = 0; n < mm->n; n++) {
        const int32_t value = g->stage.kind < 0              ? (int32_t)acc[n]
                              : g->stage.kind == NPUC_DOUBLE_ROUNDING ? npuc_requantize(&rq, acc[n], (int32_t)n)
                                                             : npuc_requantize_wide(&rq, acc[n], (int32_t)n);
        uint8_t *to = g->y + ((entry * mm->m + row) * mm->n + n) * y_size;
        if (y_size == 4) {
            memcpy(to, &value, 4);
        } else if (y_size == 2) {
            const int16_t word = (int16_t)value;
            memcpy(to, &word, 2);
        } else {
            *to = (uint8_t)value;
        }
    }
}

static int range(int32_t dtype, int32_t *lo, int32_t *hi)
{
    switch (dtype) {
    case NPUC_I8: *lo = -128, *hi = 127; return 1;
    case NPUC_U8: *lo = 0, *hi = 255; return 1;
    case NPUC_I16: *lo = -32768, *hi = 32767; return 1;
    default: return 0;
    }
}

npuc_status npuc_matmul_run(const npuc_matmul *mm, const void *a, const void *b, const npuc_requant *requant, void *y)
{
    int32_t a_lo, a_hi, b_lo, b_hi;
    const int64_t limit = (int64_t)1 << 24;
    if (!mm || !a || !b || !y || mm->m < 1 || mm->k < 1 || mm->n < 1 || mm->batch < 0 || mm->threads < 1) return NPUC_BAD_ARGUMENT;
    if (mm->m > limit || mm->k > limit || mm->n > limit || mm->batch > limit || mm->k * mm->n > (int64_t)1 << 36) return NPUC_BAD_ARGUMENT;
    if (!range(mm->a_dtype, &a_lo, &a_hi) || !range(mm->b_dtype, &b_lo, &b_hi)) return NPUC_BAD_ARGUMENT;
    if (mm->a_zero_point < a_lo || mm->a_zero_point > a_hi || mm->b_zero_point < b_lo || mm->b_zero_point > b_hi) return NPUC_BAD_ARGUMENT;
    if (mm->batch && (!mm->a_offset || !mm->b_offset)) return NPUC_BAD_ARGUMENT;
    if (!npuc_stage_valid(requant, mm->y_dtype, (int32_t)mm->n, mm->wide)) return NPUC_BAD_ARGUMENT;
    /* As in conv.c, for each entry of the batch; there threads meet twice, after the packing too. */
    const double grain = 2 * NPUC_GRAIN, cycles = (double)mm->m * (double)mm->n * (1 + (double)mm->k / 50);
    const int useful = cycles < 64 * grain ? 1 + (int)(cycles / grain) : 64;
    const int threads = mm->threads < useful ? mm->threads : useful;

    run g = {.ops = npuc_gemm(), .mm = mm, .a = a, .b = b, .y = y};
    const int wide = mm->wide || b_lo - mm->b_zero_point < -32768 || b_hi - mm->b_zero_point > 32767;
    const ptrdiff_t a_size = npuc_element_size(mm->a_dtype);
    g.bytes = g.ops->bytes && a_size == 1 && b_lo - mm->b_zero_point >= g.ops->least_weight && b_hi - mm->b_zero_point <= 127;
    const ptrdiff_t group = g.bytes ? 4 : 2;
    g.panels = (mm->n + NPUC_PANEL - 1) / NPUC_PANEL;
    g.k_steps = (mm->k + group - 1) / group;
    g.panel_bytes = g.k_steps * 64;
    g.in_place = mm->k % group == 0 && a_size == (g.bytes ? 1 : 2);
    g.a_stride = g.in_place ? mm->k * a_size : npuc_round_up(g.k_steps * 4, 64);
    const ptrdiff_t largest = g.bytes ? g.ops->rows8 : g.ops->rows16;
    g.row_blocks = (mm->m + 8 * largest - 1) / (8 * largest);
    if (g.row_blocks < 2 * threads)
        g.row_blocks = (mm->m + largest - 1) / largest < 2 * threads ? (mm->m + largest - 1) / largest : 2 * threads;
    const ptrdiff_t block = (mm->m + g.row_blocks - 1) / g.row_blocks;

    const ptrdiff_t channels = g.panels * NPUC_PANEL, parameters = channels * 4;
    const ptrdiff_t packed = wide ? 0 : g.panels * g.panel_bytes + channels * 4;
    const ptrdiff_t flags = npuc_round_up(g.panels, 64);
    g.scratch_stride =
        wide ? npuc_round_up(mm->n * 8, 64)
             : npuc_round_up(NPUC_MAX_ROWS * NPUC_MAX_PANELS * NPUC_PANEL * 4 + (g.in_place ? 0 : block * g.a_stride + NPUC_SLACK), 64);
    uint8_t *memory = npuc_scratch((size_t)(6 * parameters + packed + flags + g.scratch_stride * threads));
    if (!memory) return NPUC_NO_MEMORY;
    g.packed = memory;
    g.bias = (int32_t *)(void *)(memory + (wide ? 0 : g.panels * g.panel_bytes));
    int32_t *multiplier = (int32_t *)(void *)(memory + packed), *shift = multiplier + parameters / 4;
    float *scale = (float *)(void *)(shift + parameters / 4);
    int32_t *pre = shift + 2 * (parameters / 4), *add = pre + parameters / 4, *post = add + parameters / 4;
    uint8_t *level = memory + packed + 6 * parameters;
    g.scratch = level + flags;
    memset(level, NPUC_FAST, (size_t)flags);
    const int64_t largest_a = a_hi - mm->a_zero_point > mm->a_zero_point - a_lo ? a_hi - mm->a_zero_point : mm->a_zero_point - a_lo;
    const int64_t largest_b = b_hi - mm->b_zero_point > mm->b_zero_point - b_lo ? b_hi - mm->b_zero_point : mm->b_zero_point - b_lo;
    const int64_t bound = largest_a * largest_b * mm->k; /* below 2^57 */
    g.stage = (npuc_stage){.kind = -1,
                           .dtype = mm->y_dtype,
                           .multiplier = multiplier,
                           .shift = shift,
                           .scale = scale,
                           .pre = pre,
                           .add = add,
                           .post = post,
                           .level = level};
    if (requant) {
        g.stage.kind = requant->kind;
        g.stage.zero_point = requant->zero_point;
        g.stage.lo = requant->lo;
        g.stage.hi = requant->hi;
        for (ptrdiff_t n = 0; n < channels; n++) {
            const int32_t c = requant->count == 1 ? 0 : (int32_t)(n < mm->n ? n : n / NPUC_PANEL * NPUC_PANEL);
            multiplier[n] = NPUC_HAS_MULTIPLIER(requant->kind) ? requant->multiplier[c] : 0;
            shift[n] = NPUC_HAS_SHIFT(requant->kind) ? requant->shift[c] : 0;
            scale[n] = requant->kind == NPUC_FLOAT_SCALE ? requant->scale[c] : 0;
            const int here = npuc_stage_level(requant, c, bound, pre + n, add + n, post + n);
            if (here < level[n / NPUC_PANEL]) level[n / NPUC_PANEL] = (uint8_t)here;
        }
    }
    if (wide) {
        npuc_parallel(mm->batch * mm->m, threads, wide_task, &g);
        return NPUC_OK;
    }
    for (g.entry = 0; g.entry < mm->batch; g.entry++) {
        /* Neighbours that share a right-hand side, as a broadcast does, share its packing. */
        if (!g.entry || mm->b_offset[g.entry] != mm->b_offset[g.entry - 1]) npuc_parallel(g.panels, threads, pack_task, &g);
        npuc_parallel(g.row_blocks, threads, product_task, &g);
    }
    return NPUC_OK;
}
