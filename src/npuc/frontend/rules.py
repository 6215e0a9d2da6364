"""What the docstrings of import rules say: the limits of a format's support, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def limits(rules: Mapping[str, Callable[..., Any]]) -> dict[str, str]:
    """Every name that has a rule, and the first paragraph of the rule's docstring."""
    return {
        name: " ".join((function.__doc__ or "").split("\n\n")[0].split())
        for name, function in sorted(rules.items())
    }
