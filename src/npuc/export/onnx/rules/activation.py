"""Activation functions."""

from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.registry import exports
from npuc.export.onnx.relu import emit_clip, emit_relu
from npuc.ir import dtype_of, top
from npuc.ir.definition import TopOp

# Ops that ONNX has with the same parameters under the same names.
_SAME: dict[type[TopOp], str] = {
    top.LeakyRelu: "LeakyRelu",
    top.PRelu: "PRelu",
    top.ThresholdedRelu: "ThresholdedRelu",
    top.Elu: "Elu",
    top.Selu: "Selu",
    top.Sigmoid: "Sigmoid",
    top.HardSigmoid: "HardSigmoid",
    top.Tanh: "Tanh",
    top.HardSwish: "HardSwish",
    top.Mish: "Mish",
    top.Softplus: "Softplus",
    top.Softsign: "Softsign",
    top.Softmax: "Softmax",
    top.LogSoftmax: "LogSoftmax",
}


@exports(*_SAME)
def same(op: TopOp, emit: Emitter) -> None:
    """One node of the same meaning."""
    emit(_SAME[type(op)], *op.operands, to=op.results[0], **op.native_properties())


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
