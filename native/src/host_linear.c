/*
 * Host operators that multiply and add: convolutions, matrix products, resampling, recurrent layers.
 *
 * Sums of reals are in double precision; those of integers wrap. Results are made in runs of up to CHUNK neighbours, so that the
 * innermost loop is over memory in its order.
 */
#include "host.h"

#include <math.h>
#include <string.h>

#define CHUNK 64
#define LIMIT (1 << 20) /* of strides, dilations and pads, so that no place overflows */

/* ---- convolutions ---- */

#define SPACE 3
typedef struct geometry {
    int64_t groups, stride[SPACE], dilation[SPACE], pad[SPACE];
    int64_t in[SPACE], kernel[SPACE], out[SPACE]; /* missing axes have length 1 */
    int64_t batches, in_channels, out_channels;
} geometry;

static int all_between(const int64_t *numbers, int64_t count, int64_t low, int64_t high)
{
    for (int64_t k = 0; k < count; k++)
        if (numbers[k] < low || numbers[k] > high) return 0;
    return 1;
}

static int read_geometry(const host_call *call, geometry *g)
{
    if (call->number_count < 2) return 0;
    const int64_t axes = call->numbers[0];
    if (axes < 1 || axes > SPACE || !npuc_host_has(call, 3, 1, 2 + 3 * axes, 4)) return 0;
    const host_value *x = &call->in[0], *w = &call->in[1], *bias = &call->in[2], *y = &call->out[0];
    const int64_t *stride = call->numbers + 2, *dilation = stride + axes, *pad = dilation + axes;
    *g = (geometry){.groups = call->numbers[1]};
    if (x->rank != axes + 2 || w->rank != axes + 2 || y->rank != axes + 2) return 0;
    if (!all_between(stride, 2 * axes, 1, LIMIT) || !all_between(pad, axes, -LIMIT, LIMIT)) return 0;
    for (int64_t a = 0; a < SPACE; a++) {
        const int64_t from = a - (SPACE - axes);
        g->stride[a] = from < 0 ? 1 : stride[from];
        g->dilation[a] = from < 0 ? 1 : dilation[from];
        g->pad[a] = from < 0 ? 0 : pad[from];
        g->in[a] = from < 0 ? 1 : x->shape[2 + from];
        g->kernel[a] = from < 0 ? 1 : w->shape[2 + from];
        g->out[a] = from < 0 ? 1 : y->shape[2 + from];
    }
    g->batches = x->shape[0], g->in_channels = x->shape[1], g->out_channels = y->shape[1];
    if (x->shape[0] != y->shape[0] || x->dtype != w->dtype || x->dtype != y->dtype) return 0;
    if (!npuc_host_is_float(x->dtype) && x->dtype != NPUC_TENSOR_I32) return 0;
    if (g->groups < 1 || g->in_channels % g->groups || g->out_channels % g->groups) return 0;
    return !bias->present || (bias->dtype == x->dtype && bias->count == g->out_channels);
}

/* The part [low, high) of a run of results from `first` on whose place x = (first + i) * stride + shift is on an axis. */
static void limits(int64_t first, int64_t n, int64_t stride, int64_t shift, int64_t length, int64_t *low, int64_t *high)
{
    const int64_t start = first * stride + shift;
    *low = start >= 0 ? 0 : (-start + stride - 1) / stride;
    *high = start >= length ? 0 : (length - 1 - start) / stride + 1;
    if (*low > n) *low = n;
    if (*high > n) *high = n;
}

#define CONVOLUTION(name, T, SUM)                                                                                         \
    static void convolve_##name(const geometry *g, const T *x, const T *w, const T *bias, T *y)                           \
    {                                                                                                                     \
        const int64_t channels = g->in_channels / g->groups, each = g->out_channels / g->groups;                          \
        const int64_t plane = g->in[0] * g->in[1] * g->in[2], taps = g->kernel[0] * g->kernel[1] * g->kernel[2];          \
        for (int64_t b = 0; b < g->batches; b++)                                                                          \
            for (int64_t m = 0; m < g->out_channels; m++) {                                                               \
                const T *image = x + (b * g->in_channels + m / each * channels) * plane;                                  \
                for (int64_t oz = 0; oz < g->out[0]; oz++)                                                                \
                    for (int64_t oy = 0; oy < g->out[1]; oy++)                                                            \
                        for (int64_t ox = 0; ox < g->out[2]; ox += CHUNK) {                                               \
                            const int64_t n = g->out[2] - ox < CHUNK ? g->out[2] - ox : CHUNK;                            \
                            SUM sum[CHUNK];                                                                               \
                            for (int64_t i = 0; i < n; i++) sum[i] = bias ? (SUM)bias[m] : 0;                             \
                            for (int64_t c = 0; c < channels; c++)                                                        \
                                for (int64_t k = 0; k < taps; k++) {                                                      \
                                    const int64_t kx = k % g->kernel[2], ky = k / g->kernel[2] % g->kernel[1];            \
                                    const int64_t kz = k / g->kernel[2] / g->kernel[1];                                   \
                                    const int64_t iz = oz * g->stride[0] - g->pad[0] + kz * g->dilation[0];               \
                                    const int64_t iy = oy * g->stride[1] - g->pad[1] + ky * g->dilation[1];               \
                                    if (iz < 0 || iz >= g->in[0] || iy < 0 || iy >= g->in[1]) continue;                   \
                                    const int64_t shift = kx * g->dilation[2] - g->pad[2], stride = g->stride[2];         \
                                    int64_t low, high;                                                                    \
                                    limits(ox, n, stride, shift, g->in[2], &low, &high);                                  \
                                    const T *line = image + ((c * g->in[0] + iz) * g->in[1] + iy) * g->in[2];             \
                                    const SUM weight = (SUM)w[(m * channels + c) * taps + k];                             \
                                    for (int64_t i = low; i < high; i++) sum[i] += weight * (SUM)line[(ox + i) * stride + shift]; \
                                }                                                                                         \
                            T *to = y + (((b * g->out_channels + m) * g->out[0] + oz) * g->out[1] + oy) * g->out[2] + ox; \
                            for (int64_t i = 0; i < n; i++) to[i] = (T)sum[i];                                            \
                        }                                                                                                 \
            }                                                                                                             \
    }
CONVOLUTION(F32, float, double)
CONVOLUTION(F64, double, double)
CONVOLUTION(I32, int32_t, uint64_t)

#define CALL(function)                                                                                             \
    switch (call->in[0].dtype) {                                                                                   \
    case NPUC_TENSOR_F32: APPLY(function##_F32, float); break;                                                     \
    case NPUC_TENSOR_F64: APPLY(function##_F64, double); break;                                                    \
    case NPUC_TENSOR_I32: APPLY(function##_I32, int32_t); break;                                                   \
    default: break;                                                                                                \
    }
#define APPLY(function, T)                                                                                                    \
    function(&g, (const T *)(const void *)call->in[0].data, (const T *)(const void *)call->in[1].data,                       \
             call->in[2].present ? (const T *)(const void *)call->in[2].data : NULL, (T *)(void *)call->out[0].data)

const char *npuc_host_convolution(const host_call *call)
{
    geometry g;
    NEED(read_geometry(call, &g));
    NEED(call->in[1].shape[0] == g.out_channels && call->in[1].shape[1] == g.in_channels / g.groups);
    CHECKED(call);
    CALL(convolve)
    return NULL;
}

/* A result gathers: input i and tap k meet at i * stride - pad + k * dilation. */
#define DECONVOLUTION(name, T, SUM)                                                                                       \
    static void deconvolve_##name(const geometry *g, const T *x, const T *w, const T *bias, T *y)                         \
    {                                                                                                                     \
        const int64_t channels = g->in_channels / g->groups, each = g->out_channels / g->groups;                          \
        const int64_t plane = g->in[0] * g->in[1] * g->in[2], taps = g->kernel[0] * g->kernel[1] * g->kernel[2];          \
        const int64_t results = g->out[0] * g->out[1] * g->out[2];                                                        \
        for (int64_t at = 0; at < g->batches * g->out_channels * results; at++) {                                         \
            const int64_t m = at / results % g->out_channels, b = at / results / g->out_channels;                         \
            const int64_t o[SPACE] = {at / g->out[2] / g->out[1] % g->out[0], at / g->out[2] % g->out[1], at % g->out[2]}; \
            const T *image = x + (b * g->in_channels + m / each * channels) * plane;                                      \
            SUM sum = bias ? (SUM)bias[m] : 0;                                                                            \
            for (int64_t k = 0; k < taps; k++) {                                                                          \
                const int64_t tap[SPACE] = {k / g->kernel[2] / g->kernel[1], k / g->kernel[2] % g->kernel[1], k % g->kernel[2]}; \
                int64_t from = 0;                                                                                         \
                for (int a = 0; a < SPACE && from >= 0; a++) {                                                            \
                    const int64_t scaled = o[a] + g->pad[a] - tap[a] * g->dilation[a];                                    \
                    const int there = scaled >= 0 && scaled % g->stride[a] == 0 && scaled / g->stride[a] < g->in[a];      \
                    from = there ? from * g->in[a] + scaled / g->stride[a] : -1;                                          \
                }                                                                                                         \
                if (from < 0) continue;                                                                                   \
                for (int64_t c = 0; c < channels; c++)                                                                    \
                    sum += (SUM)image[c * plane + from] * (SUM)w[((m / each * channels + c) * each + m % each) * taps + k]; \
            }                                                                                                             \
            y[at] = (T)sum;                                                                                               \
        }                                                                                                                 \
    }
DECONVOLUTION(F32, float, double)
DECONVOLUTION(F64, double, double)
DECONVOLUTION(I32, int32_t, uint64_t)

const char *npuc_host_deconvolution(const host_call *call)
{
    geometry g;
    NEED(read_geometry(call, &g));
    NEED(call->in[1].shape[0] == g.in_channels && call->in[1].shape[1] == g.out_channels / g.groups);
    CHECKED(call);
    CALL(deconvolve)
    return NULL;
}
#undef APPLY
#undef CALL

/* ---- matrices ---- */

typedef struct matrices {
    int64_t m, n, k, a_row, a_step, b_row, b_step; /* elements from row to row, and from column to column */
    double factor;
} matrices;

#define PRODUCT(name, T, SUM, SCALED)                                                                         \
    static void multiply_##name(const matrices *s, const T *a, const T *b, T *y)                              \
    {                                                                                                         \
        for (int64_t row = 0; row < s->m; row++)                                                              \
            for (int64_t column = 0; column < s->n; column += CHUNK) {                                        \
                const int64_t n = s->n - column < CHUNK ? s->n - column : CHUNK;                              \
                SUM sum[CHUNK] = {0};                                                                         \
                for (int64_t k = 0; k < s->k; k++) {                                                          \
                    const SUM factor = (SUM)a[row * s->a_row + k * s->a_step];                                \
                    const T *line = b + k * s->b_row + column * s->b_step;                                    \
                    for (int64_t i = 0; i < n; i++) sum[i] += factor * (SUM)line[i * s->b_step];              \
                }                                                                                             \
                for (int64_t i = 0; i < n; i++) y[row * s->n + column + i] = (T)(SCALED);                     \
            }                                                                                                 \
    }
PRODUCT(F32, float, double, sum[i] * s->factor)
PRODUCT(F64, double, double, sum[i] * s->factor)
PRODUCT(I32, int32_t, uint64_t, sum[i])
PRODUCT(I64, int64_t, uint64_t, sum[i])

/* The batches of a tensor of matrices, each as one element. */
static host_value batches_of(const host_value *x)
{
    host_value batches = *x;
    batches.rank -= 2;
    batches.count = 1;
    for (int32_t a = 0; a < batches.rank; a++) batches.count *= batches.shape[a];
    return batches;
}

const char *npuc_host_matmul(const host_call *call)
{
    NEED(npuc_host_has(call, 2, 1, 3, 0));
    const host_value *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
    const int a_turned = call->numbers[0] != 0, b_turned = call->numbers[1] != 0;
    NEED(a->rank >= 2 && b->rank >= 2 && y->rank >= 2 && a->dtype == b->dtype && a->dtype == y->dtype);
    NEED(npuc_host_is_float(y->dtype) || y->dtype == NPUC_TENSOR_I32 || y->dtype == NPUC_TENSOR_I64);
    const int64_t *as = a->shape + a->rank - 2, *bs = b->shape + b->rank - 2, *ys = y->shape + y->rank - 2;
    const matrices s = {ys[0], ys[1], as[!a_turned], a_turned ? 1 : as[1], a_turned ? as[1] : 1, b_turned ? 1 : bs[1], b_turned ? bs[1] : 1,
                        npuc_host_real(call->numbers[2])};
    NEED(as[a_turned] == s.m && bs[b_turned] == s.k && bs[!b_turned] == s.n);
    const host_value many_y = batches_of(y), many_a = batches_of(a), many_b = batches_of(b);
    host_walk walk;
    NEED(npuc_host_walk(&walk, &many_y, (const host_value *const[]){&many_a, &many_b}, 2));
    CHECKED(call);
    for (int64_t row = 0; row < walk.rows; row++, npuc_host_next_row(&walk))
        for (int64_t i = 0; i < walk.size[0]; i++) {
            const int64_t at = (walk.at[0] + i) * s.m * s.n, a_at = (walk.at[1] + i * walk.step[1][0]) * s.m * s.k;
            const int64_t b_at = (walk.at[2] + i * walk.step[2][0]) * s.k * s.n;
            switch (y->dtype) {
#define CASE(name, T)                                                                                                                   \
    case NPUC_TENSOR_##name:                                                                                                            \
        multiply_##name(&s, (const T *)(const void *)a->data + a_at, (const T *)(const void *)b->data + b_at, (T *)(void *)y->data + at); \
        break;
                CASE(F32, float)
                CASE(F64, double)
                CASE(I32, int32_t)
                CASE(I64, int64_t)
#undef CASE
            default: break;
            }
        }
    return NULL;
}

/* ---- resampling ---- */

const char *npuc_host_resample(const host_call *call)
{
    NEED(npuc_host_has(call, 3, 1, 1, 0));
    const host_value *x = &call->in[0], *places = &call->in[1], *weights = &call->in[2], *y = &call->out[0];
    host_axis from, to;
    NEED(x->dtype == NPUC_TENSOR_F32 && y->dtype == NPUC_TENSOR_F32 && places->dtype == NPUC_TENSOR_I32 && weights->dtype == NPUC_TENSOR_F32);
    NEED(npuc_host_axis(x, call->numbers[0], &from) && npuc_host_axis(y, call->numbers[0], &to) && x->rank == y->rank);
    NEED(from.outer == to.outer && from.inner == to.inner && places->rank == 2 && npuc_host_same_shape(places, weights) && places->shape[0] == to.length);
    CHECKED(call);
    const int64_t taps = places->shape[1];
    const int32_t *number = (const int32_t *)(const void *)places->data;
    const float *weight = (const float *)(const void *)weights->data;
    for (int64_t o = 0; o < to.outer; o++)
        for (int64_t k = 0; k < to.length; k++)
            for (int64_t i = 0; i < to.inner; i++) {
                double sum = 0;
                for (int64_t t = k * taps; t < (k + 1) * taps; t++) {
                    const int64_t place = number[t]; /* looked at here, since a file may let the result lie over the places */
                    if (place < 0 || place >= from.length) return "an index is outside its axis";
                    sum += (double)weight[t] * (double)((const float *)(const void *)x->data)[(o * from.length + place) * from.inner + i];
                }
                ((float *)(void *)y->data)[(o * to.length + k) * to.inner + i] = (float)sum;
            }
    return NULL;
}

/* ---- recurrent layers ---- */

/* What nodes may have as activations: a kind of unary operator, and its two parameters. */
static float activation(const int64_t *how, float v)
{
    const float a = (float)npuc_host_real(how[1]), b = (float)npuc_host_real(how[2]);
    switch (how[0]) {
    case NPUC_HOST_UNARY_SIGMOID: return 1 / (1 + expf(-v));
    case NPUC_HOST_UNARY_TANH: return tanhf(v);
    case NPUC_HOST_UNARY_RELU: return v > 0 ? v : 0;
    case NPUC_HOST_UNARY_LEAKY_RELU: return v >= 0 ? v : a * v;
    case NPUC_HOST_UNARY_HARD_SIGMOID: return a * v + b < 0 ? 0 : a * v + b > 1 ? 1 : a * v + b;
    case NPUC_HOST_UNARY_ELU: return v >= 0 ? v : a * (expf(v) - 1);
    case NPUC_HOST_UNARY_SOFTSIGN: return v / (1 + fabsf(v));
    default: return v; /* linear */
    }
}

typedef struct cells {
    int64_t kind, gates, steps, batches, inputs, hidden;
    const float *w, *r, *bias, *peepholes; /* of one direction */
    const int64_t *activations;            /* of one direction: three of three numbers */
    int linear_before_reset, input_forget;
    float clip;
} cells;

static float product(const float *row, const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)row[i] * (double)x[i];
    return (float)sum;
}

static float clipped(const cells *s, float v) { return s->clip <= 0 ? v : v > s->clip ? s->clip : v < -s->clip ? -s->clip : v; }

/* Gate g of cell i before its activation, without what the state brings. */
static float from_input(const cells *s, const float *x, int64_t g, int64_t i)
{
    const float bias = s->bias ? s->bias[g * s->hidden + i] : 0;
    return product(s->w + (g * s->hidden + i) * s->inputs, x, s->inputs) + bias;
}

static float from_state(const cells *s, const float *h, int64_t g, int64_t i)
{
    return product(s->r + (g * s->hidden + i) * s->hidden, h, s->hidden);
}

static float state_bias(const cells *s, int64_t g, int64_t i) { return s->bias ? s->bias[(s->gates + g) * s->hidden + i] : 0; }

static float whole_gate(const cells *s, const float *x, const float *h, int64_t g, int64_t i)
{
    return from_input(s, x, g, i) + from_state(s, h, g, i) + state_bias(s, g, i);
}

/* One step of one sample: the new state is in `h` and `c`; `fresh` is scratch of twice the hidden size. */
static void advance(const cells *s, const float *x, float *h, float *c, float *fresh)
{
    const int64_t *f = s->activations, *g = f + 3, *o = g + 3, n = s->hidden;
    for (int64_t i = 0; s->kind == NPUC_HOST_RECURRENT_RNN && i < n; i++) fresh[i] = activation(f, clipped(s, whole_gate(s, x, h, 0, i)));
    for (int64_t i = 0; s->kind == NPUC_HOST_RECURRENT_LSTM && i < n; i++) { /* i, o, f, c */
        const float *p = s->peepholes;
        const float in = activation(f, clipped(s, whole_gate(s, x, h, 0, i) + (p ? p[i] * c[i] : 0)));
        const float forget = s->input_forget ? 1 - in : activation(f, clipped(s, whole_gate(s, x, h, 2, i) + (p ? p[2 * n + i] * c[i] : 0)));
        const float next = forget * c[i] + in * activation(g, clipped(s, whole_gate(s, x, h, 3, i)));
        const float out = activation(f, clipped(s, whole_gate(s, x, h, 1, i) + (p ? p[n + i] * next : 0)));
        fresh[i] = out * activation(o, next);
        c[i] = next;
    }
    if (s->kind == NPUC_HOST_RECURRENT_GRU) { /* z, r, h */
        float *reset = fresh + n;
        for (int64_t i = 0; i < n; i++) {
            reset[i] = activation(f, clipped(s, whole_gate(s, x, h, 1, i)));
            if (!s->linear_before_reset) reset[i] *= h[i];
        }
        for (int64_t i = 0; i < n; i++) {
            const float z = activation(f, clipped(s, whole_gate(s, x, h, 0, i)));
            const float state = s->linear_before_reset ? reset[i] * (from_state(s, h, 2, i) + state_bias(s, 2, i))
                                                       : from_state(s, reset, 2, i) + state_bias(s, 2, i);
            const float next = activation(g, clipped(s, from_input(s, x, 2, i) + state));
            fresh[i] = (1 - z) * next + z * h[i];
        }
    }
    memcpy(h, fresh, (size_t)n * sizeof *h);
}

static int is_reals(const host_value *x, int64_t count) { return !x->present || (x->dtype == NPUC_TENSOR_F32 && x->count == count); }

static const float *part_of(const host_value *x, int64_t at) { return x->present ? (const float *)(const void *)x->data + at : NULL; }

enum { X, W, R, BIAS, LENGTHS, FIRST_H, FIRST_C, PEEPHOLES, SCRATCH, INPUTS };

const char *npuc_host_recurrent(const host_call *call)
{
    NEED(call->number_count >= 8 && call->numbers[1] >= 1 && call->numbers[1] <= 2);
    const int64_t kind = call->numbers[0], directions = call->numbers[1], n = call->numbers[2];
    NEED(npuc_host_has(call, INPUTS, 3, 8 + 9 * directions, 0xF8u | 0xE00u));
    const host_value *x = &call->in[X], *y = &call->out[0], *last_h = &call->out[1], *last_c = &call->out[2];
    const int batch_first = call->numbers[6] != 0;
    NEED(kind >= 0 && kind < NPUC_HOST_RECURRENTS && n >= 1 && n <= LIMIT && x->rank == 3 && x->dtype == NPUC_TENSOR_F32);
    cells s = {.kind = kind, .gates = kind == NPUC_HOST_RECURRENT_LSTM ? 4 : kind == NPUC_HOST_RECURRENT_GRU ? 3 : 1};
    s.steps = x->shape[batch_first], s.batches = x->shape[!batch_first], s.inputs = x->shape[2], s.hidden = n;
    s.linear_before_reset = call->numbers[4] != 0, s.input_forget = call->numbers[5] != 0, s.clip = (float)npuc_host_real(call->numbers[7]);
    const int64_t states = directions * s.batches * n;
    NEED(is_reals(&call->in[W], directions * s.gates * n * s.inputs) && is_reals(&call->in[R], directions * s.gates * n * n));
    NEED(is_reals(&call->in[BIAS], directions * 2 * s.gates * n) && is_reals(&call->in[FIRST_H], states) && is_reals(&call->in[FIRST_C], states));
    const host_value *scratch = &call->in[SCRATCH];
    NEED(is_reals(&call->in[PEEPHOLES], directions * 3 * n) && scratch->writable && scratch->dtype == NPUC_TENSOR_F32 && scratch->capacity >= 4 * n);
    NEED(is_reals(y, y->count) && (!y->present || npuc_host_is_product(y->count, s.steps, states)));
    NEED(is_reals(last_h, states) && is_reals(last_c, states));
    const host_value *lengths = &call->in[LENGTHS];
    NEED(!lengths->present || (lengths->dtype == NPUC_TENSOR_I32 && lengths->count == s.batches));
    CHECKED(call);
    float *h = (float *)(void *)scratch->data, *c = h + n, *fresh = c + n;
    for (int64_t d = 0; d < directions; d++) {
        const int backward = d == 1 || call->numbers[3] != 0;
        s.w = part_of(&call->in[W], d * s.gates * n * s.inputs), s.r = part_of(&call->in[R], d * s.gates * n * n);
        s.bias = part_of(&call->in[BIAS], d * 2 * s.gates * n), s.peepholes = part_of(&call->in[PEEPHOLES], d * 3 * n);
        s.activations = call->numbers + 8 + 9 * d;
        for (int64_t b = 0; b < s.batches; b++) {
            const int64_t length = lengths->present ? npuc_host_integer(lengths, b) : s.steps;
            const int64_t state = (batch_first ? b * directions + d : d * s.batches + b) * n;
            NEED(length >= 0 && length <= s.steps);
            for (int64_t i = 0; i < n; i++) {
                h[i] = call->in[FIRST_H].present ? part_of(&call->in[FIRST_H], state)[i] : 0;
                c[i] = call->in[FIRST_C].present ? part_of(&call->in[FIRST_C], state)[i] : 0;
            }
            for (int64_t k = 0; k < s.steps; k++) {
                const int64_t t = backward && k < length ? length - 1 - k : k;
                float *to = NULL;
                if (y->present) to = (float *)(void *)y->data + (batch_first ? (b * s.steps + t) * directions + d : (t * directions + d) * s.batches + b) * n;
                if (k < length) advance(&s, part_of(x, (batch_first ? b * s.steps + t : t * s.batches + b) * s.inputs), h, c, fresh);
                for (int64_t i = 0; to && i < n; i++) to[i] = k < length ? h[i] : 0;
            }
            if (last_h->present) memcpy((float *)(void *)last_h->data + state, h, (size_t)n * sizeof *h);
            if (last_c->present) memcpy((float *)(void *)last_c->data + state, c, (size_t)n * sizeof *c);
        }
    }
    return NULL;
}
