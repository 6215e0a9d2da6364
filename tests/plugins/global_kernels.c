/* Kernels with workspaces for tests: a merge sort of a whole tensor in global memory, and sums in local memory. */
#include <string.h>

#include "npu_plugin.h"

/* x in ascending order: sorted runs become longer, from one of two halves of memory to the other. */
int32_t sort_all(const npu_kernel_call *call)
{
    const int64_t n = call->x_bytes;
    if (call->y_bytes != n || call->workspace_bytes < n || call->local_workspace_bytes != 64 || call->parameters[0] != 7) return 1;
    int8_t *from = call->y, *to = call->workspace;
    memcpy(from, call->x, (size_t)n);
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t low = 0; low < n; low += 2 * run) {
            const int64_t middle = low + run < n ? low + run : n, high = low + 2 * run < n ? low + 2 * run : n;
            int64_t a = low, b = middle;
            for (int64_t i = low; i < high; i++) to[i] = a < middle && (b >= high || from[a] <= from[b]) ? from[a++] : from[b++];
        }
        int8_t *other = from;
        from = to;
        to = other;
    }
    if (from != call->y) memcpy(call->y, from, (size_t)n);
    memset((char *)call->local_workspace, 1, (size_t)call->local_workspace_bytes);
    return 0;
}

/* y[i] = x[0] + ... + x[i] modulo 256, through 32-bit sums in the workspace. */
int32_t running_sum(const npu_kernel_call *call)
{
    const int64_t n = call->x_bytes;
    if (call->y_bytes != n || call->workspace_bytes < 4 * n || call->local_workspace) return 1;
    int32_t *sums = call->workspace, sum = 0;
    for (int64_t i = 0; i < n; i++) sums[i] = sum += ((const int8_t *)call->x)[i];
    for (int64_t i = 0; i < n; i++) ((uint8_t *)call->y)[i] = (uint8_t)(sums[i] & 255);
    return 0;
}

/* Faults: one byte behind the workspace, and one before the result. */
int32_t beyond_workspace(const npu_kernel_call *call)
{
    memcpy(call->y, call->x, (size_t)call->x_bytes);
    ((char *)call->workspace)[call->workspace_bytes] = 1;
    return 0;
}

int32_t before_result(const npu_kernel_call *call)
{
    memcpy(call->y, call->x, (size_t)call->x_bytes);
    ((char *)call->y)[-1] = 1;
    return 0;
}

static const npu_plugin_kernel KERNELS[] = {{"test.sort", sort_all},
                                            {"test.sums", running_sum},
                                            {"test.beyond", beyond_workspace},
                                            {"test.before", before_result}};
NPU_PLUGIN({NPU_PLUGIN_ABI, sizeof(npu_plugin), "global_kernels", NULL, 0, KERNELS, 4})
