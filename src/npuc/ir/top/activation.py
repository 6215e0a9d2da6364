"""Activation functions, elementwise and along an axis."""

from collections.abc import Sequence

from xdsl.ir import Attribute

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


@top_op
class Relu(Unary):
    """max(x, 0), and at most `limit` where that is positive."""

    name = "top.relu"
    limit: float = number(0.0)


@top_op
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


@top_op
class ThresholdedRelu(Unary):
    """x if x > alpha else 0"""

    name = "top.thresholded_relu"
    alpha: float = number(1.0)


@top_op
class Clip(Unary):
    """x limited to [min, max]; an infinite bound is no bound."""

    name = "top.clip"
    min: float = number()
    max: float = number()


@top_op
class Elu(Unary):
    """x if x >= 0 else alpha * (e^x - 1)"""

    name = "top.elu"
    alpha: float = number(1.0)


@top_op
class Celu(Unary):
    """max(0, x) + min(0, alpha * (e^(x / alpha) - 1))"""

    name = "top.celu"
    alpha: float = number(1.0)


@top_op
class Selu(Unary):
    """gamma * (x if x > 0 else alpha * (e^x - 1))"""

    name = "top.selu"
    alpha: float = number(1.67326319217681884765625)
    gamma: float = number(1.05070102214813232421875)


@top_op
class Sigmoid(Unary):
    """1 / (1 + e^-x)"""

    name = "top.sigmoid"


@top_op
class HardSigmoid(Unary):
    """min(1, max(0, alpha * x + beta))"""

    name = "top.hard_sigmoid"
    alpha: float = number(0.2)
    beta: float = number(0.5)


@top_op
class Tanh(Unary):
    """hyperbolic tangent"""

    name = "top.tanh"


@top_op
class SiLU(Unary):
    """x * sigmoid(x)"""

    name = "top.silu"


@top_op
class HardSwish(Unary):
    """x * min(1, max(0, x / 6 + 1/2))"""

    name = "top.hard_swish"


@top_op
class Gelu(Unary):
    """x * Phi(x), exact or by the tanh approximation"""

    name = "top.gelu"
    tanh: bool = boolean(False)


@top_op
class Mish(Unary):
    """x * tanh(softplus(x))"""

    name = "top.mish"


@top_op
class Softplus(Unary):
    """log(1 + e^x)"""

    name = "top.softplus"


@top_op
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
