"""How good a pruned network is: right classes and the divergence of its outputs from those of the unpruned one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from npuc.arrays import Array
from npuc.engine.torch import TopModule
from npuc.ir import Graph
from npuc.train.data import TrainingData
from npuc.train.loop import device_of, predictions
from npuc.train.network import TrainableNetwork

EvalFunction = Callable[[Graph], float]
"""A user's own measure of a network; more is better."""
_BATCH = 250


@dataclass(frozen=True)
class Score:
    """One measurement."""

    divergence: float
    """The mean Kullback-Leibler divergence of the first output from that of the unpruned network; 0 is no change."""
    score: float
    """The share of right classes, what the user's function says, or minus the divergence where there are no labels."""


@dataclass(eq=False)
class Scorer:
    """Measures versions of one network on the same samples."""

    graph: Graph
    data: TrainingData
    eval_fn: EvalFunction | None = None
    device: str = "cpu"
    _goal: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        device_of(self.device)
        self._module = TrainableNetwork(self.graph).to(self.device).eval()
        self._goal = F.log_softmax(self._outputs(self._module).flatten(1), 1)
        if self.eval_fn is None:
            self.data.require_classes(self._goal.shape[1])

    def _outputs(self, module: Any) -> Any:
        return predictions(module, self.data, self.device)

    def _score(self, outputs: Any) -> Score:
        logs = F.log_softmax(outputs.flatten(1), 1)
        divergence = float(F.kl_div(logs, self._goal, reduction="batchmean", log_target=True))
        if self.data.labels is None:
            return Score(divergence, -divergence)
        return Score(divergence, float(np.mean(outputs.argmax(1).numpy() == self.data.labels)))

    def base(self) -> Score:
        """The unpruned network."""
        return self.of(self.graph)

    def of(self, graph: Graph) -> Score:
        """A network with the inputs and outputs of the first one."""
        score = self._score(self._outputs(TrainableNetwork(graph).to(self.device)))
        return score if self.eval_fn is None else Score(score.divergence, float(self.eval_fn(graph)))

    def masked(self, masks: Mapping[str, Array]) -> Score:
        """The unpruned network with masks over its weights: what a slim network computes, without making it."""
        body = self._module.body
        weights = {
            ref: body.weight(ref) * torch.from_numpy(mask).to(self.device) for ref, mask in masks.items()
        }
        ports = [port.value for port in self.graph.outputs]
        parts = []
        with torch.no_grad():
            for begin in range(0, len(self.data), _BATCH):
                values = {
                    port.value: torch.from_numpy(array[begin : begin + _BATCH]).to(self.device)
                    for port, array in zip(self.graph.inputs, self.data.inputs, strict=True)
                }
                parts.append(body.run(body.steps, values, ports, weights=weights)[ports[0]].cpu())
        return self._score(torch.cat(parts))


def weight_salience(graph: Graph, data: TrainingData, device: str = "cpu") -> dict[str, Array]:
    """For each weight, the gradient of the loss times the weight, summed over samples: what the Taylor criterion needs.

    The loss is cross entropy; without labels, the squared norm of the outputs.
    """
    module = TrainableNetwork(graph).to(device)
    module.freeze_batch_norms()
    body: TopModule = module.body
    for begin in range(0, len(data), _BATCH):
        part = data[begin : begin + _BATCH]
        outputs = module(*(torch.from_numpy(np.ascontiguousarray(x)).to(device) for x in part.inputs))
        outputs = outputs[0] if isinstance(outputs, tuple) else outputs
        if part.labels is None:
            loss = outputs.square().sum() / len(data)
        else:
            part.require_classes(outputs.flatten(1).shape[1])
            labels = torch.from_numpy(part.labels).to(device)
            loss = F.cross_entropy(outputs.flatten(1), labels, reduction="sum") / len(data)
        loss.backward()
    salience: dict[str, Array] = {}
    for ref in dict.fromkeys(body.refs.values()):
        weight = body.weight(ref)
        if weight.grad is not None:
            salience[ref] = (weight.grad * weight.detach()).cpu().numpy()
    return salience
