"""Elementwise arithmetic: functions of one value, and of two under NumPy's broadcasting."""

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.ir import Attribute

from npuc.arithmetic.functions import above, between, erf, not_zero
from npuc.ir.definition import (
    TopOp,
    boolean,
    broadcast,
    number,
    operand,
    require,
    result,
    shape_of,
    text,
    top_op,
)
from npuc.ir.dtypes import dtype_of, element_of, tensor_type
from npuc.ir.top.functions import function


class Unary(TopOp):
    """y[i] = f(x[i]): same shape, same type."""

    x = operand()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The type of the operand."""
        return [self.x.type]


class Binary(TopOp):
    """y[i] = f(a[i], b[i]) under broadcasting: same element type."""

    a = operand()
    b = operand()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The broadcast shape."""
        return [tensor_type(broadcast(shape_of(self.a), shape_of(self.b)), element_of(self.a))]

    def check(self) -> None:
        """Both operands have the same element type."""
        require(element_of(self.a) == element_of(self.b), "operands have different element types")


class FusedBinary(Binary):
    """A binary op with a fused relu: `relu_limit` > 0 is its upper limit."""

    relu: bool = boolean(False)
    relu_limit: float = number(0.0)


@top_op
class Add(FusedBinary):
    """a + b"""

    name = "top.add"


@top_op
class Sub(FusedBinary):
    """a - b"""

    name = "top.sub"


@top_op
class Mul(FusedBinary):
    """a * b"""

    name = "top.mul"


@top_op
class Div(Binary):
    """a / b; integers truncate."""

    name = "top.div"


@top_op
class Max(Binary):
    """max(a, b)"""

    name = "top.max"


@top_op
class Min(Binary):
    """min(a, b)"""

    name = "top.min"


@top_op
class Mod(Binary):
    """The remainder of a / b: with the sign of b, or of a (`fmod`)."""

    name = "top.mod"
    fmod: bool = boolean(False)


@top_op
class Pow(Binary):
    """a to the power of b; the exponent may have a type of its own."""

    name = "top.pow"

    def check(self) -> None:
        """Any pair of element types."""


@top_op
class Compare(Binary):
    """a <mode> b as booleans; `mode` is equal, less, less_equal, greater or greater_equal."""

    name = "top.compare"
    mode: str = text()

    def infer(self) -> Sequence[Attribute]:
        """Booleans of the broadcast shape."""
        return [tensor_type(broadcast(shape_of(self.a), shape_of(self.b)), "i1")]

    def check(self) -> None:
        """A known mode."""
        super().check()
        modes = ("equal", "less", "less_equal", "greater", "greater_equal")
        require(self.mode in modes, f"mode '{self.mode}' is not one of {', '.join(modes)}")


@top_op
class Logical(Binary):
    """a <mode> b on booleans; `mode` is and, or, xor."""

    name = "top.logical"
    mode: str = text()

    def check(self) -> None:
        """A known mode."""
        super().check()
        require(self.mode in ("and", "or", "xor"), f"mode '{self.mode}' is not and, or, xor")


@top_op
class Not(Unary):
    """not x, on booleans"""

    name = "top.not"


@top_op
class Where(TopOp):
    """condition ? a : b under broadcasting."""

    name = "top.where"
    condition = operand()
    a = operand()
    b = operand()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The broadcast shape of all three."""
        shape = broadcast(shape_of(self.condition), shape_of(self.a), shape_of(self.b))
        return [tensor_type(shape, dtype_of(self.a.type))]


@top_op
class Cast(TopOp):
    """x with its elements converted to the type `to`."""

    name = "top.cast"
    x = operand()
    to: str = text()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The same shape in the new type."""
        return [tensor_type(shape_of(self.x), self.to)]


def _unary(name: str, words: str, formula: Callable[[Any, Any], Any], **facts: Any) -> type[Unary]:
    """A function without parameters, which ONNX has under the name of the op if nothing else is said."""
    body = {"name": f"top.{name.lower()}", "__doc__": words, "__module__": __name__, "__qualname__": name}
    facts = {"onnx": name, **facts}
    return function(lambda op, x, xp: formula(x, xp), **facts)(type(name, (Unary,), body))


_JUMPS: dict[str, Any] = {"continuous": False}
_POSITIVE, _UNIT = above(1e-30), between(-1, 1)

Abs = _unary("Abs", "|x|", lambda x, xp: xp.abs(x), tflite="ABS")
Neg = _unary("Neg", "-x", lambda x, xp: -x, tflite="NEG")
Sign = _unary("Sign", "-1, 0 or 1", lambda x, xp: xp.sign(x), **_JUMPS)
Exp = _unary("Exp", "e^x", lambda x, xp: xp.exp(x), tflite="EXP")
Log = _unary("Log", "the natural logarithm of x", lambda x, xp: xp.log(x), domain=_POSITIVE, tflite="LOG")
Sqrt = _unary("Sqrt", "the square root of x", lambda x, xp: xp.sqrt(x), domain=above(0), tflite="SQRT")
Rsqrt = _unary(
    "Rsqrt", "1 / sqrt(x)", lambda x, xp: 1 / xp.sqrt(x), domain=_POSITIVE, onnx="", tflite="RSQRT"
)
Reciprocal = _unary("Reciprocal", "1 / x", lambda x, xp: 1 / x, domain=not_zero)
Floor = _unary(
    "Floor", "the largest integer that is not above x", lambda x, xp: xp.floor(x), tflite="FLOOR", **_JUMPS
)
Ceil = _unary(
    "Ceil", "the smallest integer that is not below x", lambda x, xp: xp.ceil(x), tflite="CEIL", **_JUMPS
)
Round = _unary(
    "Round",
    "x rounded to the nearest integer, ties to even",
    lambda x, xp: xp.round(x),
    tflite="ROUND",
    **_JUMPS,
)
Erf = _unary("Erf", "the error function of x", erf)
Sin = _unary("Sin", "sine", lambda x, xp: xp.sin(x), tflite="SIN")
Cos = _unary("Cos", "cosine", lambda x, xp: xp.cos(x), tflite="COS")
Tan = _unary("Tan", "tangent", lambda x, xp: xp.tan(x))
Asin = _unary("Asin", "arc sine", lambda x, xp: xp.arcsin(x), domain=_UNIT)
Acos = _unary("Acos", "arc cosine", lambda x, xp: xp.arccos(x), domain=_UNIT)
Atan = _unary("Atan", "arc tangent", lambda x, xp: xp.arctan(x))
Sinh = _unary("Sinh", "hyperbolic sine", lambda x, xp: xp.sinh(x))
Cosh = _unary("Cosh", "hyperbolic cosine", lambda x, xp: xp.cosh(x))
Asinh = _unary("Asinh", "inverse hyperbolic sine", lambda x, xp: xp.arcsinh(x))
Acosh = _unary("Acosh", "inverse hyperbolic cosine", lambda x, xp: xp.arccosh(x), domain=above(1))
Atanh = _unary(
    "Atanh",
    "inverse hyperbolic tangent",
    lambda x, xp: xp.arctanh(x),
    domain=between(-1 + 1e-12, 1 - 1e-12),
)
