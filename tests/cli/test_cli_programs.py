"""`npuc opt`, `show`, `export` and `doctor`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from npuc.ir import load_graph


def test_opt_runs_passes_and_prints_the_program(npuc: Any, model: Path) -> None:
    assert npuc("import", model, "--no-canonical", "-q").status == 0
    assert '"top.relu"' in npuc("opt", "model.mlir").out
    done = npuc("opt", "model.mlir", "-p", "fuse-relu", "--print-ir-after-all", "--timing")
    assert done.status == 0
    assert '"top.relu"' not in done.out and "relu = true" in done.out
    assert "// ----- after fuse-relu" in done.err and "seconds" in done.err


def test_opt_writes_a_program_that_loads(npuc: Any, model: Path, here: Path) -> None:
    assert npuc("import", model, "--no-canonical", "-q").status == 0
    (here / "sub").mkdir()
    assert npuc("opt", "model.mlir", "--canonicalize", "-o", "sub/b.mlir").status == 0
    assert load_graph("sub/b.mlir").outputs[0].name == "scores"


def test_opt_lists_the_passes(npuc: Any, here: Path) -> None:
    assert "fuse-relu" in npuc("opt", "--list-passes").out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["-p", "no-such-pass"], "fuse-relu"),
        (["-p", "fuse-relu{x=1}"], "fuse-relu"),
        (["-p", "fuse-relu{"], "pipeline"),
        (["-o", "b.txt"], "b.mlir"),
        (["-o", "nowhere/b.mlir"], "nowhere"),
    ],
)
def test_opt_refuses(npuc: Any, program: Path, arguments: list[str], word: str) -> None:
    done = npuc("opt", program, *arguments)
    assert done.status == 2 and word in done.err


def test_opt_without_a_file(npuc: Any, here: Path) -> None:
    assert npuc("opt").status == 2
    assert npuc("opt", "no.mlir").status == 2


@pytest.mark.parametrize("command", ["show", "opt"])
class TestDamagedPrograms:
    def test_text_that_is_no_program(self, npuc: Any, program: Path, command: str) -> None:
        lines = program.read_text().splitlines()
        lines[3] = "    nonsense here"
        program.write_text("\n".join(lines))
        done = npuc(command, program)
        assert done.status == 2 and "line" in done.err

    def test_missing_weights(self, npuc: Any, program: Path, command: str) -> None:
        program.with_suffix(".safetensors").unlink()
        done = npuc(command, program)
        assert done.status == 2 and "model.safetensors" in done.err

    def test_cut_off_weights(self, npuc: Any, program: Path, command: str) -> None:
        file = program.with_suffix(".safetensors")
        file.write_bytes(file.read_bytes()[:-50])
        assert npuc(command, program).status == 2

    def test_binary_nonsense(self, npuc: Any, here: Path, command: str) -> None:
        Path("a.mlir").write_bytes(bytes(range(256)))
        assert npuc(command, "a.mlir").status == 2


def test_random_damage_of_the_text_is_always_an_error_in_words(npuc: Any, program: Path) -> None:
    good = program.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(150):
        data = bytearray(good)
        for position in rng.integers(0, len(data), rng.integers(1, 4)):
            data[position] = rng.choice(bytearray(b'0123456789x"@%<>{}()[]:,-abcf \xff'))
        program.write_bytes(data)
        done = npuc("show", program)
        assert done.status in (0, 2), done.err


def test_show_counts_parameters_and_macs(npuc: Any, program: Path) -> None:
    done = npuc("show", program)
    assert done.status == 0
    conv = next(line for line in done.out.splitlines() if " conv " in line)
    assert conv.split()[2:] == ["1x4x8x8xf32", "112", "6912"]
    result = json.loads(npuc("show", program, "--json").out)
    assert (result["parameters"], result["macs"]) == (112 + 20, 6912 + 20)
    assert result["kinds"]["conv"] == 1


def test_show_names_what_stays_on_the_cpu(npuc: Any, here: Path) -> None:
    node = onnx.helper.make_node("NonZero", ["x"], ["y"], name="nz")
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node], "g", [info("x", 1, [3])], [onnx.helper.make_tensor_value_info("y", 7, [1, None])]
    )
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8),
        "n.onnx",
    )
    done = npuc("show", "n.onnx")
    assert done.status == 0
    assert "1 of 1 op without a top form, on the CPU" in done.out and "NonZero" in done.out


def test_show_draws_a_graph(npuc: Any, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert npuc("show", program, "--graph", "g.dot").status == 0
    text = Path("g.dot").read_text()
    assert text.startswith("digraph") and '"conv' in text and "1x3x8x8xf32" in text
    monkeypatch.setattr(shutil, "which", lambda name: None)
    done = npuc("show", program, "--graph", "h.svg")
    assert done.status == 0 and "apt install graphviz" in done.err
    assert Path("h.dot").is_file() and not Path("h.svg").exists()
    assert npuc("show", program, "--graph", "h.bmp").status == 2


def test_export_writes_onnx_that_computes_the_same(npuc: Any, model: Path, program: Path) -> None:
    assert npuc("export", "onnx", program, "-o", "again.onnx").status == 0
    for name in ("model", "again"):
        assert npuc("run", f"{name}.onnx", "--random", "-o", f"{name}.npz").status == 0
    np.testing.assert_allclose(np.load("model.npz")["scores"], np.load("again.npz")["scores"], rtol=1e-5)


def test_export_does_not_overwrite_its_source(npuc: Any, model: Path) -> None:
    before = model.read_bytes()
    assert npuc("export", "onnx", model, "-o", "./model.onnx").status == 2
    assert model.read_bytes() == before


def test_doctor_finds_what_is_needed(npuc: Any) -> None:
    done = npuc("doctor")
    assert done.status == 0 and "All that npuc needs is here" in done.out
    found = {entry["name"]: entry for entry in json.loads(npuc("doctor", "--json").out)}
    assert found["xdsl"]["status"] == "ok" and found["native core"]["found"]


def test_doctor_tells_what_is_missing(npuc: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npuc.doctor._version", lambda name: "" if name in ("onnx", "torch") else "1")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    from npuc.doctor import examine

    found = {finding.name: finding for finding in examine()}
    assert found["onnx"].status == "missing" and "pip install" in found["onnx"].fix
    assert found["torch"].status == "absent" and "npuc[torch]" in found["torch"].fix
    assert found["dot"].status == "absent" and "graphviz" in found["dot"].fix


def test_integer_inputs_need_an_integer_network(npuc: Any, program: Path) -> None:
    done = npuc("export", "tflite", program, "-o", "x.tflite", "--integer-io")
    assert done.status == 2 and "has none" in done.err and "--scheme tflite" in done.err
    assert not Path("x.tflite").exists()
