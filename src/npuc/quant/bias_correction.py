"""Bias correction: what quantization does to the mean of each output channel is taken back by the bias.

Rounded weights and clipped inputs shift a channel's mean, and such shifts add up from layer to layer. Layer by layer in
order, a few samples run through the integers made so far; the mean of each channel before the activation is compared with
that of the float network, and the difference goes into the integer bias. The next layer sees the corrected values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from npuc.engine import FloatEngine
from npuc.engine.integer import prepare
from npuc.engine.kernels import ConvPlan, MatMulPlan
from npuc.ir import Graph, Value, dtype_of, npu, result_names, top
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import quant_of
from npuc.quant.arithmetic import round_away

Array = np.ndarray[Any, Any]
_LINEAR = (npu.Conv, npu.Deconv, npu.MatMul)


def correct_biases(
    source: Graph, made: Graph, samples: Sequence[Mapping[str, Array]], threads: int = 1
) -> list[str]:
    """Correct the biases of an integer network in place; the names of the tensors whose layers were corrected.

    `source` is the float network that it was made of, with the same names. All samples are held at once, as integers
    and only while they are needed: a few dozen serve.
    """
    layers = {
        result_names(op)[0]: op
        for op in made.ops
        if isinstance(op, _LINEAR) and op.bias is not None and _narrow(op, made)
    }
    means = float_means(source, list(layers), samples)
    values: dict[Value, list[Array]] = {
        port.value: [np.asarray(sample[port.name], dtype_of(port.type).numpy) for sample in samples]
        for port in made.inputs
    }
    last = {value: op for op in made.ops for value in op.operands}
    corrected = []
    for op in made.ops:
        if isinstance(op, top.WeightOp):
            array = made.weights.array(op.ref)
            values[op.output] = [array] * len(samples)
            continue
        assert isinstance(op, TensorOp)
        name = result_names(op)[0]
        if name in means and layers.get(name) is op:
            _correct(op, made, means[name], values[op.operands[0]], threads)
            corrected.append(name)
            bias: Any = op
            values[bias.bias] = [made.constant(bias.bias)] * len(samples)  # type: ignore[list-item]
        run = prepare(op, made, threads)
        columns = [run([values[value][i] for value in op.operands]) for i in range(len(samples))]
        for index, made_here in enumerate(op.results):
            values[made_here] = [column[index] for column in columns]
        for value in op.operands:
            if last.get(value) is op:
                values.pop(value, None)
    return corrected


def float_means(
    graph: Graph, names: Sequence[str], samples: Sequence[Mapping[str, Array]]
) -> dict[str, Array]:
    """The mean of each channel of linear layers before their fused relu."""
    copy = graph.copy()
    asked = {}
    for op in list(copy.ops):
        if isinstance(op, top.Conv | top.Deconv | top.MatMul) and (name := result_names(op)[0]) in set(names):
            asked[name] = _unfused(op, f"{name}/before_relu") if op.relu else name
    engine = FloatEngine(copy, fetch=list(asked.values()))
    sums: dict[str, Any] = {}
    for sample in samples:
        found = engine.run(sample)
        for name, fetched in asked.items():
            sums[name] = sums.get(name, 0.0) + _channel_mean(found[fetched])
    return {name: total / len(samples) for name, total in sums.items()}


def _unfused(op: Any, name: str) -> str:
    """Split the relu off a layer; its values before that get `name`."""
    properties = {key: op.properties[key] for key in op.CONVERTERS if key in op.properties}
    properties.pop("relu", None)
    properties.pop("relu_limit", None)
    linear = type(op).make(
        *(op.operands if op.bias is not None else (*op.operands, None)), name=name, **properties
    )
    relu = top.Relu.make(linear.results[0], limit=op.relu_limit, loc=op.location)
    block = op.parent
    block.insert_ops_before([linear, relu], op)
    op.results[0].replace_all_uses_with(relu.results[0])
    block.erase_op(op)
    return name


def _channel_mean(array: Array) -> Array:
    """Channels are axis 1 of maps, the last axis of matrices."""
    axis = 1 if array.ndim == 4 else array.ndim - 1
    mean: Array = array.mean(axis=tuple(i for i in range(array.ndim) if i != axis), dtype=np.float64)
    return mean


def _narrow(op: Any, graph: Graph) -> bool:
    """True if the sums are of 32 bits and the weights are constants with known scales."""
    kind, bias = quant_of(op.x), graph.constant(op.bias)
    known = graph.constant(op.weight) is not None and graph.constant(op.weight_scale) is not None
    return (
        known
        and kind is not None
        and kind.dtype.itemsize == 1
        and bias is not None
        and bias.dtype == np.int32
    )


def _correct(op: Any, graph: Graph, wanted: Array, inputs: Sequence[Array], threads: int) -> None:
    kind = quant_of(op.x)
    weight, bias, scales = (graph.constant(value) for value in (op.weight, op.bias, op.weight_scale))
    assert kind is not None and weight is not None and bias is not None and scales is not None
    unit = kind.scale * np.broadcast_to(scales.astype(np.float64), bias.shape)
    weight = weight if weight.dtype.isbuiltin == 1 else weight.astype(np.int8)
    common: dict[str, Any] = {
        "x_dtype": kind.dtype.numpy,
        "x_zero_point": kind.zero_point,
        "weight_zero_point": op.weight_zero_point,
    }
    found = np.zeros(bias.shape)
    if isinstance(op, npu.MatMul):
        product = MatMulPlan(weight.T if op.transpose_b else weight, bias, **common)
        for x in inputs:
            found += _channel_mean(product.run(x, threads))
    else:
        transposed = isinstance(op, npu.Deconv)
        plan = ConvPlan(
            weight, bias, strides=op.strides, pads=op.pads, dilations=op.dilations, groups=op.group,
            transposed=transposed, output_padding=op.output_padding if transposed else (0, 0), **common,
        )  # fmt: skip
        for x in inputs:
            sums = plan.run(x.transpose(0, 2, 3, 1), threads)
            found += sums.mean(axis=(0, 1, 2), dtype=np.float64)
    shift = round_away((wanted - found / len(inputs) * unit) / unit)
    # No further than the proof that sums fit has room for.
    limit = 2.0**24
    made = np.clip(bias.astype(np.float64) + np.clip(shift, -limit, limit), -(2.0**31), 2.0**31 - 1)
    name = result_names(op)[0]
    new = graph.add_weight(f"{name}/bias/corrected", made.astype(np.int32))
    op.parent.insert_op_before(new, op)
    place = list(op.operands).index(op.bias)
    op.operands[place] = new.output
