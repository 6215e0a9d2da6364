"""A plot of accuracy over cycles: every measured network, with the Pareto-optimal ones joined by a line."""

from __future__ import annotations

from math import floor, log10
from typing import Any
from xml.sax.saxutils import escape

from npuc.quant.ladder.measurements import Goal, GoalCheck, GoalResult, Measurement

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM, _RIGHT = 640, 360, 72, 44, 48, 20
_BEST, _OTHER, _WON = "#1f6fb2", "#9bb7cf", "#d9822b"


def frontier_data(result: GoalResult, goal: Goal, machine: str) -> dict[str, Any]:
    """The data of the plot as plain values."""
    on = {id(measurement) for measurement in best_measurements(result, goal)}
    return {
        "metric": goal.metric,
        "unit": goal.unit.strip(),
        "machine": machine,
        "float": goal.exact,
        "allowed_drop": goal.drop,
        "samples": goal.samples,
        "samples_held_back": goal.held_back,
        "points": [
            {
                "what": measurement.words,
                "figure": measurement.figure,
                "lost": measurement.lost,
                "cycles": measurement.cycles,
                "sqnr": measurement.sqnr,
                "met": measurement.met,
                "chosen": measurement is result.best,
                "frontier": id(measurement) in on,
                "held_back": _held_back(result.check_of(measurement)),
            }
            for measurement in result.measurements
        ],
    }


def _held_back(check: GoalCheck | None) -> dict[str, Any] | None:
    """The check on the held-back samples as plain values, if there was one."""
    if check is None:
        return None
    low, high = check.loss.interval
    return {"lost": check.loss.value, "low": low, "high": high, "confirmed": check.met}


def best_measurements(result: GoalResult, goal: Goal) -> list[Measurement]:
    """The Pareto-optimal networks, by rising cycles."""
    undominated: list[Measurement] = []
    for measurement in sorted(
        (s for s in result.measurements if s.cycles is not None), key=lambda s: (s.cycles_or_inf, s.lost)
    ):
        if not undominated or measurement.lost < undominated[-1].lost:
            undominated.append(measurement)
    return undominated


def frontier_svg(result: GoalResult, goal: Goal, machine: str) -> str:
    """An SVG document."""
    measurements = [measurement for measurement in result.measurements if measurement.cycles is not None]
    across = _Axis.over(
        [measurement.cycles_or_inf for measurement in measurements], _LEFT, _WIDTH - _RIGHT, steep=20
    )
    edge = goal.exact + goal.drop if goal.lower_is_better else goal.exact - goal.drop
    up = _Axis.over(
        [goal.exact, edge, *(measurement.figure for measurement in measurements)], _HEIGHT - _BOTTOM, _TOP
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="18" font-size="13">{escape(goal.metric)} over cycles on {escape(machine)}</text>',
    ]
    for mark in across.marks():
        x = across(mark)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" stroke="#eee"/>'
            f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{mark:,.0f}</text>'
        )
    for mark in up.marks():
        y = up(mark)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#eee"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{mark:g}</text>'
        )
    for value, words, dashes in ((goal.exact, "float", "none"), (edge, "allowed", "5 4")):
        y = up(value)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#888" '
            f'stroke-dasharray="{dashes}"/><text x="{_WIDTH - _RIGHT}" y="{y - 4:.1f}" text-anchor="end" '
            f'fill="#666">{words} {value:.4g}</text>'
        )
    best = best_measurements(result, goal)
    line = " ".join(
        f"{across(measurement.cycles_or_inf):.1f},{up(measurement.figure):.1f}" for measurement in best
    )
    parts.append(f'<polyline points="{line}" fill="none" stroke="{_BEST}" stroke-width="1.4"/>')
    for measurement in measurements:
        won = measurement is result.best
        colour = _WON if won else _BEST if any(measurement is other for other in best) else _OTHER
        words = f"{measurement.words}: {measurement.figure:.4g}, {measurement.cycles:,} cycles, {measurement.sqnr:.1f} dB"
        parts.append(
            f'<circle cx="{across(measurement.cycles_or_inf):.1f}" cy="{up(measurement.figure):.1f}" r="{5 if won else 3.2}" '
            f'fill="{colour}"><title>{escape(words)}</title></circle>'
        )
    parts.append(
        f'<text x="{_LEFT}" y="34" fill="{_WON}">● chosen</text>'
        f'<text x="{_LEFT + 70}" y="34" fill="{_BEST}">● nothing is better in both</text>'
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2:.0f}" y="{_HEIGHT - 12}" text-anchor="middle">cycles</text>'
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Axis:
    """Maps values to positions; logarithmic if the largest is more than `steep` times the smallest."""

    def __init__(self, low: float, high: float, start: float, end: float, log: bool) -> None:
        self._low, self._high, self._start, self._end, self._log = low, high, start, end, log

    @staticmethod
    def over(values: list[float], start: float, end: float, steep: float | None = None) -> _Axis:
        low, high = min(values), max(values)
        if steep is not None and low > 0 and high / low > steep:
            return _Axis(low / 1.2, high * 1.2, start, end, True)
        room = 0.08 * (high - low) or max(abs(high), 1.0) * 0.05
        return _Axis(low - room, high + room, start, end, False)

    def __call__(self, value: float) -> float:
        if self._log:
            share = log10(value / self._low) / log10(self._high / self._low)
        else:
            share = (value - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)

    def marks(self) -> list[float]:
        """Round values, about five."""
        if self._log:
            powers = range(floor(log10(self._low)), floor(log10(self._high)) + 1)
            return [v for p in powers for v in (10.0**p, 3 * 10.0**p) if self._low <= v <= self._high]
        rough = (self._high - self._low) / 5
        size = 10.0 ** floor(log10(rough))
        step = next(size * k for k in (1, 2, 5, 10) if size * k >= rough)
        first = floor(self._low / step) + 1
        multiples = [round(step * k, 12) for k in range(first, first + 12)]
        return [value for value in multiples if value <= self._high]
