/*
 * Block floating point, mx6 and mx9: docs/arithmetic-float.md.
 *
 * A block is 16 numbers of a row with one exponent; each pair of neighbours has a bit that lowers its exponent by one; each
 * number is a sign and a magnitude. In memory a block is its exponent plus 127 (255: not all of its numbers were finite, and
 * all of them are read as NaN), the bits of its eight pairs, and its numbers from the lowest bit on, each with its sign above
 * its magnitude. The last block of a row may have numbers that are not there: they are zeros.
 */
#include <math.h>
#include <string.h>

#include "floats.h"
#include "npuc/float.h"

enum { BLOCK = 16, PAIRS = BLOCK / 2, BIAS = 127, LEAST = -126, NOT_FINITE = 255, GRAIN = 1 << 12 };

static int magnitude_bits(int32_t format) { return format == NPUC_MX6 ? 4 : 7; }

int64_t npuc_block_bytes(int32_t format, int64_t width)
{
    if (!npuc_is_block(format) || width < 0) return 0;
    return (width + BLOCK - 1) / BLOCK * (2 + BLOCK * (magnitude_bits(format) + 1) / 8);
}

/* floor(log2(x)) of an x >= 0, at least that of the smallest normal number: what the exponent field says. */
static int exponent_of(float x)
{
    const int field = (int)(npuc_bits_of(x) >> 23 & 0xffu);
    return field < 1 ? LEAST : field - BIAS;
}

/* 2^e as a double. */
static double power(int e)
{
    const uint64_t bits = (uint64_t)(e + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void put_bits(uint8_t *y, int at, int count, unsigned value)
{
    for (int i = 0; i < count; i++) y[(at + i) / 8] |= (uint8_t)((value >> i & 1u) << (at + i) % 8);
}

static unsigned get_bits(const uint8_t *x, int at, int count)
{
    unsigned value = 0;
    for (int i = 0; i < count; i++) value |= (unsigned)(x[(at + i) / 8] >> (at + i) % 8 & 1u) << i;
    return value;
}

static void pack_block(const float *x, int bits, uint8_t *y)
{
    float largest = 0.0f;
    int finite = 1;
    for (int i = 0; i < BLOCK; i++) {
        const float size = fabsf(x[i]);
        finite &= isfinite(x[i]) != 0;
        largest = size > largest ? size : largest;
    }
    memset(y, 0, (size_t)(2 + BLOCK * (bits + 1) / 8));
    if (!finite) {
        y[0] = NOT_FINITE;
        return;
    }
    const int shared = exponent_of(largest), most = (1 << bits) - 1;
    y[0] = (uint8_t)(shared + BIAS);
    for (int pair = 0; pair < PAIRS; pair++) {
        const float a = fabsf(x[2 * pair]), b = fabsf(x[2 * pair + 1]);
        const int lowered = exponent_of(a > b ? a : b) < shared;
        y[1] |= (uint8_t)(lowered << pair);
        const double step = power(shared - lowered - (bits - 1));
        for (int i = 2 * pair; i < 2 * pair + 2; i++) {
            /* A quotient by a power of two is exact; adding and taking away 2^52 rounds it to nearest, ties to even. */
            const double quotient = fabs((double)x[i]) / step, whole = (quotient + 0x1p52) - 0x1p52;
            const unsigned magnitude = whole > most ? (unsigned)most : (unsigned)whole;
            put_bits(y + 2, i * (bits + 1), bits + 1, magnitude | (unsigned)(magnitude && x[i] < 0.0f) << bits);
        }
    }
}

static void unpack_block(const uint8_t *x, int bits, float *y)
{
    for (int i = 0; i < BLOCK; i++) {
        const unsigned number = get_bits(x + 2, i * (bits + 1), bits + 1);
        const double step = power((int)x[0] - BIAS - (x[1] >> i / 2 & 1) - (bits - 1));
        const double value = (number & ((1u << bits) - 1u)) * step;
        y[i] = x[0] == NOT_FINITE ? npuc_float_of(0x7fc00000u) : (float)(number >> bits ? -value : value);
    }
}

typedef struct block_job {
    const void *x;
    void *y;
    int64_t width, bytes;
    int32_t dtype, format;
} block_job;

static void pack_rows(void *context, int64_t begin, int64_t end)
{
    const block_job *j = context;
    const int bits = magnitude_bits(j->format);
    const int64_t block_bytes = npuc_block_bytes(j->format, 1);
    for (int64_t row = begin; row < end; row++)
        for (int64_t at = 0; at < j->width; at += BLOCK) {
            float numbers[BLOCK] = {0};
            for (int64_t i = 0; i < BLOCK && at + i < j->width; i++) numbers[i] = npuc_widen(j->x, row * j->width + at + i, j->dtype);
            pack_block(numbers, bits, (uint8_t *)j->y + row * j->bytes + at / BLOCK * block_bytes);
        }
}

static void unpack_rows(void *context, int64_t begin, int64_t end)
{
    const block_job *j = context;
    const int bits = magnitude_bits(j->format);
    const int64_t block_bytes = npuc_block_bytes(j->format, 1);
    for (int64_t row = begin; row < end; row++)
        for (int64_t at = 0; at < j->width; at += BLOCK) {
            float numbers[BLOCK];
            unpack_block((const uint8_t *)j->x + row * j->bytes + at / BLOCK * block_bytes, bits, numbers);
            const int64_t count = j->width - at < BLOCK ? j->width - at : BLOCK;
            memcpy((float *)j->y + row * j->width + at, numbers, (size_t)count * sizeof *numbers);
        }
}

static npuc_status run(block_job *j, int64_t rows, npuc_part *part, int32_t threads)
{
    const int64_t limit = (int64_t)1 << 40;
    if (!npuc_is_block(j->format)) return NPUC_UNSUPPORTED;
    if (rows < 0 || rows > limit || j->width < 1 || j->width > limit || (rows && (!j->x || !j->y))) return NPUC_BAD_ARGUMENT;
    j->bytes = npuc_block_bytes(j->format, j->width);
    npuc_in_parts(threads, rows, GRAIN / j->width + 1, part, j);
    return NPUC_OK;
}

npuc_status npuc_block_pack(const void *x, int32_t dtype, int64_t rows, int64_t width, int32_t format, uint8_t *y, int32_t threads)
{
    if (!npuc_is_float(dtype)) return NPUC_UNSUPPORTED;
    return run(&(block_job){.x = x, .y = y, .width = width, .dtype = dtype, .format = format}, rows, pack_rows, threads);
}

npuc_status npuc_block_unpack(const uint8_t *x, int64_t rows, int64_t width, int32_t format, float *y, int32_t threads)
{
    return run(&(block_job){.x = x, .y = y, .width = width, .dtype = NPUC_F32, .format = format}, rows, unpack_rows, threads);
}
