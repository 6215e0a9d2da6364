/* SHA-256, as FIPS 180-4 states it. */
#include "sha256.h"

#include <stdatomic.h>
#include <string.h>

const uint32_t npuc_sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t value, int by) { return value >> by | value << (32 - by); }

static void block(uint32_t state[8], const uint8_t *bytes)
{
    uint32_t w[64];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)bytes[4 * i] << 24 | (uint32_t)bytes[4 * i + 1] << 16 | (uint32_t)bytes[4 * i + 2] << 8 | bytes[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t low = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t high = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + low + w[i - 7] + high;
    }
    uint32_t s[8];
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t sum1 = rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25);
        uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
        uint32_t first = s[7] + sum1 + choice + npuc_sha256_k[i] + w[i];
        uint32_t sum0 = rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22);
        uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        uint32_t second = sum0 + majority;
        for (int k = 7; k > 0; k--) s[k] = s[k - 1];
        s[4] += first;
        s[0] = first + second;
    }
    for (int k = 0; k < 8; k++) state[k] += s[k];
}

static void blocks(uint32_t state[8], const uint8_t *bytes, uint64_t count)
{
#if NPUC_SHA_NI
    static atomic_int known; /* 0: nobody has asked yet */
    int usable = atomic_load_explicit(&known, memory_order_relaxed);
    if (!usable) {
        usable = npuc_sha256_ni_usable() ? 1 : -1;
        atomic_store_explicit(&known, usable, memory_order_relaxed);
    }
    if (usable > 0) {
        npuc_sha256_ni(state, bytes, count);
        return;
    }
#endif
    for (uint64_t i = 0; i < count; i++) block(state, bytes + 64 * i);
}

void npuc_sha256_begin(npuc_sha256_hash *hash)
{
    /* Fractional parts of the square roots of the first eight primes. */
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, first, sizeof first);
    hash->size = 0;
}

void npuc_sha256_add(npuc_sha256_hash *hash, const uint8_t *bytes, uint64_t size)
{
    const uint64_t used = hash->size % 64;
    hash->size += size;
    if (used) {
        const uint64_t room = 64 - used, taken = size < room ? size : room;
        if (taken) memcpy(hash->block + used, bytes, (size_t)taken);
        if (taken < room) return;
        blocks(hash->state, hash->block, 1);
        bytes += taken;
        size -= taken;
    }
    const uint64_t whole = size / 64 * 64;
    blocks(hash->state, bytes, whole / 64);
    if (size > whole) memcpy(hash->block, bytes + whole, (size_t)(size - whole));
}

void npuc_sha256_end(npuc_sha256_hash *hash, uint8_t digest[32])
{
    const uint64_t size = hash->size, rest = size % 64;
    uint8_t tail[128] = {0x80};
    /* A one, zeros, and the number of bits in 64 bits, up to a whole block. */
    const uint64_t length = (rest < 56 ? 64 : 128) - rest;
    for (int i = 0; i < 8; i++) tail[length - 1 - (uint64_t)i] = (uint8_t)(size * 8 >> 8 * i);
    npuc_sha256_add(hash, tail, length);
    for (int i = 0; i < 32; i++) digest[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

void npuc_sha256(const uint8_t *bytes, uint64_t size, uint8_t digest[32])
{
    npuc_sha256_hash hash;
    npuc_sha256_begin(&hash);
    npuc_sha256_add(&hash, bytes, size);
    npuc_sha256_end(&hash, digest);
}
