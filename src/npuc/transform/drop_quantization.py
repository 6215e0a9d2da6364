"""A network that was quantized before becomes the float network behind it.

    %q = top.quantize(%x, s, z)
    %p = top.max_pool(%q)            →     %p = top.max_pool(%x)
    %y = top.dequantize(%p, s, z)

    top.dequantize(constant, s, z)   →     constant

The ends of the network go the same way: an input or output of integers that are only quantized reals becomes one of reals.
Integers that an op computes with are quantized where they are needed. A layer whose quantized result cannot be negative (its
zero point is the least integer) had a relu, which quantizers leave to the saturation: it gets it back.
The values change by the rounding that is no longer done, so the pass is not part of the canonical form.

`collapse` is the same walk for those who want to keep the parameters: it remembers which value had which type.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np
from xdsl.ir import Operation, OpResult, SSAValue

from npuc.arithmetic.dtypes import ACTIVATION_INTEGERS
from npuc.arrays import Array
from npuc.ir import top
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import QuantType, dtype_of, shape_of, tensor_type
from npuc.ir.graph import Graph
from npuc.ir.names import layer_name, location, result_names, value_name
from npuc.ir.passes import Pass, register_pass
from npuc.ir.top.movement import MOVERS

_INTEGERS = (*ACTIVATION_INTEGERS, "ui16", "i4", "ui4", "i32")
_MOVERS: tuple[type[TopOp], ...] = (*MOVERS, top.Concat, top.MaxPool)
"""Ops that do the same to integers as to the reals that they stand for."""
_LAYERS = (top.Conv, top.Deconv, top.MatMul, top.Add, top.Sub, top.Mul)
"""Ops behind which a relu is often left to the saturation of their quantized result."""


@dataclass(frozen=True)
class StoredConstant:
    """The integers behind a constant that was dequantized."""

    integers: Array
    scale: Array
    """One number, or one an entry of `axis`."""
    zero_point: Array
    axis: int

    @property
    def type(self) -> QuantType | None:
        """Its type, if one scale serves all of it."""
        if self.scale.size != 1 or dtype_of(self.integers.dtype).name not in _INTEGERS:
            return None
        return QuantType.of(
            self.integers.dtype, float(self.scale.reshape(())), int(self.zero_point.reshape(()))
        )


@dataclass
class Collapsed:
    """A network without its quantize and dequantize ops, and what they said."""

    graph: Graph
    types: dict[SSAValue, QuantType] = field(default_factory=dict)
    """The type of every value that is quantized, and is used in no other form."""
    casts: set[Operation] = field(default_factory=set)
    """Pairs of quantize and dequantize ops that had to stay: they give a value another type than it has."""


@register_pass
@dataclass(frozen=True)
class DropQuantization(Pass):
    """The float network behind a quantized one."""

    name: ClassVar[str] = "drop-quantization"

    def run(self, graph: Graph) -> None:
        """Constants first, then everything between a quantize and a dequantize."""
        dequantize_constants(graph)
        new = collapse(graph, keep=None).graph
        graph.module, graph.weights = new.module, new.weights


def dequantize_constants(graph: Graph) -> dict[str, StoredConstant]:
    """Make float constants of dequantized ones, in place; by the new name, the integers that they were."""
    stored: dict[str, StoredConstant] = {}
    for op in list(graph.ops):
        if not isinstance(op, top.Dequantize) or dtype_of(op.y.type).name != "f32":
            continue
        integers, scale = graph.constant(op.x), graph.constant(op.scale)
        if integers is None or scale is None:
            continue
        zero = np.zeros(scale.shape, np.int32) if op.zero_point is None else graph.constant(op.zero_point)
        if zero is None:
            continue
        axis = op.axis % max(integers.ndim, 1)
        spread = [-1 if i == axis else 1 for i in range(integers.ndim)] if scale.size > 1 else []
        wide: Any = np.int32 if max(integers.itemsize, zero.itemsize) < 4 else np.int64
        steps = integers.astype(wide) - zero.astype(wide).reshape(spread)
        real = (steps.astype(np.float32) * scale.reshape(spread)).astype(np.float32)
        weight = graph.add_weight(value_name(op.y), real)
        graph.block.insert_op_before(weight, op)
        op.y.replace_all_uses_with(weight.output)
        graph.block.erase_op(op)
        stored[weight.ref] = StoredConstant(integers, scale, zero.astype(np.int64), axis)
    return stored


def parameters(graph: Graph, op: top.Quantize | top.Dequantize) -> QuantType | None:
    """The type that a quantize op makes or a dequantize op reads; None if it is not one constant scale."""
    integer = dtype_of(op.y.type if isinstance(op, top.Quantize) else op.x.type)
    scale = graph.constant(op.scale)
    zero = np.zeros(1, np.int64) if op.zero_point is None else graph.constant(op.zero_point)
    if scale is None or zero is None or scale.size != 1 or zero.size != 1 or scale.dtype != np.float32:
        return None
    if integer.name not in _INTEGERS or not 0 < float(scale.reshape(())) < float("inf"):
        return None
    return QuantType.of(integer, float(scale.reshape(())), int(zero.reshape(())))


def collapse(graph: Graph, keep: Collection[str] | None) -> Collapsed:
    """The network without its quantize and dequantize ops.

    With `keep`, a collection of storage types, what is computed stays the same: the types of values are returned, and
    pairs that cannot be a type of a value stay. Without it, all pairs go.
    """
    return _Collapse(graph, keep).run()


class _Collapse:
    def __init__(self, graph: Graph, keep: Collection[str] | None) -> None:
        self.source = graph
        self.keep = keep
        held = {} if keep is not None else self._real_inputs()
        ports = [
            (port.name, tensor_type(shape_of(port.value), "f32") if port.value in held else port.type)
            for port in graph.inputs
        ]
        preprocess = {port.name: port.preprocess for port in graph.inputs if port.preprocess}
        self.out = Collapsed(Graph.empty(ports, graph.weights, preprocess))
        self.out.graph.take_names(graph)
        self.out.graph.states = graph.states
        self.out.graph.notes = list(graph.notes)
        self.graph = self.out.graph
        self.new: dict[SSAValue, SSAValue] = dict(zip(graph.block.args, self.graph.block.args, strict=True))
        self.held: dict[SSAValue, tuple[SSAValue, QuantType]] = {}
        """Old integers to the new reals that they stand for."""
        self.stays: dict[tuple[SSAValue, QuantType], SSAValue] = {}
        self.held.update({value: (self.new[value], kind) for value, kind in held.items()})
        if keep is not None:
            self._hold_inputs(keep)

    def _real_inputs(self) -> dict[SSAValue, QuantType]:
        """Inputs that are read as quantized reals of one type and as nothing else."""
        kinds = {value: self._read_as(value) for value in self.source.block.args}
        return {value: next(iter(types)) for value, types in kinds.items() if len(types) == 1}

    def _hold_inputs(self, keep: Collection[str]) -> None:
        """Inputs that are integers of one type, perhaps moved first, stand for reals from the start."""
        for argument in self.source.block.args:
            kinds = self._read_as(argument)
            if len(kinds) == 1 and (kind := next(iter(kinds))).dtype.name in keep:
                name = value_name(argument)
                scale, zero = self._constants(kind, name)
                op = top.Dequantize.make(self.new[argument], scale, zero, name=f"{name}/real")
                real = self._add(op)
                self.out.types[real] = kind
                self.held[argument] = real, kind

    def _read_as(self, value: SSAValue) -> set[QuantType]:
        """The types that integers are dequantized with; none if anything else is done with them."""
        kinds: set[QuantType] = set()
        stack, visited = [value], {value}
        while stack:
            for use in stack.pop().uses:
                op = use.operation
                if isinstance(op, top.Dequantize):
                    kind = parameters(self.source, op)
                    if kind is None or use.index != 0:
                        return set()
                    kinds.add(kind)
                elif isinstance(op, _MOVERS) and len(op.operands) == 1:
                    stack.extend(result for result in op.results if result not in visited)
                    visited.update(op.results)
                else:
                    return set()
        return kinds

    def _constants(self, kind: QuantType, name: str) -> tuple[SSAValue, SSAValue]:
        scale = self._add(self.graph.add_weight(f"{name}/scale", np.asarray(kind.scale, np.float32)))
        zero = np.asarray(kind.zero_point, kind.dtype.numpy)
        return scale, self._add(self.graph.add_weight(f"{name}/zero_point", zero))

    def run(self) -> Collapsed:
        for op in self.source.ops:
            if isinstance(op, top.WeightOp):
                continue
            if isinstance(op, top.Quantize) and self._quantize(op):
                continue
            if isinstance(op, top.Dequantize) and self._dequantize(op):
                continue
            if isinstance(op, (*_MOVERS, top.Gather)) and self._move(op):
                continue
            self._copy(cast(TopOp, op))
        self.graph.set_outputs([(port.name, self._output(port.value)) for port in self.source.outputs])
        return self.out

    def _output(self, old: SSAValue) -> SSAValue:
        """What the network gives: reals, where no integers are to be kept and those of an output are quantized ones."""
        return self.held[old][0] if self.keep is None and old in self.held else self.value(old)

    def value(self, old: SSAValue) -> SSAValue:
        """The new value; constants are copied, and integers made, where they are needed."""
        if old not in self.new:
            if isinstance(old, OpResult) and isinstance(old.op, top.WeightOp):
                self.new[old] = self._add(top.WeightOp.of(old.op.ref, old.type))
            else:
                real, kind = self.held[old]
                name = value_name(old)
                name = f"{name}/integers" if value_name(real) == name else name
                self.new[old] = self._integers(real, kind, name)
        return self.new[old]

    def _add(self, op: Operation) -> SSAValue:
        self.graph.block.add_op(op)
        return op.results[0]

    def _integers(self, real: SSAValue, kind: QuantType, name: str) -> SSAValue:
        scale, zero = self._constants(kind, name)
        return self._add(top.Quantize.make(real, scale, zero, to=kind.dtype.name, name=name))

    def _quantize(self, op: top.Quantize) -> bool:
        kind = parameters(self.source, op)
        if kind is None or dtype_of(op.x.type).name != "f32":
            return False
        if self.keep is None:
            self.held[op.y] = self._rectified(op, self.value(op.x), kind), kind
            return True
        if kind.dtype.name not in self.keep:
            return False
        real = self.value(op.x)
        if real not in self.out.types and self._all_uses_are(op.x, kind):
            self.out.types[real] = kind
            _rename(real, value_name(op.y))
        if self.out.types.get(real) != kind:
            real = self._stay(real, kind, op)
        self.held[op.y] = real, kind
        return True

    def _rectified(self, op: top.Quantize, real: SSAValue, kind: QuantType) -> SSAValue:
        """The reals behind a quantize op, with the relu that its saturation stands for."""
        if kind.zero_point != kind.dtype.limits[0] or not isinstance(op.x.owner, _LAYERS) or op.x.owner.relu:
            return real
        return self._add(top.Relu.make(real, name=f"{value_name(op.x)}/relu", layer=layer_name(op.x.owner)))

    def _all_uses_are(self, value: SSAValue, kind: QuantType) -> bool:
        users = (use.operation for use in value.uses)
        return all(isinstance(op, top.Quantize) and parameters(self.source, op) == kind for op in users)

    def _stay(self, real: SSAValue, kind: QuantType, op: top.Quantize) -> SSAValue:
        """`real` under a type that is not its own: a pair that stays."""
        if (real, kind) not in self.stays:
            name = value_name(op.y)
            integers = self._integers(real, kind, f"{name}/integers")
            owner = integers.owner
            assert isinstance(owner, top.Quantize)
            pair = top.Dequantize.make(
                integers, owner.scale, owner.zero_point, name=name, layer=layer_name(op)
            )
            self.stays[real, kind] = again = self._add(pair)
            self.out.types[again] = kind
            self.out.casts.update((owner, pair))
        return self.stays[real, kind]

    def _dequantize(self, op: top.Dequantize) -> bool:
        kind = parameters(self.source, op)
        if kind is None or dtype_of(op.y.type).name != "f32":
            return False
        real, held = self.held.get(op.x, (None, None))
        if real is None or held != kind:
            self._copy(op)
            if self.keep is not None and kind.dtype.name in self.keep:
                self.out.types[self.new[op.y]] = kind
            return True
        self.new[op.y] = real
        return True

    def _move(self, op: Any) -> bool:
        """An op that moves elements does so to integers and reals alike."""
        held = [self.held.get(value) for value in op.operands]
        if all(entry is not None for entry in held) and len({entry[1] for entry in held if entry}) == 1:
            reals = [entry[0] for entry in held if entry is not None]
            kind = cast("tuple[SSAValue, QuantType]", held[0])[1]
            types = [tensor_type(shape_of(value), "f32") for value in op.results]
            for old, new in zip(op.results, self._clone(op, reals, types).results, strict=True):
                self.held[old] = new, kind
                if self.keep is not None:
                    self.out.types[new] = kind
            return True
        if self.keep is None or isinstance(op, top.Concat) or dtype_of(op.operands[0].type).name != "f32":
            return False
        own = self.out.types.get(self.value(op.operands[0]))
        if own is None:
            return False
        self._copy(op)
        self.out.types.update({self.new[old]: own for old in op.results})
        return True

    def _copy(self, op: TopOp) -> None:
        clone = self._clone(op, [self.value(v) for v in op.operands], [v.type for v in op.results])
        self.new.update(zip(op.results, clone.results, strict=True))

    def _clone(self, op: TopOp, operands: list[SSAValue], types: list[Any]) -> TopOp:
        clone = type(op).create(
            operands=operands,
            result_types=types,
            properties=op.properties,
            attributes=op.attributes,
            location=op.location,
        )
        self.graph.block.add_op(clone)
        return clone


def _rename(value: SSAValue, integers: str) -> None:
    """A value whose own name was only derived from that of its integers takes the latter's."""
    if isinstance(value, OpResult) and value_name(value).startswith(f"{integers}/"):
        names = list(result_names(value.op))
        names[value.index] = integers
        value.op.location = cast(Any, location(names, layer_name(value.op)))
