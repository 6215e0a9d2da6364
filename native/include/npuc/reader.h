/*
 * npuc: reading a .npu file from memory.
 *
 * npuc_file_open checks every offset, size, count, name and tensor, of every instruction what can be known without executing it,
 * and the checksums of all that but the weights: its time does not grow with them. After that, the tables can be used without
 * another look; before the weights are used, npuc_file_verify compares them with their checksums. Nothing is copied or allocated:
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
    const npuc_file_state *states; /* NULL if the file has none */
    uint32_t state_count;
    uint32_t first_host, host_count; /* the sections of host operators, in the order of their subgraphs */
    const uint32_t *lists; /* numbers of tensors: inputs and outputs are ranges of it */
    uint32_t list_count;
    const char *strings; /* zero-terminated UTF-8, one after the other */
    uint64_t string_bytes;
    const uint8_t *weights; /* the bytes of segment 0 */
    uint32_t entry, entry_count;    /* the entry that all tables are of, and how many the program has */
    const npuc_file_entry *entries; /* NULL if the program has one that has no name of its own */
    const char *entry_names;        /* the strings of the first entry */
    uint64_t body;          /* bytes before the checksums */
    uint64_t unproven, unproven_end; /* chunks of weights that are not compared with their checksums yet */
    uint64_t failed_at;     /* after an error: the number of what is wrong (a section, a tensor, an instruction, ...) */
} npuc_file;

/*
 * Open a file of `size` bytes at an address that is a multiple of 8. Returns NULL, or in a few words what is wrong with it;
 * these words are static. `*file` can be used only after NULL.
 */
NPUC_API const char *npuc_file_open(const void *bytes, uint64_t size, npuc_file *file);

/*
 * A program may have several entries: networks of their own, over the same weights. npuc_file_open checks them all and gives the
 * first. npuc_file_select gives the tables of another; its result lives as long as the bytes do.
 */
NPUC_API const char *npuc_file_select(const npuc_file *file, uint32_t entry, npuc_file *selected);

/* The name of an entry; "" if the program has but one, which has none. */
NPUC_API const char *npuc_file_entry_name(const npuc_file *file, uint32_t entry);

/* Compare the weights of an open file with their checksums, on up to `threads` threads. Returns NULL, or what is wrong. */
NPUC_API const char *npuc_file_verify(const npuc_file *file, int threads);

/* The string of a `name`; "" for a place that no table of this file has. */
NPUC_API const char *npuc_file_string(const npuc_file *file, uint32_t name);

/* The instructions of a core in a subgraph, NPUC_RECORD bytes each; NULL and 0 if it has none. */
NPUC_API const uint8_t *npuc_file_stream(const npuc_file *file, uint32_t subgraph, uint32_t core, uint64_t *count);

/* The ONNX model of a CPU subgraph; NULL and 0 if it is none. */
NPUC_API const uint8_t *npuc_file_model(const npuc_file *file, uint32_t subgraph, uint64_t *size);

/* The host operators of a CPU subgraph (npuc/host.h), which nobody has looked into; NULL and 0 if the file has none. */
NPUC_API const uint8_t *npuc_file_host(const npuc_file *file, uint32_t subgraph, uint64_t *size);

#ifdef __cplusplus
}
#endif

#endif /* NPUC_READER_H */
