"""Import rules with other attributes, opsets and shapes than the plain ones: ONNX Runtime on the same file is the judge."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from npuc.engine import FloatEngine
from npuc.engine.floating import session_options
from npuc.frontend.onnx import import_onnx
from npuc.ir import top
from npuc.transform import canonicalize

I64 = np.int64
IMAGE = (2, 4, 7, 6)


def _weights(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def _case(kind: str, shape: Any = IMAGE, constants: Any = (), opset: int = 17, **attributes: Any) -> Any:
    return kind, shape, constants, opset, attributes


CASES = {
    "Conv, dilated, grouped, uneven pads": _case(
        "Conv", constants=[_weights(6, 2, 3, 2)], dilations=[2, 1], group=2, pads=[2, 0, 1, 1], strides=[1, 2]
    ),
    "Conv, SAME_LOWER": _case("Conv", constants=[_weights(3, 4, 2, 2)], auto_pad="SAME_LOWER", strides=[2, 2]),
    "Conv, one axis": _case("Conv", (2, 4, 9), [_weights(3, 4, 3), _weights(3)], pads=[1, 0], strides=[2]),
    "ConvTranspose, output padding, groups": _case(
        "ConvTranspose", constants=[_weights(4, 3, 3, 3)], group=2, strides=[2, 3], output_padding=[1, 2], pads=[1, 0, 0, 1]
    ),
    "MaxPool, ceil, dilated": _case(
        "MaxPool", kernel_shape=[2, 2], strides=[3, 2], ceil_mode=1, dilations=[2, 1]
    ),
    "AveragePool, pads counted": _case(
        "AveragePool", kernel_shape=[3, 2], pads=[1, 1, 0, 0], count_include_pad=1, strides=[2, 1]
    ),
    "AveragePool, pads not counted": _case("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
    "Gemm, both transposed, scaled": _case(
        "Gemm", (5, 3), [_weights(4, 5), _weights(3, 1)], transA=1, transB=1, alpha=0.5, beta=-2.0
    ),
    "MatMul, broadcast batches": _case("MatMul", (1, 3, 2, 5), [_weights(4, 1, 5, 3)]),
    "ReduceSum, negative axes, dropped": _case("ReduceSum", constants=[np.array([-1, 1], I64)], keepdims=0),
    "ReduceL2": _case("ReduceL2", axes=[1, 3], keepdims=1),
    "ReduceLogSumExp": _case("ReduceLogSumExp", axes=[2], keepdims=0),
    "ReduceMin of all": _case("ReduceMin", keepdims=0),
    "ArgMin, negative axis": _case("ArgMin", axis=-2, keepdims=0),
    "ArgMax, kept": _case("ArgMax", axis=1, keepdims=1),
    "CumSum, exclusive, reversed": _case("CumSum", constants=[np.array(-2, I64)], exclusive=1, reverse=1),
    "Gather, negative index": _case("Gather", constants=[np.array([[-1, 0], [2, -3]], I64)], axis=-2),
    "GatherElements, inner axis": _case(
        "GatherElements", (2, 3, 4), [np.random.default_rng(0).integers(-4, 4, (2, 3, 5))], axis=2
    ),
    "GatherND, batch": _case("GatherND", (2, 3, 4), [np.array([[[1], [-1]], [[0], [2]]], I64)], batch_dims=1),
    "ScatterND": _case("ScatterND", (4, 3), [np.array([[2], [0]], I64), _weights(2, 3)]),
    "ScatterElements, axis 1": _case(
        "ScatterElements", (2, 5), [np.array([[1, -1], [0, 3]], I64), _weights(2, 2)], axis=1
    ),
    "Trilu, lower, shifted": _case("Trilu", (2, 4, 5), [np.array(1, I64)], upper=0),
    "Mod, of C": _case("Mod", (3, 4), [np.float32([0.7, -0.7, 2, -3])], fmod=1),
    "Clip, only above": _case("Clip", constants=["", np.float32(0.25)]),
    "PRelu, a slope a channel": _case("PRelu", constants=[_weights(4, 1, 1)]),
    "Where, broadcast": _case("Where", (4, 1), [np.array([True, False, True]), _weights(1, 3)], first=1),
    "Squeeze, negative": _case("Squeeze", (1, 3, 1, 4), [np.array([-2], I64)]),
    "Unsqueeze, two": _case("Unsqueeze", (3, 4), [np.array([0, -1], I64)]),
    "Slice, backwards": _case(
        "Slice", constants=[np.array(v, I64) for v in ([-1, 5], [-100, 1], [3, 2], [-2, -2])]
    ),
    "Pad, reflected": _case("Pad", constants=[np.array([0, 0, 2, 1, 0, 0, 1, 2], I64)], mode="reflect"),
    "Pad, edge": _case("Pad", constants=[np.array([0, 1, 0, 1, 0, 0, 2, 0], I64)], mode="edge"),
    "Pad, cut": _case("Pad", constants=[np.array([0, 0, -1, 2, 0, 0, 1, -2], I64), np.float32(3)]),
    "Expand, new axes": _case("Expand", (3, 1), [np.array([2, 1, 4], I64)]),
    "Tile": _case("Tile", (2, 3), [np.array([2, 3], I64)]),
    "DepthToSpace, CRD": _case("DepthToSpace", (1, 8, 2, 3), blocksize=2, mode="CRD"),
    "DepthToSpace, DCR": _case("DepthToSpace", (1, 8, 2, 3), blocksize=2, mode="DCR"),
    "SpaceToDepth": _case("SpaceToDepth", (1, 2, 4, 6), blocksize=2),
    "Transpose, no order": _case("Transpose", (2, 3, 4)),
    "Flatten, negative axis": _case("Flatten", axis=-1),
    "ReverseSequence, time last": _case(
        "ReverseSequence", (3, 5), [np.array([3, 3, 3], I64)], batch_axis=0, time_axis=1
    ),
    "LayerNormalization, two axes": _case(
        "LayerNormalization", (2, 3, 4), [_weights(3, 4), _weights(3, 4)], axis=1, epsilon=0.1
    ),
    "InstanceNormalization, large epsilon": _case(
        "InstanceNormalization", constants=[_weights(4), _weights(4)], epsilon=0.5
    ),
    "LpNormalization, outer axis": _case("LpNormalization", (3, 4), axis=0, p=2),
    "LRN, wide": _case("LRN", size=5, alpha=0.3, beta=0.6, bias=1.5),
    "Softmax, old, inner axis": _case("Softmax", (2, 3, 4), opset=11, axis=1),
    "LogSoftmax, new, inner axis": _case("LogSoftmax", (2, 3, 4), axis=1),
    "Resize, asymmetric, floor": _case(
        "Resize", constants=["", np.float32([1, 1, 2.5, 1.5])], mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    ),
    "Resize, corners, linear": _case(
        "Resize", constants=["", "", np.array([2, 4, 9, 4], I64)], mode="linear",
        coordinate_transformation_mode="align_corners",
    ),
    "Upsample, old": _case("Upsample", constants=[np.float32([1, 1, 2, 3])], opset=9, mode="nearest"),
    "Selu": _case("Selu", (3, 4), alpha=1.2, gamma=0.9),
    "BatchNormalization, epsilon": _case(
        "BatchNormalization", constants=[_weights(4), _weights(4), _weights(4), np.abs(_weights(4))], epsilon=0.3
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_rule_with_other_attributes(name: str) -> None:
    kind, shape, constants, opset, given = CASES[name]
    attributes = {key: value for key, value in given.items() if key != "first"}
    place = given.get("first", 0)
    names = [f"c{i}" if not isinstance(c, str) else "" for i, c in enumerate(constants)]
    tensors = [numpy_helper.from_array(np.asarray(c), n) for c, n in zip(constants, names, strict=True) if n]
    names.insert(place, "x")
    x = np.random.default_rng(7).normal(size=shape).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node(kind, names, ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info("y")],
        tensors,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    proto = onnx.shape_inference.infer_shapes(proto)
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), session_options(1), providers=["CPUExecutionProvider"]
    )
    (wanted,) = session.run(None, {"x": x})
    plain = import_onnx(proto)
    assert not any(isinstance(op, top.Onnx) for op in plain.ops), "it has a form of its own"
    for version in (plain, canonicalize(plain)):
        found = FloatEngine(version, threads=1).run(x)["y"]
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
