/* SHA-256 (FIPS 180-4) of bytes in memory. */
#ifndef NPUC_SHA256_H
#define NPUC_SHA256_H

#include <stdint.h>

void npuc_sha256(const uint8_t *bytes, uint64_t size, uint8_t digest[32]);

#endif
