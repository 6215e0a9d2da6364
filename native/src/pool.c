#define _POSIX_C_SOURCE 200809L
#include "pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#define MAX_THREADS 64
#define SPINS 4000 /* some 50 us: layers follow each other, and a futex costs more than a short wait */

typedef struct {
    npuc_task task;
    void *context;
    ptrdiff_t count;
    int workers; /* besides the caller */
    atomic_ptrdiff_t next;
} job;

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER; /* held during a parallel call: one at a time */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static pthread_cond_t finished = PTHREAD_COND_INITIALIZER;
static int started;                /* workers that exist; guarded by `busy` */
static unsigned first_seen[MAX_THREADS + 1];
static job current;                /* written between generations, when no worker reads it */
static atomic_uint generation;     /* incremented for every job, under `lock` */
static atomic_int running;         /* workers that have not finished the generation */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void work(int worker) {
    for (;;) {
        ptrdiff_t index = atomic_fetch_add_explicit(&current.next, 1, memory_order_relaxed);
        if (index >= current.count) return;
        current.task(current.context, index, worker);
    }
}

static void *serve(void *argument) {
    int worker = (int)(intptr_t)argument; /* 1 .. */
    unsigned seen = first_seen[worker];
    for (;;) {
        unsigned now = seen;
        for (int spin = 0; spin < SPINS && now == seen; spin++) {
            relax();
            now = atomic_load_explicit(&generation, memory_order_acquire);
        }
        if (now == seen) {
            pthread_mutex_lock(&lock);
            while ((now = atomic_load_explicit(&generation, memory_order_acquire)) == seen) pthread_cond_wait(&wake, &lock);
            pthread_mutex_unlock(&lock);
        }
        seen = now;
        if (worker <= current.workers) work(worker);
        if (atomic_fetch_sub_explicit(&running, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&lock);
            pthread_cond_signal(&finished);
            pthread_mutex_unlock(&lock);
        }
    }
    return NULL;
}

/* A forked child has the caller's thread only. */
static void forget(void) {
    started = 0;
    atomic_store(&generation, 0);
    atomic_store(&running, 0);
    pthread_mutex_init(&busy, NULL);
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&wake, NULL);
    pthread_cond_init(&finished, NULL);
}

static void prepare(void) { pthread_atfork(NULL, NULL, forget); }

static void start(int workers) {
    while (started < workers) {
        pthread_t thread;
        pthread_attr_t attributes;
        if (pthread_attr_init(&attributes)) return;
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        /* A new worker waits for the generation after the present one. */
        first_seen[started + 1] = atomic_load(&generation);
        int failed = pthread_create(&thread, &attributes, serve, (void *)(intptr_t)(started + 1));
        pthread_attr_destroy(&attributes);
        if (failed) return;
        started++;
    }
}

void npuc_parallel(ptrdiff_t count, int threads, npuc_task task, void *context) {
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (threads > count) threads = (int)count;
    pthread_once(&once, prepare);
    if (threads <= 1 || pthread_mutex_trylock(&busy)) {
        for (ptrdiff_t index = 0; index < count; index++) task(context, index, 0);
        return;
    }
    start(threads - 1);
    current.task = task;
    current.context = context;
    current.count = count;
    current.workers = threads - 1 < started ? threads - 1 : started;
    atomic_store_explicit(&current.next, 0, memory_order_relaxed);
    atomic_store_explicit(&running, started, memory_order_relaxed);
    pthread_mutex_lock(&lock);
    atomic_fetch_add_explicit(&generation, 1, memory_order_release);
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&lock);
    work(0);
    for (int spin = 0; spin < SPINS && atomic_load_explicit(&running, memory_order_acquire); spin++) relax();
    if (atomic_load_explicit(&running, memory_order_acquire)) {
        pthread_mutex_lock(&lock);
        while (atomic_load_explicit(&running, memory_order_acquire)) pthread_cond_wait(&finished, &lock);
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_unlock(&busy);
}

typedef struct {
    void *memory;
    size_t bytes;
} scratch;

static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;
static int scratch_usable;

static void release(void *value) {
    scratch *s = value;
    free(s->memory);
    free(s);
}

static void scratch_prepare(void) { scratch_usable = !pthread_key_create(&scratch_key, release); }

void *npuc_scratch(size_t bytes) {
    pthread_once(&scratch_once, scratch_prepare);
    if (!scratch_usable) return NULL;
    scratch *s = pthread_getspecific(scratch_key);
    if (!s) {
        s = calloc(1, sizeof *s);
        if (!s) return NULL;
        if (pthread_setspecific(scratch_key, s)) {
            free(s);
            return NULL;
        }
    }
    if (s->bytes < bytes) {
        free(s->memory);
        s->bytes = 0;
        bytes = (bytes + 4095) / 4096 * 4096;
        s->memory = aligned_alloc(64, bytes);
        if (!s->memory) return NULL;
        s->bytes = bytes;
    }
    return s->memory;
}
