"""Files with labels: a list of them, or a folder for each class. Images, arrays and sounds alike.

A line of a list is a file and its class (a number or a name) or, for a text, everything after the file and a tab. Files are
looked for beside the list, and in the folder that has its name (`val.txt`, `val/`). A list with nothing but a class on each
line (`--annotations labels.txt`) is for the files of the folder, in the order of their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

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
from npuc.datasets.formats.sound import read_sound
from npuc.datasets.sample import LoadedSample, SampleEntry
from npuc.errors import EvaluationDataError
from npuc.images.loading import SUFFIXES as IMAGES
from npuc.tensors import TensorFile
from npuc.words import counted

SOUNDS = frozenset({".wav"})
ARRAYS = frozenset({".npy", ".npz"})
_LISTS = ("val.txt", "test.txt", "labels.txt", "list.txt")


def read_file(entry: SampleEntry) -> LoadedSample:
    """An image, the samples of a sound, or the tensors of a file."""
    assert entry.path is not None
    suffix = entry.path.suffix.lower()
    if suffix in SOUNDS:
        return LoadedSample(entry.path, sound=read_sound(entry.path))
    if suffix in ARRAYS:
        file = TensorFile(entry.path)
        return LoadedSample(entry.path, tensors=file[""] if "" in file else dict(file.items()))
    return LoadedSample(entry.path)


def _list_of(place: DataLocation) -> Path | None:
    """The list that a place names or has."""
    if place.path.suffix.lower() in ARRAYS and place.path.is_file():
        return None
    given = place.annotations or (place.path if place.path.is_file() else None)
    if given is not None:
        return given if given.suffix.lower() in (".txt", ".csv", ".tsv") else None
    return next((place.path / name for name in _LISTS if (place.path / name).is_file()), None)


@dataset("list", matches=lambda place: _list_of(place) is not None)
def labelled_list(place: DataLocation) -> DataSet:
    """A text file with a file and its class a line, the files beside it or in the folder of its name."""
    path = _list_of(place)
    if path is None:
        raise EvaluationDataError(
            f"has no list of files and classes ({', '.join(_LISTS)})",
            where=str(place.path),
            fix="Give --data the list itself, or --annotations",
        )
    names = class_names(place.classes)
    folders = [place.images] if place.images is not None else _folders(path, place)
    entries: dict[str, SampleEntry] = {}
    tabs = False
    lines = read_lines(path, "a list of files and classes")
    plain = _plain_labels(lines)
    if plain is not None:
        return _in_order(plain, path, folders, place, names)
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"{path}, line {number}"
        tabs |= "\t" in line
        name, label = _split(line, where)
        file = next(
            (candidate for folder in folders if (candidate := inside(folder, name, where)).exists()), None
        )
        if file is None:
            raise EvaluationDataError(
                f"'{name}' is not in {' or '.join(str(folder) for folder in folders)}",
                where=where,
                fix="--images gives the folder of the files",
            )
        if name in entries:
            raise EvaluationDataError(f"'{name}' is in the list twice", where=where)
        entries[name] = SampleEntry(name, label, file)
    if not entries:
        raise EvaluationDataError("lists no files", where=str(path), fix="A line is a file and its class")
    classes = [_class(entry.truth, names, place.label_offset) for entry in entries.values()]
    strange = next(
        (entry for entry, number in zip(entries.values(), classes, strict=True) if number is None), None
    )
    if strange is None:
        numbered = [
            replace(entry, truth=number) for entry, number in zip(entries.values(), classes, strict=True)
        ]
        return DataSet("classification", numbered, read_file, names)
    if tabs:
        return DataSet("text", list(entries.values()), read_file, names)
    raise EvaluationDataError(
        f"the class '{strange.truth}' of '{strange.name}' is neither a number nor one of {len(names)} known names",
        where=str(path),
        fix="--classes FILE names the classes in the order of the model's scores",
    )


def _plain_labels(lines: Sequence[str]) -> list[str] | None:
    """The labels of a list that has one a line and nothing else; None for a list of files."""
    words = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return words if words and all(word.lstrip("-").isdecimal() for word in words) else None


def _in_order(
    labels: Sequence[str], path: Path, folders: Sequence[Path], place: DataLocation, names: tuple[str, ...]
) -> DataSet:
    """The files of a folder in the order of their names, each with the label of its line."""
    folder = place.images or next(
        (candidate for candidate in (place.path, *folders) if candidate.is_dir()), path.parent
    )
    files = files_in(folder, IMAGES | SOUNDS | ARRAYS)
    if len(files) != len(labels):
        raise EvaluationDataError(
            f"has {counted(len(labels), 'label')}, one a line, and {folder} has {counted(len(files), 'file')}",
            where=str(path),
            fix="--images gives the folder of the files; or write each file and its class on a line",
        )
    entries = [
        SampleEntry(file.relative_to(folder).as_posix(), int(label) + place.label_offset, file)
        for file, label in zip(files, labels, strict=True)
    ]
    return DataSet("classification", entries, read_file, names)


def _folders(path: Path, place: DataLocation) -> list[Path]:
    candidates = [path.parent / path.stem, path.parent]
    if place.path.is_dir():
        candidates.append(place.path)
    return list(dict.fromkeys(folder for folder in candidates if folder.is_dir()))


def _split(line: str, where: str) -> tuple[str, str]:
    if "\t" in line:
        name, _, label = line.partition("\t")
    elif "," in line:
        name, _, label = line.rpartition(",")
    else:
        name, _, label = line.strip().rpartition(" ")
    if not name.strip() or not label.strip():
        raise EvaluationDataError(
            f"'{line.strip()}' has no label", where=where, fix="Write a file and its class"
        )
    return name.strip(), label.strip()


def _class(label: str, names: Sequence[str], offset: int) -> int | None:
    """The number of a class; None for a label that is none."""
    if label in names:
        return names.index(label) + offset
    try:
        return int(label) + offset
    except ValueError:
        return None


def _class_folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _has_classes(place: DataLocation) -> bool:
    folders = _class_folders(place.images or place.path)
    return len(folders) > 1 and any(files_in(folder, IMAGES | SOUNDS | ARRAYS) for folder in folders[:3])


@dataset("folders", matches=_has_classes)
def class_folders(place: DataLocation) -> DataSet:
    """A folder for each class, in the order of their names or as --classes says."""
    base = place.images or place.path
    base = subfolder(base, "val") or base if not _has_classes(place) else base
    folders = _class_folders(base)
    if not folders:
        raise EvaluationDataError("has no folders of classes", where=str(base))
    names = class_names(place.classes)
    # `n01440764 tench, Tinca tinca`: the folder has the name of the first word.
    first = [name.split()[0] if name.split() else "" for name in names]
    entries = []
    for position, folder in enumerate(folders):
        number = position
        if names:
            known = folder.name in names, folder.name in first
            if not any(known):
                raise EvaluationDataError(
                    f"the folder '{folder.name}' is no class of {place.classes}", where=str(base)
                )
            number = names.index(folder.name) if known[0] else first.index(folder.name)
        for file in files_in(folder, IMAGES | SOUNDS | ARRAYS):
            entries.append(SampleEntry(str(file.relative_to(base)), number + place.label_offset, file))
    if not entries:
        raise EvaluationDataError("has no images, sounds or arrays in its folders", where=str(base))
    return DataSet("classification", entries, read_file, names or tuple(folder.name for folder in folders))
