"""Machines under the names that their vendors use: a chip, a fingerprint, or the file that a vendor's compiler takes.

A chip whose figures are documented, as far as they are, is a preset `...-like`; its vendor's name stands for it. A chip whose
figures nobody publishes is refused by its name, with the preset that is nearest.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from npuc.errors import TargetError, UnknownTargetError
from npuc.files import read_short

PRESET_OF = {
    "bm1684x": "bm1684x-like",
}
"""The preset of a chip, by its vendor's name in lower case."""

NEAREST = dict.fromkeys(
    (
        "bm1684",
        "bm1686",
        "bm1688",
        "bm1690",
        "cv186x",
        "cv184x",
        "cv183x",
        "cv182x",
        "cv181x",
        "cv180x",
        "sg2380",
    ),
    "bm1684x-like",
)
"""The nearest preset of chips whose figures are not published, by their vendors' names in lower case."""

_MAX_FILE = 1 << 16
_FINGERPRINT = re.compile(r"0x[0-9a-f]{1,16}")


def preset_of(name: str) -> str | None:
    """The preset that a vendor's name of a chip stands for; None if it is no such name.

    >>> preset_of("BM1684X"), preset_of("edge-4t")
    ('bm1684x-like', None)
    """
    chip = name.lower()
    if chip in NEAREST:
        raise UnknownTargetError(
            f"the figures of '{name}' are not published, so there is no target for it",
            fix=f"The nearest one is {NEAREST[chip]}; 'npuc targets show {NEAREST[chip]}' shows what it states",
        )
    return PRESET_OF.get(chip)


def is_fingerprint(name: str) -> bool:
    """Whether a text is the fingerprint of a target, like 0x0123456789abcdef."""
    return _FINGERPRINT.fullmatch(name.lower()) is not None


def name_in(path: Path | str) -> str:
    """The name or fingerprint in a vendor's description of an architecture: JSON with `target` or `fingerprint`."""
    data = read_short(path, _MAX_FILE, "a description of an architecture", TargetError)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TargetError(f"is not JSON ({error})", where=str(path)) from error
    stated = [content.get(key) for key in ("target", "fingerprint")] if isinstance(content, dict) else []
    name = next((word for word in stated if isinstance(word, str) and word), None)
    if name is None:
        raise TargetError("states neither 'target' nor 'fingerprint'", where=str(path))
    return name
