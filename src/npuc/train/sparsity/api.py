"""From a float network to one with N:M sparse weights: order channels, mask by magnitude, train what is left.

result = sparsify(graph, train, held, "2:4", TrainingOptions(epochs=10, loss="both"))
npuc.quantize(result.graph, ...)              # zeros stay zeros: symmetric weights have them as the integer 0
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from npuc.arithmetic.sparsity import SparsityPattern
from npuc.engine.torch.module import TorchStep
from npuc.errors import TrainingError, UsageError
from npuc.ir import Graph, top
from npuc.train.checkpoint import fingerprint
from npuc.train.data import TrainingData
from npuc.train.loop import Epoch, fit
from npuc.train.network import TrainableNetwork
from npuc.train.options import TrainingOptions
from npuc.train.sparsity.activations import check_activation_sparsity, half_of_blocks
from npuc.train.sparsity.masks import (
    PrunableWeight,
    kept_magnitude,
    masked_graph,
    masks_of,
    prunable_weights,
    weight_value,
)
from npuc.train.sparsity.permutation import permuted
from npuc.train.sparsity.training import SparseTraining, sparse_parameters


@dataclass(frozen=True)
class SparsityResult:
    """A sparse network, and how it became so."""

    graph: Graph
    pattern: SparsityPattern
    weights: tuple[PrunableWeight, ...]
    """All weights of convolutions and products; those that stayed dense say why."""
    magnitude: float
    """The share of the magnitude of sparse weights that the first masks keep."""
    magnitude_unordered: float
    """The same without ordering channels."""
    orders: dict[str, tuple[int, ...]]
    """Groups of channels that have another order now, by their first layer: the old position of each channel."""
    history: tuple[Epoch, ...] = ()

    @property
    def sparse(self) -> tuple[PrunableWeight, ...]:
        """The weights that are sparse."""
        return tuple(entry for entry in self.weights if not entry.reason)


def sparsify(
    graph: Graph,
    data: Any = None,
    validation: Any = None,
    pattern: SparsityPattern | str = "2:4",
    options: TrainingOptions | None = None,
    *,
    gradual: float = 0.5,
    permute: bool = True,
    exclude: Collection[str] = (),
    activation_sparsity: float = 0.0,
    activation_block: int = 4,
    checkpoint: Path | str | None = None,
    report: Callable[[Epoch], None] = lambda epoch: None,
) -> SparsityResult:
    """Make the weights of a float network N:M sparse.

    Without `data` weights are masked and not trained. With it, masks grow over the first `gradual` part of the steps (0: all
    at once), and the network is trained with `options`; a loss of distillation has the dense network as teacher. `exclude` are
    layers that stay dense. `activation_sparsity` 0.5 trains with only the larger half of each block of `activation_block`
    channels going into sparse layers (docs/sparsity.md says who can use that).
    """
    pattern = _pattern(pattern)
    check_activation_sparsity(activation_sparsity, activation_block)
    if not 0 <= gradual <= 1:
        raise UsageError(
            f"masks cannot grow over {gradual:g} of the training",
            fix="Give a part between 0 (all at once) and 1",
        )
    weights = tuple(prunable_weights(graph, pattern, exclude))
    if all(entry.reason for entry in weights):
        raise TrainingError(
            f"no weight of the network can be {pattern} sparse",
            fix="; ".join(dict.fromkeys(f"'{entry.layer}': {entry.reason}" for entry in weights[:3]))
            or "It has none",
        )
    unordered = kept_magnitude(graph, masks_of(graph, pattern, exclude))
    ordered = permuted(graph, pattern, exclude) if permute else None
    network = ordered.graph if ordered is not None else graph
    masks = masks_of(network, pattern, exclude)
    result = SparsityResult(
        masked_graph(network, masks), pattern, weights, kept_magnitude(network, masks), unordered,
        ordered.orders if ordered is not None else {},
    )  # fmt: skip
    if data is None:
        return result
    options = options or TrainingOptions()
    samples = TrainingData.of(data)
    module = TrainableNetwork(network)
    if activation_sparsity:
        _halve_activations(module, {entry.ref for entry in result.sparse}, activation_block)
    steps = int(gradual * options.epochs * max(1, len(samples) // options.batch))
    training = SparseTraining(module, sparse_parameters(module, pattern, exclude), pattern, steps)
    teacher = TrainableNetwork(graph) if options.loss != "labels" else None
    settings = {
        "network": fingerprint(graph),
        "pattern": str(pattern),
        "gradual": gradual,
        "permute": permute,
        "exclude": sorted(exclude),
        "activation_sparsity": [activation_sparsity, activation_block],
    }
    history = fit(
        module, samples, validation, options, teacher=teacher, before_step=training.before_step,
        checkpoint=checkpoint, report=report, settings=settings,
    ).history  # fmt: skip
    training.finish()
    return replace(result, graph=module.to_graph(), history=history)


def _pattern(pattern: SparsityPattern | str) -> SparsityPattern:
    try:
        return SparsityPattern.parse(pattern)
    except ValueError as error:
        raise UsageError(str(error), fix="Give N:M, such as 2:4, 1:4, 4:8 or 4:16") from error


def _halve_activations(module: TrainableNetwork, refs: Collection[str], block: int) -> None:
    """What goes into the sparse layers of a network is sparse, too."""

    def halved(step: TorchStep) -> TorchStep:
        op: Any = step.op
        weight = weight_value(op)
        if weight is None or module.body.refs.get(weight) not in refs:
            return step
        axis = -1 if isinstance(op, top.MatMul) else 1

        def handler(op: Any, x: Any, *rest: Any, **more: Any) -> Any:
            return step.handler(op, half_of_blocks(x, block, axis), *rest, **more)

        return replace(step, handler=handler)

    module.body.steps = [halved(step) for step in module.body.steps]
    module._live = [halved(step) for step in module._live]
