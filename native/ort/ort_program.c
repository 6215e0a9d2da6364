/* Running a compiled part inside of ONNX Runtime: no copy of tensors, no lock of its own, no Python. */
#define _POSIX_C_SOURCE 200809L
#include "ort_program.h"

#include "sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RUNS = 16 }; /* runs of a program that may overlap; each has memory of its own, made when it is first needed */

uint8_t *ort_read_file(const char *path, size_t most, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    uint8_t *bytes = NULL;
    long end = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (end >= 0 && (unsigned long)end <= most && fseek(file, 0, SEEK_SET) == 0 && (bytes = malloc((size_t)end + 1)) != NULL) {
        if (fread(bytes, 1, (size_t)end, file) != (size_t)end) {
            free(bytes);
            bytes = NULL;
        } else {
            bytes[end] = 0;
            *size = (size_t)end;
        }
    }
    fclose(file);
    return bytes;
}

bool ort_all_given(const size_t *places, size_t count, size_t end) {
    for (size_t i = 0; i < count; i++)
        if (places[i] >= end)
            return false;
    for (size_t wanted = 0; wanted < end; wanted++) {
        bool given = false;
        for (size_t i = 0; i < count && !given; i++)
            given = places[i] == wanted;
        if (!given)
            return false;
    }
    return true;
}

/* Whether axis 0 of all tensors can be the batch: a program for one sample has one there. */
static bool is_of_one_sample(const npu_model *model) {
    for (int32_t i = 0; i < npu_input_count(model); i++)
        if (npu_input(model, i)->rank < 1 || npu_input(model, i)->shape[0] != 1)
            return false;
    for (int32_t i = 0; i < npu_output_count(model); i++)
        if (npu_output(model, i)->rank < 1 || npu_output(model, i)->shape[0] != 1)
            return false;
    return true;
}

ort_program *ort_program_load(uint8_t *bytes, size_t size, bool batched, const char *name, int threads, char *why, size_t room) {
    ort_program *program = calloc(1, sizeof *program);
    if (program != NULL)
        program->name = strdup(name);
    if (program == NULL || program->name == NULL) {
        snprintf(why, room, "no memory");
        free(program);
        free(bytes);
        return NULL;
    }
    program->bytes = bytes;
    program->size = size;
    program->batched = batched;
    atomic_init(&program->holders, 1);
    atomic_init(&program->least, UINT64_MAX);
    if (npu_load_memory(bytes, size, &program->model) != NPU_OK || npu_set_threads(program->model, threads) != NPU_OK ||
        (npu_state_count(program->model) == 0 && npu_set_runs(program->model, RUNS) != NPU_OK)) {
        snprintf(why, room, "%s", npu_error());
        ort_program_release(program);
        return NULL;
    }
    if (batched && !is_of_one_sample(program->model)) {
        snprintf(why, room, "it is not for one sample of a batch, as its data say");
        ort_program_release(program);
        return NULL;
    }
    return program;
}

void ort_program_release(ort_program *program) {
    if (program == NULL || atomic_fetch_sub(&program->holders, 1) != 1)
        return;
    npu_free(program->model);
    free(program->bytes);
    free(program->name);
    free(program);
}

/* The number that ONNX has for a type of elements; 0 if it has none. */
static int onnx_type(int32_t dtype) {
    switch (dtype) {
    case NPU_F32: return 1;
    case NPU_U8: return 2;
    case NPU_I8: return 3;
    case NPU_U16: return 4;
    case NPU_I16: return 5;
    case NPU_I32: return 6;
    case NPU_I64: return 7;
    case NPU_BOOL: return 9;
    case NPU_F16: return 10;
    case NPU_F64: return 11;
    case NPU_U32: return 12;
    case NPU_U64: return 13;
    case NPU_BF16: return 16;
    default: return 0;
    }
}

static ort_status *check_input(const ort_kernel *kernel, const ort_value *value, const npu_tensor *tensor, int64_t *batch) {
    const ort_api *api = kernel->api;
    ort_tensor_info *info = NULL;
    ort_status *status = api->tensor_info(value, &info);
    if (status != NULL)
        return status;
    int type = 0;
    size_t rank = 0;
    int64_t shape[NPU_MOST_AXES] = {0};
    status = api->element_type(info, &type);
    if (status == NULL)
        status = api->rank(info, &rank);
    bool fits = status == NULL && rank == (size_t)tensor->rank && type == onnx_type(tensor->dtype);
    if (fits)
        status = api->dimensions(info, shape, rank);
    api->release_tensor_info(info);
    if (status != NULL)
        return status;
    bool batched = kernel->program->batched;
    for (size_t i = 0; fits && i < rank; i++)
        fits = i == 0 && batched ? (*batch < 0 || *batch == shape[0]) : shape[i] == tensor->shape[i];
    if (fits) {
        if (batched)
            *batch = shape[0];
        return NULL;
    }
    char have[160] = "", want[160] = "";
    for (size_t i = 0, a = 0, b = 0; i < NPU_MOST_AXES; i++) {
        if (i < rank && a < 130)
            a += (size_t)snprintf(have + a, sizeof have - a, i ? "x%lld" : "%lld", (long long)shape[i]);
        if (i < (size_t)tensor->rank && b < 130)
            b += (size_t)snprintf(want + b, sizeof want - b, i ? "x%lld" : "%lld", (long long)tensor->shape[i]);
    }
    return ort_error(api, ORT_INVALID_ARGUMENT,
                     "npuc: input '%s' is %s of element type %d, and the program was compiled for %s%s of element type %d; make a "
                     "session for this shape, or keep the session's shapes fixed",
                     tensor->name, have, type, want, batched ? " (with any batch)" : "", onnx_type(tensor->dtype));
}

void ort_digest(const void *data, size_t size, uint8_t digest[32]) {
    npuc_sha256(data == NULL ? (const uint8_t *)"" : data, size, digest);
}

static ort_status *check_constant(const ort_kernel *kernel, size_t i, const ort_value *value) {
    const ort_api *api = kernel->api;
    const ort_constant *constant = &kernel->constants[i];
    const void *data = NULL;
    size_t size = 0;
    ort_status *status = api->tensor_data(value, &data);
    if (status == NULL)
        status = api->tensor_bytes(value, &size);
    if (status != NULL)
        return status;
    uint8_t digest[32];
    ort_digest(data, size, digest);
    if (memcmp(digest, constant->digest, sizeof digest) != 0)
        return ort_error(api, ORT_INVALID_ARGUMENT,
                         "npuc: a run gives another value for a weight that is compiled into the program; save the model with it");
    return NULL;
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void note_time(ort_program *program, uint64_t taken) {
    atomic_fetch_add(&program->calls, 1);
    atomic_fetch_add(&program->nanoseconds, taken);
    uint_fast64_t seen = atomic_load(&program->least);
    while (taken < seen && !atomic_compare_exchange_weak(&program->least, &seen, taken)) {
    }
    seen = atomic_load(&program->most);
    while (taken > seen && !atomic_compare_exchange_weak(&program->most, &seen, taken)) {
    }
}

static ort_status *run(ort_kernel *kernel, ort_kernel_context *context, const uint8_t **in, uint8_t **out, uint8_t **made) {
    const ort_api *api = kernel->api;
    ort_program *program = kernel->program;
    npu_model *model = program->model;
    size_t inputs = (size_t)npu_input_count(model), outputs = (size_t)npu_output_count(model);
    int64_t batch = program->batched ? -1 : 1;
    for (size_t i = 0; i < kernel->input_count; i++) {
        const ort_value *value = NULL;
        const void *data = NULL;
        ort_status *status = api->context_input(context, i, &value);
        if (status == NULL && value == NULL)
            status = ort_error(api, ORT_INVALID_ARGUMENT, "npuc: input %zu is left out", i);
        if (status == NULL && kernel->inputs[i] == ORT_CONSTANT) {
            status = check_constant(kernel, i, value);
            if (status != NULL)
                return status;
            continue;
        }
        if (status == NULL)
            status = check_input(kernel, value, npu_input(model, (int32_t)kernel->inputs[i]), &batch);
        if (status == NULL)
            status = api->tensor_data(value, &data);
        if (status != NULL)
            return status;
        in[kernel->inputs[i]] = data;
    }
    if (batch < 0)
        batch = 1;
    for (size_t i = 0; i < kernel->output_count; i++) {
        const npu_tensor *tensor = npu_output(model, (int32_t)kernel->outputs[i]);
        int64_t shape[NPU_MOST_AXES];
        memcpy(shape, tensor->shape, sizeof shape);
        if (program->batched)
            shape[0] = batch;
        ort_value *value = NULL;
        void *data = NULL;
        ort_status *status = api->context_output(context, i, shape, (size_t)tensor->rank, &value);
        /* The type is what the model says, which may be another one's than the program's. */
        size_t bytes = 0;
        if (status == NULL)
            status = api->tensor_bytes(value, &bytes);
        if (status == NULL && bytes != (size_t)batch * tensor->size)
            status = ort_error(api, ORT_INVALID_ARGUMENT, "npuc: output '%s' has %zu bytes in the model and %zu in the program",
                               tensor->name, bytes, (size_t)batch * tensor->size);
        if (status == NULL)
            status = api->tensor_mutable_data(value, &data);
        if (status != NULL)
            return status;
        made[i] = data;
        if (out[kernel->outputs[i]] == NULL)
            out[kernel->outputs[i]] = data;
    }
    for (int64_t sample = 0; sample < batch; sample++) {
        npu_status status = npu_run(model, (const void *const *)in, (void *const *)out);
        if (status != NPU_OK)
            return ort_error(api, ORT_EP_FAIL, "npuc: %s: %s", program->name, npu_error());
        for (size_t i = 0; i < inputs; i++)
            in[i] += npu_input(model, (int32_t)i)->size;
        for (size_t i = 0; i < outputs; i++)
            if (out[i] != NULL) /* states may be left out */
                out[i] += npu_output(model, (int32_t)i)->size;
    }
    /* Several outputs may be the same tensor of the program: the first has it. */
    for (size_t i = 0; i < kernel->output_count; i++) {
        size_t bytes = (size_t)batch * npu_output(model, (int32_t)kernel->outputs[i])->size;
        uint8_t *first = out[kernel->outputs[i]] - bytes;
        if (first != made[i])
            memcpy(made[i], first, bytes);
    }
    return NULL;
}

static ort_status *compute(ort_compute_info *info, void *state, ort_kernel_context *context) {
    (void)state;
    ort_kernel *kernel = (ort_kernel *)info;
    uint64_t start = kernel->timed ? now() : 0;
    size_t inputs = (size_t)npu_input_count(kernel->program->model), outputs = (size_t)npu_output_count(kernel->program->model);
    uint8_t **pointers = calloc(inputs + outputs + kernel->output_count + 1, sizeof *pointers);
    if (pointers == NULL)
        return ort_error(kernel->api, ORT_FAIL, "npuc: no memory");
    ort_status *status = run(kernel, context, (const uint8_t **)pointers, pointers + inputs, pointers + inputs + outputs);
    free(pointers);
    if (kernel->timed)
        note_time(kernel->program, now() - start);
    return status;
}

static ort_status *create_state(ort_compute_info *info, ort_compute_context *context, void **state) {
    (void)context;
    *state = info;
    return NULL;
}

static void release_state(ort_compute_info *info, void *state) {
    (void)info;
    (void)state;
}

ort_kernel *ort_kernel_new(const ort_api *api, ort_program *program, size_t inputs, size_t outputs, bool timed) {
    ort_kernel *kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL)
        return NULL;
    kernel->info = (ort_compute_info){ORT_API_VERSION, create_state, compute, release_state};
    kernel->api = api;
    kernel->input_count = inputs;
    kernel->output_count = outputs;
    kernel->inputs = calloc(inputs + 1, sizeof *kernel->inputs);
    kernel->outputs = calloc(outputs + 1, sizeof *kernel->outputs);
    kernel->timed = timed;
    kernel->constants = calloc(inputs + 1, sizeof *kernel->constants);
    if (kernel->inputs == NULL || kernel->outputs == NULL || kernel->constants == NULL) {
        ort_kernel_free(kernel);
        return NULL;
    }
    atomic_fetch_add(&program->holders, 1);
    kernel->program = program;
    return kernel;
}

void ort_kernel_free(ort_kernel *kernel) {
    if (kernel == NULL)
        return;
    ort_program_release(kernel->program);
    free(kernel->inputs);
    free(kernel->outputs);
    free(kernel->constants);
    free(kernel);
}
