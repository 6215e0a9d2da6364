"""What rewrite patterns have in common: asking about values, and putting new ops in place of old ones.

A pattern derives from `GraphPattern`, which holds the graph (constants are looked up there). Helpers that ask take
values and answer None or False when a value is not what was hoped for; helpers that change take the rewriter, so that
the walker hears of it. The rule of names: an op that computes an old value takes over its `location`; a value that the
original network did not have is called `<layer's result>/<what>` (see `derived`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, OpResult, SSAValue

from npuc.arithmetic.dtypes import DType
from npuc.arrays import Array
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import dtype_of, is_static, shape_of
from npuc.ir.graph import Graph
from npuc.ir.names import Location, layer_name, location, value_name
from npuc.ir.passes import PatternRewriter, RewritePattern
from npuc.ir.top import WeightOp

OpT = TypeVar("OpT", bound=Operation)


@dataclass(eq=False)
class GraphPattern(RewritePattern):
    """A rewrite pattern that knows the graph it works on."""

    graph: Graph


# Asking about values


def producer(value: SSAValue | None, kind: type[OpT]) -> OpT | None:
    """The op that computes a value, if it is of a kind.

    >>> producer(None, Operation) is None
    True
    """
    if isinstance(value, OpResult) and isinstance(value.op, kind):
        return value.op
    return None


def sole_producer(value: SSAValue | None, kind: type[OpT]) -> OpT | None:
    """The op that computes a value, if it is of a kind, has one result, and nothing else uses that."""
    op = producer(value, kind)
    return op if op is not None and len(op.results) == 1 and has_one_use(op.results[0]) else None


def has_one_use(value: SSAValue) -> bool:
    """True if exactly one operand of one op (perhaps the return) is this value."""
    return value.has_one_use()


def users(value: SSAValue) -> list[Operation]:
    """All ops that use a value (the return too), each once."""
    return list(dict.fromkeys(use.operation for use in value.uses))


def is_output(value: SSAValue) -> bool:
    """True if the value is an output of the graph."""
    return any(isinstance(use.operation, ReturnOp) for use in value.uses)


def is_float(value: SSAValue) -> bool:
    """True if the value is a static tensor of floating-point numbers: the only kind that arithmetic may rewrite."""
    return is_static(value) and dtype(value).is_float


def dtype(value: SSAValue) -> DType:
    """The element type of a value."""
    return dtype_of(value.type)


def size_of(value: SSAValue) -> int:
    """The number of elements of a static value."""
    count = 1
    for n in shape_of(value):
        count *= n
    return count


# Constants


def scalar(graph: Graph, value: SSAValue | None) -> float | None:
    """The number that a constant of one element holds (whatever its rank); None if it is none."""
    if producer(value, WeightOp) is None:
        return None
    array = graph.constant(value)
    return (
        float(array.reshape(-1)[0])
        if array is not None and array.size == 1 and array.dtype.kind != "O"
        else None
    )


def uniform(graph: Graph, value: SSAValue | None) -> float | None:
    """The number that every element of a constant is; None if they differ or it is not constant.

    Only small constants are looked through, so that asking costs little.
    """
    if producer(value, WeightOp) is None or value is None or not 0 < size_of(value) <= 1 << 16:
        return None
    array = graph.constant(value)
    if array is None or array.dtype.kind == "O":
        return None
    first = array.reshape(-1)[0]
    return float(first) if bool(np.all(array == first)) else None


def exact(graph: Graph, value: SSAValue | None) -> Array | None:
    """The values of a float constant in double precision, in which folds are computed before one final rounding."""
    array = graph.constant(value)
    if array is None or value is None or not dtype(value).is_float:
        return None
    return array.astype(np.float64)


def commuted(graph: Graph, op: Operation) -> tuple[SSAValue, SSAValue] | None:
    """(other operand, constant) of a binary op of which exactly one operand is a constant."""
    a, b = op.operands[0], op.operands[1]
    constant_a, constant_b = producer(a, WeightOp) is not None, producer(b, WeightOp) is not None
    if constant_a == constant_b:
        return None
    return (b, a) if constant_a else (a, b)


def scalar_operand(graph: Graph, op: Operation) -> tuple[SSAValue, float] | None:
    """(other operand, number) of a commutative binary op with a constant that is one number and changes no shape."""
    operands = commuted(graph, op)
    if operands is None:
        return None
    other, constant = operands
    number = uniform(graph, constant)
    if number is None or not is_static(other) or shape_of(other) != shape_of(op.results[0]):
        return None
    return other, number


def per_axis(array: Array, shape: Sequence[int], axis: int) -> Array | None:
    """A constant that broadcasts to `shape` and varies along `axis` alone, as a vector of that axis' size.

    >>> per_axis(np.ones((4, 1, 1)), (2, 4, 5, 5), 1).shape
    (4,)
    >>> per_axis(np.ones((5,)), (2, 4, 5, 5), 1) is None
    True
    """
    if array.ndim > len(shape):
        return None
    axis %= len(shape)
    full = (1,) * (len(shape) - array.ndim) + array.shape
    if any(n != 1 and i != axis for i, n in enumerate(full)) or full[axis] not in (1, shape[axis]):
        return None
    return np.broadcast_to(array.reshape(-1), (shape[axis],))


# Changing the graph


def derived(value: SSAValue, what: str) -> str:
    """A name for a value that has no counterpart in the original network."""
    return f"{value_name(value) or 'value'}/{what}"


def derived_location(op: Operation, what: str) -> Location:
    """The location of a new intermediate op that belongs to the layer of `op`."""
    return location(derived(op.results[0], what), layer_name(op) or None)


def insert(rewriter: PatternRewriter, op: OpT) -> OpT:
    """Insert an op before the matched one and return it."""
    rewriter.insert(op)
    return op


def insert_part(
    rewriter: PatternRewriter,
    op: Operation,
    what: str,
    op_class: type[TopOp],
    /,
    *values: SSAValue | Sequence[SSAValue] | None,
    **properties: Any,
) -> SSAValue:
    """Insert an intermediate op of the layer of `op` before it, called `<its result>/<what>`; the (first) result."""
    return insert(rewriter, op_class.make(*values, loc=derived_location(op, what), **properties)).results[0]


def insert_weight(
    graph: Graph, rewriter: PatternRewriter, name: str, array: Array, like: Any = None
) -> SSAValue:
    """Store a constant, insert its `top.weight` before the matched op, and return its value.

    `like` is anything that has an element type (a value, a type, its name); the array is rounded to it.
    """
    if like is not None:
        array = array.astype(dtype_of(like.type if isinstance(like, SSAValue) else like).numpy)
    return insert(rewriter, graph.add_weight(name, array)).results[0]


def replace(rewriter: PatternRewriter, op: Operation, new: TopOp) -> None:
    """Put `new` in the place of `op`; it takes over the location, and so the names, of the op it stands for."""
    new.location = op.location
    rewriter.replace(op, new)


def remake(op: TopOp, *values: SSAValue | Sequence[SSAValue] | None, **properties: Any) -> TopOp:
    """The same op on other operands, with some properties changed; names stay."""
    merged = {key: value for key, value in op.native_properties().items() if key != "operandSegmentSizes"}
    return type(op).make(*values, loc=op.location, **{**merged, **properties})


def set_properties(rewriter: PatternRewriter, op: TopOp, **properties: Any) -> None:
    """Change properties of an op that do not change its result types."""
    from npuc.ir.attributes import to_attribute

    for key, value in properties.items():
        op.properties[key] = to_attribute(value)
    rewriter.notify_op_modified(op)


def replace_with_value(
    rewriter: PatternRewriter, op: Operation, values: SSAValue | Sequence[SSAValue]
) -> None:
    """Let values that exist already stand for the results of `op`.

    A graph output keeps its name: the op that computes it now is renamed, unless it computes an output itself.
    """
    values = (values,) if isinstance(values, SSAValue) else tuple(values)
    for old, new in zip(op.results, values, strict=True):
        if is_output(old):
            take_name(old, new)
    rewriter.replace(op, [], list(values))


def take_name(old: SSAValue, new: SSAValue) -> None:
    """Give `new` the name of `old`, a graph output of the same value, where nothing else needs its own."""
    if (
        not isinstance(new, OpResult)
        or isinstance(new.op, WeightOp)
        or is_output(new)
        or len(new.op.results) != 1
    ):
        return
    if isinstance(old, OpResult) and value_name(old):
        layer = layer_name(new.op)
        name = value_name(old)
        new.op.location = cast(Any, location(name, layer if layer != value_name(new) else layer_name(old.op)))


def activation_of(op: Operation) -> dict[str, Any]:
    """The fused relu of an op as properties; empty if it has none."""
    if getattr(op, "relu", False):
        return {"relu": True, "relu_limit": cast(Any, op).relu_limit}
    return {}


def has_relu(op: Operation) -> bool:
    """True if a relu is fused into the op."""
    return bool(getattr(op, "relu", False))


__all__ = [
    "Array",
    "GraphPattern",
    "activation_of",
    "commuted",
    "derived",
    "derived_location",
    "dtype",
    "exact",
    "has_one_use",
    "has_relu",
    "insert",
    "insert_part",
    "insert_weight",
    "is_float",
    "is_output",
    "per_axis",
    "producer",
    "remake",
    "replace",
    "replace_with_value",
    "scalar",
    "scalar_operand",
    "set_properties",
    "size_of",
    "sole_producer",
    "take_name",
    "uniform",
    "users",
]
