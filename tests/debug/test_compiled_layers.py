"""The layers of a compiled model are those of graph mode, to the bit; a flipped bit of its weights is found in its layer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.calib.compiled import interface_of
from npuc.calib.random_inputs import random_inputs
from npuc.calib.sources import random_data
from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.debug.compiled import CompiledLayers
from npuc.debug.dump import Dump, DumpWriter
from npuc.debug.golden import GoldenRun
from npuc.debug.layers import IntegerLayers, Layers, LayerTensor
from npuc.debug.opening import Opened
from npuc.debug.single import run_layer
from npuc.errors import (
    CompareError,
    CompileError,
    DebugInfoError,
    SimulationError,
    UnknownTensorError,
    UsageError,
)
from npuc.flow import network_to_quantize, quantize_network, ranges_from, schemes_of
from npuc.frontend.options import ImportOptions
from npuc.ir import Graph, tensor_type, top
from npuc.program.debug_info import read_debug_info
from npuc.program.file import load_compiled, save_compiled
from npuc.program.isa import BY_NAME
from npuc.program.model import CompiledModel, NpuSubgraph
from npuc.quant import SCHEMES, quantize
from npuc.target import Target, load_target
from support.networks.backend import machine, network

SIZES = (2 << 10, 6 << 10, 24 << 10, 256 << 10)
CORES = ((1, 0), (1, 0), (2, 0), (3, 32 << 10))


@pytest.fixture(scope="module")
def digits(root: Path) -> Graph:
    """The demo network in integers."""
    graph = network_to_quantize(root / "examples/digits.onnx")
    target = load_target("edge-4t")
    ranges = ranges_from(graph, random_data(graph, 2, 0), schemes_of(graph, target=target), "max")
    return quantize_network(graph, ranges, target=target).graph


@pytest.fixture(scope="module")
def compiled(digits: Graph) -> CompiledModel:
    return compile_program(digits, load_target("edge-4t")).model


def tensors_of(layers: Layers, inputs: dict[str, Array]) -> dict[str, LayerTensor]:
    found: dict[str, LayerTensor] = {}
    layers.trace(inputs, lambda tensor: bool(found.update({tensor.name: tensor})))
    return found


def same(ours: LayerTensor, expected: LayerTensor) -> bool:
    where = slice(None) if ours.computed is None else ours.computed
    return np.array_equal(ours.values[where], expected.values[where])


def dumped(layers: Layers, inputs: dict[str, Array], folder: Path) -> Dump:
    writer = DumpWriter(folder, "model")
    layers.trace(inputs, lambda tensor: writer.add(0, tensor) is None)
    writer.finish()
    return Dump(folder)


def golden(layers: Layers, dump: Dump, stop: bool = False) -> GoldenRun:
    found = GoldenRun(dump)
    layers.trace(dump.inputs(0), lambda tensor: found.judge(0, tensor).state == "differs" and stop)
    return found


def opened(compiled: CompiledModel) -> Opened:
    return Opened(Path("m.npu"), "compiled", interface_of(compiled), compiled)


def random_program(seed: int) -> tuple[Graph, Target]:
    graph, ranges = network(seed)
    made = quantize(graph, ranges, SCHEMES["int8"])
    return made, machine(SIZES[seed % len(SIZES)], *CORES[seed // 4 % len(CORES)])


def test_every_tensor_of_random_networks_is_seen(tmp_path: Path) -> None:
    ways = dict.fromkeys(("places", "blocks", "onnx", "view", "cores"), 0)
    for seed in range(60):
        graph, target = random_program(seed)
        try:
            model = compile_program(graph, target, CompileOptions(level=1)).model
        except CompileError:
            continue
        inputs = random_inputs(graph, 1)
        expected = tensors_of(IntegerLayers(graph), inputs)
        layers = CompiledLayers(model)
        found = tensors_of(layers, inputs)
        for name, ours in found.items():
            other = expected[name]
            assert (ours.layer, ours.kind, ours.dtype) == (other.layer, other.kind, other.dtype)
            assert (ours.scale, ours.zero_point) == (other.scale, other.zero_point)
            assert same(ours, other), f"seed {seed}, '{name}'"
        fused = [expected[name].kind for name in expected if name not in found]
        # Of a top-k, what nobody reads is not made.
        assert set(fused) <= {"npu.conv", "npu.deconv", "npu.matmul", "top.topk"}
        for one in layers.info.tensors:
            ways["places"] += bool(one.places)
            ways["blocks"] += any(place.segment >= 0 for place in one.places)
            ways["onnx"] += one.onnx is not None
            ways["view"] += one.view_of is not None
            ways["cores"] += len({place.core for place in one.places}) > 1
        if seed % 4 == 0:
            dump = dumped(IntegerLayers(graph), inputs, tmp_path / str(seed))
            for name in found:
                if found[name].kind != "input":
                    for result in run_layer(opened(model), name, dump):
                        assert same(result, expected[result.name]), f"seed {seed}, '{name}' alone"
    assert ways["places"] > 200 and all(ways.values()), ways


def halves() -> Graph:
    """A convolution of which the next layer needs every second row only, and not the last one."""
    rng = np.random.default_rng(0)
    graph = Graph.empty([("x", tensor_type((1, 8, 48, 40), "f32"))])
    value: Any = graph.inputs[0].value
    for name, stride in (("full", 1), ("half", 2)):
        weight = graph.add_weight(f"{name}/w", rng.standard_normal((8, 8, 1, 1)).astype(np.float32))
        op = top.Conv.make(
            value,
            weight.output,
            None,
            strides=[stride, stride],
            pads=[0] * 4,
            dilations=[1, 1],
            group=1,
            name=name,
        )
        for one in (weight, op):
            graph.block.add_op(one)
        value = op.results[0]
    graph.set_outputs([("half", value)])
    return quantize(graph, {"x": (-1, 1), "full": (-8, 8), "half": (-40, 40)}, SCHEMES["int8"])


def test_rows_that_nobody_needs_are_not_compared(tmp_path: Path) -> None:
    graph = halves()
    model = compile_program(graph, machine(8 << 10), CompileOptions(level=1)).model
    inputs = random_inputs(graph, 0)
    full = tensors_of(CompiledLayers(model), inputs)["full"]
    assert full.computed is not None and 0 < (~full.computed).sum() < full.values.size // 4
    for reference in (IntegerLayers(graph), CompiledLayers(model)):
        dump = dumped(reference, inputs, tmp_path / type(reference).__name__)
        for layers in (IntegerLayers(graph), CompiledLayers(model)):
            found = golden(layers, dump)
            assert not found.wrong and found.compared == len(dump.index.tensors)
    found = golden(IntegerLayers(graph), dump)
    (words,) = [one.words for one in found.verdicts if one.name == "full"]
    assert "not computed and not compared" in words


def test_dumps_of_both_forms_are_the_same(digits: Graph, compiled: CompiledModel, tmp_path: Path) -> None:
    inputs = random_inputs(digits, 3)
    dumped(IntegerLayers(digits), inputs, tmp_path / "a")
    dumped(CompiledLayers(compiled), inputs, tmp_path / "b")
    assert (tmp_path / "a/dump.json").read_bytes() == (tmp_path / "b/dump.json").read_bytes()
    for file in sorted((tmp_path / "a/run0").iterdir()):
        assert file.read_bytes() == (tmp_path / "b/run0" / file.name).read_bytes()


def layer_of_byte(compiled: CompiledModel, byte: int) -> str | None:
    """The layer whose instructions load a byte of the weights; None if nothing does."""
    for subgraph in compiled.subgraphs:
        if isinstance(subgraph, NpuSubgraph):
            loads = subgraph.streams[0].reshape(-1).view(BY_NAME["load"].dtype)
            for load in loads[(loads["opcode"] == BY_NAME["load"].opcode) & (loads["segment"] == 0)]:
                size = int(load["stored"]) or int(np.prod(load["size"], dtype=np.int64))
                if load["offset"] <= byte < load["offset"] + size:
                    return compiled.layers[int(load["layer"])]
    return None


def test_flipped_bits_of_a_compiled_model_are_found_in_their_layers(
    digits: Graph, compiled: CompiledModel, tmp_path: Path
) -> None:
    dump = dumped(CompiledLayers(compiled), random_inputs(digits, 0), tmp_path / "d")
    order = [entry.name for entry in dump.index.tensors]
    random = np.random.default_rng(7)
    hits, harmless = set(), 0
    for byte, bit in zip(
        random.integers(compiled.weights.size, size=60), random.integers(8, size=60), strict=True
    ):
        weights = np.array(compiled.weights)
        weights[byte] ^= 1 << bit
        path = tmp_path / "flipped.npu"
        save_compiled(replace(compiled, weights=weights), path)  # with the right checksum
        layer = layer_of_byte(compiled, int(byte))
        try:
            found = golden(CompiledLayers(load_compiled(path)), dump)
        except SimulationError as error:  # numbers that no machine could work with: the error has the layer
            assert f"layer '{layer}'" in str(error)
            continue
        if not found.wrong:
            harmless += 1
            assert found.compared == len(order)
            continue
        first = found.wrong[0]
        assert first.name == layer, f"byte {byte}, bit {bit}"
        assert "elements, by up to" in first.words
        stopped = golden(CompiledLayers(load_compiled(path)), dump, stop=True)
        assert [one.name for one in stopped.verdicts] == order[: order.index(first.name) + 1]
        alone = run_layer(opened(load_compiled(path)), first.name, dump)
        assert GoldenRun(dump).judge(0, alone[0]).state == "differs"
        hits.add(first.name)
    assert len(hits) > 3 and harmless


def test_flipped_bits_of_a_real_network(shared: Path, tmp_path: Path) -> None:
    path = shared / "models/onnx/cifar10_resnet20.onnx"
    target = load_target("edge-4t")
    graph = network_to_quantize(path, ImportOptions(input_shapes={"input": (1, 3, 32, 32)}))
    ranges = ranges_from(graph, random_data(graph, 1, 0), schemes_of(graph, target=target), "max")
    integer = quantize_network(graph, ranges, target=target).graph
    model = compile_program(integer, target).model
    dump = dumped(IntegerLayers(integer), random_inputs(integer, 0), tmp_path / "d")
    assert golden(CompiledLayers(model), dump).compared == len(dump.index.tensors)
    random, hits = np.random.default_rng(1), 0
    for byte, bit in zip(
        random.integers(model.weights.size, size=12), random.integers(8, size=12), strict=True
    ):
        weights = np.array(model.weights)
        weights[byte] ^= 1 << bit
        found = golden(CompiledLayers(replace(model, weights=weights)), dump, stop=True)
        if found.wrong:
            assert found.wrong[0].name == layer_of_byte(model, int(byte))
            hits += 1
    assert hits


def test_one_layer_by_itself(digits: Graph, compiled: CompiledModel, tmp_path: Path) -> None:
    dump = dumped(IntegerLayers(digits), random_inputs(digits, 0), tmp_path / "d")
    for model in (opened(compiled), Opened(Path("m.mlir"), "integer", digits)):
        for entry in dump.index.tensors[1:]:
            (result,) = run_layer(model, entry.name, dump)
            assert (result.name, result.md5, result.scale) == (entry.name, entry.md5, entry.scale)
        with pytest.raises(UnknownTensorError, match="stem/relu"):
            run_layer(model, "stem/rele", dump)
        with pytest.raises(UsageError, match="runs 0 to 0"):
            run_layer(model, "stem/relu", dump, 1)
    with pytest.raises(UsageError, match="is a dump"):
        run_layer(Opened(tmp_path, "dump", None, dump=dump), "stem/relu", dump)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "elsewhere"}, "has no tensor 'image/quantized', which layer"),
        ({"dtype": "ui8"}, "reads 'image/quantized' as 1x1x8x8xi8, and the dump has 1x1x8x8xui8"),
        ({"shape": [1, 1, 4, 16]}, "and the dump has 1x1x4x16xi8"),
    ],
)
def test_operands_that_do_not_fit(
    digits: Graph, compiled: CompiledModel, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    dump = dumped(IntegerLayers(digits), random_inputs(digits, 0), tmp_path / "d")
    index = json.loads((dump.folder / "dump.json").read_text())
    (entry,) = [one for one in index["tensors"] if one["name"] == "image/quantized"]
    entry.update(change)
    (dump.folder / "dump.json").write_text(json.dumps(index))
    for model in (opened(compiled), Opened(Path("m.mlir"), "integer", digits)):
        with pytest.raises(CompareError, match=words):
            run_layer(model, "stem/relu", Dump(dump.folder))


def noted(compiled: CompiledModel) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(compiled.debug)
    return found


def test_the_note_survives_the_file_and_is_deterministic(
    digits: Graph, compiled: CompiledModel, tmp_path: Path
) -> None:
    save_compiled(compiled, tmp_path / "m.npu")
    again = load_compiled(tmp_path / "m.npu")
    assert again.debug == compiled.debug == read_debug_info(again).encoded()
    assert compile_program(digits, load_target("edge-4t")).model.debug == compiled.debug


def place(**changes: int) -> Any:
    fields = ("core", "segment", "first", "last", "address", "size", "byte")

    def change(tensor: dict[str, Any]) -> None:
        row = tensor["places"][0]
        for name, value in changes.items():
            row[fields.index(name)] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update(shape=[1 << 40]),
        lambda t: t.update(shape=[-1, 16, 8, 8]),
        lambda t: t.update(shape="x"),
        lambda t: t.update(order=[0, 0, 1, 2]),
        lambda t: t.update(dtype="i99"),
        lambda t: t.update(scale=-1),
        lambda t: t.update(subgraph=99),
        lambda t: t.update(subgraph=0),
        lambda t: t.update(subgraph=-1),
        lambda t: t.update(inputs=[5000]),
        lambda t: t.update(view_of=1),
        lambda t: t.update(onnx="x"),
        lambda t: t.update(memory="nowhere"),
        lambda t: t.update(places=[]),
        lambda t: t.update(places=[[1]]),
        lambda t: t.update(more=1),
        place(core=7),
        place(first=1 << 20, last=1 << 20),
        place(first=3, last=1),
        place(size=1 << 30),
        place(byte=-4),
        place(segment=300),
    ],
)
def test_a_note_that_lies_is_refused_and_the_model_runs(compiled: CompiledModel, change: Any) -> None:
    note = noted(compiled)
    (tensor,) = [one for one in note["tensors"] if one["name"] == "stem/relu"]
    change(tensor)
    with pytest.raises(DebugInfoError):
        CompiledLayers(replace(compiled, debug=json.dumps(note).encode()))


@pytest.mark.parametrize("debug", [b"", b"{", b"\xff", b"[]", b'{"version":2,"tensors":[]}'])
def test_a_model_without_a_note(compiled: CompiledModel, debug: bytes) -> None:
    with pytest.raises(DebugInfoError, match=r"[Cc]ompile the model again|Compile it again"):
        CompiledLayers(replace(compiled, debug=debug))


def test_a_note_with_wrong_addresses_does_no_harm(compiled: CompiledModel, digits: Graph) -> None:
    """What it says of places is believed, but nothing is read or written outside of memories and tensors."""
    random = np.random.default_rng(0)
    for _ in range(30):
        note = noted(compiled)
        for tensor in note["tensors"]:
            for row in tensor.get("places", ()):
                row[4] = int(random.integers(1 << 31))
                row[1] = int(random.integers(-1, 4))
        tensors_of(CompiledLayers(replace(compiled, debug=json.dumps(note).encode())), random_inputs(digits))
