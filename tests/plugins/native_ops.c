/* Operators for tests, in C and in C++: good ones, and one for each fault. */
#include <stdlib.h>
#include <string.h>

#include "npu_plugin.h"

static int32_t same(npu_op_call *call)
{
    if (call->input_count < 1) return npu_op_fail(call, "there is no input");
    for (int32_t i = 0; i < call->output_count; ++i) call->outputs[i] = call->inputs[0];
    return 0;
}

static int32_t halves(npu_op_call *call)
{
    if (call->inputs[0].rank != 2 || call->inputs[0].shape[1] % 2) return npu_op_fail(call, "x is no matrix of an even width");
    call->outputs[0] = call->inputs[0];
    call->outputs[0].shape[1] /= 2;
    return 0;
}

static int32_t nonsense(npu_op_call *call)
{
    same(call);
    call->outputs[0].rank = 99;
    return 0;
}

static int32_t scaled(npu_op_call *call)
{
    const npu_op_attribute *factor = npu_op_attribute_of(call, "factor");
    const float *x = (const float *)call->inputs[0].data;
    float *y = (float *)call->outputs[0].data;
    if (call->inputs[0].dtype != NPU_F32) return npu_op_fail(call, "x is not float32");
    for (size_t i = 0; i < call->outputs[0].size / sizeof(float); ++i)
        y[i] = x[i] * (factor && factor->kind == NPU_ATTRIBUTE_REALS ? (float)factor->reals[0] : 1);
    return 0;
}

static int32_t first_half(npu_op_call *call)
{
    const int64_t rows = call->outputs[0].shape[0], width = call->outputs[0].shape[1];
    for (int64_t i = 0; i < rows; ++i)
        memcpy((float *)call->outputs[0].data + i * width, (const float *)call->inputs[0].data + 2 * i * width, (size_t)width * 4);
    return 0;
}

static int32_t beyond(npu_op_call *call)
{
    memset(call->outputs[0].data, 1, call->outputs[0].size + 1);
    return 0;
}

static int32_t before(npu_op_call *call)
{
    ((char *)call->outputs[0].data)[-1] = 0;
    return 0;
}

static int32_t fails(npu_op_call *call) { return npu_op_fail(call, "the moon is full"); }

static int32_t mute(npu_op_call *call)
{
    (void)call;
    return 7;
}

static int32_t crashes(npu_op_call *call)
{
    (void)call;
    *(volatile int *)8 = 1;
    return 0;
}

static int32_t exits(npu_op_call *call)
{
    (void)call;
    exit(0);
}

static int32_t start(npu_op_call *call)
{
    call->state = calloc(1, sizeof(float));
    return call->state ? 0 : npu_op_fail(call, "there is no memory");
}

static int32_t sums(npu_op_call *call)
{
    float *total = (float *)call->state;
    *total += ((const float *)call->inputs[0].data)[0];
    ((float *)call->outputs[0].data)[0] = *total;
    return 0;
}

static int32_t no_start(npu_op_call *call) { return npu_op_fail(call, "there is no license"); }

#ifndef DOMAIN
#define DOMAIN "test.c"
#endif

static const npu_op OPS[] = {
    {DOMAIN, "Scaled", same, NULL, scaled, NULL},      {DOMAIN, "FirstHalf", halves, NULL, first_half, NULL},
    {DOMAIN, "Nonsense", nonsense, NULL, scaled, NULL}, {DOMAIN, "Beyond", same, NULL, beyond, NULL},
    {DOMAIN, "Before", same, NULL, before, NULL},      {DOMAIN, "Fails", same, NULL, fails, NULL},
    {DOMAIN, "Mute", same, NULL, mute, NULL},          {DOMAIN, "Crashes", same, NULL, crashes, NULL},
    {DOMAIN, "Exits", same, NULL, exits, NULL},        {DOMAIN, "Sums", same, start, sums, free},
    {DOMAIN, "NoStart", same, no_start, sums, free},
};

#ifndef ABI
#define ABI NPU_PLUGIN_ABI
#endif
#ifndef RECORD_SIZE
#define RECORD_SIZE sizeof(npu_plugin)
#endif

NPU_PLUGIN({ABI, RECORD_SIZE, "native_ops", OPS, sizeof(OPS) / sizeof(OPS[0]), NULL, 0})
