/* What all files of the application share. */
#ifndef VNN_GLOBAL_H
#define VNN_GLOBAL_H

#include "npu.h"

enum { VNN_OK = 0, VNN_FAILED = 2 };

/* A loaded network and the memory of its inputs and outputs. */
typedef struct vnn_graph {
    npu_model *model;
    void **inputs, **outputs;
} vnn_graph;

#endif /* VNN_GLOBAL_H */
