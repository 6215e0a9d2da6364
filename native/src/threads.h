/* Worker threads and scratch memory for the kernels. */
#ifndef NPUC_THREADS_H
#define NPUC_THREADS_H

#include <stddef.h>

/* Does task `index`; `worker` is below the number of threads asked for, and no two tasks run at once with the same one. */
typedef void (*npuc_task)(void *context, ptrdiff_t index, int worker);

/*
 * Run tasks 0 .. count - 1 on up to `threads` threads, the caller's among them, and return when all are done. Which thread
 * runs which task is not fixed, so tasks must not depend on one another. If the workers are busy with another call, or
 * cannot be started, the caller does all the work itself.
 */
void npuc_parallel(ptrdiff_t count, int threads, npuc_task task, void *context);

/* A 64-byte aligned buffer that the calling thread may use until its next call here, or NULL when memory is short. */
void *npuc_scratch(size_t bytes);

#if defined(NPUC_NO_HEAP)
/* The memory of npuc_scratch(), 64-byte aligned: all that it will ever have. */
void npuc_scratch_use(void *memory, size_t bytes);
#else
/* The most bytes that this thread has asked npuc_scratch() for since it last called this. */
size_t npuc_scratch_most(void);
#endif

#endif /* NPUC_THREADS_H */
