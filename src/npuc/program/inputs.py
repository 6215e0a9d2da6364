"""Inputs as callers give them: by name, or one array for a network with one input."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from npuc.errors import InputDataError


def named_inputs(inputs: Any, expected: Collection[str]) -> Mapping[str, Any]:
    """Inputs by name: a mapping as it is; anything else is the array of a program's only input."""
    if isinstance(inputs, Mapping):
        return inputs
    if len(expected) == 1:
        return {next(iter(expected)): inputs}
    raise InputDataError(
        f"one array was given without a name, and the network has {len(expected)} inputs",
        fix=f"Give a mapping by input name: {', '.join(expected) or 'an empty one'}",
    )
