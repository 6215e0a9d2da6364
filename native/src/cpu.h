/*
 * What this CPU can do. An x86-64 is asked itself: the compilers' __builtin_cpu_supports wants a symbol of their run-time library
 * that not every tool chain has for shared libraries, and it does not know the same names everywhere. A 64-bit ARM cannot be
 * asked by a program, but Linux tells.
 */
#ifndef NPUC_CPU_H
#define NPUC_CPU_H

#if defined(__GNUC__) && defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>

enum { NPUC_YMM = 0x06, NPUC_ZMM = 0xe6 }; /* bits of XCR0: the registers that the system saves when it switches threads */

static inline int npuc_cpu_saves(unsigned registers)
{
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0; /* OSXSAVE: XGETBV may be used */
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & registers) == registers;
}

/* Whether all these bits are set in ECX of leaf 1, and in EBX and ECX of leaf 7. */
static inline int npuc_cpu_has(unsigned ecx1, unsigned ebx7, unsigned ecx7)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & ecx1) != ecx1) return 0;
    if (!ebx7 && !ecx7) return 1;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & ebx7) == ebx7 && (c & ecx7) == ecx7;
}

/* Asked once: the question costs a virtual machine microseconds. 0 is not known yet, 1 yes, -1 no. */
static inline int npuc_cpu_known(_Atomic(int) *known, unsigned registers, unsigned ecx1, unsigned ebx7, unsigned ecx7)
{
    int answer = atomic_load_explicit(known, memory_order_relaxed);
    if (!answer) {
        answer = (!registers || npuc_cpu_saves(registers)) && npuc_cpu_has(ecx1, ebx7, ecx7) ? 1 : -1;
        atomic_store_explicit(known, answer, memory_order_relaxed);
    }
    return answer > 0;
}

static inline int npuc_cpu_avx2(void)
{
    static _Atomic(int) known;
    return npuc_cpu_known(&known, NPUC_YMM, 0, 1u << 5, 0);
}

/* Multiply-add of floats, and conversions of 16-bit floats. */
static inline int npuc_cpu_fma_f16c(void)
{
    static _Atomic(int) known;
    return npuc_cpu_known(&known, NPUC_YMM, 1u << 12 | 1u << 29, 0, 0);
}

/* F, DQ, BW, VL and VNNI: what gemm_avx512.c is compiled for. */
static inline int npuc_cpu_avx512(void)
{
    static _Atomic(int) known;
    return npuc_cpu_known(&known, NPUC_ZMM, 0, 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31, 1u << 11);
}

static inline int npuc_cpu_avx512vbmi(void)
{
    static _Atomic(int) known;
    return npuc_cpu_known(&known, NPUC_ZMM, 0, 1u << 16, 1u << 1);
}

/* SSSE3, SSE4.1 and SHA, whose registers every x86-64 system saves. */
static inline int npuc_cpu_sha(void)
{
    static _Atomic(int) known;
    return npuc_cpu_known(&known, 0, 1u << 9 | 1u << 19, 1u << 29, 0);
}
#elif defined(__GNUC__) && defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
#endif

/* sdot and udot. */
static inline int npuc_cpu_dotprod(void)
{
#if defined(__ARM_FEATURE_DOTPROD)
    return 1; /* all of the program is compiled for it */
#elif defined(__linux__)
    return getauxval(AT_HWCAP) >> 20 & 1; /* HWCAP_ASIMDDP */
#else
    return 0;
#endif
}
#endif

#endif
