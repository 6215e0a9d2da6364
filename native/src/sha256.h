/* SHA-256 (FIPS 180-4) of bytes in memory, by the CPU's own instructions where it has them. */
#ifndef NPUC_SHA256_H
#define NPUC_SHA256_H

#include <stdint.h>

/* As the portable kernels: what every machine has, for the form without a heap. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(NPUC_NO_HEAP)
#define NPUC_SHA_NI 1
#else
#define NPUC_SHA_NI 0
#endif

typedef struct npuc_sha256_hash {
    uint32_t state[8];
    uint64_t size;     /* bytes so far */
    uint8_t block[64]; /* those of them that are no whole block yet */
} npuc_sha256_hash;

/* Bytes that come in pieces. */
void npuc_sha256_begin(npuc_sha256_hash *hash);
void npuc_sha256_add(npuc_sha256_hash *hash, const uint8_t *bytes, uint64_t size);
void npuc_sha256_end(npuc_sha256_hash *hash, uint8_t digest[32]);

void npuc_sha256(const uint8_t *bytes, uint64_t size, uint8_t digest[32]);

/* Fractional parts of the cube roots of the first 64 primes. */
extern const uint32_t npuc_sha256_k[64];

#if NPUC_SHA_NI
/* Whether this CPU has the instructions, and `count` blocks of 64 bytes by them. */
int npuc_sha256_ni_usable(void);
void npuc_sha256_ni(uint32_t state[8], const uint8_t *bytes, uint64_t count);
#endif

#endif
