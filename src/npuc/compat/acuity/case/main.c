/*
 * Run the network on one file for each input: an image, the numbers of a tensor as text (.tensor), a NumPy file, or raw bytes.
 *
 *   ./@NAME@ @FILE@ input0.jpg
 */
#include <stdio.h>

#include "vnn_global.h"
#include "vnn_@NAME@.h"
#include "vnn_post_process.h"
#include "vnn_pre_process.h"

int main(int argc, char **argv)
{
    vnn_graph graph = {0};
    if (argc < 3) {
        fprintf(stderr, "usage: %s @FILE@ INPUT...\n", argv[0]);
        return VNN_FAILED;
    }
    int status = vnn_CreateNeuralNetwork(argv[1], &graph);
    if (!status) status = vnn_PreProcessNeuralNetwork(&graph, argc - 2, argv + 2);
    if (!status) status = vnn_VerifyAndRunGraph(&graph);
    if (!status) status = vnn_PostProcessNeuralNetwork(&graph);
    vnn_ReleaseNeuralNetwork(&graph);
    return status;
}
