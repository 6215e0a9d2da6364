"""Top to Npu: every op that has an integer form gets it; the rest stays float between a dequantize and a quantize.

Types first (`type_assignment`), then op by op, in order: a rule of `lowering/` writes each op on the integer forms of its
operands (`integer_values`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from npuc.arithmetic.kinds import Kind
from npuc.arithmetic.requantization import ShiftTooLarge, ShiftTooSmall, is_power_of_two
from npuc.ir import Graph, Value, dtype_of, top, value_name
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import QuantType, element_of, is_machine_float, is_narrow_float
from npuc.quant.fixed import fixed_output
from npuc.quant.integer_values import IntegerValues
from npuc.quant.layer_schemes import LayerSchemes, SchemeOf
from npuc.quant.lowering.registry import (
    NoIntegerForm,
    find_float_rule,
    find_rule,
    keeps_type,
)
from npuc.quant.scheme import Scheme
from npuc.quant.tensor_classes import quantized_operands, quantized_results
from npuc.quant.type_assignment import Positions, Ranges
from npuc.registries import renamed

_MIXES = (top.Conv, top.Deconv, top.MatMul, top.Add, top.Sub, top.Mul, top.AvgPool, top.Concat)
"""Ops whose operands may be narrower than their result."""
_ATTEMPTS = 8
"""How often positions are moved before layers stay float."""


def quantize(graph: Graph, ranges: Ranges, scheme: Scheme | LayerSchemes | SchemeOf | None = None) -> Graph:
    """The integer network of a canonical float one.

    `ranges` maps tensor names to (min, max), or is a calibration table. `scheme` is one for all layers, the schemes of all
    layers, or a function of a layer that returns its scheme, None to keep it float.
    """
    schemes = LayerSchemes.of(graph, scheme)
    return lowered(lambda moved: LoweringContext(graph, ranges, schemes, moved))


def lowered(begin: Callable[[Positions], LoweringContext]) -> Graph:
    """The integer network that a context makes; results whose shift does not exist get another position, and all is made anew.

    A result that is finer than its sum needs a shift to the left, which a machine may not have. What it loses by a coarser
    scale is nothing: the sum has no finer steps.
    """
    moved: Positions = {}
    for _ in range(_ATTEMPTS):
        context = begin(dict(moved))
        integers = context.run()
        if not context.too_fine:
            return integers
        for value, bits in context.too_fine.items():
            moved[value] = moved.get(value, 0) + bits
    return begin(dict(moved)).run()


class LoweringContext(IntegerValues):
    """One float network on its way to integers: what lowering rules get beside the op."""

    def __init__(
        self, graph: Graph, ranges: Ranges, scheme_of: LayerSchemes, moved: Positions | None = None
    ) -> None:
        super().__init__(graph, ranges, scheme_of, moved)
        self.too_fine: Positions = {}
        """Results whose shift does not exist, and by how many bits their position has to move."""

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
        floats = is_machine_float(self._types.get(op.results[0]))
        rule = find_float_rule(op) if floats else find_rule(op)
        assert rule is not None
        self._current = scheme
        self._views = self._casts(op, scheme)
        mark, moves = self.graph.block.last_op, _ATTEMPTS
        while True:
            try:
                outcome = rule(op, self)
                break
            except NoIntegerForm as error:
                self._rewind(mark)
                moves -= 1
                if moves and isinstance(error.__cause__, ShiftTooLarge):
                    self._coarsen(op, error.__cause__.bits)
                    continue
                self.reasons[value_name(op.results[0])] = str(error)
                if isinstance(error.__cause__, ShiftTooSmall) and fixed_output(op, scheme) is None:
                    self.too_fine[op.results[0]] = error.__cause__.bits
                return False
        if moves < _ATTEMPTS:
            self.remarks.append(
                f"{value_name(op.results[0])} reads an operand at a coarser position: no shift reaches its result"
            )
        values = outcome if isinstance(outcome, list) else [outcome]
        for old, new in zip(op.results, values, strict=True):
            kind = element_of(new)
            if not isinstance(kind, QuantType) and not is_narrow_float(kind):
                self._real[old] = new
                continue
            assert kind == self._types[old], f"{op.name}: {kind} instead of {self._types[old]}"
            self._integer[old, kind] = new
        return True

    def _coarsen(self, op: TopOp, bits: int) -> None:
        """Let an op read its finest operand by so many bits coarser: its sum is then as much nearer to its result."""
        types = {value: self.type_of(value) for value in op.operands}
        integers = {value: kind for value, kind in types.items() if isinstance(kind, QuantType)}
        finest = min(integers, key=lambda value: integers[value].scale)
        kind = integers[finest]
        self._views[finest] = QuantType.of(kind.dtype, kind.scale * 2.0**bits, kind.zero_point)

    def _casts(self, op: TopOp, scheme: Scheme) -> dict[Value, QuantType]:
        """Where types meet: operands that an op wants in a type of its own scheme."""
        if scheme.has_no_integers or self._keeps(op, scheme):
            return {}
        if keeps_type(op):
            return {op.operands[0]: self._types[op.results[0]]}
        views = {}
        for value in op.operands:
            own = self._types.get(value)
            if own is None or self.constant(value) is not None:
                continue
            if not isinstance(own, QuantType):
                views[value] = self._ranged(value, scheme)
                continue
            width = dtype_of(scheme.activation).itemsize
            shifts = scheme.requant is Kind.POW2 and not is_power_of_two(own.scale)
            wide = own.dtype.itemsize > width
            narrow = own.dtype.itemsize < width and not isinstance(op, _MIXES)
            if shifts or wide or narrow:
                views[value] = self._ranged(value, scheme)
        return views

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
        partial = self._partial.get(op)
        if partial is not None:
            self._current = partial
            operands = quantized_operands(op, operands, self, partial)
        copy = type(op).create(
            operands=operands,
            result_types=[value.type for value in op.results],
            properties=op.properties,
            attributes=op.attributes,
            location=op.location,
        )
        self.graph.block.add_op(copy)
        results: Sequence[Value] = copy.results
        if partial is not None:
            results = quantized_results(op, results, self, partial)
        self._real.update(zip(op.results, results, strict=True))


def _erase_unused(graph: Graph) -> None:
    op = graph.terminator.prev_op
    while op is not None:
        previous = op.prev_op
        if not any(result.first_use for result in op.results):
            graph.block.erase_op(op)
        op = previous


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"Context": LoweringContext})
