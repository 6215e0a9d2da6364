"""TFLite's integer LSTM: LiteRT's bits in graph mode and compiled, in every form; what is refused, and why."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tflite import ActivationFunctionType as Fused

from npuc.arithmetic.fixed_point import sigmoid_table, tanh_table
from npuc.deploy.c import export_c
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import InvalidModelError, NpucError, UnsupportedOpError, UsageError
from npuc.export.tflite.model import TFLiteQuantization
from npuc.flow import (
    ImportOptions,
    check_model,
    compile_network,
    import_model,
    network_to_quantize,
    quantize_network,
)
from npuc.frontend.tflite import import_tflite
from npuc.frontend.tflite.reader import read
from npuc.ir import load_graph, save_graph, shape_of, top, value_name
from npuc.program.file import save_compiled
from npuc.program.model import CpuSubgraph, HostConversion, NpuSubgraph
from npuc.runtime import Runner
from npuc.sim import functional, sanitize
from npuc.target import load_target
from support.hostile.isolation import command_line
from support.networks.tflite import assert_same_bits, run_litert
from support.networks.tflite_lstm import Lstm
from support.programs.c_applications import build, run

# Weights so small that no gate saturates, and zero points, so that every term of a sum is seen in the outputs.
USUAL: dict[str, Any] = {
    "weight_scale": 0.004,
    "x_scales": (0.02, -11),
    "state_scales": (1 / 100, -20),
    "hidden_scales": (1 / 100, -20),
}
RNG = np.random.default_rng(0)
EDGE = load_target("edge-4t")


def layer(**form: Any) -> Lstm:
    return Lstm(**{**USUAL, **form})


def same_bits(lstm: Lstm) -> None:
    """LiteRT's outputs, by the program as it was imported, by the integer network and by its one instruction."""
    data, feed = lstm.data(), lstm.feed(lstm.seed)
    expected = run_litert(data, feed)["y"]
    np.testing.assert_array_equal(
        FloatEngine(import_tflite(data), threads=1).run(feed)["y"], expected, str(lstm)
    )
    model = compile_network(assert_same_bits(data, feed), EDGE).model
    assert all(isinstance(part, NpuSubgraph | HostConversion) for part in model.subgraphs)
    np.testing.assert_array_equal(functional.run(model, feed)["y"], expected, str(lstm))
    assert len(np.unique(expected)) > min(8, expected.size // 4), "the outputs say nothing"


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_a_plain_layer(time_major: bool, batch: int) -> None:
    same_bits(layer(time_major=time_major, batch=batch, steps=9, inputs=7, cells=12))


FORMS = list(product((False, True), (False, True), (False, True), (False, True), (0, 5, 8, 11)))


@pytest.mark.parametrize(("time_major", "coupled", "peephole", "norm", "outputs"), FORMS)
def test_every_form(time_major: bool, coupled: bool, peephole: bool, norm: bool, outputs: int) -> None:
    """Coupled gates, peepholes, layer norms, a projection to fewer, as many and more outputs."""
    form = {"time_major": time_major, "coupled": coupled, "peephole": peephole, "norm": norm}
    lstm = layer(
        cells=8, outputs=outputs, hidden_scales=(1 / 120, 10) if outputs else USUAL["hidden_scales"], **form
    )
    if peephole and outputs > lstm.cells:
        with pytest.raises(UnsupportedOpError, match="reads beyond them"):
            import_tflite(lstm.data())
        return
    same_bits(lstm)


@pytest.mark.parametrize("bits", range(9, 16))
def test_every_scale_of_a_cell(bits: int) -> None:
    same_bits(layer(cell_scale=2.0**-bits, steps=12))
    same_bits(layer(cell_scale=2.0**-bits, steps=12, weight_scale=0.05))


@pytest.mark.parametrize("clip", [0.2, 0.4, 100.0])
def test_limits_of_cells_and_of_a_projection(clip: float) -> None:
    same_bits(layer(cell_clip=clip, cells=6))
    same_bits(layer(outputs=3, projection_clip=clip, state_scales=(0.01, 0)))
    same_bits(layer(outputs=3, projection_clip=clip, cell_clip=clip / 2, projection_bias=False))


@pytest.mark.parametrize("cells", [3, 6, 7, 10, 32])
def test_layer_norms_of_any_width(cells: int) -> None:
    """A width that is no power of two gives LiteRT's variance a share too little, sometimes below zero."""
    same_bits(layer(norm=True, cells=cells, batch=3))
    same_bits(layer(norm=True, cells=cells, batch=3, weight_scale=0.1))
    same_bits(layer(norm=True, cells=cells, peephole=True, weight_scale=0.0005))


def test_sums_that_are_exact_in_float64_alone() -> None:
    same_bits(layer(inputs=2300, cells=4, weight_scale=0.0002))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1 << 16),
    form=st.fixed_dictionaries(
        {
            "steps": st.integers(1, 6),
            "batch": st.integers(1, 3),
            "inputs": st.integers(1, 9),
            "cells": st.integers(3, 9),
            "time_major": st.booleans(),
            "coupled": st.booleans(),
            "norm": st.booleans(),
            "cell_scale": st.integers(9, 15).map(lambda bits: 2.0**-bits),
            "weight_scale": st.floats(1e-4, 0.5),
            "x_scales": st.tuples(st.floats(1e-4, 1.0), st.integers(-128, 127)),
            "state_scales": st.tuples(st.floats(1e-3, 0.1), st.integers(-128, 127)),
            "hidden_scales": st.tuples(st.floats(1e-3, 0.1), st.integers(-128, 127)),
        }
    ),
)
def test_any_scales(seed: int, form: dict[str, Any]) -> None:
    lstm = layer(seed=seed, **form)
    data, feed = lstm.data(), lstm.feed(seed)
    actual = FloatEngine(import_tflite(data), threads=1).run(feed)["y"]
    np.testing.assert_array_equal(actual, run_litert(data, feed)["y"])


def test_tables_are_near_the_functions() -> None:
    x = np.arange(-32768, 32768)
    reals = x / 4096
    assert np.abs(sigmoid_table() / 32768 - 1 / (1 + np.exp(-reals))).max() < 2.0**-12
    for bits in range(7):
        assert np.abs(tanh_table(bits) / 32768 - np.tanh(x / 2.0 ** (15 - bits))).max() < 2.0**-11
        np.testing.assert_array_equal(tanh_table(bits)[1:32768], -tanh_table(bits)[:32768:-1])


# Whole networks


def classifier(net: Any, y: Any) -> Any:
    """The last step, a layer and a softmax: what Keras makes of an LSTM that returns no sequences."""
    begin, end, strides = (net.constant(np.array(v, np.int32)) for v in ((0, -1, 0), (0, 0, 0), (1, 1, 1)))
    masks = {"BeginMask": 5, "EndMask": 7, "ShrinkAxisMask": 2}
    scales = USUAL["state_scales"]
    y = net.op(
        "STRIDED_SLICE", [y, begin, end, strides], "i8", "StridedSliceOptions", scales, (2, 8), **masks
    )
    weight = net.constant(RNG.integers(-127, 128, (10, 8)).astype(np.int8), (0.02, 0))
    bias = net.constant(RNG.integers(-500, 500, 10).astype(np.int32), (0.02 * scales[0], 0))
    y = net.op("FULLY_CONNECTED", [y, weight, bias], "i8", "FullyConnectedOptions", (0.1, 3))
    return net.op("SOFTMAX", [y], "i8", "SoftmaxOptions", (1 / 256, -128), Beta=1.0)


NETWORK = layer(cells=8, steps=7)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.tflite"
    path.write_bytes(NETWORK.data(classifier))
    return path


def test_the_check_of_an_import_is_exact(model: Path) -> None:
    report = check_model(model, import_model(model), ImportOptions())
    assert len(report.outputs) == 1 and len(report.layers) >= 2
    assert all(found.max_error == 0 for found in (*report.outputs, *report.layers))


@pytest.mark.parametrize("target", ["edge-1t", "server-32t"])
def test_compiled_it_runs_on_the_npu_with_the_same_bits(model: Path, target: str) -> None:
    machine = load_target(target)
    done = quantize_network(import_model(model), target=machine)
    compiled = compile_network(done.graph, machine).model
    assert not any(isinstance(part, CpuSubgraph) for part in compiled.subgraphs)
    assert not sanitize(compiled)
    with Runner(compiled) as runner:
        for seed in range(3):
            feed = NETWORK.feed(seed)
            expected = run_litert(model.read_bytes(), feed)["y"]
            (actual,) = runner.run(feed).values()
            np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("target", "words"),
    [("bm1684x-like", "its roundings are TFLite's"), ("vipnano-like", "its integers are TFLite's")],
)
def test_a_machine_of_other_arithmetic_leaves_it_to_the_cpu(model: Path, target: str, words: str) -> None:
    machine = load_target(target)
    done = quantize_network(import_model(model), target=machine)
    compiled = compile_network(done.graph, machine).model
    reasons = [
        r for part in compiled.subgraphs if isinstance(part, CpuSubgraph) for r in part.reasons.values()
    ]
    assert any(words in reason for reason in reasons), reasons


def test_a_layer_beyond_local_memory_has_the_same_bits_on_the_cpu() -> None:
    lstm = layer(cells=160, inputs=1000, steps=2)
    data, feed = lstm.data(), lstm.feed(0)
    machine = load_target("edge-1t")
    model = compile_network(quantize_network(import_tflite(data), target=machine).graph, machine).model
    assert any(isinstance(part, CpuSubgraph) for part in model.subgraphs)
    with Runner(model) as runner:
        np.testing.assert_array_equal(runner.run(feed)["y"], run_litert(data, feed)["y"])


@pytest.mark.parametrize("standalone", [pytest.param(False, marks=pytest.mark.slow), True])
def test_c_applications_have_the_same_bits(tmp_path: Path, standalone: bool) -> None:
    lstm = layer(cells=7, outputs=5, peephole=True, norm=True, time_major=True, batch=2)
    data, feed = lstm.data(), lstm.feed(0)
    model = compile_network(quantize_network(import_tflite(data)).graph, EDGE).model
    assert not sanitize(model)
    save_compiled(model, tmp_path / "model.npu")
    export_c(model, (tmp_path / "model.npu").read_bytes(), tmp_path / "app", feed, standalone=standalone)
    build(tmp_path / "app", CFLAGS="-O0")
    status, words = run(tmp_path / "app", *([] if standalone else ["sample"]))
    assert status == 0 and "expected bits" in words, words


def test_the_commands_say_where_it_runs(model: Path, tmp_path: Path) -> None:
    program, integer, results = (tmp_path / name for name in ("model.npu", "model.mlir", "results.npz"))
    code, shown, _ = command_line("compile", str(model), "--target", "edge-1t", "-o", str(program))
    assert code == 0 and "CPU" not in shown and "no integer form" not in shown
    assert "quantized_lstm" in command_line("objdump", str(program))[1]
    assert command_line("quantize", str(model), "-o", str(integer))[0] == 0
    np.savez(tmp_path / "x.npz", **NETWORK.feed())
    expected = run_litert(model.read_bytes(), NETWORK.feed())["y"]
    for source in (integer, program):
        code, *_ = command_line("run", str(source), "-i", str(tmp_path / "x.npz"), "-o", str(results))
        assert code == 0
        np.testing.assert_array_equal(np.load(results)["y"], expected)


def test_a_saved_program_computes_the_same(model: Path, tmp_path: Path) -> None:
    save_graph(import_model(model), tmp_path / "model.mlir")
    integer = quantize_network(load_graph(tmp_path / "model.mlir")).graph
    (actual,) = IntegerEngine(integer, raw=True).run(NETWORK.feed()).values()
    np.testing.assert_array_equal(actual, run_litert(model.read_bytes(), NETWORK.feed())["y"])


def test_the_layer_has_the_name_of_its_tensor(model: Path) -> None:
    graph = import_tflite(model)
    (lstm,) = (op for op in graph.ops if isinstance(op, top.QuantizedLSTM))
    assert value_name(lstm.y).startswith("unidirectional_sequence_lstm")


def test_another_batch_than_the_states_of_the_file(tmp_path: Path) -> None:
    one, four = layer(batch=1), layer(batch=4)
    graph = import_tflite(one.data(), ImportOptions(input_shapes={"x": four.shape}))
    assert shape_of(graph.outputs[0].value) == (4, one.steps, one.cells)
    (actual,) = FloatEngine(graph, threads=1).run(four.feed()).values()
    np.testing.assert_array_equal(actual, run_litert(four.data(), four.feed())["y"])


def test_it_has_no_float_network_behind_it(model: Path) -> None:
    with pytest.raises(UsageError, match=r"--force-float cannot make .* computes with integers of its own"):
        network_to_quantize(model, force_float=True)


# What is refused


def retyped(kind: str) -> Any:
    def change(net: Any, tensor: Any) -> Any:
        tensor.dtype = kind
        return tensor

    return change


def rescaled(scales: tuple[Any, int, int] | None) -> Any:
    def change(net: Any, tensor: Any) -> Any:
        tensor.quantization = (
            None if scales is None else TFLiteQuantization((scales[0],) * scales[1], (scales[2],) * scales[1])
        )
        return tensor

    return change


def reshaped(*shape: int) -> Any:
    def change(net: Any, tensor: Any) -> Any:
        tensor.shape = shape
        if tensor.data is not None:
            tensor.data = np.resize(tensor.data, shape)
        return tensor

    return change


def refilled(value: int) -> Any:
    def change(net: Any, tensor: Any) -> Any:
        tensor.data = np.full_like(tensor.data, value)
        return tensor

    return change


REFUSED: list[tuple[dict[str, Any], type[NpucError], str]] = [
    ({"intermediates": 0}, UnsupportedOpError, "0 intermediates, and LiteRT's integer kernel needs 5"),
    ({"intermediates": 12}, UnsupportedOpError, "12 are the form with 8-bit gates"),
    ({"activation": Fused.RELU}, UnsupportedOpError, "its activation is not tanh"),
    ({"cell_scale": 0.0005}, InvalidModelError, "is no power of two"),
    ({"cell_scale": 2.0**-8}, InvalidModelError, r"is 2\^-8, and LiteRT's kernel has 2\^-15 to 2\^-9"),
    ({"cell_scale": 2.0**-16}, InvalidModelError, r"is 2\^-16"),
    ({"cell_clip": -1.0}, InvalidModelError, "its CellClip is -1"),
    ({"cell_clip": float("nan")}, InvalidModelError, "its CellClip is nan"),
    ({"outputs": 3, "projection_clip": -2.0}, InvalidModelError, "its ProjClip is -2"),
    ({"weight_scale": 1e25, "x_scales": (1e12, 0)}, InvalidModelError, "malformed"),
    ({"hidden_scales": (1e-38, 0)}, InvalidModelError, "malformed"),
    ({"hidden_scales": (0.01, 300)}, InvalidModelError, "has the zero point 300"),
    ({"change": {0: retyped("i16")}}, UnsupportedOpError, "'x' is INT16, and LiteRT's integer kernel has int8"),
    ({"change": {0: retyped("ui8")}}, UnsupportedOpError, "'x' is UINT8"),
    ({"change": {0: rescaled(None)}}, InvalidModelError, "'x' has no scale"),
    ({"change": {0: reshaped(2, 15)}}, InvalidModelError, "its input has rank 2, not 3"),
    ({"change": {0: reshaped(2, 0, 3)}}, InvalidModelError, "one of its sizes is 0"),
    ({"change": {2: reshaped(4, 5)}}, InvalidModelError, "INT8 of the shape .4, 5., not INT8 of .4, 3."),
    ({"change": {4: reshaped(12)}}, InvalidModelError, "its weights are not matrices"),
    ({"change": {8: reshaped(4, 5)}}, InvalidModelError, "4 cells and 5 outputs, and no projection"),
    ({"change": {8: reshaped(4)}}, InvalidModelError, "its weights are not matrices"),
    ({"change": {3: None}}, InvalidModelError, "input 3 is missing"),
    ({"change": {4: None}}, InvalidModelError, "input 4 is missing"),
    ({"change": {1: None}}, InvalidModelError, "some constants of its input gate are there"),
    ({"change": {12: None}}, InvalidModelError, "some constants of its input gate are there"),
    ({"change": {13: None}}, InvalidModelError, "input 13 is missing"),
    ({"change": {13: reshaped(5)}}, InvalidModelError, "INT32 of the shape .5., not INT32 of .4."),
    ({"change": {13: refilled(2**31 - 1)}}, UnsupportedOpError, "its sums can leave 32 bits"),
    ({"change": {2: rescaled((0.01, 4, 0))}}, UnsupportedOpError, "has a scale for each channel"),
    ({"change": {2: rescaled(None)}}, InvalidModelError, "has no scale"),
    ({"change": {18: None}}, InvalidModelError, "input 18 is missing"),
    ({"change": {18: rescaled(None)}}, InvalidModelError, "'state' has no scale"),
    ({"change": {18: reshaped(3, 4)}}, InvalidModelError, r"'state' has the shape \[3, 4\], not \[2, 4\]"),
    ({"change": {19: reshaped(7)}}, InvalidModelError, r"'cells' has the shape \[7\]"),
    ({"change": {19: retyped("i8")}}, InvalidModelError, "'cells' are INT8, not INT16"),
    ({"change": {17: lambda net, _: net.constant(np.zeros(4, np.int32), (1.0, 0))}}, InvalidModelError, "no projection"),
    ({"peephole": True, "change": {10: None}}, InvalidModelError, "some gates have peepholes"),
    ({"norm": True, "change": {22: None}}, InvalidModelError, "some gates have a layer norm"),
    ({"norm": True, "change": {21: rescaled((1e6, 1, 0))}}, InvalidModelError, "too large"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "error", "words"), REFUSED)
def test_refusals(form: dict[str, Any], error: type[NpucError], words: str) -> None:
    with pytest.raises(error, match=words) as found:
        import_tflite(layer(**form).data())
    assert "UNIDIRECTIONAL_SEQUENCE_LSTM" in str(found.value)


def test_a_state_that_is_no_variable_is_refused() -> None:
    with pytest.raises(UnsupportedOpError, match="it begins with the state 'state'"):
        import_tflite(layer(variables=("cells",)).data())


def test_a_refusal_can_be_followed() -> None:
    """The network before the layer can be imported, as the error says."""

    def before(net: Any, x: Any) -> Any:
        return net.op("ABS", [x], "i8", "AbsOptions", USUAL["x_scales"], layer().shape)

    data = layer(intermediates=12).data(before=before)
    with pytest.raises(UnsupportedOpError) as found:
        import_tflite(data)
    assert found.value.fix
    main = read(data).main
    name = main.tensors[main.operators[0].outputs[0]].name
    graph = import_tflite(data, ImportOptions(outputs=(name,)))
    assert [port.name for port in graph.outputs] == [name]
