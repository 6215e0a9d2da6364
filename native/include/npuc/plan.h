/*
 * npuc: memory planning. Items with a lifetime and a height get addresses, so that no two that are alive together share
 * a byte, and the highest byte in use is as low as possible.
 *
 * Time is cut into sections, numbered from 0. An item is one block or several that share one address (what is computed
 * in place changes its size on the way): parts first[i] .. first[i + 1] - 1, each alive in sections [start, end). The
 * parts of an item may overlap in time. An address is a multiple of the item's alignment, at least `low`, and the tallest
 * part ends at `high` at most. A fixed position is low + height = high.
 *
 * All functions check every index and size before use, keep no state, and give the same result for the same arguments.
 * Work is counted in steps, about one look at an item, never in time.
 */
#ifndef NPUC_PLAN_H
#define NPUC_PLAN_H

#include <stdint.h>

#include "npuc/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The largest size, alignment, limit and sum of sizes that is taken. */
#define NPUC_PLAN_LARGEST ((int64_t)1 << 52)
/* The largest number of items and of parts. */
#define NPUC_PLAN_MOST 1000000

/* What a search came to. */
#define NPUC_PLAN_FOUND 1      /* addresses within the limits */
#define NPUC_PLAN_IMPOSSIBLE 0 /* proven: there are none */
#define NPUC_PLAN_OPEN (-1)    /* the steps did not suffice */

typedef struct npuc_plan_problem {
    int32_t items;
    int32_t parts;
    int32_t sections;
    const int32_t *first;     /* items + 1 */
    const int32_t *start;     /* parts */
    const int32_t *end;       /* parts */
    const int64_t *size;      /* parts */
    const int64_t *alignment; /* items */
    const int64_t *low;       /* items */
    const int64_t *high;      /* items */
} npuc_plan_problem;

/*
 * Place the items one after another, in the given order (a permutation), each at the lowest address where it fits, or
 * with `tight` in the smallest gap where it fits. *peak is the highest byte in use, or -1 if an item does not fit
 * between its limits.
 */
NPUC_API int npuc_plan_greedy(const npuc_plan_problem *problem, const int32_t *order, int32_t tight, int64_t *address,
                              int64_t *peak);

/*
 * Improve an order by small changes, each judged by placing greedily; no change that makes things worse is kept. Ends
 * at `target` or after `steps`. `order` and `address` receive the best found; *steps the number of steps taken.
 */
NPUC_API int npuc_plan_climb(const npuc_plan_problem *problem, int32_t *order, uint64_t seed, int64_t target,
                             int64_t *steps, int64_t *address, int64_t *peak);

/*
 * Look for addresses below `capacity` by branch and bound; `order` ranks the items, the most demanding first, and `mode`
 * is a sum of the values below. *outcome is one of the three values above, *steps the number of steps taken. Problems of
 * more than 4,096 items stay open.
 */
#define NPUC_PLAN_PRESSED 1 /* items of the fullest sections come first; each part that becomes independent is ranked anew */
#define NPUC_PLAN_TWINS 2   /* of equal items the first in the order is lower: better for proofs, worse for finding */
NPUC_API int npuc_plan_search(const npuc_plan_problem *problem, const int32_t *order, int32_t mode, int64_t capacity,
                              int64_t *steps, int64_t *address, int32_t *outcome);

#ifdef __cplusplus
}
#endif

#endif
