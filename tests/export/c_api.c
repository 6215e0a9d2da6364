/* Exercises npu.h on a model and its sample: c_api MODEL INPUT EXPECTED. Prints what is wrong; the exit status is its line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu.h"
#include "npu_static.h"

#define CHECK(what)                                                    \
    do {                                                               \
        if (!(what)) {                                                 \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, npu_error()); \
            exit(1);                                                   \
        }                                                              \
    } while (0)

enum { JOBS = 20 };

static size_t read_all(const char *path, void **data)
{
    FILE *file = fopen(path, "rb");
    CHECK(file && fseek(file, 0, SEEK_END) == 0);
    const size_t size = (size_t)ftell(file);
    rewind(file);
    CHECK((*data = malloc(size + 1)) && fread(*data, 1, size, file) == size);
    fclose(file);
    return size;
}

int main(int count, char **words)
{
    void *bytes, *input, *expected;
    npu_model *model = (npu_model *)(void *)words;
    CHECK(count == 4);
    const size_t size = read_all(words[1], &bytes);
    const size_t input_size = read_all(words[2], &input), output_size = read_all(words[3], &expected);

    CHECK(npu_load_memory(bytes, size / 2, &model) == NPU_BAD_FILE && !model && strstr(npu_error(), "not a sound .npu file"));
    ((unsigned char *)bytes)[size / 2] ^= 1;
    CHECK(npu_load_memory(bytes, size, &model) == NPU_BAD_FILE);
    ((unsigned char *)bytes)[size / 2] ^= 1;
    CHECK(npu_load_memory((char *)bytes + 1, size - 1, &model) == NPU_BAD_FILE);
    CHECK(npu_load_memory(NULL, 0, &model) == NPU_BAD_FILE);
    CHECK(npu_load_memory(bytes, size, NULL) == NPU_BAD_ARGUMENT);
    CHECK(npu_load("/nowhere/model.npu", &model) == NPU_NO_FILE && strstr(npu_error(), "/nowhere/model.npu"));
    CHECK(npu_load("/", &model) == NPU_NO_FILE && strstr(npu_error(), "is a folder"));
    /* The load failed, and nobody looked. */
    CHECK(!npu_input_count(model) && !npu_output_count(model) && !npu_input(model, 0) && !npu_output(model, 0));
    CHECK(strcmp(npu_name(model), "") == 0 && npu_run(model, NULL, NULL) == NPU_BAD_ARGUMENT);
    CHECK(npu_set_threads(model, 2) == NPU_BAD_ARGUMENT && strcmp(npu_error(), "there is no model") == 0);

    CHECK(npu_load_memory(bytes, size, &model) == NPU_OK);
    CHECK(npu_input_count(model) == 1 && npu_output_count(model) == 1);
    CHECK(!npu_input(model, 1) && !npu_input(model, -1) && !npu_output(model, 1));
    CHECK(npu_input(model, 0)->size == input_size && npu_output(model, 0)->size == output_size);
    CHECK(npu_input(model, 0)->dtype == NPU_F32 && npu_input(model, 0)->elements == (int64_t)input_size / 4);
    CHECK(strcmp(npu_output(model, 0)->name, "logits") == 0 && npu_output(model, 0)->rank == 2);

    void *got = calloc(JOBS, output_size);
    const void *inputs[] = {input};
    void *outputs[] = {got};
    CHECK(npu_run(model, NULL, outputs) == NPU_BAD_ARGUMENT);
    outputs[0] = NULL;
    CHECK(npu_run(model, inputs, outputs) == NPU_BAD_ARGUMENT && strstr(npu_error(), "output 0, 'logits', is NULL"));
    outputs[0] = got;
    CHECK(npu_set_threads(model, 0) == NPU_BAD_ARGUMENT && npu_set_threads(model, 2) == NPU_OK);
    CHECK(npu_set_runs(model, 0) == NPU_BAD_ARGUMENT && npu_set_runs(model, 65) == NPU_BAD_ARGUMENT && npu_set_runs(NULL, 1));
    CHECK(npu_run(model, inputs, outputs) == NPU_OK && memcmp(got, expected, output_size) == 0);

    npu_needs needs;
    CHECK(npu_measure(model, &needs) == NPU_OK && needs.arena > needs.local && needs.local > 0 && needs.buffer[0] > 0);

    /* Jobs: the list of pointers may change at once. */
    npu_job *jobs[JOBS];
    memset(got, 0, JOBS * output_size);
    for (int i = 0; i < JOBS; i++) {
        outputs[0] = (char *)got + (size_t)i * output_size;
        CHECK(npu_submit(model, inputs, outputs, &jobs[i]) == NPU_OK);
        outputs[0] = NULL;
    }
    const npu_status last = npu_wait(jobs[JOBS - 1], 0.0);
    CHECK(last == NPU_OK || last == NPU_TIMEOUT);
    CHECK(npu_wait(jobs[JOBS - 1], 60.0) == NPU_OK);
    for (int i = 0; i < JOBS; i++) {
        CHECK(npu_wait(jobs[i], 0.0) == NPU_OK && npu_wait(jobs[i], -1.0) == NPU_OK);
        CHECK(memcmp((char *)got + (size_t)i * output_size, expected, output_size) == 0);
        npu_job_free(jobs[i]);
    }

    /* A job that fails says why, in the thread that waits. */
    outputs[0] = NULL;
    CHECK(npu_submit(model, NULL, outputs, &jobs[0]) == NPU_BAD_ARGUMENT && !jobs[0]);
    CHECK(npu_submit(model, inputs, outputs, NULL) == NPU_BAD_ARGUMENT);
    CHECK(npu_submit(model, inputs, outputs, &jobs[0]) == NPU_OK);
    CHECK(npu_wait(jobs[0], -1.0) == NPU_BAD_ARGUMENT && strstr(npu_error(), "output 0"));
    npu_job_free(jobs[0]);

    /* A model that goes with jobs waiting: each is done or cancelled. */
    memset(got, 0, JOBS * output_size);
    for (int i = 0; i < JOBS; i++) {
        outputs[0] = (char *)got + (size_t)i * output_size;
        CHECK(npu_submit(model, inputs, outputs, &jobs[i]) == NPU_OK);
    }
    npu_free(model);
    int cancelled = 0;
    for (int i = 0; i < JOBS; i++) {
        const npu_status status = npu_wait(jobs[i], 0.0);
        CHECK(status == NPU_CANCELLED || (status == NPU_OK && !cancelled));
        cancelled |= status == NPU_CANCELLED;
        CHECK(status || memcmp((char *)got + (size_t)i * output_size, expected, output_size) == 0);
        npu_job_free(jobs[i]);
    }
    npu_free(NULL);
    npu_job_free(NULL);
    free(got);
    free(bytes);
    free(input);
    free(expected);
    return 0;
}
