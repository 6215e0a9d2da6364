"""Nodes of constants, computed now: the arithmetic of shapes and counters in NumPy, the rest by the float engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from npuc.arrays import Array
from npuc.errors import NpucError
from npuc.frontend.layout import ChannelsLastBuilder, LayoutTensor
from npuc.frontend.tensorflow.graph import TensorflowNode
from npuc.frontend.tensorflow.registry import TensorflowContext, find_rule
from npuc.ir import Graph

_LIMIT = 1 << 24
"""Bytes of constants that are looked at; and of results."""
_MAX_EFFORT = 1 << 30
_RUN = 1 << 21
"""What starting the engine costs, in bytes."""


@dataclass
class Effort:
    """The bytes that were computed with so far: a small file may ask for any amount of it. What is left stays an op."""

    spent: int = 0

    def allows(self, bytes_: int) -> bool:
        """Spend, and say whether there was enough left."""
        self.spent += bytes_
        return self.spent <= _MAX_EFFORT


def _concat(node: TensorflowNode, x: list[Array]) -> Array:
    return np.concatenate(x[:-1], axis=int(x[-1]))


def _gather(node: TensorflowNode, x: list[Array]) -> Array:
    if node.integer("batch_dims"):
        raise ValueError("batches")
    return np.asarray(np.take(x[0], x[1], axis=int(x[2]) if len(x) > 2 else 0))


def _binary(function: Callable[[Array, Array], Array]) -> Callable[[TensorflowNode, list[Array]], Array]:
    return lambda node, x: np.asarray(function(x[0], x[1]))


def _floor_divide(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu" and not b.all():
        raise ZeroDivisionError
    quotient: Array = np.floor_divide(a, b)
    return quotient


def _cast(node: TensorflowNode, x: list[Array]) -> Array:
    return x[0].astype(node.dtype("DstT").numpy)


_FOLDERS: dict[str, Callable[[TensorflowNode, list[Array]], Array]] = {
    "Add": _binary(np.add),
    "AddV2": _binary(np.add),
    "Sub": _binary(np.subtract),
    "Mul": _binary(np.multiply),
    "RealDiv": _binary(lambda a, b: (a / b).astype(a.dtype)),
    "FloorDiv": _binary(_floor_divide),
    "Maximum": _binary(np.maximum),
    "Minimum": _binary(np.minimum),
    "Less": _binary(np.less),
    "LessEqual": _binary(np.less_equal),
    "Greater": _binary(np.greater),
    "GreaterEqual": _binary(np.greater_equal),
    "Equal": _binary(np.equal),
    "NotEqual": _binary(np.not_equal),
    "LogicalAnd": _binary(np.logical_and),
    "LogicalOr": _binary(np.logical_or),
    "LogicalNot": lambda node, x: np.logical_not(x[0]),
    "Neg": lambda node, x: np.negative(x[0]),
    "Rsqrt": lambda node, x: (1 / np.sqrt(x[0])).astype(x[0].dtype),
    "Sqrt": lambda node, x: np.sqrt(x[0]),
    "ConcatV2": _concat,
    "GatherV2": _gather,
    "Cast": _cast,
    "ExpandDims": lambda node, x: np.expand_dims(x[0], int(x[1])),
    "Reshape": lambda node, x: x[0].reshape([int(n) for n in x[1]]),
    "Pack": lambda node, x: np.stack(x, axis=node.integer("axis")),
    "Transpose": lambda node, x: x[0].transpose([int(n) for n in x[1]]),
    "Prod": lambda node, x: np.asarray(
        np.prod(
            x[0],
            axis=tuple(int(n) for n in x[1].reshape(-1)),
            keepdims=node.flag("keep_dims"),
            dtype=x[0].dtype,
        )
    ),
    "ZerosLike": lambda node, x: np.zeros_like(x[0]),
    "OnesLike": lambda node, x: np.ones_like(x[0]),
    "Shape": lambda node, x: np.array(
        x[0].shape, np.int64 if node.type_code("out_type", 3) == 9 else np.int32
    ),
}


def folded(
    node: TensorflowNode, tensors: Sequence[LayoutTensor], name: str, effort: Effort
) -> list[LayoutTensor] | None:
    """The outputs of a node of constants; None if it has to stay a node."""
    if not tensors or any(x.weight is None for x in tensors):
        return None
    given = sum(x.weight.nbytes for x in tensors if x.weight is not None)
    if given > _LIMIT or not effort.allows(given):
        return None
    arrays = [x.weight.array() for x in tensors if x.weight is not None]
    folder = _FOLDERS.get(node.op)
    if folder is not None:
        with np.errstate(all="ignore"):
            try:
                result = np.asarray(folder(node, arrays))
            except (ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError):
                return _run(node, tensors, name, effort)
        kept = result.nbytes <= _LIMIT and effort.allows(4 * result.nbytes)
        return [_constant(result, name)] if kept else None
    return _run(node, tensors, name, effort)


def _constant(array: Array, name: str) -> LayoutTensor:
    return ChannelsLastBuilder(Graph.empty([])).constant(array, name)


def _run(
    node: TensorflowNode, tensors: Sequence[LayoutTensor], name: str, effort: Effort
) -> list[LayoutTensor] | None:
    """The rule's own ops, run by the float engine."""
    from npuc.engine import FloatEngine

    translate = find_rule(node.op)
    if translate is None:
        return None
    part = Graph.empty([])
    builder = ChannelsLastBuilder(part)
    builder.first = name
    outcome = translate(TensorflowContext(node, tensors, builder))
    several = list(outcome) if isinstance(outcome, list | tuple) else [outcome]
    outputs = [
        item if isinstance(item, LayoutTensor) else builder.constant(np.asarray(item), name)
        for item in several
    ]
    if any(not x.is_static or prod(x.shape) * x.dtype.itemsize > _LIMIT for x in outputs):
        return None
    if not effort.allows(_RUN + 4 * sum(prod(x.shape) * x.dtype.itemsize for x in outputs)):
        return None
    pending = [index for index, x in enumerate(outputs) if x.weight is None]
    if pending:
        ports = [(str(index), builder.value(outputs[index])) for index in pending]
        builder.finish_layer([], [])
        part.set_outputs(ports)
        try:
            values = FloatEngine(part, threads=1).run({})
        except NpucError:  # an index beyond its axis, say: whoever runs the network will be told
            return None
        for index in pending:
            outputs[index] = builder.constant(np.asarray(values[str(index)]), name)
    return outputs
