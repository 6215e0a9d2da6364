"""Analysis: what was planted in a network is the first finding, and its healthy twin has no such finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.calib.calibration import calibrate
from npuc.calib.sources import open_data
from npuc.engine import FloatEngine
from npuc.errors import CompareError, UsageError
from npuc.flow import quantize_on_data, schemes_of
from npuc.ir import Graph, result_names
from npuc.quant import SCHEMES, Scheme, quantize
from npuc.quant.analysis import Analysis, analyze, hybrid_yaml, suggest
from npuc.quant.analysis.analyze import LEVERS
from npuc.quant.analysis.histogram import bins, svg_histograms, text_histogram
from npuc.quant.bias_correction import correct_biases
from npuc.quant.config import QuantizationConfig
from npuc.quant.ladder.climb import chosen
from npuc.quant.tuning import output_sqnr

Array = np.ndarray[Any, Any]
Range = tuple[float, float]
WIDE = SCHEMES["int16"]


def weights(seed: int, *shape: int) -> Array:
    fan = int(np.prod(shape[1:])) or 1
    return (np.random.default_rng(seed).standard_normal(shape) * np.sqrt(2 / fan)).astype(np.float32)


def samples(count: int = 12, outlier: float = 1.0) -> list[dict[str, Array]]:
    """Pictures with one value each that may be larger, in all channels in turn."""
    found = np.random.default_rng(5).uniform(-1, 1, (count, 1, 4, 20, 20)).astype(np.float32)
    for index, array in enumerate(found):
        array[0, index % 4, 6, 6] *= outlier
    return [{"x": array} for array in found]


def network(
    channel: float = 1.0, uneven: float = 0.0, offset: float = 0.0, weight: float = 1.0, stem: float = 1.0
) -> Graph:
    """stem, body and head; a channel of the stem may be larger, weights of the body may differ, the stem be offset."""
    sizes = np.ones(16, np.float32)
    sizes[3] = channel
    bias = np.full(16, 0.2 + offset, np.float32)
    x = lang.input("x", (1, 4, 20, 20))
    first = lang.conv(
        x,
        stem * weights(1, 16, 4, 3, 3) * sizes[:, None, None, None],
        bias * sizes,
        pads=1,
        relu=not offset,
        name="stem",
    )
    w2 = weight * weights(2, 16, 16, 3, 3) / sizes[None, :, None, None]
    if offset:
        w2 -= w2.mean(axis=(1, 2, 3), keepdims=True)
    spread = np.exp(uneven * np.linspace(-1, 1, 16)).astype(np.float32)
    body = lang.conv(
        first, w2 * spread[:, None, None, None], np.full(16, 0.1, np.float32) * spread, relu=True, name="body"
    )
    last = lang.conv(body, weights(3, 16, 16, 1, 1) / spread[None, :, None, None], np.zeros(16, np.float32), name="last")
    pooled = lang.reduce(last, kind="mean", axes=(2, 3), keepdims=False, name="pooled")
    return lang.build({"y": lang.matmul(pooled, weights(4, 16, 5), np.zeros(5, np.float32), name="head")})


def analyzed(
    graph: Graph,
    scheme: Scheme = SCHEMES["int8"],
    data: list[dict[str, Array]] | None = None,
    factors: Mapping[str, float] | None = None,
    layers: Mapping[str, Scheme] | None = None,
    correct: bool = True,
) -> Analysis:
    """The network quantized with the whole range of every tensor, some of them multiplied, and corrected biases."""
    data = data or samples()
    table = calibrate(graph, data, "max", threads=1)
    ranges: dict[str, Range] = {}
    for name, entry in table.items():
        factor = (factors or {}).get(name, 1.0)
        ranges[name] = (entry.min * factor, entry.max * factor)

    def scheme_of(op: Any) -> Scheme:
        return (layers or {}).get(result_names(op)[0], scheme)

    made = quantize(graph, ranges, scheme_of)
    if correct:
        correct_biases(graph, made, data, 1, scheme_of)
    return analyze(graph, made, data, scheme_of, threads=1)


def kinds(found: Analysis) -> set[str]:
    return {finding.kind for finding in found.findings}


UNEVEN = replace(WIDE, per_channel=False)
FLOOR = replace(WIDE, constant_rounding="floor")
CASES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "clipping": ("stem", "clipping", {"graph": network(), "factors": {"stem": 0.2}}, {"graph": network()}),
    "outlier channel": ("stem", "outlier channels", {"graph": network(60.0)}, {"graph": network()}),
    "rare values": (
        "x", "outliers", {"graph": network(), "data": samples(outlier=60.0)}, {"graph": network()},
    ),
    "weight spread": (
        "body", "weight spread", {"graph": network(uneven=3.0), "scheme": UNEVEN}, {"graph": network(), "scheme": UNEVEN},
    ),
    "weight spread, a scale a channel": (
        "body", "weight spread", {"graph": network(uneven=3.0), "scheme": UNEVEN}, {"graph": network(uneven=3.0), "scheme": WIDE},
    ),
    "bias shift": (
        "body", "bias shift", {"graph": network(), "scheme": FLOOR, "correct": False}, {"graph": network(), "scheme": FLOOR},
    ),
    "wasted bits": ("body", "wasted bits", {"graph": network(), "factors": {"body": 16.0}}, {"graph": network()}),
    "sensitive tensor": ("stem", "rounding", {"graph": network(offset=80.0)}, {"graph": network(), "scheme": WIDE}),
    "few bits for weights": (
        "head", "weights", {"graph": network(), "layers": {"head": replace(WIDE, weight="i4")}}, {"graph": network()},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_planted_is_found_first(case: str) -> None:
    layer, kind, sick, healthy = CASES[case]
    found = analyzed(**sick)
    assert (found.findings[0].layer, found.findings[0].kind) == (layer, kind), found.findings
    assert found.findings[0].severity > 0.25
    assert found.findings[0].kind not in kinds(analyzed(**healthy))
