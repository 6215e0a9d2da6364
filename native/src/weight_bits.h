/* Bits of a stream of the weight codec, from the lowest of each byte up. */
#ifndef NPUC_WEIGHT_BITS_H
#define NPUC_WEIGHT_BITS_H

#include <stdint.h>

typedef struct npuc_bit_reader {
    const uint8_t *at, *end;
    uint64_t bits; /* the next `count` bits, and above them zeros or what will be there again */
    int32_t count;
} npuc_bit_reader;

static inline void npuc_fill_bits(npuc_bit_reader *r)
{
    r->bits &= ((uint64_t)1 << r->count) - 1;
    while (r->count <= 48 && r->at < r->end) {
        r->bits |= (uint64_t)*r->at++ << r->count;
        r->count += 8;
    }
}

/* The next bits, or -1 behind the end. */
static inline int32_t npuc_take_bits(npuc_bit_reader *r, int32_t count)
{
    npuc_fill_bits(r);
    if (r->count < count) return -1;
    const int32_t value = (int32_t)(r->bits & (((uint64_t)1 << count) - 1));
    r->bits >>= count;
    r->count -= count;
    return value;
}

/* Where the bytes go on: what was read ahead goes back. NULL if what is left of the last byte is not empty. */
static inline const uint8_t *npuc_end_of_bits(const npuc_bit_reader *r)
{
    return r->bits & ((1u << r->count % 8) - 1) ? (const uint8_t *)0 : r->at - r->count / 8;
}

typedef struct npuc_bit_writer {
    uint8_t *at;
    uint64_t bits;
    int32_t count;
} npuc_bit_writer;

static inline void npuc_put_bits(npuc_bit_writer *w, uint32_t bits, int32_t count)
{
    w->bits |= (uint64_t)bits << w->count;
    w->count += count;
    if (w->count < 32) return;
    for (int32_t i = 0; i < 4; i++) *w->at++ = (uint8_t)(w->bits >> 8 * i);
    w->bits >>= 32;
    w->count -= 32;
}

/* The rest of the bits; returns where the next byte goes. */
static inline uint8_t *npuc_flush_bits(npuc_bit_writer *w)
{
    for (; w->count > 0; w->count -= 8, w->bits >>= 8) *w->at++ = (uint8_t)w->bits;
    return w->at;
}

/* Where a table begins and how many neighbours it has: values run in a circle, so that those below zero come before it. */
typedef struct npuc_span {
    int32_t first, count;
} npuc_span;

/* The shortest span of `values` (a power of two) that has all that are present: it leaves out the longest gap of the circle. */
static inline npuc_span npuc_span_of(const uint8_t *present, int32_t values)
{
    int32_t longest = -1, behind = 0;
    for (int32_t s = 0; s < values; s++) {
        if (!present[s]) continue;
        int32_t gap = 0;
        while (gap < values - 1 && !present[(s + 1 + gap) & (values - 1)]) gap++;
        if (gap > longest) longest = gap, behind = s + 1 + gap;
    }
    return (npuc_span){behind & (values - 1), values - longest};
}

#endif /* NPUC_WEIGHT_BITS_H */
