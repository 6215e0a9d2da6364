"""Calibration data in the forms that people have: other layouts, lists of every kind, raw files, labels, plugins' data sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npuc.arrays import Array
from npuc.calib.feeding import Feeder
from npuc.calib.samples import load_samples
from npuc.calib.sources import DataOptions, open_data
from npuc.datasets.data import DataLocation, find_dataset
from npuc.errors import FileFormatError, NpucError, UsageError
from npuc.ir import Graph, tensor_type


def network(*shape: int, dtype: str = "f32") -> Graph:
    raw = {"x": {"pixel_format": "rgb", "layout": "nchw"}} if shape[1:2] == (3,) else None
    return Graph.empty([("x", tensor_type(shape, dtype))], preprocess=raw)


def two_inputs() -> Graph:
    return Graph.empty([("a", tensor_type((1, 2), "f32")), ("b", tensor_type((1, 3), "f32"))])


def read(graph: Graph, data: Any, **options: Any) -> tuple[list[Array], list[str]]:
    """The samples for the first input, and what was said."""
    said: list[str] = []
    feeder = Feeder(graph, open_data(graph, data, DataOptions(**options)), False, said.append)
    return [row for batch in feeder.batches() for row in batch.inputs[graph.inputs[0].name]], said


PICTURES = np.arange(5 * 4 * 6 * 3, dtype=np.float32).reshape(5, 4, 6, 3)


@pytest.mark.parametrize("stacked", [True, False])
def test_channels_last_are_permuted_where_only_that_fits_and_it_is_said(
    tmp_path: Path, stacked: bool
) -> None:
    graph = network(1, 3, 4, 6)
    for index, part in enumerate([PICTURES] if stacked else list(PICTURES)):
        np.save(tmp_path / f"{index}.npy", part)
    rows, said = read(graph, tmp_path)
    np.testing.assert_array_equal(rows, PICTURES.transpose(0, 3, 1, 2))
    shape = [1, 4, 6, 3] if stacked else [4, 6, 3]
    assert said == [
        f"input 'x' takes [1, 3, 4, 6], and the data has {shape}: "
        "it is read as height × width × channels, and permuted"
    ]
    # The same by `npuc run --input`, and from Python.
    samples = load_samples(graph, [(None, tmp_path / "0.npy")])
    np.testing.assert_array_equal(next(iter(samples)).inputs["x"][0], rows[0])
    assert "permuted" in samples.notes[0]
    np.testing.assert_array_equal(read(graph, list(PICTURES))[0], rows)


def test_channels_first_and_gray_images_become_what_the_network_takes() -> None:
    rows, said = read(network(1, 4, 6, 3), list(PICTURES.transpose(0, 3, 1, 2)))
    np.testing.assert_array_equal(rows, PICTURES)
    assert "read as channels × height × width" in said[0]
    gray, said = read(network(1, 1, 4, 6), PICTURES[..., 0])
    np.testing.assert_array_equal(gray, PICTURES[:, None, :, :, 0])
    assert len(said) == 1 and "one channel" in said[0]


def test_what_fits_as_it_is_is_left_alone(tmp_path: Path) -> None:
    square = np.random.default_rng(0).random((2, 3, 3, 3)).astype(np.float32)
    rows, said = read(network(1, 3, 3, 3), square)
    np.testing.assert_array_equal(rows, square)
    assert said == []
    with pytest.raises(Exception, match="takes shape"):
        read(network(1, 3, 4, 6), [np.zeros((6, 4, 3), np.float32)])


def images(folder: Path, *names: str) -> None:
    for index, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (6, 4), (index + 1, 0, 0)).save(path)


def reds(rows: list[Array]) -> list[int]:
    return [int(row[0, 0, 0]) for row in rows]


@pytest.mark.parametrize(
    "text",
    [
        "a.png 7\nsub/b.png 0\nmy cat.png 3\n",
        "a.png\t7\nsub/b.png\ttabby cat\nmy cat.png\t3\n",
        "a.png,7\nsub/b.png, 0\nmy cat.png, 3\n",
        "# file class\na.png    7\n\nsub/b.png 0\nmy cat.png 3",
        "a.png\nsub/b.png\nmy cat.png\n",
        "a.png,\nsub/b.png,\nx=my cat.png\n",
    ],
)
def test_lists_with_blanks_tabs_or_commas_and_labels(tmp_path: Path, text: str) -> None:
    images(tmp_path, "a.png", "sub/b.png", "my cat.png")
    (tmp_path / "list.txt").write_text(text)
    rows, said = read(network(1, 3, 4, 6), tmp_path / "list.txt")
    assert reds(rows) == [1, 2, 3]
    labels = any(character in text for character in "37")
    assert said == (
        ["list.txt: what is beside the files, such as '7', is taken for labels and not used"]
        if labels
        else []
    )


def test_a_list_finds_files_in_the_folder_of_its_name_and_names_those_that_are_missing(
    tmp_path: Path,
) -> None:
    images(tmp_path, "val/a.png", "val/b.png")
    (tmp_path / "val.txt").write_text("a.png 1\nb.png 2\nc.png 3\n")
    rows, said = read(network(1, 3, 4, 6), tmp_path / "val.txt")
    assert reds(rows) == [1, 2] and "c.png" in said[-1] and "line 3" in said[-1]


@pytest.mark.parametrize(
    "content",
    [
        ["a.png", "b.png"],
        [["a.png"], ["b.png"]],
        [{"x": "a.png"}, {"x": "b.png"}],
        [{"image": "a.png", "label": 3}, {"image": "b.png", "label": 4}],
        [["a.png", 3], ["b.png", 4]],
        {"data": ["a.png", "b.png"]},
        {"x": ["a.png", "b.png"]},
    ],
)
def test_json_lists(tmp_path: Path, content: Any) -> None:
    images(tmp_path, "a.png", "b.png")
    (tmp_path / "list.json").write_text(json.dumps(content))
    rows, said = read(network(1, 3, 4, 6), tmp_path / "list.json")
    assert reds(rows) == [1, 2]
    assert ["labels" in note for note in said] == [True] * ("4" in json.dumps(content))


def test_json_lists_of_several_inputs_and_broken_ones(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.full((1, 2), 1, np.float32))
    np.save(tmp_path / "b.npy", np.full((1, 3), 2, np.float32))
    path = tmp_path / "list.json"
    path.write_text(json.dumps([{"b": "b.npy", "a": "a.npy"}, ["a.npy", "b.npy"], {"what": 1}]))
    rows, said = read(two_inputs(), path)
    assert [float(row[0]) for row in rows] == [1, 1]
    assert len(said) == 1 and "element 2" in said[0] and "neither a path" in said[0]
    path.write_text(json.dumps({"b": ["b.npy"], "a": ["a.npy"]}))
    assert len(read(two_inputs(), path)[0]) == 1
    for text, words in (
        ("{", "is not JSON"),
        ('{"images": []}', "no JSON array"),
        (
            '{"a": ["a.npy"], "b": ["b.npy", "b.npy"]}',
            "different numbers of files for the inputs: 'a' 1, 'b' 2",
        ),
        ("[" * 100_000, "not JSON"),
    ):
        path.write_text(text)
        with pytest.raises(FileFormatError, match=words):
            read(two_inputs(), path)


def test_raw_files_hold_what_is_said_of_them(tmp_path: Path) -> None:
    graph = network(1, 3, 4, 6)
    pixels = (PICTURES % 251).astype(np.uint8)
    pixels[0].tofile(tmp_path / "0.bin")
    pixels[1:].tofile(tmp_path / "1.bin")
    rows, said = read(graph, tmp_path, preprocess="raw:uint8:4,6,3")
    np.testing.assert_array_equal(rows, pixels.transpose(0, 3, 1, 2))
    assert len(said) == 1 and "permuted" in said[0]
    # Without a word, the input's own type and shape, if the size allows it.
    floats = PICTURES.transpose(0, 3, 1, 2).copy()
    floats.tofile(tmp_path / "floats.bin")
    rows, said = read(graph, tmp_path / "floats.bin")
    np.testing.assert_array_equal(rows, floats)
    assert said == [
        "raw files are read as float32 of shape [1, 3, 4, 6], as input 'x' is (--preprocess raw:TYPE:SHAPE says otherwise)"
    ]
    with pytest.raises(Exception, match=r"no whole number of samples of float32.*--preprocess raw:uint8"):
        read(graph, tmp_path / "0.bin")
    with pytest.raises(UsageError, match="no type of raw numbers"):
        read(graph, tmp_path, preprocess="raw:complex64")
    with pytest.raises(UsageError, match="no shape"):
        read(graph, tmp_path, preprocess="raw:uint8:4,-1")


def test_raw_files_beside_images_are_left_alone(tmp_path: Path) -> None:
    images(tmp_path, "a.png")
    (tmp_path / "weights.bin").write_bytes(bytes(17))
    assert reds(read(network(1, 3, 4, 6), tmp_path)[0]) == [1]


def test_labels_in_an_npz_are_not_the_input(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", x_test=PICTURES, y_test=np.arange(5))
    rows, _ = read(network(1, 3, 4, 6), tmp_path / "all.npz")
    assert len(rows) == 5


def test_evaluation_takes_labels_from_an_npy_file_or_one_a_line(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", PICTURES)
    np.save(tmp_path / "y.npy", np.arange(5))
    np.save(tmp_path / "hot.npy", np.eye(5, dtype=np.float32))
    (tmp_path / "y.txt").write_text("0\n1\n2\n3\n4\n")
    for labels in ("y.npy", "hot.npy", "y.txt"):
        place = DataLocation(tmp_path / "x.npy", tmp_path / labels)
        kind = find_dataset(place)
        assert kind.name == "arrays"
        found = kind.open(place)
        assert [entry.truth for entry in found.entries] == [0, 1, 2, 3, 4]
        np.testing.assert_array_equal(found.read(found.entries[2]).tensors, PICTURES[2])
    folder = tmp_path / "images"
    images(folder, "b.png", "a.png", "c.png")
    (tmp_path / "labels.txt").write_text("5\n6\n7\n")
    place = DataLocation(folder, tmp_path / "labels.txt")
    found = find_dataset(place).open(place)
    assert [(entry.name, entry.truth) for entry in found.entries] == [
        ("a.png", 5),
        ("b.png", 6),
        ("c.png", 7),
    ]
    (tmp_path / "labels.txt").write_text("5\n6\n")
    with pytest.raises(Exception, match=r"2 labels, one a line, and .* has 3 files"):
        find_dataset(place).open(place)
    (folder / "list.csv").write_text("a.png, 3\nb.png, 4\n")
    place = DataLocation(folder / "list.csv")
    assert [entry.truth for entry in find_dataset(place).open(place).entries] == [3, 4]


def test_numbers_as_text(tmp_path: Path) -> None:
    (tmp_path / "a.tensor").write_text("1\n-2.5\n")
    (tmp_path / "b.txt").write_text("3 4e-1 5\n")
    (tmp_path / "list.txt").write_text("a.tensor b.txt\n")
    graph = two_inputs()
    feeder = Feeder(graph, open_data(graph, tmp_path / "list.txt"), True)
    (batch,) = feeder.batches()
    assert batch.inputs["a"].tolist() == [[1.0, -2.5]] and np.allclose(batch.inputs["b"], [[3, 0.4, 5]])
    (alone,) = load_samples(network(1, 2), [(None, tmp_path / "a.tensor")])
    assert alone.inputs["x"].tolist() == [[1.0, -2.5]]
    assert len(read(network(1, 2), tmp_path / "a.tensor")[0]) == 1
    for content, words in (
        ("1\n", "has 1 numbers"),
        ("1\nx\n", "no number"),
        ("1\n" * 99, "numbers of one sample|99 numbers"),
    ):
        (tmp_path / "a.tensor").write_text(content)
        with pytest.raises(NpucError, match=words):
            load_samples(network(1, 2), [(None, tmp_path / "a.tensor")])


def test_two_files_by_a_blank_are_two_inputs_and_no_label(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(2, np.float32))
    np.save(tmp_path / "b.npy", np.zeros(3, np.float32))
    (tmp_path / "list.txt").write_text("a.npy b.npy\n")
    graph = two_inputs()
    (batch,) = Feeder(graph, open_data(graph, tmp_path / "list.txt"), True).batches()
    assert batch.inputs["a"].shape == (1, 2) and batch.inputs["b"].shape == (1, 3)
