"""Names of Zhouyi parts as targets: the vendor's public tools describe X1 and X2 parts; nobody publishes figures of Z parts."""

from __future__ import annotations

from npuc.errors import UnknownTargetError
from npuc.target import Target, load_target

DEFAULT = "X2_1204"
"""The part that a cfg file means which names none."""


def resolve_target(name: str = "") -> Target:
    """The target of a part's name; a name or file of npuc's own is taken, too.

    >>> resolve_target("x2_1204mp3").name
    'zhouyi-x2mp3-like'
    """
    return load_target(name.strip() or DEFAULT)


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
