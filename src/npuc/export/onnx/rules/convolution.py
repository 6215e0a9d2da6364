"""Convolution and its transpose."""

from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.registry import exports
from npuc.export.onnx.relu import finish_relu, unless_relu
from npuc.ir import shape_of, top


@exports(top.Conv, top.Deconv)
def convolution(op: top.Conv | top.Deconv, emit: Emitter) -> None:
    """Conv or ConvTranspose, then the fused relu."""
    padding = op.output_padding if isinstance(op, top.Deconv) else ()
    raw = emit(
        "ConvTranspose" if isinstance(op, top.Deconv) else "Conv",
        op.x,
        op.weight,
        op.bias,
        to=unless_relu(op),
        kernel_shape=shape_of(op.weight)[2:],
        strides=op.strides,
        pads=op.pads,
        dilations=op.dilations,
        group=op.group,
        output_padding=padding if any(padding) else None,
    )
    finish_relu(op, emit, raw)
