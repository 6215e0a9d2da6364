"""Element by element: functions of one and of two elements, choices, casts and the two conversions."""

from __future__ import annotations

from functools import partial

import numpy as np

from npuc.codegen.host_ops.builder import Builder, HostTensor, kind, numpy_type, real
from npuc.codegen.host_ops.rules import RULES, Node, NoHostOperator, axis_of, host_rule

_PLAIN = {
    "Abs": "abs", "Neg": "neg", "Sign": "sign", "Ceil": "ceil", "Floor": "floor", "Round": "round", "Sqrt": "sqrt",
    "Reciprocal": "reciprocal", "Exp": "exp", "Log": "log", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin",
    "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh",
    "Atanh": "atanh", "Erf": "erf", "Relu": "relu", "Sigmoid": "sigmoid", "HardSwish": "hard_swish", "Softplus": "softplus",
    "Softsign": "softsign", "Mish": "mish", "Not": "not", "BitwiseNot": "bitwise_not", "IsNaN": "is_nan",
}  # fmt: skip
_WITH_PARAMETERS = {
    "LeakyRelu": ("leaky_relu", (("alpha", 0.01),)),
    "ThresholdedRelu": ("thresholded_relu", (("alpha", 1.0),)),
    "Elu": ("elu", (("alpha", 1.0),)),
    "Selu": ("selu", (("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875))),
    "Celu": ("celu", (("alpha", 1.0),)),
    "HardSigmoid": ("hard_sigmoid", (("alpha", 0.2), ("beta", 0.5))),
    "Shrink": ("shrink", (("lambd", 0.5), ("bias", 0.0))),
    "Swish": ("swish", (("alpha", 1.0),)),
    "IsInf": ("is_inf", (("detect_negative", 1), ("detect_positive", 1))),
}
_BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Equal": "equal", "Less": "less", "LessOrEqual": "less_equal",
    "Greater": "greater", "GreaterOrEqual": "greater_equal", "And": "and", "Or": "or", "Xor": "xor",
    "BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor", "PRelu": "prelu",
}  # fmt: skip
_CHAINS = {"Min": "min", "Max": "max", "Sum": "add", "Mean": "add"}


def unary(build: Builder, name: str, x: HostTensor, y: HostTensor, a: float = 0, b: float = 0) -> HostTensor:
    """A function of each element."""
    build.add("unary", [x], [y], kind("unary", name), real(a), real(b))
    return y


def binary(build: Builder, name: str, a: HostTensor, b: HostTensor, y: HostTensor) -> HostTensor:
    """A function of two elements, with broadcasting."""
    build.add("binary", [a, b], [y], kind("binary", name))
    return y


def broadcast_output(node: Node, *operands: HostTensor) -> HostTensor:
    """The result of operands that are broadcast; it has rows if the operand of most axes has."""
    longest = max(operands, key=lambda x: (len(x.shape), x.rows is not None))
    if longest.rows is None:
        if any(x.rows is not None for x in operands):
            raise NoHostOperator("the shape of an operand depends on the data, and it is broadcast")
        shape = np.broadcast_shapes(*(x.shape for x in operands))
        return node.bind(node.build.tensor(node.dtype(), shape))
    for x in operands:
        if len(x.shape) == len(longest.shape) and x.shape[0] not in (1, longest.shape[0]):
            raise NoHostOperator("the shape of an operand depends on the data, and it is broadcast")
    rank = len(longest.shape) - 1
    rest = np.broadcast_shapes(*(x.shape[max(0, len(x.shape) - rank) :] for x in operands))
    return node.bind(
        node.build.tensor(node.dtype(), (longest.shape[0], *rest), longest.rows, longest.least_rows)
    )


def _plain(name: str, node: Node, build: Builder) -> None:
    x = node.input(0)
    unary(build, name, x, node.output_like(x))


def _with_parameters(name: str, defaults: tuple[tuple[str, float], ...], node: Node, build: Builder) -> None:
    x = node.input(0)
    unary(
        build, name, x, node.output_like(x), *(float(node.attribute(key, value)) for key, value in defaults)
    )


def _binary(name: str, node: Node, build: Builder) -> None:
    a, b = node.input(0), node.input(1)
    binary(build, name, a, b, broadcast_output(node, a, b))


def _chain(name: str, node: Node, build: Builder) -> None:
    value = node.input(0)
    for index in range(1, len(node.inputs)):
        other = node.input(index)
        value = binary(build, name, value, other, broadcast_output(node, value, other))
    if node.proto.op_type == "Mean":
        count = build.constant(np.array(len(node.inputs), numpy_type(value.dtype)))
        value = binary(build, "div", value, count, build.like(value))
    node.bind(value)


for _op, _name in _PLAIN.items():
    RULES.add((_op,), partial(_plain, _name))
for _op, (_name, _defaults) in _WITH_PARAMETERS.items():
    RULES.add((_op,), partial(_with_parameters, _name, _defaults))
for _op, _name in _BINARY.items():
    RULES.add((_op,), partial(_binary, _name))
for _op, _name in _CHAINS.items():
    RULES.add((_op,), partial(_chain, _name))


@host_rule("Gelu")
def gelu(node: Node, build: Builder) -> None:
    """By erf, or by its approximation with tanh."""
    name = "gelu_tanh" if node.attribute("approximate", "none") == "tanh" else "gelu"
    _plain(name, node, build)


@host_rule("Pow")
def power(node: Node, build: Builder) -> None:
    """The exponent may have another type."""
    a, b = node.input(0), node.input(1)
    if b.dtype != a.dtype:
        if a.dtype.startswith("i"):
            raise NoHostOperator("its exponent has another element type than its base")
        b = cast(build, b, a.dtype)
    binary(build, "pow", a, b, broadcast_output(node, a, b))


@host_rule("Mod")
def modulo(node: Node, build: Builder) -> None:
    """The sign of the divisor, or with `fmod` that of the dividend."""
    _binary("fmod" if node.attribute("fmod", 0) else "mod", node, build)


@host_rule("BitShift")
def bit_shift(node: Node, build: Builder) -> None:
    """Of unsigned integers."""
    _binary("shift_left" if node.attribute("direction") == "LEFT" else "shift_right", node, build)


@host_rule("Clip")
def clip(node: Node, build: Builder) -> None:
    """Limits that are constants are parameters of one function; others, and those of integers, are operands."""
    x, low, high = node.input(0), node.given(1), node.given(2)
    known = all(limit is None or limit.array is not None for limit in (low, high))
    if known and x.dtype in ("f32", "f64"):
        limits = [
            -np.inf if low is None or low.array is None else float(low.array.reshape(())),
            np.inf if high is None or high.array is None else float(high.array.reshape(())),
        ]
        # A minimum above the maximum gives the maximum.
        unary(build, "clip", x, node.output_like(x), min(limits), limits[1])
        return
    for limit, name in ((low, "max"), (high, "min")):
        if limit is not None:
            x = binary(build, name, x, limit, build.like(x))
    node.bind(x)


@host_rule("Where")
def where(node: Node, build: Builder) -> None:
    """A choice for each element."""
    operands = [node.input(k) for k in range(3)]
    build.add("select", operands, [broadcast_output(node, *operands)])


def cast(build: Builder, x: HostTensor, dtype: str) -> HostTensor:
    """A tensor with another element type."""
    if x.dtype == dtype:
        return x
    if x.array is not None:
        return build.constant(x.array.astype(numpy_type(dtype)))
    y = build.like(x, dtype)
    build.add("cast", [x], [y])
    return y


@host_rule("Cast", "CastLike")
def casts(node: Node, build: Builder) -> None:
    """To the type of the result."""
    node.bind(cast(build, node.input(0), node.dtype()))


def _scales(node: Node) -> tuple[HostTensor, HostTensor | None, int]:
    x, scale, zero_point = node.input(0), node.input(1), node.given(2)
    if node.attribute("block_size", 0) or len(scale.shape) > 1:
        raise NoHostOperator("its scales are those of blocks")
    return scale, zero_point, axis_of(node.attribute("axis", 1), len(x.shape))


@host_rule("QuantizeLinear")
def quantize(node: Node, build: Builder) -> None:
    """Reals to integers of 8 or 16 bits."""
    scale, zero_point, axis = _scales(node)
    if node.dtype() not in ("i8", "ui8", "i16", "ui16") or scale.dtype != "f32":
        raise NoHostOperator(f"there is no conversion from {scale.dtype} to {node.dtype()}")
    x = cast(build, node.input(0), "f32")
    build.add("quantize", [x, scale, zero_point], [node.output_like(x)], axis)


@host_rule("DequantizeLinear")
def dequantize(node: Node, build: Builder) -> None:
    """Integers to reals."""
    scale, zero_point, axis = _scales(node)
    if node.dtype() != "f32":
        raise NoHostOperator(f"there is no conversion to {node.dtype()}")
    build.add("dequantize", [node.input(0), scale, zero_point], [node.output_like(node.input(0))], axis)
