"""Steps of training as a CUDA graph: a small network spends its time in launching kernels, and a graph launches them all at once.

The first steps run as always, so that libraries choose their kernels; then forward, loss and backward are recorded, and from
there on replayed on the batch of each step. Parameters, gradients and batches stay at their addresses. A graph computes what the
kernels compute that it was recorded from: training comes to the same, up to the order in which a GPU adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from npuc.errors import TrainingError

_PLAIN_STEPS = 3
"""Steps before one is recorded."""


class CapturedGradients:
    """The gradients of a step: `compute` gets a batch and its labels, fills the gradients of parameters and returns the loss."""

    def __init__(self, compute: Callable[[Sequence[Any], Any], Any], clear: Callable[[], None]) -> None:
        self._compute, self._clear = compute, clear
        """`clear` drops the gradients, which recording then places in the graph's own memory."""
        self._count = 0
        self._graph: Any = None
        self._held: list[Any] = []
        self._loss: Any = None

    def __call__(self, batch: Sequence[Any], labels: Any) -> Any:
        """The loss of a batch."""
        given = [*batch] if labels is None else [*batch, labels]
        if self._count < _PLAIN_STEPS:
            self._count += 1
            return self._aside(batch, labels)
        if self._graph is None:
            self._record(given, None if labels is None else len(batch))
        for held, tensor in zip(self._held, given, strict=True):
            held.copy_(tensor)
        self._graph.replay()
        return self._loss.clone()

    def _aside(self, batch: Sequence[Any], labels: Any) -> Any:
        """A plain step on a stream of its own, where recording can follow it."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._clear()
            loss = self._compute(batch, labels)
        torch.cuda.current_stream().wait_stream(stream)
        return loss

    def _record(self, given: Sequence[Any], at: int | None) -> None:
        self._held = [tensor.clone() for tensor in given]
        batch = self._held if at is None else self._held[:at]
        self._clear()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._loss = self._compute(batch, None if at is None else self._held[at])
        except RuntimeError as error:
            raise TrainingError(
                f"a step of this module cannot be recorded as a CUDA graph: {str(error).splitlines()[0]}",
                fix="Train without cuda_graph, or keep forward free of copies between CPU and GPU",
            ) from error
        self._graph = graph
