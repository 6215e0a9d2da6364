"""Op definitions: shape inference and verifiers, judged by ONNX's own shape inference where it has the op."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, shape_inference

from npuc.ir import Graph, dtype_of, shape_of, tensor_type, top
from npuc.ir.definition import TOP_OPS, ShapeError, broadcast
from npuc.ir.dtypes import mlir_type

SETTINGS = settings(deadline=None, derandomize=True, max_examples=80)


def value(*shape: int, dtype: str = "f32") -> Any:
    return Graph.empty([("x", tensor_type(shape, dtype))]).inputs[0].value


def onnx_shape(op: str, shapes: list[tuple[int, ...]], **attributes: Any) -> tuple[int, ...] | None:
    """The output shape by ONNX; None if it refuses."""
    names = [f"x{i}" for i in range(len(shapes))]
    infos = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip(names, shapes, strict=True)
    ]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attributes)],
        "g",
        infos,
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    try:
        inferred = shape_inference.infer_shapes(model, strict_mode=True)
    except onnx.shape_inference.InferenceError:
        return None
    return tuple(d.dim_value for d in inferred.graph.output[0].type.tensor_type.shape.dim)


def test_about_seventy_ops_each_with_a_name_and_a_sentence() -> None:
    assert 70 <= len(TOP_OPS) <= 110
    for name, cls in TOP_OPS.items():
        assert name.startswith("top.")
        assert cls.__doc__, name


@SETTINGS
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 4),
    st.integers(0, 2),
    st.integers(1, 2),
)
def test_conv_has_the_shape_that_onnx_infers(
    spatial: list[int], kernel: int, stride: int, channels: int, pad: int, dilation: int
) -> None:
    rank = len(spatial)
    x, w = (2, channels, *spatial), (5, channels, *[kernel] * rank)
    common = {"strides": (stride,) * rank, "pads": (pad,) * 2 * rank, "dilations": (dilation,) * rank}
    assume(min(spatial) + 2 * pad >= (kernel - 1) * dilation + 1)
    op = top.Conv.make(value(*x), value(*w), None, **common)
    assert shape_of(op.y) == onnx_shape("Conv", [x, w], **common)


@SETTINGS
@given(
    st.integers(2, 12),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 1),
    st.booleans(),
    st.sampled_from([1, 2]),
)
def test_pool_has_the_shape_that_onnx_runtime_gives(
    size: int, kernel: int, stride: int, pad: int, ceil: bool, dilation: int
) -> None:
    assume(pad < kernel and size + 2 * pad >= (kernel - 1) * dilation + 1)
    x = (1, 2, size, size + 1)
    common = {"strides": (stride,) * 2, "pads": (pad,) * 4, "dilations": (dilation,) * 2}
    op = top.MaxPool.make(value(*x), kernel=(kernel,) * 2, ceil_mode=ceil, **common)
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[kernel] * 2, ceil_mode=int(ceil), **common)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", 1, x)], [helper.make_empty_tensor_value_info("y")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert shape_of(op.y) == session.run(None, {"x": np.zeros(x, np.float32)})[0].shape


@SETTINGS
@given(st.lists(st.sampled_from([1, 2, 3]), max_size=4), st.lists(st.sampled_from([1, 2, 3]), max_size=4))
def test_broadcasting_is_numpys(a: list[int], b: list[int]) -> None:
    try:
        expected: tuple[int, ...] | None = np.broadcast_shapes(tuple(a), tuple(b))
    except ValueError:
        expected = None
    try:
        assert broadcast(a, b) == expected
    except ShapeError:
        assert expected is None


@SETTINGS
@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=4), st.lists(st.integers(1, 4), min_size=2, max_size=4)
)
def test_matmul_has_numpys_shape(a: list[int], b: list[int]) -> None:
    try:
        expected: tuple[int, ...] | None = (np.zeros(a) @ np.zeros(b)).shape
    except ValueError:
        expected = None
    try:
        assert shape_of(top.MatMul.make(value(*a), value(*b), None).y) == expected
    except ShapeError:
        assert expected is None


@SETTINGS
@given(st.data())
def test_slice_accepts_exactly_what_lies_inside(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 6))
    offset, step, count = (data.draw(st.integers(low, 7)) for low in (-1, -2, 0))
    positions = [offset + i * step for i in range(count)]
    fits = step != 0 and all(0 <= p < size for p in positions)
    try:
        op = top.Slice.make(value(size), offset=(offset,), steps=(step,), shape=(count,))
        assert fits and shape_of(op.y) == (count,)
    except ShapeError:
        assert not fits


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: top.Conv.make(value(1, 3, 8), value(4, 2, 3), strides=(1,), pads=(0, 0), dilations=(1,)), "channels"),
        (lambda: top.Reshape.make(value(2, 3), shape=(7,)), "6 elements"),
        (lambda: top.Permute.make(value(2, 3), order=(0, 0)), "order"),
        (lambda: top.Concat.make([value(2, 3), value(2, 4)], axis=0), "differ"),
        (lambda: top.DepthToSpace.make(value(1, 3, 2, 2), block=2), "channels"),
        (lambda: top.TopK.make(value(3), k=4), "k = 4"),
        (lambda: top.LSTM.make(value(1, 1, 2), value(1, 4, 2), value(1, 4, 9), hidden=1), "recurrence"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_words(make: Any, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        make()


def test_properties_read_as_python_values_with_defaults() -> None:
    op = top.Pad.make(value(2, 3), pads=(0, 1, 0, 1))
    assert op.pads == (0, 1, 0, 1) and op.mode == "constant" and op.value == 0.0
    with pytest.raises(TypeError, match="no property"):
        top.Pad.make(value(2, 3), pads=(0, 0, 0, 0), nonsense=1)


def test_every_element_type_has_one_name_everywhere() -> None:
    for number in TensorProto.DataType.values():
        if number and number != TensorProto.UNDEFINED:
            dtype = dtype_of(number)
            assert dtype_of(mlir_type(dtype)) is dtype and dtype_of(dtype.name) is dtype
