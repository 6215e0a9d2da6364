"""Data sets: every layout, and what is wrong with a data set in one paragraph that names the place."""

from __future__ import annotations

import json
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npuc.datasets.data import DATASETS, DataLocation, DataSet, dataset, find_dataset
from npuc.datasets.sample import Boxes, LoadedSample, SampleEntry
from npuc.errors import EvaluationDataError, FileFormatError, FileMissingError, NpucError, UsageError


def _image(path: Path, value: int = 0, size: tuple[int, int] = (8, 6)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, 10, 20)).save(path)
    return path


def _open(path: Path, **more: Any) -> tuple[str, DataSet]:
    place = DataLocation(path, **more)
    kind = find_dataset(place)
    return kind.name, kind.open(place)


def _pairs(data: DataSet) -> list[tuple[str, Any]]:
    return [(entry.name, entry.truth) for entry in data.entries]


def test_a_list_beside_its_folder(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        _image(tmp_path / "val" / name)
    (tmp_path / "val.txt").write_text("# comment\nb.png 3\n\na.png 1\n")
    for place in (tmp_path, tmp_path / "val.txt"):
        name, data = _open(place)
        assert (name, data.task) == ("list", "classification")
        assert _pairs(data) == [("b.png", 3), ("a.png", 1)]
    assert _pairs(_open(tmp_path, label_offset=1)[1])[0] == ("b.png", 4)


def test_a_list_with_names_of_classes(tmp_path: Path) -> None:
    _image(tmp_path / "a.png")
    (tmp_path / "list.txt").write_text("a.png,dog\n")
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    assert _pairs(_open(tmp_path, classes=tmp_path / "classes.txt")[1]) == [("a.png", 1)]
    with pytest.raises(
        EvaluationDataError, match=r"class 'dog' of 'a.png' is neither a number nor .*--classes"
    ):
        _open(tmp_path)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a.png", "line 1: 'a.png' has no label"),
        ("none.png 1", r"line 1: 'none.png' is not in .*--images"),
        ("../secret.png 1", "is outside of"),
        ("a.png 1\na.png 2", "line 2: 'a.png' is in the list twice"),
        ("", "lists no files"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    _image(tmp_path / "val" / "a.png")
    _image(tmp_path / "secret.png")
    (tmp_path / "val.txt").write_text(line + "\n")
    with pytest.raises(EvaluationDataError, match=words):
        find_dataset(DataLocation(tmp_path)).open(DataLocation(tmp_path / "val.txt", images=tmp_path / "val"))


def test_a_list_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "val.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileFormatError, match="is not a text file"):
        _open(tmp_path)


def test_folders_of_classes(tmp_path: Path) -> None:
    _image(tmp_path / "n02" / "x.JPEG".lower().replace("jpeg", "png"))
    _image(tmp_path / "n01" / "sub" / "y.png")
    _image(tmp_path / "n01" / ".hidden.png")
    name, data = _open(tmp_path)
    assert name == "folders" and data.classes == ("n01", "n02")
    assert _pairs(data) == [("n01/sub/y.png", 0), ("n02/x.png", 1)]
    (tmp_path / "synsets").write_text("n02 dog, hound\nn01 cat\n")
    assert _pairs(_open(tmp_path, classes=tmp_path / "synsets")[1]) == [
        ("n01/sub/y.png", 1),
        ("n02/x.png", 0),
    ]
    (tmp_path / "synsets").write_text("n02\n")
    with pytest.raises(EvaluationDataError, match="the folder 'n01' is no class of"):
        _open(tmp_path, classes=tmp_path / "synsets")


def test_cifar_in_binary(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (3, 3, 32, 32), np.uint8)
    rows = [bytes([k]) + pixels[k].tobytes() for k in range(3)]
    (tmp_path / "test_batch.bin").write_bytes(b"".join(rows))
    name, data = _open(tmp_path)
    assert name == "cifar" and [entry.truth for entry in data.entries] == [0, 1, 2]
    assert np.array_equal(np.asarray(data.read(data.entries[2]).image), pixels[2].transpose(1, 2, 0))
    (tmp_path / "test_batch.bin").write_bytes(b"".join(rows)[:-1])
    with pytest.raises(FileFormatError, match="not a whole number of CIFAR records"):
        _open(tmp_path)
    fine = b"".join(b"\x07" + bytes([k]) + pixels[k].tobytes() for k in range(3))
    (tmp_path / "hundred").mkdir()
    (tmp_path / "hundred" / "test.bin").write_bytes(fine)
    assert [entry.truth for entry in _open(tmp_path / "hundred")[1].entries] == [0, 1, 2]


def _coco() -> dict[str, Any]:
    return {
        "images": [{"id": 7, "file_name": "b.png"}, {"id": 3, "file_name": "a.png"}],
        "categories": [{"id": 90, "name": "brush"}, {"id": 1, "name": "person"}],
        "annotations": [
            {"id": 1, "image_id": 3, "category_id": 90, "bbox": [1, 2, 3, 4], "area": 5, "iscrowd": 1}
        ],
    }


def _coco_at(folder: Path, content: Any) -> Path:
    for name in ("a.png", "b.png"):
        _image(folder / "images" / name)
    file = folder / "instances.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def test_coco_instances(tmp_path: Path) -> None:
    file = _coco_at(tmp_path, _coco())
    name, data = _open(tmp_path / "images", annotations=file)
    assert name == "coco" and data.classes == ("person", "brush")
    assert [entry.name for entry in data.entries] == ["a.png", "b.png"]
    (box,) = data.entries[0].truth.boxes
    assert tuple(box) == (1, 2, 4, 6, 1, 5, True, False) and data.entries[1].truth == Boxes()
    assert _pairs(_open(file)[1]) == _pairs(data)
    (tmp_path / "names").write_text("brush\ncar\nperson\n")
    assert _open(file, classes=tmp_path / "names")[1].entries[0].truth.boxes[0].category == 0


def _without(content: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name != key}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: "{", "is not a file of COCO instances"),
        (lambda c: [1], "is not a file of COCO instances"),
        (lambda c: _without(c, "categories"), "no 'categories'"),
        (lambda c: c | {"annotations": [{"image_id": 3, "category_id": 1}]}, "no 'bbox'"),
        (
            lambda c: c | {"annotations": [{"image_id": 3, "category_id": 5, "bbox": [0, 0, 1, 1]}]},
            "category 5",
        ),
        (
            lambda c: c | {"annotations": [{"image_id": 9, "category_id": 1, "bbox": [0, 0, 1, 1]}]},
            "image 9",
        ),
        (
            lambda c: c | {"annotations": [{"image_id": 3, "category_id": 1, "bbox": [0, 0, -1, 1]}]},
            "a box of -1",
        ),
        (lambda c: c | {"images": [{"id": 3, "file_name": "../x.png"}]}, "is outside of"),
        (lambda c: c | {"images": [{"id": 3, "file_name": "c.png"}]}, "'c.png' is not in"),
        (lambda c: c | {"images": [], "annotations": []}, "lists no images"),
        (lambda c: "[" * 100_000, "is not a file of COCO instances"),
    ],
)
def test_wrong_annotations_are_one_paragraph(
    tmp_path: Path, change: Callable[[Any], Any], words: str
) -> None:
    file = _coco_at(tmp_path, change(_coco()))
    with pytest.raises(NpucError, match=words) as caught:
        _open(tmp_path / "images", annotations=file)
    assert isinstance(caught.value, EvaluationDataError | FileFormatError)
    assert "instances.json" in str(caught.value)


def test_labels_of_yolo(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        _image(tmp_path / "images" / name)
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "a.txt").write_text("5 0.5 0.5 0.5 0.25\n")
    name, data = _open(tmp_path)
    assert name == "yolo"
    (box,) = data.entries[0].truth.in_pixels(100, 200)
    assert tuple(box)[:6] == pytest.approx((50, 37.5, 150, 62.5, 5, 2500))
    assert data.entries[1].truth.boxes == ()
    for line in ("5 0.5 0.5 0.5", "x 1 1 1 1", "1 nan 0 0 0", "-1 0 0 0 0"):
        (tmp_path / "labels" / "a.txt").write_text(line + "\n")
        with pytest.raises(EvaluationDataError, match=r"a.txt, line 1: .* is not a class and four numbers"):
            _open(tmp_path)
    (tmp_path / "labels" / "a.txt").write_text("5 0.5 0.5 0.5 0.25\n")
    (tmp_path / "names").write_text("one\ntwo\n")
    with pytest.raises(EvaluationDataError, match="class 5 is unknown: 2 classes are named"):
        _open(tmp_path, classes=tmp_path / "names")


_VOC = """<annotation><filename>a.jpg</filename><object><name>dog</name><difficult>1</difficult>
<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>4</xmax><ymax>5</ymax></bndbox></object></annotation>"""


def test_annotations_of_voc(tmp_path: Path) -> None:
    _image(tmp_path / "JPEGImages" / "a.jpg")
    (tmp_path / "Annotations").mkdir()
    note = tmp_path / "Annotations" / "a.xml"
    note.write_text(_VOC)
    name, data = _open(tmp_path)
    assert name == "voc"
    (box,) = data.entries[0].truth.boxes
    assert tuple(box) == (0, 1, 4, 5, 11, 16, False, True)
    for text, words in (
        (_VOC.replace("dog", "unicorn"), "'unicorn' is no class"),
        (_VOC[:-5], "is not an annotation of VOC"),
        (_VOC.replace("<xmin>1</xmin>", ""), "is not an annotation of VOC"),
        (_VOC.replace("<xmin>1<", "<xmin>9<"), "a box from 9"),
        ('<!DOCTYPE a [<!ENTITY b "c">]>' + _VOC, "declares a document type"),
        (_VOC.replace("a.jpg", "../../x"), "is outside of"),
    ):
        note.write_text(text)
        with pytest.raises(NpucError, match=words):
            _open(tmp_path)
    note.write_text(_VOC)
    (tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    (tmp_path / "ImageSets" / "Main" / "test.txt").write_text("b\n")
    with pytest.raises(FileMissingError, match=r"b.xml"):
        _open(tmp_path)


def test_masks(tmp_path: Path) -> None:
    _image(tmp_path / "images" / "a.png")
    (tmp_path / "masks").mkdir()
    labels = np.arange(48, dtype=np.uint8).reshape(6, 8) % 5
    Image.fromarray(labels).save(tmp_path / "masks" / "a.png")
    name, data = _open(tmp_path)
    assert (name, data.task) == ("masks", "segmentation")
    assert np.array_equal(data.read(data.entries[0]).truth, labels)
    _image(tmp_path / "images" / "b.png")
    with pytest.raises(EvaluationDataError, match=r"'b.png' has no mask"):
        _open(tmp_path)
    _image(tmp_path / "masks" / "b.png")
    data = _open(tmp_path)[1]
    with pytest.raises(FileFormatError, match="is an image of colours"):
        data.read(data.entries[1])
    (tmp_path / "masks" / "b.png").write_bytes(b"no image")
    with pytest.raises(FileFormatError, match="cannot be decoded as a mask"):
        data.read(data.entries[1])


def test_arrays_with_labels_and_with_outputs(tmp_path: Path) -> None:
    file = tmp_path / "data.npz"
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.savez(file, x=x, labels=np.array([0, 1, 1, 0]))
    name, data = _open(file)
    assert (name, data.task) == ("arrays", "classification")
    assert [entry.truth for entry in data.entries] == [0, 1, 1, 0]
    assert np.array_equal(data.read(data.entries[2]).tensors, x[2])
    np.savez(file, x=x, labels=np.eye(3)[[2, 0, 1, 1]])
    assert [entry.truth for entry in _open(file)[1].entries] == [2, 0, 1, 1]
    np.savez(file, x=x, **{"output:y": x * 2})
    _, data = _open(file)
    assert data.task == "reference" and np.array_equal(data.read(data.entries[1]).truth["y"], x[1] * 2)
    np.savez(tmp_path / "out.npz", y=x * 3)
    np.savez(file, x=x)
    _, data = _open(file, annotations=tmp_path / "out.npz")
    assert np.array_equal(data.read(data.entries[1]).truth["y"], x[1] * 3)
    np.savez(file, x=x, labels=np.array([0, 1]))
    with pytest.raises(EvaluationDataError, match="'x' 4, 'labels' 2"):
        _open(file)
    np.savez(file, x=x, labels=np.full(4, 0.5))
    with pytest.raises(EvaluationDataError, match="not one whole number a sample"):
        _open(file)


def test_sounds_in_folders(tmp_path: Path) -> None:
    for word, value in (("no", -16384), ("yes", 16384)):
        (tmp_path / word).mkdir()
        with wave.open(str(tmp_path / word / "1.wav"), "wb") as out:
            out.setparams((2, 2, 16000, 0, "NONE", ""))
            out.writeframes(np.array([value, value, 0, value] * 3, "<i2").tobytes())
    name, data = _open(tmp_path)
    assert name == "folders" and _pairs(data) == [("no/1.wav", 0), ("yes/1.wav", 1)]
    sound = data.read(data.entries[1]).sound
    assert sound is not None and sound[:2].tolist() == [0.5, 0.25] and sound.shape == (6,)
    (tmp_path / "no" / "1.wav").write_bytes(b"RIFFnonsense")
    with pytest.raises(FileFormatError, match=r"is not a readable .wav file"):
        data.read(data.entries[0])


def test_texts(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3, np.float32))
    (tmp_path / "list.tsv").write_text("a.npy\tthe cat\n")
    _, data = _open(tmp_path / "list.tsv")
    assert data.task == "text" and _pairs(data) == [("a.npy", "the cat")]


def test_what_is_no_data_set(tmp_path: Path) -> None:
    with pytest.raises(
        EvaluationDataError, match=r"looks like no data set.*--dataset; there are: arrays, cifar"
    ):
        _open(tmp_path)
    with pytest.raises(FileMissingError, match="does not exist"):
        _open(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no data set 'imagnet'"):
        find_dataset(DataLocation(tmp_path), "imagnet")
    for name in ("arrays", "cifar", "coco", "folders", "list", "masks", "voc", "yolo"):
        assert name in DATASETS
        with pytest.raises(NpucError):
            find_dataset(DataLocation(tmp_path), name).open(DataLocation(tmp_path))


def _read(entry: SampleEntry) -> LoadedSample:
    return LoadedSample(tensors=np.zeros(1))


def test_a_program_brings_a_data_set(tmp_path: Path) -> None:
    @dataset("odd", matches=lambda place: place.path.suffix == ".odd")
    def odd(place: DataLocation) -> DataSet:
        """Odd things."""
        return DataSet("classification", [SampleEntry("one", 1)], _read)

    (tmp_path / "x.odd").touch()
    assert _open(tmp_path / "x.odd")[0] == "odd"


def test_a_plugin_may_still_call_an_image_a_picture() -> None:
    image = Image.new("RGB", (2, 2))
    with pytest.warns(FutureWarning, match="'picture' is now 'image'"):
        loaded = LoadedSample(picture=image)
    assert loaded.image is image
    with pytest.warns(FutureWarning, match=r"LoadedSample.picture is now LoadedSample.image"):
        assert loaded.picture is image
