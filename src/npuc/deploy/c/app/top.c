#include "top.h"

#include <math.h>
#include <string.h>

static double of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static double of_half(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                        : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                       : ldexp(fraction, -24);
    return bits & 0x8000 ? -size : size;
}

#define AT(type) ((double)((const type *)data)[index])

static double plain_value(int32_t dtype, const void *data, int64_t index)
{
    switch (dtype) {
    case NPU_I8: return AT(int8_t);
    case NPU_U8:
    case NPU_BOOL: return AT(uint8_t);
    case NPU_I16: return AT(int16_t);
    case NPU_U16: return AT(uint16_t);
    case NPU_I32: return AT(int32_t);
    case NPU_U32: return AT(uint32_t);
    case NPU_I64: return AT(int64_t);
    case NPU_U64: return AT(uint64_t);
    case NPU_F64: return AT(double);
    case NPU_F16: return of_half(((const uint16_t *)data)[index]);
    case NPU_BF16: return of_bits((uint32_t)((const uint16_t *)data)[index] << 16);
    default: return AT(float);
    }
}

double real_value(const npu_tensor *tensor, const void *data, int64_t index)
{
    const double plain = plain_value(tensor->dtype, data, index);
    return tensor->scale > 0.0 ? tensor->scale * (plain - tensor->zero_point) : plain;
}

int top_entries(const npu_tensor *tensor, const void *data, int most, entry *entries)
{
    int count = 0;
    for (int64_t index = 0; index < tensor->elements; index++) {
        const double value = real_value(tensor, data, index);
        int at = count < most ? count : most;
        for (; at > 0 && value > entries[at - 1].value; at--)
            if (at < most) entries[at] = entries[at - 1];
        if (at < most) entries[at] = (entry){index, value};
        if (count < most) count++;
    }
    return count;
}

double largest_difference(const npu_tensor *tensor, const void *data, const void *expected)
{
    double most = 0, largest = 0;
    if (memcmp(data, expected, tensor->size) == 0) return 0;
    for (int64_t index = 0; index < tensor->elements; index++) {
        const double wanted = real_value(tensor, expected, index), got = real_value(tensor, data, index);
        if (isnan(wanted) && isnan(got)) continue;
        if (isnan(wanted) || isnan(got)) return INFINITY;
        if (fabs(wanted) > largest) largest = fabs(wanted);
        if (wanted != got && fabs(got - wanted) > most) most = fabs(got - wanted);
    }
    return most == 0 ? 0 : largest > 0 && isfinite(largest) ? most / largest : INFINITY;
}
