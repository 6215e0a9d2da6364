"""Local memory: programs take what their speed needs, stay within a limit, and a large layer adds up in parts."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc.calib.random_inputs import random_inputs
from npuc.calib.sources import random_data
from npuc.codegen.compile_model import Compilation, CompileOptions, compile_program
from npuc.engine import IntegerEngine
from npuc.errors import CompileError, ScheduleError
from npuc.flow import network_to_quantize, quantize_network, ranges_from, schemes_of
from npuc.ir import Graph
from npuc.profile.timeline import profile_of
from npuc.schedule.cache import Cache
from npuc.schedule.memory_reduction import PRICE
from npuc.schedule.schedule_file import ScheduleFile, describe
from npuc.sim import run, sanitize, simulate
from npuc.target import Target, load_target

TARGET = load_target("edge-4t")


def network(folder: Path, nodes: list[Any], shape: list[int], weights: dict[str, tuple[int, ...]]) -> Graph:
    """An ONNX graph with random weights from `x` to `y`, in integers."""
    rng = np.random.default_rng(3)
    constants = [
        numpy_helper.from_array(rng.standard_normal(size).astype(np.float32), name)
        for name, size in weights.items()
    ]
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
        helper.make_empty_tensor_value_info("y"),
    ]
    graph = helper.make_graph(nodes, "net", ports[:1], ports[1:], constants)
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    loaded = network_to_quantize(path)
    ranges = ranges_from(loaded, random_data(loaded, 1, 0), schemes_of(loaded, None, TARGET), "max")
    return quantize_network(loaded, ranges, None, TARGET).graph


@pytest.fixture(scope="module")
def convolutions(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Six convolutions of 20 x 20 pixels; the last ones have many weights."""
    channels = [8, 8, 16, 32, 64, 64, 64]
    pairs = list(pairwise(channels))
    nodes = [
        helper.make_node(
            "Conv", ["x" if i == 0 else f"x{i}", f"w{i}"], [f"x{i + 1}" if i < 5 else "y"], pads=[1] * 4
        )
        for i in range(6)
    ]
    weights: dict[str, tuple[int, ...]] = {f"w{i}": (b, a, 3, 3) for i, (a, b) in enumerate(pairs)}
    return network(tmp_path_factory.mktemp("net"), nodes, [1, 8, 20, 20], weights)


@pytest.fixture(scope="module")
def connected(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A convolution, flattened, and two fully connected layers, the first with 3,072 inputs."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4),
        helper.make_node("Flatten", ["a"], ["b"]),
        helper.make_node("Gemm", ["b", "w1", "b1"], ["c"], name="wide"),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Gemm", ["d", "w2"], ["y"]),
    ]
    weights: dict[str, tuple[int, ...]] = {
        "w0": (12, 3, 3, 3), "w1": (3072, 10), "b1": (10,), "w2": (10, 5),
    }  # fmt: skip
    return network(tmp_path_factory.mktemp("net"), nodes, [1, 3, 16, 16], weights)


def used(done: Compilation) -> int:
    return max(part.scheduled.memory for part in done.parts)


def check(graph: Graph, done: Compilation) -> None:
    """Both modes agree, and the sanitizer has nothing to say."""
    assert sanitize(done.model) == []
    for seed in range(2):
        inputs = random_inputs(graph, seed)
        wanted, found = IntegerEngine(graph).run(inputs), run(done.model, inputs)
        assert all(np.array_equal(np.asarray(found[name]), np.asarray(wanted[name])) for name in wanted)


def same(done: Compilation, other: Compilation) -> bool:
    streams = [[s.tobytes() for part in one.parts for s in part.scheduled.streams] for one in (done, other)]
    return streams[0] == streams[1]


def text_of(done: Compilation) -> str:
    return describe(
        {
            p.name: (p.scheduled.schedule_decisions, [layer.name for layer in p.network.layers])
            for p in done.parts
        },
        "edge-4t",
    )


def test_a_program_takes_less_memory_than_there_is_and_no_more_cycles(convolutions: Graph) -> None:
    early = compile_program(convolutions, TARGET, CompileOptions(0))
    done = compile_program(convolutions, TARGET)
    prefetch = done.parts[0].scheduled.schedule_decisions.prefetch
    assert prefetch is not None and used(done) <= prefetch.memory < used(early) // 2
    plain = ScheduleFile.model_validate(
        {"subgraphs": {"npu1": {**entry(done), "late": None}}}
    )  # the same decisions with loads as early as there is room
    untrimmed = compile_program(convolutions, TARGET, CompileOptions(schedule=plain))
    assert used(untrimmed) > used(done)
    assert simulate(done.model).total <= simulate(untrimmed.model).total * (1 + PRICE)
    check(convolutions, done)


def entry(done: Compilation) -> dict[str, Any]:
    import yaml

    found: dict[str, Any] = yaml.safe_load(text_of(done))["subgraphs"]["npu1"]
    return found


def test_what_was_trimmed_is_written_and_cached(convolutions: Graph, tmp_path: Path) -> None:
    first = compile_program(convolutions, TARGET, CompileOptions(cache=Cache(tmp_path / "cache")))
    again = compile_program(convolutions, TARGET, CompileOptions(cache=Cache(tmp_path / "cache")))
    assert again.parts[0].cached and same(first, again)
    (tmp_path / "schedule.yaml").write_text(text_of(first))
    schedule = ScheduleFile.load(tmp_path / "schedule.yaml")
    assert same(first, compile_program(convolutions, TARGET, CompileOptions(schedule=schedule)))


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("limit", [96 << 10, 64 << 10, 48 << 10])
def test_a_limit_is_kept(convolutions: Graph, level: int, limit: int) -> None:
    done = compile_program(convolutions, TARGET, CompileOptions(level, local_memory=limit))
    assert 0 < used(done) <= limit and not done.too_large
    check(convolutions, done)
    by_file = CompileOptions(level, schedule=ScheduleFile(local_memory=limit))
    assert same(done, compile_program(convolutions, TARGET, by_file))


def test_a_limit_is_part_of_the_schedule_that_is_written(convolutions: Graph, tmp_path: Path) -> None:
    done = compile_program(convolutions, TARGET, CompileOptions(local_memory=64 << 10))
    (tmp_path / "schedule.yaml").write_text(text_of(done))
    schedule = ScheduleFile.load(tmp_path / "schedule.yaml")
    assert same(done, compile_program(convolutions, TARGET, CompileOptions(schedule=schedule)))
    with pytest.raises(ScheduleError, match="bytes of local memory may be used"):
        compile_program(convolutions, TARGET, CompileOptions(schedule=schedule, local_memory=4 << 10))


def test_limits_that_cannot_be_are_refused(convolutions: Graph) -> None:
    for limit in (0, -1, 1 << 40):
        with pytest.raises(CompileError, match="are asked for"):
            compile_program(convolutions, TARGET, CompileOptions(local_memory=limit))
    with pytest.raises(CompileError) as caught:
        compile_program(convolutions, TARGET, CompileOptions(local_memory=2 << 10))
    assert "2,048 of the 2,097,152" in str(caught.value) and "--device" in str(caught.value)
    with pytest.raises(ScheduleError, match="has 2097152 bytes"):
        too_much = ScheduleFile(local_memory=1 << 40)
        compile_program(convolutions, TARGET, CompileOptions(schedule=too_much))
    with pytest.raises(ScheduleError, match="state everything else"):
        alone = ScheduleFile.model_validate({"late": {"memory": 4096, "margin": 0.1, "placing": "packed"}})
        compile_program(convolutions, TARGET, CompileOptions(schedule=alone))


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_fully_connected_layer_that_does_not_fit_adds_up_in_parts(connected: Graph, level: int) -> None:
    whole = compile_program(connected, TARGET, CompileOptions(level))
    assert not any(group.by_inputs for group in whole.parts[0].scheduled.schedule_decisions.decisions.groups)
    done = compile_program(connected, TARGET, CompileOptions(level, local_memory=6 << 10))
    groups = [
        group for group in done.parts[0].scheduled.schedule_decisions.decisions.groups if group.by_inputs
    ]
    assert len(groups) == 1 and not done.too_large
    check(connected, done)


def test_the_parts_can_be_asked_for(connected: Graph, tmp_path: Path) -> None:
    names = [layer.name for layer in compile_program(connected, TARGET).parts[0].network.layers]
    asked = ScheduleFile.model_validate(
        {"groups": [{"layers": ["d"], "by_inputs": True}], "choices": {"chunk": 4096}}
    )
    done = compile_program(connected, TARGET, CompileOptions(schedule=asked))
    layers = done.parts[0].network.layers
    group = next(one for one in done.parts[0].scheduled.schedule_decisions.decisions.groups if one.by_inputs)
    assert layers[group.first].sums and layers[group.first].name == "d"
    check(connected, done)
    (tmp_path / "schedule.yaml").write_text(text_of(done))
    schedule = ScheduleFile.load(tmp_path / "schedule.yaml")
    assert same(done, compile_program(connected, TARGET, CompileOptions(schedule=schedule)))
    wrong = ScheduleFile.model_validate({"groups": [{"layers": [names[0]], "by_inputs": True}]})
    with pytest.raises(ScheduleError, match="cannot be cut by input channels"):
        compile_program(connected, TARGET, CompileOptions(schedule=wrong))


def test_several_cores_run_a_layer_in_parts(connected: Graph) -> None:
    target = load_target("server-32t")
    done = compile_program(connected, target, CompileOptions(local_memory=8 << 10))
    assert used(done) <= 8 << 10
    check(connected, done)


def test_one_core_spills_to_shared_memory_first(convolutions: Graph) -> None:
    """What finds no room in local memory goes to the memory on the chip as far as that holds it, and then to DRAM."""
    inputs = random_inputs(convolutions)
    expected = IntegerEngine(convolutions).run(inputs)
    profiles = {}
    for kib in (0, 32, 1024):
        data = TARGET.to_dict()
        if kib:
            data["memory"]["shared"] = {"size": f"{kib}KiB", "bandwidth": "64B/cycle"}
        done = compile_program(convolutions, Target.from_dict(data), CompileOptions(0, local_memory=52 << 10))
        assert sanitize(done.model) == []
        for name, values in run(done.model, inputs).items():
            np.testing.assert_array_equal(values, expected[name])
        profiles[kib] = profile_of(done.model, simulate(done.model))
    none, some, much = (profiles[kib] for kib in (0, 32, 1024))
    assert none.shared == 0 < some.shared < much.shared
    assert much.dram < some.dram < none.dram
    assert much.cycles < none.cycles


@pytest.mark.parametrize("level", [1, 2])
def test_everything_begins_at_a_multiple_of_the_alignment(convolutions: Graph, level: int) -> None:
    data = TARGET.to_dict()
    data["memory"]["local"] |= {"size": "512KiB", "alignment": "4KiB"}
    done = compile_program(convolutions, Target.from_dict(data), CompileOptions(level=level))
    inputs = random_inputs(convolutions, 1)
    places = [place.address for part in done.model.subgraphs for place in getattr(part, "allocations", ())]
    assert places and all(address % 4096 == 0 for address in places)
    assert sanitize(done.model, inputs) == []
    expected = IntegerEngine(convolutions, raw=True).run(inputs)
    for name, value in run(done.model, inputs).items():
        np.testing.assert_array_equal(value, expected[name])
