"""Rules for bf16, f16 and f32: no scales, no ranges, the same op on another type.

An op without a kernel of its own runs in float32 on the widened operands, and its result is rounded; in a layer of f32 it
stays as it is, on the CPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from npuc.arrays import Array
from npuc.ir import Value, dtype_of, layer_name, location, npu, result_names, shape_of, top, value_name
from npuc.ir.definition import TopOp
from npuc.ir.top.functions import FUNCTIONS
from npuc.ir.top.movement import MOVERS
from npuc.kernels.blocks import pack
from npuc.kernels.floats import BF16
from npuc.quant.lower import LoweringContext
from npuc.quant.lowering.f32_functions import f32_function, f32_table
from npuc.quant.lowering.registry import NoIntegerForm, lowers_float
from npuc.quant.tensor_classes import dequantized_weights, weight_axis


@lowers_float(TopOp)
def widened(op: TopOp, context: LoweringContext) -> list[Value]:
    """The op in float32 between casts."""
    to = context.type_of(op.results[0])
    if _is_f32(to):
        raise NoIntegerForm(f"no instruction computes {op.name.removeprefix('top.')} in this form with f32")
    wide = type(op).create(
        operands=[context.widened(value, to) for value in op.operands],
        result_types=[value.type for value in op.results],
        properties=op.properties,
        attributes=op.attributes,
        location=cast(Any, location([f"{name}/wide" for name in result_names(op)], layer_name(op))),
    )
    context.graph.block.add_op(wide)
    rounded = [
        context.emit(npu.Cast, new, to=to, name=value_name(old), layer=layer_name(op))
        for old, new in zip(op.results, wide.results, strict=True)
    ]
    return [cast_op.y for cast_op in rounded]


def _is_f32(kind: Any) -> bool:
    return dtype_of(kind).name == "f32"


def _properties(op: Any) -> dict[str, Any]:
    return {key: op.properties[key] for key in op.CONVERTERS if key in op.properties}


@lowers_float(*MOVERS)
def move(op: TopOp, context: LoweringContext) -> list[Value]:
    """The same op on other elements."""
    x = context.short(op.operands[0], context.type_of(op.results[0]))
    return list(context.emit(type(op), x, loc=op.location, **_properties(op)).results)


@lowers_float(top.Pad)
def pad(op: top.Pad, context: LoweringContext) -> list[Value]:
    """Borders that machines have an instruction for; others in float32, which gives the same bits."""
    simple = op.mode == "constant" or op.frames_images
    return move(op, context) if simple else widened(op, context)


@lowers_float(top.MaxPool)
def max_pool(op: top.MaxPool, context: LoweringContext) -> list[Value]:
    """Two spatial axes have a kernel."""
    to = context.type_of(op.results[0])
    if len(op.kernel) != 2:
        return widened(op, context)
    if not _is_f32(to):
        return move(op, context)
    pool = context.emit(npu.FloatMaxPool, context.short(op.x, to), to=to, loc=op.location, **_properties(op))
    return [pool.y]


@lowers_float(top.Resize)
def resize(op: top.Resize, context: LoweringContext) -> list[Value]:
    """Nearest neighbours are copied."""
    return move(op, context) if op.mode == "nearest" else widened(op, context)


@lowers_float(top.Concat)
def concat(op: top.Concat, context: LoweringContext) -> Value:
    """All operands in the type of the result."""
    to = context.type_of(op.results[0])
    values = [context.short(value, to) for value in op.inputs]
    joined: Value = context.emit(top.Concat, values, axis=op.axis, loc=op.location).y
    return joined


_LINEAR: dict[type[TopOp], type[npu.FloatOp]] = {
    top.Conv: npu.FloatConv,
    top.Deconv: npu.FloatDeconv,
    top.MatMul: npu.FloatMatMul,
}


@lowers_float(*_LINEAR)
def linear(op: Any, context: LoweringContext) -> Value | list[Value]:
    """Convolutions need constant weights and two spatial axes; products may be of two activations."""
    to = context.type_of(op.results[0])
    constant = context.constant(op.operands[1])
    fixed = constant is not None or isinstance(op, top.MatMul)
    flat = isinstance(op, top.MatMul) or len(op.strides) == 2
    biased = op.bias is None or context.constant(op.bias) is not None
    if not (fixed and flat and biased):
        return widened(op, context)
    scheme = context.scheme(op)
    if scheme.is_block and (packed := _packed(op, context, scheme.activation)) is not None:
        return packed
    sums: Value = context.emit(
        _LINEAR[type(op)],
        context.short(op.operands[0], to),
        _weight(op, context, to),
        None if op.bias is None else context.real(op.bias),
        to=to,
        loc=op.location,
        **_properties(op),
    ).y
    return sums


def _weight(op: Any, context: LoweringContext, to: Any) -> Value:
    """Weights in the type of the activations; of weight-only quantization, what their integers stand for."""
    value, scheme = op.operands[1], context.scheme(op)
    array = context.constant(value)
    axis = None if array is None else weight_axis(op, array)
    if scheme.weight == scheme.activation or array is None or axis is None:
        return context.short(value, to)
    if not np.isfinite(array).all():
        raise NoIntegerForm("its weights are not all finite")
    if isinstance(op, top.Deconv) and op.group > 1:
        scheme = replace(scheme, per_channel=False)
    real = dequantized_weights(array, axis, scheme)
    with np.errstate(over="ignore"):
        short = real.astype(dtype_of(to).numpy)
    return context.shared_weight(f"{value_name(value)}/dequantized", short)


def _packed(op: Any, context: LoweringContext, kind: str) -> Value | None:
    """A product of packed blocks; None if it is none of one group with constant weights, whose products are those of f32."""
    weight = context.constant(op.operands[1])
    if weight is None or isinstance(op, top.Deconv) or getattr(op, "group", 1) != 1:
        return None
    if isinstance(op, top.MatMul) and (weight.ndim != 2 or len(shape_of(op.a)) == 4):
        return None
    if not np.isfinite(weight).all():
        raise NoIntegerForm(f"{kind} does not hold all values of its weights")
    bias = None if op.bias is None else context.real(op.bias)
    common: dict[str, Any] = {
        "to": context.type_of(op.results[0]),
        "format": kind,
        "relu": op.relu,
        "relu_limit": op.relu_limit,
    }
    name = f"{value_name(op.operands[1])}/{kind}"
    if isinstance(op, top.MatMul):
        rows = pack(np.ascontiguousarray(weight if op.transpose_b else weight.T, np.float32), kind)
        x = context.packed(op.a, len(shape_of(op.a)) - 1, kind)
        product = context.emit(
            npu.BlockMatMul,
            x,
            context.weight(name, rows),
            bias,
            inputs=shape_of(op.a)[-1],
            loc=op.location,
            **common,
        )
    else:
        rows = pack(np.ascontiguousarray(weight.transpose(0, 2, 3, 1), np.float32), kind)
        window = {key: getattr(op, key) for key in ("strides", "pads", "dilations")}
        x = context.packed(op.x, 1, kind)
        product = context.emit(
            npu.BlockConv,
            x,
            context.weight(name, rows),
            bias,
            inputs=weight.shape[1],
            loc=op.location,
            **window,
            **common,
        )
    computed: Value = product.y
    return computed


_BINARY: dict[type[TopOp], type[npu.FloatOp]] = {
    top.Add: npu.FloatAdd,
    top.Sub: npu.FloatSub,
    top.Mul: npu.FloatMul,
}


@lowers_float(*_BINARY)
def binary(op: Any, context: LoweringContext) -> Value:
    """Both operands in the type of the result."""
    to = context.type_of(op.y)
    a, b = (context.short(value, to) for value in (op.a, op.b))
    result: Value = context.emit(_BINARY[type(op)], a, b, to=to, loc=op.location, **_properties(op)).y
    return result


@lowers_float(top.AvgPool)
def avg_pool(op: top.AvgPool, context: LoweringContext) -> Value | list[Value]:
    """Two spatial axes have a kernel, for windows that count all of their positions or the real ones."""
    if len(op.kernel) != 2 or len(shape_of(op.x)) != 4 or op.counts_vary:
        return widened(op, context)
    to = context.type_of(op.y)
    pooled: Value = context.emit(
        npu.FloatAvgPool, context.short(op.x, to), to=to, loc=op.location, **_properties(op)
    ).y
    return pooled


@lowers_float(top.Softmax)
def softmax(op: top.Softmax, context: LoweringContext) -> Value:
    """Along any axis."""
    to = context.type_of(op.y)
    shares: Value = context.emit(
        npu.FloatSoftmax, context.short(op.x, to), to=to, axis=op.axis, loc=op.location
    ).y
    return shares


def _norm(op: Any, context: LoweringContext, mode: str, **properties: Any) -> Value | list[Value]:
    """A normalization whose gain and bias are constants, or absent."""
    to, name = context.type_of(op.y), value_name(op.y)
    entries = []
    for what, neutral in (("scale", 1.0), ("bias", 0.0)):
        value = getattr(op, what, None)
        array = context.constant(value)
        if value is not None and array is None:
            return widened(op, context)
        entries.append(
            np.full(1, neutral, np.float32) if array is None else array.reshape(-1).astype(np.float32)
        )
    size = max(array.size for array in entries)
    gain, bias = (
        context.weight(f"{name}/{what}", np.broadcast_to(array, size).copy())
        for what, array in zip(("gain", "bias"), entries, strict=True)
    )
    normalized: Value = context.emit(
        npu.FloatNorm,
        context.short(op.x, to),
        gain,
        bias,
        to=to,
        mode=mode,
        epsilon=op.epsilon,
        loc=op.location,
        **properties,
    ).y
    return normalized


@lowers_float(top.LayerNorm, top.RMSNorm)
def over_last_axes(op: Any, context: LoweringContext) -> Value | list[Value]:
    """Rows are the axes from `axis` on."""
    return _norm(op, context, "layer" if isinstance(op, top.LayerNorm) else "rms", axis=op.axis)


@lowers_float(top.InstanceNorm, top.GroupNorm)
def over_space(op: Any, context: LoweringContext) -> Value | list[Value]:
    """Rows are the pixels of a channel, or of the channels of a group."""
    shape = shape_of(op.x)
    if len(shape) != 4:
        return widened(op, context)
    grouped = isinstance(op, top.GroupNorm)
    return _norm(op, context, "group" if grouped else "instance", groups=op.groups if grouped else shape[1])


@lowers_float(top.L2Norm)
def l2_norm(op: top.L2Norm, context: LoweringContext) -> Value | list[Value]:
    """By the root of the sum of squares."""
    return _norm(op, context, "l2", axis=op.axis)


@lowers_float(top.Reduce)
def reduce(op: top.Reduce, context: LoweringContext) -> Value | list[Value]:
    """Sums, means and extremes."""
    to = context.type_of(op.y)
    if op.kind in ("max", "min") and not _is_f32(to):
        return move(op, context)
    if op.kind not in ("sum", "mean", "max", "min"):
        return widened(op, context)
    reduced: Value = context.emit(
        npu.FloatReduce, context.short(op.x, to), to=to, loc=op.location, **_properties(op)
    ).y
    return reduced


@lowers_float(top.Max, top.Min)
def choose(op: Any, context: LoweringContext) -> Value:
    """Both operands in the type of the result."""
    to = context.type_of(op.y)
    operands = [context.short(value, to) for value in (op.a, op.b)]
    if _is_f32(to):
        kind = npu.FloatMax if isinstance(op, top.Max) else npu.FloatMin
        chosen: Value = context.emit(kind, *operands, to=to, loc=op.location).y
    else:
        chosen = context.emit(type(op), *operands, loc=op.location, **_properties(op)).y
    return chosen


@lowers_float(*FUNCTIONS)
def table(op: TopOp, context: LoweringContext) -> Value | list[Value]:
    """An entry for each of the 65536 values; f32 has too many, and computes what is made of sums, products and comparisons, or
    piecewise polynomials."""
    to = context.type_of(op.results[0])
    if _is_f32(to):
        computed = f32_function(op, context)
        if computed is not None:
            return computed
        pieces = f32_table(op)
        if pieces is None:
            return widened(op, context)
        entries = pieces
    else:
        dtype = dtype_of(to).numpy
        with np.errstate(all="ignore"):
            x = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float64)
            entries = round_once(FUNCTIONS[type(op)].on_floats(op, x), dtype)
    shared = f"{op.name.removeprefix('top.')}/{dtype_of(to).name}"
    looked_up: Value = context.emit(
        npu.FloatTable,
        context.short(op.operands[0], to),
        context.shared_weight(f"{shared}/table", entries),
        to=to,
        function=op.name.removeprefix("top."),
        parameters={
            name: value for name, value in op.native_properties().items() if value != op.DEFAULTS.get(name)
        },
        loc=op.location,
    ).y
    return looked_up


def round_once(x: Array, dtype: Any) -> Array:
    """float64 to bf16 or f16 with one rounding to nearest even; every NaN is the positive quiet one."""
    with np.errstate(all="ignore"):
        if dtype == BF16:
            # float32 with the last bit set where it is not exact: the second rounding then sees which side it was on.
            near = x.astype(np.float32)
            outside = np.abs(near.astype(np.float64)) > np.abs(x)
            inside = np.where(outside, np.nextafter(near, np.float32(0)), near)
            inexact = (near.astype(np.float64) != x) & np.isfinite(x)
            x = (inside.view(np.uint32) | inexact).astype(np.uint32).view(np.float32)
        y = x.astype(dtype)
    nan = np.array([0x7FC0 if dtype == BF16 else 0x7E00], np.uint16).view(dtype)
    return np.where(np.isnan(y), nan, y)
