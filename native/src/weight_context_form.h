/* What the encoder and the decoder of sections with contexts both know: fields, features and how a table is told. */
#ifndef NPUC_WEIGHT_CONTEXT_FORM_H
#define NPUC_WEIGHT_CONTEXT_FORM_H

#include <stdint.h>

enum { NOTHING = 0, EARLIER = 1, POSITION = 2, MAGNITUDE = 3, FEATURES = 256, WINDOW = 8 };
/* Fields of a section: bits of each. */
enum { WIDTH_BITS = 1, FEATURE_BITS = 2, PARAMETER_BITS = 12, TABLES_BITS = 4, INTERVALS_BITS = 5, INDEX_BITS = 8 };
enum { STEPS_BITS = 2, RICE_BITS = 2, MOST_STEPS = 2, ABSENT = 3, FIRST_LEVEL = 3, MOST_CODE = 127 };
/* Frequencies of a table sum up to 2^14. The state is at least 2^23, and below 2^31. */
enum { SCALE_BITS = 14, LEAST_BITS = 23, STATE_BYTES = 4 };
#define SCALE (1 << SCALE_BITS)
#define LEAST ((uint32_t)1 << LEAST_BITS)
#define MOST_INTERVALS (1 << INTERVALS_BITS)

static inline int32_t symbol_at(const uint8_t *data, int32_t bits, int64_t i)
{
    return bits == 8 ? data[i] : data[i >> 1] >> 4 * (i & 1) & 15;
}

/* Symbols in the order of signed numbers. */
static inline int32_t in_order(int32_t symbol, int32_t bits) { return (symbol + (1 << (bits - 1))) & ((1 << bits) - 1); }

static inline int32_t magnitude(int32_t symbol, int32_t bits)
{
    const int32_t value = in_order(symbol, bits) - (1 << (bits - 1));
    return value < 0 ? -value : value;
}

/* Of a sum of magnitudes of the last eight. */
static inline int32_t of_sum(int32_t sum, int32_t bits)
{
    const int32_t index = bits == 8 ? sum >> 2 : sum;
    return index < FEATURES ? index : FEATURES - 1;
}

/* The frequencies that levels stand for, `level` less one being -log2 of a probability in steps: each at least 1. */
static inline void spread(const uint8_t *level, int32_t steps, int32_t symbols, uint16_t *frequency)
{
    static const uint32_t QUARTER[] = {65536, 55109, 46341, 38968}; /* 2^(16 - i / 4) */
    uint64_t weight[256], total = 0, before = 0;
    int32_t present = 0;
    for (int32_t s = 0; s < symbols; s++) {
        const int32_t quarters = level[s] ? (level[s] - 1) << (MOST_STEPS - steps) : 0;
        weight[s] = level[s] ? QUARTER[quarters & 3] >> (quarters >> 2) : 0;
        total += weight[s];
        present += level[s] != 0;
    }
    for (int32_t s = 0; s < symbols; s++) {
        const uint64_t behind = before + weight[s], rest = (uint64_t)(SCALE - present);
        frequency[s] = level[s] ? (uint16_t)(1 + behind * rest / total - before * rest / total) : 0;
        before = behind;
    }
}

/* The least level that is too high. */
static inline int32_t level_limit(int32_t steps) { return 16 << steps; }

#endif /* NPUC_WEIGHT_CONTEXT_FORM_H */
