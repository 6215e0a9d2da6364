/* One instruction, decoded and checked, on the memories of its core. */
#ifndef NPUC_SIM_EXECUTE_H
#define NPUC_SIM_EXECUTE_H

#include "sim_layers.h"
#include "sim_streams.h"

/* What instructions need beside memories: prepared layers and scratch. */
typedef struct npuc_workshop {
    npuc_layers layers;
    npuc_streams streams;
    npuc_buffer scratch, tables;
    int32_t guarded; /* kernels of plugins write between guards */
} npuc_workshop;

/* `memory` has the memory of each access of `decoded`, which is inside of it. */
npuc_status npuc_sim_instruction(npuc_workshop *workshop, const npuc_decoded *decoded, uint8_t *local, uint8_t *const *memory,
                                 const npuc_origin *origin, int32_t threads, npuc_sim_error *error);
void npuc_workshop_free(npuc_workshop *workshop);

#endif /* NPUC_SIM_EXECUTE_H */
