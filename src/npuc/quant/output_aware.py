"""Range selection by what it does to the layers that read a tensor.

Range methods look at a tensor alone; what counts is the output of its consumers. For each tensor, each candidate range is
tried on a few samples: the tensor is quantized, the consumer runs in float with everything else exact, and the candidate
with the least squared error at the consumers' outputs wins. Samples are taken one at a time, so memory does not grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from npuc.calib.ranges.choice import CANDIDATES, POWER_CANDIDATES, Candidate, candidates
from npuc.calib.statistics import TensorStatistics
from npuc.engine import ALL_TENSORS, FloatEngine
from npuc.engine.kernels import eltwise
from npuc.engine.single import single_op
from npuc.ir import Graph, Value, dtype_of, is_static, top, value_name
from npuc.ir.definition import TopOp
from npuc.quant.parameters import activation_type
from npuc.quant.scheme import SCHEMES, Scheme

Array = np.ndarray[Any, Any]
_JUDGES: tuple[type[TopOp], ...] = (top.Conv, top.Deconv, top.MatMul, top.Add, top.Sub, top.Mul, top.AvgPool)
"""Consumers whose output tells more than the tensor itself."""
_MAX_CONSUMERS = 3


def choose_ranges(
    graph: Graph,
    statistics: Mapping[str, TensorStatistics],
    samples: Iterable[Mapping[str, Array]],
    scheme: Scheme | None = None,
) -> dict[str, Candidate]:
    """For every tensor with statistics, the candidate that disturbs its consumers least."""
    scheme = scheme or SCHEMES["int8"]
    symmetric = scheme.activation_scales != "affine"
    bits = 8 * dtype_of(scheme.activation).itemsize
    methods = POWER_CANDIDATES if scheme.activation_scales == "pow2" else CANDIDATES
    tensors = [value for value in _tensors(graph) if value_name(value) in statistics]
    options = {value: _options(statistics[value_name(value)], bits, symmetric, methods) for value in tensors}
    trials = [_Trial(value, options[value], graph, scheme) for value in tensors if len(options[value]) > 1]
    if trials:
        engine = FloatEngine(graph, fetch=ALL_TENSORS, threads=None)
        for sample in samples:
            values = {**sample, **engine.run(sample)}
            for trial in trials:
                trial.add(values)
    chosen = {value_name(value): found[0] for value, found in options.items() if found}
    chosen.update({value_name(trial.value): trial.best() for trial in trials})
    return chosen


def _tensors(graph: Graph) -> list[Value]:
    results = [value for op in graph.ops if not isinstance(op, top.WeightOp) for value in op.results]
    return [v for v in (*graph.block.args, *results) if is_static(v) and dtype_of(v.type).name == "f32"]


def _options(
    statistics: TensorStatistics, bits: int, symmetric: bool, methods: Sequence[str]
) -> list[Candidate]:
    return candidates(statistics, bits, symmetric, methods)


class _Trial:
    """The candidates of one tensor and the errors they have made so far."""

    def __init__(self, value: Value, options: list[Candidate], graph: Graph, scheme: Scheme) -> None:
        self.value = value
        self.options = options
        self.types = [activation_type(one.min, one.max, scheme) for one in options]
        self.errors = np.zeros(len(options))
        users = [use.operation for use in value.uses]
        judges = [op for op in dict.fromkeys(users) if isinstance(op, _JUDGES)]
        self.judges = [(op, single_op(op, graph, threads=1)) for op in judges[:_MAX_CONSUMERS]]

    def add(self, values: Mapping[str, Array]) -> None:
        """Try all candidates on one sample."""
        name = value_name(self.value)
        exact = np.ascontiguousarray(values[name], np.float32)
        for index, kind in enumerate(self.types):
            integers = eltwise.quantize(exact, kind.scale, kind.zero_point, kind.dtype.numpy)
            held = eltwise.dequantize(integers, kind.scale, kind.zero_point)
            if not self.judges:
                self.errors[index] += float(np.square(held - exact, dtype=np.float64).sum())
            for op, run in self.judges:
                arrays = [held if v is self.value else values.get(value_name(v), held) for v in op.operands]
                reference = values[value_name(op.results[0])]
                power = float(np.square(reference, dtype=np.float64).sum()) or 1.0
                self.errors[index] += (
                    float(np.square(run(arrays)[0] - reference, dtype=np.float64).sum()) / power
                )

    def best(self) -> Candidate:
        """The candidate of least error; of equal ones the widest."""
        return self.options[int(np.argmin(self.errors))]
