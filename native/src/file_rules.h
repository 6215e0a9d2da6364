/* What fields of instructions may be; made by `make docs` from src/npuc/program/checks.py. Do not edit. */
#ifndef NPUC_FILE_RULES_H
#define NPUC_FILE_RULES_H

#include <stdint.h>

#include "npuc/file.h"

enum { RULE_ADDRESS, RULE_CHOICE, RULE_WIDTH };

typedef struct rule {
    uint8_t opcode;
    uint8_t what;   /* one of the above */
    uint8_t offset; /* of the field in the record */
    uint8_t limit;  /* RULE_CHOICE: the first value that is too large */
} rule;

/* By opcode. */
static const rule RULES[] = {
    {1, RULE_ADDRESS, 40, 0}, /* local */
    {2, RULE_ADDRESS, 40, 0}, /* local */
    {8, RULE_ADDRESS, 24, 0}, /* x */
    {8, RULE_CHOICE, 28, 11}, /* x_dtype */
    {8, RULE_ADDRESS, 76, 0}, /* weight */
    {8, RULE_CHOICE, 80, 48}, /* w_dtype */
    {8, RULE_ADDRESS, 88, 0}, /* bias */
    {8, RULE_CHOICE, 92, 2}, /* wide */
    {8, RULE_CHOICE, 93, 2}, /* transposed */
    {8, RULE_ADDRESS, 104, 0}, /* y */
    {8, RULE_CHOICE, 108, 11}, /* y_dtype */
    {8, RULE_CHOICE, 116, 5}, /* kind */
    {8, RULE_ADDRESS, 124, 0}, /* multiplier */
    {8, RULE_ADDRESS, 128, 0}, /* shift */
    {8, RULE_ADDRESS, 144, 0}, /* table */
    {8, RULE_CHOICE, 148, 11}, /* s_dtype */
    {8, RULE_CHOICE, 149, 16}, /* sparse_n */
    {8, RULE_CHOICE, 150, 17}, /* sparse_m */
    {9, RULE_ADDRESS, 24, 0}, /* x */
    {9, RULE_CHOICE, 28, 11}, /* x_dtype */
    {9, RULE_ADDRESS, 36, 0}, /* b */
    {9, RULE_CHOICE, 40, 11}, /* b_dtype */
    {9, RULE_CHOICE, 72, 2}, /* transposed_b */
    {9, RULE_CHOICE, 73, 2}, /* wide */
    {9, RULE_ADDRESS, 76, 0}, /* y */
    {9, RULE_CHOICE, 80, 11}, /* y_dtype */
    {9, RULE_CHOICE, 81, 5}, /* kind */
    {9, RULE_ADDRESS, 88, 0}, /* multiplier */
    {9, RULE_ADDRESS, 92, 0}, /* shift */
    {10, RULE_ADDRESS, 24, 0}, /* x */
    {10, RULE_CHOICE, 28, 11}, /* x_dtype */
    {10, RULE_CHOICE, 52, 5}, /* gates */
    {10, RULE_CHOICE, 53, 2}, /* reverse */
    {10, RULE_CHOICE, 54, 2}, /* linear_before_reset */
    {10, RULE_CHOICE, 55, 2}, /* coupled */
    {10, RULE_CHOICE, 56, 2}, /* peephole */
    {10, RULE_CHOICE, 57, 16}, /* cell_bits */
    {10, RULE_CHOICE, 58, 48}, /* w_dtype */
    {10, RULE_ADDRESS, 64, 0}, /* constants */
    {10, RULE_ADDRESS, 68, 0}, /* first_h */
    {10, RULE_ADDRESS, 72, 0}, /* first_state */
    {10, RULE_ADDRESS, 76, 0}, /* last_h */
    {10, RULE_ADDRESS, 80, 0}, /* last_state */
    {10, RULE_ADDRESS, 84, 0}, /* y */
    {10, RULE_CHOICE, 88, 11}, /* y_dtype */
    {11, RULE_ADDRESS, 24, 0}, /* x */
    {11, RULE_ADDRESS, 28, 0}, /* y */
    {11, RULE_ADDRESS, 32, 0}, /* constants */
    {11, RULE_CHOICE, 72, 2}, /* coupled */
    {11, RULE_CHOICE, 73, 2}, /* norm */
    {11, RULE_CHOICE, 74, 2}, /* projected */
    {11, RULE_CHOICE, 75, 7}, /* integer_bits */
    {16, RULE_ADDRESS, 24, 0}, /* x */
    {16, RULE_ADDRESS, 28, 0}, /* y */
    {16, RULE_WIDTH, 32, 0}, /* bytes */
    {17, RULE_ADDRESS, 24, 0}, /* y */
    {17, RULE_WIDTH, 28, 0}, /* bytes */
    {18, RULE_ADDRESS, 24, 0}, /* x */
    {18, RULE_ADDRESS, 28, 0}, /* y */
    {18, RULE_ADDRESS, 32, 0}, /* index */
    {18, RULE_WIDTH, 36, 0}, /* bytes */
    {20, RULE_ADDRESS, 24, 0}, /* x */
    {20, RULE_CHOICE, 28, 11}, /* x_dtype */
    {20, RULE_ADDRESS, 36, 0}, /* b */
    {20, RULE_CHOICE, 40, 11}, /* b_dtype */
    {20, RULE_ADDRESS, 96, 0}, /* y */
    {20, RULE_CHOICE, 100, 11}, /* y_dtype */
    {20, RULE_CHOICE, 101, 5}, /* kind */
    {20, RULE_CHOICE, 102, 2}, /* subtract */
    {21, RULE_ADDRESS, 24, 0}, /* x */
    {21, RULE_CHOICE, 28, 11}, /* x_dtype */
    {21, RULE_ADDRESS, 36, 0}, /* b */
    {21, RULE_CHOICE, 40, 11}, /* b_dtype */
    {21, RULE_ADDRESS, 96, 0}, /* y */
    {21, RULE_CHOICE, 100, 11}, /* y_dtype */
    {21, RULE_CHOICE, 101, 5}, /* kind */
    {21, RULE_ADDRESS, 108, 0}, /* multiplier */
    {21, RULE_ADDRESS, 112, 0}, /* shift */
    {22, RULE_ADDRESS, 24, 0}, /* x */
    {22, RULE_CHOICE, 28, 11}, /* x_dtype */
    {22, RULE_ADDRESS, 40, 0}, /* y */
    {22, RULE_CHOICE, 44, 11}, /* y_dtype */
    {22, RULE_CHOICE, 45, 5}, /* kind */
    {22, RULE_ADDRESS, 52, 0}, /* multiplier */
    {22, RULE_ADDRESS, 56, 0}, /* shift */
    {23, RULE_ADDRESS, 24, 0}, /* x */
    {23, RULE_CHOICE, 28, 11}, /* x_dtype */
    {23, RULE_ADDRESS, 48, 0}, /* table */
    {23, RULE_ADDRESS, 52, 0}, /* y */
    {23, RULE_CHOICE, 56, 11}, /* y_dtype */
    {23, RULE_CHOICE, 57, 16}, /* segments */
    {24, RULE_ADDRESS, 24, 0}, /* x */
    {24, RULE_CHOICE, 28, 11}, /* x_dtype */
    {24, RULE_ADDRESS, 36, 0}, /* b */
    {24, RULE_CHOICE, 88, 2}, /* larger */
    {24, RULE_ADDRESS, 92, 0}, /* y */
    {24, RULE_CHOICE, 96, 11}, /* y_dtype */
    {25, RULE_ADDRESS, 24, 0}, /* x */
    {25, RULE_CHOICE, 28, 11}, /* x_dtype */
    {25, RULE_ADDRESS, 40, 0}, /* y */
    {25, RULE_CHOICE, 44, 11}, /* y_dtype */
    {25, RULE_CHOICE, 52, 3}, /* rounding */
    {28, RULE_ADDRESS, 24, 0}, /* x */
    {28, RULE_CHOICE, 28, 11}, /* x_dtype */
    {28, RULE_ADDRESS, 76, 0}, /* y */
    {28, RULE_CHOICE, 80, 11}, /* y_dtype */
    {29, RULE_ADDRESS, 24, 0}, /* x */
    {29, RULE_CHOICE, 28, 11}, /* x_dtype */
    {29, RULE_CHOICE, 76, 2}, /* include_pad */
    {29, RULE_ADDRESS, 80, 0}, /* y */
    {29, RULE_CHOICE, 84, 11}, /* y_dtype */
    {29, RULE_CHOICE, 85, 5}, /* kind */
    {29, RULE_ADDRESS, 92, 0}, /* multiplier */
    {29, RULE_ADDRESS, 96, 0}, /* shift */
    {30, RULE_ADDRESS, 24, 0}, /* x */
    {30, RULE_CHOICE, 28, 11}, /* x_dtype */
    {30, RULE_CHOICE, 36, 6}, /* mode */
    {30, RULE_CHOICE, 37, 2}, /* last */
    {30, RULE_ADDRESS, 52, 0}, /* y */
    {30, RULE_CHOICE, 56, 11}, /* y_dtype */
    {30, RULE_CHOICE, 57, 5}, /* kind */
    {30, RULE_ADDRESS, 64, 0}, /* multiplier */
    {30, RULE_ADDRESS, 68, 0}, /* shift */
    {38, RULE_ADDRESS, 24, 0}, /* x */
    {38, RULE_CHOICE, 28, 11}, /* x_dtype */
    {38, RULE_CHOICE, 36, 2}, /* places */
    {38, RULE_CHOICE, 37, 2}, /* largest */
    {38, RULE_ADDRESS, 56, 0}, /* y */
    {38, RULE_CHOICE, 60, 11}, /* y_dtype */
    {31, RULE_ADDRESS, 24, 0}, /* x */
    {31, RULE_CHOICE, 28, 11}, /* x_dtype */
    {31, RULE_CHOICE, 44, 4}, /* form */
    {31, RULE_ADDRESS, 48, 0}, /* coarse */
    {31, RULE_ADDRESS, 52, 0}, /* fine */
    {31, RULE_CHOICE, 68, 3}, /* rounding */
    {31, RULE_ADDRESS, 72, 0}, /* y */
    {31, RULE_CHOICE, 76, 11}, /* y_dtype */
    {32, RULE_ADDRESS, 24, 0}, /* x */
    {32, RULE_CHOICE, 28, 11}, /* x_dtype */
    {32, RULE_CHOICE, 44, 4}, /* form */
    {32, RULE_CHOICE, 45, 2}, /* center */
    {32, RULE_ADDRESS, 72, 0}, /* gain */
    {32, RULE_ADDRESS, 76, 0}, /* bias */
    {32, RULE_CHOICE, 84, 3}, /* rounding */
    {32, RULE_ADDRESS, 88, 0}, /* y */
    {32, RULE_CHOICE, 92, 11}, /* y_dtype */
    {33, RULE_ADDRESS, 24, 0}, /* x */
    {33, RULE_CHOICE, 28, 11}, /* x_dtype */
    {33, RULE_ADDRESS, 60, 0}, /* rows */
    {33, RULE_ADDRESS, 64, 0}, /* columns */
    {33, RULE_CHOICE, 69, 3}, /* rounding */
    {33, RULE_ADDRESS, 72, 0}, /* y */
    {33, RULE_CHOICE, 76, 11}, /* y_dtype */
    {64, RULE_ADDRESS, 56, 0}, /* x */
    {64, RULE_ADDRESS, 64, 0}, /* b */
    {64, RULE_ADDRESS, 72, 0}, /* constants */
    {64, RULE_ADDRESS, 80, 0}, /* y */
    {64, RULE_WIDTH, 156, 0}, /* bytes */
    {65, RULE_ADDRESS, 56, 0}, /* x */
    {65, RULE_ADDRESS, 64, 0}, /* b */
    {65, RULE_ADDRESS, 72, 0}, /* constants */
    {65, RULE_ADDRESS, 80, 0}, /* y */
    {65, RULE_ADDRESS, 88, 0}, /* workspace */
    {65, RULE_WIDTH, 100, 0}, /* bytes */
    {66, RULE_ADDRESS, 136, 0}, /* constants */
    {66, RULE_ADDRESS, 144, 0}, /* local_workspace */
    {66, RULE_WIDTH, 156, 0}, /* bytes */
};

_Static_assert(sizeof(npuc_file_header) == 64, "records have the layout of the file");
_Static_assert(sizeof(npuc_file_segment) == 32, "records have the layout of the file");
_Static_assert(sizeof(npuc_file_tensor) == 80, "records have the layout of the file");
_Static_assert(sizeof(npuc_file_subgraph) == 32, "records have the layout of the file");
_Static_assert(sizeof(npuc_file_conversion) == 16, "records have the layout of the file");
_Static_assert(sizeof(npuc_file_layer) == 8, "records have the layout of the file");
_Static_assert(sizeof(npuc_file_allocation) == 32, "records have the layout of the file");
_Static_assert(sizeof(npuc_file_state) == 8, "records have the layout of the file");
_Static_assert(sizeof(npuc_file_entry) == 8, "records have the layout of the file");
_Static_assert(sizeof(npuc_file_signature) == 104, "records have the layout of the file");
_Static_assert(sizeof(npuc_elf_header) == 64, "records have the layout of the file");
_Static_assert(sizeof(npuc_elf_section) == 64, "records have the layout of the file");
_Static_assert(sizeof(npuc_elf_program) == 56, "records have the layout of the file");

#endif /* NPUC_FILE_RULES_H */
