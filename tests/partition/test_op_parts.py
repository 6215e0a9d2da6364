"""Every op has the parts that its place in the compiler needs; those that lack one are among the few that are known."""

from __future__ import annotations

from npuc.inspect.op_parts import OPS, parts_of
from npuc.ir import npu

FLOAT = {kind for kind in OPS.values() if kind.name.startswith("npu.float_")}
"""Ops on short floats, whose order of sums ONNX Runtime does not keep."""
BLOCKS = {npu.BlockPack, npu.BlockConv, npu.BlockMatMul}
CONVERSIONS = {npu.Quantize, npu.Dequantize}
"""Between reals and integers: the host does them (`npuc.host`), and the NPU where short floats meet integers."""


def test_every_op_of_the_float_network_has_a_form_in_onnx() -> None:
    assert {
        kind for kind in OPS.values() if kind.name.startswith("top.") and not parts_of(kind).onnx
    } == set()


def test_every_integer_op_runs_in_graph_mode() -> None:
    kinds = {kind for kind in OPS.values() if kind.name.startswith("npu.")}
    assert {kind for kind in kinds if not parts_of(kind).graph_mode} == set()


def test_every_integer_op_is_a_layer_of_the_npu() -> None:
    kinds = {kind for kind in OPS.values() if kind.name.startswith("npu.")}
    assert {kind for kind in kinds if not parts_of(kind).layer} == set()


def test_what_has_a_layer_has_a_form_in_graph_mode() -> None:
    """The two modes agree to the bit: an op that only one of them knows could not be compared."""
    kinds = [kind for kind in OPS.values() if parts_of(kind).layer]
    assert kinds and all(parts_of(kind).graph_mode for kind in kinds)


def test_what_the_cpu_cannot_compute_to_the_bit_is_known() -> None:
    kinds = {kind for kind in OPS.values() if parts_of(kind).layer}
    assert {kind for kind in kinds if not parts_of(kind).host} <= {
        npu.Softmax,
        npu.Norm,
        npu.LSTM,
        npu.GRU,
        npu.RNN,
    } | FLOAT | BLOCKS | CONVERSIONS


def test_a_function_has_all_its_parts_by_its_record() -> None:
    for kind in OPS.values():
        parts = parts_of(kind)
        if parts.formula:
            assert parts.integers and parts.onnx, kind.name
