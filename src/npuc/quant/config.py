"""The configuration of quantization at three levels: the model, a layer type, a layer.

    scheme: int8
    types:
      softmax: float
    layers:
      "head.*": int16
      stem: {weight: i16}
    options:
      weight_method: mse
    ladder:
      adaquant: {iterations: 500}

A level is the name of a scheme, `float`, or a mapping of changes to the scheme of the level above. Python uses the same
names (`QuantizationConfig(layers={"stem": "int16"})`); `npuc.quant.report.effective_yaml` writes the resolved scheme of every
layer. `options` are changes to the model's scheme, wherever it comes from: `scheme`, the target, or the default. `ladder` holds
the options of single steps of the ladder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from npuc.arithmetic.dtypes import ACTIVATION_INTEGERS, SHORT_ACTIVATIONS, WEIGHT_INTEGERS
from npuc.arithmetic.kinds import Kind, Rounding, Scales
from npuc.errors import QuantizationError, UsageError
from npuc.files import read_short
from npuc.format_versions import QUANTIZATION_CONFIG
from npuc.ir import Graph, result_names, top
from npuc.ir.definition import TOP_OPS, TopOp
from npuc.plain_yaml import load_yaml
from npuc.quant.adaquant.options import AdaQuantOptions
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.patterns import layer_names, matches
from npuc.quant.possible import contradiction
from npuc.quant.scheme import (
    ALIGNED_CONCATS,
    BLOCKS,
    FLOATS,
    SCHEMES,
    TENSOR_CLASSES,
    FixedOutput,
    Scheme,
)
from npuc.quant.weight_ranges import WEIGHT_METHODS, parse_weight_method

Level = str | dict[str, Any]
_MAX_BYTES = 1 << 20
_CHOICES: dict[str, Sequence[Any]] = {
    "activation": (*ACTIVATION_INTEGERS, *SHORT_ACTIVATIONS, *FLOATS, *BLOCKS),
    "activation_scales": (Scales.AFFINE, Scales.SYMMETRIC, Scales.POWER_OF_TWO),
    "weight": (*WEIGHT_INTEGERS, "ui8", *FLOATS, *BLOCKS),
    "weight_scales": (Scales.SYMMETRIC, Scales.POWER_OF_TWO, Scales.AFFINE),
    "per_channel": (True, False),
    "narrow_weights": (True, False),
    "full_range": (True, False),
    "requant": tuple(Kind),
    "multiplier_bits": (31, 24, 15, 7),
    "min_shift": range(-31, 1),
    "max_shift": range(1, 63),
    "short_multipliers": (True, False),
    "narrow_activations": (True, False),
    "exact_scales": (True, False),
    "unsigned_from_zero": (True, False),
    "rounded_operands": (True, False),
    "exact_averages": (True, False),
    "aligned_concats": ALIGNED_CONCATS,
    "constant_rounding": tuple(Rounding),
    "sum_bits": range(16, 33),
    "wide_sum_bits": (0, *range(17, 49)),
    "bias_bits": range(2, 33),
    "wide_bias_bits": range(2, 49),
    "bias_significant_bits": (0, *range(2, 33)),
    "table_entries": range(1 << 16),
    "wide_table_entries": range(1 << 16),
}


class LadderConfig(BaseModel):
    """The options of single steps of the ladder."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    adaquant: AdaQuantOptions = AdaQuantOptions.model_construct()


class QuantizationConfig(BaseModel):
    """The user's configuration; every field has a default."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    version: Literal[1] = 1
    """The version of the format; a file without it has version 1."""
    scheme: Level = "int8"
    options: dict[str, Any] = {}
    """Changes to single fields of the model's scheme, also of one that a target gives. Layers and types with a scheme of their
    own name have that scheme as it is."""
    types: dict[str, Level] = {}
    """By op, such as `conv` or `softmax`."""
    layers: dict[str, Level] = {}
    """By the name of a layer, a tensor or a node of the original network; `*` and `?` match any characters. The name of a
    network input selects the layers that read it, because they determine its type."""
    ladder: LadderConfig = LadderConfig.model_construct()
    activation_forms: tuple[str, ...] | None = None
    """Hardware forms of activations (the pass `hardware-activations`); those of the target if absent, none if empty."""
    per_channel_outputs: bool = False
    """Whether outputs of convolutions and products with weights get one scale a channel (`quant.channel_outputs`)."""
    output_method: str | None = None
    """The range method of the network's outputs, such as `sigmoid`; without it their ranges hold all that data showed."""
    widen: bool = True
    """Whether 16 bits may be used where 8 are not enough; if a scheme is stated, only where its outputs are of little use."""

    @staticmethod
    def load(path: Path | str) -> QuantizationConfig:
        """Read a YAML file."""
        text = read_short(path, _MAX_BYTES, "a configuration", QuantizationError)
        try:
            data = load_yaml(text.decode()) or {}
            if isinstance(data, Mapping):
                QUANTIZATION_CONFIG.check(data.get("version"), str(path), QuantizationError)
            return QuantizationConfig.model_validate(data)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise QuantizationError(
                f"is not YAML: {' '.join(str(error).split())}", where=str(path)
            ) from error
        except ValidationError as error:
            raise _invalid(error, str(path)) from error

    def with_layers(self, names: tuple[str, ...], level: Level) -> QuantizationConfig:
        """A copy with a level for some more layers."""
        return self.model_copy(update={"layers": {**self.layers, **dict.fromkeys(names, level)}})

    def with_options(self, changes: Mapping[str, Any]) -> QuantizationConfig:
        """A copy with further changes to the model's scheme."""
        return self.model_copy(update={"options": {**self.options, **changes}})

    def resolve(self, graph: Graph) -> LayerSchemes:
        """The scheme of each layer of a graph; names that match nothing are errors."""
        base = _apply(None, self.scheme, "scheme")
        if base is not None and self.options:
            base = _apply(base, self.options, "options")
        for name in self.types:
            if f"top.{name}" not in TOP_OPS:
                near = get_close_matches(name, [kind.removeprefix("top.") for kind in TOP_OPS], 3)
                raise QuantizationError(f"types: there is no op '{name}'", fix=_suggest(near))
        chosen: dict[Any, Scheme | None] = {}
        layers = [op for op in graph.ops if isinstance(op, TopOp) and not isinstance(op, top.WeightOp)]
        aliases = graph.layer_aliases()
        called = {op: layer_names(op, aliases) for op in layers}
        reads = {op: {port.name for port in graph.inputs if port.value in op.operands} for op in layers}
        for op in layers:
            scheme = base
            kind = op.name.removeprefix("top.")
            if kind in self.types:
                scheme = _apply(scheme or base, self.types[kind], f"types.{kind}")
            for pattern, level in self.layers.items():
                if matches(pattern, called[op]) or pattern in reads[op]:
                    scheme = _apply(scheme or base, level, f"layers.{pattern}")
            chosen[op] = scheme
        names = [name for op in layers for name in called[op]]
        inputs = [port.name for port in graph.inputs]
        _require_matches("layers", self.layers, [*names, *inputs])
        _require_matches("ladder.adaquant.layers", self.ladder.adaquant.layers, names)
        return LayerSchemes(chosen)


def first_and_last(graph: Graph) -> tuple[str, ...]:
    """The names of the first and the last layers that have weights."""
    weighted = [op for op in graph.ops if isinstance(op, top.Conv | top.Deconv | top.MatMul)]
    ends = [weighted[0], weighted[-1]] if weighted else []
    return tuple(dict.fromkeys(result_names(op)[0] for op in ends))


def _invalid(error: ValidationError, where: str) -> QuantizationError:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] != "extra_forbidden":
        return QuantizationError(f"field '{field}': {first['msg']}", where=where)
    levels = (QuantizationConfig, LadderConfig, AdaQuantOptions)
    known = [name for level in levels for name in level.model_fields]
    near = get_close_matches(str(first["loc"][-1]), known, 1)
    fix = f"Did you mean '{near[0]}'?" if near else f"Fields are {', '.join(QuantizationConfig.model_fields)}"
    return QuantizationError(f"there is no field '{field}'", where=where, fix=fix)


def _require_matches(where: str, patterns: Mapping[str, Any], names: Sequence[str]) -> None:
    for pattern in patterns:
        if not matches(pattern, names):
            near = get_close_matches(pattern, list(dict.fromkeys(names)), 3, 0.4)
            raise QuantizationError(
                f"{where}: there is no layer '{pattern}' in the network", fix=_suggest(near)
            )


def _apply(scheme: Scheme | None, level: Level, where: str) -> Scheme | None:
    if isinstance(level, str):
        if level == "float":
            return None
        if level not in SCHEMES:
            near = get_close_matches(level, [*SCHEMES, "float"], 3, 0.3)
            raise QuantizationError(
                f"{where}: there is no scheme '{level}'", fix=_suggest(near or sorted(SCHEMES))
            )
        return SCHEMES[level]
    changes = {key: _field(key, value, where) for key, value in level.items()}
    changed = dataclasses.replace(scheme or SCHEMES["int8"], **changes)
    wrong = contradiction(changed)
    if wrong is not None:
        raise QuantizationError(f"{where}: {wrong.what}", fix=wrong.fix)
    return changed


def _field(key: str, value: Any, where: str) -> Any:
    """A field of a scheme from a file."""
    if key == "fixed_outputs":
        return _fixed_outputs(value, where)
    if key == "classes":
        return _classes(value, where)
    if key == "weight_method":
        return _weight_method(value, where)
    if key not in _CHOICES:
        known = [*_CHOICES, "weight_method", "classes", "fixed_outputs"]
        raise QuantizationError(
            f"{where}: a scheme has no '{key}'", fix=_suggest(get_close_matches(key, known, 3, 0.3) or known)
        )
    choices = _CHOICES[key]
    if isinstance(choices[0], StrEnum) and isinstance(value, str):
        matching = [choice for choice in choices if value in (choice.value, choice.spelling)]
        if matching:
            return matching[0]
    elif type(value) is type(choices[0]) and value in choices:
        return value
    raise QuantizationError(f"{where}: '{key}' cannot be {value!r}", fix=f"It can be {_spelled(choices)}")


def _weight_method(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise QuantizationError(
            f"{where}: 'weight_method' cannot be {value!r}", fix=f"It can be {', '.join(WEIGHT_METHODS)}"
        )
    try:
        return str(parse_weight_method(value))
    except UsageError as error:
        raise QuantizationError(f"{where}: {error.message}", fix=error.fix) from error


def _classes(value: Any, where: str) -> tuple[str, ...]:
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not set(names) <= set(TENSOR_CLASSES):
        raise QuantizationError(
            f"{where}: 'classes' cannot be {value!r}",
            fix=f"It can be one or more of {', '.join(TENSOR_CLASSES)}",
        )
    return tuple(name for name in TENSOR_CLASSES if name in names)


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """Changes to a scheme from `FIELD=VALUE` of a command line; values are written as in a configuration file.

    >>> parse_options(["full_range=true", "weight_method=std:n=3"])
    {'full_range': True, 'weight_method': 'std:n=3'}
    """
    changes = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise QuantizationError(
                f"'{text}' is not FIELD=VALUE", fix="docs/quantization.md lists the fields"
            )
        try:
            changes[key.strip()] = load_yaml(value) if key.strip() != "weight_method" else value
        except yaml.YAMLError as error:
            raise QuantizationError(
                f"'{text}' has no value that YAML knows", fix="Write it plainly"
            ) from error
    for key, value in changes.items():
        _field(key, value, "options")
    return changes


def _fixed_outputs(value: Any, where: str) -> tuple[FixedOutput, ...]:
    rows = value if isinstance(value, list | tuple) else [value]
    outputs = []
    for row in rows:
        if not (
            isinstance(row, list | tuple)
            and [type(item) for item in row] in ([str, str, float, int], [str, str, int, int])
        ):
            raise QuantizationError(
                f"{where}: 'fixed_outputs' cannot hold {row!r}",
                fix="Write each as [op, type, scale, zero point], such as [softmax, i8, 0.00390625, -128]",
            )
        outputs.append((row[0], row[1], float(row[2]), row[3]))
    return tuple(outputs)


def _spelled(choices: Sequence[Any]) -> str:
    """Choices in words, with runs of numbers as `a to b`."""
    if len(choices) < 8 or not isinstance(choices[0], int):
        return ", ".join(str(choice) for choice in choices)
    run = f"{choices[1]} to {choices[-1]}"
    return f"{choices[0]} to {choices[-1]}" if choices[0] + 1 == choices[1] else f"{choices[0]} or {run}"


def _suggest(names: Mapping[str, Any] | list[str]) -> str:
    return (
        f"Did you mean {' or '.join(repr(name) for name in list(names)[:5])}?"
        if names
        else "Check the spelling"
    )
