/* What the memory planners share: the check of a problem, and small arithmetic on addresses. */
#ifndef NPUC_SRC_PLAN_H
#define NPUC_SRC_PLAN_H

#include "npuc/plan.h"

/* NPUC_OK if every index and size of a problem is in range and `order` (may be NULL) is a permutation of its items. */
npuc_status npuc_plan_check(const npuc_plan_problem *problem, const int32_t *order);

/* The height of an item: of its tallest part. */
int64_t npuc_plan_height(const npuc_plan_problem *problem, int32_t item);

static inline int64_t align_up(int64_t x, int64_t alignment)
{
    int64_t over = alignment == 1 ? 0 : x % alignment;
    return over ? x + alignment - over : x;
}

#endif
