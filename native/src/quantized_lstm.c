/*
 * TFLite's integer LSTM, bit for bit: docs/arithmetic-recurrent.md ("8x8 to 16").
 *
 * Sigmoid and tanh are gemmlowp's fixed-point algorithms on 16-bit registers: an exponential by a Taylor series around -1/8 and a
 * product of known powers of e, then a reciprocal by Newton's method. A number with k integer bits has 15 - k bits behind the point.
 */
#include <stdlib.h>

#include "loops.h"

enum { ONE = 32767, ONE_2 = 1 << 13 }; /* 1 without integer bits, and with two of them */

static int32_t sat16(int64_t x) { return (int32_t)npuc_clamp64(x, -32768, 32767); }

static int32_t wrap16(int32_t x) { return (int16_t)(uint16_t)(uint32_t)x; }

static int64_t wrap32(int64_t x) { return (int32_t)(uint32_t)(uint64_t)x; }

static int64_t shift_left(int64_t x, int64_t bits) { return (int64_t)((uint64_t)x << bits); }

/* x / 2^shift, ties away from zero. */
static int64_t half_away(int64_t x, int64_t shift) { return shift ? (x + ((int64_t)1 << (shift - 1)) - (x < 0)) >> shift : x; }

/* A constant of 31 bits in 15. */
static int32_t constant(int64_t value) { return (int32_t)half_away(value, 16); }

/* The high half of the doubled product of 16-bit numbers; -1 * -1 is the largest one. */
static int32_t high16(int32_t a, int32_t b)
{
    const int64_t y = ((int64_t)a * b + (1 << 14)) >> 15;
    return y < 32767 ? (int32_t)y : 32767;
}

/* exp of -1/4 to 0: e^(-1/8) * (1 + x + x^2 / 2 + x^3 / 6 + x^4 / 24), x = a + 1/8. */
static int32_t exp_near(int32_t a)
{
    const int32_t term = constant(1895147668), x = wrap16(a + (1 << 12)), square = high16(x, x);
    const int32_t cube = high16(square, x), fourth = high16(square, square);
    const int32_t third = high16(wrap16((int32_t)half_away(fourth, 2) + cube), constant(715827883));
    return sat16(term + high16(term, wrap16(x + (int32_t)half_away(wrap16(third + square), 1))));
}

/* exp of a number up to 0. */
static int32_t exp_of(int32_t a, int32_t integer_bits)
{
    static const int32_t powers[] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242}; /* exp(-2^n), n from -2 */
    const int32_t fraction = 15 - integer_bits, quarter = 1 << (fraction - 2);
    const int32_t near = (a & (quarter - 1)) - quarter, rest = wrap16(near - a);
    if (a == 0) return ONE;
    if (integer_bits > 5 && a < -(1 << (fraction + 5))) return 0;
    int32_t y = exp_near(sat16(shift_left(near, integer_bits)));
    for (int32_t i = 0; i < 7 && integer_bits > i - 2; i++)
        if (rest & (1 << (fraction + i - 2))) y = high16(y, constant(powers[i]));
    return y;
}

/* 2 / (1 + a) for a of 0 to 1, with two integer bits. */
static int32_t reciprocal(int32_t a)
{
    const int32_t half = (a + ONE + 1) >> 1;
    int32_t x = wrap16(constant(1515870810) + high16(half, constant(-1010580540)));
    for (int i = 0; i < 3; i++) {
        const int32_t error = wrap16(ONE_2 - high16(half, x));
        x = wrap16(x + sat16(shift_left(high16(x, error), 2)));
    }
    return x;
}

static int32_t sigmoid(int32_t a)
{
    if (a == 0) return 1 << 14;
    const int32_t positive = sat16(shift_left(reciprocal(exp_of(a < 0 ? a : -a, 3)), 1));
    return a > 0 ? positive : wrap16(ONE - positive);
}

/* 1 - 2t / (1 + t) with t = exp(-2 |a|); twice a number has one integer bit more. */
static int32_t tanh_of(int32_t a, int32_t integer_bits)
{
    if (a == 0) return 0;
    const int32_t positive = sat16(shift_left(wrap16(reciprocal(exp_of(a < 0 ? a : -a, integer_bits + 1)) - ONE_2), 2));
    return a < 0 ? wrap16(-positive) : positive;
}

/* a * b / 2^31, ties up. */
static int64_t high32(int64_t a, int64_t b) { return (a * b + ((int64_t)1 << 30)) >> 31; }

/* x of 32 bits times multiplier * 2^-shift: kind double_rounding. */
static int64_t scaled(int64_t x, const int32_t *by, int32_t more)
{
    const int32_t shift = by[1] - more;
    x = wrap32(shift < 31 ? shift_left(x, 31 - shift) : x);
    return half_away(high32(x, by[0]), shift > 31 ? shift - 31 : 0);
}

static int64_t dot8(const int8_t *a, const int8_t *b, int64_t n)
{
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++) total += (int32_t)a[i] * b[i];
    return total;
}

/* 1 / sqrt(x) for x >= 1 as a multiplier of 31 bits and a shift to the right, by five steps of Newton's method. */
static int64_t inverse_root(int64_t x, int32_t *shift)
{
    const int64_t large = x >= (int64_t)1 << 29;
    if (x < 2) {
        *shift = 0;
        return ((int64_t)1 << 31) - 1;
    }
    int64_t v = x / (large ? 4 : 1), pairs = 0;
    for (int64_t k = 1; k < 14; k++) pairs += v < (int64_t)1 << (29 - 2 * k);
    int64_t right = large + 11 - pairs;
    v = (v << (2 * pairs)) >> 1;
    const int64_t half = (v + 1) >> 1;
    int64_t y = (int64_t)1 << 28;
    for (int i = 0; i < 5; i++) {
        const int64_t cube = shift_left(high32(high32(y, y), y), 6);
        y = shift_left(high32(y, (int64_t)3 << 27) - high32(half, cube), 3);
    }
    y = high32(y, 1518500250);
    if (right < 0) y = shift_left(y, -right), right = 0;
    *shift = (int32_t)right;
    return y;
}

typedef struct lstm_job {
    const npuc_quantized_lstm *p;
    const int8_t *x;
    int8_t *y;
    int16_t *room; /* for each batch entry: `room_of` numbers */
} lstm_job;

/* The layer norm of a gate, in place. */
static void normalize(const npuc_quantized_lstm *p, int64_t gate, int16_t *pre)
{
    const int64_t n = p->cells;
    const int16_t *weight = p->norm_weight + gate * n;
    const int32_t *bias = p->norm_bias + gate * n, *by = p->norm_scales + 3 * gate;
    int64_t sum = 0, squares = 0;
    for (int64_t k = 0; k < n; k++) sum += pre[k], squares += (int32_t)pre[k] * pre[k];
    const int64_t mean = sum * 1024 / n;
    int64_t variance = (squares * ((1 << 20) / n) - mean * mean) / (1 << 20);
    if (variance < 1) variance = by[2];
    int32_t shift;
    const int64_t root = inverse_root(variance, &shift);
    for (int64_t k = 0; k < n; k++) {
        const int64_t v = half_away(high32((int64_t)pre[k] * 1024 - mean, root), shift);
        const int64_t u = wrap32(v * weight[k] + bias[k]);
        pre[k] = (int16_t)sat16(scaled((u + (u > 0 ? 512 : -512)) / 1024, by, 12));
    }
}

/* The arguments of a gate; `cell` is what its peepholes read, the set `peek` of them. */
static void gate_arguments(const npuc_quantized_lstm *p, int64_t gate, const int8_t *x, const int8_t *h, const int16_t *cell, int64_t peek,
                           int64_t sample, int16_t *pre)
{
    const int64_t n = p->cells;
    for (int64_t k = 0; k < n; k++) {
        const int64_t row = gate * n + k;
        int64_t y = sat16(scaled(dot8(x, p->w + row * p->inputs, p->inputs) + p->bias_x[row], p->scales_x + 2 * gate, 0));
        y = sat16(y + scaled(dot8(h, p->r + row * p->outputs, p->outputs) + p->bias_h[row], p->scales_h + 2 * gate, 0));
        if (p->peephole && peek >= 0) {
            const int64_t at = (peek * p->peephole_rows + (p->peephole_rows > 1 ? sample : 0)) * n + k;
            y = sat16(y + scaled((int64_t)p->peephole[at] * cell[k], p->scales_c + 2 * peek, 0));
        }
        pre[k] = (int16_t)y;
    }
    if (p->norm_weight) normalize(p, gate, pre);
}

static void lstm_step(const npuc_quantized_lstm *p, const int8_t *x, int8_t *h, int16_t *cell, int16_t *room, int64_t sample)
{
    const int64_t n = p->cells, last = p->coupled ? 2 : 3;
    int16_t *in = room, *forget = in + n, *fresh = forget + n, *out = fresh + n;
    const int32_t high = p->cell_clip ? p->cell_clip : 32767, low = p->cell_clip ? -p->cell_clip : -32768;
    if (!p->coupled) gate_arguments(p, 0, x, h, cell, 0, sample, in);
    gate_arguments(p, last - 2, x, h, cell, last - 2, sample, forget);
    gate_arguments(p, last - 1, x, h, cell, -1, sample, fresh);
    for (int64_t k = 0; k < n; k++) {
        const int64_t f = sigmoid(forget[k]), i = p->coupled ? 32767 - f : sigmoid(in[k]);
        const int64_t kept = half_away(f * cell[k], 15), added = half_away(i * tanh_of(fresh[k], 3), 15 + p->integer_bits);
        cell[k] = (int16_t)npuc_clamp64(kept + added, low, high);
    }
    gate_arguments(p, last, x, h, cell, last - 1, sample, out);
    int8_t *hidden = p->projection ? (int8_t *)(void *)in : h;
    for (int64_t k = 0; k < n; k++) {
        const int64_t y = (int64_t)sigmoid(out[k]) * tanh_of(cell[k], p->integer_bits);
        hidden[k] = (int8_t)npuc_clamp64(scaled(y, p->hidden, 0) + p->hidden[2], -128, 127);
    }
    for (int64_t k = 0; p->projection && k < p->outputs; k++) {
        const int64_t sum = dot8(hidden, p->projection + k * n, n) + p->projection_bias[k];
        const int64_t y = npuc_clamp64(scaled(sum, p->projected, 0) + p->projected[2], -128, 127), clip = p->projected[3];
        h[k] = (int8_t)(clip ? npuc_clamp64(y, -clip, clip) : y);
    }
}

/* Numbers that a batch entry needs: the cells, four gates, the state. */
static int64_t room_of(const npuc_quantized_lstm *p) { return 5 * p->cells + (p->outputs + 1) / 2; }

static void batch_part(void *context, int64_t begin, int64_t end)
{
    const lstm_job *j = context;
    const npuc_quantized_lstm *p = j->p;
    for (int64_t b = begin; b < end; b++) {
        int16_t *cell = j->room + b * room_of(p), *room = cell + p->cells;
        int8_t *h = (int8_t *)(void *)(room + 4 * p->cells);
        for (int64_t k = 0; k < p->cells; k++) cell[k] = 0;
        for (int64_t k = 0; k < p->outputs; k++) h[k] = (int8_t)p->first_h;
        for (int64_t t = 0; t < p->steps; t++) {
            int8_t *y = j->y + t * p->y_step + b * p->y_sample;
            lstm_step(p, j->x + t * p->x_step + b * p->x_sample, h, cell, room, b);
            for (int64_t k = 0; k < p->outputs; k++) y[k] = h[k];
        }
    }
}

static int is_scale(const int32_t *by) { return by[0] >= 0 && by[1] >= 0 && by[1] <= 62; }

int64_t npuc_quantized_lstm_room(const npuc_quantized_lstm *p) { return p->batch * room_of(p) * (int64_t)sizeof(int16_t); }

npuc_status npuc_quantized_lstm_check(const npuc_quantized_lstm *p)
{
    const int64_t limit = (int64_t)1 << 20;
    if (!p || p->steps < 0 || p->batch < 0 || p->inputs < 1 || p->cells < 1 || p->outputs < 1) return NPUC_BAD_ARGUMENT;
    if (p->steps > limit || p->batch > limit || p->inputs > limit || p->cells > limit || p->outputs > limit) return NPUC_BAD_ARGUMENT;
    if (!p->projection && p->outputs != p->cells) return NPUC_BAD_ARGUMENT;
    if (p->x_step < 0 || p->x_sample < 0 || p->y_step < 0 || p->y_sample < 0) return NPUC_BAD_ARGUMENT;
    if (p->integer_bits < 0 || p->integer_bits > 6 || p->cell_clip < 0 || p->cell_clip > 32767) return NPUC_BAD_ARGUMENT;
    if (p->first_h < -128 || p->first_h > 127 || !is_scale(p->hidden)) return NPUC_BAD_ARGUMENT;
    if (p->peephole && p->peephole_rows != 1 && p->peephole_rows != p->batch) return NPUC_BAD_ARGUMENT;
    const int64_t gates = p->coupled ? 3 : 4;
    for (int64_t g = 0; g < gates; g++) {
        if (!is_scale(p->scales_x + 2 * g) || !is_scale(p->scales_h + 2 * g)) return NPUC_BAD_ARGUMENT;
        if (p->peephole && g < gates - 1 && !is_scale(p->scales_c + 2 * g)) return NPUC_BAD_ARGUMENT;
        if (!p->norm_weight) continue;
        const int32_t *by = p->norm_scales + 3 * g;
        if (!is_scale(by) || by[2] < 1 || by[2] >= 1 << 29) return NPUC_BAD_ARGUMENT;
    }
    if (p->projection && (!is_scale(p->projected) || p->projected[3] < 0 || p->projected[3] > 127)) return NPUC_BAD_ARGUMENT;
    return NPUC_OK;
}

npuc_status npuc_quantized_lstm_run_in(const npuc_quantized_lstm *lstm, int16_t *room, const int8_t *x, int8_t *y, int32_t threads)
{
    const npuc_status status = npuc_quantized_lstm_check(lstm);
    if (status) return status;
    lstm_job j = {.p = lstm, .x = x, .y = y, .room = room};
    npuc_in_parts(threads, lstm->batch, 1, batch_part, &j);
    return NPUC_OK;
}

#if !defined(NPUC_NO_HEAP)
npuc_status npuc_quantized_lstm_run(const npuc_quantized_lstm *lstm, const int8_t *x, int8_t *y, int32_t threads)
{
    npuc_status status = npuc_quantized_lstm_check(lstm);
    if (status || lstm->batch == 0) return status;
    int16_t *room = malloc((size_t)npuc_quantized_lstm_room(lstm));
    if (!room) return NPUC_NO_MEMORY;
    status = npuc_quantized_lstm_run_in(lstm, room, x, y, threads);
    free(room);
    return status;
}
#endif
