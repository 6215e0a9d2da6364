"""How ops unite channel labels, one rule for each family of ops; an op without a rule freezes what it touches.

A rule states the labels of the results from those of the operands. Where removing a channel also changes a property of the op
(the shape of a reshape, the groups of a depthwise convolution), the second half of the rule gives the new properties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from npuc.arrays import Array
from npuc.ir import Value, describe, shape_of, shown_name, top
from npuc.registries import Registry
from npuc.train.pruning.labels import Labelling


class Remaining(Protocol):
    """What is left after pruning."""

    def indices(self, value: Value, axis: int) -> Array:
        """The indices along an axis that stay, in ascending order."""
        ...

    def shape(self, value: Value) -> tuple[int, ...]:
        """The shape that is left of a tensor."""
        ...


LabelRule = Callable[[Any, Labelling], None]
PropertyRule = Callable[[Any, Remaining], Mapping[str, Any]]


@dataclass(frozen=True)
class PruningRule:
    """The rule of one op family."""

    label: LabelRule
    properties: PropertyRule | None = None
    """The properties that change when channels are removed."""


RULES: Registry[type[Any], PruningRule] = Registry("a pruning rule of the op")
"""From the class of an op to its rule."""


def rule(*kinds: type[Any], properties: PropertyRule | None = None) -> Callable[[LabelRule], LabelRule]:
    """Decorator: this function labels the results of these ops."""

    def register(function: LabelRule) -> LabelRule:
        RULES.add(kinds, PruningRule(function, properties))
        return function

    return register


def apply_rule(op: Any, labels: Labelling) -> None:
    """Label the results of an op: by the rule of its class or of a base class, or freeze everything that it touches."""
    for kind in type(op).__mro__:
        pruning_rule = RULES.get(kind)
        if pruning_rule is not None:
            pruning_rule.label(op, labels)
            return
    freeze_all(op, labels, f"{describe(op)} has no pruning rule")


def property_rule(op: Any) -> PropertyRule | None:
    """The rule for the properties of an op."""
    for kind in type(op).__mro__:
        pruning_rule = RULES.get(kind)
        if pruning_rule is not None:
            return pruning_rule.properties
    return None


def freeze_all(op: Any, labels: Labelling, reason: str) -> None:
    """Nothing that the op reads or writes may be pruned."""
    for value in op.operands:
        if labels.is_constant(value):
            for axis, size in enumerate(shape_of(value)):
                fixed = labels.fresh(1)
                labels.freeze(fixed, reason)
                labels.use_weight(value, axis, np.broadcast_to(fixed, (size,)), "other", shown_name(op))
        else:
            labels.freeze(labels.tensors[value], reason)
    for value in op.results:
        labels.give_frozen(value, reason)


# Elementwise ops, with broadcasting.


def _align(array: Array, rank: int) -> Array:
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


def _elementwise(op: Any, labels: Labelling) -> None:
    """Channel i of the result is channel i of every operand that is not broadcast along channels."""
    y = op.results[0]
    shape, rank = shape_of(y), len(shape_of(y))
    computed = [value for value in op.operands if not labels.is_constant(value)]
    constants = [value for value in op.operands if labels.is_constant(value)]
    arrays = {value: _align(labels.of(value), rank) for value in computed}
    sizes = {value: (1,) * (rank - len(shape_of(value))) + shape_of(value) for value in op.operands}
    axes = sorted({axis for array in arrays.values() for axis in labels.varying(array)})
    if not axes:
        labels.give_frozen(y, f"{describe(op)} has no channel that can be removed")
        for value in computed:
            if shape_of(value) == shape:  # a tensor that is one channel as a whole stays one
                labels.give(y, arrays[value])
                return
        return
    result: Array | None = None
    for value, array in arrays.items():
        spans = [sizes[value][axis] == shape[axis] for axis in axes]
        if any(spans) and not all(spans):
            for axis, spanned in zip(axes, spans, strict=True):
                if spanned:
                    array = labels.collapse(array, axis)
            continue
        if all(spans):
            if result is not None:
                labels.unite(result, array)
            result = array if result is None else np.broadcast_arrays(result, array)[0]
    if result is None:
        freeze_all(op, labels, f"{describe(op)} broadcasts its operands along different axes")
        return
    for value in constants:
        _constant_operand(op, value, result, sizes[value], labels)
    labels.give(y, result)


def _constant_operand(op: Any, value: Value, result: Array, size: tuple[int, ...], labels: Labelling) -> None:
    """A constant operand loses the channels that the result loses, along the axis that it spans."""
    axes = labels.varying(result)
    spanned = [axis for axis in axes if size[axis] > 1]
    if not spanned:
        return
    keep = max(spanned, key=lambda axis: size[axis])
    for axis in axes:
        if axis != keep:
            result = labels.collapse(result, axis)
    missing = len(size) - len(shape_of(value))
    vector = np.broadcast_to(labels.compact(result).reshape(-1), (size[keep],))
    labels.use_weight(value, keep - missing, vector, "other", shown_name(op))


rule(top.Unary, top.Cast, top.Binary, top.Where, top.PRelu)(_elementwise)


# Ops that mix elements along some axes, and leave channels on the others alone.


def _mixes(axes_of: Callable[[Any], Any], properties: PropertyRule | None = None, *kinds: type[Any]) -> None:
    def label(op: Any, labels: Labelling) -> None:
        value = op.operands[0]
        array = labels.of(value)
        mixed = {axis % array.ndim for axis in axes_of(op)}
        for axis in sorted(mixed):
            if axis in labels.varying(array):
                array = labels.collapse(array, axis)
                labels.freeze(array, f"{describe(op)} mixes the values of all channels")
        for extra in op.operands[1:]:
            if not labels.is_constant(extra):
                labels.freeze(labels.tensors[extra], f"{describe(op)} reads it as a parameter")
        for result in op.results:
            rank = len(shape_of(result))
            if rank == array.ndim:
                labels.give(result, array)
            elif rank == array.ndim - len(mixed):  # the axes are gone
                labels.give(result, array.squeeze(tuple(sorted(mixed))))
            else:
                labels.give_frozen(result, f"{describe(op)} changes the number of axes")

    rule(*kinds, properties=properties)(label)


def _space(op: Any) -> range:
    return range(2, len(shape_of(op.operands[0])))


def _resized(op: Any) -> list[int]:
    return [
        axis for axis, (old, new) in enumerate(zip(shape_of(op.x), shape_of(op.y), strict=True)) if old != new
    ]


def _inner_axes(op: Any) -> range:
    rank = len(shape_of(op.x))
    return range(op.axis % rank, rank)


_mixes(lambda op: (op.axis,), None, top.Softmax, top.LogSoftmax, top.L2Norm, top.CumSum)
_mixes(_inner_axes, None, top.LayerNorm, top.RMSNorm)
_mixes(_space, None, top.MaxPool, top.AvgPool)
_mixes(_resized, lambda op, left: {"sizes": left.shape(op.y)}, top.Resize)
_mixes(lambda op: op.axes, None, top.Reduce)
_mixes(lambda op: range(1, len(shape_of(op.x))), None, top.LRN)


# Layers that make channels.


def _depthwise_group(op: Any, left: Remaining) -> dict[str, Any]:
    channels = shape_of(op.x)[1]
    return {"group": len(left.indices(op.x, 1))} if op.group == channels and channels > 1 else {}


@rule(top.Conv, top.Deconv, properties=_depthwise_group)
def _convolution(op: Any, labels: Labelling) -> None:
    """Columns of the weight read input channels, rows make output channels.

    A depthwise convolution removes an input channel with the outputs made of it. In a grouped convolution the groups stay
    equally wide: channel i of one group goes with channel i of every other.
    """
    layer = shown_name(op)
    if not labels.is_constant(op.weight) or (op.bias is not None and not labels.is_constant(op.bias)):
        freeze_all(op, labels, f"the weights of {describe(op)} are computed, not stored")
        return
    x = labels.along(op.x, 1)
    channels, group = shape_of(op.y)[1], op.group
    y = labels.fresh(channels)
    row_axis, column_axis = (0, 1) if isinstance(op, top.Conv) else (1, 0)
    inputs, outputs = x.reshape(group, -1), y.reshape(group, -1)
    if group > 1 and inputs.shape[1] == 1:
        labels.unite(inputs, outputs)
        labels.use_weight(op.weight, 0, y if row_axis == 0 else x, "producer", layer)
    else:
        labels.unite(inputs, inputs[:1])
        labels.unite(outputs, outputs[:1])
        rows, columns = (y, inputs[0]) if row_axis == 0 else (outputs[0], x)
        labels.use_weight(op.weight, row_axis, rows, "producer", layer)
        labels.use_weight(op.weight, column_axis, columns, "consumer", layer)
    if op.bias is not None:
        labels.use_weight(op.bias, 0, y, "producer", layer)
    labels.give(op.y, y.reshape(1, -1, *(1,) * (len(shape_of(op.y)) - 2)))


@rule(top.MatMul)
def _matmul(op: Any, labels: Labelling) -> None:
    """A linear layer reads and makes channels on its last axis; a product of two tensors passes on its batch axes (heads)."""
    layer, b = shown_name(op), shape_of(op.b)
    if labels.is_constant(op.a) or (op.bias is not None and not labels.is_constant(op.bias)):
        freeze_all(op, labels, f"{describe(op)} has a constant left operand or a computed bias")
        return
    if not labels.is_constant(op.b):
        _product(op, (op.a, op.b), labels)
        return
    if any(size != 1 for size in b[:-2]):
        freeze_all(op, labels, f"{describe(op)} has a weight for each batch")
        return
    rank = len(shape_of(op.y))
    inner = len(b) - (1 if op.transpose_b else 2)
    outer = len(b) - (2 if op.transpose_b else 1)
    a = labels.of(op.a)
    elsewhere = [axis for axis in labels.varying(a) if axis != a.ndim - 1]
    if elsewhere and a.ndim - 1 not in labels.varying(a):
        labels.give(op.y, _align(a, rank))
        return
    labels.use_weight(op.b, inner, labels.along(op.a, -1), "consumer", layer)
    y = labels.fresh(b[outer])
    labels.use_weight(op.b, outer, y, "producer", layer)
    if op.bias is not None:
        labels.use_weight(op.bias, 0, y, "producer", layer)
    labels.give(op.y, y.reshape((1,) * (rank - 1) + (-1,)))


def _product(op: Any, values: tuple[Value, ...], labels: Labelling) -> None:
    """Products of tensors with tensors mix their last two axes; heads, on the axes before, go together."""
    rank = len(shape_of(op.y))
    heads = None
    for value in values:
        array = labels.of(value)
        for axis in (-1, -2):
            array = labels.collapse(array, axis)
        array = _align(array, rank)
        if len(labels.varying(array)) == 0:
            broadcast = all(size == 1 for size in shape_of(value)[:-2])
            if not broadcast:
                labels.freeze(array, f"{describe(op)} mixes the values of all channels")
            else:
                continue
        if heads is not None:
            labels.unite(heads, array)
        heads = array
    if heads is None:
        labels.give_frozen(op.y, f"{describe(op)} mixes the values of all channels")
    else:
        labels.give(op.y, heads)


@rule(top.Attention)
def _attention(op: Any, labels: Labelling) -> None:
    """Heads are removed whole: those of query, key and value together."""
    masks = [op.mask] if op.mask is not None and not labels.is_constant(op.mask) else []
    if op.mask is not None and labels.is_constant(op.mask) and max(shape_of(op.mask)[:-2], default=1) > 1:
        freeze_all(op, labels, f"{describe(op)} has a mask for each head")
        return
    for mask in masks:
        labels.freeze(labels.tensors[mask], f"{describe(op)} reads it as a mask")
        if max(shape_of(mask)[1:-2], default=1) > 1:
            freeze_all(op, labels, f"{describe(op)} has a mask for each head")
            return
    _product(op, (op.query, op.key, op.value), labels)


# Normalization with parameters for each channel.


def _normalized(op: Any, labels: Labelling, x: Array) -> None:
    kinds = {"scale": "producer", "bias": "producer", "mean": "other", "variance": "other"}
    for key, role in kinds.items():
        value = getattr(op, key, None)
        if value is None:
            continue
        if not labels.is_constant(value):
            freeze_all(op, labels, f"the parameters of {describe(op)} are computed, not stored")
            return
        labels.use_weight(value, 0, x, role, shown_name(op))  # type: ignore[arg-type]
    labels.give(op.y, x.reshape(1, -1, *(1,) * (len(shape_of(op.y)) - 2)))


@rule(top.BatchNorm, top.Scale, top.InstanceNorm)
def _channel_norm(op: Any, labels: Labelling) -> None:
    """Each channel has parameters of its own."""
    _normalized(op, labels, labels.along(op.x, 1))


def _norm_groups(op: Any, left: Remaining) -> dict[str, Any]:
    width = shape_of(op.x)[1] // op.groups
    return {"groups": len(left.indices(op.x, 1)) // width}


@rule(top.GroupNorm, properties=_norm_groups)
def _group_norm(op: Any, labels: Labelling) -> None:
    """The channels of a group are normalized together, and are removed together."""
    x = labels.along(op.x, 1)
    groups = x.reshape(op.groups, -1)
    labels.unite(groups, groups[:, :1])
    _normalized(op, labels, labels.roots(x))


# Ops that move elements: labels move as elements do.


def _moved(op: Any, labels: Labelling, move: Callable[[Array], Array]) -> None:
    value = op.operands[0]
    if labels.is_constant(value):
        freeze_all(op, labels, f"{describe(op)} moves a constant")
        return
    labels.give(op.results[0], move(labels.full(value)))


def _shape(op: Any, left: Remaining) -> dict[str, Any]:
    return {"shape": left.shape(op.y)}


@rule(top.Reshape, properties=_shape)
def _reshape(op: Any, labels: Labelling) -> None:
    """The same elements in the same order."""
    _moved(op, labels, lambda x: x.reshape(op.shape))


@rule(top.Permute)
def _permute(op: Any, labels: Labelling) -> None:
    """Axes in another order."""
    value = op.x
    if labels.is_constant(value):
        freeze_all(op, labels, f"{describe(op)} moves a constant")
        return
    labels.give(op.y, labels.of(value).transpose(op.order))


@rule(top.Expand, properties=_shape)
def _expand(op: Any, labels: Labelling) -> None:
    """One channel that is repeated stays one channel."""
    if labels.is_constant(op.x):
        freeze_all(op, labels, f"{describe(op)} moves a constant")
        return
    labels.give(op.y, _align(labels.of(op.x), len(op.shape)))


@rule(top.Tile)
def _tile(op: Any, labels: Labelling) -> None:
    """All copies of a channel are removed with it."""
    _moved(op, labels, lambda x: np.tile(x, op.repeats))


@rule(top.SpaceToDepth)
def _space_to_depth(op: Any, labels: Labelling) -> None:
    """The pixels of a block become channels, which all come from one channel."""
    x = labels.along(op.x, 1)
    labels.give(op.y, np.tile(x, op.block**2).reshape(1, -1, 1, 1))


@rule(top.DepthToSpace)
def _depth_to_space(op: Any, labels: Labelling) -> None:
    """The channels that become the pixels of one block go together."""
    x = labels.along(op.x, 1)
    blocks = op.block**2
    grid = x.reshape(blocks, -1) if op.mode == "DCR" else x.reshape(-1, blocks).T
    labels.unite(grid, grid[:1])
    labels.give(op.y, labels.roots(grid[0]).reshape(1, -1, 1, 1))


@rule(top.ShuffleChannel)
def _shuffle(op: Any, labels: Labelling) -> None:
    """Groups stay equally wide: channel i of one group goes with channel i of every other."""
    grid = labels.along(op.x, 1).reshape(op.group, -1)
    labels.unite(grid, grid[:1])
    shape = (1, -1, *(1,) * (len(shape_of(op.y)) - 2))
    labels.give(op.y, labels.roots(grid).T.reshape(shape))


def _padded(op: Any, left: Remaining) -> dict[str, Any]:
    pads, rank = list(op.pads), len(shape_of(op.x))
    for axis, size in enumerate(shape_of(op.x)):
        before, after = pads[axis], pads[rank + axis]
        if before > 0 or after > 0:
            kept = left.indices(op.y, axis)
            pads[axis] = int((kept < before).sum())
            pads[rank + axis] = int((kept >= before + size).sum())
    return {"pads": pads}


@rule(top.Pad, properties=_padded)
def _pad(op: Any, labels: Labelling) -> None:
    """Constant channels around the others can be removed one by one; other borders need all channels."""
    array, rank = labels.of(op.x), len(shape_of(op.x))
    padded = [axis for axis in range(rank) if op.pads[axis] or op.pads[rank + axis]]
    for axis in padded:
        if axis not in labels.varying(array):
            continue
        if op.mode != "constant" or min(op.pads[axis], op.pads[rank + axis]) < 0:
            array = labels.collapse(array, axis)
            labels.freeze(array, f"{describe(op)} makes channels of channels")
            continue
        for other in range(rank):
            array = array if other == axis else labels.collapse(array, other)
        shape = [1] * rank
        shape[axis] = -1
        border = [labels.fresh(op.pads[end]).reshape(shape) for end in (axis, rank + axis)]
        array = np.concatenate([border[0], array, border[1]], axis)
    labels.give(op.y, array)


def _sliced(op: Any, left: Remaining) -> dict[str, Any]:
    offset = list(op.offset)
    for axis, step in enumerate(op.steps):
        kept = left.indices(op.x, axis)
        if len(kept) < shape_of(op.x)[axis]:
            assert step == 1
            offset[axis] = int((kept < offset[axis]).sum())
    return {"offset": offset, "shape": left.shape(op.y)}


@rule(top.Slice, properties=_sliced)
def _slice(op: Any, labels: Labelling) -> None:
    """A run of channels; every second channel, or channels in reverse, cannot be cut from fewer."""
    if labels.is_constant(op.x):
        freeze_all(op, labels, f"{describe(op)} moves a constant")
        return
    array = labels.of(op.x)
    for axis in labels.varying(array):
        begin, step, count = op.offset[axis], op.steps[axis], op.shape[axis]
        if step != 1:
            labels.freeze(array, f"{describe(op)} takes every {step}th channel")
        array = np.take(array, [begin + step * at for at in range(count)], axis)
    labels.give(op.y, array)


def _split_sizes(op: Any, left: Remaining) -> dict[str, Any]:
    return {"sizes": [left.shape(part)[op.axis] for part in op.parts]}


@rule(top.Split, properties=_split_sizes)
def _split(op: Any, labels: Labelling) -> None:
    """Runs of channels."""
    if labels.is_constant(op.x):
        freeze_all(op, labels, f"{describe(op)} moves a constant")
        return
    array, axis = labels.of(op.x), op.axis % len(shape_of(op.x))
    if array.shape[axis] == 1:
        for part in op.parts:
            labels.give(part, array)
        return
    begin = 0
    for part, size in zip(op.parts, op.sizes, strict=True):
        labels.give(part, np.take(array, range(begin, begin + size), axis))
        begin += size


@rule(top.Concat)
def _concat(op: Any, labels: Labelling) -> None:
    """Channels end to end; along another axis, channel i of one operand goes with channel i of every other."""
    rank = len(shape_of(op.y))
    axis = op.axis % rank
    parts: list[Array] = []
    others: set[int] = set()
    for value in op.inputs:
        if not labels.is_constant(value):
            others |= {other for other in labels.varying(labels.of(value)) if other != axis}
    for value in op.inputs:
        shape = shape_of(value)
        if labels.is_constant(value):
            new = labels.fresh(shape[axis] if not others else 1)
            if others:
                labels.freeze(new, f"{describe(op)} appends a constant to it")
            else:
                labels.use_weight(value, axis, new, "other", shown_name(op))
            array = new.reshape([-1 if at == axis else 1 for at in range(rank)])
        else:
            array = labels.of(value)
        parts.append(array)
    if not others:
        whole = [
            np.broadcast_to(part, [n if at == axis else 1 for at, n in enumerate(shape_of(value))])
            for part, value in zip(parts, op.inputs, strict=True)
        ]
        labels.give(op.y, np.concatenate(whole, axis))
        return
    for part in parts:
        if part.shape[axis] > 1:
            labels.collapse(part, axis)
    first = np.take(parts[0], [0], axis)
    for part in parts[1:]:
        labels.unite(first, np.take(part, [0], axis))
    widest = max((np.take(part, [0], axis) for part in parts), key=lambda part: part.size)
    labels.give(op.y, labels.roots(widest))
