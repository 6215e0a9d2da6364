"""An accuracy goal without labels: the share of samples whose best class is that of the float network.

A framework hands over inputs and no labels. What a classifier loses by quantization is then measured against itself: a sample on
which the integer network chooses another class than float counts as lost. A part of the samples is held back while the others
steer the search, as for labelled data (`npuc.evaluate.goal`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from math import sqrt

import numpy as np

from npuc.arrays import Array
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import UsageError
from npuc.evaluate.goal import FEWEST
from npuc.ir import Graph, shape_of
from npuc.quant.ladder.measurements import POINTS, Goal, Loss
from npuc.words import counted

_HELD_BACK = 5
"""One batch of so many is held back."""

Batches = Sequence[Mapping[str, Array]]


def parted(batches: Batches) -> tuple[Batches, Batches]:
    """The batches that calibrate and steer, and those that are held back, if there are enough."""
    if len(batches) < FEWEST:
        return batches, ()
    held = batches[_HELD_BACK // 2 :: _HELD_BACK]
    return [b for index, b in enumerate(batches) if index % _HELD_BACK != _HELD_BACK // 2], held


def agreement_goal(
    graph: Graph,
    steering: Batches,
    held: Batches,
    drop: float,
    threads: int | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> Goal:
    """At most `drop` percentage points of the samples may get another best class than from the float network."""
    scores = next((port for port in graph.outputs if _has_classes(shape_of(port.value))), None)
    if scores is None:
        shapes = ", ".join(str(list(shape_of(port.value))) for port in graph.outputs)
        raise UsageError(
            f"accuracy_drop counts samples whose best class changes, and no output has classes (shapes: {shapes})",
            fix="Leave it out and use ladder='all', which judges by the error of the outputs",
        )
    name = scores.name
    workers = threads or len(os.sched_getaffinity(0))

    def classes(engine: FloatEngine | IntegerEngine, some: Batches) -> Array:
        rows = [np.asarray(engine.run(inputs)[name]) for inputs in some]
        return np.concatenate([row.reshape(-1, row.shape[-1]).argmax(axis=-1) for row in rows])

    real = FloatEngine(graph, threads=workers)
    expected = {"steering": classes(real, steering), "held": classes(real, held) if held else np.empty(0)}

    def agreement(quantized: Graph, some: Batches, expected_classes: Array) -> float:
        return 100 * float(
            np.mean(classes(IntegerEngine(quantized, threads=workers), some) == expected_classes)
        )

    def confirm(quantized: Graph) -> Loss:
        lost = 100 - agreement(quantized, held, expected["held"])
        share, count = lost / 100, len(expected["held"])
        # Wilson's interval: it stays within 0 and 1 for the few samples that there are.
        z = 1.96
        middle = (share + z * z / (2 * count)) / (1 + z * z / count)
        half = z / (1 + z * z / count) * sqrt(share * (1 - share) / count + z * z / (4 * count * count))
        return Loss(lost, (100 * max(0.0, middle - half), 100 * min(1.0, middle + half)))

    if not held:
        warn(
            f"{counted(len(steering), 'calibration batch')} are too few to hold some back (from {FEWEST} on, a fifth is): those "
            "that choose the network also measure it"
        )
    return Goal(
        lambda quantized: agreement(quantized, steering, expected["steering"]),
        100.0,
        drop,
        "agreement with float",
        POINTS,
        samples=len(expected["steering"]),
        confirm=confirm if held else None,
        held_back=len(expected["held"]),
        grain=100 / len(expected["held"]) if held else 0.0,
    )


def _has_classes(shape: tuple[int, ...]) -> bool:
    return len(shape) >= 1 and shape[-1] >= 2
