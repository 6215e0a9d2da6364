/*
 * Run the model in model_data.c, each of its entries, on the samples in sample_data.c, print the five largest entries of each output,
 * and compare the outputs with the expected ones. No file, no heap, no thread: all memory is static. The exit status is 0, 1 for wrong bits, 2
 * for an error.
 */
#include <stdio.h>
#include <string.h>

#include "data.h"
#include "kernels.h"
#include "top.h"

enum { SHOWN = 5, WRONG_BITS = 1, FAILED = 2 };

/* How far outputs may be from the expected ones, as a part of the largest number. 0: not at all, bit by bit. */
static const double tolerance = @TOLERANCE@;

static _Alignas(64) unsigned char arena[ARENA_BYTES];
static char line[BUFSIZ];

static void print_top(const npu_tensor *tensor, const void *data)
{
    entry entries[SHOWN];
    const int count = top_entries(tensor, data, SHOWN, entries);
    printf("%s\n", tensor->name);
    for (int i = 0; i < count; i++) printf("  %d.  %6lld  %.6g\n", i + 1, (long long)entries[i].index, entries[i].value);
}

/* Run the entry of a sample on it, and remember the largest difference of all. */
static int run(npu_model *model, const sample *from, double *most)
{
    int status = 0;
    if ((from->entry && npu_entry(model, from->entry, &model)) || npu_run(model, from->inputs, from->outputs)) {
        printf("app: %s\n", npu_error());
        return FAILED;
    }
    if (from->entry) printf("entry %s\n", from->entry);
    for (int i = 0; i < npu_output_count(model); i++) {
        const npu_tensor *tensor = npu_output(model, i);
        print_top(tensor, from->outputs[i]);
        if (memcmp(from->outputs[i], from->expected[i], tensor->size) == 0) continue;
        const double difference = largest_difference(tensor, from->outputs[i], from->expected[i]);
        if (difference > *most) *most = difference;
        if (tolerance > 0 && difference <= tolerance) continue;
        if (tolerance > 0) printf("app: output '%s' is off by %.3g of its largest number\n", tensor->name, difference);
        else printf("app: output '%s' does not have the expected bits\n", tensor->name);
        status = WRONG_BITS;
    }
    return status;
}

int main(void)
{
    npu_model *model;
    register_kernels();
    setvbuf(stdout, line, _IOLBF, sizeof line); /* or the C library allocates one */
    if (npu_init(model_data, model_size, &model_needs, arena, sizeof arena, &model)) {
        printf("app: %s\n", npu_error());
        return FAILED;
    }
    int status = 0;
    double most = 0;
    for (int i = 0; i < SAMPLES && !status; i++) status = run(model, &samples[i], &most);
    if (!status && most > 0) printf("all outputs are the expected ones within %.3g of their largest number\n", most);
    else if (!status) printf("all outputs have the expected bits\n");
    return status;
}
