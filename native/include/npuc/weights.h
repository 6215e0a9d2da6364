/*
 * npuc: constants as a machine with a weight decoder keeps them in DRAM. docs/weight-compression.md has the format.
 *
 * A stream is made of sections: bytes as they are, canonical Huffman codes with a table of their own, or an asymmetric numeral
 * system (rANS) with tables that neighbours choose. It has no length of its own: whoever keeps it knows how long it is and how many bytes it stands for.
 */
#ifndef NPUC_WEIGHTS_H
#define NPUC_WEIGHTS_H

#include <stdint.h>

#include "npuc/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The longest run of bytes that a stream can stand for. */
#define NPUC_WEIGHTS_LARGEST (((int64_t)1 << 30) - 1)
/* The most parts that an encoder looks at one by one. */
#define NPUC_WEIGHTS_PARTS 16

/*
 * Makes the stream of `size` bytes and returns its length; 0 if that is not below `room`. `ends` are where parts of the data
 * end that may be distributed differently, ascending, the last of them `size`. Without a `stream` it only counts.
 */
NPUC_API int64_t npuc_weights_encode(const uint8_t *data, int64_t size, const int64_t *ends, int32_t parts, uint8_t *stream,
                                     int64_t room);

/* The same for a decoder that holds as many `tables` for neighbours to choose from, 16 at most; 0: it does not look at them. */
NPUC_API int64_t npuc_weights_encode_contexts(const uint8_t *data, int64_t size, const int64_t *ends, int32_t parts, int32_t tables,
                                              uint8_t *stream, int64_t room);

/*
 * Makes the `size` bytes that a stream of exactly `stored` bytes stands for. A stream that is anything else is refused; nothing
 * outside of the two is read or written, whatever it holds.
 */
NPUC_API npuc_status npuc_weights_decode(const uint8_t *stream, int64_t stored, uint8_t *data, int64_t size);

#ifdef __cplusplus
}
#endif

#endif /* NPUC_WEIGHTS_H */
