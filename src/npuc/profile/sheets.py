"""The figures of a profile, or of two, as the sheets of a workbook: the names are those of the JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from npuc.profile.charge import REASONS
from npuc.profile.workbook import Cell, Column, Format, Sheet

_FIGURES: dict[str, Format] = {
    "cycles": "whole", "microseconds": "real", "share": "percent", "limited_by": "text", "busiest": "whole",
    "matrix_busy": "whole", "vector_busy": "whole", "dma_busy": "whole",
    "matrix_share": "percent", "vector_share": "percent", "dma_share": "percent", "utilization": "percent",
    "gop": "real", "gops": "real",
    "weights_in": "whole", "weights_decoded": "whole", "features_in": "whole", "features_out": "whole", "shared": "whole",
    "bandwidth": "real", "on_chip": "whole",
}  # fmt: skip
_COLUMNS = (
    *(Column(name, kind) for name, kind in _FIGURES.items()),
    *(Column(f"charged {why}", "whole") for why in REASONS),
)


def report_sheets(found: Mapping[str, Any]) -> list[Sheet]:
    """What `npuc.profile` returns, as sheets: summary, layers, groups and CPU, the last two if there are any."""
    layers = found["layers"]
    sheets = [
        Sheet("Summary", (Column("figure"), Column("value", "real")), list(_summary(found))),
        Sheet(
            "Layers",
            (Column("layer"), Column("subgraph"), Column("group", "whole"), *_COLUMNS),
            [[one["name"], one["subgraph"], one["group"], *_figures(one)] for one in layers],
        ),
    ]
    if found["groups"]:
        heading = (Column("group"), Column("subgraph"), Column("layers"), Column("tiles", "whole"), *_COLUMNS)
        rows = [
            [one["name"], one["subgraph"], ", ".join(one["layers"]), one["tiles"], *_figures(one)]
            for one in found["groups"]
        ]
        sheets.append(Sheet("Groups", heading, rows))
    if found["host"]:
        heading = (Column("subgraph"), Column("layers"), Column("milliseconds", "real"))
        sheets.append(Sheet("CPU", heading, [_host(one) for one in found["host"]]))
    return sheets


def compare_sheets(found: Mapping[str, Any]) -> list[Sheet]:
    """What `npuc.profile.compare.compare` returns, as sheets."""
    a, b = ({"model": one["model"], "target": one["target"], **_flat(one["summary"])} for one in _both(found))
    names = dict.fromkeys((*a, *b))
    rows: list[Sequence[Cell]] = [
        [name, a.get(name), b.get(name), _ratio(a.get(name), b.get(name))] for name in names
    ]
    heading = (Column("figure"), Column("A", "real"), Column("B", "real"), Column("B / A", "real"))
    return [
        Sheet("Summary", heading, rows),
        Sheet("Layers", _changes("layer"), [_change(one) for one in found["layers"]]),
        *([Sheet("CPU", _changes("subgraph"), [_change(one) for one in found["host"]])] if found["host"] else []),
    ]  # fmt: skip


def _summary(found: Mapping[str, Any]) -> Iterable[Sequence[Cell]]:
    yield "model", found["model"]
    yield "target", found["target"]
    yield from ((f"machine {name}", value) for name, value in found["machine"].items())
    yield from _flat(found["summary"]).items()


def _flat(figures: Mapping[str, Any]) -> dict[str, Cell]:
    """Figures by name; those of a part of them get the name of the part before their own."""
    made: dict[str, Cell] = {}
    for name, value in figures.items():
        if isinstance(value, Mapping):
            made.update({f"{name} {key}": one for key, one in value.items()})
        else:
            made[name] = value
    return made


def _figures(one: Mapping[str, Any]) -> list[Cell]:
    return [*(one[name] for name in _FIGURES), *(one["charged"][why] for why in REASONS)]


def _host(one: Mapping[str, Any]) -> Sequence[Cell]:
    seconds = one["seconds"]
    return one["name"], ", ".join(one["layers"]), None if seconds is None else seconds * 1e3


def _both(found: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return found["a"], found["b"]


def _changes(what: str) -> tuple[Column, ...]:
    reals = ("A microseconds", "B microseconds", "difference", "B / A")
    return (
        Column(what),
        *(Column(name, "real") for name in reals),
        Column("A limited by"),
        Column("B limited by"),
    )


def _change(one: Mapping[str, Any]) -> list[Cell]:
    a, b = one["a"], one["b"]
    return [one["name"], a, b, one["difference"], _ratio(a, b), one["a_limited_by"], one["b_limited_by"]]


def _ratio(a: Any, b: Any) -> float | None:
    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    return b / a if numbers and a else None
