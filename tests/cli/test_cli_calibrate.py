"""`npuc calibrate` and `npuc calib-data`: the whole way from pictures to a table, and what can go wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npuc.calib.table import load_table


@pytest.fixture
def pictures(here: Path) -> Path:
    folder = here / "pictures"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for index in range(6):
        Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8)).save(folder / f"{index}.png")
    return folder


def test_from_pictures_to_a_table(program: Path, pictures: Path, npuc: Any) -> None:
    outcome = npuc("calibrate", program, "--data", pictures, "-o", "t.cali", "--method", "max")
    assert outcome.status == 0
    assert "ranges from 6 samples by max" in outcome.out
    table = load_table("t.cali")
    assert 200 < table["x"].max <= 255 and table["r"].min == 0
    assert "no preprocessing attached" in outcome.err


def test_without_an_output_the_table_is_shown(program: Path, npuc: Any) -> None:
    outcome = npuc("calibrate", program, "--random", "--method", "kl:bins=512")
    assert outcome.status == 0 and "scores" in outcome.out and "kl:bins=512" in outcome.out
    assert "random data: good for a smoke run only" in outcome.err


def test_saved_statistics_give_the_same_table(program: Path, pictures: Path, npuc: Any) -> None:
    first = npuc(
        "calibrate", program, "--data", pictures, "--save-stats", "s.npz", "-o", "a.cali", "--method", "kl"
    )
    assert first.status == 0 and "statistics of" in first.out
    assert npuc("calibrate", program, "--stats", "s.npz", "-o", "b.cali", "--method", "kl").status == 0
    assert Path("a.cali").read_text() == Path("b.cali").read_text()
    assert npuc("calibrate", program, "--stats", "s.npz", "-o", "c.cali", "--method", "max").status == 0
    assert load_table("c.cali")["x"].max >= load_table("a.cali")["x"].max


def test_a_layer_can_have_its_own_method(program: Path, pictures: Path, npuc: Any) -> None:
    outcome = npuc(
        "calibrate", program, "--data", pictures, "-o", "t.cali", "--method", "max",
        "--tensor-method", "classify=percentile:ratio=0.9", "--tensor-method", "x=mse",
    )  # fmt: skip
    assert outcome.status == 0, outcome.err
    methods = {name: entry.method for name, entry in load_table("t.cali").items()}
    assert methods["scores"] == "percentile:ratio=0.9" and methods["x"] == "mse" and methods["r"] == "max"


def test_json(program: Path, pictures: Path, npuc: Any) -> None:
    (pictures / "broken.png").write_bytes(b"no picture")
    outcome = npuc("calibrate", program, "--data", pictures, "--max-count", 7, "--json")
    found = json.loads(outcome.out)
    assert (found["samples"], found["skipped"]) == (6, 1)
    assert {"name", "threshold", "min", "max", "method"} == set(found["tensors"][0])
    assert any("broken.png" in note for note in found["notes"])


def test_strict_makes_a_bad_sample_fatal(program: Path, pictures: Path, npuc: Any) -> None:
    (pictures / "broken.png").write_bytes(b"no picture")
    outcome = npuc("calibrate", program, "--data", pictures, "-o", "t.cali", "--strict")
    assert outcome.status == 2 and "broken.png" in outcome.err
    assert not Path("t.cali").exists()


def test_prepared_data_gives_the_same_table(program: Path, pictures: Path, npuc: Any) -> None:
    assert npuc("calib-data", program, "--data", pictures, "-o", "ready", "--quiet").status == 0
    assert len(list(Path("ready").iterdir())) == 6
    assert npuc("calibrate", program, "--data", "ready", "-o", "a.cali", "--quiet").status == 0
    assert npuc("calibrate", program, "--data", pictures, "-o", "b.cali", "--quiet").status == 0
    assert Path("a.cali").read_text() == Path("b.cali").read_text()


def test_recipes_and_functions(program: Path, pictures: Path, npuc: Any) -> None:
    Path("r.yaml").write_text(
        "GetImage: {channel_order: RGB}\nResizeTorch: {size: [8, 8]}\n"
        "Normalize: {mean: [0, 0, 0], std: [1, 1, 1], to_float: true}\nSetOrder: {shape: CHW}\n"
    )
    assert (
        npuc("calibrate", program, "--data", pictures, "--preprocess", "r.yaml", "-o", "t.cali").status == 0
    )
    assert load_table("t.cali")["x"].max <= 1.0
    Path("mine.py").write_text(
        "import numpy as np\ndef load(path):\n    return np.full((3, 8, 8), 2, np.float32)\n"
    )
    assert (
        npuc("calibrate", program, "--data", pictures, "--preprocess", "mine.py:load", "-o", "t.cali").status
        == 0
    )
    assert load_table("t.cali")["x"].max == pytest.approx(2.0, rel=1e-5)


@pytest.mark.parametrize(
    "arguments,words",
    [
        ((), "there is no data to calibrate with"),
        (("--data", "nowhere"), "nowhere: does not exist"),
        (("--random", "--method", "magic"), "there is no range method 'magic'"),
        (("--random", "--tensor-method", "x"), "is not NAME=METHOD"),
        (("--random", "--tensor-method", "nothere=kl"), "there is no tensor or layer 'nothere'"),
        (("--random", "--data", "pictures"), "--random goes with no other data"),
        (("--stats", "s.npz", "--random"), "--stats is in place of data"),
        (("--random", "-o", "no/such/folder/t.cali"), "there is no folder"),
        (("--data", "empty"), "is empty"),
        (("--data", "pictures", "--annotations", "empty"), "is a folder, not a file"),
    ],
)
def test_mistakes(program: Path, pictures: Path, npuc: Any, arguments: tuple[str, ...], words: str) -> None:
    Path("empty").mkdir()
    outcome = npuc("calibrate", program, *arguments)
    assert outcome.status == 2 and words in outcome.err
