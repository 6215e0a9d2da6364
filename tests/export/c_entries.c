/* Entries from C: c_entries PROGRAM INPUT BATCH SINGLE ROWS: an input of "batch", its output, and the outputs of "single" row by row. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu.h"

#define CHECK(what)                                                    \
    do {                                                               \
        if (!(what)) {                                                 \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, npu_error()); \
            exit(1);                                                   \
        }                                                              \
    } while (0)

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
    void *input, *expected, *by_row;
    npu_model *model, *batch, *again, *single;
    CHECK(count == 6);
    const int64_t rows = atoi(words[5]);
    const size_t input_size = read_all(words[2], &input), output_size = read_all(words[3], &expected);
    CHECK(read_all(words[4], &by_row) == output_size);
    CHECK(npu_load(words[1], &model) == NPU_OK);
    CHECK(npu_entry_count(model) == 2 && !strcmp(npu_entry_name(model, 0), "single") && !strcmp(npu_entry_name(model, 1), "batch"));
    CHECK(!strcmp(npu_entry_name(model, 2), "") && !strcmp(npu_entry_name(model, -1), "") && npu_entry_count(NULL) == 0);
    CHECK(npu_entry(model, "none", &batch) == NPU_BAD_ARGUMENT && !batch && strstr(npu_error(), "no entry 'none'"));
    CHECK(npu_entry(model, NULL, &batch) == NPU_BAD_ARGUMENT && npu_entry(NULL, "batch", &batch) == NPU_BAD_ARGUMENT);

    CHECK(npu_entry(model, "batch", &batch) == NPU_OK && batch != model);
    npu_tensor wanted = *npu_input(batch, 0);
    CHECK(wanted.shape[0] == rows && wanted.size == input_size && npu_output(batch, 0)->size == output_size);
    CHECK(npu_entry_for(model, &wanted, 1, &again) == NPU_OK && again == batch);
    wanted.shape[0] = 1;
    CHECK(npu_entry_for(batch, &wanted, 1, &single) == NPU_OK && single == model);
    wanted.shape[0] = 77;
    CHECK(npu_entry_for(model, &wanted, 1, &again) == NPU_BAD_ARGUMENT && !again);
    wanted.shape[0] = 1;
    wanted.name = "another";
    CHECK(npu_entry_for(model, &wanted, 1, &again) == NPU_BAD_ARGUMENT);
    CHECK(npu_entry_for(model, &wanted, 2, &again) == NPU_BAD_ARGUMENT && npu_entry_for(model, NULL, 1, &again) == NPU_BAD_ARGUMENT);

    char *got = calloc(2, output_size);
    const void *inputs[] = {input};
    void *outputs[] = {got};
    CHECK(npu_run(batch, inputs, outputs) == NPU_OK && memcmp(got, expected, output_size) == 0);
    for (int64_t row = 0; row < rows; row++) {
        const void *place[] = {(char *)input + (size_t)row * input_size / (size_t)rows};
        void *to[] = {got + output_size + (size_t)row * output_size / (size_t)rows};
        CHECK(npu_run(single, place, to) == NPU_OK);
    }
    CHECK(memcmp(got + output_size, by_row, output_size) == 0);
    npu_model *part;
    int parts = 0;
    CHECK(npu_part(model, 0, &part) == NPU_BAD_ARGUMENT && !part && npu_part(NULL, 1, &part) == NPU_BAD_ARGUMENT);
    for (int32_t index = 1; npu_part(model, index, &part) == NPU_OK || !strstr(npu_error(), "there is no part"); index++) {
        if (!part) {
            CHECK(strstr(npu_error(), "only converts tensors at the ends"));
            continue;
        }
        CHECK(part != model && npu_part(model, index, &again) == NPU_OK && again == part);
        CHECK(npu_part(part, 1, &again) == NPU_BAD_ARGUMENT && npu_input_count(part) == 1 && npu_output_count(part) == 1);
        void *zeros = calloc(1, npu_input(part, 0)->size), *made = calloc(1, npu_output(part, 0)->size);
        CHECK(zeros && made && npu_run(part, (const void *const *)&zeros, &made) == NPU_OK);
        free(zeros);
        free(made);
        CHECK(npu_part(batch, index, &again) == NPU_OK && again != part && npu_input(again, 0)->shape[0] == rows);
        parts++;
    }
    CHECK(parts > 0);
    npu_job *job;
    CHECK(npu_submit(batch, inputs, outputs, &job) == NPU_OK);
    npu_free(batch); /* the program's, and so nothing happens */
    CHECK(npu_wait(job, -1) == NPU_OK);
    npu_job_free(job);
    npu_free(model);
    free(got);
    free(input);
    free(expected);
    free(by_row);
    return 0;
}
