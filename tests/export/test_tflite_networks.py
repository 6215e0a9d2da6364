"""Whole networks, from ONNX to LiteRT's reference kernels and to Vela."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tflite
from PIL import Image

from npuc.arrays import Array
from npuc.engine import FloatEngine
from npuc.export.tflite import TFLiteOptions, to_tflite
from npuc.flow import ImportOptions, import_model
from npuc.frontend.tflite import import_tflite
from npuc.ir import Graph, dtype_of, shape_of
from npuc.quant import SCHEMES, quantize
from npuc.quant.prequantized import Prequantized
from support.judges.litert import assert_equal_bits, exported, run_by_position, run_reference

pytest.importorskip("ai_edge_litert")

NETWORKS = {
    "mobilenet_v2": ("imagenet/val", (1, 3, 224, 224), (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)),
    "cifar10_resnet20": ("cifar10/val", (1, 3, 32, 32), (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)),
    "ultraface_rfb_320": ("coco/images", (), (127.0,) * 3, (128.0,) * 3),
    "yolox_nano": ("coco/images", (), (0.0,) * 3, (1.0,) * 3),
}
"""Folder of images, shape of the input where the file leaves it open, mean and deviation."""
MODELS = (
    "ad_int8",
    "hello_world_int8",
    "kws_int8",
    "micro_speech_int8",
    "mobilenet_v1_025_128_uint8",
    "mobilenet_v2_224_ptq",
    "resnet8_int8",
    "vww_int8",
)
FULL_INTEGER = TFLiteOptions(integer_io=True, channels_last=True)


def _images(folder: Path, count: int) -> list[Path]:
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if len(found) < count:
        pytest.skip(f"there are no {count} images in {folder}")
    return found[:count]


def _float_network(shared: Path, name: str) -> tuple[Graph, list[dict[str, Array]]]:
    """The network, and three images prepared for it."""
    folder, shape, mean, deviation = NETWORKS[name]
    path = shared / "models" / "onnx" / f"{name}.onnx"
    options = ImportOptions(input_shapes={"input": shape}) if shape else ImportOptions()
    graph = import_model(path, options)
    port = graph.inputs[0]
    _, _, height, width = shape_of(port.value)
    feeds = []
    for image in _images(shared / "data" / folder, 3):
        pixels = np.asarray(Image.open(image).convert("RGB").resize((width, height)), np.float32)
        scaled = (pixels - np.float32(mean)) / np.float32(deviation)
        feeds.append({port.name: np.ascontiguousarray(scaled.transpose(2, 0, 1)[None], np.float32)})
    return graph, feeds


def _ranges(graph: Graph, feeds: list[dict[str, Array]]) -> dict[str, tuple[float, float]]:
    engine = FloatEngine(graph, "all tensors", threads=1)
    ranges: dict[str, tuple[float, float]] = {}
    for feed in feeds:
        for name, array in {**feed, **engine.run(feed)}.items():
            if array.dtype == np.float32 and array.size:
                low, high = ranges.get(name, (0.0, 0.0))
                ranges[name] = min(low, float(array.min())), max(high, float(array.max()))
    return ranges


_CACHE: dict[str, tuple[Graph, list[dict[str, Array]]]] = {}


def _quantized(shared: Path, name: str) -> tuple[Graph, list[dict[str, Array]]]:
    if name not in _CACHE:
        graph, feeds = _float_network(shared, name)
        _CACHE[name] = quantize(graph, _ranges(graph, feeds[:2]), SCHEMES["tflite"]), feeds
    return _CACHE[name]


@pytest.mark.parametrize("name", NETWORKS)
def test_round_trip_is_equal_bit_for_bit(shared: Path, name: str) -> None:
    """The image that is compared was not among those that gave the ranges."""
    graph, feeds = _quantized(shared, name)
    assert not graph.notes, "some layers stayed float"
    assert assert_equal_bits(graph, feeds[2]) > 0


@pytest.mark.parametrize("name", NETWORKS)
def test_no_elements_are_moved_between_layers(shared: Path, name: str) -> None:
    graph, _ = _quantized(shared, name)
    codes = [op.code for op in to_tflite(graph, FULL_INTEGER).operators]
    assert "TRANSPOSE" not in codes and "DEQUANTIZE" not in codes and "GATHER" not in codes


def test_sixteen_bits(shared: Path) -> None:
    graph, feeds = _float_network(shared, "cifar10_resnet20")
    wide = quantize(graph, _ranges(graph, feeds[:2]), SCHEMES["tflite-int16"])
    assert assert_equal_bits(wide, feeds[2]) == 10


@pytest.mark.parametrize("name", MODELS)
def test_a_tflite_model_comes_back_as_it_was(shared: Path, name: str) -> None:
    """Imported and exported again, a quantized model gives the bits of the original file."""
    path = shared / "models" / "tflite" / f"{name}.tflite"
    graph = Prequantized(import_tflite(path)).lower(SCHEMES["tflite"])
    generator = np.random.default_rng(0)
    feed = {}
    for port in graph.inputs:
        dtype = dtype_of(port.type)
        if dtype.is_float:
            feed[port.name] = generator.uniform(-1, 1, shape_of(port.value)).astype(np.float32)
        else:
            feed[port.name] = generator.integers(*dtype.limits, shape_of(port.value)).astype(dtype.numpy)
    expected = run_by_position(path.read_bytes(), list(feed.values()))
    actual = run_reference(exported(graph), feed)
    for port, array in zip(graph.outputs, expected, strict=True):
        np.testing.assert_array_equal(actual[port.name], array, err_msg=port.name)


def test_same_bytes_every_time(shared: Path) -> None:
    graph, _ = _quantized(shared, "cifar10_resnet20")
    assert exported(graph) == exported(graph.copy())


# Vela

Compiled = tuple[list[int], list[int], str, str]


def _operators(path: Path) -> list[int]:
    model = tflite.Model.GetRootAsModel(path.read_bytes(), 0)
    graph = model.Subgraphs(0)
    codes = [model.OperatorCodes(i).BuiltinCode() for i in range(model.OperatorCodesLength())]
    return [codes[graph.Operators(i).OpcodeIndex()] for i in range(graph.OperatorsLength())]


@pytest.fixture
def compiled(shared: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Compiled:
    """Operators before and after Vela, what it said, and its cycles."""
    vela = Path(sys.executable).with_name("vela")
    if not vela.exists():
        pytest.skip("Vela is not installed")
    graph, _ = _quantized(shared, request.param)
    source = tmp_path / "model.tflite"
    source.write_bytes(exported(graph, FULL_INTEGER))
    done = subprocess.run(
        [vela, source, "--accelerator-config", "ethos-u65-256", "--output-dir", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = next(tmp_path.glob("model_summary_*.csv"))
    with summary.open(newline="") as rows:
        figures = next(csv.DictReader(rows))
    cycles = "".join(f"{key:32}{figures[key]}\n" for key in figures if key.startswith("cycles"))
    return _operators(source), _operators(tmp_path / "model_vela.tflite"), done.stdout, cycles


@pytest.mark.parametrize("compiled", NETWORKS, indirect=True)
def test_vela_places_it_on_the_npu(compiled: Compiled) -> None:
    before, after, said, cycles = compiled
    left = sum(code != tflite.BuiltinOperator.CUSTOM for code in after)
    placed = 1 - left / len(before)
    print(said, cycles, sep="\n")
    print(f"{len(before)} operators, {left} on the CPU, {100 * placed:.1f} % on the NPU")
    assert placed >= 0.95
    assert "SRAM used" in said and "cycles_total" in cycles
