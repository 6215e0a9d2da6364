"""What an exploration leaves in its folder: a table of all machines, target files, and a page.

`machines.csv` has a row for each machine (also as `machines.parquet` where pyarrow is installed), `targets/` a file for each one
that was compiled for, ready for `npuc compile --target FILE`, `explore.html` the front to look at.
"""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from npuc.explore.exploration import Exploration
from npuc.explore.figures import FIGURES
from npuc.explore.page import explore_page
from npuc.explore.space import BITS
from npuc.files import make_folder, write_atomically

UNITS = {"time": "s", "bytes": "B", "memory": "B", "area": "MAC", "energy": "J"}


def write_results(exploration: Exploration, folder: Path | str) -> list[Path]:
    """Write all files, and say which."""
    place = make_folder(folder)
    rows = list(table(exploration))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows(row.values() for row in rows)
    written = [_write(place / "machines.csv", text.getvalue().encode())]
    if find_spec("pyarrow") is not None:
        written.append(_write(place / "machines.parquet", _parquet(rows)))
    targets = make_folder(place / "targets")
    for machine in sorted(exploration.reached):
        number = int(exploration.numbers[machine])
        _write(targets / f"{exploration.space.name(number)}.yaml", target_text(exploration, number).encode())
    written.append(targets)
    written.append(_write(place / "explore.html", explore_page(exploration).encode()))
    return written


def _write(path: Path, data: bytes) -> Path:
    with write_atomically(path) as out:
        out.write(data)
    return path


def table(exploration: Exploration) -> Iterator[dict[str, Any]]:
    """A row for each machine: its parameters, how far the search took it, its bounds and what it reached."""
    front = set(exploration.front)
    opened, space = set(exploration.search.open), exploration.space
    for machine, number in enumerate(map(int, exploration.numbers)):
        reached = exploration.reached.get(machine)
        stage = (
            "compiled"
            if reached is not None
            else "quick"
            if machine in exploration.search.quick
            else "bounds"
        )
        state = "front" if machine in front else "open" if machine in opened else "dominated"
        row: dict[str, Any] = {"machine": space.name(number), "stage": stage}
        row["state"] = "failed" if machine in exploration.search.failed else state
        row |= space.values(number)
        for at, name in enumerate(FIGURES):
            row[f"{name}_bound"] = float(exploration.bounds[machine][at])
        for at, name in enumerate(FIGURES):
            row[name] = None if reached is None else float(reached[at])
        for place, network in enumerate(exploration.networks):
            measured = exploration.measured.get((machine, place))
            for name in ("seconds", "cycles", "bytes", "memory", "on_cpu"):
                row[f"{network.name}#{place + 1}_{name}"] = (
                    None if measured is None else getattr(measured, name)
                )
        yield row


def target_text(exploration: Exploration, number: int) -> str:
    """The target file of a machine; bits are no part of a machine, and stand in a comment."""
    target = exploration.space.target(number)
    bits = exploration.space.values(number).get(BITS)
    note = f"# Networks with bits of activations x weights: {bits}\n" if bits else ""
    return note + yaml.safe_dump(target.to_dict(), sort_keys=False, default_flow_style=None, width=120)


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    arrow = importlib.import_module("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    out = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(rows), out)
    return out.getvalue()
