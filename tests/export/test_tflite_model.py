"""The exporter itself: names, ends, orders of axes, refusals, the file, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tflite
from typer.testing import CliRunner

from npuc.cli.app import app
from npuc.engine import IntegerEngine
from npuc.errors import ExportError, OutputError
from npuc.export.tflite import TFLiteOptions, float_layers, serialize, to_tflite
from npuc.export.tflite import model as written
from npuc.export.tflite.layout import between, through_permute, through_reshape
from npuc.ir import Graph, save_graph, top
from npuc.quant import SCHEMES, Scheme, quantize
from support.graphs import build
from support.judges.litert import assert_equal_bits, codes, exported, run_reference

pytest.importorskip("ai_edge_litert")

_RANDOM = np.random.default_rng(1)
_WINDOW = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}


def _w(*shape: int) -> np.ndarray:  # type: ignore[type-arg]
    return _RANDOM.normal(size=shape).astype(np.float32)


def _chain(scheme: Scheme = SCHEMES["tflite"]) -> Graph:
    """Convolution, relu, permute and reshape, as a detector ends."""

    def network(b, x):  # type: ignore[no-untyped-def]
        y = b(top.Conv, x, _w(8, 3, 3, 3), _w(8), name="first", relu=True, **_WINDOW)
        y = b(top.Conv, y, _w(6, 8, 3, 3), _w(6), name="second", **_WINDOW)
        y = b(top.Permute, y, order=(0, 2, 3, 1), name="turned")
        return b(top.Reshape, y, shape=(1, 40, 3), name="boxes")

    graph = build({"x": (1, 3, 4, 5)}, network)
    return quantize(graph, {name: (-3.0, 3.0) for name in ("x", *graph.tensor_names())}, scheme)


def _feed(seed: int = 0) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    return {"x": np.random.default_rng(seed).uniform(-3, 3, (1, 3, 4, 5)).astype(np.float32)}


def test_a_chain_has_no_transpose_inside() -> None:
    graph = _chain()
    assert codes(graph) == ["QUANTIZE", "TRANSPOSE", "CONV_2D", "CONV_2D", "RESHAPE", "DEQUANTIZE"]
    assert codes(graph, TFLiteOptions(integer_io=True, channels_last=True)) == [
        "CONV_2D",
        "CONV_2D",
        "RESHAPE",
    ]
    assert_equal_bits(graph, _feed())


def test_integer_ends_are_the_integers_of_the_program() -> None:
    graph, feed = _chain(), _feed()
    inside = IntegerEngine(graph, fetch=["x/quantized", "boxes"], raw=True).run(feed)
    out = run_reference(exported(graph, TFLiteOptions(integer_io=True)), {"x": inside["x/quantized"]})
    np.testing.assert_array_equal(out["y"], inside["boxes"])


def test_names_types_and_quantization_of_the_ends() -> None:
    model = to_tflite(_chain(), TFLiteOptions(integer_io=True))
    x, y = model.inputs["x"], model.outputs["y"]
    assert (x.name, x.dtype, x.shape) == ("x", "i8", (1, 3, 4, 5))
    assert (y.name, y.dtype, y.shape) == ("y", "i8", (1, 40, 3))
    assert x.quantization is not None and len(x.quantization.scales) == 1
    data = bytes(serialize(model))
    assert tflite.Model.ModelBufferHasIdentifier(data, 0)
    found = tflite.Model.GetRootAsModel(data, 0)
    assert found.Version() == 3 and found.SignatureDefs(0).SignatureKey() == b"serving_default"


def test_same_bytes() -> None:
    graph = _chain()
    assert exported(graph) == exported(graph.copy())


def test_weights_are_aligned() -> None:
    data = exported(_chain())
    model = tflite.Model.GetRootAsModel(data, 0)
    places = [model.Buffers(i).DataAsNumpy() for i in range(model.BuffersLength())]
    start = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    held = [place for place in places if isinstance(place, np.ndarray)]
    assert len(held) >= 4
    assert all((place.__array_interface__["data"][0] - start) % 16 == 0 for place in held)


def test_an_output_that_is_an_input() -> None:
    graph = build({"x": (2, 3)}, lambda b, x: {"y": x, "z": b(top.Relu, x, name="z")})
    feed = {"x": np.float32([[1, -1, 2], [0, 3, -4]])}
    out = run_reference(exported(graph), feed)
    np.testing.assert_array_equal(out["y"], feed["x"])


def test_an_input_read_as_integers_and_as_reals_stays_float() -> None:
    def network(b, x):  # type: ignore[no-untyped-def]
        return [b(top.Relu, x, name="r"), b(top.CumSum, x, axis=1, name="s")]

    graph = build({"x": (2, 3)}, network)
    mixed = quantize(graph, {"x": (-1.0, 1.0), "r": (0.0, 1.0)}, SCHEMES["tflite"])
    model = to_tflite(mixed, TFLiteOptions(integer_io=True))
    assert model.inputs["x"].dtype == "f32"
    assert float_layers(mixed) == ["s"] and float_layers(graph) == [] and float_layers(_chain()) == []


# Refusals


def test_another_scheme_is_refused_with_all_layers() -> None:
    with pytest.raises(ExportError) as caught:
        to_tflite(_chain(SCHEMES["int8"]))
    text = caught.value.paragraph()
    assert "2 layers" in text and "'first'" in text and "'second'" in text
    assert "--scheme tflite" in text


def test_a_multiplier_that_is_not_tflites() -> None:
    graph = _chain()
    op = next(op for op in graph.ops if op.name == "npu.conv")
    multiplier = graph.constant(op.multiplier)  # type: ignore[attr-defined]
    assert multiplier is not None
    other = graph.add_weight("other", multiplier + 1)
    graph.block.insert_op_before(other, op)
    index = list(op.operands).index(op.multiplier)  # type: ignore[attr-defined]
    op.operands[index] = other.output
    with pytest.raises(ExportError, match="multipliers"):
        to_tflite(graph)


def test_a_layer_without_a_form_is_named() -> None:
    graph = build({"x": (1, 2, 4, 4)}, lambda b, x: b(top.LRN, x, size=3, name="y", layer="norm"))
    with pytest.raises(ExportError, match=r"top\.lrn 'norm'"):
        to_tflite(graph)


def test_padding_of_too_many_axes() -> None:
    graph = build({"x": (1,) * 6}, lambda b, x: b(top.Pad, x, pads=(1,) * 12, name="y"))
    with pytest.raises(ExportError, match="up to 5 axes"):
        to_tflite(graph)


def test_a_model_beyond_two_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written, "LIMIT", 100)
    with pytest.raises(OutputError, match="2 GB"):
        exported(_chain())


# Orders of axes


def test_orders_follow_reshapes() -> None:
    last = (0, 2, 3, 1)
    assert through_reshape((1, 6, 4, 5), (1, 6, 20), last) == (0, 2, 1)
    assert through_reshape((1, 6, 4, 5), (1, 2, 3, 4, 5), last) == (0, 3, 4, 1, 2)
    assert through_reshape((1, 6, 1, 1), (1, 6), last) == (0, 1)
    assert through_reshape((2, 6), (2, 6, 1, 1), (0, 1)) == last
    assert through_reshape((1, 6, 4, 5), (6, 20), last) == (1, 0)
    assert through_reshape((2, 6, 4, 5), (12, 20), last) is None
    assert through_permute(last, (0, 2, 3, 1)) == (0, 1, 2, 3)
    assert between(last, (0, 1, 2, 3)) == (0, 3, 1, 2)


@pytest.mark.parametrize("seed", range(40))
def test_orders_of_random_reshapes_are_right(seed: int) -> None:
    """Where an order follows, the elements lie as it says."""
    generator = np.random.default_rng(seed)
    factors = generator.choice([1, 2, 3, 2, 1], size=5)
    source = tuple(int(n) for n in np.multiply.reduceat(factors, [0, 1, 2, 3]))
    target = tuple(int(n) for n in np.multiply.reduceat(factors, sorted({0, *generator.integers(1, 5, 2)})))
    order = tuple(int(i) for i in generator.permutation(4))
    through = through_reshape(source, target, order)
    if through is not None:
        values = np.arange(np.prod(source)).reshape(source)
        np.testing.assert_array_equal(
            values.transpose(order).reshape(-1), values.reshape(target).transpose(through).reshape(-1)
        )


# The command


def test_the_command_writes_a_file(tmp_path: Path) -> None:
    graph = _chain()
    save_graph(graph, tmp_path / "in.mlir")
    arguments = ["export", "tflite", str(tmp_path / "in.mlir"), "-o", str(tmp_path / "out.tflite"), "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["operators"]["CONV_2D"] == 2
    assert (tmp_path / "out.tflite").read_bytes() == exported(graph)
    done = CliRunner().invoke(app, [*arguments, "--integer-io", "--channels-last"])
    assert done.exit_code == 0 and "DEQUANTIZE" not in json.loads(done.stdout)["operators"]
