"""A message of Caffe's model files, whether it came as text or as protobuf: fields by name, checked when they are read.

Enumerations are their names, nested messages are `CaffeMessage`, and the numbers of a blob are bytes of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from npuc.errors import InvalidModelError

Integers = tuple[int, ...]
Numbers = tuple[float, ...]


class Name(str):
    """An identifier in the text form: the name of an enumeration's value, `true` or `false`."""


@dataclass(frozen=True)
class CaffeMessage:
    """Fields by name, each a list of what was given for it."""

    fields: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    label: str = "the network"
    """How errors speak of it."""

    def has(self, name: str) -> bool:
        """True if the field is given."""
        return bool(self.fields.get(name))

    def _last(self, name: str) -> Any:
        return self.fields[name][-1]

    def _bad(self, name: str, what: str) -> InvalidModelError:
        return InvalidModelError(f"{self.label}: '{name}' is not {what}")

    def _int(self, name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not -(2**31) <= value < 2**32:
            raise self._bad(name, "an integer")
        return value

    def _float(self, name: str, value: Any) -> float:
        if isinstance(value, Name) and value.lower() in ("inf", "infinity", "nan"):
            raise self._bad(name, "a finite number")
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise self._bad(name, "a number")
        return float(value)

    def int(self, name: str, default: int = 0) -> int:
        """An integer."""
        return self._int(name, self._last(name)) if self.has(name) else default

    def float(self, name: str, default: float = 0.0) -> float:
        """A number."""
        return self._float(name, self._last(name)) if self.has(name) else default

    def bool(self, name: str, default: bool = False) -> bool:
        """True or false."""
        if not self.has(name):
            return default
        value = self._last(name)
        words = {"true": True, "t": True, "false": False, "f": False, "1": True, "0": False}
        flag = words.get(str(value).lower())
        if flag is None:
            raise self._bad(name, "true or false")
        return flag

    def string(self, name: str, default: str = "") -> str:
        """A text."""
        if not self.has(name):
            return default
        value = self._last(name)
        if not isinstance(value, str):
            raise self._bad(name, "a text")
        return str(value)

    def enum(self, name: str, values: Sequence[str], default: str) -> str:
        """The name of an enumeration's value; a number counts from the first."""
        if not self.has(name):
            return default
        value = self._last(name)
        if isinstance(value, int) and 0 <= value < len(values):
            return values[value]
        if not isinstance(value, str) or value not in values:
            raise self._bad(name, f"one of {', '.join(values)}")
        return str(value)

    def ints(self, name: str) -> Integers:
        """A list of integers."""
        return tuple(self._int(name, value) for value in self.fields.get(name, ()))

    def floats(self, name: str) -> Numbers:
        """A list of numbers."""
        return tuple(self._float(name, value) for value in self.fields.get(name, ()))

    def strings(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        values = self.fields.get(name, ())
        if not all(isinstance(value, str) for value in values):
            raise self._bad(name, "a text")
        return tuple(str(value) for value in values)

    def messages(self, name: str) -> tuple[CaffeMessage, ...]:
        """A list of messages."""
        values = self.fields.get(name, ())
        if not all(isinstance(value, CaffeMessage) for value in values):
            raise self._bad(name, "a message { ... }")
        return tuple(CaffeMessage(value.fields, self.label) for value in values)

    def message(self, name: str) -> CaffeMessage:
        """A message; one without fields if it is not given. Given twice, the later fields go on top."""
        messages = self.messages(name)
        if len(messages) < 2:
            return messages[0] if messages else CaffeMessage({}, self.label)
        merged: dict[str, list[Any]] = {}
        for message in messages:
            for key, values in message.fields.items():
                merged.setdefault(key, []).extend(values)
        return CaffeMessage(merged, self.label)
