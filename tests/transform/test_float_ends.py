"""`float-ends`: a quantized network takes and gives reals, and computes the same."""

from __future__ import annotations

import numpy as np

from npuc.engine import FloatEngine
from npuc.ir import Graph, dtype_of, tensor_type, top
from npuc.ir.passes import run_pipeline


def quantized(plain: bool = False) -> Graph:
    """x -> real -> relu -> integers; with `plain`, x is read by something else, too."""
    graph = Graph.empty([("x", tensor_type((1, 4), "i8"))])
    x = graph.inputs[0].value
    scale, zero = graph.add_weight("s", np.float32(0.5)), graph.add_weight("z", np.int8(-2))
    real = top.Dequantize.make(x, scale.output, zero.output, axis=0, name="real")
    relu = top.Relu.make(real.results[0], name="relu")
    back = top.Quantize.make(relu.results[0], scale.output, zero.output, axis=0, to="i8", name="y")
    graph.block.add_ops([scale, zero, real, relu, back])
    outputs = [("y", back.results[0])]
    if plain:
        neg = top.Relu.make(x, name="other")
        graph.block.add_op(neg)
        outputs.append(("other", neg.results[0]))
    graph.set_outputs(outputs)
    return graph


def test_inputs_and_outputs_are_real() -> None:
    graph = quantized()
    real = run_pipeline(graph, "float-ends")
    real.verify()
    assert dtype_of(real.inputs[0].type).name == dtype_of(real.outputs[0].type).name == "f32"
    integers = np.array([[-128, -2, 0, 127]], np.int8)
    reals = (integers.astype(np.float32) + 2) * 0.5
    expected = (FloatEngine(graph).run({"x": integers})["y"].astype(np.float32) + 2) * 0.5
    np.testing.assert_array_equal(FloatEngine(real).run({"x": reals})["y"], expected)


def test_an_input_that_something_else_reads_stays() -> None:
    assert dtype_of(run_pipeline(quantized(plain=True), "float-ends").inputs[0].type).name == "i8"
