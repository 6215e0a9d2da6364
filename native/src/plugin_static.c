/* Plugins that are linked into a program without a system: a short list, for one thread. */
#include <string.h>

#include "npu_model.h"
#include "plugin_ops.h"

enum { MOST_PLUGINS = 16 };

static const npu_plugin *plugins[MOST_PLUGINS];
static int count;

npu_status npu_add_plugin(const npu_plugin *plugin)
{
    if (!plugin) return npu_fail(NPU_BAD_ARGUMENT, "there is no plugin");
    for (int i = 0; i < count; ++i)
        if (plugins[i] == plugin) return NPU_OK;
    npu_status status = npu_check_plugin(plugin, "the plugin");
    if (!status && count == MOST_PLUGINS) status = npu_fail(NPU_NO_MEMORY, "there are %d plugins already", MOST_PLUGINS);
    if (!status) status = npu_take_kernels(plugin, "the plugin");
    if (!status) plugins[count++] = plugin;
    return status;
}

const npu_op *npu_find_op(const char *domain, const char *name)
{
    for (int i = count - 1; domain && name && i >= 0; --i)
        for (int32_t k = 0; k < plugins[i]->op_count; ++k) {
            const npu_op *op = &plugins[i]->ops[k];
            if (!strcmp(op->domain, domain) && !strcmp(op->name, name)) return op;
        }
    return NULL;
}

void npu_enter_plugin(const npu_op *op, const char *function)
{
    (void)op;
    (void)function;
}

void npu_leave_plugin(void) {}
