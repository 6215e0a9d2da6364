"""Layers whose values f16 does not hold get bf16, or stay float, and are named; all else keeps f16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuc.calib.sources import open_data
from npuc.cli import main
from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.engine import IntegerEngine
from npuc.flow import quantize_network, ranges_from, schemes_of
from npuc.ir import Graph, top
from npuc.ir.text import save_graph
from npuc.quant.config import QuantizationConfig
from npuc.sim import Simulator
from npuc.target import Target, load_target
from support.graphs import build

CONFIG = QuantizationConfig(scheme="f16")


def network() -> Graph:
    """A product that reaches 200,000 and comes back, between two that stay small."""
    return build(
        {"x": (1, 4, 6, 6)},
        lambda b, x: b(
            top.Mul,
            b(top.Mul, b(top.Relu, x, name="small"), np.float32([100_000.0]), name="large"),
            np.float32([1e-5]),
            name="y",
        ),
    )


def samples() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.uniform(-2, 2, (1, 4, 6, 6)).astype(np.float32)} for _ in range(4)]


def only(name: str) -> Target:
    """bm1684x-like without the other short float; f32 it has."""
    data = load_target("bm1684x-like").to_dict()
    other = {"f16": "bf16", "bf16": "f16"}[name]
    for formats in (data["arithmetic"]["activations"]["formats"], data["arithmetic"]["weights"]["formats"]):
        del formats[other]
    del data["compute"]["array"]["rates"][other]
    return Target.from_dict(data)


@pytest.mark.parametrize(("target", "instead"), [(load_target("bm1684x-like"), "bf16"), (only("f16"), "f32")])
def test_a_layer_beyond_f16_is_kept_in_a_wider_type_and_named(target: Target, instead: str) -> None:
    graph = network()
    table = ranges_from(graph, open_data(graph, samples()), schemes_of(graph, CONFIG, target))
    done = quantize_network(graph, table, CONFIG, target)
    named = [note for note in done.outcome.notes if "f16 holds up to 65,504" in note]
    assert [note.split(":")[0] for note in named] == [
        f"layer 'large' is kept in {instead}",
        f"layer 'y' is kept in {instead}",
    ]
    sample = samples()[0]
    result = IntegerEngine(done.graph).run(sample)["y"]
    np.testing.assert_allclose(result, np.maximum(sample["x"], 0), rtol=0.02)
    compiled = compile_program(done.graph, target, CompileOptions()).model
    assert Simulator(compiled).run(sample)["y"].tobytes() == result.tobytes()


def test_without_data_the_values_overflow() -> None:
    """What the guard is for."""
    done = quantize_network(network(), {}, CONFIG)
    with np.errstate(all="ignore"):
        assert not np.isfinite(IntegerEngine(done.graph).run(samples()[0])["y"]).all()


def test_layers_within_f16_keep_it() -> None:
    graph = build({"x": (1, 8)}, lambda b, x: b(top.Relu, x, name="y"))
    done = quantize_network(graph, {"x": (-65504.0, 65504.0), "y": (0.0, 65504.0)}, CONFIG)
    assert not done.outcome.notes
    assert quantize_network(graph, {"x": (-65505.0, 1.0), "y": (0.0, 1.0)}, CONFIG).outcome.notes


def test_the_command_line_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_graph(network(), tmp_path / "model.mlir")
    np.savez(tmp_path / "data.npz", **samples()[0])
    files = [str(tmp_path / name) for name in ("model.mlir", "data.npz", "quantized.mlir")]
    with pytest.raises(SystemExit) as status:
        main(["quantize", files[0], "--scheme", "f16", "--data", files[1], "-o", files[2]])
    printed = capsys.readouterr()
    assert status.value.code == 0 and "layer 'large' is kept in bf16" in printed.out + printed.err
