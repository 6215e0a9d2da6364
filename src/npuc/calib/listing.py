"""List files: one sample a line, its files separated by commas.

    # input order
    left/0001.png, right/0001.png
    image=left/0002.png, depth=right/0002.npy

Files are relative to the folder of the list. Without names they are for the inputs in order. Empty lines and lines that
begin with `#` are passed over.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from npuc.calib.items import Item, Reader, Sample, merged
from npuc.errors import CalibrationDataError, FileFormatError, InputDataError, NpucError
from npuc.files import existing_file

_MAX_LIST = 64 << 20


def list_items(path: Path, reader: Reader) -> list[Item]:
    """The samples that a list file names."""
    path = existing_file(path)
    if path.stat().st_size > _MAX_LIST:
        raise FileFormatError("is too large for a list of files", where=str(path))
    try:
        lines = path.read_text("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise FileFormatError(
            "is not a text file", where=str(path), fix="A list has one sample a line"
        ) from error
    items: list[Item] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        label = f"{path}, line {number}"
        try:
            items += _line(text, path.parent, reader, label)
        except NpucError as error:
            # A wrong line is a wrong sample: it is reported when its turn comes.
            items.append(Item(label, partial(_fail, error)))
    if not items:
        raise CalibrationDataError(
            "names no sample", where=str(path), fix="Write the file(s) of one sample on each line"
        )
    return items


def _line(text: str, folder: Path, reader: Reader, label: str) -> list[Item]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    named: list[tuple[str | None, Path]] = []
    for word in words:
        before, separator, rest = word.partition("=")
        if separator and before.strip() in reader.ports:
            named.append((before.strip(), folder / rest.strip()))
        else:
            named.append((None, folder / word))
    if len(named) == 1:
        name, path = named[0]
        return reader.items(path, f"{label} ({path.name})", name)
    if all(name is None for name, _ in named):
        if len(named) != len(reader.ports):
            raise InputDataError(
                f"{len(named)} files on a line, and the network has {len(reader.ports)} inputs",
                where=label,
                fix=f"In order they are {', '.join(reader.ports)}",
            )
        named = [(port, path) for port, (_, path) in zip(reader.ports, named, strict=True)]
    parts: list[Item] = []
    for name, path in named:
        found = reader.items(path, label, name)
        if len(found) != 1:
            raise InputDataError(
                f"holds {len(found)} samples, and a line is one sample", where=f"{label}: {path}"
            )
        parts += found
    return [merged(f"{label} ({', '.join(path.name for _, path in named)})", parts)]


def _fail(error: NpucError) -> Sample:
    raise error
