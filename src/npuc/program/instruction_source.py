"""The module of typed instructions, made from the table in `isa.py`: a frozen record for every instruction and every group
of fields.

`python -m npuc.cli.gendocs` writes src/npuc/program/instructions.py; a test fails if it is stale.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from npuc.program.isa import GROUPS, INSTRUCTIONS, Field, FieldGroup, Instruction

_TOP = '''\
"""Typed instructions: a frozen record for every instruction of the table, with the table's own names.

Made by `make docs` from src/npuc/program/isa.py. Do not edit. What instructions have in common is in `instruction.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from npuc.program.instruction import Address, TypedInstruction, record

'''


def class_name(name: str) -> str:
    """What the record of an instruction or of a group is called.

    >>> class_name("max_pool")
    'MaxPool'
    """
    return "".join(word.capitalize() for word in name.split("_"))


def instructions_source() -> str:
    """The text of src/npuc/program/instructions.py."""
    lines = [_TOP]
    for group in GROUPS:
        lines += [*_record(group), "", ""]
    for instruction in INSTRUCTIONS:
        lines += [*_instruction(instruction), "", ""]
    names = ", ".join(class_name(instruction.name) for instruction in INSTRUCTIONS)
    lines += [
        "INSTRUCTIONS: tuple[type[TypedInstruction], ...] = (",
        *wrap(names + ",", 110, initial_indent="    ", subsequent_indent="    "),
        ")",
        '"""All records of instructions, in the order of the table."""',
        "BY_NAME = {kind.name: kind for kind in INSTRUCTIONS}",
        "BY_OPCODE = {kind.opcode: kind for kind in INSTRUCTIONS}",
    ]
    return "\n".join(lines) + "\n"


def _record(group: FieldGroup) -> Iterator[str]:
    yield "@record"
    yield f"class {class_name(group.name)}:"
    yield f'    """{group.doc}"""'
    yield ""
    for field in group.fields:
        yield from _member(field)


def _instruction(instruction: Instruction) -> Iterator[str]:
    yield "@record"
    yield f"class {class_name(instruction.name)}(TypedInstruction):"
    yield f'    """{instruction.doc}"""'
    yield ""
    yield f'    name: ClassVar[str] = "{instruction.name}"'
    yield f"    opcode: ClassVar[int] = {instruction.opcode}"
    yield f'    queue: ClassVar[str] = "{instruction.queue}"'
    places = ", ".join(map(str, _addresses(instruction)))
    yield f"    addresses: ClassVar[tuple[int, ...]] = ({places}{',' if len(_addresses(instruction)) == 1 else ''})"
    if far := _far_addresses(instruction):
        yield f"    far_addresses: ClassVar[tuple[tuple[int, int], ...]] = {tuple(far)}"
    for part in instruction.parts:
        if isinstance(part, FieldGroup):
            yield f"    {part.name}: {class_name(part.name)}"
        else:
            yield from _member(part)
    yield ""
    yield "    def numbers(self) -> list[Any]:"
    yield '        """Its fields behind the head in the order of the table."""'
    groups = [part for part in instruction.parts if isinstance(part, FieldGroup)]
    for group in groups:
        yield f"        {group.name} = self.{group.name}"
    reads = []
    for part in instruction.parts:
        owner = part.name if isinstance(part, FieldGroup) else "self"
        fields = part.fields if isinstance(part, FieldGroup) else (part,)
        reads += [f"{'*' if field.count > 1 else ''}{owner}.{field.name}" for field in fields]
    yield from _call("        return [", reads, "]")
    yield ""
    yield "    @classmethod"
    yield "    def of(cls, n: Sequence[Any]) -> Self:"
    yield '        """The instruction of such numbers."""'
    arguments, at = [], 0
    for part in instruction.parts:
        fields = part.fields if isinstance(part, FieldGroup) else (part,)
        taken = []
        for field in fields:
            taken.append(f"tuple(n[{at}:{at + field.count}])" if field.count > 1 else f"n[{at}]")
            at += field.count
        together = ", ".join(taken)
        arguments.append(f"{class_name(part.name)}({together})" if isinstance(part, FieldGroup) else together)
    yield from _call("        return cls(", arguments, ")")


def _call(begin: str, items: list[str], end: str) -> Iterator[str]:
    yield begin
    yield from wrap(
        ", ".join(items) + ",",
        118,
        initial_indent=" " * 12,
        subsequent_indent=" " * 12,
        break_long_words=False,
        break_on_hyphens=False,
    )
    yield " " * 8 + end


def _member(field: Field) -> Iterator[str]:
    kind = "Address" if field.address or field.far else "tuple[int, ...]" if field.count > 1 else "int"
    yield f"    {field.name}: {kind}"
    if field.doc:
        first = field.doc.split()[0].rstrip(":;,.")
        text = field.doc[0].upper() + field.doc[1:] if first.isalpha() and len(first) > 1 else field.doc
        yield f'    """{text}."""'


def _addresses(instruction: Instruction) -> list[int]:
    addresses, at = [], 0
    for field in instruction.fields:
        if field.address:
            addresses.append(at)
        at += field.count
    return addresses


def _far_addresses(instruction: Instruction) -> list[tuple[int, int]]:
    """The places of bytes of segments, each with the place of its segment."""
    at, places = 0, {}
    for field in instruction.fields:
        places[field.name] = at
        at += field.count
    return [
        (places[field.name], places[f"{field.name}_segment"]) for field in instruction.fields if field.far
    ]
