/* The C runtime without a heap, files and threads: everything is in one arena. */
#include "npu_static.h"

#include <string.h>

#include "npu_model.h"
#include "threads.h"
#include "sim.h"

struct npu_model {
    npu_session session; /* of the entry that can run */
    npu_needs needs;
    npu_block rest; /* of the arena, behind the model */
};

/* The simulator, in the rest of the block. */
static npuc_sim *make_sim(const npu_session *s, const npu_needs *needs, npu_block *block)
{
    npuc_sim_needs wanted = {.local = needs->local, .shared = needs->shared};
    for (int i = 0; i < NPUC_SIM_BUFFERS; i++) wanted.buffer[i] = (needs->buffer[i] + 63) / 64 * 64;
    const npuc_file *f = &s->file;
    npuc_sim *sim = NULL;
    uint8_t *memory = NULL;
    int64_t size = 0;
    for (int placed = 0; placed < 2; placed++) {
        sim = npuc_sim_create_at(memory, &size, &wanted, s->cores, f->weights, (int64_t)f->segments[0].size);
        if (!placed && !(memory = npu_take(block, (uint64_t)size))) return NULL;
    }
    return sim;
}

/* Small enough for sums of them. */
static int possible(int64_t bytes) { return bytes >= 0 && bytes <= (int64_t)1 << 40; }

/* Give the session of a model its memory, from the beginning of what it has. */
static npu_status furnish(npu_model *model)
{
    npu_session *s = &model->session;
    npu_block block = {model->rest.base, model->rest.size, 0};
    memset(block.base, 0, block.size);
    s->sim = NULL;
    npu_place(s, &block);
    void *scratch = npu_take(&block, (uint64_t)model->needs.kernels);
    if (scratch) s->sim = make_sim(s, &model->needs, &block);
    if (!s->sim) return npu_fail(NPU_NO_MEMORY, "the arena is too small");
    npuc_scratch_use(scratch, (size_t)model->needs.kernels);
    npu_reset_states(s);
    return NPU_OK;
}

npu_status npu_init(const void *bytes, size_t size, const npu_needs *needs, void *arena, size_t arena_size, npu_model **model)
{
    if (!model || !needs) return npu_fail(NPU_BAD_ARGUMENT, "there are no needs, or no place for the model");
    *model = NULL;
    if (!arena || (uintptr_t)arena % 64) return npu_fail(NPU_BAD_ARGUMENT, "the arena is not at a multiple of 64");
    int sound = possible(needs->local) && possible(needs->shared) && possible(needs->kernels);
    for (int i = 0; i < NPUC_SIM_BUFFERS; i++) sound = sound && possible(needs->buffer[i]);
    if (!sound) return npu_fail(NPU_BAD_ARGUMENT, "the needs make no sense");
    npu_block block = {arena, arena_size, 0};
    npu_model *made = npu_take(&block, sizeof *made);
    if (!made) return npu_fail(NPU_NO_MEMORY, "the arena of %zu bytes is too small", arena_size);
    memset(made, 0, sizeof *made);
    made->needs = *needs;
    made->rest = (npu_block){block.base + block.used, block.size - block.used, 0};
    npu_status status = npu_open(&made->session, bytes, size, "the model");
    if (!status) status = npu_prove(&made->session, 1);
    if (!status) status = furnish(made);
    if (!status) *model = made;
    return status;
}

/* Another entry in the place of the one that could run, unless it is that one. */
static npu_status change_entry(npu_model *model, uint32_t number, npu_model **entry)
{
    if (model->session.file.entry != number) {
        npu_session other = {.proven = model->session.proven};
        const char *why = npuc_file_select(&model->session.file, number, &other.file);
        if (why) return npu_fail(NPU_BAD_FILE, "the model: %s", why);
        npu_status status = npu_begin(&other, "the entry");
        if (status) return status;
        model->session = other;
        status = furnish(model);
        if (status) return status;
    }
    *entry = model;
    return NPU_OK;
}

npu_status npu_entry(npu_model *model, const char *name, npu_model **entry)
{
    uint32_t number;
    if (!entry) return npu_fail(NPU_BAD_ARGUMENT, "there is no place for the entry");
    *entry = NULL;
    const npu_status status = npu_find_entry(model, name, &number);
    return status ? status : change_entry(model, number, entry);
}

npu_status npu_entry_for(npu_model *model, const npu_tensor *inputs, int32_t count, npu_model **entry)
{
    uint32_t number;
    if (!entry) return npu_fail(NPU_BAD_ARGUMENT, "there is no place for the entry");
    *entry = NULL;
    const npu_status status = npu_find_entry_for(model, inputs, count, &number);
    return status ? status : change_entry(model, number, entry);
}

npu_status npu_run(npu_model *model, const void *const *inputs, void *const *outputs)
{
    if (!model || !model->session.sim) return npu_fail(NPU_BAD_ARGUMENT, "there is no model");
    return npu_execute(&model->session, &(npu_ends){.inputs = inputs, .outputs = outputs});
}

npu_status npu_run_views(npu_model *model, const npu_view *inputs, const npu_view *outputs)
{
    if (!model || !model->session.sim) return npu_fail(NPU_BAD_ARGUMENT, "there is no model");
    return npu_execute(&model->session, &(npu_ends){.input_views = inputs, .output_views = outputs});
}

npu_status npu_reset(npu_model *model)
{
    if (!model || !model->session.sim) return npu_fail(NPU_BAD_ARGUMENT, "there is no model");
    npu_reset_states(&model->session);
    return NPU_OK;
}
