/*
 * npu: plugins in C and C++. A shared library gives operators of its own to the CPU parts of models, programs of an accelerator
 * a runtime, and custom instructions a kernel; the Python runtime (`--plugin lib.so`) and the C runtime (npu_load_plugin, or
 * npu_add_plugin where it is linked in) take the same library.
 *
 *     #include "npu_plugin.h"
 *
 *     static int32_t shape(npu_op_call *call) { call->outputs[0] = call->inputs[0]; return 0; }
 *
 *     static int32_t forward(npu_op_call *call)
 *     {
 *         const float *x = call->inputs[0].data;
 *         float *y = call->outputs[0].data;
 *         if (call->inputs[0].dtype != NPU_F32) return npu_op_fail(call, "x is not float32");
 *         for (size_t i = 0; i < call->outputs[0].size / sizeof(float); ++i) y[i] = 2 * x[i];
 *         return 0;
 *     }
 *
 *     static const npu_op OPS[] = {{"com.example", "Twice", shape, NULL, forward, NULL}};
 *     NPU_PLUGIN({NPU_PLUGIN_ABI, sizeof(npu_plugin), "twice", OPS, 1, NULL, 0})
 *
 *     cc -shared -fPIC -o twice.so twice.c
 *
 * Functions return 0, or anything else with the reason in words (npu_op_fail). They may be called from several threads, each with
 * a state of its own.
 */
#ifndef NPU_PLUGIN_H
#define NPU_PLUGIN_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "npu.h"
#include "npu_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header. A library that was built with another is refused. */
#define NPU_PLUGIN_ABI 1u
#define NPU_PLUGIN_ENTRY "npu_plugin_entry"

/* A tensor of an operator: dense, in the order of its axes; aligned to its elements, outputs to 64 bytes. */
typedef struct npu_op_tensor {
    void *data;    /* of inputs, in `shape`: NULL while a model is imported; of outputs: NULL */
    size_t size;   /* bytes */
    int32_t dtype; /* npu_dtype */
    int32_t rank;
    int64_t shape[NPU_MOST_AXES];
} npu_op_tensor;

enum { NPU_ATTRIBUTE_INTEGERS = 0, NPU_ATTRIBUTE_REALS = 1, NPU_ATTRIBUTE_TEXT = 2 };

/* An attribute of the node: `count` integers or reals (one is a list of one), or a text. */
typedef struct npu_op_attribute {
    const char *name;
    int32_t kind, count;
    const int64_t *integers;
    const double *reals;
    const char *text;
} npu_op_attribute;

#define NPU_OP_ERROR_BYTES 512

typedef struct npu_op_call {
    const npu_op_tensor *inputs;
    npu_op_tensor *outputs;
    const npu_op_attribute *attributes;
    int32_t input_count, output_count, attribute_count;
    void *state; /* what `start` left here; its own for each node of a model that is loaded */
    char error[NPU_OP_ERROR_BYTES];
} npu_op_call;

/*
 * An operator, by the domain and the name of its ONNX node. An accelerator has the domain "npuc.accelerator" and its own name;
 * input 0 is then the program that its compiler made, uint8.
 */
typedef struct npu_op {
    const char *domain, *name;
    /* Sets type, rank and shape of the outputs, from those of the inputs. */
    int32_t (*shape)(npu_op_call *call);
    /* Before the first forward of a node: sets call->state. NULL: there is no state. */
    int32_t (*start)(npu_op_call *call);
    /* Fills the outputs. */
    int32_t (*forward)(npu_op_call *call);
    /* Frees a state. */
    void (*stop)(void *state);
} npu_op;

typedef struct npu_plugin_kernel {
    const char *name;
    npu_kernel kernel;
} npu_plugin_kernel;

typedef struct npu_plugin {
    uint32_t abi, size; /* NPU_PLUGIN_ABI, sizeof(npu_plugin) */
    const char *name;
    const npu_op *ops;
    int32_t op_count;
    const npu_plugin_kernel *kernels; /* of custom instructions (npu_kernel.h) */
    int32_t kernel_count;
} npu_plugin;

#ifdef __cplusplus
#define NPU_PLUGIN_C_ extern "C"
#else
#define NPU_PLUGIN_C_
#endif

/* The one export of a library: its record. */
#define NPU_PLUGIN(...)                                                \
    NPU_PLUGIN_C_ NPU_API const npu_plugin *npu_plugin_entry(void); \
    NPU_PLUGIN_C_ const npu_plugin *npu_plugin_entry(void)          \
    {                                                                  \
        static const npu_plugin record = __VA_ARGS__;                \
        return &record;                                               \
    }

/* For plugins: state a reason; returns 1. */
static inline int32_t npu_op_fail(npu_op_call *call, const char *reason)
{
    snprintf(call->error, sizeof(call->error), "%s", reason);
    return 1;
}

/* For plugins: an attribute by its name, NULL if the node has none. */
static inline const npu_op_attribute *npu_op_attribute_of(const npu_op_call *call, const char *name)
{
    for (int32_t i = 0; i < call->attribute_count; ++i) {
        const char *a = call->attributes[i].name, *b = name;
        while (*a && *a == *b) ++a, ++b;
        if (*a == *b) return &call->attributes[i];
    }
    return NULL;
}

/* ---- for whoever runs models ---- */

/* Load a library and take what it has; once for each path. A library stays until the process ends. */
NPU_API npu_status npu_load_plugin(const char *path);

/* Take what a plugin has that is linked in. */
NPU_API npu_status npu_add_plugin(const npu_plugin *plugin);

/* The record of a library that was loaded, NULL if it was not. */
NPU_API const npu_plugin *npu_plugin_of(const char *path);

/* An operator that was taken, the last of its name; NULL if there is none. */
NPU_API const npu_op *npu_find_op(const char *domain, const char *name);

/* Ask an operator for the types and shapes of its outputs; what it says is checked. */
NPU_API npu_status npu_op_infer(const npu_op *op, npu_op_call *call);

/*
 * Run an operator. Outputs are checked for their sizes, and written to memory with guards around it first: NPU_RUN_FAILED with
 * the reason if the operator fails or writes beyond its outputs. A crash inside of it is announced on stderr with the operator's
 * name before the process ends.
 */
NPU_API npu_status npu_op_run(const npu_op *op, npu_op_call *call);

/* Free the state of a node. */
NPU_API void npu_op_stop(const npu_op *op, npu_op_call *call);

#ifdef __cplusplus
}
#endif

#endif /* NPU_PLUGIN_H */
