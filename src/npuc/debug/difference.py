"""Two runs of a network held against each other, tensor by tensor, as reals: any two of float, integer, compiled, dumped.

Tensors are matched by name. A pass that fuses layers gives the result the name of the tensor whose value it has, so the
names of what is left after all fusions are those of the original network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from npuc.arrays import Array
from npuc.compare.layers import ErrorMeter, IntegerRange, LayerError, kept_rows
from npuc.debug.layers import Layers, LayerTensor
from npuc.errors import CompareError
from npuc.ir.dtypes import dtype_of


@dataclass(frozen=True)
class RunPair:
    """One run of both."""

    inputs: Mapping[str, Array]
    reference: Layers
    ours: Layers
    keep: int | None = None
    """How many of its samples are real; None: all."""
    ours_inputs: Mapping[str, Array] | None = None
    """What the second one gets, if that is not what the reference gets."""


@dataclass(frozen=True)
class Compared:
    """What was found."""

    layers: list[LayerError]
    """In the order in which the second one computes them."""
    only_reference: list[str]
    only_ours: list[str]
    reshaped: list[str]
    """Tensors that have other shapes in the two, and are not compared."""


class _Sums:
    """What is known of a tensor so far."""

    def __init__(self, tensor: LayerTensor) -> None:
        self.tensor, self.meter = tensor, ErrorMeter()
        self.range = IntegerRange(dtype_of(tensor.dtype), tensor.zero_point) if tensor.scale else None

    def entry(self) -> LayerError:
        tensor, spread = self.tensor, self.range
        return LayerError(
            name=tensor.name,
            layer=tensor.layer,
            kind=tensor.kind,
            type=tensor.dtype,
            accumulated=self.meter.figures(),
            saturation=spread.saturation if spread is not None else 0.0,
            range_use=spread.use if spread is not None else 0.0,
            scale=tensor.scale,
        )


class _Comparison:
    """All runs so far."""

    def __init__(self, rows: int | None) -> None:
        self.rows = rows
        self.sums: dict[str, _Sums] = {}
        self.missing: dict[str, None] = {}
        self.extra: dict[str, None] = {}
        self.reshaped: dict[str, None] = {}

    def add(self, pair: RunPair) -> None:
        expected: dict[str, LayerTensor] = {}
        matched: set[str] = set()

        def remember(tensor: LayerTensor) -> bool:
            if tensor.kind != "input":
                expected[tensor.name] = tensor
            return False

        def hold(tensor: LayerTensor) -> bool:
            if tensor.name in expected and tensor.kind != "input":
                matched.add(tensor.name)
                if tensor.values.shape != expected[tensor.name].values.shape:
                    self.reshaped[tensor.name] = None
                else:
                    _add(self.sums, tensor, expected[tensor.name], pair.keep, self.rows)
            elif tensor.kind != "input":
                self.extra[tensor.name] = None
            return False

        pair.reference.trace(pair.inputs, remember)
        pair.ours.trace(pair.inputs if pair.ours_inputs is None else pair.ours_inputs, hold)
        self.missing.update(dict.fromkeys(name for name in expected if name not in matched))


def compare_runs(
    pairs: Iterable[RunPair], rows: int | None = None, step: Callable[[], None] = lambda: None
) -> Compared:
    """Figures of all tensors that both have; inputs are not compared. `rows` is the length of the batch axis."""
    comparison = _Comparison(rows)
    for pair in pairs:
        comparison.add(pair)
        step()
    if not comparison.sums:
        words = "no tensor name in common"
        if comparison.reshaped:
            words = (
                f"no tensor of the same name and shape ('{next(iter(comparison.reshaped))}' has two shapes)"
            )
        raise CompareError(
            f"the two have {words}",
            fix="Is one made of the other, or both of one network with the same input shapes?",
        )
    layers = [sums.entry() for sums in comparison.sums.values()]
    return Compared(layers, list(comparison.missing), list(comparison.extra), list(comparison.reshaped))


def _add(
    sums: dict[str, _Sums], tensor: LayerTensor, other: LayerTensor, keep: int | None, rows: int | None
) -> None:
    own = sums.setdefault(tensor.name, _Sums(tensor))
    # A network that was quantized before has integers under some names; they are those of the other network.
    reals = _reals(tensor, other), _reals(other, tensor)
    ours, theirs = (kept_rows(values, keep, rows) for values in reals)
    for side in (tensor, other):
        if side.computed is not None:
            ours = np.where(kept_rows(side.computed, keep, rows), ours, theirs)
    own.meter.add(ours, theirs)
    if own.range is not None:
        integers = tensor.values if tensor.computed is None else tensor.values[tensor.computed]
        own.range.add(kept_rows(integers, keep, rows))


def _reals(tensor: LayerTensor, like: LayerTensor) -> Array:
    kind = tensor if tensor.scale or tensor.values.dtype.kind == "f" else like
    if not kind.scale:
        return tensor.values
    return np.asarray((tensor.values.astype(np.float64) - kind.zero_point) * kind.scale)
