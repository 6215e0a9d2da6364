/* Compressed constants that have been decoded, kept for as long as the constants are the same ones. */
#ifndef NPUC_SIM_STREAMS_H
#define NPUC_SIM_STREAMS_H

#include "sim.h"

typedef struct npuc_stream npuc_stream;
typedef struct npuc_streams {
    int64_t count, room; /* a power of two, or 0 */
    int64_t bytes;
    npuc_stream *slot;
} npuc_streams;

/* Decodes what a compressed load brings from `far`, the first byte of the constants, to `near`; `keep` it if there is room. */
npuc_status npuc_streams_load(npuc_streams *streams, int keep, const npuc_i_load *load, const uint8_t *far, uint8_t *near,
                              npuc_sim_error *error);
void npuc_streams_free(npuc_streams *streams);

#endif /* NPUC_SIM_STREAMS_H */
