/*
 * Operators of plugins in CPU subgraphs. Who runs them is plugin.c, if a plugin was loaded or added; without one, a model that needs
 * an operator of a plugin is refused when it is opened, and the runtime without a heap has none of this.
 */
#include "host_custom.h"

_Atomic(npuc_custom_runner) npuc_run_custom;

const char *npuc_host_custom(const host_call *call)
{
    const npuc_custom_runner run = atomic_load(&npuc_run_custom);
    return run ? run(call) : "it is an operator of a plugin: load the plugin (npu_load_plugin) before the model";
}
