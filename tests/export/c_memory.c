/*
 * npu.h when memory is short: c_memory MODEL INPUT EXPECTED. Prints how many allocations failed.
 *
 * Load, runs and a job are gone through again and again, and each time another allocation fails, alone or with all that follow.
 * Every call succeeds or says NPU_NO_MEMORY, a run that succeeds has the expected bits, and once there is memory again the same
 * model runs. Linked with --wrap of the allocators; the checks of the compiler find what is lost or used after it was freed.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu.h"

#define CHECK(what)                                                                                       \
    do {                                                                                                  \
        if (!(what)) {                                                                                    \
            fprintf(stderr, "line %d, allocation %d: %s (%s)\n", __LINE__, failing, #what, npu_error());  \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

static int failing, lasting; /* the number of the allocation that fails; whether all that follow do as well */
static atomic_int asked, refused, short_of_memory;

static int refuse(void)
{
    const int number = atomic_fetch_add(&asked, 1) + 1;
    if (!atomic_load(&short_of_memory) || (lasting ? number < failing : number != failing)) return 0;
    atomic_fetch_add(&refused, 1);
    return 1;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t at, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t at, size_t size);

void *__wrap_malloc(size_t size) { return refuse() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) { return refuse() ? NULL : __real_calloc(count, size); }
void *__wrap_realloc(void *old, size_t size) { return refuse() ? NULL : __real_realloc(old, size); }
void *__wrap_aligned_alloc(size_t at, size_t size) { return refuse() ? NULL : __real_aligned_alloc(at, size); }

static void *bytes, *input, *expected, *got;
static size_t size, output_size;

static size_t read_all(const char *path, void **data)
{
    FILE *file = fopen(path, "rb");
    CHECK(file && fseek(file, 0, SEEK_END) == 0);
    const size_t length = (size_t)ftell(file);
    rewind(file);
    CHECK((*data = __real_malloc(length + 1)) && fread(*data, 1, length, file) == length);
    fclose(file);
    return length;
}

static void check(npu_status status)
{
    CHECK(status == NPU_OK || status == NPU_NO_MEMORY);
    CHECK(status ? strstr(npu_error(), "memory") != NULL : !memcmp(got, expected, output_size));
}

/* In a thread of its own, since threads keep scratch memory. */
static void *once(void *unused)
{
    const void *inputs[] = {input};
    void *outputs[] = {got};
    npu_model *model = NULL;
    npu_job *job = NULL;
    const npu_status loaded = npu_load_memory(bytes, size, &model);
    CHECK(loaded == NPU_OK ? model != NULL : loaded == NPU_NO_MEMORY && !model);
    if (loaded) return unused;
    npu_set_runs(model, 2);
    for (int i = 0; i < 2; i++) {
        memset(got, 0, output_size);
        check(npu_run(model, inputs, outputs));
    }
    memset(got, 0, output_size);
    const npu_status queued = npu_submit(model, inputs, outputs, &job);
    CHECK(queued == NPU_OK ? job != NULL : queued == NPU_NO_MEMORY && !job);
    if (job) check(npu_wait(job, -1.0));
    npu_job_free(job);
    atomic_store(&short_of_memory, 0);
    memset(got, 0, output_size);
    CHECK(npu_run(model, inputs, outputs) == NPU_OK && !memcmp(got, expected, output_size));
    npu_free(model);
    return unused;
}

int main(int count, char **words)
{
    CHECK(count == 4);
    size = read_all(words[1], &bytes);
    read_all(words[2], &input);
    output_size = read_all(words[3], &expected);
    CHECK((got = __real_calloc(1, output_size)));
    int failures = 0;
    for (lasting = 0; lasting < 2; lasting++)
        for (failing = 1, atomic_store(&refused, 1); atomic_load(&refused); failing++) {
            pthread_t thread;
            atomic_store(&asked, 0);
            atomic_store(&refused, 0);
            atomic_store(&short_of_memory, 1);
            CHECK(!pthread_create(&thread, NULL, once, NULL) && !pthread_join(thread, NULL));
            failures += atomic_load(&refused);
        }
    printf("%d allocations failed\n", failures);
    free(bytes), free(input), free(expected), free(got);
    return 0;
}
