/* The check of a memory-planning problem: nothing behind it needs to look at an index twice. */
#include "plan.h"

#include <stdlib.h>

int64_t npuc_plan_height(const npuc_plan_problem *p, int32_t item)
{
    int64_t height = 0;
    for (int32_t part = p->first[item]; part < p->first[item + 1]; part++) height = p->size[part] > height ? p->size[part] : height;
    return height;
}

static int parts_are_sound(const npuc_plan_problem *p)
{
    int64_t total = 0;
    for (int32_t part = 0; part < p->parts; part++) {
        if (p->start[part] < 0 || p->start[part] >= p->end[part] || p->end[part] > p->sections) return 0;
        if (p->size[part] < 1 || p->size[part] > NPUC_PLAN_LARGEST - total) return 0;
        total += p->size[part];
    }
    return 1;
}

static int items_are_sound(const npuc_plan_problem *p)
{
    if (p->first[0] != 0 || p->first[p->items] != p->parts) return 0;
    int64_t total = 0; /* what alignment can waste */
    for (int32_t i = 0; i < p->items; i++) {
        if (p->first[i] < 0 || p->first[i] >= p->first[i + 1] || p->first[i + 1] > p->parts) return 0;
        if (p->alignment[i] < 1 || p->alignment[i] > NPUC_PLAN_LARGEST - total) return 0;
        total += p->alignment[i];
        if (p->low[i] < 0 || p->low[i] > NPUC_PLAN_LARGEST || p->high[i] < 0 || p->high[i] > NPUC_PLAN_LARGEST) return 0;
    }
    return 1;
}

static npuc_status order_is_sound(const npuc_plan_problem *p, const int32_t *order)
{
    unsigned char *seen = calloc((size_t)p->items, 1);
    if (!seen) return NPUC_NO_MEMORY;
    npuc_status status = NPUC_OK;
    for (int32_t k = 0; k < p->items && status == NPUC_OK; k++) {
        if (order[k] < 0 || order[k] >= p->items || seen[order[k]])
            status = NPUC_BAD_ARGUMENT;
        else
            seen[order[k]] = 1;
    }
    free(seen);
    return status;
}

npuc_status npuc_plan_check(const npuc_plan_problem *p, const int32_t *order)
{
    if (!p || p->items < 1 || p->items > NPUC_PLAN_MOST || p->parts < p->items || p->parts > NPUC_PLAN_MOST) return NPUC_BAD_ARGUMENT;
    if (p->sections < 1 || p->sections > 2 * NPUC_PLAN_MOST) return NPUC_BAD_ARGUMENT;
    if (!p->first || !p->start || !p->end || !p->size || !p->alignment || !p->low || !p->high) return NPUC_BAD_ARGUMENT;
    if (!items_are_sound(p) || !parts_are_sound(p)) return NPUC_BAD_ARGUMENT;
    return order ? order_is_sound(p, order) : NPUC_OK;
}
