/*
 * A libFuzzer target for the C runtime: bytes are loaded as a .npu file, asked what they are, and run.
 *
 * The mutator knows the format. It damages one section at a time, mostly where tables and instructions are, and gives the file
 * the checksums that belong to it: without them every damaged file would end at the first comparison.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "npu.h"
#include "npuc/file.h"
#include "sha256.h"

enum { MOST_BYTES = 1 << 20, SECTION = 64 };

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

static uint64_t number(const uint8_t *at, size_t bytes)
{
    uint64_t value = 0;
    memcpy(&value, at, bytes); /* little-endian, as the file is */
    return value;
}

/* Write the digests of a file over its last bytes. */
static void seal(uint8_t *data, size_t size)
{
    size_t chunks = 0;
    while (size > (chunks + 1) * NPUC_FILE_DIGEST && (size - (chunks + 1) * NPUC_FILE_DIGEST + NPUC_FILE_CHUNK - 1) / NPUC_FILE_CHUNK > chunks)
        chunks++;
    if (size <= (chunks + 1) * NPUC_FILE_DIGEST) return;
    const size_t body = size - (chunks + 1) * NPUC_FILE_DIGEST;
    for (size_t chunk = 0; chunk < chunks; chunk++) {
        const size_t at = chunk * NPUC_FILE_CHUNK, rest = body - at;
        npuc_sha256(data + at, rest < NPUC_FILE_CHUNK ? rest : NPUC_FILE_CHUNK, data + body + chunk * NPUC_FILE_DIGEST);
    }
    npuc_sha256(data + body, chunks * NPUC_FILE_DIGEST, data + size - NPUC_FILE_DIGEST);
}

/* A part of the file that means something: the headers, or a section; the whole file where the headers lead nowhere. */
static void part_of(const uint8_t *data, size_t size, unsigned seed, size_t *at, size_t *length)
{
    *at = 0, *length = size;
    if (size < SECTION) return;
    const uint64_t table = number(data + 40, 8), count = number(data + 60, 2);
    if (table > size || count > (size - table) / SECTION || !count) return;
    const uint64_t pick = seed % (count + 2);
    if (pick == count) *length = SECTION;
    if (pick == count + 1) *at = (size_t)table, *length = (size_t)count * SECTION;
    if (pick >= count) return;
    const uint8_t *section = data + table + pick * SECTION;
    const uint64_t first = number(section + 24, 8), bytes = number(section + 32, 8);
    if (!bytes || first > size || bytes > size - first) return;
    *at = (size_t)first, *length = (size_t)bytes;
}

static const uint64_t notable[] = {0, 1, 2, 3, 7, 8, 63, 64, 127, 128, 255, 256, 4096, 0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xffffffff,
                                   0x100000000, (uint64_t)1 << 48, ((uint64_t)1 << 48) + 1, INT64_MAX, (uint64_t)1 << 63, UINT64_MAX - 63, UINT64_MAX};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    static uint8_t scratch[MOST_BYTES];
    size_t at, length;
    part_of(data, size, seed >> 4, &at, &length);
    if (seed % 16 == 0 || !size || length > sizeof scratch) {
        size = LLVMFuzzerMutate(data, size, most);
    } else if (seed % 16 < 8 && length >= 8) {
        const size_t width = (size_t)1 << (seed >> 4) % 4, slot = (seed >> 8) % (length / width);
        const uint64_t value = notable[(seed >> 20) % (sizeof notable / sizeof *notable)];
        memcpy(data + at + slot * width, &value, width);
    } else {
        memcpy(scratch, data + at, length);
        const size_t made = LLVMFuzzerMutate(scratch, length, length);
        memcpy(data + at, scratch, made < length ? made : length);
    }
    if (seed % 32 != 1) seal(data, size);
    return size;
}

static void ask(npu_model *model)
{
    (void)npu_name(model);
    for (int32_t i = -1; i <= npu_input_count(model); i++) (void)npu_input(model, i);
    for (int32_t i = -1; i <= npu_output_count(model); i++) (void)npu_output(model, i);
    for (int32_t i = 0; i < npu_time_count(model); i++) (void)npu_times(model, i, &(npu_time){0});
    char text[200];
    (void)npu_summary(model, text, sizeof text);
    const uint8_t key[32] = {1};
    (void)npu_verify(model, key);
}

static void run(npu_model *model)
{
    enum { PORTS = 64 };
    const void *inputs[PORTS];
    void *outputs[PORTS];
    const int32_t in = npu_input_count(model), out = npu_output_count(model);
    size_t whole = 0;
    if (in > PORTS || out > PORTS) return;
    for (int32_t i = 0; i < in + out; i++) {
        const npu_tensor *t = i < in ? npu_input(model, i) : npu_output(model, i - in);
        if (t->size > MOST_BYTES || (whole += t->size) > MOST_BYTES) return;
    }
    for (int32_t i = 0; i < in; i++) inputs[i] = calloc(1, npu_input(model, i)->size + 1);
    for (int32_t i = 0; i < out; i++) outputs[i] = calloc(1, npu_output(model, i)->size + 1);
    for (int k = 0; k < 2; k++) (void)npu_run(model, inputs, outputs);
    for (int32_t i = 0; i < in; i++) free((void *)(uintptr_t)inputs[i]);
    for (int32_t i = 0; i < out; i++) free(outputs[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* At a multiple of 8, with nothing behind it that a reader might touch. */
    uint8_t *bytes = malloc(size ? size : 1);
    memcpy(bytes, data, size);
    npu_model *model = NULL;
    if (npu_load_memory(bytes, size, &model) == NPU_OK) {
        ask(model);
        run(model);
        for (int32_t i = 0; i < npu_entry_count(model) && i < 4; i++) {
            npu_model *entry = NULL;
            if (npu_entry(model, npu_entry_name(model, i), &entry) == NPU_OK) run(entry);
        }
        npu_free(model);
    }
    free(bytes);
    return 0;
}
