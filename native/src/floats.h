/*
 * Elements of bf16, f16 and f32 read as f32 and stored, without branches so that loops over them become vector code; and the
 * fused relu.
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

NPUC_INLINE float npuc_plain_f32(float x) { return npuc_float_of((npuc_bits_of(x) & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : npuc_bits_of(x)); }

NPUC_INLINE int64_t npuc_float_size(int32_t dtype) { return dtype == NPUC_F32 ? 4 : 2; }

/* The element `count` places behind. */
NPUC_INLINE const void *npuc_float_at(const void *x, int64_t count, int32_t dtype) { return (const char *)x + count * npuc_float_size(dtype); }

NPUC_INLINE void *npuc_float_to(void *y, int64_t count, int32_t dtype) { return (char *)y + count * npuc_float_size(dtype); }

/* Element i of x. Constant `dtype`, so that the choice is made outside the loops this is inlined into. */
NPUC_INLINE float npuc_widen(const void *x, int64_t i, int32_t dtype)
{
    if (dtype == NPUC_F32) return ((const float *)x)[i];
    const uint16_t bits = ((const uint16_t *)x)[i];
    return dtype == NPUC_BF16 ? npuc_widen_bf16(bits) : npuc_widen_f16(bits);
}

/* Element i of y becomes a value, rounded to nearest even. */
NPUC_INLINE void npuc_narrow(void *y, int64_t i, float value, int32_t dtype)
{
    if (dtype == NPUC_F32)
        ((float *)y)[i] = npuc_plain_f32(value);
    else
        ((uint16_t *)y)[i] = dtype == NPUC_BF16 ? npuc_narrow_bf16(value) : npuc_narrow_f16(value);
}

/* A function whose last argument is a type, called with that type as a constant. */
#define NPUC_BY_FLOAT(dtype, function, ...)                                                                                                \
    do {                                                                                                                                   \
        if ((dtype) == NPUC_BF16)                                                                                                          \
            function(__VA_ARGS__, NPUC_BF16);                                                                                              \
        else if ((dtype) == NPUC_F16)                                                                                                      \
            function(__VA_ARGS__, NPUC_F16);                                                                                               \
        else                                                                                                                               \
            function(__VA_ARGS__, NPUC_F32);                                                                                               \
    } while (0)

/* The bits of an f32 as an integer of the same order, IEEE's total order. */
NPUC_INLINE int32_t npuc_float_key(float x)
{
    const uint32_t u = npuc_bits_of(x);
    return (int32_t)(u & 0x80000000u ? u ^ 0x7fffffffu : u);
}

/* The larger or the smaller of two in the total order. */
NPUC_INLINE float npuc_float_choice(float a, float b, int larger)
{
    const int first = larger ? npuc_float_key(a) >= npuc_float_key(b) : npuc_float_key(a) <= npuc_float_key(b);
    return first ? a : b;
}

/* max(x, 0), at most `limit` where that is positive; NaN stays. */
NPUC_INLINE float npuc_relu(float x, int32_t relu, float limit)
{
    const float low = relu && x < 0.0f ? 0.0f : x;
    return relu && limit > 0.0f && low > limit ? limit : low;
}

#endif /* NPUC_FLOATS_H */
