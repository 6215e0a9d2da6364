"""What an error advises works: each network goes on with the fix that is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from npuc.flow import save_graph
from npuc.ir import top
from support.graphs import build
from support.networks.backend import machine
from support.networks.placement import NETWORKS


def saved(here: Path, name: str) -> Path:
    path = here / f"{name}.mlir"
    save_graph(NETWORKS[name](), path)
    return path


@pytest.mark.parametrize("name", ["transformer", "recurrent", "detector"])
def test_a_network_may_be_on_the_cpu_as_a_whole(name: str, here: Path, npuc: Any) -> None:
    model = saved(here, name)
    for way in (("--keep-float", "*"), ("--device", "*=cpu", "--random")):
        done = npuc("compile", model, "--target", "edge-4t", *way, "-o", "all.npu")
        assert done.status == 0, done.err
        assert " NPU: " not in done.out and " CPU: " in done.out
        assert npuc("run", "all.npu", "--random").status == 0


def test_short_floats_are_told_what_to_do(here: Path, npuc: Any) -> None:
    """On a machine that does not compute with them; one that does compiles them."""
    model = saved(here, "gated")
    assert npuc("quantize", model, "--scheme", "f16", "-o", "short.mlir").status == 0
    done = npuc("compile", "short.mlir", "--target", "edge-4t", "-o", "short.npu")
    assert done.status != 0 and "E706" in done.err and "--keep-float" not in done.err
    assert "it computes with f16, and edge-4t does not" in done.err and "leave --scheme out" in done.err
    assert npuc("compile", model, "--target", "edge-4t", "--random", "-o", "short.npu").status == 0
    assert npuc("compile", "short.mlir", "--target", "bm1684x-like", "-o", "short.npu").status == 0


def test_a_layer_that_fits_nowhere_goes_on_with_the_fix(here: Path, npuc: Any) -> None:
    def body(b: Any, x: Any) -> Any:
        return b(top.Softmax, b(top.Relu, x, name="before"), axis=1, name="chances")

    save_graph(build({"x": (1, 20000)}, body), here / "wide.mlir")
    (here / "small.yaml").write_text(yaml.safe_dump(machine(8 << 10).to_dict()))
    base = ("compile", "wide.mlir", "--target", "small.yaml", "--random", "-o", "wide.npu")
    done = npuc(*base)
    assert done.status != 0 and "E706" in done.err and "however it is cut" in done.err
    found = re.search(r"--keep-float '(\w+)'", done.err.replace("\n", " "))
    assert found is not None, done.err
    done = npuc(*base, "--keep-float", found[1])
    assert done.status == 0 and f"{found[1]}: it stayed float: as asked" in done.out
    assert npuc(*base, "--device", f"{found[1]}=cpu").status == 0


def test_layers_that_fit_as_little_are_named_at_once(here: Path, npuc: Any) -> None:
    def body(b: Any, x: Any) -> Any:
        first = b(top.Softmax, b(top.Relu, x, name="before"), axis=1, name="first")
        return b(top.Softmax, b(top.Add, first, x, name="between"), axis=1, name="second")

    save_graph(build({"x": (1, 20000)}, body), here / "wide.mlir")
    (here / "small.yaml").write_text(yaml.safe_dump(machine(8 << 10).to_dict()))
    base = ("compile", "wide.mlir", "--target", "small.yaml", "--random", "-o", "wide.npu")
    done = npuc(*base)
    assert done.status != 0 and "There are 2 layers like this" in done.err
    assert "--keep-float 'first,second'" in done.err
    assert npuc(*base, "--keep-float", "first,second").status == 0


def test_a_layer_on_the_npu_by_force_is_told_to_let_go(here: Path, npuc: Any) -> None:
    def body(b: Any, x: Any) -> Any:
        return b(top.Resize, x, sizes=(1, 4, 8, 4000), mode="linear", coordinates="half_pixel", name="wide")

    save_graph(build({"x": (1, 4, 4, 40)}, body), here / "wide.mlir")
    (here / "small.yaml").write_text(yaml.safe_dump(machine(8 << 10).to_dict()))
    base = ("compile", "wide.mlir", "--target", "small.yaml", "--random", "-o", "wide.npu")
    done = npuc(*base, "--device", "w*=npu")
    assert done.status != 0 and "--device 'wide=npu'" in done.err
    done = npuc(*base)
    assert done.status == 0 and "however it is cut" in done.out
