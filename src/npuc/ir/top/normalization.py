"""Normalization. Variances are biased (divided by the count); scale and bias may be absent."""

from npuc.ir.definition import (
    AttrSizedOperandSegments,
    TopOp,
    boolean,
    integer,
    normal_axis,
    number,
    operand,
    optional_operand,
    require,
    shape_of,
    top_op,
)
from npuc.ir.top.elementwise import Unary


def _per_channel(op: TopOp, *values: object) -> None:
    channels = shape_of(op.operands[0])[1]
    for value in values:
        if value is not None:
            require(shape_of(value) == (channels,), f"parameters must have shape [{channels}]")


@top_op
class BatchNorm(Unary):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, a channel (axis 1)"""

    name = "top.batch_norm"
    scale = operand()
    bias = operand()
    mean = operand()
    variance = operand()
    epsilon: float = number(1e-5)

    def check(self) -> None:
        """Parameters are per channel."""
        require(len(shape_of(self.x)) >= 2, "the input has no channel axis")
        _per_channel(self, self.scale, self.bias, self.mean, self.variance)


@top_op
class Scale(Unary):
    """x * scale + bias, a channel (axis 1); relu is fused."""

    name = "top.scale"
    scale = operand()
    bias = operand()
    relu: bool = boolean(False)
    relu_limit: float = number(0.0)

    def check(self) -> None:
        """Parameters are per channel."""
        require(len(shape_of(self.x)) >= 2, "the input has no channel axis")
        _per_channel(self, self.scale, self.bias)


class AffineNorm(Unary):
    """A normalization with optional scale and bias."""

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    scale = optional_operand()
    bias = optional_operand()
    epsilon: float = number(1e-5)


@top_op
class LayerNorm(AffineNorm):
    """Zero mean and unit variance over the axes from `axis` on; scale and bias have those axes' shape."""

    name = "top.layer_norm"
    axis: int = integer(-1)

    def check(self) -> None:
        """Scale and bias cover the normalized axes."""
        shape = shape_of(self.x)
        inner = shape[normal_axis(self.axis, len(shape)) :]
        for value in (self.scale, self.bias):
            require(
                value is None or shape_of(value) == inner, f"scale and bias must have shape {list(inner)}"
            )


@top_op
class RMSNorm(AffineNorm):
    """x / sqrt(mean(x^2) + epsilon) * scale over the axes from `axis` on."""

    name = "top.rms_norm"
    axis: int = integer(-1)

    check = LayerNorm.check


@top_op
class InstanceNorm(AffineNorm):
    """Zero mean and unit variance over the spatial axes; scale and bias per channel."""

    name = "top.instance_norm"

    def check(self) -> None:
        """Parameters are per channel."""
        require(len(shape_of(self.x)) >= 3, "the input has no spatial axis")
        _per_channel(self, self.scale, self.bias)


@top_op
class GroupNorm(AffineNorm):
    """Zero mean and unit variance over spatial axes and the channels of a group; scale and bias per channel."""

    name = "top.group_norm"
    groups: int = integer()

    def check(self) -> None:
        """Groups divide the channels."""
        shape = shape_of(self.x)
        require(len(shape) >= 2, "the input has no channel axis")
        require(
            self.groups >= 1 and shape[1] % self.groups == 0, f"{shape[1]} channels in {self.groups} groups"
        )
        _per_channel(self, self.scale, self.bias)


@top_op
class L2Norm(Unary):
    """x / max(sqrt(sum(x^2)), epsilon) along `axis`; zeros stay zeros"""

    name = "top.l2_norm"
    axis: int = integer(-1)
    epsilon: float = number(0.0)

    def check(self) -> None:
        """The axis exists."""
        normal_axis(self.axis, len(shape_of(self.x)))


@top_op
class LRN(Unary):
    """x / (bias + alpha / size * sum of squares over `size` neighbouring channels)^beta"""

    name = "top.lrn"
    size: int = integer()
    alpha: float = number(0.0001)
    beta: float = number(0.75)
    bias: float = number(1.0)

    def check(self) -> None:
        """A window of channels."""
        require(self.size >= 1 and len(shape_of(self.x)) >= 2, "needs a positive size and a channel axis")


__all__ = [
    "LRN",
    "BatchNorm",
    "GroupNorm",
    "InstanceNorm",
    "L2Norm",
    "LayerNorm",
    "RMSNorm",
    "Scale",
]
