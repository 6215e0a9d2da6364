/*
 * Cycle mode: docs/cycles.md.
 *
 * Everything that happens has a key: the cycle in which an instruction of an engine starts, in which the data of a transfer is
 * ready, in which a barrier opens. The least key of all heads of queues happens next. What is not yet known depends on
 * something that has not happened, whose key is at least as large; so nothing is ever decided too early, and transfers are
 * served in the order in which they are ready.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define MOST_BANKS 1024
#define MASK_WORDS (MOST_BANKS / 64)
#define NEVER ((int64_t)1 << 60)
#define FIXED_POINT_FUNCTION 32 /* operations of the vector engine for a sigmoid or tanh: an exponential and a reciprocal */

#define PIECEWISE_FUNCTION 8    /* the same for a function of f32: a look-up, a difference, six multiply-adds */

static int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t plus(int64_t a, int64_t b) { return min_i64(a + b, NEVER); }

static int64_t times(int64_t a, int64_t b)
{
    if (a <= 0 || b <= 0) return 0;
    return a > NPUC_HUGE / b ? NPUC_HUGE : a * b;
}

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b > 0); }

static int64_t product(int count, const int64_t *sizes)
{
    int64_t n = 1;
    for (int i = 0; i < count; i++) n = times(n, sizes[i]);
    return n;
}

/* amount / rate, rounded up. */
static int64_t by_rate(int64_t amount, npuc_rate rate) { return ceil_div(times(amount, rate.denominator), rate.numerator); }

static int rate_valid(npuc_rate r) { return r.numerator > 0 && r.denominator > 0 && r.denominator <= 1 << 20 && r.numerator <= NPUC_HUGE; }

static npuc_status check_machine(const npuc_machine *m, npuc_sim_error *error)
{
    if (!m) return npuc_sim_fail(error, "no machine");
    if (m->cores < 1 || m->input_lanes < 1 || m->output_lanes < 1 || m->pixel_lanes < 1 || m->vector_lanes < 1 || m->table_units < 0 ||
        m->banks < 1 || m->banks > MOST_BANKS || m->local_size < m->banks || m->start < 0 || m->dram_latency < 0 || m->shared_latency < 0 ||
        m->burst < 1 || m->bank_bytes < 1 || !rate_valid(m->dram_bytes) || m->depthwise < NPUC_IDLE_INPUT_LANES ||
        m->depthwise > NPUC_DEPTHWISE_VECTOR || m->patterns < 0 || m->patterns > NPUC_SIM_PATTERNS)
        return npuc_sim_fail(error, "a figure of the machine makes no sense");
    if (m->start > NPUC_HUGE || m->dram_latency > NPUC_HUGE || m->shared_latency > NPUC_HUGE || m->burst > NPUC_HUGE)
        return npuc_sim_fail(error, "a figure of the machine is too large");
    for (int a = 0; a < NPUC_SIM_TYPES; a++)
        for (int w = 0; w < NPUC_SIM_WEIGHT_TYPES; w++)
            if (m->rates[a][w].numerator && !rate_valid(m->rates[a][w])) return npuc_sim_fail(error, "a rate makes no sense");
    return NPUC_OK;
}

/* ---- the cost of an instruction ---- */

static npuc_rate rate_of(const npuc_machine *m, int32_t x, int32_t w)
{
    const npuc_rate whole = {1, 1};
    if (x < 0 || x >= NPUC_SIM_TYPES || w < 0 || w >= NPUC_SIM_WEIGHT_TYPES || !m->rates[x][w].numerator) return whole;
    return m->rates[x][w];
}

static int64_t conv_work(const npuc_machine *m, const npuc_i_conv *r)
{
    const int64_t sizes[] = {r->n, r->transposed ? r->h : r->out_h, r->transposed ? r->w : r->out_w};
    const int64_t pixels = product(3, sizes), taps = (int64_t)r->kernel[0] * r->kernel[1], blocks = ceil_div(pixels, m->pixel_lanes);
    const int64_t inputs = r->c / r->groups, outputs = r->out_c / r->groups;
    int64_t steps;
    if (inputs == 1 && r->groups > 1) {
        if (m->depthwise == NPUC_DEPTHWISE_VECTOR) return ceil_div(times(times(pixels, r->out_c), taps), m->vector_lanes);
        const int64_t factors[] = {ceil_div(r->out_c, m->output_lanes),
                                   m->depthwise == NPUC_DEPTHWISE_FULL ? ceil_div(taps, m->input_lanes) : taps, blocks};
        steps = product(3, factors);
    } else {
        const int64_t factors[] = {r->groups, ceil_div(outputs, m->output_lanes), ceil_div(inputs, m->input_lanes), taps, blocks};
        steps = product(5, factors);
    }
    /* The lanes that zeros leave free take what comes next. */
    if (r->sparse_m) steps = ceil_div(times(steps, r->sparse_n), r->sparse_m);
    return by_rate(steps, rate_of(m, r->x_dtype, r->w_dtype));
}

static int skips(const npuc_machine *m, const npuc_i_conv *r)
{
    for (int32_t i = 0; i < m->patterns; i++)
        if (m->sparse_n[i] == r->sparse_n && m->sparse_m[i] == r->sparse_m) return 1;
    return 0;
}

static int64_t matmul_work(const npuc_machine *m, const npuc_i_matmul *r)
{
    const int64_t factors[] = {r->batch, ceil_div(r->cols, m->output_lanes), ceil_div(r->k, m->input_lanes),
                               ceil_div(r->m, m->pixel_lanes)};
    return by_rate(product(4, factors), rate_of(m, r->x_dtype, r->b_dtype));
}

/* What a unit of a recurrent layer takes of the vector engine in a step: a rounding a gate, and what joins them. */
static int64_t unit_work(const npuc_i_recurrent *r) { return r->gates + (r->gates == 4 ? 5 : r->gates == 3 ? 4 : 1) + 3 * r->peephole; }

/* The products with x of all steps at once; then in each step, one behind the other, those with h, the gates and the state. */
static int64_t recurrent_work(const npuc_machine *m, const npuc_i_recurrent *r)
{
    const int64_t rows = times(r->gates, r->hidden), outputs = ceil_div(rows, m->output_lanes), units = times(r->batch, r->hidden);
    const int64_t given[] = {outputs, ceil_div(r->inputs, m->input_lanes), ceil_div(times(r->steps, r->batch), m->pixel_lanes)};
    const int64_t pixels = ceil_div(r->batch, m->pixel_lanes), width = r->projected ? r->projected : r->hidden;
    const int64_t kept[] = {outputs, ceil_div(width, m->input_lanes), pixels};
    const int64_t projected[] = {ceil_div(r->projected, m->output_lanes), ceil_div(r->hidden, m->input_lanes), pixels};
    const int64_t lookups = times(units, r->gates + (r->gates == 4)), tables = m->table_units ? m->table_units : m->vector_lanes;
    int64_t step = plus(m->start, by_rate(product(3, kept), rate_of(m, r->y_dtype, r->w_dtype)));
    step = plus(step, plus(ceil_div(times(units, unit_work(r)), m->vector_lanes), ceil_div(lookups, tables)));
    if (r->projected) step = plus(step, plus(m->start, by_rate(product(3, projected), rate_of(m, NPUC_I16, r->w_dtype))));
    return plus(by_rate(product(3, given), rate_of(m, r->x_dtype, r->w_dtype)), times(r->steps, step));
}

/* As a recurrent layer; sigmoid and tanh are computed by the vector engine. */
static int64_t quantized_lstm_work(const npuc_machine *m, const npuc_i_quantized_lstm *r)
{
    const int64_t gates = r->coupled ? 3 : 4, rows = ceil_div(times(gates, r->cells), m->output_lanes), units = times(r->batch, r->cells);
    const int64_t given[] = {rows, ceil_div(r->inputs, m->input_lanes), ceil_div(times(r->steps, r->batch), m->pixel_lanes)};
    const int64_t pixels = ceil_div(r->batch, m->pixel_lanes);
    const int64_t kept[] = {rows, ceil_div(r->outputs, m->input_lanes), pixels};
    const int64_t projected[] = {ceil_div(r->outputs, m->output_lanes), ceil_div(r->cells, m->input_lanes), pixels};
    const int64_t functions = (gates + 1) * FIXED_POINT_FUNCTION, peepholes = r->peephole_rows ? gates - 1 : 0;
    const int64_t work = 2 * gates + 5 + peepholes + functions + (r->norm ? 4 * gates : 0);
    const npuc_rate rate = rate_of(m, NPUC_I8, NPUC_I8);
    int64_t step = plus(m->start, by_rate(product(3, kept), rate));
    step = plus(step, ceil_div(times(units, work), m->vector_lanes));
    if (r->projected) step = plus(step, plus(m->start, by_rate(product(3, projected), rate)));
    return plus(by_rate(product(3, given), rate), times(r->steps, step));
}

static int64_t four(const uint32_t *size)
{
    const int64_t sizes[] = {size[0], size[1], size[2], size[3]};
    return product(4, sizes);
}

/* A window is taken row by row and then column by column: what its rows have come to is used again. */
static int64_t window_work(const uint16_t *kernel) { return max_i64((int64_t)kernel[0] + kernel[1] - 1, 1); }

/* Elements that the vector engine works on. */
static int64_t vector_work(const npuc_record *r)
{
    switch (r->head.opcode) {
    case NPUC_OP_COPY: return times(four(r->copy.size), times(r->copy.size[4], r->copy.size[5]));
    case NPUC_OP_FILL: return r->fill.count;
    case NPUC_OP_GATHER: return times(r->gather.outer, times(r->gather.y_size, r->gather.inner));
    case NPUC_OP_ADD: return four(r->add.size);
    case NPUC_OP_MUL: return four(r->mul.size);
    case NPUC_OP_MINMAX: return four(r->minmax.size);
    case NPUC_OP_REQUANT: return r->requant.elements;
    case NPUC_OP_CAST: return r->cast.elements;
    case NPUC_OP_TABLE: return times(r->table.outer, times(r->table.channels, r->table.inner));
    case NPUC_OP_MAX_POOL: {
        const npuc_i_max_pool *p = &r->max_pool;
        const int64_t factors[] = {p->n, p->out_h, p->out_w, p->c, window_work(p->kernel)};
        return product(5, factors);
    }
    case NPUC_OP_AVG_POOL: {
        const npuc_i_avg_pool *p = &r->avg_pool;
        const int64_t factors[] = {p->n, p->out_h, p->out_w, p->c, window_work(p->kernel)};
        return product(5, factors);
    }
    case NPUC_OP_REDUCE: return times(r->reduce.outer, times(r->reduce.reduced, r->reduce.inner));
    case NPUC_OP_TOPK: {
        int64_t levels = 0; /* of the heap of the best */
        for (int64_t k = r->topk.k; k > 0; k >>= 1) levels++;
        const int64_t factors[] = {levels, r->topk.outer, r->topk.reduced, r->topk.inner};
        return product(4, factors);
    }
    case NPUC_OP_SOFTMAX: return times(4, times(r->softmax.rows, r->softmax.width));
    case NPUC_OP_NORM: return times(4, times(r->norm.rows, r->norm.width));
    case NPUC_OP_CUSTOM: return r->custom.work;
    case NPUC_OP_CUSTOM_LOCAL: return r->custom_local.work;
    case NPUC_OP_CUSTOM_GLOBAL: return r->custom_global.work > (uint64_t)NPUC_HUGE ? NPUC_HUGE : (int64_t)r->custom_global.work;
    default: {
        const npuc_i_resize *p = &r->resize;
        const int64_t factors[] = {4, p->n, p->out_h, p->out_w, p->c};
        return product(5, factors);
    }
    }
}

static int is_compressed(const npuc_i_load *r) { return r->head.opcode == NPUC_OP_LOAD && (r->head.flags & NPUC_COMPRESSED); }

/* Cycles of the decoder for a compressed load, otherwise 0. */
static int64_t decoder_cycles(const npuc_machine *m, const npuc_i_load *r)
{
    return is_compressed(r) ? by_rate(r->size[3], m->decoder_bytes) : 0;
}

/* Cycles in which a transfer moves data: runs on the far side, whole bursts of DRAM. */
static int64_t transfer_cycles(const npuc_machine *m, const npuc_i_load *r)
{
    int64_t run = r->size[3], runs = 1;
    int axis = 2;
    for (; axis >= 0 && (r->size[axis] == 1 || r->far_stride[axis] == run); axis--) run = times(run, r->size[axis]);
    for (; axis >= 0; axis--) runs = times(runs, r->size[axis]);
    if (r->segment == NPUC_SHARED_SEGMENT) return by_rate(times(runs, run), m->shared_bytes);
    if (is_compressed(r)) run = r->stored;
    return by_rate(times(runs, times(ceil_div(run, m->burst), m->burst)), m->dram_bytes);
}

/* Cycles in which a kernel that works in global memory has the DRAM channel. */
static int64_t traffic_cycles(const npuc_machine *m, const npuc_i_custom_global *r)
{
    const int64_t bytes = r->traffic > (uint64_t)NPUC_HUGE ? NPUC_HUGE : (int64_t)r->traffic;
    return by_rate(times(ceil_div(bytes, m->burst), m->burst), m->dram_bytes);
}

/* Its cycles from the first byte that it asks for to the last that it has moved. */
static int64_t traffic_end(const npuc_machine *m, const npuc_i_custom_global *r)
{
    return r->traffic ? plus(m->dram_latency, traffic_cycles(m, r)) : 0;
}

static npuc_status cost_of(const npuc_machine *m, const npuc_record *r, int64_t *cycles, npuc_sim_error *error)
{
    switch (r->head.opcode) {
    case NPUC_OP_LOAD:
    case NPUC_OP_STORE: {
        npuc_i_load same;
        memcpy(&same, r, sizeof same);
        if (same.segment == NPUC_SHARED_SEGMENT && !rate_valid(m->shared_bytes))
            return npuc_sim_fail(error, "the machine has no shared memory");
        if (is_compressed(&same) && !rate_valid(m->decoder_bytes)) return npuc_sim_fail(error, "the machine has no weight decoder");
        *cycles = max_i64(transfer_cycles(m, &same), decoder_cycles(m, &same));
        return NPUC_OK;
    }
    case NPUC_OP_BARRIER: *cycles = 0; return NPUC_OK;
    case NPUC_OP_CONV:
        if (r->conv.groups < 1) return npuc_sim_fail(error, "no groups");
        if (r->conv.sparse_m && !skips(m, &r->conv))
            return npuc_sim_fail(error, "the machine skips no %d:%d sparse weights", r->conv.sparse_n, r->conv.sparse_m);
        *cycles = plus(m->start, conv_work(m, &r->conv));
        return NPUC_OK;
    case NPUC_OP_MATMUL: *cycles = plus(m->start, matmul_work(m, &r->matmul)); return NPUC_OK;
    case NPUC_OP_RECURRENT: *cycles = plus(m->start, recurrent_work(m, &r->recurrent)); return NPUC_OK;
    case NPUC_OP_QUANTIZED_LSTM: *cycles = plus(m->start, quantized_lstm_work(m, &r->quantized_lstm)); return NPUC_OK;
    case NPUC_OP_TABLE:
        if (r->table.pieces) {
            *cycles = plus(m->start, ceil_div(times(PIECEWISE_FUNCTION, vector_work(r)), m->vector_lanes));
            return NPUC_OK;
        }
        *cycles = plus(m->start, ceil_div(vector_work(r), m->table_units ? m->table_units : m->vector_lanes));
        return NPUC_OK;
    case NPUC_OP_CUSTOM_GLOBAL:
        *cycles = plus(m->start, max_i64(ceil_div(vector_work(r), m->vector_lanes), traffic_end(m, &r->custom_global)));
        return NPUC_OK;
    default: *cycles = plus(m->start, ceil_div(vector_work(r), m->vector_lanes)); return NPUC_OK;
    }
}

npuc_status npuc_sim_cost(const npuc_machine *machine, const uint8_t *records, int64_t count, int64_t *cycles, npuc_sim_error *error)
{
    npuc_status status = check_machine(machine, error);
    if (!status && (count < 0 || (count && (!records || !cycles)))) status = npuc_sim_fail(error, "%lld records", (long long)count);
    for (int64_t i = 0; i < count && !status; i++) {
        npuc_record record;
        memcpy(&record, records + i * NPUC_RECORD, NPUC_RECORD);
        if (strcmp(npuc_opcode_name(record.head.opcode), "?") == 0)
            status = npuc_sim_fail(error, "%d is no opcode", record.head.opcode);
        else
            status = cost_of(machine, &record, &cycles[i], error);
        npuc_sim_at(error, status, 0, i, record.head.opcode);
    }
    return status;
}

/* ---- the queues ---- */

typedef struct traffic {
    int64_t start, end;
    npuc_rate bytes;
    uint64_t banks[MASK_WORDS];
} traffic;

typedef struct core_state {
    int64_t offset;                          /* of its instructions in the arrays of results */
    int64_t issued[NPUC_QUEUES];             /* the last issue, or -1 */
    int64_t ended[NPUC_QUEUES];              /* the last end */
    int64_t decoded;                         /* when its decoder has made the last of what has come */
    int64_t current[NPUC_QUEUES];            /* matrix and vector: the last instruction that started, or -1 */
    uint64_t banks[NPUC_QUEUES][MASK_WORDS]; /* of that instruction */
    traffic *recent;                         /* transfers that may still overlap with what starts later */
    int64_t recent_count, recent_room;
} core_state;

typedef struct play {
    const npuc_machine *machine;
    npuc_order order;
    core_state *core;
    int64_t dram_free, shared_free;
    int64_t *issue, *start, *end;
    npuc_sim_error *error;
} play;

static int is_transfer(int queue) { return queue == NPUC_QUEUE_LOAD || queue == NPUC_QUEUE_STORE; }

/* When what the head of a queue waits for has happened; NEVER if some of it has not. */
static int64_t allowed(const play *p, int32_t c, const npuc_head *head)
{
    const npuc_core_order *order = &p->order.core[c];
    int64_t when = 0;
    for (int q = 0; q < NPUC_QUEUES; q++) {
        if (!head->wait[q]) continue;
        if (head->wait[q] > order->done[q]) return NEVER;
        when = max_i64(when, p->end[p->core[c].offset + order->place[order->first[q] + head->wait[q] - 1]]);
    }
    return when;
}

static int64_t latency_of(const play *p, const uint8_t *record)
{
    npuc_i_load r;
    memcpy(&r, record, sizeof r);
    return r.segment == NPUC_SHARED_SEGMENT ? p->machine->shared_latency : p->machine->dram_latency;
}

/* When the data of a transfer that is issued now can come: a load, when what comes before it is decoded. */
static int64_t ready(const play *p, int32_t c, int queue, int64_t when, int64_t latency)
{
    return max_i64(plus(when, latency), queue == NPUC_QUEUE_LOAD ? p->core[c].decoded : 0);
}

/* The key of the head of a queue, or NEVER; *when is the cycle in which it is issued. */
static int64_t key_of(const play *p, int32_t c, int queue, int64_t *when)
{
    const npuc_core_order *order = &p->order.core[c];
    const core_state *state = &p->core[c];
    const int64_t at = npuc_order_head(order, queue);
    npuc_head head;
    if (at < 0) return NEVER;
    const uint8_t *record = npuc_order_record(order, at);
    memcpy(&head, record, sizeof head);
    const int64_t open = allowed(p, c, &head);
    if (open == NEVER) return NEVER;
    if (head.opcode == NPUC_OP_BARRIER || !is_transfer(queue)) return *when = max_i64(open, state->ended[queue]);
    *when = max_i64(open, state->issued[queue] + 1);
    return ready(p, c, queue, *when, latency_of(p, record));
}

/* Whether the head of a queue is a load that all cores do together. */
static int is_multicast(const play *p, int32_t c, int queue)
{
    const int64_t at = npuc_order_head(&p->order.core[c], queue);
    npuc_head head;
    if (at < 0 || p->order.cores < 2) return 0;
    memcpy(&head, npuc_order_record(&p->order.core[c], at), sizeof head);
    return head.opcode == NPUC_OP_LOAD && (head.flags & NPUC_MULTICAST);
}

/* The key of such a load: when the last core is ready for it. */
static int64_t multicast_key(const play *p, int queue, int64_t *when)
{
    int64_t latest = 0;
    *when = 0;
    for (int32_t c = 0; c < p->order.cores; c++) {
        int64_t issue = 0;
        if (!is_multicast(p, c, queue)) return NEVER;
        const int64_t key = key_of(p, c, queue, &issue);
        if (key == NEVER) return NEVER;
        latest = max_i64(latest, key);
        *when = max_i64(*when, issue);
    }
    return latest;
}

static int64_t barrier_key(const play *p, int queue, uint32_t number)
{
    int64_t latest = 0;
    for (int32_t c = 0; c < p->order.cores; c++) {
        int64_t when;
        if (npuc_order_barrier(&p->order.core[c], queue) != number) return NEVER;
        latest = max_i64(latest, key_of(p, c, queue, &when));
    }
    return latest;
}

static void open_barrier(play *p, int queue, int64_t when)
{
    for (int32_t c = 0; c < p->order.cores; c++) {
        const int64_t at = p->core[c].offset + npuc_order_head(&p->order.core[c], queue);
        p->issue[at] = p->start[at] = p->end[at] = when;
        p->core[c].issued[queue] = when - 1;
        p->core[c].ended[queue] = when;
        p->order.core[c].done[queue]++;
    }
}

/* ---- bank conflicts ---- */

static void banks_of(const npuc_machine *m, const npuc_decoded *d, uint64_t *banks)
{
    const int64_t size = m->local_size / m->banks;
    memset(banks, 0, MASK_WORDS * sizeof *banks);
    for (int32_t i = 0; i < d->count; i++) {
        if (d->access[i].space != NPUC_LOCAL) continue;
        const int64_t first = min_i64(max_i64(d->access[i].low, 0) / size, m->banks - 1);
        const int64_t last = min_i64(max_i64(d->access[i].high - 1, 0) / size, m->banks - 1);
        for (int64_t bank = first; bank <= last; bank++) banks[bank / 64] |= (uint64_t)1 << bank % 64;
    }
}

/* Cycles that an instruction in [start, end) loses to a transfer in the same bank: the share of the bank that it takes. */
static int64_t lost(const npuc_machine *m, int64_t start, int64_t end, const uint64_t *banks, const traffic *t)
{
    const int64_t overlap = min_i64(end, t->end) - max_i64(start, t->start);
    uint64_t same = 0;
    for (int i = 0; i < MASK_WORDS; i++) same |= banks[i] & t->banks[i];
    if (overlap <= 0 || !same) return 0;
    const int64_t share = times(t->bytes.denominator, m->bank_bytes);
    return min_i64(overlap, ceil_div(times(overlap, t->bytes.numerator), share));
}

static npuc_status start_engine(play *p, int32_t c, int queue, int64_t when, const npuc_decoded *d, int64_t cycles)
{
    core_state *state = &p->core[c];
    const int64_t at = state->offset + npuc_order_head(&p->order.core[c], queue);
    int64_t end = plus(when, cycles), kept = 0;
    if (d->record.head.opcode == NPUC_OP_CUSTOM_GLOBAL && d->record.custom_global.traffic) {
        /* The channel is free for it when transfers before it are through. */
        const int64_t begin = max_i64(plus(when, p->machine->start), p->dram_free);
        end = max_i64(end, plus(begin, traffic_end(p->machine, &d->record.custom_global)));
        p->dram_free = plus(begin, traffic_cycles(p->machine, &d->record.custom_global));
    }
    banks_of(p->machine, d, state->banks[queue]);
    for (int64_t i = 0; i < state->recent_count; i++) {
        if (state->recent[i].end <= when) continue; /* nothing starts earlier from now on */
        end = plus(end, lost(p->machine, when, end, state->banks[queue], &state->recent[i]));
        if (kept != i) state->recent[kept] = state->recent[i];
        kept++;
    }
    state->recent_count = kept;
    p->issue[at] = p->start[at] = when;
    p->end[at] = state->ended[queue] = end;
    state->current[queue] = at;
    return NPUC_OK;
}

/* A transfer goes over its channel; or with another core's, which has gone already, if `with` is given. */
static npuc_status start_transfer(play *p, int32_t c, int queue, int64_t when, const npuc_decoded *d, int64_t cycles, const int64_t *with)
{
    core_state *state = &p->core[c];
    const int64_t at = state->offset + npuc_order_head(&p->order.core[c], queue);
    const int shared = d->record.load.segment == NPUC_SHARED_SEGMENT;
    int64_t *channel = shared ? &p->shared_free : &p->dram_free;
    const int64_t latency = shared ? p->machine->shared_latency : p->machine->dram_latency;
    traffic t = {.bytes = shared ? p->machine->shared_bytes : p->machine->dram_bytes};
    t.start = with ? *with : max_i64(ready(p, c, queue, when, latency), *channel);
    t.end = plus(t.start, cycles);
    if (queue == NPUC_QUEUE_LOAD && is_compressed(&d->record.load)) {
        /* The channel is busy for what is stored, the queue until all is decoded. */
        *channel = max_i64(*channel, plus(t.start, transfer_cycles(p->machine, &d->record.load)));
        state->decoded = t.end;
        t.bytes = (npuc_rate){d->record.load.size[3], max_i64(cycles, 1)};
    } else {
        *channel = max_i64(*channel, t.end);
    }
    banks_of(p->machine, d, t.banks);
    p->issue[at] = state->issued[queue] = when;
    p->start[at] = t.start;
    p->end[at] = state->ended[queue] = max_i64(t.end, state->ended[queue]);
    for (int engine = NPUC_QUEUE_MATRIX; engine <= NPUC_QUEUE_VECTOR; engine++) {
        const int64_t running = state->current[engine];
        if (running < 0) continue;
        const int64_t more = lost(p->machine, p->start[running], p->end[running], state->banks[engine], &t);
        p->end[running] = plus(p->end[running], more);
        state->ended[engine] = max_i64(state->ended[engine], p->end[running]);
    }
    if (state->recent_count == state->recent_room) {
        const int64_t room = state->recent_room ? 2 * state->recent_room : 16;
        traffic *larger = realloc(state->recent, (size_t)room * sizeof *larger);
        if (!larger) return npuc_sim_fail(p->error, "memory is short"), NPUC_NO_MEMORY;
        state->recent = larger;
        state->recent_room = room;
    }
    state->recent[state->recent_count++] = t;
    return NPUC_OK;
}

/* The head of a queue happens. */
static npuc_status happen(play *p, int32_t c, int queue, int64_t when, const int64_t *with)
{
    npuc_core_order *order = &p->order.core[c];
    const int64_t at = npuc_order_head(order, queue);
    const uint8_t *record = npuc_order_record(order, at);
    npuc_decoded d;
    int64_t cycles = 0;
    npuc_status status = npuc_decode(record, &d, p->error);
    if (!status) status = cost_of(p->machine, &d.record, &cycles, p->error);
    if (!status)
        status = is_transfer(queue) ? start_transfer(p, c, queue, when, &d, cycles, with) : start_engine(p, c, queue, when, &d, cycles);
    order->done[queue]++;
    return npuc_sim_at(p->error, status, c, at, record[0]);
}

/* Finds the least key; returns 0 when there is none. */
static int next(const play *p, int32_t *core, int *queue, int64_t *when, int *barrier)
{
    int64_t least = NEVER;
    for (int32_t c = 0; c < p->order.cores; c++)
        for (int q = 0; q < NPUC_QUEUES; q++) {
            const uint32_t number = npuc_order_barrier(&p->order.core[c], q);
            int64_t issue = 0, key;
            if (number) {
                if (c > 0) continue; /* core 0 speaks for all */
                key = issue = barrier_key(p, q, number);
            } else if (is_multicast(p, c, q)) {
                if (c > 0) continue;
                key = multicast_key(p, q, &issue);
            } else {
                const int64_t at = npuc_order_head(&p->order.core[c], q);
                if (at >= 0 && npuc_order_record(&p->order.core[c], at)[0] == NPUC_OP_BARRIER) continue;
                key = key_of(p, c, q, &issue);
            }
            if (key < least) least = key, *core = c, *queue = q, *when = issue, *barrier = number != 0;
        }
    return least < NEVER;
}

static npuc_status run(play *p)
{
    npuc_status status = NPUC_OK;
    int32_t core = 0;
    int queue = 0, barrier = 0;
    int64_t when = 0;
    while (!status && next(p, &core, &queue, &when, &barrier)) {
        if (barrier) {
            open_barrier(p, queue, when);
        } else if (is_multicast(p, core, queue)) {
            int64_t together = 0;
            for (int32_t c = 0; c < p->order.cores && !status; c++) {
                const int64_t at = p->core[c].offset + npuc_order_head(&p->order.core[c], queue);
                status = happen(p, c, queue, when, c ? &together : NULL);
                together = c ? together : p->start[at];
            }
        } else {
            status = happen(p, core, queue, when, NULL);
        }
    }
    for (int32_t c = 0; c < p->order.cores && !status; c++)
        for (int q = 0; q < NPUC_QUEUES && !status; q++) {
            const int64_t at = npuc_order_head(&p->order.core[c], q);
            if (at < 0) continue;
            status = npuc_sim_fail(p->error, "waits for ever");
            npuc_sim_at(p->error, status, c, at, npuc_order_record(&p->order.core[c], at)[0]);
        }
    return status;
}

npuc_status npuc_sim_cycles(const npuc_machine *machine, const npuc_sim_program *program, int64_t *issue, int64_t *start, int64_t *end,
                            int64_t *total, npuc_sim_error *error)
{
    npuc_status status = check_machine(machine, error);
    if (!status && (!issue || !start || !end || !total)) status = npuc_sim_fail(error, "nowhere to put the results");
    play p = {.machine = machine, .issue = issue, .start = start, .end = end, .error = error};
    if (!status) status = npuc_order_make(&p.order, program, NULL, error);
    if (status) return status;
    p.core = calloc((size_t)p.order.cores, sizeof *p.core);
    if (!p.core) {
        npuc_order_free(&p.order);
        return npuc_sim_fail(error, "memory is short"), NPUC_NO_MEMORY;
    }
    int64_t count = 0;
    for (int32_t c = 0; c < p.order.cores; c++) {
        p.core[c].offset = count;
        count += p.order.core[c].count;
        for (int q = 0; q < NPUC_QUEUES; q++) p.core[c].issued[q] = p.core[c].current[q] = -1;
    }
    status = run(&p);
    *total = 0;
    for (int64_t i = 0; i < count && !status; i++) *total = max_i64(*total, end[i]);
    for (int32_t c = 0; c < p.order.cores; c++) free(p.core[c].recent);
    free(p.core);
    npuc_order_free(&p.order);
    return status;
}
