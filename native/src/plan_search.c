/*
 * Memory planning by branch and bound: addresses below a capacity, or the proof that there are none.
 *
 * Give every item a weight. If there is a solution there is one with the smallest weighted sum of addresses, and only
 * that one is looked for. In it every item rests on its support: its lower limit, or the top of an item below it. A node of
 * the search takes the lowest item that is left and places it on its support, or else refuses it this place, and the
 * item must lie higher. It follows:
 *
 * - An item that was refused must be lifted: a neighbour that is left comes to lie in its slot, or it would slide down.
 *   If none can, the node is dead; if some can, the lowest of them bounds the item from below.
 * - In every section, the items with a bound of b or more need b + the sum of their heights.
 * - An item that rests on one with the same lifetime has the higher rank, for else the two could change places. (The
 *   weights are those for which this is smaller: height times a number that falls with the rank.) With NPUC_PLAN_TWINS,
 *   of two that are equal in everything the higher rank is above: proofs are shorter by this, but solutions are fewer.
 * - Where no item that is left crosses a moment in time, the two sides are independent problems, and may be ranked anew.
 * - What is left of the problem at a node is hashed to 128 bits; a state that failed before fails again.
 *
 * A good rank matters more than anything else: searches end soon or not at all, so callers try several for a short time.
 */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

enum { FOUND = NPUC_PLAN_FOUND, DEAD = NPUC_PLAN_IMPOSSIBLE, OPEN = NPUC_PLAN_OPEN };
enum { MOST_NEIGHBOURS = 1 << 25, FAILED_BITS = 16, DEEPEST = 4096 /* items: the search is recursive */ };

static const int64_t NOWHERE = INT64_MAX / 4; /* above every address */

typedef struct segment {
    int32_t from;
    int32_t to;
    int64_t height;
} segment;

typedef struct neighbour {
    int32_t item;
    int64_t lift; /* our height in the sections that both are alive in */
} neighbour;

typedef struct change { /* what an item was before */
    int32_t item;
    int32_t below;
    int32_t rank;
    int64_t support;
    int64_t refused;
} change;

typedef struct print {
    uint64_t a;
    uint64_t b;
} print;

typedef struct search {
    int32_t items; /* numbered in the order that was given */
    int32_t sections;
    int32_t mode;
    int64_t capacity;
    int64_t steps;
    int64_t limit;
    npuc_status status;
    int32_t *first; /* segments of an item, which do not overlap: first[i] .. first[i + 1] - 1 */
    segment *segments;
    int32_t *from; /* the sections from an item's first to its last */
    int32_t *to;
    int64_t *height;
    int64_t *alignment;
    int64_t *high;
    int32_t *free;  /* whether it may lie anywhere */
    int32_t *twin;  /* the nearest item before that is the same in every respect, or -1 */
    int64_t *start; /* neighbours of an item: start[i] .. start[i + 1] - 1 */
    neighbour *neighbours;
    int64_t *address; /* -1: not placed */
    int64_t *support;
    int64_t *refused; /* the support that was refused, or -1 */
    int32_t *below;   /* an item that ends at the support and could change places with this one, or -1 */
    int32_t *rank;
    int64_t *bound;
    int32_t *skipped; /* scratch of find_bounds */
    int64_t *load;    /* of sections: what is left above a bound */
    int64_t *low;     /* of sections: the lowest bound */
    int64_t *top;     /* of sections: the lowest end of something at its bound */
    int32_t *across;  /* items left that are alive both before and in a section */
    int32_t *placed;  /* items in the order of their placement */
    int32_t placed_count;
    change *trail;
    int64_t trail_count;
    int64_t trail_room;
    int32_t *lists; /* the items left, a list for every node on the way down */
    int64_t lists_count;
    int64_t lists_room;
    print *failed;
} search;

/* Whether an item does not lie on its present support. */
static int is_skipped(const search *s, int32_t y)
{
    if (s->refused[y] == s->support[y]) return 1;
    if (s->twin[y] >= 0 && s->address[s->twin[y]] < 0) return 1;
    return s->below[y] >= 0 && s->rank[s->below[y]] > s->rank[y];
}

/* Let an item be seen in its sections. */
static void show(search *s, int32_t y)
{
    int64_t bound = s->bound[y];
    for (int32_t g = s->first[y]; g < s->first[y + 1]; g++) {
        int64_t top = bound + s->segments[g].height;
        for (int32_t t = s->segments[g].from; t < s->segments[g].to; t++) {
            s->low[t] = bound < s->low[t] ? bound : s->low[t];
            s->top[t] = top < s->top[t] ? top : s->top[t];
        }
    }
}

/* How low an item that is skipped can come to lie: on something in its slot. */
static int64_t lifted(const search *s, int32_t y)
{
    int64_t low = NOWHERE, top = NOWHERE;
    for (int32_t g = s->first[y]; g < s->first[y + 1]; g++)
        for (int32_t t = s->segments[g].from; t < s->segments[g].to; t++) {
            low = s->low[t] < low ? s->low[t] : low;
            top = s->top[t] < top ? s->top[t] : top;
        }
    return low < s->support[y] + s->height[y] ? align_up(top, s->alignment[y]) : NOWHERE;
}

/* The bounds of the items of a list; DEAD if one of them cannot be met. */
static int find_bounds(search *s, const int32_t *list, int32_t n)
{
    int32_t skipped = 0, from = s->sections, to = 0;
    for (int32_t k = 0; k < n; k++) {
        from = s->from[list[k]] < from ? s->from[list[k]] : from;
        to = s->to[list[k]] > to ? s->to[list[k]] : to;
    }
    for (int32_t t = from; t < to; t++) {
        s->low[t] = s->top[t] = NOWHERE;
        s->load[t] = 0;
    }
    for (int32_t k = 0; k < n; k++) {
        int32_t y = list[k];
        if (is_skipped(s, y)) {
            s->bound[y] = NOWHERE;
            s->skipped[skipped++] = y;
        } else {
            s->bound[y] = s->support[y];
            show(s, y);
        }
    }
    s->steps += n + (to - from) / 4;
    for (int changed = skipped; changed;) { /* the shortest ways from items that are not skipped, through others */
        changed = 0;
        for (int32_t k = 0; k < skipped; k++) {
            int32_t y = s->skipped[k];
            int64_t bound = lifted(s, y);
            s->steps += (s->to[y] - s->from[y]) / 8;
            if (bound < s->bound[y]) {
                s->bound[y] = bound;
                show(s, y);
                changed = 1;
            }
        }
    }
    for (int32_t k = 0; k < skipped; k++)
        if (s->bound[s->skipped[k]] + s->height[s->skipped[k]] > s->high[s->skipped[k]]) return DEAD;
    return FOUND;
}

/* DEAD if the items of some section, from some bound on, do not fit below the capacity. Sorts the list by falling bound. */
static int find_loads(search *s, int32_t *list, int32_t n)
{
    for (int32_t k = 1; k < n; k++) { /* insertion, for it comes nearly sorted */
        int32_t y = list[k], j = k;
        for (; j > 0 && s->bound[list[j - 1]] < s->bound[y]; j--) list[j] = list[j - 1];
        list[j] = y;
        s->steps += (k - j) / 8;
    }
    for (int32_t k = 0; k < n; k++) {
        int32_t y = list[k];
        int64_t room = s->capacity - s->bound[y];
        s->steps += (s->to[y] - s->from[y]) / 4;
        for (int32_t g = s->first[y]; g < s->first[y + 1]; g++) {
            int64_t height = s->segments[g].height, most = 0;
            for (int32_t t = s->segments[g].from; t < s->segments[g].to; t++) {
                int64_t load = s->load[t] += height;
                most = load > most ? load : most;
            }
            if (most > room) return DEAD;
        }
    }
    return FOUND;
}

/* The lowest item that is not skipped; of several the first by rank. What is skipped lies higher, so there is one. */
static int32_t find_next(const search *s, const int32_t *list, int32_t n)
{
    int32_t best = list[n - 1];
    for (int32_t k = n - 2; k >= 0 && s->bound[list[k]] == s->bound[best]; k--)
        if (s->rank[list[k]] < s->rank[best]) best = list[k];
    return best;
}

static int remember(search *s, int32_t y)
{
    if (s->trail_count == s->trail_room) {
        change *trail = realloc(s->trail, 2 * (size_t)s->trail_room * sizeof *trail);
        if (!trail) {
            s->status = NPUC_NO_MEMORY;
            return 0;
        }
        s->trail = trail;
        s->trail_room *= 2;
    }
    s->trail[s->trail_count++] = (change){y, s->below[y], s->rank[y], s->support[y], s->refused[y]};
    return 1;
}

/* Whether two items can change places when one lies on the other. */
static int exchangeable(const search *s, int32_t x, int32_t y)
{
    return s->from[x] == s->from[y] && s->to[x] == s->to[y] && s->free[x] && s->free[y];
}

/* Place an item on its support; DEAD if a neighbour comes too high by this. */
static int place(search *s, int32_t x)
{
    int64_t at = s->support[x];
    s->address[x] = at;
    s->placed[s->placed_count++] = x;
    for (int32_t t = s->from[x] + 1; t < s->to[x]; t++) s->across[t]--;
    s->steps += (s->start[x + 1] - s->start[x]) / 4;
    for (int64_t e = s->start[x]; e < s->start[x + 1]; e++) {
        int32_t y = s->neighbours[e].item;
        int64_t top = at + s->neighbours[e].lift;
        if (s->address[y] >= 0 || top < s->support[y]) continue;
        int32_t below = exchangeable(s, x, y) ? x : -1;
        if (top == s->support[y] && below < 0) continue;
        if (!remember(s, y)) return OPEN;
        s->support[y] = align_up(top, s->alignment[y]);
        s->below[y] = below;
        if (s->support[y] + s->height[y] > s->high[y]) return DEAD;
    }
    return FOUND;
}

static void take_back(search *s, int32_t placed_count, int64_t trail_count)
{
    while (s->trail_count > trail_count) {
        const change *c = &s->trail[--s->trail_count];
        s->below[c->item] = c->below;
        s->rank[c->item] = c->rank;
        s->support[c->item] = c->support;
        s->refused[c->item] = c->refused;
    }
    while (s->placed_count > placed_count) {
        int32_t x = s->placed[--s->placed_count];
        s->address[x] = -1;
        for (int32_t t = s->from[x] + 1; t < s->to[x]; t++) s->across[t]++;
    }
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

/* What is left of the problem. A sum, so that the order of the list does not matter. */
static print fingerprint(const search *s, const int32_t *list, int32_t n)
{
    print sum = {1, 1};
    for (int32_t k = 0; k < n; k++) {
        int32_t y = list[k];
        uint64_t who = (uint64_t)y << 32 | (uint64_t)s->rank[y] << 1 | (uint64_t)is_skipped(s, y);
        uint64_t word = mix(mix(who + 0x9e3779b97f4a7c15u) + (uint64_t)s->support[y]);
        sum.a += word;
        sum.b += mix(word + 0x2545f4914f6cdd1du);
    }
    return sum;
}

static int32_t *push_list(search *s, int32_t n)
{
    if (s->lists_room - s->lists_count < n) {
        int64_t room = 2 * s->lists_room + n;
        int32_t *lists = realloc(s->lists, (size_t)room * sizeof *lists);
        if (!lists) {
            s->status = NPUC_NO_MEMORY;
            return NULL;
        }
        s->lists = lists;
        s->lists_room = room;
    }
    s->lists_count += n;
    return s->lists + s->lists_count - n;
}

/* Rank the items of a list by the largest sum of heights in one of their sections, then by their number. */
static void rank_by_pressure(search *s, int32_t *list, int32_t n)
{
    for (int32_t k = 0; k < n; k++) memset(s->load + s->from[list[k]], 0, (size_t)(s->to[list[k]] - s->from[list[k]]) * sizeof *s->load);
    for (int32_t k = 0; k < n; k++)
        for (int32_t g = s->first[list[k]]; g < s->first[list[k] + 1]; g++)
            for (int32_t t = s->segments[g].from; t < s->segments[g].to; t++) s->load[t] += s->segments[g].height;
    for (int32_t k = 0; k < n; k++) {
        int32_t y = list[k], j = k;
        int64_t most = 0;
        for (int32_t g = s->first[y]; g < s->first[y + 1]; g++)
            for (int32_t t = s->segments[g].from; t < s->segments[g].to; t++) most = s->load[t] > most ? s->load[t] : most;
        s->bound[y] = most;
        s->steps += (s->to[y] - s->from[y]) / 4;
        for (; j > 0 && (s->bound[list[j - 1]] < most || (s->bound[list[j - 1]] == most && list[j - 1] > y)); j--) list[j] = list[j - 1];
        list[j] = y;
        s->steps += 1 + (k - j) / 8;
    }
    for (int32_t k = 0; k < n; k++) s->rank[list[k]] = k;
}

static int solve(search *s, int64_t list, int32_t n);

/* Solve a part that has just become independent. It starts anew: nothing is refused, and only its own items are ranked. */
static int solve_part(search *s, int64_t list, int32_t n)
{
    if (s->mode & NPUC_PLAN_PRESSED) {
        for (int32_t k = 0; k < n; k++) {
            int32_t y = s->lists[list + k];
            if (!remember(s, y)) return OPEN;
            s->refused[y] = -1;
            s->below[y] = -1;
        }
        rank_by_pressure(s, s->lists + list, n);
    }
    return solve(s, list, n);
}

/* Solve the items of a list that are left, part by part in time, the shortest part first. */
static int solve_rest(search *s, int64_t list, int32_t n, int whole)
{
    int32_t from = s->sections, to = 0, left = 0;
    int64_t mark = s->lists_count;
    for (int32_t k = 0; k < n; k++) {
        int32_t y = s->lists[list + k];
        if (s->address[y] >= 0) continue;
        from = s->from[y] < from ? s->from[y] : from;
        to = s->to[y] > to ? s->to[y] : to;
        left++;
    }
    int outcome = FOUND;
    while (left && outcome == FOUND) {
        int32_t best = 0, best_from = 0, best_to = 0;
        for (int32_t t = from, next = from; t < to; t = next) {
            for (next = t + 1; next < to && s->across[next] > 0; next++) {
            }
            int32_t count = 0;
            for (int32_t k = 0; k < n && next - t < to - from; k++) {
                int32_t y = s->lists[list + k];
                count += s->address[y] < 0 && s->from[y] >= t && s->to[y] <= next;
            }
            count = next - t < to - from ? count : left;
            if (count && (!best || count < best)) {
                best = count;
                best_from = t;
                best_to = next;
            }
        }
        int32_t *part = push_list(s, best), fill = 0;
        if (!part) return OPEN;
        for (int32_t k = 0; k < n; k++) {
            int32_t y = s->lists[list + k];
            if (s->address[y] < 0 && s->from[y] >= best_from && s->to[y] <= best_to) part[fill++] = y;
        }
        whole = whole && best == left;
        outcome = whole ? solve(s, mark, best) : solve_part(s, mark, best);
        s->lists_count = mark;
        left -= best;
    }
    return outcome;
}

/* Place the items of a list, which meet no other item that is left. */
static int solve(search *s, int64_t list, int32_t n)
{
    print now = fingerprint(s, s->lists + list, n);
    print *memory = &s->failed[now.a >> (64 - FAILED_BITS)];
    if (memory->a == now.a && memory->b == now.b) return DEAD;
    int32_t placed_count = s->placed_count;
    int64_t entered = s->trail_count;
    int outcome = DEAD;
    for (;;) {
        if (s->steps > s->limit) {
            outcome = OPEN;
            break;
        }
        int32_t *items = s->lists + list;
        if (find_bounds(s, items, n) == DEAD || find_loads(s, items, n) == DEAD) break;
        int32_t x = find_next(s, items, n);
        int64_t trail_count = s->trail_count;
        outcome = place(s, x);
        if (outcome == FOUND) outcome = solve_rest(s, list, n, 1);
        if (outcome == FOUND) return FOUND;
        take_back(s, placed_count, trail_count);
        if (outcome == OPEN || !remember(s, x)) {
            outcome = OPEN;
            break;
        }
        s->refused[x] = s->support[x];
    }
    take_back(s, placed_count, entered);
    if (outcome == DEAD) *memory = now;
    return outcome;
}

/* --- setting up --------------------------------------------------------------------------------------------------- */

static void close_search(search *s)
{
    void *all[] = {s->first, s->segments, s->from,    s->to,      s->height, s->alignment, s->high,   s->free,      s->twin,
                   s->start, s->address,  s->support, s->refused, s->below,  s->rank,      s->bound,  s->skipped,   s->load,
                   s->low,   s->top,      s->across,  s->placed,  s->trail,  s->lists,     s->failed, s->neighbours};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) free(all[k]);
}

static int allocate(search *s, int32_t parts)
{
    size_t n = (size_t)s->items, m = (size_t)s->sections;
    s->trail_room = 1024;
    s->lists_room = 4 * (int64_t)n;
    return (s->first = malloc((n + 1) * sizeof *s->first)) && (s->start = calloc(n + 1, sizeof *s->start)) &&
           (s->segments = malloc(2 * (size_t)parts * sizeof *s->segments)) && (s->from = malloc(n * sizeof *s->from)) &&
           (s->to = malloc(n * sizeof *s->to)) && (s->height = malloc(n * sizeof *s->height)) &&
           (s->alignment = malloc(n * sizeof *s->alignment)) && (s->high = malloc(n * sizeof *s->high)) &&
           (s->free = malloc(n * sizeof *s->free)) && (s->twin = malloc(n * sizeof *s->twin)) &&
           (s->address = malloc(n * sizeof *s->address)) && (s->support = malloc(n * sizeof *s->support)) &&
           (s->refused = malloc(n * sizeof *s->refused)) && (s->below = malloc(n * sizeof *s->below)) &&
           (s->rank = malloc(n * sizeof *s->rank)) && (s->bound = malloc(n * sizeof *s->bound)) &&
           (s->skipped = malloc(n * sizeof *s->skipped)) && (s->load = calloc(m, sizeof *s->load)) &&
           (s->low = malloc(m * sizeof *s->low)) && (s->top = malloc(m * sizeof *s->top)) &&
           (s->across = calloc(m + 1, sizeof *s->across)) && (s->placed = malloc(n * sizeof *s->placed)) &&
           (s->trail = malloc((size_t)s->trail_room * sizeof *s->trail)) && (s->lists = malloc((size_t)s->lists_room * sizeof *s->lists)) &&
           (s->failed = calloc((size_t)1 << FAILED_BITS, sizeof *s->failed));
}

/* The outline of an item: what its parts need in each section, as segments of equal height. */
static int32_t add_outline(search *s, const npuc_plan_problem *p, int32_t item, int32_t count)
{
    int32_t from = s->sections, to = 0;
    for (int32_t part = p->first[item]; part < p->first[item + 1]; part++) {
        from = p->start[part] < from ? p->start[part] : from;
        to = p->end[part] > to ? p->end[part] : to;
        for (int32_t t = p->start[part]; t < p->end[part]; t++) s->load[t] = p->size[part] > s->load[t] ? p->size[part] : s->load[t];
    }
    for (int32_t t = from; t < to;) {
        int32_t next = t + 1;
        while (next < to && s->load[next] == s->load[t]) next++;
        if (s->load[t]) s->segments[count++] = (segment){t, next, s->load[t]};
        t = next;
    }
    memset(s->load + from, 0, (size_t)(to - from) * sizeof *s->load);
    return count;
}

/* How far x lifts y; 0 if they are never alive together. */
static int64_t lift(const search *s, int32_t x, int32_t y)
{
    int64_t most = 0;
    for (int32_t g = s->first[x]; g < s->first[x + 1]; g++)
        for (int32_t h = s->first[y]; h < s->first[y + 1]; h++) {
            const segment *a = &s->segments[g], *b = &s->segments[h];
            if (a->from < b->to && b->from < a->to && a->height > most) most = a->height;
        }
    return most;
}

/* All pairs of items that are alive together: counted in `start` without a place to put them, else written there. */
static int64_t pair_up(search *s, const int32_t *sorted, neighbour *into)
{
    int64_t total = 0;
    for (int32_t i = 0; i < s->items; i++)
        for (int32_t j = i + 1; j < s->items && s->from[sorted[j]] < s->to[sorted[i]]; j++) {
            int32_t x = sorted[i], y = sorted[j];
            int64_t up = lift(s, x, y);
            if (!up) continue;
            if (into) {
                into[s->start[x]++] = (neighbour){y, up};
                into[s->start[y]++] = (neighbour){x, lift(s, y, x)};
            } else {
                s->start[x]++;
                s->start[y]++;
            }
            total += 2;
            if (total > MOST_NEIGHBOURS) return total;
        }
    return total;
}

/* Neighbours of all items, in two rounds: count, then fill. NPUC_UNSUPPORTED if there are too many. */
static npuc_status find_neighbours(search *s)
{
    int32_t *sorted = s->skipped; /* by first section, by counting; `across` is filled later */
    for (int32_t x = 0; x < s->items; x++) s->across[s->from[x] + 1]++;
    for (int32_t t = 0; t < s->sections; t++) s->across[t + 1] += s->across[t];
    for (int32_t x = 0; x < s->items; x++) sorted[s->across[s->from[x]]++] = x;
    memset(s->across, 0, ((size_t)s->sections + 1) * sizeof *s->across);
    int64_t total = pair_up(s, sorted, NULL);
    s->steps += s->items + total / 4;
    if (total > MOST_NEIGHBOURS) return NPUC_UNSUPPORTED;
    s->neighbours = malloc((size_t)(total + 1) * sizeof *s->neighbours);
    if (!s->neighbours) return NPUC_NO_MEMORY;
    for (int64_t x = 0, sum = 0; x <= s->items; x++) {
        int64_t count = s->start[x];
        s->start[x] = sum;
        sum += count;
    }
    pair_up(s, sorted, s->neighbours); /* leaves every start at its end */
    for (int32_t x = s->items; x > 0; x--) s->start[x] = s->start[x - 1];
    s->start[0] = 0;
    return NPUC_OK;
}

static int same(const search *s, int32_t x, int32_t y)
{
    int32_t count = s->first[x + 1] - s->first[x];
    if (count != s->first[y + 1] - s->first[y] || s->alignment[x] != s->alignment[y] || s->high[x] != s->high[y] ||
        s->support[x] != s->support[y])
        return 0;
    for (int32_t k = 0; k < count; k++) {
        const segment *a = &s->segments[s->first[x] + k], *b = &s->segments[s->first[y] + k];
        if (a->from != b->from || a->to != b->to || a->height != b->height) return 0;
    }
    return 1;
}

static npuc_status open_search(search *s, const npuc_plan_problem *p, const int32_t *order)
{
    if (!allocate(s, p->parts)) return NPUC_NO_MEMORY;
    int32_t count = 0;
    for (int32_t x = 0; x < s->items; x++) {
        int32_t item = order[x];
        s->first[x] = count;
        count = add_outline(s, p, item, count);
        s->first[x + 1] = count;
        s->from[x] = s->segments[s->first[x]].from;
        s->to[x] = s->segments[count - 1].to;
        s->height[x] = npuc_plan_height(p, item);
        s->alignment[x] = p->alignment[item];
        s->high[x] = p->high[item] < s->capacity ? p->high[item] : s->capacity;
        s->support[x] = align_up(p->low[item], s->alignment[x]);
        s->free[x] = count - s->first[x] == 1 && s->alignment[x] == 1 && !p->low[item] && s->high[x] == s->capacity;
        s->below[x] = -1;
        s->refused[x] = -1;
        s->address[x] = -1;
        s->rank[x] = x;
        s->lists[x] = x;
        s->twin[x] = s->mode & NPUC_PLAN_TWINS ? x - 1 : -1;
        while (s->twin[x] >= 0 && !same(s, x, s->twin[x])) s->twin[x]--;
    }
    s->lists_count = s->items;
    npuc_status status = find_neighbours(s);
    for (int32_t x = 0; x < s->items; x++)
        for (int32_t t = s->from[x] + 1; t < s->to[x]; t++) s->across[t]++;
    return status;
}

int npuc_plan_search(const npuc_plan_problem *p, const int32_t *order, int32_t mode, int64_t capacity, int64_t *steps, int64_t *address,
                     int32_t *outcome)
{
    npuc_status status = order && steps && address && outcome && capacity > 0 && capacity <= NPUC_PLAN_LARGEST ? npuc_plan_check(p, order)
                                                                                                               : NPUC_BAD_ARGUMENT;
    if (status != NPUC_OK) return status;
    *outcome = OPEN;
    if (p->items > DEEPEST) {
        *steps = 0;
        return NPUC_OK;
    }
    search s = {.items = p->items, .sections = p->sections, .mode = mode, .capacity = capacity, .limit = *steps};
    status = open_search(&s, p, order);
    if (status == NPUC_OK) {
        int fits = 1;
        for (int32_t x = 0; x < s.items; x++) fits = fits && s.support[x] + s.height[x] <= s.high[x];
        *outcome = fits ? solve_rest(&s, 0, s.items, 0) : DEAD;
        for (int32_t x = 0; x < s.items && *outcome == FOUND; x++) address[order[x]] = s.address[x];
        status = s.status;
    } else if (status == NPUC_UNSUPPORTED) {
        status = NPUC_OK; /* too large: it stays open */
    }
    *steps = s.steps;
    close_search(&s);
    return status;
}
