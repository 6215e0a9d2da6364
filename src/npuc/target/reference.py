"""The schema of target files as Markdown, from the models themselves: `docs/target-schema.md` is written by it."""

from __future__ import annotations

import ast
import inspect
import textwrap
import typing
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from npuc.arithmetic.sparsity import SparsityPattern
from npuc.arithmetic.units import Bandwidth, Latency, parse_bytes, parse_frequency
from npuc.target.expressions import FUNCTIONS, Expression
from npuc.target.model import Target
from npuc.target.vocabulary import COMMON, MACHINE, OP_KINDS

_UNITS: dict[Any, str] = {
    parse_bytes: "size, like `2MiB`",
    parse_frequency: "clock rate, like `1GHz`",
    Bandwidth: "bandwidth, like `16GB/s` or `256B/cycle`",
    Latency: "delay, like `200cycles` or `150ns`",
    Fraction: "number or fraction, like `1/4`",
    Expression: "expression",
    SparsityPattern: "pattern, like `2:4`",
    int: "whole number",
    str: "text",
}


def schema_page() -> Iterator[str]:
    """The lines of the page."""
    yield "# Fields of a target file\n"
    yield "What each field means and what it may be; [targets.md](targets.md) shows how files are written and found.\n"
    yield from _group(Target, "")
    yield "## Op kinds and their parameters\n"
    yield f"Every op kind has {_names(COMMON)}."
    yield "Axes count N, C, H, W from 0; sizes that a tensor does not have are 1, and flags are 0 or 1.\n"
    yield "| op kind | further parameters |\n|---|---|"
    kinds_by_parameters: dict[str, list[str]] = {}
    for kind, parameters in OP_KINDS.items():
        own = ", ".join(f"`{name}`" for name in parameters if name not in COMMON) or "none"
        kinds_by_parameters.setdefault(own, []).append(f"`{kind}`")
    for own, kinds in kinds_by_parameters.items():
        yield f"| {', '.join(kinds)} | {own} |"
    yield "\n| parameter | meaning |\n|---|---|"
    meanings = {name: words for parameters in OP_KINDS.values() for name, words in parameters.items()}
    for name in sorted(meanings):
        yield f"| `{name}` | {meanings[name]} |"
    yield "\n## Figures of the machine\n"
    yield f"Expressions may also use {_names(MACHINE)}, and the functions {_names(FUNCTIONS)}.\n"


def _names(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _group(model: type[BaseModel], path: str) -> Iterator[str]:
    if path:
        yield f"## `{path}`\n"
    words = " ".join((model.__doc__ or "").split())
    yield f"{words}\n"
    yield "| field | value | meaning |\n|---|---|---|"
    inner: list[tuple[type[BaseModel], str]] = []
    meanings = _docstrings(model)
    for name, info in model.model_fields.items():
        value = _value(info.annotation, info)
        nested = _model(info.annotation)
        if nested is not None:
            inner.append((nested, _inner_path(path, name, info.annotation)))
        meaning = " ".join(meanings.get(name, "").split())
        default = _default(info)
        yield f"| `{name}` | {value}{default} | {meaning} |".replace("  ", " ")
    yield ""
    for submodel, where in inner:
        yield from _group(submodel, where)


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The texts below the fields of a model, from its source. (pydantic could collect them, whenever a target is loaded.)"""
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not issubclass(base, BaseModel) or base is BaseModel:
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, below in pairwise(body.body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                texts[field.target.id] = str(below.value.value)
    return texts


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return ""
    value = info.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return "; may be absent"
    if value in ("", {}) or isinstance(value, BaseModel):
        return "; empty if absent"
    return f"; `{value}` if absent"


def _inner_path(path: str, name: str, annotation: Any) -> str:
    here = f"{path}.{name}" if path else name
    depth = 0
    while (mapping := _mapping(annotation)) is not None:
        depth += 1
        annotation = typing.get_args(mapping)[1]
    return here + ".*" * depth


def _mapping(annotation: Any) -> Any:
    if typing.get_origin(annotation) is dict:
        return annotation
    for argument in typing.get_args(annotation) if _transparent(annotation) else ():
        if (mapping := _mapping(argument)) is not None:
            return mapping
    return None


def _transparent(annotation: Any) -> bool:
    return typing.get_origin(annotation) is not dict


def _model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in typing.get_args(annotation):
        if (model := _model(argument)) is not None:
            return model
    return None


def _value(annotation: Any, info: FieldInfo | None = None) -> str:
    """A type in words."""
    metadata = list(info.metadata) if info else []
    if typing.get_origin(annotation) is typing.Annotated:
        annotation, *more = typing.get_args(annotation)
        metadata += more
    for entry in metadata:
        if isinstance(entry, BeforeValidator) and entry.func in _UNITS:
            return _UNITS[entry.func]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "group of fields"
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{argument}`" for argument in arguments)
    if origin is dict:
        return f"{_key(arguments[0])} to {_value(arguments[1])}"
    if origin is tuple:
        return f"list of {_value(arguments[0])}"
    if arguments:
        return " or ".join(_value(argument) for argument in arguments if argument is not type(None))
    return f"{_UNITS.get(annotation, 'value')}{_bounds(metadata)}"


def _key(annotation: Any) -> str:
    from npuc.target import limits

    if annotation is str or annotation == limits.OpKind:
        return "op kind"
    return "name" if annotation == limits.Name else "element type"


def _bounds(metadata: list[Any]) -> str:
    low = next((entry.ge for entry in _flat(metadata) if getattr(entry, "ge", None) is not None), None)
    high = next((entry.le for entry in _flat(metadata) if getattr(entry, "le", None) is not None), None)
    return f" {low} to {high}" if low is not None and high is not None else ""


def _flat(metadata: list[Any]) -> Iterator[Any]:
    for entry in metadata:
        yield entry
        if isinstance(entry, FieldInfo):
            yield from entry.metadata
