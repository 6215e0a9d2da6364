/*
 * npuc as an execution provider of ONNX Runtime: the two functions that a plugin library exports, and what they lead to.
 *
 *     CreateEpFactories → factory → provider (one a session) → get_capability: the plan of the graph, its groups claimed
 *                                                            → compile: a kernel for each claimed group
 *
 * Everything that can fail is done when the session is made; a run only executes programs. The library stays in memory when it is
 * unregistered (see CMakeLists.txt), and the factory is static, so that sessions may outlive the registration.
 */
#define _POSIX_C_SOURCE 200809L
#include "ort_compile.h"
#include "ort_context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef NPUC_VERSION
#define NPUC_VERSION "0.0.0"
#endif
#define EXPORTED __attribute__((visibility("default")))

static ort_api functions;

/* A weight that the model lists as an input, too. */
typedef struct weight {
    char *name;
    uint8_t digest[32];
    struct weight *next;
} weight;

typedef struct provider {
    ort_ep ep;
    ort_options options;
    const ort_logger *logger;
    ort_plan *plans;
    weight *weights;
    size_t compiled; /* parts so far, to name files by */
    char *mistake;   /* of the user's, in words */
} provider;

#define TRY(call) \
    do { \
        ort_status *status_ = (call); \
        if (status_ != NULL) \
            return status_; \
    } while (0)

static void tell(void *user, int level, const char *text) {
    const provider *own = user;
    ort_failed(&functions, functions.log(own->logger, level, text, "npuc", 0, "npuc"));
}

static ort_status *no_memory(void) { return ort_error(&functions, ORT_FAIL, "npuc: no memory"); }

static ort_status *claim_contexts(const ort_node **nodes, size_t count, const provider *own, ort_support *support, bool *any) {
    const ort_fusion fusion = {ORT_API_VERSION, true};
    for (size_t i = 0; i < count; i++) {
        if (!ort_is_context(&functions, nodes[i]))
            continue;
        if (own->options.make_context)
            return ort_error(&functions, ORT_INVALID_ARGUMENT,
                             "npuc: the model is compiled already: leave ep.context_enable out, or give the original model");
        *any = true;
        TRY(functions.fuse(support, &nodes[i], 1, &fusion));
    }
    return NULL;
}

static const weight *weight_of(const provider *own, const char *name) {
    const weight *item = own->weights;
    while (item != NULL && strcmp(item->name, name) != 0)
        item = item->next;
    return item;
}

/* Remember the weights that are inputs of the graph: a fused node will have them as inputs. */
static ort_status *note_weights(provider *own, const ort_graph *graph) {
    size_t count = 0;
    TRY(functions.input_count(graph, &count));
    const ort_value_info **values = malloc((count + 1) * sizeof *values);
    ort_status *status = values == NULL ? no_memory() : functions.inputs(graph, values, count);
    for (size_t i = 0; status == NULL && i < count; i++) {
        const ort_value *initial = NULL;
        const char *name = NULL;
        const void *data = NULL;
        size_t size = 0;
        if (ort_failed(&functions, functions.initializer(values[i], &initial)) || initial == NULL ||
            ort_failed(&functions, functions.value_name(values[i], &name)) || weight_of(own, name) != NULL ||
            ort_failed(&functions, functions.tensor_bytes(initial, &size)) ||
            (size > 0 && ort_failed(&functions, functions.tensor_data(initial, &data))))
            continue;
        weight *item = calloc(1, sizeof *item);
        if (item == NULL || (item->name = strdup(name)) == NULL) {
            free(item);
            status = no_memory();
            continue;
        }
        ort_digest(data, size, item->digest);
        item->next = own->weights;
        own->weights = item;
    }
    free(values);
    return status;
}

static ort_plan *plan_of(provider *own, const ort_graph *graph, ort_status **status) {
    ort_bytes model = {0};
    *status = note_weights(own, graph);
    if (*status == NULL)
        *status = ort_write_model(&functions, graph, &model);
    ort_plan *plan = *status == NULL ? ort_plan_of(&model, &own->options, tell, own) : NULL;
    ort_bytes_free(&model);
    if (plan == NULL)
        return NULL;
    if (plan->mistake != NULL) {
        free(own->mistake);
        own->mistake = plan->mistake;
        plan->mistake = NULL;
        ort_plan_free(plan);
        return NULL;
    }
    /* The graph may be asked for again: its kernels are those of the first answer. */
    for (ort_plan *known = own->plans; known != NULL; known = known->next)
        if (strcmp(known->key, plan->key) == 0) {
            ort_plan_free(plan);
            return known;
        }
    for (size_t i = 0; i < plan->note_count; i++)
        tell(own, plan->notes[i].level, plan->notes[i].text);
    plan->next = own->plans;
    return own->plans = plan;
}

static ort_status *claim(provider *own, const ort_graph *graph, const ort_node **nodes, size_t count, ort_support *support) {
    ort_status *status = NULL;
    const ort_plan *plan = plan_of(own, graph, &status);
    const ort_fusion fusion = {ORT_API_VERSION, true};
    for (size_t i = 0; plan != NULL && status == NULL && i < plan->group_count; i++) {
        const ort_group *group = &plan->groups[i];
        const ort_node **members = malloc(group->node_count * sizeof *members);
        if (members == NULL)
            return no_memory();
        for (size_t j = 0; j < group->node_count && status == NULL; j++) {
            if (group->nodes[j] >= count)
                status = ort_error(&functions, ORT_FAIL, "npuc: the plan names node %zu of %zu", group->nodes[j], count);
            else
                members[j] = nodes[group->nodes[j]];
        }
        if (status == NULL)
            status = functions.fuse(support, members, group->node_count, &fusion);
        free(members);
    }
    /* ORT only logs what goes wrong here, and makes a session without the provider. A mistake of the user's must be an error: a
       node is claimed, and `compile` refuses it. */
    if (status == NULL && own->mistake != NULL)
        status = functions.fuse(support, nodes, 1, &fusion);
    return status;
}

static ort_status *get_capability(ort_ep *ep, const ort_graph *graph, ort_support *support) {
    provider *own = (provider *)ep;
    const ort_node *parent = NULL;
    size_t count = 0;
    TRY(functions.parent_node(graph, &parent));
    if (parent != NULL) {
        tell(own, ORT_INFO, "npuc: the body of a control-flow node stays with the other providers");
        return NULL;
    }
    TRY(functions.node_count(graph, &count));
    if (count == 0)
        return NULL;
    const ort_node **nodes = malloc(count * sizeof *nodes);
    if (nodes == NULL)
        return no_memory();
    bool compiled = false;
    ort_status *status = functions.nodes(graph, nodes, count);
    if (status == NULL)
        status = claim_contexts(nodes, count, own, support, &compiled);
    if (status == NULL && !compiled)
        status = claim(own, graph, nodes, count, support);
    free(nodes);
    return status;
}

static bool place_of(char *const *names, size_t count, const char *name, size_t *place) {
    for (*place = 0; *place < count; ++*place)
        if (strcmp(names[*place], name) == 0)
            return true;
    return false;
}

/* The kernel of a group for a fused node, whose tensors are found by their names; NULL if the node is of another group. */
static ort_kernel *fitted(const provider *own, const ort_group *group, const char **names, size_t inputs, size_t outputs) {
    ort_kernel *kernel = ort_kernel_new(&functions, group->program, inputs, outputs, own->options.profile != NULL);
    bool fits = kernel != NULL;
    for (size_t i = 0; fits && i < outputs; i++) {
        size_t place = 0;
        fits = place_of(group->outputs, group->output_count, names[inputs + i], &place);
        if (fits)
            kernel->outputs[i] = group->output_of[place];
    }
    size_t given = 0;
    for (size_t i = 0; fits && i < inputs; i++) {
        size_t place = 0;
        kernel->inputs[i] = ORT_CONSTANT;
        if (place_of(group->inputs, group->input_count, names[i], &place)) {
            kernel->inputs[i] = group->input_of[place];
            given++;
        } else {
            const weight *held = weight_of(own, names[i]);
            fits = held != NULL;
            if (fits)
                memcpy(kernel->constants[i].digest, held->digest, sizeof held->digest);
        }
    }
    if (!fits || given != group->input_count) {
        ort_kernel_free(kernel);
        return NULL;
    }
    return kernel;
}

static ort_status *kernel_of(const provider *own, const ort_node *fused, ort_kernel **kernel) {
    size_t inputs = 0, outputs = 0;
    TRY(functions.node_input_count(fused, &inputs));
    TRY(functions.node_output_count(fused, &outputs));
    const ort_value_info **values = malloc((inputs + outputs + 1) * sizeof *values);
    const char **names = malloc((inputs + outputs + 1) * sizeof *names);
    ort_status *status = values == NULL || names == NULL ? no_memory() : functions.node_inputs(fused, values, inputs);
    if (status == NULL)
        status = functions.node_outputs(fused, values + inputs, outputs);
    for (size_t i = 0; status == NULL && i < inputs + outputs; i++)
        status = functions.value_name(values[i], &names[i]);
    *kernel = NULL;
    for (const ort_plan *plan = own->plans; status == NULL && plan != NULL && *kernel == NULL; plan = plan->next)
        for (size_t i = 0; i < plan->group_count && *kernel == NULL; i++)
            *kernel = fitted(own, &plan->groups[i], names, inputs, outputs);
    if (status == NULL && *kernel == NULL)
        status = ort_error(&functions, ORT_EP_FAIL,
                           "npuc: the part with the output '%s' does not have the inputs and outputs that it was compiled for",
                           outputs > 0 ? names[inputs] : "");
    free(values);
    free(names);
    return status;
}

static ort_status *compile_part(provider *own, const ort_graph *graph, const ort_node *fused, ort_kernel **kernel,
                                ort_node **context) {
    size_t count = 0;
    const ort_node *only = NULL;
    if (own->mistake != NULL)
        return ort_error(&functions, ORT_INVALID_ARGUMENT, "npuc: %s", own->mistake);
    TRY(functions.node_count(graph, &count));
    if (count == 1)
        TRY(functions.nodes(graph, &only, 1));
    if (only != NULL && ort_is_context(&functions, only))
        return ort_context_read(&functions, graph, only, fused, &own->options, kernel);
    TRY(kernel_of(own, fused, kernel));
    if (own->options.make_context)
        TRY(ort_context_write(&functions, graph, fused, *kernel, &own->options, own->compiled++, context));
    return NULL;
}

static void release_kernels(ort_ep *ep, ort_compute_info **infos, size_t count) {
    (void)ep;
    for (size_t i = 0; i < count; i++)
        ort_kernel_free((ort_kernel *)infos[i]);
}

static ort_status *compile(ort_ep *ep, const ort_graph **graphs, const ort_node **fused, size_t count, ort_compute_info **infos,
                           ort_node **contexts) {
    for (size_t i = 0; i < count; i++) {
        ort_kernel *kernel = NULL;
        ort_node *context = NULL;
        ort_status *status = compile_part((provider *)ep, graphs[i], fused[i], &kernel, &context);
        infos[i] = kernel == NULL ? NULL : &kernel->info;
        if (context != NULL)
            contexts[i] = context;
        if (status != NULL) {
            release_kernels(ep, infos, i + 1);
            memset(infos, 0, (i + 1) * sizeof *infos);
            return status;
        }
    }
    return NULL;
}

static const char *provider_name(const ort_ep *ep) {
    (void)ep;
    return PROVIDER_NAME;
}

/* How long runs took, by part. */
static void write_profile(const provider *own) {
    FILE *file = fopen(own->options.profile, "w");
    if (file == NULL) {
        tell((void *)own, ORT_WARNING, "npuc: the profile cannot be written");
        return;
    }
    const char *between = "";
    fprintf(file, "{\"parts\": [");
    for (const ort_plan *plan = own->plans; plan != NULL; plan = plan->next)
        for (size_t i = 0; i < plan->group_count; i++) {
            const ort_program *program = plan->groups[i].program;
            unsigned long long calls = program->calls, least = calls ? program->least : 0;
            fprintf(file, "%s\n  {\"part\": \"%s\", \"nodes\": %zu, \"calls\": %llu, \"total_ns\": %llu, \"min_ns\": %llu, \"max_ns\": %llu}",
                    between, program->name, plan->groups[i].node_count, calls, (unsigned long long)program->nanoseconds, least,
                    (unsigned long long)program->most);
            between = ",";
        }
    fprintf(file, "\n]}\n");
    fclose(file);
}

static void free_provider(provider *own) {
    for (ort_plan *plan = own->plans; plan != NULL;) {
        ort_plan *next = plan->next;
        ort_plan_free(plan);
        plan = next;
    }
    for (weight *item = own->weights; item != NULL;) {
        weight *next = item->next;
        free(item->name);
        free(item);
        item = next;
    }
    ort_options_free(&own->options);
    free(own->mistake);
    free(own);
}

/* The factory. */

static const char *factory_name(const ort_ep_factory *factory) {
    (void)factory;
    return PROVIDER_NAME;
}

static const char *vendor(const ort_ep_factory *factory) {
    (void)factory;
    return "npuc";
}

static const char *semantic_version(const ort_ep_factory *factory) {
    (void)factory;
    return NPUC_VERSION;
}

static uint32_t vendor_id(const ort_ep_factory *factory) {
    (void)factory;
    return 0x6E707563u; /* "npuc": no number of PCI's, all of which have 16 bits */
}

static bool is_stream_aware(const ort_ep_factory *factory) {
    (void)factory;
    return false;
}

static ort_status *create_data_transfer(ort_ep_factory *factory, void **transfer) {
    (void)factory;
    *transfer = NULL; /* tensors are in the CPU's memory */
    return NULL;
}

static ort_status *supported_devices(ort_ep_factory *factory, const ort_hardware *const *hardware, size_t count,
                                     ort_device **devices, size_t room, size_t *used) {
    *used = 0;
    for (size_t i = 0; i < count && *used < room; i++)
        if (functions.hardware_type(hardware[i]) == ORT_CPU_DEVICE) {
            TRY(functions.create_device(factory, hardware[i], NULL, NULL, &devices[*used]));
            ++*used;
            break;
        }
    return NULL;
}

static ort_status *create_ep(ort_ep_factory *factory, const ort_hardware *const *hardware, const ort_pairs *const *metadata,
                             size_t count, const ort_session_options *session, const ort_logger *logger, ort_ep **ep) {
    (void)factory, (void)hardware, (void)metadata, (void)count;
    provider *own = calloc(1, sizeof *own);
    if (own == NULL)
        return no_memory();
    own->logger = logger;
    own->ep.version = ORT_API_VERSION;
    own->ep.name = provider_name;
    own->ep.get_capability = get_capability;
    own->ep.compile = compile;
    own->ep.release_compute_infos = release_kernels;
    ort_status *status = ort_options_read(&functions, session, &own->options);
    if (status != NULL) {
        free_provider(own);
        return status;
    }
    *ep = &own->ep;
    return NULL;
}

static void release_ep(ort_ep_factory *factory, ort_ep *ep) {
    (void)factory;
    if (ep == NULL)
        return;
    provider *own = (provider *)ep;
    if (own->options.profile != NULL)
        write_profile(own);
    free_provider(own);
}

static ort_ep_factory factory = {
    .version = ORT_API_VERSION,
    .name = factory_name,
    .vendor = vendor,
    .supported_devices = supported_devices,
    .create_ep = create_ep,
    .release_ep = release_ep,
    .vendor_id = vendor_id,
    .semantic_version = semantic_version,
    .create_data_transfer = create_data_transfer,
    .is_stream_aware = is_stream_aware,
};

EXPORTED ort_status *CreateEpFactories(const char *name, const ort_api_base *base, const ort_logger *logger,
                                       ort_ep_factory **factories, size_t room, size_t *count) {
    (void)name, (void)logger;
    TRY(ort_load(base, &functions));
    if (room < 1)
        return ort_error(&functions, ORT_INVALID_ARGUMENT, "npuc: no room for a factory");
    factories[0] = &factory;
    *count = 1;
    return NULL;
}

EXPORTED ort_status *ReleaseEpFactory(ort_ep_factory *released) {
    (void)released;
    return NULL;
}

/* Sessions of programs that were written for a quantizer with operators of its own register this library as theirs. Files that npuc
 * writes have ONNX's operators alone, so there is nothing to register. */
EXPORTED ort_status *RegisterCustomOps(void *options, const ort_api_base *base) {
    (void)options, (void)base;
    return NULL;
}
