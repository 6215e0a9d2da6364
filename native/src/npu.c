/*
 * The C runtime on a system with a heap, files and threads: loading, and runs.
 *
 * A run needs a context: the memory of the NPU and of the tensors. A model has one, and makes more when runs overlap, as many as
 * npu_set_runs allows; further runs wait for one.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npu_hosted.h"
#include "npu_static.h"
#include "npuc/gemm.h"
#include "threads.h"
#include "sim.h"

/* A subgraph, with its time. */
static npu_status observed(npu_session *s, uint32_t subgraph, npu_status (*run)(npu_session *, uint32_t))
{
    const npuc_file_subgraph *g = &s->file.subgraphs[subgraph];
    const npu_span span = npu_begin_span(g->kind == NPUC_SUBGRAPH_NPU ? "npu" : "cpu", npuc_file_string(&s->file, g->name));
    const npu_status status = run(s, subgraph);
    s->spent[subgraph] = npu_end_span(&span, status);
    return status;
}

/* ---- life ---- */

/* The simulator and all memory of a context whose session is open. */
static npu_status furnish(npu_context *context)
{
    npu_session *s = &context->session;
    npu_block block = {0};
    s->observer = observed;
    npu_place(s, &block);
    const size_t size = block.used;
    if (size < SIZE_MAX / 2) context->memory = calloc(1, size + 64);
    if (context->memory) {
        uint8_t *base = context->memory;
        block = (npu_block){base + (64 - (uintptr_t)base % 64) % 64, size, 0};
        npu_place(s, &block);
        const npuc_file *f = &s->file;
        s->sim = npuc_sim_create(s->cores, (int64_t)f->header->local_bytes, (int64_t)f->header->shared_bytes, f->weights,
                                 (int64_t)f->segments[0].size);
    }
    if (s->sim) {
        npu_reset_states(s);
        return NPU_OK;
    }
    free(context->memory);
    return npu_fail(NPU_NO_MEMORY, "there is not enough memory for %llu bytes and the NPU's own memories", (unsigned long long)size);
}

/* A model whose first session has an open file. */
static npu_status complete(npu_model *made, npu_model **model)
{
    const npu_status status = furnish(&made->first);
    if (status) return status;
    made->free = &made->first;
    made->most = made->threads = 1;
    pthread_mutex_init(&made->proof, NULL);
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->returned, NULL);
    pthread_cond_init(&made->wake, NULL);
    *model = made;
    return NPU_OK;
}

static npu_status load(const void *bytes, size_t size, const char *where, npu_model **model)
{
    npu_model *made = calloc(1, sizeof *made);
    if (!made) return npu_fail(NPU_NO_MEMORY, "there is not enough memory");
    npu_status status = npu_open(&made->first.session, bytes, size, where);
    if (!status) status = complete(made, model);
    if (status) free(made);
    return status;
}

npu_status npu_load_memory(const void *bytes, size_t size, npu_model **model)
{
    if (!model) return npu_fail(NPU_BAD_ARGUMENT, "there is no place for the model");
    *model = NULL;
    return load(bytes, size, "the model in memory", model);
}

static npu_status map(const char *path, void **mapping, size_t *size)
{
    struct stat about;
    /* A pipe would be waited for, and is refused below. */
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return npu_fail(NPU_NO_FILE, "%.300s: cannot be opened: %s", path, strerror(errno));
    npu_status status = NPU_OK;
    if (fstat(file, &about) || !S_ISREG(about.st_mode)) {
        status = npu_fail(NPU_NO_FILE, "%.300s: is a folder, or something else that is no file", path);
    } else if (about.st_size <= 0) {
        status = npu_fail(NPU_NO_FILE, "%.300s: is empty", path);
    } else {
        *size = (size_t)about.st_size;
        *mapping = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, file, 0);
        if (*mapping == MAP_FAILED) status = npu_fail(NPU_NO_FILE, "%.300s: cannot be mapped: %s", path, strerror(errno));
    }
    close(file);
    return status;
}

npu_status npu_load(const char *path, npu_model **model)
{
    void *mapping = NULL;
    size_t size = 0;
    if (!path || !model) return npu_fail(NPU_BAD_ARGUMENT, "there is no path, or no place for the model");
    *model = NULL;
    npu_status status = map(path, &mapping, &size);
    if (status) return status;
    char where[304];
    snprintf(where, sizeof where, "%.300s", path);
    const npu_span span = npu_begin_span("load", where);
    status = load(mapping, size, where, model);
    npu_end_span(&span, status);
    if (status) {
        munmap(mapping, size);
        return status;
    }
    (*model)->mapping = mapping;
    (*model)->mapped = size;
    return NPU_OK;
}

static void end_context(npu_context *context)
{
    npu_end_plugin_states(&context->session);
    npuc_sim_destroy(context->session.sim);
    free(context->memory);
}

static void end_model(npu_model *model)
{
    npu_end_jobs(model);
    /* Runs in other threads: an error of the caller, but a harmless one. */
    pthread_mutex_lock(&model->lock);
    while (model->used) pthread_cond_wait(&model->returned, &model->lock);
    pthread_mutex_unlock(&model->lock);
    for (npu_context *context = model->free, *next; context; context = next) {
        next = context->next;
        end_context(context);
        if (context != &model->first) free(context);
    }
    pthread_mutex_destroy(&model->proof);
    pthread_mutex_destroy(&model->lock);
    pthread_cond_destroy(&model->returned);
    pthread_cond_destroy(&model->wake);
    free(model);
}

void npu_free(npu_model *model)
{
    if (!model || model->program) return;
    for (npu_model *entry = model->entries, *next; entry; entry = next) {
        next = entry->next_entry;
        end_model(entry);
    }
    void *mapping = model->mapping;
    const size_t mapped = model->mapped;
    end_model(model);
    if (mapping) munmap(mapping, mapped);
}

/* ---- entries ---- */

/* A model that belongs to a program and is freed with it. */
static void adopt(npu_model *program, npu_model *made)
{
    made->program = program;
    made->next_entry = program->entries;
    program->entries = made;
}

static npu_status new_entry(npu_model *program, uint32_t number, npu_model **entry)
{
    npu_model *made = calloc(1, sizeof *made);
    if (!made) return npu_fail(NPU_NO_MEMORY, "there is not enough memory");
    const npuc_file *f = &program->first.session.file;
    char where[208];
    snprintf(where, sizeof where, "entry '%.190s'", npuc_file_entry_name(f, number));
    const char *why = npuc_file_select(f, number, &made->first.session.file);
    npu_status status = why ? npu_fail(NPU_BAD_FILE, "%s: %s", where, why) : npu_begin(&made->first.session, where);
    if (!status) status = complete(made, entry);
    if (status) {
        free(made);
        return status;
    }
    adopt(program, made);
    return NPU_OK;
}

/* The model of an entry, made if it is the first time. */
static npu_status entry_of(npu_model *program, uint32_t number, npu_model **entry)
{
    npu_status status = NPU_OK;
    pthread_mutex_lock(&program->proof);
    npu_model *known = number ? program->entries : program;
    while (known && (known->first.session.file.entry != number || known->first.session.part)) known = known->next_entry;
    if (known)
        *entry = known;
    else
        status = new_entry(program, number, entry);
    pthread_mutex_unlock(&program->proof);
    return status;
}

npu_status npu_entry(npu_model *model, const char *name, npu_model **entry)
{
    uint32_t number;
    if (!entry) return npu_fail(NPU_BAD_ARGUMENT, "there is no place for the entry");
    *entry = NULL;
    const npu_status status = npu_find_entry(model, name, &number);
    return status ? status : entry_of(model->program ? model->program : model, number, entry);
}

npu_status npu_entry_for(npu_model *model, const npu_tensor *inputs, int32_t count, npu_model **entry)
{
    uint32_t number;
    if (!entry) return npu_fail(NPU_BAD_ARGUMENT, "there is no place for the entry");
    *entry = NULL;
    const npu_status status = npu_find_entry_for(model, inputs, count, &number);
    return status ? status : entry_of(model->program ? model->program : model, number, entry);
}

/* ---- parts ---- */

static npu_status new_part(npu_model *model, uint32_t subgraph, npu_model **part)
{
    npu_model *made = calloc(1, sizeof *made);
    if (!made) return npu_fail(NPU_NO_MEMORY, "there is not enough memory");
    made->first.session.file = model->first.session.file;
    npu_status status = npu_narrow(&made->first.session, subgraph);
    if (!status) status = npu_begin(&made->first.session, npu_name(model));
    if (!status) status = complete(made, part);
    if (status)
        free(made);
    else
        adopt(model->program ? model->program : model, made);
    return status;
}

npu_status npu_part(npu_model *model, int32_t index, npu_model **part)
{
    if (!model || !part) return npu_fail(NPU_BAD_ARGUMENT, "there is no model, or no place for the part");
    *part = NULL;
    const npu_session *s = &model->first.session;
    if (index < 1 || (uint32_t)index > s->file.subgraph_count || s->part)
        return npu_fail(NPU_BAD_ARGUMENT, "there is no part %d", index);
    npu_model *program = model->program ? model->program : model;
    npu_status status = NPU_OK;
    pthread_mutex_lock(&program->proof);
    npu_model *known = program->entries;
    while (known && (known->first.session.part != (uint32_t)index || known->first.session.file.entry != s->file.entry))
        known = known->next_entry;
    if (known)
        *part = known;
    else
        status = new_part(model, (uint32_t)index - 1, part);
    pthread_mutex_unlock(&program->proof);
    return status;
}

npu_status npu_set_threads(npu_model *model, int32_t threads)
{
    if (!model) return npu_fail(NPU_BAD_ARGUMENT, "there is no model");
    if (threads < 1 || threads > 64) return npu_fail(NPU_BAD_ARGUMENT, "a run may use 1 to 64 threads, not %d", threads);
    pthread_mutex_lock(&model->lock);
    model->threads = threads;
    pthread_mutex_unlock(&model->lock);
    return NPU_OK;
}

npu_status npu_set_runs(npu_model *model, int32_t runs)
{
    if (!model) return npu_fail(NPU_BAD_ARGUMENT, "there is no model");
    if (runs < 1 || runs > NPU_MOST_RUNS) return npu_fail(NPU_BAD_ARGUMENT, "1 to %d runs may go on at once, not %d", NPU_MOST_RUNS, runs);
    if (runs > 1 && npu_state_count(model)) return npu_fail(NPU_BAD_ARGUMENT, "runs of a model with states take turns");
    if (runs > 1 && npu_keeps_plugin_states(&model->first.session))
        return npu_fail(NPU_BAD_ARGUMENT, "runs of a model whose plugin keeps a state take turns");
    pthread_mutex_lock(&model->lock);
    model->most = runs;
    pthread_cond_broadcast(&model->returned);
    pthread_mutex_unlock(&model->lock);
    return NPU_OK;
}

/* ---- contexts ---- */

static npu_context *new_context(const npu_model *model)
{
    npu_context *made = calloc(1, sizeof *made);
    if (!made) {
        npu_fail(NPU_NO_MEMORY, "there is not enough memory");
        return NULL;
    }
    made->session.file = model->first.session.file;
    made->session.part = model->first.session.part;
    made->session.cores = model->first.session.cores;
    if (!furnish(made)) return made;
    free(made);
    return NULL;
}

/* A context for the caller alone; NULL when memory is short. Waits while as many runs go on as may. */
static npu_context *take(npu_model *model)
{
    pthread_mutex_lock(&model->lock);
    if (model->used >= model->most) {
        const npu_span span = npu_begin_span("wait", npu_name(model));
        while (model->used >= model->most) pthread_cond_wait(&model->returned, &model->lock);
        npu_end_span(&span, NPU_OK);
    }
    model->used++;
    const int32_t threads = model->threads;
    npu_context *context = model->free;
    if (context) model->free = context->next;
    pthread_mutex_unlock(&model->lock);
    if (!context) context = new_context(model);
    if (context) {
        context->session.threads = threads;
        return context;
    }
    pthread_mutex_lock(&model->lock);
    model->used--;
    pthread_cond_signal(&model->returned);
    pthread_mutex_unlock(&model->lock);
    return NULL;
}

static void give(npu_model *model, npu_context *context)
{
    pthread_mutex_lock(&model->lock);
    model->used--;
    context->next = model->free;
    model->free = context;
    pthread_cond_signal(&model->returned);
    pthread_mutex_unlock(&model->lock);
}

/* The weights are compared once, whoever runs first; all others wait for that. */
static npu_status prove(npu_model *model, int32_t threads)
{
    if (model->program) model = model->program;
    pthread_mutex_lock(&model->proof);
    const npu_status status = npu_prove(&model->first.session, threads);
    pthread_mutex_unlock(&model->proof);
    return status;
}

npu_status npu_check_weights(npu_model *model)
{
    if (!model) return npu_fail(NPU_BAD_ARGUMENT, "there is no model");
    pthread_mutex_lock(&model->lock);
    const int32_t threads = model->threads;
    pthread_mutex_unlock(&model->lock);
    return prove(model, threads);
}

/* ---- runs ---- */

static npu_status run(npu_model *model, const npu_ends *ends)
{
    if (!model) return npu_fail(NPU_BAD_ARGUMENT, "there is no model");
    npu_context *context = take(model);
    if (!context) return NPU_NO_MEMORY;
    const npu_span span = npu_begin_span("run", npu_name(model));
    npu_status status = prove(model, context->session.threads);
    if (!status) status = npu_execute(&context->session, ends);
    const int64_t spent = npu_end_span(&span, status);
    if (!status) {
        pthread_mutex_lock(&model->lock);
        npu_note_times(model, &context->session, spent);
        pthread_mutex_unlock(&model->lock);
    }
    give(model, context);
    return status;
}

npu_status npu_reset(npu_model *model)
{
    if (!model) return npu_fail(NPU_BAD_ARGUMENT, "there is no model");
    if (!npu_state_count(model)) return NPU_OK;
    npu_context *context = take(model);
    if (!context) return NPU_NO_MEMORY;
    npu_reset_states(&context->session);
    give(model, context);
    return NPU_OK;
}

npu_status npu_run(npu_model *model, const void *const *inputs, void *const *outputs)
{
    return run(model, &(npu_ends){.inputs = inputs, .outputs = outputs});
}

npu_status npu_run_views(npu_model *model, const npu_view *inputs, const npu_view *outputs)
{
    return run(model, &(npu_ends){.input_views = inputs, .output_views = outputs});
}

static int64_t whole(int64_t size) { return (size + 63) / 64 * 64; }

/* What npu_init takes: more than enough for the few structs of its own. */
static int64_t arena_of(const npu_session *s, const npu_needs *needs)
{
    npu_session counted = *s;
    counted.observer = NULL;
    npu_block block = {0};
    npu_place(&counted, &block);
    int64_t bytes = (int64_t)block.used + whole(needs->kernels) + whole(needs->shared) + 4096;
    for (int i = 0; i < NPUC_SIM_BUFFERS; i++) bytes += whole(needs->buffer[i]);
    return bytes + s->cores * (whole(needs->local) + 64);
}

/* The parts of what one model needs, without their sum. */
static npu_status measure(npu_model *model, npu_needs *needs)
{
    npu_context *context = take(model);
    if (!context) return NPU_NO_MEMORY;
    npu_session probe = context->session;
    const npuc_file *f = &probe.file;
    npuc_sim_needs found = {0};
    npu_status status = prove(model, 1);
    /* Code without a heap is portable code, and that takes other sizes. */
    const char *isa = npuc_isa();
    npuc_isa_select("portable");
    probe.threads = 1;
    probe.sim = NULL;
    if (!status)
        probe.sim = npuc_sim_create(probe.cores, (int64_t)f->header->local_bytes, (int64_t)f->header->shared_bytes, f->weights,
                                    (int64_t)f->segments[0].size);
    if (probe.sim) {
        npuc_sim_be_frugal(probe.sim);
        npuc_scratch_most();
        status = npu_run_subgraphs(&probe);
        npuc_sim_needed(probe.sim, &found);
        npuc_sim_destroy(probe.sim);
        npu_end_plugin_states(&probe);
    } else if (!status) {
        status = npu_fail(NPU_NO_MEMORY, "there is not enough memory");
    }
    *needs = (npu_needs){.local = found.local, .shared = found.shared, .kernels = (int64_t)npuc_scratch_most()};
    memcpy(needs->buffer, found.buffer, sizeof found.buffer);
    npuc_isa_select(isa);
    give(model, context);
    return status;
}

static void widen(int64_t *most, int64_t bytes)
{
    if (bytes > *most) *most = bytes;
}

npu_status npu_measure(npu_model *model, npu_needs *needs)
{
    if (!model || !needs) return npu_fail(NPU_BAD_ARGUMENT, "there is no model, or no place for the result");
    /* The arena of a program is for any of its entries. */
    const uint32_t entries = model->program ? 1 : model->first.session.file.entry_count;
    *needs = (npu_needs){0};
    for (uint32_t k = 0; k < entries; k++) {
        npu_model *entry = model;
        npu_needs own;
        npu_status status = k ? entry_of(model, k, &entry) : NPU_OK;
        if (!status) status = measure(entry, &own);
        if (status) return status;
        widen(&needs->local, own.local);
        widen(&needs->shared, own.shared);
        widen(&needs->kernels, own.kernels);
        for (int i = 0; i < NPUC_SIM_BUFFERS; i++) widen(&needs->buffer[i], own.buffer[i]);
    }
    for (uint32_t k = 0; k < entries; k++) {
        npu_model *entry = model;
        if (k) entry_of(model, k, &entry); /* made above */
        widen(&needs->arena, arena_of(&entry->first.session, needs));
    }
    return NPU_OK;
}
