/* The kernels of custom instructions that are registered. */
#ifndef NPUC_CUSTOM_H
#define NPUC_CUSTOM_H

#include "npu_kernel.h"

/* Whether NPU_KERNEL_NAME bytes are a name as instructions have them. */
int npuc_kernel_name_valid(const uint8_t *name);

/* The kernel of a valid name, or NULL. */
npu_kernel npuc_find_kernel(const uint8_t *name);

#endif /* NPUC_CUSTOM_H */
