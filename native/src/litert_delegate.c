/*
 * libnpuc_delegate: compiled models inside LiteRT (TensorFlow Lite), as an external delegate.
 *
 * Three ways to the program:
 *   - option `model`, the .tflite file that the interpreter has: it is compiled when the interpreter is made (litert_program.c);
 *   - option `program`, a .npu file made ahead by `npuc export litert model.tflite`, or by `npuc compile`;
 *   - neither: operators called `npuc` carry their program with them (`npuc export litert model.npu`).
 *
 * A program is one or several pieces of the graph (its entries). The ends of a piece are tensors of the graph, named by number
 * (`#7 name`) or by name; the operators between them are taken, all others stay with LiteRT.
 *
 * Memory: the plugin is freed with its last user, the delegate or a kernel, in whichever order the runtime frees them. State belongs to
 * kernels, so that one delegate may serve many interpreters and threads.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "litert_abi.h"
#include "litert_program.h"
#include "npu.h"

#define EXPORTED __attribute__((visibility("default")))

enum { MOST_TENSORS = 1 << 24, MOST_RANK = 64, ALIGNMENT = 64 };

static const char CUSTOM_NAME[] = "npuc";

typedef struct plugin {
    lite_delegate delegate;
    atomic_int users;
    atomic_int fitted; /* a graph has been found that the program is for */
    litert_options options;
} plugin;

/* A loaded program, freed with its last kernel. Entries belong to it. */
typedef struct program {
    npu_model *model;
    void *bytes; /* of a program that came with an operator */
    atomic_int users;
} program;

/* What a kernel is made for; init takes it from its thread, since a registration has no room for it. */
typedef struct order {
    program *whole;
    npu_model *piece;
    int32_t number;
    const int32_t *tensors; /* of the piece's inputs, then outputs */
} order;

typedef struct kernel {
    plugin *owner;
    program *whole;
    npu_model *piece;
    int32_t number, inputs, outputs;
    int32_t *tensors;
    void **pointers;
    char error[512]; /* why it cannot run; its prepare tells */
    uint64_t runs;
    double least, most, sum; /* seconds */
} kernel;

static _Thread_local const order *ordered;

/* ---- options and lives ---- */

static const struct {
    const char *name;
    size_t offset;
} OPTIONS[] = {
    {"model", offsetof(litert_options, model)},       {"program", offsetof(litert_options, program)},
    {"target", offsetof(litert_options, target)},     {"cache_dir", offsetof(litert_options, cache_dir)},
    {"compiler", offsetof(litert_options, compiler)}, {"report", offsetof(litert_options, report)},
    {"profile", offsetof(litert_options, profile)},
};
enum { OPTION_COUNT = sizeof(OPTIONS) / sizeof(OPTIONS[0]) };

static char **option_of(litert_options *options, size_t index)
{
    return (char **)((char *)options + OPTIONS[index].offset);
}

static void leave_plugin(plugin *p)
{
    if (!p || atomic_fetch_sub(&p->users, 1) > 1) return;
    for (size_t i = 0; i < OPTION_COUNT; ++i) free(*option_of(&p->options, i));
    free(p);
}

static void leave_program(program *p)
{
    if (!p || atomic_fetch_sub(&p->users, 1) > 1) return;
    npu_free(p->model);
    free(p->bytes);
    free(p);
}

static program *program_of(npu_model *model, void *bytes)
{
    program *p = calloc(1, sizeof(*p));
    if (!p) {
        npu_free(model);
        free(bytes);
        return NULL;
    }
    p->model = model;
    p->bytes = bytes;
    atomic_init(&p->users, 1);
    return p;
}

/* Whether two words differ by one letter more, less or other, or by two neighbours that changed places. */
static int alike(const char *a, const char *b)
{
    while (*a && *a == *b) ++a, ++b;
    if (!*a && !*b) return 1;
    if (*a && *b && a[0] == b[1] && a[1] == b[0] && !strcmp(a + 2, b + 2)) return 1;
    return !strcmp(*a ? a + 1 : a, *b ? b + 1 : b) || (*a && !strcmp(a + 1, b)) || (*b && !strcmp(a, b + 1));
}

static int read_options(litert_options *options, const char *const *keys, const char *const *values, size_t count,
                        char *error, size_t room)
{
    for (size_t i = 0; i < count; ++i) {
        size_t k = 0;
        while (k < OPTION_COUNT && strcmp(keys[i], OPTIONS[k].name)) ++k;
        if (k == OPTION_COUNT) {
            int used = snprintf(error, room, "npuc: there is no option '%.60s'", keys[i]);
            const char *end = ".";
            for (k = 0; k < OPTION_COUNT && used < (int)room; ++k)
                if (alike(keys[i], OPTIONS[k].name)) {
                    used += snprintf(error + used, room - (size_t)used, "; did you mean '%s'", OPTIONS[k].name);
                    end = "?";
                }
            for (k = 0; k < OPTION_COUNT && used < (int)room; ++k)
                used += snprintf(error + used, room - (size_t)used, "%s%s%s", k ? ", " : end, k ? "" : " The options are ", OPTIONS[k].name);
            return 0;
        }
        char **place = option_of(options, k);
        free(*place);
        *place = strdup(values[i]);
        if (!*place) return snprintf(error, room, "npuc: there is no memory"), 0;
        if (!*values[i]) return snprintf(error, room, "npuc: the option '%s' is empty", keys[i]), 0;
    }
    if (options->model && options->program) {
        snprintf(error, room, "npuc: 'model' is compiled and 'program' is compiled already: give one of them");
        return 0;
    }
    const char *const needs_model[] = {options->target ? "target" : NULL, options->cache_dir ? "cache_dir" : NULL,
                                       options->compiler ? "compiler" : NULL};
    for (size_t i = 0; i < 3 && !options->model; ++i) {
        if (!needs_model[i]) continue;
        snprintf(error, room, "npuc: the option '%s' is for a model that is compiled: give 'model', the path of the .tflite file",
                 needs_model[i]);
        return 0;
    }
    const char *const files[] = {options->model, options->program};
    for (size_t i = 0; i < 2; ++i) {
        if (!files[i] || !access(files[i], R_OK)) continue;
        snprintf(error, room, "npuc: %.1000s cannot be read: %s", files[i], strerror(errno));
        return 0;
    }
    if (options->model && !options->target) {
        snprintf(error, room, "npuc: 'model' needs a 'target' to be compiled for: a name of 'npuc targets list', or a target file");
        return 0;
    }
    return 1;
}

/* ---- the graph ---- */

static size_t element_size(int32_t type)
{
    switch (type) {
    case LITE_I8: case LITE_U8: case LITE_BOOL: return 1;
    case LITE_I16: case LITE_U16: case LITE_F16: return 2;
    case LITE_F32: case LITE_I32: case LITE_U32: return 4;
    case LITE_I64: case LITE_U64: case LITE_F64: return 8;
    default: return 0;
    }
}

static int32_t npu_type(int32_t type)
{
    switch (type) {
    case LITE_I8: return NPU_I8;
    case LITE_U8: return NPU_U8;
    case LITE_I16: return NPU_I16;
    case LITE_I32: return NPU_I32;
    case LITE_F32: return NPU_F32;
    case LITE_F16: return NPU_F16;
    case LITE_I64: return NPU_I64;
    case LITE_BOOL: return NPU_BOOL;
    case LITE_U16: return NPU_U16;
    case LITE_U32: return NPU_U32;
    case LITE_U64: return NPU_U64;
    case LITE_F64: return NPU_F64;
    default: return -1;
    }
}

static int is_constant(const lite_tensor *t) { return t->allocation == LITE_CONSTANT || t->allocation == LITE_MADE_CONSTANT; }

/* Whether a tensor looks like one: what fails here is a runtime whose structures have another layout. */
static int sound_tensor(const lite_tensor *t)
{
    if (t->type < 0 || t->type > 255 || t->allocation < 0 || t->allocation > 255) return 0;
    if (!t->dims) return 1;
    if (t->dims->size < 0 || t->dims->size > MOST_RANK) return 0;
    uint64_t bytes = element_size(t->type);
    for (int32_t i = 0; i < t->dims->size; ++i) {
        const int32_t dim = t->dims->data[i];
        if (dim < -1) return 0;
        if (dim > 0 && bytes > UINT64_MAX / (uint64_t)dim) return 0;
        bytes *= dim < 0 ? 0 : (uint64_t)dim;
    }
    const int stated = t->allocation == LITE_CONSTANT || t->allocation == LITE_ARENA || t->allocation == LITE_PERSISTENT;
    return !stated || !element_size(t->type) || !t->bytes || t->bytes == bytes;
}

static int sound_list(const lite_ints *list, size_t most)
{
    if (!list || list->size < 0 || list->size > MOST_TENSORS) return 0;
    for (int32_t i = 0; i < list->size; ++i)
        if (list->data[i] < -1 || (list->data[i] >= 0 && (size_t)list->data[i] >= most)) return 0;
    return 1;
}

static int sound_graph(lite_context *context)
{
    if (!context || !context->tensor_count || context->tensor_count > MOST_TENSORS || !context->tensors) return 0;
    if (!context->plan || !context->node || !context->replace || !context->report) return 0;
    for (size_t i = 0; i < context->tensor_count; ++i)
        if (!sound_tensor(&context->tensors[i])) return 0;
    lite_ints *plan = NULL;
    if (context->plan(context, &plan) || !plan || plan->size < 0 || plan->size > MOST_TENSORS) return 0;
    for (int32_t i = 0; i < plan->size; ++i) {
        lite_node *node = NULL;
        lite_registration *registration = NULL;
        if (context->node(context, plan->data[i], &node, &registration) || !node || !registration) return 0;
        if (!sound_list(node->inputs, context->tensor_count) || !sound_list(node->outputs, context->tensor_count)) return 0;
        if (registration->code < 0 || registration->code > 4096 || node->custom_size < 0) return 0;
    }
    return 1;
}

/* The tensors of an interpreter, for the compiler; the form is in npuc/integrations/litert/runtime_tensors.py. */
static void list_tensors(const lite_context *context, litert_text *listing)
{
    for (size_t i = 0; i < context->tensor_count; ++i) {
        const lite_tensor *t = &context->tensors[i];
        litert_add(listing, "%zu %d ", i, (int)t->type);
        if (t->allocation == LITE_DYNAMIC) {
            litert_add(listing, "?");
        } else if (!t->dims || !t->dims->size) {
            litert_add(listing, "-");
        }
        for (int32_t k = 0; t->allocation != LITE_DYNAMIC && t->dims && k < t->dims->size; ++k)
            litert_add(listing, "%s%d", k ? "x" : "", (int)t->dims->data[k]);
        char digits[17] = "-";
        if (t->allocation == LITE_CONSTANT && t->data && t->bytes) litert_digest(t->data, t->bytes, digits);
        litert_add(listing, " %s ", digits);
        for (const char *c = t->name ? t->name : ""; *c; ++c)
            litert_add(listing, *c <= ' ' || *c == '%' || *c >= 127 ? "%%%02x" : "%c", (unsigned char)*c);
        litert_add(listing, "\n");
    }
}

/* The tensor that an end of a piece names, -1 if there is none. */
static int32_t tensor_of(const lite_context *context, const char *name)
{
    if (name[0] == '#' && name[1] >= '0' && name[1] <= '9') {
        char *end;
        const unsigned long number = strtoul(name + 1, &end, 10);
        if (number >= context->tensor_count || (*end && *end != ' ')) return -1;
        const char *own = context->tensors[number].name ? context->tensors[number].name : "";
        /* Of names that occur twice, all but the first have got a number at their end, and tensors without a name a name. */
        return !*end || !*own || !strncmp(end + 1, own, strlen(own)) ? (int32_t)number : -1;
    }
    int32_t found = -1;
    for (size_t i = 0; i < context->tensor_count; ++i) {
        const char *own = context->tensors[i].name;
        if (!own || strcmp(own, name)) continue;
        if (found >= 0) return -1;
        found = (int32_t)i;
    }
    return found;
}

static void print_shape(char *text, size_t room, int32_t rank, const int64_t *shape)
{
    int used = snprintf(text, room, rank ? "" : "scalar");
    for (int32_t i = 0; i < rank && used >= 0 && used < (int)room; ++i)
        used += snprintf(text + used, room - (size_t)used, "%s%lld", i ? "x" : "", (long long)shape[i]);
}

/* Whether a tensor has the type and shape that a piece was compiled for; else the reason. */
static int fits(const lite_tensor *t, const npu_tensor *end, char *why, size_t room)
{
    int64_t shape[MOST_RANK];
    const int32_t rank = t->dims ? t->dims->size : 0;
    for (int32_t i = 0; i < rank && i < MOST_RANK; ++i) shape[i] = t->dims->data[i];
    int same = rank == end->rank;
    for (int32_t i = 0; same && i < rank; ++i) same = shape[i] == end->shape[i];
    if (!same) {
        char here[128], there[128];
        print_shape(here, sizeof(here), rank < MOST_RANK ? rank : MOST_RANK, shape);
        print_shape(there, sizeof(there), end->rank, end->shape);
        snprintf(why, room, "the shape of '%.80s' is %s, and the program was compiled for %s", end->name, here, there);
        return 0;
    }
    if (npu_type(t->type) != end->dtype) {
        snprintf(why, room, "the type of '%.80s' is another than that of the program", end->name);
        return 0;
    }
    return 1;
}

/* ---- kernels ---- */

static void free_kernel(lite_context *context, void *state)
{
    (void)context;
    kernel *k = state;
    if (!k) return;
    if (k->runs && k->owner->options.profile) {
        char line[200];
        snprintf(line, sizeof(line), "npuc: piece %d: %llu runs, ms min %.3f avg %.3f max %.3f\n", (int)k->number,
                 (unsigned long long)k->runs, 1e3 * k->least, 1e3 * k->sum / (double)k->runs, 1e3 * k->most);
        litert_write(k->owner->options.profile, line);
    }
    leave_program(k->whole);
    leave_plugin(k->owner);
    free(k->tensors);
    free(k->pointers);
    free(k);
}

static int among(const int32_t *numbers, int32_t count, int32_t number)
{
    for (int32_t i = 0; i < count; ++i)
        if (numbers[i] == number) return 1;
    return 0;
}

static void *init_kernel(lite_context *context, const char *buffer, size_t length)
{
    (void)length;
    const lite_partition *part = (const void *)buffer;
    const order *o = ordered;
    kernel *k = calloc(1, sizeof(*k));
    if (!k) return NULL;
    k->owner = (plugin *)part->delegate->data;
    atomic_fetch_add(&k->owner->users, 1);
    if (!o) {
        snprintf(k->error, sizeof(k->error), "npuc: the runtime made a kernel that the delegate did not ask for");
        return k;
    }
    atomic_fetch_add(&o->whole->users, 1);
    k->whole = o->whole;
    k->piece = o->piece;
    k->number = o->number;
    k->inputs = npu_input_count(o->piece);
    k->outputs = npu_output_count(o->piece);
    const size_t count = (size_t)(k->inputs + k->outputs);
    k->tensors = malloc((count + 1) * sizeof(*k->tensors));
    k->pointers = calloc(count + 1, sizeof(*k->pointers));
    if (!k->tensors || !k->pointers) {
        snprintf(k->error, sizeof(k->error), "npuc: there is no memory");
        return k;
    }
    memcpy(k->tensors, o->tensors, count * sizeof(*k->tensors));
    for (int32_t i = 0; i < part->inputs->size; ++i) {
        const int32_t number = part->inputs->data[i];
        if (number < 0 || is_constant(&context->tensors[number]) || among(k->tensors, k->inputs, number)) continue;
        snprintf(k->error, sizeof(k->error), "npuc: the operators need '%.200s', which is no input of the program",
                 context->tensors[number].name ? context->tensors[number].name : "");
    }
    for (int32_t i = 0; i < part->outputs->size; ++i) {
        const int32_t number = part->outputs->data[i];
        if (number < 0 || among(k->tensors + k->inputs, k->outputs, number)) continue;
        snprintf(k->error, sizeof(k->error), "npuc: others need '%.200s', which is no output of the program",
                 context->tensors[number].name ? context->tensors[number].name : "");
    }
    const int32_t threads = context->threads;
    npu_set_threads(k->piece, threads < 1 ? 1 : threads > 64 ? 64 : threads);
    return k;
}

static int32_t prepare_kernel(lite_context *context, lite_node *node)
{
    kernel *k = node->state;
    if (!k) {
        context->report(context, "npuc: there is no memory. ");
        return LITE_ERROR;
    }
    char why[400];
    for (int32_t i = 0; !k->error[0] && i < k->inputs + k->outputs; ++i) {
        const npu_tensor *end = i < k->inputs ? npu_input(k->piece, i) : npu_output(k->piece, i - k->inputs);
        if (fits(&context->tensors[k->tensors[i]], end, why, sizeof(why))) continue;
        context->report(context, "npuc: %s. ", why);
        return LITE_ERROR;
    }
    if (k->error[0]) context->report(context, "%s. ", k->error);
    return k->error[0] ? LITE_ERROR : LITE_OK;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int32_t invoke_kernel(lite_context *context, lite_node *node)
{
    kernel *k = node->state;
    for (int32_t i = 0; i < k->inputs + k->outputs; ++i) {
        const lite_tensor *t = &context->tensors[k->tensors[i]];
        const npu_tensor *end = i < k->inputs ? npu_input(k->piece, i) : npu_output(k->piece, i - k->inputs);
        if (!t->data || t->bytes != end->size) {
            context->report(context, "npuc: '%s' has %zu bytes of memory, and the program needs %zu. ", end->name, t->data ? t->bytes : (size_t)0,
                            end->size);
            return LITE_ERROR;
        }
        k->pointers[i] = t->data;
    }
    const double begin = k->owner->options.profile ? seconds() : 0;
    if (npu_run(k->piece, (const void *const *)k->pointers, k->pointers + k->inputs)) {
        context->report(context, "npuc: %s. ", npu_error());
        return LITE_ERROR;
    }
    if (k->owner->options.profile) {
        const double spent = seconds() - begin;
        k->least = !k->runs || spent < k->least ? spent : k->least;
        k->most = spent > k->most ? spent : k->most;
        k->sum += spent;
        ++k->runs;
    }
    return LITE_OK;
}

/* ---- what is taken of a graph ---- */

/* Hand operators over: the runtime puts a kernel in their place, which `o` describes. */
static int32_t take(lite_context *context, plugin *p, const order *o, const lite_ints *nodes)
{
    lite_wide_registration wide = {{init_kernel, free_kernel, prepare_kernel, invoke_kernel, NULL, LITE_DELEGATE, "npuc", 1, NULL, NULL, 0},
                                   {0}};
    ordered = o;
    const int32_t status = context->replace(context, wide, nodes, &p->delegate);
    ordered = NULL;
    return status;
}

/*
 * The operators between the ends of a piece, in the order of the plan; NULL with the reason if they are not between them.
 * `tensors` has the numbers of the inputs, then of the outputs.
 */
static lite_ints *operators_between(lite_context *context, const int32_t *tensors, int32_t inputs, int32_t outputs, char *why, size_t room)
{
    lite_ints *plan = NULL;
    if (context->plan(context, &plan) || !plan) return snprintf(why, room, "the runtime does not tell its plan"), NULL;
    const size_t count = context->tensor_count;
    int32_t *maker = malloc(count * sizeof(*maker)), *stack = malloc(count * sizeof(*stack));
    uint8_t *visited = calloc(count, 1), *wanted = calloc((size_t)plan->size + 1, 1);
    lite_ints *steps = malloc(sizeof(*steps) + (size_t)plan->size * sizeof(int32_t));
    lite_ints *nodes = malloc(sizeof(*nodes) + (size_t)plan->size * sizeof(int32_t));
    lite_ints *result = NULL;
    if (!maker || !stack || !visited || !wanted || !steps || !nodes) {
        snprintf(why, room, "there is no memory");
        goto done;
    }
    /* The runtime's list is overwritten by its next call. */
    steps->size = plan->size;
    memcpy(steps->data, plan->data, (size_t)plan->size * sizeof(int32_t));
    for (size_t i = 0; i < count; ++i) maker[i] = -1;
    for (int32_t i = 0; i < steps->size; ++i) {
        lite_node *node;
        lite_registration *registration;
        if (context->node(context, steps->data[i], &node, &registration)) {
            snprintf(why, room, "the runtime does not tell its operators");
            goto done;
        }
        for (int32_t j = 0; j < node->outputs->size; ++j)
            if (node->outputs->data[j] >= 0) maker[node->outputs->data[j]] = i;
    }
    size_t depth = 0;
    for (int32_t i = 0; i < inputs; ++i) visited[tensors[i]] = 1;
    for (int32_t i = inputs; i < inputs + outputs; ++i)
        if (!visited[tensors[i]]) visited[tensors[i]] = 1, stack[depth++] = tensors[i];
    while (depth) {
        const int32_t tensor = stack[--depth];
        const lite_tensor *t = &context->tensors[tensor];
        if (is_constant(t)) continue;
        const int32_t step = maker[tensor];
        if (step < 0) {
            if (t->is_variable) continue;
            snprintf(why, room, "it needs '%.200s', which is no input of the program", t->name ? t->name : "");
            goto done;
        }
        if (wanted[step]) continue;
        wanted[step] = 1;
        lite_node *node;
        lite_registration *registration;
        if (context->node(context, steps->data[step], &node, &registration)) goto done;
        if (registration->code == LITE_DELEGATE) {
            snprintf(why, room, "another delegate, or another piece, has taken some of it");
            goto done;
        }
        for (int32_t j = 0; j < node->inputs->size; ++j) {
            const int32_t input = node->inputs->data[j];
            if (input >= 0 && !visited[input]) visited[input] = 1, stack[depth++] = input;
        }
    }
    nodes->size = 0;
    for (int32_t i = 0; i < steps->size; ++i)
        if (wanted[i]) nodes->data[nodes->size++] = steps->data[i];
    if (!nodes->size) {
        snprintf(why, room, "no operator is between its ends");
        goto done;
    }
    result = nodes;
    nodes = NULL;
done:
    free(maker);
    free(stack);
    free(visited);
    free(wanted);
    free(steps);
    free(nodes);
    return result;
}

enum { TAKEN, OTHER_GRAPH, LEFT, FAILED };

/* Take the operators of one piece. `why` has the reason of all results but TAKEN. */
static int take_piece(lite_context *context, plugin *p, program *whole, npu_model *piece, int32_t number, char *why, size_t room)
{
    const int32_t inputs = npu_input_count(piece), outputs = npu_output_count(piece);
    int32_t *tensors = malloc((size_t)(inputs + outputs + 1) * sizeof(*tensors));
    lite_ints *nodes = NULL;
    int result = LEFT;
    if (!tensors) {
        snprintf(why, room, "there is no memory");
        return FAILED;
    }
    for (int32_t i = 0; i < inputs + outputs; ++i) {
        const npu_tensor *end = i < inputs ? npu_input(piece, i) : npu_output(piece, i - inputs);
        tensors[i] = tensor_of(context, end->name);
        if (tensors[i] < 0) {
            snprintf(why, room, "the graph has no tensor '%.200s', or several: 'npuc export litert MODEL.tflite -o OUT.npu' makes the program of a model",
                     end->name);
            result = OTHER_GRAPH;
            goto done;
        }
        if (!fits(&context->tensors[tensors[i]], end, why, room)) goto done;
    }
    nodes = operators_between(context, tensors, inputs, outputs, why, room);
    if (!nodes) goto done;
    lite_partition *parts;
    int32_t count = 1;
    if (context->preview && !context->preview(context, nodes, &parts, &count) && count != 1) {
        snprintf(why, room, "the runtime would cut it into %d parts", (int)count);
        goto done;
    }
    const order o = {whole, piece, number, tensors};
    result = TAKEN;
    if (take(context, p, &o, nodes)) {
        snprintf(why, room, "the runtime did not hand over its operators");
        result = FAILED;
    }
done:
    free(tensors);
    free(nodes);
    return result;
}

/* All pieces of a program. */
static int32_t take_program(lite_context *context, plugin *p, program *whole)
{
    const int32_t entries = npu_entry_count(whole->model);
    for (int32_t i = 0; i < entries; ++i) {
        npu_model *piece = whole->model;
        char why[600] = "";
        int result = FAILED;
        if (i && npu_entry(whole->model, npu_entry_name(whole->model, i), &piece)) {
            snprintf(why, sizeof(why), "%s", npu_error());
        } else {
            result = take_piece(context, p, whole, piece, i, why, sizeof(why));
        }
        if (result == TAKEN) atomic_store(&p->fitted, 1);
        if (result == FAILED || (result == OTHER_GRAPH && !atomic_load(&p->fitted))) {
            context->report(context, "npuc: piece %d of the program: %s. ", (int)i, why);
            return LITE_ERROR;
        }
        /* Graphs of loops and branches are asked, too; the program is for the first graph of a model. */
        if (result == OTHER_GRAPH) return LITE_OK;
        if (result == LEFT) litert_say(&p->options, "piece %d of the program stays with LiteRT: %s", (int)i, why);
    }
    return LITE_OK;
}

/* Operators that carry their program. */
static int32_t take_custom(lite_context *context, plugin *p)
{
    lite_ints *plan = NULL;
    if (context->plan(context, &plan) || !plan) return LITE_ERROR;
    lite_ints *steps = malloc(sizeof(*steps) + (size_t)plan->size * sizeof(int32_t));
    if (!steps) return LITE_ERROR;
    steps->size = plan->size;
    memcpy(steps->data, plan->data, (size_t)plan->size * sizeof(int32_t));
    int32_t status = LITE_OK, count = 0;
    for (int32_t i = 0; i < steps->size && !status; ++i) {
        lite_node *node;
        lite_registration *registration;
        status = context->node(context, steps->data[i], &node, &registration);
        if (status || registration->code != LITE_CUSTOM || !registration->name || strcmp(registration->name, CUSTOM_NAME)) continue;
        const size_t size = (size_t)node->custom_size;
        npu_model *model = NULL;
        /* The file gives them an alignment of 4; a program wants 8. */
        void *bytes = aligned_alloc(ALIGNMENT, (size + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
        if (bytes && node->custom) memcpy(bytes, node->custom, size);
        if (!bytes || !node->custom || npu_load_memory(bytes, size, &model)) {
            context->report(context, "npuc: operator %d: %s. ", (int)steps->data[i], bytes && node->custom ? npu_error() : "there is no program");
            free(bytes);
            status = LITE_ERROR;
            break;
        }
        program *whole = program_of(model, bytes);
        if (!whole) {
            status = LITE_ERROR;
            break;
        }
        const int32_t inputs = npu_input_count(model), outputs = npu_output_count(model);
        int32_t *tensors = malloc((size_t)(inputs + outputs + 1) * sizeof(*tensors));
        lite_ints *alone = malloc(sizeof(*alone) + sizeof(int32_t));
        if (!tensors || !alone || node->inputs->size != inputs || node->outputs->size != outputs) {
            context->report(context, "npuc: operator %d has %d inputs and %d outputs, its program %d and %d. ", (int)steps->data[i],
                            (int)node->inputs->size, (int)node->outputs->size, (int)inputs, (int)outputs);
            status = LITE_ERROR;
        } else {
            for (int32_t j = 0; j < inputs; ++j) tensors[j] = node->inputs->data[j];
            for (int32_t j = 0; j < outputs; ++j) tensors[inputs + j] = node->outputs->data[j];
            for (int32_t j = 0; j < inputs + outputs; ++j)
                if (tensors[j] < 0) status = LITE_ERROR;
            alone->size = 1;
            alone->data[0] = steps->data[i];
            const order o = {whole, model, count++, tensors};
            if (!status) status = take(context, p, &o, alone);
        }
        free(tensors);
        free(alone);
        leave_program(whole);
    }
    free(steps);
    if (!status && !count)
        litert_say(&p->options, "nothing is taken: the graph has no operator '%s', and neither 'model' nor 'program' is given", CUSTOM_NAME);
    return status;
}

static int32_t prepare(lite_context *context, lite_delegate *delegate)
{
    plugin *p = (plugin *)delegate->data;
    if (!sound_graph(context)) {
        litert_say(&p->options, "this runtime has structures of another layout than LiteRT 2.14 of 2023 to 2.3 of 2026: nothing can be taken");
        return LITE_ERROR;
    }
    if (!p->options.model && !p->options.program) return take_custom(context, p);
    npu_model *model = NULL;
    if (p->options.program) {
        if (npu_load(p->options.program, &model)) {
            context->report(context, "npuc: %s. ", npu_error());
            return LITE_ERROR;
        }
    } else {
        litert_text listing = {0}, error = {0};
        list_tensors(context, &listing);
        const int failed = litert_obtain(&p->options, &listing, &model, &error);
        free(listing.data);
        /* Graphs of loops and branches are asked after the first graph, which `model` is. */
        const int first = !atomic_load(&p->fitted);
        if (failed && first) context->report(context, "npuc: %s. ", error.data ? error.data : "there is no memory");
        free(error.data);
        if (failed) return first ? LITE_ERROR : LITE_OK;
        if (!model) {
            atomic_store(&p->fitted, 1);
            return LITE_OK;
        }
    }
    program *whole = program_of(model, NULL);
    if (!whole) return LITE_ERROR;
    const int32_t status = take_program(context, p, whole);
    leave_program(whole);
    return status;
}

/* ---- exports ---- */

EXPORTED lite_delegate *tflite_plugin_create_delegate(const char *const *keys, const char *const *values, size_t count,
                                                      void (*report)(const char *));
EXPORTED void tflite_plugin_destroy_delegate(lite_delegate *delegate);

lite_delegate *tflite_plugin_create_delegate(const char *const *keys, const char *const *values, size_t count, void (*report)(const char *))
{
    char error[1400];
    plugin *p = calloc(1, sizeof(*p));
    if (!p) {
        if (report) report("npuc: there is no memory");
        return NULL;
    }
    atomic_init(&p->users, 1);
    atomic_init(&p->fitted, 0);
    if (!read_options(&p->options, keys, values, count, error, sizeof(error))) {
        if (report) report(error);
        leave_plugin(p);
        return NULL;
    }
    p->delegate.data = p;
    p->delegate.prepare = prepare;
    /* An operator that the runtime does not know is handed over only by a runtime that does not look for dynamic shapes first. */
    p->delegate.flags = !p->options.model && !p->options.program;
    return &p->delegate;
}

void tflite_plugin_destroy_delegate(lite_delegate *delegate)
{
    if (delegate) leave_plugin((plugin *)delegate->data);
}
