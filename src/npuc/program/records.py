"""Records of fixed little-endian layout, from a list of fields: what NumPy and C read alike.

Fields lie in the order of the list, each at a multiple of its own size, as a C compiler lays out a struct; a record ends at
a multiple of eight bytes. Lists leave no hole, so that every byte of a record has a name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from npuc.program.isa import Field

_C_TYPES = {
    "u1": "uint8_t",
    "u2": "uint16_t",
    "u4": "uint32_t",
    "u8": "uint64_t",
    "i4": "int32_t",
    "i8": "int64_t",
    "f8": "double",
}


@dataclass(frozen=True)
class Record:
    """A kind of record."""

    name: str
    doc: str
    fields: tuple[Field, ...]

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The record as NumPy reads it."""
        names, formats, offsets, at = [], [], [], 0
        for field in self.fields:
            kind = np.dtype(field.type).newbyteorder("<")
            if at % kind.itemsize:
                raise ValueError(f"there is a hole before {field.name} of {self.name}")
            names.append(field.name)
            formats.append((kind, (field.count,)) if field.count > 1 else kind)
            offsets.append(at)
            at += kind.itemsize * field.count
        if at % 8:
            raise ValueError(f"{self.name} ends at byte {at}")
        return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": at})

    @property
    def size(self) -> int:
        """Bytes."""
        return self.dtype.itemsize

    def make(self, rows: Sequence[Sequence[Any]]) -> np.ndarray[Any, Any]:
        """Records of these values; a value that does not fit its field is an OverflowError."""
        records = np.zeros(len(rows), self.dtype)
        for field, column in zip(self.fields, zip(*rows, strict=True), strict=bool(rows)):
            # As objects: NumPy would choose one type for all of them, and cut down what does not fit a field.
            values = np.array(column, object)
            records[field.name] = values
            if not np.array_equal(records[field.name], values):
                raise OverflowError(f"a value does not fit '{field.name}' of {self.name}")
        return records

    def struct(self) -> str:
        """The record as C reads it."""
        lines = [f"/* {self.doc} */", "typedef struct npuc_" + self.name + " {"]
        for field in self.fields:
            count = f"[{field.count}]" if field.count > 1 else ""
            comment = f" /* {field.doc} */" if field.doc else ""
            lines.append(f"    {_C_TYPES[field.type]} {field.name}{count};{comment}")
        return "\n".join([*lines, f"}} npuc_{self.name};"])
