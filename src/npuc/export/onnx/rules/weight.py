"""Constants: `model` declares their initializers before any rule runs."""

from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.registry import exports
from npuc.ir import top


@exports(top.WeightOp)
def weight(op: top.WeightOp, emit: Emitter) -> None:
    """An initializer."""
    if not emit.bound(op.output):
        emit.bind(op.output, emit.weight(op.ref))
