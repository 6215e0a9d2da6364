"""An integer network as a float network between quantize and dequantize ops (QDQ): Npu IR to Top IR.

Every quantized tensor becomes a pair: the float op that computes it is followed by a `top.quantize` with the tensor's scale, zero
point and type, and whoever reads the tensor reads it through a `top.dequantize`. Weights and biases are dequantized integer
constants. So a tool that knows QuantizeLinear and DequantizeLinear finds every integer of the network, and one that does not
computes its real values. Ops that stayed float are copied.

A float result keeps the tensor's own name; its integers are called `NAME_quantized`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import ExportError
from npuc.export.qdq.arithmetic import stated_arithmetic
from npuc.export.qdq.limits import limits_of
from npuc.export.qdq.registry import RULES
from npuc.ir import Graph, Value, dtype_of, layer_name, shape_of, tensor_type, top, value_name
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import QuantType, quant_of
from npuc.ir.npu import NpuOp
from npuc.words import counted

_NAMED = 5
"""Layers without a form that are named with the reason."""


def to_qdq(graph: Graph) -> Graph:
    """The QDQ form of an integer network, as a network of `top` ops that computes the same reals up to rounding.

    What has no such form is refused, all such layers in one message.
    """
    return QdqForm(graph).run()


class QdqForm:
    """What a rule builds the QDQ form with."""

    def __init__(self, graph: Graph) -> None:
        self.source = graph
        ports = [(port.name, _plain_type(port.value)) for port in graph.inputs]
        preprocess = {port.name: port.preprocess for port in graph.inputs if port.preprocess}
        self.graph = Graph.empty(ports, graph.weights, preprocess)
        self.graph.take_names(graph)
        self.graph.states = graph.states
        if stated := stated_arithmetic(graph):
            self.graph.arithmetic = stated
        self._plain: dict[Value, Value] = dict(zip(graph.block.args, self.graph.block.args, strict=True))
        """Old values to new ones; those of quantized values are their integers."""
        self._real: dict[Value, Value] = {}
        self._parameters: dict[QuantType, tuple[Value, Value]] = {}
        self._refusals: list[ExportError] = []

    def run(self) -> Graph:
        """The whole network."""
        for op in self.source.ops:
            assert isinstance(op, TensorOp)
            if isinstance(op, top.WeightOp):
                continue
            try:
                if isinstance(op, NpuOp):
                    self._rule(op)(op, self)
                else:
                    self._copy(op)
            except ExportError as error:
                self._refuse(op, error)
        if self._refusals:
            raise _joined(self._refusals)
        self.graph.set_outputs([(port.name, self.real(port.value)) for port in self.source.outputs])
        self.graph.verify()
        return self.graph

    def _refuse(self, op: TensorOp, error: ExportError) -> None:
        """Note an op without a form; zeros stand for its results, so that those behind it are looked at, too."""
        self._refusals.append(error)
        for result in op.results:
            kind = quant_of(result)
            dtype = dtype_of(result.type) if kind is None else kind.dtype.carrier
            self._plain[result] = self.weight("refused", np.zeros(shape_of(result), dtype.numpy))
            self._real.pop(result, None)

    def _rule(self, op: NpuOp) -> Any:
        rule = RULES.get(type(op))
        if rule is None:
            raise no_form(op, "it has no form between QuantizeLinear and DequantizeLinear")
        return rule

    # Reading

    def constant(self, value: Value | None) -> Array | None:
        """The integers or reals of a constant, None for anything else."""
        return self.source.constant(value)

    def plain(self, value: Value) -> Value:
        """A value as it is: the integers of a quantized one."""
        if value not in self._plain:
            array = self.source.constant(value)
            assert array is not None, value
            self._plain[value] = self.weight(value_name(value) or "constant", array)
        return self._plain[value]

    def real(self, value: Value) -> Value:
        """A value as real numbers: a quantized one is dequantized, once for all its readers."""
        kind = quant_of(value)
        if kind is None:
            return self.plain(value)
        if value not in self._real:
            self._real[value] = self.dequantized(self.plain(value), kind, f"{value_name(value)}_dequantized")
        return self._real[value]

    # Building

    def emit(self, op_type: type[TensorOp], /, *operands: Any, **properties: Any) -> Any:
        """Add an op to the new network."""
        op = op_type.make(*operands, **properties)
        self.graph.block.add_op(op)
        return op

    def weight(self, name: str, array: Array) -> Value:
        """Add a constant."""
        return self._add(self.graph.add_weight(name, np.asarray(array, order="C")))

    def _add(self, op: Any) -> Value:
        self.graph.block.add_op(op)
        value: Value = op.results[0]
        return value

    def parameters(self, kind: QuantType) -> tuple[Value, Value]:
        """The scale and the zero point of a type, as constants."""
        if kind not in self._parameters:
            name = f"{kind.dtype.carrier.name}/{kind.scale:.9g}/{kind.zero_point}"
            self._parameters[kind] = (
                self.weight(f"scale/{name}", np.asarray(kind.scale, np.float32)),
                self.weight(f"zero_point/{name}", np.asarray(kind.zero_point, kind.dtype.carrier.numpy)),
            )
        return self._parameters[kind]

    def dequantized(self, integers: Value, kind: QuantType, name: str = "", **names: Any) -> Value:
        """Integers of a type as the reals that they stand for."""
        value: Value = self.emit(top.Dequantize, integers, *self.parameters(kind), name=name, **names).y
        return value

    def quantized(self, real: Value, kind: QuantType, name: str = "", **names: Any) -> Value:
        """Reals as integers of a type."""
        value: Value = self.emit(
            top.Quantize,
            real,
            *self.parameters(kind),
            to=kind.dtype.carrier.name,
            name=name,
            **names,
        ).y
        return value

    def quantize(self, old: Value, real: Value, **names: Any) -> None:
        """State that the reals `real`, quantized, are the value `old` of the source network."""
        kind, owner = quant_of(old), old.owner
        assert kind is not None and isinstance(owner, TensorOp)
        names = names or {"name": f"{value_name(old)}_quantized", "layer": layer_name(owner)}
        self._plain[old] = self.quantized(real, kind, **names)

    def finish(self, op: Any, real: Value, fused: bool = False) -> None:
        """State that `real`, within the limits of an output stage and quantized, is the result of an op.

        `fused` says that the limits are a relu which `real` has had.
        """
        self.quantize(op.y, self.bounded(op, real, fused, value_name(op.y)))

    def bounded(self, op: Any, real: Value, fused: bool, name: str) -> Value:
        """Reals within the limits of an output stage."""
        limits = limits_of(op)
        if not limits.bind or fused:
            return real
        within: Value = self.emit(top.Clip, real, min=limits.low, max=limits.high, name=f"{name}/bounded").y
        return within

    def become(self, old: Value, new: Value) -> None:
        """State that `new` is the value `old`: its integers, if it is quantized."""
        self._plain[old] = new

    def _copy(self, op: TensorOp) -> None:
        """An op that stayed float, or moves integers as it moves the reals that they stand for."""
        clone = type(op).create(
            operands=[self.real(value) for value in op.operands],
            result_types=[
                tensor_type(shape_of(value), "f32") if quant_of(value) else value.type for value in op.results
            ],
            properties=op.properties,
            attributes=op.attributes,
            location=op.location,
        )
        self.graph.block.add_op(clone)
        for old, new in zip(op.results, clone.results, strict=True):
            if quant_of(old) is None:
                self._plain[old] = new
            else:
                self.quantize(old, new)


def _plain_type(value: Value) -> Any:
    kind = quant_of(value)
    return value.type if kind is None else tensor_type(shape_of(value), kind.dtype.carrier)


def _joined(errors: Sequence[ExportError]) -> ExportError:
    """One refusal for all layers; the first of many are named with their reasons."""
    words = [error.message for error in errors[:_NAMED]]
    if len(errors) > _NAMED:
        words.append(f"and {counted(len(errors) - _NAMED, 'layer')} more")
    fixes = dict.fromkeys(error.fix for error in errors if error.fix)
    return ExportError("; ".join(words), fix=". ".join(fixes) or None)


def no_form(op: Any, why: str, fix: str | None = None) -> ExportError:
    """The refusal of an op, with the lever."""
    return ExportError(f"{op.name} '{layer_name(op)}' cannot be written as QDQ: {why}", fix=fix)
