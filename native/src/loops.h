/*
 * What the elementwise and window kernels share: operands read through strides into blocks of int32, blocks written back
 * as 8- or 16-bit, and loops compiled twice (baseline and AVX2).
 *
 * Working on blocks of int32 in cache keeps one copy of each formula instead of one for each combination of types and
 * strides; widening and narrowing cost little beside the 64-bit products.
 */
#ifndef NPUC_LOOPS_H
#define NPUC_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#include "npuc/vector.h"
#include "requant.h"

enum { NPUC_BLOCK = 512, NPUC_MAX_RANK = 8 };

#if defined(__GNUC__)
#define NPUC_INLINE static inline __attribute__((always_inline))
#else
#define NPUC_INLINE static inline
#endif

#if defined(__GNUC__) && defined(__x86_64__) && !defined(NPUC_NO_HEAP)
#define NPUC_HAVE_AVX2 1
#define NPUC_AVX2 __attribute__((target("avx2")))
#else
#define NPUC_HAVE_AVX2 0
#define NPUC_AVX2
#endif

/* Whether the instruction set in use (npuc_isa) is AVX2 or more, AVX-512 or more. */
int npuc_use_avx2(void);
int npuc_use_avx512(void);

/*
 * NPUC_TWICE(name, (parameters), (arguments)): `name` calls the inline function `name_body` compiled for AVX2 where the
 * machine has it, and for the baseline elsewhere. One source, so that the two cannot differ.
 */
#if NPUC_HAVE_AVX2
#define NPUC_TWICE(name, parameters, arguments)                                                                                            \
    NPUC_AVX2 static void name##_avx2 parameters { name##_body arguments; }                                                                \
    static void name##_base parameters { name##_body arguments; }                                                                          \
    static inline void name parameters                                                                                                     \
    {                                                                                                                                      \
        if (npuc_use_avx2())                                                                                                               \
            name##_avx2 arguments;                                                                                                         \
        else                                                                                                                               \
            name##_base arguments;                                                                                                         \
    }
#else
#define NPUC_TWICE(name, parameters, arguments)                                                                                            \
    static void name parameters { name##_body arguments; }
#endif

/* The part [begin, end) of some work, and the runner of all of it: `body` may be called from several threads at once. */
typedef void npuc_part(void *context, int64_t begin, int64_t end);
void npuc_in_parts(int32_t threads, int64_t count, int64_t grain, npuc_part *body, void *context);

/* A sane pool whose every window holds an element. */
int npuc_pool_valid(const npuc_pool *pool);

/* Limits of an element type; 0 for a type that is no integer activation. */
static inline int npuc_limits(int32_t dtype, int64_t *lo, int64_t *hi)
{
    switch (dtype) {
    case NPUC_I8: *lo = -128, *hi = 127; return 1;
    case NPUC_U8: *lo = 0, *hi = 255; return 1;
    case NPUC_I16: *lo = -32768, *hi = 32767; return 1;
    default: return 0;
    }
}

/* A tensor read by an output of some shape; neighbouring dimensions that walk as one are merged. */
typedef struct npuc_operand {
    const void *data;
    int32_t dtype;
    int32_t zero;
    int32_t rank;
    int64_t shape[NPUC_MAX_RANK];
    int64_t stride[NPUC_MAX_RANK];
} npuc_operand;

void npuc_operand_init(npuc_operand *operand, const void *data, int32_t dtype, int32_t zero, int32_t rank, const int64_t *shape,
                       const int64_t *stride);

/* q - zero for the elements [start, start + n) of the output, n <= NPUC_BLOCK. */
void npuc_load_block(const npuc_operand *operand, int64_t start, int64_t n, int32_t *block);

/* clamp(block, lo, hi) + zero as the element type, to y[start...]; all of lo + zero ... hi + zero must fit the type. */
void npuc_store_block(const int32_t *block, int64_t n, int32_t lo, int32_t hi, int32_t zero, int32_t dtype, void *y, int64_t start);

/*
 * A checked output stage with one set of parameters, for accumulators of magnitude up to `bound`; ready for blocks of
 * int32 where bound < 2^31.
 */
typedef struct npuc_output {
    int32_t form; /* how to compute it; private to loops.c */
    int32_t multiplier;
    int32_t shift;
    int32_t zero;
    int32_t lo; /* of rq(acc), before the zero point */
    int32_t hi;
    float scale;
} npuc_output;

/* Prepare entry `index` of rq; NPUC_BAD_ARGUMENT where it makes no sense or could overflow. */
npuc_status npuc_output_init(npuc_output *stage, const npuc_requant *rq, int32_t index, int64_t bound, int32_t dtype);

/* rq(acc), not yet clamped beyond what int32 needs; `y` may be `acc`. */
void npuc_output_block(const npuc_output *stage, const int32_t *acc, int32_t *y, int64_t n);

/* One accumulator, clamped, with its zero point. */
int32_t npuc_output_one(const npuc_output *stage, int64_t acc);

#endif /* NPUC_LOOPS_H */
