"""The outcome of quantization: the type that each layer computes with, which layers stayed float and why, and the size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import yaml

from npuc.ir import Graph, Value, dtype_of, layer_name, npu, result_names, shape_of, top
from npuc.ir.definition import TensorOp, TopOp
from npuc.ir.dtypes import element_of, is_narrow_float, quant_of
from npuc.partition.fit import not_float32
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.lowering.registry import find_rule
from npuc.quant.scheme import SCHEMES, Scheme
from npuc.transform.constant_indices import ROUNDS

AS_ASKED = "as asked"
"""The reason of a layer that the user keeps in float."""


@dataclass(frozen=True)
class LayerOutcome:
    """The outcome of one layer."""

    name: str
    """The name of its (first) result."""
    layer: str
    kind: str
    type: str
    """The type that it computes with: an integer type, bf16, f16, mx6, mx9, or f32."""
    reason: str = ""
    """Why it stayed float, if it did."""

    @property
    def integer(self) -> bool:
        """Whether it computes with integers."""
        return self.type.startswith(("i", "u"))

    @property
    def is_float(self) -> bool:
        """Whether it stayed float, rather than computing with f32 on the NPU."""
        return self.type == "f32" and self.reason != ""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a network."""

    layers: tuple[LayerOutcome, ...]
    bytes_before: int
    bytes_after: int
    notes: tuple[str, ...] = ()
    """Further notes for the user."""

    @property
    def integer(self) -> int:
        """How many layers compute with integers."""
        return sum(layer.integer for layer in self.layers)

    def counts(self) -> str:
        """How many layers are integer, float and so on, in words."""
        kinds = Counter(
            "integer" if layer.integer else "float" if layer.is_float else layer.type for layer in self.layers
        )
        shown = ["integer", *sorted(kinds.keys() - {"integer", "float"}), "float"]
        return ", ".join(f"{kinds[kind]} {kind}" for kind in shown if kinds[kind] or kind == "float")

    def float_groups(self) -> list[tuple[str, str, list[str]]]:
        """(kind, reason, names) of the layers that are float, the largest group first."""
        groups: dict[tuple[str, str], list[str]] = {}
        for layer in self.layers:
            if layer.is_float:
                groups.setdefault((layer.kind, layer.reason), []).append(layer.name)
        return [(*key, names) for key, names in sorted(groups.items(), key=lambda item: -len(item[1]))]


def outcome(
    source: Graph, result: Graph, scheme_of: LayerSchemes, nowhere: Mapping[str, str] | None = None
) -> Outcome:
    """Compare an integer network with the float one that it was made of.

    `nowhere` maps layers, by the name of their first result, to the reason why the target leaves them float. The reasons of
    all float layers are also stored in the integer network.
    """
    by_name = {
        name: value
        for op in result.ops
        for name, value in zip(result_names(op), op.results, strict=True)
        if name
    }
    reasons = {**result.float_reasons, **(nowhere or {})}
    layers = []
    for op in source.ops:
        if not isinstance(op, TopOp) or isinstance(op, top.WeightOp) or not op.results:
            continue
        name = result_names(op)[0]
        if name not in by_name or isinstance(by_name[name].owner, npu.Reinterpret):
            continue
        kind = _type(by_name[name], op.results[0])
        stayed = kind == "f32" and not _is_f32_on_npu(by_name[name].owner)
        reason = (reasons.get(name) or _why(op, scheme_of(op))) if stayed else ""
        layers.append(LayerOutcome(name, layer_name(op), op.name.removeprefix("top."), kind, reason))
    result.float_reasons = {layer.name: layer.reason for layer in layers if layer.is_float}
    return Outcome(tuple(layers), weight_bytes(source), weight_bytes(result), tuple(result.notes))


def _type(value: Value, old: Value) -> str:
    owner = value.owner
    # An index has no quantized type, but may be computed from integers.
    kind = quant_of(owner.x if isinstance(owner, top.ArgReduce) else value)
    if kind is not None:
        return kind.dtype.name
    if is_narrow_float(element_of(value)) and dtype_of(old.type).name == "f32":
        return dtype_of(value.type).name
    if isinstance(owner, top.Onnx) and not any(
        dtype_of(v.type).is_float for v in (*owner.operands, *owner.results)
    ):
        return dtype_of(value.type).name  # an operator that the importer wrote in plain integers
    return owner.format if isinstance(owner, npu.BlockLinear) else "f32"


def _is_f32_on_npu(owner: Any) -> bool:
    return isinstance(owner, TensorOp) and npu.is_f32_on_npu(owner)


def _why(op: TopOp, scheme: Scheme | None) -> str:
    unquantized = not_float32(op)
    if unquantized is not None and not any(dtype_of(v.type).is_float for v in (*op.results, *op.operands)):
        return unquantized.reason
    if find_rule(op) is None:
        return _no_form(op)
    if unquantized is not None:
        return unquantized.reason
    return AS_ASKED if scheme is None else "nothing around it is integer"


def _no_form(op: TopOp) -> str:
    """Why an op has no integer form, where that depends on what it is asked for."""
    if isinstance(op, top.GridSample):
        if isinstance(op.grid.owner, top.WeightOp):
            return "it samples several images, or at more points than a matrix of weights may have"
        return (
            "its points are known at run time only, and no instruction computes the places and weights of neighbours from "
            "coordinates"
        )
    if isinstance(op, top.ScatterElements | top.ScatterND) and op.reduction != "none":
        if isinstance(op.indices.owner, top.WeightOp):
            return (
                f"only sums, minima and maxima of up to {ROUNDS} updates a place are made of gathers, and this is a scatter with "
                f"'{op.reduction}'"
            )
        return (
            f"it combines elements ('{op.reduction}') at places that are known at run time only, and no instruction adds to, or "
            "compares with, what is at such a place"
        )
    return "it has no integer form"


def weight_bytes(graph: Graph) -> int:
    """The bytes of the constants that a network uses; integers of fewer bits than their elements count as packed."""
    total = 0
    refs = set()
    for op in graph.ops:
        if isinstance(op, top.WeightOp) and op.ref not in refs:
            refs.add(op.ref)
            dtype = dtype_of(op.output.type)
            total += (
                prod(shape_of(op.output)) * (dtype.bits if dtype.is_integer else 8 * dtype.itemsize) + 7
            ) // 8
    return total


def is_integer(graph: Graph) -> bool:
    """Whether a network was quantized, to integers, short floats or block floating point."""
    return any(isinstance(op, npu.NpuOp) for op in graph.ops)


def effective_yaml(
    source: Graph, outcome: Outcome, scheme_of: LayerSchemes, comments: Sequence[str] = ()
) -> str:
    """The resolved scheme of every layer, as a configuration that reproduces the same network.

    The most common scheme becomes the model's; layers are listed by the names of their results.
    """
    schemes: dict[str, Scheme | None] = {}
    lowered = {layer.name for layer in outcome.layers if not layer.is_float}
    for op in source.ops:
        if isinstance(op, TopOp) and not isinstance(op, top.WeightOp) and op.results:
            name = result_names(op)[0]
            scheme = scheme_of(op)
            partial = scheme is not None and scheme.is_partial
            schemes[name] = scheme if name in lowered or partial else None
    common = Counter(s for s in schemes.values() if s is not None).most_common(1)
    base = common[0][0] if common else SCHEMES["int8"]
    reasons = {layer.name: layer.reason for layer in outcome.layers}
    lines = [f"# {comment}" for comment in comments]
    lines.append(_dump({"scheme": _level(base)}))
    lines.append("layers:")
    for name, chosen in schemes.items():
        text = _dump({name: _level(chosen)}).rstrip("\n")
        if chosen is None and reasons.get(name):
            text += f"  # {reasons[name]}"
        lines.append("\n".join(f"  {line}" for line in text.splitlines()))
    if not schemes:
        lines[-1] = "layers: {}"
    return "\n".join(line.rstrip("\n") for line in lines) + "\n"


def _level(scheme: Scheme | None) -> str | dict[str, Any]:
    if scheme is None:
        return "float"
    return next((name for name, known in SCHEMES.items() if known == scheme), scheme.to_dict())


def _dump(value: dict[str, Any]) -> str:
    flow = all(isinstance(item, str) for item in value.values())
    text = yaml.safe_dump(
        value,
        sort_keys=False,
        allow_unicode=True,
        width=1_000_000,
        default_flow_style=False if flow else None,
    )
    return str(text)
