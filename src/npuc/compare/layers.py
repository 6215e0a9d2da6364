"""The error of each layer of an integer network, against the float network that it was made of.

Two errors are measured at the output of each layer. *Accumulated*: the whole network is integer, so the error includes
those of all layers before. *Isolated*: only this layer is integer; it reads the float network's tensors, quantized to the
types of its operands. The first is the error that the user sees, the second shows which layer causes it.

Saturation is the share of integers at an end of their range; an end that represents zero does not count, because a relu
produces it legitimately. Range use is the share of the integer range between the smallest and the largest value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from npuc.arithmetic.dtypes import DType
from npuc.arrays import Array
from npuc.calib.samples import Batch
from npuc.engine import FloatEngine, IntegerEngine
from npuc.engine.integer import prepare
from npuc.errors import CompareError
from npuc.ir import Graph, Value, dtype_of, layer_name, npu, result_names, shape_of, top, value_name
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import QuantType, element_of, is_narrow_float, quant_of
from npuc.kernels import eltwise
from npuc.registries import renamed


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"Figures": TensorFigures, "Meter": ErrorMeter})


SortKey = Literal["sqnr", "cosine", "max_error", "isolated", "saturation", "order"]


@dataclass(frozen=True)
class TensorFigures:
    """How far a tensor is from its reference, over all samples."""

    cosine: float
    sqnr: float
    """In decibels; infinite if there is no error."""
    max_error: float


@dataclass(frozen=True)
class LayerError:
    """The figures of one tensor."""

    name: str
    layer: str
    kind: str
    type: str
    """The integer type, `bf16` or `f16`; `f32` if it stayed float."""
    accumulated: TensorFigures
    isolated: TensorFigures | None = None
    saturation: float = 0.0
    range_use: float = 0.0
    scale: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


class ErrorMeter:
    """Accumulates the sums from which the figures of a tensor are computed."""

    def __init__(self) -> None:
        self.dot = self.aa = self.bb = self.dd = self.largest = 0.0
        self.broken = False

    def add(self, ours: Array, reference: Array) -> None:
        """Add a tensor and its reference."""
        a, b = ours.astype(np.float64).reshape(-1), reference.astype(np.float64).reshape(-1)
        finite = np.isfinite(b)
        if not finite.all():
            a, b = a[finite], b[finite]
        if not np.isfinite(a).all():
            self.broken = True
            return
        delta = a - b
        self.dot += float(a @ b)
        self.aa += float(a @ a)
        self.bb += float(b @ b)
        self.dd += float(delta @ delta)
        self.largest = max(self.largest, float(np.abs(delta).max(initial=0.0)))

    def figures(self) -> TensorFigures:
        """The figures of all tensors added."""
        if self.broken:
            return TensorFigures(0.0, -math.inf, math.inf)
        if self.dd == 0:
            return TensorFigures(1.0, math.inf, 0.0)
        if self.aa == 0 or self.bb == 0:
            return TensorFigures(0.0, -math.inf if self.bb == 0 else 0.0, self.largest)
        cosine = self.dot / math.sqrt(self.aa) / math.sqrt(self.bb)
        return TensorFigures(max(-1.0, min(1.0, cosine)), 10 * math.log10(self.bb / self.dd), self.largest)


class IntegerRange:
    """Accumulates how the integers of a tensor use their range."""

    def __init__(self, dtype: DType, zero_point: int) -> None:
        self.least, self.most = dtype.limits
        self.ends = [end for end in (self.least, self.most) if end != zero_point]
        self.low, self.high = self.most, self.least
        self.at_ends = self.count = 0

    def add(self, integers: Array) -> None:
        """Add the integers of one batch."""
        if integers.size:
            self.low = min(self.low, int(integers.min()))
            self.high = max(self.high, int(integers.max()))
            self.at_ends += sum(int((integers == end).sum()) for end in self.ends)
            self.count += integers.size

    @property
    def saturation(self) -> float:
        """The share of integers at an end of their range."""
        return self.at_ends / self.count if self.count else 0.0

    @property
    def use(self) -> float:
        """The share of the range between the smallest and the largest integer."""
        return (self.high - self.low) / (self.most - self.least) if self.count else 0.0


def compare_layers(
    reference: Graph,
    integer: Graph,
    batches: Iterable[Batch],
    *,
    isolated: bool = False,
    threads: int = 1,
    step: Callable[[], None] = lambda: None,
) -> list[LayerError]:
    """The errors of all tensors that two networks have in common, in the order of the program."""
    layers = _common(reference, integer)
    if not layers:
        raise CompareError(
            "the two networks have no tensor name in common", fix="Is one the integer form of the other?"
        )
    names = [value_name(value) for value in layers]
    alone = _Isolated(reference, integer, layers, threads) if isolated else None
    fetched = list(dict.fromkeys([*names, *(alone.needs if alone else ())]))
    inputs = {port.name for port in reference.inputs}
    exact = FloatEngine(reference, fetch=[name for name in fetched if name not in inputs], threads=threads)
    ours = IntegerEngine(integer, fetch=names, threads=threads, raw=True)
    meters = {name: ErrorMeter() for name in names}
    ranges = {
        value_name(v): IntegerRange(kind.dtype, kind.zero_point)
        for v in layers
        if (kind := quant_of(v)) is not None
    }
    rows = batch_rows(reference)
    for batch in batches:
        float_values = {**batch.inputs, **exact.run(batch.inputs)}
        integer_values = ours.run(batch.inputs)
        for value in layers:
            name, kind = value_name(value), quant_of(value)
            values, expected = (
                kept_rows(array, batch.keep, rows) for array in (integer_values[name], float_values[name])
            )
            if kind is not None:
                ranges[name].add(values)
                values = _real(values, kind)
            meters[name].add(values, _comparable(expected, kind))
        if alone is not None:
            alone.add(float_values, batch.keep, rows)
        step()
    return [_entry(value, meters, ranges, alone) for value in layers]


def _entry(
    value: Value,
    meters: Mapping[str, ErrorMeter],
    ranges: Mapping[str, IntegerRange],
    alone: _Isolated | None,
) -> LayerError:
    name, kind = value_name(value), quant_of(value)
    owner = value.owner
    assert isinstance(owner, TensorOp)
    return LayerError(
        name=name,
        layer=layer_name(owner),
        kind=owner.name,
        type=dtype_of(value.type).name,
        accumulated=meters[name].figures(),
        isolated=alone.figures(name) if alone is not None else None,
        saturation=ranges[name].saturation if kind is not None else 0.0,
        range_use=ranges[name].use if kind is not None else 0.0,
        scale=kind.scale if kind is not None else 0.0,
    )


def worst_first(errors: Iterable[LayerError], key: SortKey = "sqnr") -> list[LayerError]:
    """Sorted so that the worst comes first; `order` keeps the order of the program."""
    keys: dict[str, Callable[[LayerError], Any]] = {
        "sqnr": lambda e: e.accumulated.sqnr,
        "cosine": lambda e: e.accumulated.cosine,
        "max_error": lambda e: -e.accumulated.max_error,
        "isolated": lambda e: e.isolated.sqnr if e.isolated is not None else math.inf,
        "saturation": lambda e: -e.saturation,
        "order": lambda e: 0,
    }
    return sorted(errors, key=keys[key])


def _common(reference: Graph, integer: Graph) -> list[Value]:
    known = {name for op in reference.ops if not isinstance(op, top.WeightOp) for name in result_names(op)}
    common: dict[str, Value] = {}
    for op in integer.ops:
        if isinstance(op, top.WeightOp):
            continue
        for name, value in zip(result_names(op), op.results, strict=True):
            if name in known:
                common.setdefault(name, value)
    return list(common.values())


def _is_lowered(value: Value) -> bool:
    return quant_of(value) is not None or is_narrow_float(element_of(value))


def batch_rows(graph: Graph) -> int | None:
    """The length of the batch axis that all inputs share; None if they share none."""
    sizes = {(shape_of(port.value) or (0,))[0] for port in graph.inputs}
    return (sizes.pop() or None) if len(sizes) == 1 else None


def kept_rows(array: Array, keep: int | None, rows: int | None) -> Array:
    """A tensor without the samples that pad its batch."""
    array = np.asarray(array)
    return array[:keep] if keep is not None and array.ndim and array.shape[0] == rows else array


def _real(integers: Array, kind: QuantType) -> Array:
    return (integers.astype(np.float64) - kind.zero_point) * float(np.float32(kind.scale))


def _comparable(expected: Array, kind: QuantType | None) -> Array:
    """The reference as real values; a prequantized network has integers under some names."""
    return _real(expected, kind) if kind is not None and expected.dtype.kind in "iu" else expected


class _Isolated:
    """Each integer op by itself, on the float network's tensors."""

    def __init__(self, reference: Graph, integer: Graph, layers: list[Value], threads: int) -> None:
        known = {port.name for port in reference.inputs}
        known |= {value_name(value) for op in reference.ops for value in op.results}
        self.threads = threads
        self.graph = integer
        self.needs: set[str] = set()
        self.meters: dict[str, ErrorMeter] = {}
        self.steps: list[tuple[TensorOp, Any, list[tuple[str, Any] | Array]]] = []
        for op in dict.fromkeys(value.owner for value in layers if _is_lowered(value)):
            assert isinstance(op, TensorOp)
            first = self._first(op, known)
            operands = [self._operand(value) for value in first.operands]
            names = [entry[0] for entry in operands if isinstance(entry, tuple)]
            if all(name in known for name in names):
                self.needs.update(names)
                self.steps.append((op, self._prepared(first, op), operands))

    def _first(self, op: TensorOp, known: set[str]) -> TensorOp:
        """The first op of a layer: a layer whose result is requantized consists of two ops."""
        inner = op.operands[0].owner if isinstance(op, npu.Requant) else None
        return inner if isinstance(inner, TensorOp) and value_name(op.operands[0]) not in known else op

    def _prepared(self, first: TensorOp, last: TensorOp) -> Any:
        end = prepare(last, self.graph, self.threads)
        if first is last:
            return end
        begin = prepare(first, self.graph, self.threads)
        return lambda arrays: end(begin(arrays))

    def _operand(self, value: Value) -> tuple[str, Any] | Array:
        """A constant, or the name of a tensor and the type that it is read in."""
        constant = self.graph.constant(value)
        if constant is not None:
            return constant
        kind = element_of(value)
        # Conversions have no counterpart in the float network: the tensor that they convert has.
        while isinstance(value.owner, npu.Quantize | npu.Dequantize | npu.Requant | npu.Cast):
            value = value.owner.x
        return value_name(value), kind

    def add(self, truth: Mapping[str, Array], keep: int | None, rows: int | None) -> None:
        for op, run, operands in self.steps:
            results = run([self._array(entry, truth) for entry in operands])
            for value, array in zip(op.results, results, strict=True):
                name, kind = value_name(value), quant_of(value)
                if name in truth and _is_lowered(value):
                    ours, expected = (kept_rows(a, keep, rows) for a in (array, truth[name]))
                    meter = self.meters.setdefault(name, ErrorMeter())
                    meter.add(ours if kind is None else _real(ours, kind), _comparable(expected, kind))

    def _array(self, entry: tuple[str, Any] | Array, truth: Mapping[str, Array]) -> Array:
        if not isinstance(entry, tuple):
            return entry
        name, kind = entry
        array = np.asarray(truth[name])
        if array.dtype.kind in "iu":
            return array
        if not isinstance(kind, QuantType):
            return array.astype(dtype_of(kind).numpy)
        real = np.ascontiguousarray(array, np.float32)
        return eltwise.quantize(real, kind.scale, kind.zero_point, kind.dtype.numpy, threads=self.threads)

    def figures(self, name: str) -> TensorFigures | None:
        return self.meters[name].figures() if name in self.meters else None
