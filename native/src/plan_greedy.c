/*
 * Memory planning by placing one item after another, and by climbing from order to order.
 *
 * The parts that are placed and alive together with a new one are found in a tree: parts sorted by their start, each node
 * with the latest end of the placed parts below it. So a placement takes O(k log n) for k neighbours, and a plan of n items
 * O(n k log n), without a table of all pairs.
 */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

typedef struct span {
    int64_t from; /* addresses strictly between `from` and `to` are taken */
    int64_t to;
} span;

typedef struct table {
    const npuc_plan_problem *problem;
    int32_t *sorted; /* parts by start */
    int32_t *rank;   /* where a part is in `sorted` */
    int32_t *owner;  /* the item of a part */
    int64_t *height; /* of items */
    int32_t width;   /* leaves of the tree, a power of two */
    int32_t *latest; /* the tree: latest end of the placed parts below a node */
    span *spans;     /* room for what one item meets */
    span *scratch;
    int64_t room; /* of both */
    int64_t count;
    int64_t steps;
} table;

static void close_table(table *t)
{
    free(t->sorted);
    free(t->rank);
    free(t->owner);
    free(t->height);
    free(t->latest);
    free(t->spans);
    free(t->scratch);
}

static npuc_status open_table(table *t, const npuc_plan_problem *p)
{
    memset(t, 0, sizeof *t);
    t->problem = p;
    for (t->width = 1; t->width < p->parts; t->width *= 2) {
    }
    size_t parts = (size_t)p->parts;
    int32_t *counts = calloc((size_t)p->sections + 1, sizeof *counts);
    t->sorted = malloc(parts * sizeof *t->sorted);
    t->rank = malloc(parts * sizeof *t->rank);
    t->owner = malloc(parts * sizeof *t->owner);
    t->height = malloc((size_t)p->items * sizeof *t->height);
    t->latest = malloc(2 * (size_t)t->width * sizeof *t->latest);
    t->room = 256;
    t->spans = malloc((size_t)t->room * sizeof *t->spans);
    t->scratch = malloc((size_t)t->room * sizeof *t->scratch);
    if (!counts || !t->sorted || !t->rank || !t->owner || !t->height || !t->latest || !t->spans || !t->scratch) {
        free(counts);
        close_table(t);
        return NPUC_NO_MEMORY;
    }
    for (int32_t part = 0; part < p->parts; part++) counts[p->start[part] + 1]++;
    for (int32_t s = 0; s < p->sections; s++) counts[s + 1] += counts[s];
    for (int32_t part = 0; part < p->parts; part++) {
        t->rank[part] = counts[p->start[part]]++;
        t->sorted[t->rank[part]] = part;
    }
    free(counts);
    for (int32_t i = 0; i < p->items; i++) {
        t->height[i] = npuc_plan_height(p, i);
        for (int32_t part = p->first[i]; part < p->first[i + 1]; part++) t->owner[part] = i;
    }
    return NPUC_OK;
}

static npuc_status add_span(table *t, int64_t from, int64_t to)
{
    if (t->count == t->room) {
        span *spans = realloc(t->spans, 2 * (size_t)t->room * sizeof *spans);
        if (!spans) return NPUC_NO_MEMORY;
        t->spans = spans;
        span *scratch = realloc(t->scratch, 2 * (size_t)t->room * sizeof *scratch);
        if (!scratch) return NPUC_NO_MEMORY;
        t->scratch = scratch;
        t->room *= 2;
    }
    t->spans[t->count].from = from;
    t->spans[t->count].to = to;
    t->count++;
    return NPUC_OK;
}

/* The addresses that placed parts deny to the item of `part`. */
static npuc_status meet(table *t, int32_t part, const int64_t *address)
{
    const npuc_plan_problem *p = t->problem;
    int32_t stack[64];
    int depth = 0;
    stack[depth++] = 1;
    while (depth) {
        int32_t node = stack[--depth];
        if (t->latest[node] <= p->start[part]) continue;
        /* The leftmost leaf has the earliest start; a node whose first part starts too late has nothing for us. */
        int32_t leaf = node;
        while (leaf < t->width) leaf *= 2;
        if (p->start[t->sorted[leaf - t->width]] >= p->end[part]) continue;
        if (node < t->width) {
            stack[depth++] = 2 * node + 1;
            stack[depth++] = 2 * node;
            continue;
        }
        int32_t other = t->sorted[node - t->width];
        int64_t at = address[t->owner[other]];
        t->steps++;
        npuc_status status = add_span(t, at - p->size[part], at + p->size[other]);
        if (status != NPUC_OK) return status;
    }
    return NPUC_OK;
}

static void sort_spans(table *t)
{
    span *a = t->spans, *b = t->scratch;
    int64_t n = t->count;
    for (int64_t run = 0; run < n; run += 8) /* runs of 8 by insertion, then merging */
        for (int64_t i = run + 1; i < n && i < run + 8; i++) {
            span x = a[i];
            int64_t j = i;
            for (; j > run && a[j - 1].from > x.from; j--) a[j] = a[j - 1];
            a[j] = x;
        }
    for (int64_t width = 8; width < n; width *= 2) {
        for (int64_t low = 0; low < n; low += 2 * width) {
            int64_t middle = low + width < n ? low + width : n, high = low + 2 * width < n ? low + 2 * width : n;
            int64_t i = low, j = middle;
            for (int64_t k = low; k < high; k++) b[k] = i < middle && (j >= high || a[i].from <= a[j].from) ? a[i++] : a[j++];
        }
        span *swap = a;
        a = b;
        b = swap;
    }
    t->spans = a;
    t->scratch = b;
}

/* The lowest address, or the one in the smallest gap; -1 if there is none between the item's limits. */
static int64_t choose(const table *t, int32_t item, int tight)
{
    const npuc_plan_problem *p = t->problem;
    int64_t alignment = p->alignment[item], last = p->high[item] - t->height[item];
    int64_t at = align_up(p->low[item], alignment), best = -1, gap = INT64_MAX;
    for (int64_t k = 0; k < t->count; k++) {
        if (t->spans[k].to <= at) continue;
        if (at <= t->spans[k].from && at <= last && t->spans[k].from - at < gap) {
            best = at;
            gap = t->spans[k].from - at;
            if (!tight) return best;
        }
        if (t->spans[k].to > at) at = align_up(t->spans[k].to, alignment);
    }
    return best >= 0 ? best : at <= last ? at : -1;
}

static void occupy(table *t, int32_t part)
{
    int32_t end = t->problem->end[part];
    for (int32_t node = t->width + t->rank[part]; node; node /= 2)
        if (t->latest[node] < end) t->latest[node] = end;
}

static npuc_status place_all(table *t, const int32_t *order, int tight, int64_t *address, int64_t *peak)
{
    const npuc_plan_problem *p = t->problem;
    memset(t->latest, 0, 2 * (size_t)t->width * sizeof *t->latest);
    *peak = 0;
    for (int32_t k = 0; k < p->items; k++) {
        int32_t item = order[k];
        t->count = 0;
        t->steps++;
        for (int32_t part = p->first[item]; part < p->first[item + 1]; part++) {
            npuc_status status = meet(t, part, address);
            if (status != NPUC_OK) return status;
        }
        sort_spans(t);
        int64_t at = choose(t, item, tight);
        if (at < 0) {
            *peak = -1;
            return NPUC_OK;
        }
        address[item] = at;
        if (at + t->height[item] > *peak) *peak = at + t->height[item];
        for (int32_t part = p->first[item]; part < p->first[item + 1]; part++) occupy(t, part);
    }
    return NPUC_OK;
}

int npuc_plan_greedy(const npuc_plan_problem *p, const int32_t *order, int32_t tight, int64_t *address, int64_t *peak)
{
    npuc_status status = order && address && peak ? npuc_plan_check(p, order) : NPUC_BAD_ARGUMENT;
    if (status != NPUC_OK) return status;
    table t;
    status = open_table(&t, p);
    if (status != NPUC_OK) return status;
    status = place_all(&t, order, tight, address, peak);
    close_table(&t);
    return status;
}

static uint64_t random_bits(uint64_t *state) /* splitmix64 */
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static int32_t random_below(uint64_t *state, int32_t n) { return (int32_t)((random_bits(state) >> 32) * (uint64_t)n >> 32); }

/* Move one of the items that reach the peak to an earlier turn, or let it change places with another. */
static void disturb(const table *t, const int64_t *address, int64_t peak, int32_t *order, uint64_t *state)
{
    int32_t n = t->problem->items, tops = 0, chosen = 0;
    for (int32_t k = 0; k < n; k++) /* one of them, each as likely as the others */
        if (address[order[k]] + t->height[order[k]] == peak && random_below(state, ++tops) == 0) chosen = k;
    int32_t other = random_below(state, n), item = order[chosen];
    if (chosen && random_bits(state) & 1) {
        int32_t to = other % chosen;
        memmove(order + to + 1, order + to, (size_t)(chosen - to) * sizeof *order);
        order[to] = item;
    } else {
        order[chosen] = order[other];
        order[other] = item;
    }
}

static npuc_status climb(table *t, int32_t *order, uint64_t seed, int64_t target, int64_t steps, int64_t *address, int64_t *peak,
                         int32_t *trial, int64_t *places)
{
    size_t n = (size_t)t->problem->items;
    npuc_status status = place_all(t, order, 0, address, peak);
    while (status == NPUC_OK && *peak > target && t->steps < steps) {
        int64_t reached;
        memcpy(trial, order, n * sizeof *order);
        disturb(t, address, *peak, trial, &seed);
        status = place_all(t, trial, 0, places, &reached);
        if (status == NPUC_OK && reached >= 0 && reached <= *peak) {
            memcpy(order, trial, n * sizeof *order);
            memcpy(address, places, n * sizeof *address);
            *peak = reached;
        }
    }
    return status;
}

int npuc_plan_climb(const npuc_plan_problem *p, int32_t *order, uint64_t seed, int64_t target, int64_t *steps, int64_t *address,
                    int64_t *peak)
{
    npuc_status status = order && steps && address && peak ? npuc_plan_check(p, order) : NPUC_BAD_ARGUMENT;
    if (status != NPUC_OK) return status;
    table t;
    status = open_table(&t, p);
    if (status != NPUC_OK) return status;
    int32_t *trial = malloc((size_t)p->items * sizeof *trial);
    int64_t *places = malloc((size_t)p->items * sizeof *places);
    status = trial && places ? climb(&t, order, seed, target, *steps, address, peak, trial, places) : NPUC_NO_MEMORY;
    *steps = t.steps;
    free(trial);
    free(places);
    close_table(&t);
    return status;
}
