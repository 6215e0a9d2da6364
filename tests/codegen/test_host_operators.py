"""Host operators in C against ONNX Runtime, op by op: within 2 ulp, or within 1e-6 of the largest number of the result."""

from __future__ import annotations

import os
import struct
import subprocess
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from npuc.arrays import Array
from npuc.codegen.host_ops.builder import numpy_type
from npuc.host import Session
from npuc.program.host_ops import (
    HEADER,
    HOST_KINDS,
    HOST_OPERATORS,
    NODE,
    NONE,
    PLACES,
    TENSOR,
    HostSection,
    refusal_of,
)
from npuc.program.layout import TENSOR_DTYPES
from npuc.program.model import CpuSubgraph
from support.paths import ROOT
from support.programs.host_models import cpu_model, file_of, run_in_c

_RNG = np.random.default_rng(7)
DAMAGED = 12
"""Damaged sections of each operator."""


def reals(*shape: int, low: float = -3, high: float = 3) -> Array:
    return _RNG.uniform(low, high, shape).astype(np.float32)


def integers(*shape: int, low: int = -100, high: int = 100, kind: Any = np.int64) -> Array:
    return _RNG.integers(low, high, shape).astype(kind)


class Case:
    """One node: its type, inputs that vary, inputs that are constants (`None` leaves one out), and attributes."""

    def __init__(
        self, op: str, *inputs: Any, outputs: int = 1, opset: int = 21, exact: bool = False, **attributes: Any
    ):
        self.op, self.inputs, self.outputs, self.opset = op, inputs, outputs, opset
        self.exact, self.attributes = exact, attributes

    def __repr__(self) -> str:
        shapes = ",".join(
            "x".join(map(str, x[0].shape)) if isinstance(x, tuple) else "c" for x in self.inputs
        )
        words = ",".join(f"{key}={value}" for key, value in self.attributes.items())
        return f"{self.op}({shapes}){words}"[:90]

    def model(self) -> tuple[onnx.ModelProto, dict[str, Array]]:
        names, values, constants = [], {}, []
        for number, x in enumerate(self.inputs):
            name = f"x{number}" if x is not None else ""
            if isinstance(x, tuple):
                values[name] = x[0]
            elif x is not None:
                constants.append(numpy_helper.from_array(np.asarray(x), name))
            names.append(name)
        results = [f"y{k}" for k in range(self.outputs)]
        node = helper.make_node(self.op, names, results, name="layer", **self.attributes)
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in values.items()
        ]
        empty = [onnx.ValueInfoProto(name=name) for name in results]
        graph = helper.make_graph([node], "one", infos, empty, constants)
        opsets = [helper.make_opsetid("", self.opset)]
        proto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        wanted = Session(proto.SerializeToString(), "one").run(results, values)
        del proto.graph.output[:]
        for name, value in wanted.items():
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            proto.graph.output.append(helper.make_tensor_value_info(name, kind, value.shape))
        return proto, values


def agree(result: Array, wanted: Array) -> bool:
    """2 ulp, 1e-6 relative, or 1e-6 of the largest number: sums of numbers of both signs are as exact as their terms."""
    if wanted.dtype.kind != "f":
        return np.array_equal(result, wanted)
    largest = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))
    close = np.isclose(result, wanted, rtol=1e-6, atol=1e-6 * largest, equal_nan=True)
    near = np.abs(result - wanted) <= 2 * np.spacing(np.abs(wanted))
    return bool((close | near).all())


def v(array: Array) -> tuple[Array]:
    """An input that varies."""
    return (array,)


_UNARY = [
    "Abs", "Neg", "Sign", "Ceil", "Floor", "Round", "Exp", "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Tanh", "Asinh",
    "Erf", "Relu", "LeakyRelu", "ThresholdedRelu", "Elu", "Selu", "Celu", "Sigmoid", "HardSigmoid", "HardSwish", "Softplus",
    "Softsign", "Mish", "Reciprocal", "IsNaN", "IsInf", "Identity",
]  # fmt: skip
_ARITHMETIC = [
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Min",
    "Max",
    "Equal",
    "Less",
    "LessOrEqual",
    "Greater",
    "GreaterOrEqual",
]
_REDUCE = ["Sum", "Mean", "Max", "Min", "L1", "L2", "SumSquare", "LogSumExp", "Prod"]

CASES = [
    *(Case(op, v(reals(3, 5, 7))) for op in _UNARY),
    *(Case(op, v(reals(40, low=0.1, high=0.9))) for op in ("Log", "Sqrt", "Asin", "Acos", "Atanh")),
    Case("Acosh", v(reals(9, low=1.1, high=5))),
    Case("Gelu", v(reals(50))),
    Case("Gelu", v(reals(50)), approximate="tanh"),
    Case("Shrink", v(reals(50)), lambd=0.7, bias=0.25),
    Case("LeakyRelu", v(reals(20)), alpha=0.3),
    Case("Clip", v(reals(20)), np.float32(-1), np.float32(2)),
    Case("Clip", v(reals(20)), None, v(np.array(0.5, np.float32))),
    Case("Clip", v(integers(20)), np.int64(-4), np.int64(70)),
    *(Case(op, v(integers(4, 6, kind=np.int32))) for op in ("Abs", "Neg", "Sign", "Relu")),
    Case("Not", v(integers(9, low=0, high=2, kind=np.bool_))),
    Case("BitwiseNot", v(integers(9, kind=np.int8))),
    *(Case(op, v(reals(2, 3, 4)), v(reals(3, 1))) for op in _ARITHMETIC),
    *(Case(op, v(reals(4)), v(reals(2, 3, 1))) for op in ("Add", "Div", "PRelu") if op != "PRelu"),
    *(Case(op, v(integers(2, 3, 4)), v(integers(4, low=1))) for op in _ARITHMETIC),
    *(
        Case(op, v(integers(2, 3, 4, kind=np.int32)), v(integers(3, 1, low=1, kind=np.int32)))
        for op in ("Add", "Mul", "Div")
    ),
    Case("PRelu", v(reals(2, 3, 4)), v(reals(3, 1))),
    Case("Pow", v(reals(9, low=0.1)), v(reals(9))),
    Case("Pow", v(reals(9)), np.float32(2)),
    Case("Pow", v(reals(9)), np.int64(3)),
    Case("Mod", v(integers(30)), v(integers(30, low=1, high=9))),
    Case("Mod", v(integers(30)), np.int64(-7)),
    Case("Mod", v(reals(30)), v(reals(30, low=0.5)), fmod=1),
    Case("Mod", v(integers(30)), np.int64(-7), fmod=1),
    Case("BitShift", v(integers(9, low=0, kind=np.uint8)), np.uint8(3), direction="LEFT"),
    Case("BitShift", v(integers(9, low=0, kind=np.uint32)), np.uint32(2), direction="RIGHT"),
    *(
        Case(op, v(integers(9, kind=np.int32)), v(integers(9, kind=np.int32)))
        for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")
    ),
    *(Case(op, v(reals(3, 4) > 0), v(reals(4) > 0)) for op in ("And", "Or", "Xor")),
    Case("Max", v(reals(3, 4)), v(reals(4)), v(reals(3, 1))),
    Case("Mean", v(reals(3, 4)), v(reals(4))),
    Case("Sum", v(reals(3, 4)), v(reals(4)), v(reals(1))),
    Case("Where", v(reals(3, 1) > 0), v(reals(4)), v(reals(2, 3, 4))),
    Case("Where", v(reals(5) > 0), np.int64(3), v(integers(5))),
    *(Case("Cast", v(reals(30, low=-90, high=90)), to=to) for to in (6, 7, 3, 9, 11, 5)),
    Case("Cast", v(reals(30, low=0, high=200)), to=2),
    Case("Cast", v(integers(30)), to=1),
    Case("Cast", v(integers(30)), to=3),
    Case("QuantizeLinear", v(reals(4, 6)), np.float32(0.03), np.uint8(7)),
    Case(
        "QuantizeLinear",
        v(reals(2, 3, 4)),
        reals(3, low=0.01, high=0.1),
        integers(3, low=-9, high=9, kind=np.int8),
        axis=1,
    ),
    Case(
        "DequantizeLinear",
        v(integers(2, 3, 4, kind=np.int8)),
        reals(3, low=0.01),
        integers(3, low=-9, high=9, kind=np.int8),
        axis=1,
    ),
    Case("DequantizeLinear", v(integers(9, kind=np.int32)), np.float32(0.1)),
    Case("Reshape", v(reals(2, 6)), np.array([3, -1])),
    Case("Flatten", v(reals(2, 3, 4)), axis=2),
    Case("Squeeze", v(reals(2, 1, 3)), np.array([1])),
    Case("Unsqueeze", v(reals(2, 3)), np.array([0, 3])),
    Case("Transpose", v(reals(2, 3, 4, 5)), perm=[0, 2, 3, 1]),
    Case("Transpose", v(integers(3, 4, kind=np.int8))),
    Case(
        "Slice", v(reals(5, 6, 7)), np.array([1, -1]), np.array([4, -7]), np.array([0, 2]), np.array([2, -2])
    ),
    Case("Split", v(reals(6, 5)), np.array([1, 3, 2]), outputs=3, axis=0),
    Case("Split", v(reals(4, 6)), outputs=2, axis=-1, num_outputs=2),
    Case("Concat", v(reals(2, 3)), v(reals(2, 5)), reals(2, 1), axis=1),
    Case("Expand", v(reals(3, 1)), np.array([2, 3, 4])),
    Case("Tile", v(reals(2, 3)), np.array([3, 2])),
    Case("DepthToSpace", v(reals(1, 8, 2, 3)), blocksize=2),
    Case("DepthToSpace", v(reals(1, 8, 2, 3)), blocksize=2, mode="CRD"),
    Case("SpaceToDepth", v(reals(1, 2, 4, 6)), blocksize=2),
    Case("Pad", v(reals(2, 3, 4)), np.array([0, 1, 2, 1, 0, 1]), np.float32(1.5)),
    Case("Pad", v(reals(2, 5)), np.array([0, -1, 1, 2])),
    Case("Pad", v(integers(4)), np.array([2, 1]), np.int64(-3)),
    *(Case("Pad", v(reals(4, 5)), np.array([1, 2, 3, 2]), mode=mode) for mode in ("edge", "reflect", "wrap")),
    Case("Gather", v(reals(3, 4, 5)), v(integers(2, 3, low=-4, high=4)), axis=1),
    Case("Gather", v(reals(3, 4)), np.int64(1)),
    Case("GatherElements", v(reals(3, 4)), v(integers(3, 2, low=-4, high=4)), axis=1),
    Case("GatherND", v(reals(2, 3, 4)), v(integers(5, 2, low=0, high=2))),
    Case("GatherND", v(reals(2, 3, 4)), v(integers(2, 5, 1, low=0, high=3)), batch_dims=1),
    *(
        Case(
            "ScatterElements",
            v(reals(4, 5)),
            v(integers(2, 3, low=0, high=4)),
            v(reals(2, 3)),
            axis=0,
            reduction=how,
        )
        for how in ("add", "mul", "max")
    ),
    Case("ScatterElements", v(reals(4, 5)), np.array([[0, 1, 2], [3, 0, 1]]), v(reals(2, 3)), axis=0),
    Case("ScatterND", v(reals(4, 5)), np.array([[1], [3]]), v(reals(2, 5))),
    Case("ScatterND", v(reals(4, 5)), v(integers(6, 2, low=0, high=4)), v(reals(6)), reduction="add"),
    Case("OneHot", v(integers(3, 4, low=-5, high=5)), np.int64(5), np.array([2.0, 7.0], np.float32), axis=1),
    Case("Trilu", v(reals(4, 5)), np.int64(1)),
    Case("Trilu", v(reals(2, 4, 4)), upper=0),
    Case("Shape", v(reals(2, 3))),
    Case("ConstantOfShape", np.array([2, 3])),
    Case("Range", np.int64(2), np.int64(11), np.int64(3)),
    *(Case(f"Reduce{how}", v(reals(3, 4, 5)), np.array([0, 2])) for how in _REDUCE),
    Case("ReduceLogSum", v(reals(3, 4, low=0.1)), np.array([1]), keepdims=0),
    Case("ReduceSum", v(integers(3, 4)), np.array([-1]), keepdims=0),
    Case("ReduceMax", v(integers(3, 4, kind=np.int8))),
    Case("ReduceMean", v(reals(2, 3)), keepdims=0),
    *(
        Case(op, v(reals(3, 4, 5)), axis=1)
        for op in ("ArgMax", "ArgMin", "Softmax", "LogSoftmax", "Hardmax", "LpNormalization")
    ),
    Case("ArgMax", v(integers(3, 9, low=0, high=3)), axis=1, keepdims=0, select_last_index=1),
    Case("LpNormalization", v(reals(3, 4)), p=1),
    Case("LayerNormalization", v(reals(2, 3, 8)), reals(8), reals(8)),
    Case("LayerNormalization", v(reals(2, 3, 8)), reals(3, 8), axis=1),
    Case("InstanceNormalization", v(reals(2, 3, 4, 5)), reals(3), reals(3)),
    Case("GroupNormalization", v(reals(2, 6, 4)), reals(6), reals(6), num_groups=3),
    Case("BatchNormalization", v(reals(2, 3, 4)), reals(3), reals(3), reals(3), reals(3, low=0.5)),
    Case("LRN", v(reals(1, 7, 3, 3)), size=3, alpha=0.1),
    Case("CumSum", v(reals(3, 5)), np.int64(1)),
    Case("CumSum", v(integers(3, 5)), np.int64(0), exclusive=1, reverse=1),
    Case("TopK", v(reals(3, 9)), np.array([4]), outputs=2),
    Case("TopK", v(integers(9, 4, low=0, high=5)), np.array([3]), outputs=2, axis=0, largest=0),
    Case(
        "Conv", v(reals(2, 4, 7, 8)), reals(6, 2, 3, 3), reals(6), group=2, pads=[1, 0, 1, 2], strides=[2, 1]
    ),
    Case("Conv", v(reals(1, 3, 70)), reals(4, 3, 5), strides=[3], auto_pad="SAME_UPPER"),
    Case("Conv", v(reals(1, 3, 70)), reals(4, 3, 5), dilations=[2], pads=[3, 1]),
    Case("Conv", v(reals(1, 2, 4, 5, 6)), reals(3, 2, 2, 3, 3)),
    Case("Conv", v(reals(1, 3, 5, 5)), v(reals(2, 3, 3, 3)), auto_pad="SAME_LOWER", strides=[2, 2]),
    Case(
        "ConvInteger",
        v(integers(1, 2, 5, 5, low=0, kind=np.uint8)),
        integers(3, 2, 3, 3, low=0, kind=np.uint8),
        np.uint8(3),
        np.uint8(9),
    ),
    Case(
        "ConvTranspose",
        v(reals(1, 4, 3, 5)),
        reals(4, 3, 3, 3),
        reals(3),
        strides=[2, 2],
        pads=[1, 1, 0, 1],
        output_padding=[1, 0],
    ),
    Case("ConvTranspose", v(reals(1, 4, 6)), reals(4, 2, 4), group=2, strides=[2], auto_pad="SAME_UPPER"),
    Case("ConvTranspose", v(reals(1, 2, 4, 4)), reals(2, 3, 3, 3), strides=[2, 2], output_shape=[8, 8]),
    Case("MatMul", v(reals(2, 1, 3, 4)), v(reals(5, 4, 70))),
    Case("MatMul", v(reals(4)), v(reals(2, 4, 3))),
    Case("MatMul", v(reals(3, 4)), reals(4)),
    Case("MatMul", v(reals(4)), v(reals(4))),
    Case("MatMul", v(integers(3, 4, kind=np.int32)), v(integers(4, 5, kind=np.int32))),
    Case(
        "MatMulInteger",
        v(integers(3, 4, low=0, kind=np.uint8)),
        integers(4, 5, kind=np.int8),
        np.uint8(5),
        np.int8(-3),
    ),
    Case("Gemm", v(reals(3, 4)), v(reals(5, 4)), reals(5), transB=1, alpha=0.5, beta=2.0),
    Case("Gemm", v(reals(4, 3)), reals(4, 5), transA=1),
    Case("MaxPool", v(reals(2, 3, 7, 8)), kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
    Case("MaxPool", v(integers(1, 2, 6, 6, kind=np.int8)), kernel_shape=[2, 2]),
    Case("MaxPool", v(reals(1, 2, 9)), kernel_shape=[2], dilations=[3], ceil_mode=1, strides=[2]),
    Case("AveragePool", v(reals(2, 3, 7, 8)), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    Case("GlobalMaxPool", v(reals(2, 3, 4, 5))),
    Case(
        "AveragePool",
        v(reals(2, 3, 7, 8)),
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        count_include_pad=1,
    ),
    Case("GlobalAveragePool", v(reals(2, 3, 4, 5))),
    Case("AveragePool", v(reals(1, 2, 8)), kernel_shape=[3], strides=[3], ceil_mode=1),
    Case("LpPool", v(reals(1, 2, 6, 6)), kernel_shape=[2, 2], p=3),
    *(
        Case(
            "Resize",
            v(reals(1, 2, 4, 5)),
            None,
            None,
            np.array([1, 2, 9, 7]),
            mode=mode,
            coordinate_transformation_mode=place,
        )
        for mode in ("nearest", "linear", "cubic")
        for place in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    ),
    *(
        Case(
            "Resize",
            v(reals(1, 1, 6, 6)),
            None,
            np.array([1, 1, 0.6, 1.7], np.float32),
            mode="nearest",
            nearest_mode=how,
        )
        for how in ("floor", "ceil", "round_prefer_ceil")
    ),
    Case(
        "Resize",
        v(reals(1, 1, 6, 6)),
        None,
        np.array([1, 1, 2, 2], np.float32),
        mode="cubic",
        exclude_outside=1,
    ),
    Case(
        "Resize",
        v(integers(1, 2, 3, 3, kind=np.int8)),
        None,
        np.array([1, 1, 2, 2], np.float32),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    *(
        Case(
            "GridSample",
            v(reals(1, 2, 5, 6)),
            v(reals(1, 4, 4, 2, low=-1.3, high=1.3)),
            mode=mode,
            padding_mode=outside,
            align_corners=corners,
        )
        for mode, outside, corners in (
            ("linear", "zeros", 0),
            ("linear", "border", 1),
            ("nearest", "reflection", 0),
            ("cubic", "zeros", 1),
            ("linear", "reflection", 1),
        )
    ),
    Case(
        "LSTM",
        v(reals(5, 2, 3)),
        reals(1, 16, 3),
        reals(1, 16, 4),
        reals(1, 32),
        None,
        v(reals(1, 2, 4)),
        v(reals(1, 2, 4)),
        outputs=3,
        hidden_size=4,
    ),
    Case(
        "LSTM",
        v(reals(5, 2, 3)),
        reals(2, 16, 3),
        reals(2, 16, 4),
        reals(2, 32),
        np.array([5, 3], np.int32),
        outputs=3,
        hidden_size=4,
        direction="bidirectional",
    ),
    Case(
        "LSTM",
        v(reals(5, 2, 3)),
        reals(1, 16, 3),
        reals(1, 16, 4),
        None,
        None,
        None,
        None,
        reals(1, 12),
        hidden_size=4,
        direction="reverse",
    ),
    Case("GRU", v(reals(5, 2, 3)), reals(1, 12, 3), reals(1, 12, 4), reals(1, 24), outputs=2, hidden_size=4),
    Case("RNN", v(reals(5, 2, 3)), reals(1, 4, 3), reals(1, 4, 4), reals(1, 8), outputs=2, hidden_size=4),
    Case(
        "GRU",
        v(reals(5, 2, 3)),
        reals(2, 12, 3),
        reals(2, 12, 4),
        reals(2, 24),
        outputs=2,
        hidden_size=4,
        linear_before_reset=1,
        direction="bidirectional",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_an_operator_agrees_with_onnx_runtime(case: Case) -> None:
    proto, values = case.model()
    model = cpu_model(proto)
    (subgraph,) = model.subgraphs
    assert isinstance(subgraph, CpuSubgraph) and refusal_of(subgraph.host) == ""
    wanted = Session(subgraph.model, "one").run(model.outputs, values)
    results = {name: np.empty_like(value) for name, value in wanted.items()}
    assert run_in_c(file_of(model), values, results) == ""
    for name, value in wanted.items():
        assert agree(results[name], value), np.abs(results[name].astype(np.float64) - value).max()


@pytest.mark.parametrize("most", [15, 4])
def test_selected_boxes_have_the_rows_that_they_have(most: int) -> None:
    """Non-maximum suppression, and what follows it with as many rows, until a slice of a fixed size.

    Of each class there are more than 4 boxes to select.
    """
    rng = np.random.default_rng(5)
    boxes = np.sort(rng.uniform(0, 10, (1, 40, 2, 2)).astype(np.float32), axis=2).reshape(1, 40, 4)
    values = {"boxes": boxes, "scores": rng.uniform(0, 1, (1, 2, 40)).astype(np.float32)}
    constants = {
        "most": np.array([most]), "overlap": np.array([0.3], np.float32), "least": np.array([0.4], np.float32),
        "last": np.array([2]), "zero": np.array([0]), "count": np.array([20]), "none": np.full((20, 6), -1, np.float32),
        "one": np.array([1]),
    }  # fmt: skip
    steps = [
        ("NonMaxSuppression", "boxes scores most overlap least", "picked", {}),
        ("GatherND", "scores picked", "values", {}),
        ("Shape", "values", "shape", {}),
        ("Min", "shape count", "k", {}),
        ("TopK", "values k", "best order", {}),
        ("Gather", "picked order", "rows", {"axis": 0}),
        ("Gather", "rows last", "numbers", {"axis": 1}),
        ("Gather", "rows one", "classes", {"axis": 1}),
        ("Cast", "classes", "labels", {"to": 1}),
        ("Concat", "zeros numbers", "tuples", {"axis": 1}),
        ("GatherND", "boxes tuples", "corners", {}),
        ("Unsqueeze", "best one", "column", {}),
        ("Concat", "labels column corners", "table", {"axis": 1}),
        ("Concat", "table none", "padded", {"axis": 0}),
        ("Slice", "padded zero count zero", "y", {}),
    ]
    steps.insert(9, ("Sub", "numbers numbers", "zeros", {}))
    nodes = [helper.make_node(op, a.split(), b.split(), **attributes) for op, a, b, attributes in steps]
    infos = [helper.make_tensor_value_info(name, 1, value.shape) for name, value in values.items()]
    output = helper.make_tensor_value_info("y", 1, [20, 6])
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "boxes", infos, [output], initializers)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    model = cpu_model(proto)
    (subgraph,) = model.subgraphs
    assert isinstance(subgraph, CpuSubgraph) and refusal_of(subgraph.host) == ""
    file = file_of(model)
    for least in (0.0, 0.9, 2.0):  # many boxes, a few, none
        scaled = {**values, "scores": np.maximum(values["scores"] - np.float32(least / 2), 0)}
        wanted = Session(subgraph.model, "boxes").run(["y"], scaled)
        if least == 0:
            selected = [int((wanted["y"][:, 0] == label).sum()) for label in (0, 1)]
            assert selected == [4, 4] if most == 4 else min(selected) > 4
        result = {"y": np.zeros((20, 6), np.float32)}
        assert run_in_c(file, scaled, result) == ""
        np.testing.assert_array_equal(result["y"], wanted["y"])


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (Case("NonZero", v(reals(5))), "C has no such operator"),
        (
            Case(
                "Resize", v(reals(1, 1, 4, 4)), None, None, np.array([1, 1, 2, 2]), mode="linear", antialias=1
            ),
            "antialiasing",
        ),
        (Case("Einsum", v(reals(2, 3)), v(reals(3, 4)), equation="ij,jk->ik"), "C has no such operator"),
        (Case("MaxPool", v(reals(1, 1, 4, 4)), outputs=2, kernel_shape=[2, 2]), "the places of the largest"),
    ],
    ids=lambda value: "" if isinstance(value, str) else value.op,
)
def test_what_c_has_not_is_refused_by_name(op: Case, words: str) -> None:
    model = cpu_model(op.model()[0])
    (subgraph,) = model.subgraphs
    assert isinstance(subgraph, CpuSubgraph)
    refusal = refusal_of(subgraph.host)
    assert refusal.startswith(f"{op.op} of the layer 'layer': ") and words in refusal
    assert run_in_c(file_of(model), {}, {}).startswith("3: ") and refusal in run_in_c(file_of(model), {}, {})


def test_damaged_host_operators_are_an_error_and_no_crash() -> None:
    """Sections with other numbers in them: C refuses them, or computes something inside of its memory."""
    rng = np.random.default_rng(3)
    names = (
        "Conv",
        "TopK",
        "Gather",
        "ScatterND",
        "Resize",
        "LSTM",
        "Concat",
        "Transpose",
        "MaxPool",
        "Pad",
        "CumSum",
        "GatherND",
    )
    picked = [next(case for case in CASES if case.op == name) for name in names]
    outcomes = set()
    for case in picked:
        proto, values = case.model()
        model = cpu_model(proto)
        (subgraph,) = model.subgraphs
        assert isinstance(subgraph, CpuSubgraph)
        outputs = {
            name: np.zeros(model.tensor(name).shape, numpy_type(model.tensor(name).dtype))
            for name in model.outputs
        }
        header = np.frombuffer(subgraph.host, HEADER.dtype, 1)[0]
        front = len(subgraph.host) - int(header["constants"])
        for _ in range(DAMAGED):
            words = np.frombuffer(subgraph.host, np.uint8).copy()
            at = 4 * int(rng.integers(0, front // 4))
            value = rng.choice(
                [0, 1, 2, 7, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, int(rng.integers(1 << 32))]
            )
            words[at : at + 4] = np.frombuffer(np.uint32(value).tobytes(), np.uint8)
            damaged = replace(model, subgraphs=(replace(subgraph, host=words.tobytes()),))
            outcomes.add(run_in_c(file_of(damaged), values, outputs)[:1])
    assert outcomes <= {"", "2", "3", "5", "6"} and {"", "2"} <= outcomes


def _outcome(section: HostSection, x: Array, y: Array | None = None) -> str:
    """What C says of a section by hand, in a model whose input and output are like `x`; `y` gets the result."""
    model = cpu_model(Case("Identity", v(x)).model()[0])
    (subgraph,) = model.subgraphs
    assert isinstance(subgraph, CpuSubgraph)
    changed = replace(model, subgraphs=(replace(subgraph, host=section.encoded()),))
    return run_in_c(file_of(changed), {"x0": x}, {"y0": np.zeros_like(x) if y is None else y})


def _tensor(
    dtype: str, place: str, offset: int, *shape: int
) -> tuple[int, int, int, int, int, tuple[int, ...], int]:
    size = prod(shape) * numpy_type(dtype).itemsize
    return TENSOR_DTYPES.index(dtype), len(shape), PLACES.index(place), offset, size, shape, NONE


def _node(operator: str, inputs: int, numbers: int) -> tuple[int, int, int, int, int, int, int]:
    """The only node, with one output: the tensors are its operands."""
    return [known.name for known in HOST_OPERATORS].index(operator), inputs, 1, 0, 0, numbers, 0


def test_a_product_beyond_64_bits_is_not_the_size_of_a_result() -> None:
    """Slices of 2^44 elements, 2^20 + 1 of them: modulo 2^64 that is one slice."""
    side, slices = 1 << 22, (1 << 20) + 1
    arena = [
        _tensor("f32", "arena", 0, 1, side, side),
        _tensor("i32", "arena", 0, slices),
        _tensor("f32", "arena", 0, side, side),
    ]
    section = HostSection(tuple(arena), (_node("gather", 2, 1),), (0, 1, 2), (0,), arena=4 * side * side)
    assert _outcome(section, reals(2, 4)).startswith("2: ")
    tuples = _tensor("i32", "arena", 0, slices, 1)
    section = replace(
        section, tensors=(arena[0], tuples, arena[2]), nodes=(_node("gather_nd", 2, 2),), numbers=(0, 1)
    )
    assert _outcome(section, reals(2, 4)).startswith("2: ")
    scatter = (arena[0], tuples, arena[2], arena[0])
    section = replace(
        section,
        tensors=scatter,
        nodes=(_node("scatter_nd", 3, 2),),
        operands=(0, 1, 2, 3),
        numbers=(1, 0),
    )
    assert _outcome(section, reals(2, 4)).startswith("2: ")


def test_the_upper_half_of_unsigned_integers_is_not_negative() -> None:
    x, y = np.array([1, 1 << 63, (1 << 64) - 1], np.uint64), np.zeros(3, np.uint64)
    tensors = (_tensor("ui64", "input", 0, 3), _tensor("ui64", "output", 0, 3))
    numbers = (HOST_KINDS["reduce"].index("l1"), 0)
    assert _outcome(HostSection(tensors, (_node("reduce", 1, 2),), (0, 1), numbers), x, y) == ""
    np.testing.assert_array_equal(y, x)


def test_strides_of_axes_of_one_element_do_not_overflow() -> None:
    tensors = (_tensor("f32", "input", 0, 2, 4), _tensor("f32", "output", 0, 2, 4))
    for stride, status in ((1 << 40, ""), (1 << 62, "2: ")):
        numbers = (3, 0, 0, 2, 1, 4, 4, stride, 1, 4, stride, 1)
        section = HostSection(tensors, (_node("copy", 1, len(numbers)),), (0, 1), numbers)
        assert _outcome(section, reals(2, 4))[:3] == status


def test_a_window_far_larger_than_its_image_takes_no_time() -> None:
    """2^60 taps, of which 8 are inside."""
    x, y = reals(1, 1, 2, 2, 2), np.zeros((1, 1, 2, 2, 2), np.float32)
    shape = (1, 1, 2, 2, 2)
    tensors = (_tensor("f32", "input", 0, *shape), _tensor("f32", "output", 0, *shape))
    numbers = (HOST_KINDS["pool"].index("max"), 3, 1, *[1 << 20] * 3, *[1] * 6, *[1 << 19] * 6)
    assert _outcome(HostSection(tensors, (_node("pool", 1, len(numbers)),), (0, 1), numbers), x, y) == ""
    np.testing.assert_array_equal(y, np.full(shape, x.max()))


def test_places_that_the_result_lies_over_stay_inside() -> None:
    """All places are 0 at first; then those of the second row are the bits of the results of the first."""
    tensors = (
        _tensor("f32", "input", 0, 2, 4),
        _tensor("i32", "arena", 0, 4, 1),
        _tensor("f32", "constant", 0, 4, 1),
        _tensor("f32", "arena", 0, 2, 4),
    )
    ones = np.ones(4, np.float32).tobytes()
    section = HostSection(tensors, (_node("resample", 3, 1),), (0, 1, 2, 3), (1,), b"\0", ones, 64)
    said = _outcome(section, np.ones((2, 4), np.float32))
    assert said.startswith("6: ") and "outside its axis" in said


@pytest.mark.parametrize(
    ("op", "operator", "kind"), [("TopK", "top_k", np.int64), ("LSTM", "recurrent", np.float32)]
)
def test_scratch_memory_is_not_among_what_is_only_read(op: str, operator: str, kind: Any) -> None:
    """An operator writes to its scratch memory, one of its inputs: a file must not say that it is an input or a constant."""
    case = next(case for case in CASES if case.op == op and case.inputs[0][0].dtype == kind)
    proto, values = case.model()
    model = cpu_model(proto)
    (subgraph,) = model.subgraphs
    assert isinstance(subgraph, CpuSubgraph)
    header = np.frombuffer(subgraph.host, HEADER.dtype, 1)[0]
    words = bytearray(subgraph.host)
    tensors = np.frombuffer(words, TENSOR.dtype, int(header["tensors"]), HEADER.size)
    nodes = np.frombuffer(words, NODE.dtype, int(header["nodes"]), HEADER.size + tensors.nbytes)
    (node,) = (node for node in nodes if HOST_OPERATORS[node["op"]].name == operator)
    operands = np.frombuffer(
        words, "<u4", int(header["operands"]), HEADER.size + tensors.nbytes + nodes.nbytes
    )
    scratch = operands[int(node["first_operand"]) + int(node["inputs"]) - 1]
    assert tensors[scratch]["place"] == PLACES.index("arena")
    tensors[scratch]["place"], tensors[scratch]["offset"] = PLACES.index("input"), 0
    damaged = replace(model, subgraphs=(replace(subgraph, host=bytes(words)),))
    outputs = {
        name: np.zeros(model.tensor(name).shape, numpy_type(model.tensor(name).dtype))
        for name in model.outputs
    }
    assert run_in_c(file_of(damaged), values, outputs).startswith("2: ")


def _damaged(section: bytes, rng: np.random.Generator) -> bytes:
    """A section with up to three other words before its constants."""
    words = np.frombuffer(section, "<u4").copy()
    front = (len(section) - int(np.frombuffer(section, HEADER.dtype, 1)[0]["constants"])) // 4
    for _ in range(int(rng.integers(0, 4))):
        likely = [
            0,
            1,
            2,
            3,
            4,
            8,
            64,
            255,
            1 << 16,
            (1 << 31) - 1,
            1 << 31,
            (1 << 32) - 1,
            words[rng.integers(front)],
        ]
        words[rng.integers(front)] = rng.choice(np.array([*likely, rng.integers(1 << 32)], np.uint32))
    return words.tobytes()


@pytest.mark.slow
def test_a_sanitizer_finds_nothing_in_damaged_host_operators(tmp_path: Path) -> None:
    """Every operator, its section and its inputs changed, with the checks of addresses and undefined behaviour."""
    sources = [*sorted((ROOT / "native/src").glob("host*.c")), ROOT / "tests/codegen/run_host.c"]
    checks = ["-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
    headers = [f"-I{ROOT / folder}" for folder in ("native/include", "native/src")]
    driver = str(tmp_path / "run_host")
    command = ["gcc", "-std=c11", "-O1", "-g", *checks, *headers, *map(str, sources), "-lm", "-o", driver]
    subprocess.run(command, check=True)
    rng = np.random.default_rng(11)
    stream = []
    for case in CASES:
        proto, values = case.model()
        model = cpu_model(proto)
        (subgraph,) = model.subgraphs
        assert isinstance(subgraph, CpuSubgraph)
        for _ in range(4 * DAMAGED):
            stream.append(struct.pack("<2I", len(model.inputs), len(model.outputs)))
            for name in (*model.inputs, *model.outputs):
                tensor = model.tensor(name)
                stream.append(struct.pack("<2I", TENSOR_DTYPES.index(tensor.dtype), tensor.size))
                if name in values:
                    data = np.frombuffer(values[name].tobytes(), np.uint8).copy()
                    strange = rng.random(data.size) < rng.choice([0, 0, 0.1])
                    data[strange] = rng.choice(np.array([0, 127, 128, 255], np.uint8), int(strange.sum()))
                    stream.append(data.tobytes())
            section = _damaged(subgraph.host, rng)
            stream.append(struct.pack("<Q", len(section)) + section)
    # The preloads of `make sanitize` are for Python; this program has its own.
    surroundings = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    done = subprocess.run(
        [driver], input=b"".join(stream), capture_output=True, env=surroundings, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    outcomes = done.stdout.decode().split()
    assert len(outcomes) == 4 * DAMAGED * len(CASES)
    assert all(outcomes.count(word) > DAMAGED for word in ("ok", "failed", "refused"))
