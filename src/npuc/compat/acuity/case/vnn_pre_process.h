/* From files to inputs. */
#ifndef VNN_PRE_PROCESS_H
#define VNN_PRE_PROCESS_H

#include "vnn_global.h"

/* One file for each input. */
int vnn_PreProcessNeuralNetwork(vnn_graph *graph, int count, char **files);

#endif /* VNN_PRE_PROCESS_H */
