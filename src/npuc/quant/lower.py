"""Top to Npu: every op that has an integer form gets it; the rest stays float between a dequantize and a quantize.

Types first: each value that an integer op makes has the type its range and its layer's scheme give, unless a rule ties
it to another (an op that moves elements keeps its operand's type; what only feeds a concat is made in the concat's
type). Under a scheme of bf16 or f16 that is the type, and there are no ranges. Then op by op, in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from math import frexp, isfinite
from typing import Any, Protocol

import numpy as np

from npuc.arithmetic.kinds import Kind
from npuc.arithmetic.requantization import Scaling, ShiftTooSmall, requant_parameters
from npuc.arrays import Array
from npuc.errors import QuantizationError
from npuc.ir import Graph, Value, dtype_of, is_static, npu, tensor_type, top, value_name
from npuc.ir.definition import TensorOp, TopOp
from npuc.ir.dtypes import QuantType, element_of, is_narrow_float, mlir_type, quant_of
from npuc.kernels.blocks import block_round
from npuc.quant.blocks import block_axes
from npuc.quant.fixed import fixed_output
from npuc.quant.inserted import as_read, holds, inserted_constants, is_pooled, is_within, widened_range
from npuc.quant.layer_schemes import LayerSchemes, SchemeOf
from npuc.quant.lowering.registry import (
    NoIntegerForm,
    find_float_rule,
    find_rule,
    find_types,
    keeps_type,
)
from npuc.quant.parameters import (
    activation_type,
    output_limits,
    quantize_affine_weight,
    quantize_array,
    quantize_bias,
    quantize_weight,
)
from npuc.quant.scheme import SCHEMES, Scheme

_MIXES = (top.Conv, top.Deconv, top.MatMul, top.Add, top.Sub, top.Mul, top.AvgPool, top.Concat)
"""Ops whose operands may be narrower than their result."""


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
_ATTEMPTS = 8
"""How often positions are moved before layers stay float."""


def quantize(graph: Graph, ranges: Ranges, scheme: Scheme | LayerSchemes | SchemeOf | None = None) -> Graph:
    """The integer network of a canonical float one.

    `ranges` maps tensor names to (min, max), or is a calibration table. `scheme` is one for all layers, the schemes of all
    layers, or a function of a layer that returns its scheme, None to keep it float.
    """
    schemes = LayerSchemes.of(graph, scheme)
    return lowered(lambda moved: Context(graph, ranges, schemes, moved))


def lowered(begin: Callable[[Positions], Context]) -> Graph:
    """The integer network that a context makes; results whose shift does not exist get another position, and all is made anew.

    A result that is finer than its sum needs a shift to the left, which a machine may not have. What it loses by a coarser
    scale is nothing: the sum has no finer steps.
    """
    moved: Positions = {}
    for _ in range(_ATTEMPTS):
        context = begin(dict(moved))
        made = context.run()
        if not context.too_fine:
            return made
        for value, bits in context.too_fine.items():
            moved[value] = moved.get(value, 0) + bits
    return begin(dict(moved)).run()


class Context:
    """What lowering rules see: the old graph, the new one, and the types of values."""

    rounding = "half_away"
    """How ties are rounded where reals become integers."""

    def __init__(
        self, graph: Graph, ranges: Ranges, scheme_of: LayerSchemes, moved: Positions | None = None
    ) -> None:
        self.moved: Positions = moved or {}
        self.too_fine: Positions = {}
        """Results whose shift does not exist, and by how many bits their position has to move."""
        self.source = graph
        self.ranges = ranges
        self.scheme_of = scheme_of
        inputs = [(port.name, port.type) for port in graph.inputs]
        preprocess = {port.name: port.preprocess for port in graph.inputs if port.preprocess}
        self.graph = Graph.empty(inputs, graph.weights.copy(), preprocess)
        self.graph.origins = graph.origins
        self.reasons: dict[str, str] = {}
        """Layer to reason, for the layers that stay float though a scheme was given."""
        self.remarks: list[str] = []
        """What else the user should know."""
        self._scheme: dict[Any, Scheme | None] = {}
        self._types: dict[Value, Any] = {}
        """The types of elements: a `QuantType`, or bf16 or f16."""
        self._blocks: dict[Any, str] = {}
        """Ops whose operands are rounded to block floating point."""
        self._real: dict[Value, Value] = dict(zip(graph.block.args, self.graph.block.args, strict=True))
        self._integer: dict[tuple[Value, Any], Value] = {}
        self._shared: dict[Any, Value] = {}
        """Values of the new graph that several rules use, by what they are."""
        self._given: Counter[str] = Counter()
        self._current = SCHEMES["int8"]
        """The scheme of the op that is being lowered."""
        self._views: dict[Value, QuantType] = {}
        """Types of operands of the op that is being lowered, where its scheme cannot work with their own."""

    # Types

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
                self._types[value] = wishes.get(value) or self._ranged(value, scheme)
        for op in ops:
            scheme = self._scheme[op]
            types = find_types(op)
            if scheme is not None and types is not None and not scheme.is_float:
                given = zip(op.results, types(op, self), strict=True)
                self._types.update({value: kind for value, kind in given if kind is not None})
                continue
            for value in op.results:
                if scheme is None:
                    users = [self._scheme.get(use.operation) for use in value.uses]
                    scheme_here = next((s for s in users if s is not None), None)
                    if scheme_here is not None and _is_real(value):
                        self._types[value] = self._ranged(value, scheme_here)
                elif self._keeps(op, scheme):
                    self._types[value] = self._types[op.operands[0]]
                else:
                    fixed = fixed_output(op, scheme)
                    wish = wishes.get(value) if value not in self.moved else None
                    self._types[value] = fixed or wish or self._ranged(value, scheme)

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
        if scheme.is_block:
            if _computes_with_floats(op) and block_axes(op) is not None:
                self._blocks[op] = scheme.activation
            return None
        return scheme if (_computes_with_floats(op) if scheme.is_float else self._may_lower(op)) else None

    def _keeps(self, op: TopOp, scheme: Scheme) -> bool:
        """Whether the result has the type of the first operand; blending is done in the scheme's own type."""
        own = self._types.get(op.operands[0]) if op.operands else None
        if own is None or not keeps_type(op):
            return False
        constants = self._inserted(op, scheme)
        if constants is not None and isinstance(own, QuantType) and not holds(own, constants):
            return False
        alike = own == self._ranged(op.operands[0], scheme) if scheme.is_float else isinstance(own, QuantType)
        return alike or not isinstance(op, top.Resize) or op.mode == "nearest"

    def _may_lower(self, op: TopOp) -> bool:
        results = () if find_types(op) else op.results
        real = all(_is_real(value) for value in (*results, *op.operands[:1]))
        return real and find_rule(op) is not None

    def _ranged(self, value: Value, scheme: Scheme) -> Any:
        if scheme.is_float:
            return mlir_type(dtype_of(scheme.activation))
        name = value_name(value)
        if name not in self.ranges:
            raise QuantizationError(
                f"there is no range for the tensor '{name}'",
                fix="Calibrate this very program: npuc calibrate",
            )
        try:
            low, high = self._with_constants(value, _ends(self.ranges[name], scheme), scheme)
            coarser = 2.0 ** self.moved.get(value, 0)
            return activation_type(low * coarser, high * coarser, scheme)
        except ValueError as error:
            raise QuantizationError(
                f"the tensor '{name}': {error}", fix="Correct the calibration table"
            ) from error

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
        wide = scheme.activation == "i16"
        remark = (
            f"the constants in '{name}' reach from {constants.min():g} to {constants.max():g} and are clipped to "
            f"{low:.3g} to {high:.3g}, because {16 if wide else 8} bits for all of it would leave the rest too few steps: "
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

    # What rules use

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

    def is_integer(self, value: Value) -> bool:
        """Whether an old value was made as integers, not quantized from reals."""
        made = self._integer.get((value, self._types[value])) if value in self._types else None
        return made is not None and not isinstance(made.owner, npu.Quantize)

    def scheme(self, op: TopOp) -> Scheme:
        """The scheme of an op that is being lowered."""
        scheme = self._scheme[op]
        assert scheme is not None
        return scheme

    def type_of(self, value: Value) -> Any:
        """The type of elements that a value of the old graph has: a `QuantType`, or bf16 or f16."""
        return self._views.get(value) or self._own_type(value)

    def constant(self, value: Value | None) -> np.ndarray[Any, Any] | None:
        """The values of an old constant, or None if it is not one."""
        return self.source.constant(value)

    def own_integers(self, value: Value) -> tuple[Array, float] | None:
        """The integers, less their zero point, and the one scale of a constant that the model quantized; else None."""
        return None

    def quantized_weight(
        self, value: Value, axis: int, scheme: Scheme, bias: Value | None, scale: float, least: float = 0.0
    ) -> tuple[Array, Array, int]:
        """A constant operand as integers, their scales (one, or one an entry of `axis`) and their zero point.

        `scale` is that of the other operand; no scale of the weights is to be below `least`.
        """
        array = self.constant(value)
        if array is None:
            raise NoIntegerForm("its weights are computed at run time")
        if not np.isfinite(array).all():
            raise NoIntegerForm("its weights are not all finite")
        if scheme.weight_scales == "affine":
            return quantize_affine_weight(array, scheme, self.constant(bias), scale, least)
        return (*quantize_weight(array, axis, scheme, self.constant(bias), scale, least), 0)

    def quantized_bias(self, value: Value, scale: float, weight_scale: Array, scheme: Scheme) -> Array:
        """A constant bias as integers of the scale of the sum, one or one a channel."""
        array = self.constant(value)
        if array is None:
            raise NoIntegerForm("its bias is computed at run time")
        if not np.isfinite(array).all():
            raise NoIntegerForm("its bias is not all finite")
        return quantize_bias(array, scale, weight_scale, scheme)

    def weight(self, name: str, array: np.ndarray[Any, Any], to: QuantType | None = None) -> Value:
        """A new constant, under a quantized type if one is given."""
        op = self.graph.add_weight(name, array)
        if to is not None:
            op = top.WeightOp.of(op.ref, tensor_type(array.shape, to))
        self.graph.block.add_op(op)
        return op.output

    def emit(self, op_class: type[TensorOp], /, *operands: Any, **properties: Any) -> Any:
        """Append an op to the new graph."""
        op = op_class.make(*operands, **properties)
        self.graph.block.add_op(op)
        return op

    def integer(self, value: Value, to: QuantType | None = None) -> Value:
        """An old value as integers: of its own type, or requantized to another."""
        own = self._own_type(value)
        to = to or self._views.get(value) or own
        if not isinstance(to, QuantType):
            return self.short(value, to)
        if (value, to) in self._integer:
            return self._integer[value, to]
        array = self.constant(value)
        if array is not None:
            scheme = self._current
            integers = quantize_array(array, to, scheme.constant_rounding, narrow=scheme.narrow_activations)
            made = self.weight(f"{value_name(value)}/quantized", integers, to)
        elif (value, own) in self._integer and isinstance(own, QuantType):
            made = self.requantized(self._integer[value, own], to, self.derived(value, "requantized"))
        else:
            name = self.derived(value, "quantized")
            made = self.emit(npu.Quantize, self._exact(value), to=to, rounding=self.rounding, name=name).y
            if self._current.narrow_activations and to.dtype.limits[0] < 0:
                made = self.requantized(made, to, self.derived(value, "narrowed"))
        self._integer[value, to] = made
        return made

    def short(self, value: Value, to: Any) -> Value:
        """An old value as bf16 or f16."""
        if (value, to) in self._integer:
            return self._integer[value, to]
        array, kind = self.constant(value), dtype_of(to)
        if array is not None:
            with np.errstate(over="ignore"):
                rounded = array.astype(np.float32).astype(kind.numpy)
            if not np.isfinite(rounded).all():
                raise NoIntegerForm(
                    f"{kind.name} does not hold all values of the constant '{value_name(value)}'"
                )
            made = self.weight(f"{value_name(value)}/{kind.name}", rounded)
        else:
            made = self.emit(npu.Cast, self.real(value), to=to, name=self.derived(value, kind.name)).y
        self._integer[value, to] = made
        return made

    def widened(self, value: Value, to: Any) -> Value:
        """An old value as float32 that bf16 or f16 holds; constants, and what is not float32, as they are."""
        if self.constant(value) is not None or not _is_real(value):
            return self.real(value)
        if self._types.get(value) == to and (value, to) in self._integer and value not in self._real:
            return self.real(value)
        if (value, "wide", to) not in self._shared:
            name = self.derived(value, "rounded")
            wide = mlir_type("f32")
            self._shared[value, "wide", to] = self.emit(npu.Cast, self.short(value, to), to=wide, name=name).y
        return self._shared[value, "wide", to]

    def shared_weight(self, name: str, array: Array) -> Value:
        """A constant that equal ones share."""
        key = (name, array.tobytes())
        if key not in self._shared:
            self._given[name] += 1
            count = self._given[name] - 1
            self._shared[key] = self.weight(f"{name}.{count}" if count else name, array)
        return self._shared[key]

    def joined(self, value: Value, to: QuantType) -> Value:
        """An operand of a concatenation in the type of the result."""
        return self.integer(value, to)

    def derived(self, value: Value, what: str) -> str:
        """A name for another form of an old value, given once."""
        name = f"{value_name(value)}/{what}"
        self._given[name] += 1
        return name if self._given[name] == 1 else f"{name}.{self._given[name] - 1}"

    def requantized(self, value: Value, to: QuantType, name: str) -> Value:
        """An integer value of the new graph under another type."""
        source = quant_of(value)
        assert source is not None
        kind = self._current.requant
        if kind is Kind.POW2 and not _is_power_of_two(source.scale / to.scale):
            kind = Kind.SINGLE_ROUNDING
        try:
            found = requant_parameters(kind, source.scale, to.scale, **self._current.stage)
        except ValueError as error:
            raise NoIntegerForm(str(error)) from error
        require_multipliers(found, 2.0 ** (8 * source.dtype.itemsize) * source.scale / to.scale)
        parameters = flat(found)
        lo, hi = output_limits(to, narrow=self._current.narrow_activations)
        made: Value = self.emit(npu.Requant, value, to=to, kind=kind, lo=lo, hi=hi, name=name, **parameters).y
        return made

    def _own_type(self, value: Value) -> Any:
        if value in self._types:
            return self._types[value]
        array = self.constant(value)
        if array is None:
            raise NoIntegerForm(f"its operand '{value_name(value)}' has no quantized type")
        if self._current.is_float:
            return self._ranged(value, self._current)
        low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
        self._types[value] = activation_type(low, high, self._current)
        return self._types[value]

    def _exact(self, value: Value) -> Value:
        """An old value as the reals that it is quantized from."""
        return self.real(value)

    def real(self, value: Value) -> Value:
        """An old value as real numbers (or whatever plain type it had)."""
        if value not in self._real:
            array = self.constant(value)
            if array is not None:
                owner = value.owner
                assert isinstance(owner, top.WeightOp)
                copy = top.WeightOp.of(owner.ref, owner.output.type)
                self.graph.block.add_op(copy)
                self._real[value] = copy.output
            else:
                own = self._types[value]
                made, name = self._integer[value, own], f"{value_name(value)}/real"
                kind = npu.Dequantize if isinstance(own, QuantType) else npu.Cast
                self._real[value] = self.emit(kind, made, to=mlir_type("f32"), name=name).y
        return self._real[value]

    # The walk

    def run(self) -> Graph:
        """Lower everything."""
        self._assign_types()
        for op in self.source.ops:
            if isinstance(op, top.WeightOp):
                continue
            assert isinstance(op, TopOp)
            scheme = self._scheme.get(op)
            if scheme is None or not self._lower(op, scheme):
                self._keep(op)
        self.graph.set_outputs([(port.name, self.real(port.value)) for port in self.source.outputs])
        _erase_unused(self.graph)
        self.graph.float_reasons = dict(self.reasons)
        self.graph.notes = list(self.remarks)
        return self.graph

    def _lower(self, op: TopOp, scheme: Scheme) -> bool:
        short = is_narrow_float(self._types.get(op.results[0]))
        rule = find_float_rule(op) if short else find_rule(op)
        assert rule is not None
        self._current = scheme
        self._views = self._casts(op, scheme)
        mark = self.graph.block.last_op
        try:
            made = rule(op, self)
        except NoIntegerForm as error:
            self._rewind(mark)
            self.reasons[value_name(op.results[0])] = str(error)
            if isinstance(error.__cause__, ShiftTooSmall) and fixed_output(op, scheme) is None:
                self.too_fine[op.results[0]] = error.__cause__.bits
            return False
        values = made if isinstance(made, list) else [made]
        for old, new in zip(op.results, values, strict=True):
            found = element_of(new)
            if not isinstance(found, QuantType) and not is_narrow_float(found):
                self._real[old] = new
                continue
            assert found == self._types[old], f"{op.name}: {found} instead of {self._types[old]}"
            self._integer[old, found] = new
        return True

    def _casts(self, op: TopOp, scheme: Scheme) -> dict[Value, QuantType]:
        """Where types meet: operands that an op wants in a type of its own scheme."""
        if scheme.is_float or self._keeps(op, scheme):
            return {}
        if keeps_type(op):
            return {op.operands[0]: self._types[op.results[0]]}
        found = {}
        for value in op.operands:
            own = self._types.get(value)
            if own is None or self.constant(value) is not None:
                continue
            if not isinstance(own, QuantType):
                found[value] = self._ranged(value, scheme)
                continue
            width = dtype_of(scheme.activation).itemsize
            shifts = scheme.requant is Kind.POW2 and not _is_power_of_two(own.scale)
            wide = own.dtype.itemsize > width
            narrow = own.dtype.itemsize < width and not isinstance(op, _MIXES)
            if shifts or wide or narrow:
                found[value] = self._ranged(value, scheme)
        return found

    def _rewind(self, mark: Any) -> None:
        """Take back the ops after `mark` that nothing was recorded for."""
        kept = (self._integer, self._real, self._shared)
        recorded = {value.owner for values in kept for value in values.values()}
        op = self.graph.block.last_op
        while op is not None and op is not mark:
            previous = op.prev_op
            if op not in recorded:
                self.graph.block.erase_op(op, safe_erase=False)
            op = previous

    def _keep(self, op: TopOp) -> None:
        operands = [self.real(value) for value in op.operands]
        for index, axis in (block_axes(op) or {}).items() if op in self._blocks else ():
            operands[index] = self._block_rounded(op.operands[index], axis, self._blocks[op])
        copy = type(op).create(
            operands=operands,
            result_types=[value.type for value in op.results],
            properties=op.properties,
            attributes=op.attributes,
            location=op.location,
        )
        self.graph.block.add_op(copy)
        self._real.update(zip(op.results, copy.results, strict=True))

    def _block_rounded(self, value: Value, axis: int, kind: str) -> Value:
        """An old value as the reals that block floating point holds."""
        key = (value, axis, kind)
        if key not in self._shared:
            array = self.constant(value)
            if array is not None:
                rounded = block_round(array, axis, kind)
                made = self.weight(f"{value_name(value)}/{kind}.{axis}", rounded)
            else:
                made = self.emit(
                    npu.BlockRound,
                    self.real(value),
                    to=mlir_type("f32"),
                    axis=axis,
                    format=kind,
                    name=self.derived(value, kind),
                ).y
            self._shared[key] = made
        return self._shared[key]


def _ends(found: tuple[float, float] | Calibrated, scheme: Scheme) -> tuple[float, float]:
    if isinstance(found, tuple):
        return found[0], found[1]
    affine = scheme.activation_scales == "affine"
    return (found.min, found.max) if affine else (-found.threshold, found.threshold)


def flat(scaling: Scaling) -> dict[str, Any]:
    """A scaling as the properties of an op: (multiplier, shift) pairs, shifts, or factors."""
    if scaling.scale is not None:
        return {"factors": scaling.scale.tolist()}
    columns = [column.tolist() for column in (scaling.multiplier, scaling.shift) if column is not None]
    return {"parameters": [number for row in zip(*columns, strict=True) for number in row]}


def require_multipliers(found: Scaling, largest: float) -> None:
    """Refuse multipliers that the largest shift made 0, if the output could be more than half a step."""
    if largest >= 0.5 and found.multiplier is not None and not found.multiplier.all():
        raise NoIntegerForm("the shift that its multiplier needs is above the largest that there is")


def _is_power_of_two(scale: float) -> bool:
    return frexp(scale)[0] == 0.5


def _computes_with_floats(op: TopOp) -> bool:
    """Whether an op makes float32 of float32."""
    return bool(op.results) and all(_is_real(value) for value in (*op.results, *op.operands[:1]))


def _is_real(value: Value) -> bool:
    return is_static(value) and dtype_of(value.type).name == "f32"


def _sole_use(value: Value) -> bool:
    return value.has_one_use()


def _erase_unused(graph: Graph) -> None:
    op = graph.terminator.prev_op
    while op is not None:
        previous = op.prev_op
        if not any(result.first_use for result in op.results):
            graph.block.erase_op(op)
        op = previous
