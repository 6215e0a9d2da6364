/*
 * LSTM and GRU, one direction of one layer: docs/arithmetic-recurrent.md.
 *
 * Products of 16-bit numbers with weights of magnitude up to 255 are summed in int32 for a while; the sums of a row go on in
 * int64. Larger weights are summed in int64 alone.
 */
#include <stdlib.h>
#include <string.h>

#include "loops.h"

enum { NARROW = 255, RUN = 128 }; /* 2^15 * 255 * 128 < 2^31 */

typedef struct recurrent_job {
    npuc_recurrent p;
    const void *x;
    void *y;
    int16_t *state; /* cell of an LSTM, Q0.15 state of a GRU: [batch, hidden] */
    void *h;
    int16_t *room; /* for each batch entry: inputs + 2 * hidden + gates * hidden */
    int64_t room_size;
    int32_t wide; /* weights above 255 */
} recurrent_job;

NPUC_INLINE void dot_body(const int16_t *restrict a, const int16_t *restrict b, int64_t n, int64_t *restrict out)
{
    int64_t total = 0;
    for (int64_t i = 0; i < n; i += RUN) {
        int64_t end = i + RUN < n ? i + RUN : n;
        int32_t sum = 0;
        for (int64_t k = i; k < end; k++) sum += (int32_t)a[k] * b[k];
        total += sum;
    }
    *out = total;
}
NPUC_TWICE(dot, (const int16_t *restrict a, const int16_t *restrict b, int64_t n, int64_t *restrict out), (a, b, n, out))

NPUC_INLINE void dot_wide_body(const int16_t *restrict a, const int16_t *restrict b, int64_t n, int64_t *restrict out)
{
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++) total += (int32_t)a[i] * b[i];
    *out = total;
}
NPUC_TWICE(dot_wide, (const int16_t *restrict a, const int16_t *restrict b, int64_t n, int64_t *restrict out), (a, b, n, out))

/* The exact sums of row k over the input and over the state. */
static void sums_of_row(const recurrent_job *j, int64_t k, const int16_t *x, const int16_t *h, int64_t *of_x, int64_t *of_h)
{
    const npuc_recurrent *p = &j->p;
    const int16_t *w = p->w + k * p->inputs, *r = p->r + k * p->hidden;
    if (j->wide) {
        dot_wide(x, w, p->inputs, of_x);
        dot_wide(h, r, p->hidden, of_h);
    } else {
        dot(x, w, p->inputs, of_x);
        dot(h, r, p->hidden, of_h);
    }
}

static int32_t lookup(int32_t q, const int16_t *table)
{
    int32_t entry = (q >> 7) + 256, rest = q & 127;
    return table[entry] + (((table[entry + 1] - table[entry]) * rest + 64) >> 7);
}

static int32_t sat16(int64_t x) { return (int32_t)npuc_clamp64(x, -32768, 32767); }

static int32_t element(const void *x, int32_t dtype, int64_t i)
{
    switch (dtype) {
    case NPUC_I8: return ((const int8_t *)x)[i];
    case NPUC_U8: return ((const uint8_t *)x)[i];
    default: return ((const int16_t *)x)[i];
    }
}

static void put(void *y, int32_t dtype, int64_t i, int32_t value)
{
    switch (dtype) {
    case NPUC_I8: ((int8_t *)y)[i] = (int8_t)value; return;
    case NPUC_U8: ((uint8_t *)y)[i] = (uint8_t)value; return;
    default: ((int16_t *)y)[i] = (int16_t)value;
    }
}

/* The argument of gate row k. */
static int32_t gate(const recurrent_job *j, int64_t k, const int16_t *x, const int16_t *h)
{
    const npuc_recurrent *p = &j->p;
    int64_t of_x, of_h;
    sums_of_row(j, k, x, h, &of_x, &of_h);
    return sat16(npuc_half_up(of_x * p->multiplier_x[k] + of_h * p->multiplier_h[k] + p->bias[k], p->shift[k]));
}

static int32_t output(const npuc_recurrent *p, int64_t value)
{
    int64_t y = npuc_half_up(value * p->out_multiplier, p->out_shift);
    return (int32_t)npuc_clamp64(y + p->h_zero_point, p->lo, p->hi);
}

static void lstm_step(const recurrent_job *j, const int16_t *x, const int16_t *h, int16_t *cell, void *h_out, int64_t at)
{
    const npuc_recurrent *p = &j->p;
    const int64_t n = p->hidden;
    for (int64_t k = 0; k < n; k++) {
        int64_t i = lookup(gate(j, k, x, h), p->sigmoid), f = lookup(gate(j, n + k, x, h), p->sigmoid);
        int64_t g = lookup(gate(j, 2 * n + k, x, h), p->tanh), o = lookup(gate(j, 3 * n + k, x, h), p->sigmoid);
        int64_t kept = f * cell[k] * ((int64_t)1 << (15 - p->cell_bits));
        int32_t c = sat16(npuc_half_up(kept + i * g, 30 - p->cell_bits));
        cell[k] = (int16_t)c;
        put(h_out, p->h_dtype, at + k, output(p, o * lookup(c, p->cell_tanh)));
    }
}

static void gru_step(const recurrent_job *j, const int16_t *x, const int16_t *h, int16_t *state, int16_t *reset, int16_t *sums, void *h_out,
                     int64_t at)
{
    const npuc_recurrent *p = &j->p;
    const int64_t n = p->hidden;
    const int64_t limit = (int64_t)1 << 30;
    for (int64_t k = 0; k < n; k++) {
        sums[k] = (int16_t)lookup(gate(j, k, x, h), p->sigmoid);
        sums[n + k] = (int16_t)lookup(gate(j, n + k, x, h), p->sigmoid);
        reset[k] = (int16_t)npuc_half_up((int64_t)sums[n + k] * h[k], 15);
    }
    for (int64_t k = 0; k < n; k++) {
        int64_t row = 2 * n + k, z = sums[k], r = sums[n + k];
        int32_t before;
        if (p->linear_before_reset) {
            int64_t of_x, of_h;
            sums_of_row(j, row, x, h, &of_x, &of_h);
            of_x = npuc_clamp64(npuc_half_up(of_x * p->multiplier_x[row] + p->bias[row], p->shift[row]), -limit, limit);
            of_h = npuc_clamp64(npuc_half_up(of_h * p->multiplier_h[row] + p->bias_h[k], p->shift[row]), -limit, limit);
            before = sat16(npuc_half_up(of_x * 32768 + r * of_h, 23));
        } else {
            before = gate(j, row, x, reset);
        }
        int64_t fresh = lookup(before, p->tanh);
        int32_t s = sat16(npuc_half_up((32768 - z) * fresh + z * state[k], 15));
        state[k] = (int16_t)s;
        put(h_out, p->h_dtype, at + k, output(p, s));
    }
}

static void batch_part(void *context, int64_t begin, int64_t end)
{
    const recurrent_job *j = context;
    const npuc_recurrent *p = &j->p;
    for (int64_t b = begin; b < end; b++) {
        int16_t *x = j->room + b * j->room_size, *h = x + p->inputs, *reset = h + p->hidden, *sums = reset + p->hidden;
        int16_t *state = j->state + b * p->hidden;
        for (int64_t t = 0; t < p->steps; t++) {
            int64_t time = p->reverse ? p->steps - 1 - t : t;
            int64_t from = (time * p->batch + b) * p->inputs, to = (time * p->batch + b) * p->hidden;
            for (int64_t i = 0; i < p->inputs; i++) x[i] = (int16_t)(element(j->x, p->x_dtype, from + i) - p->x_zero_point);
            for (int64_t i = 0; i < p->hidden; i++) h[i] = (int16_t)(element(j->h, p->h_dtype, b * p->hidden + i) - p->h_zero_point);
            if (p->gates == 4)
                lstm_step(j, x, h, state, j->y, to);
            else
                gru_step(j, x, h, state, reset, sums, j->y, to);
            for (int64_t i = 0; i < p->hidden; i++) put(j->h, p->h_dtype, b * p->hidden + i, element(j->y, p->h_dtype, to + i));
        }
    }
}

/* Offsets from the zero point must fit int16: any 8-bit type, or 16 bits with zero point 0. */
static int64_t reach(int32_t dtype, int32_t zero)
{
    int64_t lo, hi;
    if (!npuc_limits(dtype, &lo, &hi) || zero < lo || zero > hi || (dtype == NPUC_I16 && zero != 0)) return -1;
    return zero - lo > hi - zero ? zero - lo : hi - zero;
}

static int64_t magnitudes(const int16_t *row, int64_t n, int32_t *wide)
{
    int64_t sum = 0;
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t size = row[i] < 0 ? -row[i] : row[i];
        sum += size;
        most = size > most ? size : most;
    }
    *wide |= most > NARROW;
    return sum;
}

/* Whether every sum keeps to 62 bits, by the actual weights; `wide` tells whether some weight is above 255. */
static int fits(const npuc_recurrent *p, int64_t reach_x, int64_t reach_h, int32_t *wide)
{
    const int64_t quarter = (int64_t)1 << 60;
    for (int64_t k = 0; k < p->gates * p->hidden; k++) {
        int64_t mx = p->multiplier_x[k], mh = p->multiplier_h[k], bias = p->bias[k];
        if (mx < 0 || mh < 0 || p->shift[k] < 0 || p->shift[k] > 60 || bias > quarter || bias < -quarter) return 0;
        int64_t most_x = reach_x * magnitudes(p->w + k * p->inputs, p->inputs, wide);
        int64_t most_h = reach_h * magnitudes(p->r + k * p->hidden, p->hidden, wide);
        if ((mx > 0 && most_x > quarter / mx) || (mh > 0 && most_h > quarter / mh)) return 0;
    }
    for (int64_t k = 0; p->bias_h && k < p->hidden; k++)
        if (p->bias_h[k] > quarter || p->bias_h[k] < -quarter) return 0;
    return 1;
}

npuc_status npuc_recurrent_run(const npuc_recurrent *recurrent, const void *x, void *h, int16_t *state, void *y, int32_t threads)
{
    const npuc_recurrent *p = recurrent;
    const int64_t limit = (int64_t)1 << 20;
    int64_t lo, hi;
    if (!p || (p->gates != 4 && p->gates != 3) || !npuc_limits(p->h_dtype, &lo, &hi)) return NPUC_BAD_ARGUMENT;
    if (p->steps < 0 || p->batch < 0 || p->inputs < 1 || p->hidden < 1) return NPUC_BAD_ARGUMENT;
    if (p->steps > limit || p->batch > limit || p->inputs > limit || p->hidden > limit) return NPUC_BAD_ARGUMENT;
    int64_t reach_x = reach(p->x_dtype, p->x_zero_point), reach_h = reach(p->h_dtype, p->h_zero_point);
    if (reach_x < 0 || reach_h < 0 || p->lo < lo || p->hi > hi || p->lo > p->hi) return NPUC_BAD_ARGUMENT;
    if (!p->sigmoid || !p->tanh || (p->gates == 4 && (!p->cell_tanh || p->cell_bits < 0 || p->cell_bits > 15))) return NPUC_BAD_ARGUMENT;
    if (p->gates == 3 && p->linear_before_reset && !p->bias_h) return NPUC_BAD_ARGUMENT;
    if (p->out_multiplier < 0 || p->out_shift < 0 || p->out_shift > 61) return NPUC_BAD_ARGUMENT;
    int32_t wide = 0;
    if (!fits(p, reach_x, reach_h, &wide)) return NPUC_BAD_ARGUMENT;
    if (p->steps == 0 || p->batch == 0) return NPUC_OK;
    recurrent_job j = {.p = *p, .x = x, .y = y, .state = state, .h = h, .room_size = p->inputs + 4 * p->hidden, .wide = wide};
    j.room = malloc((size_t)p->batch * (size_t)j.room_size * sizeof *j.room);
    if (!j.room) return NPUC_NO_MEMORY;
    npuc_in_parts(threads, p->batch, 1, batch_part, &j);
    free(j.room);
    return NPUC_OK;
}
