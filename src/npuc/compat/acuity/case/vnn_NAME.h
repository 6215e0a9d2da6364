/* Load, run and release the network. */
#ifndef VNN_@GUARD@_H
#define VNN_@GUARD@_H

#include "vnn_global.h"

int vnn_CreateNeuralNetwork(const char *path, vnn_graph *graph);
int vnn_VerifyAndRunGraph(vnn_graph *graph);
void vnn_ReleaseNeuralNetwork(vnn_graph *graph);

#endif /* VNN_@GUARD@_H */
