"""Arguments and results of a call as a flat list of tensors and a description that is plain data.

A saved module has to give what the original gave: a tensor, a tuple, a dictionary of lists. The description is JSON of a few
words, so that reading it runs nothing.

    >>> form, tensors = described({"boxes": [1.5, 2.5], "count": 3}, lambda value: isinstance(value, float))
    >>> form
    {'dict': [['boxes', {'list': [{'tensor': 0}, {'tensor': 1}]}], ['count', {'value': 3}]]}
    >>> rebuilt(form, ["a", "b"])
    {'boxes': ['a', 'b'], 'count': 3}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from npuc.errors import FileFormatError, UsageError

Form = dict[str, Any]
"""One of `tensor` (its number), `value` (a constant), `tuple`, `list` and `dict` (pairs of key and form)."""

_PLAIN = (type(None), bool, int, float, str)
_DEEPEST = 32


def described(value: Any, is_tensor: Callable[[Any], bool]) -> tuple[Form, list[Any]]:
    """The form of a value, and its tensors in order. Tuples with names become tuples, mappings dictionaries."""
    tensors: list[Any] = []

    def form(part: Any) -> Form:
        if is_tensor(part):
            tensors.append(part)
            return {"tensor": len(tensors) - 1}
        if isinstance(part, _PLAIN):
            return {"value": part}
        if isinstance(part, tuple):
            return {"tuple": [form(each) for each in part]}
        if isinstance(part, list):
            return {"list": [form(each) for each in part]}
        if isinstance(part, Mapping) and all(isinstance(key, str) for key in part):
            return {"dict": [[key, form(each)] for key, each in part.items()]}
        raise UsageError(
            f"an argument or result of type {type(part).__name__} cannot be described",
            fix="Take and return tensors and numbers, in tuples, lists and dictionaries",
        )

    return form(value), tensors


def rebuilt(form: Any, tensors: Sequence[Any], depth: int = 0) -> Any:
    """The value of a form, with these tensors in it."""
    if not isinstance(form, dict) or len(form) != 1 or depth > _DEEPEST:
        raise FileFormatError("the signature of a compiled module is damaged")
    [(word, content)] = form.items()
    if word == "value" and isinstance(content, _PLAIN):
        return content
    if word == "tensor" and isinstance(content, int) and 0 <= content < len(tensors):
        return tensors[content]
    if word in ("tuple", "list") and isinstance(content, list):
        parts = [rebuilt(each, tensors, depth + 1) for each in content]
        return tuple(parts) if word == "tuple" else parts
    if word == "dict" and isinstance(content, list) and all(_is_pair(pair) for pair in content):
        return {key: rebuilt(each, tensors, depth + 1) for key, each in content}
    raise FileFormatError("the signature of a compiled module is damaged")


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)
