/*
 * Operators of plugins in CPU subgraphs. Who runs them is plugin_ops.c, if a plugin was loaded or added; without one, a model that
 * needs an operator of a plugin is refused when it is opened.
 */
#include "host_custom.h"

_Atomic(npuc_custom_runner) npuc_run_custom;
_Atomic(npuc_state_keeper) npuc_keeps_state;

int npuc_custom_keeps_state(const int64_t *numbers, int64_t count)
{
    const npuc_state_keeper keeps = atomic_load(&npuc_keeps_state);
    return keeps && keeps(numbers, count);
}

const char *npuc_host_custom(const host_call *call)
{
    const npuc_custom_runner run = atomic_load(&npuc_run_custom);
    return run ? run(call) : "it is an operator of a plugin: load the plugin (npu_load_plugin) before the model";
}
