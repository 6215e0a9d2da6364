"""Elementwise arithmetic."""

from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.registry import exports
from npuc.export.onnx.relu import finish_relu, unless_relu
from npuc.ir import dtype_of, top
from npuc.ir.definition import TopOp

# Ops that ONNX has under a name of its own, with no parameters.
_SAME: dict[type[TopOp], str] = {
    top.Div: "Div",
    top.Max: "Max",
    top.Min: "Min",
    top.Pow: "Pow",
    top.Not: "Not",
    top.Where: "Where",
}
_COMPARE = {
    "equal": "Equal",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
}
_LOGICAL = {"and": "And", "or": "Or", "xor": "Xor"}


@exports(*_SAME)
def same(op: TopOp, emit: Emitter) -> None:
    """One node of the same meaning."""
    emit(_SAME[type(op)], *op.operands, to=op.results[0])


@exports(top.Add, top.Sub, top.Mul)
def fused(op: top.Add | top.Sub | top.Mul, emit: Emitter) -> None:
    """The arithmetic, then the fused relu."""
    op_type = {top.Add: "Add", top.Sub: "Sub", top.Mul: "Mul"}[type(op)]
    finish_relu(op, emit, emit(op_type, op.a, op.b, to=unless_relu(op)))


@exports(top.Rsqrt)
def rsqrt(op: top.Unary, emit: Emitter) -> None:
    """Reciprocal of the root."""
    emit("Reciprocal", emit("Sqrt", op.x), to=op.y)


@exports(top.Mod)
def mod(op: top.Mod, emit: Emitter) -> None:
    """ONNX's Mod of floats has only the sign of a; the other is a - b * floor(a / b)."""
    if dtype_of(op.a.type).is_float and not op.fmod:
        emit("Sub", op.a, emit("Mul", op.b, emit("Floor", emit("Div", op.a, op.b))), to=op.y)
    else:
        emit("Mod", op.a, op.b, to=op.y, fmod=int(op.fmod))


@exports(top.Compare)
def compare(op: top.Compare, emit: Emitter) -> None:
    """A node a mode."""
    emit(_COMPARE[op.mode], op.a, op.b, to=op.y)


@exports(top.Logical)
def logical(op: top.Logical, emit: Emitter) -> None:
    """A node a mode."""
    emit(_LOGICAL[op.mode], op.a, op.b, to=op.y)


@exports(top.Cast)
def cast(op: top.Cast, emit: Emitter) -> None:
    """Cast."""
    emit.cast(op.x, dtype_of(op.to), to=op.y)
