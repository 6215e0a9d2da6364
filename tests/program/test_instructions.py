"""Typed instructions: what the table of the instruction set says, as records."""

from __future__ import annotations

import struct
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from npuc.program.instruction import Head, Place, TypedInstruction, decode, encode
from npuc.program.instructions import BY_NAME, INSTRUCTIONS, Conv, Fill, Load, Transfer
from npuc.program.isa import INSTRUCTIONS as TABLE
from npuc.program.isa import QUEUES, RECORD, Field, FieldGroup


def some_numbers(instruction: Any) -> list[int]:
    """Numbers that differ, as far as the types of the fields let them."""
    found: list[int] = []
    for field in instruction.fields:
        limit = np.iinfo(np.dtype(field.type)).max
        found += [(len(found) * 37 + k + 1) % limit for k in range(field.count)]
    return found


def test_the_table_and_the_records_have_the_same_instructions_and_fields() -> None:
    assert [kind.name for kind in INSTRUCTIONS] == [one.name for one in TABLE]
    for kind, one in zip(INSTRUCTIONS, TABLE, strict=True):
        assert (kind.opcode, kind.queue) == (one.opcode, one.queue)
        assert [field.name for field in fields(kind)] == [part.name for part in one.parts]


@pytest.mark.parametrize("one", TABLE, ids=lambda one: one.name)
def test_a_record_is_encoded_as_numpy_reads_it(one: Any) -> None:
    instruction = BY_NAME[one.name].of(some_numbers(one))
    head = Head("vector", 12, (1, 2, 3, 4), 2)
    record = encode(instruction, head)
    assert len(record) == RECORD and decode(record) == (head, instruction)
    read = np.frombuffer(record, one.dtype)[0]
    assert (read["opcode"], QUEUES[read["queue"]], read["layer"], read["flags"]) == (
        one.opcode,
        "vector",
        12,
        2,
    )
    assert read["wait"].tolist() == [1, 2, 3, 4]
    for name, value in instruction.fields().items():
        assert np.array_equal(read[name], value), name


def test_shared_fields_are_one_record_and_addresses_are_known() -> None:
    conv = Conv.of(some_numbers(TABLE[[one.name for one in TABLE].index("conv")]))
    wider = replace(conv, sizes=replace(conv.sizes, w=9))
    assert wider != conv and wider.stage is conv.stage and wider.fields()["w"] == 9
    for kind, one in zip(INSTRUCTIONS, TABLE, strict=True):
        names = [field.name for field in one.fields for _ in range(field.count)]
        addresses = {field.name for field in one.fields if field.address}
        assert {names[at] for at in kind.addresses} == addresses


def test_a_number_that_does_not_fit_its_field_is_refused() -> None:
    with pytest.raises(struct.error):
        encode(Fill(y=0, bytes=256, count=1, value=0), Head("vector", 0))
    transfer = Transfer(0, -1, 0, (1, 1, 1, 1), (0, 0, 0), (0, 0, 0))
    with pytest.raises(struct.error):
        encode(Load(transfer, 0), Head("load", 0))


def test_an_address_may_be_a_place_until_memory_is_planned() -> None:
    fill = Fill(y=Place("out0", 64), bytes=1, count=4, value=0)
    assert fill.numbers()[fill.addresses[0]] == Place("out0", 64)
    with pytest.raises(struct.error):
        encode(fill, Head("vector", 0))
    with pytest.raises(NotImplementedError):
        TypedInstruction().numbers()


def test_groups_lie_together_in_every_instruction() -> None:
    for one in TABLE:
        names = [field.name for field in one.fields]
        assert len(set(names)) == len(names)
        for part in one.parts:
            if isinstance(part, FieldGroup):
                at = names.index(part.fields[0].name)
                assert one.fields[at : at + len(part.fields)] == part.fields
            else:
                assert isinstance(part, Field)
