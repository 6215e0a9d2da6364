"""Rows of the accuracy benchmark, made of the results of single jobs: as lines, and all of them as one table.

A row is a network under a scheme. A tool with several ways of working is represented by the one with the highest SQNR (the
mean of the slices); the others are named. npuc's entry is the ladder, or its default where the ladder was not run: whether it
is first is said of it, by the figure (top-1 or mAP) within one standard error, and by SQNR.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from npuc.arrays import Array

TITLES = {
    "npuc": "npuc default", "ladder": "npuc ladder", "ort": "ONNX Runtime", "nncf": "NNCF", "aimet": "AIMET", "quark": "Quark",
}  # fmt: skip
WORDS = {"w8a8": "W8A8 per channel", "pow2": "W8A8 powers of two", "w4a8": "W4A8 per channel"}
_OWN = ("npuc", "ladder")
FIRST, NO_PEER = "npuc is first", "no peer was run"
_EQUAL = 0.05
"""Decibels that make no difference."""

Result = Mapping[str, Any]


def decibels(result: Result) -> float:
    """The mean of the slices."""
    return float(result["slices"]["mean"])


def difference(one: Result, other: Result) -> tuple[float, float] | None:
    """The figure of one result less that of another on the same samples, and its standard error."""
    if one["figure"] is None or one["protocol"]["images"] != other["protocol"]["images"]:
        return None
    if one["hits"] is not None:
        spread = 100.0 * (_hits(one) - _hits(other))
        return float(spread.mean()), float(spread.std() / len(spread) ** 0.5)
    draws = np.array(one["draws"]) - np.array(other["draws"])
    return one["figure"] - other["figure"], float(np.nanstd(draws))


def _hits(result: Result) -> Array:
    bits = np.frombuffer(bytes.fromhex(result["hits"]), np.uint8)
    return np.unpackbits(bits, count=result["protocol"]["images"]).astype(np.float64)


def best_by_tool(results: Iterable[Result]) -> dict[str, Result]:
    """For each tool, the result with the highest SQNR; of npuc's seeds, the first."""
    best: dict[str, Result] = {}
    for result in results:
        tool = result["tool"]
        if result["protocol"]["seed"] == 0 and (tool not in best or decibels(result) > decibels(best[tool])):
            best[tool] = result
    return {tool: best[tool] for tool in TITLES if tool in best}


def verdict(best: Mapping[str, Result]) -> str:
    """Whether npuc is first, or by how much it is not."""
    own = best.get("ladder") or best.get("npuc")
    peers = {tool: result for tool, result in best.items() if tool not in _OWN}
    if own is None or not peers:
        return NO_PEER
    behind = []
    if own["figure"] is not None:
        tool, first = max(peers.items(), key=lambda item: float(item[1]["figure"]))
        apart = difference(own, first)
        if apart is not None and apart[0] < -apart[1]:
            behind.append(f"{own['metric']} {apart[0]:+.1f} ± {apart[1]:.1f} to {TITLES[tool]}")
    tool, first = max(peers.items(), key=lambda item: decibels(item[1]))
    if decibels(first) > decibels(own) + _EQUAL:
        behind.append(f"{decibels(own) - decibels(first):.1f} dB to {TITLES[tool]}")
    return "; ".join(behind) or FIRST


def print_row(results: Sequence[Result], failures: Mapping[str, str]) -> None:
    """The lines of one row."""
    best = best_by_tool(results)
    if not best:
        return
    any_result = next(iter(best.values()))
    stated = any_result["protocol"]
    size = f"{stated['images']} samples, {stated['calibration']} to calibrate"
    print(f"\n{stated['network']}, {WORDS[stated['scheme']]} ({size})")
    print(
        f"  {'':<14}{any_result['metric'] or 'figure':>8}{'to float':>14}{'same':>8}{'cosine':>10}{'SQNR':>8}{'worst':>8}"
    )
    if any_result["float"] is not None:
        print(f"  {'float':<14}{any_result['float']:>8.1f}")
    for tool, result in best.items():
        figure = f"{result['figure']:.1f}" if result["figure"] is not None else ""
        lost = "{:+.1f} ± {:.1f}".format(*result["to float"]) if result["to float"] else ""
        same = f"{result['same']:.1f}" if result["same"] is not None else ""
        worst = result["slices"]["worst"]
        line = f"  {TITLES[tool]:<14}{figure:>8}{lost:>14}{same:>8}{result['cosine']:>10.5f}{decibels(result):>8.1f}"
        line += f"{worst[1]:>8.1f}" if worst is not None else ""
        others = ", ".join(
            f"{other['protocol']['entry']} {decibels(other):.1f}"
            for other in results
            if other["tool"] == tool and other is not result
        )
        print(line + (f"  {result['protocol']['entry']} (others: {others})" if others else ""))
        for words in result["notes"].get("steps", ()):
            print(f"    {words}")
        wide, layers = result["notes"].get("wide", (0, 0))
        if wide:
            print(f"    {wide} of {layers} layers give 16 bits")
    for key, reason in failures.items():
        print(f"  {key}: no result: {reason}")
    print(f"  {verdict(best)}", flush=True)


def table(rows: Mapping[tuple[str, str], Sequence[Result]], wanted: Iterable[tuple[str, str]]) -> str:
    """All rows in the form of the documentation: figures, worst cases, the rows that npuc lost and those that were not run."""
    lines = [
        f"| network (samples, calibration) | scheme | float | {' | '.join(TITLES.values())} | |",
        f"|---|---|---|{'---|' * (len(TITLES) + 1)}",
    ]
    worst = [
        f"| network | scheme | {' | '.join(TITLES.values())} | more bits | seeds of the ladder |",
        f"|---|---|{'---|' * (len(TITLES) + 2)}",
    ]
    lost, compared = [], 0
    for (name, scheme), results in rows.items():
        best = best_by_tool(results)
        if not best:
            continue
        first = next(iter(best.values()))
        exact = f"{first['float']:.1f} {first['metric']}" if first["float"] is not None else ""
        cells = [_cell(best.get(tool), _size(first)) for tool in TITLES]
        said = verdict(best)
        lines.append(f"| {name} {_size(first)} | {scheme} | {exact} | {' | '.join(cells)} | {said} |")
        cells = [_worst(best.get(tool)) for tool in TITLES]
        worst.append(f"| {name} | {scheme} | {' | '.join(cells)} | {_more_bits(best)} | {_seeds(results)} |")
        compared += said != NO_PEER
        if said not in (NO_PEER, FIRST):
            lost.append(f"- {name} {scheme}: {said}")
    missing = [f"{name} {scheme}" for name, scheme in wanted if not rows.get((name, scheme))]
    parts = ["\n".join(lines), f"npuc is first in {compared - len(lost)} of {compared} rows with a peer."]
    if lost:
        parts.append("It is behind in these:\n\n" + "\n".join(lost))
    if missing:
        parts.append(f"Rows that were not run: {', '.join(missing)}.")
    parts.append(
        "Decibels of the worst slice, and of the worst slice of the worst sample:\n\n" + "\n".join(worst)
    )
    return "\n\n".join(parts) + "\n"


def _size(result: Result) -> str:
    """The numbers of samples that were measured and calibrated on."""
    return f"({result['protocol']['images']}, {result['protocol']['calibration']})"


def _cell(result: Result | None, usual: str) -> str:
    """A result in a line; its numbers of samples, too, where they are not the `usual` ones of the row."""
    if result is None:
        return ""
    way = "" if result["tool"] in _OWN else f" {result['protocol']['entry']}"
    words = f"{decibels(result):.1f} dB{way}" + (f" {_size(result)}" if _size(result) != usual else "")
    if result["figure"] is None:
        return f"{result['cosine']:.4f}, {words}"
    return "{:.1f} ({:+.1f} ± {:.1f}), {}".format(result["figure"], *result["to float"], words)


def _worst(result: Result | None) -> str:
    if result is None or result["slices"]["worst"] is None:
        return ""
    return f"{result['slices']['worst'][1]:.1f}, {result['slices']['worst sample']:.1f}"


def _more_bits(best: Mapping[str, Result]) -> str:
    """How many layers of npuc's entry have more bits than the scheme says."""
    notes = (best.get("ladder") or best.get("npuc") or {"notes": {}})["notes"]
    wide, layers = notes.get("wide", (0, 0))
    words = [f"{wide} of {layers} layers 16-bit activations"] if wide else []
    return ", ".join([*words, *([f"{notes['finer']} layers 8-bit weights"] if notes.get("finer") else [])])


def _seeds(results: Sequence[Result]) -> str:
    """What the ladder's seeds gave: each one's figure and decibels."""
    seeds = [result for result in results if result["tool"] == "ladder"]
    if len(seeds) < 2:
        return ""
    figures = [f"{result['figure']:.1f}" for result in seeds if result["figure"] is not None]
    levels = f"{', '.join(f'{decibels(result):.1f}' for result in seeds)} dB"
    return f"{', '.join(figures)}; {levels}" if figures else levels
