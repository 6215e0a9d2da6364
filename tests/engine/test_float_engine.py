"""The float engine: what it accepts, what it returns, and what it costs."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from npuc.engine import ALL_TENSORS, FloatEngine
from npuc.errors import EngineError, InputDataError, UnknownTensorError
from npuc.ir import Graph, MappedFile, Weight, dtype_of, load_graph, save_graph, tensor_type, top
from npuc.ir.weights import FileSlice
from support.graphs import Array, build, evaluate


def two_layers(batch: int = 2) -> Graph:
    def network(b: Any, x: Any) -> Any:
        hidden = b(
            top.MatMul,
            x,
            np.eye(3, dtype=np.float32),
            np.ones(3, np.float32),
            relu=True,
            name="h",
            layer="dense",
        )
        return {"scores": b(top.Neg, hidden, name="scores", layer="negate")}

    return build({"x": (batch, 3)}, network)


X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
HIDDEN = np.maximum(X + 1, 0)


def test_outputs_come_by_name() -> None:
    found = evaluate(two_layers(), {"x": X})
    assert list(found) == ["scores"]
    np.testing.assert_array_equal(found["scores"], -HIDDEN)


def test_tensors_and_layers_are_fetched_under_the_names_asked_for() -> None:
    engine = FloatEngine(two_layers(), ["dense", "h", "negate", "x"], threads=1)
    assert engine.output_names == ["scores", "dense", "h", "negate", "x"]
    found = engine.run({"x": X})
    np.testing.assert_array_equal(found["dense"], HIDDEN)
    np.testing.assert_array_equal(found["h"], HIDDEN)
    np.testing.assert_array_equal(found["negate"], -HIDDEN)
    np.testing.assert_array_equal(found["x"], X)


def test_all_tensors_can_be_fetched() -> None:
    found = FloatEngine(two_layers(), ALL_TENSORS, threads=1).run({"x": X})
    assert set(found) == {"h", "scores"}


def test_an_output_keeps_its_name_when_another_tensor_has_it_too() -> None:
    """Asked for 't', the engine returns the output 't', which is what the caller sees under that name."""
    graph = build({"x": (2,)}, lambda b, x: {"out": b(top.Abs, b(top.Neg, x, name="t"), name="u")})
    found = evaluate(graph, {"x": np.array([1, -2], np.float32)}, fetch=["t", "u"])
    assert {name: value.tolist() for name, value in found.items()} == {
        "out": [1, 2],
        "t": [-1, 2],
        "u": [1, 2],
    }


def test_an_unknown_tensor_is_answered_with_the_nearest_names() -> None:
    with pytest.raises(UnknownTensorError, match="dense"):
        FloatEngine(two_layers(), ["dens"], threads=1)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"'x' is missing.*float32 of shape 2×3"),
        ({"y": X, "x": X}, r"no input 'y'.*inputs are: x"),
        ({"x": X[0]}, r"shape 3\..*float32 of shape 2×3"),
        ({"x": X[:1]}, r"shape 1×3\..*float32 of shape 2×3"),
        ({"x": X.astype(np.complex64)}, r"complex64"),
        ({"x": X.astype(str)}, r"str"),
    ],
)
def test_inputs_that_do_not_fit_are_told_what_would(inputs: dict[str, Array], message: str) -> None:
    with pytest.raises(InputDataError, match=message):
        evaluate(two_layers(), inputs)


@pytest.mark.parametrize("dtype", ["f8", "f2", "i1", "u1", "i8", "?"])
def test_numbers_convert_to_a_float_input(dtype: str) -> None:
    found = evaluate(two_layers(), {"x": np.abs(X).astype(dtype)})["scores"]
    np.testing.assert_array_equal(found, -(np.abs(X).astype(dtype).astype(np.float32) + 1))


def test_integers_convert_only_where_nothing_is_lost() -> None:
    graph = build({"i": ((2,), "i32")}, lambda b, i: b(top.Neg, i))
    assert evaluate(graph, {"i": np.array([1, 2], np.int8)})["y"].tolist() == [-1, -2]
    for value in (np.array([1, 2], np.int64), np.array([1.5, 2.0])):
        with pytest.raises(InputDataError, match="does not convert safely"):
            evaluate(graph, {"i": value})


def test_arrays_need_not_be_contiguous_or_native() -> None:
    wide = np.repeat(X, 2, axis=1)[:, ::2]
    np.testing.assert_array_equal(evaluate(two_layers(), {"x": wide})["scores"], -HIDDEN)
    np.testing.assert_array_equal(evaluate(two_layers(), {"x": X.astype(">f4")})["scores"], -HIDDEN)


def test_a_stream_holds_one_batch_of_results() -> None:
    engine = FloatEngine(two_layers(), ["h"], threads=1)
    alive: list[weakref.ref[Array]] = []
    drawn = 0

    def batches() -> Iterator[dict[str, Array]]:
        nonlocal drawn
        for number in range(5):
            drawn += 1
            yield {"x": X + number}

    for number, found in enumerate(engine.stream(batches())):
        assert drawn == number + 1
        gc.collect()
        assert [r for r in alive if r() is not None] == []
        np.testing.assert_array_equal(found["h"], np.maximum(X + number + 1, 0))
        alive.append(weakref.ref(found["h"]))
        del found
    assert drawn == 5


@pytest.mark.parametrize("samples", [1, 2, 5])
@pytest.mark.parametrize("batch", [1, 2, 3])
def test_any_number_of_samples_runs_in_batches(samples: int, batch: int) -> None:
    data = np.random.default_rng(0).standard_normal((samples, 3)).astype(np.float32)
    found = FloatEngine(two_layers(batch), threads=1).run_batches({"x": data})
    np.testing.assert_allclose(found["scores"], -np.maximum(data + 1, 0))


def test_samples_that_do_not_fit_are_refused() -> None:
    engine = FloatEngine(two_layers(), threads=1)
    with pytest.raises(InputDataError, match="N×3"):
        engine.run_batches({"x": np.zeros((4, 5), np.float32)})
    pair = build({"a": (1, 2), "b": (1, 2)}, lambda b, x, y: b(top.Add, x, y))
    with pytest.raises(InputDataError, match="4 of 'a', 3 of 'b'"):
        FloatEngine(pair, threads=1).run_batches({"a": np.zeros((4, 2)), "b": np.zeros((3, 2))})
    scalar = build({"a": (1, 2), "b": ()}, lambda b, x, y: b(top.Add, x, y))
    with pytest.raises(InputDataError, match="no common batch axis"):
        FloatEngine(scalar, threads=1).run_batches({"a": np.zeros((4, 2)), "b": np.zeros(())})


def test_what_onnx_runtime_refuses_is_one_paragraph() -> None:
    graph = build({"x": ((2,), "i4")}, lambda b, x: b(top.Reshape, x, shape=(1, 2)))
    with pytest.raises(EngineError) as caught:
        FloatEngine(graph, threads=1)
    assert "ONNX Runtime" in caught.value.message and "\n" not in caught.value.message
    index = build({"i": ((1,), "i64")}, lambda b, i: b(top.Gather, np.zeros(3, np.float32), i))
    with pytest.raises(EngineError, match="indices"):
        evaluate(index, {"i": np.array([7])})


@pytest.mark.parametrize(
    "dtype", ["f32", "f64", "f16", "bf16", "i8", "ui8", "i16", "ui16", "i32", "ui32", "i64", "ui64", "i1"]
)
def test_weights_of_all_types_reach_the_session(dtype: str) -> None:
    values = np.random.default_rng(0).integers(0, 9, (40, 50)).astype(dtype_of(dtype).numpy)
    graph = build({"i": ((2,), "i64")}, lambda b, i: b(top.Gather, values, i))
    found = evaluate(graph, {"i": np.array([3, 39])})["y"]
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values[[3, 39]])


@pytest.mark.parametrize("dtype", ["bf16", "f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ"])
def test_types_that_only_ml_dtypes_has_go_in_and_out(dtype: str) -> None:
    values = np.array([[0, 1, 2], [3, -4, 0.5]]).astype(dtype_of(dtype).numpy)
    graph = build({"x": ((2, 3), dtype)}, lambda b, x: b(top.Reshape, x, shape=(3, 2)))
    found = evaluate(graph, {"x": values})["y"]
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found.astype(np.float32), values.reshape(3, 2).astype(np.float32))


@pytest.mark.parametrize("dtype", ["i4", "ui4"])
def test_packed_types_go_in_and_out(dtype: str) -> None:
    low = -8 if dtype == "i4" else 0
    wide = np.arange(low, low + 15).astype(np.float32)
    graph = build({"x": (15,)}, lambda b, x: b(top.Quantize, x, np.array(1, np.float32), to=dtype))
    packed = evaluate(graph, {"x": wide})["y"]
    assert packed.dtype == dtype_of(dtype).numpy
    np.testing.assert_array_equal(packed.astype(np.float32), wide)
    graph = build({"x": ((15,), dtype)}, lambda b, x: b(top.Dequantize, x, np.array(2, np.float32)))
    np.testing.assert_array_equal(evaluate(graph, {"x": packed})["y"], 2 * wide)


def test_nothing_flows_through_empty_and_scalar_tensors() -> None:
    graph = build({"x": (0, 3), "s": ()}, lambda b, x, s: [b(top.Abs, x), b(top.Abs, s)])
    found = evaluate(graph, {"x": np.zeros((0, 3), np.float32), "s": np.float32(-2)})
    assert found["y"].shape == (0, 3)
    assert found["y1"] == 2


def test_a_program_without_inputs_runs() -> None:
    graph = build({}, lambda b: b(top.Neg, np.arange(3, dtype=np.float32)))
    assert evaluate(graph, {})["y"].tolist() == [0, -1, -2]


def test_weights_that_lie_unaligned_in_a_file_are_read_right(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((30, 30)).astype(np.float32)
    path = tmp_path / "bytes"
    path.write_bytes(b"x" + values.tobytes())
    weight = Weight(dtype_of("f32"), (30, 30), FileSlice(MappedFile(path), 1, values.nbytes))
    graph = Graph.empty([("x", tensor_type((30, 30), "f32"))])
    constant = graph.add_weight("w", weight)
    product = top.MatMul.make(graph.inputs[0].value, constant.output, name="y")
    graph.block.add_ops([constant, product])
    graph.set_outputs([("y", product.y)])
    eye = np.eye(30, dtype=np.float32)
    np.testing.assert_array_equal(evaluate(graph, {"x": eye})["y"], values)


def test_the_results_are_the_same_every_time_and_from_a_saved_program(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    kernel = generator.standard_normal((16, 8, 3, 3)).astype(np.float32)
    graph = build({"x": (1, 8, 20, 20)}, lambda b, x: b(
        top.Conv, x, kernel, strides=(1, 1), pads=(1,) * 4, dilations=(1, 1)))  # fmt: skip
    x = generator.standard_normal((1, 8, 20, 20)).astype(np.float32)
    first = evaluate(graph, {"x": x})["y"]
    path, _ = save_graph(graph, tmp_path / "m.mlir")
    for again in (graph, graph.copy(), load_graph(path)):
        np.testing.assert_array_equal(evaluate(again, {"x": x})["y"], first)


MEMORY_SCRIPT = """
    import resource, sys
    import numpy as np
    from npuc.engine import FloatEngine
    from npuc.ir import load_graph

    graph = load_graph(sys.argv[1])
    warm = FloatEngine(load_graph(sys.argv[2]), threads=1).run({"i": np.array([1])})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = FloatEngine(graph, threads=1).run({"i": np.array([1])})["y"]
    assert found.shape == (1, 1024) and (found == 1).all()
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def test_a_large_mapped_weight_is_never_read_whole(tmp_path: Path) -> None:
    """Rows of a 256 MB table: the engine touches the pages it needs, so memory does not grow by the table."""

    def table(rows: int, name: str) -> Path:
        values = np.ones((rows, 1024), np.float32)
        return save_graph(
            build({"i": ((1,), "i64")}, lambda b, i: b(top.Gather, values, i)), tmp_path / name
        )[0]

    paths = [str(table(65536, "large.mlir")), str(table(2, "small.mlir"))]
    command = [sys.executable, "-c", textwrap.dedent(MEMORY_SCRIPT), *paths]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert grown < 64, f"memory grew by {grown} MB"


@pytest.mark.parametrize("replaced", [False, True])
def test_a_weight_file_may_be_replaced_while_a_program_uses_it(replaced: bool, tmp_path: Path) -> None:
    def table(value: float) -> Graph:
        return build(
            {"i": ((1,), "i64")}, lambda b, i: b(top.Gather, np.full((3, 1024), value, np.float32), i)
        )

    path, file = save_graph(table(1), tmp_path / "m.mlir")
    graph = load_graph(path)
    if replaced:
        save_graph(table(2), path)
    else:
        file.rename(tmp_path / "elsewhere")
    assert evaluate(graph, {"i": np.array([0])})["y"].max() == 1
    save_graph(graph, tmp_path / "again.mlir")
    assert evaluate(load_graph(tmp_path / "again.mlir"), {"i": np.array([0])})["y"].max() == 1


def test_a_program_that_an_optimization_breaks_runs_without(monkeypatch: pytest.MonkeyPatch) -> None:
    real = onnxruntime.InferenceSession

    def session(model: bytes, options: Any, **rest: Any) -> Any:
        if options.graph_optimization_level != onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL:
            raise RuntimeError("an optimization failed")
        return real(model, options, **rest)

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    np.testing.assert_array_equal(evaluate(two_layers(), {"x": X})["scores"], -HIDDEN)
