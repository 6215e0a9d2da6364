"""COCO annotations: a selection of images in which every class occurs about equally often.

Images are drawn one by one: the next image is one that contains the class with the fewest objects so far. The draw is
seeded, so the same file always gives the same images.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from npuc.errors import CalibrationDataError, FileFormatError, UsageError
from npuc.files import existing_file

FILE_FORMAT = "%012d.jpg"
"""The file name, made from the id, of an image whose entry states none."""


def balanced_files(
    annotations: Path, folder: Path, count: int | None, seed: int, file_format: str | None = None
) -> list[Path]:
    """The images of an annotation file, or `count` of them balanced over the classes, in the order of their names.

    With a `file_format`, an image has the name that this makes of its id, if there is such a file.
    """
    images, classes = _read(existing_file(annotations))
    if file_format is not None:
        images |= {key: name for key in images if (folder / (name := _named(file_format, key))).is_file()}
    base = folder.resolve()
    files: dict[int, Path] = {}
    for key, name in images.items():
        path = folder / name
        if not path.resolve().is_relative_to(base):
            raise FileFormatError(
                f"names an image outside of '{folder}': {name}",
                where=str(annotations),
                fix="Check 'file_name'",
            )
        files[key] = path
    chosen = list(files) if count is None or count >= len(files) else draw(files, classes, count, seed)
    return sorted(files[key] for key in chosen)


def _named(file_format: str, key: int) -> str:
    try:
        return file_format % key
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"'{file_format}' does not make a file name of a number", fix=f"Write it like '{FILE_FORMAT}'"
        ) from error


def draw(images: Any, classes: dict[int, Counter[int]], count: int, seed: int) -> list[int]:
    """The ids of `count` images, balanced over the classes; `classes` counts the objects of each image by class.

    >>> draw([1, 2, 3], {1: Counter([7]), 2: Counter([7]), 3: Counter([8])}, 2, 0) in ([1, 3], [2, 3], [3, 1], [3, 2])
    True
    """
    rng = random.Random(seed)
    left = sorted(images)
    rng.shuffle(left)
    by_class: dict[int, list[int]] = defaultdict(list)
    for key in left:
        for category in classes.get(key, ()):
            by_class[category].append(key)
    objects: Counter[int] = Counter({category: 0 for category in by_class})
    chosen: dict[int, None] = {}
    while len(chosen) < count and by_class:
        category = min(by_class, key=lambda class_id: (objects[class_id], class_id))
        keys = by_class[category]
        while keys and keys[-1] in chosen:
            keys.pop()
        if not keys:
            del by_class[category]
            continue
        key = keys.pop()
        chosen[key] = None
        objects.update(classes[key])
    # Images without objects fill up what is left.
    for key in left:
        if len(chosen) >= count:
            break
        chosen.setdefault(key, None)
    return list(chosen)


def _read(path: Path) -> tuple[dict[int, str], dict[int, Counter[int]]]:
    try:
        content = json.loads(path.read_bytes())
        images = {
            int(entry["id"]): str(entry.get("file_name") or FILE_FORMAT % entry["id"])
            for entry in content["images"]
        }
        classes: dict[int, Counter[int]] = defaultdict(Counter)
        for entry in content.get("annotations", ()):
            classes[int(entry["image_id"])][int(entry["category_id"])] += 1
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise FileFormatError(
            f"is not a file of COCO annotations ({reason})",
            where=str(path),
            fix="It has 'images' with 'id' and 'file_name', and 'annotations' with 'image_id' and 'category_id'",
        ) from error
    if not images:
        raise CalibrationDataError("lists no images", where=str(path))
    return images, classes
