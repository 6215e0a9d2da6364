/* Instructions on bf16 and f16: types select the arithmetic, docs/arithmetic-float.md. */
#ifndef NPUC_SIM_FLOATS_H
#define NPUC_SIM_FLOATS_H

#include "npuc/float.h"
#include "sim_execute.h"

/* The output range of a float instruction as a fused relu; 0 if it is none. `lo` and `hi` are the bits of f32. */
int npuc_float_limits(int32_t lo, int32_t hi, int32_t *relu, float *limit);

/* Whether a decoded instruction computes with bf16 or f16. */
int npuc_is_float_instruction(const npuc_record *record);

/* Executes one that does; its accesses are checked. */
npuc_status npuc_float_instruction(npuc_workshop *workshop, const npuc_record *record, uint8_t *local, const npuc_origin *origin,
                                   int32_t threads, npuc_sim_error *error);

#endif /* NPUC_SIM_FLOATS_H */
