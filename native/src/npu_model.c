/*
 * A compiled model ready to run: its tables, the memory of its segments, and one run through all subgraphs.
 *
 * The file is checked by its reader and every instruction by the simulator; here it is seen to that conversions are ones that
 * the kernels have, before anything runs.
 */
#include "npu_model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "host_custom.h"
#include "npuc/signature.h"
#include "npuc/vector.h"

#if defined(NPUC_NO_HEAP)
#define OF_THREAD
#else
#define OF_THREAD _Thread_local
#endif

static OF_THREAD char error_text[NPU_ERROR_BYTES];

const char *npu_error(void) { return error_text; }

npu_status npu_fail(npu_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error_text, sizeof error_text, format, arguments);
    va_end(arguments);
    return status;
}

void *npu_take(npu_block *block, uint64_t size)
{
    const uint64_t at = block->used, whole = (size + 63) / 64 * 64;
    block->used = whole > SIZE_MAX / 2 - at ? SIZE_MAX / 2 : (size_t)(at + whole);
    return block->base && block->used <= block->size ? block->base + at : NULL;
}

/* A model begins with its session. */
static const npu_session *session_of(const npu_model *model) { return (const npu_session *)(const void *)model; }

/* ---- opening ---- */

static const uint8_t bits_of[] = NPUC_TENSOR_BITS;

enum { CONVERTED = 256 }; /* plain integers that become reals at once */

static const npuc_file_tensor *listed(const npuc_file *f, uint32_t first, uint32_t index) { return &f->tensors[f->lists[first + index]]; }

static int64_t count_of(const npuc_file_tensor *t)
{
    int64_t count = 1;
    for (uint16_t axis = 0; axis < t->rank; axis++) count *= t->shape[axis];
    return count;
}

static int is_number(double scale) { return (float)scale > 0.0f && isfinite((float)scale); }

/* Integers that stand for themselves, and that float32 has without rounding. */
static int is_plain(const npuc_file_tensor *t)
{
    return !(t->scale > 0) && (t->dtype <= NPUC_TENSOR_I16 || t->dtype == NPUC_TENSOR_UI16);
}

/* Reals or plain integers to 8- or 16-bit integers, or integers of up to 32 bits to reals. */
static int can_convert(const npuc_file_tensor *x, const npuc_file_tensor *y, uint32_t rounding)
{
    if (x->dtype == NPUC_TENSOR_F32 || (is_plain(x) && y->dtype != NPUC_TENSOR_F32))
        return y->dtype <= NPUC_TENSOR_I16 && is_number(y->scale) && rounding <= NPUC_HALF_EVEN;
    return y->dtype == NPUC_TENSOR_F32 && x->dtype <= NPUC_TENSOR_I32 && is_number(x->scale);
}

/* ---- CPU subgraphs: the tensors that their host operators read and write ---- */

typedef struct port_context {
    const npu_session *session;
    const npuc_file_subgraph *subgraph;
} port_context;

static const npuc_file_tensor *port_of(const port_context *p, int is_output, uint64_t number)
{
    const npuc_file_subgraph *g = p->subgraph;
    if (number >= (is_output ? g->outputs : g->inputs)) return NULL;
    return listed(&p->session->file, is_output ? g->first_output : g->first_input, (uint32_t)number);
}

static int port_fits(const void *context, int is_output, uint64_t number, int32_t dtype, uint64_t size)
{
    const npuc_file_tensor *t = port_of(context, is_output, number);
    return t && t->dtype == dtype && size <= t->size && (!is_output || t->segment);
}

static uint8_t *port_place(const void *context, int is_output, uint64_t number)
{
    const port_context *p = context;
    const npuc_file_tensor *t = port_of(p, is_output, number);
    return p->session->segments[t->segment].data + t->offset;
}

static npu_status check_host(const npu_session *s, uint32_t index, const char *where)
{
    const npuc_file *f = &s->file;
    const npuc_file_subgraph *g = &f->subgraphs[index];
    uint64_t size;
    const uint8_t *section = npuc_file_host(f, index, &size);
    if (!section)
        return npu_fail(NPU_UNSUPPORTED,
                        "%s: subgraph '%.60s' runs on the CPU, and the file has no host operators for it: it was compiled by an older npuc. "
                        "Compile the network again",
                        where, npuc_file_string(f, g->name));
    host_program host;
    const char *why = npuc_host_open(section, size, &host);
    if (!why && !host.header->nodes)
        return npu_fail(NPU_UNSUPPORTED,
                        "%s: the CPU runs subgraph '%.60s', and this runtime cannot: %.300s. Cut the network before that layer "
                        "(npuc import --outputs), or see with 'npuc inspect' what brings it to the NPU",
                        where, npuc_file_string(f, g->name), host.strings + host.header->refusal);
    uint32_t node = NPUC_HOST_NONE;
    const port_context context = {s, g};
    if (!why) why = npuc_host_check(&host, &(host_ports){&context, port_place, port_fits}, &node);
    if (why)
        return npu_fail(NPU_BAD_FILE, "%s: subgraph '%.60s', layer '%.100s': %s", where, npuc_file_string(f, g->name),
                        node == NPUC_HOST_NONE ? "" : host.strings + host.nodes[node].name, why);
    return NPU_OK;
}

static npu_status check_subgraph(const npu_session *s, uint32_t index, const char *where)
{
    const npuc_file *f = &s->file;
    const npuc_file_subgraph *g = &f->subgraphs[index];
    if (g->kind == NPUC_SUBGRAPH_CPU) return check_host(s, index, where);
    if (g->kind != NPUC_SUBGRAPH_HOST) return NPU_OK;
    for (uint32_t i = 0; i < g->count; i++) {
        const npuc_file_conversion *c = &f->conversions[g->first + i];
        const npuc_file_tensor *x = &f->tensors[c->source], *y = &f->tensors[c->result];
        if (!y->segment) return npu_fail(NPU_BAD_FILE, "%s: a conversion writes to the weights", where);
        if (!can_convert(x, y, c->rounding))
            return npu_fail(NPU_UNSUPPORTED, "%s: '%.100s' cannot become '%.100s': the host has no such conversion", where,
                            npuc_file_string(f, x->name), npuc_file_string(f, y->name));
    }
    return NPU_OK;
}

npu_status npu_open(npu_session *session, const void *bytes, size_t size, const char *where)
{
    npuc_file *f = &session->file;
    const char *why = npuc_file_open(bytes, size, f);
    if (why) return npu_fail(NPU_BAD_FILE, "%s: not a sound .npu file: %s", where, why);
    return npu_begin(session, where);
}

npu_status npu_begin(npu_session *session, const char *where)
{
    const npuc_file *f = &session->file;
    session->cores = 1;
    session->threads = 1;
    for (uint32_t i = 0; i < f->subgraph_count; i++) {
        if (!npu_has_subgraph(session, i)) continue;
        const npu_status status = check_subgraph(session, i, where);
        if (status) return status;
        if (f->subgraphs[i].kind == NPUC_SUBGRAPH_NPU && (int32_t)f->subgraphs[i].count > session->cores)
            session->cores = (int32_t)f->subgraphs[i].count;
    }
    if (f->segment_count > NPUC_SHARED_SEGMENT) return npu_fail(NPU_BAD_FILE, "%s: too many segments", where);
    for (uint32_t i = 0; i < f->header->inputs + f->header->outputs; i++) {
        const int is_input = i < f->header->inputs;
        const npuc_file_tensor *t =
            is_input ? listed(f, f->header->first_input, i) : listed(f, f->header->first_output, i - f->header->inputs);
        if (bits_of[t->dtype] % 8)
            return npu_fail(NPU_UNSUPPORTED, "%s: tensor '%.200s' has elements of less than a byte", where, npuc_file_string(f, t->name));
        if (is_input && !t->segment) return npu_fail(NPU_BAD_FILE, "%s: an input is among the weights", where);
    }
    return NPU_OK;
}

npu_status npu_narrow(npu_session *session, uint32_t subgraph)
{
    npuc_file *f = &session->file;
    const npuc_file_subgraph *g = &f->subgraphs[subgraph];
    if (g->kind == NPUC_SUBGRAPH_HOST)
        return npu_fail(NPU_BAD_ARGUMENT, "part %u, '%.100s', only converts tensors at the ends", subgraph + 1, npuc_file_string(f, g->name));
    session->part = subgraph + 1;
    session->part_header = *f->header;
    session->part_header.name = g->name;
    session->part_header.inputs = g->inputs;
    session->part_header.first_input = g->first_input;
    session->part_header.outputs = g->outputs;
    session->part_header.first_output = g->first_output;
    f->header = &session->part_header;
    f->state_count = 0;
    return NPU_OK;
}

npu_status npu_prove(npu_session *session, int32_t threads)
{
    const char *why = session->proven ? NULL : npuc_file_verify(&session->file, threads);
    if (why)
        return npu_fail(NPU_BAD_FILE, "'%.200s' is not a sound .npu file: %s", npuc_file_string(&session->file, session->file.header->name),
                        why);
    session->proven = 1;
    return NPU_OK;
}

npu_status npu_verify(const npu_model *model, const uint8_t *key)
{
    if (!model || !key) return npu_fail(NPU_BAD_ARGUMENT, "there is no model, or no key");
    const npuc_file *f = &session_of(model)->file;
    const char *why = npuc_file_check_signature(f, key);
    return why ? npu_fail(NPU_BAD_SIGNATURE, "'%.200s': %s", npuc_file_string(f, f->header->name), why) : NPU_OK;
}

/* ---- places ---- */

static void describe(npu_tensor *to, const npuc_file *f, const npuc_file_tensor *t)
{
    *to = (npu_tensor){.name = npuc_file_string(f, t->name),
                       .dtype = t->dtype,
                       .rank = t->rank,
                       .elements = count_of(t),
                       .size = (size_t)t->size,
                       .scale = t->scale,
                       .zero_point = t->zero_point};
    for (uint16_t axis = 0; axis < t->rank; axis++) to->shape[axis] = t->shape[axis];
}

static void place_segments(npu_session *s, npu_block *block)
{
    const npuc_file *f = &s->file;
    s->segments = npu_take(block, f->segment_count * sizeof *s->segments);
    for (uint32_t i = 0; i < f->segment_count; i++) {
        /* The simulator has the weights by its own pointer, and never writes to them. */
        uint8_t *data = i ? npu_take(block, f->segments[i].size) : (uint8_t *)(uintptr_t)f->weights;
        if (s->segments) s->segments[i] = (npuc_sim_segment){data, (int64_t)f->segments[i].size};
    }
}

static void place_programs(npu_session *s, npu_block *block)
{
    const npuc_file *f = &s->file;
    s->programs = npu_take(block, f->subgraph_count * sizeof *s->programs);
    for (uint32_t i = 0; i < f->subgraph_count; i++) {
        if (f->subgraphs[i].kind != NPUC_SUBGRAPH_NPU) continue;
        const uint32_t cores = f->subgraphs[i].count;
        const uint8_t **streams = npu_take(block, cores * sizeof *streams);
        int64_t *counts = npu_take(block, cores * sizeof *counts);
        if (!s->programs || !streams || !counts) continue;
        for (uint32_t core = 0; core < cores; core++) {
            uint64_t count;
            streams[core] = npuc_file_stream(f, i, core, &count);
            counts[core] = (int64_t)count;
        }
        s->programs[i] = (npuc_sim_program){(int32_t)cores, (int32_t)f->segment_count, streams, counts, s->segments};
    }
}

static void place_hosts(npu_session *s, npu_block *block)
{
    const npuc_file *f = &s->file;
    uint64_t arena = 0;
    s->hosts = npu_take(block, f->subgraph_count * sizeof *s->hosts);
    for (uint32_t i = 0; i < f->subgraph_count; i++) {
        uint64_t size;
        const uint8_t *section = npuc_file_host(f, i, &size);
        host_program host;
        if (!section || npuc_host_open(section, size, &host)) continue;
        if (host.header->arena > arena) arena = host.header->arena;
        if (npuc_host_has_custom(&host)) host.states = npu_take(block, host.header->nodes * sizeof *host.states);
        if (s->hosts) s->hosts[i] = host;
    }
    s->host_arena = npu_take(block, arena);
}

void npu_place(npu_session *s, npu_block *block)
{
    const npuc_file *f = &s->file;
    const uint32_t inputs = f->header->inputs, outputs = f->header->outputs;
    place_segments(s, block);
    place_programs(s, block);
    s->tensors = npu_take(block, ((uint64_t)inputs + outputs) * sizeof *s->tensors);
    for (uint32_t i = 0; s->tensors && i < inputs + outputs; i++)
        describe(&s->tensors[i], f, i < inputs ? listed(f, f->header->first_input, i) : listed(f, f->header->first_output, i - inputs));
    uint64_t staging = 0;
    for (uint32_t i = 0; i < f->subgraph_count; i++)
        for (uint32_t k = 0; f->subgraphs[i].kind == NPUC_SUBGRAPH_HOST && k < f->subgraphs[i].count; k++) {
            const npuc_file_conversion *c = &f->conversions[f->subgraphs[i].first + k];
            const uint64_t both = (f->tensors[c->source].size + 63) / 64 * 64 + f->tensors[c->result].size;
            if (both > staging) staging = both;
        }
    for (uint32_t i = 0; i < f->state_count; i++) {
        const npuc_file_tensor *x = &f->tensors[f->states[i].input], *y = &f->tensors[f->states[i].output];
        const uint64_t larger = x->size > y->size ? x->size : y->size;
        if (larger > staging) staging = larger;
    }
    s->staging = npu_take(block, staging);
    place_hosts(s, block);
    if (s->observer) {
        s->spent = npu_take(block, f->subgraph_count * sizeof *s->spent);
        s->totals = npu_take(block, ((uint64_t)f->subgraph_count + 1) * sizeof *s->totals);
    }
}

void npu_end_plugin_states(npu_session *s)
{
    for (uint32_t i = 0; s->hosts && i < s->file.subgraph_count; i++) npuc_host_end_states(&s->hosts[i]);
}

int npu_keeps_plugin_states(const npu_session *s)
{
    for (uint32_t i = 0; s->hosts && i < s->file.subgraph_count; i++) {
        const host_program *host = &s->hosts[i];
        for (uint32_t k = 0; host->states && k < host->header->nodes; k++) {
            const npuc_host_node *n = &host->nodes[k];
            if (n->op == NPUC_HOST_OP_CUSTOM && npuc_custom_keeps_state(host->numbers + n->first_number, n->numbers)) return 1;
        }
    }
    return 0;
}

/* ---- questions: there are answers without a model, for a caller who missed an error ---- */

const char *npu_name(const npu_model *model)
{
    if (!model) return "";
    const npuc_file *f = &session_of(model)->file;
    return npuc_file_string(f, f->header->name);
}

int32_t npu_input_count(const npu_model *model) { return model ? (int32_t)session_of(model)->file.header->inputs : 0; }

int32_t npu_output_count(const npu_model *model) { return model ? (int32_t)session_of(model)->file.header->outputs : 0; }

const npu_tensor *npu_input(const npu_model *model, int32_t index)
{
    return index >= 0 && index < npu_input_count(model) && session_of(model)->tensors ? &session_of(model)->tensors[index] : NULL;
}

const npu_tensor *npu_output(const npu_model *model, int32_t index)
{
    const int32_t inputs = npu_input_count(model);
    return index >= 0 && index < npu_output_count(model) && session_of(model)->tensors ? &session_of(model)->tensors[inputs + index] : NULL;
}

/* ---- entries ---- */

int32_t npu_entry_count(const npu_model *model) { return model ? (int32_t)session_of(model)->file.entry_count : 0; }

const char *npu_entry_name(const npu_model *model, int32_t index)
{
    return model && index >= 0 ? npuc_file_entry_name(&session_of(model)->file, (uint32_t)index) : "";
}

npu_status npu_find_entry(const npu_model *model, const char *name, uint32_t *number)
{
    if (!model || !name) return npu_fail(NPU_BAD_ARGUMENT, "there is no model, or no name");
    const npuc_file *f = &session_of(model)->file;
    for (uint32_t k = 0; f->entries && k < f->entry_count; k++) {
        *number = k;
        if (strcmp(npuc_file_entry_name(f, k), name) == 0) return NPU_OK;
    }
    return npu_fail(NPU_BAD_ARGUMENT, "the program has no entry '%.200s'", name);
}

static int takes(const npuc_file *f, const npu_tensor *inputs, int32_t count)
{
    if (count < 0 || (uint32_t)count != f->header->inputs) return 0;
    for (int32_t i = 0; i < count; i++) {
        const npuc_file_tensor *t = &f->tensors[f->lists[f->header->first_input + (uint32_t)i]];
        if (inputs[i].rank != t->rank || (inputs[i].name && strcmp(inputs[i].name, npuc_file_string(f, t->name)) != 0)) return 0;
        for (uint16_t axis = 0; axis < t->rank; axis++)
            if (inputs[i].shape[axis] != t->shape[axis]) return 0;
    }
    return 1;
}

npu_status npu_find_entry_for(const npu_model *model, const npu_tensor *inputs, int32_t count, uint32_t *number)
{
    if (!model || (count && !inputs)) return npu_fail(NPU_BAD_ARGUMENT, "there is no model, or no input");
    const npuc_file *f = &session_of(model)->file;
    for (uint32_t k = 0; k < f->entry_count; k++) {
        npuc_file entry;
        *number = k;
        if (!npuc_file_select(f, k, &entry) && takes(&entry, inputs, count)) return NPU_OK;
    }
    return npu_fail(NPU_BAD_ARGUMENT, "no entry of the program takes inputs of these shapes");
}

/* ---- states ---- */

static int is_state(const npuc_file *f, uint32_t tensor, int is_input)
{
    for (uint32_t i = 0; i < f->state_count; i++)
        if ((is_input ? f->states[i].input : f->states[i].output) == tensor) return 1;
    return 0;
}

int32_t npu_state_count(const npu_model *model) { return model ? (int32_t)session_of(model)->file.state_count : 0; }

/* The number of a tensor among the inputs or outputs. */
static int32_t place_of(const npuc_file *f, uint32_t first, uint32_t count, uint32_t tensor)
{
    for (uint32_t i = 0; i < count; i++)
        if (f->lists[first + i] == tensor) return (int32_t)i;
    return -1;
}

npu_status npu_state(const npu_model *model, int32_t index, int32_t *input, int32_t *output)
{
    if (index < 0 || index >= npu_state_count(model) || !input || !output) return npu_fail(NPU_BAD_ARGUMENT, "there is no state %d", index);
    const npuc_file *f = &session_of(model)->file;
    *input = place_of(f, f->header->first_input, f->header->inputs, f->states[index].input);
    *output = place_of(f, f->header->first_output, f->header->outputs, f->states[index].output);
    return NPU_OK;
}

/* ---- running ---- */

static uint8_t *memory_of(const npu_session *s, const npuc_file_tensor *t) { return s->segments[t->segment].data + t->offset; }

/* `n` elements; steps are in bytes. */
static void copy_line(uint8_t *to, int64_t to_step, const uint8_t *from, int64_t from_step, int64_t n, int64_t size)
{
    for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, (size_t)size);
}

/*
 * Between the order in memory and the logical one: `place` is in memory, `data` has the logical shape. Bytes from one element of
 * it to the next along each axis are in `gaps`; NULL: it is dense.
 */
static void reorder(const npuc_file_tensor *t, uint8_t *place, uint8_t *data, const int64_t *gaps, int to_place)
{
    int64_t stride[NPUC_FILE_AXES], index[NPUC_FILE_AXES] = {0}, at = 0;
    const int64_t size = bits_of[t->dtype] / 8, count = count_of(t);
    int64_t step = size;
    int straight = !gaps;
    for (int axis = 0; axis < t->rank; axis++) straight &= t->order[axis] == axis;
    if (straight || !count) {
        if (t->size) memcpy(to_place ? place : data, to_place ? data : place, (size_t)t->size);
        return;
    }
    if (!t->rank) {
        copy_line(to_place ? place : data, size, to_place ? data : place, size, 1, size);
        return;
    }
    for (int axis = t->rank - 1; axis >= 0; axis--) stride[axis] = gaps ? gaps[axis] : step, step *= t->shape[axis];
    const int last = t->rank - 1;
    const int64_t inner = t->shape[t->order[last]], inner_stride = stride[t->order[last]];
    while (at < count) {
        if (to_place)
            copy_line(place + at * size, size, data, inner_stride, inner, size);
        else
            copy_line(data, inner_stride, place + at * size, size, inner, size);
        at += inner;
        for (int axis = last - 1; axis >= 0; axis--) {
            const int from = t->order[axis];
            if (++index[axis] < (int64_t)t->shape[from]) {
                data += stride[from];
                break;
            }
            data -= stride[from] * (index[axis] - 1);
            index[axis] = 0;
        }
    }
}

/* What a state begins with is the real 0. */
void npu_reset_states(npu_session *s)
{
    const npuc_file *f = &s->file;
    for (uint32_t i = 0; i < f->state_count; i++) {
        const npuc_file_tensor *t = &f->tensors[f->states[i].input];
        const size_t size = bits_of[t->dtype] / 8;
        const int64_t zero = t->scale > 0 ? t->zero_point : 0;
        for (uint64_t at = 0; at + size <= t->size; at += size) memcpy(memory_of(s, t) + at, &zero, size); /* little-endian */
    }
}

/* What a run gave is what the next one begins with. */
static void keep_states(npu_session *s)
{
    const npuc_file *f = &s->file;
    for (uint32_t i = 0; i < f->state_count; i++) {
        const npuc_file_tensor *x = &f->tensors[f->states[i].input], *y = &f->tensors[f->states[i].output];
        if (memcmp(x->order, y->order, sizeof x->order) == 0) {
            memmove(memory_of(s, x), memory_of(s, y), (size_t)(x->size < y->size ? x->size : y->size));
        } else {
            reorder(y, memory_of(s, y), s->staging, NULL, 0);
            reorder(x, memory_of(s, x), s->staging, NULL, 1);
        }
    }
}

static float real_of(const npuc_file_tensor *t, const void *data, int64_t index)
{
    switch (t->dtype) {
    case NPUC_TENSOR_I8: return ((const int8_t *)data)[index];
    case NPUC_TENSOR_UI8: return ((const uint8_t *)data)[index];
    case NPUC_TENSOR_I16: return ((const int16_t *)data)[index];
    default: return ((const uint16_t *)data)[index];
    }
}

static npuc_status convert_dense(const npuc_file_tensor *x, const void *from, const npuc_file_tensor *y, void *to, uint32_t rounding,
                                 int32_t threads)
{
    const int64_t n = count_of(x);
    if (y->dtype == NPUC_TENSOR_F32) return npuc_dequantize(from, x->dtype, n, (float)x->scale, x->zero_point, to, threads);
    const int32_t lo = y->dtype == NPUC_TENSOR_I8 ? -128 : y->dtype == NPUC_TENSOR_UI8 ? 0 : -32768;
    const int32_t hi = y->dtype == NPUC_TENSOR_I8 ? 127 : y->dtype == NPUC_TENSOR_UI8 ? 255 : 32767;
    if (x->dtype == NPUC_TENSOR_F32)
        return npuc_quantize(from, n, (float)y->scale, y->zero_point, (int32_t)rounding, lo, hi, y->dtype, to, threads);
    npuc_status status = NPUC_OK;
    for (int64_t at = 0; at < n && !status; at += CONVERTED) {
        float reals[CONVERTED];
        const int64_t count = n - at < CONVERTED ? n - at : CONVERTED;
        for (int64_t i = 0; i < count; i++) reals[i] = real_of(x, from, at + i);
        status = npuc_quantize(reals, count, (float)y->scale, y->zero_point, (int32_t)rounding, lo, hi, y->dtype,
                               (uint8_t *)to + at * (bits_of[y->dtype] / 8), 1);
    }
    return status;
}

static npu_status convert(npu_session *s, const npuc_file_conversion *c)
{
    const npuc_file_tensor *x = &s->file.tensors[c->source], *y = &s->file.tensors[c->result];
    uint8_t *from = memory_of(s, x), *to = memory_of(s, y);
    npuc_status status;
    if (x->rank == y->rank && memcmp(x->order, y->order, x->rank) == 0) {
        status = convert_dense(x, from, y, to, c->rounding, s->threads);
    } else {
        uint8_t *dense = s->staging, *made = s->staging + (x->size + 63) / 64 * 64;
        reorder(x, from, dense, NULL, 0);
        status = convert_dense(x, dense, y, made, c->rounding, s->threads);
        if (!status) reorder(y, to, made, NULL, 1);
    }
    if (status)
        return npu_fail(NPU_RUN_FAILED, "'%.100s' cannot become '%.100s': a scale or zero point makes no sense",
                        npuc_file_string(&s->file, x->name), npuc_file_string(&s->file, y->name));
    return NPU_OK;
}

static npu_status run_subgraph(npu_session *s, uint32_t index)
{
    const npuc_file *f = &s->file;
    const npuc_file_subgraph *g = &f->subgraphs[index];
    if (g->kind == NPUC_SUBGRAPH_HOST) {
        npu_status status = NPU_OK;
        for (uint32_t i = 0; i < g->count && !status; i++) status = convert(s, &f->conversions[g->first + i]);
        return status;
    }
    if (g->kind == NPUC_SUBGRAPH_CPU) {
        uint32_t node = 0;
        const port_context context = {s, g};
        const char *why = npuc_host_run(&s->hosts[index], &(host_ports){&context, port_place, port_fits}, s->host_arena, &node);
        if (!why) return NPU_OK;
        const host_program *host = &s->hosts[index];
        return npu_fail(NPU_RUN_FAILED, "subgraph '%.100s', layer '%.100s': %s", npuc_file_string(f, g->name),
                        host->strings + host->nodes[node].name, why);
    }
    npuc_sim_error error = {.core = -1, .instruction = -1};
    const npuc_status status = npuc_sim_run(s->sim, &s->programs[index], s->threads, &error);
    if (!status) return NPU_OK;
    return npu_fail(status == NPUC_NO_MEMORY ? NPU_NO_MEMORY : NPU_RUN_FAILED, "subgraph '%.100s', core %d, instruction %lld: %s",
                    npuc_file_string(f, g->name), error.core, (long long)error.instruction, error.message);
}

npu_status npu_run_subgraphs(npu_session *s)
{
    npu_status status = NPU_OK;
    for (uint32_t i = 0; i < s->file.subgraph_count && !status; i++)
        if (npu_has_subgraph(s, i)) status = s->observer ? s->observer(s, i, run_subgraph) : run_subgraph(s, i);
    return status;
}

static npu_status check_ends(const npu_session *s, const npu_ends *ends)
{
    const npuc_file_header *h = s->file.header;
    if ((h->inputs && !ends->inputs && !ends->input_views) || (h->outputs && !ends->outputs && !ends->output_views))
        return npu_fail(NPU_BAD_ARGUMENT, "there are no tensors");
    for (uint32_t i = 0; i < h->inputs; i++)
        if (s->tensors[i].size && !(ends->inputs ? ends->inputs[i] : ends->input_views[i].data) &&
            !is_state(&s->file, s->file.lists[h->first_input + i], 1))
            return npu_fail(NPU_BAD_ARGUMENT, "input %u, '%.200s', is NULL", i, s->tensors[i].name);
    for (uint32_t i = 0; i < h->outputs; i++)
        if (s->tensors[h->inputs + i].size && !(ends->outputs ? ends->outputs[i] : ends->output_views[i].data) &&
            !is_state(&s->file, s->file.lists[h->first_output + i], 0))
            return npu_fail(NPU_BAD_ARGUMENT, "output %u, '%.200s', is NULL", i, s->tensors[h->inputs + i].name);
    return NPU_OK;
}

npu_status npu_execute(npu_session *s, const npu_ends *ends)
{
    const npuc_file *f = &s->file;
    const npuc_file_header *h = f->header;
    npu_status status = check_ends(s, ends);
    if (status) return status;
    for (uint32_t i = 0; i < h->inputs; i++) {
        const npuc_file_tensor *t = listed(f, h->first_input, i);
        const npu_view *view = ends->inputs ? NULL : &ends->input_views[i];
        /* Only read: the direction is to the place. */
        uint8_t *data = (uint8_t *)(uintptr_t)(view ? view->data : ends->inputs[i]);
        if (data) reorder(t, memory_of(s, t), data, view ? view->stride : NULL, 1);
    }
    status = npu_run_subgraphs(s);
    for (uint32_t i = 0; i < h->outputs && !status; i++) {
        const npuc_file_tensor *t = listed(f, h->first_output, i);
        const npu_view *view = ends->outputs ? NULL : &ends->output_views[i];
        uint8_t *data = view ? view->data : ends->outputs[i];
        if (data) reorder(t, memory_of(s, t), data, view ? view->stride : NULL, 0);
    }
    if (!status) keep_states(s);
    return status;
}

int64_t npu_strides(const npu_tensor *tensor, int32_t dense, int64_t alignment, int64_t *stride)
{
    if (!tensor || !stride || dense < 0 || alignment < 1 || alignment > 1 << 20) return -1;
    int64_t step = tensor->elements ? (int64_t)tensor->size / tensor->elements : 1;
    for (int32_t axis = tensor->rank - 1; axis >= 0; axis--) {
        stride[axis] = step;
        step *= tensor->shape[axis];
        if (tensor->rank - axis == dense) step = (step + alignment - 1) / alignment * alignment;
    }
    return step;
}
