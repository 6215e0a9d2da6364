"""The order in which layers run: one whose result nobody reads runs as soon as its operands are there.

The heads of a detector stand last in most files, while the feature maps that they read are made early. Where such a map does not
fit local memory it would be stored and loaded again for its head; behind the layer that makes it, the head is of the same group.

Example: A makes a map for B and for its head, B one for C and for its head. In a file it is A, B, C, head of A, head of B; here
it is A, head of A, B, head of B, C.
"""

from __future__ import annotations

from collections.abc import Sequence

from npuc.schedule.layers import Layer, Tensor


def heads_early(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The same layers, each that makes only what no other reads directly behind the last of those that it needs."""
    read = {tensor.storage for layer in layers for tensor in layer.inputs}
    makers: dict[Tensor, int] = {}
    order: dict[int, list[Layer]] = {}
    for index, layer in enumerate(layers):
        makers |= dict.fromkeys(layer.outputs, index)
        after = max((makers.get(tensor.storage, -1) for tensor in layer.inputs), default=-1)
        is_head = after >= 0 and read.isdisjoint(layer.outputs)
        order.setdefault(after if is_head else index, []).append(layer)
    return tuple(layer for index in sorted(order) for layer in order[index])
