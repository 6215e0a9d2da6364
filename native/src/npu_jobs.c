/*
 * Jobs of the C runtime: runs in the background.
 *
 * A model has as many worker threads as runs may go on at once; each is started when a job finds no idle one. A job has a lock of
 * its own, so that it outlives the model: npu_free leaves every job done or cancelled.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "npu_hosted.h"

struct npu_job {
    npu_job *next;
    const void **inputs;
    void **outputs;
    pthread_mutex_t lock;
    pthread_cond_t finished;
    int done;
    npu_status status;
    char error[NPU_ERROR_BYTES];
};

static void finish(npu_job *job, npu_status status, const char *error)
{
    pthread_mutex_lock(&job->lock);
    job->status = status;
    snprintf(job->error, sizeof job->error, "%s", error);
    job->done = 1;
    pthread_cond_broadcast(&job->finished);
    pthread_mutex_unlock(&job->lock);
}

/* The next job; NULL when the model is being freed. */
static npu_job *next_job(npu_model *model)
{
    pthread_mutex_lock(&model->lock);
    model->idle++;
    while (!model->head && !model->closing) pthread_cond_wait(&model->wake, &model->lock);
    model->idle--;
    npu_job *job = model->closing ? NULL : model->head;
    if (job) {
        model->head = job->next;
        if (!model->head) model->tail = NULL;
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
    return NULL;
}

void npu_end_jobs(npu_model *model)
{
    pthread_mutex_lock(&model->lock);
    model->closing = 1;
    pthread_cond_broadcast(&model->wake);
    pthread_mutex_unlock(&model->lock);
    for (int32_t i = 0; i < model->working; i++) pthread_join(model->workers[i], NULL);
    /* Nobody adds to the list of a model that is being freed. */
    for (npu_job *job = model->head, *next; job; job = next) {
        next = job->next; /* once it is finished, its owner may free it */
        finish(job, NPU_CANCELLED, "the model was freed before the job began");
    }
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
    if (!model || !job) return npu_fail(NPU_BAD_ARGUMENT, model ? "there is no place for the job" : "there is no model");
    *job = NULL;
    if ((npu_input_count(model) && !inputs) || (npu_output_count(model) && !outputs))
        return npu_fail(NPU_BAD_ARGUMENT, "there are no tensors");
    npu_job *made = new_job(model, inputs, outputs);
    if (!made) return npu_fail(NPU_NO_MEMORY, "there is not enough memory");
    npu_status status = NPU_OK;
    pthread_mutex_lock(&model->lock);
    if (!model->idle && model->working < model->most) {
        const int failed = pthread_create(&model->workers[model->working], NULL, work, model);
        if (!failed)
            model->working++;
        else if (!model->working)
            status = npu_fail(NPU_NO_MEMORY, "no thread can be started: %s", strerror(failed));
    }
    if (!status) {
        if (model->tail)
            model->tail->next = made;
        else
            model->head = made;
        model->tail = made;
        pthread_cond_signal(&model->wake);
    }
    pthread_mutex_unlock(&model->lock);
    if (status)
        delete_job(made);
    else
        *job = made;
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
        late = seconds < 0 ? pthread_cond_wait(&job->finished, &job->lock) : pthread_cond_timedwait(&job->finished, &job->lock, &deadline);
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
