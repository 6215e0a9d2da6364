"""Calibration data of every kind becomes the same batches, and what is bad about it is said in words."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npuc.arrays import Array
from npuc.calib.coco import balanced_files, draw
from npuc.calib.feeding import Feeder
from npuc.calib.prepare import save_prepared
from npuc.calib.samples import Batch, load_samples
from npuc.calib.sources import DataOptions, open_data, random_data
from npuc.errors import (
    CalibrationDataError,
    FileFormatError,
    FileMissingError,
    NpucError,
    OutputError,
    PreprocessError,
    UsageError,
)
from npuc.ir import Graph, tensor_type

RAW = {"x": {"pixel_format": "rgb", "layout": "nchw"}}


def graph(batch: int = 1, preprocess: Any = RAW) -> Graph:
    """One image input; no ops are needed to read data."""
    return Graph.empty([("x", tensor_type((batch, 3, 4, 4), "f32"))], preprocess=preprocess)


def two_inputs() -> Graph:
    return Graph.empty([("a", tensor_type((1, 2), "f32")), ("b", tensor_type((1, 3), "f32"))])


def image(path: Path, value: int = 0, mode: str = "RGB") -> Path:
    color: Any = value if mode == "L" else (value, 0, 0)
    Image.new(mode, (4, 4), color).save(path)
    return path


def read(
    network: Graph, data: Any, strict: bool = False, **options: Any
) -> tuple[list[Batch], Feeder, list[str]]:
    warnings: list[str] = []
    feeder = Feeder(network, open_data(network, data, DataOptions(**options)), strict, warnings.append)
    return list(feeder.batches()), feeder, warnings


def firsts(batches: list[Batch], name: str = "x") -> list[float]:
    return [float(row.reshape(-1)[0]) for batch in batches for row in batch.inputs[name]]


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for index, name in enumerate(["b/1.png", "a.png", "c.png", "b/0.png"]):
        image(tmp_path / name, index)
    (tmp_path / "notes.txt").write_text("not a sample")
    (tmp_path / ".hidden.png").write_bytes(b"")
    batches, feeder, warnings = read(graph(), tmp_path)
    assert firsts(batches) == [1, 3, 0, 2]
    assert (feeder.used, feeder.skipped, warnings) == (4, 0, [])


def test_images_without_attached_preprocessing_get_a_note(tmp_path: Path) -> None:
    image(tmp_path / "a.png")
    _, _, warnings = read(graph(preprocess=None), tmp_path)
    assert len(warnings) == 1 and "no preprocessing attached" in warnings[0]


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("kind", ["npy", "npz", "compressed"])
def test_tensor_files_hold_one_sample_or_many(tmp_path: Path, kind: str, stacked: bool) -> None:
    arrays = np.arange(5, dtype=np.float32)[:, None, None, None] + np.zeros((5, 3, 4, 4), np.float32)
    parts = [arrays] if stacked else list(arrays)
    for index, part in enumerate(parts):
        if kind == "npy":
            np.save(tmp_path / f"{index}.npy", part)
        else:
            (np.savez if kind == "npz" else np.savez_compressed)(tmp_path / f"{index}.npz", x=part)
    batches, _, _ = read(graph(), tmp_path)
    assert firsts(batches) == [0, 1, 2, 3, 4]
    chosen, feeder, _ = read(graph(), tmp_path, max_count=2)
    assert firsts(chosen) == [0, 1] and feeder.used == 2


def test_batches_are_filled_and_the_last_says_what_is_real(tmp_path: Path) -> None:
    np.save(
        tmp_path / "all.npy",
        np.arange(5, dtype=np.float32)[:, None, None, None] * np.ones((3, 4, 4), np.float32),
    )
    batches, _, _ = read(graph(batch=2), tmp_path)
    assert [batch.keep for batch in batches] == [None, None, 1]
    assert firsts(batches) == [0, 1, 2, 3, 4, 4]


def test_a_list_file_has_several_inputs_a_line(tmp_path: Path) -> None:
    for index in range(3):
        np.save(tmp_path / f"a{index}.npy", np.full((1, 2), index, np.float32))
        np.save(tmp_path / f"b{index}.npy", np.full((1, 3), 10 + index, np.float32))
    listing = tmp_path / "list.txt"
    listing.write_text("# samples\n\na0.npy, b0.npy\nb=b2.npy,a=a1.npy\n")
    batches, _, _ = read(two_inputs(), listing)
    assert (firsts(batches, "a"), firsts(batches, "b")) == ([0, 1], [10, 12])


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "both.npz", a=np.zeros((1, 2), np.float32), b=np.zeros((1, 3), np.float32))
    listing = tmp_path / "list.txt"
    listing.write_text("both.npz\nboth.npz, both.npz, both.npz\nmissing.npz\n")
    batches, feeder, warnings = read(two_inputs(), listing)
    assert len(batches) == 1 and feeder.skipped == 2
    assert "line 2" in warnings[0] and "3 files on a line, and the network has 2 inputs" in warnings[0]
    assert "missing.npz" in warnings[1] and "does not exist" in warnings[1]


def test_an_empty_list_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("# nothing\n")
    with pytest.raises(CalibrationDataError, match="names no sample"):
        read(graph(), tmp_path / "list.txt")


@pytest.mark.parametrize("wrap", [lambda a: a, lambda a: {"x": a}, lambda a: [a], lambda a: (a,)])
def test_iterables_and_functions_are_data(wrap: Any) -> None:
    arrays = [wrap(np.full((3, 4, 4), index, np.float32)) for index in range(4)]
    for data in (arrays, lambda: iter(arrays), iter(arrays)):
        batches, feeder, _ = read(graph(), data, max_count=3)
        assert firsts(batches) == [0, 1, 2] and feeder.used == 3


def test_samples_of_the_run_command_are_data(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((3, 3, 4, 4), np.float32))
    network = graph(batch=2)
    samples = load_samples(network, [(None, tmp_path / "x.npy")])
    batches, _, _ = read(network, samples)
    assert [batch.keep for batch in batches] == [None, 1]


def test_a_seed_chooses_the_same_samples_in_order(tmp_path: Path) -> None:
    for index in range(20):
        image(tmp_path / f"{index:02d}.png", index)
    chosen = firsts(read(graph(), tmp_path, max_count=5, seed=1)[0])
    assert chosen == sorted(chosen) and len(chosen) == 5
    assert chosen == firsts(read(graph(), tmp_path, max_count=5, seed=1)[0])
    assert chosen != firsts(read(graph(), tmp_path, max_count=5, seed=2)[0])
    assert firsts(read(graph(), tmp_path, max_count=5)[0]) == [0, 1, 2, 3, 4]


def test_random_data_is_seeded() -> None:
    def values(seed: int) -> Array:
        feeder = Feeder(graph(), random_data(graph(), 3, seed))
        return np.stack([batch.inputs["x"] for batch in feeder.batches()])

    assert values(0).shape == (3, 1, 3, 4, 4)
    np.testing.assert_array_equal(values(0), values(0))
    assert not np.array_equal(values(0), values(7))


# --- COCO


def coco(folder: Path, classes: dict[int, list[int]]) -> Path:
    content = {
        "images": [{"id": key, "file_name": f"{key}.png"} for key in classes],
        "annotations": [
            {"image_id": key, "category_id": category} for key, found in classes.items() for category in found
        ],
    }
    for key in classes:
        image(folder / f"{key}.png", key)
    path = folder / "annotations.json"
    path.write_text(json.dumps(content))
    return path


def test_coco_sampling_is_balanced(tmp_path: Path) -> None:
    # 30 images of class 1, two of class 2, one of class 3.
    classes = {key: [1] for key in range(30)} | {30: [2], 31: [2], 32: [3]}
    annotations = coco(tmp_path, classes)
    batches, _, _ = read(graph(), tmp_path, annotations=annotations, max_count=5, seed=3)
    seen = Counter(classes[int(value)][0] for value in firsts(batches))
    assert seen == {1: 2, 2: 2, 3: 1}
    again, _, _ = read(graph(), tmp_path, annotations=annotations, max_count=5, seed=3)
    assert firsts(again) == firsts(batches)


def test_coco_names_by_the_ids_of_images(tmp_path: Path) -> None:
    annotations = coco(tmp_path, {1: [1], 2: [1]})
    image(tmp_path / "im_0001.png", 9)
    files = balanced_files(annotations, tmp_path, None, 0, "im_%04d.png")
    assert [path.name for path in files] == ["2.png", "im_0001.png"]
    with pytest.raises(UsageError, match="does not make a file name"):
        balanced_files(annotations, tmp_path, None, 0, "im.png")


def test_coco_images_without_objects_fill_up() -> None:
    assert sorted(draw([1, 2, 3], {1: Counter([5])}, 3, 0)) == [1, 2, 3]


@pytest.mark.parametrize(
    "text,words",
    [
        ("{", "is not a file of COCO annotations"),
        ("[]", "is not a file of COCO annotations"),
        ('{"images": [{"file_name": "a"}]}', "no 'id'"),
        ('{"images": []}', "lists no images"),
        ('{"images": [{"id": 1, "file_name": "../../etc/passwd"}]}', "outside"),
    ],
)
def test_bad_annotations_are_an_error(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(NpucError, match=words):
        read(graph(), tmp_path, annotations=tmp_path / "a.json")


# --- a user's function


def test_a_users_function_reads_any_file(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "one.custom").write_text("5")
    (tmp_path / "mine.py").write_text(
        "import numpy as np\ndef load(path):\n    return np.full((3, 4, 4), float(open(path).read()), np.float32)\n"
    )
    batches, _, _ = read(graph(), tmp_path / "data", preprocess=f"{tmp_path / 'mine.py'}:load")
    assert firsts(batches) == [5]


def test_a_failing_function_names_the_sample(tmp_path: Path) -> None:
    image(tmp_path / "a.png")

    def broken(path: str) -> Array:
        raise RuntimeError("boom")

    with pytest.raises(PreprocessError, match=r"a\.png.*'broken' failed: RuntimeError: boom"):
        read(graph(), tmp_path, strict=True, preprocess=broken)


@pytest.mark.parametrize("text", ["mine.py:load", "nosuchmodule:f", "json:nothing", "nocolon", "a:b c"])
def test_a_function_that_is_not_there_is_an_error(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((UsageError, FileMissingError)):
        read(graph(), tmp_path, preprocess=text)


# --- what is bad


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CalibrationDataError, match="is empty: there are no samples in it"):
        read(graph(), tmp_path)


def test_a_folder_of_other_things_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "readme.md").write_text("hello")
    with pytest.raises(CalibrationDataError, match=r"holds no images.*readme\.md"):
        read(graph(), tmp_path)


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileMissingError, match="does not exist"):
        read(graph(), tmp_path / "nowhere")


def test_one_unreadable_image_is_named_and_passed_over(tmp_path: Path) -> None:
    image(tmp_path / "a.png", 1)
    (tmp_path / "b.png").write_bytes((tmp_path / "a.png").read_bytes()[:40])
    image(tmp_path / "c.png", 3)
    batches, feeder, warnings = read(graph(), tmp_path)
    assert firsts(batches) == [1, 3] and feeder.skipped == 1
    assert len(warnings) == 1 and "b.png" in warnings[0] and "cannot be decoded" in warnings[0]
    with pytest.raises(FileFormatError, match=r"b\.png"):
        read(graph(), tmp_path, strict=True)


def test_a_wrong_shape_is_named_and_passed_over(tmp_path: Path) -> None:
    np.save(tmp_path / "good.npy", np.zeros((3, 4, 4), np.float32))
    np.save(tmp_path / "wrong.npy", np.zeros((3, 5, 4), np.float32))
    batches, _, warnings = read(graph(), tmp_path)
    assert len(batches) == 1
    assert (
        "wrong.npy" in warnings[0]
        and "takes shape [1, 3, 4, 4]" in warnings[0]
        and "[3, 5, 4]" in warnings[0]
    )
    with pytest.raises(NpucError, match=r"wrong\.npy"):
        read(graph(), tmp_path, strict=True)


def test_no_usable_sample_is_an_error_that_shows_the_first_problem(tmp_path: Path) -> None:
    for index in range(3):
        np.save(tmp_path / f"{index}.npy", np.zeros((7,), np.float32))
    with pytest.raises(
        CalibrationDataError, match=r"none of the 3 samples can be used; the first: .*0\.npy.*\[7\]"
    ):
        read(graph(), tmp_path)


def test_nothing_at_all_is_an_error() -> None:
    with pytest.raises(CalibrationDataError, match="there is no sample"):
        read(graph(), [])


def test_mixing_gray_and_colour_is_said_or_fatal(tmp_path: Path) -> None:
    image(tmp_path / "a.png", 1)
    image(tmp_path / "b.png", 2, "L")
    image(tmp_path / "c.png", 3)
    batches, _, warnings = read(graph(), tmp_path)
    assert len(batches) == 3
    assert warnings == [
        f"{tmp_path} mixes 1 gray and 2 coloured images: all were converted to what the network takes"
    ]
    with pytest.raises(CalibrationDataError, match=r"'.*b\.png' is gray and '.*a\.png' is not"):
        read(graph(), tmp_path, strict=True)


def test_a_folder_of_gray_images_alone_is_fine(tmp_path: Path) -> None:
    image(tmp_path / "a.png", 1, "L")
    assert read(graph(), tmp_path, strict=True)[2] == []


def test_a_sample_with_nan_is_named_and_passed_over(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.full((3, 4, 4), np.nan, np.float32))
    np.save(tmp_path / "b.npy", np.zeros((3, 4, 4), np.float32))
    _, feeder, warnings = read(graph(), tmp_path)
    assert (
        feeder.skipped == 1 and "a.npy" in warnings[0] and "48 values that are NaN or infinite" in warnings[0]
    )


def test_many_bad_samples_are_not_all_named() -> None:
    data = [np.zeros(5, np.float32)] * 50 + [np.zeros((3, 4, 4), np.float32)]
    _, feeder, warnings = read(graph(), data)
    assert feeder.skipped == 50 and len(warnings) == 21


def test_an_npz_without_an_input_is_passed_over(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", a=np.zeros((1, 2), np.float32), c=np.zeros((1, 3), np.float32))
    with pytest.raises(CalibrationDataError, match="has no tensor for input 'b'; it holds 'a', 'c'"):
        read(two_inputs(), tmp_path)


def test_a_count_below_one_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        read(graph(), tmp_path, max_count=0)


# --- prepared data


def test_prepared_samples_are_the_same_data(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for index in range(3):
        image(tmp_path / "images" / f"{index}.png", index)
    network = graph()
    written, skipped = save_prepared(network, open_data(network, tmp_path / "images"), tmp_path / "ready")
    assert (written, skipped) == (3, 0)
    assert min(file.name for file in (tmp_path / "ready").iterdir()) == "000000_0.npz"
    before, _, _ = read(network, tmp_path / "images")
    after, _, _ = read(network, tmp_path / "ready")
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one.inputs["x"], other.inputs["x"])
    with pytest.raises(OutputError, match="is not empty"):
        save_prepared(network, open_data(network, tmp_path / "images"), tmp_path / "ready")
