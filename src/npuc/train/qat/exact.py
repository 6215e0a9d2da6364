"""The integers of a network for a batch of any size: what a QAT module computes in eval mode.

It is the arithmetic of `npuc.export.exact` on tensors: integers are int64, and sums of products float64, which holds every
integer below 2^53 and so every accumulator; results are those of graph mode to the last bit on the CPU and on CUDA.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from npuc.errors import InputDataError
from npuc.export.torch.algebra import TorchAlgebra
from npuc.export.torch.module import QuantizedModule
from npuc.ir import Graph, shape_of


class _BatchAlgebra(TorchAlgebra):
    """Shapes that are stated for one sample hold for each sample of a batch."""

    def reshape(self, x: Any, shape: Sequence[int]) -> Any:
        """Another shape, with the samples along the first axis, or as parts of it where samples are rows of a matrix."""
        if x.numel() != prod(shape) and shape:
            shape = (-1, *shape[1:])
        return x.reshape(tuple(shape))


class ExactNetwork(QuantizedModule):
    """An integer network; rows of a batch are computed together if that gives what each gives alone, else one by one."""

    def __init__(self, graph: Graph, device: Any = "cpu") -> None:
        super().__init__(graph, device)
        self._algebra = _BatchAlgebra(self._hold)
        self._sizes = {shape_of(port.value)[0] for port in graph.inputs if shape_of(port.value)}

    def outputs(self, inputs: Sequence[Any], together: bool | None) -> tuple[Any, bool]:
        """The output or outputs, and whether rows were (`together`, None if that is not known yet) computed together."""
        count = inputs[0].shape[0]
        if self._sizes == {count}:
            return self(*inputs), bool(together)
        if self._sizes != {1}:
            raise InputDataError(
                f"a batch of {count}, and the network was imported for one of {', '.join(map(str, self._sizes))}",
                fix="Give batches of this size in eval mode, or import the network for one sample",
            )
        if together is None:
            together = self._is_independent([x[:2] for x in inputs])
        return (self(*inputs) if together else self._by_row(inputs)), together

    def _by_row(self, inputs: Sequence[Any]) -> Any:
        rows = [self(*(x[i : i + 1] for x in inputs)) for i in range(inputs[0].shape[0])]
        if isinstance(rows[0], tuple):
            return tuple(torch.cat([row[k] for row in rows]) for k in range(len(rows[0])))
        return torch.cat(rows)

    def _is_independent(self, inputs: Sequence[Any]) -> bool:
        """Whether two samples at once give what each gives alone."""
        try:
            both = self(*inputs)
        except (RuntimeError, IndexError):
            return False
        alone = self._by_row(inputs)
        pairs = zip(both, alone, strict=True) if isinstance(both, tuple) else [(both, alone)]
        return all(x.shape == y.shape and torch.equal(x, y) for x, y in pairs)
