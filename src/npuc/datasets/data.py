"""Data sets: what lists the samples of a folder or file, with what is true of them.

    @dataset("lines", task="classification", matches=lambda place: place.path.suffix == ".lines")
    def lines(place: Place) -> DataSet:
        ...

A data set is a function from a `Place` to the entries and the function that reads one. That function has to be one of a
module, because worker processes find it by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npuc.datasets.registry import check_name
from npuc.datasets.sample import LoadedSample, SampleEntry
from npuc.errors import EvaluationDataError, FileFormatError, FileMissingError
from npuc.files import existing_file
from npuc.registries import Lenient, Registry, renamed

_MAX_TEXT = 64 << 20


@dataclass(frozen=True)
class DataLocation:
    """Where the data is, as the user says it."""

    path: Path
    annotations: Path | None = None
    """COCO annotations, or the list of files and labels."""
    images: Path | None = None
    """The folder of the images, where it is not the usual one."""
    classes: Path | None = None
    """Names of the classes, one a line, in the order of the model's scores."""
    label_offset: int = 0
    """Added to every label."""


@dataclass(frozen=True)
class DataSet:
    """The samples, and how to read one."""

    task: str
    entries: Sequence[SampleEntry]
    read: Callable[[SampleEntry], LoadedSample]
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataSetKind:
    """A data set that can be asked for."""

    name: str
    open: Callable[[DataLocation], DataSet]
    matches: Callable[[DataLocation], bool]
    """Whether a place looks like it; asked in the order of registration."""
    words: str


DATASETS: Registry[str, DataSetKind] = Registry(
    "a data set", provider="npuc.datasets.formats", lenient=Lenient.ALL
)
"""By name."""


def dataset(
    name: str, *, matches: Callable[[DataLocation], bool] = lambda place: False, replace: bool = False
) -> Callable[[Callable[[DataLocation], DataSet]], Callable[[DataLocation], DataSet]]:
    """Register a function as a data set."""

    def register(function: Callable[[DataLocation], DataSet]) -> Callable[[DataLocation], DataSet]:
        words = " ".join((function.__doc__ or "").strip().split("\n\n")[0].split())
        check_name(name, "data set")
        kind = DataSetKind(name, function, matches, words)
        DATASETS.add([name], kind, replace=replace, module=function.__module__)
        return function

    return register


def find_dataset(place: DataLocation, name: str | None = None) -> DataSetKind:
    """The data set of a name or, without one, the first that a place looks like."""
    if name is not None:
        return DATASETS.named(name)
    if not place.path.exists():
        raise FileMissingError(
            "does not exist", where=str(place.path), fix="Give --data the path of a data set"
        )
    for _, kind in DATASETS.items():
        if kind.matches(place):
            return kind
    raise EvaluationDataError(
        "looks like no data set that is known",
        where=str(place.path),
        fix=f"Name it by --dataset; there are: {', '.join(sorted(DATASETS))} (docs/evaluation.md has their layouts)",
    )


def read_lines(path: Path, what: str) -> list[str]:
    """The lines of a text file of moderate size."""
    path = existing_file(path)
    if path.stat().st_size > _MAX_TEXT:
        raise FileFormatError(f"is too large for {what}", where=str(path))
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise FileFormatError(f"is not a text file, and should be {what}", where=str(path)) from error


def class_names(path: Path | None) -> tuple[str, ...]:
    """The names of classes, one a line; `<space>` is a space, as the symbols of a text need it."""
    if path is None:
        return ()
    lines = read_lines(path, "a list of classes")
    while lines and not lines[-1].strip():
        lines.pop()
    return tuple(line.replace("<space>", " ") if "<space>" in line else line.strip() for line in lines)


def inside(folder: Path, name: str, where: str) -> Path:
    """A file that a list names, which may not lead out of the folder."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise EvaluationDataError(f"'{name}' is outside of '{folder}'", where=where, fix="Check the list")
    return path


def subfolder(folder: Path, *names: str) -> Path | None:
    """The first of some folders that is there."""
    return next((folder / name for name in names if (folder / name).is_dir()), None)


def files_in(folder: Path, suffixes: Sequence[str] | frozenset[str]) -> list[Path]:
    """The files of some kinds in a folder and below, in the order of their names; hidden ones are left out."""
    paths = [
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in suffixes
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    return sorted(paths, key=lambda path: path.relative_to(folder).parts)


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"Place": DataLocation})
