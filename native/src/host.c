/*
 * The interpreter of CPU subgraphs: reads and checks a section .npu.host.S, and calls the kernels of its nodes in their order.
 *
 * The section is as little trusted as the rest of a file: every offset and number is checked before it is used. Sizes are compared
 * by subtraction from what is known to be inside. What tensors alias each other is not checked: it cannot leave the arena.
 */
#include "host.h"

#include <string.h>

static const uint8_t bits_of[] = NPUC_TENSOR_BITS;

int64_t npuc_host_bytes(int32_t dtype) { return bits_of[dtype] / 8; }

int npuc_host_is_float(int32_t dtype) { return dtype == NPUC_TENSOR_F32 || dtype == NPUC_TENSOR_F64; }

int npuc_host_is_integer(int32_t dtype)
{
    switch (dtype) {
#define CASE(name, type) case NPUC_TENSOR_##name:
        HOST_INTEGERS(CASE)
#undef CASE
        return 1;
    default: return 0;
    }
}

int npuc_host_has(const host_call *call, int32_t inputs, int32_t outputs, int64_t numbers, uint32_t optional)
{
    if (call->inputs != inputs || call->outputs != outputs || call->number_count != numbers) return 0;
    for (int32_t k = 0; k < inputs + outputs; k++)
        if (!call->value[k].present && !(optional >> k & 1)) return 0;
    return 1;
}

int npuc_host_same_shape(const host_value *a, const host_value *b)
{
    return a->rank == b->rank && memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}

int npuc_host_is_product(int64_t count, int64_t a, int64_t b) { return a ? count / a == b && count % a == 0 : count == 0; }

double npuc_host_real(int64_t number)
{
    double value;
    memcpy(&value, &number, sizeof value);
    return value;
}

int npuc_host_axis(const host_value *x, int64_t axis, host_axis *about)
{
    if (axis < 0 || axis >= x->rank) return 0;
    *about = (host_axis){1, x->shape[axis], 1};
    for (int64_t a = 0; a < axis; a++) about->outer *= x->shape[a];
    for (int64_t a = axis + 1; a < x->rank; a++) about->inner *= x->shape[a];
    return 1;
}

int64_t npuc_host_integer(const host_value *x, int64_t at)
{
    switch (x->dtype) {
#define CASE(name, type) case NPUC_TENSOR_##name: return (int64_t)((const type *)(const void *)x->data)[at];
        HOST_INTEGERS(CASE)
#undef CASE
    default: return 0;
    }
}

/* ---- walks ---- */

int npuc_host_walk(host_walk *walk, const host_value *y, const host_value *const *x, int count)
{
    int64_t dense[HOST_WALKED], step[HOST_WALKED];
    *walk = (host_walk){.operands = count + 1};
    for (int k = 0; k <= count; k++) dense[k] = 1;
    for (int k = 0; k < count; k++)
        for (int axis = 0; axis < x[k]->rank - y->rank; axis++)
            if (x[k]->shape[axis] != 1) return 0;
    for (int axis = 0; axis < y->rank; axis++) { /* from the last */
        const int64_t length = y->shape[y->rank - 1 - axis];
        for (int k = 0; k <= count; k++) {
            const host_value *v = k ? x[k - 1] : y;
            const int64_t own = axis < v->rank ? v->shape[v->rank - 1 - axis] : 1;
            if (own != length && own != 1) return 0;
            step[k] = own == 1 ? 0 : dense[k];
            dense[k] *= own;
        }
        if (length == 1) continue;
        int merged = walk->axes > 0;
        for (int k = 0; merged && k <= count; k++)
            merged = step[k] == walk->step[k][walk->axes - 1] * walk->size[walk->axes - 1];
        if (merged) {
            walk->size[walk->axes - 1] *= length;
            continue;
        }
        for (int k = 0; k <= count; k++) walk->step[k][walk->axes] = step[k];
        walk->size[walk->axes++] = length;
    }
    if (!walk->axes) {
        walk->axes = 1;
        walk->size[0] = 1;
        for (int k = 0; k <= count; k++) walk->step[k][0] = 1;
    }
    walk->rows = y->count ? y->count / walk->size[0] : 0;
    return 1;
}

void npuc_host_next_row(host_walk *walk)
{
    for (int axis = 1; axis < walk->axes; axis++) {
        for (int k = 0; k < walk->operands; k++) walk->at[k] += walk->step[k][axis];
        if (++walk->index[axis] < walk->size[axis]) return;
        walk->index[axis] = 0;
        for (int k = 0; k < walk->operands; k++) walk->at[k] -= walk->step[k][axis] * walk->size[axis];
    }
}

/* ---- order ---- */

/* Whether element i stands before j; NaN is the largest, as in NumPy. */
static int before(const host_value *x, int64_t first, int64_t step, int64_t i, int64_t j, int descending)
{
    int sign = 0; /* of x[i] - x[j] */
    switch (x->dtype) {
#define CASE(name, type)                                                                       \
    case NPUC_TENSOR_##name: {                                                                 \
        const type a = ((const type *)(const void *)x->data)[first + i * step];                \
        const type b = ((const type *)(const void *)x->data)[first + j * step];                \
        sign = a < b ? -1 : a > b ? 1 : (a != a) - (b != b);                                   \
        break;                                                                                 \
    }
        HOST_FLOATS(CASE)
        HOST_INTEGERS(CASE)
#undef CASE
    default: break;
    }
    if (!sign) return i < j;
    return descending ? sign > 0 : sign < 0;
}

void npuc_host_sort(const host_value *x, int64_t first, int64_t step, int64_t *order, int64_t count, int descending)
{
    /* Heapsort: the last in order is at the root. */
    for (int64_t end = count, start = count / 2; end > 1;) {
        int64_t moving;
        if (start) {
            moving = order[--start];
        } else {
            moving = order[--end];
            order[end] = order[0];
        }
        int64_t hole = start, child;
        while ((child = 2 * hole + 1) < end) {
            if (child + 1 < end && before(x, first, step, order[child], order[child + 1], descending)) child++;
            if (!before(x, first, step, moving, order[child], descending)) break;
            order[hole] = order[child];
            hole = child;
        }
        order[hole] = moving;
    }
}

/* ---- the section ---- */

static const char damaged[] = "its host operators are damaged";

static int part(uint64_t *at, uint64_t size, uint64_t count, uint64_t bytes, uint64_t *start)
{
    *start = *at;
    if (count > (size - *at) / bytes) return 0;
    const uint64_t taken = (count * bytes + 7) / 8 * 8;
    if (taken > size - *at) return 0;
    *at += taken;
    return 1;
}

static int string_exists(const host_program *p, uint32_t at)
{
    return at < p->header->strings && (at == 0 || p->strings[at - 1] == 0);
}

static int tensor_is_sound(const host_program *p, const npuc_host_tensor *t)
{
    const npuc_host_header *h = p->header;
    if (t->dtype >= NPUC_TENSOR_DTYPES || bits_of[t->dtype] % 8 || t->rank > NPUC_FILE_AXES || t->place >= NPUC_HOST_PLACES || t->reserved)
        return 0;
    uint64_t bytes = bits_of[t->dtype] / 8;
    for (uint32_t a = 0; a < NPUC_FILE_AXES; a++) {
        if (a >= t->rank) {
            if (t->shape[a]) return 0;
            continue;
        }
        if (!t->shape[a] || bytes > NPUC_FILE_LARGEST / t->shape[a]) return 0;
        bytes *= t->shape[a];
    }
    if (t->size > NPUC_FILE_LARGEST || bytes != t->size) return 0;
    if (t->rows != NPUC_HOST_NONE) {
        if (!t->rank || t->rows >= h->tensors) return 0;
        const npuc_host_tensor *rows = &p->tensors[t->rows];
        if (rows->dtype != NPUC_TENSOR_I64 || rows->rows != NPUC_HOST_NONE) return 0;
    }
    const uint64_t whole = t->place == NPUC_HOST_PLACE_ARENA ? h->arena : h->constants;
    if (t->place == NPUC_HOST_PLACE_ARENA || t->place == NPUC_HOST_PLACE_CONSTANT)
        return t->offset % NPUC_FILE_ALIGNMENT == 0 && t->offset <= whole && t->size <= whole - t->offset;
    return 1;
}

static int node_is_sound(const host_program *p, const npuc_host_node *n)
{
    const npuc_host_header *h = p->header;
    const uint32_t operands = (uint32_t)n->inputs + n->outputs;
    if (n->op >= NPUC_HOST_OPS || n->reserved || operands > NPUC_HOST_OPERANDS || n->first_operand > h->operands ||
        operands > h->operands - n->first_operand || n->first_number > h->numbers || n->numbers > h->numbers - n->first_number ||
        !string_exists(p, n->name))
        return 0;
    for (uint32_t k = 0; k < operands; k++) {
        const uint32_t number = p->operands[n->first_operand + k];
        if (number == NPUC_HOST_NONE) continue;
        if (number >= h->tensors) return 0;
        const uint32_t place = p->tensors[number].place;
        if (k >= n->inputs && place != NPUC_HOST_PLACE_ARENA && place != NPUC_HOST_PLACE_OUTPUT) return 0;
    }
    return 1;
}

const char *npuc_host_open(const uint8_t *bytes, uint64_t size, host_program *program)
{
    host_program *p = program;
    uint64_t at = sizeof(npuc_host_header), tensors, nodes, operands, numbers, strings;
    if (size < at || (uintptr_t)bytes % 8) return damaged;
    const npuc_host_header *h = p->header = (const npuc_host_header *)(const void *)bytes;
    if (h->version != NPUC_HOST_VERSION) return "its host operators are of another version of npuc";
    if (h->arena > NPUC_FILE_LARGEST || h->strings > size || h->constants > size || !part(&at, size, h->tensors, sizeof *p->tensors, &tensors) ||
        !part(&at, size, h->nodes, sizeof *p->nodes, &nodes) || !part(&at, size, h->operands, sizeof *p->operands, &operands) ||
        !part(&at, size, h->numbers, sizeof *p->numbers, &numbers) || !part(&at, size, h->strings, 1, &strings))
        return damaged;
    at = (at + NPUC_FILE_ALIGNMENT - 1) / NPUC_FILE_ALIGNMENT * NPUC_FILE_ALIGNMENT;
    if (at > size || h->constants > size - at) return damaged;
    p->tensors = (const npuc_host_tensor *)(const void *)(bytes + tensors);
    p->nodes = (const npuc_host_node *)(const void *)(bytes + nodes);
    p->operands = (const uint32_t *)(const void *)(bytes + operands);
    p->numbers = (const int64_t *)(const void *)(bytes + numbers);
    p->strings = (const char *)bytes + strings;
    p->constants = bytes + at;
    p->states = NULL;
    if (h->constants && (uintptr_t)p->constants % 8) return damaged;
    if (!h->strings || p->strings[0] || p->strings[h->strings - 1] || !string_exists(p, h->refusal)) return damaged;
    for (uint32_t k = 0; k < h->tensors; k++)
        if (!tensor_is_sound(p, &p->tensors[k])) return damaged;
    for (uint32_t k = 0; k < h->nodes; k++)
        if (!node_is_sound(p, &p->nodes[k])) return damaged;
    return NULL;
}

/* ---- running ---- */

static uint8_t *place_of(const host_program *p, const host_ports *ports, uint8_t *arena, const npuc_host_tensor *t)
{
    switch (t->place) {
    case NPUC_HOST_PLACE_ARENA: return arena + t->offset;
    case NPUC_HOST_PLACE_CONSTANT: return (uint8_t *)(uintptr_t)(p->constants + t->offset); /* only read: see node_is_sound */
    default: return ports->place(ports->context, t->place == NPUC_HOST_PLACE_OUTPUT, t->offset);
    }
}

/* A tensor as a kernel sees it; without an arena, for a check. */
static int value_of(const host_program *p, const host_ports *ports, uint8_t *arena, uint32_t number, host_value *value)
{
    *value = (host_value){0};
    if (number == NPUC_HOST_NONE) return 1;
    const npuc_host_tensor *t = &p->tensors[number];
    *value = (host_value){.present = 1, .dtype = t->dtype, .rank = t->rank, .count = 1};
    value->writable = t->place == NPUC_HOST_PLACE_ARENA || t->place == NPUC_HOST_PLACE_OUTPUT;
    for (uint32_t a = 0; a < t->rank; a++) value->shape[a] = t->shape[a], value->count *= t->shape[a];
    value->capacity = value->count;
    if (!arena) return 1;
    value->data = place_of(p, ports, arena, t);
    if (t->rows == NPUC_HOST_NONE) return 1;
    int64_t rows;
    memcpy(&rows, place_of(p, ports, arena, &p->tensors[t->rows]), sizeof rows);
    if (rows < 0 || rows > value->shape[0]) return 0;
    value->count = value->count / value->shape[0] * rows;
    value->shape[0] = rows;
    return 1;
}

static const char *call_node(const host_program *p, const host_ports *ports, uint8_t *arena, const npuc_host_node *n)
{
#define ENTRY(name, NAME) npuc_host_##name,
    static host_kernel *const kernels[] = {NPUC_HOST_OPERATORS(ENTRY)};
#undef ENTRY
    host_call call = {.inputs = n->inputs, .outputs = n->outputs, .numbers = p->numbers + n->first_number, .number_count = n->numbers};
    call.checking = !arena;
    call.state = arena && p->states ? &p->states[n - p->nodes] : NULL;
    call.in = call.value;
    call.out = call.value + n->inputs;
    for (uint32_t k = 0; k < (uint32_t)n->inputs + n->outputs; k++)
        if (!value_of(p, ports, arena, p->operands[n->first_operand + k], &call.value[k])) return "a tensor has an impossible number of rows";
    return kernels[n->op](&call);
}

const char *npuc_host_check(const host_program *program, const host_ports *ports, uint32_t *node)
{
    *node = NPUC_HOST_NONE;
    for (uint32_t k = 0; k < program->header->tensors; k++) {
        const npuc_host_tensor *t = &program->tensors[k];
        if (t->place < NPUC_HOST_PLACE_INPUT) continue;
        if (!ports->fits(ports->context, t->place == NPUC_HOST_PLACE_OUTPUT, t->offset, t->dtype, t->size)) return damaged;
    }
    for (uint32_t k = 0; k < program->header->nodes; k++) {
        *node = k;
        const char *why = call_node(program, ports, NULL, &program->nodes[k]);
        if (why) return why;
    }
    return NULL;
}

const char *npuc_host_run(const host_program *program, const host_ports *ports, uint8_t *arena, uint32_t *node)
{
    for (uint32_t k = 0; k < program->header->nodes; k++) {
        *node = k;
        const char *why = call_node(program, ports, arena, &program->nodes[k]);
        if (why) return why;
    }
    return NULL;
}

int npuc_host_has_custom(const host_program *program)
{
    for (uint32_t k = 0; k < program->header->nodes; k++)
        if (program->nodes[k].op == NPUC_HOST_OP_CUSTOM) return 1;
    return 0;
}

void npuc_host_end_states(const host_program *program)
{
    for (uint32_t k = 0; program->states && k < program->header->nodes; k++)
        if (program->states[k].end) program->states[k].end(&program->states[k]);
}
