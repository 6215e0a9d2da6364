"""Lists of tensors: what a loop reads its input from and writes its output to. They are followed, and gone in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from npuc.errors import InvalidModelError, ResourceLimitError, UnsupportedOpError
from npuc.frontend.blocks.movement import concat, stack, unstack
from npuc.frontend.layout import LayoutTensor
from npuc.frontend.tensorflow.body import Body
from npuc.frontend.tensorflow.graph import TensorflowNode
from npuc.frontend.tensorflow.meaning import Items, Meaning, tensor
from npuc.frontend.tensorflow.tensors import element_type
from npuc.frontend.tensorflow.walker import Walker, structure

_MOST = 1 << 13
_MOST_ZEROS = 1 << 24
_COPIED = 256
"""Entries of a list that cost as much as a node when they are copied."""


def _list(node: TensorflowNode, meaning: Meaning) -> Items:
    if not isinstance(meaning, Items):
        raise InvalidModelError(f"{node.label}: its input is no list of tensors")
    return meaning


def _whole(node: TensorflowNode, meaning: Meaning, what: str) -> list[int]:
    array = tensor(node, meaning, 1).array
    if array is None or array.dtype.kind not in "iu" or array.size > _MOST:
        raise UnsupportedOpError(
            f"{node.label} has no form in npuc: its {what} is computed at run time",
            fix="Cut the network before it with --outputs",
        )
    return [int(n) for n in array.reshape(-1)]


def _shape(node: TensorflowNode, meaning: Meaning) -> tuple[int, ...] | None:
    array = meaning.array if isinstance(meaning, LayoutTensor) else None
    if array is None or not array.ndim or (array.size and array.min() < 0):
        return None
    return tuple(int(n) for n in array)


def _place(node: TensorflowNode, items: Items, index: int) -> int:
    if not 0 <= index < len(items.items):
        raise InvalidModelError(f"{node.label}: entry {index} of a list of {len(items.items)}")
    return index


def _item(walker: Walker, node: TensorflowNode, items: Items, index: int) -> LayoutTensor:
    item = items.items[_place(node, items, index)]
    if item is None:
        if items.shape is None:
            raise InvalidModelError(f"{node.label}: entry {index} is read before it is written")
        # An entry that nobody wrote is zeros.
        if prod(items.shape) > _MOST_ZEROS:
            raise ResourceLimitError(f"{node.label}: an entry of zeros has the shape {list(items.shape)}")
        return walker.builder.constant(np.zeros(items.shape, items.dtype))
    return item


def _all(walker: Walker, node: TensorflowNode, items: Items, places: Sequence[int]) -> list[LayoutTensor]:
    """Several entries; those that nobody wrote are one constant."""
    tensors: list[LayoutTensor] = []
    zeros: LayoutTensor | None = None
    for place in places:
        item = items.items[_place(node, items, place)]
        if item is None:
            item = zeros = zeros or _item(walker, node, items, place)
        tensors.append(item)
    return tensors


def _put(body: Body, node: TensorflowNode, items: Items, put: Mapping[int, LayoutTensor]) -> Items:
    """The list with other entries at some places."""
    body.budget.spend(node, len(items.items) // _COPIED)
    entries = list(items.items)
    for index, item in put.items():
        entries[_place(node, items, index)] = item
    return Items(tuple(entries), items.shape, items.dtype)


def _numpy(node: TensorflowNode, attribute: str) -> str:
    return str(element_type(node.type_code(attribute, 1), node.label).numpy)


def _reserved(node: TensorflowNode, count: int, shape: tuple[int, ...] | None, attribute: str) -> Items:
    if not 0 <= count <= _MOST:
        raise InvalidModelError(f"{node.label}: a list of {count} tensors")
    return Items((None,) * count, shape, _numpy(node, attribute))


@structure("TensorListReserve", "EmptyTensorList")
def _reserve(
    walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]
) -> Sequence[Meaning]:
    """A list of a constant length."""
    count = _whole(node, inputs[1], "length")[0] if node.op == "TensorListReserve" else 0
    return [_reserved(node, count, _shape(node, inputs[0]), "element_dtype")]


@structure("TensorListFromTensor")
def _from_tensor(
    walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]
) -> Sequence[Meaning]:
    """The entries of the first axis."""
    x = tensor(node, inputs[0], 0)
    entries = unstack(walker.builder, x, 0)
    return [Items(tuple(entries), x.shape[1:], _numpy(node, "element_dtype"))]


@structure("TensorListGetItem")
def _get(walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]) -> Sequence[Meaning]:
    """An entry of a constant number."""
    items = _list(node, inputs[0])
    return [_item(walker, node, items, _whole(node, inputs[1], "index")[0])]


@structure("TensorListSetItem")
def _set(walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]) -> Sequence[Meaning]:
    """An entry of a constant number."""
    items = _list(node, inputs[0])
    index = _whole(node, inputs[1], "index")[0]
    return [_put(body, node, items, {index: tensor(node, inputs[2], 2)})]


@structure("TensorListPushBack")
def _push(walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]) -> Sequence[Meaning]:
    """One entry more."""
    items = _list(node, inputs[0])
    if len(items.items) >= _MOST:
        raise InvalidModelError(f"{node.label}: a list of more than {_MOST} tensors")
    body.budget.spend(node, len(items.items) // _COPIED)
    return [Items((*items.items, tensor(node, inputs[1], 1)), items.shape, items.dtype)]


@structure("TensorListStack")
def _stack(walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]) -> Sequence[Meaning]:
    """All entries along a new first axis."""
    items = _list(node, inputs[0])
    if items.shape is None:
        items = Items(items.items, _shape(node, inputs[1]) if len(inputs) > 1 else None, items.dtype)
    return [stack(walker.builder, _all(walker, node, items, range(len(items.items))), 0)]


@structure("TensorListLength")
def _length(walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]) -> Sequence[Meaning]:
    """Known now."""
    return [walker.builder.constant(np.array(len(_list(node, inputs[0]).items), np.int32))]


@structure("TensorListElementShape")
def _element_shape(
    walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]
) -> Sequence[Meaning]:
    """Known now."""
    items = _list(node, inputs[0])
    shape = items.shape if items.shape is not None else (-1,)
    wide = node.type_code("shape_type", 3) == 9
    return [walker.builder.constant(np.array(shape, np.int64 if wide else np.int32))]


@structure("TensorArrayV3")
def _array(walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]) -> Sequence[Meaning]:
    """A list of a constant length; the flow carries what is in it."""
    if not inputs:
        raise InvalidModelError(f"{node.label} has no size")
    shape = node.shape("element_shape")
    if shape is not None and min(shape, default=0) < 0:
        shape = None
    items = _reserved(node, int(_whole(node, inputs[0], "size")[0]), shape, "dtype")
    return [items, items]


@structure("TensorArrayScatterV3")
def _scatter(
    walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]
) -> Sequence[Meaning]:
    """The entries of the first axis, at constant places."""
    items = _list(node, inputs[3])
    x = tensor(node, inputs[2], 2)
    places = _whole(node, inputs[1], "indices")
    if len(places) != x.shape[0]:
        raise InvalidModelError(f"{node.label}: {len(places)} places for {x.shape[0]} entries")
    entries = unstack(walker.builder, x, 0)
    return [_put(body, node, items, dict(zip(places, entries, strict=True)))]


@structure("TensorArrayReadV3")
def _array_read(
    walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]
) -> Sequence[Meaning]:
    """An entry of a constant number."""
    return [_item(walker, node, _list(node, inputs[2]), _whole(node, inputs[1], "index")[0])]


@structure("TensorArrayWriteV3")
def _array_write(
    walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]
) -> Sequence[Meaning]:
    """An entry of a constant number."""
    items = _list(node, inputs[3])
    index = _whole(node, inputs[1], "index")[0]
    return [_put(body, node, items, {index: tensor(node, inputs[2], 2)})]


@structure("TensorArrayGatherV3")
def _array_gather(
    walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]
) -> Sequence[Meaning]:
    """Entries at constant places, along a new first axis."""
    items = _list(node, inputs[2])
    places = _whole(node, inputs[1], "indices")
    return [stack(walker.builder, _all(walker, node, items, places), 0)]


@structure("TensorArrayConcatV3")
def _array_concat(
    walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]
) -> Sequence[Meaning]:
    """All entries end to end."""
    items = _list(node, inputs[1])
    entries = _all(walker, node, items, range(len(items.items)))
    lengths = np.array([entry.shape[0] for entry in entries], np.int64)
    return [concat(walker.builder, entries, 0), walker.builder.constant(lengths)]


@structure("TensorArraySizeV3")
def _array_size(
    walker: Walker, body: Body, node: TensorflowNode, inputs: Sequence[Meaning]
) -> Sequence[Meaning]:
    """Known now."""
    return [walker.builder.constant(np.array(len(_list(node, inputs[1]).items), np.int32))]
