/*
 * bf16 and f16 to f32 and back, without branches so that loops over them become vector code; and the fused relu.
 *
 * Every NaN is stored as the one positive quiet NaN: which of its operands' payloads a sum keeps differs between machines.
 */
#ifndef NPUC_FLOATS_H
#define NPUC_FLOATS_H

#include <stdint.h>
#include <string.h>

#include "loops.h"
#include "npuc/float.h"

NPUC_INLINE float npuc_float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

NPUC_INLINE uint32_t npuc_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

NPUC_INLINE float npuc_widen_bf16(uint16_t x) { return npuc_float_of((uint32_t)x << 16); }

NPUC_INLINE uint16_t npuc_narrow_bf16(float x)
{
    const uint32_t u = npuc_bits_of(x);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

NPUC_INLINE float npuc_widen_f16(uint16_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000u) << 16, magnitude = (uint32_t)(x & 0x7fffu) << 13;
    /* Exponents are biased by 15 and 127. Subnormals: 2^-14 + m * 2^-24 as a normal number, less 2^-14. */
    const uint32_t normal = magnitude + (112u << 23), special = normal + (112u << 23);
    const uint32_t small = npuc_bits_of(npuc_float_of(magnitude + (113u << 23)) - npuc_float_of(113u << 23));
    const uint32_t bits = magnitude >= (31u << 23) ? special : magnitude < (1u << 23) ? small : normal;
    return npuc_float_of(bits | sign);
}

NPUC_INLINE uint16_t npuc_narrow_f16(float x)
{
    const uint32_t u = npuc_bits_of(x), magnitude = u & 0x7fffffffu, sign = (u >> 16) & 0x8000u;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    /* Below 2^-14 steps are of 2^-24, as those of f32 are from 1/2 to 1: adding 1/2 rounds there. */
    const uint32_t small = npuc_bits_of(npuc_float_of(magnitude) + 0.5f) - npuc_bits_of(0.5f);
    uint32_t y = magnitude < (113u << 23) ? small : normal;
    y = magnitude >= 0x477ff000u ? 0x7c00u : y; /* 65520, half a step above the largest */
    return (uint16_t)(magnitude > 0x7f800000u ? 0x7e00u : (y | sign));
}

/* Constant `dtype`, so that the choice is made outside the loops this is inlined into. */
NPUC_INLINE float npuc_widen(uint16_t x, int32_t dtype) { return dtype == NPUC_BF16 ? npuc_widen_bf16(x) : npuc_widen_f16(x); }

NPUC_INLINE uint16_t npuc_narrow(float x, int32_t dtype) { return dtype == NPUC_BF16 ? npuc_narrow_bf16(x) : npuc_narrow_f16(x); }

/* max(x, 0), at most `limit` where that is positive; NaN stays. */
NPUC_INLINE float npuc_relu(float x, int32_t relu, float limit)
{
    const float low = relu && x < 0.0f ? 0.0f : x;
    return relu && limit > 0.0f && low > limit ? limit : low;
}

#endif /* NPUC_FLOATS_H */
