"""Sensitivity: how much the outputs change when one group alone has fewer channels.

Each group is narrowed to a few widths, its least important channels masked, and the divergence of the outputs from those of the
whole network is measured. The file is written after every measurement: a run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from npuc.activity import activity
from npuc.arrays import Array
from npuc.errors import FileFormatError, UsageError
from npuc.files import write_atomically
from npuc.train.checkpoint import fingerprint
from npuc.train.pruning.groups import DependencyGraph
from npuc.train.pruning.scoring import Score, Scorer
from npuc.train.pruning.search import HarmOf
from npuc.train.pruning.slimming import mask_arrays
from npuc.train.pruning.widths import dropped, snapped_widths

_VERSION = 1
_POINTS = 5
"""Widths of a group that are measured, beside all of it."""
_COLOURS = ("#1f6fb2", "#d9822b", "#3a8f4d", "#a33b8f", "#7a6a2f", "#c0392b", "#4b6fa5", "#777777")


@dataclass
class GroupSensitivity:
    """What was measured of one group."""

    size: int
    points: dict[int, Score] = field(default_factory=dict)
    """From the number of channels that stay to the measurement."""


@dataclass
class Sensitivity:
    """The sensitivity of all groups of a network."""

    network: str
    """A fingerprint of the network, its weights, the samples and the criterion."""
    base: Score
    groups: dict[str, GroupSensitivity] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """What the file has."""
        return {
            "version": _VERSION,
            "network": self.network,
            "base": vars(self.base),
            "groups": {
                name: {
                    "size": group.size,
                    "points": [{"keep": keep, **vars(score)} for keep, score in sorted(group.points.items())],
                }
                for name, group in self.groups.items()
            },
        }

    def save(self, path: Path) -> None:
        """Write the file."""
        with write_atomically(path) as out:
            out.write((json.dumps(self.as_json(), indent=1) + "\n").encode())

    @staticmethod
    def load(path: Path) -> Sensitivity:
        """Read a file; `FileFormatError` if it is another one."""
        try:
            content = json.loads(path.read_bytes())
            if content["version"] != _VERSION:
                raise ValueError("another version")
            groups = {
                str(name): GroupSensitivity(
                    int(group["size"]),
                    {
                        int(point["keep"]): Score(float(point["divergence"]), float(point["score"]))
                        for point in group["points"]
                    },
                )
                for name, group in content["groups"].items()
            }
            base = Score(float(content["base"]["divergence"]), float(content["base"]["score"]))
            return Sensitivity(str(content["network"]), base, groups)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FileFormatError(
                "is no file of sensitivities", where=str(path), fix="Delete it to measure anew"
            ) from error

    def harm(self) -> HarmOf:
        """The harm of a width: the measured divergence, interpolated, and never less for fewer channels."""
        curves: dict[str, tuple[Array, Array]] = {}
        for name, group in self.groups.items():
            keeps = sorted({*group.points, group.size})
            harms = [0.0 if keep == group.size else group.points[keep].divergence for keep in keeps]
            rising = np.maximum.accumulate(np.maximum(harms, 0.0)[::-1])[::-1]
            curves[name] = np.array(keeps, float), rising

        def harm(name: str, keep: int) -> float:
            if name not in curves:
                raise UsageError(f"the sensitivity of group '{name}' was not measured")
            keeps, harms = curves[name]
            # Below the fewest channels that were measured, harm goes on growing with each one that is lost.
            beyond = max(0.0, keeps[0] - keep) / max(keeps[0], 1.0)
            return float(np.interp(keep, keeps, harms) * (1 + 4 * beyond) + 1e-9 * (keeps[-1] - keep))

        return harm


def measure_sensitivity(
    dependencies: DependencyGraph,
    scorer: Scorer,
    importance: Mapping[str, Array],
    *,
    lanes: int = 1,
    criterion: str = "",
    path: Path | None = None,
) -> Sensitivity:
    """Measure all groups; with a `path`, what its file has already is not measured again."""
    identity = fingerprint(dependencies.graph, criterion, len(scorer.data), _digest(scorer.data.inputs[0]))
    result = Sensitivity(identity, Score(0.0, 0.0))
    if path is not None and path.exists():
        result = Sensitivity.load(path)
        if result.network != identity:
            raise UsageError(
                f"{path} has the sensitivities of another network, other samples or another criterion",
                fix="Give the same ones, or another file",
            )
    else:
        result.base = scorer.base()
    jobs = []
    for group in dependencies.groups:
        known = result.groups.setdefault(group.name, GroupSensitivity(group.size)).points
        jobs += [
            (group, keep) for keep in measured_widths(group.size, lanes, group.unit) if keep not in known
        ]
    with activity("measuring sensitivity", len(jobs)) as step:
        for group, keep in jobs:
            selection = dropped(dependencies, {group.name: keep}, importance)
            masks = mask_arrays(dependencies, dependencies.removed(selection))
            result.groups[group.name].points[keep] = scorer.masked(masks)
            if path is not None:
                result.save(path)
            step()
    return result


def _digest(array: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(array[:64]).tobytes()).hexdigest()[:16]


def measured_widths(size: int, lanes: int, unit: int) -> Sequence[int]:
    """Some of the widths that a group may get, evenly spread."""
    choices = snapped_widths(size, lanes, unit)[1:]
    if len(choices) <= _POINTS:
        return choices
    return [choices[round(at * (len(choices) - 1) / (_POINTS - 1))] for at in range(_POINTS)]


def plot_sensitivity(sensitivity: Sensitivity, title: str = "Sensitivity of channel groups") -> str:
    """The divergence over the share of channels that stay, a line a group, as an SVG document.

    >>> plot_sensitivity(Sensitivity("", Score(0, 0.9), {"a": GroupSensitivity(8, {4: Score(0.1, 0.8)})})).count("<polyline")
    1
    """
    width, height, left, top, bottom = 760, 380, 56, 40, 40
    right = 280
    most = max(
        (score.divergence for group in sensitivity.groups.values() for score in group.points.values()),
        default=0.0,
    )
    most = max(most, 1e-6)
    inner = width - left - right

    def x(share: float) -> float:
        return left + inner * (1 - share)

    def y(value: float) -> float:
        return height - bottom - (height - top - bottom) * max(value, 0.0) / most

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="18" font-size="13">{escape(title)}</text>',
    ]
    for tick in range(5):
        value = most * tick / 4
        parts.append(
            f'<line x1="{left}" x2="{width - right}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>'
            f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.3g}</text>'
        )
    for share in (1.0, 0.75, 0.5, 0.25, 0.0):
        parts.append(
            f'<text x="{x(share):.1f}" y="{height - bottom + 16}" text-anchor="middle">{share:.0%}</text>'
        )
    for number, (name, group) in enumerate(sensitivity.groups.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = sorted([(group.size, 0.0), *((keep, s.divergence) for keep, s in group.points.items())])
        line = " ".join(f"{x(keep / group.size):.1f},{y(value):.1f}" for keep, value in reversed(points))
        words = f"{name}: {group.size} channels"
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.4">'
            f"<title>{escape(words)}</title></polyline>"
        )
        if number < 24:
            short = name if len(name) <= 40 else "…" + name[-39:]
            parts.append(
                f'<text x="{width - right + 12}" y="{top + 14 * number}" fill="{colour}">{escape(short)}</text>'
            )
    parts.append(
        f'<text x="{left + inner / 2:.0f}" y="{height - 6}" text-anchor="middle">channels that stay; '
        "divergence of the outputs upwards</text>"
    )
    return "\n".join([*parts, "</svg>"]) + "\n"
