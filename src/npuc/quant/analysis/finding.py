"""A finding: what degrades a layer, in one sentence, how much noise it causes, and a remedy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """One cause of the difference between the outputs and those of the float network."""

    layer: str
    """The name of the tensor; for weights, of the result of their layer."""
    kind: str
    words: str
    remedy: str
    """What to try, with the names of real options."""
    severity: float
    """From 0 to 1: the share of the noise at the outputs that it accounts for."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def percent(share: float) -> str:
    """A share in a few digits.

    >>> percent(0.4123), percent(0.0312), percent(0.00001)
    ('41 %', '3.1 %', 'less than 0.01 %')
    """
    if 0 < share < 1e-4:
        return "less than 0.01 %"
    value = 100 * share
    return (
        f"{value:.0f} %"
        if value >= 10 or value == 0
        else f"{value:.1f} %"
        if value >= 0.1
        else f"{value:.2f} %"
    )


def some(names: tuple[str, ...] | list[str], most: int = 4) -> str:
    """A few names, and how many more there are.

    >>> some(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
