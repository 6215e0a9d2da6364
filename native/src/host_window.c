/* Host operators on windows and fractional places: pooling, and sampling by a grid. */
#include "host.h"

#include <math.h>

#define SPACE 3
#define LIMIT (1 << 20) /* of sizes, strides, dilations and pads, so that no place overflows */

static double real_at(const host_value *x, int64_t at)
{
    return x->dtype == NPUC_TENSOR_F32   ? (double)((const float *)(const void *)x->data)[at]
           : x->dtype == NPUC_TENSOR_F64 ? ((const double *)(const void *)x->data)[at]
                                         : (double)npuc_host_integer(x, at);
}

static void put(const host_value *y, int64_t at, double value)
{
    switch (y->dtype) {
#define CASE(name, T) case NPUC_TENSOR_##name: ((T *)(void *)y->data)[at] = (T)value; break;
        HOST_FLOATS(CASE)
        CASE(I8, int8_t)
        CASE(UI8, uint8_t)
#undef CASE
    default: break;
    }
}

/* ---- pooling ---- */

typedef struct window {
    int64_t size[SPACE], stride[SPACE], dilation[SPACE], before[SPACE], behind[SPACE], in[SPACE], out[SPACE];
} window;

/* Of a window that begins at `start` of an axis, the taps before `end`. */
static int64_t taps_before(const window *w, int a, int64_t start, int64_t end)
{
    const int64_t taps = end <= start ? 0 : (end - 1 - start) / w->dilation[a] + 1;
    return taps < w->size[a] ? taps : w->size[a];
}

/* One result: what the window has inside the image. Taps outside are not visited: a window may be far larger than its image. */
static double pooled(int64_t kind, const host_value *x, int64_t plane, const window *w, const int64_t *o, double power)
{
    double result = 0;
    int64_t start[SPACE], low[SPACE], high[SPACE], count = 0, with_pads = 1;
    for (int a = 0; a < SPACE; a++) {
        start[a] = o[a] * w->stride[a] - w->before[a];
        low[a] = taps_before(w, a, start[a], 0);
        high[a] = taps_before(w, a, start[a], w->in[a]);
        with_pads *= taps_before(w, a, start[a], w->in[a] + w->behind[a]);
    }
    for (int64_t z = low[0]; z < high[0]; z++)
        for (int64_t row = low[1]; row < high[1]; row++)
            for (int64_t column = low[2]; column < high[2]; column++) {
                const int64_t at[SPACE] = {start[0] + z * w->dilation[0], start[1] + row * w->dilation[1], start[2] + column * w->dilation[2]};
                const double v = real_at(x, plane + (at[0] * w->in[1] + at[1]) * w->in[2] + at[2]);
                if (kind == NPUC_HOST_POOL_MAX) result = !count || v > result || v != v ? v : result;
                else result += kind == NPUC_HOST_POOL_LP ? pow(fabs(v), power) : v;
                count++;
            }
    if (kind == NPUC_HOST_POOL_MEAN) return count ? result / (double)count : 0;
    if (kind == NPUC_HOST_POOL_MEAN_WITH_PADS) return with_pads ? result / (double)with_pads : 0;
    return kind == NPUC_HOST_POOL_LP ? pow(result, 1 / power) : result;
}

const char *npuc_host_pool(const host_call *call)
{
    NEED(call->number_count >= 3 && call->numbers[1] >= 1 && call->numbers[1] <= SPACE);
    const int64_t kind = call->numbers[0], axes = call->numbers[1], power = call->numbers[2];
    NEED(npuc_host_has(call, 1, 1, 3 + 5 * axes, 0));
    const host_value *x = &call->in[0], *y = &call->out[0];
    const int bytes = x->dtype == NPUC_TENSOR_I8 || x->dtype == NPUC_TENSOR_UI8;
    NEED(kind >= 0 && kind < NPUC_HOST_POOLS && power >= 1 && power <= LIMIT && x->rank == axes + 2 && y->rank == axes + 2);
    NEED(x->dtype == y->dtype && (npuc_host_is_float(x->dtype) || (bytes && kind == NPUC_HOST_POOL_MAX)));
    NEED(x->shape[0] == y->shape[0] && x->shape[1] == y->shape[1]);
    window w;
    for (int64_t a = 0; a < SPACE; a++) {
        const int64_t from = a - (SPACE - axes), *numbers = call->numbers + 3 + (from < 0 ? 0 : from);
        const int64_t stated[5] = {numbers[0], numbers[axes], numbers[2 * axes], numbers[3 * axes], numbers[4 * axes]};
        for (int k = 0; k < 5; k++) NEED(stated[k] >= (k < 3) && stated[k] <= LIMIT);
        w.size[a] = from < 0 ? 1 : stated[0], w.stride[a] = from < 0 ? 1 : stated[1], w.dilation[a] = from < 0 ? 1 : stated[2];
        w.before[a] = from < 0 ? 0 : stated[3], w.behind[a] = from < 0 ? 0 : stated[4];
        w.in[a] = from < 0 ? 1 : x->shape[2 + from], w.out[a] = from < 0 ? 1 : y->shape[2 + from];
    }
    CHECKED(call);
    const int64_t planes = x->shape[0] * x->shape[1], size = w.in[0] * w.in[1] * w.in[2], results = w.out[0] * w.out[1] * w.out[2];
    for (int64_t p = 0; p < planes; p++)
        for (int64_t i = 0; i < results; i++) {
            const int64_t o[SPACE] = {i / w.out[2] / w.out[1], i / w.out[2] % w.out[1], i % w.out[2]};
            put(y, p * results + i, pooled(kind, x, p * size, &w, o, (double)power));
        }
    return NULL;
}

/* ---- sampling by a grid ---- */

typedef struct sampling {
    int64_t kind, outside, aligned;
} sampling;

/* Back and forth between two limits. */
static double folded(double v, double low, double high)
{
    const double range = high - low;
    if (range <= 0) return 0;
    double rest = fmod(fabs(v - low), 2 * range);
    if (rest != rest) return low;
    return rest > range ? high - (rest - range) : low + rest;
}

/* Where a fractional place is taken from, before rounding. */
static double brought_inside(double v, int64_t length, const sampling *s)
{
    if (s->outside == NPUC_HOST_OUTSIDE_BORDER) return v < 0 ? 0 : v > (double)(length - 1) ? (double)(length - 1) : v;
    if (s->outside == NPUC_HOST_OUTSIDE_REFLECTION) return s->aligned ? folded(v, 0, (double)(length - 1)) : folded(v, -0.5, (double)length - 0.5);
    return v;
}

static double pixel(const host_value *x, int64_t plane, double row, double column, const sampling *s)
{
    const int64_t height = x->shape[2], width = x->shape[3];
    if (s->outside != NPUC_HOST_OUTSIDE_ZEROS) {
        row = brought_inside(row, height, s), column = brought_inside(column, width, s);
        row = row < 0 ? 0 : row > (double)(height - 1) ? (double)(height - 1) : row;
        column = column < 0 ? 0 : column > (double)(width - 1) ? (double)(width - 1) : column;
    }
    if (!(row >= 0 && row <= (double)(height - 1) && column >= 0 && column <= (double)(width - 1))) return 0;
    return real_at(x, plane + (int64_t)row * width + (int64_t)column);
}

static void cubic_weights(double t, double *weight)
{
    const double a = -0.75, u = 1 - t;
    weight[0] = ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a;
    weight[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
    weight[2] = ((a + 2) * u - (a + 3)) * u * u + 1;
    weight[3] = ((a * (u + 1) - 5 * a) * (u + 1) + 8 * a) * (u + 1) - 4 * a;
}

static double sampled(const host_value *x, int64_t plane, double row, double column, const sampling *s)
{
    if (s->kind == NPUC_HOST_GRID_NEAREST) return pixel(x, plane, nearbyint(row), nearbyint(column), s);
    const double top = floor(row), left = floor(column), down = row - top, right = column - left;
    if (s->kind == NPUC_HOST_GRID_LINEAR)
        return pixel(x, plane, top, left, s) * (1 - down) * (1 - right) + pixel(x, plane, top, left + 1, s) * (1 - down) * right +
               pixel(x, plane, top + 1, left, s) * down * (1 - right) + pixel(x, plane, top + 1, left + 1, s) * down * right;
    double rows[4], columns[4], sum = 0;
    cubic_weights(down, rows);
    cubic_weights(right, columns);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) sum += rows[i] * columns[k] * pixel(x, plane, top + i - 1, left + k - 1, s);
    return sum;
}

/* From [-1, 1] to places on an axis. */
static double unscaled(double v, int64_t length, int64_t aligned)
{
    return aligned ? (v + 1) / 2 * (double)(length - 1) : ((v + 1) * (double)length - 1) / 2;
}

const char *npuc_host_grid_sample(const host_call *call)
{
    NEED(npuc_host_has(call, 2, 1, 3, 0));
    const host_value *x = &call->in[0], *grid = &call->in[1], *y = &call->out[0];
    const sampling s = {call->numbers[0], call->numbers[1], call->numbers[2] != 0};
    NEED(s.kind >= 0 && s.kind < NPUC_HOST_GRIDS && s.outside >= 0 && s.outside < NPUC_HOST_OUTSIDES);
    NEED(x->dtype == NPUC_TENSOR_F32 && grid->dtype == NPUC_TENSOR_F32 && y->dtype == NPUC_TENSOR_F32);
    NEED(x->rank == 4 && grid->rank == 4 && y->rank == 4 && grid->shape[3] == 2 && x->shape[0] == grid->shape[0] && x->shape[0] == y->shape[0]);
    NEED(x->shape[1] == y->shape[1] && grid->shape[1] == y->shape[2] && grid->shape[2] == y->shape[3]);
    CHECKED(call);
    const int64_t results = y->shape[2] * y->shape[3];
    for (int64_t b = 0; b < x->shape[0]; b++)
        for (int64_t i = 0; i < results; i++) {
            const int64_t at = 2 * (b * results + i);
            double column = unscaled(real_at(grid, at), x->shape[3], s.aligned), row = unscaled(real_at(grid, at + 1), x->shape[2], s.aligned);
            row = brought_inside(row, x->shape[2], &s), column = brought_inside(column, x->shape[3], &s);
            for (int64_t c = 0; c < x->shape[1]; c++) {
                const int64_t channel = b * x->shape[1] + c;
                put(y, channel * results + i, sampled(x, channel * x->shape[2] * x->shape[3], row, column, &s));
            }
        }
    return NULL;
}
