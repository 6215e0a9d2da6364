/*
 * Operators of plugins in C and C++, called with care: records are checked, what an operator says of shapes is compared with what
 * the model states, and what it writes goes to memory with guards before and behind it (where there is a heap).
 */
#include "plugin_ops.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "host_custom.h"
#include "npu_model.h"

#if defined(NPUC_NO_HEAP)
#define OF_THREAD
#else
#define OF_THREAD _Thread_local
#endif

enum { MOST_ATTRIBUTES = 32, GUARD = 64, MOST_RECORDS = 4096 };

/* ---- records ---- */

static int is_word(const char *text)
{
    return text && *text && memchr(text, 0, NPU_PLUGIN_TEXT);
}

npu_status npu_check_plugin(const npu_plugin *plugin, const char *where)
{
    if (plugin->abi != NPU_PLUGIN_ABI)
        return npu_fail(NPU_UNSUPPORTED, "%s: it was built for version %u of npu_plugin.h, and this npuc has version %u: build it again", where,
                        (unsigned)plugin->abi, (unsigned)NPU_PLUGIN_ABI);
    if (plugin->size != sizeof(npu_plugin))
        return npu_fail(NPU_UNSUPPORTED, "%s: its record has %u bytes, not %zu: build it again with this npuc's npu_plugin.h", where,
                        (unsigned)plugin->size, sizeof(npu_plugin));
    if (!is_word(plugin->name) || plugin->op_count < 0 || plugin->op_count > MOST_RECORDS || plugin->kernel_count < 0 ||
        plugin->kernel_count > MOST_RECORDS || (plugin->op_count && !plugin->ops) || (plugin->kernel_count && !plugin->kernels))
        return npu_fail(NPU_BAD_ARGUMENT, "%s: its record is not sound: a name, and as many ops and kernels as it counts, are needed", where);
    for (int32_t i = 0; i < plugin->op_count; ++i) {
        const npu_op *op = &plugin->ops[i];
        if (!is_word(op->domain) || !is_word(op->name) || !op->shape || !op->forward || (op->stop && !op->start))
            return npu_fail(NPU_BAD_ARGUMENT, "%s: op %d needs a domain, a name, shape and forward, and a start if it has a stop", where, (int)i);
    }
    return NPU_OK;
}

static const char *run_custom(const host_call *call);
static int keeps_state(const int64_t *values, int64_t count);

npu_status npu_take_kernels(const npu_plugin *plugin, const char *where)
{
    for (int32_t i = 0; i < plugin->kernel_count; ++i)
        if (npu_register_kernel(plugin->kernels[i].name, plugin->kernels[i].kernel))
            return npu_fail(NPU_BAD_ARGUMENT, "%s: kernel %d has no valid name or no function, or is one too many", where, (int)i);
    atomic_store(&npuc_run_custom, run_custom);
    atomic_store(&npuc_keeps_state, keeps_state);
    return NPU_OK;
}

/* ---- calls ---- */

static size_t element_bytes(int32_t dtype)
{
    switch (dtype) {
    case NPU_I8: case NPU_U8: case NPU_BOOL: return 1;
    case NPU_I16: case NPU_U16: case NPU_BF16: case NPU_F16: return 2;
    case NPU_I32: case NPU_U32: case NPU_F32: return 4;
    case NPU_I64: case NPU_U64: case NPU_F64: return 8;
    default: return 0;
    }
}

/* Bytes of a tensor by its type and shape; 0 and `sound` 0 if they are nonsense. */
static size_t bytes_of(const npu_op_tensor *t, int *sound)
{
    uint64_t bytes = element_bytes(t->dtype);
    *sound = bytes && t->rank >= 0 && t->rank <= NPU_MOST_AXES;
    for (int32_t i = 0; *sound && i < t->rank; ++i) {
        if (t->shape[i] < 0 || (t->shape[i] && bytes > (UINT64_C(1) << 40) / (uint64_t)t->shape[i])) *sound = 0;
        bytes *= *sound ? (uint64_t)t->shape[i] : 0;
    }
    return *sound ? (size_t)bytes : 0;
}

static npu_status refuse(const npu_op *op, const npu_op_call *call, const char *function, int32_t status)
{
    char words[NPU_OP_ERROR_BYTES];
    memcpy(words, call->error, sizeof(words));
    words[sizeof(words) - 1] = 0;
    if (words[0]) return npu_fail(NPU_RUN_FAILED, "%s of '%s:%s' failed: %s", function, op->domain, op->name, words);
    return npu_fail(NPU_RUN_FAILED, "%s of '%s:%s' failed with status %d and without a reason", function, op->domain, op->name, (int)status);
}

npu_status npu_op_infer(const npu_op *op, npu_op_call *call)
{
    if (!op || !call) return npu_fail(NPU_BAD_ARGUMENT, "there is no op");
    call->error[0] = 0;
    npu_enter_plugin(op, "shape");
    const int32_t status = op->shape(call);
    npu_leave_plugin();
    if (status) return refuse(op, call, "shape", status);
    for (int32_t i = 0; i < call->output_count; ++i) {
        int sound;
        call->outputs[i].data = NULL;
        call->outputs[i].size = bytes_of(&call->outputs[i], &sound);
        if (!sound) return npu_fail(NPU_RUN_FAILED, "shape of '%s:%s' gives output %d no sound type and shape", op->domain, op->name, (int)i);
    }
    return NPU_OK;
}

/* Start an operator that has no state yet, and run it. */
static npu_status run_once(const npu_op *op, npu_op_call *call, npu_op_tensor *outputs)
{
    npu_op_call inner = *call;
    inner.outputs = outputs;
    inner.error[0] = 0;
    if (op->start && !call->state) {
        npu_enter_plugin(op, "start");
        const int32_t status = op->start(&inner);
        npu_leave_plugin();
        if (status) return refuse(op, &inner, "start", status);
        if (!inner.state) return npu_fail(NPU_RUN_FAILED, "start of '%s:%s' leaves no state", op->domain, op->name);
        call->state = inner.state;
    }
    npu_enter_plugin(op, "forward");
    const int32_t status = op->forward(&inner);
    npu_leave_plugin();
    if (status) return refuse(op, &inner, "forward", status);
    call->state = inner.state; /* one may be put in the place of another */
    return NPU_OK;
}

#if defined(NPUC_NO_HEAP)

/* There is no memory for guards: outputs are written in place. */
static npu_status run_guarded(const npu_op *op, npu_op_call *call, size_t room)
{
    (void)room;
    return run_once(op, call, call->outputs);
}

static size_t guarded(size_t size) { return size; }

#else

/* An output in memory of the operator's own: guard, bytes, guard; each begins at a multiple of 64. */
static size_t guarded(size_t size) { return GUARD + (size + GUARD - 1) / GUARD * GUARD + GUARD; }

static void paint(uint8_t *block, size_t size)
{
    const size_t all = guarded(size);
    for (size_t i = 0; i < all; ++i)
        if (i < GUARD || i >= GUARD + size) block[i] = (uint8_t)(0xa5 ^ (i * 37));
    memset(block + GUARD, 0, size);
}

static int is_whole(const uint8_t *block, size_t size)
{
    const size_t all = guarded(size);
    for (size_t i = 0; i < all; ++i)
        if ((i < GUARD || i >= GUARD + size) && block[i] != (uint8_t)(0xa5 ^ (i * 37))) return 0;
    return 1;
}

static npu_status run_guarded(const npu_op *op, npu_op_call *call, size_t room)
{
    npu_op_tensor *outputs = malloc(sizeof(*outputs) * (size_t)(call->output_count + 1));
    uint8_t *block = aligned_alloc(GUARD, room + GUARD);
    if (!outputs || !block) {
        free(outputs);
        free(block);
        return npu_fail(NPU_NO_MEMORY, "there is no memory for '%s:%s'", op->domain, op->name);
    }
    uint8_t *at = block;
    for (int32_t i = 0; i < call->output_count; ++i) {
        outputs[i] = call->outputs[i];
        outputs[i].data = at + GUARD;
        paint(at, outputs[i].size);
        at += guarded(outputs[i].size);
    }
    npu_status result = run_once(op, call, outputs);
    at = block;
    for (int32_t i = 0; i < call->output_count; ++i) {
        const size_t size = call->outputs[i].size;
        if (!is_whole(at, size)) {
            result = npu_fail(NPU_RUN_FAILED, "forward of '%s:%s' wrote beyond the %zu bytes of output %d", op->domain, op->name, size, (int)i);
            break;
        }
        if (!result && size) memcpy(call->outputs[i].data, at + GUARD, size);
        at += guarded(size);
    }
    free(outputs);
    free(block);
    return result;
}

#endif

npu_status npu_op_run(const npu_op *op, npu_op_call *call)
{
    if (!op || !call) return npu_fail(NPU_BAD_ARGUMENT, "there is no op");
    size_t room = 0;
    for (int32_t i = 0; i < call->input_count + call->output_count; ++i) {
        const npu_op_tensor *t = i < call->input_count ? &call->inputs[i] : &call->outputs[i - call->input_count];
        int sound;
        const size_t bytes = bytes_of(t, &sound);
        if (!sound || bytes != t->size || (bytes && !t->data))
            return npu_fail(NPU_BAD_ARGUMENT, "tensor %d of '%s:%s' has %zu bytes, and its type and shape need %zu", (int)i, op->domain, op->name,
                            t->size, bytes);
        if (i >= call->input_count) room += guarded(bytes);
    }
    return run_guarded(op, call, room);
}

void npu_op_stop(const npu_op *op, npu_op_call *call)
{
    if (!op || !call || !call->state) return;
    void *state = call->state;
    call->state = NULL;
    if (!op->stop) return;
    npu_enter_plugin(op, "stop");
    op->stop(state);
    npu_leave_plugin();
}

/* ---- nodes of CPU subgraphs ---- */

/* The numbers of a node, read one after the other (docs/host-ops.md, custom). */
typedef struct numbers {
    const int64_t *at;
    int64_t left;
} numbers;

static const int64_t *next(numbers *n, int64_t count)
{
    if (count < 0 || count > n->left) return NULL;
    const int64_t *at = n->at;
    n->at += count;
    n->left -= count;
    return at;
}

/* A text: its length in numbers, and its bytes with a zero behind them. */
static const char *next_text(numbers *n)
{
    const int64_t *length = next(n, 1);
    const int64_t *bytes = length && *length > 0 ? next(n, *length) : NULL;
    return bytes && memchr(bytes, 0, 8 * (size_t)*length) ? (const char *)bytes : NULL;
}

static int32_t next_attribute(numbers *n, npu_op_attribute *a)
{
    const int64_t *head = next(n, 2);
    a->name = head ? next_text(n) : NULL;
    if (!a->name || head[1] < 0 || head[1] > INT32_MAX) return 0;
    a->kind = (int32_t)head[0];
    a->count = (int32_t)head[1];
    if (head[0] == NPU_ATTRIBUTE_TEXT) return (a->text = next_text(n)) != NULL;
    const int64_t *values = next(n, head[1]);
    if (head[0] == NPU_ATTRIBUTE_REALS) {
        a->reals = (const double *)(const void *)values;
    } else {
        a->integers = values;
    }
    return values && (head[0] == NPU_ATTRIBUTE_REALS || head[0] == NPU_ATTRIBUTE_INTEGERS);
}

static npu_op_tensor tensor_of(const host_value *value)
{
    npu_op_tensor t = {.data = value->data, .size = (size_t)(value->count * npuc_host_bytes(value->dtype)), .dtype = value->dtype, .rank = value->rank};
    for (int32_t i = 0; i < value->rank; ++i) t.shape[i] = value->shape[i];
    return t;
}

/* The operator of a node; the numbers then stand at its attributes. NULL: `domain` and `name` say what is not there, or are NULL. */
static const npu_op *op_of(numbers *n, const char **domain, const char **name)
{
    *domain = next_text(n);
    *name = *domain ? next_text(n) : NULL;
    return *name ? npu_find_op(*domain, *name) : NULL;
}

static int keeps_state(const int64_t *values, int64_t count)
{
    numbers n = {values, count};
    const char *domain, *name;
    const npu_op *op = op_of(&n, &domain, &name);
    return op && op->start;
}

static void end_state(host_state *state)
{
    npu_op_call call = {.state = state->data};
    npu_op_stop(state->owner, &call);
    *state = (host_state){0};
}

static const char *run_custom(const host_call *call)
{
    static OF_THREAD char said[NPU_ERROR_BYTES];
    numbers n = {call->numbers, call->number_count};
    const char *domain, *name;
    const npu_op *op = op_of(&n, &domain, &name);
    const int64_t *attribute_count = name ? next(&n, 1) : NULL;
    NEED(attribute_count && *attribute_count >= 0 && *attribute_count <= MOST_ATTRIBUTES);
    npu_op_attribute attributes[MOST_ATTRIBUTES] = {{0}};
    for (int64_t i = 0; i < *attribute_count; ++i) NEED(next_attribute(&n, &attributes[i]));
    npu_op_tensor tensors[NPUC_HOST_OPERANDS], inferred[NPUC_HOST_OPERANDS];
    for (int32_t i = 0; i < call->inputs + call->outputs; ++i) {
        NEED(call->value[i].present);
        tensors[i] = tensor_of(&call->value[i]);
    }
    if (!op) {
        snprintf(said, sizeof(said), "no plugin that is loaded has the operator '%.100s:%.100s'", domain, name);
        return said;
    }
    CHECKED(call);
    host_state *state = call->state;
    NEED(state || !op->start);
    if (state && state->end && state->owner != op) state->end(state); /* a plugin that was loaded later has the name now */
    npu_op_call inner = {.inputs = tensors, .outputs = inferred, .attributes = attributes, .input_count = call->inputs,
                         .output_count = call->outputs, .attribute_count = (int32_t)*attribute_count};
    memcpy(inferred, tensors + call->inputs, sizeof(*tensors) * (size_t)call->outputs);
    npu_status status = npu_op_infer(op, &inner);
    for (int32_t i = 0; !status && i < call->outputs; ++i) {
        const npu_op_tensor *stated = &tensors[call->inputs + i];
        int same = stated->dtype == inferred[i].dtype && stated->rank == inferred[i].rank;
        for (int32_t a = 0; same && a < stated->rank; ++a) same = stated->shape[a] == inferred[i].shape[a];
        if (!same) return "the operator of the plugin gives another type or shape than the model states";
    }
    inner.outputs = tensors + call->inputs;
    inner.state = state ? state->data : NULL;
    if (!status) status = npu_op_run(op, &inner);
    if (state) *state = (host_state){inner.state, op, inner.state ? end_state : NULL};
    if (!status) return NULL;
    snprintf(said, sizeof(said), "%s", npu_error());
    return said;
}
