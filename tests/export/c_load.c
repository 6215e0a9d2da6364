/*
 * Load on npu.h: c_load MODEL INPUT EXPECTED THREADS JOBS MODELS. So many threads with so many runs and jobs each on one model,
 * then as many models at once; a wait that is too short; a model that goes with jobs in flight. Every result is compared. Prints
 * how jobs ended and how memory grew; for a build with -fsanitize=thread.
 */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "npu.h"

#define CHECK(what)                                                              \
    do {                                                                         \
        if (!(what)) {                                                           \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, npu_error()); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

enum { WINDOW = 8, MOST_THREADS = 64 };

static const char *path;
static void *input, *expected;
static size_t output_size;
static int jobs_each;
static atomic_long done, cancelled, late;

static size_t read_all(const char *name, void **data)
{
    FILE *file = fopen(name, "rb");
    CHECK(file && fseek(file, 0, SEEK_END) == 0);
    const size_t size = (size_t)ftell(file);
    rewind(file);
    CHECK((*data = malloc(size + 1)) && fread(*data, 1, size, file) == size);
    fclose(file);
    return size;
}

static long resident(void)
{
    long all = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%ld %ld", &all, &pages) != 2) pages = 0;
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void check_result(void *output)
{
    CHECK(memcmp(output, expected, output_size) == 0);
    memset(output, 0xA5, output_size);
    atomic_fetch_add(&done, 1);
}

/* Every other run in the background, a few of them at a time. */
static void *client(void *argument)
{
    npu_model *model = argument;
    npu_job *jobs[WINDOW] = {NULL};
    char *outputs = malloc((WINDOW + 1) * output_size);
    CHECK(outputs);
    const void *inputs[] = {input};
    for (int i = 0; i < jobs_each; i++) {
        const int slot = i / 2 % WINDOW;
        void *place[] = {outputs + (size_t)(i % 2 ? WINDOW : slot) * output_size};
        if (i % 2) {
            CHECK(npu_run(model, inputs, place) == NPU_OK);
            check_result(place[0]);
            continue;
        }
        if (jobs[slot]) {
            npu_status status = npu_wait(jobs[slot], 0.0);
            if (status == NPU_TIMEOUT) {
                atomic_fetch_add(&late, 1);
                status = npu_wait(jobs[slot], 600.0);
            }
            CHECK(status == NPU_OK);
            check_result(place[0]);
            npu_job_free(jobs[slot]);
        }
        CHECK(npu_submit(model, inputs, place, &jobs[slot]) == NPU_OK);
    }
    for (int slot = 0; slot < WINDOW; slot++)
        if (jobs[slot]) {
            CHECK(npu_wait(jobs[slot], -1.0) == NPU_OK);
            check_result(outputs + (size_t)slot * output_size);
            npu_job_free(jobs[slot]);
        }
    free(outputs);
    return NULL;
}

/* `count` clients, each on the model of its number. */
static void clients(npu_model **models, int count)
{
    pthread_t threads[MOST_THREADS];
    for (int i = 0; i < count; i++) CHECK(pthread_create(&threads[i], NULL, client, models[i]) == 0);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

static void on_one_model(int threads, int runs, int kernel_threads)
{
    npu_model *model, *all[MOST_THREADS];
    CHECK(npu_load(path, &model) == NPU_OK && npu_set_runs(model, runs) == NPU_OK);
    CHECK(npu_set_threads(model, kernel_threads) == NPU_OK);
    for (int i = 0; i < threads; i++) all[i] = model;
    clients(all, threads);
    const long before = resident();
    clients(all, threads);
    printf("%d threads x %d jobs, %d at once, twice: memory grew by %ld KiB\n", threads, jobs_each, runs, resident() - before);
    npu_free(model);
}

static void on_many_models(int count)
{
    npu_model *models[MOST_THREADS];
    for (int i = 0; i < count; i++) CHECK(npu_load(path, &models[i]) == NPU_OK);
    clients(models, count);
    for (int i = 0; i < count; i++) npu_free(models[i]);
}

static void shutdown_in_flight(int count)
{
    npu_model *model;
    npu_job *jobs[256];
    char *outputs = malloc((size_t)count * output_size);
    const void *inputs[] = {input};
    CHECK(outputs && count <= 256 && npu_load(path, &model) == NPU_OK && npu_set_runs(model, 2) == NPU_OK);
    for (int i = 0; i < count; i++) {
        void *place[] = {outputs + (size_t)i * output_size};
        CHECK(npu_submit(model, inputs, place, &jobs[i]) == NPU_OK);
    }
    npu_free(model);
    for (int i = 0; i < count; i++) {
        const npu_status status = npu_wait(jobs[i], 0.0);
        CHECK(status == NPU_OK || status == NPU_CANCELLED);
        if (status) atomic_fetch_add(&cancelled, 1);
        else check_result(outputs + (size_t)i * output_size);
        npu_job_free(jobs[i]);
    }
    free(outputs);
}

int main(int count, char **words)
{
    CHECK(count == 7);
    path = words[1];
    read_all(words[2], &input);
    output_size = read_all(words[3], &expected);
    const int threads = atoi(words[4]), models = atoi(words[6]);
    jobs_each = atoi(words[5]);
    CHECK(threads > 0 && threads <= MOST_THREADS && models > 0 && models <= MOST_THREADS);
    on_one_model(threads, 1, 1);
    on_one_model(threads, 4, 2);
    CHECK(atomic_load(&done) == 4L * threads * jobs_each);
    atomic_store(&done, 0);
    jobs_each = jobs_each / 10 + 1;
    on_many_models(models);
    CHECK(atomic_load(&done) == (long)models * jobs_each);
    atomic_store(&done, 0);
    shutdown_in_flight(200);
    CHECK(atomic_load(&done) + atomic_load(&cancelled) == 200);
    printf("%ld waits were too short, %ld jobs were cancelled, none was lost\n", atomic_load(&late), atomic_load(&cancelled));
    free(input);
    free(expected);
    return 0;
}
