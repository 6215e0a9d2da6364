/*
 * npuc: the tables of a .npu file, made by `make docs` from src/npuc/program/layout.py and elf.py. Do not edit.
 *
 * All numbers are little-endian, and every record starts at a multiple of eight bytes. A `name` is a place in the section
 * .npu.strings. docs/file-format.md has the whole format; npuc/reader.h reads it.
 */
#ifndef NPUC_FILE_H
#define NPUC_FILE_H

#include <stdint.h>

#define NPUC_FILE_VERSION 2 /* the newest that is read */
#define NPUC_FILE_OLDEST 2 /* the oldest */
#define NPUC_FILE_ALIGNMENT 64 /* of segments and tensors */
#define NPUC_FILE_PAGE 4096 /* of the weights in the file */
#define NPUC_FILE_AXES 8
#define NPUC_FILE_LARGEST ((uint64_t)1 << 48) /* bytes of a segment */
#define NPUC_FILE_DIGEST 32 /* bytes of a SHA-256 */
#define NPUC_FILE_CHUNK 262144 /* bytes of the file that have a digest of their own */
#define NPUC_FILE_ROUNDINGS 3 /* of a conversion */
#define NPUC_FILE_ENTRIES 256 /* of a program, at most */
#define NPUC_FILE_STATES 4096 /* of a model, at most */
#define NPUC_FILE_STREAM_TENSORS 65536 /* inputs and outputs of a model with states, at most */
#define NPUC_ELF_MACHINE 0x6E70
#define NPUC_ELF_TYPE 3
#define NPUC_ELF_SECTIONS 0xFF00 /* a file has fewer */

typedef enum npuc_segment_kind {
    NPUC_SEGMENT_WEIGHTS = 0,
    NPUC_SEGMENT_WORKSPACE = 1,
    NPUC_SEGMENT_IO = 2,
    NPUC_SEGMENT_KINDS = 3
} npuc_segment_kind;

typedef enum npuc_subgraph_kind {
    NPUC_SUBGRAPH_NPU = 0,
    NPUC_SUBGRAPH_CPU = 1,
    NPUC_SUBGRAPH_HOST = 2,
    NPUC_SUBGRAPH_CHIP = 3,
    NPUC_SUBGRAPH_KINDS = 4
} npuc_subgraph_kind;

typedef enum npuc_tensor_dtype {
    NPUC_TENSOR_I8 = 0,
    NPUC_TENSOR_UI8 = 1,
    NPUC_TENSOR_I16 = 2,
    NPUC_TENSOR_I32 = 3,
    NPUC_TENSOR_I4 = 4,
    NPUC_TENSOR_F32 = 5,
    NPUC_TENSOR_BF16 = 6,
    NPUC_TENSOR_F16 = 7,
    NPUC_TENSOR_I64 = 8,
    NPUC_TENSOR_I1 = 9,
    NPUC_TENSOR_UI16 = 10,
    NPUC_TENSOR_UI32 = 11,
    NPUC_TENSOR_UI64 = 12,
    NPUC_TENSOR_F64 = 13,
    NPUC_TENSOR_DTYPES = 14
} npuc_tensor_dtype;

/* Bits of an element, by npuc_tensor_dtype. */
#define NPUC_TENSOR_BITS {8, 8, 16, 32, 4, 32, 16, 16, 64, 8, 16, 32, 64, 64}

/* Section .npu.header: one record. */
typedef struct npuc_file_header {
    uint32_t version; /* NPUC_FILE_VERSION */
    uint32_t isa; /* version of the instruction set */
    uint32_t record; /* bytes of an instruction */
    uint32_t cores; /* of the target */
    uint64_t fingerprint; /* of the target */
    uint64_t local_bytes; /* local memory of a core */
    uint64_t shared_bytes; /* shared memory; 0 if there is none */
    uint32_t name; /* of the model */
    uint32_t target; /* its name */
    uint32_t first_input; /* the inputs of the model: first in .npu.lists */
    uint32_t inputs; /* and how many */
    uint32_t first_output; /* the outputs */
    uint32_t outputs;
} npuc_file_header;

/* Section .npu.segments: segment 0 holds the weights, 1 the workspace, then inputs and outputs. */
typedef struct npuc_file_segment {
    uint32_t name;
    uint32_t kind; /* an npuc_segment_kind */
    uint64_t size; /* bytes */
    uint64_t address; /* base address; 0: the loader decides */
    uint64_t alignment; /* of the base address */
} npuc_file_segment;

/* Section .npu.tensors: tensors in DRAM, dense. */
typedef struct npuc_file_tensor {
    uint32_t name;
    uint32_t segment;
    uint64_t offset; /* first byte in the segment */
    uint64_t size; /* bytes */
    double scale; /* real value of a step; 0 if the elements are plain */
    int32_t zero_point;
    uint16_t dtype; /* an npuc_tensor_dtype */
    uint16_t rank; /* axes */
    uint32_t shape[8]; /* logical: N x C x H x W for rank 4 */
    uint8_t order[8]; /* the axes of shape from the outermost in memory to the innermost */
} npuc_file_tensor;

/* Section .npu.subgraphs, in the order in which they run. */
typedef struct npuc_file_subgraph {
    uint32_t name;
    uint32_t kind; /* an npuc_subgraph_kind */
    uint32_t first; /* NPU: section of core 0, others follow; CPU: of the model; host: in .npu.conversions; chip: of its program */
    uint32_t count; /* NPU: cores with instructions; CPU and chip: 1; host: conversions */
    uint32_t first_input; /* first in .npu.lists */
    uint32_t inputs; /* and how many */
    uint32_t first_output;
    uint32_t outputs;
} npuc_file_subgraph;

/* Section .npu.conversions: what the host makes of reals or integers between subgraphs, by the tensors' own scales. */
typedef struct npuc_file_conversion {
    uint32_t source; /* a tensor */
    uint32_t result; /* a tensor of the same shape */
    uint32_t rounding; /* an index of half_away, half_even, half_up */
    uint32_t reserved; /* 0 */
} npuc_file_conversion;

/* Section .npu.layers: what `layer` of an instruction counts. */
typedef struct npuc_file_layer {
    uint32_t name;
    uint32_t reserved; /* 0 */
} npuc_file_layer;

/* Section .npu.allocations: places in local memory and when they are in use. */
typedef struct npuc_file_allocation {
    uint32_t name;
    uint32_t subgraph;
    uint32_t core;
    uint32_t address;
    uint32_t size; /* bytes */
    uint32_t first; /* the first instruction of the stream that may touch it */
    uint32_t last; /* the last one */
    uint32_t reserved; /* 0 */
} npuc_file_allocation;

/* Section .npu.states, which a file may have: an input that takes what an output gave in the run before. */
typedef struct npuc_file_state {
    uint32_t input; /* a tensor: an input of the model */
    uint32_t output; /* a tensor of the same type and shape: an output of the model */
} npuc_file_state;

/* Section .npu.entries, of a program with several entries: what they are called, the one of the plain tables first. */
typedef struct npuc_file_entry {
    uint32_t name; /* in the strings of the first entry */
    uint32_t reserved; /* 0 */
} npuc_file_entry;

/* Section .npu.signature: who vouches for the file. The signature is that of the file with zeros in its own place. */
typedef struct npuc_file_signature {
    uint32_t algorithm; /* 1: Ed25519 */
    uint32_t reserved; /* 0 */
    uint8_t key[32]; /* the public key */
    uint8_t signature[64]; /* of the text of docs/file-format.md and the last digest of the checksums */
} npuc_file_signature;

/* The first bytes of the file. */
typedef struct npuc_elf_header {
    uint8_t ident[16]; /* magic number, class, byte order, version */
    uint16_t type; /* ET_DYN */
    uint16_t machine; /* NPUC_ELF_MACHINE */
    uint32_t version; /* 1 */
    uint64_t entry; /* 0 */
    uint64_t program_headers; /* where they are */
    uint64_t section_headers; /* where they are */
    uint32_t flags; /* 0 */
    uint16_t header_size;
    uint16_t program_header_size;
    uint16_t program_header_count;
    uint16_t section_header_size;
    uint16_t section_count; /* with the empty section 0 */
    uint16_t names; /* the section that holds the names of sections */
} npuc_elf_header;

/* A section header. */
typedef struct npuc_elf_section {
    uint32_t name; /* byte in the section of names */
    uint32_t type;
    uint64_t flags;
    uint64_t address;
    uint64_t offset; /* first byte in the file */
    uint64_t size; /* bytes */
    uint32_t link;
    uint32_t info;
    uint64_t alignment;
    uint64_t entry_size; /* bytes of a record of a table */
} npuc_elf_section;

/* A program header: a segment of DRAM. */
typedef struct npuc_elf_program {
    uint32_t type; /* PT_LOAD */
    uint32_t flags; /* 4 read, 2 write */
    uint64_t offset; /* first byte in the file */
    uint64_t address; /* base address; 0: the loader decides */
    uint64_t physical_address; /* the same */
    uint64_t file_size; /* bytes in the file */
    uint64_t memory_size; /* bytes in memory */
    uint64_t alignment;
} npuc_elf_program;

#endif /* NPUC_FILE_H */
