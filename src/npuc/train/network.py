"""A float network as a trainable torch module: its weights are parameters, tensors go in and come out in order.

    network = TrainableNetwork(graph)
    network(images).softmax(1)
    trained = network.to_graph()                  # the same network with the weights as they are now

A network in canonical form has its batch norms folded into its convolutions. Those that are left (`canonical=False`) use the
statistics of the batch while the module is in training mode, and update their own, until `freeze_batch_norms`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from npuc.engine.torch import TopModule
from npuc.engine.torch.module import TorchStep
from npuc.ir import Graph, Weight, shape_of, top
from npuc.ir.weights import WeightStore

_MOMENTUM = 0.1
"""The share of a batch in the running statistics of batch norms."""


class TrainableNetwork(torch.nn.Module):  # type: ignore[misc]
    """The network of a graph; learns all weights of more than one element but the statistics of batch norms."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.body = TopModule(graph)
        self.batch_norms_frozen = False
        statistics: set[Any] = set()
        for step in self.body.steps:
            if isinstance(step.op, top.BatchNorm):
                statistics |= {self.body.refs[step.op.mean], self.body.refs[step.op.variance]}
        for ref in {ref: None for ref in self.body.refs.values()}:
            tensor = self.body.weight(ref)
            learns = tensor.is_floating_point() and tensor.numel() > 1 and ref not in statistics
            if learns:
                tensor.requires_grad_(True)
        self._live = [_with_batch_statistics(step) for step in self.body.steps]

    @property
    def batch_size(self) -> int | None:
        """The only number of samples that it takes at once, if it was imported for more than one."""
        size = (shape_of(self.graph.inputs[0].value) or (1,))[0]
        return size if size > 1 else None

    def freeze_batch_norms(self) -> None:
        """From now on batch norms use their running statistics in training mode, too."""
        self.batch_norms_frozen = True

    def forward(self, *inputs: Any) -> Any:
        """The output, or a tuple of the outputs in order."""
        values = {port.value: x for port, x in zip(self.graph.inputs, inputs, strict=True)}
        ports = [port.value for port in self.graph.outputs]
        live = self.training and not self.batch_norms_frozen
        known = self.body.run(self._live if live else self.body.steps, values, ports)
        outputs = tuple(known[value] for value in ports)
        return outputs[0] if len(outputs) == 1 else outputs

    def weight_store(self) -> WeightStore:
        """The weights of the network as they are now."""
        weights = {name: self.graph.weights[name] for name in self.graph.weights}
        for ref in self.body.refs.values():
            tensor = self.body.weight(ref)
            if tensor.is_floating_point():
                weights[ref] = Weight.of(tensor.detach().cpu().numpy().copy())
        return WeightStore(weights)

    def to_graph(self) -> Graph:
        """The network with the weights as they are now."""
        return Graph(self.graph.copy().module, self.weight_store())


def _with_batch_statistics(step: TorchStep) -> TorchStep:
    """The step with the statistics of its batch, if it is a batch norm."""
    if not isinstance(step.op, top.BatchNorm):
        return step

    def handler(op: Any, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
        return F.batch_norm(x, mean, variance, scale, bias, True, _MOMENTUM, op.epsilon)

    return replace(step, handler=handler)
