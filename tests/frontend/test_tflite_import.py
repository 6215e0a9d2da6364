"""Operator by operator: what is imported computes what LiteRT's reference kernels do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite import ActivationFunctionType as Fused

from npuc.arrays import Array
from npuc.errors import InvalidModelError, UnknownTensorError, UnsupportedOpError, UsageError
from npuc.flow import ImportOptions, check_model, import_model, quantize_network
from npuc.frontend.tflite import import_tflite
from npuc.ir import load_graph, save_graph, shape_of, top
from npuc.transform import canonicalize
from npuc.transform.drop_quantization import DropQuantization
from support.networks.tflite import Net, assert_close, assert_same_bits, run_litert

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*values: int, dtype: Any = np.int32) -> Array:
    return np.array(values, dtype)


PICTURE = (1, 6, 5, 4)
STRIDE = {"StrideH": 1, "StrideW": 1}
WINDOW = {**STRIDE, "DilationHFactor": 1, "DilationWFactor": 1}
Case = Callable[[Net, Any], Any]


def turned(net: Net, x: Any) -> Any:
    """x through a convolution that leaves its channels second in the IR."""
    weight, bias = net.constant(normal(1, 1, 1, x.shape[3]) + 1), net.constant(normal(x.shape[3]))
    return net.op(
        "DEPTHWISE_CONV_2D", [x, weight, bias], "f32", "DepthwiseConv2DOptions", DepthMultiplier=1, **WINDOW
    )


def one(code: str, *constants: Array, dtypes: Any = "f32", table: str = "", **options: Any) -> Case:
    """An operator on x and constants."""

    def build(net: Net, x: Any) -> Any:
        return net.op(code, [x, *map(net.constant, constants)], dtypes, table, **options)

    return build


def axis_first(code: str, axis: int, count: int) -> Case:
    def build(net: Net, x: Any) -> Any:
        parts = net.op(code, [net.constant(ints(axis)), x], ["f32"] * count, "SplitOptions", NumSplits=count)
        return {f"y{i}": part for i, part in enumerate(parts)}

    return build


def parts(case: Case) -> Case:
    def build(net: Net, x: Any) -> Any:
        return {f"y{i}": part for i, part in enumerate(case(net, x))}

    return build


def slices(begin: Any, end: Any, strides: Any, **masks: int) -> Case:
    return one(
        "STRIDED_SLICE", ints(*begin), ints(*end), ints(*strides), table="StridedSliceOptions", **masks
    )


def reducer(code: str, axes: Array, keep: bool) -> Case:
    return one(code, axes, table="ReducerOptions", KeepDims=keep)


PICTURES: dict[str, Case] = {
    "conv same stride 2": lambda net, x: net.op(
        "CONV_2D",
        [x, net.constant(normal(3, 3, 2, 4)), net.constant(normal(3))],
        "f32",
        "Conv2DOptions",
        StrideH=2,
        StrideW=2,
        DilationHFactor=1,
        DilationWFactor=1,
        FusedActivationFunction=Fused.RELU6,
    ),
    "conv valid dilated": lambda net, x: net.op(
        "CONV_2D",
        [x, net.constant(normal(3, 2, 2, 4)), net.constant(normal(3))],
        "f32",
        "Conv2DOptions",
        Padding=1,
        FusedActivationFunction=Fused.RELU_N1_TO_1,
        **{**WINDOW, "DilationHFactor": 2, "DilationWFactor": 3},
    ),
    "conv grouped": lambda net, x: net.op(
        "CONV_2D",
        [x, net.constant(normal(6, 3, 3, 2)), net.constant(normal(6))],
        "f32",
        "Conv2DOptions",
        **WINDOW,
    ),
    "depthwise multiplier": lambda net, x: net.op(
        "DEPTHWISE_CONV_2D",
        [x, net.constant(normal(1, 3, 3, 8)), net.constant(normal(8))],
        "f32",
        "DepthwiseConv2DOptions",
        DepthMultiplier=2,
        FusedActivationFunction=Fused.RELU,
        **WINDOW,
    ),
    "transposed same": lambda net, x: net.op(
        "TRANSPOSE_CONV",
        [net.constant(ints(1, 12, 10, 3)), net.constant(normal(3, 3, 3, 4)), x, net.constant(normal(3))],
        "f32",
        "TransposeConvOptions",
        StrideH=2,
        StrideW=2,
    ),
    "transposed valid": lambda net, x: net.op(
        "TRANSPOSE_CONV",
        [net.constant(ints(1, 14, 11, 2)), net.constant(normal(2, 4, 3, 4)), x],
        "f32",
        "TransposeConvOptions",
        StrideH=2,
        StrideW=2,
        Padding=1,
    ),
    "average pool same": one(
        "AVERAGE_POOL_2D", table="Pool2DOptions", FilterHeight=3, FilterWidth=2, StrideH=2, StrideW=2
    ),
    "max pool valid": one(
        "MAX_POOL_2D", table="Pool2DOptions", FilterHeight=2, FilterWidth=2, StrideH=2, StrideW=1, Padding=1
    ),
    "l2 pool": one("L2_POOL_2D", table="Pool2DOptions", FilterHeight=2, FilterWidth=2, Padding=1, **STRIDE),
    "add picture": lambda net, x: net.op("ADD", [x, net.constant(normal(*PICTURE))], "f32", "AddOptions"),
    "add channels": lambda net, x: net.op("ADD", [net.constant(normal(4)), x], "f32", "AddOptions"),
    "sub row": lambda net, x: net.op("SUB", [net.constant(normal(5, 1)), x], "f32", "SubOptions"),
    "mul scalar relu": lambda net, x: net.op(
        "MUL",
        [x, net.constant(np.float32(2))],
        "f32",
        "MulOptions",
        FusedActivationFunction=Fused.RELU,
    ),
    "div": one("DIV", normal(4) + 3, table="DivOptions", FusedActivationFunction=Fused.RELU_N1_TO_1),
    "add of two layouts": lambda net, x: net.op(
        "ADD", [x, net.op("RESHAPE", [x, net.constant(ints(1, 6, 5, 4))])], "f32", "AddOptions"
    ),
    "maximum": one("MAXIMUM", normal(4)),
    "minimum": one("MINIMUM", normal(6, 1, 4)),
    "squared difference": one("SQUARED_DIFFERENCE", normal(4)),
    "floor div": one("FLOOR_DIV", np.float32(0.7) + np.zeros(4, np.float32)),
    "floor mod": one("FLOOR_MOD", np.float32(0.7) + np.zeros(4, np.float32)),
    "relu": one("RELU"),
    "relu6": one("RELU6"),
    "relu n1": one("RELU_N1_TO_1"),
    "relu 0 to 1": one("RELU_0_TO_1"),
    "logistic": one("LOGISTIC"),
    "tanh": one("TANH"),
    "hard swish": one("HARD_SWISH"),
    "elu": one("ELU"),
    "leaky": one("LEAKY_RELU", table="LeakyReluOptions", Alpha=0.3),
    "gelu": one("GELU", table="GeluOptions", Approximate=False),
    "gelu tanh": one("GELU", table="GeluOptions", Approximate=True),
    "prelu": one("PRELU", normal(1, 1, 4)),
    "abs": one("ABS"),
    "neg": one("NEG"),
    "exp": one("EXP"),
    "square": one("SQUARE"),
    "sin": one("SIN"),
    "cos": one("COS"),
    "floor": one("FLOOR"),
    "ceil": one("CEIL"),
    "round": one("ROUND"),
    "sign": one("SIGN"),
    "softmax": one("SOFTMAX", table="SoftmaxOptions", Beta=1.0),
    "softmax beta": one("SOFTMAX", table="SoftmaxOptions", Beta=0.5),
    "log softmax": one("LOG_SOFTMAX"),
    "l2 normalization": one("L2_NORMALIZATION", table="L2NormOptions"),
    "local response": one(
        "LOCAL_RESPONSE_NORMALIZATION",
        table="LocalResponseNormalizationOptions",
        Radius=1,
        Bias=1.5,
        Alpha=0.2,
        Beta=0.7,
    ),
    "mean pixels": reducer("MEAN", ints(1, 2), False),
    "mean kept": reducer("MEAN", ints(1, 2), True),
    "mean channels": reducer("MEAN", ints(3), False),
    "sum width": reducer("SUM", ints(-2), False),
    "max height": reducer("REDUCE_MAX", ints(1), False),
    "min": reducer("REDUCE_MIN", ints(0, 3), True),
    "prod": reducer("REDUCE_PROD", ints(2), True),
    "reshape": one("RESHAPE", ints(3, -1), table="ReshapeOptions"),
    "expand": one("EXPAND_DIMS", ints(-1)),
    "squeeze": one("SQUEEZE", table="SqueezeOptions", SqueezeDims=(0,)),
    "transpose": one("TRANSPOSE", ints(2, 0, 3, 1)),
    "transpose to channels first": one("TRANSPOSE", ints(0, 3, 1, 2)),
    "transpose to channels last": one("TRANSPOSE", ints(0, 2, 3, 1)),
    "concat channels": lambda net, x: net.op(
        "CONCATENATION", [x, net.constant(normal(1, 6, 5, 2))], "f32", "ConcatenationOptions", Axis=-1
    ),
    "split": axis_first("SPLIT", 3, 2),
    "split sizes": parts(
        one("SPLIT_V", ints(1, -1, 2), ints(1), dtypes=["f32"] * 3, table="SplitVOptions", NumSplits=3)
    ),
    "unpack": parts(one("UNPACK", dtypes=["f32"] * 5, table="UnpackOptions", Axis=2, Num=5)),
    "pack": lambda net, x: net.op("PACK", [x, x], "f32", "PackOptions", Axis=1, ValuesCount=2),
    "slice": one("SLICE", ints(0, 1, 2, 1), ints(1, 3, -1, 2), shape=(1, 3, 3, 2)),
    "strided": slices((0, 1, 4, 3), (1, 6, 0, 0), (1, 2, -1, -2)),
    "strided shrink": slices((0, 1, -1, 0), (1, 6, 0, 4), (1, 1, 1, 2), ShrinkAxisMask=4, BeginMask=2),
    "strided ellipsis": slices((0, 1), (0, 3), (1, 1), EllipsisMask=1),
    "strided new axis": slices((0, 0, 1), (1, 0, 4), (1, 1, 1), NewAxisMask=2, EndMask=1),
    "tile": one("TILE", ints(1, 2, 1, 3)),
    "broadcast": one("BROADCAST_TO", ints(3, 6, 5, 4)),
    "reverse": one("REVERSE_V2", ints(1)),
    "pad": one("PAD", ints(0, 0, 1, 2, 3, 0, 0, 1).reshape(4, 2)),
    "pad value": one("PADV2", ints(0, 0, 1, 2, 3, 0, 0, 0).reshape(4, 2), np.float32(1.5)),
    "mirror reflect": one("MIRROR_PAD", ints(0, 0, 1, 2, 3, 0, 0, 0).reshape(4, 2), table="MirrorPadOptions"),
    "mirror symmetric": one(
        "MIRROR_PAD", ints(0, 0, 1, 2, 3, 0, 0, 1).reshape(4, 2), table="MirrorPadOptions", Mode=1
    ),
    "depth to space": one("DEPTH_TO_SPACE", table="DepthToSpaceOptions", BlockSize=2),
    "space to batch": one("SPACE_TO_BATCH_ND", ints(2, 3), ints(1, 1, 0, 1).reshape(2, 2)),
    "resize bilinear": one("RESIZE_BILINEAR", ints(9, 7), table="ResizeBilinearOptions"),
    "resize corners": one("RESIZE_BILINEAR", ints(9, 7), table="ResizeBilinearOptions", AlignCorners=True),
    "resize centres": one(
        "RESIZE_BILINEAR", ints(3, 9), table="ResizeBilinearOptions", HalfPixelCenters=True
    ),
    "nearest": one("RESIZE_NEAREST_NEIGHBOR", ints(9, 7), table="ResizeNearestNeighborOptions"),
    "nearest corners": one(
        "RESIZE_NEAREST_NEIGHBOR", ints(9, 7), table="ResizeNearestNeighborOptions", AlignCorners=True
    ),
    "nearest centres": one(
        "RESIZE_NEAREST_NEIGHBOR", ints(9, 8), table="ResizeNearestNeighborOptions", HalfPixelCenters=True
    ),
    "gather": one("GATHER", ints(3, 0, 0), table="GatherOptions", Axis=3),
    "gather nd": one("GATHER_ND", ints(0, 2, 0, 5).reshape(2, 2)),
    "arg max": one("ARG_MAX", ints(3), dtypes="i32", table="ArgMaxOptions", OutputType=2),
    "arg min": one("ARG_MIN", ints(1), dtypes="i64", table="ArgMinOptions", OutputType=4),
    "top k": lambda net, x: dict(
        zip("vi", net.op("TOPK_V2", [x, net.constant(ints(2))], ["f32", "i32"]), strict=True)
    ),
    "cumsum": one("CUMSUM", ints(2), table="CumsumOptions", Exclusive=True, Reverse=True),
    "less": one("LESS", normal(4), dtypes="i1"),
    "not equal": one("NOT_EQUAL", normal(4), dtypes="i1"),
    "select": lambda net, x: net.op(
        "SELECT_V2",
        [net.op("GREATER", [x, net.constant(np.float32(0))], "i1"), x, net.constant(normal(4))],
        "f32",
    ),
    "cast": one("CAST", dtypes="i32", table="CastOptions", OutDataType=2),
    "any": lambda net, x: net.op(
        "REDUCE_ANY",
        [net.op("GREATER", [x, net.constant(np.float32(1))], "i1"), net.constant(ints(1, 2))],
        "i1",
        "ReducerOptions",
    ),
    "add n": lambda net, x: net.op("ADD_N", [x, x, net.constant(normal(*PICTURE))]),
    "fully connected flattens": lambda net, x: net.op(
        "FULLY_CONNECTED",
        [x, net.constant(normal(3, 20)), net.constant(normal(3))],
        "f32",
        "FullyConnectedOptions",
        FusedActivationFunction=Fused.RELU,
    ),
    "fully connected keeps": lambda net, x: net.op(
        "FULLY_CONNECTED",
        [x, net.constant(normal(3, 4)), None],
        "f32",
        "FullyConnectedOptions",
        KeepNumDims=True,
    ),
    "batch matmul": lambda net, x: net.op(
        "BATCH_MATMUL", [x, net.constant(normal(1, 6, 3, 4))], "f32", "BatchMatMulOptions", AdjY=True
    ),
    "batch matmul transposed": lambda net, x: net.op(
        "BATCH_MATMUL", [x, x], "f32", "BatchMatMulOptions", AdjX=True
    ),
    "shape computed": lambda net, x: net.op(
        "RESHAPE",
        [
            x,
            net.op(
                "PACK",
                [
                    net.op(
                        "STRIDED_SLICE",
                        [net.op("SHAPE", [x], "i32", "ShapeOptions", OutType=2)]
                        + [net.constant(ints(n)) for n in (1, 2, 1)],
                        "i32",
                        "StridedSliceOptions",
                        ShrinkAxisMask=1,
                    ),
                    net.constant(np.int32(-1)),
                ],
                "i32",
                "PackOptions",
                ValuesCount=2,
            ),
        ],
    ),
    "one hot": lambda net, x: net.op(
        "ONE_HOT",
        [
            net.op("ARG_MAX", [x, net.constant(ints(3))], "i32", "ArgMaxOptions", OutputType=2),
            net.constant(np.int32(4)),
            net.constant(np.float32(2)),
            net.constant(np.float32(-1)),
        ],
        "f32",
        "OneHotOptions",
        Axis=-1,
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_operators_on_pictures(name: str) -> None:
    """Each as it is, and on a picture whose channels come second."""
    for lead in (lambda net, x: x, turned):
        net = Net()
        y = PICTURES[name](net, lead(net, net.input("x", PICTURE)))
        assert_close(net.data(y), {"x": normal(*PICTURE)}, 2e-5)


POSITIVE: dict[str, Case] = {
    "log": one("LOG"),
    "sqrt": one("SQRT"),
    "rsqrt": one("RSQRT"),
    "pow": one("POW", np.float32(1.7) + np.zeros(4, np.float32)),
    "space to depth": one("SPACE_TO_DEPTH", table="SpaceToDepthOptions", BlockSize=2),
    "zeros like": one("ZEROS_LIKE"),
    "all": lambda net, x: net.op(
        "REDUCE_ALL",
        [net.op("GREATER_EQUAL", [x, net.constant(np.float32(0.7))], "i1"), net.constant(ints(3))],
        "i1",
        "ReducerOptions",
        KeepDims=True,
    ),
    "rank": lambda net, x: net.op(
        "ADD", [net.op("RANK", [x], "i32"), net.constant(ints(1))], "i32", "AddOptions"
    ),
    "filled": lambda net, x: net.op(
        "ADD",
        [
            x,
            net.op(
                "FILL", [net.op("SHAPE", [x], "i32", "ShapeOptions", OutType=2), net.constant(np.float32(2))]
            ),
        ],
        "f32",
        "AddOptions",
    ),
    "range": lambda net, x: net.op(
        "GATHER",
        [x, net.op("RANGE", [net.constant(np.int32(n)) for n in (3, -1, -2)], "i32")],
        "f32",
        "GatherOptions",
        Axis=1,
    ),
    "broadcast args": lambda net, x: net.op(
        "BROADCAST_TO",
        [
            x,
            net.op(
                "BROADCAST_ARGS",
                [net.op("SHAPE", [x], "i32", "ShapeOptions", OutType=2), net.constant(ints(3, 1, 1, 1))],
                "i32",
            ),
        ],
    ),
    "scatter": lambda net, x: net.op(
        "SCATTER_ND",
        [net.constant(ints(4, 1, 4).reshape(3, 1)), net.constant(normal(3, 4)), net.constant(ints(6, 4))],
    ),
    "embedding": lambda net, x: net.op(
        "EMBEDDING_LOOKUP", [net.constant(ints(2, 0)), net.op("RESHAPE", [x, net.constant(ints(6, 16))])]
    ),
    "select rows": lambda net, x: net.op(
        "SELECT",
        [
            net.constant(np.array([True, False, True, True, False, False])),
            net.op("RESHAPE", [x, net.constant(ints(6, 16))]),
            net.constant(normal(6, 16)),
        ],
    ),
    "greater": one("GREATER", np.float32(1) + np.zeros(4, np.float32), dtypes="i1"),
    "equal": one("EQUAL", normal(4), dtypes="i1"),
    "less equal": one("LESS_EQUAL", normal(4), dtypes="i1"),
}


@pytest.mark.parametrize("name", POSITIVE)
def test_operators_on_positive_numbers(name: str) -> None:
    shape = (1, 6, 4, 4)
    net = Net()
    y = POSITIVE[name](net, net.input("x", shape))
    assert_close(net.data(y), {"x": np.abs(normal(*shape)) + np.float32(0.1)}, 2e-5)


@pytest.mark.parametrize("padding", [0, 1])
def test_convolution_in_three_dimensions(padding: int) -> None:
    net = Net()
    x = net.input("x", (1, 4, 5, 6, 3))
    weight, bias = net.constant(normal(2, 3, 2, 3, 4)), net.constant(normal(4))
    sizes = {f"Stride{axis}": 1 + (axis == "W") for axis in "DHW"} | {
        f"Dilation{axis}Factor": 1 for axis in "DHW"
    }
    y = net.op("CONV_3D", [x, weight, bias], "f32", "Conv3DOptions", Padding=padding, **sizes)
    assert_close(net.data(y), {"x": normal(1, 4, 5, 6, 3)}, 2e-5)


def test_batch_to_space() -> None:
    net = Net()
    x = net.input("x", (6, 3, 2, 2))
    y = one("BATCH_TO_SPACE_ND", ints(2, 3), ints(1, 0, 0, 2).reshape(2, 2))(net, x)
    assert_close(net.data(y), {"x": normal(6, 3, 2, 2)})


def test_logical_operators() -> None:
    net = Net()
    a, b = net.input("a", (2, 3), "i1"), net.input("b", (2, 3), "i1")
    y = net.op("LOGICAL_OR", [net.op("LOGICAL_AND", [a, b], "i1"), net.op("LOGICAL_NOT", [a], "i1")], "i1")
    feed = {"a": RNG.random((2, 3)) > 0.5, "b": RNG.random((2, 3)) > 0.5}
    assert_close(net.data(y), feed)


def test_integers_that_are_plain() -> None:
    net = Net()
    x = net.input("x", (2, 6), "i32")
    two = net.constant(np.int32(-4))
    y = net.op("FLOOR_DIV", [x, two], "i32", "FloorDivOptions")
    z = net.op("FLOOR_MOD", [x, two], "i32", "FloorModOptions")
    feed = {"x": np.arange(-6, 6, dtype=np.int32).reshape(2, 6)}
    assert_close(net.data({"y": y, "z": z}), feed)


def test_constants_are_computed_now() -> None:
    net = Net()
    x = net.input("x", (2, 4))
    half = net.op("DEQUANTIZE", [net.constant(normal(4).astype(np.float16))])
    grown = net.op("MUL", [half, net.constant(np.float32(3))], "f32", "MulOptions")
    data = net.data(net.op("ADD", [x, grown], "f32", "AddOptions"))
    assert_close(data, {"x": normal(2, 4)})
    assert [op.name for op in import_tflite(data).ops if op.name != "top.weight"] == ["top.add"]


def test_a_chain_of_convolutions_is_turned_at_its_ends_only() -> None:
    net = Net()
    x = net.input("x", (1, 8, 8, 4))
    a = turned(net, x)
    a.shape = (1, 8, 8, 4)
    b = net.op("ADD", [turned(net, a), a], "f32", "AddOptions")
    c = net.op("CONCATENATION", [b, a], "f32", "ConcatenationOptions", Axis=3)
    d = net.op("PAD", [c, net.constant(ints(0, 0, 1, 1, 1, 1, 0, 0).reshape(4, 2))])
    data = net.data(net.op("LOGISTIC", [d]))
    raw = import_tflite(data)
    assert sum(isinstance(op, top.Permute) for op in raw.ops) == 2
    assert_close(data, {"x": normal(1, 8, 8, 4)})
    assert shape_of(raw.find(c.name)) == (1, 8, 8, 8)


# Quantized models

Q = (0.05, -3)


def integers(*shape: int, dtype: Any = np.int8) -> Array:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def quantized_conv(net: Net, x: Any, code: str = "CONV_2D", scales: Any = (0.11, 5), **options: Any) -> Any:
    if code == "CONV_2D":
        steps = [0.002 * (i + 1) for i in range(5)]
        weight = net.constant(integers(5, 3, 3, 4), (steps, 0, 0))
    else:
        steps = [0.02 * (i + 1) for i in range(4)]
        weight = net.constant(integers(1, 3, 3, 4), (steps, 0, 3))
    bias = net.constant(
        RNG.integers(-500, 500, len(steps)).astype(np.int32), ([Q[0] * step for step in steps], 0)
    )
    table = "Conv2DOptions" if code == "CONV_2D" else "DepthwiseConv2DOptions"
    return net.op(code, [x, weight, bias], "i8", table, scales, **WINDOW, **options)


def quantized(code: str, *constants: Array, table: str = "", scales: Any = None, **options: Any) -> Case:
    def build(net: Net, x: Any) -> Any:
        return net.op(code, [x, *map(net.constant, constants)], "i8", table, scales or Q, **options)

    return build


QUANTIZED: dict[str, Case] = {
    "conv": quantized_conv,
    "conv relu6": lambda net, x: quantized_conv(net, x, FusedActivationFunction=Fused.RELU6),
    "conv n1": lambda net, x: quantized_conv(net, x, FusedActivationFunction=Fused.RELU_N1_TO_1),
    "depthwise": lambda net, x: quantized_conv(net, x, "DEPTHWISE_CONV_2D"),
    "add": lambda net, x: net.op(
        "ADD", [x, net.constant(integers(1, 1, 1, 4), (0.03, 7))], "i8", "AddOptions", (0.07, 1)
    ),
    "sub constant": lambda net, x: net.op(
        "SUB", [x, net.constant(integers(4), (0.03, 7))], "i8", "SubOptions", (0.07, 1)
    ),
    "mul": lambda net, x: net.op(
        "MUL", [x, net.constant(integers(4), (0.01, -2))], "i8", "MulOptions", (0.04, 0)
    ),
    "average pool": quantized(
        "AVERAGE_POOL_2D", table="Pool2DOptions", FilterHeight=3, FilterWidth=3, StrideH=2, StrideW=2
    ),
    "max pool relu": quantized(
        "MAX_POOL_2D",
        table="Pool2DOptions",
        FilterHeight=2,
        FilterWidth=2,
        FusedActivationFunction=Fused.RELU,
        **STRIDE,
    ),
    "mean pixels": quantized("MEAN", ints(1, 2), table="ReducerOptions", scales=(0.03, 2)),
    "softmax": quantized("SOFTMAX", table="SoftmaxOptions", scales=(1 / 256, -128), Beta=1.0),
    "logistic": quantized("LOGISTIC", scales=(1 / 256, -128)),
    "relu": quantized("RELU", scales=(0.03, -100)),
    "reshape": quantized("RESHAPE", ints(6, 20)),
    "slice": quantized("SLICE", ints(0, 1, 0, 0), ints(1, 2, 5, 3), shape=(1, 2, 5, 3)),
    "pad": quantized("PAD", ints(0, 0, 1, 2, 3, 0, 0, 0).reshape(4, 2)),
    "concat": lambda net, x: net.op("CONCATENATION", [x, x], "i8", "ConcatenationOptions", Q, Axis=3),
    "requantize": quantized("QUANTIZE", scales=(0.02, 11)),
    "bilinear": quantized(
        "RESIZE_BILINEAR", ints(9, 7), table="ResizeBilinearOptions", HalfPixelCenters=True
    ),
    "nearest": quantized("RESIZE_NEAREST_NEIGHBOR", ints(9, 7), table="ResizeNearestNeighborOptions"),
    "tanh": quantized("TANH", scales=(1 / 128, 0)),
    "hard swish": quantized("HARD_SWISH", scales=(0.04, -100)),
    "leaky": quantized("LEAKY_RELU", table="LeakyReluOptions", scales=(0.04, -20), Alpha=0.2),
    "prelu": lambda net, x: net.op(
        "PRELU", [x, net.constant(integers(1, 1, 4), (0.003, 3))], "i8", "", (0.04, 2)
    ),
    "elu": quantized("ELU", scales=(0.04, -20)),
    "exp": quantized("EXP", scales=(0.4, -128)),
    "abs": quantized("ABS", scales=(0.05, -128)),
    "relu n1": quantized("RELU_N1_TO_1"),
    "l2 normalization": quantized("L2_NORMALIZATION", table="L2NormOptions", scales=(1 / 128, 0)),
    "mean channels": quantized("MEAN", ints(3), table="ReducerOptions", scales=(0.04, 2), KeepDims=True),
    "mean of one scale": quantized("MEAN", ints(1, 2), table="ReducerOptions"),
    "add relu": lambda net, x: net.op(
        "ADD", [x, x], "i8", "AddOptions", (0.07, 1), FusedActivationFunction=Fused.RELU
    ),
    "transposed": lambda net, x: net.op(
        "TRANSPOSE_CONV",
        [net.constant(ints(1, 12, 10, 3)), net.constant(integers(3, 3, 3, 4), ([0.01, 0.02, 0.03], 0, 0)), x],
        "i8",
        "TransposeConvOptions",
        (0.3, 1),
        StrideH=2,
        StrideW=2,
    ),
    "batch matmul": lambda net, x: net.op(
        "BATCH_MATMUL", [x, x], "i8", "BatchMatMulOptions", (0.2, 1), AdjY=True
    ),
    "transpose": quantized("TRANSPOSE", ints(0, 2, 1, 3)),
    "depth to space": quantized("DEPTH_TO_SPACE", table="DepthToSpaceOptions", BlockSize=2),
    "mirror": quantized("MIRROR_PAD", ints(0, 0, 1, 2, 3, 0, 0, 0).reshape(4, 2), table="MirrorPadOptions"),
    "pad value": lambda net, x: net.op(
        "PADV2",
        [x, net.constant(ints(0, 0, 1, 2, 3, 0, 0, 0).reshape(4, 2)), net.constant(np.int8([9]), Q)],
        "i8",
        "PadV2Options",
        Q,
    ),
    "space to batch": quantized("SPACE_TO_BATCH_ND", ints(2, 3), ints(1, 1, 0, 1).reshape(2, 2)),
    "concat constant": lambda net, x: net.op(
        "CONCATENATION", [x, net.constant(integers(1, 6, 5, 2), Q)], "i8", "ConcatenationOptions", Q, Axis=3
    ),
    "to uint8": lambda net, x: net.op("QUANTIZE", [x], "ui8", "", (0.05, 125)),
    "to 16 bits": lambda net, x: net.op("QUANTIZE", [x], "i16", "", (0.0002, 0)),
    "fully connected": lambda net, x: net.op(
        "FULLY_CONNECTED",
        [
            x,
            net.constant(integers(3, 20), (0.004, 0)),
            net.constant(RNG.integers(-99, 99, 3).astype(np.int32), (0.0002, 0)),
        ],
        "i8",
        "FullyConnectedOptions",
        (0.06, 4),
    ),
}


@pytest.mark.parametrize("name", QUANTIZED)
def test_integer_operators(name: str) -> None:
    for lead in (False, True):
        net = Net()
        x = net.input("x", PICTURE, "i8", Q)
        source = x
        if lead:
            source = quantized_conv(net, x, "DEPTHWISE_CONV_2D", Q)
        y = QUANTIZED[name](net, source)
        assert_same_bits(net.data(y), {"x": integers(*PICTURE)})


@pytest.mark.parametrize("kind", ["ui8", "i16"])
@pytest.mark.parametrize("code", ["ADD", "SUB", "MUL", "CONCATENATION", "FULLY_CONNECTED", "MEAN", "SOFTMAX"])
def test_other_integers(kind: str, code: str) -> None:
    unsigned = kind == "ui8"
    given, other, result = (
        ((0.05, 120), (0.03, 99), (0.06, 128)) if unsigned else ((3e-4, 0), (2e-4, 0), (5e-4, 0))
    )
    dtype = np.uint8 if unsigned else np.int16
    net = Net()
    shape = (3, 20) if code == "FULLY_CONNECTED" else PICTURE
    x = net.input("x", shape, kind, given)
    feed = {"x": integers(*shape, dtype=dtype)}
    if code in ("ADD", "SUB", "MUL", "CONCATENATION"):
        if code == "CONCATENATION" and not unsigned:
            other = result = given
        second = net.input("z", shape, kind, other)
        feed["z"] = integers(*shape, dtype=dtype)
        table = f"{code.title()}Options"
        y = net.op(code, [x, second], kind, table, result, **({"Axis": 3} if code == "CONCATENATION" else {}))
    elif code == "FULLY_CONNECTED":
        weight = net.constant(
            integers(4, 20, dtype=np.uint8 if unsigned else np.int8), (0.01, 110 * unsigned)
        )
        sums = RNG.integers(-5000, 5000, 4).astype(np.int32 if unsigned else np.int64)
        bias = net.constant(sums, (given[0] * 0.01, 0))
        y = net.op(
            code, [x, weight, bias], kind, "FullyConnectedOptions", (0.1, 128) if unsigned else (1e-3, 0)
        )
    elif code == "MEAN":
        y = net.op(code, [x, net.constant(ints(1, 2))], kind, "ReducerOptions", result)
    else:
        y = net.op(code, [x], kind, "SoftmaxOptions", (1 / 256, 0) if unsigned else (1 / 32768, 0), Beta=1.0)
    assert_same_bits(net.data(y), feed)


def test_quantize_and_dequantize_are_operators_too() -> None:
    net = Net()
    x = net.input("x", PICTURE)
    q = net.op("QUANTIZE", [x], "i8", scales=Q)
    y = net.op("DEQUANTIZE", [quantized_conv(net, q)])
    ties = (np.arange(120).reshape(PICTURE) * 0.025).astype(np.float32)
    assert_same_bits(net.data(y), {"x": ties})


def test_uint8_weights_keep_their_zero_point() -> None:
    net = Net()
    x = net.input("x", PICTURE, "ui8", (0.05, 120))
    weight = net.constant(integers(3, 2, 2, 4, dtype=np.uint8), (0.003, 131))
    bias = net.constant(RNG.integers(-900, 900, 3).astype(np.int32), (0.00015, 0))
    y = net.op("CONV_2D", [x, weight, bias], "ui8", "Conv2DOptions", (0.09, 99), **WINDOW)
    assert_same_bits(net.data(y), {"x": integers(*PICTURE, dtype=np.uint8)})


def test_sixteen_bits() -> None:
    net = Net()
    x = net.input("x", PICTURE, "i16", (0.0004, 0))
    weight = net.constant(integers(3, 2, 2, 4), ([0.003, 0.004, 0.001], 0, 0))
    bias = net.constant(RNG.integers(-(10**6), 10**6, 3), ([1.2e-6, 1.6e-6, 4e-7], 0))
    y = net.op("CONV_2D", [x, weight, bias], "i16", "Conv2DOptions", (0.0007, 0), **WINDOW)
    assert_same_bits(net.data(y), {"x": integers(*PICTURE, dtype=np.int16)})


def test_weights_that_only_are_quantized_make_a_float_network() -> None:
    net = Net()
    x = net.input("x", (2, 16))
    weight = net.constant(np.maximum(integers(8, 16), -127), (0.01, 0))
    y = net.op("FULLY_CONNECTED", [x, weight, None], "f32", "FullyConnectedOptions")
    data = net.data(y)
    graph = import_tflite(data)
    assert not graph.arithmetic and not any(isinstance(op, top.Dequantize) for op in graph.ops)
    assert_close(data, {"x": normal(2, 16)}, 0.02)


def test_the_mark_of_the_arithmetic_travels(tmp_path: Any) -> None:
    net = Net()
    data = net.data(
        quantized("MEAN", ints(1, 2), table="ReducerOptions")(net, net.input("x", PICTURE, "i8", Q))
    )
    graph = canonicalize(import_tflite(data))
    save_graph(graph, tmp_path / "m.mlir")
    again = load_graph(tmp_path / "m.mlir")
    assert again.arithmetic == "tflite" == again.copy().arithmetic
    kinds = {getattr(op, "kind", "") for op in quantize_network(again).graph.ops}
    assert "double_rounding" in kinds
    DropQuantization().run(again)
    assert again.arithmetic == ""


# Names, cuts and refusals


def test_signature_names_and_tensor_names_both_serve() -> None:
    net = Net()
    x = net.input("x", (2, 4))
    x.name = "serving_default_x:0"
    middle = net.op("RELU", [x])
    data = net.data(net.op("NEG", [middle]))
    graph = import_tflite(data)
    assert [port.name for port in graph.inputs] == ["x"] and [port.name for port in graph.outputs] == ["y"]
    for name in ("x", "serving_default_x:0"):
        options = ImportOptions(input_shapes={name: (5, 4)})
        assert shape_of(import_tflite(data, options).outputs[0].value) == (5, 4)
    cut = import_tflite(data, ImportOptions(inputs=(middle.name,)))
    assert [op.name for op in cut.ops] == ["top.neg"]
    assert [port.name for port in import_tflite(data, ImportOptions(outputs=(middle.name,))).outputs] == [
        middle.name
    ]
    with pytest.raises(UnknownTensorError, match="nope"):
        import_tflite(data, ImportOptions(outputs=("nope",)))


def test_a_shape_of_the_other_layout_is_told_in_a_line() -> None:
    net = Net()
    x = net.input("image", (1, 32, 32, 3))
    weight = net.constant(np.ones((4, 3, 3, 3), np.float32))
    common = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    y = net.op("CONV_2D", [x, weight], "f32", "Conv2DOptions", **common)
    y.name = "a;very;" * 60
    data = net.data(y)
    with pytest.raises(UsageError) as raised:
        import_tflite(data, ImportOptions(input_shapes={"image": (1, 3, 48, 64)}))
    assert "'image' is N,H,W,C in the model" in raised.value.message
    assert raised.value.fix == "Give --input-shape 1,48,64,3"
    assert shape_of(
        import_tflite(data, ImportOptions(input_shapes={"image": (1, 48, 64, 3)})).inputs[0].value
    ) == (1, 48, 64, 3)
    with pytest.raises(UsageError, match="4 channels for weights of 3") as raised:
        import_tflite(data, ImportOptions(input_shapes={"image": (1, 32, 32, 4)}))
    assert raised.value.fix == "In the model the shape is 1,32,32,3" and len(raised.value.message) < 120


def test_an_unknown_operator_is_named() -> None:
    net = Net()
    x = net.input("x", (2, 4))
    y = net.op("FAKE_QUANT", [x], "f32", "FakeQuantOptions", Min=-1.0, Max=1.0, NumBits=8)
    with pytest.raises(UnsupportedOpError, match=f"FAKE_QUANT that makes '{y.name}'"):
        import_tflite(net.data(y))


def test_a_shape_that_depends_on_data_is_refused() -> None:
    net = Net()
    x, shape = net.input("x", (2, 4)), net.input("s", (2,), "i32")
    with pytest.raises(UnsupportedOpError, match="its shape is computed at run time"):
        import_tflite(net.data(net.op("RESHAPE", [x, shape])))


def test_tensors_that_contradict_their_operator_are_refused() -> None:
    net = Net()
    x = net.input("x", (2, 4))
    with pytest.raises(InvalidModelError, match="declared as INT32"):
        import_tflite(net.data(net.op("RELU", [x], "i32")))


def test_bytes_of_moved_integers_are_left_alone() -> None:
    """TFLite's reshape copies bytes, whatever scale its result is declared with."""
    net = Net()
    x = net.input("x", (2, 6), "i8", (0.1, 0))
    y = net.op("RESHAPE", [x, net.constant(ints(3, 4))], "i8", scales=(0.7, 3))
    feed = {"x": integers(2, 6)}
    data = net.data(y)
    np.testing.assert_array_equal(run_litert(data, feed)["y"].reshape(-1), feed["x"].reshape(-1))
    assert_close(data, feed)


def test_a_zero_byte_in_a_name_is_written_out() -> None:
    net = Net()
    x = net.input("a\0b", (1, 4))
    graph = import_tflite(net.data(net.op("ADD", [x, x], "f32", "AddOptions", shape=(1, 4))))
    assert [port.name for port in graph.inputs] == ["a\\x00b"]


def test_the_check_does_not_take_reals_for_the_integers_of_the_original(tmp_path: Path) -> None:
    """An int8 GATHER_ND runs float between dequantize and quantize; its output has LiteRT's bits, and so the check passes."""
    net = Net()
    x = net.input("x", (1, 4, 4, 3), "i8", (0.02, -128))
    indices = net.constant(np.array([[0, 1, 2], [0, 3, 0]], np.int32))
    y = net.op("GATHER_ND", [x, indices], "i8", shape=(2, 3), scales=(0.02, -128))
    y = net.op("ADD", [y, y], "i8", "AddOptions", shape=(2, 3), scales=(0.04, -128))
    path = tmp_path / "net.tflite"
    path.write_bytes(net.data(y))
    report = check_model(path, import_model(path), ImportOptions())
    assert report.passed and [entry.name for entry in report.outputs] == ["y"]
    assert all(entry.max_error == 0 for entry in report.outputs)


@pytest.mark.parametrize("x", [(0.05, -128), (0.031, -100), (0.2, 3)])
def test_a_square_root_of_bytes_is_cut_off_as_litert_does(x: tuple[float, int]) -> None:
    net = Net()
    values = np.maximum(np.arange(-128, 128), x[1]).astype(np.int8)[None]
    y = net.op("SQRT", [net.input("x", (1, 256), "i8", x)], "i8", "", (0.02, -120))
    assert_same_bits(net.data(y), {"x": values})


def test_the_check_agrees_on_square_roots_of_gathered_bytes(tmp_path: Path) -> None:
    net = Net()
    x = net.input("x", (1, 4, 4, 3), "i8", (0.02, -128))
    indices = net.constant(np.array([[0, 1, 2], [0, 3, 0]], np.int32))
    y = net.op("GATHER_ND", [x, indices], "i8", shape=(2, 3), scales=(0.02, -128))
    y = net.op("SQRT", [y], "i8", shape=(2, 3), scales=(0.01, -128))
    y = net.op("ADD", [y, y], "i8", "AddOptions", shape=(2, 3), scales=(0.02, -128))
    path = tmp_path / "net.tflite"
    path.write_bytes(net.data(y))
    report = check_model(path, import_model(path), ImportOptions())
    assert report.passed and all(entry.max_error == 0 for entry in report.outputs)
