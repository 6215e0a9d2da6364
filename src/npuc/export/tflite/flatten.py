"""An image flattened before a fully connected layer: its elements stay in TFLite's order, the weights follow."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from npuc.arrays import Array
from npuc.export.tflite.emitter import TFLiteEmitter
from npuc.export.tflite.layout import natural
from npuc.export.tflite.model import TFLiteTensor
from npuc.ir import Value, shape_of, top


@dataclass(frozen=True)
class Flattened:
    """Rows of elements in another sequence: element i is element `positions[i]` of the program's row."""

    tensor: TFLiteTensor
    positions: Array


def flattened(emit: TFLiteEmitter, value: Value) -> Flattened | None:
    """A reshape to rows that a fully connected layer can read as it lies; None if there is nothing to gain."""
    owner = value.owner
    if not isinstance(owner, top.Reshape) or not emit.is_pending(value):
        return None
    source, target = shape_of(owner.x), shape_of(value)
    if len(target) != 2 or not source or target[0] != source[0]:
        return None
    order = next((o for o in emit.orders(owner.x) if o[0] == 0 and o != natural(len(source))), None)
    if order is None:
        return None
    rows = np.arange(prod(source[1:])).reshape(1, *source[1:]).transpose(order).reshape(-1)
    flat = emit.like(value, target, "flattened")
    return Flattened(emit.reshape(emit.tensor(owner.x, order), flat), rows)
