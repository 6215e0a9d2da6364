/*
 * Run a compiled model on an image or on raw tensors, and print the five largest entries of each output.
 *
 *   ./app sample                    the sample, and whether the outputs have the expected bits
 *   ./app image.jpg                 an image (JPEG, PNG, BMP, PPM or PGM), if the model was compiled with its preprocessing
 *   ./app input0.bin input1.bin     raw tensors, one file for each input
 *
 * Of a program with several entries, the first whose inputs have the sizes of the files is run, or the one that -e names.
 * The exit status is 0, 1 for wrong bits, 2 for an error.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "npu.h"
#include "image.h"
#include "top.h"

enum { SHOWN = 5, WRONG_BITS = 1, FAILED = 2 };

/* How far outputs may be from the expected ones, as a part of the largest number. 0: not at all, bit by bit. */
static const double tolerance = @TOLERANCE@;

typedef struct options {
    const char *model, *output, *entry, *key;
    int threads, runs; /* runs: 0, or how many are timed */
    int count;
    char **inputs;
} options;

static int usage(void)
{
    fprintf(stderr, "usage: app [-m MODEL.npu] [-e ENTRY] [-k PUBLIC_KEY] [-o OUTPUTS.bin] [-t THREADS] [-p RUNS] sample | INPUT...\n");
    return FAILED;
}

static int failed(const char *where, const char *why)
{
    fprintf(stderr, "app: %s: %s\n", where, why);
    return FAILED;
}

/* A whole number of 1 or more, or else 0. */
static int number_of(const char *text)
{
    char *end;
    const long number = strtol(text, &end, 10);
    return *end || number < 1 || number > 1000000000 ? 0 : (int)number;
}

/* Whether the words are as the usage has them; if not, what is wrong has been printed. */
static int parse(int count, char **words, options *into)
{
    *into = (options){.model = "model.npu", .threads = 1};
    int at = 1;
    for (; at + 1 < count && words[at][0] == '-'; at += 2) {
        if (strcmp(words[at], "-m") == 0) into->model = words[at + 1];
        else if (strcmp(words[at], "-o") == 0) into->output = words[at + 1];
        else if (strcmp(words[at], "-e") == 0) into->entry = words[at + 1];
        else if (strcmp(words[at], "-k") == 0) into->key = words[at + 1];
        else if (strcmp(words[at], "-t") == 0) into->threads = number_of(words[at + 1]);
        else if (strcmp(words[at], "-p") == 0) {
            into->runs = number_of(words[at + 1]);
            if (!into->runs) return failed("-p", "the number of runs is 1 or more"), 0;
        } else return failed(words[at], "there is no such option"), 0;
    }
    into->inputs = words + at;
    into->count = count - at;
    for (int i = at + 1; i < count; i++)
        if (words[i][0] == '-') return failed(words[i], "options stand before the inputs"), 0;
    return into->count > 0 && words[at][0] != '-';
}

/* ---- files ---- */

static int ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* Exactly `size` bytes. */
static const char *read_exactly(const char *path, void *data, size_t size)
{
    FILE *file = fopen(path, "rb");
    if (!file) return "the file cannot be opened";
    const size_t got = fread(data, 1, size, file);
    const int more = getc(file) != EOF;
    fclose(file);
    return got == size && !more ? NULL : "the file does not have the size of the tensor";
}

static void sample_path(char *path, size_t size, const char *folder, const char *kind, int index)
{
    snprintf(path, size, "%s/%s%d.bin", folder, kind, index);
}

/* -1 if there is none. */
static long size_of(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) return -1;
    const long size = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
    fclose(file);
    return size;
}

static int is_sample(const options *args)
{
    char first[1024];
    if (args->count != 1) return 0;
    sample_path(first, sizeof first, args->inputs[0], "input", 0);
    return size_of(first) >= 0;
}

static void input_path(char *path, size_t size, const options *args, int index)
{
    if (is_sample(args)) sample_path(path, size, args->inputs[0], "input", index);
    else snprintf(path, size, "%s", args->inputs[index]);
}

static int is_image(const char *path)
{
    static const char *const endings[] = {".ppm", ".pgm", ".bmp", ".jpg", ".jpeg", ".png", ".BMP", ".JPG", ".JPEG", ".PNG"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (ends_with(path, endings[i])) return 1;
    return 0;
}

/* ---- the model ---- */

/* 64 hexadecimal digits. */
static int read_key(const char *text, uint8_t *key)
{
    static const char digits[] = "0123456789abcdef";
    if (strlen(text) != 64) return 0;
    for (int i = 0; i < 64; i++) {
        const char *digit = strchr(digits, text[i]);
        if (!digit) return 0;
        key[i / 2] = (uint8_t)(key[i / 2] << 4 | (digit - digits));
    }
    return 1;
}

static int check_key(const npu_model *model, const options *args)
{
    uint8_t key[32] = {0};
    if (!args->key) return 0;
    if (!read_key(args->key, key)) return failed("-k", "a public key is 64 hexadecimal digits, as 'npuc sign' prints it");
    return npu_verify(model, key) ? failed(args->model, npu_error()) : 0;
}

static int takes_files(const npu_model *model, const options *args)
{
    if (!is_sample(args) && args->count != npu_input_count(model)) return 0;
    for (int i = 0; i < npu_input_count(model); i++) {
        char path[1024];
        input_path(path, sizeof path, args, i);
        if (!is_image(path) && size_of(path) != (long)npu_input(model, i)->size) return 0;
    }
    return 1;
}

/* The entry to run, in the place of the model, and its number. */
static int choose_entry(npu_model **model, const options *args, int *number)
{
    npu_model *const program = *model;
    const int entries = npu_entry_count(program);
    for (*number = 0; *number < entries; ++*number) {
        const char *name = npu_entry_name(program, *number);
        if (args->entry && strcmp(name, args->entry) != 0) continue;
        if (!args->entry && entries == 1) return 0; /* has no name */
        if (npu_entry(program, name, model)) return failed(args->model, npu_error());
        if (args->entry || takes_files(*model, args)) return 0;
    }
    if (args->entry && entries == 1) return failed("-e", "the program has one entry, which has no name: leave -e out");
    if (args->entry) {
        fprintf(stderr, "app: -e: the program has no entry '%s'; it has", args->entry);
        for (int i = 0; i < entries; i++) fprintf(stderr, "%s '%s'", i ? "," : "", npu_entry_name(program, i));
        fprintf(stderr, "\n");
        return FAILED;
    }
    *model = program; /* says what is wrong with the files */
    *number = 0;
    return 0;
}

/* ---- tensors ---- */

static int read_image(const char *path, int index, const npu_tensor *tensor, void *data)
{
    image img;
    if (index >= settings_count || !settings[index])
        return failed(path, "the model has no preprocessing for images; give a raw tensor");
    const char *why = image_read(path, &img);
    if (!why) {
        why = image_to_tensor(&img, settings[index], tensor, data);
        image_free(&img);
    }
    return why ? failed(path, why) : 0;
}

static int read_inputs(const npu_model *model, const options *args, int entry, void **inputs)
{
    for (int i = 0; i < npu_input_count(model); i++) {
        const npu_tensor *tensor = npu_input(model, i);
        char path[1024];
        input_path(path, sizeof path, args, i);
        if (is_image(path)) {
            if (read_image(path, settings_first[entry] + i, tensor, inputs[i])) return FAILED;
            continue;
        }
        const char *why = read_exactly(path, inputs[i], tensor->size);
        if (why) {
            fprintf(stderr, "app: %s: %s (input '%s' has %zu bytes)\n", path, why, tensor->name, tensor->size);
            return FAILED;
        }
    }
    return 0;
}

static void print_top(const npu_tensor *tensor, const void *data)
{
    entry entries[SHOWN];
    const int count = top_entries(tensor, data, SHOWN, entries);
    printf("%s\n", tensor->name);
    for (int i = 0; i < count; i++) printf("  %d.  %6lld  %.6g\n", i + 1, (long long)entries[i].index, entries[i].value);
}

/* Compares an output with the expected one, and remembers the largest difference of all. */
static int check_bits(const npu_tensor *tensor, const void *data, const char *folder, int index, double *most)
{
    char path[1024];
    sample_path(path, sizeof path, folder, "output", index);
    void *expected = malloc(tensor->size + 1);
    if (!expected) return failed(path, "there is not enough memory");
    const char *why = read_exactly(path, expected, tensor->size);
    const double difference = why ? 0 : largest_difference(tensor, data, expected);
    const int same = !why && (memcmp(expected, data, tensor->size) == 0 || (tolerance > 0 && difference <= tolerance));
    free(expected);
    if (why) return failed(path, why);
    if (difference > *most) *most = difference;
    if (!same && tolerance > 0) fprintf(stderr, "app: output '%s' is off by %.3g of its largest number\n", tensor->name, difference);
    else if (!same) fprintf(stderr, "app: output '%s' does not have the expected bits\n", tensor->name);
    return same ? 0 : WRONG_BITS;
}

static int write_outputs(const npu_model *model, const char *path, void *const *outputs)
{
    FILE *file = fopen(path, "wb");
    if (!file) return failed(path, "the file cannot be written");
    int good = 1;
    for (int i = 0; i < npu_output_count(model); i++) {
        const size_t size = npu_output(model, i)->size;
        good &= fwrite(outputs[i], 1, size, file) == size;
    }
    good &= fclose(file) == 0;
    return good ? 0 : failed(path, "the file cannot be written");
}

/* How long the runs took, part by part. */
static void print_times(npu_model *model)
{
    const size_t size = (size_t)npu_summary(model, NULL, 0) + 1;
    char *text = malloc(size);
    if (!text) return;
    npu_summary(model, text, size);
    printf("%s", text);
    free(text);
}

/* ---- all ---- */

static int run(npu_model *model, const options *args, int entry, void **inputs, void **outputs)
{
    const int sample = is_sample(args);
    if (!sample && args->count != npu_input_count(model)) {
        fprintf(stderr, "app: the model takes %d input%s, and %d are given\n", npu_input_count(model),
                npu_input_count(model) == 1 ? "" : "s", args->count);
        return FAILED;
    }
    double most = 0;
    int status = read_inputs(model, args, entry, inputs);
    if (status) return status;
    for (int i = 0; i < (args->runs > 1 ? args->runs : 1); i++)
        if (npu_run(model, (const void *const *)inputs, outputs)) return failed(args->model, npu_error());
    if (args->runs > 0) print_times(model);
    for (int i = 0; i < npu_output_count(model); i++) print_top(npu_output(model, i), outputs[i]);
    for (int i = 0; sample && !status && i < npu_output_count(model); i++)
        status = check_bits(npu_output(model, i), outputs[i], args->inputs[0], i, &most);
    if (sample && !status && most > 0) printf("all outputs are the expected ones within %.3g of their largest number\n", most);
    else if (sample && !status) printf("all outputs have the expected bits\n");
    if (!status && args->output) status = write_outputs(model, args->output, outputs);
    return status;
}

/* Memory for tensors: `count` pointers. */
static void **new_tensors(const npu_model *model, const npu_tensor *(*tensor)(const npu_model *, int32_t), int count)
{
    void **buffers = calloc((size_t)count + 1, sizeof *buffers);
    for (int i = 0; buffers && i < count; i++)
        if (!(buffers[i] = malloc(tensor(model, i)->size + 1))) {
            while (i--) free(buffers[i]);
            free(buffers);
            return NULL;
        }
    return buffers;
}

static void free_tensors(void **tensors, int count)
{
    for (int i = 0; tensors && i < count; i++) free(tensors[i]);
    free(tensors);
}

static int run_model(npu_model *model, const options *args, int entry)
{
    const int in = npu_input_count(model), out = npu_output_count(model);
    void **inputs = new_tensors(model, npu_input, in), **outputs = new_tensors(model, npu_output, out);
    int status;
    if (npu_set_threads(model, args->threads)) status = failed("-t", npu_error());
    else if (!inputs || !outputs) status = failed("tensors", "there is not enough memory");
    else status = run(model, args, entry, inputs, outputs);
    free_tensors(inputs, in);
    free_tensors(outputs, out);
    return status;
}

int main(int count, char **words)
{
    options args;
    npu_model *program;
    int entry;
    if (!parse(count, words, &args)) return usage();
    register_kernels();
    if (npu_load(args.model, &program)) return failed("model", npu_error());
    npu_model *model = program;
    int status = check_key(program, &args);
    if (!status) status = choose_entry(&model, &args, &entry);
    if (!status) status = run_model(model, &args, entry);
    npu_free(program);
    return status;
}
