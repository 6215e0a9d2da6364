"""From X.quantize to the integer network, and back: the same integers in `quantize`, `inference` and `export`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.sources import Source
from npuc.calib.table import CalibrationTable, Entry
from npuc.compat.acuity.chips import DEFAULT, PER_CHANNEL
from npuc.compat.acuity.input_meta import PreparedInputs
from npuc.compat.acuity.layers import layers_of, lid_of, names_of
from npuc.compat.acuity.model_files import AcuityModel
from npuc.compat.acuity.quantize_file import FLOAT, FLOATS, LEVELS, NumberType, QuantizedTensor, QuantizeFile
from npuc.compat.running import warn
from npuc.errors import FileMissingError, UnknownTensorError
from npuc.flow import (
    Quantized,
    expanded,
    load_model,
    quantize_network,
    ranges_from,
    schemes_of,
)
from npuc.ir import Graph, top
from npuc.ir.dtypes import QuantType, quant_of
from npuc.ir.passes import run_pipeline
from npuc.ir.target_rewrites import rewritten_for
from npuc.quant.clipping import clip_weights
from npuc.quant.config import QuantizationConfig
from npuc.quant.from_target import fitted, misfit
from npuc.quant.parameters import range_of
from npuc.quant.prequantized import is_quantized
from npuc.quant.scheme import SCHEMES, Scheme
from npuc.quant.tensor_classes import weight_axis
from npuc.target import Target, load_target
from npuc.transform import CANONICAL
from npuc.words import counted

_SAME = 0.01
"""The relative difference of two scales up to which one follows from the other."""
_EDITED = 1e-4
"""The relative difference of two ranges from which on somebody changed one of them."""


def arithmetic_of(kind: NumberType) -> Target | None:
    """The machine whose arithmetic `quantize` and `inference` have: that of the chips, if they have such numbers."""
    target = load_target(PER_CHANNEL if kind.quantizer.startswith("perchannel") else DEFAULT)
    level = LEVELS[kind]
    if level == "float":
        return target
    scheme = SCHEMES[level] if isinstance(level, str) else replace(Scheme(), **level)
    return target if misfit(fitted(scheme, target), target) is None else None


def float_network(graph: Graph, target: Target | None) -> Graph:
    """The network ready to be quantized; numbers of a model that brings its own quantization are dropped."""
    if is_quantized(graph):
        graph = run_pipeline(graph, f"drop-quantization,{CANONICAL}")
    graph = expanded(graph)
    return graph if target is None else rewritten_for(graph, target, "float")


def tuned_network(model: AcuityModel, file: QuantizeFile) -> Graph:
    """The network that a file was written for: the imported one, or the one that --MLE made of it."""
    if not file.tuned:
        return model.graph
    folder = (model.data or model.path).parent
    if not (folder / file.tuned).is_file():
        raise FileMissingError(
            "the network of the .quantize file is missing",
            where=str(folder / file.tuned),
            fix="Run quantize --MLE again",
        )
    return load_model(folder / file.tuned)


def spelled(graph: Graph, tensor: str) -> str:
    """The toolkit's name of a tensor; one that came after the import has its own name in that form."""
    name = names_of(graph).vendor_name(tensor)
    return name if name.startswith("@") else f"@{tensor}:out0"


def _tensor_of(graph: Graph, name: str) -> str:
    own = names_of(graph).npuc_name(name)
    return lid_of(own) if own.startswith("@") else own


def config_of(graph: Graph, base: NumberType, customized: Mapping[str, NumberType]) -> QuantizationConfig:
    """The schemes of a file."""
    by_lid = {lid_of(spelled(graph, layer.tensors[0])): layer.tensors[0] for layer in layers_of(graph)}
    layers: dict[str, Any] = {}
    for lid, kind in customized.items():
        name = by_lid.get(lid) or (lid if lid in by_lid.values() else None)
        if name is None:
            raise UnknownTensorError(
                f"customized_quantize_layers names '{lid}', which is no layer of the network",
                fix=f"Layers are {', '.join(list(by_lid)[:8])}, ...: look them up in the .json file",
            )
        layers[name] = LEVELS[kind]
    return QuantizationConfig(scheme=LEVELS[base], layers=layers)


def quantized_by_file(
    inputs: PreparedInputs, file: QuantizeFile, target: Target | None, where: str
) -> tuple[Quantized, CalibrationTable]:
    """The integer network of a file, and the ranges that it was made with."""
    graph = float_network(inputs.graph, target)
    config = config_of(graph, file.base, file.customized)
    ranges = _ranges(graph, file)
    _tell_edits(file, where)
    graph = _with_weight_ranges(graph, file)
    schemes = schemes_of(graph, config, target)
    missing = ranges.check(graph) if _needs_ranges(graph, schemes) else []
    if missing:
        warn(
            f"{where} has no range for {counted(len(missing), 'tensor')} ({', '.join(missing[:3])}): measured on the samples"
        )
        measured = ranges_from(graph, inputs.source(max(1, inputs.meta.batch)), schemes, "max", warn=warn)
        ranges = CalibrationTable(
            {**{name: measured[name] for name in missing if name in measured}, **ranges}
        )
    return quantize_network(graph, ranges, config, target), ranges


def _needs_ranges(graph: Graph, schemes: Any) -> bool:
    return any((scheme := schemes(op)) is not None and scheme.needs_ranges for op in graph.ops)


def _ranges(graph: Graph, file: QuantizeFile) -> CalibrationTable:
    """The ranges of a file by npuc's names; entries of tensors that are not here are left out, with a word."""
    known = {*graph.tensor_names(), *(port.name for port in graph.inputs)}
    entries: dict[str, Entry] = {}
    others: list[str] = []
    for name, tensor in file.tensors.items():
        if ":out" not in name or tensor.range is None:
            continue
        own = _tensor_of(graph, name)
        if own not in known:
            others.append(name)
            continue
        low, high = tensor.range
        entries[own] = Entry(own, max(-low, high), low, high)
    if others and not entries:
        raise UnknownTensorError(
            f"the .quantize file has no tensor of this network: it has {', '.join(others[:3])}",
            fix="Is it of another network?",
        )
    if others:
        warn(f"{counted(len(others), 'tensor', 'is', 'are')} not in this network: {', '.join(others[:5])}")
    return CalibrationTable(entries)


def _tell_edits(file: QuantizeFile, where: str) -> None:
    """A word about ranges that somebody changed without the scale that follows from them."""
    edited = [name for name, tensor in file.tensors.items() if ":out" in name and _disagrees(tensor)]
    if edited:
        warn(
            f"{where}: the scale of {', '.join(edited[:5])} does not follow from max_value and min_value: the range counts"
        )


def _disagrees(tensor: QuantizedTensor) -> bool:
    if tensor.range is None or len(tensor.scale) != 1:
        return False
    low, high = tensor.range
    if tensor.kind.quantizer == "asymmetric_affine":
        steps = (high - low) / 255
    elif tensor.kind.quantizer == "dynamic_fixed_point":
        # Any range above half of what the fraction bits reach has the same ones.
        most = 2.0 ** ((16 if tensor.kind.qtype == "i16" else 8) - 1) * tensor.scale[0]
        return not most / 2 * (1 - _SAME) <= max(-low, high) <= most * (1 + _SAME) and max(-low, high) > 0
    else:
        steps = max(-low, high) / 127
    return steps > 0 and abs(tensor.scale[0] - steps) > _SAME * steps


def _with_weight_ranges(graph: Graph, file: QuantizeFile) -> Graph:
    """The network with weights clipped where a file has narrower ranges than they have."""
    ranges: dict[str, tuple[Array, Array]] = {}
    for layer in layers_of(graph):
        tensor = file.tensors.get(f"@{lid_of(spelled(graph, layer.tensors[0]))}:weight")
        weight = _weight(graph, layer.op)
        if tensor is None or tensor.range is None or weight is None or len(tensor.max_value) > 1:
            continue
        low, high = min(tensor.min_value), max(tensor.max_value)
        own_low, own_high = float(weight.min()), float(weight.max())
        step = _EDITED * max(own_high, -own_low)
        if low > own_low + step or high < own_high - step:
            ranges[layer.tensors[0]] = np.asarray(low), np.asarray(high)
            warn(
                f"the weights of {lid_of(spelled(graph, layer.tensors[0]))} are clipped to [{low:.6g}, {high:.6g}]"
            )
    return clip_weights(graph, ranges) if ranges else graph


def _weight(graph: Graph, op: Any) -> Array | None:
    if not isinstance(op, top.Conv | top.Deconv | top.MatMul):
        return None
    return graph.constant(op.operands[1])


def described(
    quantized: Quantized, ranges: Mapping[str, Entry], base: NumberType, customized: Mapping[str, NumberType]
) -> QuantizeFile:
    """The file of an integer network."""
    source = quantized.source
    tensors: dict[str, QuantizedTensor] = {}
    kinds = _kinds(source, base, customized)
    for port in source.inputs:
        reader = next((use.operation for use in port.value.uses), None)
        kinds.setdefault(port.name, base)
        tensors[spelled(source, port.name)] = _described(
            quantized, ranges, port.name, kinds[port.name], reader
        )
    for layer in layers_of(source):
        for name in layer.tensors:
            if name not in ranges and kinds[name].qtype not in FLOATS:
                continue
            lid = lid_of(spelled(source, name))
            tensors |= _described_weights(quantized, lid, name, kinds[name])
            tensors[spelled(source, name)] = _described(quantized, ranges, name, kinds[name], layer.op)
    return QuantizeFile(tensors, customized)


def _kinds(source: Graph, base: NumberType, customized: Mapping[str, NumberType]) -> dict[str, NumberType]:
    """The type of each tensor."""
    kinds = {}
    for layer in layers_of(source):
        for name in layer.tensors:
            lid = lid_of(spelled(source, name))
            kinds[name] = customized.get(lid, customized.get(name, base))
    return kinds


def _described(
    quantized: Quantized, ranges: Mapping[str, Entry], name: str, kind: NumberType, op: Any
) -> QuantizedTensor:
    is_input = any(port.name == name for port in quantized.source.inputs)
    value = quantized.graph.find(f"{name}/quantized" if is_input else name)
    encoded = None if value is None else quant_of(value)
    entry = ranges.get(name)
    if encoded is None:
        plain = kind if kind.qtype in FLOATS else NumberType(FLOAT)
        return QuantizedTensor(plain, *(((entry.max,), (entry.min,)) if entry else ((), ())))
    kind = _kind_of(encoded, kind)
    low, high = (entry.min, entry.max) if entry else (0.0, 0.0)
    scheme = quantized.scheme_of(op) if op is not None else None
    if entry is not None and kind.quantizer != "asymmetric_affine":
        low, high = _within(low, high, entry.threshold)
    stated = QuantizedTensor(kind, (high,), (low,), (encoded.scale,), (encoded.zero_point,))
    if scheme is not None and scheme.activation == encoded.dtype.name and _disagrees(stated):
        # The tensor shares the scale of another one.
        low, high = range_of(encoded, scheme)
        stated = replace(stated, max_value=(high,), min_value=(low,))
    return stated


def _kind_of(encoded: QuantType, kind: NumberType) -> NumberType:
    """The type that a tensor has indeed: one between two layers has that of the layer that makes it."""
    names = {"ui8": "u8", "i8": "i8", "i16": "i16"}
    actual = names.get(encoded.dtype.name, kind.qtype)
    if actual == kind.qtype:
        return kind
    return NumberType("asymmetric_affine" if actual == "u8" else "dynamic_fixed_point", actual)


def _within(low: float, high: float, threshold: float) -> tuple[float, float]:
    """A range whose greatest magnitude is the threshold of a symmetric scale."""
    low, high = max(low, -threshold), min(high, threshold)
    if max(-low, high) < threshold:
        return (low, threshold) if high >= -low else (-threshold, high)
    return low, high


def _described_weights(
    quantized: Quantized, lid: str, name: str, kind: NumberType
) -> dict[str, QuantizedTensor]:
    """The entries of a layer's weights and bias; none if it has no integer weights."""
    value, real = quantized.graph.find(name), quantized.source.find(name)
    integer: Any = getattr(value, "owner", None)
    steps = getattr(integer, "weight_scale", None)
    scales = None if steps is None else quantized.graph.constant(steps)
    own: Any = getattr(real, "owner", None)
    weight = _weight(quantized.source, own)
    if scales is None or weight is None:
        return {}
    many = tuple(float(scale) for scale in scales.ravel())
    axis = weight_axis(own, weight) or 0
    rows = np.moveaxis(weight, axis, 0).reshape(len(many), -1) if len(many) > 1 else weight.reshape(1, -1)
    highs, lows = (tuple(map(float, bound(rows, axis=1))) for bound in (np.max, np.min))
    zeros = (int(integer.weight_zero_point),) * len(many)
    entries = {f"@{lid}:weight": QuantizedTensor(kind, highs, lows, many, zeros)}
    bias = quantized.source.constant(own.operands[2]) if len(own.operands) > 2 else None
    taken = quant_of(integer.x)
    if bias is not None and bias.size and taken is not None:
        bounds = ((float(bias.max()),), (float(bias.min()),))
        steps_of_sum = tuple(scale * taken.scale for scale in many)
        entries[f"@{lid}:bias"] = QuantizedTensor(
            NumberType(kind.quantizer, "i32"), *bounds, steps_of_sum, (0,) * len(many)
        )
    return entries


def samples(inputs: PreparedInputs, batch: int | None, iterations: int) -> tuple[Source, int]:
    """The samples that --batch-size and --iterations ask for, and the size of a batch."""
    size = batch or inputs.meta.batch
    return inputs.source(size * iterations), size
