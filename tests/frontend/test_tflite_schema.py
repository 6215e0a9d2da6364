"""The schema as data against the accessors of the `tflite` package, number by number, and vectors, texts and tables of a file."""

from __future__ import annotations

import struct
from importlib import import_module
from typing import Any

import flatbuffers
import pytest

from npuc.errors import FileFormatError
from npuc.frontend.tflite.schema import TABLES
from npuc.frontend.tflite.view import FlatbufferView

_NUMBERS = {name for name, fields in TABLES.items() if any(len(form) == 1 for _, form, _ in fields.values())}


def _table(kind: str, given: bool) -> tuple[bytes, Any, FlatbufferView]:
    """A table whose numbers are given, or absent: its bytes, and both ways to read it."""
    numbers = {name: field for name, field in TABLES[kind].items() if len(field[1]) == 1}
    builder = flatbuffers.Builder(64)
    builder.StartObject(max(slot for slot, *_ in TABLES[kind].values()) // 2 - 1)
    for index, (slot, form, absent) in enumerate(numbers.values()):
        if given:
            value: Any = not absent if form == "?" else index + 2
            builder.Prep(struct.calcsize(form), 0)
            builder.head -= struct.calcsize(form)
            struct.pack_into(f"<{form}", builder.Bytes, builder.head, value)
            builder.Slot(slot // 2 - 2)
    builder.Finish(builder.EndObject())
    data = bytes(builder.Output())
    (at,) = struct.unpack_from("<I", data)
    theirs = getattr(import_module(f"tflite.{kind}"), kind).GetRootAs(data, 0)
    return data, theirs, FlatbufferView(data, at, kind, kind)


@pytest.mark.parametrize("given", [True, False])
def test_every_number_of_every_table_is_where_the_package_reads_it(given: bool) -> None:
    read = 0
    for kind in sorted(_NUMBERS):
        _, theirs, ours = _table(kind, given)
        for name, (_, form, _) in TABLES[kind].items():
            # Theirs gives the older number of an operator, where the newer is a small one.
            if len(form) == 1 and (kind, name) != ("OperatorCode", "BuiltinCode"):
                assert ours.number(name) == getattr(theirs, name)(), f"{kind}.{name}"
                read += 1
    assert read > 150


def test_a_table_that_is_cut_short_is_refused() -> None:
    data, _, _ = _table("Conv2DOptions", True)
    (at,) = struct.unpack_from("<I", data)
    for size in range(at, len(data)):
        with pytest.raises(FileFormatError):
            FlatbufferView(data[:size], at, "Conv2DOptions", "x")
