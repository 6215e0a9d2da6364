/*
 * npuc: reading a .npu file from memory.
 *
 * npuc_file_open checks the whole file: its checksum, every offset, size, count, name and tensor, and of every instruction what
 * can be known without executing it. After that, the tables can be used without another look. Nothing is copied or allocated:
 * all pointers are into the caller's bytes, which have to stay, unchanged, as long as they are used.
 *
 * What is not checked: the JSON of .npu.meta and .npu.target, the ONNX models of CPU subgraphs, and whether the operands of an
 * instruction fit local memory as a whole. Base addresses of segments are what the file says.
 */
#ifndef NPUC_READER_H
#define NPUC_READER_H

#include <stdint.h>

#include "npuc/file.h"
#include "npuc/npuc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct npuc_file {
    const uint8_t *bytes;
    uint64_t size;
    const npuc_elf_section *sections;
    uint32_t section_count;
    const npuc_file_header *header;
    const npuc_file_segment *segments;
    uint32_t segment_count;
    const npuc_file_tensor *tensors;
    uint32_t tensor_count;
    const npuc_file_subgraph *subgraphs;
    uint32_t subgraph_count;
    const npuc_file_conversion *conversions;
    uint32_t conversion_count;
    const npuc_file_layer *layers;
    uint32_t layer_count;
    const npuc_file_allocation *allocations;
    uint32_t allocation_count;
    const uint32_t *lists; /* numbers of tensors: inputs and outputs are ranges of it */
    uint32_t list_count;
    const char *strings; /* zero-terminated UTF-8, one after the other */
    uint64_t string_bytes;
    const uint8_t *weights; /* the bytes of segment 0 */
    uint64_t failed_at;     /* after an error: the number of what is wrong (a section, a tensor, an instruction, ...) */
} npuc_file;

/*
 * Open a file of `size` bytes at an address that is a multiple of 8. Returns NULL, or in a few words what is wrong with it;
 * these words are static. `*file` can be used only after NULL.
 */
NPUC_API const char *npuc_file_open(const void *bytes, uint64_t size, npuc_file *file);

/* The string of a `name`; "" for a place that no table of this file has. */
NPUC_API const char *npuc_file_string(const npuc_file *file, uint32_t name);

/* The instructions of a core in a subgraph, NPUC_RECORD bytes each; NULL and 0 if it has none. */
NPUC_API const uint8_t *npuc_file_stream(const npuc_file *file, uint32_t subgraph, uint32_t core, uint64_t *count);

/* The ONNX model of a CPU subgraph; NULL and 0 if it is none. */
NPUC_API const uint8_t *npuc_file_model(const npuc_file *file, uint32_t subgraph, uint64_t *size);

#ifdef __cplusplus
}
#endif

#endif /* NPUC_READER_H */
