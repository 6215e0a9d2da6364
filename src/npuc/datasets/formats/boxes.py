"""Images with boxes: COCO's annotations, and the text files of YOLO's trainers.

COCO: `--data` is the folder of the images and `--annotations` the instances file; or `--data` is the file, with the images
beside it or in `--images`. Categories in the order of their ids are the classes 0, 1, ... of the model; `--classes` names
another order.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

from npuc.calib.coco import FILE_FORMAT
from npuc.datasets.data import (
    DataLocation,
    DataSet,
    class_names,
    dataset,
    files_in,
    inside,
    read_lines,
    subfolder,
)
from npuc.datasets.sample import Boxes, LabelledBox, LoadedSample, SampleEntry
from npuc.errors import EvaluationDataError, FileFormatError
from npuc.files import existing_file
from npuc.images.loading import SUFFIXES

_MAX_JSON = 2 << 30


def read_image_file(entry: SampleEntry) -> LoadedSample:
    """The file of an image."""
    return LoadedSample(entry.path)


def _annotations(place: DataLocation) -> Path | None:
    if place.annotations is not None:
        return place.annotations if place.annotations.suffix.lower() == ".json" else None
    return place.path if place.path.suffix.lower() == ".json" and place.path.is_file() else None


@dataset("coco", matches=lambda place: _annotations(place) is not None)
def coco(place: DataLocation) -> DataSet:
    """Images with an instances file of COCO's form."""
    path = _annotations(place)
    if path is None:
        raise EvaluationDataError(
            "has no COCO annotations", where=str(place.path), fix="Give --annotations FILE.json"
        )
    path = existing_file(path)
    if path.stat().st_size > _MAX_JSON:
        raise FileFormatError("is too large for annotations", where=str(path))
    folder = place.images or (
        place.path if place.path.is_dir() else subfolder(path.parent, "images") or path.parent
    )
    try:
        content = json.loads(path.read_bytes())
        file_names = {
            int(image["id"]): str(image.get("file_name") or FILE_FORMAT % int(image["id"]))
            for image in content["images"]
        }
        categories = {
            int(entry["id"]): str(entry.get("name", entry["id"])) for entry in content["categories"]
        }
        numbers = _numbers(categories, class_names(place.classes), path)
        boxes: dict[int, list[LabelledBox]] = defaultdict(list)
        for annotation in content["annotations"]:
            boxes[int(annotation["image_id"])].append(_box(annotation, numbers))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise FileFormatError(
            f"is not a file of COCO instances ({reason})",
            where=str(path),
            fix="It has 'images' with 'id' and 'file_name', 'annotations' with 'image_id', 'category_id' and 'bbox', "
            "and 'categories' with 'id' and 'name'",
        ) from error
    stray = next((key for key in boxes if key not in file_names), None)
    if stray is not None:
        raise EvaluationDataError(
            f"an annotation is of image {stray}, which is not in 'images'", where=str(path)
        )
    if not file_names:
        raise EvaluationDataError("lists no images", where=str(path))
    entries = []
    for key in sorted(file_names):
        file = inside(folder, file_names[key], str(path))
        if not file.is_file():
            raise EvaluationDataError(
                f"'{file_names[key]}' is not in {folder}",
                where=str(path),
                fix="--images gives the folder of the images",
            )
        entries.append(SampleEntry(file_names[key], Boxes(tuple(boxes.get(key, ()))), file))
    names = {number: categories[key] for key, number in numbers.items()}
    return DataSet(
        "detection",
        entries,
        read_image_file,
        tuple(names.get(k, "") for k in range(max(names, default=-1) + 1)),
    )


def _numbers(categories: dict[int, str], names: tuple[str, ...], path: Path) -> dict[int, int]:
    """The class of the model for every category."""
    if not names:
        return {key: number for number, key in enumerate(sorted(categories))}
    missing = next((name for name in categories.values() if name not in names), None)
    if missing is not None:
        raise EvaluationDataError(
            f"its category '{missing}' is not among the classes that are given", where=str(path)
        )
    return {key: names.index(name) for key, name in categories.items()}


def _box(annotation: Any, numbers: dict[int, int]) -> LabelledBox:
    x, y, width, height = (float(value) for value in annotation["bbox"])
    if not all(math.isfinite(value) for value in (x, y, width, height)) or width < 0 or height < 0:
        raise ValueError(f"a box of {width:g} x {height:g} at {x:g}, {y:g}")
    category = int(annotation["category_id"])
    if category not in numbers:
        raise ValueError(f"category {category} is in an annotation and not in 'categories'")
    area = float(annotation.get("area", width * height))
    return LabelledBox(
        x, y, x + width, y + height, numbers[category], area, bool(annotation.get("iscrowd", 0))
    )


def _has_labels(place: DataLocation) -> bool:
    folder = place.path
    if not folder.is_dir():
        return False
    labels = subfolder(folder, "labels")
    return labels is not None and (place.images is not None or subfolder(folder, "images") is not None)


@dataset("yolo", matches=_has_labels)
def yolo(place: DataLocation) -> DataSet:
    """`images/` and `labels/`: a text file an image, a line a box: class, center x, y, width, height as parts of it."""
    labels = place.annotations or subfolder(place.path, "labels")
    images = place.images or subfolder(place.path, "images")
    if labels is None or images is None:
        raise EvaluationDataError("has no folders 'images' and 'labels'", where=str(place.path))
    names = class_names(place.classes)
    entries = []
    known = {path.relative_to(labels).with_suffix("") for path in files_in(labels, (".txt",))}
    for file in files_in(images, SUFFIXES):
        name = file.relative_to(images)
        path = labels / name.with_suffix(".txt")
        # An image without objects has an empty file, or none.
        lines = read_lines(path, "labels") if name.with_suffix("") in known else []
        boxes = [
            _line(line, f"{path}, line {k}", names, place.label_offset)
            for k, line in enumerate(lines, 1)
            if line.strip()
        ]
        entries.append(SampleEntry(str(name), Boxes(tuple(boxes), relative=True), file))
    if not entries:
        raise EvaluationDataError("has no images", where=str(images))
    if not any(entry.truth.boxes for entry in entries):
        raise EvaluationDataError(f"has no labels for the images of {images}", where=str(labels))
    return DataSet("detection", entries, read_image_file, names)


def _line(line: str, where: str, names: tuple[str, ...], offset: int) -> LabelledBox:
    words = line.split()
    try:
        number = int(words[0])
        x, y, width, height = (float(word) for word in words[1:5])
        if len(words) != 5 or not all(math.isfinite(v) for v in (x, y, width, height)) or number < 0:
            raise ValueError
    except (ValueError, IndexError) as error:
        raise EvaluationDataError(
            f"'{line.strip()[:60]}' is not a class and four numbers",
            where=where,
            fix="Write: class, center x, center y, width, height, as parts of the image",
        ) from error
    if names and number >= len(names):
        raise EvaluationDataError(f"class {number} is unknown: {len(names)} classes are named", where=where)
    left, top = x - width / 2, y - height / 2
    return LabelledBox(left, top, left + width, top + height, number + offset, width * height)
