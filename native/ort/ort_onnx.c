/* Protocol buffers by hand: the messages of an ONNX model, with the field numbers of the published format. */
#include "ort_onnx.h"

#include <stdlib.h>
#include <string.h>

enum { COPIED = 1024 }; /* tensors of fewer bytes are copied, larger ones spliced in */
enum { MOST_DEPTH = 16 };

void ort_bytes_free(ort_bytes *message) {
    free(message->bytes);
    free(message->splices);
    memset(message, 0, sizeof *message);
}

static void *grown(void *array, size_t *room, size_t needed, size_t size) {
    if (needed <= *room)
        return array;
    size_t more = *room < 32 ? 64 : *room * 2;
    more = more < needed ? needed : more;
    void *moved = realloc(array, more * size);
    if (moved != NULL)
        *room = more;
    return moved;
}

void ort_put(ort_bytes *message, const void *data, size_t size) {
    uint8_t *bytes = message->failed ? NULL : grown(message->bytes, &message->room, message->size + size, 1);
    if (bytes == NULL) {
        message->failed = message->failed || size > 0;
        return;
    }
    message->bytes = bytes;
    if (size > 0)
        memcpy(bytes + message->size, data, size);
    message->size += size;
    message->total += size;
}

static void splice(ort_bytes *message, const void *data, size_t size) {
    ort_splice *splices = message->failed ? NULL : grown(message->splices, &message->splice_room,
                                                         message->splice_count + 1, sizeof *splices);
    if (splices == NULL) {
        message->failed = true;
        return;
    }
    message->splices = splices;
    splices[message->splice_count++] = (ort_splice){message->size, data, size};
    message->total += size;
}

static void varint(ort_bytes *message, uint64_t value) {
    uint8_t bytes[10];
    size_t count = 0;
    do {
        bytes[count++] = (uint8_t)((value & 127) | (value > 127 ? 128 : 0));
        value >>= 7;
    } while (value != 0);
    ort_put(message, bytes, count);
}

static void put_int(ort_bytes *message, int field, int64_t value) {
    varint(message, (uint64_t)field << 3);
    varint(message, (uint64_t)value);
}

static void put_float(ort_bytes *message, int field, float value) {
    varint(message, ((uint64_t)field << 3) | 5);
    ort_put(message, &value, 4);
}

static void put_block(ort_bytes *message, int field, const void *data, size_t size) {
    varint(message, ((uint64_t)field << 3) | 2);
    varint(message, size);
    ort_put(message, data, size);
}

static void put_text(ort_bytes *message, int field, const char *text) {
    put_block(message, field, text == NULL ? "" : text, text == NULL ? 0 : strlen(text));
}

/* A message inside of another, which takes its bytes over. */
static void put_message(ort_bytes *message, int field, ort_bytes *inner) {
    varint(message, ((uint64_t)field << 3) | 2);
    varint(message, inner->total);
    size_t at = 0;
    for (size_t i = 0; i < inner->splice_count; i++) {
        const ort_splice *part = &inner->splices[i];
        ort_put(message, inner->bytes + at, part->at - at);
        splice(message, part->data, part->size);
        at = part->at;
    }
    ort_put(message, inner->bytes + at, inner->size - at);
    message->failed = message->failed || inner->failed;
    ort_bytes_free(inner);
}

int ort_each_part(const ort_bytes *message, int (*part)(void *, const void *, size_t), void *user) {
    size_t at = 0;
    for (size_t i = 0; i < message->splice_count; i++) {
        const ort_splice *cut = &message->splices[i];
        int result = part(user, message->bytes + at, cut->at - at);
        if (result == 0)
            result = part(user, cut->data, cut->size);
        if (result != 0)
            return result;
        at = cut->at;
    }
    return part(user, message->bytes + at, message->size - at);
}

#define TRY(call) \
    do { \
        ort_status *status_ = (call); \
        if (status_ != NULL) \
            return status_; \
    } while (0)

static ort_status *no_memory(const ort_api *api) { return ort_error(api, ORT_FAIL, "npuc: no memory"); }

/* The data of a tensor; `keep` tells that they live as long as the graph. */
static ort_status *write_tensor(const ort_api *api, const ort_value *value, const char *name, bool keep, ort_bytes *tensor) {
    ort_tensor_info *info = NULL;
    TRY(api->tensor_info(value, &info));
    int type = 0;
    size_t rank = 0, size = 0;
    int64_t shape[64];
    const void *data = NULL;
    ort_status *status = api->element_type(info, &type);
    if (status == NULL)
        status = api->rank(info, &rank);
    if (status == NULL && rank > 64)
        status = ort_error(api, ORT_FAIL, "npuc: tensor '%s' has %zu axes", name, rank);
    if (status == NULL)
        status = api->dimensions(info, shape, rank);
    api->release_tensor_info(info);
    if (status == NULL && type == 8)
        status = ort_error(api, ORT_FAIL, "npuc: tensor '%s' holds text", name);
    if (status == NULL)
        status = api->tensor_bytes(value, &size);
    if (status == NULL && size > 0)
        status = api->tensor_data(value, &data);
    if (status != NULL)
        return status;
    for (size_t i = 0; i < rank; i++)
        put_int(tensor, 1, shape[i]);
    put_int(tensor, 2, type);
    put_text(tensor, 8, name);
    if (!keep || size < COPIED) {
        put_block(tensor, 9, data, size);
    } else {
        varint(tensor, (9 << 3) | 2);
        varint(tensor, size);
        splice(tensor, data, size);
    }
    return NULL;
}

static ort_status *write_value_info(const ort_api *api, const ort_value_info *value, ort_bytes *info) {
    const char *name = NULL;
    const ort_type_info *type = NULL;
    const ort_tensor_info *tensor = NULL;
    int kind = 0, element = 0;
    size_t rank = 0;
    int64_t shape[64];
    const char *names[64];
    TRY(api->value_name(value, &name));
    put_text(info, 1, name);
    TRY(api->value_type(value, &type));
    if (type == NULL)
        return NULL;
    TRY(api->kind_of_type(type, &kind));
    if (kind != ORT_TENSOR_TYPE)
        return NULL;
    TRY(api->tensor_info_of_type(type, &tensor));
    TRY(api->element_type(tensor, &element));
    TRY(api->rank(tensor, &rank));
    ort_bytes description = {0};
    put_int(&description, 1, element);
    if (rank <= 64 && (api->has_shape == NULL || api->has_shape(tensor))) {
        ort_bytes dims = {0};
        ort_status *status = api->dimensions(tensor, shape, rank);
        if (status == NULL && rank > 0)
            status = api->dimension_names(tensor, names, rank);
        for (size_t i = 0; status == NULL && i < rank; i++) {
            ort_bytes dim = {0};
            if (shape[i] >= 0)
                put_int(&dim, 1, shape[i]);
            else if (names[i] != NULL && names[i][0] != 0)
                put_text(&dim, 2, names[i]);
            put_message(&dims, 1, &dim);
        }
        if (status != NULL) {
            ort_bytes_free(&dims);
            ort_bytes_free(&description);
            return status;
        }
        put_message(&description, 2, &dims);
    }
    ort_bytes tensor_type = {0};
    put_message(&tensor_type, 1, &description);
    put_message(info, 2, &tensor_type);
    return NULL;
}

static ort_status *write_graph(const ort_api *api, const ort_graph *graph, int depth, ort_bytes *out);

static ort_status *write_attribute(const ort_api *api, const ort_node *node, const ort_attribute *source, int depth,
                                   ort_bytes *attribute) {
    static const int onnx_type[] = {0, 2, 7, 1, 6, 3, 8, 5, 4};
    const char *name = NULL;
    int type = 0;
    TRY(api->attribute_name(source, &name));
    TRY(api->attribute_type(source, &type));
    if (type < ORT_ATTRIBUTE_INT || type > ORT_ATTRIBUTE_TENSOR)
        return ort_error(api, ORT_FAIL, "npuc: attribute '%s' is of a kind that is not known", name);
    put_text(attribute, 1, name);
    put_int(attribute, 20, onnx_type[type]);
    if (type == ORT_ATTRIBUTE_TENSOR) {
        ort_value *value = NULL;
        TRY(api->attribute_tensor(source, &value));
        ort_bytes tensor = {0};
        ort_status *status = write_tensor(api, value, "", false, &tensor);
        api->release_value(value);
        put_message(attribute, 5, &tensor);
        return status;
    }
    if (type == ORT_ATTRIBUTE_GRAPH) {
        size_t count = 0;
        const ort_graph *graphs[16];
        const char *names[16];
        TRY(api->subgraph_count(node, &count));
        if (count > 16)
            return ort_error(api, ORT_FAIL, "npuc: a node has %zu subgraphs", count);
        TRY(api->subgraphs(node, graphs, count, names));
        for (size_t i = 0; i < count; i++)
            if (strcmp(names[i], name) == 0) {
                ort_bytes inner = {0};
                ort_status *status = write_graph(api, graphs[i], depth + 1, &inner);
                put_message(attribute, 6, &inner);
                return status;
            }
        return ort_error(api, ORT_FAIL, "npuc: the subgraph '%s' is not there", name);
    }
    size_t size = 0;
    ort_failed(api, api->read_attribute(source, type, NULL, 0, &size)); /* tells the size, and fails if there is any */
    uint8_t *data = malloc(size + 1);
    if (data == NULL)
        return no_memory(api);
    ort_status *status = size == 0 ? NULL : api->read_attribute(source, type, data, size, &size);
    data[size] = 0;
    if (status == NULL)
        switch (type) {
        case ORT_ATTRIBUTE_INT:
        case ORT_ATTRIBUTE_INTS:
            for (size_t at = 0; at + 8 <= size; at += 8) {
                int64_t value;
                memcpy(&value, data + at, 8);
                put_int(attribute, type == ORT_ATTRIBUTE_INT ? 3 : 8, value);
            }
            break;
        case ORT_ATTRIBUTE_FLOAT:
        case ORT_ATTRIBUTE_FLOATS:
            for (size_t at = 0; at + 4 <= size; at += 4) {
                float value;
                memcpy(&value, data + at, 4);
                put_float(attribute, type == ORT_ATTRIBUTE_FLOAT ? 2 : 7, value);
            }
            break;
        case ORT_ATTRIBUTE_STRING:
            put_block(attribute, 4, data, size);
            break;
        default:
            for (size_t at = 0; at < size; at += strlen((char *)data + at) + 1)
                put_text(attribute, 9, (char *)data + at);
        }
    free(data);
    return status;
}

static ort_status *put_names(const ort_api *api, ort_bytes *out, int field, const ort_value_info **values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const char *name = "";
        if (values[i] != NULL)
            TRY(api->value_name(values[i], &name));
        put_text(out, field, name);
    }
    return NULL;
}

static ort_status *write_node(const ort_api *api, const ort_node *node, int depth, ort_bytes *out) {
    const char *name = NULL, *type = NULL, *domain = NULL;
    size_t inputs = 0, outputs = 0, attributes = 0;
    TRY(api->node_name(node, &name));
    TRY(api->node_type(node, &type));
    TRY(api->node_domain(node, &domain));
    TRY(api->node_input_count(node, &inputs));
    TRY(api->node_output_count(node, &outputs));
    TRY(api->attribute_count(node, &attributes));
    size_t most = inputs > outputs ? inputs : outputs;
    most = most > attributes ? most : attributes;
    const void **items = malloc((most + 1) * sizeof *items);
    if (items == NULL)
        return no_memory(api);
    ort_status *status = api->node_inputs(node, (const ort_value_info **)items, inputs);
    if (status == NULL)
        status = put_names(api, out, 1, (const ort_value_info **)items, inputs);
    if (status == NULL)
        status = api->node_outputs(node, (const ort_value_info **)items, outputs);
    if (status == NULL)
        status = put_names(api, out, 2, (const ort_value_info **)items, outputs);
    put_text(out, 3, name);
    put_text(out, 4, type);
    put_text(out, 7, domain);
    if (status == NULL)
        status = api->attributes(node, (const ort_attribute **)items, attributes);
    for (size_t i = 0; status == NULL && i < attributes; i++) {
        ort_bytes attribute = {0};
        status = write_attribute(api, node, items[i], depth, &attribute);
        put_message(out, 5, &attribute);
    }
    free(items);
    return status;
}

typedef ort_status *(*counter)(const ort_graph *, size_t *);
typedef ort_status *(*lister)(const ort_graph *, const ort_value_info **, size_t);

static ort_status *listed(const ort_api *api, const ort_graph *graph, counter count_of, lister list_of,
                          const ort_value_info ***values, size_t *count) {
    TRY(count_of(graph, count));
    *values = malloc((*count + 1) * sizeof **values);
    if (*values == NULL)
        return no_memory(api);
    ort_status *status = list_of(graph, *values, *count);
    if (status != NULL) {
        free(*values);
        *values = NULL;
    }
    return status;
}

static ort_status *write_ports(const ort_api *api, const ort_graph *graph, int field, counter count_of, lister list_of,
                               ort_bytes *out) {
    const ort_value_info **values = NULL;
    size_t count = 0;
    ort_status *status = listed(api, graph, count_of, list_of, &values, &count);
    for (size_t i = 0; status == NULL && i < count; i++) {
        bool constant = false; /* ORT lists initializers that are inputs, too */
        if (field == 11) {
            const ort_value *initial = NULL;
            status = api->is_constant(values[i], &constant);
            if (status == NULL && !constant && !ort_failed(api, api->initializer(values[i], &initial)) && initial != NULL)
                constant = true;
        }
        if (status != NULL || constant)
            continue;
        ort_bytes info = {0};
        status = write_value_info(api, values[i], &info);
        put_message(out, field, &info);
    }
    free(values);
    return status;
}

/* The types of what a node makes: the importer could infer them, but not those of operators that ONNX does not know. */
static ort_status *write_types(const ort_api *api, const ort_node *node, ort_bytes *out) {
    size_t count = 0;
    TRY(api->node_output_count(node, &count));
    const ort_value_info **values = malloc((count + 1) * sizeof *values);
    if (values == NULL)
        return no_memory(api);
    ort_status *status = api->node_outputs(node, values, count);
    for (size_t i = 0; status == NULL && i < count; i++) {
        bool listed_below = false;
        if (values[i] == NULL)
            continue;
        status = api->is_graph_output(values[i], &listed_below);
        if (status != NULL || listed_below)
            continue;
        ort_bytes info = {0};
        status = write_value_info(api, values[i], &info);
        put_message(out, 13, &info);
    }
    free(values);
    return status;
}

static ort_status *write_graph(const ort_api *api, const ort_graph *graph, int depth, ort_bytes *out) {
    if (depth > MOST_DEPTH)
        return ort_error(api, ORT_FAIL, "npuc: subgraphs are nested more than %d deep", MOST_DEPTH);
    size_t count = 0;
    TRY(api->node_count(graph, &count));
    const ort_node **nodes = malloc((count + 1) * sizeof *nodes);
    if (nodes == NULL)
        return no_memory(api);
    ort_status *status = api->nodes(graph, nodes, count);
    for (size_t i = 0; status == NULL && i < count; i++) {
        ort_bytes node = {0};
        status = write_node(api, nodes[i], depth, &node);
        put_message(out, 1, &node);
        if (status == NULL && depth == 0)
            status = write_types(api, nodes[i], out);
    }
    free(nodes);
    put_text(out, 2, "main");
    const ort_value_info **values = NULL;
    if (status == NULL)
        status = listed(api, graph, api->initializer_count, api->initializers, &values, &count);
    for (size_t i = 0; status == NULL && i < count; i++) {
        const char *name = NULL;
        const ort_value *value = NULL;
        status = api->value_name(values[i], &name);
        if (status == NULL)
            status = api->initializer(values[i], &value);
        if (status != NULL || value == NULL)
            continue;
        ort_bytes tensor = {0};
        status = write_tensor(api, value, name, true, &tensor);
        put_message(out, 5, &tensor);
    }
    free(values);
    if (status == NULL)
        status = write_ports(api, graph, 11, api->input_count, api->inputs, out);
    if (status == NULL)
        status = write_ports(api, graph, 12, api->output_count, api->outputs, out);
    if (status == NULL && out->failed)
        status = no_memory(api);
    return status;
}

/* Whether some node of the graph is of this domain: ORT lists every set of operators that it knows. */
static ort_status *uses_domain(const ort_api *api, const ort_graph *graph, const char *domain, int depth, bool *used) {
    size_t count = 0;
    TRY(api->node_count(graph, &count));
    const ort_node **nodes = malloc((count + 1) * sizeof *nodes);
    if (nodes == NULL)
        return no_memory(api);
    ort_status *status = api->nodes(graph, nodes, count);
    for (size_t i = 0; status == NULL && i < count && !*used; i++) {
        const char *own = NULL;
        size_t inner = 0;
        status = api->node_domain(nodes[i], &own);
        *used = status == NULL && own != NULL && strcmp(own, domain) == 0;
        if (status == NULL && !*used)
            status = api->subgraph_count(nodes[i], &inner);
        if (status == NULL && inner > 0 && inner <= 16 && depth < MOST_DEPTH) {
            const ort_graph *graphs[16];
            const char *names[16];
            status = api->subgraphs(nodes[i], graphs, inner, names);
            for (size_t j = 0; status == NULL && j < inner && !*used; j++)
                status = uses_domain(api, graphs[j], domain, depth + 1, used);
        }
    }
    free(nodes);
    return status;
}

ort_status *ort_write_model(const ort_api *api, const ort_graph *graph, ort_bytes *model) {
    int64_t ir_version = 0;
    size_t count = 0;
    const char *domains[64];
    int64_t versions[64];
    TRY(api->ir_version(graph, &ir_version));
    put_int(model, 1, ir_version);
    TRY(api->opset_count(graph, &count));
    if (count > 64)
        return ort_error(api, ORT_FAIL, "npuc: the model has %zu operator sets", count);
    TRY(api->opsets(graph, domains, versions, count));
    for (size_t i = 0; i < count; i++) {
        bool used = domains[i][0] == 0;
        TRY(uses_domain(api, graph, domains[i], 0, &used));
        if (!used)
            continue;
        ort_bytes opset = {0};
        put_text(&opset, 1, domains[i]);
        put_int(&opset, 2, versions[i]);
        put_message(model, 8, &opset);
    }
    ort_bytes body = {0};
    ort_status *status = write_graph(api, graph, 0, &body);
    put_message(model, 7, &body);
    if (status == NULL && model->failed)
        status = no_memory(api);
    return status;
}
