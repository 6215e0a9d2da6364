#include <stdlib.h>
#include <string.h>
#include <stdatomic.h>

#include "cpu.h"
#include "gemm.h"
#include "npuc/gemm.h"

/* The form without a heap is for small machines: only code that every one has. */
#if defined(__x86_64__) && !defined(NPUC_NO_HEAP)
#define NPUC_X86 1
#else
#define NPUC_X86 0
#endif
#if NPUC_NEON && !defined(NPUC_NO_HEAP)
#define NPUC_ARM 1
#else
#define NPUC_ARM 0
#endif

static const npuc_gemm_ops *const known[] = {
#if NPUC_X86
    &npuc_gemm_avx512,
    &npuc_gemm_avx2,
#elif NPUC_ARM
    &npuc_gemm_neondot,
    &npuc_gemm_neon,
#endif
    &npuc_gemm_portable,
};

static _Atomic(const npuc_gemm_ops *) chosen;

static int usable(const npuc_gemm_ops *ops)
{
#if NPUC_X86
    if (ops == &npuc_gemm_avx2) return npuc_cpu_avx2();
    if (ops == &npuc_gemm_avx512) return npuc_cpu_avx512();
#elif NPUC_ARM
    if (ops == &npuc_gemm_neondot) return ops->name && npuc_cpu_dotprod();
    if (ops == &npuc_gemm_neon) return 1;
#endif
    return ops == &npuc_gemm_portable;
}

static const npuc_gemm_ops *find(const char *name)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (usable(known[i]) && (!name || !*name || !strcmp(name, known[i]->name))) return known[i];
    return NULL;
}

const npuc_gemm_ops *npuc_gemm(void)
{
    const npuc_gemm_ops *ops = atomic_load_explicit(&chosen, memory_order_acquire);
    if (!ops) {
        ops = find(getenv("NPUC_ISA"));
        if (!ops) ops = find(NULL); /* a name that this CPU cannot run: the best that it can */
        atomic_store_explicit(&chosen, ops, memory_order_release);
    }
    return ops;
}

const char *npuc_isa(void) { return npuc_gemm()->name; }

npuc_status npuc_isa_select(const char *name)
{
    const npuc_gemm_ops *ops = find(name);
    if (!ops) return NPUC_UNSUPPORTED;
    atomic_store_explicit(&chosen, ops, memory_order_release);
    return NPUC_OK;
}
