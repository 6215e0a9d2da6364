"""Range selection by the error at the outputs of the layers that read a tensor.

Range methods consider a tensor alone; what counts is the output of its consumers. For each tensor, each candidate range is
tried on a few samples: the tensor is quantized, its consumers run in float with everything else exact, and the candidate
with the least squared error at the consumers' outputs is chosen. Samples are processed one at a time, so memory is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from npuc.arithmetic.kinds import Scales
from npuc.arrays import Array
from npuc.calib.ranges.choice import CANDIDATES, POWER_CANDIDATES, RangeCandidate, candidates
from npuc.calib.statistics import TensorStatistics
from npuc.calib.table import Entry
from npuc.engine import ALL_TENSORS, float_engine
from npuc.engine.single import single_op
from npuc.ir import Graph, Value, dtype_of, is_static, top, value_name
from npuc.ir.definition import TopOp
from npuc.kernels import eltwise
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.parameters import activation_type
from npuc.quant.scheme import Scheme

_MEASURED_CONSUMERS: tuple[type[TopOp], ...] = (
    top.Conv,
    top.Deconv,
    top.MatMul,
    top.Add,
    top.Sub,
    top.Mul,
    top.AvgPool,
)
"""Consumers whose output is measured, rather than the tensor itself."""
_MAX_CONSUMERS = 3


def output_aware_entries(
    graph: Graph,
    statistics: Mapping[str, TensorStatistics],
    samples: Iterable[Mapping[str, Array]],
    scheme_of: LayerSchemes,
    threads: int = 1,
    propose: Callable[[TensorStatistics], list[RangeCandidate]] | None = None,
) -> dict[str, Entry]:
    """For each tensor of 8-bit layers, the range with the least error at its consumers; `method` names its origin.

    `propose` gives other candidates than those of the range methods.
    """
    trials = []
    for value in _tensors(graph):
        name, scheme = value_name(value), _scheme_at(value, scheme_of)
        if scheme is None or name not in statistics or not statistics[name].count:
            continue
        if scheme.activation in ("i8", "ui8"):
            methods = POWER_CANDIDATES if scheme.activation_scales is Scales.POWER_OF_TWO else CANDIDATES
            symmetric = scheme.activation_scales != "affine"
            options = (
                propose(statistics[name]) if propose else candidates(statistics[name], 8, symmetric, methods)
            )
            trials.append(_Trial(value, options, graph, scheme))
    engine = float_engine(graph, fetch=ALL_TENSORS, threads=threads)
    for sample in samples:
        values = {**sample, **engine.run(sample)}
        for trial in trials:
            if len(trial.options) > 1:
                trial.add(values)
    entries = {}
    for trial in trials:
        name, best = value_name(trial.value), trial.best()
        entries[name] = Entry(name, max(abs(best.min), abs(best.max)), best.min, best.max, best.method)
    return entries


def _scheme_at(value: Value, scheme_of: LayerSchemes) -> Scheme | None:
    """The scheme of the layer that computes a value, or of the first that reads it."""
    layers = [value.owner] if isinstance(value.owner, TopOp) else []
    layers += [use.operation for use in value.uses if isinstance(use.operation, TopOp)]
    return next((scheme for op in layers if (scheme := scheme_of(op)) is not None), None)


def _tensors(graph: Graph) -> list[Value]:
    results = [value for op in graph.ops if not isinstance(op, top.WeightOp) for value in op.results]
    return [v for v in (*graph.block.args, *results) if is_static(v) and dtype_of(v.type).name == "f32"]


class _Trial:
    """The candidate ranges of one tensor, and their errors summed over the samples so far."""

    def __init__(self, value: Value, options: list[RangeCandidate], graph: Graph, scheme: Scheme) -> None:
        self.value = value
        self.options = options
        self.types = [activation_type(option.min, option.max, scheme) for option in options]
        self.errors = np.zeros(len(options))
        users = [use.operation for use in value.uses]
        consumers = [op for op in dict.fromkeys(users) if isinstance(op, _MEASURED_CONSUMERS)]
        self.consumers = [(op, single_op(op, graph, threads=1)) for op in consumers[:_MAX_CONSUMERS]]

    def add(self, values: Mapping[str, Array]) -> None:
        """Try all candidates on one sample."""
        name = value_name(self.value)
        exact = np.ascontiguousarray(values[name], np.float32)
        for index, kind in enumerate(self.types):
            integers = eltwise.quantize(exact, kind.scale, kind.zero_point, kind.dtype.numpy)
            held = eltwise.dequantize(integers, kind.scale, kind.zero_point)
            if not self.consumers:
                self.errors[index] += float(np.square(held - exact, dtype=np.float64).sum())
            for op, run in self.consumers:
                arrays = [held if v is self.value else values.get(value_name(v), held) for v in op.operands]
                reference = values[value_name(op.results[0])]
                power = float(np.square(reference, dtype=np.float64).sum()) or 1.0
                self.errors[index] += (
                    float(np.square(run(arrays)[0] - reference, dtype=np.float64).sum()) / power
                )

    def best(self) -> RangeCandidate:
        """The candidate with the least error; the widest of equal ones."""
        return self.options[int(np.argmin(self.errors))]
