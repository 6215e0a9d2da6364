"""Measuring an integer network: one pass for the values, one for the errors of layers, then one rounding at a time."""

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
from npuc.engine import FloatEngine, IntegerEngine
from npuc.engine.single import single_op
from npuc.errors import CompareError
from npuc.ir import Graph, Value, dtype_of, layer_name, result_names, shape_of, top, value_name
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import QuantType
from npuc.quant.analysis import clipping, outliers
from npuc.quant.analysis.levels import Change
from npuc.quant.analysis.measurements import Measurements, TensorMeasure, Values, WeightMeasure
from npuc.quant.layers import IntegerLayer, integer_layers, output_channel_axis
from npuc.quant.lowering.registry import keeps_type
from npuc.quant.mixed_precision.sensitivity import Probe, rounded_weights, tensor_types
from npuc.quant.mixed_precision.units import Unit, find_units
from npuc.quant.parameters import activation_type
from npuc.quant.scheme import Scheme
from npuc.quant.widening import wider

Sample = Mapping[str, Array]
SchemeOf = Callable[[Any], Scheme | None]

COMPARED = 16
"""Samples that errors of layers are taken from; on every second one, roundings are tried one at a time."""
_AT_ONCE = 8
"""Tensors that are tried with one export of the network."""
_FEW = 4
"""Samples that are too few to show a mean: then those that judge show it, too."""
_FOREIGN = 2.0
"""Weights of which half are further than so many steps from the float ones are not theirs, however they were rounded."""
_WORTH = 0.01
"""The part of the noise from which another range is tried for a tensor."""
_LEAST_ACTIVE = 0.05
"""A channel that its relu lets through less often than this is not shifted further."""


def all_channels(graph: Graph) -> dict[str, int]:
    """The axis of the channels of every tensor: that of the layer that reads it, or what is usual for its rank."""
    known = channel_axes(graph)
    values = [value for op in graph.ops if not isinstance(op, top.WeightOp) for value in op.results]
    usual = {value_name(v): 1 if len(shape_of(v)) == 4 else -1 for v in (*graph.block.args, *values)}
    return {name: known.get(name, axis) for name, axis in usual.items() if name}


def measure(
    source: Graph,
    made: Graph,
    scheme_of: SchemeOf,
    statistics: Statistics,
    samples: Sequence[Sample],
    *,
    threads: int = 1,
    step: Callable[[], None] = lambda: None,
) -> Measurements:
    """Measure an integer network against the float one that it was made of; `step` is called after every rounding."""
    types = tensor_types(made)
    layers = integer_layers(source, made, scheme_of)
    _same_network(layers)
    batches = [Batch(sample) for sample in samples[:COMPARED]]
    errors = {
        entry.name: entry for entry in compare_layers(source, made, batches, isolated=True, threads=threads)
    }
    probe = Probe.of(source, samples[:COMPARED:2], threads)
    units = {value: unit for unit in find_units(source, types) for value in unit.values}
    tensors: list[TensorMeasure] = []
    values_by_name: dict[str, Value] = {}
    values = [
        value
        for value in rounded_tensors(source, types)
        if (seen := statistics.tensors.get(value_name(value))) is not None and seen.count
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
    shifts = _shifts(source, made, layers, rest if len(rest) >= _FEW else samples, threads)
    for layer in layers:
        weights.append(_weights(probe, layer, shifts[layer.name]))
        step()
    least = _WORTH * (sum(one.noise for one in tensors) + sum(one.noise for one in weights))
    tensors = [
        _with_other_range(one, probe, values_by_name[one.name], types) if one.noise >= least else one
        for one in tensors
    ]
    engine = IntegerEngine(made, threads=threads)
    outputs = [port.name for port in source.outputs]
    found = [[np.asarray(values[name]) for name in outputs] for values in map(engine.run, probe.samples)]
    return Measurements(
        source, tuple(tensors), tuple(weights), probe.measure(found, probe.exact), statistics.samples
    )


def _roundings(
    probe: Probe, values: Sequence[Value], types: Mapping[str, QuantType], step: Callable[[], None]
) -> Iterator[tuple[Value, float]]:
    """Each tensor with the noise of rounding it; a few at a time, because the network is exported for each call."""
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
    """The same, with what another range would cost, if its range looks wrong: advice is tried before it is given."""
    values, seen = tensor.values, tensor.values.statistics
    scheme = next((change.old for change in tensor.wide.values()), None)
    if scheme is None:
        return tensor
    if values.clipping_part >= clipping.MOST_OF_IT:
        low, high = seen.min, seen.max
    elif outliers.has_outliers(values):
        low, high = max(seen.min, -values.usual), min(seen.max, values.usual)
    else:
        return tensor
    other = {**types, tensor.name: activation_type(low, high, scheme)}
    return replace(tensor, other_range=probe.tensors([_alone(value)], other)[0])


def rounded_tensors(graph: Graph, types: Mapping[str, QuantType]) -> list[Value]:
    """The tensors of the float network that get integers of their own, in order.

    What only moves elements passes on the integers that it reads, and a concat those that were made for it.
    """
    found = []
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
        found.append(value)
    return found


def _wide(graph: Graph, unit: Unit, scheme_of: SchemeOf) -> dict[str, Change]:
    """What the layers around a tensor have to get for it to have 16 bits."""
    return {
        result_names(op)[0]: Change(scheme, wider(scheme))
        for op in graph.ops
        if op in unit.ops
        and op.results
        and (scheme := scheme_of(op)) is not None
        and scheme.needs_ranges
        and scheme != wider(scheme)
    }


def _joined(value: Value, types: Mapping[str, QuantType]) -> str:
    """The concat that a tensor is made for."""
    for use in value.uses:
        if isinstance(use.operation, top.Concat):
            name = result_names(use.operation)[0]
            if types.get(name) == types.get(value_name(value)):
                return name
    return ""


def _same_network(layers: Sequence[IntegerLayer]) -> None:
    """An integer network that was made of other weights cannot be held against these."""
    for layer in layers:
        steps = np.abs(rounded_weights(layer) - layer.weight) / layer.scale
        if steps.size and float(np.median(steps)) > _FOREIGN:
            raise CompareError(
                f"layer '{layer.name}' of the integer network has other weights than that of the float network",
                fix="Give the float network that it was made of (weights that were equalized or migrated are another "
                "form of it), or leave the integer network out and give data: what is made of it is analyzed then",
            )


def _weights(probe: Probe, layer: IntegerLayer, shift: Shift) -> WeightMeasure:
    """What the constants of one layer cost: their random part on exact inputs, and the shift that they really make."""
    weight, bias = _constants(layer)
    exact = layer.real_bias
    shifted = 0.0
    if bias is None or exact is None or shift.exact.shape != bias.shape:
        random = _noise(probe, _disturbed(probe.graph, layer, weight, bias)[0])
    else:
        random = _noise(probe, _disturbed(probe.graph, layer, weight, bias - shift.exact / shift.active)[0])
        moved = exact.astype(np.float64).reshape(-1) + shift.mean / shift.active
        shifted = _noise(probe, _disturbed(probe.graph, layer, layer.weight, moved)[0])
    more = {"i4": "i8", "i8": "i16"}.get(layer.scheme.weight)
    return WeightMeasure(
        layer,
        layer.real.name.removeprefix("top."),
        {} if more is None else {layer.name: Change(layer.scheme, replace(layer.scheme, weight=more))},
        random,
        shifted,
        float(np.abs(shift.mean).max(initial=0.0)) / shift.deviation,
    )


@dataclass(frozen=True, eq=False)
class Shift:
    """What the rounded constants of a layer do to the mean of each output channel."""

    mean: Array
    """On the inputs that the layer has in the integer network: bias correction was done for these."""
    exact: Array
    """On exact inputs."""
    active: Array
    """How often the relu of the layer, if it has one, lets a change of the sum through."""
    deviation: float
    """Of the layer's output."""


def _shifts(
    graph: Graph, made: Graph, layers: Sequence[IntegerLayer], samples: Sequence[Sample], threads: int
) -> dict[str, Shift]:
    """Of all layers."""
    operands = {layer.name: value_name(layer.real.operands[0]) for layer in layers}
    inputs = {port.name for port in graph.inputs}
    fetch = {layer.name for layer in layers} | set(operands.values())
    held = {name for op in made.ops if not isinstance(op, top.WeightOp) for name in result_names(op)}
    exact = FloatEngine(graph, fetch=sorted(fetch - inputs), threads=threads)
    ours = IntegerEngine(made, fetch=sorted(set(operands.values()) & held), threads=threads)
    pairs = [
        (single_op(twin, changed, threads), single_op(layer.real, graph, threads))
        for layer in layers
        for changed, twin in [_disturbed(graph, layer, *_constants(layer))]
    ]
    rows: dict[str, list[tuple[Array, Array, Array, Array]]] = {layer.name: [] for layer in layers}
    for sample in samples:
        values, found = {**sample, **exact.run(sample)}, ours.run(sample)
        for layer, (changed, real) in zip(layers, pairs, strict=True):
            name = operands[layer.name]
            rest = [np.zeros(0)] * (len(layer.real.operands) - 1)  # constants, which `single_op` has
            x = np.ascontiguousarray(values[name], np.float32)
            seen = np.ascontiguousarray(found.get(name, x), np.float32)
            want = np.asarray(values[layer.name], np.float64)
            axis = output_channel_axis(layer.real, want.ndim)
            others = tuple(i for i in range(want.ndim) if i != axis)
            limit = getattr(layer.real, "relu_limit", 0.0) or np.inf
            passed = ((want > 0) & (want < limit)) if layer.real.relu else np.ones_like(want)
            here = changed([seen, *rest])[0].astype(np.float64) - real([seen, *rest])[0]
            there = changed([x, *rest])[0] - want
            means = [array.mean(axis=others) for array in (here, there, passed)]
            rows[layer.name].append((means[0], means[1], means[2], want.var()))
    found_means = {
        name: [np.mean(column, axis=0) for column in zip(*row, strict=True)] for name, row in rows.items()
    }
    return {
        name: Shift(mean, alone, np.maximum(active, _LEAST_ACTIVE), float(np.sqrt(variance)) or 1.0)
        for name, (mean, alone, active, variance) in found_means.items()
    }


def _constants(layer: IntegerLayer) -> tuple[Array, Array | None]:
    """The reals that the integers of a layer stand for: weights and biases."""
    bias = None if layer.bias is None else layer.bias.astype(np.float64) * layer.unit
    return rounded_weights(layer), bias


def _disturbed(graph: Graph, layer: IntegerLayer, weight: Array, bias: Array | None) -> tuple[Graph, Any]:
    """The float network with other constants in one layer, and that layer."""
    changed = graph.copy()
    twin: Any = next(
        op for op in changed.ops if type(op) is type(layer.real) and result_names(op)[0] == layer.name
    )
    place = twin.b if isinstance(twin, top.MatMul) else twin.weight
    pairs = [(place, weight)] + ([(twin.bias, bias)] if bias is not None and twin.bias is not None else [])
    for value, array in pairs:
        new = changed.add_weight(f"{layer.name}/disturbed", array.reshape(shape_of(value)).astype(np.float32))
        twin.parent.insert_op_before(new, twin)
        twin.operands[list(twin.operands).index(value)] = new.output
    return changed, twin


def _noise(probe: Probe, changed: Graph) -> float:
    """What a changed network does to the outputs."""
    names = [port.name for port in changed.outputs]
    engine = FloatEngine(changed, threads=probe.threads)
    found = [[np.asarray(values[name]) for name in names] for values in map(engine.run, probe.samples)]
    return probe.measure(found, probe.exact)
