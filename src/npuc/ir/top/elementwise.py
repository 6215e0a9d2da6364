"""Elementwise arithmetic: functions of one value, and of two under NumPy's broadcasting."""

from collections.abc import Sequence

from xdsl.ir import Attribute

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


@top_op
class Round(Unary):
    """x rounded to the nearest integer, ties to even"""

    name = "top.round"


def _unary(name: str, formula: str) -> type[Unary]:
    body = {"name": f"top.{name.lower()}", "__doc__": formula, "__module__": __name__, "__qualname__": name}
    return top_op(type(name, (Unary,), body))


Abs = _unary("Abs", "|x|")
Neg = _unary("Neg", "-x")
Sign = _unary("Sign", "-1, 0 or 1")
Exp = _unary("Exp", "e^x")
Log = _unary("Log", "the natural logarithm of x")
Sqrt = _unary("Sqrt", "the square root of x")
Rsqrt = _unary("Rsqrt", "1 / sqrt(x)")
Reciprocal = _unary("Reciprocal", "1 / x")
Floor = _unary("Floor", "the largest integer that is not above x")
Ceil = _unary("Ceil", "the smallest integer that is not below x")
Erf = _unary("Erf", "the error function of x")
Sin = _unary("Sin", "sine")
Cos = _unary("Cos", "cosine")
Tan = _unary("Tan", "tangent")
Asin = _unary("Asin", "arc sine")
Acos = _unary("Acos", "arc cosine")
Atan = _unary("Atan", "arc tangent")
Sinh = _unary("Sinh", "hyperbolic sine")
Cosh = _unary("Cosh", "hyperbolic cosine")
Asinh = _unary("Asinh", "inverse hyperbolic sine")
Acosh = _unary("Acosh", "inverse hyperbolic cosine")
Atanh = _unary("Atanh", "inverse hyperbolic tangent")
