"""What has to be recorded while data is read, so that range methods with these options can be used afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from npuc.calib.ranges.base import MethodSpec, parse_method
from npuc.calib.statistics import ObserverOptions
from npuc.errors import UsageError


def observer_options(
    methods: Iterable[str | MethodSpec], options: ObserverOptions | None = None
) -> ObserverOptions:
    """The options of observers that record what methods ask for, beyond what `options` say.

    >>> observer_options(["moving-average:weight=0.2"]).momenta
    (0.9, 0.99, 0.8)
    >>> observer_options(["max-percentile:top=0.01"]).tail_ratio
    0.01
    """
    options = options or ObserverOptions()
    momenta, shares = dict.fromkeys(options.momenta), set[float]()
    for spec in map(parse_method, methods):
        if spec.name == "moving-average" and 0 < spec.options.get("weight", 1.0) < 1:
            momenta.setdefault(round(1 - spec.options["weight"], 12))
        elif spec.name == "mean" and 0 <= (spec.options.get("momentum") or 0.0) < 1:
            momenta.setdefault(spec.options.get("momentum") or 0.9)
        elif spec.name == "max-percentile":
            shares |= {spec.options["top"]} if spec.options.get("top") is not None else set()
    if len(shares) > 1:
        raise UsageError(
            f"max-percentile cannot look at several shares of each batch ({', '.join(f'{s:g}' for s in sorted(shares))})",
            fix="Give all of them the same option top",
        )
    share = next(iter(shares), options.tail_ratio)
    if not 0 < share <= 1:
        raise UsageError(f"range method 'max-percentile': top={share:g} is not above 0 and at most 1")
    return replace(options, momenta=tuple(momenta), tail_ratio=share)
