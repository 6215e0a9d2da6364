"""Programs for the BM1684X: what is emitted for each op, and its bits in the vendor's functional model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.codegen.compile_model import Compilation, CompileOptions, compile_program
from npuc.errors import DeviceError, WrongTargetError
from npuc.flow import import_model, quantize_network
from npuc.ir import Graph, result_names, shape_of, top
from npuc.program.bm1684x.bmodel import read_bmodel
from npuc.program.bm1684x.listing import streams
from npuc.program.file import load_compiled, save_compiled
from npuc.program.model import ChipSubgraph, CpuSubgraph
from npuc.runtime import Runner
from npuc.runtime.engine import device_for
from npuc.schedule.bm1684x.cycles import timeline
from npuc.sim.functional import Simulator
from npuc.target import load_target
from support.sophgo import assert_equal_on_chip

TARGET = load_target("bm1684x")


def integers(graph: Graph, spread: float = 6.0, **own: tuple[float, float]) -> Graph:
    """The network as integers, by made-up ranges."""
    ranges = {port.name: (-1.0, 1.5) for port in graph.inputs}
    for op in graph.ops:
        if not isinstance(op, top.WeightOp):
            ranges |= dict.fromkeys(result_names(op), (-spread, spread))
    return quantize_network(graph, ranges | own, None, TARGET).graph


def weights(seed: int, *shape: int, scale: float = 1.0) -> Array:
    """Constants, the same in every run."""
    return (np.random.default_rng(seed).uniform(-1, 1, shape) * scale).astype(np.float32)


def compiled(graph: Graph) -> Compilation:
    """All of it on the chip."""
    return compile_program(graph, TARGET, CompileOptions(npu_only=True))


def check(graph: Graph, spread: float = 6.0) -> Compilation:
    """Compile a float network and compare the chip with graph mode."""
    done = compiled(quantized := integers(graph, spread))
    rng = np.random.default_rng(1)
    inputs = {
        port.name: rng.uniform(-1, 1.5, shape_of(port.value)).astype(np.float32) for port in quantized.inputs
    }
    assert_equal_on_chip(quantized, done, inputs)
    return done


def small() -> Graph:
    x = lang.input("x", (1, 3, 20, 14))
    y = lang.conv(x, weights(1, 16, 3, 3, 3), weights(2, 16), strides=2, pads=1, relu=True, name="stem")
    left = lang.conv(y, weights(3, 70, 16, 3, 3, scale=0.3), pads=1, name="left")
    right = lang.conv(y, weights(4, 70, 16, 1, 1, scale=0.3), name="right")
    return lang.build({"y": left + right})


def test_the_program_is_a_bmodel_whose_commands_are_known() -> None:
    done = compiled(integers(small()))
    (chip,) = (part for part in done.model.subgraphs if isinstance(part, ChipSubgraph))
    found = streams(read_bmodel(chip.program))
    names = [command.form.name for command in found["tiu"]]
    assert names.count("CONV") == 3 and names[-1] == "TIU_END"
    assert found["gdma"][-1].form.name == "GDMA_END"
    assert [command.values["cmd_id"] for command in found["tiu"]] == list(range(1, len(names) + 1))


def test_a_model_is_written_and_read(tmp_path: Path) -> None:
    done = compiled(integers(small()))
    save_compiled(done.model, tmp_path / "a.npu")
    again = load_compiled(tmp_path / "a.npu")
    assert again.subgraphs == done.model.subgraphs and device_for(again) == "bm1684x-model"
    with pytest.raises(WrongTargetError, match="program of bm1684x itself"):
        Simulator(again)


def test_compiling_twice_gives_the_same_bytes() -> None:
    one, other = compiled(integers(small())), compiled(integers(small()))
    assert one.model.subgraphs == other.model.subgraphs


def test_without_the_wheel_the_device_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NPUC_SOPHGO", str(tmp_path))
    with pytest.raises(DeviceError, match="make peers-sophgo"):
        Runner(compiled(integers(small())).model, "bm1684x-model")


def test_what_has_no_commands_is_on_the_cpu_with_the_reason() -> None:
    x = lang.input("x", (1, 4, 8, 8))
    y = lang.conv(x, weights(1, 8, 4, 3, 3), pads=1, name="a")
    y = lang.layer_norm(y, axis=1, name="s")
    done = compile_program(integers(lang.build({"y": y})), TARGET, CompileOptions(island_threshold=0))
    (host,) = (part for part in done.model.subgraphs if isinstance(part, CpuSubgraph))
    assert "no commands of the BM1684X for a layer norm" in host.reasons["s"]


# --- in the vendor's functional model -------------------------------------------------------------------------------------


def test_convolutions_and_a_sum() -> None:
    check(small())


def test_the_demo_network(root: Path) -> None:
    graph = import_model(root / "examples" / "digits.onnx")
    check(graph, 12.0)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((1, 8, 9, 11), 1), ((2, 5, 4, 3), 1), ((1, 3, 17, 20), 3), ((1, 70, 6, 6), 1), ((1, 300), 1), ((5, 7), 1),
        ((1, 120, 2), 2), ((2, 70, 5), 2), ((1, 197, 33), 2), ((3, 1), 1), ((1, 4, 5, 6), 2), ((2, 7, 3), 1), ((6, 4), 0),
    ],
)  # fmt: skip
def test_softmax(shape: tuple[int, ...], axis: int) -> None:
    """Along channels and along the innermost axis; rows of one element, too, whose softmax is one."""
    x = lang.input("x", shape)
    graph = integers(lang.build({"y": lang.softmax(x * 4.0, axis=axis, name="s")}), s=(0.0, 1.0))
    inputs = {"x": np.random.default_rng(1).uniform(-1, 1.5, shape).astype(np.float32)}
    assert_equal_on_chip(graph, compiled(graph), inputs, distinct=min(shape[axis], 3))


@pytest.mark.parametrize(
    ("shape", "factors", "coordinates"),
    [
        ((1, 5, 7, 9), (2, 2), "half_pixel"), ((2, 70, 5, 6), (4, 3), "half_pixel"), ((1, 3, 8, 8), (2, 4), "asymmetric"),
        ((1, 8, 1, 1), (6, 5), "half_pixel"), ((1, 64, 60, 60), (2, 2), "half_pixel"),
    ],
)  # fmt: skip
def test_bilinear_resize(shape: tuple[int, ...], factors: tuple[int, int], coordinates: str) -> None:
    sizes = (*shape[:2], shape[2] * factors[0], shape[3] * factors[1])
    x = lang.input("x", shape)
    y = lang.resize(x * 1.5, sizes=sizes, mode="linear", coordinates=coordinates, name="r")
    check(lang.build({"y": y}), 3.0)


def test_a_bilinear_resize_by_a_fraction_stays_float() -> None:
    x = lang.input("x", (1, 4, 8, 8))
    y = lang.resize(x * 1.5, sizes=(1, 4, 12, 12), mode="linear", name="r")
    done = compile_program(integers(lang.build({"y": y})), TARGET, CompileOptions(island_threshold=0))
    (host,) = (part for part in done.model.subgraphs if isinstance(part, CpuSubgraph))
    assert "whole factors" in host.reasons["r"]


def test_short_rows_share_lanes() -> None:
    """Boxes of a detector: turned, joined, parted, scaled, joined again, as the last layers of SSD do it."""
    x = lang.input("x", (1, 3, 16, 16))
    parts = []
    for number, (height, anchors) in enumerate(((16, 3), (8, 2))):
        stride = 16 // height
        y = lang.conv(
            x, weights(number, 4 * anchors, 3, 3, 3, scale=0.4), strides=stride, pads=1, name=f"c{number}"
        )
        y = lang.permute(y, order=(0, 2, 3, 1))
        parts.append(lang.reshape(y, shape=(1, height * height * anchors, 4)))
    boxes = lang.concat(parts, axis=1, name="boxes")
    left, right = lang.split(boxes, sizes=(2, 2), axis=2)
    anchors_ = weights(7, 1, 896, 2)
    centre = left * 0.5 + anchors_
    size = lang.sigmoid(right) * weights(8, 2)
    y = lang.concat([centre - size, centre + size], axis=2, name="y")
    graph = lang.build(
        {"y": y, "cut": lang.slice(boxes, offset=(0, 5, 0), steps=(1, 1, 1), shape=(1, 695, 4))}
    )
    done = check(graph, 4.0)
    (schedule,) = (chip.schedule for chip in done.chips)
    assert timeline(schedule.commands).total < 20_000


@pytest.mark.parametrize(("axes", "keepdims"), [((1,), True), ((2,), True), ((2,), False)])
def test_reductions_of_short_rows(axes: tuple[int, ...], keepdims: bool) -> None:
    x = lang.input("x", (1, 120, 5))
    check(lang.build({"y": lang.reduce(x * 2.0, kind="mean", axes=axes, keepdims=keepdims, name="r")}), 3.0)


@pytest.mark.parametrize("other", [(7,), (1, 1, 7), (1, 96, 1), (96, 7)])
@pytest.mark.parametrize("rows", [96, 1])
def test_sums_of_rows_that_are_repeated(rows: int, other: tuple[int, ...]) -> None:
    """An operand of fewer axes lies in other lanes than the result."""
    if rows == 1:
        other = tuple(min(size, 7) for size in other if size != 96) or (7,)
    x = lang.input("x", (1, rows, 7))
    check(lang.build({"y": x * 1.5 + weights(3, *other)}), 4.0)


def test_a_softmax_of_longer_rows_stays_float() -> None:
    x = lang.input("x", (1, 9000))
    graph = integers(lang.build({"y": lang.softmax(x * 4.0, axis=1, name="s")}), s=(0.0, 1.0))
    done = compile_program(graph, TARGET, CompileOptions(island_threshold=0))
    reasons = [part.reasons for part in done.model.subgraphs if isinstance(part, CpuSubgraph)]
    assert any("up to 8,192 elements" in reason for each in reasons for reason in each.values()), reasons


@pytest.mark.parametrize(
    ("kind", "axes", "keepdims"),
    [
        ("mean", (2, 3), True), ("mean", (2, 3), False), ("sum", (3,), True), ("mean", (2,), True), ("mean", (1,), True),
        ("max", (2, 3), True), ("max", (3,), False),
    ],
)  # fmt: skip
def test_reductions(kind: str, axes: tuple[int, ...], keepdims: bool) -> None:
    x = lang.input("x", (1, 3, 9, 11))
    y = lang.conv(x, weights(1, 70, 3, 3, 3, scale=0.4), pads=1, name="a")
    check(lang.build({"y": lang.reduce(y, kind=kind, axes=axes, keepdims=keepdims, name="r")}), 3.0)


@pytest.mark.parametrize(
    ("kind", "axes", "keepdims", "words"),
    [
        ("min", (2, 3), True, "greatest element along height and width only"),
        ("mean", (1,), False, "other channels than its operand"),
    ],
)
def test_reductions_that_have_no_commands_say_why(
    kind: str, axes: tuple[int, ...], keepdims: bool, words: str
) -> None:
    x = lang.input("x", (1, 8, 9, 11))
    y = lang.conv(x, weights(1, 8, 8, 3, 3, scale=0.4), pads=1, name="a")
    graph = integers(lang.build({"y": lang.reduce(y, kind=kind, axes=axes, keepdims=keepdims, name="r")}))
    done = compile_program(graph, TARGET, CompileOptions(island_threshold=0))
    (host,) = (part for part in done.model.subgraphs if isinstance(part, CpuSubgraph))
    assert any(words in reason for reason in host.reasons.values()), host.reasons
