"""Rows of the accuracy benchmark as plain values, as lines, and all of them as one table.

A tool with several ways of working is represented by the one with the highest SQNR; the others are named below the lines.
npuc's entry is the ladder: whether it is first is said of it, by the figure (top-1 or mAP) and by SQNR.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from accuracy_scores import Score

TITLES = {
    "npuc": "npuc default", "ladder": "npuc ladder", "ort": "ONNX Runtime", "nncf": "NNCF", "aimet": "AIMET", "quark": "Quark",
}  # fmt: skip
WORDS = {"w8a8": "W8A8 per channel", "pow2": "W8A8 powers of two", "w4a8": "W4A8 per channel"}
_EQUAL = 0.05
"""Decibels that make no difference."""


def row_of(
    network: str,
    metric: str,
    scheme: str,
    calibration: int,
    scores: Mapping[str, Score],
    tool_of: Mapping[str, str],
    failures: Mapping[str, str],
    notes: Mapping[str, Any],
) -> dict[str, Any]:
    """All that is to be kept of a row."""
    exact = scores["float"]
    cells: dict[str, Any] = {}
    for key, score in scores.items():
        if key == "float":
            continue
        difference = score.less(exact)
        tool = tool_of[key]
        cell = {
            "key": key,
            "figure": score.figure,
            "to float": difference,
            "same": 100 * float(np.mean(score.same)) if score.same else None,
            "cosine": score.cosine,
            "sqnr": score.sqnr,
            "others": {},
        }
        before = cells.get(tool)
        if before is not None:
            better, worse = (cell, before) if score.sqnr > before["sqnr"] else (before, cell)
            better["others"] = {**before["others"], worse["key"]: worse["sqnr"]}
            cell = better
        cells[tool] = cell
    first = {"figure": exact.figure, "verdict": _verdict(metric, scores, cells)}
    return {
        "network": network,
        "metric": metric,
        "scheme": scheme,
        "samples": exact.samples,
        "calibration": calibration,
        "float": first["figure"],
        "verdict": first["verdict"],
        "cells": cells,
        "failures": dict(failures),
        "notes": dict(notes),
    }


def _verdict(metric: str, scores: Mapping[str, Score], cells: Mapping[str, Any]) -> str:
    """Whether npuc is first, or by how much it is not."""
    own = cells.get("ladder") or cells.get("npuc")
    peers = {tool: cell for tool, cell in cells.items() if tool not in ("ladder", "npuc")}
    if own is None or not peers:
        return "no peer"
    behind, shared = [], ""
    if metric:
        tool, best = max(peers.items(), key=lambda item: item[1]["figure"])
        if best["figure"] > own["figure"]:
            difference = scores[own["key"]].less(scores[best["key"]])
            assert difference is not None
            behind.append(f"{metric} {difference[0]:+.1f} ± {difference[1]:.1f} to {TITLES[tool]}")
        elif best["figure"] == own["figure"]:
            shared = f" ({metric} shared with {TITLES[tool]})"
    tool, best = max(peers.items(), key=lambda item: item[1]["sqnr"])
    if best["sqnr"] > own["sqnr"] + _EQUAL:
        behind.append(f"{own['sqnr'] - best['sqnr']:.1f} dB to {TITLES[tool]}")
    return "; ".join(behind) or f"npuc is first{shared}"


def print_row(row: Mapping[str, Any]) -> None:
    """The lines of one row."""
    size = f"{row['samples']} samples, {row['calibration']} to calibrate"
    print(f"\n{row['network']}, {WORDS[row['scheme']]} ({size})")
    print(f"  {'':<14}{row['metric'] or 'figure':>8}{'to float':>14}{'same':>8}{'cosine':>10}{'SQNR':>8}")
    if row["float"] is not None:
        print(f"  {'float':<14}{row['float']:>8.1f}")
    for tool, title in TITLES.items():
        if tool not in row["cells"]:
            continue
        cell = row["cells"][tool]
        figure = f"{cell['figure']:.1f}" if cell["figure"] is not None else ""
        difference = "{:+.1f} ± {:.1f}".format(*cell["to float"]) if cell["to float"] else ""
        same = f"{cell['same']:.1f}" if cell["same"] is not None else ""
        line = f"  {title:<14}{figure:>8}{difference:>14}{same:>8}{cell['cosine']:>10.5f}{cell['sqnr']:>8.1f}"
        if cell["key"] != tool:
            line += f"  {cell['key']}"
        print(line)
    for tool, cell in row["cells"].items():
        if cell["others"]:
            others = ", ".join(f"{key} {value:.1f}" for key, value in cell["others"].items())
            print(f"  {TITLES[tool]}'s others, SQNR: {others}")
    for key, reason in row["failures"].items():
        print(f"  {key}: no result: {reason}")
    for key, words in row["notes"].items():
        wide, layers = words["wide"]
        if wide:
            print(f"  {TITLES[key]}: {wide} of {layers} layers give 16 bits")
    steps = row["notes"].get("ladder")
    if steps:
        print("".join(f"    {step_result}\n" for step_result in steps["rungs"]), end="")
        cheap = steps["cheap"]
        if cheap:
            print(
                f"  ladder steps 1 to 4: {cheap['wall']:.0f} s ({cheap['cpu']:.0f} s of processor time); "
                f"all: {steps['seconds']:.0f} s on {steps['device']}"
            )
    print(f"  {row['verdict']}", flush=True)


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """All rows, in the form of the documentation."""
    lines = [
        f"| network | scheme | float | {' | '.join(TITLES.values())} | |",
        f"|---|---|---|{'---|' * (len(TITLES) + 1)}",
    ]
    for row in rows:
        name = f"{row['network']} ({row['samples']})"
        exact = f"{row['float']:.1f} {row['metric']}" if row["float"] is not None else ""
        cells = [_cell(row["cells"].get(tool)) for tool in TITLES]
        lines.append(f"| {name} | {row['scheme']} | {exact} | {' | '.join(cells)} | {row['verdict']} |")
    return "\n".join(lines) + "\n"


def _cell(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return "n/a"
    words = f"{cell['sqnr']:.1f} dB"
    if cell["figure"] is None:
        return f"{cell['cosine']:.4f}, {words}"
    return "{:.1f} ({:+.1f} ± {:.1f}), {}".format(cell["figure"], *cell["to float"], words)
