#define _POSIX_C_SOURCE 200809L
#include "threads.h"

#if defined(NPUC_NO_HEAP) /* and no threads */

static void *scratch_memory;
static size_t scratch_bytes;

void npuc_scratch_use(void *memory, size_t bytes)
{
    scratch_memory = memory;
    scratch_bytes = bytes;
}

void *npuc_scratch(size_t bytes) { return bytes <= scratch_bytes ? scratch_memory : NULL; }

void npuc_parallel(ptrdiff_t count, int threads, npuc_task task, void *context)
{
    (void)threads;
    for (ptrdiff_t index = 0; index < count; index++) task(context, index, 0);
}

#else

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

/*
 * The gate holds a generation (one for each job), whether it is closed, and how many workers have entered it. The caller
 * closes it when no task is left to take, then waits for those inside only: a worker that the system has not yet woken finds
 * the gate closed and holds nobody up.
 */
#define CLOSED ((uint64_t)1 << 15)
#define ENTERED (CLOSED - 1)
#define GENERATION 16 /* bits below it */

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER; /* held during a parallel call: one at a time */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static pthread_cond_t finished = PTHREAD_COND_INITIALIZER;
static int started; /* workers that exist; guarded by `busy` */
static uint64_t first_seen[MAX_THREADS + 1];
static job current; /* written while the gate is closed and nobody is inside */
static atomic_uint_fast64_t gate = CLOSED;
static atomic_int left; /* workers that have entered this generation and gone */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void work(int worker)
{
    for (;;) {
        ptrdiff_t index = atomic_fetch_add_explicit(&current.next, 1, memory_order_relaxed);
        if (index >= current.count) return;
        current.task(current.context, index, worker);
    }
}

/* The gate once its generation is not `seen`. */
static uint64_t await(uint64_t seen)
{
    for (int spin = 0; spin < SPINS; spin++) {
        const uint64_t now = atomic_load_explicit(&gate, memory_order_acquire);
        if (now >> GENERATION != seen) return now;
        relax();
    }
    uint64_t now;
    pthread_mutex_lock(&lock);
    while ((now = atomic_load_explicit(&gate, memory_order_acquire)) >> GENERATION == seen) pthread_cond_wait(&wake, &lock);
    pthread_mutex_unlock(&lock);
    return now;
}

static void *serve(void *argument)
{
    const int worker = (int)(intptr_t)argument; /* 1 .. */
    uint64_t seen = first_seen[worker];
    for (;;) {
        uint_fast64_t now = await(seen);
        seen = now >> GENERATION;
        int inside = 0;
        while (!inside && !(now & CLOSED) && now >> GENERATION == seen)
            inside = atomic_compare_exchange_weak_explicit(&gate, &now, now + 1, memory_order_acq_rel, memory_order_acquire);
        if (!inside) continue;
        if (worker <= current.workers) work(worker);
        pthread_mutex_lock(&lock);
        atomic_fetch_add_explicit(&left, 1, memory_order_release);
        pthread_cond_signal(&finished);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

/* A forked child has the caller's thread only. */
static void forget(void)
{
    started = 0;
    atomic_store(&gate, CLOSED);
    atomic_store(&left, 0);
    pthread_mutex_init(&busy, NULL);
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&wake, NULL);
    pthread_cond_init(&finished, NULL);
}

static void prepare(void) { pthread_atfork(NULL, NULL, forget); }

static void start(int workers)
{
    while (started < workers) {
        pthread_t thread;
        pthread_attr_t attributes;
        if (pthread_attr_init(&attributes)) return;
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        /* A new worker waits for the generation after the present one. */
        first_seen[started + 1] = atomic_load(&gate) >> GENERATION;
        int failed = pthread_create(&thread, &attributes, serve, (void *)(intptr_t)(started + 1));
        pthread_attr_destroy(&attributes);
        if (failed) return;
        started++;
    }
}

void npuc_parallel(ptrdiff_t count, int threads, npuc_task task, void *context)
{
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
    atomic_store_explicit(&left, 0, memory_order_relaxed);
    pthread_mutex_lock(&lock);
    const uint64_t generation = (atomic_load_explicit(&gate, memory_order_relaxed) >> GENERATION) + 1;
    atomic_store_explicit(&gate, generation << GENERATION, memory_order_release);
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&lock);
    work(0);
    const int entered = (int)(atomic_fetch_or_explicit(&gate, CLOSED, memory_order_acq_rel) & ENTERED);
    for (int spin = 0; spin < SPINS && atomic_load_explicit(&left, memory_order_acquire) < entered; spin++) relax();
    /* The last worker signals under the lock: take it even if all have gone, so that none still holds it after a return. */
    pthread_mutex_lock(&lock);
    while (atomic_load_explicit(&left, memory_order_acquire) < entered) pthread_cond_wait(&finished, &lock);
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&busy);
}

typedef struct {
    void *memory;
    size_t bytes;
    size_t most; /* asked for */
} scratch;

static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;
static int scratch_usable;

static void release(void *value)
{
    scratch *s = value;
    free(s->memory);
    free(s);
}

static void scratch_prepare(void) { scratch_usable = !pthread_key_create(&scratch_key, release); }

void *npuc_scratch(size_t bytes)
{
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
    if (s->most < bytes) s->most = bytes;
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

size_t npuc_scratch_most(void)
{
    pthread_once(&scratch_once, scratch_prepare);
    scratch *s = scratch_usable ? pthread_getspecific(scratch_key) : NULL;
    const size_t most = s ? s->most : 0;
    if (s) s->most = 0;
    return most;
}

#endif
