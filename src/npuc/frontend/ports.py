"""What users say about the inputs of a network, which means the same in every format: shapes, cuts, fixed values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import prod

import numpy as np

from npuc.arrays import Array
from npuc.errors import DynamicShapeError, ResourceLimitError, UnknownTensorError, UsageError
from npuc.frontend.support import MAX_ELEMENTS
from npuc.ir import DType

_MAX_CONSTANT = 1 << 24


def check_inputs(inputs: Sequence[str], shapes: Iterable[str], constants: Collection[str]) -> None:
    """Inputs are all different, no constant is one of them, and what has a shape is one or the other."""
    if len(set(inputs)) != len(inputs):
        raise UsageError("--inputs: an input is given twice")
    for name in inputs:
        if name in constants:
            raise UsageError(
                f"'{name}' is given to both --inputs and --constant", fix="Leave one of them out"
            )
    for name in shapes:
        if name not in inputs and name not in constants:
            raise UnknownTensorError(
                f"--input-shape: there is no input '{name}'", fix=f"The inputs are: {', '.join(inputs)}"
            )


def input_shape(
    name: str,
    declared: Sequence[int] | None,
    given: Sequence[int] | None,
    notes: list[str],
    *,
    replaced: list[str] | None = None,
) -> tuple[int, ...]:
    """The static shape of an input: as given, or as declared with a batch of 1 where that is open (-1).

    Sizes that the model fixes may be given only with `replaced`, which is told of them: for formats whose layers find their
    shapes anew.
    """
    if given is not None:
        shape = tuple(given)
        check_rank(name, declared, shape)
        check_layout(name, declared, shape)
        for axis, (old, new) in enumerate(zip(declared or (), shape, strict=False)):
            if old in (-1, new) or not axis:
                continue
            words = f"axis {axis} of '{name}' is {old} in the model, not {new}"
            if replaced is not None:
                replaced.append(words)
            else:
                raise UsageError(
                    f"--input-shape: {words}",
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
            notes.append(open_batch_note(name))
        if -1 in shape:
            words = ",".join("?" if size == -1 else str(size) for size in shape)
            raise DynamicShapeError(
                f"npuc compiles static shapes, and the input '{name}' has the shape {words}",
                fix=f"Add --input-shape '{name}={words.replace('?', '64')}' with the sizes that it has",
            )
    return possible_shape(name, shape)


def open_batch_note(name: str, size: int = 1) -> str:
    """What every importer says of an input whose first dimension the model leaves open."""
    return f"the batch of the input '{name}' is open, and was taken as {size} (--input-shape changes it)"


def check_rank(name: str, declared: Sequence[int] | None, given: Sequence[int]) -> None:
    """A given shape has as many axes as the model says."""
    if declared is not None and len(declared) != len(given):
        raise UsageError(
            f"--input-shape: '{name}' has {len(declared)} axes, not {len(given)}",
            fix=f"In the model its shape is {list(declared)}",
        )


def check_layout(name: str, declared: Sequence[int] | None, given: Sequence[int]) -> None:
    """A given image has its channels where the model has them: in the other place, the shape to give is told."""
    if declared is None or len(declared) != 4 or len(given) != 4:
        return
    for there, other, words in ((3, 1, "N,H,W,C"), (1, 3, "N,C,H,W")):
        channels = declared[there]
        if 0 < channels <= 4 and declared[other] != channels and given[there] != channels == given[other]:
            turned = [size for axis, size in enumerate(given) if axis != other]
            turned.insert(there, channels)
            sizes = ",".join(map(str, turned))
            raise UsageError(
                f"--input-shape: '{name}' is {words} in the model, and {','.join(map(str, given))} is not",
                fix=f"Give --input-shape {sizes}",
            )


def possible_shape(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of an input, unless no tensor could have it."""
    if any(size < 0 for size in shape) or prod(shape) > MAX_ELEMENTS:
        raise ResourceLimitError(f"the input '{name}' has the impossible shape {list(shape)}")
    return tuple(shape)


_TRUTH = {"true": 1.0, "false": 0.0}


def input_constant(name: str, text: str, shape: Sequence[int] | None, dtype: DType) -> Array:
    """The value of an input that becomes a constant: one number for all elements, or one for each; open sizes are 1."""
    words = [word.strip().lower() for word in text.split(",")]
    try:
        array = np.array([_TRUTH[word] if word in _TRUTH else float(word) for word in words], np.float64)
    except ValueError as error:
        raise UsageError(
            f"--constant {name}={text[:80]}: these are not numbers",
            fix=f"Write it like --constant {name}=0, or {name}=1,2,3 for every element",
        ) from error
    with np.errstate(invalid="ignore"):
        array = array.astype(dtype.numpy)
    if shape is None:
        return array.reshape(()) if array.size == 1 else array
    static_shape = tuple(1 if size == -1 else size for size in shape)
    count = prod(possible_shape(name, static_shape))
    if count > _MAX_CONSTANT:
        raise ResourceLimitError(
            f"the input '{name}' has the shape {list(static_shape)}, too large for a constant"
        )
    if array.size not in (1, count):
        raise UsageError(
            f"--constant {name}: {array.size} numbers for the shape {list(static_shape)}",
            fix=f"Give one number, or {count}",
        )
    return (
        np.broadcast_to(array.reshape(-1)[0], static_shape).copy()
        if array.size == 1
        else array.reshape(static_shape)
    )
