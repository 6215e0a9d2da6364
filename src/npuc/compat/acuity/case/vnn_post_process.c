#include "vnn_post_process.h"

#include <stdio.h>

#include "top.h"

enum { SHOWN = 5 };

static void print_top(const npu_tensor *tensor, const void *data)
{
    entry entries[SHOWN];
    const int count = top_entries(tensor, data, SHOWN, entries);
    printf(" --- Top%d --- %s\n", count, tensor->name);
    for (int i = 0; i < count; i++) printf("%6lld: %.6f\n", (long long)entries[i].index, entries[i].value);
}

static int write_tensor(const npu_tensor *tensor, const void *data, int index)
{
    char path[64];
    snprintf(path, sizeof path, "output%d.tensor", index);
    FILE *file = fopen(path, "w");
    if (!file) {
        fprintf(stderr, "%s: the file cannot be written\n", path);
        return VNN_FAILED;
    }
    for (int64_t i = 0; i < tensor->elements; i++) fprintf(file, "%.9g\n", real_value(tensor, data, i));
    return fclose(file) ? VNN_FAILED : VNN_OK;
}

int vnn_PostProcessNeuralNetwork(const vnn_graph *graph)
{
    int status = VNN_OK;
    for (int i = 0; i < npu_output_count(graph->model) && !status; i++) {
        print_top(npu_output(graph->model, i), graph->outputs[i]);
        status = write_tensor(npu_output(graph->model, i), graph->outputs[i], i);
    }
    return status;
}
