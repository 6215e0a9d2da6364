"""`npuc combine`, and `--entry` of the commands that take a compiled model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.program.file import load_entries


@pytest.fixture
def program(npuc: Any, root: Path, here: Path) -> Path:
    """`both.npu`: the digits for one image and for two, of one calibration."""
    digits = root / "examples/digits.onnx"
    assert npuc("calibrate", digits, "--random", "--max-count", 2, "-o", "digits.cali", "-q").status == 0
    for rows in (1, 2):
        done = npuc(
            "compile", digits, "--target", "edge-1t", "--table", "digits.cali", "-O1", "-q",
            "--input-shape", f"{rows},1,8,8", "-o", f"digits{rows}.npu",
        )  # fmt: skip
        assert done.status == 0, done.err
    done = npuc("combine", "digits1.npu", "pair=digits2.npu", "-o", "both.npu", "--json")
    assert done.status == 0, done.err
    sizes = json.loads(done.out)
    assert list(sizes["entries"]) == ["digits1", "pair"] and sizes["weights"] < 0.7 * sizes["weights_apart"]
    return here / "both.npu"


def test_an_entry_runs_like_its_own_file(npuc: Any, program: Path) -> None:
    for entry, file in (("digits1", "digits1.npu"), ("pair", "digits2.npu")):
        for model, extra, output in ((program, ["--entry", entry], "a.npz"), (file, [], "b.npz")):
            assert npuc("run", model, *extra, "--random", "-o", output, "-q").status == 0
        with np.load("a.npz") as a, np.load("b.npz") as b:
            np.testing.assert_array_equal(a["logits"], b["logits"])
        cycles = [
            json.loads(npuc("sim", model, *extra, "--sanitize", "--json").out)["cycles"]
            for model, extra in ((program, ["--entry", entry]), (file, []))
        ]
        assert cycles[0] == cycles[1]
    assert npuc("combine", program, "--extract", "pair", "-o", "again.npu", "-q").status == 0
    assert npuc("run", "again.npu", "--random", "-o", "a.npz", "-q").status == 0
    with np.load("a.npz") as a, np.load("b.npz") as b:
        np.testing.assert_array_equal(a["logits"], b["logits"])


def test_tools_know_entries(npuc: Any, program: Path) -> None:
    assert "entries: digits1, pair; this is digits1" in npuc("objdump", program, "--no-instructions").out
    assert "this is pair" in npuc("objdump", program, "--entry", "pair", "--no-instructions").out
    assert json.loads(npuc("objdump", program, "--no-instructions", "--json").out)["entries"] == [
        "digits1",
        "pair",
    ]
    shown = npuc("show", program, "--entry", "pair").out
    assert "digits1, pair (shown)" in shown and "2x1x8x8" in shown
    assert npuc("profile", program, "--entry", "pair", "--no-host").status == 0


def test_an_entry_is_compared_and_evaluated(npuc: Any, program: Path, root: Path) -> None:
    done = npuc("diff", "digits2.npu", program, "--entry", "pair", "--random", "--max-count", 2, "--json")
    assert done.status == 0, done.err
    outputs = json.loads(done.out)["outputs"]
    assert outputs and all(row["accumulated"]["max_error"] == 0 for row in outputs)
    rng = np.random.default_rng(1)
    np.savez("set.npz", image=rng.normal(size=(4, 1, 8, 8)).astype(np.float32), label=np.arange(4))
    figures = [
        json.loads(npuc("eval", model, *extra, "--data", "set.npz", "--json").out)["figures"]
        for model, extra in ((program, ["--entry", "pair"]), ("digits2.npu", []))
    ]
    assert figures[0] == figures[1]


def test_the_segments_of_an_entry_are_moved(npuc: Any, program: Path) -> None:
    """The weights are those of all entries, and so is their address; the rest of the other entry stays."""
    assert npuc("relocate", program, "--entry", "pair", "--dump", "pair.ini").status == 0
    text = Path("pair.ini").read_text()
    Path("pair.ini").write_text(
        text.replace("address = 0x0", "address = 0x40000000", 1).replace(
            "address = 0x0", "address = 0x80000", 1
        )
    )
    done = npuc("relocate", program, "pair.ini", "--entry", "pair", "-o", "moved.npu")
    assert done.status == 0, done.err
    first, pair = load_entries("moved.npu").values()
    assert [segment.address for segment in pair.segments[:2]] == [0x40000000, 0x80000]
    assert [segment.address for segment in first.segments[:2]] == [0x40000000, 0]
    np.testing.assert_array_equal(first.weights, load_entries(program)["digits1"].weights)


def test_mistakes(npuc: Any, program: Path) -> None:
    for arguments, words in (
        (["combine", "digits1.npu", "-o", "x.npu"], "nothing to combine it with"),
        (["combine", "digits1.npu", "digits1.npu", "-o", "x.npu"], "two entries are called 'digits1'"),
        (["combine", "a=both.npu", "digits1.npu", "-o", "x.npu"], "2 entries, which have names of their own"),
        (
            ["combine", "both.npu", "digits1.npu", "--extract", "pair", "-o", "x.npu"],
            "--extract takes one program",
        ),
        (["combine", "both.npu", "digits2.npu", "-o", "x.txt"], "does not end in .npu"),
        (["run", "both.npu", "--random", "--entry", "large"], "It has: digits1, pair"),
        (["relocate", "both.npu", "--dump", "x.ini", "--entry", "large"], "It has: digits1, pair"),
        (["export", "c", "both.npu", "-o", "app", "--entry", "large"], "It has: digits1, pair"),
        (
            ["diff", "digits1.npu", "digits2.npu", "--random", "--entry", "pair"],
            "is for a program with several entries",
        ),
        (["show", "digits1.npu", "--entry", "pair"], "It has: digits"),
    ):
        done = npuc(*arguments)
        assert done.status == 2 and words in done.err, done.err
    assert npuc("combine", "both.npu", "third=digits2.npu", "-o", "x.npu").status == 0
    assert list(load_entries("x.npu")) == ["digits1", "pair", "third"]


def test_entries_that_could_share_more_are_told_how(npuc: Any, root: Path, here: Path) -> None:
    digits = root / "examples/digits.onnx"
    for seed in (1, 2):
        done = npuc(
            "compile",
            digits,
            "--target",
            "edge-1t",
            "--random",
            "--seed",
            seed,
            "-O0",
            "-q",
            "-o",
            f"s{seed}.npu",
        )
        assert done.status == 0, done.err
    done = npuc("combine", "s1.npu", "s2.npu", "-o", "both.npu")
    assert (
        done.status == 0
        and "entry s2 has the layers of the first and shares little of its weights" in done.err
    )
    assert "little of its weights" not in npuc("combine", "a=s1.npu", "b=s1.npu", "-o", "same.npu").err
