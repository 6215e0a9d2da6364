"""Which type each value of an integer network has: the first half of lowering.

Each value that an integer op makes has the type that its range and its layer's scheme give, unless a rule ties it to another:
an op that moves elements keeps its operand's type, and what only feeds a concat is made in the concat's type. Under a scheme of
bf16, f16 or f32 that is the type, and there are no ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any, Protocol

import numpy as np

from npuc.arithmetic.dtypes import SHORT_ACTIVATIONS
from npuc.arrays import Array
from npuc.errors import QuantizationError
from npuc.ir import Graph, Value, dtype_of, is_static, shape_of, top, value_name
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import QuantType, mlir_type
from npuc.ir.top.movement import MOVERS
from npuc.quant.fixed import fixed_output
from npuc.quant.inserted import as_read, holds, inserted_constants, is_pooled, is_within, widened_range
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.lowering.registry import (
    find_rule,
    find_types,
    keeps_type,
    real_operands,
)
from npuc.quant.masks import hidden_end
from npuc.quant.parameters import (
    activation_type,
)
from npuc.quant.scheme import Scheme
from npuc.quant.tensor_classes import words

_INTEGERS = ("ui8", "i8", "i16")
"""Types of inputs that are activations as they are."""


class Calibrated(Protocol):
    """An entry of a calibration table."""

    @property
    def threshold(self) -> float:
        """The range of symmetric schemes is from minus this to this."""

    @property
    def min(self) -> float:
        """The lower end for affine schemes."""

    @property
    def max(self) -> float:
        """The upper end for affine schemes."""


Ranges = Mapping[str, tuple[float, float]] | Mapping[str, Calibrated]
Positions = dict[Value, int]
"""By how many bits the scale of a value is coarser than its range says."""


class TypeAssignment:
    """The schemes of layers and the types of values of a float network."""

    def __init__(
        self, graph: Graph, ranges: Ranges, scheme_of: LayerSchemes, moved: Positions | None = None
    ) -> None:
        self.moved: Positions = moved or {}
        self.source = graph
        self.ranges = ranges
        self.scheme_of = scheme_of
        self.reasons: dict[str, str] = {}
        """Layer to reason, for the layers that stay float though a scheme was given."""
        self.remarks: list[str] = []
        """What else the user should know."""
        self._scheme: dict[Any, Scheme | None] = {}
        self._types: dict[Value, Any] = {}
        """The types of elements: a `QuantType`, or bf16, f16 or f32."""
        self._partial: dict[Any, Scheme] = {}
        """Ops that compute in float because their scheme quantizes some classes of tensors only."""

    def scheme(self, op: TopOp) -> Scheme:
        """The scheme of an op that is being lowered."""
        scheme = self._scheme[op]
        assert scheme is not None
        return scheme

    def constant(self, value: Value | None) -> np.ndarray[Any, Any] | None:
        """The values of an old constant, or None if it is not one."""
        return self.source.constant(value)

    def ends(self, value: Value, scheme: Scheme) -> tuple[float, float] | None:
        """The range of an old value under a scheme: of a constant its own, else the calibrated one if there is one."""
        array = self.constant(value)
        if array is not None:
            return (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
        name = value_name(value)
        if name not in self.ranges:
            return None
        low, high = _ends(self.ranges[name], scheme)
        if not (isfinite(low) and isfinite(high)):
            raise QuantizationError(
                f"the tensor '{name}': a range from {low} to {high} is not finite",
                fix="Correct the calibration table",
            )
        return low, high

    def best_type(self, op: top.TopK) -> Any:
        """The type of the values that a top-k chooses: that of its operand, or one of its own range."""
        return self._types.get(op.x) or self._ranged(op.parts[0], self.scheme(op))

    def _assign_types(self) -> None:
        ops = [op for op in self.source.ops if isinstance(op, TopOp) and not isinstance(op, top.WeightOp)]
        wishes: dict[Value, QuantType] = {}
        for op in ops:
            self._scheme[op] = self._scheme_for(op)
        for op in reversed(ops):
            scheme = self._scheme[op]
            if scheme is None:
                continue
            wish = wishes.get(op.results[0])
            if isinstance(op, top.Concat):
                if not self._aligned(op, scheme):
                    continue
                wish = fixed_output(op, scheme) or wish or self._ranged(op.results[0], scheme)
            elif not keeps_type(op):
                continue
            elif (constants := self._inserted(op, scheme)) is not None:
                # Its data are made in a type that holds its constants, too.
                own = self._ranged(op.operands[0], scheme)
                if wish is None or not holds(wish, constants):
                    wish = None if holds(own, constants) else self._ranged(op.results[0], scheme)
            for value in op.operands:
                if wish is not None and _sole_use(value) and self._scheme_at(value) == scheme:
                    wishes[value] = wish
        for value in self.source.block.args:
            users = [self._scheme.get(use.operation) for use in value.uses]
            scheme = next((s for s in users if s is not None), None)
            if scheme is not None and dtype_of(value.type).name == "f32":
                self._types[value] = wishes.get(value) or self._ranged(value, _of_input(scheme))
        for op in ops:
            scheme = self._scheme[op]
            types = find_types(op)
            if scheme is not None and types is not None and not scheme.has_no_integers:
                given = zip(op.results, types(op, self), strict=True)
                self._types.update({value: kind for value, kind in given if kind is not None})
                continue
            for value in op.results:
                if scheme is None:
                    users = [self._scheme.get(use.operation) for use in value.uses]
                    scheme_here = next((s for s in users if s is not None), None)
                    if scheme_here is not None and is_real(value):
                        self._types[value] = self._ranged(value, scheme_here)
                elif self._keeps(op, scheme):
                    self._types[value] = self._types[op.operands[0]]
                else:
                    fixed = fixed_output(op, scheme) or given_integers(op)
                    wish = wishes.get(value) if value not in self.moved else None
                    self._types[value] = fixed or wish or self._ranged(value, scheme)

    def _aligned(self, op: top.Concat, scheme: Scheme) -> bool:
        """Whether the operands of a concat are made in its type."""
        if scheme.aligned_concats == "outputs":
            return any(port.value is op.results[0] for port in self.source.outputs)
        return scheme.aligned_concats == "all"

    def _scheme_at(self, value: Value) -> Scheme | None:
        owner = value.owner
        return self._scheme.get(owner) if isinstance(owner, TopOp) else None

    def _scheme_for(self, op: TopOp) -> Scheme | None:
        """The scheme of an op, or None if it stays float."""
        scheme = self.scheme_of(op)
        if scheme is None:
            return None
        if op.operands and all(self.constant(value) is not None for value in op.operands):
            self.reasons[value_name(op.results[0])] = (
                "it computes with constants alone (fold-constants removes it)"
            )
            return None
        if scheme.is_partial:
            self.reasons[value_name(op.results[0])] = words(scheme)
            if _computes_with_floats(op):
                self._partial[op] = scheme
            return None
        able = _computes_with_floats(op) if scheme.has_no_integers else self._may_lower(op)
        return scheme if able else None

    def _keeps(self, op: TopOp, scheme: Scheme) -> bool:
        """Whether the result has the type of the first operand; blending is done in the scheme's own type."""
        own = self._types.get(op.operands[0]) if op.operands else None
        if own is None or not keeps_type(op):
            return False
        constants = self._inserted(op, scheme)
        if constants is not None and isinstance(own, QuantType) and not holds(own, constants):
            return False
        alike = isinstance(own, QuantType)
        if scheme.has_no_integers:
            alike = own == self._ranged(op.operands[0], scheme)
        return alike or not isinstance(op, top.Resize) or op.mode == "nearest"

    def _may_lower(self, op: TopOp) -> bool:
        results = () if find_types(op) else op.results
        real = all(is_real(value) for value in (*results, *real_operands(op)))
        return real and find_rule(op) is not None

    def ranged_type(self, value: Value, scheme: Scheme) -> QuantType:
        """The integer type that the range of an old value gives under a scheme."""
        kind = self._ranged(value, scheme)
        assert isinstance(kind, QuantType)
        return kind

    def _ranged(self, value: Value, scheme: Scheme) -> Any:
        if scheme.has_no_integers:
            # The results of blocks, and all that is no product of them, are f32.
            return mlir_type(dtype_of("f32" if scheme.is_block else scheme.activation))
        name = value_name(value)
        if name not in self.ranges:
            raise QuantizationError(
                f"there is no range for the tensor '{name}'",
                fix="Calibrate this very program: npuc calibrate",
            )
        try:
            low, high = self._with_constants(value, _ends(self.ranges[name], scheme), scheme)
            hidden = hidden_end(value, self.source, lambda other: self._calibrated(other, scheme))
            if hidden is not None:
                low = min(low, hidden)
            coarser = 2.0 ** self.moved.get(value, 0)
            return activation_type(low * coarser, high * coarser, scheme)
        except ValueError as error:
            raise QuantizationError(
                f"the tensor '{name}': {error}", fix="Correct the calibration table"
            ) from error

    def _calibrated(self, value: Value, scheme: Scheme) -> tuple[float, float] | None:
        range_ = self.ranges.get(value_name(value))
        return None if range_ is None else _ends(range_, scheme)

    def _inserted(self, op: object, scheme: Scheme) -> Array | None:
        """The constants that the type of an op's result has to hold beside its data; None if there are none.

        Constants that would leave the data too few steps are clipped, with a remark.
        """
        constants = inserted_constants(op, self.source)
        if constants is None or not scheme.needs_ranges:
            return None
        assert isinstance(op, TopOp)
        value = op.results[0]
        name = value_name(value)
        if name not in self.ranges:
            return None
        low, high = _ends(self.ranges[name], scheme)
        constants = as_read(value, constants, high)
        least, most = dtype_of(scheme.activation).limits
        if is_within(low, high, constants) or widened_range(low, high, constants, most - least):
            return constants
        wide, bits = scheme.has_wide_activations, dtype_of(scheme.activation).bits
        remark = (
            f"the constants in '{name}' reach from {constants.min():g} to {constants.max():g} and are clipped to "
            f"{low:.3g} to {high:.3g}, because {bits} bits for all of it would leave the rest too few steps: "
            f"{'' if wide else 'give it 16 bits, or '}keep it float"
        )
        if not is_pooled(value, constants, low) and remark not in self.remarks:
            self.remarks.append(remark)
        return None

    def _with_constants(self, value: Value, ends: tuple[float, float], scheme: Scheme) -> tuple[float, float]:
        """The range of a value, widened to the constants that are put into it, where those would be lost."""
        constants = self._inserted(value.owner, scheme)
        if constants is None or is_within(*ends, constants):
            return ends
        least, most = dtype_of(scheme.activation).limits
        return widened_range(*ends, constants, most - least) or ends


def _ends(range_: tuple[float, float] | Calibrated, scheme: Scheme) -> tuple[float, float]:
    if isinstance(range_, tuple):
        return range_[0], range_[1]
    if scheme.activation_scales == "affine":
        return range_.min, range_.max
    positive = scheme.unsigned_from_zero and range_.min >= 0.0
    return (0.0 if positive else -range_.threshold), range_.threshold


def _of_input(scheme: Scheme) -> Scheme:
    """The scheme of an input: it comes from outside as bytes at least, whatever layers compute with."""
    return replace(scheme, activation="i8") if scheme.activation in SHORT_ACTIVATIONS else scheme


def _computes_with_floats(op: TopOp) -> bool:
    """Whether an op makes float32 of float32."""
    return bool(op.results) and all(is_real(value) for value in (*op.results, *op.operands[:1]))


def integers_of(value: Value) -> QuantType | None:
    """The type of a value that is an input of small integers as reals, or parts of one moved; None for all others.

    Its reals are the integers, so no range can serve it better than a scale of 1.
    """
    op = value.owner
    if isinstance(op, top.Cast):
        dtype = dtype_of(op.x.type).name
        from_input = not isinstance(op.x.owner, TopOp) and is_static(op.x)
        return QuantType.of(dtype, 1.0, 0) if from_input and dtype in _INTEGERS and is_real(op.y) else None
    moves = isinstance(op, MOVERS) or (isinstance(op, top.Resize) and op.mode != "cubic")
    return integers_of(op.operands[0]) if moves and isinstance(op, TopOp) else None


def given_integers(op: TopOp) -> QuantType | None:
    """The type of a cast or concat whose result is the integers of inputs, as `integers_of` says; and of converted colours."""
    if isinstance(op, top.Cast):
        return integers_of(op.y)
    if isinstance(op, top.Conv) and _mixes_colours(op):
        return integers_of(op.x)
    if not isinstance(op, top.Concat):
        return None
    kinds = {integers_of(value) for value in op.inputs}
    return kinds.pop() if len(kinds) == 1 else None


def _mixes_colours(op: top.Conv) -> bool:
    """Whether a convolution makes pixels of pixels, in the same whole steps: of luma and chroma, or gray of colours."""
    channels, *kernel = (
        (shape_of(op.weight)[axis] for axis in (0, 2, 3)) if len(shape_of(op.weight)) == 4 else (0,)
    )
    kind = integers_of(op.x)
    is_byte = kind is not None and kind.dtype.name == "ui8"
    return is_byte and op.relu and op.relu_limit == 255 and channels in (1, 3) and kernel == [1, 1]


def is_real(value: Value) -> bool:
    """Whether a value is float32 of a static shape."""
    return is_static(value) and dtype_of(value.type).name == "f32"


def _sole_use(value: Value) -> bool:
    return value.has_one_use()
