"""Candidates of the search by their structure: a row of layers that was looked at once is not looked at again.

Networks repeat their blocks, the ways that a search tries differ little, and a changed layer leaves the others as they were.
A candidate is named by a hash of all that its tiles and cycles follow from: its layers (not their weights), how tensors run
between them, which of those leave or stay, the bytes that are taken, and the room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from npuc.schedule.layers import Layer, Place, Tensor
from npuc.schedule.tiler import Tiler

_VALUES = frozenset(
    (
        "x_zero_point", "b_zero_point", "w_zero_point", "zero_point", "multiplier", "shift", "left", "lo", "hi", "value",
        "diff_min", "epsilon",
    )
)  # fmt: skip
"""Fields of instructions that are numbers of the arithmetic: no decision depends on them."""


class Tiling(NamedTuple):
    """What was found out about a row of layers as a group of tiles."""

    tiles: int
    """The fewest that fit."""
    cycles: float
    """Of the engines over all tiles."""
    loaded: float
    """Bytes of operands over all tiles."""


@dataclass
class Candidates:
    """What is known for one machine; None stands for layers that do not fit however they are cut."""

    known: dict[str, Tiling | None] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)
    """Keys that were added since."""

    def add(self, key: str, tiling: Tiling | None) -> None:
        """Remember one."""
        self.known[key] = tiling
        self.fresh.add(key)


def layer_key(layer: Layer, tiler: Tiler) -> str:
    """A hash of a layer: its form, not its weights, scales or names."""
    whole = tiler.whole(layer)
    instructions = [
        [
            instruction.name,
            instruction.queue,
            sorted((k, _plain(f)) for k, f in instruction.fields().items() if k not in _VALUES),
        ]
        for instruction in (
            template.instruction
            for template in layer.templates(tiler.tile(layer, whole, (0, layer.channels)))
        )
    ]
    form = [
        layer.kind,
        [
            [tensor.shape, tensor.order, tensor.dtype, tensor.view_of is not None, tensor.storage.shape]
            for tensor in (*layer.inputs, *layer.outputs)
        ],
        [layer.granule, layer.channels, layer.in_place, not layer.by_rows, layer.sums],
        [layer.constant_size((0, layer.channels)), layer.scratch(whole)],
        instructions,
    ]
    if layer.kind == "resize" and layer.by_rows:
        # Its rows follow from a table, not from the fields of its instructions.
        form.append([layer.operand_rows((row, row + 1)) for row in range(whole[1])])
    return digest(form)


def digest(form: Any) -> str:
    """A hash of plain data."""
    return blake2b(repr(form).encode(), digest_size=16).hexdigest()


def row_key(
    layers: Iterable[tuple[Layer, str]],
    facts: Mapping[Tensor, tuple[Any, ...]],
    rest: tuple[Any, ...],
) -> str:
    """A hash of a row of layers with their own keys; `facts` are what matters of each storage beside its shape."""
    numbers: dict[Tensor, int] = {}
    form: list[Any] = [rest]
    for layer, key in layers:
        form.append(key)
        for tensor in (*layer.inputs, *layer.outputs):
            storage = tensor.storage
            if storage not in numbers:
                numbers[storage] = len(numbers)
                form.append(facts[storage])
            form.append(numbers[storage])
    return digest(form)


def _plain(value: Any) -> Any:
    return [value.slot, value.offset] if isinstance(value, Place) else value
