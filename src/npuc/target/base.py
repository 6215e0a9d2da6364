"""What all parts of a target have in common: frozen, strict about types, and no field that is not known."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints


class Part(BaseModel):
    """A part of a target."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


IntegerType = Literal["i4", "i8", "u8", "i16"]
FloatType = Literal["bf16", "f16", "f32"]
ElementType = Literal["i4", "i8", "u8", "i16", "bf16", "f16", "f32"]

BITS: dict[str, int] = {"i4": 4, "i8": 8, "u8": 8, "i16": 16, "bf16": 16, "f16": 16, "f32": 32}
"""Width of each element type."""

RANGES: dict[str, tuple[int, int]] = {
    "i4": (-8, 7),
    "i8": (-128, 127),
    "u8": (0, 255),
    "i16": (-(2**15), 2**15 - 1),
}
"""Least and greatest value of the integer types."""

Sentence = Annotated[str, StringConstraints(strip_whitespace=True, min_length=3, max_length=400)]
"""Words that a user reads."""
