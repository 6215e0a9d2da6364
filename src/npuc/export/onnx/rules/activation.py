"""Activation functions."""

from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.registry import exports
from npuc.export.onnx.relu import emit_clip, emit_relu
from npuc.ir import dtype_of, top
from npuc.ir.definition import TopOp
from npuc.ir.top.functions import FUNCTIONS

_OWN_RULES = (top.Celu,)
"""Functions that ONNX has, but not for every element type."""
_SAME = {kind: record for kind, record in FUNCTIONS.items() if record.onnx and kind not in _OWN_RULES}


@exports(*_SAME)
def same(op: TopOp, emit: Emitter) -> None:
    """One node of the same meaning, by the name in the record of the function."""
    record = _SAME[type(op)]
    attributes = {record.onnx_names.get(key, key): value for key, value in op.native_properties().items()}
    emit(record.onnx, *op.operands, to=op.results[0], **attributes)


@exports(top.PRelu, top.Softmax, top.LogSoftmax)
def of_more_than_a_value(op: TopOp, emit: Emitter) -> None:
    """ONNX has them under the same names."""
    emit(type(op).__name__, *op.operands, to=op.results[0], **op.native_properties())


@exports(top.Relu)
def relu(op: top.Relu, emit: Emitter) -> None:
    """Relu, or Clip if it is limited."""
    emit_relu(emit, op.x, op.y, op.limit)


@exports(top.Clip)
def clip(op: top.Clip, emit: Emitter) -> None:
    """Clip with the bounds that are finite."""
    emit_clip(emit, op.x, op.y, op.min, op.max)


@exports(top.SiLU)
def silu(op: top.SiLU, emit: Emitter) -> None:
    """x * sigmoid(x)."""
    emit("Mul", op.x, emit("Sigmoid", op.x), to=op.y)


@exports(top.Gelu)
def gelu(op: top.Gelu, emit: Emitter) -> None:
    """Gelu, exact or by tanh."""
    emit("Gelu", op.x, to=op.y, approximate="tanh" if op.tanh else "none")


@exports(top.Celu)
def celu(op: top.Celu, emit: Emitter) -> None:
    """ONNX knows Celu for float only; other types take a way round."""
    dtype = dtype_of(op.x.type)
    if dtype.name == "f32":
        emit("Celu", op.x, to=op.y, alpha=op.alpha)
    else:
        emit.cast(emit("Celu", emit.cast(op.x, dtype_of("f32")), alpha=op.alpha), dtype, to=op.y)
