"""Flags for what a program takes and gives: preprocessing inside, order of axes, integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from npuc.ir import load_graph, shape_of
from npuc.program.file import load_compiled

SOURCE = ("--fuse-preprocess", "--source-size", "20,24", "--source-format", "nv12")


def test_a_program_takes_the_bytes_of_a_camera_and_gives_integers(npuc: Any, model: Path, here: Path) -> None:
    flags = ("--scale", "0.01", "--interpolation", "opencv-linear", "--integer-io", "outputs", *SOURCE)
    done = npuc("compile", model, "--target", "edge-4t", "--random", *flags)
    assert done.status == 0, done.err
    program = load_compiled(here / "model.npu")
    taken, given = program.tensor("x"), program.tensor("scores")
    assert (taken.dtype, taken.shape) == ("ui8", (1, 30, 24))
    assert given.dtype == "i8" and given.scale > 0
    assert "CPU" not in done.out


def test_an_import_with_all_of_it_inside_is_checked_against_the_original(
    npuc: Any, model: Path, here: Path
) -> None:
    done = npuc("import", model, "--mean", "3,2,1", "--keep-aspect-ratio", *SOURCE)
    assert done.status == 0 and "agrees with ONNX Runtime on the original" in done.out
    assert "the two nearest pixels of each axis" in done.err
    assert shape_of(load_graph(here / "model.mlir").inputs[0].value) == (1, 30, 24)


def test_the_order_of_axes(npuc: Any, model: Path, here: Path) -> None:
    done = npuc("import", model, "--input-layout", "nhwc", "--outputs", "r", "--output-layout", "nhwc")
    assert done.status == 0 and "x 1x8x8x3xf32" in done.out and "r 1x8x8x4xf32" in done.out, done.out
    assert "agrees with ONNX Runtime on the original" in done.out
    done = npuc("import", model, "--input-layout", "nhwc", "--mean", "1,2,3")
    assert done.status == 0 and "agrees with ONNX Runtime on the original" in done.out


@pytest.mark.parametrize(
    ("command", "flags", "words"),
    [
        ("import", ("--source-size", "9,9"), "Add --fuse-preprocess"),
        ("import", ("--source-format", "p010", "--fuse-preprocess"), "'p010' is none of rgb"),
        ("import", ("--input-layout", "hwc"), "'hwc' is no layout"),
        ("compile", ("--target", "edge-4t", "--random", "--integer-io", "middle"), "not at 'middle'"),
    ],
)
def test_flags_that_make_no_sense(
    npuc: Any, model: Path, command: str, flags: tuple[str, ...], words: str
) -> None:
    done = npuc(command, model, *flags)
    assert done.status == 2 and words in " ".join(done.err.split())
