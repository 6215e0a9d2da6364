"""TpuLang on `npuc.lang`: networks built op by op, under the names of TPU-MLIR's module `transform.TpuLang`.

    import transform.TpuLang as tpul

    tpul.init("BM1684X")
    x = tpul.Tensor(dtype="float32", shape=[1, 3, 8, 8])
    w = tpul.Tensor(dtype="float32", shape=[4, 3, 3, 3], data=weights, ttype="coeff")
    y = tpul.relu(tpul.conv(x, w, pad=[1, 1, 1, 1]))
    tpul.compile("net", [x], [y])

Tensors without a name are called `BMTensor0`, `BMTensor1` and so on, in the order in which they are built, constants included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuc import lang
from npuc.arrays import Array
from npuc.compare.tensors import Tolerance, compare_sets
from npuc.compat.running import warn
from npuc.compat.tpumlir.chips import chip_named
from npuc.compat.tpumlir.inputs import as_float
from npuc.engine import ALL_TENSORS, FloatEngine
from npuc.errors import EngineError, NetworkError, NumericMismatchError, UsageError
from npuc.flow import save_graph
from npuc.ir import Graph
from npuc.ir.passes import run_pipeline
from npuc.tensors import TensorFile, write_npz
from npuc.transform import CANONICAL

__all__ = [
    "Tensor", "abs", "add", "arg", "avgpool", "avgpool2d", "cast", "ceil", "clamp", "clip", "compile", "compile_f32", "concat",
    "conv", "conv_v2", "cos", "custom", "deconv", "deinit", "div", "elu", "erf", "exp", "floor", "gelu", "get_default_graph",
    "hsigmoid", "hswish", "init", "leaky_relu", "ln", "matmul", "max", "maxpool", "maxpool2d", "min", "mish", "mul", "permute",
    "prelu", "reduce", "relu", "reset_default_graph", "reset_graph", "reshape", "round", "rsqrt", "sigmoid", "sign", "silu",
    "sin", "softmax", "softplus", "softsign", "sqrt", "square", "squeeze", "sub", "swish", "tanh", "tile", "unsqueeze",
]  # fmt: skip

_TYPES = {
    "float32": "f32", "float16": "f16", "int8": "i8", "uint8": "ui8", "int16": "i16", "uint16": "ui16", "int32": "i32",
    "uint32": "ui32",
}  # fmt: skip
_EXACT = 1 << 24
"""Integers up to here are exact in float32, in which an integer convolution is computed."""


class _Session:
    """The network that is being built: a device, and how many tensors there are."""

    def __init__(self, device: str = "") -> None:
        self.device = device
        self.tensors = 0

    def next_name(self) -> str:
        name = f"BMTensor{self.tensors}"
        self.tensors += 1
        return name


_session = _Session()


def init(device: str = "BM1684X", assign: bool = True) -> None:
    """Begin a network for a device."""
    global _session
    chip_named(device, "TpuLang")
    _session = _Session(device)


def deinit() -> None:
    """Forget the network."""
    global _session
    _session = _Session()


def reset_default_graph(graph: Any = None) -> None:
    """Begin again, for the same device."""
    global _session
    _session = _Session(_session.device)


reset_graph = reset_default_graph


def get_default_graph() -> Any:
    """The network that is being built."""
    return _session


class Tensor:
    """An input, a constant (`ttype="coeff"` or `is_const=True`), or the result of an operator."""

    def __init__(
        self,
        shape: Sequence[int] | int = (),
        name: str | None = None,
        ttype: str = "neuron",
        data: Any = None,
        dtype: str = "float32",
        scale: Any = None,
        zero_point: Any = None,
        is_const: bool = False,
    ) -> None:
        if dtype not in _TYPES:
            raise UsageError(f"'{dtype}' is no type of TpuLang", fix=f"There are: {', '.join(_TYPES)}")
        self.shape = [shape] if isinstance(shape, int) else list(shape)
        self.name = name or _session.next_name()
        self.dtype = dtype
        self.ttype = "coeff" if is_const else ttype
        self.scale, self.zero_point = scale, zero_point
        self.data = None if data is None else self._shaped(np.asarray(data))
        self._preprocess: Any = None
        self._lang: lang.Tensor | None = None
        if self.ttype == "coeff" and self.data is None:
            raise NetworkError(f"the constant '{self.name}' has no data", fix="Give data=")

    def _shaped(self, data: Array) -> Array:
        size = int(np.prod(self.shape, dtype=object))
        if self.shape and size != data.size:
            raise NetworkError(
                f"tensor '{self.name}' has shape {self.shape}, and its data {list(data.shape)}"
            )
        self.shape = self.shape or list(data.shape)
        return data.reshape(self.shape).astype(self.dtype)

    def quantization(self, scale: Any = None, zero_point: Any = None) -> None:
        """State the scale and the zero point of its integers."""
        self.scale, self.zero_point = scale, zero_point

    def preprocess(
        self,
        mean: Sequence[float] = (0.0, 0.0, 0.0),
        scale: Sequence[float] = (1.0, 1.0, 1.0),
        pixel_format: str = "bgr",
        channel_format: str = "nchw",
        resize_dims: Sequence[int] | None = None,
        keep_aspect_ratio: bool = False,
        keep_ratio_mode: str = "letterbox",
        pad_value: int = 0,
        pad_type: str = "center",
    ) -> None:
        """How an image becomes this input."""
        from npuc.images.preprocess import Preprocess

        if keep_ratio_mode != "letterbox":
            raise UsageError(f"keep_ratio_mode '{keep_ratio_mode}' is not supported")
        self._preprocess = Preprocess.from_dict(
            {
                "mean": tuple(mean),
                "scale": tuple(scale),
                "pixel_format": pixel_format,
                "layout": channel_format,
                "keep_aspect_ratio": keep_aspect_ratio,
                "pad_value": pad_value,
                "pad_type": pad_type,
                "interpolation": "opencv-linear",
                **({"resize": tuple(resize_dims)} if resize_dims else {}),
            }
        )

    @property
    def is_constant(self) -> bool:
        """Whether its values are known."""
        return self.ttype == "coeff"

    @property
    def value(self) -> lang.Tensor:
        """The tensor of `npuc.lang`."""
        if self._lang is None:
            if self.is_constant:
                assert self.data is not None
                self._lang = lang.constant(self.data, name=self.name)
            else:
                self._lang = lang.input(
                    self.name, self.shape, _TYPES[self.dtype], preprocess=self._preprocess
                )
        return self._lang

    def __repr__(self) -> str:
        return f"Tensor({self.name}, {self.shape}, {self.dtype})"


def _result(built: lang.Tensor, name: str) -> Tensor:
    types = {short: long for long, short in _TYPES.items()}
    tensor = Tensor(list(built.shape), name, dtype=types.get(built.dtype, "float32"))
    tensor._lang = built
    return tensor


def _apply(
    function: Callable[..., lang.Tensor], operands: Sequence[Any], out_name: str | None, **properties: Any
) -> Tensor:
    """The result of an operator of `npuc.lang`, under its name here."""
    name = out_name or _session.next_name()
    given = [operand.value if isinstance(operand, Tensor) else operand for operand in operands]
    return _result(function(*given, name=name, **properties), name)


def _pads(pad: Sequence[int] | None) -> tuple[int, int, int, int]:
    """[up, down, left, right] as npuc has it: up, left, down, right."""
    if pad is None:
        return 0, 0, 0, 0
    if len(pad) != 4:
        raise NetworkError(f"pad {list(pad)} is not [up, down, left, right]")
    up, down, left, right = pad
    return up, left, down, right


def conv_v2(
    tensor_i: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    pad: Sequence[int] | None = None,
    group: int = 1,
    input_zp: int | Sequence[int] | None = None,
    weight_zp: int | Sequence[int] | None = None,
    out_dtype: str | None = None,
    out_name: str | None = None,
) -> Tensor:
    """A convolution; of integers, with an int32 result."""
    channels = tensor_i.shape[1]
    if len(weight.shape) == 4 and weight.shape[1] * group != channels:
        raise NetworkError(
            f"the weight {weight.shape} has {weight.shape[1]} input channels for each of {group} groups, and the input has "
            f"{channels} channels",
            where="conv_v2",
            fix=f"With group={group} the weight is [{weight.shape[0]}, {channels // group}, ...]",
        )
    flat = (
        None
        if bias is None
        else Tensor([weight.shape[0]], f"{bias.name}_flat", "coeff", bias.data, bias.dtype)
    )
    window = {
        "strides": tuple(stride or (1, 1)),
        "dilations": tuple(dilation or (1, 1)),
        "pads": _pads(pad),
        "group": group,
    }
    if tensor_i.dtype.startswith("float"):
        if out_dtype not in (None, tensor_i.dtype):
            raise NetworkError(
                f"a convolution of {tensor_i.dtype} gives {tensor_i.dtype}, not {out_dtype}", where="conv_v2"
            )
        if input_zp or weight_zp:
            raise NetworkError("zero points are for integer convolutions", where="conv_v2")
        operands = [tensor_i, weight] if flat is None else [tensor_i, weight, flat]
        return _apply(lang.conv, operands, out_name, **window)
    return _integer_conv(tensor_i, weight, flat, input_zp, weight_zp, out_dtype or "int32", out_name, window)


conv = conv_v2


def _integer_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    input_zp: int | Sequence[int] | None,
    weight_zp: int | Sequence[int] | None,
    out_dtype: str,
    out_name: str | None,
    window: Mapping[str, Any],
) -> Tensor:
    """Exact sums of integers: as floats, while no sum can leave what float32 represents."""
    if weight.data is None:
        raise NetworkError("an integer convolution needs a constant weight", where="conv_v2")
    if out_dtype not in ("int32", "uint32"):
        raise NetworkError(f"an integer convolution gives int32 or uint32, not {out_dtype}", where="conv_v2")
    kernel = weight.data.astype(np.float64) - _zero_points(weight_zp, x.shape[1] // window["group"])
    limits = np.iinfo(x.dtype)
    zero = _zero_points(input_zp, x.shape[1])
    reach = float(np.maximum(np.abs(limits.max - zero), np.abs(limits.min - zero)).max())
    sums = np.abs(kernel).reshape(len(kernel), -1).sum(axis=1) * reach
    if bias is not None and bias.data is not None:
        sums = sums + np.abs(bias.data.astype(np.float64).reshape(-1))
    if sums.max() >= _EXACT:
        raise NetworkError(
            f"a sum of this convolution can reach {int(sums.max())}, and only {_EXACT} is exact here (values reach {int(reach)})",
            where="conv_v2",
            fix="Use a smaller kernel, or float32",
        )
    name = out_name or _session.next_name()
    real = lang.cast(x.value, to="f32", name=f"{name}/input")
    if np.any(zero):
        real = lang.sub(real, lang.constant(zero.astype(np.float32)), name=f"{name}/centred")
    flat = None if bias is None or bias.data is None else bias.data.astype(np.float32).reshape(-1)
    built = lang.conv(real, lang.constant(kernel.astype(np.float32)), flat, name=f"{name}/sums", **window)
    return _result(lang.cast(built, to=_TYPES[out_dtype], name=name), name)


def _zero_points(value: int | Sequence[int] | None, channels: int) -> Array:
    """Zero points in a shape that broadcasts along the channels."""
    points = np.atleast_1d(np.asarray(0 if value is None else value, np.float64))
    if points.size not in (1, channels):
        raise NetworkError(f"{points.size} zero points for {channels} channels", where="conv_v2")
    return points.reshape(1, -1, 1, 1)


def deconv(
    tensor_i: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    pad: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    group: int = 1,
    out_name: str | None = None,
) -> Tensor:
    """A transposed convolution."""
    return _apply(
        lang.deconv, [tensor_i, weight, bias], out_name, strides=tuple(stride or (1, 1)), dilations=tuple(dilation or (1, 1)),
        pads=_pads(pad), output_padding=tuple(output_padding or (0, 0)), group=group,
    )  # fmt: skip


def custom(
    tensors_in: Sequence[Tensor],
    shape_func: Callable[[Sequence[Tensor]], Sequence[Sequence[int]]],
    op_name: str,
    out_dtypes: Sequence[str],
    out_names: Sequence[str] | None = None,
    params: Mapping[str, Any] | None = None,
) -> list[Tensor]:
    """An operator that a plugin provides under this name; its parameters are numbers, or lists of up to 16 numbers."""
    shapes = [list(shape) for shape in shape_func(list(tensors_in))]
    if len(shapes) != len(out_dtypes):
        raise NetworkError(
            f"{len(shapes)} shapes and {len(out_dtypes)} types of results", where=f"custom '{op_name}'"
        )
    for key, value in (params or {}).items():
        numbers = value if isinstance(value, list | tuple) else [value]
        if len(numbers) > 16 or not all(isinstance(number, int | float) for number in numbers):
            raise NetworkError(
                f"parameter '{key}' is no number or list of up to 16 numbers", where=f"custom '{op_name}'"
            )
    results = [(shape, _TYPES[dtype]) for shape, dtype in zip(shapes, out_dtypes, strict=True)]
    names = list(out_names or [])
    name = names[0] if len(names) == 1 else ""
    operands = [tensor.value for tensor in tensors_in]
    built = lang.custom(op_name, operands, results, attributes=dict(params or {}), name=name)
    names += [_session.next_name() for _ in built[len(names) :]]
    return [_result(tensor, own) for tensor, own in zip(built, names, strict=True)]


def _unary(function: Callable[..., lang.Tensor], words: str) -> Callable[..., Tensor]:
    def operator(input: Tensor, out_name: str | None = None) -> Tensor:
        return _apply(function, [input], out_name)

    operator.__doc__ = words
    return operator


def _binary(function: Callable[..., lang.Tensor], words: str) -> Callable[..., Tensor]:
    def operator(
        tensor_i0: Tensor | float,
        tensor_i1: Tensor | float,
        scale: Any = None,
        zero_point: Any = None,
        out_dtype: str | None = None,
        out_name: str | None = None,
    ) -> Tensor:
        if scale is not None or zero_point is not None:
            raise UsageError(f"scale= and zero_point= of {words} are not supported", fix="Compute in float32")
        return _apply(function, [tensor_i0, tensor_i1], out_name)

    operator.__doc__ = words
    return operator


relu, sigmoid, tanh = _unary(lang.relu, "relu"), _unary(lang.sigmoid, "sigmoid"), _unary(lang.tanh, "tanh")
exp, ln, sqrt, rsqrt = (
    _unary(lang.exp, "exp"),
    _unary(lang.log, "ln"),
    _unary(lang.sqrt, "sqrt"),
    _unary(lang.rsqrt, "rsqrt"),
)
abs, ceil, floor = _unary(lang.abs, "abs"), _unary(lang.ceil, "ceil"), _unary(lang.floor, "floor")
round = _unary(lang.round, "round")
sin, cos, erf, sign = (
    _unary(lang.sin, "sin"),
    _unary(lang.cos, "cos"),
    _unary(lang.erf, "erf"),
    _unary(lang.sign, "sign"),
)
silu, swish, mish = _unary(lang.silu, "silu"), _unary(lang.silu, "swish"), _unary(lang.mish, "mish")
gelu, softplus, softsign = (
    _unary(lang.gelu, "gelu"),
    _unary(lang.softplus, "softplus"),
    _unary(lang.softsign, "softsign"),
)
hswish, hsigmoid = _unary(lang.hard_swish, "hswish"), _unary(lang.hard_sigmoid, "hsigmoid")
add, sub, mul, div = (
    _binary(lang.add, "add"),
    _binary(lang.sub, "sub"),
    _binary(lang.mul, "mul"),
    _binary(lang.div, "div"),
)
max, min = _binary(lang.max, "max"), _binary(lang.min, "min")


def square(input: Tensor, out_name: str | None = None) -> Tensor:
    """x * x"""
    return _apply(lang.mul, [input, input], out_name)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, out_name: str | None = None) -> Tensor:
    """x, or x times the slope below 0."""
    return _apply(lang.leaky_relu, [input], out_name, alpha=negative_slope)


def elu(input: Tensor, out_name: str | None = None) -> Tensor:
    """x, or exp(x) - 1 below 0."""
    return _apply(lang.elu, [input], out_name)


def prelu(input: Tensor, slope_coeff: Tensor, out_name: str | None = None) -> Tensor:
    """x, or x times a constant below 0."""
    return _apply(lang.prelu, [input, slope_coeff], out_name)


def clamp(input: Tensor, min: float, max: float, out_name: str | None = None) -> Tensor:
    """Values limited to [min, max]."""
    return _apply(lang.clip, [input], out_name, min=float(min), max=float(max))


clip = clamp


def matmul(input: Tensor, right: Tensor, bias: Tensor | None = None, out_name: str | None = None) -> Tensor:
    """The product of matrices."""
    return _apply(lang.matmul, [input, right] if bias is None else [input, right, bias], out_name)


def softmax(input: Tensor, axis: int, out_name: str | None = None) -> Tensor:
    """Softmax along an axis."""
    return _apply(lang.softmax, [input], out_name, axis=axis)


def concat(inputs: Sequence[Tensor], axis: int = 0, out_name: str | None = None) -> Tensor:
    """Tensors one behind the other."""
    name = out_name or _session.next_name()
    return _result(lang.concat([tensor.value for tensor in inputs], axis=axis, name=name), name)


def reshape(tensor: Tensor, new_shape: Sequence[int], out_name: str | None = None) -> Tensor:
    """The same elements in another shape; one -1 is what is left."""
    shape = list(new_shape)
    if shape.count(-1) == 1:
        known = int(np.prod([side for side in shape if side != -1], dtype=object)) or 1
        shape[shape.index(-1)] = int(np.prod(tensor.shape, dtype=object)) // known
    return _apply(lang.reshape, [tensor], out_name, shape=tuple(shape))


def squeeze(tensor_i: Tensor, axis: Sequence[int] | int | None = None, out_name: str | None = None) -> Tensor:
    """Without axes of size 1."""
    axes = [axis] if isinstance(axis, int) else list(axis or [])
    chosen = {side % len(tensor_i.shape) for side in axes} if axes else None
    shape = [
        size
        for index, size in enumerate(tensor_i.shape)
        if size != 1 or (chosen is not None and index not in chosen)
    ]
    return reshape(tensor_i, shape, out_name)


def unsqueeze(input: Tensor, axis: Sequence[int] | int = (1,), out_name: str | None = None) -> Tensor:
    """With further axes of size 1."""
    axes = [axis] if isinstance(axis, int) else list(axis)
    return reshape(input, list(np.expand_dims(np.empty(input.shape, np.bool_), tuple(axes)).shape), out_name)


def permute(input: Tensor, order: Sequence[int], out_name: str | None = None) -> Tensor:
    """The axes in another order."""
    return _apply(lang.permute, [input], out_name, order=tuple(order))


def tile(tensor_i: Tensor, reps: Sequence[int], out_name: str | None = None) -> Tensor:
    """Copies along each axis."""
    return _apply(lang.tile, [tensor_i], out_name, repeats=tuple(reps))


def cast(
    tensor_i: Tensor,
    out_dtype: str = "float32",
    out_name: str | None = None,
    round_mode: str = "half_away_from_zero",
) -> Tensor:
    """The elements in another type."""
    return _apply(lang.cast, [tensor_i], out_name, to=_TYPES[out_dtype])


def reduce(tensor_i: Tensor, method: str = "ReduceSum", axes: Sequence[int] | int = (1,), keep_dims: bool = True,
           out_name: str | None = None) -> Tensor:  # fmt: skip
    """Sum, mean, largest, smallest or product over axes: ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd."""
    axes = (axes,) if isinstance(axes, int) else tuple(axes)
    kind = method.removeprefix("Reduce").lower()
    return _apply(lang.reduce, [tensor_i], out_name, kind=kind, axes=axes, keepdims=keep_dims)


def arg(
    input: Tensor, method: str = "max", axis: int = 0, keep_dims: bool = True, out_name: str | None = None
) -> Tensor:
    """Where the largest or the smallest element is."""
    return _apply(lang.arg, [input], out_name, kind=method, axis=axis, keepdims=keep_dims)


def maxpool2d(input: Tensor, kernel: Sequence[int], stride: Sequence[int] | None = None, pad: Sequence[int] | None = None,
              ceil_mode: bool = False, out_name: str | None = None) -> Tensor:  # fmt: skip
    """The largest element of each window."""
    return _apply(lang.max_pool, [input], out_name, kernel=tuple(kernel), strides=tuple(stride or kernel), pads=_pads(pad),
                  ceil_mode=ceil_mode)  # fmt: skip


def avgpool2d(input: Tensor, kernel: Sequence[int], stride: Sequence[int] | None = None, pad: Sequence[int] | None = None,
              ceil_mode: bool = False, out_name: str | None = None) -> Tensor:  # fmt: skip
    """The mean of each window."""
    return _apply(lang.avg_pool, [input], out_name, kernel=tuple(kernel), strides=tuple(stride or kernel), pads=_pads(pad),
                  ceil_mode=ceil_mode)  # fmt: skip


maxpool, avgpool = maxpool2d, avgpool2d


def compile(
    name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    cmp: bool = True,
    refs: Any = None,
    mode: str = "f32",
    dynamic: bool = False,
    asymmetric: bool = False,
    no_save: bool = False,
    opt: int = 2,
    has_custom: bool = False,
) -> Graph:
    """Write the network as `name.mlir`, with its sample inputs in `name_in_f32.npz`; the fifth argument may also be `opt`.

    With `cmp` the network is run on the data of its inputs, and compared with `refs`, a mapping or an .npz file.
    """
    if isinstance(refs, int):
        refs, opt = None, refs
    if dynamic:
        raise UsageError("dynamic=True is not supported: programs have static shapes")
    if mode.lower() not in ("f32", "all", "f16", "bf16", "int8", "quantized"):
        raise UsageError(f"mode '{mode}' is unknown")
    origin = lang.build({tensor.name: tensor.value for tensor in outputs})
    known = {port.name for port in origin.inputs}
    missing = [tensor.name for tensor in inputs if tensor.name not in known]
    if missing:
        warn(f"TpuLang: no output depends on the input {', '.join(missing)}")
    unstated = known - {tensor.name for tensor in inputs}
    if unstated:
        raise NetworkError(f"the outputs depend on '{sorted(unstated)[0]}', which is not among the inputs")
    origin.name = name
    graph = origin if opt == 0 else run_pipeline(origin, CANONICAL)
    samples = {
        tensor.name: tensor.data for tensor in inputs if tensor.data is not None and tensor.name in known
    }
    if not no_save:
        save_graph(origin, f"{name}_origin.mlir")
        save_graph(graph, f"{name}.mlir")
        write_npz(
            f"{name}_top_f32_all_weight.npz", {ref: graph.weights.array(ref) for ref in graph.used_weights()}
        )
        if samples:
            write_npz(f"{name}_in_f32.npz", as_float(samples))
    if cmp and set(samples) == known:
        _compare(name, graph, samples, refs, has_custom, no_save)
    return graph


def compile_f32(
    name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], cmp: bool = True, **options: Any
) -> Graph:
    """`compile` in float32."""
    return compile(name, inputs, outputs, cmp, mode="f32", **options)


def _compare(
    name: str, graph: Graph, samples: Mapping[str, Array], refs: Any, has_custom: bool, no_save: bool
) -> None:
    """Run the network on its sample, and compare it with what is expected."""
    try:
        results = FloatEngine(graph, fetch=ALL_TENSORS).run(samples)
    except EngineError as error:
        if not has_custom:
            raise
        warn(f"TpuLang: the network was not run: {error.message}")
        return
    if not no_save:
        write_npz(f"{name}_top_outputs.npz", as_float({**samples, **results}))
    if refs is None:
        return
    expected = refs if isinstance(refs, Mapping) else TensorFile(Path(refs))
    wrong = [entry for entry in compare_sets(results, expected) if not entry.passes(Tolerance())]
    if wrong:
        raise NumericMismatchError(
            f"'{wrong[0].name}' is not as expected: cosine {wrong[0].cosine:.6f}, euclid {wrong[0].euclid:.6f}",
            where=name,
        )


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    raise AttributeError(
        f"TpuLang's operator '{name}' is not supported here; there are: {', '.join(sorted(__all__))}"
    )
