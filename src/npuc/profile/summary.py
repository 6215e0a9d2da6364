"""A network in figures: layers, shapes, parameters and multiply-accumulates.

A MAC is one multiplication with its addition. Convolutions, matrix products, attention and recurrent layers have them;
the work of other ops is not counted, and neither is that of `top.onnx`, which runs on the CPU. Parameters are elements
of weights, each counted once, with the first op that uses it.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from npuc.ir import Graph, is_static, result_names, shape_of, shown_name
from npuc.ir.top import GRU, LSTM, RNN, Attention, Conv, Deconv, MatMul, Onnx, QuantizedLSTM, WeightOp


@dataclass(frozen=True)
class Layer:
    """One op."""

    name: str
    kind: str
    outputs: tuple[str, ...]
    """The type of each result, such as `1x64x56x56xf32`."""
    parameters: int
    macs: int
    names: tuple[str, ...] = ()
    """The names of the results."""


@dataclass(frozen=True)
class CpuLayer:
    """An op that stays ONNX and runs on the CPU, and why."""

    name: str
    op_type: str
    reason: str


@dataclass(frozen=True)
class Summary:
    """A network in figures."""

    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    layers: tuple[Layer, ...]
    cpu: tuple[CpuLayer, ...]
    parameters: int
    macs: int
    weight_bytes: int

    @property
    def kinds(self) -> dict[str, int]:
        """How many ops there are of each kind, most first."""
        counts = Counter(layer.kind for layer in self.layers)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def as_json(self, *, layers: bool = True) -> dict[str, Any]:
        """Plain values for JSON."""
        fields = asdict(self)
        if not layers:
            del fields["layers"]
        return {
            **fields,
            "inputs": [{"name": name, "type": kind} for name, kind in self.inputs],
            "outputs": [{"name": name, "type": kind} for name, kind in self.outputs],
            "ops": len(self.layers),
            "kinds": self.kinds,
        }


def summarize(graph: Graph) -> Summary:
    """The summary of a graph."""
    layers: list[Layer] = []
    cpu: list[CpuLayer] = []
    counted: set[str] = set()
    for op in graph.ops:
        if isinstance(op, WeightOp):
            continue
        parameters = 0
        for value in op.operands:
            owner = value.owner
            if isinstance(owner, WeightOp) and owner.ref not in counted:
                counted.add(owner.ref)
                parameters += math.prod(shape_of(value))
        kind = op.name.removeprefix("top.")
        name = shown_name(op)
        if isinstance(op, Onnx):
            domain = f"{op.domain}." if op.domain else ""
            kind = f"onnx.{domain}{op.op_type}"
            cpu.append(CpuLayer(name, f"{domain}{op.op_type}", op.reason))
        outputs = tuple(short_type(value.type) for value in op.results)
        layers.append(Layer(name, kind, outputs, parameters, macs_of(op), result_names(op)))
    weights = [graph.weights[ref] for ref in graph.used_weights()]
    return Summary(
        inputs=tuple((port.name, short_type(port.type)) for port in graph.inputs),
        outputs=tuple((port.name, short_type(port.type)) for port in graph.outputs),
        layers=tuple(layers),
        cpu=tuple(cpu),
        parameters=sum(math.prod(weight.shape) for weight in weights),
        macs=sum(layer.macs for layer in layers),
        weight_bytes=sum(weight.nbytes for weight in weights),
    )


@lru_cache(4096)
def short_type(kind: Any) -> str:
    """A tensor type without its wrapping.

    >>> from npuc.ir import tensor_type
    >>> short_type(tensor_type((1, 3), "f32"))
    '1x3xf32'
    """
    return str(kind).removeprefix("tensor<").removesuffix(">")


def macs_of(op: Any) -> int:
    """The multiply-accumulates of one op."""
    if not all(is_static(value) for value in (*op.operands, *op.results)):
        return 0
    if isinstance(op, Conv):
        return math.prod(shape_of(op.results[0])) * math.prod(shape_of(op.weight)[1:])
    if isinstance(op, Deconv):
        return math.prod(shape_of(op.x)) * math.prod(shape_of(op.weight)[1:])
    if isinstance(op, MatMul):
        return math.prod(shape_of(op.results[0])) * shape_of(op.a)[-1]
    if isinstance(op, Attention):
        batch, heads, rows, depth = shape_of(op.query)
        columns, width = shape_of(op.value)[2:]
        return batch * heads * rows * columns * (depth + width)
    if isinstance(op, RNN | GRU | LSTM):
        steps, batch, width = shape_of(op.x)
        directions, gates, _ = shape_of(op.weight)
        return steps * batch * directions * gates * (width + op.hidden)
    if isinstance(op, QuantizedLSTM):
        first, second, width = shape_of(op.x)
        rows, outputs = shape_of(op.recurrence)
        return first * second * rows * (width + outputs)
    return 0
