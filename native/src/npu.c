/*
 * The C runtime on a system with a heap, files and threads: loading, runs that take turns, and jobs.
 *
 * A model has one worker thread, which is started by its first job. A job has a lock of its own, so that it outlives the model:
 * npu_free leaves every job done or cancelled.
 */
#define _POSIX_C_SOURCE 200809L
#include "npu_static.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "npu_model.h"
#include "npuc/gemm.h"
#include "pool.h"
#include "sim.h"

struct npu_job {
    npu_job *next;
    const void **inputs;
    void **outputs;
    pthread_mutex_t lock;
    pthread_cond_t finished;
    int done;
    npu_status status;
    char error[512];
};

struct npu_model {
    npu_session session;
    void *mapping, *memory;
    size_t mapped;
    pthread_mutex_t turn; /* held during a run */
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake;
    npu_job *first, *last;
    pthread_t worker;
    int working, closing;
};

/* ---- life ---- */

/* The simulator and all memory of an opened model. */
static npu_status furnish(npu_model *model)
{
    npu_session *s = &model->session;
    npu_block block = {0};
    npu_place(s, &block);
    const size_t size = block.used;
    if (size < SIZE_MAX / 2) model->memory = calloc(1, size + 64);
    if (model->memory) {
        uint8_t *base = model->memory;
        block = (npu_block){base + (64 - (uintptr_t)base % 64) % 64, size, 0};
        npu_place(s, &block);
        const npuc_file *f = &s->file;
        s->sim = npuc_sim_create(s->cores, (int64_t)f->header->local_bytes, (int64_t)f->header->shared_bytes, f->weights,
                                 (int64_t)f->segments[0].size);
    }
    if (!s->sim) return npu_fail(NPU_NO_MEMORY, "there is not enough memory for %llu bytes and the NPU's own memories",
                                 (unsigned long long)size);
    return NPU_OK;
}

static npu_status load(const void *bytes, size_t size, const char *where, npu_model **model)
{
    npu_model *made = calloc(1, sizeof *made);
    if (!made) return npu_fail(NPU_NO_MEMORY, "there is not enough memory");
    npu_status status = npu_open(&made->session, bytes, size, where);
    if (!status) status = furnish(made);
    if (status) {
        free(made->memory);
        free(made);
        return status;
    }
    pthread_mutex_init(&made->turn, NULL);
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->wake, NULL);
    *model = made;
    return NPU_OK;
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
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return npu_fail(NPU_NO_FILE, "%.300s: cannot be opened: %s", path, strerror(errno));
    npu_status status = NPU_OK;
    if (fstat(file, &about) || !S_ISREG(about.st_mode) || about.st_size <= 0) {
        status = npu_fail(NPU_NO_FILE, "%.300s: is empty, or no file", path);
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
    status = load(mapping, size, where, model);
    if (status) {
        munmap(mapping, size);
        return status;
    }
    (*model)->mapping = mapping;
    (*model)->mapped = size;
    return NPU_OK;
}

static void finish(npu_job *job, npu_status status, const char *error)
{
    pthread_mutex_lock(&job->lock);
    job->status = status;
    snprintf(job->error, sizeof job->error, "%s", error);
    job->done = 1;
    pthread_cond_broadcast(&job->finished);
    pthread_mutex_unlock(&job->lock);
}

void npu_free(npu_model *model)
{
    if (!model) return;
    pthread_mutex_lock(&model->lock);
    model->closing = 1;
    pthread_cond_signal(&model->wake);
    pthread_mutex_unlock(&model->lock);
    if (model->working) pthread_join(model->worker, NULL);
    /* A run in another thread: it is an error of the caller, but a harmless one. */
    pthread_mutex_lock(&model->turn);
    pthread_mutex_unlock(&model->turn);
    npuc_sim_destroy(model->session.sim);
    if (model->mapping) munmap(model->mapping, model->mapped);
    pthread_mutex_destroy(&model->turn);
    pthread_mutex_destroy(&model->lock);
    pthread_cond_destroy(&model->wake);
    free(model->memory);
    free(model);
}

npu_status npu_set_threads(npu_model *model, int32_t threads)
{
    if (!model || threads < 1 || threads > 64)
        return npu_fail(NPU_BAD_ARGUMENT, "a run may use 1 to 64 threads, not %d", threads);
    pthread_mutex_lock(&model->turn);
    model->session.threads = threads;
    pthread_mutex_unlock(&model->turn);
    return NPU_OK;
}

/* ---- runs ---- */

npu_status npu_run(npu_model *model, const void *const *inputs, void *const *outputs)
{
    if (!model) return npu_fail(NPU_BAD_ARGUMENT, "there is no model");
    pthread_mutex_lock(&model->turn);
    const npu_status status = npu_execute(&model->session, inputs, outputs);
    pthread_mutex_unlock(&model->turn);
    return status;
}

static int64_t whole(int64_t size) { return (size + 63) / 64 * 64; }

/* What npu_init takes: more than enough for the few structs of its own. */
static int64_t arena_of(const npu_session *s, const npu_needs *needs)
{
    npu_session counted = *s;
    npu_block block = {0};
    npu_place(&counted, &block);
    int64_t bytes = (int64_t)block.used + whole(needs->kernels) + whole(needs->shared) + 4096;
    for (int i = 0; i < NPUC_SIM_BUFFERS; i++) bytes += whole(needs->buffer[i]);
    return bytes + s->cores * (whole(needs->local) + 64);
}

npu_status npu_measure(npu_model *model, npu_needs *needs)
{
    if (!model || !needs) return npu_fail(NPU_BAD_ARGUMENT, "there is no model, or no place for the result");
    pthread_mutex_lock(&model->turn);
    npu_session probe = model->session;
    const npuc_file *f = &probe.file;
    npuc_sim_needs found = {0};
    npu_status status = NPU_NO_MEMORY;
    /* Code without a heap is portable code, and that takes other sizes. */
    const char *isa = npuc_isa();
    npuc_isa_select("portable");
    probe.threads = 1;
    probe.sim = npuc_sim_create(probe.cores, (int64_t)f->header->local_bytes, (int64_t)f->header->shared_bytes, f->weights,
                                (int64_t)f->segments[0].size);
    if (probe.sim) {
        npuc_sim_be_frugal(probe.sim);
        npuc_scratch_most();
        status = npu_run_subgraphs(&probe);
        npuc_sim_needed(probe.sim, &found);
        npuc_sim_destroy(probe.sim);
    } else {
        npu_fail(status, "there is not enough memory");
    }
    *needs = (npu_needs){.local = found.local, .shared = found.shared, .kernels = (int64_t)npuc_scratch_most()};
    memcpy(needs->buffer, found.buffer, sizeof found.buffer);
    needs->arena = arena_of(&probe, needs);
    npuc_isa_select(isa);
    pthread_mutex_unlock(&model->turn);
    return status;
}

/* The next job; NULL when the model is being freed. */
static npu_job *next_job(npu_model *model)
{
    pthread_mutex_lock(&model->lock);
    while (!model->first && !model->closing) pthread_cond_wait(&model->wake, &model->lock);
    npu_job *job = model->closing ? NULL : model->first;
    if (job) {
        model->first = job->next;
        if (!model->first) model->last = NULL;
    }
    pthread_mutex_unlock(&model->lock);
    return job;
}

static void *work(void *argument)
{
    npu_model *model = argument;
    for (npu_job *job; (job = next_job(model));) {
        const npu_status status = npu_run(model, job->inputs, job->outputs);
        finish(job, status, status ? npu_error() : "");
    }
    /* Nobody adds to the list of a model that is being freed. */
    for (npu_job *job = model->first, *next; job; job = next) {
        next = job->next; /* once it is finished, its owner may free it */
        finish(job, NPU_CANCELLED, "the model was freed before the job began");
    }
    return NULL;
}

static npu_job *new_job(const npu_model *model, const void *const *inputs, void *const *outputs)
{
    const size_t in = (size_t)npu_input_count(model), out = (size_t)npu_output_count(model);
    npu_job *job = calloc(1, sizeof *job + (in + out) * sizeof(void *));
    if (!job) return NULL;
    /* The caller's lists of pointers may go, only the tensors stay. */
    job->inputs = (const void **)(void *)(job + 1);
    job->outputs = (void **)(void *)(job + 1) + in;
    for (size_t i = 0; i < in; i++) job->inputs[i] = inputs[i];
    for (size_t i = 0; i < out; i++) job->outputs[i] = outputs[i];
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&job->finished, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&job->lock, NULL);
    return job;
}

static void delete_job(npu_job *job)
{
    pthread_cond_destroy(&job->finished);
    pthread_mutex_destroy(&job->lock);
    free(job);
}

npu_status npu_submit(npu_model *model, const void *const *inputs, void *const *outputs, npu_job **job)
{
    if (!model || !inputs || !outputs || !job) return npu_fail(NPU_BAD_ARGUMENT, "there is no model, or there are no tensors");
    *job = NULL;
    npu_job *made = new_job(model, inputs, outputs);
    if (!made) return npu_fail(NPU_NO_MEMORY, "there is not enough memory");
    npu_status status = NPU_OK;
    pthread_mutex_lock(&model->lock);
    if (!model->working) {
        const int failed = pthread_create(&model->worker, NULL, work, model);
        if (failed) status = npu_fail(NPU_NO_MEMORY, "no thread can be started: %s", strerror(failed));
        else model->working = 1;
    }
    if (!status) {
        if (model->last) model->last->next = made;
        else model->first = made;
        model->last = made;
        pthread_cond_signal(&model->wake);
    }
    pthread_mutex_unlock(&model->lock);
    if (status) delete_job(made);
    else *job = made;
    return status;
}

static struct timespec deadline_of(double seconds)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    if (!(seconds < 1e9)) seconds = 1e9;
    const int64_t nanoseconds = at.tv_nsec + (int64_t)(seconds * 1e9);
    at.tv_sec += (time_t)(nanoseconds / 1000000000);
    at.tv_nsec = (long)(nanoseconds % 1000000000);
    return at;
}

npu_status npu_wait(npu_job *job, double seconds)
{
    if (!job) return npu_fail(NPU_BAD_ARGUMENT, "there is no job");
    const struct timespec deadline = deadline_of(seconds < 0 ? 0 : seconds);
    pthread_mutex_lock(&job->lock);
    int late = 0;
    while (!job->done && !late)
        late = seconds < 0 ? pthread_cond_wait(&job->finished, &job->lock)
                           : pthread_cond_timedwait(&job->finished, &job->lock, &deadline);
    npu_status status = job->done ? job->status : NPU_TIMEOUT;
    if (status) npu_fail(status, "%s", job->done ? job->error : "the job is not done yet");
    pthread_mutex_unlock(&job->lock);
    return status;
}

void npu_job_free(npu_job *job)
{
    if (!job) return;
    pthread_mutex_lock(&job->lock);
    while (!job->done) pthread_cond_wait(&job->finished, &job->lock);
    pthread_mutex_unlock(&job->lock);
    delete_job(job);
}
