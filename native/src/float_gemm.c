/*
 * Convolution and matrix product of bf16, f16 and f32.
 *
 * Windows of some output pixels are gathered as rows of f32, in the order of the sum: kernel row, kernel column, channel.
 * Weights are f32 in panels of output channels. A tile then holds some pixels by some channels in registers and walks the
 * whole sum, so each output is one chain of fused multiply-adds whose order no tiling, thread count or vector width changes.
 * What lies outside of the input is gathered as zeros, or left out by the depthwise loop: adding 0 * w, w finite, can only
 * change the sign of a zero, and a zero is stored as +0.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "floats.h"
#include "npuc/float.h"
#include "threads.h"

#if NPUC_HAVE_AVX2
#include <immintrin.h>
#endif

enum { PANEL = 16, GATHERED = 1 << 15 /* floats of a block of gathered rows */, MOST_ROWS = 96, MAX_SIZE = 1 << 24 };

typedef struct float_ops {
    int rows;
    void (*tile)(int rows, int panels, ptrdiff_t k, const float *a, ptrdiff_t stride, const float *b, const float *bias, float *c);
    void (*depthwise)(ptrdiff_t channels, ptrdiff_t padded, int taps, const void *const *x, const float *weight, const float *bias,
                      float *c, int32_t dtype);
    void (*widen)(const void *x, ptrdiff_t n, float *y, int32_t dtype);
    void (*finish)(const float *c, ptrdiff_t n, int32_t relu, float limit, void *y, int32_t dtype);
} float_ops;

/* Without the instruction: the product is exact in double, and, of short floats, the double sum rounds to the float that one rounding gives. */
typedef float vec4 __attribute__((vector_size(16)));
typedef double wide4 __attribute__((vector_size(32)));
NPUC_INLINE vec4 load4(const float *x)
{
    vec4 v;
    memcpy(&v, x, sizeof v);
    return v;
}
NPUC_INLINE void store4(float *x, vec4 v) { memcpy(x, &v, sizeof v); }
NPUC_INLINE vec4 widen4(const void *x, ptrdiff_t i, int32_t dtype)
{
    return (vec4){npuc_widen(x, i, dtype), npuc_widen(x, i + 1, dtype), npuc_widen(x, i + 2, dtype), npuc_widen(x, i + 3, dtype)};
}
#define fma4(a, b, c)                                                                                                                      \
    __builtin_convertvector(__builtin_convertvector(c, wide4) + __builtin_convertvector(a, wide4) * __builtin_convertvector(b, wide4), vec4)
#define NAME(x) x##_portable
#define TARGET
#define VEC vec4
#define WIDTH 4
#define ROWS 4
#define LOAD load4
#define STORE store4
#define SPREAD(x) ((vec4){x, x, x, x})
#define WIDEN widen4
#define FMA fma4
#include "float_tile.h"

/* A product of f32 has 48 bits, and two roundings of the sum may differ from one. */
NPUC_INLINE vec4 exact_fma4(vec4 a, vec4 b, vec4 c)
{
    return (vec4){fmaf(a[0], b[0], c[0]), fmaf(a[1], b[1], c[1]), fmaf(a[2], b[2], c[2]), fmaf(a[3], b[3], c[3])};
}
#define NAME(x) x##_portable_f32
#define TARGET
#define VEC vec4
#define WIDTH 4
#define ROWS 4
#define LOAD load4
#define STORE store4
#define SPREAD(x) ((vec4){x, x, x, x})
#define WIDEN widen4
#define FMA exact_fma4
#include "float_tile.h"

#if NPUC_HAVE_AVX2
#define WITH_AVX2 __attribute__((target("avx2,fma,f16c")))
#define WITH_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))

NPUC_INLINE WITH_AVX2 __m256 widen8(const void *x, ptrdiff_t i, int32_t dtype)
{
    if (dtype == NPUC_F32) return _mm256_loadu_ps((const float *)x + i);
    const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)x + i));
    return dtype == NPUC_F16 ? _mm256_cvtph_ps(v) : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}

NPUC_INLINE WITH_AVX512 __m512 widen16(const void *x, ptrdiff_t i, int32_t dtype)
{
    if (dtype == NPUC_F32) return _mm512_loadu_ps((const float *)x + i);
    const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)((const uint16_t *)x + i));
    return dtype == NPUC_F16 ? _mm512_cvtph_ps(v) : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

#define NAME(x) x##_avx2
#define TARGET WITH_AVX2
#define VEC __m256
#define WIDTH 8
#define ROWS 6
#define LOAD _mm256_loadu_ps
#define STORE _mm256_storeu_ps
#define SPREAD _mm256_set1_ps
#define WIDEN widen8
#define FMA _mm256_fmadd_ps
#include "float_tile.h"

#define NAME(x) x##_avx512
#define TARGET WITH_AVX512
#define VEC __m512
#define WIDTH 16
#define ROWS 12
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#define SPREAD _mm512_set1_ps
#define WIDEN widen16
#define FMA _mm512_fmadd_ps
#include "float_tile.h"
#endif

static const float_ops *ops_in_use(int32_t dtype)
{
#if NPUC_HAVE_AVX2
    if (npuc_use_avx512()) return &ops_avx512;
    if (npuc_use_avx2() && npuc_cpu_fma_f16c()) return &ops_avx2;
#endif
    return dtype == NPUC_F32 ? &ops_portable_f32 : &ops_portable;
}

static ptrdiff_t round_up(ptrdiff_t x, ptrdiff_t to) { return (x + to - 1) / to * to; }

/* A layer as prepared: this head, then biases (padded), then weights. */
typedef struct prepared {
    npuc_float_conv conv;
    int32_t depthwise;
    int64_t k;      /* length of a sum */
    int64_t panels; /* of each group */
} prepared;

static int sane(const npuc_float_conv *c)
{
    if (!c || !npuc_is_float(c->dtype) || isnan(c->relu_limit)) return 0;
    const int32_t positive[] = {c->groups,   c->in_channels, c->out_channels, c->kernel_h,  c->kernel_w,
                                c->stride_h, c->stride_w,    c->dilation_h,   c->dilation_w};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (positive[i] < 1 || positive[i] > MAX_SIZE) return 0;
    if (c->in_channels % c->groups || c->out_channels % c->groups) return 0;
    if (abs(c->pad_top) > MAX_SIZE || abs(c->pad_left) > MAX_SIZE) return 0;
    const double k = (double)c->in_channels / c->groups * c->kernel_h * c->kernel_w;
    return k * c->out_channels < 1e12 && k < (1 << 30);
}

static prepared head_of(const npuc_float_conv *c)
{
    const int32_t inputs = c->in_channels / c->groups, outputs = c->out_channels / c->groups;
    prepared h = {*c, !c->transposed && inputs == 1 && outputs == 1 && c->groups > 1, 0, 0};
    h.k = (int64_t)inputs * c->kernel_h * c->kernel_w;
    h.panels = h.depthwise ? round_up(c->groups, PANEL) / PANEL : round_up(outputs, PANEL) / PANEL;
    return h;
}

static int64_t bias_count(const prepared *h) { return h->panels * PANEL * (h->depthwise ? 1 : h->conv.groups); }
static const float *biases(const prepared *h) { return (const float *)((const char *)h + round_up(sizeof *h, 64)); }
static const float *weights(const prepared *h) { return biases(h) + bias_count(h); }

size_t npuc_float_conv_size(const npuc_float_conv *conv)
{
    if (!sane(conv)) return 0;
    const prepared h = head_of(conv);
    return (size_t)round_up(sizeof h, 64) + (size_t)bias_count(&h) * (size_t)(h.k + 1) * sizeof(float);
}

npuc_status npuc_float_conv_prepare(const npuc_float_conv *conv, const void *weight, const float *bias, void *buffer, size_t size)
{
    if (!sane(conv) || !weight || !buffer || size < npuc_float_conv_size(conv)) return NPUC_BAD_ARGUMENT;
    const int32_t dtype = conv->dtype, inputs = conv->in_channels / conv->groups, taps = conv->kernel_h * conv->kernel_w;
    for (int64_t i = 0; i < (int64_t)conv->out_channels * inputs * taps; i++)
        if (!isfinite(npuc_widen(weight, i, dtype))) return NPUC_BAD_ARGUMENT;
    prepared *h = buffer;
    memset(buffer, 0, npuc_float_conv_size(conv));
    *h = head_of(conv);
    float *b = (float *)biases(h), *w = (float *)weights(h);
    const int32_t outputs = h->depthwise ? conv->out_channels : conv->out_channels / conv->groups;
    const int64_t padded = h->panels * PANEL;
    for (int32_t o = 0; o < conv->out_channels; o++) {
        const int64_t group = o / outputs, place = o % outputs;
        b[group * padded + place] = bias ? bias[o] : 0.0f;
        for (int32_t i = 0; i < inputs; i++)
            for (int32_t t = 0; t < taps; t++) {
                const float value = npuc_widen(weight, ((int64_t)o * inputs + i) * taps + t, dtype);
                if (h->depthwise) {
                    w[t * padded + o] = value;
                } else {
                    const int64_t at = (int64_t)t * inputs + i;
                    w[(group * h->panels + place / PANEL) * h->k * PANEL + at * PANEL + place % PANEL] = value;
                }
            }
    }
    return NPUC_OK;
}

typedef struct conv_job {
    const prepared *h;
    const float_ops *ops;
    const void *x;
    void *y;
    int64_t batch, height, width, out_h, out_w;
    int64_t pixels;       /* of all images */
    int64_t rows;         /* of a block */
    int64_t blocks, cuts; /* of pixels; of the panels of a group */
    int64_t cut;          /* panels of a cut */
    _Atomic int failed;
} conv_job;

/* The input row (column) that tap `k` of output `o` reads, or -1. */
static inline int64_t source(const npuc_float_conv *c, int64_t o, int64_t k, int64_t size, int vertical)
{
    const int64_t stride = vertical ? c->stride_h : c->stride_w, dilation = vertical ? c->dilation_h : c->dilation_w;
    const int64_t pad = vertical ? c->pad_top : c->pad_left;
    int64_t at;
    if (c->transposed) {
        at = o + pad - k * dilation;
        if (at < 0 || at % stride) return -1;
        at /= stride;
    } else {
        at = o * stride - pad + k * dilation;
    }
    return at >= 0 && at < size ? at : -1;
}

static const void *pixel_at(const conv_job *j, int64_t image, int64_t y, int64_t x, int64_t channel)
{
    const npuc_float_conv *c = &j->h->conv;
    return npuc_float_at(j->x, ((image * j->height + y) * j->width + x) * c->in_channels + channel, c->dtype);
}

/* One row of the window: taps side by side and whole pixels are one run of memory. */
static void gather_run(const conv_job *j, int64_t image, int64_t y, int64_t left, float *row)
{
    const npuc_float_conv *c = &j->h->conv;
    const int64_t inputs = c->in_channels;
    int64_t from = left < 0 ? -left : 0, to = j->width - left < c->kernel_w ? j->width - left : c->kernel_w;
    if (from > c->kernel_w) from = c->kernel_w;
    if (to < from) to = from;
    memset(row, 0, (size_t)(from * inputs) * sizeof *row);
    if (to > from) j->ops->widen(pixel_at(j, image, y, left + from, 0), (to - from) * inputs, row + from * inputs, c->dtype);
    memset(row + to * inputs, 0, (size_t)((c->kernel_w - to) * inputs) * sizeof *row);
}

static void gather(const conv_job *j, int64_t pixel, int64_t group, float *row)
{
    const npuc_float_conv *c = &j->h->conv;
    const int64_t inputs = c->in_channels / c->groups;
    const int64_t ox = pixel % j->out_w, oy = pixel / j->out_w % j->out_h, image = pixel / j->out_w / j->out_h;
    const int runs = !c->transposed && c->dilation_w == 1 && c->groups == 1;
    for (int64_t ky = 0; ky < c->kernel_h; ky++, row += c->kernel_w * inputs) {
        const int64_t iy = source(c, oy, ky, j->height, 1);
        if (iy < 0) {
            memset(row, 0, (size_t)(c->kernel_w * inputs) * sizeof *row);
            continue;
        }
        if (runs) {
            gather_run(j, image, iy, ox * c->stride_w - c->pad_left, row);
            continue;
        }
        for (int64_t kx = 0; kx < c->kernel_w; kx++) {
            const int64_t ix = source(c, ox, kx, j->width, 0);
            if (ix < 0)
                memset(row + kx * inputs, 0, (size_t)inputs * sizeof *row);
            else
                j->ops->widen(pixel_at(j, image, iy, ix, group * inputs), inputs, row + kx * inputs, c->dtype);
        }
    }
}

/* Some gathered rows by some panels, to y with rows `pitch` elements apart. */
static void multiply(const float_ops *ops, int64_t rows, int64_t k, const float *a, const float *b, const float *bias, int64_t first,
                     int64_t last, int64_t channels, int32_t relu, float limit, int32_t dtype, void *y, int64_t pitch)
{
    float c[12 * 2 * PANEL];
    for (int64_t panel = first; panel < last; panel += 2) {
        const int panels = last - panel >= 2 ? 2 : 1;
        for (int64_t row = 0; row < rows; row += ops->rows) {
            const int n = (int)(rows - row < ops->rows ? rows - row : ops->rows);
            ops->tile(n, panels, k, a + row * k, k, b + panel * k * PANEL, bias + panel * PANEL, c);
            for (int r = 0; r < n; r++)
                for (int p = 0; p < panels; p++) {
                    const int64_t at = (panel + p) * PANEL, left = channels - at;
                    ops->finish(c + (r * 2 + p) * PANEL, left < PANEL ? left : PANEL, relu, limit,
                                npuc_float_to(y, (row + r) * pitch + at, dtype), dtype);
                }
        }
    }
}

static void conv_block(void *context, ptrdiff_t index, int worker)
{
    conv_job *j = context;
    const prepared *h = j->h;
    const npuc_float_conv *c = &h->conv;
    (void)worker;
    const int64_t cut = index % j->cuts, block = index / j->cuts % j->blocks, group = index / j->cuts / j->blocks;
    const int64_t begin = block * j->rows, rows = j->pixels - begin < j->rows ? j->pixels - begin : j->rows;
    float *a = npuc_scratch((size_t)(rows * h->k) * sizeof *a);
    if (!a) {
        j->failed = 1;
        return;
    }
    for (int64_t r = 0; r < rows; r++) gather(j, begin + r, group, a + r * h->k);
    const int64_t outputs = c->out_channels / c->groups, first = cut * j->cut;
    const int64_t last = first + j->cut < h->panels ? first + j->cut : h->panels;
    multiply(j->ops, rows, h->k, a, weights(h) + group * h->panels * h->k * PANEL, biases(h) + group * h->panels * PANEL, first, last,
             outputs, c->relu, c->relu_limit, c->dtype, npuc_float_to(j->y, begin * c->out_channels + group * outputs, c->dtype),
             c->out_channels);
}

static void depthwise_block(void *context, ptrdiff_t index, int worker)
{
    conv_job *j = context;
    const prepared *h = j->h;
    const npuc_float_conv *c = &h->conv;
    (void)worker;
    const int64_t begin = index * j->rows, end = begin + j->rows < j->pixels ? begin + j->rows : j->pixels;
    const int64_t taps = (int64_t)c->kernel_h * c->kernel_w, padded = h->panels * PANEL;
    const size_t sums = (size_t)padded * sizeof(float);
    char *scratch = npuc_scratch(sums + (size_t)taps * sizeof(void *));
    if (!scratch) {
        j->failed = 1;
        return;
    }
    float *sum = (float *)scratch;
    const void **x = (const void **)(scratch + sums);
    for (int64_t pixel = begin; pixel < end; pixel++) {
        const int64_t ox = pixel % j->out_w, oy = pixel / j->out_w % j->out_h, image = pixel / j->out_w / j->out_h;
        int64_t t = 0;
        for (int64_t ky = 0; ky < c->kernel_h; ky++) {
            const int64_t iy = source(c, oy, ky, j->height, 1);
            for (int64_t kx = 0; kx < c->kernel_w; kx++, t++) {
                const int64_t ix = iy < 0 ? -1 : source(c, ox, kx, j->width, 0);
                x[t] = ix < 0 ? NULL : pixel_at(j, image, iy, ix, 0);
            }
        }
        j->ops->depthwise(c->groups, padded, (int)taps, x, weights(h), biases(h), sum, c->dtype);
        j->ops->finish(sum, c->groups, c->relu, c->relu_limit, npuc_float_to(j->y, pixel * c->out_channels, c->dtype), c->dtype);
    }
}

npuc_status npuc_float_conv_run(const void *prepared_, const void *x, int64_t batch, int64_t height, int64_t width, void *y,
                                int64_t out_height, int64_t out_width, int32_t threads)
{
    const prepared *h = prepared_;
    const int64_t sizes[] = {batch, height, width, out_height, out_width};
    for (int i = 0; i < 5; i++)
        if (sizes[i] < 0 || sizes[i] > ((int64_t)1 << 31)) return NPUC_BAD_ARGUMENT;
    if (!h) return NPUC_BAD_ARGUMENT;
    conv_job j = {.h = h,
                  .ops = ops_in_use(h->conv.dtype),
                  .x = x,
                  .y = y,
                  .batch = batch,
                  .height = height,
                  .width = width,
                  .out_h = out_height,
                  .out_w = out_width,
                  .pixels = batch * out_height * out_width};
    if (!j.pixels) return NPUC_OK;
    if (!x || !y) return NPUC_BAD_ARGUMENT;
    if (threads < 1) threads = 1;
    if (h->depthwise) {
        j.rows = GATHERED / (h->panels * PANEL) + 1;
        npuc_parallel((j.pixels + j.rows - 1) / j.rows, threads, depthwise_block, &j);
        return j.failed ? NPUC_NO_MEMORY : NPUC_OK;
    }
    j.rows = round_up(GATHERED / h->k + 1, j.ops->rows);
    if (j.rows > MOST_ROWS) j.rows = MOST_ROWS;
    j.blocks = (j.pixels + j.rows - 1) / j.rows;
    /* Few pixels: threads share the channels, too. */
    const int64_t pieces = j.blocks * h->conv.groups, wanted = threads > 1 && pieces < 2 * threads ? 2 * threads / pieces : 1;
    j.cut = round_up((h->panels + wanted - 1) / wanted, 2);
    j.cuts = (h->panels + j.cut - 1) / j.cut;
    npuc_parallel(pieces * j.cuts, threads, conv_block, &j);
    return j.failed ? NPUC_NO_MEMORY : NPUC_OK;
}

typedef struct matmul_job {
    const npuc_float_matmul *m;
    const float_ops *ops;
    const void *a, *b;
    const float *bias;
    void *y;
    int64_t panels, rows, blocks;
    _Atomic int failed;
} matmul_job;

/* One matrix of the batch, a block of its rows. */
static void matmul_block(void *context, ptrdiff_t index, int worker)
{
    matmul_job *j = context;
    const npuc_float_matmul *m = j->m;
    (void)worker;
    const int64_t block = index % j->blocks, pair = index / j->blocks;
    const int64_t begin = block * j->rows, rows = m->m - begin < j->rows ? m->m - begin : j->rows;
    const int64_t padded = j->panels * PANEL;
    float *bias = npuc_scratch((size_t)(padded + padded * m->k + rows * m->k + m->n) * sizeof *bias);
    if (!bias) {
        j->failed = 1;
        return;
    }
    float *b = bias + padded, *a = b + padded * m->k, *line = a + rows * m->k;
    for (int64_t i = 0; i < padded; i++) bias[i] = j->bias && i < m->n ? j->bias[i] : 0.0f;
    const void *right = npuc_float_at(j->b, m->b_offset[pair], m->dtype);
    for (int64_t p = 0; p < j->panels; p++) {
        const int64_t n = m->n - p * PANEL < PANEL ? m->n - p * PANEL : PANEL;
        float *panel = b + p * m->k * PANEL;
        if (n < PANEL) memset(panel, 0, (size_t)(m->k * PANEL) * sizeof *panel);
        for (int64_t o = 0; m->transposed_b && o < n; o++)
            for (int64_t k = 0; k < m->k; k++) panel[k * PANEL + o] = npuc_widen(right, (p * PANEL + o) * m->k + k, m->dtype);
    }
    for (int64_t k = 0; !m->transposed_b && k < m->k; k++) {
        j->ops->widen(npuc_float_at(right, k * m->n, m->dtype), m->n, line, m->dtype);
        for (int64_t o = 0; o < m->n; o++) b[(o / PANEL * m->k + k) * PANEL + o % PANEL] = line[o];
    }
    j->ops->widen(npuc_float_at(j->a, m->a_offset[pair] + begin * m->k, m->dtype), rows * m->k, a, m->dtype);
    multiply(j->ops, rows, m->k, a, b, bias, 0, j->panels, m->n, m->relu, m->relu_limit, m->dtype,
             npuc_float_to(j->y, (pair * m->m + begin) * m->n, m->dtype), m->n);
}

npuc_status npuc_float_matmul_run(const npuc_float_matmul *matmul, const void *a, const void *b, const float *bias, void *y)
{
    const npuc_float_matmul *m = matmul;
    if (!m || !npuc_is_float(m->dtype) || m->m < 0 || m->k < 0 || m->n < 0 || m->batch < 0 || isnan(m->relu_limit))
        return NPUC_BAD_ARGUMENT;
    if (m->m > MAX_SIZE || m->k > MAX_SIZE || m->n > MAX_SIZE) return NPUC_BAD_ARGUMENT;
    if (!m->m || !m->n || !m->batch) return NPUC_OK;
    if ((m->k && (!a || !b)) || !y || !m->a_offset || !m->b_offset) return NPUC_BAD_ARGUMENT;
    matmul_job j = {.m = m, .ops = ops_in_use(m->dtype), .a = a, .b = b, .bias = bias, .y = y};
    j.panels = (m->n + PANEL - 1) / PANEL;
    /* The right matrix is packed anew for each block of rows: few blocks, as long as every thread has one. */
    const int64_t threads = m->threads < 1 ? 1 : m->threads, wanted = m->batch >= threads ? 1 : threads;
    j.rows = round_up((m->m + wanted - 1) / wanted, j.ops->rows);
    j.blocks = (m->m + j.rows - 1) / j.rows;
    npuc_parallel(m->batch * j.blocks, (int)threads, matmul_block, &j);
    return j.failed ? NPUC_NO_MEMORY : NPUC_OK;
}
