/* From outputs to results. */
#ifndef VNN_POST_PROCESS_H
#define VNN_POST_PROCESS_H

#include "vnn_global.h"

/* Print the five largest entries of each output and write its numbers as text; the place for what the network needs. */
int vnn_PostProcessNeuralNetwork(const vnn_graph *graph);

#endif /* VNN_POST_PROCESS_H */
