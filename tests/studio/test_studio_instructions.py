"""Instructions one by one: lines as objdump prints them, times of the simulator, waits as instructions, operands by object."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from npuc.errors import UsageError
from npuc.program.disassemble import lines, select
from npuc.program.file import load_compiled
from npuc.program.model import NpuSubgraph
from npuc.sim import simulate
from npuc.studio.instructions import WINDOW
from npuc.studio.project import Project
from npuc.studio.studio import Studio
from npuc.target import Target


@pytest.fixture(scope="module")
def rows(studio_files: Path) -> list[dict]:
    studio = Studio(Project(studio_files))
    ((count,),) = studio.stream_lengths("digits.npu")
    answers = [studio.instructions("digits.npu", 0, 0, first) for first in range(0, count, WINDOW)]
    assert all(answer["count"] == count for answer in answers)
    return [row for answer in answers for row in answer["rows"]]


def test_lines_are_those_of_objdump_and_times_those_of_the_simulator(studio_files: Path, rows):
    compiled = load_compiled(studio_files / "digits.npu")
    (stream,) = select(compiled)
    printed = list(lines(compiled, stream))
    assert [row["index"] for row in rows] == list(range(len(printed)))
    for row, line in zip(rows, printed, strict=True):
        assert row["text"] in line and row["queue"] in line and row["layer"] in line
    (core,) = simulate(compiled).subgraphs[0].cores
    assert [row["start"] for row in rows] == core.start.tolist()
    assert [row["end"] for row in rows] == core.end.tolist()


def test_nothing_starts_before_what_it_waits_for_has_ended(rows):
    by_queue: dict[str, list[int]] = {}
    waiting = 0
    for row in rows:
        for queue, index in row["waits"].items():
            assert rows[index]["queue"] == queue and index < row["index"]
            assert rows[index]["end"] <= row["issue"]
            assert row["index"] in rows[index]["followers"] or len(rows[index]["followers"]) == 8
            waiting += 1
        own = by_queue.setdefault(row["queue"], [])
        assert row["before"] == (own[-1] if own else -1)
        own.append(row["index"])
        if row["last"] >= 0:
            causes = [*row["waits"].values(), row["before"]]
            assert rows[row["last"]]["end"] == max(rows[one]["end"] for one in causes if one >= 0)
    assert waiting > 10 and len(by_queue) >= 3


def test_operands_lie_in_objects_of_local_memory_and_of_dram(studio_files: Path, rows):
    compiled = load_compiled(studio_files / "digits.npu")
    memory = Target.from_dict(compiled.target, where="digits").memory.local
    size, banks = int(memory.size), int(memory.banks)
    tensors = {tensor.name: tensor for tensor in compiled.tensors}
    local = far = 0
    for row in rows:
        for operand in row["operands"]:
            if operand["memory"] == "local":
                assert operand["from"] <= operand["address"] < operand["from"] + operand["size"] <= size
                assert operand["bank"] == operand["address"] // (size // banks) <= operand["last_bank"]
                local += 1
            else:
                tensor = tensors.get(operand["object"])
                if tensor is not None:
                    end = operand["address"] + operand["size"]
                    assert tensor.offset <= operand["address"] and end <= tensor.offset + tensor.size
                far += 1
    assert local > 20 and far > 5
    stores = [row for row in rows if row["op"] == "store"]
    (part,) = (one for one in compiled.subgraphs if isinstance(one, NpuSubgraph))
    assert stores[-1]["operands"][-1]["object"] in part.outputs


def test_spans_of_the_timeline_name_their_instructions(studio_files: Path, rows):
    data = Studio(Project(studio_files)).time("digits.npu")
    seen = set()
    for lane in data["lanes"]:
        assert lane["parts"] == [0]
        for start, end, index in zip(lane["start"], lane["end"], lane["index"], strict=True):
            assert (rows[index]["start"], rows[index]["end"], rows[index]["queue"]) == (
                start,
                end,
                lane["queue"],
            )
            seen.add(index)
    assert seen == {row["index"] for row in rows if row["end"] > row["start"]}


def test_what_is_not_there_is_refused(client, studio_files: Path):
    client.enter()
    good = client.json("/api/instructions?file=digits.npu&part=0&core=0&first=0")
    assert len(good["rows"]) == min(WINDOW, good["count"]) and json.dumps(good, allow_nan=False)
    for rest in ("part=9", "core=9", "first=999999", "first=x", "part=-1"):
        assert client.refusal(f"/api/instructions?file=digits.npu&{rest}")[0] == 400
    assert client.refusal("/api/instructions?file=digits.onnx")[0] == 400
    with pytest.raises(UsageError, match="no core 3"):
        Studio(Project(studio_files)).instructions("digits.npu", 0, 3, 0)
    assert np.all([row["text"] for row in good["rows"]])
