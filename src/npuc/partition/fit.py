"""Whether an op can run on a machine, and if not, why and what would change that.

Three things can stand against it: the machine does not compute with its numbers, a limit of the target, or the instruction
set has no such form. Each is said in words, with the lever: a scheme, a change of the layer, a field of the target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import frexp
from typing import Any, Literal

import numpy as np

from npuc.arithmetic.kinds import Kind, Scales
from npuc.ir import Graph, dtype_of, is_static, npu, result_names, top
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import QuantType, is_narrow_float, mlir_type, quant_of
from npuc.partition.kinds import describe
from npuc.partition.overrides import placed
from npuc.schedule.network import reason_against
from npuc.target import OP_KINDS, LimitFailure, Target, support

"""Element types of the IR to those of a target."""
_STAGED = (npu.Conv, npu.Deconv, npu.MatMul, npu.Add, npu.Sub, npu.Mul, npu.Requant)
_INSTEAD = {
    "sigmoid": "hard_sigmoid",
    "silu": "hard_swish",
    "gelu": "relu",
    "tanh": "clip",
    "mish": "hard_swish",
}
"""Functions that often stand in for others."""
_CALLED = {"clip": "a hard tanh, which is a clip to [-1, 1],"}

_MADE_OF = {"shuffle_channel": ("reshape", "permute"), "split": ("slice",)}
"""Op kinds that are others in disguise."""
_NO_HOST_FORM = (
    top.Softmax, top.LogSoftmax, top.LayerNorm, top.RMSNorm, top.InstanceNorm, top.GroupNorm, top.L2Norm, top.LRN,
    top.LSTM, top.GRU, top.RNN, top.Attention,
)  # fmt: skip
"""Ops whose integer forms the CPU cannot run exactly."""
NO_INSTRUCTION = (top.LSTM, top.GRU, top.RNN)
"""Those of them that the NPU cannot run either."""


@dataclass(frozen=True)
class Fit:
    """Whether an op can run on the NPU."""

    how: Literal["native", "rewrite", "no"]
    runs_as: str = ""
    """The op kind that it runs as."""
    reason: str = ""
    """What stands against it."""
    lever: str = ""
    """What would change the answer, where something is known."""

    def __bool__(self) -> bool:
        return self.how != "no"


def fit_of(op: TensorOp, graph: Graph, target: Target) -> Fit:
    """Whether an op of an Npu program runs on the NPU."""
    if isinstance(op, top.Onnx):
        return Fit("no", reason=op.reason or f"npuc has no form of the ONNX operator {op.op_type}", lever="")
    real = _real(op, graph, target)
    if real is not None:
        return real
    numbers = _numbers(op, graph, target)
    if numbers is not None:
        return numbers
    limits = limit_fit(op, graph, target)
    if not limits:
        return limits
    reason = reason_against(op, graph)
    if reason is not None:
        return Fit("no", limits.runs_as, reason)
    return limits


def limit_fit(op: TensorOp, graph: Graph, target: Target, bits: tuple[int, int] = (8, 8)) -> Fit:
    """Whether the limits of a target allow an op, of a float program or of an integer one."""
    found = describe(op, graph, bits)
    if found is None:
        open_ = not all(is_static(value) for value in (*op.operands, *op.results))
        words = "its shapes are known at run time only" if open_ else "it takes nothing from the network"
        return Fit("no", reason=words)
    if not found.known:
        if target.limits.ops == "all":
            return Fit("native", found.kind)
        return Fit("no", found.kind, f"{target.name} has no '{found.kind}'", "")
    answer = support(target, found.kind, found.parameters)
    if answer:
        return Fit("rewrite" if answer.verdict == "rewrite" else "native", answer.runs_as)
    made_of = _MADE_OF.get(found.kind, ())
    absent = answer.failures[0].rule == "limits.ops"
    if absent and made_of and all(support(target, kind, _plain(kind, found.parameters)) for kind in made_of):
        return Fit("rewrite", " and ".join(made_of))
    return Fit("no", found.kind, _words(answer.failures), _lever(answer.failures[0], target))


def _words(failures: Sequence[LimitFailure]) -> str:
    """Several limits as one reason, which ends without a full stop as reasons do."""
    return ". ".join(str(failure).rstrip(".") for failure in failures)


def to_keep_float(
    graph: Graph, target: Target, types: Mapping[Any, QuantType] | None = None
) -> dict[Any, Fit]:
    """The ops of a float program that have to stay float, because as integers they could run nowhere, with the reason.

    The limits of the target exclude them from the NPU, or it does not have the types that the model itself states
    (`types`), and the CPU has no exact form of their integer algorithm, or, of a bilinear resize, a slow one only.
    """
    found = {op: nowhere_as_integers(op, graph, target, types) for op in graph.ops}
    return {op: fit for op, fit in found.items() if fit is not None}


def nowhere_as_integers(
    op: Any, graph: Graph, target: Target, types: Mapping[Any, QuantType] | None = None
) -> Fit | None:
    """Why a float op could run neither on the NPU nor on the CPU as integers; None if it could, or is another op."""
    if not isinstance(op, _NO_HOST_FORM) and not (isinstance(op, top.Resize) and op.mode != "nearest"):
        return None
    if isinstance(op, NO_INSTRUCTION):
        return Fit("no", reason=f"the NPU has no instruction for {op.name.removeprefix('top.').upper()}")
    if isinstance(op, top.Attention):
        inner = support(target, "softmax", _plain("softmax", {}))
        if not inner:
            return Fit("no", "softmax", _words(inner.failures), _lever(inner.failures[0], target))
    own = [types[value] for value in (*op.operands, *op.results) if value in types] if types else []
    wrong = next((words for kind in own if (words := activation_misfit(kind, target))), None)
    if wrong is not None:
        return Fit("no", reason=wrong)
    limits = limit_fit(op, graph, target, _widths(target))
    return limits if not limits else None


def float_on_cpu(graph: Graph, devices: Mapping[str, str]) -> tuple[str, ...]:
    """The layers of a float program that a user puts on the CPU, and that run there as floats only."""
    ops: list[Any] = [op for op in graph.ops if not isinstance(op, top.WeightOp) and op.results]
    wanted = {name: where for name, where in devices.items() if where == "cpu"}
    asked = placed(ops, wanted, strict=False, aliases=graph.layer_aliases() if wanted else None)
    return tuple(result_names(op)[0] for op in asked if isinstance(op, _NO_HOST_FORM))


def _plain(kind: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a kind as far as another kind has them; axes stay where they are, steps and sizes are 1."""
    axes = {"source_n": 0, "source_c": 1, "source_h": 2, "source_w": 3}
    return {name: parameters.get(name, axes.get(name, 1)) for name in OP_KINDS[kind]}


def _widths(target: Target) -> tuple[int, int]:
    """The widths of the preferred activations and weights."""
    formats = (target.arithmetic.activations.formats, target.arithmetic.weights.formats)
    first, second = (
        int("".join(c for c in next(iter(one), "i8") if c.isdigit())[:2] or 8) for one in formats
    )
    return first, second


def _real(op: TensorOp, graph: Graph, target: Target) -> Fit | None:
    """An op that computes with real numbers, and why it does as far as that is known."""
    values = [*op.operands, *op.results]
    if any(is_narrow_float(mlir_type(dtype_of(value.type))) for value in values):
        kind = next(dtype_of(v.type).name for v in values if is_narrow_float(mlir_type(dtype_of(v.type))))
        return Fit(
            "no",
            reason=f"it computes with {kind}, for which there are no instructions",
            lever="Quantize to integers, those of the target: leave --scheme out",
        )
    if isinstance(op, npu.BlockRound):
        return Fit(
            "no", reason="block floating point is for evaluation only", lever="Quantize with another scheme"
        )
    if any(quant_of(value) is not None for value in values):
        return None
    noted = graph.float_reasons.get(result_names(op)[0])
    nowhere = nowhere_as_integers(op, graph, target)
    if nowhere is not None and noted in (None, nowhere.reason):
        return nowhere
    if noted is not None:
        return Fit("no", reason=f"it stayed float: {noted}")
    return Fit(
        "no",
        reason="it computes with real numbers",
        lever="'npuc quantize' says why it stayed float",
    )


def _numbers(op: Any, graph: Graph, target: Target) -> Fit | None:
    """What a machine lacks of an op's types, scales and rounding; None if it has all."""
    arithmetic = target.arithmetic
    for value in (*op.operands, *op.results):
        kind = quant_of(value)
        wrong = None if kind is None else activation_misfit(kind, target)
        if wrong is not None:
            return _requantize(wrong, target)
    if isinstance(op, npu.Conv | npu.Deconv | npu.MatMul):
        wrong = _weights(op, target)
        if wrong is not None:
            return _requantize(wrong, target)
    if isinstance(op, _STAGED) and op.kind not in arithmetic.requantization.kinds:
        # A fully connected layer of TFLite's arithmetic has one rounding (docs/arithmetic-gemm.md).
        alike = (
            isinstance(op, npu.MatMul)
            and op.kind is Kind.SINGLE_ROUNDING
            and Kind.DOUBLE_ROUNDING in arithmetic.requantization.kinds
        )
        if not alike:
            kinds = " or ".join(arithmetic.requantization.kinds)
            return _requantize(f"it requantizes by {op.kind}, and {target.name} by {kinds}", target)
    if isinstance(op, _STAGED) and op.kind.multiplier_bits is None:
        bits = arithmetic.requantization.multiplier_bits
        largest = _largest_multiplier(op, graph)
        if largest >= 1 << bits:
            return _requantize(
                f"its multipliers have {largest.bit_length()} bits, and those of {target.name} {bits}", target
            )
    if isinstance(op, npu.Table | npu.ChannelTable):
        eight = dtype_of(op.x.type).itemsize == 1
        there = arithmetic.tables.entries_8bit if eight else arithmetic.tables.entries_16bit
        if there < (256 if eight else 513):
            return Fit(
                "no",
                reason=f"its table has {256 if eight else 513} entries, and one of {target.name} {there}",
                lever="Change the field arithmetic.tables of the target, if the machine has more",
            )
    return None


def _largest_multiplier(op: Any, graph: Graph) -> int:
    if isinstance(op, npu.Conv | npu.Deconv | npu.MatMul):
        found = graph.constant(op.multiplier)
        return 0 if found is None else int(np.max(found, initial=0))
    if isinstance(op, npu.Add | npu.Sub):
        return max(op.parameters[1], op.parameters[3])
    return max(op.parameters[0::2], default=0)


def activation_misfit(kind: QuantType, target: Target) -> str | None:
    """Why a target has no activations of a type; None if it has."""
    formats: Any = target.arithmetic.activations.formats
    name = kind.dtype.short
    scales = formats.get(name, ())
    if not scales:
        return f"{target.name} has no activations of type {name}"
    if kind.zero_point != 0 and "affine" not in scales:
        return f"activations of type {name} have no zero point on {target.name}"
    if set(scales) == {Scales.POWER_OF_TWO} and frexp(kind.scale)[0] != 0.5:
        return f"scales are powers of two on {target.name}, and one is {kind.scale:.6g}"
    return None


def _weights(op: Any, target: Target) -> str | None:
    array = target.compute.array
    x, w = dtype_of(op.x.type).short, dtype_of(op.weight.type).short
    formats: Any = target.arithmetic.weights.formats
    if quant_of(op.weight) is None and w not in formats:
        return f"{target.name} has no weights of type {w}"
    if array.rate(x, w) is None:
        return f"the array of {target.name} does not multiply {x} by {w}"
    several = op.weight_scale is not None and prod_of(op.weight_scale) > 1
    if several and "per_channel" not in target.arithmetic.weights.granularity:
        return f"weights have one scale a tensor on {target.name}"
    return None


def prod_of(value: Any) -> int:
    """The elements of a value."""
    return int(np.prod(value.type.get_shape()))


def _requantize(reason: str, target: Target) -> Fit:
    return Fit(
        "no",
        reason=reason,
        lever=f"Quantize the float network for this machine: npuc quantize --target {target.name}",
    )


def _lever(failure: LimitFailure, target: Target) -> str:
    """What would make an op meet a limit."""
    path = failure.rule.split(".")
    if path[1] == "rules":
        rule = target.limits.rules[failure.op][path[-1]]
        return (
            f"Change the layer so that {rule.require} holds, or change the field {failure.rule} of the target"
        )
    allowed = target.limits.fused.get(failure.op) if path[1] == "fused" else None
    if allowed:
        return f"Train with {' or '.join(allowed)} there instead"
    other = _INSTEAD.get(failure.op)
    if other is not None and support(target, other, {}):
        return f"Train with {_CALLED.get(other, other)} instead, which runs here"
    return f"Change the field {failure.rule} of the target, if the machine has it after all"
