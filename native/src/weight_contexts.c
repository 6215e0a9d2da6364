/*
 * The decoder of sections that look at neighbours: docs/weight-compression.md. It reads and writes nothing outside of the blocks that
 * it is given, and takes no memory but some 25 KiB of stack, whatever a section says.
 */
#include "weight_contexts.h"

#include <string.h>

#include "weight_bits.h"
#include "weight_context_form.h"

enum { PART_BITS = 10 };

typedef struct table {
    uint16_t start[257];
    uint8_t symbol[1 << PART_BITS]; /* of even parts of the scale: the symbol that each begins in */
} table;

static int32_t read_code(npuc_bit_reader *r, int32_t rice)
{
    int32_t high = 0, bit = 1;
    while (bit > 0 && high <= MOST_CODE) {
        bit = npuc_take_bits(r, 1);
        high += bit > 0;
    }
    if (bit < 0 || high > MOST_CODE) return -1;
    const int32_t low = rice ? npuc_take_bits(r, rice) : 0;
    return low < 0 ? -1 : high << rice | low;
}

static int32_t read_table(npuc_bit_reader *r, int32_t bits, table *t)
{
    uint8_t level[256] = {0};
    uint16_t frequency[256];
    const int32_t symbols = 1 << bits, first = npuc_take_bits(r, bits), count = npuc_take_bits(r, bits) + 1;
    const int32_t steps = npuc_take_bits(r, STEPS_BITS), rice = npuc_take_bits(r, RICE_BITS);
    int32_t now = FIRST_LEVEL << steps, present = 0;
    if (first < 0 || count < 1 || steps < 0 || steps > MOST_STEPS || rice < 0) return 0;
    for (int32_t i = 0; i < count; i++) {
        const int32_t code = read_code(r, rice);
        if (code < 0) return 0;
        if (code == ABSENT) continue;
        now += code < ABSENT ? (code == 2 ? -1 : code) : code & 1 ? -(code >> 1) : code >> 1;
        if (now < 0 || now >= level_limit(steps)) return 0;
        level[(first + i) & (symbols - 1)] = (uint8_t)(now + 1);
        present++;
    }
    if (!present) return 0;
    spread(level, steps, symbols, frequency);
    memset(t->start, 0, sizeof t->start);
    for (int32_t s = 0; s < symbols; s++) t->start[s + 1] = (uint16_t)(t->start[s] + frequency[s]);
    for (int32_t s = 0, part = 0; part < 1 << PART_BITS; part++) {
        while (t->start[s + 1] <= part << (SCALE_BITS - PART_BITS)) s++;
        t->symbol[part] = (uint8_t)s;
    }
    return 1;
}

typedef struct section {
    int32_t bits, feature, parameter, tables;
    uint8_t of_feature[FEATURES];
    table list[NPUC_WEIGHT_TABLES];
} section;

static int32_t read_intervals(npuc_bit_reader *r, section *c)
{
    const int32_t intervals = npuc_take_bits(r, INTERVALS_BITS) + 1;
    if (intervals < 1) return 0;
    for (int32_t i = 0, next = 0; i < intervals; i++) {
        const int32_t last = i + 1 < intervals ? npuc_take_bits(r, INDEX_BITS) : FEATURES - 1, t = npuc_take_bits(r, TABLES_BITS);
        if (last < next || t < 0 || t >= c->tables) return 0;
        memset(c->of_feature + next, t, (size_t)(last + 1 - next));
        next = last + 1;
    }
    return 1;
}

static int32_t read_section(npuc_bit_reader *r, section *c)
{
    const int32_t narrow = npuc_take_bits(r, WIDTH_BITS);
    c->bits = narrow ? 4 : 8;
    c->feature = npuc_take_bits(r, FEATURE_BITS);
    c->parameter = 0;
    if (c->feature == EARLIER || c->feature == POSITION) {
        c->parameter = npuc_take_bits(r, PARAMETER_BITS) + 1;
        if (c->parameter < 1 || (c->feature == POSITION && c->parameter > FEATURES)) return 0;
    }
    c->tables = npuc_take_bits(r, TABLES_BITS) + 1;
    if (narrow < 0 || c->feature < 0 || c->tables < 1 || (c->feature == NOTHING && c->tables > 1)) return 0;
    memset(c->of_feature, 0, sizeof c->of_feature);
    if (c->tables > 1 && !read_intervals(r, c)) return 0;
    for (int32_t t = 0; t < c->tables; t++)
        if (!read_table(r, c->bits, &c->list[t])) return 0;
    return 1;
}

/* The state of the decoder, and where it reads on; at is NULL once the stream has ended too early. */
typedef struct decoder {
    uint32_t state;
    const uint8_t *at, *end;
} decoder;

static inline int32_t next_symbol(decoder *d, const table *t)
{
    const uint32_t slot = d->state & (SCALE - 1);
    int32_t s = t->symbol[slot >> (SCALE_BITS - PART_BITS)];
    while (t->start[s + 1] <= slot) s++;
    d->state = (uint32_t)(t->start[s + 1] - t->start[s]) * (d->state >> SCALE_BITS) + slot - t->start[s];
    while (d->state < LEAST) {
        if (d->at == d->end) {
            d->at = d->end = NULL;
            d->state |= LEAST;
            break;
        }
        d->state = d->state << 8 | *d->at++;
    }
    return s;
}

/* All symbols by a feature that is known when the function is compiled. */
static inline void read_symbols(decoder *d, const section *c, const int32_t feature, const int32_t bits, uint8_t *data, int64_t size)
{
    const int64_t symbols = bits == 8 ? size : 2 * size;
    int32_t sum = 0, position = 0;
    for (int64_t i = 0; i < symbols && d->end; i++) {
        int32_t index = 0;
        if (feature == EARLIER) index = in_order(i < c->parameter ? 0 : symbol_at(data, bits, i - c->parameter), bits);
        if (feature == POSITION) index = position;
        if (feature == MAGNITUDE) index = of_sum(sum, bits);
        const int32_t s = next_symbol(d, &c->list[feature == NOTHING ? 0 : c->of_feature[index]]);
        if (bits == 8)
            data[i] = (uint8_t)s;
        else
            data[i >> 1] = (uint8_t)(i & 1 ? data[i >> 1] | s << 4 : s);
        if (feature == MAGNITUDE) sum += magnitude(s, bits) - (i < WINDOW ? 0 : magnitude(symbol_at(data, bits, i - WINDOW), bits));
        if (feature == POSITION && ++position == c->parameter) position = 0;
    }
}

static void read_width(decoder *d, const section *c, const int32_t bits, uint8_t *data, int64_t size)
{
    switch (c->feature) {
    case NOTHING: read_symbols(d, c, NOTHING, bits, data, size); break;
    case EARLIER: read_symbols(d, c, EARLIER, bits, data, size); break;
    case POSITION: read_symbols(d, c, POSITION, bits, data, size); break;
    default: read_symbols(d, c, MAGNITUDE, bits, data, size); break;
    }
}

const uint8_t *npuc_read_contexts(const uint8_t *at, const uint8_t *end, uint8_t *data, int64_t size)
{
    npuc_bit_reader r = {at, end, 0, 0};
    section c;
    if (!read_section(&r, &c) || !(at = npuc_end_of_bits(&r)) || end - at < STATE_BYTES) return NULL;
    decoder d = {(uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24, at + STATE_BYTES, end};
    if (d.state < LEAST || d.state >> 31) return NULL;
    if (c.bits == 8)
        read_width(&d, &c, 8, data, size);
    else
        read_width(&d, &c, 4, data, size);
    return d.end && d.state == LEAST ? d.at : NULL;
}
