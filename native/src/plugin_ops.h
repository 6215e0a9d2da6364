/* What the two registries of plugins (plugin.c, and plugin_static.c without a system) share: records and calls of operators. */
#ifndef PLUGIN_OPS_H
#define PLUGIN_OPS_H

#include "npu_plugin.h"

#define NPU_PLUGIN_TEXT 200 /* the longest name of a plugin, a domain or an operator, with its zero */

/* Refuse a record that is not sound, or of another version. */
npu_status npu_check_plugin(const npu_plugin *plugin, const char *where);

/* Take the kernels of a record; from now on CPU subgraphs may have operators of plugins. */
npu_status npu_take_kernels(const npu_plugin *plugin, const char *where);

/* Of the registry: a function of an operator is called, and has come back. */
void npu_enter_plugin(const npu_op *op, const char *function);
void npu_leave_plugin(void);

#endif /* PLUGIN_OPS_H */
