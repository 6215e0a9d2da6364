"""From a network and data to a QAT module: canonical form, schemes, calibrated ranges, and the first integer network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from npuc.arithmetic.kinds import Scales
from npuc.calib.sources import open_data
from npuc.engine.torch.registry import HANDLERS
from npuc.errors import NpucError, TrainingError, UsageError
from npuc.flow import expanded, network_to_quantize, ranges_from, schemes_of
from npuc.integrations.torch.live import from_torch
from npuc.ir import Graph, Value, describe, dtype_of, npu, shape_of, shown_name, top, value_name
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import QuantType
from npuc.ir.target_rewrites import rewritten_for
from npuc.quant import quantize
from npuc.quant.activation_forms import with_activation_forms
from npuc.quant.adaquant.lowering import type_origins
from npuc.quant.config import QuantizationConfig
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.layers import IntegerLayer, integer_layers
from npuc.quant.prequantized import integer_types
from npuc.quant.scheme import Scheme
from npuc.target import Target, load_target
from npuc.train.data import TrainingData
from npuc.train.network import TrainableNetwork, with_own_vectors
from npuc.train.qat.module import QatModule, QatPlan, RangedTensor
from npuc.train.qat.operands import with_short_operands
from npuc.train.qat.options import QatOptions
from npuc.train.qat.quantizers import best_scale

_CALIBRATED = 256
"""Samples that ranges come from."""
_SHORT = 8
"""Below this many bits, scales start where the squared error is least, not where nothing is clipped."""


def prepare(
    model: Any,
    data: Any,
    *,
    target: Target | str | None = "edge-4t",
    config: QuantizationConfig | Path | str | None = None,
    method: str | None = None,
    options: QatOptions | None = None,
    threads: int | None = None,
) -> QatModule:
    """A module that is trained like any other, and that computes in eval mode what the target will compute.

    `model` is a torch module, a float network of npuc, or the path of a model in any format; `data` are typical inputs
    (`TrainingData`, arrays, tensors, or a pair with labels), of which the first 256 calibrate the ranges. `config` is a
    quantization configuration or its file: widths and schemes of single layers come from it.

        qat = npuc.train.prepare(model, images, target="edge-4t")
        ...                                     # your training loop, or npuc.train.fit(qat, data)
        integers = qat.export()
    """
    samples = TrainingData.of(data)
    network = _network(model, samples)
    _require_gradients(network)
    graph, scheme_of = trained_form(network, target, config)
    plan = _calibrated_plan(graph, scheme_of, samples, method, options or QatOptions(), threads)
    return QatModule(plan, options or QatOptions())


def _calibrated_plan(
    graph: Graph,
    scheme_of: LayerSchemes,
    samples: TrainingData,
    method: str | None,
    options: QatOptions,
    threads: int | None = None,
) -> QatPlan:
    """The plan of a float network whose ranges come from samples."""
    few = samples[: min(len(samples), _CALIBRATED)]
    table = ranges_from(graph, open_data(graph, _rows(graph, few)), scheme_of, method, threads=threads)
    quantized = quantize(graph, table, scheme_of)
    layers = tuple(integer_layers(graph, quantized, scheme_of))
    _require_learnable(graph, quantized, layers)
    tensors, fixed = _tensors(graph, quantized, table, scheme_of, options)
    return QatPlan(graph, scheme_of, dict(table.entries), layers, _narrowed(graph, tensors, few), fixed)


def calibrate(module: QatModule, data: Any, method: str | None = None) -> None:
    """Take the ranges of a prepared module anew, from other samples and with the weights of now.

    Parameters stay the same objects: an optimizer that has them goes on.
    """
    graph = Graph(module.plan.source.module, module.network.weight_store())
    samples = TrainingData.of(data)
    plan = _calibrated_plan(graph, module.plan.scheme_of, samples, method, module.options)
    module.set_plan(replace(plan, source=module.plan.source))


def calibrate_at_first_call(module: QatModule, method: str | None = None) -> None:
    """Take ranges from the first batch that the module is called with, for a module that was prepared on samples without meaning.

    A state that is loaded before has ranges of its own, and they stay.
    """
    module.awaits_data = True
    module.register_forward_pre_hook(partial(_calibrate_once, method))


def _calibrate_once(method: str | None, module: QatModule, inputs: tuple[Any, ...]) -> None:
    if module.awaits_data:
        arrays = [x.detach().cpu().numpy() for x in inputs]
        calibrate(module, TrainingData(tuple(arrays)), method)


def trained_form(
    graph: Graph,
    target: Target | str | None = "edge-4t",
    config: QuantizationConfig | Path | str | None = None,
) -> tuple[Graph, LayerSchemes]:
    """The float network that is trained: a network in canonical form as the machine and the configuration want it."""
    machine = load_target(target) if isinstance(target, str) else target
    chosen = QuantizationConfig.load(config) if isinstance(config, Path | str) else config
    if machine is not None:
        graph = rewritten_for(graph, machine, "float")
    graph, _ = with_activation_forms(with_own_vectors(graph), chosen, machine)
    return with_short_operands(graph, schemes_of(graph, chosen, machine).changed(_with_least_error))


def _network(model: Any, samples: TrainingData) -> Graph:
    """The float network in canonical form."""
    if isinstance(model, Graph):
        return expanded(model)
    if isinstance(model, Path | str):
        return network_to_quantize(model)
    if not isinstance(model, torch.nn.Module):
        raise UsageError(
            f"a {type(model).__name__} cannot be trained",
            fix="Give a torch module, a network of npuc, or the path of a model",
        )
    _require_own_weights(model)
    example = tuple(torch.from_numpy(np.ascontiguousarray(x[:1])) for x in samples.inputs)
    try:
        return expanded(from_torch(model, example))
    except NpucError as error:
        raise TrainingError(
            f"the module cannot become a network: {error.message}",
            fix=error.fix
            or "Move what depends on the values of tensors (if, while) out of forward, or into the loss",
        ) from error


def _require_gradients(graph: Graph) -> None:
    """Refuse operations that torch does not compute for npuc: nothing could be learned through them."""
    for op in graph.ops:
        if not isinstance(op, top.WeightOp) and type(op) not in HANDLERS:
            raise TrainingError(
                f"{describe(op)} cannot be trained: there is no gradient for it",
                fix="Write an assignment in place (x[mask] = 0) as torch.where, or keep this part out of the module",
            )


def _require_own_weights(model: Any) -> None:
    """Refuse parameters that two layers share: each layer of the integer network has a scale for its own weights."""
    owners: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        first = owners.setdefault(id(parameter), name)
        if first != name and parameter.dim() > 1:
            raise TrainingError(
                f"'{first}' and '{name}' are the same parameter, and integer layers have weights of their own",
                fix="Give one of them a copy: nn.Parameter(weight.clone())",
            )


def _with_least_error(op: Any, scheme: Scheme) -> Scheme:
    """Scales of short weights clip the largest ones."""
    if scheme.needs_ranges and dtype_of(scheme.weight).bits < _SHORT and scheme.weight_method == "max":
        return replace(scheme, weight_method="mse")
    return scheme


def _rows(graph: Graph, samples: TrainingData) -> Iterator[dict[str, Any]]:
    """The samples in batches of the network."""
    names = [port.name for port in graph.inputs]
    if len(names) != len(samples.inputs):
        raise UsageError(
            f"the network has {len(names)} inputs ({', '.join(names)}), and the data has {len(samples.inputs)}",
            fix="Give one array for each input, in order",
        )
    size = (shape_of(graph.inputs[0].value) or (1,))[0]
    for begin in range(0, len(samples) - size + 1, size):
        yield {name: array[begin : begin + size] for name, array in zip(names, samples.inputs, strict=True)}


def _require_learnable(graph: Graph, quantized: Graph, layers: tuple[IntegerLayer, ...]) -> None:
    """Refuse layers whose integer weights would not follow what is learned."""
    learned = {layer.integer_op for layer in layers}
    for op in quantized.ops:
        if not isinstance(op, npu.Conv | npu.Deconv | npu.MatMul) or op in learned:
            continue
        if quantized.constant(op.weight) is None:
            continue
        words = f"the layer '{shown_name(op)}' cannot be trained"
        if op.weight_zero_point:
            raise TrainingError(
                f"{words}: its weights have a zero point", fix="Use symmetric weights (weight: i8)"
            )
        raise TrainingError(
            f"{words}: its weights are shared with another layer, or it was rewritten for the machine",
            fix="Give each layer weights of its own, or keep the layer float in the configuration",
        )


def _tensors(
    graph: Graph, quantized: Graph, table: Any, scheme_of: LayerSchemes, options: QatOptions
) -> tuple[tuple[RangedTensor, ...], dict[Value, QuantType]]:
    """The ranges that can be learned, and the tensors whose types are fixed."""
    types = integer_types(quantized)
    origins = type_origins(graph, table, scheme_of)
    inputs = {port.value: port.name for port in graph.inputs}
    members: dict[str, list[Value]] = {}
    fixed: dict[Value, QuantType] = {}
    values = [*inputs, *(v for op in graph.ops if not isinstance(op, top.WeightOp) for v in op.results)]
    for value in values:
        name = value_name(value) if value not in inputs else inputs[value]
        kind = types.get(f"{name}/narrowed") or types.get(f"{name}/quantized") or types.get(name)
        if kind is None:
            continue
        if value in origins:
            members.setdefault(origins[value], []).append(value)
        else:
            fixed[value] = kind
        types[name] = kind
    tensors = []
    for name, own in members.items():
        origin = graph.find(name)
        first = origin if origin in own else own[0]
        assert first is not None
        scheme = _scheme_at(first, scheme_of)
        kind = types[inputs.get(first) or value_name(first)]
        if scheme is None:
            fixed.update(dict.fromkeys(own, kind))
            continue
        learns = first not in inputs or options.learn_inputs
        order = (first, *(value for value in own if value is not first))
        tensors.append(RangedTensor(name, order, kind, scheme, learns))
    return tuple(tensors), fixed


def _scheme_at(value: Value, scheme_of: LayerSchemes) -> Scheme | None:
    """The scheme under which a range became a type: that of the layer that makes the tensor, or that reads it."""
    owner = value.owner
    schemes = [scheme_of(owner)] if isinstance(owner, TopOp) else []
    schemes += [scheme_of(use.operation) for use in value.uses]
    return next((scheme for scheme in schemes if scheme is not None and scheme.needs_ranges), None)


def _narrowed(
    graph: Graph, tensors: tuple[RangedTensor, ...], samples: TrainingData
) -> tuple[RangedTensor, ...]:
    """Scales of tensors of few bits, where their squared error on the samples is least."""
    short = [tensor for tensor in tensors if tensor.learns and tensor.kind.dtype.bits < _SHORT]
    if not short:
        return tensors
    body = TrainableNetwork(graph).body
    firsts = [tensor.values[0] for tensor in short]
    values = {
        port.value: torch.from_numpy(np.ascontiguousarray(array))
        for port, array in zip(graph.inputs, samples.inputs, strict=True)
    }
    with torch.no_grad():
        known = body.run(body.steps, values, firsts)
    better = {}
    for tensor in short:
        power = tensor.scheme.activation_scales is Scales.POWER_OF_TWO
        kind = tensor.kind
        scale = best_scale(known[tensor.values[0]], kind.scale, kind.zero_point, *tensor.limits, power=power)
        better[tensor.name] = replace(
            tensor, kind=QuantType.of(kind.dtype, float(np.float32(scale)), kind.zero_point)
        )
    return tuple(better.get(tensor.name, tensor) for tensor in tensors)
