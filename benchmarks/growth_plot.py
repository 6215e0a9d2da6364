"""Compile time and memory against layers, cores and tiles, as a plot.

The networks are those of bench_growth.py. Layers: more of them on `edge-4t`. Cores: 100 layers on `server-32t` with 1 to 8
cores. Tiles: 30 layers on `edge-1t` with images of 16 to 512 pixels in each direction, of which local memory holds fewer and
fewer rows; the axis is the number of instructions. Each point is a process of its own; results are kept in
benchmarks/results/growth.json, and points that are there are not measured again.

    python benchmarks/growth_plot.py [--again]     measures, and writes docs/images/growth.svg
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from math import log10
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "growth.json"
PLOT = ROOT / "docs" / "images" / "growth.svg"
POINTS = {
    "layers": (30, 100, 300, 1000, 3000, 10000),
    "cores": (1, 2, 4, 8),
    "tiles": (16, 64, 128, 256, 512),
}


def measured(axis: str, point: int) -> dict[str, float]:
    """CPU seconds, megabytes and instructions of a compilation."""
    from bench_growth import measure
    from bench_schedule import with_cores

    from npuc.program.isa import RECORD
    from npuc.target import load_target

    if axis == "layers":
        seconds, memory, stream = measure(point, load_target("edge-4t"), 2)
    elif axis == "cores":
        seconds, memory, stream = measure(100, with_cores(load_target("server-32t"), point), 2)
    else:
        seconds, memory, stream = measure(30, load_target("edge-1t"), 2, pixels=point)
    return {"seconds": round(seconds, 3), "megabytes": round(memory, 1), "instructions": stream // RECORD}


def drawing(results: dict[str, dict[str, dict[str, float]]]) -> str:
    """The plot: for each axis, time (full line, left) and memory (broken line, right), both by powers of ten."""
    width, height, gap = 250, 200, 80
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {3 * (width + gap) + 20} {height + 80}" font-family="sans-serif" '
        'font-size="11">',
        "<title>Compile time and memory against layers, cores and tiles</title>",
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, axis in enumerate(POINTS):
        rows = sorted(results[axis].items(), key=lambda row: int(row[0]))
        ticks = [int(row["instructions"]) if axis == "tiles" else int(point) for point, row in rows]
        left, top = 50 + number * (width + gap), 30
        titles = {
            "layers": "layers, edge-4t",
            "cores": "cores, server-32t, 100 layers",
            "tiles": "instructions, edge-1t, 30 layers",
        }
        parts.append(
            f'<text x="{left + width / 2}" y="{top + height + 36}" text-anchor="middle">{titles[axis]}</text>'
        )
        parts.append(
            f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#888"/>'
        )
        across = _scale(ticks, left, left + width)
        for tick in ticks:
            parts.append(
                f'<text x="{across(tick):.1f}" y="{top + height + 16}" text-anchor="middle">{tick:,}</text>'
            )
        for key, dash, side, unit, color in (
            ("seconds", "", "end", "s", "#0b5fa5"),
            ("megabytes", ' stroke-dasharray="5 3"', "start", "MB", "#b3541e"),
        ):
            values = [max(float(row[key]), 0.01) for _, row in rows]
            up = _scale(values, top + height - 10, top + 10)
            at = " ".join(
                f"{across(tick):.1f},{up(value):.1f}" for tick, value in zip(ticks, values, strict=True)
            )
            parts.append(f'<polyline points="{at}" fill="none" stroke="{color}" stroke-width="1.5"{dash}/>')
            edge = left - 4 if side == "end" else left + width + 4
            for value in (values[0], values[-1]):
                text = f"{value:.3g} {unit}"
                parts.append(
                    f'<text x="{edge}" y="{up(value) + 4:.1f}" text-anchor="{side}" fill="{color}">{text}</text>'
                )
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _scale(values: list[Any], low: float, high: float) -> Any:
    least, most = log10(min(values)), log10(max(values))
    return lambda value: low + (high - low) * (log10(value) - least) / ((most - least) or 1)


def main() -> None:
    """Measure what is missing, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--again", action="store_true", help="also points that have a result")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given.one[0], int(given.one[1]))))
        return
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.is_file() and not given.again else {}
    for axis, points in POINTS.items():
        for point in points:
            if str(point) in results.setdefault(axis, {}):
                continue
            command = [sys.executable, __file__, "--one", axis, str(point)]
            said = subprocess.run(command, check=True, capture_output=True, text=True)
            results[axis][str(point)] = json.loads(said.stdout)
            print(axis, point, results[axis][str(point)], flush=True)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PLOT.write_text(drawing(results))


if __name__ == "__main__":
    main()
