/*
 * Host operators: what kernels of CPU subgraphs share. native/include/npuc/host.h, which is generated, has the operators.
 *
 * A kernel checks that its operands and numbers fit each other, and then computes. When a file is opened it is called with
 * `checking`, and returns before it touches data; so what does not fit is refused at load. Lengths of first axes may be known
 * only at run time: then a kernel meets shorter shapes, or empty ones, and checks again.
 */
#ifndef HOST_H
#define HOST_H

#include <stddef.h>

#include "npuc/host.h"

#define HOST_WALKED 4 /* operands of a walk, with the result */

typedef struct host_value {
    uint8_t *data;
    int32_t present;
    int32_t writable; /* constants and inputs are not: a file may name them as scratch memory */
    int32_t dtype, rank;
    int64_t shape[NPUC_FILE_AXES];
    int64_t count;    /* elements */
    int64_t capacity; /* elements that there is room for: more, if the first axis is shorter than it may be */
} host_value;

/* What an operator of a plugin keeps from run to run. */
typedef struct host_state {
    void *data;
    const void *owner; /* the operator */
    void (*end)(struct host_state *state); /* frees the data; NULL while there is none */
} host_state;

typedef struct host_call {
    host_value value[NPUC_HOST_OPERANDS];
    const host_value *in, *out;
    int32_t inputs, outputs;
    const int64_t *numbers;
    int64_t number_count;
    host_state *state; /* of a node with an operator of a plugin; NULL while checking */
    int checking;
} host_call;

/* Returns NULL, or what is wrong in static words. */
typedef const char *host_kernel(const host_call *call);

#define KERNEL(name, NAME) const char *npuc_host_##name(const host_call *call);
NPUC_HOST_OPERATORS(KERNEL)
#undef KERNEL

/* Kernels begin with what they need. */
#define NEED(condition)                                                     \
    do {                                                                    \
        if (!(condition)) return "an operator does not fit its tensors"; \
    } while (0)

/* The end of the checks. */
#define CHECKED(call)                      \
    do {                                   \
        if ((call)->checking) return NULL; \
    } while (0)

/* X(name, C type) for the element types that kernels compute with. */
#define HOST_FLOATS(X) X(F32, float) X(F64, double)
#define HOST_SIGNED(X) X(I8, int8_t) X(I16, int16_t) X(I32, int32_t) X(I64, int64_t)
#define HOST_UNSIGNED(X) X(UI8, uint8_t) X(UI16, uint16_t) X(UI32, uint32_t) X(UI64, uint64_t)
#define HOST_INTEGERS(X) HOST_SIGNED(X) HOST_UNSIGNED(X)

/* Bytes of an element. */
int64_t npuc_host_bytes(int32_t dtype);
int npuc_host_is_float(int32_t dtype);
int npuc_host_is_integer(int32_t dtype);

/* So many inputs and outputs are there, at most one of them left out by a bit of `optional`, and so many numbers. */
int npuc_host_has(const host_call *call, int32_t inputs, int32_t outputs, int64_t numbers, uint32_t optional);
int npuc_host_same_shape(const host_value *a, const host_value *b);
/* Whether a count is the product of two that are not negative; products of what a file states may be beyond 64 bits. */
int npuc_host_is_product(int64_t count, int64_t a, int64_t b);

/* A number that is the bits of a double. */
double npuc_host_real(int64_t number);

/* A tensor as outer x length x inner about an axis. */
typedef struct host_axis {
    int64_t outer, length, inner;
} host_axis;
int npuc_host_axis(const host_value *x, int64_t axis, host_axis *about);

/* An element of an index tensor (i32 or i64), or of any integers. */
int64_t npuc_host_integer(const host_value *x, int64_t at);

/*
 * All elements of a result with those that are broadcast to them, a row at a time: along a row, operand k has its elements
 * `step[k][0]` apart, from element `at[k]` on. The result is operand 0, and dense.
 */
typedef struct host_walk {
    int operands, axes;
    int64_t size[NPUC_FILE_AXES + 1];
    int64_t step[HOST_WALKED][NPUC_FILE_AXES + 1];
    int64_t index[NPUC_FILE_AXES + 1];
    int64_t at[HOST_WALKED];
    int64_t rows;
} host_walk;
int npuc_host_walk(host_walk *walk, const host_value *y, const host_value *const *x, int count);
void npuc_host_next_row(host_walk *walk);

/* Numbers of elements of one row of a tensor (`first`, `step` apart) in descending or ascending order, equal ones by number. */
void npuc_host_sort(const host_value *x, int64_t first, int64_t step, int64_t *order, int64_t count, int descending);

/* ---- subgraphs ---- */

typedef struct host_program {
    const npuc_host_header *header;
    const npuc_host_tensor *tensors;
    const npuc_host_node *nodes;
    const uint32_t *operands;
    const int64_t *numbers;
    const char *strings;
    const uint8_t *constants;
    host_state *states; /* one a node, of a program with operators of plugins that is to be run; else NULL */
} host_program;

/* Where inputs and outputs of a subgraph are: the bytes, or NULL if there is none of this number. */
typedef struct host_ports {
    const void *context;
    uint8_t *(*place)(const void *context, int is_output, uint64_t number);
    /* Whether a tensor of this type and size fits, and may be written if it is an output. */
    int (*fits)(const void *context, int is_output, uint64_t number, int32_t dtype, uint64_t size);
} host_ports;

/* Read a section; NULL, or what is wrong in static words. */
const char *npuc_host_open(const uint8_t *bytes, uint64_t size, host_program *program);
/* Try all checks; `*node` is the one that fails. */
const char *npuc_host_check(const host_program *program, const host_ports *ports, uint32_t *node);
/* Compute. The arena has header->arena bytes at a multiple of 64. */
const char *npuc_host_run(const host_program *program, const host_ports *ports, uint8_t *arena, uint32_t *node);
/* Whether a node has an operator of a plugin. */
int npuc_host_has_custom(const host_program *program);
/* Free what operators of plugins keep; the next run begins anew. */
void npuc_host_end_states(const host_program *program);

#endif /* HOST_H */
