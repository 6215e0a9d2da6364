"""Measuring an integer network: one pass for the values, one for the errors of layers, then each rounding alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.collection import channel_axes
from npuc.calib.samples import Batch
from npuc.calib.statistics import Statistics
from npuc.compare.layers import compare_layers
from npuc.engine import IntegerEngine, float_engine
from npuc.engine.single import single_op
from npuc.errors import CompareError
from npuc.ir import Graph, Value, dtype_of, layer_name, result_names, shape_of, top, value_name
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import QuantType
from npuc.quant.analysis import clipping, outliers
from npuc.quant.analysis.levels import SchemeChange
from npuc.quant.analysis.measurements import Measurements, TensorMeasure, Values, WeightMeasure
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.layers import IntegerLayer, integer_layers, output_channel_axis
from npuc.quant.lowering.registry import keeps_type
from npuc.quant.mixed_precision.sensitivity import Probe, rounded_weights, tensor_types
from npuc.quant.mixed_precision.units import Unit, find_units
from npuc.quant.parameters import activation_type
from npuc.quant.validation import Program
from npuc.quant.widening import wider

Sample = Mapping[str, Array]

COMPARED = 16
"""The number of samples for the errors of layers; every second one is used to measure single roundings."""
_AT_ONCE = 8
"""The number of tensors that are measured with one export of the network."""
_FEW = 4
"""If fewer samples than this remain to measure means, all samples are used."""
_FOREIGN = 2.0
"""If half of the weights are further than this many steps from the float ones, they are those of another network."""
_WORTH = 0.01
"""Another range is tried for tensors that cause at least this share of the noise."""
_LEAST_ACTIVE = 0.05
"""The least share of active values of a channel, by which its shift is divided."""


def all_channels(graph: Graph) -> dict[str, int]:
    """The channel axis of every tensor: that of the layer that reads it, or the usual one for its rank."""
    known = channel_axes(graph)
    values = [value for op in graph.ops if not isinstance(op, top.WeightOp) for value in op.results]
    usual = {value_name(v): 1 if len(shape_of(v)) == 4 else -1 for v in (*graph.block.args, *values)}
    return {name: known.get(name, axis) for name, axis in usual.items() if name}


def measure(
    source: Graph,
    quantized: Graph,
    scheme_of: LayerSchemes,
    statistics: Statistics,
    samples: Sequence[Sample],
    *,
    threads: int = 1,
    step: Callable[[], None] = lambda: None,
    behind: Program | None = None,
) -> Measurements:
    """Measure an integer network against its float network; `step` is called after every rounding."""
    types = tensor_types(quantized)
    layers = integer_layers(source, quantized, scheme_of)
    _same_network(layers)
    batches = [Batch(sample) for sample in samples[:COMPARED]]
    errors = {
        entry.name: entry
        for entry in compare_layers(source, quantized, batches, isolated=True, threads=threads)
    }
    probe = Probe.of(source, samples[:COMPARED:2], threads, behind)
    units = {value: unit for unit in find_units(source, types) for value in unit.values}
    tensors: list[TensorMeasure] = []
    values_by_name: dict[str, Value] = {}
    values = [
        value
        for value in rounded_tensors(source, types)
        if (observed := statistics.tensors.get(value_name(value))) is not None and observed.count
    ]
    for value, noise in _roundings(probe, values, types, step):
        name = value_name(value)
        op = value.owner if isinstance(value.owner, TopOp) else None
        error = errors.get(name)
        values_by_name[name] = value
        tensors.append(
            TensorMeasure(
                name=name,
                layer=layer_name(op) if op is not None else name,
                kind=op.name.removeprefix("top.") if op is not None else "input",
                values=Values(types[name], statistics[name]),
                noise=noise,
                accumulated=error.accumulated if error is not None else None,
                isolated=error.isolated if error is not None else None,
                wide=_wide(source, units[value], scheme_of) if types[name].dtype.itemsize == 1 else {},
                joined=_joined(value, types),
            )
        )
    weights = []
    rest = samples[1:COMPARED:2]
    shifts = _shifts(source, quantized, layers, rest if len(rest) >= _FEW else samples, threads)
    for layer in layers:
        weights.append(_weights(probe, layer, shifts[layer.name]))
        step()
    least = _WORTH * (
        sum(rounding.noise for rounding in tensors) + sum(rounding.noise for rounding in weights)
    )
    tensors = [
        _with_other_range(rounding, probe, values_by_name[rounding.name], types)
        if rounding.noise >= least
        else rounding
        for rounding in tensors
    ]
    engine = IntegerEngine(quantized, threads=threads)
    outputs = [port.name for port in source.outputs]
    rows = [[np.asarray(values[name]) for name in outputs] for values in map(engine.run, probe.samples)]
    return Measurements(
        source, tuple(tensors), tuple(weights), probe.measure(rows, probe.exact), statistics.samples
    )


def _roundings(
    probe: Probe, values: Sequence[Value], types: Mapping[str, QuantType], step: Callable[[], None]
) -> Iterator[tuple[Value, float]]:
    """Each tensor with the noise of rounding it, in groups, because the network is exported for each group."""
    for start in range(0, len(values), _AT_ONCE):
        part = values[start : start + _AT_ONCE]
        for value, noise in zip(part, probe.tensors([_alone(value) for value in part], types), strict=True):
            yield value, noise
            step()


def _alone(value: Value) -> Unit:
    return Unit((value,), (value,), (), (), ())


def _with_other_range(
    tensor: TensorMeasure, probe: Probe, value: Value, types: Mapping[str, QuantType]
) -> TensorMeasure:
    """The tensor with the noise of another range, if its range looks wrong, so that advice is tried before it is given."""
    values, observed = tensor.values, tensor.values.statistics
    scheme = next((change.old for change in tensor.wide.values()), None)
    if scheme is None:
        return tensor
    if values.clipping_part >= clipping.MOST_OF_IT:
        low, high = observed.min, observed.max
    elif outliers.has_outliers(values):
        low, high = max(observed.min, -values.usual), min(observed.max, values.usual)
    else:
        return tensor
    other = {**types, tensor.name: activation_type(low, high, scheme)}
    return replace(tensor, other_range=probe.tensors([_alone(value)], other)[0])


def rounded_tensors(graph: Graph, types: Mapping[str, QuantType]) -> list[Value]:
    """The tensors of the float network that get integers of their own, in order.

    Ops that only move elements pass on the integers of their operand, and a concat those of its operands.
    """
    rounded = []
    results = [value for op in graph.ops if not isinstance(op, top.WeightOp) for value in op.results]
    for value in (*graph.block.args, *results):
        kind = types.get(value_name(value))
        if kind is None or dtype_of(value.type).name != "f32":
            continue
        op = value.owner
        if isinstance(op, TopOp) and (keeps_type(op) or isinstance(op, top.Concat)):
            read = [
                types.get(value_name(v))
                for v in (op.operands if isinstance(op, top.Concat) else op.operands[:1])
            ]
            if all(other == kind for other in read):
                continue
        rounded.append(value)
    return rounded


def _wide(graph: Graph, unit: Unit, scheme_of: LayerSchemes) -> dict[str, SchemeChange]:
    """The scheme changes of the layers around a tensor with which it would have 16 bits."""
    return {
        result_names(op)[0]: SchemeChange(scheme, wider(scheme))
        for op in graph.ops
        if op in unit.ops
        and op.results
        and (scheme := scheme_of(op)) is not None
        and scheme.needs_ranges
        and scheme != wider(scheme)
    }


def _joined(value: Value, types: Mapping[str, QuantType]) -> str:
    """The concat whose type a tensor has, or an empty text."""
    for use in value.uses:
        if isinstance(use.operation, top.Concat):
            name = result_names(use.operation)[0]
            if types.get(name) == types.get(value_name(value)):
                return name
    return ""


def _same_network(layers: Sequence[IntegerLayer]) -> None:
    """Refuse an integer network that was made of other weights."""
    for layer in layers:
        steps = np.abs(rounded_weights(layer) - layer.weight) / layer.scale
        if steps.size and float(np.median(steps)) > _FOREIGN:
            raise CompareError(
                f"layer '{layer.name}' of the integer network has other weights than that of the float network",
                fix="Give the float network that it was made of (weights that were equalized or migrated are another "
                "form of it), or leave the integer network out and give data: what is made of it is analyzed then",
            )


def _weights(probe: Probe, layer: IntegerLayer, shift: Shift) -> WeightMeasure:
    """The noise of the constants of one layer: the random part on exact inputs, and the shift in the integer network."""
    weight, bias = _constants(layer)
    exact = layer.real_bias
    shifted = 0.0
    if bias is None or exact is None or shift.exact.shape != bias.shape:
        random = _noise(probe, _disturbed(probe.graph, layer, weight, bias)[0])
    else:
        random = _noise(probe, _disturbed(probe.graph, layer, weight, bias - shift.exact / shift.active)[0])
        moved = exact.astype(np.float64).reshape(-1) + shift.mean / shift.active
        shifted = _noise(probe, _disturbed(probe.graph, layer, layer.weight, moved)[0])
    bits = dtype_of(layer.scheme.weight).bits
    more = "i8" if bits < 8 else "i16" if bits < 16 and layer.scheme.weight != "ui8" else None
    return WeightMeasure(
        layer,
        layer.float_op.name.removeprefix("top."),
        {} if more is None else {layer.name: SchemeChange(layer.scheme, replace(layer.scheme, weight=more))},
        random,
        shifted,
        float(np.abs(shift.mean).max(initial=0.0)) / shift.deviation,
    )


@dataclass(frozen=True, eq=False)
class Shift:
    """The shift of the mean of each output channel that the rounded constants of a layer cause."""

    mean: Array
    """The shift on the inputs that the layer reads in the integer network, for which biases were corrected."""
    exact: Array
    """The shift on exact inputs."""
    active: Array
    """The share of values that the relu of the layer, if it has one, passes."""
    deviation: float
    """The standard deviation of the layer's output."""


def _shifts(
    graph: Graph, quantized: Graph, layers: Sequence[IntegerLayer], samples: Sequence[Sample], threads: int
) -> dict[str, Shift]:
    """The shifts of all layers, by name."""
    operands = {layer.name: value_name(layer.float_op.operands[0]) for layer in layers}
    inputs = {port.name for port in graph.inputs}
    fetch = {layer.name for layer in layers} | set(operands.values())
    held = {name for op in quantized.ops if not isinstance(op, top.WeightOp) for name in result_names(op)}
    exact = float_engine(graph, fetch=sorted(fetch - inputs), threads=threads)
    ours = IntegerEngine(quantized, fetch=sorted(set(operands.values()) & held), threads=threads)
    pairs = [
        (single_op(twin, changed, threads), single_op(layer.float_op, graph, threads))
        for layer in layers
        for changed, twin in [_disturbed(graph, layer, *_constants(layer))]
    ]
    rows: dict[str, list[tuple[Array, Array, Array, Array]]] = {layer.name: [] for layer in layers}
    for sample in samples:
        values, integer_values = {**sample, **exact.run(sample)}, ours.run(sample)
        for layer, (changed, real) in zip(layers, pairs, strict=True):
            name = operands[layer.name]
            rest = [np.zeros(0)] * (len(layer.float_op.operands) - 1)  # constants, which `single_op` has
            x = np.ascontiguousarray(values[name], np.float32)
            integer_input = np.ascontiguousarray(integer_values.get(name, x), np.float32)
            expected = np.asarray(values[layer.name], np.float64)
            axis = output_channel_axis(layer.float_op, expected.ndim)
            others = tuple(i for i in range(expected.ndim) if i != axis)
            limit = getattr(layer.float_op, "relu_limit", 0.0) or np.inf
            passed = ((expected > 0) & (expected < limit)) if layer.float_op.relu else np.ones_like(expected)
            shift = changed([integer_input, *rest])[0].astype(np.float64) - real([integer_input, *rest])[0]
            exact_shift = changed([x, *rest])[0] - expected
            means = [array.mean(axis=others) for array in (shift, exact_shift, passed)]
            rows[layer.name].append((means[0], means[1], means[2], expected.var()))
    means_by_layer = {
        name: [np.mean(column, axis=0) for column in zip(*row, strict=True)] for name, row in rows.items()
    }
    return {
        name: Shift(mean, alone, np.maximum(active, _LEAST_ACTIVE), float(np.sqrt(variance)) or 1.0)
        for name, (mean, alone, active, variance) in means_by_layer.items()
    }


def _constants(layer: IntegerLayer) -> tuple[Array, Array | None]:
    """The real values of the integer weights and biases of a layer."""
    bias = None if layer.bias is None else layer.bias.astype(np.float64) * layer.unit
    return rounded_weights(layer), bias


def _disturbed(graph: Graph, layer: IntegerLayer, weight: Array, bias: Array | None) -> tuple[Graph, Any]:
    """The float network with other constants in one layer, and that layer."""
    changed = graph.copy()
    twin: Any = next(
        op for op in changed.ops if type(op) is type(layer.float_op) and result_names(op)[0] == layer.name
    )
    place = twin.b if isinstance(twin, top.MatMul) else twin.weight
    pairs = [(place, weight)] + ([(twin.bias, bias)] if bias is not None and twin.bias is not None else [])
    for value, array in pairs:
        new = changed.add_weight(f"{layer.name}/disturbed", array.reshape(shape_of(value)).astype(np.float32))
        twin.parent.insert_op_before(new, twin)
        twin.operands[list(twin.operands).index(value)] = new.output
    return changed, twin


def _noise(probe: Probe, changed: Graph) -> float:
    """The noise at the outputs of a changed network."""
    names = [port.name for port in changed.outputs]
    engine = float_engine(changed, threads=probe.threads)
    rows = [[np.asarray(values[name]) for name in names] for values in map(engine.run, probe.samples)]
    return probe.measure(rows, probe.exact)
