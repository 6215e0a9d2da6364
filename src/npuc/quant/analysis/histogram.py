"""Histograms of a tensor's values against the range of its type, as text and as a self-contained SVG drawing.

Bars are on a logarithmic scale, because the values that make a range bad are rare. Values outside the range are marked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

import numpy as np

from npuc.quant.analysis.finding import percent
from npuc.quant.analysis.measurements import TensorMeasure

_DECADES = 5.0
"""The shortest bar represents this many decades below the fullest bin."""
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 640, 220, 16, 44, 26


@dataclass(frozen=True)
class Bin:
    """One bin of a histogram."""

    low: float
    high: float
    share: float
    outside: bool
    """Whether the values are outside the range of the type."""


def bins(tensor: TensorMeasure, count: int = 24) -> list[Bin]:
    """The values in bins of equal width, from the smallest to the largest."""
    observed = tensor.values.statistics
    if not observed.count:
        return []
    edges = np.linspace(
        observed.min, observed.max if observed.max > observed.min else observed.min + 1.0, count + 1
    )
    counts, _ = np.histogram(observed.centers(), edges, weights=observed.histogram.astype(np.float64))
    shares = counts / max(counts.sum(), 1.0)
    low, high = tensor.values.low, tensor.values.high
    return [
        Bin(float(a), float(b), float(share), bool((a + b) / 2 < low or (a + b) / 2 > high))
        for a, b, share in zip(edges[:-1], edges[1:], shares, strict=True)
    ]


def _length(share: float, most: float) -> float:
    """The length of a bar from 0 to 1, on a logarithmic scale."""
    if share <= 0:
        return 0.0
    return max(0.02, 1 + math.log10(share / most) / _DECADES)


def _title(tensor: TensorMeasure) -> str:
    values = tensor.values
    return (
        f"{tensor.name} ({tensor.kind}, {values.type.dtype.name}): range {values.low:.4g} to {values.high:.4g}, "
        f"{percent(values.clipped)} clipped, {values.entropy:.1f} of {values.bits} bits carried"
    )


def text_histogram(tensor: TensorMeasure, width: int = 48) -> str:
    """A histogram in lines of text; `!` marks bins outside the range."""
    histogram = bins(tensor)
    most = max((bin_.share for bin_ in histogram), default=1.0)
    lines = [_title(tensor)]
    for bin_ in histogram:
        bar = ("!" if bin_.outside else "#") * round(width * _length(bin_.share, most))
        amount = percent(bin_.share) if bin_.share else ""
        lines.append(f"  {bin_.low:>11.4g} .. {bin_.high:>11.4g} |{bar:{width}} {amount}".rstrip())
    return "\n".join(lines)


def svg_histograms(tensors: Sequence[TensorMeasure]) -> str:
    """Histograms one below the other in an SVG document; the range of the type is shaded."""
    height = max(1, len(tensors)) * _HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
    ]
    for index, tensor in enumerate(tensors):
        parts += _drawing(tensor, index * _HEIGHT)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _drawing(tensor: TensorMeasure, top: int) -> list[str]:
    histogram = bins(tensor, 80)
    title = f'<text x="{_LEFT}" y="{top + 18}">{escape(_title(tensor))}</text>'
    if not histogram:
        return [title]
    first, last = histogram[0].low, histogram[-1].high
    inner, base = _WIDTH - 2 * _LEFT, top + _HEIGHT - _BOTTOM
    tall = _HEIGHT - _TOP - _BOTTOM
    most = max(bin_.share for bin_ in histogram)

    def x(value: float) -> float:
        return _LEFT + inner * (min(max(value, first), last) - first) / (last - first)

    left, right = x(tensor.values.low), x(tensor.values.high)
    parts = [
        title,
        f'<rect x="{left:.1f}" y="{top + _TOP}" width="{right - left:.1f}" height="{tall}" fill="#eef4fa"/>',
    ]
    for bin_ in histogram:
        bar = tall * _length(bin_.share, most)
        colour = "#c0392b" if bin_.outside else "#1f6fb2"
        words = f"{bin_.low:.4g} to {bin_.high:.4g}: {percent(bin_.share)}"
        parts.append(
            f'<rect x="{x(bin_.low):.1f}" y="{base - bar:.1f}" width="{inner / len(histogram) - 0.5:.1f}" '
            f'height="{bar:.1f}" fill="{colour}"><title>{escape(words)}</title></rect>'
        )
    ends = ((first, "start"), (last, "end"))
    parts += [
        f'<text x="{x(value):.1f}" y="{base + 16}" text-anchor="{anchor}">{value:.4g}</text>'
        for value, anchor in ends
    ]
    return parts
