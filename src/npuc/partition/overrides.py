"""`--device LAYER=cpu|npu`: which ops a user puts where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from npuc.errors import UsageError
from npuc.ir import layer_name, result_names
from npuc.ir.definition import TensorOp

DEVICES = ("npu", "cpu")


def parse_devices(texts: Sequence[str]) -> dict[str, str]:
    """`conv1=cpu` texts as a mapping; a later one wins.

    >>> parse_devices(["conv1=cpu", "head*=npu"])
    {'conv1': 'cpu', 'head*': 'npu'}
    """
    found = {}
    for text in texts:
        name, separator, device = text.rpartition("=")
        if not separator or not name:
            raise UsageError(f"--device '{text}' has no layer", fix="Write it like --device conv1=cpu")
        found[name] = device
    return found


def placed(ops: Sequence[TensorOp], overrides: Mapping[str, str]) -> dict[Any, str]:
    """The ops that overrides name, by the name of a result or a layer or by a pattern with * and ?, and their devices."""
    names = {op: {*result_names(op), layer_name(op)} - {""} for op in ops}
    found: dict[Any, str] = {}
    for pattern, device in overrides.items():
        if device not in DEVICES:
            raise UsageError(f"'{pattern}' is to run on '{device}'", fix="The devices are npu and cpu")
        matches = [op for op in ops if pattern in names[op]]
        if not matches and any(c in pattern for c in "*?["):
            matches = [op for op in ops if any(fnmatchcase(name, pattern) for name in names[op])]
        if not matches:
            known = sorted(set().union(*names.values())) if names else []
            near = get_close_matches(pattern, known, n=3, cutoff=0.4)
            fix = f"The nearest names are {', '.join(near)}" if near else "'npuc show' lists the layers"
            raise UsageError(f"there is no layer '{pattern}' to put on the {device.upper()}", fix=fix)
        found.update(dict.fromkeys(matches, device))
    return found
