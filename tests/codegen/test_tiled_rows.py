"""Bilinear resizes and reductions that do not fit local memory are cut into rows, with the bits of the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.engine import IntegerEngine
from npuc.ir import Graph, result_names, top
from npuc.quant import SCHEMES, quantize
from npuc.sim import Simulator, sanitize
from support.graphs import build, random_inputs
from support.networks.backend import machine


def segmenter(
    sizes: tuple[int, int], coordinates: str, batch: int = 1, keepdims: bool = False, scheme: str = "int8"
) -> Graph:
    """What a DeepLab ends with: scores of 9 classes, enlarged, and the best class of each pixel."""

    def body(b: Any, x: Any) -> Any:
        weight = np.random.default_rng(0).standard_normal((9, 3, 1, 1)).astype(np.float32)
        common = {"pads": [0] * 4, "strides": [1, 1], "dilations": [1, 1], "group": 1}
        x = b(top.Conv, x, weight, None, name="scores", **common)
        x = b(top.Resize, x, sizes=(batch, 9, *sizes), mode="linear", coordinates=coordinates, name="resized")
        return b(top.ArgReduce, x, axis=1, max=True, keepdims=keepdims, name="best")

    graph = build({"x": (batch, 3, 17, 13)}, body)
    return quantize(graph, {name: (-3.0, 3.0) for name in ("x", "scores", "resized")}, SCHEMES[scheme])


def same_bits(
    graph: Graph, memory: int, devices: dict[str, str] | None = None, cores: int = 1, **more: Any
) -> Any:
    """Compile for so little local memory, run and sanitize; the compilation."""
    done = compile_program(graph, machine(memory, cores), CompileOptions(devices=devices or {}, **more))
    inputs = random_inputs(graph, 1)
    wanted = IntegerEngine(graph, raw=True).run(inputs)
    for name, value in Simulator(done.model).run(inputs).items():
        np.testing.assert_array_equal(value, wanted[name], err_msg=name)
    assert [str(finding) for finding in sanitize(done.model, inputs)] == []
    return done


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize(
    ("sizes", "coordinates", "batch", "keepdims", "scheme"),
    [
        ((68, 52), "half_pixel", 1, False, "int8"),
        ((65, 49), "align_corners", 1, True, "tflite"),
        ((51, 60), "asymmetric", 2, False, "int8-symmetric"),
    ],
)
def test_a_large_resize_and_argmax_are_cut(
    sizes: tuple[int, int], coordinates: str, batch: int, keepdims: bool, scheme: str, level: int
) -> None:
    graph = segmenter(sizes, coordinates, batch, keepdims, scheme)
    done = same_bits(graph, 20 << 10, level=level)
    assert not done.too_large
    assert [part.device for part in done.partition.parts if part.device != "convert"] == ["npu"]
    tiles = [
        group.tiles for part in done.parts for group in part.scheduled.schedule_decisions.decisions.groups
    ]
    assert max(tiles) > 1


def test_a_resize_runs_on_the_cpu_where_it_is_put() -> None:
    for coordinates, scheme in (("half_pixel", "int8"), ("align_corners", "tflite"), ("asymmetric", "int16")):
        graph = segmenter((34, 26), coordinates, scheme=scheme)
        done = same_bits(graph, 512 << 10, {"resized": "cpu"}, island_threshold=0.0)
        [cpu] = [part for part in done.partition.parts if part.device == "cpu"]
        assert [result_names(op)[0] for op in cpu.ops] == ["resized"]
        assert done.partition.reasons["resized"] == "as asked"


def test_only_what_cannot_be_cut_goes_to_the_cpu() -> None:
    """A row of the resized picture alone exceeds local memory."""
    done = same_bits(segmenter((40, 1000), "half_pixel"), 8 << 10, island_threshold=0.0)
    assert "resized" in done.too_large
    assert "bytes of local memory however it is cut" in done.partition.reasons["resized"]
    facts = done.partition.obstacles["resized"].to_dict()
    assert facts["rule"] == "local_memory" and facts["needed"] > facts["allowed"] == 8 << 10
    on_npu = {layer.name for part in done.parts for layer in part.network.layers}
    assert "scores" in on_npu


def test_several_cores_share_the_rows() -> None:
    assert not same_bits(segmenter((68, 52), "half_pixel"), 32 << 10, cores=2, level=1).too_large
