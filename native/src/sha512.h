/* SHA-512 (FIPS 180-4) of bytes that come in pieces. */
#ifndef NPUC_SHA512_H
#define NPUC_SHA512_H

#include <stdint.h>

typedef struct npuc_sha512 {
    uint64_t state[8];
    uint64_t size; /* bytes so far */
    uint8_t block[128]; /* those of them that are no whole block yet */
} npuc_sha512;

void npuc_sha512_begin(npuc_sha512 *hash);
void npuc_sha512_add(npuc_sha512 *hash, const uint8_t *bytes, uint64_t size);
void npuc_sha512_end(npuc_sha512 *hash, uint8_t digest[64]);

#endif /* NPUC_SHA512_H */
