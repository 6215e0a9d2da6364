"""Quantized networks as torch programs: graph mode's bits, without npuc."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from npuc.calib.random_inputs import random_inputs
from npuc.cli.app import run_command
from npuc.engine import IntegerEngine
from npuc.errors import ExportError
from npuc.flow import import_model, save_graph
from npuc.ir import Graph
from npuc.quant import SCHEMES
from support.networks.quantized import ARITHMETICS, case_network, case_parameters, quantized_on_random_data

torch = pytest.importorskip("torch")

from npuc.export.torch import export_torch  # noqa: E402
from npuc.export.torch.module import QuantizedModule  # noqa: E402

LOAD = """
import json, sys
sys.modules["npuc"] = None
import numpy as np, torch
file, inputs, output = sys.argv[1:]
with np.load(inputs) as held:
    given = {name: torch.from_numpy(held[name]) for name in held.files}
if file.endswith(".pt2"):
    extra = {"npuc.json": ""}
    program = torch.export.load(file, extra_files=extra).module()
    given = [given[name] for name in json.loads(extra["npuc.json"])["inputs"]]
else:
    program, given = torch.jit.load(file), list(given.values())
np.save(output, program(*given).numpy())
"""


def assert_module_has_the_bits(graph: Graph) -> None:
    inputs = random_inputs(graph, seed=8)
    result = QuantizedModule(graph)(*(torch.from_numpy(inputs[port.name]) for port in graph.inputs))
    np.testing.assert_array_equal(result.numpy(), IntegerEngine(graph).run(inputs)["y"])


@pytest.mark.parametrize("name", case_parameters())
def test_every_op_has_graph_modes_bits(name: str) -> None:
    assert_module_has_the_bits(quantized_on_random_data(case_network(name), SCHEMES["int8"]))


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("name", ["conv", "gelu"])
def test_every_arithmetic_has_graph_modes_bits(name: str, arithmetic: str) -> None:
    assert_module_has_the_bits(quantized_on_random_data(case_network(name), ARITHMETICS[arithmetic]))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".pt2", ".pt"])
def test_a_file_runs_without_npuc(suffix: str, tmp_path: Path) -> None:
    network = tmp_path / "net.int.mlir"
    save_graph(quantized_on_random_data(case_network("matmul"), SCHEMES["int8"]), network)
    file = tmp_path / f"net{suffix}"
    assert run_command(["export", "torch", str(network), "-o", str(file)]) == 0
    graph = quantized_on_random_data(case_network("matmul"), SCHEMES["int8"])
    inputs = random_inputs(graph, seed=4)
    np.savez(tmp_path / "in.npz", **inputs)  # type: ignore[arg-type]
    command = [sys.executable, "-c", LOAD, str(file), str(tmp_path / "in.npz"), str(tmp_path / "out.npy")]
    subprocess.run(command, check=True, capture_output=True)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), IntegerEngine(graph).run(inputs)["y"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["onnx/mnist.onnx", "onnx/cifar10_resnet20.onnx"])
def test_shared_networks(shared: Path, name: str, tmp_path: Path) -> None:
    graph = quantized_on_random_data(import_model(shared / "models" / name), SCHEMES["int8"])
    inputs = random_inputs(graph, seed=4)
    given = [torch.from_numpy(inputs[port.name]) for port in graph.inputs]
    (expected,) = IntegerEngine(graph).run(inputs).values()
    program = torch.export.load(export_torch(graph, tmp_path / "net.pt2")).module()
    script = torch.jit.load(export_torch(graph, tmp_path / "net.pt"))
    for network in (program, script):
        np.testing.assert_array_equal(network(*given).numpy(), expected)


def test_what_is_refused_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], root: Path) -> None:
    blocks = quantized_on_random_data(case_network("conv"), SCHEMES["mx9"])
    with pytest.raises(ExportError, match=r"npu.block_pack .* has no integer form in torch"):
        export_torch(blocks, tmp_path / "net.pt2")
    network = tmp_path / "net.int.mlir"
    save_graph(quantized_on_random_data(case_network("conv")), network)
    for arguments, words in (
        (["-o", str(tmp_path / "net.zip"), str(network)], "ends neither in .pt2 nor in .pt"),
        (["-o", str(tmp_path / "net.pt2"), str(root / "examples/digits.onnx")], "is a float network"),
        (["-o", str(tmp_path / "net.pt2"), str(root / "tests/golden_files/program-v2.npu")], "instructions"),
        (["-o", str(tmp_path / "net.pt2"), str(tmp_path / "nothing.mlir")], "does not exist"),
    ):
        assert run_command(["export", "torch", *arguments]) == 2
        assert words in capsys.readouterr().err


def test_without_torch_the_extra_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = tmp_path / "net.int.mlir"
    save_graph(quantized_on_random_data(case_network("matmul")), network)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert run_command(["export", "torch", str(network), "-o", str(tmp_path / "net.pt2")]) == 2
    assert "pip install 'npuc[torch]'" in capsys.readouterr().err


def test_torch_script_has_the_bits(tmp_path: Path) -> None:
    graph = quantized_on_random_data(case_network("matmul"), SCHEMES["int8"])
    inputs = random_inputs(graph, seed=4)
    script = torch.jit.load(export_torch(graph, tmp_path / "net.pt"))
    result = script(torch.from_numpy(inputs["x0"])).numpy()
    np.testing.assert_array_equal(result, IntegerEngine(graph).run(inputs)["y"])


def test_a_program_has_the_bits_and_names(tmp_path: Path) -> None:
    graph = quantized_on_random_data(case_network("add"), SCHEMES["int8"])
    extra = {"npuc.json": ""}
    program = torch.export.load(export_torch(graph, tmp_path / "net.pt2"), extra_files=extra).module()
    inputs = random_inputs(graph, seed=4)
    result = program(torch.from_numpy(inputs["x0"]), torch.from_numpy(inputs["x1"]))
    np.testing.assert_array_equal(result.numpy(), IntegerEngine(graph).run(inputs)["y"])
    assert json.loads(extra["npuc.json"]) == {"inputs": ["x0", "x1"], "outputs": ["y"]}
