"""The ladder as a whole: what is asked of it, the samples that it gets, and the climb."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.calib.feeding import Feeder
from npuc.calib.sources import Source
from npuc.errors import UsageError
from npuc.ir import Graph
from npuc.quant.ladder.climb import Rung, chosen, climb
from npuc.quant.ladder.goal import MIXED, climb_to
from npuc.quant.ladder.way import Check, Climb, Goal, Stop
from npuc.quant.ladder.workshop import Candidate, Workshop
from npuc.quant.mixed_precision.prices import Prices
from npuc.quant.tuning import tune
from npuc.quant.widening import Widening
from npuc.transform.eliminate_dead_code import drop_unused_weights
from npuc.words import counted

Array = np.ndarray[Any, Any]
MOST_SAMPLES = 512
MOST_BYTES = 1 << 30
"""Of all samples together, which stay in memory."""


@dataclass(frozen=True)
class Wish:
    """Which steps, where, and how far."""

    steps: tuple[str, ...] | None = None
    """By name; None: all, but types are not mixed where a scheme was asked for."""
    device: str = "cpu"
    goal: Goal | None = None
    """Climb until a metric is met."""
    points: int = 0
    """Points of the frontier that are measured besides, for a picture of it."""
    report: Callable[[Rung | Stop | Check | str], None] = lambda rung: None
    finished: Callable[[Climb], None] = lambda climb: None

    @staticmethod
    def names(text: str) -> tuple[str, ...] | None:
        """The steps that a text asks for: `all`, or names with commas between; None is all."""
        names = tuple(part.strip() for part in text.split(",") if part.strip())
        if not names:
            raise UsageError("no step is named", fix=f"Ask for all, default or some of {_known()}")
        if "all" in names or "default" in names:
            if len(names) > 1:
                raise UsageError(f"'{text}': all and default stand alone")
            return None
        chosen(names)
        return names


def _known() -> str:
    return ", ".join(entry.name for entry in chosen())


def kept_samples(
    graph: Graph,
    source: Source,
    *,
    strict: bool = False,
    warn: Callable[[str], None] | None = None,
    step: Callable[[], None] | None = None,
) -> list[Mapping[str, Array]]:
    """The first samples of a source, as many as are of use and fit."""
    note = warn or (lambda text: None)
    found: list[Mapping[str, Array]] = []
    held = 0
    for batch in Feeder(graph, source, strict, note, step or (lambda: None)).batches():
        inputs = {name: np.array(array) for name, array in batch.inputs.items()}
        held += sum(array.nbytes for array in inputs.values())
        if len(found) == MOST_SAMPLES or (found and held > MOST_BYTES):
            note(
                f"the first {counted(len(found), 'sample', 'serves', 'serve')} the ladder: more would not fit or help"
            )
            break
        found.append(inputs)
    return found


def climbed(shop: Workshop, wish: Wish, prices: Prices, *, widen: Widening | bool, fixed: bool) -> Candidate:
    """The default, then step by step as far as is asked; all that was done is in the notes of the network.

    `widen` is the default's; `fixed` types, those of a scheme that was asked for, are not mixed unless that is asked for
    too, by name or by a goal.
    """
    first = tune(
        shop.original,
        shop.statistics(shop.original),
        shop.fit,
        shop.scheme_of,
        shop.methods,
        widen=widen,
        threads=shop.threads,
    )
    judged = shop.judged(first.graph)
    best = start = Candidate(shop.original, first.graph, first.table, first.scheme_of, judged)
    names = wish.steps or [
        entry.name for entry in chosen() if entry.name != MIXED or not fixed or wish.goal is not None
    ]
    if wish.goal is None:
        wish.report(f"default: {start.sqnr:.2f} dB")
        best = climb(shop, names, start=start, report=wish.report)
    else:
        way = climb_to(
            shop, wish.goal, prices, start, names, report=wish.report, passed=wish.report, points=wish.points
        )
        wish.finished(way)
        best = way.best.candidate
    drop_unused_weights(best.made)
    best.made.float_reasons = {**first.graph.float_reasons, **best.made.float_reasons}
    best.made.notes = list(dict.fromkeys([*first.graph.notes, *best.made.notes, *best.notes]))
    return best
