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
    "bandwidth": "real", "on_chip": "whole", "sparsity": "text",
}  # fmt: skip
_COLUMNS = (
    *(Column(name, kind) for name, kind in _FIGURES.items()),
    *(Column(f"charged {why}", "whole") for why in REASONS),
)


def report_sheets(report: Mapping[str, Any]) -> list[Sheet]:
    """What `npuc.profile` returns, as sheets: summary, layers, groups and CPU, the last two if there are any."""
    layers = report["layers"]
    sheets = [
        Sheet("Summary", (Column("figure"), Column("value", "real")), list(_summary(report))),
        Sheet(
            "Layers",
            (Column("layer"), Column("subgraph"), Column("group", "whole"), *_COLUMNS),
            [[layer["name"], layer["subgraph"], layer["group"], *_figures(layer)] for layer in layers],
        ),
    ]
    if report["groups"]:
        heading = (Column("group"), Column("subgraph"), Column("layers"), Column("tiles", "whole"), *_COLUMNS)
        rows = [
            [group["name"], group["subgraph"], ", ".join(group["layers"]), group["tiles"], *_figures(group)]
            for group in report["groups"]
        ]
        sheets.append(Sheet("Groups", heading, rows))
    if report["host"]:
        heading = (Column("subgraph"), Column("layers"), Column("milliseconds", "real"))
        sheets.append(Sheet("CPU", heading, [_host(subgraph) for subgraph in report["host"]]))
    return sheets


def compare_sheets(comparison: Mapping[str, Any]) -> list[Sheet]:
    """What `npuc.profile.compare.compare` returns, as sheets."""
    a, b = (
        {"model": report["model"], "target": report["target"], **_flat(report["summary"])}
        for report in _both(comparison)
    )
    names = dict.fromkeys((*a, *b))
    rows: list[Sequence[Cell]] = [
        [name, a.get(name), b.get(name), _ratio(a.get(name), b.get(name))] for name in names
    ]
    heading = (Column("figure"), Column("A", "real"), Column("B", "real"), Column("B / A", "real"))
    return [
        Sheet("Summary", heading, rows),
        Sheet("Layers", _changes("layer"), [_change(change) for change in comparison["layers"]]),
        *([Sheet("CPU", _changes("subgraph"), [_change(change) for change in comparison["host"]])] if comparison["host"] else []),
    ]  # fmt: skip


def _summary(report: Mapping[str, Any]) -> Iterable[Sequence[Cell]]:
    yield "model", report["model"]
    yield "target", report["target"]
    yield from ((f"machine {name}", value) for name, value in report["machine"].items())
    yield from _flat(report["summary"]).items()


def _flat(figures: Mapping[str, Any]) -> dict[str, Cell]:
    """Figures by name; those of a part of them get the name of the part before their own."""
    flat: dict[str, Cell] = {}
    for name, value in figures.items():
        if isinstance(value, Mapping):
            flat.update({f"{name} {key}": figure for key, figure in value.items()})
        else:
            flat[name] = value
    return flat


def _figures(row: Mapping[str, Any]) -> list[Cell]:
    return [*(row[name] for name in _FIGURES), *(row["charged"][why] for why in REASONS)]


def _host(subgraph: Mapping[str, Any]) -> Sequence[Cell]:
    seconds = subgraph["seconds"]
    return subgraph["name"], ", ".join(subgraph["layers"]), None if seconds is None else seconds * 1e3


def _both(comparison: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return comparison["a"], comparison["b"]


def _changes(what: str) -> tuple[Column, ...]:
    reals = ("A microseconds", "B microseconds", "difference", "B / A")
    return (
        Column(what),
        *(Column(name, "real") for name in reals),
        Column("A limited by"),
        Column("B limited by"),
    )


def _change(change: Mapping[str, Any]) -> list[Cell]:
    a, b = change["a"], change["b"]
    return [
        change["name"],
        a,
        b,
        change["difference"],
        _ratio(a, b),
        change["a_limited_by"],
        change["b_limited_by"],
    ]


def _ratio(a: Any, b: Any) -> float | None:
    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    return b / a if numbers and a else None
