/*
 * The kernels of custom instructions: a short list that only grows, so that runs can look at it while another thread adds to
 * it. A slot is claimed, filled, and then shown.
 */
#include "custom.h"

#include <stdatomic.h>
#include <string.h>

typedef struct entry {
    uint8_t name[NPU_KERNEL_NAME];
    _Atomic(npu_kernel) kernel; /* NULL: not there yet */
} entry;

static entry entries[NPU_MOST_KERNELS];
static _Atomic int claimed;

static int is_name(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
}

int npuc_kernel_name_valid(const uint8_t *name)
{
    int length = 0;
    while (length < NPU_KERNEL_NAME && is_name(name[length])) length++;
    if (length == 0 || length == NPU_KERNEL_NAME) return 0;
    for (int i = length; i < NPU_KERNEL_NAME; i++)
        if (name[i]) return 0;
    return 1;
}

static entry *find(const uint8_t *name)
{
    const int count = atomic_load(&claimed);
    for (int i = 0; i < count && i < NPU_MOST_KERNELS; i++)
        if (atomic_load(&entries[i].kernel) && memcmp(entries[i].name, name, NPU_KERNEL_NAME) == 0) return &entries[i];
    return NULL;
}

npu_kernel npuc_find_kernel(const uint8_t *name)
{
    entry *found = find(name);
    return found ? atomic_load(&found->kernel) : NULL;
}

npu_status npu_register_kernel(const char *name, npu_kernel kernel)
{
    uint8_t padded[NPU_KERNEL_NAME] = {0};
    if (!name || !kernel || strlen(name) >= NPU_KERNEL_NAME) return NPU_BAD_ARGUMENT;
    memcpy(padded, name, strlen(name));
    if (!npuc_kernel_name_valid(padded)) return NPU_BAD_ARGUMENT;
    entry *same = find(padded);
    if (same) {
        atomic_store(&same->kernel, kernel);
        return NPU_OK;
    }
    const int at = atomic_fetch_add(&claimed, 1);
    if (at >= NPU_MOST_KERNELS) {
        atomic_fetch_sub(&claimed, 1);
        return NPU_NO_MEMORY;
    }
    memcpy(entries[at].name, padded, NPU_KERNEL_NAME);
    atomic_store(&entries[at].kernel, kernel);
    return NPU_OK;
}
