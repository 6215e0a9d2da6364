"""Activation functions, elementwise and along an axis; an elementwise one has its formula above it (`functions`)."""

import math
from collections.abc import Sequence

from xdsl.ir import Attribute

from npuc.arithmetic.functions import gelu, gelu_in_f64, sigmoid, softplus
from npuc.ir.definition import (
    TopOp,
    boolean,
    broadcast,
    integer,
    normal_axis,
    number,
    operand,
    require,
    result,
    shape_of,
    top_op,
)
from npuc.ir.top.elementwise import Unary
from npuc.ir.top.functions import function


@function(lambda op, x, xp: xp.clip(x, 0, op.limit if op.limit > 0 else math.inf), constants=("limit",))
class Relu(Unary):
    """max(x, 0), and at most `limit` where that is positive."""

    name = "top.relu"
    limit: float = number(0.0)


@function(
    lambda op, x, xp: xp.where(x >= 0, x, op.alpha * x),
    onnx="LeakyRelu",
    tflite="LEAKY_RELU",
    constants=("alpha",),
)
class LeakyRelu(Unary):
    """x if x >= 0 else alpha * x"""

    name = "top.leaky_relu"
    alpha: float = number(0.01)


@top_op
class PRelu(TopOp):
    """x if x >= 0 else slope * x, the slope broadcast to x."""

    name = "top.prelu"
    x = operand()
    slope = operand()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The type of x."""
        require(
            broadcast(shape_of(self.x), shape_of(self.slope)) == shape_of(self.x),
            "the slope does not broadcast to x",
        )
        return [self.x.type]


@function(lambda op, x, xp: xp.where(x > op.alpha, x, 0.0), continuous=False, onnx="ThresholdedRelu")
class ThresholdedRelu(Unary):
    """x if x > alpha else 0"""

    name = "top.thresholded_relu"
    alpha: float = number(1.0)


@function(lambda op, x, xp: xp.clip(x, op.min, op.max))
class Clip(Unary):
    """x limited to [min, max]; an infinite bound is no bound."""

    name = "top.clip"
    min: float = number()
    max: float = number()


@function(
    lambda op, x, xp: xp.where(x >= 0, x, op.alpha * xp.expm1(xp.clip(x, None, 0))), onnx="Elu", tflite="ELU"
)
class Elu(Unary):
    """x if x >= 0 else alpha * (e^x - 1)"""

    name = "top.elu"
    alpha: float = number(1.0)


@function(
    lambda op, x, xp: (
        xp.clip(x, 0, None) + xp.clip(op.alpha * xp.expm1(xp.clip(x, None, 0) / op.alpha), None, 0)
    ),
    onnx="Celu",
)
class Celu(Unary):
    """max(0, x) + min(0, alpha * (e^(x / alpha) - 1))"""

    name = "top.celu"
    alpha: float = number(1.0)


@function(
    lambda op, x, xp: op.gamma * xp.where(x > 0, x, op.alpha * xp.expm1(xp.clip(x, None, 0))), onnx="Selu"
)
class Selu(Unary):
    """gamma * (x if x > 0 else alpha * (e^x - 1))"""

    name = "top.selu"
    alpha: float = number(1.67326319217681884765625)
    gamma: float = number(1.05070102214813232421875)


@function(lambda op, x, xp: sigmoid(x, xp), onnx="Sigmoid", tflite="LOGISTIC")
class Sigmoid(Unary):
    """1 / (1 + e^-x)"""

    name = "top.sigmoid"


@function(lambda op, x, xp: xp.clip(op.alpha * x + op.beta, 0, 1), onnx="HardSigmoid")
class HardSigmoid(Unary):
    """min(1, max(0, alpha * x + beta))"""

    name = "top.hard_sigmoid"
    alpha: float = number(0.2)
    beta: float = number(0.5)


@function(lambda op, x, xp: xp.tanh(x), onnx="Tanh", tflite="TANH")
class Tanh(Unary):
    """hyperbolic tangent"""

    name = "top.tanh"


@function(lambda op, x, xp: x * sigmoid(x, xp))
class SiLU(Unary):
    """x * sigmoid(x)"""

    name = "top.silu"


@function(lambda op, x, xp: x * xp.clip(x / 6 + 0.5, 0, 1), onnx="HardSwish", tflite="HARD_SWISH")
class HardSwish(Unary):
    """x * min(1, max(0, x / 6 + 1/2))"""

    name = "top.hard_swish"


@function(
    lambda op, x, xp: gelu(x, op.tanh, xp), exact=lambda op, x, xp: gelu_in_f64(x, op.tanh), tflite="GELU"
)
class Gelu(Unary):
    """x * Phi(x), exact or by the tanh approximation"""

    name = "top.gelu"
    tanh: bool = boolean(False)


@function(lambda op, x, xp: x * xp.tanh(softplus(x, xp)), onnx="Mish")
class Mish(Unary):
    """x * tanh(softplus(x))"""

    name = "top.mish"


@function(lambda op, x, xp: softplus(x, xp), onnx="Softplus")
class Softplus(Unary):
    """log(1 + e^x)"""

    name = "top.softplus"


@function(lambda op, x, xp: x / (1 + xp.abs(x)), onnx="Softsign")
class Softsign(Unary):
    """x / (1 + |x|)"""

    name = "top.softsign"


class AlongAxis(Unary):
    """A function of the values along one axis."""

    axis: int = integer(-1)

    def check(self) -> None:
        """The axis exists."""
        normal_axis(self.axis, len(shape_of(self.x)))


@top_op
class Softmax(AlongAxis):
    """e^x / sum(e^x) along `axis`"""

    name = "top.softmax"


@top_op
class LogSoftmax(AlongAxis):
    """log(softmax(x)) along `axis`"""

    name = "top.log_softmax"
