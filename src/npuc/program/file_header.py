"""The C side of the `.npu` format, made from its tables: npuc/file.h, and the rules by which C checks instructions.

`python -m npuc.cli.gendocs` writes both; a test fails if either is stale.
"""

from __future__ import annotations

from npuc.format_versions import NPU_FILE
from npuc.program import checksums, elf, layout
from npuc.program.checks import rules
from npuc.program.isa import ROUNDINGS

_RECORDS = (
    *layout.TABLES.values(),
    layout.STATE,
    layout.ENTRY,
    layout.SIGNATURE_RECORD,
    elf.HEADER,
    elf.SECTION,
    elf.PROGRAM,
)
_TOP = """\
/*
 * npuc: the tables of a .npu file, made by `make docs` from src/npuc/program/layout.py and elf.py. Do not edit.
 *
 * All numbers are little-endian, and every record starts at a multiple of eight bytes. A `name` is a place in the section
 * .npu.strings. docs/file-format.md has the whole format; npuc/reader.h reads it.
 */
#ifndef NPUC_FILE_H
#define NPUC_FILE_H

#include <stdint.h>
"""
_RULES_TOP = """\
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
"""


def file_header() -> str:
    """The text of native/include/npuc/file.h."""
    lines = [
        _TOP,
        f"#define NPUC_FILE_VERSION {layout.VERSION} /* the newest that is read */",
        f"#define NPUC_FILE_OLDEST {NPU_FILE.oldest} /* the oldest */",
        f"#define NPUC_FILE_ALIGNMENT {layout.ALIGNMENT} /* of segments and tensors */",
        f"#define NPUC_FILE_PAGE {layout.PAGE} /* of the weights in the file */",
        f"#define NPUC_FILE_AXES {layout.MOST_AXES}",
        f"#define NPUC_FILE_LARGEST ((uint64_t)1 << {layout.LARGEST.bit_length() - 1}) /* bytes of a segment */",
        f"#define NPUC_FILE_DIGEST {checksums.BYTES} /* bytes of a SHA-256 */",
        f"#define NPUC_FILE_CHUNK {checksums.CHUNK} /* bytes of the file that have a digest of their own */",
        f"#define NPUC_FILE_ROUNDINGS {len(ROUNDINGS)} /* of a conversion */",
        f"#define NPUC_FILE_ENTRIES {layout.MOST_ENTRIES} /* of a program, at most */",
        f"#define NPUC_FILE_STATES {layout.MOST_STATES} /* of a model, at most */",
        f"#define NPUC_FILE_STREAM_TENSORS {layout.MOST_STREAM_TENSORS} /* inputs and outputs of a model with states, at most */",
        f"#define NPUC_ELF_MACHINE 0x{elf.MACHINE:04X}",
        f"#define NPUC_ELF_TYPE {elf.TYPE}",
        f"#define NPUC_ELF_SECTIONS 0x{elf.MOST_SECTIONS:04X} /* a file has fewer */",
        "",
        *_enum("segment_kind", layout.SEGMENT_KINDS),
        *_enum("subgraph_kind", layout.SUBGRAPH_KINDS),
        *_enum("tensor_dtype", layout.TENSOR_DTYPES),
        "/* Bits of an element, by npuc_tensor_dtype. */",
        f"#define NPUC_TENSOR_BITS {{{', '.join(str(bits) for bits in layout.TENSOR_BITS)}}}",
        "",
    ]
    for record in _RECORDS:
        lines += [record.struct(), ""]
    return "\n".join([*lines, "#endif /* NPUC_FILE_H */"]) + "\n"


def file_rules() -> str:
    """The text of native/src/file_rules.h."""
    lines = [
        f"    {{{rule.opcode}, RULE_{rule.what.upper()}, {rule.offset}, {rule.limit}}}, /* {rule.name} */"
        for rule in rules()
    ]
    sizes = [
        f'_Static_assert(sizeof(npuc_{record.name}) == {record.size}, "records have the layout of the file");'
        for record in _RECORDS
    ]
    return "\n".join(
        [_RULES_TOP + "\n".join(lines), "};", "", *sizes, "", "#endif /* NPUC_FILE_RULES_H */", ""]
    )


def _enum(name: str, values: tuple[str, ...]) -> list[str]:
    prefix = f"NPUC_{name.split('_', maxsplit=1)[0].upper()}"
    members = [f"    {prefix}_{value.upper()} = {number}," for number, value in enumerate(values)]
    return [
        f"typedef enum npuc_{name} {{",
        *members,
        f"    {prefix}_{name.split('_')[1].upper()}S = {len(values)}",
        f"}} npuc_{name};",
        "",
    ]
