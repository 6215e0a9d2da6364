"""Whether an op can run on a machine, and if not, what stands against it.

The one place that is asked: the partitioner by `fit_of`, the quantizer by `to_keep_float` (which layers would have no device at
all as integers), and both get a `Fit`. Three things can stand against an op: the machine does not compute with its numbers, a
limit of the target, or the instruction set has no such form. Each is an `Obstacle`, a record with its words. A fourth is met
later only: a layer that finds no room in local memory however it is cut (`npuc.codegen.compile_model`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import numpy as np

from npuc.arithmetic.dtypes import SHORT, machine_format
from npuc.arithmetic.kinds import Kind, Scales
from npuc.arithmetic.requantization import is_power_of_two
from npuc.ir import Graph, dtype_of, is_static, npu, result_names, shape_of, top
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import QuantType, is_narrow_float, mlir_type, quant_of
from npuc.ir.npu.arithmetic import rounds_operands
from npuc.ir.npu.recurrent import STATE
from npuc.ir.top.escape import POSTPROCESSING
from npuc.partition.kinds import describe
from npuc.partition.obstacles import Obstacle, ObstacleRule
from npuc.partition.overrides import placed
from npuc.target import OP_KINDS, Support, Target, support

_INSTRUCTION_SETS = {"npuc": "npuc.schedule.network", "bm1684x": "npuc.schedule.bm1684x.scheduler"}
"""The module of each instruction set whose `reason_against` tells why an op has no instructions; loaded for its targets only."""
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
_RECURRENT = (top.LSTM, top.GRU, top.RNN)


@dataclass(frozen=True)
class Fit:
    """Whether an op can run on the NPU."""

    how: Literal["native", "rewrite", "no"]
    runs_as: str = ""
    """The op kind that it runs as."""
    obstacle: Obstacle | None = None
    """What stands against it, if it cannot run."""

    @property
    def reason(self) -> str:
        """What stands against it, in words."""
        return "" if self.obstacle is None else self.obstacle.reason

    @property
    def lever(self) -> str:
        """What would change the answer, where something is known."""
        return "" if self.obstacle is None else self.obstacle.lever

    def __bool__(self) -> bool:
        return self.how != "no"


def _no(rule: ObstacleRule, runs_as: str = "", **facts: Any) -> Fit:
    return Fit("no", runs_as, Obstacle.of(rule, **facts))


def fit_of(op: TensorOp, graph: Graph, target: Target) -> Fit:
    """Whether an op of an Npu program runs on the NPU: the first obstacle that it meets, if any."""
    real = _without_integers(op, graph, target)
    if real is not None:
        return real
    numbers = _numbers(op, graph, target)
    if numbers is not None:
        return Fit("no", obstacle=numbers)
    limits = limit_fit(op, graph, target)
    if not limits:
        return limits
    reason = import_module(_INSTRUCTION_SETS[target.instruction_set]).reason_against(op, graph)
    if reason is not None:
        return _no(ObstacleRule.INSTRUCTION_FORM, limits.runs_as, words=reason)
    return limits


def joins_floats(op: npu.Quantize | npu.Dequantize, graph: Graph, target: Target) -> bool:
    """Whether a conversion stands between layers of integers and of floats on the NPU, which then does it itself."""
    if isinstance(op, npu.Quantize):
        neighbours = [op.x.owner]
    elif any(port.value is op.y for port in graph.outputs):
        return False
    else:
        neighbours = [use.operation for use in op.y.uses]
    floats = [
        neighbour
        for neighbour in neighbours
        if isinstance(neighbour, npu.Cast)
        or (isinstance(neighbour, TensorOp) and npu.is_f32_on_npu(neighbour))
    ]
    return bool(floats) and floats == neighbours and all(fit_of(layer, graph, target) for layer in floats)


def limit_fit(op: TensorOp, graph: Graph, target: Target, bits: tuple[int, int] = (8, 8)) -> Fit:
    """Whether the limits of a target allow an op, of a float program or of an integer one."""
    if isinstance(op, npu.Cast | npu.BlockPack):
        return Fit("native", "cast")
    if isinstance(op, npu.Reinterpret):
        return Fit("native", "reinterpret")  # bytes under another name: nothing is computed
    described = describe(op, graph, bits)
    if described is None:
        is_open = not all(is_static(value) for value in (*op.operands, *op.results))
        return _no(ObstacleRule.OPEN_SHAPES if is_open else ObstacleRule.NO_OPERANDS)
    if not described.known:
        if target.limits.ops == "all":
            return Fit("native", described.kind)
        return _no(ObstacleRule.OP_KIND, described.kind, target=target.name, kind=described.kind)
    answer = support(target, described.kind, described.parameters)
    if answer:
        return Fit("rewrite" if answer.verdict == "rewrite" else "native", answer.runs_as)
    made_of = _MADE_OF.get(described.kind, ())
    absent = answer.failures[0].rule == "limits.ops"
    if (
        absent
        and made_of
        and all(support(target, kind, _plain(kind, described.parameters)) for kind in made_of)
    ):
        return Fit("rewrite", " and ".join(made_of))
    return Fit("no", described.kind, _of_limits(answer, target))


def to_keep_float(
    graph: Graph, target: Target, types: Mapping[Any, QuantType] | None = None
) -> dict[Any, Fit]:
    """The ops of a float program that have to stay float, because as integers they could run nowhere, with the reason.

    The limits of the target exclude them from the NPU, or it does not have the types that the model itself states
    (`types`), and the CPU has no exact form of their integer algorithm, or, of a bilinear resize, a slow one only.
    """
    fits = {op: nowhere_as_integers(op, graph, target, types) for op in graph.ops}
    return {op: fit for op, fit in fits.items() if fit is not None}


def nowhere_as_integers(
    op: Any, graph: Graph, target: Target, types: Mapping[Any, QuantType] | None = None
) -> Fit | None:
    """Why a float op could run neither on the NPU nor on the CPU as integers; None if it could, or is another op."""
    if isinstance(op, top.Cast):
        return _pixels_misfit(op, target)
    if not isinstance(op, _NO_HOST_FORM) and not (isinstance(op, top.Resize) and op.mode != "nearest"):
        return None
    if isinstance(op, top.Attention):
        inner = support(target, "softmax", _plain("softmax", {}))
        if not inner:
            return Fit("no", "softmax", _of_limits(inner, target))
    own = [types[value] for value in (*op.operands, *op.results) if value in types] if types else []
    for kind in own:
        misfit = activation_misfit(kind, target)
        if misfit is not None:
            return Fit("no", obstacle=misfit)
    limits = limit_fit(op, graph, target, _widths(target))
    if limits and isinstance(op, _RECURRENT):
        lacks = _recurrent_misfit(op, target)
        return None if lacks is None else Fit("no", obstacle=lacks)
    return limits if not limits else None


def _recurrent_misfit(op: Any, target: Target) -> Obstacle | None:
    """What a target lacks of a recurrent layer as integers: a type for its state, tables for its gates, room for its weights."""
    if not isinstance(op, top.RNN):
        state = activation_misfit(STATE, target)
        if state is not None:
            return state
    allowed = target.arithmetic.tables.entries_16bit
    if allowed < 513:
        return Obstacle.of(ObstacleRule.TABLE_ENTRIES, target=target.name, entries=513, allowed=allowed)
    activation, weight = (bits / 8 for bits in _widths(target))
    elements = sum(prod_of(value) for value in (op.x, *op.results))
    rows = prod_of(op.weight) // shape_of(op.weight)[-1]
    needed = round(elements * activation + (prod_of(op.weight) + prod_of(op.recurrence)) * weight) + 20 * rows
    whole = int(target.memory.local.size)
    if needed > whole:
        return Obstacle.of(ObstacleRule.LOCAL_MEMORY, target=target.name, needed=needed, allowed=whole)
    return None


def _pixels_misfit(op: top.Cast, target: Target) -> Fit | None:
    """Why an input of small integers has to become reals on the CPU first; None if the machine computes with it as it is."""
    dtype = dtype_of(op.x.type)
    if dtype.name not in ("ui8", "i8", "i16") or dtype_of(op.y.type).name != "f32":
        return None
    misfit = activation_misfit(QuantType.of(dtype.name, 1.0, 0), target)
    weight = next(iter(target.arithmetic.weights.formats), "i8")
    if misfit is None and target.compute.array.rate(dtype.short, weight) is None:
        misfit = Obstacle.of(ObstacleRule.PRODUCT, target=target.name, activation=dtype.short, weight=weight)
    return None if misfit is None else Fit("no", obstacle=misfit)


def not_float32(op: TensorOp) -> Obstacle | None:
    """What stands against an op on values that quantization leaves alone: shapes, masks, indices; None if it has float32."""
    others = [
        dtype for value in (*op.operands[:1], *op.results) if (dtype := dtype_of(value.type)).name != "f32"
    ]
    return Obstacle.of(ObstacleRule.NOT_FLOAT32, dtype=others[0].name) if others else None


def float_on_cpu(graph: Graph, devices: Mapping[str, str]) -> tuple[str, ...]:
    """The layers of a float program that a user puts on the CPU, and that run there as floats only."""
    ops: list[Any] = [op for op in graph.ops if not isinstance(op, top.WeightOp) and op.results]
    on_cpu = {name: where for name, where in devices.items() if where == "cpu"}
    named = placed(ops, on_cpu, strict=False, aliases=graph.layer_aliases() if on_cpu else None)
    return tuple(result_names(op)[0] for op in named if isinstance(op, _NO_HOST_FORM))


def _plain(kind: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a kind as far as another kind has them; axes stay where they are, steps and sizes are 1."""
    axes = {"source_n": 0, "source_c": 1, "source_h": 2, "source_w": 3}
    return {name: parameters.get(name, axes.get(name, 1)) for name in OP_KINDS[kind]}


def _widths(target: Target) -> tuple[int, int]:
    """The widths of the preferred activations and weights."""

    def first(formats: Iterable[str]) -> int:
        return int("".join(c for c in next(iter(formats), "i8") if c.isdigit())[:2] or 8)

    return first(target.arithmetic.activations.formats), first(target.arithmetic.weights.formats)


def _without_integers(op: TensorOp, graph: Graph, target: Target) -> Fit | None:
    """An op that does not compute with integers, and why not as far as that is known."""
    if isinstance(op, top.Onnx):
        if op.reason == POSTPROCESSING:
            return _no(ObstacleRule.POSTPROCESSING, noted=op.reason)
        if op.reason:
            return _no(ObstacleRule.KEPT_ONNX, operator=op.op_type, noted=op.reason)
        return _no(ObstacleRule.ONNX_OPERATOR, operator=op.op_type)
    values = [*op.operands, *op.results]
    floats = [dtype for value in values if is_narrow_float(mlir_type(dtype := dtype_of(value.type)))]
    if isinstance(op, npu.BlockPack | npu.BlockLinear):
        floats.append(dtype_of(op.format))
    if npu.is_f32_on_npu(op):
        floats.append(dtype_of("f32"))
    if floats:
        formats = target.arithmetic.activations.formats
        absent = next((dtype for dtype in floats if dtype.short not in formats), None)
        return None if absent is None else _no(ObstacleRule.FLOAT_TYPE, target=target.name, dtype=absent.name)
    if any(quant_of(value) is not None for value in values):
        return None
    noted = graph.float_reasons.get(result_names(op)[0])
    nowhere = nowhere_as_integers(op, graph, target)
    if nowhere is not None and noted in (None, nowhere.reason):
        return nowhere
    unquantized = not_float32(op)
    if unquantized is not None and noted in (None, unquantized.reason):
        return Fit("no", obstacle=unquantized)
    return _no(ObstacleRule.REAL_NUMBERS) if noted is None else _no(ObstacleRule.STAYED_FLOAT, noted=noted)


def _numbers(op: Any, graph: Graph, target: Target) -> Obstacle | None:
    """What a machine lacks of an op's types, scales and rounding; None if it has all."""
    for value in (*op.operands, *op.results):
        kind = quant_of(value)
        if kind is not None and isinstance(op, npu.Requant | npu.Table) and _is_carrier(kind, target):
            continue
        misfit = None if kind is None else activation_misfit(kind, target)
        if misfit is not None:
            return misfit
    if isinstance(
        op,
        npu.Conv
        | npu.Deconv
        | npu.MatMul
        | npu.FloatLinear
        | npu.BlockLinear
        | npu.LSTM
        | npu.GRU
        | npu.RNN
        | top.QuantizedLSTM,
    ):
        weights = _weights(op, target)
        if weights is not None:
            return weights
    if isinstance(op, top.QuantizedLSTM):
        return _double_rounding_misfit(target) or activation_misfit(STATE, target)
    if isinstance(op, _STAGED):
        return _output_stage(op, graph, target)
    if isinstance(op, npu.Table | npu.ChannelTable):
        eight, tables = dtype_of(op.x.type).itemsize == 1, target.arithmetic.tables
        allowed, entries = tables.entries_8bit if eight else tables.entries_16bit, shape_of(op.table)[-1]
        if allowed < entries:
            return Obstacle.of(
                ObstacleRule.TABLE_ENTRIES, target=target.name, entries=entries, allowed=allowed
            )
    return None


def _double_rounding_misfit(target: Target) -> Obstacle | None:
    kinds = target.arithmetic.requantization.kinds
    if Kind.DOUBLE_ROUNDING in kinds:
        return None
    kind, allowed = str(Kind.DOUBLE_ROUNDING), " or ".join(kinds)
    return Obstacle.of(ObstacleRule.REQUANTIZATION, target=target.name, kind=kind, allowed=allowed)


def _is_carrier(kind: QuantType, target: Target) -> bool:
    """Whether a type is i16 on a machine that has it only as the elements of fewer bits: at the border, and before tables."""
    formats = target.arithmetic.activations.formats
    carried = [name for name in formats if SHORT[name] != kind.dtype and SHORT[name].carrier == kind.dtype]
    return kind.dtype.short not in formats and bool(carried)


def _output_stage(op: Any, graph: Graph, target: Target) -> Obstacle | None:
    """What a machine lacks of the way that sums become results."""
    stage = target.arithmetic.requantization
    # A fully connected layer of TFLite's arithmetic has one rounding (docs/arithmetic-gemm.md).
    alike = (
        isinstance(op, npu.MatMul) and op.kind is Kind.SINGLE_ROUNDING and Kind.DOUBLE_ROUNDING in stage.kinds
    )
    # A sum whose operands alone are rounded (docs/arithmetic-eltwise.md) is two requantizations of one rounding each.
    alike |= rounds_operands(op) and Kind.SINGLE_ROUNDING in stage.kinds
    if op.kind not in stage.kinds and not alike:
        allowed = " or ".join(stage.kinds)
        return Obstacle.of(
            ObstacleRule.REQUANTIZATION, target=target.name, kind=str(op.kind), allowed=allowed
        )
    if op.kind.multiplier_bits is None:
        largest = _largest_multiplier(op, graph)
        if largest >= 1 << stage.multiplier_bits:
            return Obstacle.of(
                ObstacleRule.MULTIPLIER_BITS,
                target=target.name,
                bits=largest.bit_length(),
                allowed=stage.multiplier_bits,
            )
    return None


def _largest_multiplier(op: Any, graph: Graph) -> int:
    if isinstance(op, npu.Conv | npu.Deconv | npu.MatMul):
        multipliers = graph.constant(op.multiplier)
        return 0 if multipliers is None else int(np.max(multipliers, initial=0))
    if isinstance(op, npu.Add | npu.Sub):
        return max(op.parameters[1], op.parameters[3])
    return max(op.parameters[0::2], default=0)


def activation_misfit(kind: QuantType, target: Target) -> Obstacle | None:
    """What a target lacks of activations of a type; None if it has them."""
    formats: Any = target.arithmetic.activations.formats
    name = machine_format(kind.dtype.name)
    scales = formats.get(name, ())
    if not scales:
        return Obstacle.of(ObstacleRule.ACTIVATION_TYPE, target=target.name, dtype=name)
    if kind.zero_point != 0 and "affine" not in scales:
        return Obstacle.of(
            ObstacleRule.ZERO_POINT, target=target.name, dtype=name, zero_point=kind.zero_point
        )
    if set(scales) == {Scales.POWER_OF_TWO} and not is_power_of_two(kind.scale):
        return Obstacle.of(ObstacleRule.POWER_OF_TWO, target=target.name, scale=kind.scale)
    return None


def _weights(op: Any, target: Target) -> Obstacle | None:
    array = target.compute.array
    x, w = machine_format(dtype_of(op.x.type).name), dtype_of(op.weight.type).short
    if isinstance(op, npu.BlockLinear):
        x = w = op.format
    formats: Any = target.arithmetic.weights.formats
    if quant_of(op.weight) is None and w not in formats:
        return Obstacle.of(ObstacleRule.WEIGHT_TYPE, target=target.name, dtype=w)
    if array.rate(x, w) is None:
        return Obstacle.of(ObstacleRule.PRODUCT, target=target.name, activation=x, weight=w)
    scale = getattr(op, "weight_scale", None)
    several = scale is not None and prod_of(scale) > 1
    if several and "per_channel" not in target.arithmetic.weights.granularity:
        return Obstacle.of(ObstacleRule.GRANULARITY, target=target.name)
    return None


def prod_of(value: Any) -> int:
    """The elements of a value."""
    return int(np.prod(value.type.get_shape()))


def _of_limits(answer: Support, target: Target) -> Obstacle:
    """The limits that an op fails, and what would make it meet the first of them."""
    failure = answer.failures[0]
    facts = {
        "words": ". ".join(str(each).rstrip(".") for each in answer.failures),
        "target": target.name,
        "kind": failure.op,
        "field": failure.rule,
    }
    path = failure.rule.split(".")
    if path[1] == "rules":
        require = str(target.limits.rules[failure.op][path[-1]].require)
        return Obstacle.of(ObstacleRule.LIMIT, **facts, require=require)
    allowed = target.limits.fused.get(failure.op) if path[1] == "fused" else None
    if allowed:
        return Obstacle.of(ObstacleRule.FUSED, **facts, allowed=" or ".join(allowed))
    other = _INSTEAD.get(failure.op)
    if other is not None and support(target, other, {}):
        return Obstacle.of(ObstacleRule.FUNCTION, **facts, instead=_CALLED.get(other, other))
    return Obstacle.of(ObstacleRule.FIELD, **facts)
