#define _POSIX_C_SOURCE 200809L
#include "ort_context.h"

#include "ort_onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef NPUC_VERSION
#define NPUC_VERSION "0"
#endif

static const size_t MOST_CONTEXT = ((size_t)1 << 31) - 1;
enum { MOST_PORTS = 4096 };

#define TRY(call) \
    do { \
        ort_status *status_ = (call); \
        if (status_ != NULL) \
            return status_; \
    } while (0)

/* The bytes of an attribute, with a zero behind them; NULL if there is none. */
static uint8_t *attribute_bytes(const ort_api *api, const ort_node *node, const char *name, int type, size_t *size) {
    const ort_attribute *attribute = NULL;
    int actual = 0;
    if (ort_failed(api, api->attribute(node, name, &attribute)) || attribute == NULL ||
        ort_failed(api, api->attribute_type(attribute, &actual)) || actual != type)
        return NULL;
    *size = 0;
    ort_failed(api, api->read_attribute(attribute, type, NULL, 0, size));
    uint8_t *data = *size <= MOST_CONTEXT ? malloc(*size + 1) : NULL;
    if (data != NULL && *size > 0 && ort_failed(api, api->read_attribute(attribute, type, data, *size, size))) {
        free(data);
        return NULL;
    }
    if (data != NULL)
        data[*size] = 0;
    return data;
}

bool ort_is_context(const ort_api *api, const ort_node *node) {
    const char *type = NULL, *domain = NULL;
    if (ort_failed(api, api->node_type(node, &type)) || ort_failed(api, api->node_domain(node, &domain)))
        return false;
    if (strcmp(type, "EPContext") != 0 || strcmp(domain, "com.microsoft") != 0)
        return false;
    size_t size = 0;
    char *source = (char *)attribute_bytes(api, node, "source", ORT_ATTRIBUTE_STRING, &size);
    bool own = source != NULL && size == sizeof PROVIDER_NAME - 1 && memcmp(source, PROVIDER_NAME, size) == 0;
    free(source);
    return own;
}

/* A file beside the model: no path leaves its folder. */
static uint8_t *side_file(const ort_api *api, const ort_graph *graph, const ort_options *options, const char *name, size_t *size) {
    const char *model = NULL;
    char path[4096];
    if (ort_failed(api, api->model_path(graph, &model)) || model == NULL || *model == 0)
        model = options->context_path != NULL ? options->context_path : "";
    if (*name == 0 || *name == '/' || strstr(name, "..") != NULL)
        return NULL;
    const char *end = strrchr(model, '/');
    int folder = end == NULL ? 0 : (int)(end - model + 1);
    if (snprintf(path, sizeof path, "%.*s%s", folder, model, name) >= (int)sizeof path)
        return NULL;
    return ort_read_file(path, MOST_CONTEXT, size);
}

static bool below(const size_t *values, size_t count, size_t end) {
    for (size_t i = 0; i < count; i++)
        if (values[i] >= end)
            return false;
    return true;
}

/* Numbers behind a word, as many as there are ports. */
static bool numbers(char *line, const char *word, size_t *values, size_t count) {
    char *rest = NULL, *item = line == NULL ? NULL : strtok_r(line, " ", &rest);
    if (item == NULL || strcmp(item, word) != 0)
        return false;
    for (size_t i = 0; i < count; i++) {
        char *stop = NULL;
        if ((item = strtok_r(NULL, " ", &rest)) == NULL)
            return false;
        unsigned long value = strtoul(item, &stop, 10);
        if (*stop != 0)
            return false;
        values[i] = value;
    }
    return strtok_r(NULL, " ", &rest) == NULL;
}

/* Make a kernel of data, which are taken over. */
static ort_kernel *parse(const ort_api *api, uint8_t *data, size_t size, size_t inputs, size_t outputs,
                         const ort_options *options, char *why, size_t room) {
    snprintf(why, room, "its data are damaged, or of another version of npuc");
    uint8_t *end = NULL;
    for (size_t i = 0; i + 1 < size && i < 1 << 20 && end == NULL; i++)
        if (data[i] == '\n' && data[i + 1] == '\n')
            end = data + i;
    if (end == NULL) {
        free(data);
        return NULL;
    }
    *end = 0;
    char *rest = NULL, *head = strtok_r((char *)data, "\n", &rest);
    char *batched = strtok_r(NULL, "\n", &rest), *in = strtok_r(NULL, "\n", &rest), *out = strtok_r(NULL, "\n", &rest);
    size_t length = size - (size_t)(end + 2 - data);
    uint8_t *program_bytes = malloc(length + 1);
    ort_program *program = NULL;
    ort_kernel *kernel = NULL;
    if (program_bytes != NULL && head != NULL && strcmp(head, "npuc-ort-context 1") == 0 && batched != NULL) {
        memcpy(program_bytes, end + 2, length);
        program = ort_program_load(program_bytes, length, strcmp(batched, "batched 1") == 0, "context", options->thread_count, why,
                                   room);
    } else {
        free(program_bytes);
    }
    if (program != NULL)
        kernel = ort_kernel_new(api, program, inputs, outputs, options->profile != NULL);
    if (kernel != NULL &&
        (!numbers(in, "inputs", kernel->inputs, inputs) || !numbers(out, "outputs", kernel->outputs, outputs) ||
         !ort_all_given(kernel->inputs, inputs, (size_t)npu_input_count(program->model)) ||
         !below(kernel->outputs, outputs, (size_t)npu_output_count(program->model)))) {
        ort_kernel_free(kernel);
        kernel = NULL;
    }
    ort_program_release(program);
    free(data);
    return kernel;
}

ort_status *ort_context_read(const ort_api *api, const ort_graph *graph, const ort_node *node, const ort_node *fused,
                             const ort_options *options, ort_kernel **kernel) {
    size_t inputs = 0, outputs = 0, size = 0, mode_size = 0;
    const char *name = NULL;
    char why[1024] = "";
    TRY(api->node_input_count(fused, &inputs));
    TRY(api->node_output_count(fused, &outputs));
    TRY(api->node_name(node, &name));
    if (inputs > MOST_PORTS || outputs > MOST_PORTS)
        return ort_error(api, ORT_FAIL, "npuc: the compiled node '%s' has too many inputs or outputs", name);
    uint8_t *data = attribute_bytes(api, node, "ep_cache_context", ORT_ATTRIBUTE_STRING, &size);
    uint8_t *mode = attribute_bytes(api, node, "embed_mode", ORT_ATTRIBUTE_INT, &mode_size);
    int64_t embedded = 1;
    if (mode != NULL && mode_size == 8)
        memcpy(&embedded, mode, 8);
    free(mode);
    if (data != NULL && embedded == 0) {
        char *file = (char *)data;
        data = side_file(api, graph, options, file, &size);
        if (data == NULL) {
            ort_status *status = ort_error(api, ORT_NO_SUCH_FILE,
                                           "npuc: the compiled node '%s' has its program in the file '%s', which is not beside the "
                                           "model or cannot be read",
                                           name, file);
            free(file);
            return status;
        }
        free(file);
    }
    *kernel = data == NULL ? NULL : parse(api, data, size, inputs, outputs, options, why, sizeof why);
    if (*kernel == NULL)
        return ort_error(api, ORT_FAIL, "npuc: the compiled node '%s' cannot be used: %s", name, *why ? why : "it has no data");
    return NULL;
}

static void put_numbers(ort_bytes *data, const char *word, const size_t *values, size_t count) {
    char text[32];
    ort_put(data, word, strlen(word));
    for (size_t i = 0; i < count; i++)
        if (values[i] != ORT_CONSTANT)
            ort_put(data, text, (size_t)snprintf(text, sizeof text, " %zu", values[i]));
    ort_put(data, "\n", 1);
}

/* The name of a file beside the compiled model, which ORT names after the model unless it is told. */
static bool name_file(const ort_api *api, const ort_graph *graph, const ort_options *options, size_t number, char *path,
                      size_t room, const char **name) {
    const char *model = options->context_path;
    const char *added = "";
    if (model == NULL || *model == 0) {
        if (ort_failed(api, api->model_path(graph, &model)) || model == NULL || *model == 0)
            return false;
        added = "_ctx";
    }
    size_t length = strlen(model);
    if (length > 5 && strcmp(model + length - 5, ".onnx") == 0)
        length -= 5;
    if ((size_t)snprintf(path, room, "%.*s%s_npuc%zu.bin", (int)length, model, added, number) >= room)
        return false;
    const char *slash = strrchr(path, '/');
    *name = slash == NULL ? path : slash + 1;
    return true;
}

static ort_status *names_of(const ort_api *api, const ort_value_info **values, size_t count, const char **names) {
    for (size_t i = 0; i < count; i++)
        TRY(api->value_name(values[i], &names[i]));
    return NULL;
}

ort_status *ort_context_write(const ort_api *api, const ort_graph *graph, const ort_node *fused, const ort_kernel *kernel,
                              const ort_options *options, size_t number, ort_node **node) {
    const ort_program *program = kernel->program;
    ort_bytes data = {0};
    static const char head[] = "npuc-ort-context 1\n";
    ort_put(&data, head, sizeof head - 1);
    ort_put(&data, program->batched ? "batched 1\n" : "batched 0\n", 10);
    put_numbers(&data, "inputs", kernel->inputs, kernel->input_count);
    put_numbers(&data, "outputs", kernel->outputs, kernel->output_count);
    ort_put(&data, "\n", 1);
    ort_put(&data, program->bytes, program->size);
    if (data.failed || data.size > MOST_CONTEXT) {
        ort_bytes_free(&data);
        return ort_error(api, ORT_FAIL, "npuc: a compiled part has more than 2 GiB and cannot become part of a model");
    }
    char path[4096];
    const char *content = (const char *)data.bytes, *file_name = NULL;
    size_t content_size = data.size;
    ort_status *status = NULL;
    if (!options->embed_context) {
        FILE *file = NULL;
        if (!name_file(api, graph, options, number, path, sizeof path, &file_name))
            status = ort_error(api, ORT_FAIL, "npuc: the compiled model has no path: set ep.context_file_path");
        else if ((file = fopen(path, "wb")) == NULL || fwrite(data.bytes, 1, data.size, file) != data.size)
            status = ort_error(api, ORT_FAIL, "npuc: %s cannot be written", path);
        if (file != NULL && fclose(file) != 0 && status == NULL)
            status = ort_error(api, ORT_FAIL, "npuc: %s cannot be written", path);
        content = file_name;
        content_size = file_name == NULL ? 0 : strlen(file_name);
    }
    const int64_t yes = 1, embedded = options->embed_context;
    const char *name = NULL;
    ort_attribute *attributes[6] = {0};
    if (status == NULL)
        status = api->node_name(fused, &name);
    if (status == NULL)
        status = api->create_attribute("ep_cache_context", content, (int)content_size, ORT_ATTRIBUTE_STRING, &attributes[0]);
    if (status == NULL)
        status = api->create_attribute("embed_mode", &embedded, 1, ORT_ATTRIBUTE_INT, &attributes[1]);
    if (status == NULL)
        status = api->create_attribute("main_context", &yes, 1, ORT_ATTRIBUTE_INT, &attributes[2]);
    if (status == NULL)
        status = api->create_attribute("source", PROVIDER_NAME, sizeof PROVIDER_NAME - 1, ORT_ATTRIBUTE_STRING, &attributes[3]);
    if (status == NULL)
        status = api->create_attribute("partition_name", name, (int)strlen(name), ORT_ATTRIBUTE_STRING, &attributes[4]);
    if (status == NULL)
        status = api->create_attribute("ep_sdk_version", NPUC_VERSION, sizeof NPUC_VERSION - 1, ORT_ATTRIBUTE_STRING,
                                       &attributes[5]);
    ort_bytes_free(&data);
    size_t inputs = kernel->input_count, outputs = kernel->output_count;
    const ort_value_info **values = malloc((inputs + outputs + 1) * sizeof *values);
    const char **names = malloc((inputs + outputs + 1) * sizeof *names);
    if (status == NULL && (values == NULL || names == NULL))
        status = ort_error(api, ORT_FAIL, "npuc: no memory");
    if (status == NULL)
        status = api->node_inputs(fused, values, inputs);
    if (status == NULL)
        status = api->node_outputs(fused, values + inputs, outputs);
    /* Weights that are inputs, too, are in the program. */
    size_t given = 0;
    for (size_t i = 0; status == NULL && i < inputs; i++)
        if (kernel->inputs[i] != ORT_CONSTANT)
            values[given++] = values[i];
    if (status == NULL) {
        memmove(values + given, values + inputs, outputs * sizeof *values);
        status = names_of(api, values, given + outputs, names);
    }
    if (status == NULL)
        status = api->create_node("EPContext", "com.microsoft", name, names, given, names + given, outputs, attributes, 6, node);
    for (size_t i = 0; i < 6; i++)
        if (attributes[i] != NULL)
            api->release_attribute(attributes[i]);
    free(values);
    free(names);
    return status;
}
