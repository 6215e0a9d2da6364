"""Python values to MLIR attributes and back.

Passes and importers speak Python (`op.strides == (1, 1)`); the IR stores attributes. These two functions are the only
place where one becomes the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DenseArrayBase,
    DictionaryAttr,
    FloatAttr,
    IntAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    f64,
    i64,
)
from xdsl.ir import Attribute

Native = bool | int | float | str | tuple["Native", ...] | dict[str, "Native"] | None


def to_attribute(value: Any) -> Attribute:
    """The attribute that stands for a Python value.

    Tuples and lists of integers are dense arrays, other sequences `ArrayAttr`: xDSL prints dense floats that it cannot
    read again.

    >>> str(to_attribute((1, 2)))
    'array<i64: 1, 2>'
    """
    match value:
        case Attribute():
            return value
        case bool():
            return BoolAttr.from_bool(value)
        case int():
            return IntegerAttr(value, i64)
        case float():
            return FloatAttr(value, f64)
        case str():
            return StringAttr(value)
        case Mapping():
            return DictionaryAttr({str(key): to_attribute(item) for key, item in value.items()})
        case tuple() | list():
            if all(type(item) is int for item in value):
                return DenseArrayBase.from_list(i64, value)
            return ArrayAttr([to_attribute(item) for item in value])
    raise TypeError(f"no attribute for a {type(value).__name__}")


@lru_cache(maxsize=1 << 14)
def _values(attribute: DenseArrayBase[Any]) -> tuple[Any, ...]:
    return tuple(attribute.get_values())


def to_native(attribute: Attribute) -> Any:
    """The Python value that an attribute stands for.

    >>> to_native(to_attribute({"a": (1.5, 2.5)}))
    {'a': (1.5, 2.5)}
    """
    match attribute:
        case IntegerAttr():
            kind = attribute.type
            if isinstance(kind, IntegerType) and kind.width.data == 1:
                return bool(attribute.value.data)
            return attribute.value.data
        case IntAttr() | FloatAttr():
            return attribute.data if isinstance(attribute, IntAttr) else attribute.value.data
        case StringAttr():
            return attribute.data
        case SymbolRefAttr():
            return ".".join(
                (attribute.root_reference.data, *(part.data for part in attribute.nested_references))
            )
        case DenseArrayBase():
            return _values(attribute)
        case DictionaryAttr():
            return {key: to_native(item) for key, item in attribute.data.items()}
        case ArrayAttr():
            return tuple(to_native(item) for item in attribute.data)
        case UnitAttr():
            return True
    raise TypeError(f"no Python value for {attribute}")
