"""Python values to MLIR attributes and back.

Passes and importers speak Python (`op.strides == (1, 1)`); the IR stores attributes. These two functions are the only
place where one becomes the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


def to_attribute(value: Any) -> Attribute:
    """The attribute that stands for a Python value.

    Tuples and lists of integers are dense arrays, other sequences `ArrayAttr`: xDSL prints dense floats that it cannot
    read again.

    >>> str(to_attribute((1, 2)))
    'array<i64: 1, 2>'
    """
    if type(value) is int:
        return _integer(value)
    match value:
        case Attribute():
            return value
        case bool():
            return BoolAttr.from_bool(value)
        case int():
            return _integer(int(value))
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
def _integer(value: int) -> Attribute:
    # Attributes are values: one object serves all that are equal, and is checked once.
    return IntegerAttr(value, i64)


@lru_cache(maxsize=1 << 14)
def _values(attribute: DenseArrayBase[Any]) -> tuple[Any, ...]:
    return tuple(attribute.get_values())


def to_native(attribute: Attribute) -> Any:
    """The Python value that an attribute stands for.

    >>> to_native(to_attribute({"a": (1.5, 2.5)}))
    {'a': (1.5, 2.5)}
    """
    read = _READERS.get(type(attribute))
    if read is None:
        raise TypeError(f"no Python value for {attribute}")
    return read(attribute)


def _number(attribute: IntegerAttr[Any]) -> int:
    kind = attribute.type
    if isinstance(kind, IntegerType) and kind.width.data == 1:
        return bool(attribute.value.data)
    return attribute.value.data


# A table, since properties are read all the time, and a chain of `isinstance` asks the metaclass of each kind.
_READERS: dict[type[Attribute], Callable[[Any], Any]] = {
    IntegerAttr: _number,
    IntAttr: lambda attribute: attribute.data,
    FloatAttr: lambda attribute: attribute.value.data,
    StringAttr: lambda attribute: attribute.data,
    SymbolRefAttr: SymbolRefAttr.string_value,
    DenseArrayBase: _values,
    DictionaryAttr: lambda attribute: {key: to_native(item) for key, item in attribute.data.items()},
    ArrayAttr: lambda attribute: tuple(to_native(item) for item in attribute.data),
    UnitAttr: lambda attribute: True,
}
