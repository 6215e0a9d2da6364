/* A graph of ONNX Runtime as the bytes of an ONNX file: written for npuc's importer, hashed as the key of the cache. */
#ifndef NPUC_ORT_ONNX_H
#define NPUC_ORT_ONNX_H

#include "ort_abi.h"

/* Bytes of which large tensors are not copied: at `at`, `size` bytes of `data` follow. They belong to ORT's graph. */
typedef struct ort_splice {
    size_t at;
    const void *data;
    size_t size;
} ort_splice;

typedef struct ort_bytes {
    uint8_t *bytes;
    size_t size, room;
    ort_splice *splices;
    size_t splice_count, splice_room;
    size_t total;   /* with splices */
    bool failed;    /* no memory */
} ort_bytes;

void ort_bytes_free(ort_bytes *message);
void ort_put(ort_bytes *message, const void *data, size_t size);

/* The whole graph as an ONNX model. */
ort_status *ort_write_model(const ort_api *api, const ort_graph *graph, ort_bytes *model);

/* Call `part` for every run of bytes, in order; the result of the first call that is not 0. */
int ort_each_part(const ort_bytes *message, int (*part)(void *user, const void *data, size_t size), void *user);

#endif
