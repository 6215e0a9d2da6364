"""List files: text with one sample per line, or a JSON array with one sample per element.

    # input order
    left/0001.png, right/0001.png
    image=left/0002.png, depth=right/0002.npy
    val/0003.png 17

The files of a line are separated by commas, tabs or blanks. Trailing words that are not files, such as class labels, are
ignored. Paths are relative to the folder of the list, or to the folder of the same name (`val/` for `val.txt`). Files without
an input name are assigned to the inputs in order. Empty lines and lines that begin with `#` are ignored. Each element of a
`.json` array is a path, an array of paths, an object with a path for each input, or an object with a path and labels. It may
also be an object with such an array as `data`, or with an array of paths for each input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from npuc.calib.items import Item, Reader, Sample, merged
from npuc.errors import CalibrationDataError, FileFormatError, InputDataError, NpucError
from npuc.files import existing_file
from npuc.words import counted

_MAX_LIST = 64 << 20
_FILE_KEYS = ("file", "path", "filename", "file_name", "image", "image_path", "img", "data", "input")
"""The keys under which a JSON object may hold the path of a sample, if not under the name of an input."""

Named = list[tuple[str | None, Path]]
"""The files of one sample, each with the input that it is for, or None if the list does not name it."""


def list_items(path: Path, reader: Reader) -> list[Item]:
    """The samples that a list file names."""
    path = existing_file(path)
    if path.stat().st_size > _MAX_LIST:
        raise FileFormatError("is too large for a list of files", where=str(path))
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFormatError(
            "is not a text file", where=str(path), fix="A list has one sample a line"
        ) from error
    folders = tuple(dict.fromkeys((path.parent, path.parent / path.stem)))
    lines = _Lines(path, folders, reader)
    if path.suffix.lower() == ".json":
        elements = _elements(text, path, tuple(reader.ports))
        entries = [(f"{path}, element {k}", element) for k, element in enumerate(elements)]
        items = [
            item
            for label, element in entries
            for item in _read(partial(lines.element, element, label), label)
        ]
    else:
        rows = [(f"{path}, line {k}", line.strip()) for k, line in enumerate(text.splitlines(), 1)]
        rows = [(label, line) for label, line in rows if line and not line.startswith("#")]
        items = [item for label, line in rows for item in _read(partial(lines.line, line, label), label)]
    if not items:
        raise CalibrationDataError(
            "names no sample", where=str(path), fix="Write the file(s) of one sample on each line"
        )
    return items


def _elements(text: str, path: Path, inputs: Sequence[str]) -> list[Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"is not JSON ({error})", where=str(path)) from error
    if isinstance(content, Mapping):
        columns = {key: content[key] for key in inputs if isinstance(content.get(key), list)}
        if columns and len({len(column) for column in columns.values()}) > 1:
            counts = ", ".join(f"'{key}' {len(column)}" for key, column in columns.items())
            raise FileFormatError(f"has different numbers of files for the inputs: {counts}", where=str(path))
        if columns:
            return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        content = content.get("data")
    if not isinstance(content, list):
        raise FileFormatError(
            "is no JSON array of samples",
            where=str(path),
            fix='Write ["a.png", "b.png"]; a folder of images takes COCO annotations by --annotations',
        )
    return content


def _read(read: partial[list[Item]], label: str) -> list[Item]:
    try:
        return read()
    except NpucError as error:
        # A wrong line is a wrong sample: it is reported when its turn comes.
        return [Item(label, partial(_fail, error))]


@dataclass(frozen=True)
class _Lines:
    """Turns the entries of one list file into items."""

    path: Path
    folders: tuple[Path, ...]
    reader: Reader

    def line(self, text: str, label: str) -> list[Item]:
        """The samples of a line of text."""
        return self._items(self._named(self._words(text)), label)

    def element(self, content: Any, label: str) -> list[Item]:
        """The samples of an element of a JSON array."""
        if isinstance(content, str):
            return self._items([(None, self._file(content))], label)
        if isinstance(content, list):
            words = [str(value) for value in content if isinstance(value, str | int | float)]
            return self._items(self._named(self._without_labels(words)), label)
        if isinstance(content, Mapping):
            inputs = [(key, self._file(value)) for key, value in content.items() if key in self.reader.ports]
            if inputs and all(isinstance(content[key], str) for key, _ in inputs):
                return self._items([*inputs], label)
            key = next((key for key in _FILE_KEYS if isinstance(content.get(key), str)), None)
            if key is not None:
                self._note_labels(next((str(value) for name, value in content.items() if name != key), ""))
                return self._items([(None, self._file(content[key]))], label)
        raise InputDataError(
            "is neither a path nor an object with one",
            where=label,
            fix=f"Write a path, or an object with {', '.join(self.reader.ports)}",
        )

    def _words(self, text: str) -> list[str]:
        """The files of a line: by commas, else by tabs, else by blanks; a file's own name may have blanks."""
        for separator in (",", "\t"):
            if separator in text:
                words = [word.strip() for word in text.split(separator) if word.strip()]
                if separator == "," and len(words) == 1:
                    return self._words(words[0])
                return self._without_labels(words)
        if self._exists(text) or not re.search(r"\s", text):
            return [text]
        head, label = text.rsplit(None, 1)
        if self._exists(head) and (len(self.reader.ports) == 1 or not self._exists(label)):
            self._note_labels(label)
            return [head]
        words = text.split()
        if len(self.reader.ports) == 1 and not any(map(self._is_file, words[:1])):
            return [text]
        return self._without_labels(words)

    def _without_labels(self, words: list[str]) -> list[str]:
        """The words without trailing ones that are not files, such as class labels and numbers."""
        count = len(words)
        while count > 1 and not self._is_file(words[count - 1]):
            count -= 1
        if count < len(words):
            self._note_labels(words[count])
        return words[:count]

    def _note_labels(self, example: str) -> None:
        if not example:
            return
        note = f"{self.path.name}: what is beside the files, such as '{example[:40]}', is taken for labels and not used"
        if not any(
            earlier.startswith(f"{self.path.name}: what is beside the files") for earlier in self.reader.notes
        ):
            self.reader.notes.append(note)

    def _named(self, words: Sequence[str]) -> Named:
        return [(name, self._file(file)) for name, file in map(self._split, words)]

    def _is_file(self, word: str) -> bool:
        """Whether a word is an existing file, or looks like the name of one."""
        return self._exists(word) or self._split(word)[0] is not None or self._looks_readable(word)

    def _split(self, word: str) -> tuple[str | None, str]:
        """The input that a word names and the file, if it is `input=file`."""
        before, separator, rest = word.partition("=")
        named = separator and before.strip() in self.reader.ports
        return (before.strip(), rest.strip()) if named else (None, word)

    def _looks_readable(self, name: str) -> bool:
        # A user's function reads any file, so a name counts only if it has a suffix that is not a number.
        suffix = Path(name).suffix
        return bool(suffix) and not suffix[1:].isdecimal() and self.reader.reads(Path(name))

    def _exists(self, word: str) -> bool:
        _, name = self._split(word)
        try:
            return any((folder / name).is_file() for folder in self.folders)
        except (OSError, ValueError):
            return False

    def _file(self, value: Any) -> Path:
        name = str(value)
        try:
            existing = next((folder / name for folder in self.folders if (folder / name).is_file()), None)
        except (OSError, ValueError) as error:
            raise InputDataError(f"'{name[:60]}' is no name of a file", where=str(self.path)) from error
        return existing or self.folders[0] / name

    def _items(self, named: Named, label: str) -> list[Item]:
        reader = self.reader
        if len(named) == 1:
            name, path = named[0]
            return reader.items(path, f"{label} ({path.name})", name)
        if all(name is None for name, _ in named):
            if len(named) != len(reader.ports):
                raise InputDataError(
                    f"{len(named)} files on a line, and the network has "
                    f"{counted(len(reader.ports), 'input')}",
                    where=label,
                    fix=f"In order they are {', '.join(reader.ports)}",
                )
            named = [(port, path) for port, (_, path) in zip(reader.ports, named, strict=True)]
        parts: list[Item] = []
        for name, path in named:
            items = reader.items(path, label, name)
            if len(items) != 1:
                raise InputDataError(
                    f"holds {counted(len(items), 'sample')}, and a line is one sample",
                    where=f"{label}: {path}",
                )
            parts += items
        return [merged(f"{label} ({', '.join(path.name for _, path in named)})", parts)]


def _fail(error: NpucError) -> Sample:
    raise error
