"""Once-for-all: one super-net is trained so that its narrow subnets work, too; then the best one under a budget is looked for.

Widths and kernels are elastic: a subnet is the super-net with masks over its weights. Each training step runs the largest
subnet, the smallest and some random ones (the sandwich rule); the largest learns from labels or from the float network, the
others from its outputs (in-place distillation). An evolutionary search then finds a subnet for any budget, which is cut out and
saved without training: only its batch norm statistics are taken anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from npuc.activity import activity
from npuc.arrays import Array
from npuc.ir import Graph, Weight, WeightStore, top
from npuc.train.checkpoint import fingerprint
from npuc.train.loop import fit
from npuc.train.network import TrainableNetwork
from npuc.train.pruning.batch_norms import folded, recalibrated, with_batch_norms
from npuc.train.pruning.budget import Budget, WidthCosts
from npuc.train.pruning.groups import DependencyGraph
from npuc.train.pruning.kernels import kernel_choices, kernel_masks, with_kernels
from npuc.train.pruning.prepared import PruningTask
from npuc.train.pruning.result import PruningResult
from npuc.train.pruning.search import capacity_harm, require_possible, search_widths
from npuc.train.pruning.slimming import mask_arrays, slim
from npuc.train.pruning.widths import dropped

_KEPT = 4
"""Parents of a generation."""
_MUTATED = 0.15
_TRIES = 60
_LOOSE = 1.1
"""A subnet whose estimated cost is more than this share of the budget is not measured; smaller kernels may save that much."""


@dataclass(frozen=True)
class Subnet:
    """The widths of groups and the kernels of convolutions."""

    widths: Mapping[str, int] = field(default_factory=dict)
    kernels: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for equal subnets."""
        return tuple(sorted(self.widths.items())), tuple(sorted(self.kernels.items()))


class _WithLoss(torch.autograd.Function):  # type: ignore[misc]
    """Its first argument; the second, a loss, joins the loss that is made of the first."""

    @staticmethod
    def forward(ctx: Any, outputs: Any, loss: Any) -> Any:
        ctx.save_for_backward(loss)
        return outputs.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (loss,) = ctx.saved_tensors
        return gradient, torch.ones_like(loss)


class SuperNet(torch.nn.Module):  # type: ignore[misc]
    """A network whose subnets are trained together; in eval mode it is the largest one."""

    def __init__(self, task: PruningTask) -> None:
        super().__init__()
        self.dependencies = task.groups_of(task.graph)
        self.costs = task.costs_of(self.dependencies)
        self.importance = task.importance_of(self.dependencies)
        self.options = task.options
        self.kernels = kernel_choices(task.graph) if task.options.kernels else {}
        require_possible(self.costs, task.budget)
        self.choices = _elastic_widths(self.costs, task.budget, task.options.least_width)
        live = with_batch_norms(task.graph, task.statistics, task.device)
        self.network = TrainableNetwork(live)
        self._statistics = {
            self.network.body.refs[value]
            for op in live.ops
            if isinstance(op, top.BatchNorm)
            for value in (op.mean, op.variance)
        }
        self.heat = task.training.temperature if task.training.loss != "labels" else 1.0
        self._parts: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._narrow: list[dict[str, Any]] = []
        """The masks of the subnets of a step; their tensors stay where they are, as CUDA graphs need it."""

    @property
    def smallest(self) -> Subnet:
        """The narrowest subnet with the smallest kernels."""
        widths = {name: choices[-1] for name, choices in self.choices.items()}
        return Subnet(widths, {name: choices[-1] for name, choices in self.kernels.items()})

    def drawn(self, integer: Any) -> Subnet:
        """A random subnet; `integer(n)` gives a random number below n."""
        widths = {name: choices[integer(len(choices))] for name, choices in self.choices.items()}
        return Subnet(
            widths, {name: choices[integer(len(choices))] for name, choices in self.kernels.items()}
        )

    def masks(self, subnet: Subnet) -> dict[str, Array]:
        """The masks over the weights that make this subnet."""
        selection = dropped(self.dependencies, subnet.widths, self.importance)
        masks = mask_arrays(self.dependencies, self.dependencies.removed(selection))
        for ref, mask in kernel_masks(self.dependencies.graph, subnet.kernels).items():
            masks[ref] = masks[ref] * mask if ref in masks else mask
        return masks

    def _part(self, subnet: Subnet) -> dict[str, Any]:
        """The masks that the one width, or the one kernel, of a subnet puts on weights."""
        if subnet.key not in self._parts:
            device = next(self.parameters()).device
            masks = self.masks(subnet)
            self._parts[subnet.key] = {ref: torch.from_numpy(mask).to(device) for ref, mask in masks.items()}
        return self._parts[subnet.key]

    def draw_subnets(self) -> None:
        """Choose the subnets of the next step: the smallest, and some at random."""
        subnets = [self.smallest]
        for _ in range(self.options.random_subnets):
            subnets.append(self.drawn(lambda count: int(torch.randint(count, ()))))
        if not self._narrow:
            self._narrow = [
                {ref: torch.ones_like(self.network.body.weight(ref)) for ref in self.masks(self.smallest)}
                for _ in subnets
            ]
        for subnet, held in zip(subnets, self._narrow, strict=True):
            masks: dict[str, Any] = {}
            parts = [Subnet(widths={name: width}) for name, width in subnet.widths.items()]
            parts += [Subnet(kernels={name: size}) for name, size in subnet.kernels.items()]
            for part in parts:
                for ref, mask in self._part(part).items():
                    masks[ref] = masks[ref] * mask if ref in masks else mask
            for ref, tensor in held.items():
                if ref in masks:
                    tensor.copy_(masks[ref].expand_as(tensor))
                else:
                    tensor.fill_(1)

    def _run(self, masks: Mapping[str, Any], inputs: tuple[Any, ...]) -> Any:
        """The first output of a subnet with the statistics of the batch; those that are kept do not change."""
        body, graph = self.network.body, self.network.graph
        weights = {ref: body.weight(ref).clone() for ref in self._statistics}
        weights |= {ref: body.weight(ref) * mask for ref, mask in masks.items()}
        values = {port.value: x for port, x in zip(graph.inputs, inputs, strict=True)}
        first = graph.outputs[0].value
        return body.run(self.network._live, values, [first], weights=weights)[first]

    def forward(self, *inputs: Any) -> Any:
        """The outputs of the largest subnet; in training, the losses of the others come with them."""
        outputs = self.network(*inputs)
        if not self.training:
            return outputs
        first = outputs[0] if isinstance(outputs, tuple) else outputs
        goal = F.log_softmax(first.detach().float().flatten(1) / self.heat, 1)
        loss = torch.zeros((), device=first.device)
        for masks in self._narrow:
            logs = F.log_softmax(self._run(masks, inputs).float().flatten(1) / self.heat, 1)
            loss = loss + self.heat**2 * F.kl_div(logs, goal, reduction="batchmean", log_target=True)
        return _WithLoss.apply(first, loss)


def _elastic_widths(costs: WidthCosts, budget: Budget, least: float) -> dict[str, list[int]]:
    """The widths of each group from all of it to the share `least`, or to less if the budget needs it."""
    limit = budget.absolute(costs.whole)
    while True:
        choices = {
            group.name: [width for width in costs.choices(group.name) if width >= least * group.size]
            for group in costs.dependencies.groups
        }
        if least < 1e-3 or costs.exact({name: widths[-1] for name, widths in choices.items()}) <= limit:
            return choices
        least /= 2


@dataclass(eq=False)
class TrainedSuperNet:
    """A super-net after training, from which subnets are cut."""

    task: PruningTask
    net: SuperNet
    _costs: dict[tuple[Any, ...], float] = field(default_factory=dict)
    _scores: dict[tuple[Any, ...], float] = field(default_factory=dict)

    @property
    def costs(self) -> WidthCosts:
        """The costs of widths."""
        return self.net.costs

    def cost(self, subnet: Subnet) -> float:
        """What a subnet costs."""
        if subnet.key not in self._costs:
            graph = with_kernels(self.costs.shapes.network(subnet.widths), subnet.kernels)
            self._costs[subnet.key] = self.costs.measure.whole(graph)
        return self._costs[subnet.key]

    def subnet(self, subnet: Subnet) -> Graph:
        """A subnet as a network of its own, its statistics taken anew."""
        live = self.net.network.to_graph()
        store: dict[str, Weight] = dict(live.weights)
        for ref, mask in self.net.masks(subnet).items():
            store[ref] = Weight.of((store[ref].array() * mask).astype(np.float32))
        live.weights = WeightStore(store)
        whole = folded(recalibrated(live, self.task.statistics, None, self.task.device), self.task.graph)
        dependencies = DependencyGraph(whole, self.task.exclude)
        narrow = slim(dependencies, dropped(dependencies, subnet.widths, self.net.importance))
        return with_kernels(narrow, subnet.kernels)

    def score(self, subnet: Subnet) -> float:
        """How good a subnet is on the samples that candidates are measured on."""
        if subnet.key not in self._scores:
            scorer = self.task.scorer(self.task.graph)
            self._scores[subnet.key] = scorer.of(self.subnet(subnet)).score
        return self._scores[subnet.key]

    def _balanced(self, limit: float) -> Subnet:
        """The subnet of whole kernels that leaves no group too narrow: a good one to begin with."""
        largest = {name: sizes[0] for name, sizes in self.net.kernels.items()}
        harm = capacity_harm(self.costs)
        widths = search_widths(self.costs, Budget(self.task.budget.kind, max(limit, 1.0000001)), harm).widths
        least = self.net.smallest.widths
        subnet = Subnet({name: max(width, least[name]) for name, width in widths.items()}, largest)
        return subnet if self.cost(subnet) <= limit else self.net.smallest

    def search(self, budget: Budget) -> tuple[Subnet, list[dict[str, Any]]]:
        """The best subnet under a budget that an evolutionary search finds, and what each generation gave."""
        limit = budget.absolute(self.costs.whole)
        if self.cost(self.net.smallest) > limit:
            require_possible(self.costs, budget)
        rng = np.random.default_rng(self.task.options.seed)

        def fits(subnet: Subnet) -> bool:
            return self.cost(subnet) <= limit

        def draw() -> Subnet:
            for _ in range(_TRIES):
                subnet = self.net.drawn(lambda count: int(min(rng.integers(count), rng.integers(count))))
                if self.costs.estimate(subnet.widths) <= _LOOSE * limit and fits(subnet):
                    return subnet
            return self.net.smallest

        def mutated(subnet: Subnet) -> Subnet:
            other = self.net.drawn(lambda count: int(rng.integers(count)))
            return _mixed(subnet, other, _MUTATED, rng)

        options = self.task.options
        population = [self._balanced(limit), *(draw() for _ in range(options.population - 1))]
        history = []
        with activity("searching subnets", options.generations) as step:
            for generation in range(options.generations):
                ranked = sorted({s.key: s for s in population}.values(), key=self.score, reverse=True)
                parents = ranked[:_KEPT]
                history.append(
                    {
                        "generation": generation + 1,
                        "score": self.score(parents[0]),
                        "cost": self.cost(parents[0]),
                    }
                )
                children: list[Subnet] = []
                for _ in range(_TRIES):
                    if len(children) == options.population - len(parents):
                        break
                    first, second = (parents[int(rng.integers(len(parents)))] for _ in range(2))
                    child = mutated(_mixed(first, second, 0.5, rng) if rng.random() < 0.5 else first)
                    if fits(child):
                        children.append(child)
                population = [*parents, *children]
                step()
        return max(population, key=self.score), history


def _mixed(first: Subnet, second: Subnet, share: float, rng: np.random.Generator) -> Subnet:
    def mix(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
        return {name: b[name] if rng.random() < share else value for name, value in a.items()}

    return Subnet(mix(first.widths, second.widths), mix(first.kernels, second.kernels))


def train_super_net(task: PruningTask) -> TrainedSuperNet:
    """Train a super-net; with a work folder, an interrupted run goes on."""
    net = SuperNet(task)
    checkpoint = None
    if task.work_dir is not None:
        task.work_dir.mkdir(parents=True, exist_ok=True)
        checkpoint = task.work_dir / "super_net.safetensors"
    fit(
        net,
        task.data,
        task.validation,
        task.training,
        teacher=None if task.training.loss == "labels" else TrainableNetwork(task.graph),
        before_step=lambda epoch, index, steps: net.draw_subnets(),
        checkpoint=checkpoint,
        settings={"network": fingerprint(task.graph), "exclude": sorted(task.exclude)},
        report=lambda epoch: task.report(epoch.line),
    )
    net.cpu()
    return TrainedSuperNet(task, net)


def prune_once_for_all(task: PruningTask) -> PruningResult:
    """Train a super-net, search a subnet under the budget, and cut it out."""
    trained = train_super_net(task)
    best, history = trained.search(task.budget)
    graph = trained.subnet(best)
    sizes = {group.name: group.size for group in trained.net.dependencies.groups}
    changed = {name: size for name, size in best.kernels.items() if size != trained.net.kernels[name][0]}
    return PruningResult(
        graph,
        "once-for-all",
        task.budget,
        dict(best.widths),
        sizes,
        trained.cost(best),
        trained.costs.whole,
        task.final_score(graph),
        task.final_score(task.graph),
        kernels=changed,
        history=tuple(history),
    )
