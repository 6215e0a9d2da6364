/*
 * Sections of the weight codec that look at neighbours: docs/weight-compression.md.
 *
 * A feature of what lies before a symbol (one of them, or how large the last eight are, or where the symbol is) chooses the table
 * of probabilities that it is coded by. All symbols of a section share one state of an asymmetric numeral system (rANS), so that
 * a symbol of probability p takes -log2(p) bits, not a whole number of them.
 */
#ifndef NPUC_WEIGHT_CONTEXTS_H
#define NPUC_WEIGHT_CONTEXTS_H

#include <stdint.h>

/* The most tables of a section. */
#define NPUC_WEIGHT_TABLES 16

/* ---- decoding ---- */

/* Makes the `size` bytes of a section, which begins at `at`; returns where the next begins, or NULL if it is damaged. */
const uint8_t *npuc_read_contexts(const uint8_t *at, const uint8_t *end, uint8_t *data, int64_t size);

/* ---- encoding; a runtime only decodes ---- */

/* Tables of log2 that the encoder counts by; the same on every machine. */
typedef struct npuc_logarithms {
    uint32_t log2[2049]; /* of 1 to 2, by steps of 1 / 2048, in units of 2^-16 */
} npuc_logarithms;

void npuc_make_logarithms(npuc_logarithms *logs);

/* How a section is coded. */
typedef struct npuc_context_plan {
    int32_t bits; /* of a symbol: 8, or 4 */
    int32_t feature, parameter;
    int32_t tables, intervals;
    uint8_t last[32], table[32]; /* of each interval of the feature's values: its end, and its table */
    struct {
        int32_t first, count; /* of the values that are told of */
        int32_t steps, rice;  /* log2 of the steps of a bit; bits behind each unary code */
        uint8_t level[256];   /* 1 and -log2 of the probability in steps; 0: the symbol does not occur */
        uint16_t frequency[256];
    } list[NPUC_WEIGHT_TABLES];
} npuc_context_plan;

/* Finds a plan with at most `tables` tables. Returns about how many bytes the section takes without its head; 0: there is no memory. */
int64_t npuc_plan_contexts(const npuc_logarithms *logs, const uint8_t *data, int64_t size, int32_t tables, npuc_context_plan *plan);

/* The bytes of the section without its head. */
int64_t npuc_context_bytes(const npuc_context_plan *plan, const uint8_t *data, int64_t size);

/* Writes the section of that many bytes without its head; returns where the next begins. */
uint8_t *npuc_write_contexts(const npuc_context_plan *plan, const uint8_t *data, int64_t size, int64_t bytes, uint8_t *at);

#endif /* NPUC_WEIGHT_CONTEXTS_H */
