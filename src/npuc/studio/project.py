"""The folder that a studio shows: its files by what they contain, and the only way from a name to a file.

A name is a path below the folder with slashes, such as `runs/a.npu`. Names that leave the folder, directly or through a
symbolic link, do not exist for the studio; neither do hidden files. A model whose weights are in a second file is refused where a
link beside it leads out, because that may be the second file.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from npuc.errors import FileMissingError, NpucError, UsageError
from npuc.frontend.sniff import describe_content

MOST_FILES = 2_000
"""Files that are listed; a folder of data sets has more, which nobody looks through in a list."""
_MOST_ENTRIES = 20_000
"""Entries of folders that are looked at, those near the top first: somebody may start the studio in a home folder."""
_DEEPEST = 4
_SKIPPED = frozenset({"__pycache__", "node_modules", "build", "dist"})
_MODELS = frozenset({"onnx", "tflite", "keras", "tensorflow", "torch", "caffe", "darknet", "mlir", "npu"})
_MODEL_KINDS = frozenset({"model", "network", "program"})
_BY_SUFFIX = {
    ".yaml": "configuration",
    ".yml": "configuration",
    ".npz": "tensors",
    ".npy": "tensors",
    ".png": "image",
    ".jpg": "image",
    ".jpeg": "image",
    ".bmp": "image",
    ".webp": "image",
    ".txt": "labels",
    ".names": "labels",
    ".table": "table",
    ".cali": "table",
    ".json": "json",
    ".html": "report",
}
_MODEL_SUFFIXES = frozenset(
    {".onnx", ".tflite", ".keras", ".h5", ".hdf5", ".pb", ".pt", ".pt2", ".pth", ".prototxt", ".cfg", ".mlir", ".npu",
     ".mxq", ".xmodel", ".bmodel"}
)  # fmt: skip
_ONE_FILE = frozenset({".onnx", ".tflite", ".keras", ".h5", ".hdf5", ".pt", ".pt2", ".pth", ".npu"})
"""Models that are one file, or, in ONNX, that check themselves where a second one lies."""


@dataclass(frozen=True)
class ProjectFile:
    """A file as the page lists it."""

    name: str
    kind: str
    """`model`, `network` (.mlir), `program` (.npu), `configuration`, `tensors`, `image`, `table`, `json`, `labels`
    (names of classes), `statistics` (of a calibration) or `report`."""
    bytes: int
    modified: int
    """In nanoseconds; with the size it tells whether a file is still the same."""

    def as_json(self) -> dict[str, Any]:
        """Plain values; the time as text, because JavaScript has no integers of 64 bits."""
        return asdict(self) | {"modified": str(self.modified)}


class Project:
    """A folder."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).resolve()
        if not self.folder.is_dir():
            raise FileMissingError(
                f"there is no folder '{folder}'", fix="npuc studio takes a folder, or files"
            )
        self._kinds: dict[tuple[str, int, int], str] = {}

    @staticmethod
    def of(paths: Sequence[Path]) -> tuple[Project, list[str]]:
        """The project that paths are in, and their names in it: a folder, or the folder that all files have in common."""
        if not paths:
            return Project("."), []
        for path in paths:
            if not path.exists():
                raise FileMissingError(f"there is no file or folder '{path}'")
        if len(paths) == 1 and paths[0].is_dir() and not (paths[0] / "saved_model.pb").is_file():
            return Project(paths[0]), []
        places = [path.resolve() for path in paths]
        common = Path(os.path.commonpath([place.parent for place in places]))
        return Project(common), [place.relative_to(common).as_posix() for place in places]

    def path(self, name: str) -> Path:
        """The file of a name; an error if there is none, or if it lies outside of the folder."""
        place = self.place(name)
        try:
            there = place.exists()
        except OSError:  # a name that is too long for a file
            there = False
        if not there:
            raise FileMissingError(f"the project has no file '{name}'")
        return place

    def model(self, name: str) -> Path:
        """The file or folder of a model; an error if reading it could lead out of the project."""
        path = self._of_kind(name, _MODEL_KINDS, "model")
        if path.is_dir() or path.suffix.lower() not in _ONE_FILE:
            beside = path.rglob("*") if path.is_dir() else path.parent.iterdir()
            for entry in sorted(entry for entry in beside if entry.is_symlink()):
                if not self._inside(entry) and (path.is_dir() or not entry.is_dir()):
                    raise UsageError(
                        f"'{name}' may have its weights in '{entry.name}', a link that leads out of the project",
                        fix="Copy what it links to into the project, or move the link to another folder",
                    )
        return path

    def sample(self, name: str) -> Path:
        """The file of an image or of tensors; never a list of other files."""
        return self._of_kind(name, frozenset({"image", "tensors"}), "image or tensor file")

    def labels(self, name: str) -> Path:
        """The file of names of classes."""
        return self._of_kind(name, frozenset({"labels"}), "list of names of classes")

    def statistics(self, name: str) -> Path:
        """The file of a calibration's statistics."""
        return self._of_kind(name, frozenset({"statistics"}), "file of statistics")

    def table(self, name: str) -> Path:
        """The file of a calibration table."""
        return self._of_kind(name, frozenset({"table"}), "calibration table")

    def configuration(self, name: str) -> Path:
        """The file of a configuration, a schedule or a preprocessing recipe."""
        return self._of_kind(name, frozenset({"configuration"}), "YAML file")

    def _of_kind(self, name: str, kinds: frozenset[str], words: str) -> Path:
        path = self.path(name)
        if not (path.is_file() or path.is_dir()) or self._kind_of(path) not in kinds:
            raise UsageError(f"'{name}' is no {words} that npuc knows")
        return path

    def place(self, name: str) -> Path:
        """Where a file of that name is or would be.

        >>> Project(".").place("../secret")
        Traceback (most recent call last):
        ...
        npuc.errors.UsageError: [E001] '../secret' is not a name of a file in this project
        """
        parts = name.split("/")
        wrong = any(
            part in ("", ".", "..") or part.startswith(".") or "\\" in part or not part.isprintable()
            for part in parts
        )
        if wrong or len(name) > 1_000:
            raise UsageError(f"{name[:100]!r} is not a name of a file in this project")
        place = self.folder.joinpath(*parts)
        # A link, of the file or of a folder on the way, may lead out of the folder.
        if not self._inside(place):
            raise UsageError(f"{name[:100]!r} is not a name of a file in this project")
        return place

    def _inside(self, path: Path) -> bool:
        try:
            return path.resolve().is_relative_to(self.folder)
        except (OSError, RuntimeError):  # links in a circle
            return False

    def files(self) -> list[ProjectFile]:
        """All files that the studio knows what to do with, by name."""
        listed = []
        for name, entry in islice(self._entries(), _MOST_ENTRIES):
            try:
                state = entry.stat()
            except OSError:  # it went in the meantime
                continue
            key = name, state.st_mtime_ns, state.st_size
            if key not in self._kinds:
                self._kinds[key] = self._kind_of(Path(entry.path))
            if self._kinds[key]:
                listed.append(ProjectFile(name, self._kinds[key], state.st_size, state.st_mtime_ns))
            if len(listed) == MOST_FILES:
                break
        return sorted(listed, key=lambda file: file.name)

    def _entries(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Everything that may be a file of the project, folder by folder, those near the top first."""
        folders: deque[tuple[str, int]] = deque([("", 1)])
        while folders:
            before, depth = folders.popleft()
            try:
                entries = sorted(os.scandir(self.folder / before), key=lambda entry: entry.name)
            except OSError:
                continue
            for entry in entries:
                name = before + entry.name
                if entry.name.startswith(".") or not entry.name.isprintable() or entry.name in _SKIPPED:
                    continue
                try:
                    if entry.is_symlink() and not self._inside(Path(entry.path)):
                        continue
                    if entry.is_dir():
                        if (Path(entry.path) / "saved_model.pb").is_file():
                            yield name, entry
                        elif depth < _DEEPEST:
                            folders.append((f"{name}/", depth + 1))
                    elif entry.is_file():
                        yield name, entry
                except OSError:
                    continue

    @staticmethod
    def _kind_of(path: Path) -> str:
        suffix = path.suffix.lower()
        if path.name.endswith(".stats.npz"):
            return "statistics"
        if suffix not in _MODEL_SUFFIXES and not path.is_dir():
            return _BY_SUFFIX.get(suffix, "")
        try:
            content = describe_content(path).kind
        except (NpucError, OSError):
            return ""
        if content not in _MODELS:
            return ""
        return {"npu": "program", "mlir": "network"}.get(content, "model")


def sample_among(files: Sequence[ProjectFile], names: Sequence[str]) -> str:
    """What models run on: the first tensors that are named, or else the first image."""
    samples = [file for file in files if file.kind in ("tensors", "image") and file.name in names]
    return (
        min(samples, key=lambda file: (file.kind == "image", names.index(file.name))).name if samples else ""
    )
