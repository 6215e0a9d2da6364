/*
 * Instruction mode with somebody who looks on: what instructions write of some tensors is copied piece by piece, also where a
 * tensor is never in one memory as a whole, or replaced by what the caller wants to be there.
 */
#include <string.h>

#include "sim.h"

typedef struct context {
    const npuc_sim *sim;
    const npuc_sim_program *program;
    const npuc_sim_watch *watch;
    int32_t stopped;
    npuc_sim_error *error;
} context;

/* One block of bytes that an instruction wrote, as far as it belongs to the tensor. */
static void take(const npuc_sim_view *view, const npuc_sim_tensor *tensor, uint8_t *memory, int64_t low, int64_t high)
{
    const int64_t end = view->address + (view->size < tensor->size - view->at ? view->size : tensor->size - view->at);
    if (low < view->address) low = view->address;
    if (high > end) high = end;
    if (low >= high) return;
    const int64_t at = view->at + low - view->address;
    const size_t count = (size_t)(high - low);
    if (tensor->forced) {
        memcpy(memory + low, tensor->forced + at, count);
    } else {
        memcpy(tensor->data + at, memory + low, count);
        memset(tensor->written + at, 1, count);
    }
}

static npuc_status finished(void *opaque, int32_t core, int64_t instruction, const npuc_decoded *decoded)
{
    context *c = opaque;
    const npuc_sim_watch *watch = c->watch;
    const int64_t *starts = watch->starts[core];
    for (int64_t k = starts[instruction]; k < starts[instruction + 1]; k++) {
        const npuc_sim_view *view = &watch->views[watch->entries[k]];
        for (int32_t i = 0; i < decoded->count; i++) {
            const npuc_access *access = &decoded->access[i];
            if (!access->write || access->space != view->space) continue;
            int64_t size, at;
            uint8_t *memory = npuc_sim_memory_of(c->sim, c->program, core, access, &size);
            npuc_blocks blocks = npuc_blocks_of(access);
            while (npuc_next_block(&blocks, &at)) take(view, &watch->tensors[view->tensor], memory, at, at + access->run);
        }
        if (--watch->left[view->tensor] == 0 && watch->finished(view->tensor)) c->stopped = 1;
    }
    return c->stopped ? npuc_sim_fail(c->error, "stopped") : NPUC_OK;
}

npuc_status npuc_sim_run_watched(npuc_sim *sim, const npuc_sim_program *program, int32_t threads, const npuc_sim_watch *watch,
                                 int32_t *stopped, npuc_sim_error *error)
{
    if (!watch || !stopped) return npuc_sim_fail(error, "nothing to watch");
    context c = {.sim = sim, .program = program, .watch = watch, .error = error};
    const npuc_observer observer = {NULL, NULL, &c, finished};
    const npuc_status status = npuc_sim_execute(sim, program, threads, &observer, error);
    *stopped = c.stopped;
    return c.stopped ? NPUC_OK : status;
}
