"""Names of Zhouyi parts as targets: the vendor's public tools describe X1 and X2 parts; nobody publishes figures of Z parts."""

from __future__ import annotations

from npuc.errors import UnknownTargetError
from npuc.target import Target, load_target

DEFAULT = "X2_1204"
PRESET_OF = {
    "X1_1204": "zhouyi-x1-like",
    "X2_1204": "zhouyi-x2-like",
    "X2_1204MP3": "zhouyi-x2mp3-like",
}
"""Presets by the names of cfg files."""
UNPUBLISHED = ("Z2_0901", "Z2_1002", "Z2_1004", "Z2_1104", "Z3_0901", "Z3_1104")
"""Names whose machine has no preset."""


def resolve_target(name: str = "") -> Target:
    """The target of a part's name; a name or file of npuc's own is taken, too.

    >>> resolve_target("x2_1204mp3").name
    'zhouyi-x2mp3-like'
    """
    word = name.strip() or DEFAULT
    part = word.upper()
    if part in PRESET_OF:
        return load_target(PRESET_OF[part])
    if part in UNPUBLISHED:
        raise UnknownTargetError(
            f"the figures of '{word}' are not published, and npuc has no preset of it",
            fix="The nearest preset is zhouyi-x1-like (X1_1204); a target file of your own is given by its path",
        )
    if part.startswith(("X1_", "X2_", "X3_", "Z1_", "Z2_", "Z3_", "Z5_")):
        raise UnknownTargetError(
            f"there is no target '{word}'", fix=f"The names with a preset are {', '.join(PRESET_OF)}"
        )
    try:
        return load_target(word)
    except UnknownTargetError as error:
        if "/" in word or "." in word:
            raise
        raise UnknownTargetError(
            f"there is no target '{word}'",
            fix=f"The names with a preset are {', '.join(PRESET_OF)}; 'npuc targets list' shows those of npuc",
        ) from error


def with_memory(target: Target, *, local: int | None = None, shared: int | None = None) -> Target:
    """The same machine with other sizes of its memories, in KiB."""
    data = target.to_dict()
    if local is not None:
        data["memory"]["local"]["size"] = f"{local}KiB"
    if shared is not None:
        if "shared" not in data["memory"]:
            raise UnknownTargetError(f"{target.name} has no global memory", fix="Leave gm_size out")
        data["memory"]["shared"]["size"] = f"{shared}KiB"
    return Target.from_dict(data)


def megahertz(target: Target) -> float:
    """The clock."""
    return target.compute.clock / 1e6
