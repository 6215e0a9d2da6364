"""A whole program as one TFLite model.

Inputs and outputs have the program's own names in the signature. All layers without a form are named at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npuc.errors import ExportError
from npuc.export.tflite.emitter import TFLiteEmitter, quantization
from npuc.export.tflite.layout import CHANNELS_LAST, Order, arranged, natural
from npuc.export.tflite.model import TFLiteModel, TFLiteTensor, serialize
from npuc.export.tflite.registry import RULES, SCHEME, NoTFLiteForm
from npuc.files import write_atomically
from npuc.ir import (
    Graph,
    Value,
    describe,
    dtype_of,
    is_static,
    layer_name,
    npu,
    shape_of,
    top,
    value_name,
)
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import quant_of
from npuc.ir.npu import NpuOp

_SHOWN = 4
"""Layers that an error names for one reason."""


@dataclass(frozen=True)
class TFLiteOptions:
    """How the ends of the file look."""

    integer_io: bool = False
    """Inputs and outputs are the program's integers, without QUANTIZE and DEQUANTIZE at the ends."""
    channels_last: bool = False
    """Inputs and outputs of rank 4 are N x H x W x C."""


def to_tflite(graph: Graph, options: TFLiteOptions | None = None) -> TFLiteModel:
    """The program as a TFLite model; `ExportError` if a layer has no form there."""
    return _Program(graph, options or TFLiteOptions()).run()


def export_tflite(graph: Graph, path: Path | str, options: TFLiteOptions | None = None) -> TFLiteModel:
    """Write a program as `path`; returns what was written."""
    model = to_tflite(graph, options)
    data = serialize(model)
    with write_atomically(path) as out:
        out.write(data)
    return model


class _Program:
    def __init__(self, graph: Graph, options: TFLiteOptions) -> None:
        self.graph = graph
        self.options = options
        self.emit = TFLiteEmitter(graph)
        self.refused: list[tuple[str, str, str]] = []
        self.skipped: set[Any] = set()
        for port in (*graph.inputs, *graph.outputs):
            self.emit.names.take(port.name)

    def run(self) -> TFLiteModel:
        """Inputs, ops in order, outputs."""
        self._inputs()
        for op in self.graph.ops:
            if isinstance(op, top.WeightOp) or op in self.skipped:
                continue
            self.emit.begin(value_name(op.results[0]) if op.results else op.name)
            rule = RULES.get(type(op))
            try:
                if rule is None:
                    raise NoTFLiteForm("it has no form in TFLite")
                if not all(is_static(value) for value in (*op.operands, *op.results)):
                    raise NoTFLiteForm("its shapes are not known")
                rule(op, self.emit)
            except NoTFLiteForm as error:
                self.refused.append((describe(op), str(error), error.fix))
                self._stand_in(op)
            except ValueError as error:  # scales that no multiplier can be derived from
                self.refused.append((describe(op), str(error), SCHEME))
                self._stand_in(op)
        self._outputs()
        if self.refused:
            raise _refusal(self.refused)
        return _used(self.emit.model)

    def _stand_in(self, op: Any) -> None:
        """Tensors for the results of a refused op, so that the rest is checked too."""
        for value in op.results:
            if is_static(value):
                shape = shape_of(value)
                self.emit.hold(value, TFLiteTensor("", shape, dtype_of(value.type).name), natural(len(shape)))

    def _order(self, value: Value) -> Order:
        rank = len(shape_of(value))
        return CHANNELS_LAST if self.options.channels_last and rank == 4 else natural(rank)

    # Inputs

    def _inputs(self) -> None:
        for port in self.graph.inputs:
            value, kind = port.value, quant_of(port.value)
            holders = [value]
            users = [use.operation for use in value.uses]
            read = (npu.Quantize, npu.Reinterpret) if self.options.integer_io else (npu.Reinterpret,)
            types = {user.to for user in users if isinstance(user, read)}
            if kind is None and len(types) == 1 and all(isinstance(user, read) for user in users):
                holders = [user.results[0] for user in users]
                self.skipped |= set(users)
                kind = quant_of(holders[0])
            order = self._order(value)
            try:
                tensor = self.emit.new(
                    arranged(shape_of(value), order),
                    dtype_of(holders[0].type).name,
                    None if kind is None else quantization(kind),
                    name=port.name,
                )
            except NoTFLiteForm as error:
                self.refused.append((f"the input '{port.name}'", str(error), error.fix))
                tensor = TFLiteTensor(port.name, arranged(shape_of(value), order), "f32")
            tensor.name = port.name
            for holder in holders:
                self.emit.hold(holder, tensor, order)
            self.emit.model.inputs[port.name] = tensor

    # Outputs

    def _outputs(self) -> None:
        taken = set(map(id, self.emit.model.inputs.values()))
        for port in self.graph.outputs:
            value, owner = port.value, port.value.owner
            self.emit.begin(port.name)
            if isinstance(owner, npu.Reinterpret) or (
                self.options.integer_io and isinstance(owner, npu.Dequantize)
            ):
                value = owner.x
            tensor = self.emit.tensor(value, self._order(value))
            if id(tensor) in taken or tensor.data is not None:
                # A port of its own for what is an input, a constant or an output already.
                tensor = self.emit.reshape(tensor, self.emit.like(value, tensor.shape, "copy"))
            taken.add(id(tensor))
            tensor.name = port.name
            self.emit.model.outputs[port.name] = tensor


def float_layers(graph: Graph) -> list[str]:
    """The layers of a quantized program that compute with floats; none if nothing in it is quantized."""
    ops = [op for op in graph.ops if not isinstance(op, top.WeightOp)]
    if not any(isinstance(op, NpuOp) for op in ops):
        return []
    real = [op for op in ops if isinstance(op, TopOp) and op.results and quant_of(op.results[0]) is None]
    return [layer_name(op) for op in real if dtype_of(op.results[0].type).is_float]


def _used(model: TFLiteModel) -> TFLiteModel:
    """The model without operators and tensors that no output needs."""
    needed = {id(tensor) for tensor in model.outputs.values()}
    operators = []
    for op in reversed(model.operators):
        if any(id(tensor) in needed for tensor in op.outputs):
            operators.append(op)
            needed |= {id(tensor) for tensor in (*op.inputs, *op.outputs) if tensor is not None}
    needed |= {id(tensor) for tensor in model.inputs.values()}
    tensors = [tensor for tensor in model.tensors if id(tensor) in needed]
    return TFLiteModel(tensors, operators[::-1], model.inputs, model.outputs)


def _refusal(refused: list[tuple[str, str, str]]) -> ExportError:
    by_reason: dict[str, list[str]] = {}
    for layer, reason, _ in refused:
        by_reason.setdefault(reason, []).append(layer)
    parts = []
    for reason, layers in by_reason.items():
        more = f" and {len(layers) - _SHOWN} more" if len(layers) > _SHOWN else ""
        parts.append(f"{', '.join(layers[:_SHOWN])}{more}: {reason}")
    many = "s have" if len(refused) > 1 else " has"
    fix = "; ".join(dict.fromkeys(fix for _, _, fix in refused if fix))
    return ExportError(
        f"{len(refused)} layer{many} no form in TFLite: {'; '.join(parts)}",
        fix=fix[:1].upper() + fix[1:] if fix else None,
    )
