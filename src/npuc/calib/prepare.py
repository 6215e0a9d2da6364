"""Prepared samples: the preprocessed input tensors, saved so that preprocessing runs only once.

They are a folder of `.npz` files, one per sample, named after the order and the origin of the sample;
`npuc calibrate --data` reads such a folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from npuc.calib.feeding import Feeder
from npuc.calib.sources import Source
from npuc.errors import OutputError
from npuc.files import new_folder
from npuc.ir import Graph
from npuc.tensors import file_names, write_npz


def save_prepared(
    graph: Graph,
    source: Source,
    folder: Path | str,
    *,
    strict: bool = False,
    warn: Callable[[str], None] = lambda text: None,
    step: Callable[[], None] = lambda: None,
) -> tuple[int, int]:
    """Write every valid sample of a source as an `.npz` file; returns how many were written and skipped.

    The folder has to be empty or new, so that no old sample is mixed in. It is created once all samples are written.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise OutputError("is a file, not a folder", where=str(folder), fix="Choose another folder with -o")
    if folder.is_dir() and any(folder.iterdir()):
        raise OutputError(
            "is not empty, and its files would become samples too",
            where=str(folder),
            fix="Choose a new folder with -o",
        )
    feeder = Feeder(graph, source, strict, warn, step)
    with new_folder(folder) as filled:
        for index, (item, sample) in enumerate(feeder.samples()):
            stem = next(iter(file_names([Path(item.label).stem]).values()))
            write_npz(filled / f"{index:06d}_{stem[:60]}.npz", sample.inputs)
    return feeder.used, feeder.skipped
