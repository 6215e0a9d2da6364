"""Bias correction: what rounding the weights does to the mean of each output channel is taken back by the bias.

Such shifts are small and systematic: they add up from layer to layer where random errors cancel. Layer by layer in
order, a few samples run through the integers made so far; the layer with its real weights on the same inputs shows what
the mean of each channel before the activation should be, and the difference goes into the integer bias. The next layer
sees the corrected values. Errors that came with the inputs are left alone: rare values that were clipped would otherwise
move the bias of the usual ones.
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
from npuc.quant.layers import output_channel_axis
from npuc.quant.lower import SchemeOf
from npuc.quant.parameters import largest_sum, stored_bias
from npuc.quant.scheme import Scheme

_LINEAR = (npu.Conv, npu.Deconv, npu.MatMul)


def correct_biases(
    source: Graph,
    made: Graph,
    samples: Sequence[Mapping[str, Array]],
    threads: int = 1,
    scheme_of: SchemeOf | None = None,
) -> list[str]:
    """Correct the biases of an integer network in place; the names of the tensors whose layers were corrected.

    `source` is the float network that it was made of, with the same names; `scheme_of` says what biases its layers can
    have. All samples are held at once, as integers and only while they are needed: a few dozen serve.
    """
    schemes = {
        result_names(op)[0]: (scheme_of(op) if scheme_of else None) or Scheme()
        for op in source.ops
        if isinstance(op, top.Conv | top.Deconv | top.MatMul)
    }
    layers = {
        result_names(op)[0]: op
        for op in made.ops
        if isinstance(op, _LINEAR) and op.bias is not None and _known(op, made)
    }
    real, bare = _real_layers(source, layers)
    values: dict[Value, list[Array]] = {
        port.value: [np.asarray(sample[port.name], dtype_of(port.type).numpy) for sample in samples]
        for port in made.inputs
    }
    last = {value: op for op in made.ops for value in op.operands}
    corrected = []
    for op in list(made.ops):
        if isinstance(op, top.WeightOp):
            values[op.output] = [made.weights.array(op.ref)] * len(samples)
            continue
        assert isinstance(op, TensorOp)
        name = result_names(op)[0]
        if name in real and layers.get(name) is op:
            _correct(op, made, real[name], bare, values[op.operands[0]], threads, schemes[name])
            corrected.append(name)
        run = prepare(op, made, threads)
        constants = {value: made.constant(value) for value in op.operands}
        columns = [
            run([values[v][i] if constants[v] is None else constants[v] for v in op.operands])  # type: ignore[misc]
            for i in range(len(samples))
        ]
        for index, value in enumerate(op.results):
            values[value] = [column[index] for column in columns]
        for operand in op.operands:
            if last.get(operand) is op:
                values.pop(operand, None)
    return corrected


def _real_layers(source: Graph, names: Collection[str]) -> tuple[dict[str, TopOp], Graph]:
    """The float layers by the name of their result, without their fused relu, and the graph that they are in."""
    bare = source.copy()
    found: dict[str, TopOp] = {}
    for op in list(bare.ops):
        if isinstance(op, top.Conv | top.Deconv | top.MatMul) and (name := result_names(op)[0]) in names:
            found[name] = _unfused(op) if op.relu else op
    return found, bare


def _unfused(op: Any) -> TopOp:
    """The same layer without its relu, beside it."""
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
    """True if bias, weights and their scales are constants, and sums fit 32 bits."""
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
    bare: Graph,
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
    exact = single_op(real, bare, threads)
    rest = [np.zeros(0)] * (len(real.operands) - 1)  # constants, which `single_op` has
    wanted, found = np.zeros(bias.shape), np.zeros(bias.shape)
    for x in inputs:
        reals = (x.astype(np.float32) - np.float32(kind.zero_point)) * np.float32(kind.scale)
        wanted += _channel_mean(real, exact([np.ascontiguousarray(reals), *rest])[0])
    if isinstance(op, npu.MatMul):
        product = MatMulPlan(weight.T if op.transpose_b else weight, bias, **common)
        for x in inputs:
            found += _channel_mean(op, product.run(x, threads))
    else:
        transposed = isinstance(op, npu.Deconv)
        plan = ConvPlan(
            weight, bias, strides=op.strides, pads=op.pads, dilations=op.dilations, groups=op.group,
            transposed=transposed, output_padding=op.output_padding if transposed else (0, 0), **common,
        )  # fmt: skip
        for x in inputs:
            sums = plan.run(x.transpose(0, 2, 3, 1), threads)
            found += sums.mean(axis=(0, 1, 2), dtype=np.float64)
    # No further than the proof that sums fit has room for, the rounding of the bias included.
    bits = scheme.sum_bits if bias.dtype == np.int32 else scheme.wide_sum_bits
    axis = 1 if isinstance(op, npu.Deconv) or (isinstance(op, npu.MatMul) and not op.transpose_b) else 0
    centred = weight.astype(np.int64) - op.weight_zero_point
    room = min(2.0**24, (2.0 ** (bits - 1) - largest_sum(centred, bias, kind, axis)) / 2)
    shift = np.clip((wanted / unit - found) / len(inputs), -room, room)
    made = stored_bias(bias + shift, scheme).astype(bias.dtype)
    name = result_names(op)[0]
    new = graph.add_weight(f"{name}/bias/corrected", made)
    op.parent.insert_op_before(new, op)
    place = list(op.operands).index(op.bias)
    op.operands[place] = new.output
