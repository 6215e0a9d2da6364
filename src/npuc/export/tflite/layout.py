"""Orders of axes: the program's tensors are N x C x H x W, TFLite's N x H x W x C.

A tensor in an *order* has axis `order[i]` of the program's value as its axis i. Orders are followed through permutes and
reshapes, so that elements are moved only where an operator needs another order than it is given.
"""

from __future__ import annotations

from collections.abc import Sequence

Order = tuple[int, ...]

CHANNELS_LAST: Order = (0, 2, 3, 1)


def natural(rank: int) -> Order:
    """The program's own order."""
    return tuple(range(rank))


def channels_last(rank: int) -> Order:
    """N x spatial x C.

    >>> channels_last(4)
    (0, 2, 3, 1)
    """
    return (0, *range(2, rank), 1) if rank >= 3 else natural(rank)


def arranged(shape: Sequence[int], order: Order) -> tuple[int, ...]:
    """The shape of a tensor in an order."""
    return tuple(shape[axis] for axis in order)


def between(have: Order, want: Order) -> Order:
    """The permutation that takes a tensor in one order to another.

    >>> between((0, 2, 3, 1), (0, 1, 2, 3))
    (0, 3, 1, 2)
    """
    return tuple(have.index(axis) for axis in want)


def moves_nothing(shape: Sequence[int], have: Order, want: Order) -> bool:
    """True if both orders have the elements in the same sequence in memory.

    >>> moves_nothing((1, 8, 1, 1), (0, 1, 2, 3), (0, 2, 3, 1))
    True
    """
    long = [axis for axis in have if shape[axis] != 1]
    return long == [axis for axis in want if shape[axis] != 1]


def through_permute(have: Order, permutation: Sequence[int]) -> Order:
    """The order that a tensor has of the permuted value.

    >>> through_permute((0, 2, 3, 1), (0, 2, 3, 1))
    (0, 1, 2, 3)
    """
    return tuple(list(permutation).index(axis) for axis in have)


def through_reshape(source: Sequence[int], target: Sequence[int], have: Order) -> Order | None:
    """The order that a tensor has of the reshaped value, if its elements need not move; None if they must.

    >>> through_reshape((1, 6, 4, 5), (1, 6, 20), (0, 2, 3, 1))
    (0, 2, 1)
    >>> through_reshape((1, 6, 4, 5), (1, 120), (0, 2, 3, 1)) is None
    True
    """
    groups = _groups(source, target)
    if groups is None:
        return None
    long = [axis for axis in have if source[axis] != 1]
    runs: list[int] = []
    position = 0
    while position < len(long):
        number = next(i for i, (axes, _) in enumerate(groups) if long[position] in axes)
        axes = groups[number][0]
        if long[position : position + len(axes)] != axes:
            return None
        runs.append(number)
        position += len(axes)
    moved = [axis for number in runs for axis in groups[number][1]]
    last = channels_last(len(target))
    if [axis for axis in last if target[axis] != 1] == moved and len(target) == 4:
        return last
    # Axes of one element go where they are in the program.
    order = list(moved)
    for axis in range(len(target)):
        if target[axis] == 1:
            order.insert(min(axis, len(order)), axis)
    return tuple(order)


def _groups(source: Sequence[int], target: Sequence[int]) -> list[tuple[list[int], list[int]]] | None:
    """Smallest runs of axes that hold the same elements before and after; axes of one element are left out."""
    if 0 in source:
        return None
    old = [axis for axis in range(len(source)) if source[axis] != 1]
    new = [axis for axis in range(len(target)) if target[axis] != 1]
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old):
        left, right = [old[i]], [new[j]]
        a, b = source[old[i]], target[new[j]]
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a *= source[old[i]]
                left.append(old[i])
                i += 1
            else:
                b *= target[new[j]]
                right.append(new[j])
                j += 1
        groups.append((left, right))
    return groups
