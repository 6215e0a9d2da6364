"""Einstein sums of two tensors as a matrix product between transpositions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from npuc.errors import InvalidModelError, UnsupportedOpError
from npuc.frontend.blocks.arithmetic import matmul, reduce
from npuc.frontend.blocks.movement import reshape, transpose
from npuc.frontend.layout import ChannelsLastBuilder, LayoutTensor


def _letters(c: ChannelsLastBuilder, equation: str, tensors: Sequence[LayoutTensor]) -> tuple[list[str], str]:
    """Letters for every axis of the operands and of the result; an ellipsis becomes capital letters."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != len(tensors) or len(tensors) not in (1, 2):
        raise UnsupportedOpError(
            f"'{c.first}' has no form in npuc: the sum '{equation[:80]}'",
            fix="Cut the network before it with --outputs",
        )
    spare = [letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if letter not in equation]
    most = 0
    whole = []
    for term, x in zip(terms, tensors, strict=True):
        count = x.rank - len(term.replace("...", ""))
        if count < 0 or (count and "..." not in term) or count > len(spare):
            raise InvalidModelError(f"'{c.first}': '{term}' does not fit rank {x.rank}")
        most = max(most, count)
        whole.append((term, count))
    full = [term.replace("...", "".join(spare[most - count : most])) for term, count in whole]
    return full, right.replace("...", "".join(spare[:most]))


def einsum(c: ChannelsLastBuilder, equation: str, tensors: Sequence[LayoutTensor]) -> LayoutTensor:
    """`equation` as NumPy writes it, of one or two operands, every letter once in each.

    Letters of both operands that stay are batches, letters of both that go are summed over.
    """
    terms, result = _letters(c, equation, tensors)
    if any(len(set(term)) != len(term) for term in (*terms, result)) or not set(result) <= set(
        "".join(terms)
    ):
        raise UnsupportedOpError(
            f"'{c.first}' has no form in npuc: the sum '{equation[:80]}' repeats a letter",
            fix="Cut the network before it with --outputs",
        )
    operands = []
    for index, (term, x) in enumerate(zip(terms, tensors, strict=True)):
        others = {letter for other, names in enumerate(terms) if other != index for letter in names}
        alone = [axis for axis, letter in enumerate(term) if letter not in result and letter not in others]
        if alone:
            x = reduce(c, x, "sum", alone)
            term = "".join(letter for axis, letter in enumerate(term) if axis not in alone)
        operands.append((term, x))
    if len(operands) == 1:
        term, x = operands[0]
        return transpose(c, x, [term.index(letter) for letter in result]) if term != result else x
    (left, a), (right, b) = operands
    sizes = {**dict(zip(left, a.shape, strict=True)), **dict(zip(right, b.shape, strict=True))}
    shared = [letter for letter in left if letter in right]
    batch = [letter for letter in result if letter in shared]
    summed = [letter for letter in shared if letter not in result]
    rows = [letter for letter in left if letter not in right]
    columns = [letter for letter in right if letter not in left]

    def arranged(x: LayoutTensor, term: str, order: list[str], shape: Sequence[int]) -> LayoutTensor:
        places = [term.index(letter) for letter in order]
        return reshape(c, transpose(c, x, places) if places != sorted(places) else x, shape)

    outer = [sizes[letter] for letter in batch]
    count, m, n = (prod(sizes[letter] for letter in group) for group in (summed, rows, columns))
    product = matmul(
        c,
        arranged(a, left, batch + rows + summed, (*outer, m, count)),
        arranged(b, right, batch + summed + columns, (*outer, count, n)),
    )
    letters = batch + rows + columns
    product = reshape(c, product, [sizes[letter] for letter in letters])
    order = [letters.index(letter) for letter in result]
    return transpose(c, product, order) if order != sorted(order) else product
