"""Dumps hold what the engine computes; a golden run finds the first layer that differs; samples are bare bytes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.calib.random_inputs import random_inputs
from npuc.calib.sources import random_data
from npuc.codegen.compile_model import compile_program
from npuc.debug.dump import Dump, DumpWriter
from npuc.debug.golden import GoldenRun, describe
from npuc.debug.layers import LayerTensor, layer_tensors
from npuc.debug.sample import SampleWriter
from npuc.engine import ALL_TENSORS, IntegerEngine
from npuc.errors import FileFormatError, FileMissingError, InputDataError, NpucError, OutputError
from npuc.flow import network_to_quantize, quantize_network, ranges_from, schemes_of
from npuc.ir import Graph, top
from npuc.program.model import NpuSubgraph
from npuc.sim import Simulator, memory
from npuc.target import load_target


@pytest.fixture(scope="module")
def digits(root: Path) -> Graph:
    """The demo network in integers."""
    graph = network_to_quantize(root / "examples/digits.onnx")
    ranges = ranges_from(graph, random_data(graph, 2, 0), schemes_of(graph), "max")
    return quantize_network(graph, ranges).graph


def dumped(graph: Graph, folder: Path, runs: int = 1) -> Dump:
    writer = DumpWriter(folder, "digits.mlir")
    engine = IntegerEngine(graph)
    for run in range(runs):
        for tensor in layer_tensors(engine, random_inputs(graph, run)):
            writer.add(run, tensor)
    writer.finish()
    return Dump(folder)


def golden(graph: Graph, dump: Dump) -> GoldenRun:
    found = GoldenRun(dump)
    engine = IntegerEngine(graph)
    for run in range(dump.index.runs):
        for tensor in layer_tensors(engine, dump.inputs(run)):
            found.judge(run, tensor)
    return found


def test_a_dump_holds_every_tensor_as_integers_and_as_reals(digits: Graph, tmp_path: Path) -> None:
    dump = dumped(digits, tmp_path / "d", runs=2)
    assert dump.index.runs == 2
    for run in range(2):
        inputs = random_inputs(digits, run)
        raw = IntegerEngine(digits, fetch=ALL_TENSORS, raw=True).run(inputs)
        reals = IntegerEngine(digits, fetch=ALL_TENSORS).run(inputs)
        names = dump.names(run)
        assert set(names) >= set(digits.tensor_names()) and len(names) == 14
        for name in digits.tensor_names():
            entry = dump.find(run, name)
            assert entry is not None
            values = np.load(dump.folder / entry.file)
            np.testing.assert_array_equal(values, raw[name])
            assert values.dtype == raw[name].dtype
            assert entry.md5 == hashlib.md5(np.ascontiguousarray(values).tobytes()).hexdigest()
            assert (entry.float_file is not None) == (entry.scale != 0)
            if entry.float_file is not None:
                np.testing.assert_array_equal(np.load(dump.folder / entry.float_file), reals[name])


def test_the_same_network_passes(digits: Graph, tmp_path: Path) -> None:
    found = golden(digits, dumped(digits, tmp_path / "d", runs=2))
    assert found.wrong == [] and found.missing() == [] and found.compared == 28


def test_the_files_of_a_dump_are_compared_not_the_digests_of_its_index(digits: Graph, tmp_path: Path) -> None:
    dump = dumped(digits, tmp_path / "d")
    entry = dump.find(0, "widen/relu")
    assert entry is not None
    values = dump.read(entry).copy()
    values.reshape(-1)[5] ^= 1
    np.save(dump.folder / entry.file, values)
    found = golden(digits, dump)
    (only,) = found.wrong
    assert only.name == "widen/relu" and only.words.startswith("1 of ") and only.expected != entry.md5
    assert found.changed == [entry.file]
    # The same numbers in another type are not what the tensor is.
    np.save(dump.folder / entry.file, dump.read(entry).astype(np.int16))
    (only,) = golden(digits, dump).wrong
    assert "of int8 here, of int16 in the file" in only.words
    # A file that was replaced by what the network really computes passes, and is told.
    index = json.loads((dump.folder / "dump.json").read_text())
    values.reshape(-1)[5] ^= 1
    np.save(dump.folder / entry.file, values)
    for one in index["tensors"]:
        one["md5"] = "0" * 32 if one["name"] == "widen/relu" else one["md5"]
    (dump.folder / "dump.json").write_text(json.dumps(index))
    found = golden(digits, Dump(dump.folder))
    assert found.wrong == [] and found.changed == [entry.file]


def with_a_flipped_bit(graph: Graph, ref: str, part: float) -> Graph:
    """The network with one bit of one weight turned over, so far into its array."""
    changed = graph.copy()
    for op in list(changed.ops):
        if isinstance(op, top.WeightOp) and op.ref == ref:
            array = np.array(changed.weights.array(ref))
            weights = array.reshape(-1)
            weights[int(part * weights.size)] ^= 0x40
            other = changed.add_weight(f"{ref}/flipped", array)
            changed.block.insert_op_before(other, op)
            op.output.replace_all_uses_with(other.output)
            op.detach()
            op.erase()
            return changed
    raise AssertionError(ref)


@pytest.mark.parametrize("layer", ["stem/relu", "block1/depthwise/relu", "widen/relu", "logits"])
def test_a_flipped_bit_of_a_weight_is_found_in_its_layer(digits: Graph, tmp_path: Path, layer: str) -> None:
    dump = dumped(digits, tmp_path / "d")
    hits = 0
    for part in (0.1, 0.3, 0.5, 0.7, 0.9):
        found = golden(with_a_flipped_bit(digits, f"{layer}/weight", part), dump)
        if not found.wrong:  # a relu cuts that channel off, or its input is 0
            continue
        hits += 1
        first = found.wrong[0]
        assert first.name == layer and "elements, by up to" in first.words
        assert first.expected != first.md5 and "DIFFERS" in first.line
        assert {one.state for one in found.verdicts[: found.verdicts.index(first)]} == {"same"}
    assert hits


def test_other_types_and_unknown_tensors(digits: Graph, tmp_path: Path) -> None:
    dump = dumped(digits, tmp_path / "d")
    path = dump.folder / "dump.json"
    index = json.loads(path.read_text())
    by_name = {entry["name"]: entry for entry in index["tensors"]}
    by_name["pool"]["name"] = "gone"
    by_name["stem/relu"]["dtype"] = "ui8"
    by_name["widen/relu"]["scale"] = 0.5
    path.write_text(json.dumps(index))
    found = golden(digits, Dump(dump.folder))
    assert [(one.name, one.words.split()[0]) for one in found.wrong] == [
        ("stem/relu", "1x16x8x8xi8"),
        ("widen/relu", "scale"),
    ]
    assert found.missing() == ["gone"]
    assert [one.name for one in found.verdicts if one.state == "new"] == ["pool"]


def test_only_float_layers_may_be_close(tmp_path: Path) -> None:
    values = np.linspace(-1, 1, 20, dtype=np.float32)
    layer = LayerTensor("y", "y", "top.gelu", "f32", 0.0, 0, values)
    writer = DumpWriter(tmp_path, "m")
    writer.add(0, layer)
    writer.finish()
    for kind, off, state in (
        ("top.gelu", 0, "same"),
        ("top.gelu", 1e-6, "close"),
        ("top.gelu", 1e-3, "differs"),
        ("top.gelu", np.nan, "differs"),
        ("npu.dequantize", 1e-6, "differs"),
    ):
        other = replace(layer, kind=kind, values=values + np.float32(off))
        assert GoldenRun(Dump(tmp_path)).judge(0, other).state == state


def test_differences_in_words() -> None:
    nan = np.array([np.nan, 1.0])
    assert describe(nan, np.array([np.nan, 2.0])).startswith("1 of 2 elements, by up to 1, first at [1]")
    assert describe(nan, nan).startswith("other bits")
    assert describe(np.array(3), np.array(5)) == "1 of 1 elements, by up to 2, first at []: 3 for 5"
    wide = describe(np.array([-128], np.int8), np.array([127], np.int8))
    assert "by up to 255" in wide


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index.update(format="other"),
        lambda index: index.update(version=2),
        lambda index: index.update(tensors=3),
        lambda index: index.update(more=1),
        lambda index: index["tensors"][1].update(file="../../secret.npy"),
        lambda index: index["tensors"][1].update(file="run0/../x.npy"),
        lambda index: index["tensors"][1].update(shape=[-1]),
    ],
)
def test_a_damaged_index_is_refused(digits: Graph, tmp_path: Path, change: Any) -> None:
    folder = dumped(digits, tmp_path / "d").folder
    index = json.loads((folder / "dump.json").read_text())
    change(index)
    (folder / "dump.json").write_text(json.dumps(index))
    with pytest.raises(FileFormatError):
        Dump(folder)


def test_folders_that_are_no_dumps(digits: Graph, tmp_path: Path) -> None:
    with pytest.raises(FileMissingError, match="--dump-layers"):
        Dump(tmp_path)
    (tmp_path / "dump.json").write_bytes(b"\xff{")
    with pytest.raises(FileFormatError):
        Dump(tmp_path)
    (tmp_path / "d/dump.json").mkdir(parents=True)
    with pytest.raises(OutputError):
        DumpWriter(tmp_path / "d", "m")


def test_tensors_that_are_not_what_the_index_says(digits: Graph, tmp_path: Path) -> None:
    dump = dumped(digits, tmp_path / "d")
    image = dump.find(0, "image")
    assert image is not None
    for array in (np.zeros(3, np.float32), np.full(image.shape, "x")):
        np.save(dump.folder / image.file, array)
        with pytest.raises(FileFormatError):
            dump.inputs(0)
    (dump.folder / image.file).unlink()
    with pytest.raises(NpucError):
        dump.inputs(0)
    with pytest.raises(InputDataError):
        next(layer_tensors(IntegerEngine(digits), {}))


def test_a_sample_is_bare_bytes(digits: Graph, tmp_path: Path) -> None:
    writer = SampleWriter(tmp_path, "digits.mlir")
    inputs = random_inputs(digits)
    outputs = {"a/b": np.arange(6, dtype=np.int16).reshape(2, 3).T, "c": np.float32([1.5])}
    writer.add(inputs, outputs)
    index = json.loads(writer.finish().read_text())
    assert (index["format"], index["version"], len(index["runs"])) == ("npuc-sample", 1, 1)
    (image,), (first, second) = index["runs"][0]["inputs"], index["runs"][0]["outputs"]
    assert (tmp_path / image["file"]).read_bytes() == inputs["image"].astype("<f4").tobytes()
    assert first == {
        "name": "a/b",
        "shape": [3, 2],
        "dtype": "int16",
        "scale": 0.0,
        "zero_point": 0,
        "bytes": 12,
        "md5": hashlib.md5((tmp_path / "run0/output0-a_b.bin").read_bytes()).hexdigest(),
        "file": "run0/output0-a_b.bin",
    }
    assert np.fromfile(tmp_path / first["file"], "<i2").tolist() == [0, 3, 1, 4, 2, 5]
    assert np.fromfile(tmp_path / second["file"], "<f4").tolist() == [1.5]


def test_a_sample_of_a_compiled_model_has_what_was_in_dram(digits: Graph, tmp_path: Path) -> None:
    simulator = Simulator(compile_program(digits, load_target("edge-1t")).model)
    inputs = random_inputs(digits)
    writer = SampleWriter(tmp_path, "digits.npu")
    writer.add(inputs, simulator.run(inputs), simulator=simulator)
    (run,) = json.loads(writer.finish().read_text())["runs"]
    part = next(one for one in simulator.compiled.subgraphs if isinstance(one, NpuSubgraph))
    (entry,) = run["npu"]
    assert entry["subgraph"] == part.name
    for what, names in (("inputs", part.inputs), ("outputs", part.outputs)):
        assert [one["name"] for one in entry[what]] == list(names)
        for one in entry[what]:
            tensor = simulator.compiled.tensor(one["name"])
            assert (one["segment"], one["offset"], one["bytes"]) == (
                tensor.segment,
                tensor.offset,
                tensor.size,
            )
            stored = memory.read(simulator.segments, tensor)
            found = np.fromfile(tmp_path / one["file"], stored.dtype).reshape(
                [tensor.shape[k] for k in tensor.order]
            )
            np.testing.assert_array_equal(found, stored.transpose(tensor.order))
