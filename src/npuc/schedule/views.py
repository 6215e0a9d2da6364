"""Ops that leave every byte where it is: their results are the tensors before them under another shape.

That is a reshape between tensors whose memory has the order of their axes, and a permute with a reshape before or behind it
where the permute only undoes, or does, what the layout of images in memory does: the flattening of an image whose channels
come last. A reshape of an input that gives it more rows turns the view around, so that the input can be loaded row by row.
Where a concat stands between such a reshape and its permute, as behind the heads of a detector, each operand of the concat is
a view, and what is left is a concat of other axes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from npuc.ir import Graph, Value, npu, shape_of, top
from npuc.schedule.layers import Tensor
from npuc.schedule.rules.common import is_natural
from npuc.schedule.rules.movement import is_view


def views_of(
    op: Any,
    inside: Collection[Any],
    inputs: Collection[Value],
    kept: Collection[Value],
    tensor: Callable[[Value], Tensor],
    fresh: Callable[[Value], Tensor],
) -> dict[Value, Tensor]:
    """The tensors that an op makes as views, and its follower if that is part of it; none if the op is a layer.

    `inside` are the ops of the network, `kept` the values that need memory of their own, `fresh` makes a new tensor.
    """
    if not isinstance(op, top.Reshape | top.Permute | npu.Reinterpret) or op.results[0] in kept:
        return {}
    x, y = op.operands[0], op.results[0]
    if isinstance(op, npu.Reinterpret) or (isinstance(op, top.Reshape) and is_view(tensor(x), fresh(y))):
        source, target = tensor(x), fresh(y)
        before = _from_input(x, inputs, kept, fresh) if target.rows > source.storage.rows else []
        if before:
            return {**{value: replace(fresh(value), view_of=target) for value in before}, y: target}
        return {y: replace(target, view_of=source)}
    users = [use.operation for use in y.uses]
    if len(users) != 1 or users[0] not in inside or users[0].results[0] in kept:
        return {}
    last = users[0].results[0]
    if _cancel(op, users[0], tensor(x), fresh(y), fresh(last)):
        return {y: replace(fresh(y), view_of=tensor(x)), last: replace(fresh(last), view_of=tensor(x))}
    return {}


def _from_input(
    value: Value, inputs: Collection[Value], kept: Collection[Value], fresh: Callable[[Value], Tensor]
) -> list[Value]:
    """The values from an input to this one, if each is nothing but the one before under another name or shape."""
    values = [value]
    while value not in inputs:
        if not isinstance(value.owner, top.Reshape | npu.Reinterpret):
            return []
        value = value.owner.operands[0]
        values.append(value)
    fits = (len(list(link.uses)) == 1 and link not in kept and is_natural(fresh(link)) for link in values)
    return values if all(fits) else []


def _cancel(first: Any, second: Any, x: Tensor, between: Tensor, last: Tensor) -> bool:
    """Whether a permute and a reshape together move nothing."""
    if isinstance(first, top.Permute) and isinstance(second, top.Reshape):
        # The reshape reads the axes of x in the order of the permute; memory has them in its own.
        return is_natural(last) and _same(x.shape, first.order, x.order)
    if isinstance(first, top.Reshape) and isinstance(second, top.Permute):
        in_memory = tuple(second.order[axis] for axis in last.order)
        if is_natural(x) and _same(between.shape, in_memory, range(len(in_memory))):
            return True
        merged = _merged(x.shape, between.shape)
        return merged is not None and _same(x.shape, [axis for i in in_memory for axis in merged[i]], x.order)
    return False


def _merged(shape: tuple[int, ...], reshaped: tuple[int, ...]) -> list[list[int]] | None:
    """For each axis of a reshaped tensor, the neighbouring axes that it is made of; None if it is another kind of reshape."""
    parts: list[list[int]] = []
    at = 0
    for size in reshaped:
        begin = at
        while at < len(shape) and prod(shape[begin : at + 1]) <= size and prod(shape[begin:at]) < size:
            at += 1
        parts.append(list(range(begin, at)))
        if prod(shape[begin:at]) != size:
            return None
    if prod(shape[at:]) != 1:
        return None
    return parts


@dataclass(frozen=True)
class TurnedConcat:
    """A concat of reshaped tensors whose result is turned: of these tensors, turned one by one, each is a view."""

    concat: top.Concat
    permute: top.Permute
    parts: dict[Any, Tensor]
    """Each reshape, and each requantization behind one, to its result, turned."""
    axis: int
    """Of the turned result, along which it is a concat."""


def turned_concats(
    ops: Iterable[Any],
    inside: Collection[Any],
    kept: Collection[Value],
    graph: Graph,
    fresh: Callable[[Value], Tensor],
) -> list[TurnedConcat]:
    """The concats between reshapes and a permute that the three together make concats of views."""
    concats = []
    for permute in ops:
        concat = permute.x.owner if isinstance(permute, top.Permute) else None
        if not isinstance(concat, top.Concat) or not _between(concat, inside, kept):
            continue
        parts: dict[Any, Tensor] = {}
        for value in concat.operands:
            chain = _reshape_of(value)
            if not chain or not all(_between(op, inside, kept) for op in chain):
                break
            reshape = chain[0]
            shape = tuple(shape_of(value)[axis] for axis in permute.order)
            turned = {op: replace(fresh(op.results[0]), shape=shape) for op in chain}
            if graph.constant(reshape.x) is not None or not _cancel(
                reshape, permute, fresh(reshape.x), fresh(reshape.y), turned[reshape]
            ):
                break
            parts |= turned
        else:
            axis = permute.order.index(concat.axis % len(permute.order))
            concats.append(TurnedConcat(concat, permute, parts, axis))
    return concats


def _reshape_of(value: Value) -> list[Any]:
    """The reshape that a value comes from, and the requantization between, if there is one; nothing if it comes from others."""
    chain = [value.owner]
    if isinstance(chain[0], npu.Requant):
        chain.insert(0, chain[0].x.owner)
    return chain if isinstance(chain[0], top.Reshape) else []


def _between(op: Any, inside: Collection[Any], kept: Collection[Value]) -> bool:
    """Whether an op of the network has one reader, and its result needs no memory of its own."""
    return op in inside and len(list(op.results[0].uses)) == 1 and op.results[0] not in kept


def _same(shape: tuple[int, ...], order: Any, other: Any) -> bool:
    """Whether two orders of axes are the same but for axes of one element."""
    return [axis for axis in order if shape[axis] > 1] == [axis for axis in other if shape[axis] > 1]
