"""A plot of the errors of the layers of a network: SQNR over the layers in order, as a self-contained SVG file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from npuc.compare.layers import LayerError, TensorFigures

_HEIGHT, _LEFT, _TOP, _BOTTOM, _RIGHT = 320, 56, 40, 36, 16
_BEST = 80.0
"""Decibels above which no difference is visible; also where an exact tensor is drawn."""
_COLOURS = {"accumulated": "#1f6fb2", "isolated": "#d9822b"}


def plot(layers: Sequence[LayerError], title: str = "SQNR by layer") -> str:
    """An SVG document.

    >>> plot([LayerError("a", "a", "npu.conv", "i8", TensorFigures(1.0, 40.0, 0.1))]).startswith("<svg")
    True
    """
    width = _LEFT + _RIGHT + max(480, 9 * len(layers))
    inner = width - _LEFT - _RIGHT
    floor = min(0.0, *(_bounded(entry.accumulated.sqnr) for entry in layers), 0.0) if layers else 0.0
    top = _BEST

    def x(index: int) -> float:
        return _LEFT + inner * (index + 0.5) / max(len(layers), 1)

    def y(decibels: float) -> float:
        share = (_bounded(decibels) - floor) / (top - floor)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{_HEIGHT}" '
        f'viewBox="0 0 {width} {_HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="16" font-size="13">{escape(title)}</text>',
    ]
    for mark in range(math.ceil(floor / 20) * 20, int(top) + 1, 20):
        parts.append(
            f'<line x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y(mark):.1f}" y2="{y(mark):.1f}" stroke="#ddd"/>'
            f'<text x="{_LEFT - 6}" y="{y(mark) + 4:.1f}" text-anchor="end">{mark} dB</text>'
        )
    series: list[tuple[str, list[tuple[int, LayerError, TensorFigures]]]] = [
        ("accumulated", [(i, e, e.accumulated) for i, e in enumerate(layers)]),
        ("isolated", [(i, e, e.isolated) for i, e in enumerate(layers) if e.isolated is not None]),
    ]
    for number, (label, points) in enumerate(series):
        if not points:
            continue
        colour = _COLOURS[label]
        line = " ".join(f"{x(i):.1f},{y(figures.sqnr):.1f}" for i, _, figures in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.2"/>')
        for index, entry, figures in points:
            what = f"{entry.name} ({entry.kind}, {entry.type})"
            words = f"{what}: {label} {figures.sqnr:.1f} dB, cosine {figures.cosine:.5f}"
            parts.append(
                f'<circle cx="{x(index):.1f}" cy="{y(figures.sqnr):.1f}" r="2.6" fill="{colour}">'
                f"<title>{escape(words)}</title></circle>"
            )
        parts.append(f'<text x="{_LEFT + 110 * number}" y="32" fill="{colour}">● {label}</text>')
    parts.append(
        f'<text x="{_LEFT + inner / 2:.0f}" y="{_HEIGHT - 10}" text-anchor="middle">'
        f"{len(layers)} layers, in the order of the program</text>"
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bounded(decibels: float) -> float:
    return max(-20.0, min(_BEST, decibels))
