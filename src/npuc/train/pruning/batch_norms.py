"""Batch norms around pruning: put back where they were folded away, and their statistics taken anew.

A pruned layer gets inputs whose statistics are no longer those that its batch norm, or what was folded of it into the layer,
was trained for. Taking them anew on some samples mends most of the damage before any training (EagleEye calls it adaptive
batch normalization). Where batch norms were folded, each channel is scaled and shifted so that its mean and deviation before
the activation are again those of the unpruned network: the same correction, applied to the weights and the bias.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from npuc.arrays import Array
from npuc.engine.torch import TopModule
from npuc.ir import Graph, Value, Weight, WeightStore, location, shape_of, tensor_type, top, value_name
from npuc.ir.passes import run_pipeline
from npuc.ir.top.weight import WeightOp
from npuc.train.data import TrainingData

_LAYERS = (top.Conv, top.Deconv, top.MatMul)
_MOST_FACTOR = 4.0
"""A channel is scaled by at most this: the rest would be noise."""
_EPSILON = 1e-5


class _WithoutRelu:
    """An op as its handler sees it, without the relu that is fused into it."""

    relu = False

    def __init__(self, op: Any) -> None:
        self._op = op

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)


def _is_layer(graph: Graph, op: Any) -> bool:
    return isinstance(op, _LAYERS) and graph.constant(op.operands[1]) is not None


def _channel_axis(op: Any) -> int:
    return len(shape_of(op.results[0])) - 1 if isinstance(op, top.MatMul) else 1


def _moments(tensor: Any, axis: int) -> tuple[Any, Any]:
    others = [at for at in range(tensor.dim()) if at != axis]
    return tensor.mean(others), tensor.var(others, unbiased=False)


def _inputs(graph: Graph, data: TrainingData, device: str) -> dict[Value, Any]:
    arrays = [torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in data.inputs]
    return {port.value: array for port, array in zip(graph.inputs, arrays, strict=True)}


def channel_moments(graph: Graph, data: TrainingData, device: str = "cpu") -> dict[str, tuple[Array, Array]]:
    """For each layer with weights, by the name of its result, the mean and deviation of its channels before the activation."""
    module = TopModule(graph).to(device)
    moments: dict[str, tuple[Array, Array]] = {}
    known = _inputs(graph, data, device)
    with torch.no_grad():
        for step in module.steps:
            if _is_layer(graph, step.op):
                raw = _run(module, step, known, _WithoutRelu(step.op))
                mean, variance = _moments(raw, _channel_axis(step.op))
                name = value_name(step.results[0])
                moments[name] = mean.cpu().numpy(), np.sqrt(variance.cpu().numpy())
                known[step.results[0]] = _activated(step.op, raw)
            else:
                _advance(module, step, known)
    return moments


def _tensor(module: TopModule, value: Any, known: Mapping[Value, Any]) -> Any:
    if value is None:
        return None
    return known[value] if value in known else module.weight(module.refs[value])


def _run(module: TopModule, step: Any, known: Mapping[Value, Any], op: Any) -> Any:
    operands = [
        [_tensor(module, item, known) for item in operand]
        if isinstance(operand, list)
        else _tensor(module, operand, known)
        for operand in step.operands
    ]
    return step.handler(op, *operands)


def _advance(module: TopModule, step: Any, known: dict[Value, Any]) -> None:
    outcome = _run(module, step, known, step.op)
    results = outcome if isinstance(outcome, tuple) else (outcome,)
    known.update(zip(step.results, results, strict=True))


def _activated(op: Any, raw: Any) -> Any:
    if not op.relu:
        return raw
    return raw.clamp(0, op.relu_limit) if op.relu_limit > 0 else raw.clamp(min=0)


def recalibrated(
    graph: Graph,
    data: TrainingData,
    reference: Mapping[str, tuple[Array, Array]] | None = None,
    device: str = "cpu",
) -> Graph:
    """The network with the statistics of its batch norms taken anew on samples, in the order of the network.

    `reference` has the moments of channels that layers without a batch norm shall have again: those of `channel_moments` of
    the unpruned network, for the channels that stayed.
    """
    module = TopModule(graph).to(device)
    store: dict[str, Weight] = dict(graph.weights)
    known = _inputs(graph, data, device)

    def put(ref: str, tensor: Any) -> None:
        with torch.no_grad():
            module.weight(ref).copy_(tensor)
        store[ref] = Weight.of(tensor.cpu().numpy().astype(np.float32))

    normed = {op.x for op in graph.ops if isinstance(op, top.BatchNorm)}
    with torch.no_grad():
        for step in module.steps:
            op: Any = step.op
            if isinstance(op, top.BatchNorm):
                mean, variance = _moments(known[op.x], 1)
                put(module.refs[op.mean], mean)
                put(module.refs[op.variance], variance)
            name = value_name(step.results[0])
            folded = reference is not None and name in reference and op.results[0] not in normed
            if not folded or not _is_layer(graph, op) or op.bias is None:
                _advance(module, step, known)
                continue
            assert reference is not None
            raw = _run(module, step, known, _WithoutRelu(op))
            axis = _channel_axis(op)
            mean, variance = _moments(raw, axis)
            goal_mean, goal_deviation = (torch.from_numpy(part).to(raw) for part in reference[name])
            deviation = variance.sqrt()
            factor = torch.where(deviation > 1e-6, goal_deviation / deviation.clamp(min=1e-6), 1.0)
            factor = factor.clamp(1 / _MOST_FACTOR, _MOST_FACTOR)
            weight, bias = (module.weight(module.refs[value]) for value in (op.operands[1], op.bias))
            put(module.refs[op.operands[1]], weight * _along(op, factor, weight))
            put(module.refs[op.bias], (bias - mean) * factor + goal_mean)
            shape = [-1 if at == axis else 1 for at in range(raw.dim())]
            raw = (raw - mean.reshape(shape)) * factor.reshape(shape) + goal_mean.reshape(shape)
            known[step.results[0]] = _activated(op, raw)
    copy = graph.copy()
    copy.weights = WeightStore(store)
    return copy


def _along(op: Any, factor: Any, weight: Any) -> Any:
    """A factor for each output channel, in the shape that multiplies the weight."""
    if isinstance(op, top.Conv):
        return factor.reshape(-1, *(1,) * (weight.dim() - 1))
    if isinstance(op, top.Deconv):
        each = factor.reshape(op.group, 1, -1).expand(-1, weight.shape[0] // op.group, -1)
        return each.reshape(weight.shape[0], -1, *(1,) * (weight.dim() - 2))
    return factor.reshape(-1, 1) if op.transpose_b else factor


def with_batch_norms(graph: Graph, data: TrainingData, device: str = "cpu") -> Graph:
    """The network with a batch norm behind each convolution that has none; it computes what it did.

    The statistics are those of the samples, and scale and bias undo them. Networks with batch norms learn at higher rates;
    those that came folded get them back for training, and the canonical form folds them again.
    """
    moments = channel_moments(graph, data, device)
    graph = graph.copy()
    store: dict[str, Weight] = dict(graph.weights)
    normed = {op.x for op in graph.ops if isinstance(op, top.BatchNorm)}
    uses = Counter(_ref(value) for op in graph.ops for value in op.operands if _is_weight(value))
    for op in list(graph.ops):
        name = value_name(op.results[0])
        if not isinstance(op, top.Conv) or op.results[0] in normed or not _is_weight(op.weight):
            continue
        refs = [_ref(value) for value in (op.weight, op.bias) if value is not None and _is_weight(value)]
        if any(uses[ref] > 1 for ref in refs):
            continue  # a layer that shares its weights shares no statistics
        factors = _unit_factors(graph.weights.array(refs[0]))
        for ref in refs:
            array = graph.weights.array(ref)
            scaled = array * factors.reshape(-1, *(1,) * (array.ndim - 1))
            store[ref] = Weight.of(scaled.astype(np.float32))
        mean, deviation = (part * factors for part in moments[name])
        variance = np.square(deviation)
        arrays = (np.sqrt(variance + _EPSILON) / factors, moments[name][0], mean, variance)
        kinds = ("scale", "bias", "mean", "variance")
        parameters = [
            WeightOp.of(ref, tensor_type(array.shape, "f32"))
            for ref, array in _stored(store, f"{name}.batch_norm", kinds, arrays)
        ]
        _insert_norm(graph, op, name, parameters)
    graph.weights = WeightStore(store)
    graph.verify()
    return graph


def _is_weight(value: Any) -> bool:
    return isinstance(value.owner, WeightOp)


def _unit_factors(weight: Array) -> Array:
    """What brings the kernel of each channel to unit length: behind a batch norm its length only sets how fast it learns."""
    lengths = np.sqrt(np.square(weight.reshape(len(weight), -1)).sum(1))
    return np.asarray(np.where(lengths > 1e-8, 1 / np.maximum(lengths, 1e-8), 1.0))


def _stored(
    store: dict[str, Weight], prefix: str, kinds: tuple[str, ...], arrays: tuple[Array, ...]
) -> Iterator[tuple[str, Array]]:
    for kind, array in zip(kinds, arrays, strict=True):
        ref = f"{prefix}.{kind}"
        store[ref] = Weight.of(np.ascontiguousarray(array, np.float32))
        yield ref, array


def _insert_norm(graph: Graph, conv: Any, name: str, parameters: list[Any]) -> None:
    """Put a batch norm, and the relu that was fused, between a convolution and its readers; the last one keeps the name."""
    norm: Any = top.BatchNorm.make(
        conv.results[0], *(weight.output for weight in parameters), epsilon=_EPSILON, loc=conv.location
    )
    added: list[Any] = [*parameters, norm]
    if conv.relu:
        added.append(top.Relu.make(norm.results[0], limit=conv.relu_limit, loc=conv.location))
        norm.location = location(f"{name}.norm")
    last = added[-1].results[0]
    for use in [use for use in conv.results[0].uses if use.operation is not norm]:
        use.operation.operands[use.index] = last
    graph.block.insert_ops_after(added, conv)
    conv.location = location(f"{name}.conv")
    conv.properties["relu"] = conv.attribute_of("relu", False)
    conv.properties["relu_limit"] = conv.attribute_of("relu_limit", 0.0)


def folded(graph: Graph, like: Graph) -> Graph:
    """The network with its batch norms in its convolutions and its activations in its layers; weights get their names of before.

    `like` is the network before `with_batch_norms`.
    """
    if not any(isinstance(op, top.BatchNorm) for op in graph.ops):
        return graph
    result = run_pipeline(graph, "fold-batch-norm,fold-scale,fuse-relu,eliminate-dead-code", verify=False)
    old, new = ([op for op in each.ops if not isinstance(op, WeightOp)] for each in (like, result))
    names: dict[str, str] = {}
    if [op.name for op in old] == [op.name for op in new]:
        for before, after in zip(old, new, strict=True):
            for left, right in zip(before.operands, after.operands, strict=False):
                if _is_weight(left) and _is_weight(right):
                    names.setdefault(_ref(right), _ref(left))
    if len(set(names.values())) == len(names) == len(result.used_weights()):
        store = {names[ref]: result.weights[ref] for ref in names}
        for op in result.ops:
            changed: Any = op
            if isinstance(op, WeightOp):
                changed.properties["ref"] = op.attribute_of("ref", names[op.ref])
                changed.location = location(op.ref)
        result.weights = WeightStore(store)
    result.verify()
    return result


def _ref(value: Any) -> str:
    owner = value.owner
    assert isinstance(owner, WeightOp)
    return owner.ref
