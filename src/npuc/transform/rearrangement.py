"""Movement: reshape, permute and reshape, as one rearrangement of the elements.

Exporters write the same rearrangement with and without axes of size one, and with neighbouring axes apart or together.
`normal_form` leaves such choices out, so that two spellings of one rearrangement are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from xdsl.ir import SSAValue

from npuc.ir.dtypes import is_static, shape_of
from npuc.ir.top import Permute, Reshape
from npuc.transform.patterns import sole_producer

NormalForm = tuple[tuple[int, ...], tuple[int, ...]]


def normal_form(shape: Sequence[int], order: Sequence[int]) -> NormalForm:
    """The fewest axes, and their order, that say how a permute of a shape rearranges the elements.

    >>> normal_form((1, 2, 3, 4), (0, 2, 1, 3))
    ((2, 3, 4), (1, 0, 2))
    >>> normal_form((2, 3, 4), (2, 0, 1))
    ((6, 4), (1, 0))
    """
    runs: list[list[int]] = []
    kept = [axis for axis in range(len(shape)) if shape[axis] != 1]
    follows = dict(pairwise(kept))
    for axis in (axis for axis in order if shape[axis] != 1):
        if runs and follows.get(runs[-1][-1]) == axis:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    ranks = {run[0]: rank for rank, run in enumerate(sorted(runs))}
    sizes = []
    for run in sorted(runs):
        size = 1
        for axis in run:
            size *= shape[axis]
        sizes.append(size)
    return tuple(sizes), tuple(ranks[run[0]] for run in runs)


@dataclass(frozen=True)
class Rearrangement:
    """reshape(permute(reshape(x)))"""

    x: SSAValue
    form: NormalForm
    split: tuple[int, ...]
    """The shape that is permuted."""
    shape: tuple[int, ...]

    @staticmethod
    def ending_in(op: Reshape) -> Rearrangement | None:
        """The rearrangement that a reshape ends, if nothing else uses what is inside."""
        permute = sole_producer(op.x, Permute)
        before = sole_producer(permute.x, Reshape) if permute is not None else None
        if permute is None or before is None or not is_static(before.x):
            return None
        split = shape_of(permute.x)
        return Rearrangement(before.x, normal_form(split, permute.order), split, op.shape)

    def is_permute(self, shape: Sequence[int], order: Sequence[int]) -> bool:
        """True if it is the permute of x under this shape."""
        return self.form == normal_form(shape, order)
