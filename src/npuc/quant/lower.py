"""Top to Npu: every op that has an integer form gets it; the rest stays float between a dequantize and a quantize.

Types first: each value that an integer op makes has the type its range and its layer's scheme give, unless a rule ties
it to another (an op that moves elements keeps its operand's type; what only feeds a concat is made in the concat's
type). Then op by op, in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from math import frexp
from typing import Any, Protocol

import numpy as np

from npuc.errors import QuantizationError
from npuc.ir import Graph, Value, dtype_of, is_static, npu, tensor_type, top, value_name
from npuc.ir.definition import TensorOp, TopOp
from npuc.ir.dtypes import QuantType, quant_of
from npuc.quant.arithmetic import Scaling, requant_parameters
from npuc.quant.fixed import fixed_output
from npuc.quant.lowering.registry import NoIntegerForm, find_rule, keeps_type
from npuc.quant.parameters import activation_type, quantize_array, quantize_bias, quantize_weight
from npuc.quant.scheme import SCHEMES, Scheme

Array = np.ndarray[Any, Any]
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
SchemeOf = Callable[[TopOp], Scheme | None]


def quantize(graph: Graph, ranges: Ranges, scheme: Scheme | SchemeOf | None = None) -> Graph:
    """The integer network of a canonical float one.

    `ranges` maps tensor names to (min, max), or is a calibration table. `scheme` is one for all layers, or a function
    of a layer that returns its scheme, None to keep it float.
    """
    scheme = scheme or SCHEMES["int8"]
    scheme_of: SchemeOf = scheme if callable(scheme) else (lambda op, s=scheme: s)  # type: ignore[misc]
    return Context(graph, ranges, scheme_of).run()


class Context:
    """What lowering rules see: the old graph, the new one, and the types of values."""

    rounding = "half_away"
    """How ties are rounded where reals become integers."""
    wide_sums = False
    """Whether a layer whose sums may leave 32 bits gets a wider accumulator, or stays float."""

    def __init__(self, graph: Graph, ranges: Ranges, scheme_of: SchemeOf) -> None:
        self.source = graph
        self.ranges = ranges
        self.scheme_of = scheme_of
        inputs = [(port.name, port.type) for port in graph.inputs]
        preprocess = {port.name: port.preprocess for port in graph.inputs if port.preprocess}
        self.graph = Graph.empty(inputs, graph.weights.copy(), preprocess)
        self.reasons: dict[str, str] = {}
        """Layer to reason, for the layers that stay float though a scheme was given."""
        self.remarks: list[str] = []
        """What else the user should know."""
        self._scheme: dict[Any, Scheme | None] = {}
        self._types: dict[Value, QuantType] = {}
        self._real: dict[Value, Value] = dict(zip(graph.block.args, self.graph.block.args, strict=True))
        self._integer: dict[tuple[Value, QuantType], Value] = {}
        self._given: Counter[str] = Counter()
        self._views: dict[Value, QuantType] = {}
        """Types of operands of the op that is being lowered, where its scheme cannot work with their own."""

    # Types

    def _assign_types(self) -> None:
        ops = [op for op in self.source.ops if isinstance(op, TopOp) and not isinstance(op, top.WeightOp)]
        wishes: dict[Value, QuantType] = {}
        for op in ops:
            self._scheme[op] = self.scheme_of(op) if self._may_lower(op) else None
        for op in reversed(ops):
            scheme = self._scheme[op]
            if scheme is None:
                continue
            wish = wishes.get(op.results[0])
            if isinstance(op, top.Concat):
                wish = wish or self._ranged(op.results[0], scheme)
            elif not keeps_type(op):
                continue
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
            for value in op.results:
                if scheme is None:
                    users = [self._scheme.get(use.operation) for use in value.uses]
                    scheme_here = next((s for s in users if s is not None), None)
                    if scheme_here is not None and _is_real(value):
                        self._types[value] = self._ranged(value, scheme_here)
                elif keeps_type(op) and op.operands[0] in self._types:
                    self._types[value] = self._types[op.operands[0]]
                else:
                    fixed = fixed_output(op, scheme)
                    self._types[value] = fixed or wishes.get(value) or self._ranged(value, scheme)

    def _scheme_at(self, value: Value) -> Scheme | None:
        owner = value.owner
        return self._scheme.get(owner) if isinstance(owner, TopOp) else None

    def _may_lower(self, op: TopOp) -> bool:
        real = all(_is_real(value) for value in (*op.results, *op.operands[:1]))
        return real and find_rule(op) is not None

    def _ranged(self, value: Value, scheme: Scheme) -> QuantType:
        name = value_name(value)
        if name not in self.ranges:
            raise QuantizationError(
                f"there is no range for the tensor '{name}'",
                fix="Calibrate this very program: npuc calibrate",
            )
        try:
            return activation_type(*_ends(self.ranges[name], scheme), scheme)
        except ValueError as error:
            raise QuantizationError(
                f"the tensor '{name}': {error}", fix="Correct the calibration table"
            ) from error

    # What rules use

    def scheme(self, op: TopOp) -> Scheme:
        """The scheme of an op that is being lowered."""
        scheme = self._scheme[op]
        assert scheme is not None
        return scheme

    def type_of(self, value: Value) -> QuantType:
        """The quantized type that a value of the old graph has."""
        return self._views.get(value) or self._types[value]

    def constant(self, value: Value | None) -> np.ndarray[Any, Any] | None:
        """The values of an old constant, or None if it is not one."""
        return self.source.constant(value)

    def quantized_weight(
        self, value: Value, axis: int, scheme: Scheme, bias: Value | None, scale: float
    ) -> tuple[Array, Array, int]:
        """A constant operand as integers, their scales (one, or one an entry of `axis`) and their zero point.

        `scale` is that of the other operand.
        """
        array = self.constant(value)
        if array is None:
            raise NoIntegerForm("its weights are computed at run time")
        if not np.isfinite(array).all():
            raise NoIntegerForm("its weights are not all finite")
        return (*quantize_weight(array, axis, scheme, self.constant(bias), scale), 0)

    def quantized_bias(self, value: Value, scale: float, weight_scale: Array, bits: int) -> Array:
        """A constant bias as integers of the scale of the sum, one or one a channel."""
        array = self.constant(value)
        if array is None:
            raise NoIntegerForm("its bias is computed at run time")
        if not np.isfinite(array).all():
            raise NoIntegerForm("its bias is not all finite")
        return quantize_bias(array, scale, weight_scale, bits)

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
        if (value, to) in self._integer:
            return self._integer[value, to]
        array = self.constant(value)
        if array is not None:
            made = self.weight(f"{value_name(value)}/quantized", quantize_array(array, to), to)
        elif (value, own) in self._integer:
            made = self.requantized(self._integer[value, own], to, self.derived(value, "requantized"))
        else:
            name = self.derived(value, "quantized")
            made = self.emit(npu.Quantize, self._exact(value), to=to, rounding=self.rounding, name=name).y
        self._integer[value, to] = made
        return made

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
        if kind == "pow2" and not _is_power_of_two(source.scale / to.scale):
            kind = "single"
        parameters = flat(requant_parameters(kind, source.scale, to.scale, self._current.multiplier_bits))
        lo, hi = to.dtype.limits
        made: Value = self.emit(npu.Requant, value, to=to, kind=kind, lo=lo, hi=hi, name=name, **parameters).y
        return made

    def _own_type(self, value: Value) -> QuantType:
        if value in self._types:
            return self._types[value]
        array = self.constant(value)
        if array is None:
            raise NoIntegerForm(f"its operand '{value_name(value)}' has no quantized type")
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
                integers = self._integer[value, self._types[value]]
                name = f"{value_name(value)}/real"
                self._real[value] = self.emit(npu.Dequantize, integers, to=dtype_of("f32").type, name=name).y
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
        self.graph.notes = [f"{layer} stays float: {reason}" for layer, reason in self.reasons.items()]
        self.graph.notes += self.remarks
        return self.graph

    def _lower(self, op: TopOp, scheme: Scheme) -> bool:
        rule = find_rule(op)
        assert rule is not None
        self._current = scheme
        self._views = self._casts(op, scheme)
        mark = self.graph.block.last_op
        try:
            made = rule(op, self)
        except NoIntegerForm as error:
            self._rewind(mark)
            self.reasons[value_name(op.results[0])] = str(error)
            return False
        values = made if isinstance(made, list) else [made]
        for old, new in zip(op.results, values, strict=True):
            found = quant_of(new)
            assert found == self._types[old], f"{op.name}: {found} instead of {self._types[old]}"
            self._integer[old, found] = new
        return True

    def _casts(self, op: TopOp, scheme: Scheme) -> dict[Value, QuantType]:
        """Where types meet: operands that an op wants in a type of its own scheme."""
        if keeps_type(op):
            return {}
        found = {}
        for value in op.operands:
            own = self._types.get(value)
            if own is None or self.constant(value) is not None:
                continue
            width = dtype_of(scheme.activation).itemsize
            shifts = scheme.requant == "pow2" and not _is_power_of_two(own.scale)
            wide = own.dtype.itemsize > width
            narrow = own.dtype.itemsize < width and not isinstance(op, _MIXES)
            if shifts or wide or narrow:
                found[value] = self._ranged(value, scheme)
        return found

    def _rewind(self, mark: Any) -> None:
        """Take back the ops after `mark` that nothing was recorded for."""
        recorded = {value.owner for value in (*self._integer.values(), *self._real.values())}
        op = self.graph.block.last_op
        while op is not None and op is not mark:
            previous = op.prev_op
            if op not in recorded:
                self.graph.block.erase_op(op, safe_erase=False)
            op = previous

    def _keep(self, op: TopOp) -> None:
        copy = type(op).create(
            operands=[self.real(value) for value in op.operands],
            result_types=[value.type for value in op.results],
            properties=op.properties,
            attributes=op.attributes,
            location=op.location,
        )
        self.graph.block.add_op(copy)
        self._real.update(zip(op.results, copy.results, strict=True))


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


def _is_power_of_two(scale: float) -> bool:
    return frexp(scale)[0] == 0.5


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
