"""Integer programs whose numbers make no sense: a sentence for each, whoever reads them, and no crash."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npuc.calib.random_inputs import random_inputs
from npuc.codegen.compile_model import compile_model
from npuc.engine import ALL_TENSORS, FloatEngine, IntegerEngine
from npuc.errors import EngineError, NpucError, ResourceLimitError, VerificationError
from npuc.flow import quantize_network
from npuc.ir import Graph, Weight, load_graph, save_graph, top
from npuc.ir.weights import WeightStore
from npuc.sim import Simulator
from npuc.target import load_target
from support.graphs import build

X = {"x": np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)}
WILD = [-1, 0, 1, 2, 31, 62, 63, 64, 148, 1 << 31, -(1 << 31), (1 << 32) + 2, (1 << 63) - 1, -(1 << 63)]
NUMBERS = re.compile(
    r"(?:parameters|kernel|strides|pads|dilations|axes) = array<i64: [^>]*>|(?:axis|lo|hi|group) = -?\d+"
)


def _network() -> Graph:
    rng = np.random.default_rng(0)

    def made(b, x):  # type: ignore[no-untyped-def]
        weights = rng.normal(size=(4, 3, 3, 3)).astype(np.float32)
        c = b(
            top.Conv, x, weights, np.ones(4, np.float32),
            strides=(1, 1), pads=(1,) * 4, dilations=(1, 1), group=1, name="c",
        )  # fmt: skip
        p = b(top.AvgPool, c, kernel=(3, 3), strides=(1, 1), pads=(1,) * 4, dilations=(1, 1), name="p")
        a = b(top.Add, c, p, name="a")
        m = b(top.Mul, a, b(top.Sigmoid, c, name="s"), name="m")
        r = b(top.Reduce, m, kind="mean", axes=(2, 3), keepdims=False, name="r")
        f = b(top.MatMul, r, rng.normal(size=(4, 5)).astype(np.float32), None, name="f")
        return {"y": b(top.Softmax, f, axis=-1, name="y"), "z": b(top.Concat, [a, m], axis=1, name="z")}

    graph = build({"x": (1, 3, 8, 8)}, made)
    values = {**X, **FloatEngine(graph, fetch=ALL_TENSORS, threads=1).run(X)}
    ranges = {name: (float(value.min()), float(value.max())) for name, value in values.items()}
    return quantize_network(graph, ranges, target=load_target("edge-4t")).graph


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("integers") / "net.mlir"
    save_graph(_network(), path)
    return path


def _used(path: Path) -> None:
    """All that a program in a file is for."""
    graph = load_graph(path)
    IntegerEngine(graph).run(X)
    Simulator(compile_model(graph, load_target("edge-4t")), 1).run(X)


def _wild(text: str, rng: random.Random) -> str:
    place = rng.choice(list(NUMBERS.finditer(text)))
    numbers = list(re.finditer(r"-?\b\d+\b", text[place.start() : place.end()].replace("i64", "___")))
    number = rng.choice(numbers)
    start = place.start()
    return text[: start + number.start()] + str(rng.choice(WILD)) + text[start + number.end() :]


def test_wild_numbers_are_an_error_of_the_file(saved: Path, tmp_path: Path) -> None:
    text = saved.read_text()
    (tmp_path / "net.safetensors").write_bytes(saved.with_suffix(".safetensors").read_bytes())
    path = tmp_path / "net.mlir"
    path.write_text(text)
    _used(path)
    rng = random.Random(0)
    refused = 0
    for _ in range(60):
        path.write_text(_wild(text, rng))
        try:
            _used(path)
        except NpucError as error:
            assert error.exit_status == 2, str(error)
            refused += 1
    assert refused > 30


def test_wild_constants_are_an_error_of_the_file(saved: Path, tmp_path: Path) -> None:
    whole = bytearray(saved.with_suffix(".safetensors").read_bytes())
    start = 8 + int.from_bytes(whole[:8], "little")
    path = tmp_path / "net.mlir"
    path.write_text(saved.read_text())
    rng = random.Random(1)
    for _ in range(40):
        data = bytearray(whole)
        for _ in range(8):
            place = rng.randrange(start, len(data) - 4)
            data[place : place + 4] = rng.randbytes(4)
        path.with_suffix(".safetensors").write_bytes(data)
        try:
            _used(path)
        except NpucError as error:
            assert error.exit_status == 2, str(error)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (r'("npu.mul".*?parameters = array<i64: \d+, )\d+', r"\g<1>-1", "npu.mul 'm': a shift of -1 is outside 0 to 62"),
        (r'("npu.mul".*?parameters = array<i64: )\d+', r"\g<1>-7", "npu.mul 'm': a multiplier of -7 is outside 0 to"),
        (r'("npu.add".*?parameters = array<i64: )\d+, ', r"\g<1>", "npu.add has 7 parameters, not 6"),
        (r'("npu.softmax".*?parameters = array<i64: \d+, )\d+', r"\g<1>99", "npu.softmax 'y': a shift of 99 is outside"),
        (r'("npu.avg_pool".*?parameters = array<i64: \d+, )\d+', r"\g<1>400", "npu.avg_pool 'p': a shift of 400 is"),
    ],
)  # fmt: skip
def test_the_verifier_names_the_layer_and_the_range(
    saved: Path, tmp_path: Path, old: str, new: str, words: str
) -> None:
    (tmp_path / "net.safetensors").write_bytes(saved.with_suffix(".safetensors").read_bytes())
    text, count = re.subn(old, new, saved.read_text(), count=1)
    assert count == 1
    (tmp_path / "net.mlir").write_text(text)
    with pytest.raises(VerificationError, match=words):
        load_graph(tmp_path / "net.mlir")


def test_constants_of_a_convolution_are_checked() -> None:
    graph = _network()
    conv = next(op for op in graph.ops if op.name == "npu.conv")
    good = graph.weights
    for constant, value, words in (
        (conv.shift, 148, "a shift of 148"),
        (conv.multiplier, -1, "a multiplier of -1"),
    ):
        name = constant.owner.ref
        graph.weights = WeightStore({**good, name: Weight.of(np.full_like(good.array(name), value))})
        with pytest.raises(VerificationError, match=f"npu.conv 'c': {words} is outside"):
            graph.verify()
    graph.weights = good
    graph.verify()


def test_a_program_for_the_cpu_has_the_outputs_that_its_file_names(tmp_path: Path) -> None:
    graph = build({"x": (1, 4)}, lambda b, x: b(top.Relu, x, name="y"))
    compiled = compile_model(graph, load_target("edge-4t"))
    (part,) = compiled.subgraphs
    broken = replace(compiled, subgraphs=(replace(part, outputs=()),))
    with pytest.raises(EngineError, match="gives 1 outputs, and the file names 0"):
        Simulator(broken, 1).run({"x": np.ones((1, 4), np.float32)})


def test_an_input_of_2_to_the_31_is_too_large_for_random_data() -> None:
    graph = build({"x": (1 << 31, 3)}, lambda b, x: b(top.Relu, x, name="y"))
    with pytest.raises(
        ResourceLimitError, match="input 'x' of 2147483648x3 elements is too large for random data"
    ):
        random_inputs(graph)
