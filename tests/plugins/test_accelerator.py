"""An accelerator of a plugin takes whole subgraphs; what it runs has the bits of graph mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc import flow, lang
from npuc.cli.app import run_command
from npuc.codegen.compile_model import CompileOptions
from npuc.deploy.c import export_c
from npuc.engine.integer import IntegerEngine
from npuc.errors import CompileError, EngineError, ExportError
from npuc.inspect.inspection import inspect_graph
from npuc.ir import Graph
from npuc.partition.accelerators import ACCELERATORS, Accelerator, add_accelerator
from npuc.plugins import load
from npuc.program.file import load_compiled, save_compiled
from npuc.program.model import CpuSubgraph
from npuc.runtime import Runner
from npuc.sim import Simulator
from npuc.target import load_target
from support.paths import PLUGINS


def network() -> Graph:
    rng = np.random.default_rng(0)
    x = lang.input("x", (1, 3, 20, 18))
    y = lang.conv(x, rng.standard_normal((8, 3, 3, 3)).astype(np.float32) / 4, pads=1, name="first")
    y = lang.max_pool(y, kernel=(3, 3), strides=2, pads=1, name="pool1")
    z = lang.max_pool(y, kernel=(2, 2), strides=2, name="pool2")
    w = lang.max_pool(y, kernel=(3, 3), strides=2, pads=(0, 0, 1, 0), name="pool3")
    last = lang.conv(z, rng.standard_normal((4, 8, 1, 1)).astype(np.float32), name="last")
    graph = lang.build({"last": last, "pool3": w})
    names = [*graph.tensor_names(), "x"]
    return flow.quantize_network(
        graph, dict.fromkeys(names, (-3.0, 3.0)), target=load_target("edge-4t")
    ).graph


X = {"x": np.random.default_rng(1).standard_normal((1, 3, 20, 18)).astype(np.float32)}


def test_its_subgraphs_are_compiled_and_run_to_the_bit(tmp_path: Path) -> None:
    made = network()
    exact = IntegerEngine(made, raw=True).run(X)
    load(PLUGINS / "pooling_engine.py")
    done = flow.compile_network(made, load_target("edge-4t"))
    claimed = [part for part in done.partition.parts if part.device == "pooling_engine"]
    assert [len(part.ops) for part in claimed] == [3]
    save_compiled(done.model, tmp_path / "m.npu")
    compiled = load_compiled(tmp_path / "m.npu")
    (subgraph,) = (one for one in compiled.subgraphs if isinstance(one, CpuSubgraph))
    assert subgraph.name.startswith("pooling_engine")
    assert set(subgraph.reasons.values()) == {"the accelerator 'pooling_engine' takes it"}
    for name, value in Simulator(compiled).run(X).items():
        np.testing.assert_array_equal(value, exact[name])
    with Runner(compiled) as runner:
        for name, value in runner.run(X).items():
            np.testing.assert_array_equal(value, exact[name])


def test_a_layer_that_is_put_elsewhere_is_not_taken() -> None:
    load(PLUGINS / "pooling_engine.py")
    done = flow.compile_network(network(), load_target("edge-4t"), CompileOptions(devices={"pool*": "npu"}))
    assert "pooling_engine" not in {part.device for part in done.partition.parts}


def test_without_the_plugin_the_file_says_what_is_missing() -> None:
    load(PLUGINS / "pooling_engine.py")
    compiled = flow.compile_network(network(), load_target("edge-4t")).model
    ACCELERATORS.remove("pooling_engine")
    with pytest.raises(
        EngineError, match=r"nobody computes the op 'npuc.accelerator:pooling_engine'.*--plugin"
    ):
        Simulator(compiled).run(X)


def test_the_c_runtime_refuses_it(tmp_path: Path) -> None:
    load(PLUGINS / "pooling_engine.py")
    compiled = flow.compile_network(network(), load_target("edge-4t")).model
    with pytest.raises(ExportError, match=r"npuc\.accelerator:pooling_engine of the layer 'pool2'"):
        export_c(compiled, b"", tmp_path / "app")


def test_what_its_compiler_raises_is_an_error_of_its_own() -> None:
    def fails(graph: Graph) -> bytes:
        raise ValueError("too many pools")

    add_accelerator(
        Accelerator("bad", lambda op, graph, target: op.name == "top.max_pool", fails, lambda p, a: a)
    )
    with pytest.raises(
        CompileError, match="the accelerator 'bad' cannot compile its subgraph: ValueError: too many pools"
    ):
        flow.compile_network(network(), load_target("edge-4t"))


def test_a_report_shows_what_it_takes() -> None:
    load(PLUGINS / "pooling_engine.py")
    found = inspect_graph(network(), load_target("edge-4t"))[0]
    devices = {layer.name: (layer.device, layer.reason) for layer in found.layers}
    assert devices["pool1"] == ("pooling_engine", "the accelerator 'pooling_engine' takes it")


def test_the_inspection_lists_it_under_its_own_name(tmp_path: Path, capsys: Any) -> None:
    load(PLUGINS / "pooling_engine.py")
    flow.save_graph(network(), tmp_path / "net.mlir")
    assert run_command(["inspect", str(tmp_path / "net.mlir"), "--target", "edge-4t"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (reason,) = [line for line in lines if line.startswith("  ") and "takes it" in line]
    assert reason.split()[:2] == ["pooling_engine", "pool1,"]
    (summary,) = [line for line in lines if line.startswith("edge-4t:")]
    assert "0 on the CPU, 3 on the accelerator 'pooling_engine'" in summary


def test_a_claim_that_fails_is_named() -> None:
    add_accelerator(
        Accelerator("bad", lambda op, graph, target: op.nothing, lambda graph: b"", lambda p, a: a)
    )
    with pytest.raises(
        CompileError, match=r"layer 'first': the accelerator 'bad' cannot say whether it takes it"
    ):
        flow.compile_network(network(), load_target("edge-4t"))
