/*
 * A plugin in C: the operator com.example:SoftThreshold, y = sign(x) * max(|x| - threshold, 0), on the CPU.
 *
 *     cc -shared -fPIC -O2 -I native/include -o soft_threshold.so soft_threshold.c -lm
 *     npuc import model.onnx --plugin ./soft_threshold.so
 */
#include <math.h>

#include "npu_plugin.h"

static int32_t shape(npu_op_call *call)
{
    if (call->input_count != 1 || call->inputs[0].dtype != NPU_F32) return npu_op_fail(call, "it takes one tensor of float32");
    call->outputs[0] = call->inputs[0];
    return 0;
}

static int32_t forward(npu_op_call *call)
{
    const npu_op_attribute *given = npu_op_attribute_of(call, "threshold");
    const float threshold = given && given->kind == NPU_ATTRIBUTE_REALS ? (float)given->reals[0] : 0.5f;
    const float *x = (const float *)call->inputs[0].data;
    float *y = (float *)call->outputs[0].data;
    for (size_t i = 0; i < call->outputs[0].size / sizeof(float); ++i)
        y[i] = copysignf(fmaxf(fabsf(x[i]) - threshold, 0), x[i]);
    return 0;
}

static const npu_op OPS[] = {{"com.example", "SoftThreshold", shape, NULL, forward, NULL}};
NPU_PLUGIN({NPU_PLUGIN_ABI, sizeof(npu_plugin), "soft_threshold", OPS, 1, NULL, 0})
