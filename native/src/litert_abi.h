/*
 * The part of LiteRT's (TensorFlow Lite's) delegate ABI that libnpuc_delegate uses: declarations of our own, by the layout that
 * the runtimes have had from 2.14 of tflite-runtime to 2.3 of ai-edge-litert. Everything is called through pointers of the
 * context, so nothing of LiteRT is needed to build or to link. Members that are not used keep their place as `unused`.
 */
#ifndef NPUC_LITERT_ABI_H
#define NPUC_LITERT_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LITE_OK = 0, LITE_ERROR = 1 };

/* Codes of operators that a delegate has to know. */
enum { LITE_CUSTOM = 32, LITE_DELEGATE = 51 };

/* Kinds of memory of a tensor. */
enum { LITE_NONE = 0, LITE_CONSTANT = 1, LITE_ARENA = 2, LITE_PERSISTENT = 3, LITE_DYNAMIC = 4, LITE_MADE_CONSTANT = 5, LITE_CALLERS = 6 };

/* Types of elements. */
enum {
    LITE_F32 = 1,
    LITE_I32 = 2,
    LITE_U8 = 3,
    LITE_I64 = 4,
    LITE_BOOL = 6,
    LITE_I16 = 7,
    LITE_I8 = 9,
    LITE_F16 = 10,
    LITE_F64 = 11,
    LITE_U64 = 13,
    LITE_U32 = 16,
    LITE_U16 = 17
};

typedef struct lite_ints {
    int32_t size;
    int32_t data[];
} lite_ints;

typedef struct lite_tensor {
    int32_t type;
    void *data; /* moves: read it in every run */
    lite_ints *dims;
    float scale;
    int32_t zero_point;
    int32_t allocation;
    size_t bytes;
    const void *unused_mapping;
    const char *name;
    void *unused_delegate;
    int32_t unused_handle;
    bool unused_stale, is_variable;
    int32_t quantization;
    void *quantization_parameters;
    void *unused_sparsity;
    lite_ints *open_dims;
} lite_tensor;

typedef struct lite_node {
    lite_ints *inputs, *outputs, *unused_intermediates, *unused_temporaries;
    void *state;
    void *unused_builtin;
    const void *custom;
    int32_t custom_size;
    void *unused_delegate;
    bool unused_effects;
} lite_node;

typedef struct lite_context lite_context;
typedef struct lite_delegate lite_delegate;

typedef struct lite_registration {
    void *(*init)(lite_context *, const char *buffer, size_t length);
    void (*free)(lite_context *, void *state);
    int32_t (*prepare)(lite_context *, lite_node *);
    int32_t (*invoke)(lite_context *, lite_node *);
    void *unused_profile;
    int32_t code;
    const char *name;
    int32_t version;
    void *unused_external, *unused_async;
    uint64_t unused_inplace;
} lite_registration;

/* As it is passed: what later runtimes append to a registration is zero. */
typedef struct lite_wide_registration {
    lite_registration registration;
    uint64_t later[8];
} lite_wide_registration;

/* What the init of a delegate's kernel gets in place of a buffer. */
typedef struct lite_partition {
    lite_delegate *delegate;
    lite_ints *nodes, *inputs, *outputs;
} lite_partition;

struct lite_delegate {
    void *data;
    int32_t (*prepare)(lite_context *, lite_delegate *);
    void *unused_buffers[3];
    int64_t flags; /* 1: dynamic shapes are allowed */
    void *unused_builder;
};

struct lite_context {
    size_t tensor_count;
    int32_t (*plan)(lite_context *, lite_ints **);
    lite_tensor *tensors; /* moves: read it in every call */
    void *unused_implementation;
    void *unused_resize;
    void (*report)(lite_context *, const char *format, ...);
    void *unused_add_tensors;
    int32_t (*node)(lite_context *, int32_t number, lite_node **, lite_registration **);
    int32_t (*replace)(lite_context *, lite_wide_registration, const lite_ints *nodes, lite_delegate *);
    int32_t threads; /* as many as the interpreter was given; -1: not stated */
    void *unused_external[2];
    bool unused_relax;
    void *unused_profiler;
    void *unused_buffers[5];
    int32_t (*preview)(lite_context *, const lite_ints *nodes, lite_partition **, int32_t *count);
};

#if UINTPTR_MAX == UINT64_MAX
#define LITE_AT(type, member, offset) _Static_assert(offsetof(type, member) == (offset), #type "." #member)
LITE_AT(lite_tensor, data, 8);
LITE_AT(lite_tensor, dims, 16);
LITE_AT(lite_tensor, scale, 24);
LITE_AT(lite_tensor, allocation, 32);
LITE_AT(lite_tensor, bytes, 40);
LITE_AT(lite_tensor, name, 56);
LITE_AT(lite_tensor, is_variable, 77);
LITE_AT(lite_tensor, quantization, 80);
LITE_AT(lite_tensor, open_dims, 104);
_Static_assert(sizeof(lite_tensor) == 112, "lite_tensor");
LITE_AT(lite_node, state, 32);
LITE_AT(lite_node, custom, 48);
LITE_AT(lite_node, custom_size, 56);
_Static_assert(sizeof(lite_node) == 80, "lite_node");
LITE_AT(lite_registration, code, 40);
LITE_AT(lite_registration, name, 48);
LITE_AT(lite_registration, version, 56);
_Static_assert(sizeof(lite_registration) == 88, "lite_registration");
LITE_AT(lite_delegate, prepare, 8);
LITE_AT(lite_delegate, flags, 40);
_Static_assert(sizeof(lite_delegate) == 56, "lite_delegate");
LITE_AT(lite_context, plan, 8);
LITE_AT(lite_context, tensors, 16);
LITE_AT(lite_context, report, 40);
LITE_AT(lite_context, node, 56);
LITE_AT(lite_context, replace, 64);
LITE_AT(lite_context, threads, 72);
LITE_AT(lite_context, preview, 152);
#undef LITE_AT
#endif

#endif /* NPUC_LITERT_ABI_H */
