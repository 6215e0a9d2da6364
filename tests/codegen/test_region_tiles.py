"""Tiles of columns and channels that a schedule file states: the bits of the whole, or a refusal in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.codegen.compile_model import Compilation, CompileOptions, compile_program
from npuc.engine import IntegerEngine
from npuc.errors import ScheduleError
from npuc.ir import Graph, top
from npuc.quant import SCHEMES, quantize
from npuc.schedule.artifact import ComputeStep
from npuc.schedule.listing import listing, parse_listing
from npuc.schedule.schedule_file import ScheduleFile, describe
from npuc.sim import Simulator, sanitize
from npuc.target import Target
from support.graphs import build, random_inputs
from support.networks.backend import machine, network
from support.networks.drawn_schemes import drawn_scheme
from support.programs.host_models import file_of, run_in_c


def convolution(b: Any, x: Any, outputs: int, inputs: int, kernel: int, name: str, **changes: Any) -> Any:
    weight = np.random.default_rng(outputs).standard_normal((outputs, inputs, kernel, kernel))
    common = {"pads": [kernel // 2] * 4, "strides": [1, 1], "dilations": [1, 1], "group": 1, **changes}
    bias = np.linspace(-0.5, 0.5, outputs).astype(np.float32)
    return b(top.Conv, x, weight.astype(np.float32), bias, name=name, **common)


def block(scheme: str = "int8", batch: int = 1) -> Graph:
    """A residual block with a depthwise convolution, then a pool and a fully connected layer."""

    def body(b: Any, x: Any) -> Any:
        stem = convolution(b, x, 24, 5, 3, "stem")
        depthwise = convolution(b, stem, 24, 1, 5, "depthwise", group=24)
        active = b(top.Sigmoid, depthwise, name="active")
        project = convolution(b, active, 24, 24, 1, "project")
        total = b(top.Add, project, stem, name="total")
        pooled = b(
            top.MaxPool, total, kernel=[3, 3], strides=[2, 2], pads=[1] * 4, dilations=[1, 1], name="pooled"
        )
        flat = b(top.Reshape, pooled, shape=(batch, 24 * 7 * 6), name="flat")
        weight = np.random.default_rng(3).standard_normal((24 * 7 * 6, 40)).astype(np.float32)
        return b(top.MatMul, flat, weight, None, transpose_b=False, name="scores")

    graph = build({"x": (batch, 5, 13, 12)}, body)
    names = ("x", "stem", "depthwise", "active", "project", "total", "pooled", "flat", "scores")
    return quantize(graph, {name: (-3.0, 3.0) for name in names}, SCHEMES[scheme])


def compiled(
    graph: Graph, groups: list[dict[str, Any]], target: Target | None = None, **more: Any
) -> Compilation:
    schedule = ScheduleFile.model_validate({"groups": groups, **more})
    return compile_program(graph, target or machine(512 << 10), CompileOptions(schedule=schedule))


def check_bits(graph: Graph, done: Compilation) -> None:
    """Instruction mode is graph mode, without races; the listing of the schedule can be read back."""
    inputs = random_inputs(graph, 1)
    expected = IntegerEngine(graph, raw=True).run(inputs)
    for name, value in Simulator(done.model).run(inputs).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    assert [str(finding) for finding in sanitize(done.model, inputs)] == []
    for part in done.parts:
        assert parse_listing(listing(part.schedule)) == part.schedule


def check_c(graph: Graph, done: Compilation) -> None:
    """So is the C runtime."""
    inputs = random_inputs(graph, 1)
    expected = IntegerEngine(graph, raw=True).run(inputs)
    outputs = {name: np.zeros_like(expected[name]) for name in done.model.outputs}
    assert run_in_c(file_of(done.model), {name: inputs[name] for name in done.model.inputs}, outputs) == ""
    for name, value in outputs.items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def tiles_of(done: Compilation, name: str) -> list[Any]:
    """The tiles that a layer is computed in."""
    found = []
    for part in done.parts:
        number = [layer.name for layer in part.schedule.layers].index(name)
        for core in part.schedule.cores:
            found += [
                step.tile for step in core.steps if isinstance(step, ComputeStep) and step.layer == number
            ]
    return found


@pytest.mark.parametrize(
    ("scheme", "batch", "rows", "columns", "channels"),
    [
        ("int8", 1, 1, 3, 1),
        ("int8", 1, 1, 1, 2),
        ("int8", 1, 2, 3, 2),
        ("tflite", 2, 2, 3, 2),
        ("int16", 1, 1, 3, 2),
        ("int16", 2, 2, 1, 3),
    ],
)
def test_every_layer_cut_by_rows_columns_and_channels(
    scheme: str, batch: int, rows: int, columns: int, channels: int
) -> None:
    graph = block(scheme, batch)
    tiling = {"tiles": rows, "column_tiles": columns, "channel_tiles": channels}
    names = ("stem", "active", "project", "total", "pooled")
    done = compiled(graph, [{"layers": [name], **tiling} for name in names])
    check_bits(graph, done)
    check_c(graph, done)
    for name in names:
        made = {(tile.rows, tile.columns, tile.channels) for tile in tiles_of(done, name)}
        assert len(made) >= rows * columns * channels, name


def test_the_tiles_of_columns_have_the_halo_that_windows_need_and_no_more() -> None:
    done = compiled(block(), [{"layers": ["stem", "active"], "column_tiles": 3}])
    assert [tile.columns for tile in tiles_of(done, "active")] == [(0, 4), (4, 8), (8, 12)]
    assert [tile.columns for tile in tiles_of(done, "stem")] == [(0, 6), (2, 10), (6, 12)]
    check_bits(block(), done)


def test_channels_are_cut_along_the_lanes_of_the_array_and_weights_come_once() -> None:
    graph = block()
    done = compiled(graph, [{"layers": ["project"], "channel_tiles": 2, "tiles": 2}])
    assert sorted({tile.channels for tile in tiles_of(done, "project")}) == [(0, 16), (16, 24)]
    check_bits(graph, done)
    constants = [block for block in done.parts[0].schedule.constants if block.channels in ((0, 16), (16, 24))]
    assert len(constants) == 2


def test_a_fully_connected_layer_is_cut_by_channels() -> None:
    graph = block()
    done = compiled(graph, [{"layers": ["scores"], "channel_tiles": 5}])
    assert [tile.channels for tile in tiles_of(done, "scores")] == [
        (0, 8),
        (8, 16),
        (16, 24),
        (24, 32),
        (32, 40),
    ]
    check_bits(graph, done)


def test_cores_share_tiles_of_columns() -> None:
    graph = block()
    done = compiled(graph, [{"layers": ["stem"], "column_tiles": 4}], machine(512 << 10, cores=2), cores=2)
    assert len(done.parts[0].schedule.cores) == 2
    stem = [[step for step in core.steps if getattr(step, "layer", -1) == 0 and isinstance(step, ComputeStep)]
            for core in done.parts[0].schedule.cores]  # fmt: skip
    assert [len(steps) for steps in stem] == [2, 2]
    check_bits(graph, done)


def test_a_core_without_a_tile_waits_for_no_weights() -> None:
    """Two tiles of rows on three cores: a multicast load would wait for the third for ever."""
    graph = block()
    done = compiled(graph, [{"layers": ["project"], "tiles": 2}], machine(512 << 10, 3), cores=3)
    check_bits(graph, done)
    cores = done.parts[0].schedule.cores
    number = [layer.name for layer in done.parts[0].schedule.layers].index("project")
    busy = [
        any(isinstance(step, ComputeStep) and step.layer == number for step in core.steps) for core in cores
    ]
    assert busy.count(True) == 2


def test_a_layer_that_fits_by_columns_only_gets_on_the_machine() -> None:
    """One row of 4,096 columns and 16 channels: 64 KiB each for operand and result, in 48 KiB of local memory."""

    def body(b: Any, x: Any) -> Any:
        return convolution(b, x, 16, 16, 3, "wide")

    graph = build({"x": (1, 16, 1, 4096)}, body)
    integers = quantize(graph, {"x": (-1.0, 1.0), "wide": (-9.0, 9.0)}, SCHEMES["int8"])
    target = machine(48 << 10)
    done = compiled(integers, [{"layers": ["wide"], "column_tiles": 8}], target)
    assert not done.too_large and done.model.subgraphs
    check_bits(integers, done)


@pytest.mark.parametrize(
    "shape", [(1, 24, 1, 1), (1, 24, 7, 6), (1, 1, 1, 6), (1, 1, 7, 1), (1, 24, 7, 1), (1, 1, 1, 1)]
)
def test_constant_operands_are_read_where_the_tile_is(shape: tuple[int, ...]) -> None:
    constant = np.random.default_rng(5).uniform(-1, 1, shape).astype(np.float32)

    def body(b: Any, x: Any) -> Any:
        product = b(top.Mul, x, constant, name="product")
        return b(top.Add, constant, product, name="total")

    graph = build({"x": (1, 24, 7, 6)}, body)
    integers = quantize(graph, dict.fromkeys(("x", "product", "total"), (-2.0, 2.0)), SCHEMES["int8"])
    names = [layer.name for layer in compile_program(integers, machine(512 << 10)).parts[0].network.layers]
    tiling = {"tiles": 2, "column_tiles": 3, "channel_tiles": 2}
    done = compiled(integers, [{"layers": names, **tiling}])
    check_bits(integers, done)


def test_a_written_schedule_gives_the_same_bytes_again() -> None:
    graph = block()
    done = compiled(
        graph,
        [{"layers": ["stem", "active"], "column_tiles": 3}, {"layers": ["project"], "channel_tiles": 2}],
    )
    part = done.parts[0]
    names = [layer.name for layer in part.network.layers]
    text = describe({part.name: (part.scheduled.schedule_decisions, names)}, "test")
    assert "column_tiles: 3" in text and "channel_tiles: 2" in text
    from npuc.plain_yaml import load_yaml

    again = compile_program(
        graph, machine(512 << 10), CompileOptions(schedule=ScheduleFile.model_validate(load_yaml(text)))
    )
    streams = zip(part.scheduled.streams, again.parts[0].scheduled.streams, strict=True)
    assert all(np.array_equal(a, b) for a, b in streams)


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ({"layers": ["stem"], "column_tiles": 13}, "12 columns"),
        ({"layers": ["stem"], "channel_tiles": 25}, "24 channels"),
        (
            {"layers": ["stem", "active"], "channel_tiles": 2, "resident_results": True},
            "stay in local memory",
        ),
        ({"layers": ["active", "project"], "channel_tiles": 2}, "needs all channels of 'active'"),
        ({"layers": ["scores"], "column_tiles": 2}, "1 column"),
        ({"layers": ["stem"], "column_tiles": 2, "by_channels": True}, "by_channels"),
        ({"layers": ["stem"], "tiles": 1 << 20, "column_tiles": 2}, "more than"),
    ],
)
def test_what_cannot_be_cut_is_refused_with_the_reason(group: dict[str, Any], words: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        compiled(block(), [group])
    assert words in str(caught.value)


def test_tiles_that_do_not_fit_are_refused_with_the_bytes() -> None:
    with pytest.raises(
        ScheduleError, match=r"a tile \(2 of columns\) needs .* bytes of local memory"
    ) as caught:
        compiled(block(), [{"layers": ["stem"], "column_tiles": 2}], machine(2 << 10))
    assert "Use more tiles" in str(caught.value)


def sweep(seeds: range) -> tuple[int, int]:
    """Random networks under random tilings: how many compiled, with equal bits, and how many were refused."""
    accepted = refused = 0
    for seed in seeds:
        random = np.random.default_rng((seed, 7))
        graph, ranges = network(seed, most_steps=5)
        integers = quantize(graph, ranges, drawn_scheme(seed, random))
        target = machine(512 << 10)
        layers = [
            [layer.name for layer in part.network.layers] for part in compile_program(integers, target).parts
        ]
        for names in layers:
            for _ in range(2):
                first = int(random.integers(len(names)))
                count = int(random.integers(1, 4))
                tiling = {
                    axis: int(random.integers(1, 4)) for axis in ("tiles", "column_tiles", "channel_tiles")
                }
                try:
                    done = compiled(integers, [{"layers": names[first : first + count], **tiling}], target)
                except ScheduleError as error:
                    refused += 1
                    assert "layer" in str(error) or "result of" in str(error) or "group" in str(error), error
                    continue
                accepted += tiling["column_tiles"] * tiling["channel_tiles"] > 1
                check_bits(integers, done)
    return accepted, refused


def test_random_networks_under_random_tilings() -> None:
    accepted, refused = sweep(range(10))
    assert accepted >= 2 and refused > 0


@pytest.mark.slow
def test_many_random_networks_under_random_tilings() -> None:
    accepted, _ = sweep(range(100, 500))
    assert accepted >= 100
