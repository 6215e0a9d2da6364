/* A model of the runtime with a heap and threads: its runs (npu.c) and its jobs (npu_jobs.c). */
#ifndef NPU_HOSTED_H
#define NPU_HOSTED_H

#include <pthread.h>

#include "npu_model.h"

#define NPU_MOST_RUNS 64

/* Memory for one run. The tables of its session are those of the model. */
typedef struct npu_context {
    npu_session session;
    void *memory;
    struct npu_context *next;
} npu_context;

struct npu_model {
    npu_context first; /* its session answers questions, and so comes first */
    void *mapping;
    size_t mapped;
    npu_model *program;     /* of an entry: the model that was loaded, which owns it */
    npu_model *entries;     /* entries that were asked for, apart from the first */
    npu_model *next_entry;  /* of an entry */
    pthread_mutex_t proof; /* held while the weights are compared with their checksums */
    pthread_mutex_t lock;  /* of all that follows */
    int32_t threads, most; /* of a run; runs at once */
    npu_context *free;
    int32_t used;
    pthread_cond_t returned;
    npu_job *head, *tail;
    pthread_cond_t wake;
    pthread_t workers[NPU_MOST_RUNS];
    int32_t working, idle, closing;
};

/* ---- npu_trace.c ---- */

int64_t npu_now(void); /* nanoseconds */

/* Something that a thread is busy with, from now on until it ends; both names have to stay until then. */
typedef struct npu_span {
    const char *category, *name;
    int64_t number, begin;
} npu_span;
npu_span npu_begin_span(const char *category, const char *name);
/* Returns how long it took, in nanoseconds. */
int64_t npu_end_span(const npu_span *span, npu_status status);

/* A run was done by a session in so many nanoseconds. The lock of the model is held. */
void npu_note_times(npu_model *model, const npu_session *session, int64_t whole);

/* End all workers: the jobs that they are at are finished, all others are cancelled. */
void npu_end_jobs(npu_model *model);

#endif /* NPU_HOSTED_H */
