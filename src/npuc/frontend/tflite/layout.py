"""Where the channels are: TFLite has them last, the IR second.

A tensor of rank 4 is kept in the order that it was made in, and turned only when somebody asks for the other one; so a
chain of convolutions is turned at its ends and nowhere between. `PLAIN` is TFLite's order, for any rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from npuc.ir import Value

_T = TypeVar("_T")
TO_NCHW = (0, 3, 1, 2)
TO_PLAIN = (0, 2, 3, 1)


class Laid(NamedTuple):
    """A value, and whether its channels come second (rank 4 only)."""

    value: Value
    nchw: bool = False


def axis_in(axis: int, nchw: bool) -> int:
    """Where an axis of TFLite's order is.

    >>> [axis_in(axis, True) for axis in range(4)]
    [0, 2, 3, 1]
    """
    return TO_PLAIN[axis] if nchw else axis


def arranged(entries: Sequence[_T], nchw: bool) -> tuple[_T, ...]:
    """One entry an axis of TFLite's order, in the order of the layout.

    >>> arranged("nhwc", True)
    ('n', 'c', 'h', 'w')
    """
    return tuple(entries[axis] for axis in TO_NCHW) if nchw else tuple(entries)
