"""A small detector as exporters write it, and data for it: boxes and scores in one output."""

from __future__ import annotations

import numpy as np

from npuc import lang
from npuc.arrays import Array
from npuc.ir import Graph


def detector() -> Graph:
    """Nine ops: boxes of 0 to some hundreds and scores of 0 to 1 in one output, as detectors are exported."""
    rng = np.random.default_rng(0)
    x = lang.input("x", (1, 3, 16, 16))
    stem = rng.normal(0, 0.3, (16, 3, 3, 3)).astype(np.float32)
    features = lang.conv(x, stem, np.zeros(16, np.float32), pads=(1, 1, 1, 1), relu=True, name="features")
    wide = np.abs(rng.normal(0, 12, (4, 16, 1, 1))).astype(np.float32)
    boxes = lang.conv(features, wide, np.full(4, 50, np.float32), relu=True, name="boxes")
    small = rng.normal(0, 0.3, (6, 16, 1, 1)).astype(np.float32)
    logits = lang.conv(features, small, np.full(6, -2, np.float32), name="logits")
    flat = lang.reshape(boxes, shape=(1, 4, 256), name="flat_boxes")
    scores = lang.sigmoid(lang.reshape(logits, shape=(1, 6, 256), name="flat_logits"), name="scores")
    return lang.build({"y": lang.concat([flat, scores], axis=1, name="joined")})


def data(count: int, seed: int = 1) -> list[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(size=(1, 3, 16, 16)).astype(np.float32)} for _ in range(count)]
