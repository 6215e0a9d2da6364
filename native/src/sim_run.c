/*
 * Instruction mode: memories, the walk over the queues, and the check of every access before its instruction is executed.
 *
 * The kernels themselves are those of graph mode; sim_execute.c calls them.
 */
#include <stdlib.h>
#include <string.h>

#include "sim_execute.h"

#define MOST_CORES 1024
#define MOST_LOCAL ((int64_t)1 << 32)
#define MOST_MEMORY ((int64_t)1 << 40)

struct npuc_sim {
    int32_t cores;
    int64_t local_size, local_step, shared_size;
    uint8_t *local, *shared;
    const uint8_t *constants;
    int64_t constants_size;
    npuc_origin *origin; /* one a core */
    npuc_workshop workshop;
    npuc_buffer order;
    int64_t local_used, shared_used; /* the last byte that an instruction has touched, and one */
    int64_t stale; /* bytes at the beginning of each local memory that may not be zero */
    npuc_shadow *shadow;
};

npuc_shadow **npuc_sim_shadow(npuc_sim *sim) { return &sim->shadow; }
int64_t npuc_sim_local_size(const npuc_sim *sim) { return sim->local_size; }
int64_t npuc_sim_shared_size(const npuc_sim *sim) { return sim->shared_size; }
int32_t npuc_sim_core_count(const npuc_sim *sim) { return sim->cores; }
void npuc_sim_guard(npuc_sim *sim, int32_t guarded) { sim->workshop.guarded = guarded; }

static int is_sane(int32_t cores, int64_t local_size, int64_t shared_size, const uint8_t *constants, int64_t constants_size)
{
    return cores >= 1 && cores <= MOST_CORES && local_size >= 1 && local_size <= MOST_LOCAL && shared_size >= 0 &&
           shared_size <= MOST_MEMORY && constants_size >= 0 && (!constants_size || constants);
}

#if defined(NPUC_NO_HEAP)

npuc_sim *npuc_sim_create_at(uint8_t *memory, int64_t *size, const npuc_sim_needs *needs, int32_t cores, const uint8_t *constants,
                             int64_t constants_size)
{
    const int64_t local_size = needs->local > 0 ? needs->local : 1, shared_size = needs->shared;
    enum { STRUCT, LOCAL, SHARED, ORIGIN, FIRST_BUFFER, PIECES = FIRST_BUFFER + NPUC_SIM_BUFFERS };
    if (!is_sane(cores, local_size, shared_size, constants, constants_size)) return NULL;
    const int64_t local_step = (local_size + 63) / 64 * 64;
    int64_t at[PIECES + 1] = {0};
    for (int i = 0; i < PIECES; i++) {
        const int64_t bytes = i == STRUCT   ? (int64_t)sizeof(npuc_sim)
                              : i == LOCAL  ? local_step * cores
                              : i == SHARED ? shared_size
                              : i == ORIGIN ? cores * (int64_t)sizeof(npuc_origin)
                                            : needs->buffer[i - FIRST_BUFFER];
        at[i + 1] = at[i] + (bytes + 63) / 64 * 64;
    }
    const int64_t room = *size;
    *size = at[PIECES];
    if (!memory || room < at[PIECES]) return NULL;
    npuc_sim *sim = (npuc_sim *)(void *)memory;
    *sim = (npuc_sim){.cores = cores,
                      .local_size = local_size,
                      .local_step = local_step,
                      .stale = local_step,
                      .shared_size = shared_size,
                      .local = memory + at[LOCAL],
                      .shared = memory + at[SHARED],
                      .constants = constants,
                      .constants_size = constants_size,
                      .origin = (npuc_origin *)(void *)(memory + at[ORIGIN])};
    memset(sim->origin, 0, (size_t)cores * sizeof *sim->origin);
    npuc_buffer *buffers[] = {&sim->workshop.layers.once, &sim->workshop.layers.weights, &sim->workshop.layers.biases,
                              &sim->workshop.scratch,     &sim->workshop.tables,         &sim->order};
    for (int i = 0; i < NPUC_SIM_BUFFERS; i++) *buffers[i] = (npuc_buffer){.data = memory + at[FIRST_BUFFER + i], .size = needs->buffer[i]};
    return sim;
}

#else

npuc_sim *npuc_sim_create(int32_t cores, int64_t local_size, int64_t shared_size, const uint8_t *constants, int64_t constants_size)
{
    if (!is_sane(cores, local_size, shared_size, constants, constants_size)) return NULL;
    npuc_sim *sim = calloc(1, sizeof *sim);
    if (!sim) return NULL;
    sim->cores = cores;
    sim->local_size = local_size;
    sim->stale = sim->local_step = (local_size + 63) / 64 * 64;
    sim->shared_size = shared_size;
    sim->constants = constants;
    sim->constants_size = constants_size;
    sim->local = aligned_alloc(64, (size_t)sim->local_step * (size_t)cores);
    sim->shared = aligned_alloc(64, (size_t)(shared_size + 64) / 64 * 64);
    sim->origin = calloc((size_t)cores, sizeof *sim->origin);
    if (!sim->local || !sim->shared || !sim->origin) {
        npuc_sim_destroy(sim);
        return NULL;
    }
    return sim;
}

void npuc_sim_destroy(npuc_sim *sim)
{
    if (!sim) return;
    for (int32_t c = 0; sim->origin && c < sim->cores; c++) npuc_origin_free(&sim->origin[c]);
    free(sim->origin);
    free(sim->local);
    free(sim->shared);
    npuc_workshop_free(&sim->workshop);
    npuc_buffer_free(&sim->order);
    npuc_shadow_free(sim->shadow);
    free(sim);
}

void npuc_sim_be_frugal(npuc_sim *sim) { npuc_layers_be_frugal(&sim->workshop.layers); }

void npuc_sim_needed(const npuc_sim *sim, npuc_sim_needs *needs)
{
    const npuc_workshop *w = &sim->workshop;
    const npuc_buffer *buffers[] = {&w->layers.once, &w->layers.weights, &w->layers.biases, &w->scratch, &w->tables, &sim->order};
    for (int i = 0; i < NPUC_SIM_BUFFERS; i++) needs->buffer[i] = buffers[i]->most;
    needs->local = sim->local_used;
    needs->shared = sim->shared_used;
}

#endif

/* ---- checks ---- */

uint8_t *npuc_sim_memory_of(const npuc_sim *sim, const npuc_sim_program *program, int32_t core, const npuc_access *a, int64_t *size)
{
    if (a->space == NPUC_LOCAL) {
        *size = sim->local_size;
        return sim->local + core * sim->local_step;
    }
    if (a->space == NPUC_SHARED_SEGMENT) {
        *size = sim->shared_size;
        return sim->shared;
    }
    if (a->space >= program->segment_count) return NULL;
    *size = a->space ? program->segments[a->space].size : sim->constants_size;
    /* The constants are never written: check() has seen to it. */
    return a->space ? program->segments[a->space].data : (uint8_t *)(uintptr_t)sim->constants;
}

static npuc_status check(npuc_sim *sim, const npuc_sim_program *program, int32_t core, const npuc_decoded *d, npuc_sim_error *error)
{
    for (int32_t i = 0; i < d->count; i++) {
        const npuc_access *a = &d->access[i];
        int64_t size = 0;
        if (!npuc_sim_memory_of(sim, program, core, a, &size)) return npuc_sim_fail(error, "there is no segment %d", a->space);
        if (a->write && a->space == 0) return npuc_sim_fail(error, "writes to the constants, segment 0");
        if (a->low < 0 || a->high > size)
            return npuc_sim_fail(error, "%s takes bytes %lld to %lld of %s, which has %lld", a->what, (long long)a->low, (long long)a->high,
                                 a->space == NPUC_LOCAL ? "local memory" : "its segment", (long long)size);
        if (a->bytes > size) return npuc_sim_fail(error, "%s takes some bytes more than once", a->what);
        if (a->space == NPUC_LOCAL && a->high > sim->local_used) sim->local_used = a->high;
        if (a->space == NPUC_SHARED_SEGMENT && a->high > sim->shared_used) sim->shared_used = a->high;
    }
    return NPUC_OK;
}

static void remember_origin(npuc_sim *sim, int32_t core, const npuc_decoded *d)
{
    npuc_origin *origin = &sim->origin[core];
    for (int32_t i = 0; i < d->count; i++)
        if (d->access[i].write && d->access[i].space == NPUC_LOCAL) npuc_origin_cut(origin, d->access[i].low, d->access[i].high);
    if (d->record.head.opcode != NPUC_OP_LOAD || d->access[0].space != 0) return;
    const npuc_access *far = &d->access[0], *near = &d->access[1];
    if (d->record.head.flags & NPUC_COMPRESSED) {
        /* Byte k of what is decoded from byte n is constant 2^32 (n + 1) + k: no local memory is larger, no constant as far. */
        if (sim->constants_size <= (int64_t)1 << 30 && near->run < MOST_LOCAL)
            npuc_origin_set(origin, near->at, near->at + near->run, (far->at + 1) * MOST_LOCAL);
    } else if (!far->axes && !near->axes) {
        npuc_origin_set(origin, near->at, near->at + near->run, far->at);
    }
}

/* ---- the walk ---- */

static int is_ready(const npuc_order *order, int32_t core, int queue)
{
    const npuc_core_order *own = &order->core[core];
    const int64_t at = npuc_order_head(own, queue);
    npuc_head head;
    if (at < 0) return 0;
    memcpy(&head, npuc_order_record(own, at), sizeof head);
    for (int q = 0; q < NPUC_QUEUES; q++)
        if (head.wait[q] > own->done[q]) return 0;
    if (head.opcode != NPUC_OP_BARRIER) return 1;
    const uint32_t number = npuc_order_barrier(own, queue);
    for (int32_t c = 0; c < order->cores; c++)
        if (npuc_order_barrier(&order->core[c], queue) != number) return 0;
    return 1;
}

static npuc_status step(npuc_sim *sim, const npuc_sim_program *program, npuc_order *order, int32_t core, int queue, int32_t threads,
                        const npuc_observer *observer, npuc_sim_error *error)
{
    npuc_core_order *own = &order->core[core];
    const int64_t at = npuc_order_head(own, queue);
    const uint8_t *record = npuc_order_record(own, at);
    npuc_decoded decoded;
    if (record[0] == NPUC_OP_BARRIER) {
        if (observer && observer->barrier) observer->barrier(observer->context, order, queue);
        for (int32_t c = 0; c < order->cores; c++) order->core[c].done[queue]++;
        return NPUC_OK;
    }
    npuc_status status = npuc_decode(record, &decoded, error);
    if (!status) status = check(sim, program, core, &decoded, error);
    if (!status && observer && observer->instruction) status = observer->instruction(observer->context, core, at, &decoded);
    if (!status) {
        uint8_t *memory[NPUC_ACCESSES] = {NULL};
        int64_t size;
        for (int32_t i = 0; i < decoded.count; i++) memory[i] = npuc_sim_memory_of(sim, program, core, &decoded.access[i], &size);
        status = npuc_sim_instruction(&sim->workshop, &decoded, sim->local + core * sim->local_step, memory, &sim->origin[core], threads,
                                      error);
    }
    if (!status && observer && observer->finished) status = observer->finished(observer->context, core, at, &decoded);
    if (status) return npuc_sim_at(error, status, core, at, record[0]);
    remember_origin(sim, core, &decoded);
    own->done[queue]++;
    return NPUC_OK;
}

/* Nobody can go on: name an instruction that waits. */
static npuc_status stuck(const npuc_order *order, npuc_sim_error *error)
{
    for (int32_t c = 0; c < order->cores; c++)
        for (int q = 0; q < NPUC_QUEUES; q++) {
            const int64_t at = npuc_order_head(&order->core[c], q);
            if (at < 0) continue;
            npuc_status status = npuc_sim_fail(error, "waits for ever: not every core comes to this barrier");
            return npuc_sim_at(error, status, c, at, npuc_order_record(&order->core[c], at)[0]);
        }
    return NPUC_OK;
}

npuc_status npuc_sim_execute(npuc_sim *sim, const npuc_sim_program *program, int32_t threads, const npuc_observer *observer,
                             npuc_sim_error *error)
{
    npuc_order order;
    if (!sim || !program || threads < 1 || threads > 1024) return npuc_sim_fail(error, "no simulator, or %d threads", threads);
    if (program->cores > sim->cores) return npuc_sim_fail(error, "a program for %d cores on a machine of %d", program->cores, sim->cores);
    if (program->segment_count < 0 || program->segment_count > NPUC_SHARED_SEGMENT || (program->segment_count && !program->segments))
        return npuc_sim_fail(error, "%d segments", program->segment_count);
    for (int32_t i = 1; i < program->segment_count; i++)
        if (program->segments[i].size < 0 || !program->segments[i].data) return npuc_sim_fail(error, "segment %d is not there", i);
    npuc_status status = npuc_order_make(&order, program, &sim->order, error);
    if (status) return status;
    /* A run finds zeros. Only what instructions have touched is cleared: for a small network, all of it would be most of the time. */
    for (int32_t c = 0; c < sim->cores; c++) {
        memset(sim->local + c * sim->local_step, 0, (size_t)sim->stale);
        sim->origin[c].count = 0;
    }
    for (int going = 1; going && !status;) {
        going = 0;
        for (int32_t core = 0; core < order.cores && !status; core++)
            for (;;) {
                int64_t earliest = INT64_MAX;
                int chosen = -1;
                for (int q = 0; q < NPUC_QUEUES; q++) {
                    const int64_t at = npuc_order_head(&order.core[core], q);
                    if (at >= 0 && at < earliest && is_ready(&order, core, q)) earliest = at, chosen = q;
                }
                if (chosen < 0) break;
                going = 1;
                status = step(sim, program, &order, core, chosen, threads, observer, error);
                if (status) break;
            }
    }
    if (!status) status = stuck(&order, error);
    sim->stale = sim->local_used;
    npuc_order_free(&order);
    return status;
}

npuc_status npuc_sim_run(npuc_sim *sim, const npuc_sim_program *program, int32_t threads, npuc_sim_error *error)
{
    return npuc_sim_execute(sim, program, threads, NULL, error);
}
