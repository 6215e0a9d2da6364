/*
 * Compiled models (EPContext): a fused node as a node that carries its program. The data are a head of lines, an empty line, and
 * the bytes of the .npu file:
 *
 *     npuc-ort-context 1
 *     batched 0
 *     inputs 0 1          the input of the program for each input of the node
 *     outputs 0           the output of the program for each output of the node
 */
#ifndef NPUC_ORT_CONTEXT_H
#define NPUC_ORT_CONTEXT_H

#include "ort_options.h"
#include "ort_program.h"

/* Whether a node is a compiled part of this provider. */
bool ort_is_context(const ort_api *api, const ort_node *node);

/* The kernel of a node that carries its program. */
ort_status *ort_context_read(const ort_api *api, const ort_graph *graph, const ort_node *node, const ort_node *fused,
                             const ort_options *options, ort_kernel **kernel);

/* The node that carries the program of a kernel; `number` tells the parts of a model apart. */
ort_status *ort_context_write(const ort_api *api, const ort_graph *graph, const ort_node *fused, const ort_kernel *kernel,
                              const ort_options *options, size_t number, ort_node **node);

#endif
