"""The npu dialect: quantized types and integer ops survive printing, and what does not fit is refused."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.utils.exceptions import VerifyException

from npuc.ir import Graph, npu, parse_graph, print_graph, shape_of, tensor_type, top
from npuc.ir.definition import ShapeError
from npuc.ir.dtypes import QuantType, mlir_type, quant_of


def small() -> Graph:
    graph = Graph.empty([("x", tensor_type((1, 3, 8, 8), "f32"))])
    add = graph.block.add_op
    x, y = QuantType.of("i8", 0.02, -3), QuantType.of("i8", 1 / 3, 5)
    q = npu.Quantize.make(graph.inputs[0].value, to=x, name="x/q")
    w = graph.add_weight("w", np.ones((4, 3, 3, 3), np.int8))
    b = graph.add_weight("b", np.ones(4, np.int32))
    m = graph.add_weight("m", np.full(4, 1 << 30, np.int32))
    s = graph.add_weight("s", np.full(4, 35, np.int32))
    for op in (q, w, b, m, s):
        add(op)
    conv = npu.Conv.make(
        q.y, w.output, b.output, m.output, s.output, None, None,
        to=y, kind="single_rounding", lo=-128, hi=127, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), name="y",
    )  # fmt: skip
    add(conv)
    pool = top.MaxPool.make(conv.y, kernel=(2, 2), strides=(2, 2), pads=(0,) * 4, dilations=(1, 1), name="p")
    add(pool)
    out = npu.Dequantize.make(pool.y, to=mlir_type("f32"), name="p/real")
    add(out)
    graph.set_outputs([("p", out.y)])
    return graph


def test_a_program_is_printed_and_parsed() -> None:
    graph = small()
    graph.verify()
    again = parse_graph(print_graph(graph), graph.weights)
    again.verify()
    assert print_graph(again) == print_graph(graph)
    value = again.find("p")
    assert value is not None and quant_of(value) == QuantType.of("i8", 1 / 3, 5)
    assert shape_of(value) == (1, 4, 4, 4)


def test_a_type_that_makes_no_sense_is_refused() -> None:
    for scale, zero_point in ((0.0, 0), (-1.0, 0), (float("inf"), 0), (1.0, 128)):
        with pytest.raises(VerifyException):
            QuantType.of("i8", scale, zero_point)


def test_an_op_without_its_constants_is_refused() -> None:
    graph = small()
    conv = next(op for op in graph.ops if isinstance(op, npu.Conv))
    bare = npu.Conv.make(
        conv.x, conv.weight, None, None, None, None, None,
        to=conv.to, kind="double_rounding", lo=-128, hi=127, strides=(1, 1), pads=(0,) * 4, dilations=(1, 1),
    )  # fmt: skip
    with pytest.raises(ShapeError, match="lacks its constants"):
        bare.check()
    with pytest.raises(ShapeError, match="not quantized"):
        npu.Dequantize.make(graph.inputs[0].value, to=mlir_type("f32"))
