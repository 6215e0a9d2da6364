/* The kernel of hard_glu.py in C, bit for bit: y = a * clip(slope * b + 1/2, 0, 1) on integers of 8 or 16 bits. */
#include <string.h>

#include "npu_kernel.h"

enum { X_TYPE, B_TYPE, Y_TYPE, X_ZERO, B_ZERO, Y_ZERO, GATE, MULTIPLIER, SHIFT, LOW, HIGH };
enum { I8, U8, I16 };

static int64_t size_of(int32_t type) { return type == I16 ? 2 : 1; }

static int64_t at(const void *data, int32_t type, int64_t i)
{
    int16_t value;
    if (type == I8) return ((const int8_t *)data)[i];
    if (type == U8) return ((const uint8_t *)data)[i];
    memcpy(&value, (const char *)data + 2 * i, 2);
    return value;
}

int32_t hard_glu(const npu_kernel_call *call)
{
    const int32_t *p = call->parameters;
    const int64_t elements = call->y_bytes / size_of(p[Y_TYPE]), one = 1 << 26;
    if (!call->b || call->x_bytes != elements * size_of(p[X_TYPE]) || call->b_bytes != elements * size_of(p[B_TYPE])) return 1;
    if (p[SHIFT] < 1 || p[SHIFT] > 62 || p[MULTIPLIER] < 0 || p[MULTIPLIER] > 32767 || p[GATE] < 0) return 2;
    for (int i = X_ZERO; i <= Y_ZERO; i++)
        if (p[i] < -32768 || p[i] > 32767) return 3;
    for (int64_t i = 0; i < elements; i++) {
        int64_t gate = (at(call->b, p[B_TYPE], i) - p[B_ZERO]) * p[GATE] + one / 2;
        gate = gate < 0 ? 0 : gate > one ? one : gate;
        const int64_t sum = (at(call->x, p[X_TYPE], i) - p[X_ZERO]) * gate * p[MULTIPLIER];
        int64_t y = p[Y_ZERO] + ((sum + ((int64_t)1 << (p[SHIFT] - 1))) >> p[SHIFT]);
        y = y < p[LOW] ? p[LOW] : y > p[HIGH] ? p[HIGH] : y;
        if (p[Y_TYPE] == I16) {
            const int16_t value = (int16_t)y;
            memcpy((char *)call->y + 2 * i, &value, 2);
        } else {
            ((uint8_t *)call->y)[i] = (uint8_t)y;
        }
    }
    return 0;
}
