/*
 * The sanitizer: a program is executed while every byte of local memory, of DRAM and of shared memory remembers who wrote it
 * last and who read it since, and every instruction knows what has finished before it starts.
 *
 * What happens before what follows from three rules: a queue works in order; an instruction starts after what its waits name;
 * a barrier of a queue is behind everything that comes before it in that queue of all cores. So each instruction has a clock
 * for each queue: how many instructions of that queue are finished when it starts. An access is ordered behind an earlier one
 * if its clock of the earlier one's queue has passed it; of two accesses to a byte, one of them a write, that are not, the
 * machine could do either first. Programs are executed in an order that their waits allow, so that it is enough to look back.
 *
 * A byte keeps its last writer and the last reader of each queue that can read it: a queue being in order, older ones are
 * behind those; a write forgets the readers before it, which it is behind. Every byte has a state of its own: neighbouring channels of a
 * pixel may belong to two cores.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define PAGE 4096
#define MOST_CORES 64

/* Instructions are numbered from 1 over all cores. */
#define NOBODY 0u
#define HOST UINT32_MAX /* before everything */

typedef struct page {
    uint32_t writer[PAGE];
    uint32_t reader[]; /* [readers][PAGE] */
} page;

/* The shadow of one memory. */
typedef struct region {
    int64_t size;
    int32_t readers;
    int64_t page_count;
    page **pages; /* NULL where nobody has been */
} region;

struct npuc_shadow {
    region segment[256]; /* DRAM and the shared memory, from run to run */
};

typedef struct place {
    int32_t core;
    int32_t queue;
    int64_t instruction;
    int64_t count; /* in its queue, from 1 */
} place;

typedef struct watch {
    npuc_sim *sim;
    const npuc_sim_program *program;
    npuc_shadow *shadow;
    region *local; /* one a core */
    npuc_order order;
    place *places;     /* by number */
    uint32_t *numbers; /* of the first instruction of each core */
    uint32_t *clocks;  /* by number: cores * queues */
    int32_t width;     /* cores * queues */
    npuc_sim_finding *findings;
    int64_t most, found;
    npuc_sim_error *error;
} watch;

/* ---- regions ---- */

static int region_make(region *r, int64_t size, int32_t readers)
{
    *r = (region){.size = size, .readers = readers, .page_count = (size + PAGE - 1) / PAGE};
    r->pages = calloc((size_t)(r->page_count + 1), sizeof *r->pages);
    return r->pages != NULL;
}

static void region_free(region *r)
{
    for (int64_t i = 0; i < r->page_count && r->pages; i++) free(r->pages[i]);
    free(r->pages);
    *r = (region){0};
}

static page *page_at(region *r, int64_t at)
{
    page **slot = &r->pages[at / PAGE];
    if (!*slot) *slot = calloc(1, sizeof **slot + (size_t)r->readers * PAGE * sizeof(uint32_t));
    return *slot;
}

/* What was written stays written, and the host stands between two runs. */
static void region_settle(region *r)
{
    for (int64_t i = 0; i < r->page_count; i++) {
        if (!r->pages[i]) continue;
        for (int64_t k = 0; k < PAGE; k++)
            if (r->pages[i]->writer[k]) r->pages[i]->writer[k] = HOST;
        memset(r->pages[i]->reader, 0, (size_t)r->readers * PAGE * sizeof(uint32_t));
    }
}

static void shadow_clear(npuc_shadow *shadow)
{
    for (int i = 0; i < 256; i++) region_free(&shadow->segment[i]);
}

void npuc_shadow_free(npuc_shadow *shadow)
{
    if (!shadow) return;
    shadow_clear(shadow);
    free(shadow);
}

static npuc_shadow *shadow_of(npuc_sim *sim)
{
    npuc_shadow **slot = npuc_sim_shadow(sim);
    if (!*slot) *slot = calloc(1, sizeof **slot);
    return *slot;
}

/* The host may write before the size of a segment is known here: regions grow. */
static int region_grow(region *r, int64_t size, int32_t readers)
{
    if (r->pages && r->readers >= readers && r->size >= size) return 1;
    region larger;
    if (!region_make(&larger, size > r->size ? size : r->size, readers > r->readers ? readers : r->readers)) return 0;
    for (int64_t i = 0; i < r->page_count && r->pages; i++) {
        if (!r->pages[i]) continue;
        page *copy = page_at(&larger, i * PAGE);
        if (!copy) {
            region_free(&larger);
            return 0;
        }
        memcpy(copy->writer, r->pages[i]->writer, sizeof copy->writer);
    }
    region_free(r);
    *r = larger;
    return 1;
}

npuc_status npuc_sim_mark_written(npuc_sim *sim, int32_t segment, int64_t offset, int64_t size)
{
    if (!sim || segment < 1 || segment > NPUC_SHARED_SEGMENT || offset < 0 || size < 0 || offset > NPUC_HUGE - size)
        return NPUC_BAD_ARGUMENT;
    npuc_shadow *shadow = shadow_of(sim);
    if (!shadow || !region_grow(&shadow->segment[segment], offset + size, npuc_sim_core_count(sim))) return NPUC_NO_MEMORY;
    for (int64_t at = offset; at < offset + size; at++) {
        page *p = page_at(&shadow->segment[segment], at);
        if (!p) return NPUC_NO_MEMORY;
        p->writer[at % PAGE] = HOST;
    }
    return NPUC_OK;
}

/* ---- findings ---- */

static void describe(const watch *w, uint32_t number, int32_t *core, int64_t *instruction, int32_t *opcode, uint32_t *layer)
{
    const place *at = &w->places[number];
    npuc_head head;
    memcpy(&head, npuc_order_record(&w->order.core[at->core], at->instruction), sizeof head);
    *core = at->core;
    *instruction = at->instruction;
    *opcode = head.opcode;
    *layer = head.layer;
}

/* One finding for each fault, pair of instructions and operand; further bytes are counted. */
static void report(watch *w, int32_t fault, uint32_t number, const npuc_access *access, int64_t address, int64_t bytes, uint32_t other,
                   int other_write)
{
    npuc_sim_finding f = {
        .fault = fault, .space = access->space, .other_core = -1, .write = access->write, .address = address, .bytes = bytes};
    describe(w, number, &f.core, &f.instruction, &f.opcode, &f.layer);
    if (other != NOBODY && other != HOST) {
        describe(w, other, &f.other_core, &f.other, &f.other_opcode, &f.other_layer);
        f.other_write = other_write;
    }
    memcpy(f.operand, access->what, strlen(access->what) < 15 ? strlen(access->what) : 15);
    const int64_t kept = w->found < w->most ? w->found : w->most;
    for (int64_t i = kept - 1; i >= 0; i--) {
        npuc_sim_finding *g = &w->findings[i];
        if (g->core != f.core || g->instruction != f.instruction) break; /* findings of an instruction are together */
        if (g->fault == fault && g->other_core == f.other_core && g->other == f.other && g->other_write == f.other_write &&
            memcmp(g->operand, f.operand, sizeof f.operand) == 0) {
            g->bytes += bytes;
            return;
        }
    }
    if (w->found < w->most) w->findings[w->found] = f;
    w->found++;
}

/* ---- order ---- */

static uint32_t number_of(const watch *w, int32_t core, int64_t instruction) { return w->numbers[core] + (uint32_t)instruction; }
static uint32_t *clock_of(const watch *w, uint32_t number) { return w->clocks + (size_t)number * (size_t)w->width; }

/* After instruction `number` has finished. */
static void join(const watch *w, uint32_t *clock, uint32_t number)
{
    const uint32_t *other = clock_of(w, number);
    const place *at = &w->places[number];
    const int32_t own = at->core * NPUC_QUEUES + at->queue;
    for (int32_t i = 0; i < w->width; i++)
        if (other[i] > clock[i]) clock[i] = other[i];
    if (clock[own] < at->count) clock[own] = (uint32_t)at->count;
}

static void start_clock(const watch *w, uint32_t number)
{
    const place *at = &w->places[number];
    const npuc_core_order *core = &w->order.core[at->core];
    uint32_t *clock = clock_of(w, number);
    npuc_head head;
    memcpy(&head, npuc_order_record(core, at->instruction), sizeof head);
    if (at->count > 1) join(w, clock, number_of(w, at->core, core->place[core->first[at->queue] + at->count - 2]));
    for (int q = 0; q < NPUC_QUEUES; q++)
        if (head.wait[q]) join(w, clock, number_of(w, at->core, core->place[core->first[q] + head.wait[q] - 1]));
}

static int is_behind(const watch *w, const uint32_t *clock, uint32_t earlier)
{
    if (earlier == HOST) return 1;
    const place *at = &w->places[earlier];
    return clock[at->core * NPUC_QUEUES + at->queue] >= at->count;
}

/* ---- accesses ---- */

/* Runs of bytes with one state are looked at once. */
static npuc_status touch(watch *w, region *r, uint32_t number, const npuc_access *access, int64_t at, int64_t run, int32_t reader)
{
    const uint32_t *clock = clock_of(w, number);
    for (int64_t end = at + run; at < end;) {
        page *p = page_at(r, at);
        if (!p) return npuc_sim_fail(w->error, "memory is short"), NPUC_NO_MEMORY;
        const int64_t first = at % PAGE, last = at / PAGE * PAGE + PAGE < end ? PAGE : first + (end - at);
        for (int64_t k = first; k < last;) {
            const uint32_t writer = p->writer[k];
            int64_t same = k + 1;
            while (same < last && p->writer[same] == writer) same++;
            const int64_t address = at + k - first;
            if (writer == NOBODY) {
                if (!access->write) report(w, NPUC_SIM_UNWRITTEN, number, access, address, same - k, NOBODY, 0);
            } else if (writer != number && !is_behind(w, clock, writer)) {
                report(w, NPUC_SIM_RACE, number, access, address, same - k, writer, 1);
            }
            k = same;
        }
        for (int32_t i = 0; i < r->readers && access->write; i++) {
            uint32_t *readers = p->reader + (size_t)i * PAGE;
            for (int64_t k = first; k < last;) {
                const uint32_t other = readers[k];
                int64_t same = k + 1;
                while (same < last && readers[same] == other) same++;
                if (other != NOBODY && other != number && !is_behind(w, clock, other))
                    report(w, NPUC_SIM_RACE, number, access, at + k - first, same - k, other, 0);
                k = same;
            }
            memset(readers + first, 0, (size_t)(last - first) * sizeof *readers);
        }
        uint32_t *mine = access->write ? p->writer : p->reader + (size_t)reader * PAGE;
        for (int64_t k = first; k < last; k++) mine[k] = number;
        at += last - first;
    }
    return NPUC_OK;
}

static npuc_status touch_access(watch *w, uint32_t number, const npuc_access *access)
{
    const place *at = &w->places[number];
    if (access->space == 0) return NPUC_OK; /* constants are never written */
    region *r = access->space == NPUC_LOCAL ? &w->local[at->core] : &w->shadow->segment[access->space];
    /* Local memory is read by the queues of its core, all else by the load queues, and behind those by kernels of the vector queues. */
    const int32_t behind = at->queue == NPUC_QUEUE_VECTOR ? npuc_sim_core_count(w->sim) : 0;
    const int32_t reader = access->space == NPUC_LOCAL ? at->queue - NPUC_QUEUE_STORE : behind + at->core;
    npuc_blocks blocks = npuc_blocks_of(access);
    for (int64_t first; npuc_next_block(&blocks, &first);) {
        npuc_status status = touch(w, r, number, access, first, access->run, reader);
        if (status) return status;
    }
    return NPUC_OK;
}

static npuc_status observe(void *context, int32_t core, int64_t instruction, const npuc_decoded *decoded)
{
    watch *w = context;
    const uint32_t number = number_of(w, core, instruction);
    npuc_status status = NPUC_OK;
    start_clock(w, number);
    for (int write = 0; write <= 1; write++)
        for (int32_t i = 0; i < decoded->count && !status; i++)
            if (decoded->access[i].write == write) status = touch_access(w, number, &decoded->access[i]);
    return status;
}

/* The barrier at the head of a queue of all cores: each is behind what all of them are behind. */
static void observe_barrier(void *context, const npuc_order *order, int queue)
{
    watch *w = context;
    for (int32_t c = 0; c < order->cores; c++) start_clock(w, number_of(w, c, npuc_order_head(&order->core[c], queue)));
    uint32_t *first = clock_of(w, number_of(w, 0, npuc_order_head(&order->core[0], queue)));
    for (int32_t c = 1; c < order->cores; c++) {
        const uint32_t *other = clock_of(w, number_of(w, c, npuc_order_head(&order->core[c], queue)));
        for (int32_t i = 0; i < w->width; i++)
            if (other[i] > first[i]) first[i] = other[i];
    }
    for (int32_t c = 1; c < order->cores; c++)
        memcpy(clock_of(w, number_of(w, c, npuc_order_head(&order->core[c], queue))), first, (size_t)w->width * sizeof *first);
}

/* ---- allocations ---- */

typedef struct sorted {
    const npuc_sim_allocation **by_first;
    const npuc_sim_allocation **live;
    int64_t count, next, live_count;
} sorted;

static int by_first(const void *a, const void *b)
{
    const npuc_sim_allocation *x = *(const npuc_sim_allocation *const *)a, *y = *(const npuc_sim_allocation *const *)b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* The end of what live allocations cover from `at` on without a gap; for an engine, of one of them. */
static int64_t covered(const sorted *s, int64_t at, int64_t end, int one)
{
    for (int again = 1; again && at < end;) {
        int64_t best = at;
        again = 0;
        for (int64_t i = 0; i < s->live_count; i++)
            if (s->live[i]->address <= at && s->live[i]->address + s->live[i]->size > best) best = s->live[i]->address + s->live[i]->size;
        if (best > at) at = best, again = !one;
    }
    return at < end ? at : end;
}

static void check_core(watch *w, int32_t core, sorted *s)
{
    const npuc_core_order *order = &w->order.core[core];
    for (int64_t i = 0; i < order->count; i++) {
        npuc_decoded d;
        int64_t kept = 0;
        for (int64_t k = 0; k < s->live_count; k++)
            if (s->live[k]->last >= i) s->live[kept++] = s->live[k];
        s->live_count = kept;
        for (; s->next < s->count && s->by_first[s->next]->first <= i; s->next++)
            if (s->by_first[s->next]->last >= i) s->live[s->live_count++] = s->by_first[s->next];
        npuc_sim_error ignored; /* the run tells of instructions that cannot be executed */
        if (npuc_decode(npuc_order_record(order, i), &d, &ignored)) continue;
        const int engine = d.record.head.opcode > NPUC_OP_STORE;
        for (int32_t k = 0; k < d.count; k++) {
            const npuc_access *a = &d.access[k];
            if (a->space != NPUC_LOCAL) continue;
            const int64_t end = covered(s, a->low, a->high, engine);
            if (end < a->high) report(w, NPUC_SIM_OUTSIDE, number_of(w, core, i), a, end, a->high - end, NOBODY, 0);
        }
    }
}

static npuc_status check_allocations(watch *w, const npuc_sim_allocation *allocations, int64_t count)
{
    sorted s = {.by_first = malloc((size_t)(count + 1) * sizeof *s.by_first), .live = malloc((size_t)(count + 1) * sizeof *s.live)};
    const int enough = s.by_first && s.live;
    for (int32_t c = 0; c < w->order.cores && enough; c++) {
        s.count = s.next = s.live_count = 0;
        for (int64_t i = 0; i < count; i++)
            if (allocations[i].core == c && allocations[i].address >= 0 && allocations[i].size >= 0 &&
                allocations[i].address <= NPUC_HUGE && allocations[i].size <= NPUC_HUGE)
                s.by_first[s.count++] = &allocations[i];
        qsort(s.by_first, (size_t)s.count, sizeof *s.by_first, by_first);
        check_core(w, c, &s);
    }
    free(s.by_first);
    free(s.live);
    return enough ? NPUC_OK : (npuc_sim_fail(w->error, "memory is short"), NPUC_NO_MEMORY);
}

/* ---- all ---- */

static void number_instructions(watch *w)
{
    uint32_t number = 1;
    for (int32_t c = 0; c < w->order.cores; c++) {
        int64_t counts[NPUC_QUEUES] = {0};
        w->numbers[c] = number;
        for (int64_t i = 0; i < w->order.core[c].count; i++, number++) {
            const int queue = npuc_order_record(&w->order.core[c], i)[1];
            w->places[number] = (place){c, queue, i, ++counts[queue]};
        }
    }
}

/* Whether an instruction of the vector engine reads memory far away. */
static int has_global_kernels(const watch *w)
{
    for (int32_t c = 0; c < w->order.cores; c++)
        for (int64_t i = 0; i < w->order.core[c].count; i++)
            if (npuc_order_record(&w->order.core[c], i)[0] == NPUC_OP_CUSTOM_GLOBAL) return 1;
    return 0;
}

static npuc_status prepare(watch *w)
{
    const npuc_sim_program *program = w->program;
    int64_t total = 1;
    for (int32_t c = 0; c < w->order.cores; c++) total += w->order.core[c].count;
    w->width = w->order.cores * NPUC_QUEUES;
    if (w->order.cores > MOST_CORES || total > ((int64_t)1 << 32) / w->width)
        return npuc_sim_fail(w->error, "too many instructions or cores for the sanitizer");
    w->shadow = shadow_of(w->sim);
    w->local = calloc((size_t)w->order.cores, sizeof *w->local);
    w->places = calloc((size_t)total, sizeof *w->places);
    w->numbers = calloc((size_t)w->order.cores, sizeof *w->numbers);
    w->clocks = calloc((size_t)(total * w->width), sizeof *w->clocks);
    int enough = w->shadow && w->local && w->places && w->numbers && w->clocks;
    const int32_t readers = npuc_sim_core_count(w->sim) * (has_global_kernels(w) ? 2 : 1);
    for (int32_t c = 0; c < w->order.cores && enough; c++) enough = region_make(&w->local[c], npuc_sim_local_size(w->sim), NPUC_QUEUES - 1);
    for (int32_t i = 1; i < program->segment_count && i < NPUC_SHARED_SEGMENT && enough; i++)
        enough = program->segments[i].size >= 0 && region_grow(&w->shadow->segment[i], program->segments[i].size, readers);
    if (enough) enough = region_grow(&w->shadow->segment[NPUC_SHARED_SEGMENT], npuc_sim_shared_size(w->sim), readers);
    if (!enough) return npuc_sim_fail(w->error, "memory is short"), NPUC_NO_MEMORY;
    number_instructions(w);
    return NPUC_OK;
}

npuc_status npuc_sim_sanitize(npuc_sim *sim, const npuc_sim_program *program, int32_t threads, const npuc_sim_allocation *allocations,
                              int64_t allocation_count, npuc_sim_finding *findings, int64_t most, int64_t *found, npuc_sim_error *error)
{
    if (!sim || !program || !found || most < 0 || (most && !findings) || allocation_count < 0 || (allocation_count && !allocations))
        return npuc_sim_fail(error, "nothing to sanitize");
    watch w = {.sim = sim, .program = program, .findings = findings, .most = most, .error = error};
    const npuc_observer observer = {observe, observe_barrier, &w, NULL};
    *found = 0;
    npuc_status status = npuc_order_make(&w.order, program, NULL, error);
    if (status) return status;
    status = prepare(&w);
    if (!status && allocation_count) status = check_allocations(&w, allocations, allocation_count);
    npuc_sim_guard(sim, 1);
    if (!status) status = npuc_sim_execute(sim, program, threads, &observer, error);
    npuc_sim_guard(sim, 0);
    *found = w.found;
    for (int i = 1; i < 256 && w.shadow; i++)
        if (w.shadow->segment[i].pages) region_settle(&w.shadow->segment[i]);
    for (int32_t c = 0; c < w.order.cores && w.local; c++) region_free(&w.local[c]);
    free(w.local);
    free(w.places);
    free(w.numbers);
    free(w.clocks);
    npuc_order_free(&w.order);
    return status;
}
