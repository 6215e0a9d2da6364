"""Pascal VOC: JPEGImages/, Annotations/*.xml and, to choose among them, ImageSets/Main/*.txt.

VOC's pixels count from 1 and both ends belong to a box: xmin is moved by one, so that a box covers xmax - xmin + 1 pixels.
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from npuc.datasets.data import DataLocation, DataSet, class_names, dataset, inside, read_lines, subfolder
from npuc.datasets.formats.boxes import read_image_file
from npuc.datasets.sample import Boxes, LabelledBox, SampleEntry
from npuc.errors import EvaluationDataError, FileFormatError
from npuc.files import existing_file

CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
_MAX_XML = 4 << 20


@dataset("voc", matches=lambda place: place.path.is_dir() and (place.path / "Annotations").is_dir())
def voc(place: DataLocation) -> DataSet:
    """Pascal VOC: JPEGImages/ and Annotations/; --annotations gives a list of ImageSets/Main."""
    folder = place.path
    notes = folder / "Annotations"
    images = place.images or subfolder(folder, "JPEGImages", "images")
    if not notes.is_dir() or images is None:
        raise EvaluationDataError("has no folders 'JPEGImages' and 'Annotations'", where=str(folder))
    chosen = place.annotations or next(
        (
            path
            for name in ("test", "val")
            if (path := folder / "ImageSets" / "Main" / f"{name}.txt").is_file()
        ),
        None,
    )
    if chosen is not None:
        stems = [line.split()[0] for line in read_lines(chosen, "a list of images") if line.strip()]
    else:
        stems = sorted(path.stem for path in notes.glob("*.xml"))
    if not stems:
        raise EvaluationDataError("has no annotations", where=str(chosen or notes))
    names = class_names(place.classes) or CLASSES
    entries = []
    for stem in stems:
        path = inside(notes, f"{stem}.xml", str(chosen or notes))
        truth, file = _read(path, names, place.label_offset)
        image = next(
            (
                candidate
                for name in (file, f"{stem}.jpg", f"{stem}.png")
                if name and (candidate := inside(images, name, str(path))).is_file()
            ),
            None,
        )
        if image is None:
            raise EvaluationDataError(f"its image is not in {images}", where=str(path))
        entries.append(SampleEntry(stem, truth, image))
    return DataSet("detection", entries, read_image_file, tuple(names))


def _read(path: Path, names: tuple[str, ...], offset: int) -> tuple[Boxes, str]:
    data = existing_file(path).read_bytes() if path.is_file() and path.stat().st_size <= _MAX_XML else None
    if data is None:
        existing_file(path)
        raise FileFormatError("is too large for the annotations of an image", where=str(path))
    # Entities can unfold to anything; annotations have none.
    if re.search(rb"<!(DOCTYPE|ENTITY)", data, re.IGNORECASE):
        raise FileFormatError("declares a document type, which annotations do not need", where=str(path))
    try:
        root = ElementTree.fromstring(data)
        boxes = [_box(element, names, offset, path) for element in root.iter("object")]
        return Boxes(tuple(boxes)), (root.findtext("filename") or "").strip()
    except (ElementTree.ParseError, ValueError, TypeError) as error:
        raise FileFormatError(f"is not an annotation of VOC ({error})", where=str(path)) from error


def _box(element: ElementTree.Element, names: tuple[str, ...], offset: int, path: Path) -> LabelledBox:
    name = (element.findtext("name") or "").strip()
    if name not in names:
        raise EvaluationDataError(
            f"'{name}' is no class that is known",
            where=str(path),
            fix="--classes FILE names the classes in the order of the model's scores",
        )
    box = element.find("bndbox")
    if box is None:
        raise ValueError("an object without 'bndbox'")
    x1, y1, x2, y2 = (float(box.findtext(side) or "?") for side in ("xmin", "ymin", "xmax", "ymax"))
    if not (x1 <= x2 and y1 <= y2):
        raise ValueError(f"a box from {x1:g}, {y1:g} to {x2:g}, {y2:g}")
    difficult = (element.findtext("difficult") or "0").strip() == "1"
    area = (x2 - x1 + 1) * (y2 - y1 + 1)
    return LabelledBox(x1 - 1, y1 - 1, x2, y2, names.index(name) + offset, area, difficult=difficult)
