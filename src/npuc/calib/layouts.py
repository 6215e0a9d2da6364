"""Image arrays whose axis order differs from the input's: detecting the layout and converting it.

Many data sets store height × width × channels where a network takes channels × height × width, or the other way round, or
gray images without a channel axis. An array is converted only if its shape fits the input in no other way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuc.arrays import Array

Shape = tuple[int, ...]

AS_IT_IS = ""
_WORDS = {
    "hwc": "height × width × channels, and permuted",
    "chw": "channels × height × width, and permuted",
    "hw": "height × width of one channel, and given an axis for it",
}


def layout_of(have: Shape, want: Shape) -> str | None:
    """The layout of an array, given the shape of the input: `AS_IT_IS` if it fits, else the only other layout that
    fits, or None.

    >>> layout_of((5, 3, 32, 32), (1, 3, 32, 32))
    ''
    >>> layout_of((32, 32, 3), (1, 3, 32, 32)), layout_of((5, 28, 28), (1, 1, 28, 28))
    ('hwc', 'hw')
    >>> layout_of((3, 32, 32), (1, 32, 32, 3)), layout_of((32, 31, 3), (1, 3, 32, 32))
    ('chw', None)
    """
    if fits(have, want):
        return AS_IT_IS
    if len(want) != 4:
        return None
    possible = ("hwc", "chw", "hw") if 1 in (want[1], want[3]) else ("hwc", "chw")
    fitting = [layout for layout in possible if fits(have, shape_in(layout, want))]
    return fitting[0] if len(fitting) == 1 else None


def fits(have: Shape, want: Shape) -> bool:
    """Whether an array holds one input, several stacked along the first axis or along a new one, or one without batch axis."""
    if have == want:
        return True
    several = bool(want) and len(have) == len(want) and have[1:] == want[1:] and bool(have[0])
    runs = len(have) == len(want) + 1 and have[1:] == want and bool(have[0])
    return several or runs or (bool(want) and have == want[1:])


def shape_in(layout: str, want: Shape) -> Shape:
    """The shape that an input of four axes has in a given layout."""
    if layout == AS_IT_IS:
        return want
    if layout == "hwc":
        return (want[0], want[2], want[3], want[1])
    if layout == "chw":
        return (want[0], want[3], want[1], want[2])
    return (want[0], want[2], want[3]) if want[1] == 1 else want[:3]


def rearranged(array: Array, layout: str, want: Shape) -> Array:
    """The array with its axes in the order of the input."""
    if layout in ("hwc", "chw"):
        order = (2, 0, 1) if layout == "hwc" else (1, 2, 0)
        first = array.ndim - 3
        return array.transpose(*range(first), *(first + axis for axis in order))
    if layout == "hw":
        return np.expand_dims(array, -3 if want[1] == 1 else -1)
    return array


def layout_note(name: str, want: Sequence[int], have: Sequence[int], layout: str) -> str:
    """The note for the user about an array that is read in another layout."""
    return f"input '{name}' takes {list(want)}, and the data has {list(have)}: it is read as {_WORDS[layout]}"
