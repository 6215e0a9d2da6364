"""States: a sequence that comes a chunk at a time has the bits of the whole one, in Python and in C."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.cli.app import run_command
from npuc.codegen.compile_model import compile_program
from npuc.engine import FloatEngine
from npuc.errors import InputDataError, InternalError, UsageError
from npuc.flow import network_to_quantize, save_graph, schemes_of
from npuc.frontend.options import ImportOptions
from npuc.ir import npu
from npuc.ir.states import parse_states, set_states
from npuc.ir.text import parse_graph, print_graph
from npuc.native import library
from npuc.program.file import load_compiled, save_compiled
from npuc.program.model import CpuSubgraph, State
from npuc.quant import quantize
from npuc.quant.config import QuantizationConfig
from npuc.runtime import Pool, Runner
from support.networks.streams import CHUNK, CHUNKS, EDGE, HIDDEN, STATES, compiled, network, sequence


@pytest.mark.parametrize(("cell", "packed"), STATES, ids=str)
@pytest.mark.parametrize("raw", [False, True])
def test_chunks_have_the_bits_of_the_whole_sequence(cell: str, packed: bool, raw: bool) -> None:
    if raw and packed:
        pytest.skip("the packed state is a tensor of reals")
    x = sequence()
    pairs = STATES[cell, packed]
    with (
        Runner(compiled(cell, CHUNK * CHUNKS, packed), raw=raw) as whole,
        Runner(compiled(cell, CHUNK, packed), raw=raw) as chunks,
    ):
        if raw:
            (info, *_) = chunks.input_tensors
            x = np.round(x / info.scale + info.zero_point).clip(-128, 127).astype(np.int8)
        expected = whole.run({"x": x})
        for _ in range(2):
            parts = [chunks.run({"x": x[i : i + CHUNK]}) for i in range(0, len(x), CHUNK)]
            np.testing.assert_array_equal(np.concatenate([part["y"] for part in parts]), expected["y"])
            for name, output in pairs.items():
                np.testing.assert_array_equal(parts[-1][output], expected[output])
                np.testing.assert_array_equal(chunks.states[name], expected[output])
            again = chunks.run({"x": x[:CHUNK]})
            assert (again["y"] != parts[0]["y"]).any()  # the stream goes on
            chunks.reset()


def test_a_state_that_is_given_is_taken_instead() -> None:
    x = sequence()[:CHUNK]
    with Runner(compiled("lstm", CHUNK)) as runner:
        first = runner.run([x])
        second = runner.run(x)
        runner.reset()
        given = {"h": first["h_out"], "c": first["c_out"]}
        np.testing.assert_array_equal(runner.run({"x": x, **given})["y"], second["y"])
        job = runner.execute_async({"x": x, **given})
        np.testing.assert_array_equal(job.result()["y"], second["y"])
        with pytest.raises(InputDataError, match="takes shape"):
            runner.run([x, x])
        with pytest.raises(InputDataError, match="the model takes x, h, c"):
            runner.run({"z": x})


def test_a_pool_has_no_streams() -> None:
    with pytest.raises(UsageError, match="carries states"):
        Pool(compiled("gru", CHUNK), ["simulated"])


def test_files_keep_states_and_check_them(tmp_path: Path) -> None:
    model = compiled("lstm", CHUNK)
    path = save_compiled(model, tmp_path / "m.npu") or tmp_path / "m.npu"
    assert load_compiled(path).states == model.states and len(model.states) == 2
    assert not any(isinstance(part, CpuSubgraph) for part in model.subgraphs)
    wrong = {
        "different types": [State("x", "h_out")],
        "not an input and an output": [State("h_out", "h_out")],
        "another state": [State("h", "h_out"), State("h", "c_out")],
    }
    for words, states in wrong.items():
        with pytest.raises(InternalError, match=words):
            save_compiled(replace(model, states=tuple(states)), tmp_path / "wrong.npu")


def test_the_text_of_a_program_has_its_states() -> None:
    graph = network("gru", CHUNK)
    set_states(graph, {"h": "h_out"})
    assert parse_graph(print_graph(graph), graph.weights).states == {"h": "h_out"}
    assert graph.copy().states == {"h": "h_out"}


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["h"], "'h' is no state"),
        (["h=h_out", "h=y"], "already"),
        (["g=h_out"], "no input 'g'"),
        (["h=out"], "no output 'out'"),
        (["h=y"], "is to be in the next run"),
    ],
)
def test_what_is_no_state_is_refused(texts: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        set_states(network("gru", CHUNK), parse_states(texts))


def test_the_command_line_compiles_a_stream(tmp_path: Path, capsys: Any) -> None:
    save_graph(network("lstm", CHUNK), tmp_path / "m.mlir")
    base = [str(tmp_path / "m.mlir"), "--random", "--state", "h=h_out", "--state", "c=c_out", "-q"]
    assert run_command(["compile", *base, "--target", "edge-4t", "-o", str(tmp_path / "a.npu")]) == 0
    assert run_command(["quantize", *base, "--target", "edge-4t", "-o", str(tmp_path / "i.mlir")]) == 0
    integer = [str(tmp_path / "i.mlir"), "--target", "edge-4t", "-o", str(tmp_path / "b.npu"), "-q"]
    assert run_command(["compile", *integer]) == 0
    for name in ("a.npu", "b.npu"):
        assert [state.input for state in load_compiled(tmp_path / name).states] == ["h", "c"]
    assert run_command(["objdump", str(tmp_path / "a.npu"), "--no-instructions"]) == 0
    assert "input, from 'h_out' of the run before" in capsys.readouterr().out


class CModel:
    """A model through npu.h."""

    def __init__(self, path: Path) -> None:
        self.api = library()
        for name in ("npu_load", "npu_run", "npu_reset", "npu_state", "npu_set_runs", "npu_state_count"):
            getattr(self.api, name).restype = ctypes.c_int32
        self.model = ctypes.c_void_p()
        assert self.api.npu_load(str(path).encode(), ctypes.byref(self.model)) == 0

    def run(self, inputs: list[Array | None], outputs: list[Array | None]) -> int:
        def pointers(arrays: list[Array | None]) -> Any:
            return (ctypes.c_void_p * len(arrays))(*(None if a is None else a.ctypes.data for a in arrays))

        return int(self.api.npu_run(self.model, pointers(inputs), pointers(outputs)))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_c_api_carries_the_same_bits(cell: str, tmp_path: Path) -> None:
    x = sequence()
    model = compiled(cell, CHUNK)
    save_compiled(model, tmp_path / "m.npu")
    with Runner(compiled(cell, CHUNK * CHUNKS)) as whole:
        expected = whole.run({"x": x})
    c = CModel(tmp_path / "m.npu")
    count = len(model.states)
    assert c.api.npu_state_count(c.model) == count
    ends = ctypes.c_int32(-1), ctypes.c_int32(-1)
    for number, state in enumerate(model.states):
        assert c.api.npu_state(c.model, number, *map(ctypes.byref, ends)) == 0
        assert (model.inputs[ends[0].value], model.outputs[ends[1].value]) == (state.input, state.output)
    assert c.api.npu_state(c.model, count, *map(ctypes.byref, ends)) != 0
    assert c.api.npu_set_runs(c.model, 2) != 0
    y = np.zeros((CHUNK, 1, 1, HIDDEN), np.float32)
    last = np.zeros((1, 1, HIDDEN), np.float32)
    for _ in range(2):
        parts = []
        for i in range(0, len(x), CHUNK):
            assert c.run([x[i : i + CHUNK], *[None] * count], [y, last, *[None] * (count - 1)]) == 0
            parts.append(y.copy())
        np.testing.assert_array_equal(np.concatenate(parts), expected["y"])
        np.testing.assert_array_equal(last, expected["h_out"])
        assert c.api.npu_reset(c.model) == 0
    assert c.run([None] * (1 + count), [y, *[None] * count]) != 0  # x is no state
    c.api.npu_free(c.model)


def test_a_voice_detector_hears_frames_as_it_hears_the_whole_sound() -> None:
    spec = find_spec("silero_vad")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package silero_vad is not installed (see tests/requirements-models.txt)")
    file = Path(spec.submodule_search_locations[0]) / "data/silero_vad_16k_sequence.onnx"
    frames, width = 6, 576
    graphs = [
        network_to_quantize(file, ImportOptions(input_shapes={"input": (n, width)})) for n in (frames, 1)
    ]
    time = np.arange(frames * width) / 16000
    sound = np.sin(2 * np.pi * 150 * time) * np.abs(np.sin(9 * time)) * 0.3
    x = (sound + np.random.default_rng(0).normal(size=time.size) * 0.02).reshape(frames, width)
    zeros = np.zeros((1, 1, 128), np.float32)
    runs, last = [], []
    for graph in graphs:
        set_states(graph, {"h": "hn", "c": "cn"})
        count = graph.inputs[0].type.get_shape()[0]  # type: ignore[attr-defined]
        parts = [x[i : i + count].astype(np.float32) for i in range(0, frames, count)]
        # The float network, chunk by chunk: the same numbers, and so the same ranges.
        engine, real, seen = (
            FloatEngine(graph, fetch=graph.tensor_names(), threads=1),
            {"hn": zeros, "cn": zeros},
            [],
        )
        for part in parts:
            given = {"input": part, "h": real["hn"], "c": real["cn"]}
            real = engine.run(given)
            seen.append(given | real)
        last.append(real)
        ranges = {
            name: (
                round(min(float(run[name].min()) for run in seen), 3),
                round(max(float(run[name].max()) for run in seen), 3),
            )
            for name in seen[0]
        }
        # The spectrum's squares and their root span more than 16 bits hold: those layers stay float.
        front = [op for op in graph.ops if op.name in ("top.mul", "top.add", "top.sqrt")]
        schemes = schemes_of(graph, QuantizationConfig(), EDGE).as_float(front)
        integers = quantize(graph, ranges, schemes)
        assert any(isinstance(op, npu.LSTM) for op in integers.ops)
        done = compile_program(integers, EDGE)
        assert any(
            isinstance(op, npu.LSTM)
            for part in done.partition.parts
            if part.device == "npu"
            for op in part.ops
        )
        with Runner(done.model) as runner:
            chunks = [runner.run({"input": part}) for part in parts]
            runs.append((np.concatenate([chunk["speech_probs"] for chunk in chunks]), runner.states))
    (whole, states), (by_frame, others) = runs
    np.testing.assert_array_equal(by_frame, whole)
    for name, value in states.items():
        np.testing.assert_array_equal(others[name], value)
    for name, state in (("hn", "h"), ("cn", "c")):
        error = np.square(last[0][name] - states[state]).sum() / np.square(last[0][name]).sum()
        assert error < 0.1
