"""Over axes: sums and the like, softmax, normalizations, running sums."""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from npuc.codegen.host_ops.builder import Builder, HostTensor, kind, real
from npuc.codegen.host_ops.elementwise import binary
from npuc.codegen.host_ops.rules import RULES, Node, NoHostOperator, axis_of, host_rule

_REDUCTIONS = {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod",
    "ReduceL1": "l1", "ReduceL2": "l2", "ReduceSumSquare": "sum_square", "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "log_sum_exp",
}  # fmt: skip
_INTEGER_REDUCTIONS = ("sum", "mean", "max", "min", "prod", "l1", "sum_square")
_SOFT = {"Softmax": "softmax", "LogSoftmax": "log_softmax", "Hardmax": "hardmax"}


def _reduce(name: str, node: Node, build: Builder) -> None:
    x = node.static(0)
    axes = node.integers("axes", 1)
    if not axes:
        if node.attribute("noop_with_empty_axes", 0):
            node.bind(x)
            return
        axes = tuple(range(len(x.shape)))
    _require_numbers(x, name in _INTEGER_REDUCTIONS)
    _reduced(build, name, x, [axis_of(axis, len(x.shape)) for axis in axes], node.output())


def _require_numbers(x: HostTensor, integers: bool = True) -> None:
    if x.dtype not in ("f32", "f64") and (x.dtype == "i1" or not integers):
        raise NoHostOperator(f"C has it for reals, not for {x.dtype}")


def _reduced(build: Builder, name: str, x: HostTensor, axes: list[int], y: HostTensor) -> None:
    build.add("reduce", [x], [y], kind("reduce", name), sum(1 << axis for axis in set(axes)))


for _op, _name in _REDUCTIONS.items():
    RULES.add((_op,), partial(_reduce, _name))


@host_rule("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: Node, build: Builder) -> None:
    """One number of each channel."""
    x = node.static(0)
    name = "max" if node.proto.op_type == "GlobalMaxPool" else "mean"
    _reduced(build, name, x, list(range(2, len(x.shape))), node.output())


@host_rule("ArgMax", "ArgMin")
def arg_reduce(node: Node, build: Builder) -> None:
    """The place of the largest or smallest element."""
    x = node.static(0)
    _require_numbers(x)
    axis = axis_of(node.attribute("axis", 0), len(x.shape))
    largest, last = node.proto.op_type == "ArgMax", node.attribute("select_last_index", 0)
    build.add("arg_reduce", [x], [node.output()], axis, largest, last)


def _soft(name: str, node: Node, build: Builder) -> None:
    x = node.input(0)
    _require_numbers(x, integers=False)
    axis = axis_of(node.attribute("axis", -1), len(x.shape))
    build.add("softmax", [x], [node.output_like(x)], kind("softmax", name), axis)


for _op, _name in _SOFT.items():
    RULES.add((_op,), partial(_soft, _name))


@host_rule("LpNormalization")
def lp_normalization(node: Node, build: Builder) -> None:
    """Vectors of length 1."""
    _soft("l1" if node.attribute("p", 2) == 1 else "l2", node, build)


def _normalize(node: Node, build: Builder, name: str, row: int, each: int) -> None:
    x, scale, bias = node.static(0), node.given(1), node.given(2)
    _require_numbers(x, integers=False)
    if any(other is not None and other.dtype != x.dtype for other in (scale, bias)):
        raise NoHostOperator("its scale has another element type than its input")
    if any(node.wants(index) for index in (1, 2)):
        raise NoHostOperator("its further results, the mean and the deviation, are used")
    epsilon = real(float(node.attribute("epsilon", 1e-5)))
    build.add("normalize", [x, scale, bias], [node.output()], kind("normalize", name), row, each, epsilon)


@host_rule("LayerNormalization", "RMSNormalization")
def layer_normalization(node: Node, build: Builder) -> None:
    """Of the last axes; scale and bias are for each of their elements."""
    x = node.static(0)
    row = prod(x.shape[axis_of(node.attribute("axis", -1), len(x.shape)) :])
    for index in (1, 2):
        other = node.given(index)
        if other is not None and prod(other.shape) != row:
            raise NoHostOperator("its scale or bias is broadcast")
    _normalize(node, build, "rms" if node.proto.op_type == "RMSNormalization" else "variance", row, 1)


@host_rule("InstanceNormalization", "GroupNormalization")
def group_normalization(node: Node, build: Builder) -> None:
    """Of groups of channels; scale and bias are for each channel, or, before operator set 21, for each group."""
    x = node.static(0)
    plane, channels = prod(x.shape[2:]), x.shape[1]
    groups = node.attribute("num_groups", channels)
    row = channels // groups * plane
    each = plane if prod(node.input(1).shape) == channels else row
    _normalize(node, build, "variance", row, each)


@host_rule("BatchNormalization")
def batch_normalization(node: Node, build: Builder) -> None:
    """A product and a sum with constants."""
    x = node.static(0)
    scale, bias, mean, variance = (node.constant(k).astype(np.float64) for k in range(1, 5))
    if node.attribute("training_mode", 0):
        raise NoHostOperator("it trains")
    _require_numbers(x, integers=False)
    factor = scale / np.sqrt(variance + node.attribute("epsilon", 1e-5))
    shape = (-1, *(1,) * (len(x.shape) - 2))
    kind_of = np.float32 if x.dtype == "f32" else np.float64
    terms = [build.constant(term.reshape(shape).astype(kind_of)) for term in (factor, bias - mean * factor)]
    product = binary(build, "mul", x, terms[0], build.like(x))
    binary(build, "add", product, terms[1], node.output())


@host_rule("LRN")
def local_response(node: Node, build: Builder) -> None:
    """Each channel divided by a power of its neighbours' squares."""
    x = node.static(0)
    _require_numbers(x, integers=False)
    parameters = (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    numbers = [real(float(node.attribute(name, default))) for name, default in parameters]
    build.add("lrn", [x], [node.output()], node.attribute("size"), *numbers)


@host_rule("CumSum")
def cumulative_sum(node: Node, build: Builder) -> None:
    """Running sums."""
    x = node.static(0)
    _require_numbers(x)
    axis = axis_of(int(node.constant(1).reshape(())), len(x.shape))
    build.add(
        "cumulative_sum",
        [x],
        [node.output()],
        axis,
        node.attribute("exclusive", 0),
        node.attribute("reverse", 0),
    )
