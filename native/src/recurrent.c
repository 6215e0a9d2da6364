/*
 * LSTM, GRU and simple recurrent layers, one direction of one layer: docs/arithmetic-recurrent.md.
 *
 * Products of 16-bit numbers with weights of magnitude up to 255 are summed in int32 for a while; the sums of a row go on in
 * int64. Larger weights are summed in int64 alone.
 */
#include <stdlib.h>

#include "loops.h"

enum { NARROW = 255, RUN = 128 }; /* 2^15 * 255 * 128 < 2^31 */

typedef struct recurrent_job {
    npuc_recurrent p;
    const void *x;
    void *y;
    int16_t *state; /* cell of an LSTM, Q0.15 state of a GRU: [batch, hidden] */
    void *h;
    int16_t *room; /* for each batch entry: `room_of` numbers */
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

/* Outputs of a batch entry. */
static int64_t width_of(const npuc_recurrent *p) { return p->projected ? p->projected : p->hidden; }

/* The exact sums of row k over the input and over the state. */
static void sums_of_row(const recurrent_job *j, int64_t k, const int16_t *x, const int16_t *h, int64_t *of_x, int64_t *of_h)
{
    const npuc_recurrent *p = &j->p;
    const int64_t width = width_of(p);
    const int16_t *w = p->w + k * p->inputs, *r = p->r + k * width;
    if (j->wide) {
        dot_wide(x, w, p->inputs, of_x);
        dot_wide(h, r, width, of_h);
    } else {
        dot(x, w, p->inputs, of_x);
        dot(h, r, width, of_h);
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

/* A rounded argument of a gate within its limits. */
static int32_t limited(const npuc_recurrent *p, int64_t x) { return sat16(npuc_clamp64(x, -p->limit, p->limit)); }

/* The argument of gate row k, to which `more` is added before the rounding. */
static int32_t gate(const recurrent_job *j, int64_t k, const int16_t *x, const int16_t *h, int64_t more)
{
    const npuc_recurrent *p = &j->p;
    int64_t of_x, of_h;
    sums_of_row(j, k, x, h, &of_x, &of_h);
    return limited(p, npuc_half_up(of_x * p->multiplier_x[k] + of_h * p->multiplier_h[k] + p->bias[k] + more, p->shift[k]));
}

/* What a cell adds to the argument of a gate through its peephole: 0 the input gate, 1 the forget gate, 2 the output gate. */
static int64_t peek(const npuc_recurrent *p, int64_t which, int64_t k, int64_t cell)
{
    const int64_t at = which * p->hidden + k;
    return p->peephole ? p->peephole[at] * cell * p->multiplier_c[at] : 0;
}

static int32_t output(const npuc_recurrent *p, int64_t value)
{
    int64_t y = npuc_half_up(value * p->out_multiplier, p->out_shift);
    return (int32_t)npuc_clamp64(y + p->h_zero_point, p->lo, p->hi);
}

/* Row k of the projection of what the units give, in Q0.15. */
static int32_t project(const recurrent_job *j, int64_t k, const int16_t *given)
{
    const npuc_recurrent *p = &j->p;
    int64_t sum;
    if (j->wide)
        dot_wide(given, p->projection + k * p->hidden, p->hidden, &sum);
    else
        dot(given, p->projection + k * p->hidden, p->hidden, &sum);
    return (int32_t)npuc_clamp64(npuc_half_up(sum * p->multiplier_p[k], p->shift_p[k]) + p->h_zero_point, p->lo, p->hi);
}

static void lstm_step(const recurrent_job *j, const int16_t *x, const int16_t *h, int16_t *cell, int16_t *given, void *h_out, int64_t at)
{
    const npuc_recurrent *p = &j->p;
    const int64_t n = p->hidden;
    for (int64_t k = 0; k < n; k++) {
        int64_t i = lookup(gate(j, k, x, h, peek(p, 0, k, cell[k])), p->sigmoid);
        int64_t f = p->coupled ? 32768 - i : lookup(gate(j, n + k, x, h, peek(p, 1, k, cell[k])), p->sigmoid);
        int64_t g = lookup(gate(j, 2 * n + k, x, h, 0), p->tanh);
        int64_t kept = f * cell[k] * ((int64_t)1 << (15 - p->cell_bits));
        int32_t c = sat16(npuc_half_up(kept + i * g, 30 - p->cell_bits));
        int64_t o = lookup(gate(j, 3 * n + k, x, h, peek(p, 2, k, c)), p->sigmoid);
        cell[k] = (int16_t)c;
        if (p->projected)
            given[k] = (int16_t)sat16(npuc_half_up(o * lookup(c, p->cell_tanh), 15));
        else
            put(h_out, p->h_dtype, at + k, output(p, o * lookup(c, p->cell_tanh)));
    }
    for (int64_t k = 0; k < p->projected; k++) put(h_out, p->h_dtype, at + k, project(j, k, given));
}

static void simple_step(const recurrent_job *j, const int16_t *x, const int16_t *h, void *h_out, int64_t at)
{
    const npuc_recurrent *p = &j->p;
    for (int64_t k = 0; k < p->hidden; k++) put(h_out, p->h_dtype, at + k, output(p, lookup(gate(j, k, x, h, 0), p->tanh)));
}

static void gru_step(const recurrent_job *j, const int16_t *x, const int16_t *h, int16_t *state, int16_t *reset, int16_t *sums, void *h_out,
                     int64_t at)
{
    const npuc_recurrent *p = &j->p;
    const int64_t n = p->hidden;
    const int64_t limit = (int64_t)1 << 30;
    for (int64_t k = 0; k < n; k++) {
        sums[k] = (int16_t)lookup(gate(j, k, x, h, 0), p->sigmoid);
        sums[n + k] = (int16_t)lookup(gate(j, n + k, x, h, 0), p->sigmoid);
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
            before = limited(p, npuc_half_up(of_x * 32768 + r * of_h, 23));
        } else {
            before = gate(j, row, x, reset, 0);
        }
        int64_t fresh = lookup(before, p->tanh);
        int32_t s = sat16(npuc_half_up((32768 - z) * fresh + z * state[k], 15));
        state[k] = (int16_t)s;
        put(h_out, p->h_dtype, at + k, output(p, s));
    }
}

/* Numbers that a batch entry needs: the input, the outputs, what is to be projected or the reset state, the gates of a GRU. */
static int64_t room_of(const npuc_recurrent *p) { return p->inputs + width_of(p) + 3 * p->hidden; }

static void batch_part(void *context, int64_t begin, int64_t end)
{
    const recurrent_job *j = context;
    const npuc_recurrent *p = &j->p;
    for (int64_t b = begin; b < end; b++) {
        const int64_t width = width_of(p), mine = b * width;
        int16_t *x = j->room + b * room_of(p), *h = x + p->inputs, *reset = h + width, *sums = reset + p->hidden;
        int16_t *state = j->state + b * p->hidden;
        for (int64_t i = 0; p->gates == 3 && i < p->hidden; i++) put(j->h, p->h_dtype, mine + i, output(p, state[i]));
        for (int64_t t = 0; t < p->steps; t++) {
            int64_t time = p->reverse ? p->steps - 1 - t : t;
            int64_t from = (time * p->batch + b) * p->inputs, to = time * p->y_stride + mine;
            for (int64_t i = 0; i < p->inputs; i++) x[i] = (int16_t)(element(j->x, p->x_dtype, from + i) - p->x_zero_point);
            for (int64_t i = 0; i < width; i++) h[i] = (int16_t)(element(j->h, p->h_dtype, mine + i) - p->h_zero_point);
            if (p->gates == 4)
                lstm_step(j, x, h, state, reset, j->y, to);
            else if (p->gates == 3)
                gru_step(j, x, h, state, reset, sums, j->y, to);
            else
                simple_step(j, x, h, j->y, to);
            for (int64_t i = 0; i < width; i++) put(j->h, p->h_dtype, mine + i, element(j->y, p->h_dtype, to + i));
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
        int64_t most_h = reach_h * magnitudes(p->r + k * width_of(p), width_of(p), wide);
        if ((mx > 0 && most_x > quarter / mx) || (mh > 0 && most_h > quarter / mh)) return 0;
    }
    for (int64_t k = 0; p->bias_h && k < p->hidden; k++)
        if (p->bias_h[k] > quarter || p->bias_h[k] < -quarter) return 0;
    for (int64_t k = 0; p->peephole && k < 3 * p->hidden; k++)
        if (p->multiplier_c[k] < 0) return 0; /* 2^15 * 2^15 * 2^31 is no more than 2^61 */
    for (int64_t k = 0; k < p->projected; k++) {
        const int64_t most = 32768 * magnitudes(p->projection + k * p->hidden, p->hidden, wide), m = p->multiplier_p[k];
        if (m < 0 || p->shift_p[k] < 0 || p->shift_p[k] > 60 || (m > 0 && most > quarter / m)) return 0;
    }
    return 1;
}

int64_t npuc_recurrent_room(const npuc_recurrent *p) { return p->batch * room_of(p) * (int64_t)sizeof(int16_t); }

npuc_status npuc_recurrent_check(const npuc_recurrent *p)
{
    const int64_t limit = (int64_t)1 << 20;
    int64_t lo, hi;
    if (!p || (p->gates != 4 && p->gates != 3 && p->gates != 1) || !npuc_limits(p->h_dtype, &lo, &hi)) return NPUC_BAD_ARGUMENT;
    if (p->steps < 0 || p->batch < 0 || p->inputs < 1 || p->hidden < 1) return NPUC_BAD_ARGUMENT;
    if (p->steps > limit || p->batch > limit || p->inputs > limit || p->hidden > limit) return NPUC_BAD_ARGUMENT;
    if (p->projected < 0 || p->projected > limit || (p->projected && p->gates != 4)) return NPUC_BAD_ARGUMENT;
    if (p->y_stride < p->batch * width_of(p)) return NPUC_BAD_ARGUMENT;
    if (reach(p->x_dtype, p->x_zero_point) < 0 || reach(p->h_dtype, p->h_zero_point) < 0) return NPUC_BAD_ARGUMENT;
    if (p->lo < lo || p->hi > hi || p->lo > p->hi || p->limit < 0 || p->limit > 32768) return NPUC_BAD_ARGUMENT;
    if (!p->tanh || (p->gates > 1 && !p->sigmoid)) return NPUC_BAD_ARGUMENT;
    if (p->gates == 4 && (!p->cell_tanh || p->cell_bits < 0 || p->cell_bits > 15)) return NPUC_BAD_ARGUMENT;
    if (p->gates == 3 && p->linear_before_reset && !p->bias_h) return NPUC_BAD_ARGUMENT;
    if (p->peephole && (p->gates != 4 || !p->multiplier_c)) return NPUC_BAD_ARGUMENT;
    if (p->out_multiplier < 0 || p->out_shift < 0 || p->out_shift > 61) return NPUC_BAD_ARGUMENT;
    return NPUC_OK;
}

npuc_status npuc_recurrent_run_in(const npuc_recurrent *recurrent, int16_t *room, const void *x, void *h, int16_t *state, void *y,
                                  int32_t threads)
{
    const npuc_recurrent *p = recurrent;
    int32_t wide = 0;
    npuc_status status = npuc_recurrent_check(p);
    if (status) return status;
    if (!fits(p, reach(p->x_dtype, p->x_zero_point), reach(p->h_dtype, p->h_zero_point), &wide)) return NPUC_BAD_ARGUMENT;
    recurrent_job j = {.p = *p, .x = x, .y = y, .state = state, .h = h, .room = room, .wide = wide};
    npuc_in_parts(threads, p->batch, 1, batch_part, &j);
    return NPUC_OK;
}

#if !defined(NPUC_NO_HEAP)
npuc_status npuc_recurrent_run(const npuc_recurrent *recurrent, const void *x, void *h, int16_t *state, void *y, int32_t threads)
{
    npuc_status status = npuc_recurrent_check(recurrent);
    if (status || recurrent->batch == 0) return status;
    int16_t *room = malloc((size_t)npuc_recurrent_room(recurrent));
    if (!room) return NPUC_NO_MEMORY;
    status = npuc_recurrent_run_in(recurrent, room, x, h, state, y, threads);
    free(room);
    return status;
}
#endif
