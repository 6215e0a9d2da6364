/* Convolutions packed for this CPU, kept for as long as their weights come from the same constants. */
#ifndef NPUC_SIM_LAYERS_H
#define NPUC_SIM_LAYERS_H

#include "sim.h"

/* Which bytes of a local memory are copies of which constants: ranges, ascending, apart from each other. */
typedef struct npuc_origin {
    int64_t count, room;
    struct npuc_origin_range {
        int64_t low, high, from;
    } *range;
} npuc_origin;

/* Bytes [low, high) have been written with something else. */
void npuc_origin_cut(npuc_origin *origin, int64_t low, int64_t high);
/* Bytes [low, high) are now constants [from, from + high - low). Without memory they are taken for anything. */
void npuc_origin_set(npuc_origin *origin, int64_t low, int64_t high, int64_t from);
/* The constant that byte `low` is a copy of, if [low, high) are all copies of neighbours; or -1. */
int64_t npuc_origin_find(const npuc_origin *origin, int64_t low, int64_t high);
void npuc_origin_free(npuc_origin *origin);

/* Signed integers of some bits, one behind the other from the lowest bit of each byte up, less their zero point. */
void npuc_unpack_integers(const uint8_t *from, int64_t count, int32_t bits, int32_t zero, int16_t *to);

typedef struct npuc_layer npuc_layer;
typedef struct npuc_layers {
    int64_t count, room; /* a power of two, or 0 */
    int64_t bytes;
    int32_t frugal; /* keep none */
    npuc_layer *slot;
    npuc_buffer once, weights, biases; /* a layer whose weights are no constants; a layer being prepared */
} npuc_layers;

/* The prepared layer of a decoded convolution, valid until the next call. */
npuc_status npuc_layers_get(npuc_layers *layers, const npuc_i_conv *conv, const uint8_t *local, const npuc_origin *origin,
                            const void **prepared, npuc_sim_error *error);
void npuc_layers_free(npuc_layers *layers);
/* Forget all packed layers, and keep none from now on. */
void npuc_layers_be_frugal(npuc_layers *layers);

#endif /* NPUC_SIM_LAYERS_H */
