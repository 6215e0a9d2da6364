#include "vnn_@NAME@.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels.h"

static int failed(const char *where)
{
    fprintf(stderr, "%s: %s\n", where, npu_error());
    return VNN_FAILED;
}

static void **new_tensors(const npu_model *model, const npu_tensor *(*tensor)(const npu_model *, int32_t), int count)
{
    void **buffers = calloc((size_t)count + 1, sizeof *buffers);
    for (int i = 0; buffers && i < count; i++) buffers[i] = calloc(1, tensor(model, i)->size + 1);
    return buffers;
}

static int all_there(void *const *tensors, int count)
{
    for (int i = 0; tensors && i < count; i++)
        if (!tensors[i]) return 0;
    return tensors != NULL;
}

static void free_tensors(void **tensors, int count)
{
    for (int i = 0; tensors && i < count; i++) free(tensors[i]);
    free(tensors);
}

int vnn_CreateNeuralNetwork(const char *path, vnn_graph *graph)
{
    register_kernels();
    if (npu_load(path, &graph->model)) return failed(path);
    graph->inputs = new_tensors(graph->model, npu_input, npu_input_count(graph->model));
    graph->outputs = new_tensors(graph->model, npu_output, npu_output_count(graph->model));
    if (all_there(graph->inputs, npu_input_count(graph->model)) && all_there(graph->outputs, npu_output_count(graph->model)))
        return VNN_OK;
    fprintf(stderr, "%s: there is not enough memory\n", path);
    return VNN_FAILED;
}

int vnn_VerifyAndRunGraph(vnn_graph *graph)
{
    return npu_run(graph->model, (const void *const *)graph->inputs, graph->outputs) ? failed("run") : VNN_OK;
}

void vnn_ReleaseNeuralNetwork(vnn_graph *graph)
{
    if (!graph->model) return;
    free_tensors(graph->inputs, npu_input_count(graph->model));
    free_tensors(graph->outputs, npu_output_count(graph->model));
    npu_free(graph->model);
    graph->model = NULL;
}
