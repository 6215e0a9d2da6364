"""`npuc compile`, `npuc sim`, and `npuc run` on what they make: from a model file to results, and every wrong turn."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.cli.console import size
from npuc.program.file import load_compiled

CHILD = """
import os, signal, sys
from npuc.cli.app import main
real, left = os.replace, int(sys.argv[1])
def replace(a, b):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    real(a, b)
os.replace = replace
main(sys.argv[2:])
"""
"""npuc, killed at the n-th file that it finishes."""


@pytest.fixture(autouse=True)
def cache(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for each test."""
    folder = here / "cache"
    monkeypatch.setenv("NPUC_CACHE", str(folder))
    return folder


@pytest.fixture(scope="module")
def digits(root: Path) -> Path:
    """The demo network."""
    return root / "examples/digits.onnx"


@pytest.fixture
def integers(npuc: Any, here: Path, digits: Path) -> Path:
    """The demo network in integers."""
    done = npuc(
        "quantize", digits, "--random", "--max-count", 2, "--target", "edge-4t", "-o", here / "int.mlir", "-q"
    )
    assert done.status == 0, done.err
    return here / "int.mlir"


@pytest.fixture
def compiled(npuc: Any, here: Path, integers: Path) -> Path:
    """The demo network, compiled."""
    assert npuc("compile", integers, "--target", "edge-4t", "-o", here / "model.npu", "-q").status == 0
    return here / "model.npu"


def test_a_limit_of_local_memory_is_kept_and_reported(npuc: Any, here: Path, integers: Path) -> None:
    used = []
    for limit in ((), ("--local-memory", "12KiB")):
        done = npuc("compile", integers, "--target", "edge-4t", "-o", here / "m.npu", "--json", *limit)
        assert done.status == 0, done.err
        used.append(json.loads(done.out)["local_memory_reach"])
    assert 0 < used[1] <= 12 << 10 < used[0]


def same(a: Path, b: Path) -> bool:
    with np.load(a) as first, np.load(b) as second:
        assert set(first) == set(second)
        return all(
            first[name].dtype == second[name].dtype and np.array_equal(first[name], second[name])
            for name in first
        )


# The whole way


def test_a_model_becomes_a_program_that_computes_the_same(
    npuc: Any, here: Path, root: Path, digits: Path
) -> None:
    samples = root / "examples/digits_samples.npz"
    done = npuc(
        *(
            "compile",
            digits,
            "--target",
            "edge-4t",
            "--calib",
            samples,
            "--max-count",
            20,
            "-o",
            "digits.npu",
        ),
        *("--sanitize", "--dump-ir", "ir", "--save-schedule", "schedule.yaml"),
    )
    assert done.status == 0, done.err
    for words in (
        "no races",
        "npu1",
        "NPU: 11 layers",
        "cycles",
        "buffered",
        "roofline",
        "DRAM",
        "workspace",
    ):
        assert words in done.out, words
    assert sorted(path.name for path in (here / "ir").iterdir()) == [
        "0-imported.mlir", "0-imported.safetensors", "1-canonical.mlir", "1-canonical.safetensors",
        "2-quantized.mlir", "2-quantized.safetensors", "3-partition.txt", "4-schedule.yaml", "5-schedule-npu1.txt",
    ]  # fmt: skip
    assert (here / "ir/4-schedule.yaml").read_text() == (here / "schedule.yaml").read_text()
    for raw in ((), ("--raw",)):
        for model, to in (("digits.npu", "instruction.npz"), ("ir/2-quantized.mlir", "graph.npz")):
            assert npuc("run", model, "--input", samples, "-o", to, "-q", *raw).status == 0
        assert same(here / "instruction.npz", here / "graph.npz")
    with np.load("instruction.npz") as found:
        assert found["logits"].shape == (200, 10) and found["logits"].dtype == np.int8


def test_each_stage_of_the_dump_can_be_resumed_from(npuc: Any, here: Path, digits: Path) -> None:
    how = ("--target", "edge-4t", "-q")
    random = ("--random", "--max-count", 2)
    assert npuc("compile", digits, *how, *random, "-o", "a.npu", "--dump-ir", "ir").status == 0
    assert npuc("compile", "ir/1-canonical.mlir", *how, *random, "-o", "digits.npu").status == 0
    assert load_compiled("digits.npu").weights.tobytes() == load_compiled("a.npu").weights.tobytes()
    assert npuc("compile", "ir/2-quantized.mlir", *how, "-o", "c.npu").status == 0
    assert load_compiled("c.npu").weights.tobytes() == load_compiled("a.npu").weights.tobytes()


def test_the_result_as_json(npuc: Any, integers: Path) -> None:
    done = npuc("compile", integers, "--target", "edge-4t", "-o", "x.npu", "--json", "-O1")
    found = json.loads(done.out)
    assert found["file"] == "x.npu" and found["bytes"] == Path("x.npu").stat().st_size
    assert [one["device"] for one in found["subgraphs"]] == ["convert", "npu", "convert"]
    assert found["bounds"]["roofline"] <= found["bounds"]["buffered"] <= found["cycles"]
    assert found["level"] == 1 and found["dram_bytes"] >= found["bounds"]["bytes"] > 0
    assert "cycles" in done.err


def test_the_name_of_the_result_is_that_of_the_model(npuc: Any, integers: Path) -> None:
    assert npuc("compile", integers, "--target", "edge-4t", "-q").status == 0
    assert integers.with_suffix(".npu").is_file()


def test_an_unchanged_model_takes_its_schedule_from_the_cache(
    npuc: Any, integers: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (npuc("compile", integers, "--target", "edge-4t", "-o", "x.npu") for _ in range(2))
    assert "from the cache" not in first.out and "from the cache" in second.out
    assert len(list((cache / "schedules").rglob("*.json"))) == 1
    monkeypatch.setenv("NPUC_CACHE", "off")
    assert "from the cache" not in npuc("compile", integers, "--target", "edge-4t", "-o", "x.npu").out


def test_layers_can_be_put_on_the_cpu(npuc: Any, integers: Path) -> None:
    done = npuc(
        *("compile", integers, "--target", "edge-4t", "-o", "x.npu"),
        *("--device", "pool=cpu", "--island-threshold", 0),
    )
    assert done.status == 0 and "CPU: 1 layer" in done.out and "pool: as asked" in done.out
    for model, to in (("x.npu", "a.npz"), (integers, "b.npz")):
        assert npuc("run", model, "--random", "-o", to, "-q").status == 0
    assert same(Path("a.npz"), Path("b.npz"))


def test_the_npu_alone_or_a_refusal_with_reasons(npuc: Any, here: Path, integers: Path) -> None:
    plain, alone = here / "plain.npu", here / "alone.npu"
    for output, extra in ((plain, []), (alone, ["--npu-only"])):
        assert npuc("compile", integers, "--target", "edge-4t", *extra, "-o", output, "-q").status == 0
    assert plain.read_bytes() == alone.read_bytes()
    done = npuc(
        "compile",
        integers,
        "--target",
        "edge-4t",
        "--npu-only",
        "--device",
        "pool=cpu",
        "-o",
        here / "no.npu",
    )
    assert done.status == 2 and "1 layer cannot run on edge-4t: 'pool': as asked" in done.err
    assert "--outputs" in done.err and not (here / "no.npu").exists()


def test_small_subgraphs_go_to_the_cpu(npuc: Any, here: Path, integers: Path) -> None:
    for command in ("compile", "inspect"):
        extra = ["-o", here / "few.npu"] if command == "compile" else []
        done = npuc(command, integers, "--target", "edge-4t", "--min-ops", 100, *extra, "--json")
        assert done.status == 0, done.err
        parts = json.loads(done.out)["subgraphs"]
        assert {part["device"] for part in parts} == {"cpu", "convert" if command == "compile" else "host"}


def test_a_schedule_can_be_saved_changed_and_given_back(npuc: Any, integers: Path) -> None:
    how = ("compile", integers, "--target", "edge-4t", "-q", "--save-schedule")
    assert npuc(*how, "first.yaml", "-o", "a.npu").status == 0
    assert npuc(*how, "second.yaml", "-o", "b.npu", "--schedule", "first.yaml").status == 0
    assert Path("a.npu").read_bytes() == Path("b.npu").read_bytes()
    assert Path("first.yaml").read_text() == Path("second.yaml").read_text()
    Path("mine.yaml").write_text("groups:\n- {layers: [stem/relu], tiles: 4}\n")
    assert npuc(*how, "third.yaml", "-o", "c.npu", "--schedule", "mine.yaml").status == 0
    assert "tiles: 4" in Path("third.yaml").read_text()


# Looking at it


def test_sim_tells_cycles_by_layer(npuc: Any, compiled: Path) -> None:
    done = npuc("sim", compiled, "--sanitize", "--trace", "trace.json", "--layers", 3)
    assert done.status == 0 and "no races" in done.out and "and 7 layers more" in done.out
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    assert {event["name"] for event in events if event["ph"] == "X"} >= {"stem/relu", "logits"}
    found = json.loads(npuc("sim", compiled, "--json").out)
    assert found["cycles"] > 0 and len(found["layers"]) == 10 and found["dram"] > 0


def test_what_sim_prints_is_what_it_counted(npuc: Any, compiled: Path) -> None:
    """Every figure of the text, against those of --json."""
    found = json.loads(npuc("sim", compiled, "--json").out)
    lines = npuc("sim", compiled, "--layers", 0).out.splitlines()
    assert lines[0].startswith(f"int on edge-4t: {found['cycles']:,} cycles, ")
    assert lines[1].split() == ["busy", *", ".join(f"{k} {v:.1%}" for k, v in found["busy"].items()).split()]
    assert lines[2].split()[0] == "DRAM" and lines[2].endswith("stored")
    assert [size(found["loaded"]), size(found["stored"])] == [
        words.strip() for words in re.split(" loaded, | stored", lines[2].split(maxsplit=1)[1])[:2]
    ]
    table = [line.split() for line in lines if line.strip()]
    rows = {row[0]: row for row in table if len(row) >= 7}
    for layer in found["layers"]:
        row = rows[layer["name"]]
        assert row[1:3] == [str(layer["matrix"]), str(layer["vector"])], row
        assert row[-2:] == [str(layer["start"]), str(layer["end"])], row
    order = [row[0] for row in table if row[0] in {layer["name"] for layer in found["layers"]}]
    work = {layer["name"]: layer["matrix"] + layer["vector"] for layer in found["layers"]}
    assert [work[name] for name in order] == sorted(work.values(), reverse=True)


def test_sim_refuses_another_machine_and_other_files(npuc: Any, compiled: Path, integers: Path) -> None:
    assert npuc("sim", compiled, "--target", "edge-4t", "-q").status == 0
    done = npuc("sim", compiled, "--target", "edge-1t")
    assert done.status == 2 and "E704" in done.err
    assert npuc("sim", integers).status == 2


def test_sim_tells_what_the_sanitizer_finds(npuc: Any, compiled: Path) -> None:
    from dataclasses import replace

    from npuc.program.file import save_compiled
    from npuc.program.model import NpuSubgraph

    model = load_compiled(compiled)

    def hasty(one: Any) -> Any:
        if not isinstance(one, NpuSubgraph):
            return one
        streams = tuple(stream.copy() for stream in one.streams)
        for stream in streams:
            stream[:, 8:24] = 0  # no instruction waits for another
        return replace(one, streams=streams)

    save_compiled(replace(model, subgraphs=tuple(map(hasty, model.subgraphs))), "hasty.npu")
    done = npuc("sim", "hasty.npu", "--sanitize")
    assert done.status == 2 and "sanitizer" in done.err and "nothing orders the two" in done.err


@pytest.mark.parametrize(
    "flags", [("--fetch", "logits"), ("--dump-all-tensors",), ("--input-shape", "1,1,8,8")]
)
def test_a_compiled_model_has_no_tensors_in_between(
    npuc: Any, compiled: Path, flags: tuple[str, ...]
) -> None:
    done = npuc("run", compiled, "--random", *flags)
    assert done.status == 2 and flags[0] in done.err and ".mlir" in done.err


def test_a_damaged_program_is_refused(npuc: Any, compiled: Path) -> None:
    whole = compiled.read_bytes()
    for name, data in {
        "short.npu": whole[: len(whole) // 2],
        "flipped.npu": whole[:9000] + bytes([whole[9000] ^ 1]) + whole[9001:],
    }.items():
        Path(name).write_bytes(data)
        for command in (("run", name, "--random"), ("sim", name)):
            done = npuc(*command)
            assert done.status == 2 and "E102" in done.err, (name, command)


# Wrong turns


def one_paragraph(done: Any) -> str:
    lines = [line for line in done.err.splitlines() if not line.startswith("note:")]
    assert done.status == 2 and len(lines) == 1, done.err
    return str(lines[0])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "MODEL"),
        (("{digits}",), "--target"),
        (("nothing.onnx", "--target", "edge-4t"), "does not exist"),
        ((".", "--target", "edge-4t"), "folder"),
        (("{digits}", "--target", "edge-5t", "--random"), "did you mean 'edge-4t'"),
        (("{digits}", "--target", "edge-4t"), "--random"),
        (("{digits}", "--target", "edge-4t", "--random", "--calib", "x"), "contradict"),
        (("{digits}", "--target", "edge-4t", "--random", "--table", "x"), "contradict"),
        (("{digits}", "--target", "edge-4t", "--random", "-O", "4"), "-O"),
        (("{digits}", "--target", "edge-4t", "--random", "--cores", "2"), "1 core"),
        (("{digits}", "--target", "edge-4t", "--random", "--local-memory", "lots"), "512KiB"),
        (("{digits}", "--target", "edge-4t", "--random", "--local-memory", "3MiB"), "has 2,097,152"),
        (("{digits}", "--target", "edge-4t", "--random", "--local-memory", "0"), "asks for 0 bytes"),
        (("{digits}", "--target", "edge-4t", "--random", "--local-memory", "64"), "of the 2,097,152"),
        (("{digits}", "--target", "edge-4t", "--random", "--device", "stem"), "--device"),
        (("{digits}", "--target", "edge-4t", "--random", "--device", "stem/rel=cpu"), "stem/relu"),
        (("{digits}", "--target", "edge-4t", "--random", "--device", "stem/relu=gpu"), "npu and cpu"),
        (("{digits}", "--target", "edge-4t", "--random", "-o", "x.bin"), "x.npu"),
        (("{digits}", "--target", "edge-4t", "--random", "-o", "none/x.npu"), "no folder"),
        (("{digits}", "--target", "edge-4t", "--random", "--schedule", "none.yaml"), "does not exist"),
        (("{digits}", "--target", "edge-4t", "--random", "--save-schedule", "none/x.yaml"), "no folder"),
        (("{digits}", "--target", "edge-4t", "--calib", "none"), "none"),
        (("broken.onnx", "--target", "edge-4t", "--random"), "broken.onnx"),
        (("int.mlir", "--target", "edge-4t", "--random"), "integer network already"),
        (("int.mlir", "--target", "edge-4t", "--scheme", "int16"), "--scheme"),
        (("model.npu", "--target", "edge-4t"), "compiled model"),
    ],
)
def test_a_mistake_is_one_paragraph_and_leaves_nothing(
    npuc: Any, here: Path, digits: Path, compiled: Path, arguments: tuple[str, ...], words: str
) -> None:
    Path("broken.onnx").write_bytes(digits.read_bytes()[:5000])
    before = {path: path.stat().st_mtime_ns for path in here.iterdir()}
    done = npuc("compile", *(argument.format(digits=digits) for argument in arguments))
    assert words in one_paragraph(done)
    assert {path: path.stat().st_mtime_ns for path in here.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--device", "stem/rel=cpu"), "stem/relu"),
        (("--device", "stem/relu=gpu"), "npu and cpu"),
        (("--schedule", "layers.yaml"), "no layer 'stem'"),
        (("--schedule", "broken.yaml"), "not YAML"),
    ],
)
def test_a_typo_is_told_before_the_long_work(
    npuc: Any,
    here: Path,
    digits: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    Path("layers.yaml").write_text("groups: [{layers: [stem]}]")
    Path("broken.yaml").write_text("groups: [")
    monkeypatch.setattr("npuc.cli.quantization.quantized", lambda *_: pytest.fail("the long work has begun"))
    assert words in one_paragraph(npuc("compile", digits, "--target", "edge-4t", "--random", *arguments))


# Processes


def child(arguments: list[str], count: int = 0, **variables: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", CHILD, str(count), *arguments]
    return subprocess.Popen(command, env={**os.environ, **variables}, stderr=subprocess.PIPE)


def test_two_processes_with_different_hash_seeds_write_the_same_bytes(here: Path, digits: Path) -> None:
    found = []
    for seed in ("1", "2"):
        arguments = ["compile", str(digits), "--target", "edge-4t", "--random", "--max-count", "2", "-q"]
        arguments += ["-o", f"{seed}.npu", "--save-schedule", f"{seed}.yaml"]
        process = child(arguments, PYTHONHASHSEED=seed, NPUC_CACHE="off")
        _, errors = process.communicate()
        assert process.returncode == 0, errors
        found.append((Path(f"{seed}.npu").read_bytes(), Path(f"{seed}.yaml").read_bytes()))
    assert found[0] == found[1]


def check_after_kill(here: Path, npuc: Any, integers: Path, reference: bytes, before: bytes | None) -> None:
    """What a killed compile may leave: the old file or the new one, and a cache that serves."""
    allowed = {reference} | ({before} if before is not None else set())
    if (here / "out.npu").exists():
        assert (here / "out.npu").read_bytes() in allowed
    else:
        assert before is None
    for path in here.rglob("*.tmp"):
        # Only complete files get a name; a kill between that and renaming leaves one.
        if path.name.startswith(".out.npu"):
            assert path.read_bytes() == reference
        else:
            assert json.loads(path.read_text().partition("\n")[2])
        path.unlink()
    assert npuc("compile", integers, "--target", "edge-4t", "-o", "out.npu", "-q").status == 0
    assert (here / "out.npu").read_bytes() == reference


@pytest.mark.parametrize("old", [False, True])
def test_a_compile_that_is_killed_when_it_finishes_a_file_leaves_no_part_of_one(
    npuc: Any, here: Path, integers: Path, compiled: Path, cache: Path, old: bool
) -> None:
    reference = compiled.read_bytes()
    for number in (1, 2):
        for entry in cache.rglob("*.json"):
            entry.unlink()
        (here / "out.npu").unlink(missing_ok=True)
        if old:
            (here / "out.npu").write_bytes(b"old")
        process = child(["compile", str(integers), "--target", "edge-4t", "-o", "out.npu", "-q"], number)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        check_after_kill(here, npuc, integers, reference, b"old" if old else None)


def test_a_compile_that_is_killed_at_any_time_leaves_no_part_of_a_file(
    npuc: Any, here: Path, integers: Path, compiled: Path, cache: Path
) -> None:
    reference = compiled.read_bytes()
    arguments = ["compile", str(integers), "--target", "edge-4t", "-o", "out.npu", "-q"]
    began = time.perf_counter()
    assert child(arguments).wait() == 0
    whole = time.perf_counter() - began
    killed = 0
    for part in (0.5, 0.8, 0.9):
        (here / "out.npu").unlink(missing_ok=True)
        for entry in cache.rglob("*.json"):
            entry.unlink()
        process = child(arguments)
        try:
            process.wait(whole * part)
        except subprocess.TimeoutExpired:
            process.kill()
        killed += process.wait() == -signal.SIGKILL
        check_after_kill(here, npuc, integers, reference, None)
    assert killed
