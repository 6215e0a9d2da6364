/*
 * N:M sparse weights of a convolution (docs/weight-sparsity.md): of every M input channels, N values and where they belong.
 */
#ifndef NPUC_SPARSE_WEIGHTS_H
#define NPUC_SPARSE_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>

#include "npuc/isa.h"
#include "npuc/kinds.h"

/* What is wrong with the pattern that a convolution states; NULL if nothing is, or if its weights are dense. */
static inline const char *npuc_sparse_fault(const npuc_i_conv *r)
{
    const int sparse = (r->head.flags & NPUC_SPARSE) != 0;
    const uint32_t n = r->sparse_n, m = r->sparse_m, groups = r->groups ? r->groups : 1;
    if (sparse != (m != 0) || sparse != (n != 0)) return "an instruction has a bad field";
    if (!sparse) return NULL;
    if ((m != 2 && m != 4 && m != 8 && m != 16) || n >= m) return "an instruction has no sparsity pattern that exists";
    if (r->c / groups % m) return "an instruction has sparse weights that are no whole blocks";
    if (r->w_zero_point || (r->x_dtype != NPUC_I8 && r->x_dtype != NPUC_U8 && r->x_dtype != NPUC_I16))
        return "an instruction has sparse weights that are no symmetric integers";
    return NULL;
}

/* Of `weights` weights, how many are stored. */
int64_t npuc_sparse_stored(const npuc_i_conv *r, int64_t weights);

/* Bytes of the positions of `stored` values. */
int64_t npuc_sparse_position_bytes(const npuc_i_conv *r, int64_t stored);

/*
 * Spread the values of `outputs` output channels to (outputs, inputs, taps), zeros between them. Returns 0 if the positions of
 * a block do not ascend.
 */
int npuc_sparse_expand(const npuc_i_conv *r, const int16_t *values, const uint8_t *positions, int64_t outputs, int64_t inputs,
                       int64_t taps, int16_t *weight);

#endif /* NPUC_SPARSE_WEIGHTS_H */
