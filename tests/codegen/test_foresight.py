"""Mistakes in the options of a compilation that are told before the network is quantized."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.codegen.compile_model import CompileOptions
from npuc.codegen.preflight import check_options
from npuc.errors import NpucError
from npuc.ir import Graph
from npuc.schedule.schedule_file import ScheduleFile
from npuc.target import load_target


def network() -> Graph:
    x = lang.input("x", (1, 3, 8, 8))
    y = lang.conv(x, np.ones((4, 3, 3, 3), np.float32), pads=1, name="stem/conv")
    return lang.build({"y": lang.relu(y, name="stem/relu")})


def check(devices: dict[str, str] | None = None, **schedule: Any) -> None:
    options = CompileOptions(devices=devices or {}, schedule=ScheduleFile.model_validate(schedule))
    check_options(network(), load_target("edge-4t"), options)


@pytest.mark.parametrize(
    "name",
    ["stem/conv", "stem/*", "*conv", "x/quantized", "stem/relu/requantized", "*/requantized", "stem/con[uv]"],
)
def test_names_that_the_integer_program_may_have_pass(name: str) -> None:
    check({name: "cpu"})


def test_a_schedule_that_may_hold_passes() -> None:
    groups = [{"layers": ["stem/conv", "stem/relu"]}, {"layers": ["stem/conv/requantized"]}]
    check(subgraphs={"npu1": {"groups": groups}}, groups=groups, cores=1, memory=2 << 20)


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ({"stem/con": "cpu"}, "nearest names are stem/conv"),
        ({"stm/conv": "npu"}, "no layer 'stm/conv'"),
        ({"head*": "cpu"}, "no layer 'head\\*'"),
        ({"stem/conv": "gpu"}, "devices are npu and cpu"),
        ({"constant1": "cpu"}, "no layer"),
    ],
)
def test_devices_that_cannot_be_are_refused(devices: dict[str, str], words: str) -> None:
    with pytest.raises(NpucError, match=words):
        check(devices)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ({"cores": 2}, "2 are asked for, and there are 1"),
        ({"subgraphs": {"npu1": {"local_memory": 3 << 20}}}, "has 2097152 bytes"),
        ({"subgraphs": {"nup1": {}}}, "no subgraph 'nup1'.*such as npu1"),
        ({"groups": [{"layers": ["stem/conf"]}]}, "no layer 'stem/conf'.*stem/conv"),
        (
            {"subgraphs": {"npu1": {"groups": [{"layers": ["stem/conv", "tail"]}]}}},
            "subgraph 'npu1': there is no layer 'tail'",
        ),
    ],
)
def test_schedules_that_cannot_be_are_refused(schedule: dict[str, Any], words: str) -> None:
    with pytest.raises(NpucError, match=words):
        check(**schedule)
