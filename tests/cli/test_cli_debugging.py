"""`npuc run --dump-layers`, `--golden` and `--save-sample` of compiled models, `npuc diff` of any two forms, `npuc run-op`."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from collections import Counter
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.cli.app import run_command
from npuc.program.file import load_compiled, save_compiled
from npuc.program.isa import BY_NAME
from npuc.program.model import CpuSubgraph, NpuSubgraph

TOP, INT = "ir/1-canonical.mlir", "ir/2-quantized.mlir"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A folder with the demo network in all forms, and a dump of one run."""
    folder = tmp_path_factory.mktemp("forms")
    shutil.copy(root / "examples/digits.onnx", folder)
    with np.load(root / "examples/digits_samples.npz") as samples:
        np.savez(folder / "one.npz", **{name: samples[name][:1] for name in samples.files})
    for line in (
        f"compile {folder}/digits.onnx --target edge-1t --calib {root}/examples/digits_samples.npz --max-count 4 "
        f"--device pool=cpu --island-threshold 0 -o {folder}/digits.npu --dump-ir {folder}/ir -q",
        f"run {folder}/digits.npu --input {folder}/one.npz --dump-layers {folder}/dump -q",
    ):
        assert run_command(line.split()) == 0
    return folder


@pytest.fixture
def forms(built: Path, here: Path) -> list[str]:
    """The same in the working directory."""
    shutil.copytree(built, here, dirs_exist_ok=True)
    return ["digits.onnx", TOP, INT, "digits.npu", "dump"]


def test_the_dump_of_a_compiled_model_is_golden_for_both_forms(npuc: Any, forms: list[str]) -> None:
    for model in (INT, "digits.npu"):
        done = npuc("run", model, "--golden", "dump")
        assert done.status == 0 and "all 14 tensors are those of dump" in done.out
        assert sum(line.startswith("ok ") for line in done.out.splitlines()) == 14
    names = [entry["name"] for entry in json.loads(Path("dump/dump.json").read_text())["tensors"]]
    assert "pool" in names and "block1/depthwise/relu" in names
    assert npuc("run", TOP, "--random", "--dump-layers", "floats").status == 0
    assert npuc("run", TOP, "--golden", "floats").status == 0


def test_chosen_layers_alone(npuc: Any, forms: list[str]) -> None:
    for model in ("digits.npu", INT):
        done = npuc(
            "run", model, "--input", "one.npz", "--dump-layers", "few", "--layers", "pool,block1/*", "--json"
        )
        assert done.status == 0, done.err
        entries = json.loads(Path("few/dump.json").read_text())["tensors"]
        names = [entry["name"] for entry in entries]
        assert "image" in names and "pool" in names and "block1/depthwise/relu" in names
        assert all(name in ("image", "image/integers", "pool") or name.startswith("block1/") or kind == "input"
                   for name, kind in ((entry["name"], entry["kind"]) for entry in entries))  # fmt: skip
        # The dump of a few can be run on again, and is golden for the other form.
        assert npuc("run", "digits.npu", "--golden", "few").status == 0
        shutil.rmtree("few")
    done = npuc("run", "digits.npu", "--golden", "dump", "--layers", "pool")
    assert done.status == 0 and "all 2 tensors are those of dump" in done.out
    done = npuc("run", "digits.npu", "--golden", "dump", "--layers", "pol")
    assert done.status == 2 and "there is no tensor or layer 'pol'" in done.err and "pool" in done.err
    done = npuc("run", "digits.npu", "--random", "--layers", "pool")
    assert done.status == 2 and "Add --dump-layers" in done.err


def test_a_subgraph_alone_computes_what_it_does_in_the_model(npuc: Any, forms: list[str]) -> None:
    model = load_compiled("digits.npu")
    assert npuc("run", "digits.npu", "--input", "one.npz", "--save-sample", "sample", "-q").status == 0
    sample = json.loads(Path("sample/sample.json").read_text())["runs"][0]["npu"]
    cycles = 0
    for part in sample:
        given = {}
        for tensor in part["inputs"]:
            raw = np.fromfile(Path("sample") / tensor["file"], np.int8)
            shape = [tensor["shape"][axis] for axis in tensor["order"]]
            given[tensor["name"]] = raw.reshape(shape).transpose(np.argsort(tensor["order"]))
        np.savez("given.npz", **given)
        done = npuc(
            "run",
            "digits.npu",
            "--subgraph",
            part["subgraph"],
            "--input",
            "given.npz",
            "--raw",
            "-o",
            "out.npz",
        )
        assert done.status == 0, done.err
        with np.load("out.npz") as outputs:
            for tensor in part["outputs"]:
                array = outputs[tensor["name"]].transpose(tensor["order"])
                assert array.astype(np.int8).tobytes() == (Path("sample") / tensor["file"]).read_bytes()
        cycles += json.loads(npuc("sim", "digits.npu", "--subgraph", part["subgraph"], "--json").out)[
            "cycles"
        ]
    assert len(sample) == 2 and cycles == json.loads(npuc("sim", "digits.npu", "--json").out)["cycles"]
    (cpu,) = (part for part in model.subgraphs if isinstance(part, CpuSubgraph))
    assert npuc("run", "digits.npu", "--subgraph", cpu.name, "--random", "-q").status == 0
    for extra, words in ((["--subgraph", "convert0"], "npu1"), (["--subgraph", "0"], "It has: npu1")):
        done = npuc("run", "digits.npu", "--random", *extra)
        assert done.status == 2 and words in done.err
    done = npuc("run", "digits.npu", "--golden", "dump", "--subgraph", "npu1")
    assert done.status == 2 and "runs the whole model" in done.err


def test_every_buffer_with_its_address(npuc: Any, forms: list[str]) -> None:
    model = load_compiled("digits.npu")
    assert npuc("relocate", "digits.npu", "--dump", "a.ini", "-q").status == 0
    lines = Path("a.ini").read_text().replace("[weights]\naddress = 0x0", "[weights]\naddress = 0x80000000")
    Path("a.ini").write_text(lines)
    assert npuc("relocate", "digits.npu", "a.ini", "-o", "moved.npu", "-q").status == 0
    done = npuc("objdump", "moved.npu", "--addresses", "buffers.csv", "--json")
    assert done.status == 0, done.err
    rows = json.loads(done.out)["buffers"]
    with open("buffers.csv", newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == [row["name"] for row in rows]
    kinds = Counter(row["kind"] for row in rows)
    assert kinds["segment"] == len(model.segments) and kinds["input"] == kinds["output"] == 1
    assert kinds["allocation"] == sum(len(getattr(part, "allocations", ())) for part in model.subgraphs)
    weights = [row for row in rows if row["kind"] == "weights"]
    assert {row["memory"] for row in weights} == {"weights"} and len({row["name"] for row in weights}) > 5
    # Every byte of the weights, but for what fills up to an aligned place, belongs to a layer.
    covered = np.zeros(model.weights.size, bool)
    for row in weights:
        covered[row["offset"] : row["offset"] + row["size"]] = True
        assert row["address"] == 0x80000000 + row["offset"] and row["first"] <= row["last"]
    assert not model.weights[~covered].any()
    assert npuc("objdump", "moved.npu", "--addresses", "buffers.txt").status == 2


def flip(model: str, layer: str, byte: int) -> None:
    """Turn over a bit of a weight of a layer; the checksum is right again."""
    compiled = load_compiled(model)
    number = compiled.layers.index(layer)
    streams = [one.streams[0] for one in compiled.subgraphs if isinstance(one, NpuSubgraph)]
    loads = np.concatenate(streams).reshape(-1).view(BY_NAME["load"].dtype)
    loads = loads[(loads["opcode"] == BY_NAME["load"].opcode) & (loads["segment"] == 0)]
    load = loads[loads["layer"] == number][0]
    weights = np.array(compiled.weights)
    weights[int(load["offset"]) + byte] ^= 0x40
    save_compiled(replace(compiled, weights=weights), "flipped.npu")


@pytest.mark.parametrize("layer", ["stem/relu", "widen/relu", "logits"])
def test_a_flipped_bit_of_a_compiled_model_is_found(npuc: Any, forms: list[str], layer: str) -> None:
    for byte in (5, 40, 75, 110):
        flip("digits.npu", layer, byte)
        done = npuc("run", "flipped.npu", "--golden", "dump")
        if done.status:
            break
        # Its operand is zero everywhere, or a relu cuts the change off: nothing is wrong, and that is said.
        assert "all 14 tensors are those of dump" in done.out
    assert done.status == 2 and "the first layer that differs is" in done.err
    assert f"tensor '{layer}': " in done.err
    stopped = npuc("run", "flipped.npu", "--golden", "dump", "--stop-at-mismatch", "--json")
    found = json.loads(stopped.out)
    assert stopped.status == 2 and found["different"] == 1 and found["verdicts"][-1]["name"] == layer
    alone = npuc("run-op", "flipped.npu", layer, "--dump", "dump")
    assert alone.status == 2 and "on the same operands" in alone.err and alone.out.startswith("DIFFERS")
    assert npuc("run-op", "digits.npu", layer, "--dump", "dump").status == 0


def test_any_two_forms_are_compared(npuc: Any, forms: list[str]) -> None:
    exact = {INT, "digits.npu", "dump"}
    for first, second in permutations(forms, 2):
        data = () if "dump" in (first, second) else ("--random",)
        done = npuc("diff", first, second, *data, "--json", "--sort", "order")
        assert done.status == 0, (first, second, done.err)
        layers = {one["name"]: one for one in json.loads(done.out)["layers"]}
        assert {"stem/relu", "block1/depthwise/relu", "pool", "logits"} <= set(layers)
        same = {first, second} <= exact or not {first, second} & exact
        figures = [one["accumulated"] for one in layers.values()]
        assert all(one["cosine"] > (0.99999 if same else 0.9) for one in figures)
        if {first, second} <= exact:
            assert all(one["max_error"] == 0 for one in figures) and len(layers) == 13
    fused = npuc("diff", "digits.onnx", "digits.npu", "--random")
    assert "only the first has" in fused.err and "stem/conv" in fused.err + fused.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dump", "digits.npu", "--random"], "on its own data"),
        (["digits.npu", INT], "missing, or given twice"),
        (["ir", "digits.npu"], "is no dump"),
        (["digits.npu", INT, "--random", "--isolated"], "digits.npu is a compiled one"),
        (["digits.npu", "nowhere.mlir", "--random"], "nowhere.mlir"),
    ],
)
def test_diff_refuses(npuc: Any, forms: list[str], arguments: list[str], words: str) -> None:
    done = npuc("diff", *arguments)
    assert done.status == 2 and words in done.err


@pytest.mark.parametrize("model", ["digits.npu", INT, TOP])
def test_one_layer_runs_from_dumped_operands(npuc: Any, forms: list[str], model: str) -> None:
    if model == TOP:
        npuc("run", model, "--random", "--dump-layers", "dump", "-q")
    for layer in ("stem/relu", "block1/pointwise/norm", "pool", "logits"):
        done = npuc("run-op", model, layer, "--dump", "dump", "-o", "y.npz", "--json")
        assert done.status == 0, (layer, done.err)
        found = json.loads(done.out)
        assert [one["state"] for one in found["verdicts"]] == ["same"]
        with np.load("y.npz") as tensors:
            assert hashlib.md5(tensors[layer].tobytes()).hexdigest() == found["verdicts"][0]["md5"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["digits.npu", "nolayer", "--dump", "dump"], "there is no layer 'nolayer'"),
        (["digits.npu", "pool", "--dump", "ir"], "is no dump"),
        (["digits.npu", "pool", "--dump", "dump", "--run", "3"], "runs 0 to 0"),
        (["dump", "pool", "--dump", "dump"], "dump is a dump"),
        (["digits.npu", "pool"], "--dump"),
        ([TOP, "pool", "--dump", "dump"], "and the dump has"),
        (["digits.npu", "pool", "--dump", "dump", "-o", "y.npy"], ".npz"),
    ],
)
def test_run_op_refuses(npuc: Any, forms: list[str], arguments: list[str], words: str) -> None:
    done = npuc("run-op", *arguments)
    assert done.status == 2 and words in " ".join(done.err.split())


def test_dumps_that_do_not_belong_to_a_model(npuc: Any, forms: list[str], program: Path) -> None:
    done = npuc("run", program, "--golden", "dump")
    assert done.status == 2 and "is a dump of another network (digits.npu)" in done.err
    done = npuc("run", "digits.npu", "--random", "--golden", "dump", "--stop-at-mismatch")
    assert done.status == 2 and "on other data than the dump" in done.err
    path = Path("dump/dump.json")
    whole = json.loads(path.read_text())
    left = [one for one in whole["tensors"] if one["name"] in ("image", "pool")]
    path.write_text(json.dumps(whole | {"tensors": left}))
    done = npuc("run", "digits.npu", "--golden", "dump")
    assert done.status == 0 and "all 2 tensors" in done.out and done.out.count("new ") == 12
    left[1]["shape"] = [1, 1, 32, 1]
    path.write_text(json.dumps(whole | {"tensors": left}))
    done = npuc("run", "digits.npu", "--golden", "dump")
    assert done.status == 2 and "here, 1x1x32x1xi8 in the dump" in done.err
    left[0]["shape"] = [1, 1, 4, 16]
    np.save(Path("dump", left[0]["file"]), np.zeros((1, 1, 4, 16), np.float32))
    path.write_text(json.dumps(whole | {"tensors": left}))
    done = npuc("run", "digits.npu", "--golden", "dump")
    assert done.status == 2 and "[1, 1, 4, 16], and that of this network [1, 1, 8, 8]" in done.err


def test_a_sample_of_a_compiled_model_has_what_is_in_dram(npuc: Any, forms: list[str]) -> None:
    done = npuc("run", "digits.npu", "--input", "one.npz", "--save-sample", "s", "--raw")
    assert done.status == 0, done.err
    (run,) = json.loads(Path("s/sample.json").read_text())["runs"]
    dump = {one["name"]: one for one in json.loads(Path("dump/dump.json").read_text())["tensors"]}
    (output,) = run["outputs"]
    logits = np.fromfile(Path("s", output["file"]), output["dtype"]).reshape(output["shape"])
    np.testing.assert_array_equal(logits, np.load(Path("dump", dump["logits"]["file"])))
    assert output["scale"] == dump["logits"]["scale"] and output["md5"] == dump["logits"]["md5"]
    first, second = run["npu"]
    (image,) = first["inputs"]
    assert image["scale"] > 0 and image["order"] == [0, 2, 3, 1]
    for tensor, name in ((image, "image/quantized"), (second["inputs"][0], "pool")):
        data = Path("s", tensor["file"]).read_bytes()
        assert len(data) == tensor["bytes"] and hashlib.md5(data).hexdigest() == tensor["md5"]
        shape = [tensor["shape"][axis] for axis in tensor["order"]]
        array = np.frombuffer(data, np.int8).reshape(shape).transpose(np.argsort(tensor["order"]))
        np.testing.assert_array_equal(array, np.load(Path("dump", dump[name]["file"])))
