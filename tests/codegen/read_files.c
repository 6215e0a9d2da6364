/*
 * Reads files from stdin, each after its length in eight bytes, opens every one with the C reader, and prints a line for each:
 * "ok", or what is wrong. Of a good file every table, name and stream of every entry is touched, so that a sanitizer sees a bad pointer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npuc/isa.h"
#include "npuc/reader.h"

static uint64_t touch(const void *bytes, uint64_t size)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < size; i++)
        sum += ((const uint8_t *)bytes)[i];
    return sum;
}

static uint64_t touch_all(const npuc_file *f)
{
    uint64_t sum = touch(f->weights, f->segments[0].size);
    for (uint32_t k = 0; k < f->segment_count; k++)
        sum += strlen(npuc_file_string(f, f->segments[k].name));
    for (uint32_t k = 0; k < f->tensor_count; k++)
        sum += strlen(npuc_file_string(f, f->tensors[k].name));
    for (uint32_t k = 0; k < f->layer_count; k++)
        sum += strlen(npuc_file_string(f, f->layers[k].name));
    for (uint32_t k = 0; k < f->header->inputs; k++)
        sum += f->tensors[f->lists[f->header->first_input + k]].size;
    for (uint32_t k = 0; k < f->subgraph_count; k++) {
        uint64_t count;
        for (uint32_t core = 0; npuc_file_stream(f, k, core, &count); core++) {
            const uint8_t *stream = npuc_file_stream(f, k, core, &count);
            sum += touch(stream, count * NPUC_RECORD);
        }
        const uint8_t *model = npuc_file_model(f, k, &count);
        sum += touch(model, count);
        const uint8_t *host = npuc_file_host(f, k, &count);
        sum += touch(host, count);
        for (uint32_t i = 0; i < f->subgraphs[k].outputs; i++)
            sum += f->tensors[f->lists[f->subgraphs[k].first_output + i]].size;
    }
    for (uint32_t k = 0; k < f->allocation_count; k++)
        sum += strlen(npuc_file_string(f, f->allocations[k].name));
    return sum;
}

int main(void)
{
    uint64_t size, sum = 0;
    while (fread(&size, sizeof size, 1, stdin) == 1) {
        /* Exactly as large as the file: the byte after it is poisoned. */
        uint8_t *bytes = malloc(size ? size : 1);
        if (!bytes || fread(bytes, 1, size, stdin) != size)
            return 1;
        npuc_file file;
        const char *why = npuc_file_open(bytes, size, &file);
        if (!why)
            why = npuc_file_verify(&file, 2);
        for (uint32_t k = 0; !why && k < file.entry_count; k++) {
            npuc_file entry;
            why = npuc_file_select(&file, k, &entry);
            sum += why ? 0 : touch_all(&entry) + strlen(npuc_file_entry_name(&file, k));
        }
        printf("%s\n", why ? why : "ok");
        free(bytes);
    }
    return sum == 42 ? 3 : 0;
}
