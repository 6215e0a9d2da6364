"""A schedule as a file: what is written gives the same program again, and what is pinned is done or refused in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from npuc.calib.random_inputs import random_inputs
from npuc.calib.sources import random_data
from npuc.codegen.compile_model import Compilation, CompileOptions, compile_program
from npuc.engine import IntegerEngine
from npuc.errors import NpucError, ScheduleError
from npuc.flow import network_to_quantize, quantize_network, ranges_from, schemes_of
from npuc.ir import Graph
from npuc.program.file import save_compiled
from npuc.schedule.cost import Costs
from npuc.schedule.grouping import Grouping
from npuc.schedule.pins import Pins
from npuc.schedule.schedule_file import ScheduleFile, describe, resolve
from npuc.schedule.tiler import Choices, Tiler
from npuc.sim import run, sanitize
from npuc.target import Target, load_target

TILED = [{"layers": ["stem/relu", "block1/depthwise/relu"], "tiles": 2}]


@pytest.fixture(scope="module")
def digits(root: Path) -> Graph:
    """The demo network in integers of 8 bits."""
    return integers(network_to_quantize(root / "examples/digits.onnx"))


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Four convolutions of a picture of 64 x 64 with 16 channels."""
    weight = np.random.default_rng(1).standard_normal((16, 16, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", [f"x{i}", "w"], [f"x{i + 1}"], name=f"conv{i}", pads=[1, 1, 1, 1])
        for i in range(4)
    ]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 16, 64, 64]) for n in ("x0", "x4")]
    graph = helper.make_graph(nodes, "chain", ports[:1], ports[1:], [numpy_helper.from_array(weight, "w")])
    path = tmp_path_factory.mktemp("chain") / "chain.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return integers(network_to_quantize(path))


def integers(graph: Graph) -> Graph:
    """A network quantized with ranges of random data."""
    target = load_target("edge-4t")
    ranges = ranges_from(graph, random_data(graph, 1, None), schemes_of(graph, None, target), "max")
    return quantize_network(graph, ranges, None, target).graph


def small(local: int) -> Target:
    """edge-4t with less local memory."""
    described: dict[str, Any] = load_target("edge-4t").to_dict()
    described["memory"]["local"]["size"] = local
    return Target.from_dict(described, where="a test")


def load(text: str, folder: Path) -> ScheduleFile:
    path = folder / "schedule.yaml"
    path.write_text(text)
    return ScheduleFile.load(path)


def pinned(**fields: Any) -> ScheduleFile:
    return ScheduleFile.model_validate(fields)


def text_of(done: Compilation, target: str) -> str:
    return describe(
        {
            p.name: (p.scheduled.schedule_decisions, [layer.name for layer in p.network.layers])
            for p in done.parts
        },
        target,
    )


def file_of(done: Compilation, folder: Path) -> bytes:
    save_compiled(done.model, folder / "model.npu")
    return (folder / "model.npu").read_bytes()


def groups_of(done: Compilation) -> list[tuple[list[str], int]]:
    names = [layer.name for layer in done.parts[0].network.layers]
    groups = done.parts[0].scheduled.schedule_decisions.decisions.groups
    return [(names[group.first : group.last], group.tiles) for group in groups]


def refusal(digits: Graph, schedule: ScheduleFile, target: Target | None = None, level: int = 2) -> str:
    with pytest.raises(ScheduleError) as caught:
        compile_program(digits, target or load_target("edge-4t"), CompileOptions(level, schedule=schedule))
    return str(caught.value)


@pytest.mark.parametrize("name", ["edge-1t", "server-32t", "small"])
@pytest.mark.parametrize("level", [0, 2])
def test_a_schedule_that_was_written_gives_the_same_bytes(
    digits: Graph, tmp_path: Path, name: str, level: int
) -> None:
    target = small(8 << 10) if name == "small" else load_target(name)
    first = compile_program(digits, target, CompileOptions(level))
    schedule = load(text_of(first, name), tmp_path)
    again = compile_program(digits, target, CompileOptions(level, schedule=schedule))
    assert file_of(again, tmp_path) == file_of(first, tmp_path)
    assert text_of(again, name) == text_of(first, name)


def test_a_schedule_on_several_cores_gives_the_same_bytes(digits: Graph, tmp_path: Path) -> None:
    target = load_target("server-32t")
    schedule = pinned(cores=4)
    first = compile_program(digits, target, CompileOptions(1, schedule=schedule))
    assert len(first.parts[0].scheduled.streams) == 4
    again = compile_program(
        digits, target, CompileOptions(2, schedule=load(text_of(first, "server-32t"), tmp_path))
    )
    assert again.parts[0].scheduled.schedule_decisions == first.parts[0].scheduled.schedule_decisions
    assert len(again.parts[0].scheduled.streams) == 4


def test_pinned_groups_are_made_and_the_rest_is_searched_for(digits: Graph) -> None:
    target = load_target("edge-4t")
    free = compile_program(digits, target)
    assert (TILED[0]["layers"], 2) not in groups_of(free)
    done = compile_program(digits, target, CompileOptions(schedule=pinned(groups=TILED)))
    assert groups_of(done)[0] == (TILED[0]["layers"], 2)
    assert sum(len(layers) for layers, _ in groups_of(done)) == len(done.parts[0].network.layers)
    assert sanitize(done.model) == []
    inputs = random_inputs(digits)
    np.testing.assert_array_equal(
        run(done.model, inputs)["logits"], IntegerEngine(digits).run(inputs)["logits"]
    )


def test_several_layers_of_one_tile_run_whole_and_keep_what_is_between_them(digits: Graph) -> None:
    one = {"layers": ["stem/relu", "block1/depthwise/relu"], "resident_results": False}
    done = compile_program(digits, load_target("edge-4t"), CompileOptions(schedule=pinned(groups=[one])))
    decisions = done.parts[0].scheduled.schedule_decisions.decisions
    assert [group.tiles for group in decisions.groups[:2]] == [1, 1]
    assert decisions.resident[:2] == (True, False)


def test_weights_that_are_streamed_are_loaded_for_every_tile(digits: Graph) -> None:
    target = load_target("edge-4t")
    layers = {"layers": ["stem/relu"], "tiles": 4}
    kept, streamed = (
        compile_program(
            digits,
            target,
            CompileOptions(schedule=pinned(groups=[{**layers, "resident_weights": resident}])),
        )
        for resident in (True, False)
    )
    loads = [len(done.parts[0].scheduled.works[0].loads) for done in (kept, streamed)]
    assert loads[1] == loads[0] + 3


def test_choices_and_memory_are_followed(digits: Graph) -> None:
    schedule = pinned(choices={"chunk": 2048, "most": 1}, memory=1 << 16, far=3)
    schedule_decisions = compile_program(
        digits, load_target("edge-4t"), CompileOptions(schedule=schedule)
    ).parts[0].scheduled.schedule_decisions  # fmt: skip
    assert schedule_decisions.choices == replace(Choices(), chunk=2048, most=1)
    assert (schedule_decisions.memory, schedule_decisions.decisions.spill_distance) == (1 << 16, 3)


def test_choices_are_part_of_what_is_written(digits: Graph, tmp_path: Path) -> None:
    target = load_target("edge-4t")
    usual = compile_program(digits, target)
    first = compile_program(digits, target, CompileOptions(schedule=pinned(choices={"chunk": 1024})))
    schedule = load(text_of(first, "edge-4t"), tmp_path)
    again = compile_program(digits, target, CompileOptions(schedule=schedule))
    assert file_of(again, tmp_path) == file_of(first, tmp_path) != file_of(usual, tmp_path)


def test_what_is_said_of_a_subgraph_goes_before_what_is_said_of_all() -> None:
    schedule = pinned(
        far=3,
        memory=4096,
        choices={"most": 2, "busy": 9},
        subgraphs={"npu1": {"far": 0, "choices": {"most": 5}}},
    )
    own, other = schedule.for_subgraph("npu1"), schedule.for_subgraph("npu3")
    assert (own.far, own.memory, own.choices.most, own.choices.busy) == (0, 4096, 5, 9)
    assert (other.far, other.memory, other.choices.most, other.choices.busy) == (3, 4096, 2, 9)


def test_the_halo_has_a_limit(chain: Graph) -> None:
    target = small(64 << 10)

    def overlap(schedule: ScheduleFile) -> float:
        part = compile_program(chain, target, CompileOptions(1, schedule=schedule)).parts[0]
        meter = Grouping(part.network, Tiler(Costs(target)), 1 << 20, pins=Pins(max_halo=0.0))
        groups = part.scheduled.schedule_decisions.decisions.groups
        return max(meter.overlap(group.first, group.last, group.tiles) for group in groups if group.tiles > 1)

    twice = {"seams": 1}  # groups that keep their seams do nothing twice
    free = overlap(pinned(choices=twice))
    assert free > 0.0
    assert overlap(pinned(max_halo=free / 2, choices=twice)) <= free / 2
    assert overlap(pinned(max_halo=0.0, choices=twice)) == 0.0


def test_names_that_are_not_there_are_refused_with_the_nearest(digits: Graph) -> None:
    words = refusal(digits, pinned(groups=[{"layers": ["stem/rel"]}]))
    assert "no layer 'stem/rel'" in words and "stem/relu" in words
    assert "npu1" in refusal(digits, pinned(subgraphs={"npu7": {}}))
    words = refusal(digits, pinned(subgraphs={"npu1": {"groups": [{"layers": ["pol"]}]}}))
    assert "subgraph 'npu1'" in words and "pool" in words


def test_layers_have_to_follow_each_other_and_be_in_one_group(digits: Graph) -> None:
    words = refusal(digits, pinned(groups=[{"layers": ["stem/relu", "pool"], "tiles": 2}]))
    assert "after 'stem/relu' runs 'block1/depthwise/relu', not 'pool'" in words
    words = refusal(digits, pinned(groups=[*TILED, {"layers": ["block1/depthwise/relu"]}]))
    assert "'block1/depthwise/relu' is in two groups" in words
    words = refusal(digits, pinned(groups=[{"layers": ["logits", "logits"], "tiles": 2}]))
    assert "after 'logits' runs nothing" in words


def test_tiles_that_cannot_be_are_refused_with_the_reason(digits: Graph) -> None:
    words = refusal(digits, pinned(groups=[{**TILED[0], "tiles": 9}]))
    assert "9 tiles" in words and "8 rows" in words
    words = refusal(digits, pinned(groups=[{"layers": ["head/pool"], "tiles": 2}]))
    assert "head/pool" in words and "tiles" in words


def test_tiles_that_do_not_fit_are_refused_with_the_bytes(digits: Graph) -> None:
    words = refusal(digits, pinned(groups=TILED), small(1 << 10))
    assert "bytes of local memory, and 1024 are available" in words and "more tiles" in words
    words = refusal(digits, pinned(groups=[{"layers": ["stem/relu"]}]), small(1 << 10))
    assert "'stem/relu' as a whole needs" in words
    assert "has 1024 bytes" in refusal(digits, pinned(memory=2048), small(1 << 10))


def test_what_contradicts_itself_is_refused(digits: Graph) -> None:
    assert "-O0" in refusal(digits, pinned(groups=TILED), level=0)
    assert "there are 1" in refusal(digits, pinned(cores=2))
    kept = [{"layers": ["stem/relu"], "resident_results": True}]
    words = refusal(digits, pinned(groups=kept, cores=4), load_target("server-32t"))
    assert "one core only" in words
    assert "copies" in refusal(digits, pinned(groups=[{"layers": ["stem/relu"], "moved": True}]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("groups: [", "not YAML"),
        ("grups: []", "groups"),
        ("groups: [{layers: []}]", "at least 1 item"),
        ("groups: [{layers: [a], tiles: 0}]", "greater than 0"),
        ("choices: {chunck: 3}", "chunk"),
        ("max_halo: -1", "greater than or equal to 0"),
        ("a: &a [x]\nb: *a", "aliases"),
        ("[1]", "dictionary"),
        ("!!python/object/apply:os.system ['true']", "not YAML"),
        ("\x00", "not YAML"),
    ],
)
def test_a_file_of_the_wrong_form_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(NpucError) as caught:
        load(text, tmp_path)
    assert words in str(caught.value) and "schedule.yaml" in str(caught.value)


def test_a_written_schedule_can_be_read_by_a_person(digits: Graph) -> None:
    found = yaml.safe_load(text_of(compile_program(digits, load_target("edge-4t")), "edge-4t"))
    first = found["subgraphs"]["npu1"]["groups"][0]
    assert first["layers"] == ["stem/relu"] and found["target"] == "edge-4t"


def test_an_empty_file_fixes_nothing(digits: Graph) -> None:
    network = compile_program(digits, load_target("edge-4t")).parts[0].network
    wanted = resolve(ScheduleFile().for_subgraph("npu1"), network, load_target("edge-4t"))
    assert not wanted.fixed and wanted.schedule_decisions is None
