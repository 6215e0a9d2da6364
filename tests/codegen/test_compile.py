"""From an integer network to a program: both modes agree, the cache serves, and the same input gives the same bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc.calib.compiled import interface_of
from npuc.calib.random_inputs import random_inputs
from npuc.calib.sources import random_data
from npuc.codegen.compile_model import Compilation, CompileOptions, compile_model
from npuc.engine import IntegerEngine
from npuc.errors import ScheduleError, UsageError
from npuc.flow import compile_network, network_to_quantize, quantize_network, ranges_from, schemes_of
from npuc.ir import Graph
from npuc.profile.timeline import chrome_trace, profile_of
from npuc.program.file import load_compiled, save_compiled
from npuc.program.model import CpuSubgraph
from npuc.runtime.engine import CompiledEngine
from npuc.schedule.cache import Cache, key_of
from npuc.schedule.candidates import Candidates, Tiling
from npuc.sim import run, sanitize, simulate
from npuc.target import Target, load_target

TARGET = load_target("edge-4t")


def quantized(root: Path, seed: int = 0) -> Graph:
    return integers(network_to_quantize(root / "examples/digits.onnx"), seed)


def integers(graph: Graph, seed: int = 0) -> Graph:
    ranges = ranges_from(graph, random_data(graph, 1, seed), schemes_of(graph, None, TARGET), "max")
    return quantize_network(graph, ranges, None, TARGET).graph


@pytest.fixture(scope="module")
def digits(root: Path) -> Graph:
    """The demo network in integers."""
    return quantized(root)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Graph]:
    """Six convolutions of a picture of 48 x 48; the last but one has a kernel of the size that is asked for."""

    def make(size: int) -> Graph:
        rng = np.random.default_rng(1)
        sizes = [3, 3, 3, 3, size, 3]
        weights = [
            numpy_helper.from_array(rng.standard_normal((16, 16, k, k)).astype(np.float32), f"w{i}")
            for i, k in enumerate(sizes)
        ]
        nodes = [
            helper.make_node("Conv", [f"x{i}", f"w{i}"], [f"x{i + 1}"], name=f"conv{i}", pads=[k // 2] * 4)
            for i, k in enumerate(sizes)
        ]
        ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 16, 48, 48]) for n in ("x0", "x6")]
        graph = helper.make_graph(nodes, "chain", ports[:1], ports[1:], weights)
        path = tmp_path_factory.mktemp("chain") / "chain.onnx"
        opset = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), str(path))
        return integers(network_to_quantize(path))

    return make


def file_of(done: Compilation, folder: Path) -> bytes:
    save_compiled(done.model, folder / "model.npu")
    return (folder / "model.npu").read_bytes()


def cached(done: Compilation) -> list[bool]:
    return [part.cached for part in done.parts]


@pytest.mark.parametrize("target", ["edge-1t", "edge-4t", "server-32t"])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_instruction_mode_equals_graph_mode(digits: Graph, root: Path, target: str, level: int) -> None:
    compiled = compile_model(digits, load_target(target), level=level)
    assert sanitize(compiled) == []
    engine, graph_mode = CompiledEngine(compiled), IntegerEngine(digits)
    with np.load(root / "examples/digits_samples.npz") as samples:
        for image in samples["image"][:8]:
            inputs = {"image": image[np.newaxis].astype(np.float32)}
            np.testing.assert_array_equal(engine.run(inputs)["logits"], graph_mode.run(inputs)["logits"])


def test_no_level_is_slower_than_a_lower_one(digits: Graph) -> None:
    cycles = [simulate(compile_model(digits, TARGET, level=level)).total for level in range(4)]
    assert cycles[2] <= min(cycles[:2]) and cycles[3] <= cycles[2]


def test_layers_go_to_the_device_that_is_asked_for(digits: Graph) -> None:
    done = compile_network(digits, TARGET, CompileOptions(devices={"pool": "cpu"}, island_threshold=0))
    (cpu,) = [one for one in done.model.subgraphs if isinstance(one, CpuSubgraph)]
    assert cpu.reasons == {"pool": "as asked"}
    inputs = random_inputs(digits)
    np.testing.assert_array_equal(
        run(done.model, inputs)["logits"], IntegerEngine(digits).run(inputs)["logits"]
    )


def test_cores_are_limited(digits: Graph) -> None:
    options = CompileOptions(3, cores=1)
    done = compile_network(digits, load_target("server-32t"), options)
    assert [len(part.scheduled.streams) for part in done.parts] == [1]


def test_a_float_network_is_refused(root: Path) -> None:
    with pytest.raises(UsageError, match="Quantize it first"):
        compile_network(network_to_quantize(root / "examples/digits.onnx"), TARGET)


def test_raw_outputs_are_the_integers_behind_the_reals(digits: Graph) -> None:
    compiled = compile_model(digits, TARGET)
    inputs = random_inputs(digits)
    raw = CompiledEngine(compiled, raw=True).run(inputs)["logits"]
    real = CompiledEngine(compiled).run(inputs)["logits"]
    tensor = compiled.tensor("logits/integers")
    assert raw.dtype == np.int8
    np.testing.assert_array_equal(
        real, (np.float32(tensor.scale) * (raw.astype(np.float32) - tensor.zero_point))
    )


def test_the_interface_of_a_compiled_model_is_that_of_the_network(digits: Graph) -> None:
    ports = interface_of(compile_model(digits, TARGET)).inputs
    assert [(port.name, str(port.type)) for port in ports] == [
        (port.name, str(port.type)) for port in digits.inputs
    ]


def test_preprocessing_travels_with_the_model(digits: Graph, tmp_path: Path) -> None:
    graph = digits.copy()
    (port,) = graph.inputs
    asked = {"mean": (1.0,), "scale": (0.5,), "pixel_format": "gray"}
    graph.set_inputs([(port.name, port.type, asked)])
    save_compiled(compile_model(graph, TARGET), tmp_path / "model.npu")
    (found,) = interface_of(load_compiled(tmp_path / "model.npu")).inputs
    assert found.preprocess is not None
    assert (list(found.preprocess["mean"]), found.preprocess["pixel_format"]) == ([1.0], "gray")


def test_the_profile_adds_up(digits: Graph) -> None:
    compiled = compile_model(digits, TARGET)
    timeline = simulate(compiled)
    found = profile_of(compiled, timeline)
    assert found.cycles == timeline.total and found.milliseconds == timeline.total / 1e6
    assert found.loaded == sum(layer.loaded for layer in found.layers) >= compiled.weights.size // 2
    assert found.stored == sum(layer.stored for layer in found.layers) == 10
    assert all(0 <= part <= 1 for part in found.busy.values())
    matrix = sum(layer.matrix for layer in found.layers)
    assert found.busy["matrix"] == pytest.approx(matrix / found.cycles)
    assert max(layer.end for layer in found.layers) <= found.cycles
    trace = json.loads(json.dumps(chrome_trace(compiled, timeline)))["traceEvents"]
    spans = [event for event in trace if event["ph"] == "X"]
    assert len(spans) == sum(len(core.end) for one in timeline.subgraphs for core in one.cores)
    assert max(event["ts"] + event["dur"] for event in spans) == pytest.approx(timeline.total / 1e3)


def test_subgraphs_follow_each_other_in_time(digits: Graph) -> None:
    options = CompileOptions(devices={"pool": "cpu"}, island_threshold=0)
    compiled = compile_network(digits, TARGET, options).model
    timeline = simulate(compiled)
    times = {layer.name: layer for layer in profile_of(compiled, timeline).layers}
    assert times["block1/relu"].end <= timeline.subgraphs[0].total <= times["widen/relu"].start
    ends = [event["ts"] + event["dur"] for event in chrome_trace(compiled, timeline)["traceEvents"][5:]]
    assert max(ends) == pytest.approx(timeline.total / 1e3)


# The cache


def test_a_second_compile_takes_the_schedule_from_the_cache(digits: Graph, tmp_path: Path) -> None:
    options = CompileOptions(cache=Cache(tmp_path / "cache"))
    first, second = (compile_network(digits, TARGET, options) for _ in range(2))
    assert (cached(first), cached(second)) == ([False], [True])
    assert file_of(first, tmp_path) == file_of(second, tmp_path)


def test_a_cache_that_is_all_there_is(digits: Graph, tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    known = CompileOptions(0, cache=replace(cache, only=True))
    with pytest.raises(ScheduleError, match="the cache has no schedule of its"):
        compile_network(digits, TARGET, known)
    assert not list(tmp_path.rglob("*.json"))
    compile_network(digits, TARGET, CompileOptions(0, cache=cache))
    assert cached(compile_network(digits, TARGET, known)) == [True]


def test_other_weights_share_an_entry_and_other_machines_and_options_do_not(
    digits: Graph, root: Path, tmp_path: Path
) -> None:
    options = CompileOptions(cache=Cache(tmp_path))
    compile_network(digits, TARGET, options)
    other = quantized(root, seed=5)
    assert cached(compile_network(other, TARGET, options)) == [True]
    assert cached(compile_network(digits, TARGET, replace(options, level=1))) == [False]
    assert cached(compile_network(digits, load_target("edge-1t"), options)) == [False]
    cut = replace(options, devices={"pool": "cpu"}, island_threshold=0)
    assert cached(compile_network(digits, TARGET, cut)) == [False, False]


def test_anything_that_changes_the_machine_is_another_entry(digits: Graph) -> None:
    network = compile_network(digits, TARGET).parts[0].network
    described: dict[str, Any] = TARGET.to_dict()
    described["memory"]["dram"]["latency"] = "300 cycles"
    slower = Target.from_dict(described, where="a test")
    assert key_of(network, TARGET, {}) == key_of(network, TARGET, {})
    assert key_of(network, TARGET, {}) != key_of(network, slower, {})


def sealed(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """A change of the content of an entry, with a checksum that fits."""

    def damage(entry: bytes) -> bytes:
        content = change(entry.partition(b"\n")[2])
        return hashlib.sha256(content).hexdigest().encode() + b"\n" + content

    return damage


DAMAGE: list[Callable[[bytes], bytes]] = [
    lambda entry: b"",
    lambda entry: entry[: len(entry) // 2],
    lambda entry: b"\xff\xfe" + entry,
    lambda entry: entry[:-9] + bytes([entry[-9] ^ 1]) + entry[-8:],
    sealed(lambda text: b""),
    sealed(lambda text: b"[" * 100_000),
    sealed(lambda text: b'{"a": [0]}'),
]


@pytest.mark.parametrize(
    "damage",
    [
        *DAMAGE,
        sealed(lambda text: text.replace(b'"memory": 1', b'"memory": 9')),
        sealed(lambda text: text.replace(b'"tiles": 1', b'"tiles": 7777')),
        sealed(lambda text: text.replace(b'"groups"', b'"gruppen"')),
        sealed(lambda text: b'{"memory": 1971322, "cores": 1, "groups": [{"layers": ["0"]}]}'),
    ],
)
def test_a_damaged_or_foreign_schedule_is_passed_over(
    digits: Graph, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    options = CompileOptions(cache=Cache(tmp_path / "cache"))
    first = compile_network(digits, TARGET, options)
    (entry,) = (tmp_path / "cache/schedules").rglob("*.json")
    good = entry.read_bytes()
    assert damage(good) != good
    entry.write_bytes(damage(good))
    again = compile_network(digits, TARGET, options)
    assert cached(again) == [False]
    assert file_of(again, tmp_path) == file_of(first, tmp_path)
    assert entry.read_bytes() == good


def small(local: int) -> Target:
    """The machine with less local memory, so that layers are cut."""
    described: dict[str, Any] = TARGET.to_dict()
    described["memory"]["local"]["size"] = local
    return Target.from_dict(described, where="a test")


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_candidates_are_passed_over(
    chain: Callable[[int], Graph], tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    cache, target = Cache(tmp_path / "cache"), small(64 << 10)
    graph = chain(3)
    first = compile_network(graph, target, CompileOptions(cache=cache))
    (entry,) = (tmp_path / "cache/candidates").rglob("*.json")
    good = entry.read_bytes()
    assert cache.candidates(target).known
    entry.write_bytes(damage(good))
    assert not cache.candidates(target).known
    for schedule in (tmp_path / "cache/schedules").rglob("*.json"):
        schedule.unlink()
    again = compile_network(graph, target, CompileOptions(cache=cache))
    assert file_of(again, tmp_path) == file_of(first, tmp_path)
    assert cache.candidates(target).known


def test_a_changed_layer_leaves_what_is_known_of_the_others(
    chain: Callable[[int], Graph], tmp_path: Path
) -> None:
    cache, target = Cache(tmp_path / "cache"), small(64 << 10)
    options = CompileOptions(1, cache=cache)
    compile_network(chain(3), target, options)
    known = set(cache.candidates(target).known)
    changed = compile_network(chain(5), target, options)
    added = set(cache.candidates(target).known) - known
    assert cached(changed) == [False]
    alone = Cache(tmp_path / "alone")
    again = compile_network(chain(5), target, CompileOptions(1, cache=alone))
    wanted = set(alone.candidates(target).known)
    assert 0 < len(added) < len(wanted) and added < wanted
    assert file_of(again, tmp_path) == file_of(changed, tmp_path)


def test_blocks_that_repeat_are_looked_at_once(chain: Callable[[int], Graph], tmp_path: Path) -> None:
    same, different = Cache(tmp_path / "same"), Cache(tmp_path / "different")
    target = small(64 << 10)
    compile_network(chain(3), target, CompileOptions(1, cache=same))
    compile_network(chain(5), target, CompileOptions(1, cache=different))
    assert len(same.candidates(target).known) < len(different.candidates(target).known)


def test_a_cache_that_cannot_be_written_is_no_error(digits: Graph, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    options = CompileOptions(cache=Cache(tmp_path / "cache"))
    assert cached(compile_network(digits, TARGET, options)) == [False]


def test_many_writers_of_one_entry_do_not_disturb_each_other(digits: Graph, tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    schedule_decisions = compile_network(digits, TARGET).parts[0].scheduled.schedule_decisions
    network = compile_network(digits, TARGET).parts[0].network
    cache.write("ab", schedule_decisions)
    wrong: list[object] = []

    def work() -> None:
        for _ in range(30):
            cache.write("ab", schedule_decisions)
            if cache.read("ab", network, TARGET) != schedule_decisions:
                wrong.append(1)

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["ab.json"]


def test_candidates_add_up(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for number in range(5):
        found = Candidates()
        found.add(f"key{number}", Tiling(number + 2, 1.5, 2.5) if number else None)
        cache.add_candidates(TARGET, found)
    known = cache.candidates(TARGET).known
    assert known["key0"] is None and known["key4"] == Tiling(6, 1.5, 2.5) and len(known) == 5


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NPUC_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Cache.default() == Cache(tmp_path / "npuc")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Cache.default() == Cache(tmp_path / ".cache/npuc")
    monkeypatch.setenv("NPUC_CACHE", str(tmp_path / "other"))
    assert Cache.default() == Cache(tmp_path / "other")
    monkeypatch.setenv("NPUC_CACHE", "OFF")
    assert Cache.default() is None
