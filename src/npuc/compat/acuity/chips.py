"""Chips by the names of `--optimize` and by their serial codes.

The guide states number formats only: every part has those of the preset `vipnano-like`, and the part 0xE8 also has scales for
channels. Other parts of the same vendor are known by name, and their figures are not published.
"""

from __future__ import annotations

import re
from pathlib import Path

from npuc.compat.running import warn
from npuc.errors import UnknownTargetError, UsageError
from npuc.target import Target, load_target
from npuc.target.vendor_names import VIPNANO

DEFAULT = "vipnano-like"
PER_CHANNEL = "vipnano-e8-like"
_SERIALS = {
    "290a": "7D", "290b": "88", "2b0a": "99", "2b0b": "99", "2f0a": "99", "300a": "A1", "300b": "A1", "2f0b": "B9",
    "330a": "BE", "330b": "BE", "380a": "E8", "380b": "E8",
}  # fmt: skip
"""By the first four characters of the serial code."""
_NAME = re.compile(r"VIP\w*_PID0X([0-9A-F]+)", re.IGNORECASE)


def optimize_value(serial: str) -> str:
    """The value of `--optimize` for a chip with that serial code.

    >>> optimize_value("2b0b0f0001082d000015363043575050")
    'VIPNANOQI_PID0X99'
    """
    start = serial.strip().lower().removeprefix("serial").lstrip(" \t:")[:4]
    if start not in _SERIALS:
        raise UsageError(
            f"the serial code '{serial[:40]}' is of no known chip",
            fix=f"It begins with one of {', '.join(_SERIALS)}",
        )
    return f"VIPNANOQI_PID0X{_SERIALS[start]}"


def target_of(optimize: str) -> Target:
    """The target that a value of `--optimize` stands for: a name of the vendor's, or a target of npuc by name or file."""
    if optimize.lower() in ("none", "default"):
        return load_target(DEFAULT)
    match = _NAME.fullmatch(optimize)
    if match is None:
        if "VIP" in optimize.upper() and not Path(optimize).exists():
            raise UnknownTargetError(
                f"--optimize '{optimize}' names no chip", fix=f"There are: {', '.join(known_names())}"
            )
        return load_target(optimize)
    name = f"VIPNANOQI_PID0X{match[1].upper()}"
    if name not in VIPNANO:
        raise UnknownTargetError(
            f"--optimize {optimize}: the figures of this chip are not published",
            fix=f"The nearest preset is {DEFAULT}: --optimize {DEFAULT}",
        )
    if not optimize.upper().startswith("VIPNANOQI"):
        warn(f"--optimize {optimize} is read as {name}")
    return load_target(VIPNANO[name])


def known_names() -> list[str]:
    """The values of `--optimize` that name a chip."""
    return list(VIPNANO)
