/*
 * N:M sparse weights: their pattern, their size, and their dense form.
 *
 * Values lie as the dense weights would, (out_c, c / groups / M * N, kernel), and their positions behind them in the same order,
 * log2(M) bits each, from the lowest bit of a byte up.
 */
#include "sparse_weights.h"

#include <string.h>

static int32_t position_bits(int32_t m) { return m == 2 ? 1 : m == 4 ? 2 : m == 8 ? 3 : 4; }

int64_t npuc_sparse_stored(const npuc_i_conv *r, int64_t weights) { return r->sparse_m ? weights / r->sparse_m * r->sparse_n : weights; }

int64_t npuc_sparse_position_bytes(const npuc_i_conv *r, int64_t stored)
{
    return r->sparse_m ? (stored * position_bits(r->sparse_m) + 7) / 8 : 0;
}

int npuc_sparse_expand(const npuc_i_conv *r, const int16_t *values, const uint8_t *positions, int64_t outputs, int64_t inputs,
                       int64_t taps, int16_t *weight)
{
    const int32_t bits = position_bits(r->sparse_m), mask = (1 << bits) - 1;
    const int64_t blocks = outputs * (inputs / r->sparse_m), n = r->sparse_n, m = r->sparse_m;
    memset(weight, 0, (size_t)(outputs * inputs * taps) * sizeof *weight);
    for (int64_t b = 0; b < blocks; b++) {
        for (int64_t t = 0; t < taps; t++) {
            int32_t last = -1;
            for (int64_t j = 0; j < n; j++) {
                const int64_t i = (b * n + j) * taps + t, at = i * bits;
                /* A position may straddle two bytes; the second is there if it does. */
                uint32_t pair = positions[at / 8];
                if (at % 8 + bits > 8) pair |= (uint32_t)positions[at / 8 + 1] << 8;
                const int32_t position = (int32_t)(pair >> (at % 8)) & mask;
                if (position <= last) return 0;
                last = position;
                weight[(b * m + position) * taps + t] = values[i];
            }
        }
    }
    return 1;
}
