"""An op in the words that limits are written in: its op kind and the parameters of that kind (`target.vocabulary`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from npuc.ir import Graph, dtype_of, is_static, npu, shape_of, top
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import is_narrow_float, mlir_type, quant_of
from npuc.registries import Lenient, Registry
from npuc.target import OP_KINDS

Parameters = dict[str, Any]
Describer = Callable[[Any, Graph], tuple[str, Parameters]]
"""From an op to its kind and the parameters of that kind."""
_AXES = {5: "ncdhw", 4: "nchw", 3: "nch", 2: "nc", 1: "c", 0: ""}


@dataclass(frozen=True)
class Described:
    """What an op is to a target."""

    kind: str
    """An op kind, or a name that is none where the vocabulary has no word for it."""
    parameters: Parameters

    @property
    def known(self) -> bool:
        """Whether the vocabulary has the kind."""
        return self.kind in OP_KINDS


def describe(op: TensorOp, graph: Graph, bits: tuple[int, int] = (8, 8)) -> Described | None:
    """The kind and parameters of an op; None if it has no static shapes or is not of the network.

    `bits` are the widths of activations and weights where the op does not say them because it is float.
    """
    if isinstance(op, top.WeightOp | top.Onnx) or not op.operands:
        return None
    if not all(is_static(value) for value in (*op.operands, *op.results)):
        return None
    kind, own = _find(op)(op, graph)
    if npu.is_f32_on_npu(op):
        bits = (32, 32)
    common = _common(op, bits[0])
    if kind not in OP_KINDS:
        return Described(kind, common)
    if "weight_bits" in OP_KINDS[kind]:
        own = {"weight_bits": _bits(getattr(op, "weight", None), bits[1]), **own}
    if "constant_operand" in OP_KINDS[kind]:
        own = {
            "constant_operand": int(any(graph.constant(value) is not None for value in op.operands)),
            **own,
        }
    if "broadcast" in OP_KINDS[kind]:
        own["broadcast"] = int(len({shape_of(value) for value in op.operands}) > 1)
    known = {name: value for name, value in own.items() if name in OP_KINDS[kind]}
    return Described(kind, {**common, **known, **_fused(op)})


def _common(op: Any, bits: int) -> Parameters:
    x, y = shape_of(op.operands[0]), shape_of(op.results[0])
    parameters: Parameters = {"rank": len(x), "activation_bits": _bits(op.operands[0], bits)}
    for prefix, shape in (("i", x), ("o", y)):
        sizes = dict(zip(_AXES.get(len(shape), "nchw"), shape, strict=False))
        for axis in "nchw":
            name = "n" if (prefix, axis) == ("i", "n") else f"{prefix}{axis}"
            parameters[name] = sizes.get(axis, 1)
    return parameters


def _bits(value: Any, otherwise: int) -> int:
    if value is None:
        return otherwise
    dtype = dtype_of(value.type)
    if is_narrow_float(mlir_type(dtype)):
        return 8 * dtype.itemsize
    return int(dtype.name.lstrip("ui")) if not dtype.is_float and dtype.name != "i1" else otherwise


def _fused(op: Any) -> Parameters:
    """The activation in the output stage."""
    if getattr(op, "relu", False):
        return {"activation": {0.0: "relu", 6.0: "relu6"}.get(max(op.relu_limit, 0.0), "clip")}
    if not isinstance(op, npu.OutputStage) or isinstance(op, npu.Softmax | npu.Norm | npu.Requant):
        return {}
    kind = quant_of(op.results[0])
    if kind is None:
        return {}
    least, most = kind.dtype.limits
    # Narrow types leave out the most negative value, which is no activation.
    if op.lo != kind.zero_point or op.lo <= least + 1:
        return {}
    return {"activation": "relu" if op.hi == most else "relu6"}


def _window(op: Any, kernel: Sequence[int], dilations: Sequence[int]) -> Parameters:
    """Kernel, strides, dilations and pads; the last two spatial axes are height and width."""
    spatial = len(kernel)
    names = {1: "h", 2: "hw", 3: "dhw"}.get(spatial, "hw")
    parameters: Parameters = dict.fromkeys(("kw", "sw", "dw"), 1) | dict.fromkeys(
        ("pad_left", "pad_right"), 0
    )
    before = {"d": "pad_front", "h": "pad_top", "w": "pad_left"}
    after = {"d": "pad_back", "h": "pad_bottom", "w": "pad_right"}
    for axis, name in enumerate(names):
        parameters |= {f"k{name}": kernel[axis], f"s{name}": op.strides[axis], f"d{name}": dilations[axis]}
        parameters |= {before[name]: op.pads[axis], after[name]: op.pads[axis + spatial]}
    if spatial == 3:
        parameters |= {"id": shape_of(op.operands[0])[2], "od": shape_of(op.results[0])[2]}
    return parameters


def _conv(op: Any, graph: Graph) -> tuple[str, Parameters]:
    weight = shape_of(op.weight)
    transposed = hasattr(op, "output_padding")
    channels = shape_of(op.x)[1]
    each = channels // op.group
    parameters = _window(op, weight[2:], op.dilations) | {"group": op.group}
    if transposed:
        padding = (*op.output_padding, 0, 0)
        parameters |= {
            "output_padding_h": padding[-2 if len(weight) == 3 else 0],
            "output_padding_w": padding[1],
        }
    kind = "deconv" if transposed else "conv"
    kind = f"depthwise_{kind}" if op.group > 1 and each == 1 else kind
    return (f"{kind}3d" if len(weight) == 5 else kind), parameters


def _block_conv(op: npu.BlockConv, graph: Graph) -> tuple[str, Parameters]:
    return "conv", _window(op, shape_of(op.weight)[1:3], op.dilations) | {"group": 1, "ic": op.inputs}


def _matmul(op: Any, graph: Graph) -> tuple[str, Parameters]:
    x, y = shape_of(op.operands[0]), shape_of(op.results[0])
    constant = graph.constant(op.operands[1]) is not None
    return "matmul", {
        "batch": prod(y[:-2]),
        "rows": y[-2] if len(y) > 1 else 1,
        "inner": x[-1],
        "columns": y[-1] if y else 1,
        "constant_operand": int(constant),
        "weight_bits": _bits(op.operands[1], 8),
    }


def _pool(op: Any, graph: Graph) -> tuple[str, Parameters]:
    dilations = getattr(op, "dilations", (1,) * len(op.kernel))
    kind = "max_pool" if isinstance(op, top.MaxPool) else "avg_pool"
    include = int(getattr(op, "count_include_pad", False))
    parameters = _window(op, op.kernel, dilations) | {"count_include_pad": include}
    return (f"{kind}3d" if len(op.kernel) == 3 else kind), parameters


def _axis(name: str) -> Callable[[Any, Graph], tuple[str, Parameters]]:
    def describe_axis(op: Any, graph: Graph) -> tuple[str, Parameters]:
        rank = len(shape_of(op.operands[0]))
        return name, {"axis": op.axis % rank if rank else 0}

    return describe_axis


def _resize(op: Any, graph: Graph) -> tuple[str, Parameters]:
    x, y = shape_of(op.x), shape_of(op.results[0])
    mode = getattr(op, "mode", "linear")
    scales = [y[axis] / x[axis] if len(x) > axis else 1 for axis in (2, 3)]
    # Whole factors stay whole numbers, so that rules can compare them.
    scale_h, scale_w = (int(scale) if scale == int(scale) else scale for scale in scales)
    return f"resize_{mode}", {
        "scale_h": scale_h,
        "scale_w": scale_w,
        "half_pixel": int("half_pixel" in op.coordinates),
        "align_corners": int(op.coordinates == "align_corners"),
    }


def _pad(op: top.Pad, graph: Graph) -> tuple[str, Parameters]:
    rank = len(shape_of(op.x))
    names = _AXES.get(rank, "nchw")
    ends = {axis: (op.pads[i], op.pads[i + rank]) for i, axis in enumerate(names)}
    top_, bottom = ends.get("h", (0, 0))
    left, right = ends.get("w", (0, 0))
    return f"pad_{op.mode}", {
        "pad_top": top_,
        "pad_bottom": bottom,
        "pad_left": left,
        "pad_right": right,
        "pad_n": sum(ends.get("n", (0, 0))),
        "pad_c": sum(ends.get("c", (0, 0))),
    }


def _by_axis(prefix: str, values: Sequence[int], rank: int, otherwise: int) -> Parameters:
    by_letter = dict(zip(_AXES.get(rank, "nchw"), values, strict=False))
    return {f"{prefix}_{axis}": by_letter.get(axis, otherwise) for axis in "nchw"}


def _slice(op: top.Slice, graph: Graph) -> tuple[str, Parameters]:
    return "slice", _by_axis("step", op.steps, len(op.steps), 1)


def _tile(op: top.Tile, graph: Graph) -> tuple[str, Parameters]:
    return "tile", _by_axis("repeat", op.repeats, len(op.repeats), 1)


def _permute(op: top.Permute, graph: Graph) -> tuple[str, Parameters]:
    rank = len(shape_of(op.x))
    order = op.order or tuple(reversed(range(rank)))
    own = _by_axis("source", order, rank, 0)
    return "permute", {key: own[key] if i < rank else i for i, key in enumerate(own)}


def _reduce(op: Any, graph: Graph) -> tuple[str, Parameters]:
    rank = len(shape_of(op.operands[0]))
    axes = {axis % rank for axis in op.axes} if rank else set()
    reduced = _by_axis("reduce", [int(axis in axes) for axis in range(rank)], rank, 0)
    return (
        f"reduce_{op.kind}" if isinstance(op, top.Reduce | npu.FloatReduce) else _sum_or_mean(op)
    ), reduced


def _sum_or_mean(op: npu.ReduceSum) -> str:
    """A mean is a sum whose factor holds the count."""
    x, y = quant_of(op.x), quant_of(op.y)
    assert x is not None and y is not None
    if op.kind.has_scale:
        factor = op.factors[0]
    elif not op.kind.has_multiplier:
        factor = 2.0 ** -op.parameters[0]
    else:
        factor = op.parameters[0] * 2.0 ** -op.parameters[1]
    return "reduce_sum" if factor > 0.7 * x.scale / y.scale else "reduce_mean"


def _recurrent(op: Any, graph: Graph) -> tuple[str, Parameters]:
    parameters = {
        "hidden": op.hidden,
        "steps": shape_of(op.x)[0],
        "directions": shape_of(op.recurrence)[0],
    }
    return op.name.split(".")[1], parameters


def _quantized_lstm(op: top.QuantizedLSTM, graph: Graph) -> tuple[str, Parameters]:
    steps = shape_of(op.x)[0 if op.time_major else 1]
    return "lstm", {"hidden": op.hidden, "steps": steps, "directions": 1}


def _attention(op: Any, graph: Graph) -> tuple[str, Parameters]:
    _, heads, queries, width = shape_of(op.query)
    keys = shape_of(op.value)[2]
    return "attention", {"heads": heads, "queries": queries, "keys": keys, "width": width}


def _norm(op: npu.Norm, graph: Graph) -> tuple[str, Parameters]:
    rank = len(shape_of(op.x))
    return f"{op.mode}_norm", {"group": op.groups, "axis": op.axis % rank}


def _plain(name: str, **own: str) -> Describer:
    """A kind whose parameters are properties of the op."""
    return lambda op, graph: (name, {key: getattr(op, field) for key, field in own.items()})


def _concat(op: top.Concat, graph: Graph) -> tuple[str, Parameters]:
    return "concat", {"axis": op.axis % len(shape_of(op.y)), "inputs": len(op.operands)}


def _split(op: top.Split, graph: Graph) -> tuple[str, Parameters]:
    return "split", {"axis": op.axis % len(shape_of(op.x)), "outputs": len(op.results)}


def _gather(op: Any, graph: Graph) -> tuple[str, Parameters]:
    return "gather", {"axis": getattr(op, "axis", 0), "indices": prod(shape_of(op.indices))}


def _topk(op: top.TopK, graph: Graph) -> tuple[str, Parameters]:
    return "topk", {"axis": op.axis % len(shape_of(op.x)), "count": op.k}


def _arg(op: top.ArgReduce, graph: Graph) -> tuple[str, Parameters]:
    return ("argmax" if op.max else "argmin"), {"axis": op.axis % len(shape_of(op.x))}


def _table(op: npu.Table | npu.FloatTable, graph: Graph) -> tuple[str, Parameters]:
    return op.function or "table", {}


_KINDS: dict[type[TensorOp], Callable[[Any, Graph], tuple[str, Parameters]]] = {
    **dict.fromkeys((top.Conv, top.Deconv, npu.Conv, npu.Deconv, npu.FloatConv, npu.FloatDeconv), _conv),
    npu.BlockConv: _block_conv,
    npu.BlockMatMul: lambda op, graph: (
        *_matmul(op, graph)[:1],
        _matmul(op, graph)[1] | {"inner": op.inputs},
    ),
    **dict.fromkeys((top.MatMul, npu.MatMul, npu.FloatMatMul), _matmul),
    **dict.fromkeys((top.MaxPool, top.AvgPool, npu.AvgPool, npu.FloatAvgPool, npu.FloatMaxPool), _pool),
    **dict.fromkeys((top.Resize, npu.ResizeBilinear), _resize),
    **dict.fromkeys((top.Reduce, npu.ReduceSum, npu.FloatReduce), _reduce),
    **dict.fromkeys((top.LSTM, top.GRU, top.RNN, npu.LSTM, npu.GRU, npu.RNN), _recurrent),
    top.QuantizedLSTM: _quantized_lstm,
    **dict.fromkeys((top.Gather, top.GatherElements, top.GatherND), _gather),
    **dict.fromkeys((top.ScatterElements, top.ScatterND), _plain("scatter")),
    top.Attention: _attention,
    npu.Norm: _norm,
    npu.FloatNorm: _norm,
    top.Softmax: _axis("softmax"),
    npu.Softmax: _axis("softmax"),
    npu.FloatSoftmax: _axis("softmax"),
    top.LogSoftmax: _axis("log_softmax"),
    top.L2Norm: _axis("l2_norm"),
    top.CumSum: _axis("cumsum"),
    top.GroupNorm: _plain("group_norm", group="groups"),
    top.LRN: _plain("lrn", size="size"),
    top.BatchNorm: _plain("scale"),
    top.DepthToSpace: _plain("depth_to_space", block="block"),
    top.SpaceToDepth: _plain("space_to_depth", block="block"),
    top.ShuffleChannel: _plain("shuffle_channel", group="group"),
    top.Concat: _concat,
    top.Split: _split,
    top.Slice: _slice,
    top.Pad: _pad,
    top.Permute: _permute,
    top.Tile: _tile,
    top.TopK: _topk,
    top.ArgReduce: _arg,
    npu.Table: _table,
    npu.FloatTable: _table,
    npu.ChannelTable: _plain("prelu"),
    npu.FloatAdd: _plain("add"),
    npu.FloatSub: _plain("sub"),
    npu.FloatMul: _plain("mul"),
}


KINDS: Registry[type[TensorOp], Describer] = Registry("a kind of the op", _KINDS, lenient=Lenient.ALL)
"""Op class to what describes ops of it."""
describes = KINDS.register
"""Register what describes ops of some classes: `(op, graph) -> (op kind, parameters)`."""


def _find(op: TensorOp) -> Describer:
    """What describes an op; most ops of one operand, and of two, have the name of their kind."""
    return KINDS.get(type(op)) or _plain(op.name.split(".", 1)[1])
