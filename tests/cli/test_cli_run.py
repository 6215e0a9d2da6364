"""`npuc run`: data in, npz out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from PIL import Image

from npuc.arrays import Array
from support.networks.small_onnx import image_model


def reference(x: Array) -> Array:
    session = ort.InferenceSession(image_model("N").SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["scores"], {"x": x.astype(np.float32)})[0])


@pytest.fixture
def data(here: Path) -> Array:
    return np.random.default_rng(0).random((7, 3, 8, 8), np.float32)


def test_many_samples_run_in_batches_and_other_tensors_are_ignored(
    npuc: Any, program: Path, data: Any
) -> None:
    np.savez("in.npz", x=data, label=np.arange(7))
    done = npuc("run", program, "--input", "in.npz", "-o", "out.npz")
    assert done.status == 0
    assert "7 samples in 7 runs" in done.out and "7x5" in done.out
    assert "'label' is not an input" in done.err
    np.testing.assert_allclose(np.load("out.npz")["scores"], reference(data), rtol=1e-4, atol=1e-5)


def test_the_last_batch_is_padded_and_cut(npuc: Any, here: Path, data: Any) -> None:
    onnx.save(image_model("N"), "m.onnx")
    np.save("in.npy", data)
    done = npuc("run", "m.onnx", "--input-shape", "4,3,8,8", "--input", "in.npy", "-o", "out.npz", "--json")
    assert done.status == 0, done.err
    assert json.loads(done.out)["runs"] == 2
    np.testing.assert_allclose(np.load("out.npz")["scores"], reference(data), rtol=1e-4, atol=1e-5)


def test_a_model_can_be_run_without_importing_it_first(npuc: Any, model: Path, data: Any) -> None:
    np.save("in.npy", data[0])
    assert npuc("run", model, "--input", "in.npy", "-o", "out.npz").status == 0
    np.testing.assert_allclose(np.load("out.npz")["scores"], reference(data[:1]), rtol=1e-4, atol=1e-5)


def test_the_best_classes_are_shown(npuc: Any, program: Path, data: Any) -> None:
    np.save("in.npy", data[:1])
    done = npuc("run", program, "--input", "in.npy")
    best = int(reference(data[:1]).argmax())
    lines = done.out.splitlines()
    table = lines[next(i for i, line in enumerate(lines) if "top 5" in line) + 2]
    assert table.split()[0] == str(best)


def test_all_tensors_can_be_dumped(npuc: Any, program: Path, data: Any) -> None:
    np.savez("in.npz", x=data)
    assert npuc("run", program, "--input", "in.npz", "--dump-all-tensors", "-o", "all.npz").status == 0
    with np.load("all.npz") as dumped:
        assert {"x", "r", "scores"} <= set(dumped.files)
        assert dumped["r"].shape == (7, 4, 8, 8)
        np.testing.assert_array_equal(dumped["x"], data)


def test_single_tensors_can_be_fetched(npuc: Any, program: Path) -> None:
    assert npuc("run", program, "--random", "--fetch", "r", "-o", "f.npz").status == 0
    assert set(np.load("f.npz").files) == {"scores", "r"}
    done = npuc("run", program, "--random", "--fetch", "rr", "-o", "f.npz")
    assert done.status == 2 and "'rr'" in done.err


def test_random_data_is_the_same_every_time_and_differs_by_seed(npuc: Any, program: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        assert npuc("run", program, "--random", "--seed", seed, "-o", f"{name}.npz").status == 0
    assert Path("a.npz").read_bytes() == Path("b.npz").read_bytes() != Path("c.npz").read_bytes()


def test_pictures_are_samples(npuc: Any, program: Path, here: Path) -> None:
    for index in range(2):
        Image.fromarray(np.full((8, 8, 3), 10 * index, np.uint8)).save(here / f"{index}.png")
    done = npuc("run", program, "--input", "0.png", "--input", "1.png", "-o", "out.npz")
    assert done.status == 0 and "no preprocessing attached" in done.err
    expected = np.stack([np.full((3, 8, 8), 0.0), np.full((3, 8, 8), 10.0)])
    np.testing.assert_allclose(np.load("out.npz")["scores"], reference(expected), rtol=1e-4, atol=1e-4)


def test_two_inputs_by_name(npuc: Any, two: Path) -> None:
    np.save("i.npy", np.array([0, 1, 5]))
    np.save("f.npy", np.ones((3, 2)))
    done = npuc("run", two, "--input", "ids=i.npy", "--input", "x=f.npy", "-o", "out.npz")
    assert done.status == 0, done.err
    np.testing.assert_array_equal(np.load("out.npz")["sum"], [[1, 2], [3, 4], [11, 12]])
    done = npuc("run", two, "--input", "i.npy")
    assert done.status == 2 and "NAME=FILE" in done.err
    done = npuc("run", two, "--input", "ids=i.npy")
    assert done.status == 2 and "'x'" in done.err
    done = npuc("run", two, "--input", "idx=i.npy")
    assert done.status == 2 and "'ids', 'x'" in done.err


def test_random_indices_stay_within_their_table(npuc: Any, two: Path) -> None:
    for seed in range(10):
        assert npuc("run", two, "--random", "--seed", seed).status == 0


@pytest.mark.parametrize(
    ("array", "word"),
    [
        (np.zeros((1, 3, 8, 9), np.float32), "[1, 3, 8, 8]"),
        (np.zeros(3, np.float32), "[3]"),
        (np.zeros((0, 3, 8, 8), np.float32), "[0, 3, 8, 8]"),
        (np.array(["a"]), "U1"),
        (np.zeros((1, 3, 8, 8), np.complex64), "complex64"),
    ],
)
def test_data_that_does_not_fit_is_refused(npuc: Any, program: Path, array: Any, word: str) -> None:
    np.savez("bad.npz", x=array)
    done = npuc("run", program, "--input", "bad.npz")
    assert done.status == 2
    assert "error[E4" in done.err and word in done.err


def test_fractions_for_an_integer_input_are_refused(npuc: Any, two: Path) -> None:
    np.savez("bad.npz", ids=np.array([0.5, 1, 2]), x=np.zeros((3, 2)))
    done = npuc("run", two, "--input", "bad.npz")
    assert done.status == 2 and "int64" in done.err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--random", "--input", "in.npz"], "contradict"),
        ([], "--random"),
        (["--input", "none.npz"], "does not exist"),
        (["--input", "model.onnx"], ".npz"),
        (["--input", "model.mlir", "-o", "out.npz"], ".npz"),
        (["--random", "-o", "nowhere/out.npz"], "nowhere"),
        (["--random", "-o", "out.npy"], "out.npz"),
    ],
)
def test_options_that_make_no_sense(npuc: Any, program: Path, arguments: list[str], word: str) -> None:
    done = npuc("run", program, *arguments)
    assert done.status == 2 and word in done.err


def test_names_that_fit_no_input(npuc: Any, program: Path) -> None:
    np.savez("other.npz", y=np.zeros(1), z=np.zeros(1))
    done = npuc("run", program, "--input", "other.npz")
    assert done.status == 2 and "'y', 'z'" in done.err and "'x'" in done.err


def test_nothing_is_left_behind(npuc: Any, program: Path, here: Path) -> None:
    before = set(here.iterdir())
    np.savez("bad.npz", x=np.zeros(3))
    npuc("run", program, "--input", "bad.npz", "-o", "out.npz")
    npuc("run", program, "--random", "-o", "out.npz")
    assert {path.name for path in set(here.iterdir()) - before} == {"bad.npz", "out.npz"}
