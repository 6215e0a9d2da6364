"""A small data set, a small network in all its forms, and a metric in a module of its own: what evaluation tests share."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from npuc.evaluate import Observation, metric
from npuc.ir import Graph, top
from support.graphs import build


def network(batch: int = 1, seed: int = 0) -> Graph:
    """conv, relu, mean over the image, a product: scores of five classes for an 8 x 8 image."""
    rng = np.random.default_rng(seed)

    def body(b: Any, x: Any) -> dict[str, Any]:
        weights = [rng.standard_normal(shape).astype(np.float32) for shape in ((4, 3, 3, 3), (4,), (4, 5))]
        hidden = b(
            top.Conv,
            x,
            weights[0],
            weights[1],
            name="conv",
            strides=(1, 1),
            pads=(1, 1, 1, 1),
            dilations=(1, 1),
            group=1,
        )
        hidden = b(top.Relu, hidden, name="relu")
        hidden = b(top.Reduce, hidden, name="pool", kind="mean", axes=(2, 3), keepdims=False)
        return {"scores": b(top.MatMul, hidden, weights[2], name="scores")}

    return build({"x": (batch, 3, 8, 8)}, body)


def data_set(folder: Path, count: int = 40) -> Path:
    """Images with classes, as a list."""
    rng = np.random.default_rng(1)
    (folder / "val").mkdir(parents=True)
    lines = []
    for index in range(count):
        pixels = rng.integers(0, 256, (8, 8, 3), np.uint8)
        Image.fromarray(pixels).save(folder / "val" / f"{index:03d}.png")
        lines.append(f"{index:03d}.png {int(rng.integers(5))}")
    (folder / "val.txt").write_text("\n".join(lines) + "\n")
    return folder


@metric("patient")
def patient(observation: Observation) -> float:
    """The mean of the outputs, at leisure: there is time to kill who computes it."""
    time.sleep(0.01)
    return float(np.mean(observation.outputs["scores"]))


@metric("slow")
def slow(observation: Observation) -> float:
    """The same, for who is slow to kill."""
    time.sleep(0.03)
    return float(np.mean(observation.outputs["scores"]))


@metric("deadly")
def deadly(observation: Observation) -> float:
    """Kills the process that computes it for one of the samples."""
    if observation.name == "013.png":
        os.kill(os.getpid(), 9)
    return 0.0
