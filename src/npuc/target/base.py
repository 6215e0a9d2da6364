"""What all parts of a target have in common: frozen, strict about types, and no field that is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

from npuc.arithmetic.dtypes import MACHINE_TYPES, dtype_of


class Part(BaseModel):
    """A part of a target."""

    # The schema of a part is made with that of the whole, once.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


_TYPES = [dtype_of(name) for name in MACHINE_TYPES]
_INTEGERS = [dtype for dtype in _TYPES if not (dtype.is_float or dtype.is_block)]
FLOATS = tuple(dtype.short for dtype in _TYPES if dtype not in _INTEGERS)
"""The floating-point types, those of blocks included."""

if TYPE_CHECKING:
    IntegerType = str
    FloatType = str
    ElementType = str
else:  # the names come from the one table of element types, which a type checker cannot read
    IntegerType = Literal[tuple(dtype.short for dtype in _INTEGERS)]
    FloatType = Literal[FLOATS]
    ElementType = Literal[tuple(dtype.short for dtype in _TYPES)]

RANGES: dict[str, tuple[int, int]] = {dtype.short: dtype.limits for dtype in _INTEGERS}
"""Least and greatest value of the integer types."""

Sentence = Annotated[str, StringConstraints(strip_whitespace=True, min_length=3, max_length=400)]
"""Words that a user reads."""
