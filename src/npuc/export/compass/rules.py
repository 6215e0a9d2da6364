"""The layers of each op of Top IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.export.compass.layers import LayerWriter, NoCompassForm
from npuc.export.compass.text import DOMAIN
from npuc.ir import npu, shape_of, top
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import quant_of
from npuc.registries import Registry

RULES: Registry[type[TopOp], Callable[[LayerWriter, Any], None]] = Registry("a rule of Compass IR for")
"""By op."""
_ACTIVATIONS: dict[type[TopOp], str] = {
    top.Sigmoid: "SIGMOID",
    top.Tanh: "TANH",
    top.SiLU: "SILU",
    top.HardSwish: "HARDSWISH",
    top.Mish: "MISH",
    top.Softplus: "SOFTPLUS",
    top.Softsign: "SOFTSIGN",
    top.LeakyRelu: "LEAKYRELU",
    top.Elu: "ELU",
    top.Celu: "CELU",
    top.Selu: "SELU",
    top.ThresholdedRelu: "THRESHOLDEDRELU",
    top.HardSigmoid: "HARDSIGMOID",
    top.Clip: "CLIP",
    top.Gelu: "GELU",
}
_FUNCTIONS: dict[type[TopOp], str] = {
    top.Abs: "Abs",
    top.Acos: "Acos",
    top.Acosh: "Acosh",
    top.Asin: "Asin",
    top.Asinh: "Asinh",
    top.Atan: "Atan",
    top.Atanh: "Atanh",
    top.Ceil: "Ceil",
    top.Cos: "Cosine",
    top.Cosh: "Cosh",
    top.Erf: "Erf",
    top.Exp: "Exp",
    top.Floor: "Floor",
    top.Log: "Log",
    top.Neg: "Negative",
    top.Reciprocal: "Reciprocal",
    top.Round: "Round",
    top.Rsqrt: "Rsqrt",
    top.Sign: "Sign",
    top.Sin: "Sine",
    top.Sinh: "Sinh",
    top.Sqrt: "Sqrt",
    top.Tan: "Tan",
}
_ELTWISE: dict[type[TopOp], str] = {
    top.Add: "ADD",
    top.Sub: "SUB",
    top.Mul: "MUL",
    top.Max: "MAX",
    top.Min: "MIN",
}
_BINARY: dict[type[TopOp], str] = {
    top.Add: "Add",
    top.Sub: "Sub",
    top.Mul: "Mul",
    top.Div: "Div",
    top.Pow: "Pow",
}
_AXIS_OF = (0, 3, 1, 2)
"""Where an axis of N x C x H x W is in N x H x W x C."""


def _constant(w: LayerWriter, value: Any, what: str) -> Array:
    array = w.graph.constant(value)
    if array is None:
        raise NoCompassForm(f"its {what} are not constant")
    return array


def _fused(op: Any) -> dict[str, Any]:
    """The activation behind a layer."""
    if not op.relu:
        return {"with_activation": "NONE"}
    if op.relu_limit == 6.0:
        return {"with_activation": "RELU6"}
    if op.relu_limit > 0:
        return {"with_activation": "CLIP", "clip_min": 0.0, "clip_max": float(op.relu_limit)}
    return {"with_activation": "RELU"}


def _window(op: Any, kernel: Sequence[int]) -> dict[str, int]:
    upper, left, lower, right = op.pads
    return {
        "kernel_x": kernel[1],
        "kernel_y": kernel[0],
        "stride_x": op.strides[1],
        "stride_y": op.strides[0],
        "pad_left": left,
        "pad_right": right,
        "pad_top": upper,
        "pad_bottom": lower,
        "dilation_x": op.dilations[1],
        "dilation_y": op.dilations[0],
    }


def _images(op: Any) -> None:
    if len(shape_of(op.operands[0])) != 4:
        raise NoCompassForm(f"its input has rank {len(shape_of(op.operands[0]))}, not 4")


def _linear(w: LayerWriter, op: Any, turned: Callable[[Array], Array], weight: Any) -> dict[str, Any]:
    """The constants of a layer with weights: real ones, or the integers of the quantized network with their output stage."""
    twin = w.twin(op.results[0])
    if not isinstance(twin, npu.Conv | npu.Deconv | npu.MatMul) or w.integers is None:
        real, own = _constant(w, weight, "weights"), w.real_weights(op)
        weights = turned(real if own is None or own.shape != real.shape else own)
        bias = np.zeros(len(weights), np.float32) if op.bias is None else _constant(w, op.bias, "biases")
        return w.stored("weights", weights) | w.stored("biases", bias)
    constant = w.integers.constant
    integers = constant(twin.weight)
    scale = constant(twin.weight_scale)
    if integers is None or scale is None:
        raise NoCompassForm("its integer weights are not constant")
    weights = turned(integers)
    integer_bias = constant(twin.bias)
    if integer_bias is None:
        integer_bias = np.zeros(len(weights), np.int32)
    x = quant_of(twin.x)
    if x is None:
        raise NoCompassForm("its input is not quantized")
    lines = w.stored("weights", weights) | w.stored("biases", integer_bias)
    per_channel = scale.size > 1
    reciprocal = 1.0 / scale.astype(np.float64)
    for key, values in (("weights", reciprocal), ("biases", reciprocal / x.scale)):
        if per_channel:
            lines |= w.stored(f"{key}_scale", values.astype(np.float32))
        else:
            lines[f"{key}_scale"] = float(values[0])
            lines[f"{key}_zp"] = 0
    for key, operand in (("scale", twin.multiplier), ("shift", twin.shift)):
        parameters = constant(operand) if operand is not None else None
        if parameters is None:
            continue
        narrow = "int8" if key == "shift" else "uint16" if parameters.max(initial=0) < 1 << 16 else "int32"
        if parameters.size > 1:
            lines |= w.stored(key, parameters.astype(narrow))
        else:
            lines |= {f"{key}_type": narrow, f"{key}_value": int(parameters[0])}
    return lines


@RULES.register(top.Conv)
def convolution(w: LayerWriter, op: top.Conv) -> None:
    """Convolution, or DepthwiseConv where each channel is a group."""
    _images(op)
    outputs, each, *kernel = shape_of(op.weight)
    depthwise = each == 1 and op.group == shape_of(op.x)[1] and op.group > 1
    extra = {"multiplier": outputs // op.group} if depthwise else {}
    lines = _linear(w, op, lambda array: array.transpose(0, 2, 3, 1), op.weight)
    w.layer(
        "DepthwiseConv" if depthwise else "Convolution",
        [w.operand(op.x, True)],
        op.results,
        True,
        **lines,
        num_output=outputs,
        **_window(op, kernel),
        group=op.group,
        **extra,
        **_fused(op),
    )


@RULES.register(top.Deconv)
def transposed(w: LayerWriter, op: top.Deconv) -> None:
    """ConvTranspose."""
    _images(op)
    inputs, each, *kernel = shape_of(op.weight)
    group = op.group

    def turned(array: Array) -> Array:
        parts = array.reshape(group, inputs // group, each, *kernel).transpose(0, 2, 3, 4, 1)
        return parts.reshape(group * each, *kernel, inputs // group)

    lines = _linear(w, op, turned, op.weight)
    w.layer(
        "ConvTranspose",
        [w.operand(op.x, True)],
        op.results,
        True,
        **lines,
        num_output=group * each,
        **_window(op, kernel),
        group=group,
        output_padding_x=op.output_padding[1],
        output_padding_y=op.output_padding[0],
        **_fused(op),
    )


@RULES.register(top.MatMul)
def matmul(w: LayerWriter, op: top.MatMul) -> None:
    """FullyConnected with constant weights, else MatMul."""
    constant = w.graph.constant(op.b)
    if constant is not None and constant.ndim == 2 and len(shape_of(op.a)) == 2:
        lines = _linear(w, op, lambda array: array if op.transpose_b else array.T, op.b)
        outputs = shape_of(op.results[0])[-1]
        w.layer(
            "FullyConnected",
            [w.operand(op.a, False)],
            op.results,
            False,
            **lines,
            num_output=outputs,
            **_fused(op),
        )
        return
    if op.bias is not None or op.relu:
        raise NoCompassForm("a product of two tensors has a bias or an activation")
    bottoms = [w.operand(op.a, False), w.operand(op.b, False)]
    w.layer("MatMul", bottoms, op.results, False, trans_a=False, trans_b=op.transpose_b)


@RULES.register(top.MaxPool, top.AvgPool)
def pooling(w: LayerWriter, op: Any) -> None:
    """Pooling."""
    _images(op)
    average = isinstance(op, top.AvgPool)
    extra = {"count_include_pad": op.count_include_pad} if average else {}
    w.layer(
        "Pooling",
        [w.operand(op.operands[0], True)],
        op.results,
        True,
        method="AVG" if average else "MAX",
        **_window(op, op.kernel),
        ceil_mode=op.ceil_mode,
        **extra,
    )


@RULES.register(top.Relu)
def relu(w: LayerWriter, op: top.Relu) -> None:
    """Activation."""
    last = w.last(op.operands[0])
    lines: dict[str, Any] = {"method": "RELU"}
    if op.limit == 6.0:
        lines = {"method": "RELU6"}
    elif op.limit > 0:
        lines = {"method": "CLIP", "clip_min": 0.0, "clip_max": float(op.limit)}
    w.layer("Activation", [w.operand(op.operands[0], last)], op.results, last, **lines)


@RULES.register(*_ACTIVATIONS)
def activation(w: LayerWriter, op: Any) -> None:
    """Activation, with the parameters of its method."""
    last = w.last(op.operands[0])
    lines: dict[str, Any] = {"method": _ACTIVATIONS[type(op)]}
    if isinstance(op, top.LeakyRelu):
        lines |= {"negative_slope_type": "float32", "negative_slope_value": float(op.alpha)}
    elif isinstance(op, top.Clip):
        lines |= {"clip_min": float(op.min), "clip_max": float(op.max)}
    elif isinstance(op, top.HardSigmoid):
        lines |= {"alpha": float(op.alpha), "beta": float(op.beta), "clip_min": 0.0, "clip_max": 1.0}
    elif isinstance(op, top.Gelu):
        lines |= {"approximate": "TANH" if op.tanh else "NONE"}
    elif isinstance(op, top.Selu):
        lines |= {"alpha": float(op.alpha), "gamma": float(op.gamma)}
    elif hasattr(op, "alpha"):
        lines |= {"alpha": float(op.alpha)}
    w.layer("Activation", [w.operand(op.operands[0], last)], op.results, last, **lines)


@RULES.register(top.PRelu)
def prelu(w: LayerWriter, op: top.PRelu) -> None:
    """Activation with a slope for each channel."""
    slope = _constant(w, op.operands[1], "slopes")
    last = len(shape_of(op.operands[0])) == 4
    if last and slope.size > 1:
        slope = slope.reshape((1,) * (4 - slope.ndim) + slope.shape).transpose(0, 2, 3, 1)
    lines = w.stored(
        "negative_slope", slope.reshape(-1) if slope.size == max(slope.shape, default=1) else slope
    )
    w.layer("Activation", [w.operand(op.operands[0], last)], op.results, last, method="PRELU", **lines)


@RULES.register(*_FUNCTIONS)
def function(w: LayerWriter, op: Any) -> None:
    """A layer of the function's name."""
    last = w.last(op.operands[0])
    w.layer(_FUNCTIONS[type(op)], [w.operand(op.operands[0], last)], op.results, last)


@RULES.register(*{**_ELTWISE, **_BINARY})
def binary(w: LayerWriter, op: Any) -> None:
    """Eltwise of tensors of one shape, else a layer that broadcasts."""
    shapes = [shape_of(value) for value in op.operands]
    constants = [w.graph.constant(value) for value in op.operands]
    last = len(shape_of(op.results[0])) == 4 and any(w.last(value) for value in op.operands)
    # A tensor of a lower rank broadcasts against the last axes of the network's own order.
    if any(array is None and len(shape) != 4 for array, shape in zip(constants, shapes, strict=True)):
        last = False
    bottoms = []
    for value, array in zip(op.operands, constants, strict=True):
        if last and array is not None:
            turned = array.reshape((1,) * (4 - array.ndim) + array.shape).transpose(0, 2, 3, 1)
            bottoms.append(w.literal(turned, w.named(value)))
        else:
            bottoms.append(w.operand(value, last))
    fused = _fused(op) if hasattr(op, "relu") else {}
    if type(op) in _ELTWISE and shapes[0] == shapes[1]:
        w.layer(
            "Eltwise",
            bottoms,
            op.results,
            last,
            method=_ELTWISE[type(op)],
            **(fused or {"with_activation": "NONE"}),
        )
        return
    if type(op) not in _BINARY:
        raise NoCompassForm("its operands have different shapes")
    w.layer(_BINARY[type(op)], bottoms, op.results, last, **fused)


@RULES.register(top.Concat)
def concat(w: LayerWriter, op: top.Concat) -> None:
    """Concat."""
    rank = len(shape_of(op.results[0]))
    last = rank == 4 and any(w.last(value) for value in op.operands)
    axis = op.axis % rank
    bottoms = [w.operand(value, last) for value in op.operands]
    w.layer("Concat", bottoms, op.results, last, axis=_AXIS_OF[axis] if last else axis)


@RULES.register(top.Softmax, top.LogSoftmax)
def softmax(w: LayerWriter, op: Any) -> None:
    """Softmax, LogSoftmax."""
    x = op.operands[0]
    last = w.last(x)
    axis = op.axis % len(shape_of(x))
    kind = "Softmax" if isinstance(op, top.Softmax) else "LogSoftmax"
    w.layer(kind, [w.operand(x, last)], op.results, last, axis=_AXIS_OF[axis] if last else axis)


@RULES.register(top.Reduce)
def reduce(w: LayerWriter, op: top.Reduce) -> None:
    """Reduce."""
    method = {
        "mean": "MEAN",
        "sum": "SUM",
        "max": "MAX",
        "min": "MIN",
        "prod": "PROD",
        "l1": "L1",
        "l2": "L2",
    }
    if op.kind not in method:
        raise NoCompassForm(f"there is no method for '{op.kind}'")
    rank = len(shape_of(op.x))
    axes = [axis % rank for axis in op.axes]
    last = w.last(op.x) and op.keepdims
    places = sorted(_AXIS_OF[axis] for axis in axes) if last else axes
    w.layer("Reduce", [w.operand(op.x, last)], op.results, last, method=method[op.kind], axis=places)


@RULES.register(top.BatchNorm, top.Scale)
def scale(w: LayerWriter, op: Any) -> None:
    """BatchNorm: a factor and a term for each channel."""
    factors, terms = _constant(w, op.scale, "scales"), _constant(w, op.bias, "biases")
    if isinstance(op, top.BatchNorm):
        mean, variance = _constant(w, op.mean, "means"), _constant(w, op.variance, "variances")
        factors = factors / np.sqrt(variance + np.float32(op.epsilon))
        terms = terms - mean * factors
    elif op.relu:
        raise NoCompassForm("it has an activation")
    rank = len(shape_of(op.operands[0]))
    if rank not in (2, 4):
        raise NoCompassForm(f"its input has rank {rank}")
    lines = w.stored("weights", factors.astype(np.float32)) | w.stored("biases", terms.astype(np.float32))
    bottom = w.operand(op.operands[0], True)
    w.layer("BatchNorm", [bottom], op.results, True, **lines, axis=rank - 1, epsilon=0.0)


@RULES.register(top.Resize)
def resize(w: LayerWriter, op: top.Resize) -> None:
    """Resize of images."""
    _images(op)
    methods = {"nearest": "NEAREST", "linear": "BILINEAR", "cubic": "BICUBIC"}
    shape, sizes = shape_of(op.x), op.sizes
    factors = op.scales or [out / size for out, size in zip(sizes, shape, strict=True)]
    if sizes[:2] != shape[:2] or any(
        abs(factor - out / size) > 1e-6 for factor, out, size in zip(factors, sizes, shape, strict=True)
    ):
        raise NoCompassForm("its factors are not those of its sizes")
    extra = {"nearest_mode": op.rounding.upper()} if op.mode == "nearest" else {}
    w.layer(
        "Resize",
        [w.operand(op.x, True)],
        op.results,
        True,
        method=methods[op.mode],
        ratio_x=sizes[3] / shape[3],
        ratio_y=sizes[2] / shape[2],
        mode=op.coordinates.upper(),
        antialias=op.antialias,
        exclude_outside=op.exclude_outside,
        **extra,
    )


@RULES.register(top.LRN)
def local_response(w: LayerWriter, op: top.LRN) -> None:
    """LRN across channels."""
    _images(op)
    lines = {"size": op.size, "bias": float(op.bias), "alpha": float(op.alpha), "beta": float(op.beta)}
    bottom = w.operand(op.operands[0], True)
    w.layer("LRN", [bottom], op.results, True, method="ACROSS_CHANNELS", **lines)


@RULES.register(top.DepthToSpace, top.SpaceToDepth)
def depth_and_space(w: LayerWriter, op: Any) -> None:
    """DepthToSpace, SpaceToDepth."""
    depth = isinstance(op, top.DepthToSpace)
    extra = {"mode": op.mode} if depth else {}
    kind = "DepthToSpace" if depth else "SpaceToDepth"
    bottom = w.operand(op.operands[0], True)
    w.layer(kind, [bottom], op.results, True, block_size_x=op.block, block_size_y=op.block, **extra)


@RULES.register(top.ShuffleChannel)
def channel_shuffle(w: LayerWriter, op: top.ShuffleChannel) -> None:
    """ChannelShuffle."""
    _images(op)
    bottom = w.operand(op.operands[0], True)
    w.layer("ChannelShuffle", [bottom], op.results, True, group=op.group, splits=1)


@RULES.register(top.Cast)
def cast(w: LayerWriter, op: top.Cast) -> None:
    """Cast to real numbers."""
    if op.to != "f32":
        raise NoCompassForm(f"it makes {op.to}")
    last = w.last(op.operands[0])
    lines = {"to_dtype": "float32", "clip_mode": "SATURATION", "ignore_scale_zp": True}
    w.layer("Cast", [w.operand(op.operands[0], last)], op.results, last, **lines)


@RULES.register(top.Reshape)
def reshape(w: LayerWriter, op: top.Reshape) -> None:
    """Reshape."""
    w.layer("Reshape", [w.operand(op.x, False)], op.results, False, shape=list(shape_of(op.results[0])))


@RULES.register(top.Permute)
def permute(w: LayerWriter, op: top.Permute) -> None:
    """Transpose."""
    w.layer("Transpose", [w.operand(op.x, False)], op.results, False, perm=list(op.order))


@RULES.register(top.Split)
def split(w: LayerWriter, op: top.Split) -> None:
    """Split."""
    axis = op.axis % len(shape_of(op.x))
    w.layer("Split", [w.operand(op.x, False)], op.results, False, axis=axis, splits=list(op.sizes))


@RULES.register(top.Slice)
def slice_(w: LayerWriter, op: top.Slice) -> None:
    """Slice."""
    ends = [begin + step * count for begin, step, count in zip(op.offset, op.steps, op.shape, strict=True)]
    ends = [end if end >= 0 else end - size for end, size in zip(ends, shape_of(op.x), strict=True)]
    lines = {"begin": list(op.offset), "end": ends, "strides": list(op.steps)}
    w.layer("Slice", [w.operand(op.x, False)], op.results, False, **lines)


@RULES.register(top.Pad)
def pad(w: LayerWriter, op: top.Pad) -> None:
    """Pad."""
    if op.mode == "wrap":
        raise NoCompassForm("there is no mode for 'wrap'")
    rank = len(shape_of(op.x))
    last = w.last(op.x)
    pairs = [[op.pads[axis], op.pads[axis + rank]] for axis in range(rank)]
    pairs = [pairs[axis] for axis in (0, 2, 3, 1)] if last else pairs
    lines = {"mode": op.mode.upper(), "constant_value": float(op.value), "pads": pairs}
    w.layer("Pad", [w.operand(op.x, last)], op.results, last, **lines)


@RULES.register(top.Tile)
def tile(w: LayerWriter, op: top.Tile) -> None:
    """Tile."""
    w.layer("Tile", [w.operand(op.x, False)], op.results, False, repeats=list(op.repeats))


@RULES.register(top.ArgReduce)
def arg(w: LayerWriter, op: top.ArgReduce) -> None:
    """ArgMinMax."""
    axis = op.axis % len(shape_of(op.x))
    lines = {"method": "MAX" if op.max else "MIN", "axis": axis, "select_last_index": op.select_last}
    w.layer("ArgMinMax", [w.operand(op.x, False)], op.results, False, **lines)


@RULES.register(top.LayerNorm, top.RMSNorm)
def layer_norm(w: LayerWriter, op: Any) -> None:
    """LayerNorm, RMSNorm."""
    x = op.operands[0]
    rank = len(shape_of(x))
    lines: dict[str, Any] = {}
    for key, value in (("weights", op.scale), ("biases", op.bias)):
        if value is not None:
            lines |= w.stored(key, _constant(w, value, key))
    axes = list(range(op.axis % rank, rank))
    kind = "LayerNorm" if isinstance(op, top.LayerNorm) else "RMSNorm"
    w.layer(kind, [w.operand(x, False)], op.results, False, **lines, axis=axes, epsilon=float(op.epsilon))


@RULES.register(top.InstanceNorm)
def instance_norm(w: LayerWriter, op: top.InstanceNorm) -> None:
    """InstanceNorm of images."""
    _images(op)
    channels = shape_of(op.operands[0])[1]
    ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    weights = ones if op.scale is None else _constant(w, op.scale, "scales")
    biases = zeros if op.bias is None else _constant(w, op.bias, "biases")
    lines = w.stored("weights", weights) | w.stored("biases", biases)
    bottom = w.operand(op.operands[0], True)
    w.layer("InstanceNorm", [bottom], op.results, True, **lines, epsilon=float(op.epsilon))


@RULES.register(top.L2Norm)
def l2_norm(w: LayerWriter, op: top.L2Norm) -> None:
    """Normalization."""
    x = op.operands[0]
    axis = op.axis % len(shape_of(x))
    bottom = w.operand(x, False)
    w.layer("Normalization", [bottom], op.results, False, method="L2", axis=[axis], epsilon=float(op.epsilon))


@RULES.register(top.Onnx)
def of_a_plugin(w: LayerWriter, op: top.Onnx) -> None:
    """A layer of a type that npuc does not know, as it was read."""
    if op.domain != DOMAIN or "constants" not in op.onnx_attributes:
        raise NoCompassForm(f"it is {op.op_type} of {op.domain or 'ONNX'}")
    lines = {
        key.removeprefix("ir_"): text for key, text in op.onnx_attributes.items() if key.startswith("ir_")
    }
    keys = [key for key in str(op.onnx_attributes["constants"]).split(",") if key]
    count = len(op.operands) - len(keys)
    for key, value in zip(keys, list(op.operands)[count:], strict=True):
        array = w.graph.constant(value)
        if array is None:
            raise NoCompassForm(f"its '{key}' is no constant")
        lines |= w.stored(key, array)
    bottoms = [w.operand(value, False) for value in list(op.operands)[:count]]
    w.layer(op.op_type, bottoms, op.results, False, **lines)
