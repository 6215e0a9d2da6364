"""The keys of the optimizer that search: `mixed_precision_auto_search` and `global_calibration`, as steps of npuc's ladder.

    mixed_precision_auto_search = 4, 0.02, L                    # more bits where the metric needs them
    global_calibration = adaquant_zy[10, 5, 16, 1e-5]           # learned scales, weights and biases

A step is kept if it is better on samples that were held back: neither key makes a network worse.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from npuc.compat.compass.cfg import CfgSection
from npuc.compat.compass.logger import say
from npuc.errors import UsageError
from npuc.ir import Graph
from npuc.quant.adaquant.options import AdaQuantOptions
from npuc.quant.config import LadderConfig
from npuc.quant.ladder.measurements import Goal, Measurement
from npuc.quant.ladder.run import PipelineOptions

SEARCH, GLOBAL = "mixed_precision_auto_search", "global_calibration"
_STEPS = {
    "easy_quant": "ranges",
    "adaround": "round",
    "adaquant_zy": "adaquant",
    "gptq_zy": "gptq",
    "smooth_quant_zy": "smooth",
}
"""Methods of the public optimizer, and the step that does the same."""
_METHOD = re.compile(r"(\w+)(?:\[([^\[\]]*)\])?(.*)")
_RATES = ("weight_rate", "bias_rate", "weight_scale_rate", "activation_scale_rate")

Measure = Callable[[Graph | None, int], float]
"""The first metric of an integer network, or of the float one, on so many samples."""


@dataclass(frozen=True)
class AutoSearch:
    """What `mixed_precision_auto_search` says."""

    batches: int
    threshold: float
    lower_is_better: bool

    @property
    def drop(self) -> float:
        """By how much the metric may become worse."""
        return -self.threshold if self.lower_is_better else self.threshold


def auto_search(section: CfgSection) -> AutoSearch | None:
    """The search that a section asks for; None if it is off."""
    words = [word.strip() for word in section.text(SEARCH, "0,0.,L").split(",")]
    try:
        batches, threshold, sense = int(words[0]), float(words[1]), words[2].upper()
    except (ValueError, IndexError):
        raise section.wrong(SEARCH, "is not BATCHES,THRESHOLD,L or G") from None
    if len(words) != 3 or sense not in ("L", "G"):
        raise section.wrong(SEARCH, "is not BATCHES,THRESHOLD,L or G")
    if batches < 1:
        return None
    search = AutoSearch(batches, threshold, sense == "G")
    if search.drop < 0:
        raise section.wrong(SEARCH, "asks for a quantized model that is better than the float one")
    if "metric" not in section.values:
        raise UsageError(
            f"[{section.name}] {SEARCH} needs a metric", where=section.path, fix="Add metric = ..."
        )
    return search


def ladder_of(section: CfgSection, measure: Measure) -> PipelineOptions | None:
    """The steps of the ladder that a section asks for."""
    steps = _global_steps(section)
    search = auto_search(section)
    if search is None:
        return PipelineOptions(steps=steps, report=_told) if steps else None
    count = search.batches * section.integer("metric_batch_size", 1, 1, 1 << 16)
    goal = Goal(
        lambda network: measure(network, count),
        measure(None, count),
        search.drop,
        section.text("metric"),
        lower_is_better=search.lower_is_better,
        samples=count,
    )
    return PipelineOptions(steps=(*steps, "mixed"), goal=goal, report=_told)


def learning_of(section: CfgSection) -> LadderConfig:
    """The options of the steps."""
    for name, numbers in _methods(section):
        if name == "adaquant_zy" and numbers:
            batches, epochs, batch, *rates = [*numbers, *[0.0] * (3 - len(numbers))]
            options: dict[str, Any] = {"iterations": max(1, int(batches * epochs))} if epochs else {}
            options |= {"batch": int(batch)} if batch else {}
            options |= {"real_rates": True, **dict(zip(_RATES, rates, strict=False))} if rates else {}
            return LadderConfig(adaquant=AdaQuantOptions(**options))
        if numbers:
            say("W", f"{GLOBAL}: the numbers of {name} have no effect here, where npuc's own are taken")
    return LadderConfig()


def refuse_beside(section: CfgSection, overrides: Any) -> None:
    """What cannot be had together with steps of the ladder."""
    others = {
        "statistic_file": "statistic_file" in section.values,
        "trim_infinity_before_statistic": "trim_infinity_before_statistic" in section.values,
        "calibration_strategy_for_activation of single layers": bool(overrides),
    }
    for words, stated in others.items():
        if stated:
            key = SEARCH if auto_search(section) else GLOBAL
            raise UsageError(f"[{section.name}] {key} is not supported beside {words}", where=section.path)


def _global_steps(section: CfgSection) -> tuple[str, ...]:
    steps = []
    for name, _ in _methods(section):
        if name == "mvn_correction":
            say(
                "W",
                f"{GLOBAL} = {name} has no effect here: biases are always corrected by the means of outputs",
            )
        else:
            steps.append(_STEPS[name])
    return tuple(steps)


def _methods(section: CfgSection) -> list[tuple[str, list[float]]]:
    """The methods of `global_calibration` in order, each with its numbers."""
    methods = []
    for part in section.text(GLOBAL, "none").split("&"):
        match = _METHOD.fullmatch(part.strip())
        name = "" if match is None else match[1].lower()
        if match is None or name not in (*_STEPS, "mvn_correction", "none"):
            raise section.wrong(GLOBAL, f"is none of {', '.join(_STEPS)}, mvn_correction")
        if match[3].strip():
            raise section.wrong(GLOBAL, "is for single layers, and methods work on all layers here")
        words = [] if name == "mvn_correction" else (match[2] or "").split(",")
        try:
            numbers = [float(word) for word in words if word.strip()]
        except ValueError:
            raise section.wrong(GLOBAL, "has numbers that are none") from None
        if name != "none":
            methods.append((name, numbers))
    return methods


def _told(event: object) -> None:
    words = str(event)
    if isinstance(event, Measurement):
        cycles = "it does not compile" if event.cycles is None else f"{event.cycles:,} cycles"
        words = f"{event.words}: {event.figure:.6g}, {cycles}"
    say("I", words)
