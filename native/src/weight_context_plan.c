/*
 * The encoder of sections that look at neighbours: docs/weight-compression.md. A runtime has no part of it.
 *
 * It tries each feature on a sample, puts the feature's values into bins of about the same weight, and joins bins for as long as the
 * table that is saved is larger than what the codes grow by. All decisions are made with whole numbers, so that every machine
 * makes the same stream.
 */
#include <stdlib.h>
#include <string.h>

#include "weight_bits.h"
#include "weight_context_form.h"
#include "weight_contexts.h"

enum { SAMPLE_CHUNKS = 8, CHUNK = 4096, BINS = MOST_INTERVALS, LOG_BITS = 16, LOG_STEPS = 11 };

typedef struct candidate {
    int32_t bits, feature, parameter;
} candidate;

/* Words have a byte each of two or four positions; kernels of 3 x 3 and 5 x 5 are the common ones. */
static const candidate CANDIDATES[] = {
    {8, NOTHING, 0},   {4, NOTHING, 0},  {4, POSITION, 2}, {8, EARLIER, 1},  {8, EARLIER, 3},   {8, EARLIER, 9}, {8, MAGNITUDE, 0},
    {8, POSITION, 2},  {8, POSITION, 4}, {8, POSITION, 9}, {8, POSITION, 25}, {4, EARLIER, 1}, {4, EARLIER, 3},
    {4, EARLIER, 9},   {4, MAGNITUDE, 0}, {4, POSITION, 9}, {4, POSITION, 25},
};

/* By squaring: each square gives a binary digit. */
void npuc_make_logarithms(npuc_logarithms *logs)
{
    for (uint32_t i = 0; i < 1 << LOG_STEPS; i++) {
        uint64_t x = (uint64_t)((1 << LOG_STEPS) + i) << (31 - LOG_STEPS);
        uint32_t digits = 0;
        for (int32_t d = 0; d < LOG_BITS; d++) {
            x = x * x >> 31;
            digits = digits << 1 | (uint32_t)(x >> 32);
            x >>= x >> 32;
        }
        logs->log2[i] = digits;
    }
    logs->log2[1 << LOG_STEPS] = 1 << LOG_BITS;
}

/* log2 of a number, 1 at least, in units of 2^-16. */
static uint32_t log2_of(const npuc_logarithms *logs, uint32_t number)
{
    const int32_t high = 31 - __builtin_clz(number);
    const uint64_t rest = ((uint64_t)number << (31 - high)) & 0x7fffffff;
    return ((uint32_t)high << LOG_BITS) + logs->log2[(rest + (1 << (30 - LOG_STEPS))) >> (31 - LOG_STEPS)];
}

/* Symbols of a bin, or of several. */
typedef struct group {
    uint32_t count[256], total;
    int64_t entropy; /* bits of all symbols, in units of 2^-16 */
    int32_t active;
} group;

static void weigh(const npuc_logarithms *logs, group *g, int32_t symbols)
{
    g->entropy = 0;
    g->active = 0;
    g->total = 0;
    for (int32_t s = 0; s < symbols; s++) {
        if (!g->count[s]) continue;
        g->entropy -= (int64_t)g->count[s] * log2_of(logs, g->count[s]);
        g->active++;
        g->total += g->count[s];
    }
    if (g->total) g->entropy += (int64_t)g->total * log2_of(logs, g->total);
}

static int64_t table_bits(const group *g) { return ((int64_t)g->active * 5 / 2 + 20) << LOG_BITS; }

/* A feature of `count` symbols from `begin` on. */
static void features_of(candidate c, const uint8_t *data, int64_t begin, int32_t count, uint8_t *index)
{
    if (c.feature == EARLIER) {
        for (int32_t i = 0; i < count; i++)
            index[i] = (uint8_t)in_order(begin + i < c.parameter ? 0 : symbol_at(data, c.bits, begin + i - c.parameter), c.bits);
    } else if (c.feature == POSITION) {
        int32_t position = (int32_t)(begin % c.parameter);
        for (int32_t i = 0; i < count; i++, position = position + 1 < c.parameter ? position + 1 : 0) index[i] = (uint8_t)position;
    } else if (c.feature == MAGNITUDE) {
        int32_t sum = 0;
        for (int64_t i = begin < WINDOW ? 0 : begin - WINDOW; i < begin; i++) sum += magnitude(symbol_at(data, c.bits, i), c.bits);
        for (int64_t i = begin; i < begin + count; i++) {
            index[i - begin] = (uint8_t)of_sum(sum, c.bits);
            sum += magnitude(symbol_at(data, c.bits, i), c.bits);
            if (i >= WINDOW) sum -= magnitude(symbol_at(data, c.bits, i - WINDOW), c.bits);
        }
    } else {
        memset(index, 0, (size_t)count);
    }
}

/* The values that a feature can have. */
static int32_t values_of(candidate c)
{
    return c.feature == NOTHING ? 1 : c.feature == POSITION ? c.parameter : c.feature == EARLIER ? 1 << c.bits : FEATURES;
}

/* How often each symbol follows each value of the feature; of a sample, or of all. Returns the symbols counted. */
static int64_t tally_pairs(candidate c, const uint8_t *data, int64_t symbols, int32_t sampled, uint32_t (*pairs)[256])
{
    uint8_t index[CHUNK];
    const int64_t chunks = (symbols + CHUNK - 1) / CHUNK, taken = sampled && chunks > SAMPLE_CHUNKS ? SAMPLE_CHUNKS : chunks;
    int64_t counted = 0;
    memset(pairs, 0, (size_t)values_of(c) * sizeof *pairs);
    for (int64_t k = 0; k < taken; k++) {
        const int64_t begin = chunks * k / taken * CHUNK, left = symbols - begin;
        const int32_t count = left < CHUNK ? (int32_t)left : CHUNK;
        features_of(c, data, begin, count, index);
        for (int32_t i = 0; i < count; i++) pairs[index[i]][symbol_at(data, c.bits, begin + i)]++;
        counted += count;
    }
    return counted;
}

/* Groups of features' values: bins, and which group each has joined. */
typedef struct groups {
    int32_t bins, count;
    uint8_t last[BINS], of_bin[BINS];
    group list[BINS];
} groups;

/* Neighbouring values of a feature in bins of about the same weight. A bin of few symbols would not pay for a table. */
static void fill_bins(candidate c, uint32_t (*pairs)[256], int64_t counted, groups *all)
{
    const int64_t enough = 64 * c.bits - 192, most = 1 + counted / enough < BINS ? 1 + counted / enough : BINS;
    int64_t seen = 0;
    all->bins = 0;
    memset(all->list, 0, sizeof all->list);
    for (int32_t f = 0; f < values_of(c); f++) {
        group *g = &all->list[all->bins];
        for (int32_t s = 0; s < 1 << c.bits; s++) {
            g->count[s] += pairs[f][s];
            seen += pairs[f][s];
        }
        if (all->bins < most - 1 && seen * most >= counted * (all->bins + 1) && seen < counted) all->last[all->bins++] = (uint8_t)f;
    }
    all->last[all->bins] = FEATURES - 1;
    all->count = ++all->bins;
    for (int32_t i = 0; i < all->bins; i++) all->of_bin[i] = (uint8_t)i;
}

/* What the section grows by if two groups share a table; symbols stand for `scale` / 256 symbols each. */
static int64_t growth(const npuc_logarithms *logs, const group *a, const group *b, int32_t symbols, int64_t scale)
{
    group both;
    for (int32_t s = 0; s < symbols; s++) both.count[s] = a->count[s] + b->count[s];
    weigh(logs, &both, symbols);
    return (both.entropy - a->entropy - b->entropy) / 256 * scale + table_bits(&both) - table_bits(a) - table_bits(b);
}

static void join(const npuc_logarithms *logs, groups *all, int32_t a, int32_t b, int32_t symbols)
{
    for (int32_t s = 0; s < symbols; s++) all->list[a].count[s] += all->list[b].count[s];
    weigh(logs, &all->list[a], symbols);
    for (int32_t i = b; i + 1 < all->count; i++) all->list[i] = all->list[i + 1];
    all->count--;
    for (int32_t i = 0; i < all->bins; i++) {
        if (all->of_bin[i] == b) all->of_bin[i] = (uint8_t)a;
        if (all->of_bin[i] > b) all->of_bin[i]--;
    }
}

/* Joins neighbours until there are 16, then any two for as long as that pays or there are too many. */
static void join_groups(const npuc_logarithms *logs, groups *all, int32_t symbols, int64_t scale, int32_t tables)
{
    int64_t known[BINS][BINS], next[BINS];
    for (int32_t i = 0; i < all->count; i++) weigh(logs, &all->list[i], symbols);
    for (int32_t i = 0; i + 1 < all->count; i++) next[i] = growth(logs, &all->list[i], &all->list[i + 1], symbols, scale);
    while (all->count > NPUC_WEIGHT_TABLES) {
        int32_t best = 0;
        for (int32_t i = 1; i + 1 < all->count; i++)
            if (next[i] < next[best]) best = i;
        join(logs, all, best, best + 1, symbols);
        for (int32_t i = best + 1; i + 1 < all->count; i++) next[i] = next[i + 1];
        if (best) next[best - 1] = growth(logs, &all->list[best - 1], &all->list[best], symbols, scale);
        if (best + 1 < all->count) next[best] = growth(logs, &all->list[best], &all->list[best + 1], symbols, scale);
    }
    for (int32_t a = 0; a < all->count; a++)
        for (int32_t b = a + 1; b < all->count; b++) known[a][b] = growth(logs, &all->list[a], &all->list[b], symbols, scale);
    while (all->count > 1) {
        int32_t first = 0, second = 1;
        for (int32_t a = 0; a < all->count; a++)
            for (int32_t b = a + 1; b < all->count; b++)
                if (known[a][b] < known[first][second]) first = a, second = b;
        if (known[first][second] >= 0 && all->count <= tables) break;
        join(logs, all, first, second, symbols);
        for (int32_t a = 0; a < all->count; a++)
            for (int32_t b = a + 1; b < all->count; b++) known[a][b] = known[a + (a >= second)][b + (b >= second)];
        for (int32_t a = 0; a < all->count; a++) {
            if (a < first) known[a][first] = growth(logs, &all->list[a], &all->list[first], symbols, scale);
            if (a > first) known[first][a] = growth(logs, &all->list[first], &all->list[a], symbols, scale);
        }
    }
}

static int64_t cost_of(const groups *all, int64_t scale)
{
    int64_t cost = 0;
    for (int32_t i = 0; i < all->count; i++) cost += all->list[i].entropy / 256 * scale + table_bits(&all->list[i]);
    return cost + (all->count > 1 ? (int64_t)(all->bins * (INDEX_BITS + TABLES_BITS)) << LOG_BITS : 0);
}

/* A code of an entry of a table: how its level differs from the one before. */
static int32_t code_of(int32_t level, int32_t before)
{
    const int32_t more = level - 1 - before;
    if (!level) return ABSENT;
    if (more >= 2) return 2 * more;
    if (more <= -2) return 1 - 2 * more;
    return more < 0 ? 2 : more;
}

static int64_t entries_bits(const uint8_t *level, npuc_span span, int32_t symbols, int32_t steps, int32_t rice)
{
    int64_t bits = 0;
    for (int32_t i = 0, before = FIRST_LEVEL << steps; i < span.count; i++) {
        const int32_t l = level[(span.first + i) & (symbols - 1)];
        bits += (code_of(l, before) >> rice) + 1 + rice;
        if (l) before = l - 1;
    }
    return bits;
}

/* The cheapest form of a group's table; returns the bits of it and of its symbols, in units of 2^-16. */
static int64_t make_table(const npuc_logarithms *logs, const group *g, int32_t bits, npuc_context_plan *plan, int32_t number)
{
    const int32_t symbols = 1 << bits;
    int64_t least = INT64_MAX;
    for (int32_t steps = 0; steps <= MOST_STEPS; steps++) {
        uint8_t level[256] = {0};
        uint16_t frequency[256];
        for (int32_t s = 0; s < symbols; s++) {
            if (!g->count[s]) continue;
            const int64_t rarity = (int64_t)log2_of(logs, g->total) - log2_of(logs, g->count[s]);
            const int64_t rounded = ((rarity << steps) + (1 << (LOG_BITS - 1))) >> LOG_BITS;
            level[s] = (uint8_t)(1 + (rounded < level_limit(steps) ? (rounded < 0 ? 0 : rounded) : level_limit(steps) - 1));
        }
        spread(level, steps, symbols, frequency);
        int64_t coded = 0;
        for (int32_t s = 0; s < symbols; s++)
            if (g->count[s]) coded += (int64_t)g->count[s] * ((SCALE_BITS << LOG_BITS) - (int64_t)log2_of(logs, frequency[s]));
        const npuc_span span = npuc_span_of(level, symbols);
        for (int32_t rice = 0; rice < 1 << RICE_BITS; rice++) {
            const int64_t all = coded + ((entries_bits(level, span, symbols, steps, rice) + 2 * bits + STEPS_BITS + RICE_BITS) << LOG_BITS);
            if (all >= least) continue;
            least = all;
            plan->list[number].first = span.first;
            plan->list[number].count = span.count;
            plan->list[number].steps = steps;
            plan->list[number].rice = rice;
            memcpy(plan->list[number].level, level, sizeof level);
            memcpy(plan->list[number].frequency, frequency, sizeof frequency);
        }
    }
    return least;
}

int64_t npuc_plan_contexts(const npuc_logarithms *logs, const uint8_t *data, int64_t size, int32_t tables, npuc_context_plan *plan)
{
    struct {
        uint32_t pairs[FEATURES][256];
        groups all;
    } *work = malloc(sizeof *work);
    candidate best = CANDIDATES[0];
    int64_t least = INT64_MAX, halves_alike = 0;
    int32_t are_bytes = 0;
    if (!work) return 0;
    for (size_t k = 0; k < sizeof CANDIDATES / sizeof *CANDIDATES; k++) {
        const candidate c = CANDIDATES[k];
        const int64_t symbols = c.bits == 8 ? size : 2 * size;
        if (c.feature != NOTHING && (tables < 2 || (c.bits == 4 && are_bytes))) continue;
        const int64_t counted = tally_pairs(c, data, symbols, 1, work->pairs), scale = symbols * 256 / counted;
        fill_bins(c, work->pairs, counted, &work->all);
        join_groups(logs, &work->all, 1 << c.bits, scale, tables);
        const int64_t cost = cost_of(&work->all, scale);
        if (c.bits == 4 && c.feature == NOTHING) halves_alike = cost;
        /* The halves of a byte are unlike each other, two numbers of four bits are not. */
        if (c.bits == 4 && c.feature == POSITION && c.parameter == 2) are_bytes = cost < halves_alike - halves_alike / 64;
        if (cost < least) least = cost, best = c;
    }
    const int64_t symbols = best.bits == 8 ? size : 2 * size;
    fill_bins(best, work->pairs, tally_pairs(best, data, symbols, 0, work->pairs), &work->all);
    join_groups(logs, &work->all, 1 << best.bits, 256, tables);
    const groups *all = &work->all;
    plan->bits = best.bits;
    plan->feature = all->count > 1 ? best.feature : NOTHING;
    plan->parameter = best.parameter;
    plan->tables = all->count;
    plan->intervals = 0;
    for (int32_t i = 0; i < all->bins; i++) {
        if (plan->intervals && plan->table[plan->intervals - 1] == all->of_bin[i]) plan->intervals--;
        plan->last[plan->intervals] = all->last[i];
        plan->table[plan->intervals++] = all->of_bin[i];
    }
    int64_t bits = 0;
    for (int32_t t = 0; t < plan->tables; t++) bits += make_table(logs, &all->list[t], best.bits, plan, t);
    free(work);
    return (bits >> (LOG_BITS + 3)) + STATE_BYTES + (plan->tables > 1 ? plan->intervals * 12 / 8 : 0) + 2;
}

static void put_code(npuc_bit_writer *w, int32_t code, int32_t rice)
{
    for (int32_t i = 0; i < code >> rice; i++) npuc_put_bits(w, 1, 1);
    npuc_put_bits(w, 0, 1);
    npuc_put_bits(w, (uint32_t)code & ((1u << rice) - 1), rice);
}

static int64_t description_bits(const npuc_context_plan *p)
{
    int64_t bits = WIDTH_BITS + FEATURE_BITS + TABLES_BITS + (p->feature == EARLIER || p->feature == POSITION ? PARAMETER_BITS : 0);
    if (p->tables > 1) bits += INTERVALS_BITS + p->intervals * (INDEX_BITS + TABLES_BITS) - INDEX_BITS;
    for (int32_t t = 0; t < p->tables; t++)
        bits += 2 * p->bits + STEPS_BITS + RICE_BITS +
                entries_bits(p->list[t].level, (npuc_span){p->list[t].first, p->list[t].count}, 1 << p->bits, p->list[t].steps, p->list[t].rice);
    return bits;
}

static uint8_t *write_description(const npuc_context_plan *p, uint8_t *at)
{
    npuc_bit_writer w = {at, 0, 0};
    npuc_put_bits(&w, p->bits == 4, WIDTH_BITS);
    npuc_put_bits(&w, (uint32_t)p->feature, FEATURE_BITS);
    if (p->feature == EARLIER || p->feature == POSITION) npuc_put_bits(&w, (uint32_t)p->parameter - 1, PARAMETER_BITS);
    npuc_put_bits(&w, (uint32_t)p->tables - 1, TABLES_BITS);
    if (p->tables > 1) npuc_put_bits(&w, (uint32_t)p->intervals - 1, INTERVALS_BITS);
    for (int32_t i = 0; p->tables > 1 && i < p->intervals; i++) {
        if (i + 1 < p->intervals) npuc_put_bits(&w, p->last[i], INDEX_BITS);
        npuc_put_bits(&w, p->table[i], TABLES_BITS);
    }
    for (int32_t t = 0; t < p->tables; t++) {
        const int32_t steps = p->list[t].steps, rice = p->list[t].rice;
        npuc_put_bits(&w, (uint32_t)p->list[t].first, p->bits);
        npuc_put_bits(&w, (uint32_t)p->list[t].count - 1, p->bits);
        npuc_put_bits(&w, (uint32_t)steps, STEPS_BITS);
        npuc_put_bits(&w, (uint32_t)rice, RICE_BITS);
        for (int32_t i = 0, before = FIRST_LEVEL << steps; i < p->list[t].count; i++) {
            const int32_t level = p->list[t].level[(p->list[t].first + i) & ((1 << p->bits) - 1)];
            put_code(&w, code_of(level, before), rice);
            if (level) before = level - 1;
        }
    }
    return npuc_flush_bits(&w);
}

/* The states from the last symbol to the first; bytes are written towards the front, and counted. */
static int64_t write_symbols(const npuc_context_plan *p, const uint8_t *data, int64_t size, uint8_t *end)
{
    const candidate c = {p->bits, p->feature, p->parameter};
    const int64_t symbols = p->bits == 8 ? size : 2 * size;
    uint16_t start[NPUC_WEIGHT_TABLES][256];
    uint8_t of_feature[FEATURES] = {0}, index[CHUNK];
    uint32_t state = LEAST;
    int64_t written = 0;
    for (int32_t i = 0, f = 0; p->tables > 1 && i < p->intervals; i++)
        for (; f <= p->last[i]; f++) of_feature[f] = p->table[i];
    for (int32_t t = 0; t < p->tables; t++)
        for (int32_t s = 0, at = 0; s < 1 << p->bits; at += p->list[t].frequency[s++]) start[t][s] = (uint16_t)at;
    for (int64_t begin = (symbols - 1) / CHUNK * CHUNK; begin >= 0; begin -= CHUNK) {
        const int32_t count = symbols - begin < CHUNK ? (int32_t)(symbols - begin) : CHUNK;
        features_of(c, data, begin, count, index);
        for (int32_t i = count - 1; i >= 0; i--) {
            const int32_t s = symbol_at(data, p->bits, begin + i), t = of_feature[index[i]];
            const uint32_t frequency = p->list[t].frequency[s];
            while (state >= frequency << (LEAST_BITS - SCALE_BITS + 8)) {
                written++;
                if (end) end[-written] = (uint8_t)state;
                state >>= 8;
            }
            state = (state / frequency << SCALE_BITS) + state % frequency + start[t][s];
        }
    }
    for (int32_t i = STATE_BYTES - 1; i >= 0; i--) {
        written++;
        if (end) end[-written] = (uint8_t)(state >> 8 * i);
    }
    return written;
}

int64_t npuc_context_bytes(const npuc_context_plan *plan, const uint8_t *data, int64_t size)
{
    return (description_bits(plan) + 7) / 8 + write_symbols(plan, data, size, NULL);
}

uint8_t *npuc_write_contexts(const npuc_context_plan *plan, const uint8_t *data, int64_t size, int64_t bytes, uint8_t *at)
{
    write_description(plan, at);
    write_symbols(plan, data, size, at + bytes);
    return at + bytes;
}
