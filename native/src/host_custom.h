/* The way from a node of a CPU subgraph to the plugin that has its operator. */
#ifndef HOST_CUSTOM_H
#define HOST_CUSTOM_H

#include <stdatomic.h>

#include "host.h"

/* Runs or checks a node; NULL, or what is wrong in words that stay until the thread's next call. */
typedef const char *(*npuc_custom_runner)(const host_call *call);

extern _Atomic(npuc_custom_runner) npuc_run_custom;

/* Whether the operator of a node, given by its numbers, keeps a state. */
typedef int (*npuc_state_keeper)(const int64_t *numbers, int64_t count);
extern _Atomic(npuc_state_keeper) npuc_keeps_state;
int npuc_custom_keeps_state(const int64_t *numbers, int64_t count);

#endif /* HOST_CUSTOM_H */
