/*
 * The order of a program: which queue each instruction is in, and what it waits for.
 *
 * A wait never names a later instruction of the stream, so that one core alone can never be stuck; barriers can, and whoever
 * walks the queues finds out.
 */
#include <string.h>

#include "sim.h"

#define MOST_CORES 1024
#define MOST_INSTRUCTIONS ((int64_t)1 << 30)

static int32_t queue_of(int32_t opcode)
{
    switch (opcode) {
#define QUEUE(name, opcode, queue)                                                                                                         \
    case opcode: return queue;
        NPUC_INSTRUCTIONS(QUEUE)
#undef QUEUE
    default: return -1;
    }
}

static npuc_status check_head(const npuc_head *head, const int64_t *before, npuc_sim_error *error)
{
    const int32_t queue = queue_of(head->opcode);
    if (queue < 0) return npuc_sim_fail(error, "%d is no opcode", head->opcode);
    if (head->queue >= NPUC_QUEUES || (queue != NPUC_ANY_QUEUE && head->queue != queue))
        return npuc_sim_fail(error, "%s cannot be in queue %d", npuc_opcode_name(head->opcode), head->queue);
    const int known = head->opcode == NPUC_OP_LOAD ? NPUC_MULTICAST | NPUC_COMPRESSED : head->opcode == NPUC_OP_CONV ? NPUC_SPARSE : 0;
    if (head->flags & ~known)
        return npuc_sim_fail(error, "flags are 0x%x", head->flags);
    for (int q = 0; q < NPUC_QUEUES; q++)
        if (head->wait[q] > before[q])
            return npuc_sim_fail(error, "waits for %u instructions of queue %d, and %lld come before it", head->wait[q], q,
                                 (long long)before[q]);
    return NPUC_OK;
}

static npuc_status make_core(npuc_core_order *core, int32_t index, npuc_sim_error *error)
{
    int64_t before[NPUC_QUEUES] = {0};
    uint32_t barriers[NPUC_QUEUES] = {0};
    for (int64_t i = 0; i < core->count; i++) {
        npuc_i_barrier record;
        memcpy(&record, npuc_order_record(core, i), sizeof record);
        npuc_status status = check_head(&record.head, before, error);
        const int queue = record.head.queue;
        if (!status && record.head.opcode == NPUC_OP_BARRIER && record.number != ++barriers[queue])
            status = npuc_sim_fail(error, "barrier %u of its queue has number %u", barriers[queue], record.number);
        if (status) return npuc_sim_at(error, status, index, i, record.head.opcode);
        before[queue]++;
    }
    int64_t at = 0;
    for (int q = 0; q < NPUC_QUEUES; q++) {
        core->first[q] = at;
        core->length[q] = before[q];
        at += before[q];
        before[q] = core->first[q];
    }
    for (int64_t i = 0; i < core->count; i++) core->place[before[npuc_order_record(core, i)[1]]++] = i;
    return NPUC_OK;
}

npuc_status npuc_order_make(npuc_order *order, const npuc_sim_program *program, npuc_buffer *memory, npuc_sim_error *error)
{
    *order = (npuc_order){0};
    if (!program || program->cores < 1 || program->cores > MOST_CORES || !program->streams || !program->counts)
        return npuc_sim_fail(error, "a program has 1 to %d streams", MOST_CORES);
    int64_t places = 0;
    for (int32_t c = 0; c < program->cores; c++) {
        const int64_t count = program->counts[c];
        if (count < 0 || count > MOST_INSTRUCTIONS || (count && !program->streams[c]))
            return npuc_sim_fail(error, "a stream of %lld instructions", (long long)count);
        places += count;
    }
    const int64_t heads = program->cores * (int64_t)sizeof *order->core;
    uint8_t *tables = npuc_buffer_get(memory ? memory : &order->own, heads + places * (int64_t)sizeof *order->core->place);
    if (!tables) return npuc_sim_fail(error, "memory is short"), NPUC_NO_MEMORY;
    memset(tables, 0, (size_t)heads);
    order->core = (npuc_core_order *)(void *)tables;
    order->cores = program->cores;
    int64_t *place = (int64_t *)(void *)(tables + heads);
    for (int32_t c = 0; c < program->cores; c++) {
        npuc_core_order *core = &order->core[c];
        core->count = program->counts[c];
        core->stream = program->streams[c];
        core->place = place;
        place += core->count;
        const npuc_status status = make_core(core, c, error);
        if (status) {
            npuc_order_free(order);
            return status;
        }
    }
    return NPUC_OK;
}

void npuc_order_free(npuc_order *order)
{
    npuc_buffer_free(&order->own);
    *order = (npuc_order){0};
}

int64_t npuc_order_head(const npuc_core_order *core, int queue)
{
    return core->done[queue] < core->length[queue] ? core->place[core->first[queue] + core->done[queue]] : -1;
}

const uint8_t *npuc_order_record(const npuc_core_order *core, int64_t instruction) { return core->stream + instruction * NPUC_RECORD; }

uint32_t npuc_order_barrier(const npuc_core_order *core, int queue)
{
    const int64_t at = npuc_order_head(core, queue);
    npuc_i_barrier record;
    if (at < 0) return 0;
    memcpy(&record, npuc_order_record(core, at), sizeof record);
    if (record.head.opcode != NPUC_OP_BARRIER) return 0;
    for (int q = 0; q < NPUC_QUEUES; q++)
        if (record.head.wait[q] > core->done[q]) return 0;
    return record.number;
}
