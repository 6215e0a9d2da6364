"""A float network as a trainable torch module: its weights are parameters, tensors go in and come out in order.

    network = TrainableNetwork(graph)
    network(images).softmax(1)
    trained = network.to_graph()                  # the same network with the weights as they are now

A network in canonical form has its batch norms folded into its convolutions. Those that are left (`canonical=False`) use the
statistics of the batch while the module is in training mode, and update their own, until `freeze_batch_norms`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from npuc.engine.torch import TopModule
from npuc.engine.torch.module import TorchStep
from npuc.ir import Graph, Value, Weight, shape_of, top
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

    @property
    def ends_with_softmax(self) -> bool:
        """Whether the first output has a softmax behind its logits."""
        return before_softmax(self.graph) is not self.graph.outputs[0].value

    @property
    def input_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of its inputs, in order; the first axis has the samples."""
        return tuple(tuple(shape_of(port.value)) for port in self.graph.inputs)

    def freeze_batch_norms(self) -> None:
        """From now on batch norms use their running statistics in training mode, too."""
        self.batch_norms_frozen = True

    def forward(self, *inputs: Any) -> Any:
        """The output, or a tuple of the outputs in order."""
        outputs = self._run(inputs, [port.value for port in self.graph.outputs])
        return outputs[0] if len(outputs) == 1 else outputs

    def logits(self, *inputs: Any) -> Any:
        """What a loss is computed of: the first output, without the softmax that it may end with."""
        return self._run(inputs, [before_softmax(self.graph)])[0]

    def _run(self, inputs: Sequence[Any], ports: Sequence[Value]) -> tuple[Any, ...]:
        values = {port.value: x for port, x in zip(self.graph.inputs, inputs, strict=True)}
        live = self.training and not self.batch_norms_frozen
        known = self.body.run(self._live if live else self.body.steps, values, ports)
        return tuple(known[value] for value in ports)

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


def with_own_vectors(graph: Graph) -> Graph:
    """The network, in which no two layers have the same vector.

    Equal tensors, such as biases of zero, are one constant of an imported network, and would be learned as one.
    """
    copy = graph.copy()
    for op in list(copy.ops):
        if not isinstance(op, top.WeightOp) or len(shape_of(op.output)) != 1:
            continue
        array = copy.constant(op.output)
        for use in list(op.output.uses)[1:]:
            assert array is not None
            own = copy.add_weight(op.ref, array)
            copy.block.insert_op_before(own, op)
            use.operation.operands[use.index] = own.output
    return copy


def before_softmax(graph: Graph) -> Value:
    """The first output of a network; if a softmax makes it, the operand of the softmax.

    Keras networks end with probabilities. Cross entropy takes a softmax itself: of probabilities, it hardly tells them apart.
    """
    value = graph.outputs[0].value
    return value.owner.operands[0] if isinstance(value.owner, top.Softmax) else value


def _with_batch_statistics(step: TorchStep) -> TorchStep:
    """The step with the statistics of its batch, if it is a batch norm."""
    if not isinstance(step.op, top.BatchNorm):
        return step

    def handler(op: Any, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
        return F.batch_norm(x, mean, variance, scale, bias, True, _MOMENTUM, op.epsilon)

    return replace(step, handler=handler)
