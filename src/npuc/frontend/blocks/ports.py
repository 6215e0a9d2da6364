"""What Keras and TensorFlow do alike with the inputs of a network: open sizes, and values that a user fixes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from npuc.errors import DynamicShapeError, ResourceLimitError, UsageError
from npuc.frontend.blocks.canvas import Array
from npuc.frontend.support import MAX_ELEMENTS
from npuc.ir import DType


def input_shape(
    name: str, declared: Sequence[int] | None, asked: Sequence[int] | None, notes: list[str]
) -> tuple[int, ...]:
    """The static shape of an input: as asked, or as declared with a batch of 1 where that is open (-1)."""
    if asked is not None:
        shape = tuple(asked)
        if declared is not None and len(declared) != len(shape):
            raise UsageError(f"--input-shape: '{name}' has {len(declared)} axes, not {len(shape)}")
        for axis, (old, new) in enumerate(zip(declared or (), shape, strict=False)):
            if old not in (-1, new) and axis:
                raise UsageError(
                    f"--input-shape: axis {axis} of '{name}' is {old} in the model, not {new}",
                    fix="Only sizes that the model leaves open can be chosen",
                )
    elif declared is None:
        raise DynamicShapeError(
            f"npuc compiles static shapes, and the model does not state the one of '{name}'",
            fix=f"Add --input-shape '{name}=1,224,224,3' with the sizes that it has",
        )
    else:
        shape = tuple(declared)
        if shape and shape[0] == -1:
            shape = (1, *shape[1:])
            notes.append(
                f"the batch of the input '{name}' is open, and was taken as 1 (--input-shape changes it)"
            )
        if -1 in shape:
            words = ",".join("?" if size == -1 else str(size) for size in shape)
            raise DynamicShapeError(
                f"npuc compiles static shapes, and the input '{name}' has the shape {words}",
                fix=f"Add --input-shape '{name}={words.replace('?', '64')}' with the sizes that it has",
            )
    if any(size < 0 for size in shape) or prod(shape) > MAX_ELEMENTS:
        raise ResourceLimitError(f"the input '{name}' has the impossible shape {list(shape)}")
    return shape


_TRUTH = {"true": 1.0, "false": 0.0}


def input_constant(name: str, text: str, shape: Sequence[int] | None, dtype: DType) -> Array:
    """The value of an input that becomes a constant: one number for all elements, or one for each."""
    try:
        numbers = [_TRUTH.get(word.strip().lower()) for word in text.split(",")]
        values = [
            float(word) if number is None else number
            for word, number in zip(text.split(","), numbers, strict=True)
        ]
    except ValueError as error:
        raise UsageError(f"--constant {name}={text[:80]}: these are not numbers") from error
    array = np.array(values, np.float64).astype(dtype.numpy)
    wanted = tuple(1 if size == -1 else size for size in shape) if shape is not None else None
    if wanted is None:
        return array.reshape(()) if array.size == 1 else array
    if prod(wanted) > 1 << 24:
        raise ResourceLimitError(f"the input '{name}' has the shape {list(wanted)}, too large for a constant")
    if array.size not in (1, prod(wanted)):
        raise UsageError(
            f"--constant {name}: {array.size} numbers for the shape {list(wanted)}",
            fix=f"Give one number, or {prod(wanted)}",
        )
    return np.broadcast_to(array.reshape(-1)[0], wanted).copy() if array.size == 1 else array.reshape(wanted)
