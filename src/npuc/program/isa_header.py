"""The C header and the page of the instruction set, both made from the table in `isa.py`.

`python -m npuc.cli.gendocs` writes native/include/npuc/isa.h and docs/isa.md; a test fails if either is stale.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from npuc.program.isa import (
    COMPRESSED,
    DTYPES,
    HEAD,
    INSTRUCTIONS,
    KINDS,
    MULTICAST,
    NONE,
    QUEUES,
    RECORD,
    SPARSE,
    VERSION,
    Field,
    Instruction,
)

_C_TYPES = {
    f"{sign}{size}": f"{'u' if sign == 'u' else ''}int{8 * size}_t" for sign in "iu" for size in (1, 2, 4, 8)
}

_TOP = """\
/*
 * npuc: the instruction set, made by `make docs` from src/npuc/program/isa.py. Do not edit.
 *
 * An instruction is a record of NPUC_RECORD bytes, little-endian: the head, then the fields of its opcode. docs/isa.md has the
 * same table in words. The structs have the layout of the records on every machine whose integers are aligned by their size;
 * copy a record into its struct before reading it.
 */
#ifndef NPUC_ISA_H
#define NPUC_ISA_H

#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus)
#  define NPUC_ISA_CHECK(type) static_assert(sizeof(type) == NPUC_RECORD, "a record has one size")
#else
#  define NPUC_ISA_CHECK(type) _Static_assert(sizeof(type) == NPUC_RECORD, "a record has one size")
#endif
"""


def c_header() -> str:
    """The text of native/include/npuc/isa.h."""
    lines = [
        _TOP,
        f"#define NPUC_ISA_VERSION {VERSION}",
        f"#define NPUC_RECORD {RECORD}",
        f"#define NPUC_NONE 0x{NONE:X}u /* a local address that means: not there */",
        "#define NPUC_SHARED_SEGMENT 255 /* the segment that means the shared memory on the chip */",
        "#define NPUC_ANY_QUEUE 255",
        f"#define NPUC_MULTICAST {MULTICAST} /* the flag of a load that all cores do at the same time */",
        f"#define NPUC_COMPRESSED {COMPRESSED} /* the flag of a load that decodes */",
        f"#define NPUC_SPARSE {SPARSE} /* the flag of a convolution whose weights are sparse */",
        "",
        "/* Queues of a core. */",
        "typedef enum npuc_queue {",
        *(f"    NPUC_QUEUE_{queue.upper()} = {i}," for i, queue in enumerate(QUEUES)),
        f"    NPUC_QUEUES = {len(QUEUES)}",
        "} npuc_queue;",
        "",
        "typedef enum npuc_opcode {",
        ",\n".join(f"    NPUC_OP_{i.name.upper()} = {i.opcode}" for i in INSTRUCTIONS),
        "} npuc_opcode;",
        "",
        "/* X(name, opcode, queue) for every instruction. */",
        "#define NPUC_INSTRUCTIONS(X) \\",
        " \\\n".join(
            f"    X({i.name}, {i.opcode}, {'NPUC_ANY_QUEUE' if i.queue == 'any' else f'NPUC_QUEUE_{i.queue.upper()}'})"
            for i in INSTRUCTIONS
        ),
        "",
        "/* What all records begin with. */",
        "typedef struct npuc_head {",
        *_members(HEAD),
        "} npuc_head;",
        "",
    ]
    for instruction in INSTRUCTIONS:
        lines += [*_struct(instruction), ""]
    lines.append("#endif /* NPUC_ISA_H */")
    return "\n".join(lines) + "\n"


def _members(fields: tuple[Field, ...]) -> Iterator[str]:
    for field in fields:
        array = f"[{field.count}]" if field.count > 1 else ""
        words = f" /* {field.doc} */" if field.doc else ""
        yield f"    {_C_TYPES[field.type]} {field.name}{array};{words}"


def _struct(instruction: Instruction) -> Iterator[str]:
    places = instruction.dtype.fields
    assert places is not None
    end = max(int(place[1]) + place[0].itemsize for place in places.values())
    name = f"npuc_i_{instruction.name}"
    yield f"/* {instruction.doc} */"
    yield f"typedef struct {name} {{"
    yield "    npuc_head head;"
    yield from _members(instruction.fields)
    if end < RECORD:
        yield f"    uint8_t rest[{RECORD - end}];"
    yield f"}} {name};"
    yield f"NPUC_ISA_CHECK({name});"


def isa_page() -> Iterator[str]:
    """The lines of docs/isa.md."""
    yield "# The instruction set\n"
    yield f"Version {VERSION}. A core has four queues ({', '.join(QUEUES)}) that work at the same time, each in order."
    yield f"An instruction is a record of {RECORD} bytes, little-endian; bytes that no field covers are 0. A local address of"
    yield f"0x{NONE:X} means that the operand is not there. [The simulators](simulator.md) say what each instruction checks,"
    yield "[the cycle model](cycles.md) how long it takes.\n"
    yield "Semaphores: each queue counts the instructions that it has finished. An instruction starts when the queues of its"
    yield "core have reached the four counts of its `wait`, and never waits for a later instruction of its stream.\n"
    yield "Codes of element types: " + ", ".join(f"{i} `{name}`" for i, name in enumerate(DTYPES)) + ".\n"
    yield (
        "Codes of requantization kinds: " + ", ".join(f"{i} `{name}`" for i, name in enumerate(KINDS)) + ".\n"
    )
    yield "## Head\n"
    yield "Every record begins with it.\n"
    yield from _table(HEAD, INSTRUCTIONS[0])
    for instruction in INSTRUCTIONS:
        queue = "any queue" if instruction.queue == "any" else f"queue {instruction.queue}"
        yield f"## `{instruction.name}`\n"
        yield f"Opcode {instruction.opcode}, {queue}. {instruction.doc}\n"
        yield from _table(instruction.fields, instruction)


def _table(fields: tuple[Field, ...], instruction: Instruction) -> Iterator[str]:
    places = instruction.dtype.fields
    assert places is not None
    yield "| offset | field | type | meaning |"
    yield "|---:|---|---|---|"
    for field in fields:
        kind = np.dtype(field.type).name + (f"[{field.count}]" if field.count > 1 else "")
        kind = "address" if field.address else kind
        yield f"| {places[field.name][1]} | `{field.name}` | {kind} | {field.doc} |"
    yield ""
