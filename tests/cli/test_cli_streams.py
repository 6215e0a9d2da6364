"""Streaming programs on the command line and as standalone C: states are carried, and nobody has to give them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.calib.feeding import Feeder
from npuc.calib.sources import open_data
from npuc.cli.app import run_command
from npuc.deploy.c import export_c
from npuc.engine import FloatEngine
from npuc.flow import save_graph
from npuc.ir.states import set_states
from npuc.program.file import load_compiled, save_compiled
from npuc.runtime import Runner
from support.networks.streams import CHUNK, CHUNKS, HIDDEN, compiled, integers, network, sequence
from support.programs.c_applications import build, surroundings


@pytest.fixture(scope="module")
def files(tmp_path_factory: Any) -> Path:
    """An LSTM for chunks as a program and as an integer network, for the whole sequence as a program, and the sequence."""
    folder: Path = tmp_path_factory.mktemp("streams")
    save_compiled(compiled("lstm", CHUNK), folder / "chunks.npu")
    save_compiled(compiled("lstm", CHUNK * CHUNKS), folder / "whole.npu")
    save_graph(integers("lstm", CHUNK), folder / "chunks.mlir")
    np.savez(folder / "x.npz", x=sequence())
    return folder


def outputs(folder: Path, model: str, *more: str) -> dict[str, Array]:
    """What `npuc run` writes."""
    given = [str(folder / model), "-o", str(folder / "out.npz"), "-q", *more]
    assert run_command(["run", *given]) == 0
    with np.load(folder / "out.npz") as file:
        return dict(file)


@pytest.mark.parametrize(
    ("model", "raw"), [("chunks.npu", False), ("chunks.npu", True), ("chunks.mlir", False)]
)
def test_run_carries_states_through_a_sequence(files: Path, model: str, raw: bool) -> None:
    more = ["--raw"] if raw else []
    whole = outputs(files, "whole.npu", "-i", str(files / "x.npz"), *more)
    parts = outputs(files, model, "-i", str(files / "x.npz"), *more)
    np.testing.assert_array_equal(parts["y"].reshape(whole["y"].shape), whole["y"])
    for name in ("h_out", "c_out"):
        assert len(parts[name]) == CHUNKS
        np.testing.assert_array_equal(parts[name][-1].reshape(-1), whole[name].reshape(-1))


def test_a_state_that_is_given_once_begins_the_sequence(files: Path) -> None:
    x = sequence()
    whole = outputs(files, "whole.npu", "-i", str(files / "x.npz"))
    first = outputs(files, "chunks.npu", "-i", str(files / "x.npz"))
    state = {"h": first["h_out"][0], "c": first["c_out"][0]}
    np.savez(files / "later.npz", x=x[CHUNK:], **state)
    later = outputs(files, "chunks.npu", "-i", str(files / "later.npz"))
    np.testing.assert_array_equal(later["y"].reshape(-1), whole["y"][CHUNK:].reshape(-1))


def test_a_stream_takes_whole_chunks_and_random_data_has_no_states(files: Path, capsys: Any) -> None:
    np.savez(files / "short.npz", x=sequence()[:-1])
    assert run_command(["run", str(files / "chunks.npu"), "-i", str(files / "short.npz")]) == 2
    assert f"takes {CHUNK} rows at a time" in capsys.readouterr().err
    random = outputs(files, "chunks.npu", "--random")
    rng = np.random.default_rng([0, 0])
    with Runner(files / "chunks.npu") as runner:
        expected = runner.run({"x": rng.random((CHUNK, 1, 5)).astype(np.float32)})
    np.testing.assert_array_equal(random["y"].reshape(-1), expected["y"].reshape(-1))


def test_layers_are_dumped_and_compared_without_states(files: Path, tmp_path: Path) -> None:
    model, data = str(files / "chunks.npu"), ["-i", str(files / "x.npz")]
    assert run_command(["run", model, *data, "--dump-layers", str(tmp_path / "dump"), "-q"]) == 0
    assert (
        run_command(["run", str(files / "chunks.mlir"), *data, "--golden", str(tmp_path / "dump"), "-q"]) == 0
    )
    assert (
        run_command(["diff", str(files / "chunks.mlir"), model, "--input", str(files / "x.npz"), "-q"]) == 0
    )


def test_calibration_carries_the_states_of_the_float_network(files: Path, tmp_path: Path) -> None:
    graph = network("lstm", CHUNK)
    set_states(graph, {"h": "h_out", "c": "c_out"})
    batches = list(Feeder(graph, open_data(graph, files / "x.npz")).batches())
    with_states = FloatEngine(network("lstm", CHUNK * CHUNKS), threads=1)
    zeros = {"h": np.zeros((1, 1, HIDDEN), np.float32), "c": np.zeros((1, 1, HIDDEN), np.float32)}
    expected = with_states.run({"x": sequence(), **zeros})["y"]
    engine = FloatEngine(graph, threads=1)
    chunks = [engine.run(batch.inputs)["y"] for batch in batches]
    np.testing.assert_allclose(np.concatenate(chunks), expected, atol=1e-6)
    save_graph(network("lstm", CHUNK), tmp_path / "m.mlir")
    given = [
        "--data",
        str(files / "x.npz"),
        "--state",
        "h=h_out",
        "--state",
        "c=c_out",
        "--target",
        "edge-4t",
        "-q",
    ]
    assert run_command(["compile", str(tmp_path / "m.mlir"), *given, "-o", str(tmp_path / "m.npu")]) == 0


def test_sim_needs_no_states(files: Path) -> None:
    assert run_command(["sim", str(files / "chunks.npu"), "--sanitize", "-q"]) == 0


def cosine_of(model: Path, data: Path, capsys: Any, *more: str) -> float:
    """How like a model is to the outputs in the data set."""
    given = [str(model), "--data", str(data), "--metric", "cosine", "--workers", "1", "--json", *more]
    assert run_command(["eval", *given]) == 0
    return float(json.loads(capsys.readouterr().out)["figures"][0]["models"][0]["value"])


@pytest.mark.parametrize("model", ["chunks.npu", "chunks.mlir"])
def test_eval_runs_a_sample_as_a_sequence(files: Path, tmp_path: Path, capsys: Any, model: str) -> None:
    sounds = [sequence(seed) for seed in (3, 4)]
    with Runner(files / "whole.npu") as whole:
        wanted = [(whole.reset(), whole.run({"x": x})["y"])[1] for x in sounds]
    np.savez(tmp_path / "sounds.npz", x=np.stack(sounds), **{"output:y": np.stack(wanted)})
    assert cosine_of(files / model, tmp_path / "sounds.npz", capsys) == pytest.approx(1, abs=1e-12)
    # The chunks of one sound, each a sample of its own.
    chunks = {"x": sounds[0].reshape(CHUNKS, CHUNK, 1, -1)}
    np.savez(
        tmp_path / "chunks.npz", **chunks, **{"output:y": wanted[0].reshape(CHUNKS, CHUNK, 1, 1, HIDDEN)}
    )
    assert cosine_of(files / model, tmp_path / "chunks.npz", capsys, "--stream") == pytest.approx(
        1, abs=1e-12
    )
    assert cosine_of(files / model, tmp_path / "chunks.npz", capsys) < 0.99999
    for option, value in (("--resume", str(tmp_path / "j")), ("--seed", "1")):
        given = [str(files / model), "--data", str(tmp_path / "chunks.npz"), "--stream", option, value]
        assert run_command(["eval", *given]) == 2
        assert "--stream runs the samples in their order" in capsys.readouterr().err


def exported(folder: Path, path: Path) -> Path:
    """The standalone application of the program for chunks, whose main reads chunks and writes what comes of them."""
    export_c(
        load_compiled(folder / "chunks.npu"), (folder / "chunks.npu").read_bytes(), path, standalone=True
    )
    (path / "main.c").write_text(MAIN)
    build(path)
    return path


MAIN = r"""
#include <stdio.h>

#include "data.h"

static _Alignas(64) unsigned char arena[ARENA_BYTES];
static float x[64], y[64], h[64];

int main(void)
{
    npu_model *model;
    if (npu_init(model_data, model_size, &model_needs, arena, sizeof arena, &model)) return 2;
    int32_t input, output;
    if (npu_state_count(model) != 2 || npu_state(model, 0, &input, &output) || input != 1 || output != 1) return 3;
    if (npu_state(model, 1, &input, &output) || input != 2 || output != 2 || !npu_state(model, 2, &input, &output)) return 4;
    const size_t in = npu_input(model, 0)->size, out = npu_output(model, 0)->size, state = npu_output(model, 1)->size;
    if (in > sizeof x || out > sizeof y || state > sizeof h) return 5;
    for (int stream = 0; stream < 2; stream++) {
        for (int chunk = 0; chunk < 4; chunk++) {
            const void *inputs[] = {x, NULL, NULL};
            void *outputs[] = {y, h, NULL};
            if (fread(x, 1, in, stdin) != in || npu_run(model, inputs, outputs)) return 6;
            fwrite(y, 1, out, stdout);
        }
        fwrite(h, 1, state, stdout);
        if (npu_reset(model)) return 7;
    }
    return 0;
}
"""


def test_standalone_c_carries_states(files: Path, tmp_path: Path) -> None:
    app = exported(files, tmp_path / "app")
    x = sequence()
    done = subprocess.run(
        ["./app"], cwd=app, input=2 * x.tobytes(), capture_output=True, env=surroundings(), timeout=60
    )
    assert done.returncode == 0, done
    with Runner(files / "whole.npu") as whole:
        expected = whole.run({"x": x})
    each = np.frombuffer(done.stdout, np.float32).reshape(2, -1)
    for stream in each:
        np.testing.assert_array_equal(stream[:-HIDDEN], expected["y"].reshape(-1))
        np.testing.assert_array_equal(stream[-HIDDEN:], expected["h_out"].reshape(-1))
