"""Bias correction: the bias compensates for the shift that rounding the weights causes in the mean of each output channel.

Such shifts are small and systematic: they add up from layer to layer, while random errors cancel. The layers are corrected
in order. A few samples run through the integer network so far; the float layer on the same inputs gives the mean that each
channel should have before the activation, and the difference is added to the integer bias. The next layer reads the
corrected values. Errors that are already in the inputs are not corrected: rare clipped values would otherwise shift the
bias for all others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.engine.integer import prepare
from npuc.engine.single import single_op
from npuc.ir import Graph, Value, dtype_of, npu, result_names, top
from npuc.ir.definition import TensorOp, TopOp
from npuc.ir.dtypes import quant_of
from npuc.kernels import ConvPlan, MatMulPlan
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.layers import output_channel_axis
from npuc.quant.parameters import largest_sum, stored_bias
from npuc.quant.scheme import Scheme

_LINEAR = (npu.Conv, npu.Deconv, npu.MatMul)


def correct_biases(
    source: Graph,
    quantized: Graph,
    samples: Sequence[Mapping[str, Array]],
    threads: int = 1,
    scheme_of: LayerSchemes | None = None,
) -> list[str]:
    """Correct the biases of an integer network in place; returns the names of the results of the corrected layers.

    `source` is the float network that it was made of, with the same names; `scheme_of` determines the bias width of each
    layer. The values of all samples are in memory at once, as integers and only while they are needed; a few dozen samples
    are enough.
    """
    schemes = {
        result_names(op)[0]: (scheme_of(op) if scheme_of else None) or Scheme()
        for op in source.ops
        if isinstance(op, top.Conv | top.Deconv | top.MatMul)
    }
    layers = {
        result_names(op)[0]: op
        for op in quantized.ops
        if isinstance(op, _LINEAR) and op.bias is not None and _known(op, quantized)
    }
    float_layers, float_graph = _real_layers(source, layers)
    values: dict[Value, list[Array]] = {
        port.value: [np.asarray(sample[port.name], dtype_of(port.type).numpy) for sample in samples]
        for port in quantized.inputs
    }
    last_reader = {value: op for op in quantized.ops for value in op.operands}
    corrected = []
    for op in list(quantized.ops):
        if isinstance(op, top.WeightOp):
            values[op.output] = [quantized.weights.array(op.ref)] * len(samples)
            continue
        assert isinstance(op, TensorOp)
        name = result_names(op)[0]
        if name in float_layers and layers.get(name) is op:
            _correct(
                op, quantized, float_layers[name], float_graph, values[op.operands[0]], threads, schemes[name]
            )
            corrected.append(name)
        run = prepare(op, quantized, threads)
        constants = {value: quantized.constant(value) for value in op.operands}
        columns = [
            run([values[v][i] if constants[v] is None else constants[v] for v in op.operands])  # type: ignore[misc]
            for i in range(len(samples))
        ]
        for index, value in enumerate(op.results):
            values[value] = [column[index] for column in columns]
        for operand in op.operands:
            if last_reader.get(operand) is op:
                values.pop(operand, None)
    return corrected


def _real_layers(source: Graph, names: Collection[str]) -> tuple[dict[str, TopOp], Graph]:
    """The float layers by the name of their result, without their fused relu, and the graph that they are in."""
    float_graph = source.copy()
    layers: dict[str, TopOp] = {}
    for op in list(float_graph.ops):
        if isinstance(op, top.Conv | top.Deconv | top.MatMul) and (name := result_names(op)[0]) in names:
            layers[name] = _unfused(op) if op.relu else op
    return layers, float_graph


def _unfused(op: Any) -> TopOp:
    """A copy of the layer without its relu, inserted before it."""
    properties = {key: op.properties[key] for key in op.CONVERTERS if key in op.properties}
    properties.pop("relu", None)
    properties.pop("relu_limit", None)
    operands = op.operands if op.bias is not None else (*op.operands, None)
    linear: TopOp = type(op).make(*operands, name=f"{result_names(op)[0]}/before_relu", **properties)
    op.parent.insert_op_before(linear, op)
    return linear


def _channel_mean(op: object, array: Array) -> Array:
    """The mean of each output channel of a layer."""
    axis = output_channel_axis(op, array.ndim)
    mean: Array = array.mean(axis=tuple(i for i in range(array.ndim) if i != axis), dtype=np.float64)
    return mean


def _known(op: Any, graph: Graph) -> bool:
    """Whether bias, weights and their scales are constants, and sums fit 32 bits."""
    kind = quant_of(op.x)
    weight, bias, scale = (graph.constant(value) for value in (op.weight, op.bias, op.weight_scale))
    if kind is None or weight is None or bias is None or scale is None:
        return False
    axis = {npu.Conv: 0, npu.Deconv: 1}.get(type(op), weight.ndim - 1)
    if isinstance(op, npu.MatMul) and op.transpose_b:
        axis = weight.ndim - 2
    centred = weight.astype(np.int64) - op.weight_zero_point
    return largest_sum(centred, bias, kind, axis) < 2**31


def _correct(
    op: Any,
    graph: Graph,
    real: TopOp,
    float_graph: Graph,
    inputs: Sequence[Array],
    threads: int,
    scheme: Scheme,
) -> None:
    """Give a layer its corrected bias."""
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
    exact = single_op(real, float_graph, threads)
    rest = [np.zeros(0)] * (len(real.operands) - 1)  # constants, which `single_op` has
    float_means, integer_means = np.zeros(bias.shape), np.zeros(bias.shape)
    for x in inputs:
        reals = (x.astype(np.float32) - np.float32(kind.zero_point)) * np.float32(kind.scale)
        float_means += _channel_mean(real, exact([np.ascontiguousarray(reals), *rest])[0])
    if isinstance(op, npu.MatMul):
        product = MatMulPlan(weight.T if op.transpose_b else weight, bias, **common)
        for x in inputs:
            integer_means += _channel_mean(op, product.run(x, threads))
    else:
        transposed = isinstance(op, npu.Deconv)
        plan = ConvPlan(
            weight, bias, strides=op.strides, pads=op.pads, dilations=op.dilations, groups=op.group,
            transposed=transposed, output_padding=op.output_padding if transposed else (0, 0), **common,
        )  # fmt: skip
        for x in inputs:
            sums = plan.run(x.transpose(0, 2, 3, 1), threads)
            integer_means += sums.mean(axis=(0, 1, 2), dtype=np.float64)
    # The shift is limited so that the sums still fit the accumulator, including the rounding of the bias.
    bits = scheme.sum_bits if bias.dtype == np.int32 else scheme.wide_sum_bits
    axis = 1 if isinstance(op, npu.Deconv) or (isinstance(op, npu.MatMul) and not op.transpose_b) else 0
    centred = weight.astype(np.int64) - op.weight_zero_point
    room = min(2.0**24, (2.0 ** (bits - 1) - largest_sum(centred, bias, kind, axis)) / 2)
    shift = np.clip((float_means / unit - integer_means) / len(inputs), -room, room)
    corrected = stored_bias(bias + shift, scheme).astype(bias.dtype)
    name = result_names(op)[0]
    new = graph.add_weight(f"{name}/bias/corrected", corrected)
    op.parent.insert_op_before(new, op)
    place = list(op.operands).index(op.bias)
    op.operands[place] = new.output
