"""What a network may cost, in multiply-adds, bytes of weights or cycles of a target; and what candidates cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from npuc.errors import UsageError
from npuc.flow import quantize_network
from npuc.ir import Graph, shown_name, top
from npuc.layer_costs import TargetCostModel
from npuc.partition.work import macs
from npuc.target import Target
from npuc.train.pruning.groups import DependencyGraph
from npuc.train.pruning.widths import ChannelShapes, Widths, snapped_widths

CostKind = Literal["macs", "bytes", "cycles"]
_KINDS: tuple[CostKind, ...] = ("macs", "bytes", "cycles")
_RANGE = (-4.0, 4.0)
"""The range of every tensor where only cycles are asked for, which do not depend on it."""


@dataclass(frozen=True)
class Budget:
    """An upper limit: a share of what the network costs now (up to 1), or a number.

    >>> Budget.parse("cycles=0.6")
    Budget(kind='cycles', limit=0.6)
    """

    kind: CostKind
    limit: float

    @staticmethod
    def parse(text: str) -> Budget:
        """From `kind=limit`."""
        kind, _, value = text.partition("=")
        try:
            limit = float(value)
        except ValueError:
            limit = -1.0
        if kind not in _KINDS or not 0 < limit < float("inf"):
            raise UsageError(
                f"'{text}' is no budget",
                fix="Write cycles=0.6 for 60 % of the cycles, macs=0.5, bytes=0.5, or a number such as cycles=50000",
            )
        return Budget(kind, limit)

    def absolute(self, whole: float) -> float:
        """The limit as a number, if the network costs `whole` now."""
        return self.limit * whole if self.limit <= 1 else self.limit


LayerCosts = tuple[float, ...]
"""What a layer needs of each resource; resources work at the same time, and the busiest one decides."""


class CostMeasure(Protocol):
    """What a float network costs."""

    def layers(self, graph: Graph) -> Mapping[str, LayerCosts]:
        """The cost of each layer by itself."""
        ...

    def whole(self, graph: Graph) -> float:
        """The cost of the network."""
        ...


class MacCost:
    """Multiply-adds."""

    def layers(self, graph: Graph) -> dict[str, LayerCosts]:
        """Of each layer."""
        return {shown_name(op): (float(macs(op)),) for op in graph.ops if not isinstance(op, top.WeightOp)}

    def whole(self, graph: Graph) -> float:
        """Of all."""
        return _busiest(self.layers(graph).values())


class ByteCost:
    """Bytes of weights at 8 bits each; a weight that several layers share counts once."""

    def layers(self, graph: Graph) -> dict[str, LayerCosts]:
        """Of each layer."""
        counted: set[str] = set()
        sizes: dict[str, LayerCosts] = {}
        for op in graph.ops:
            if isinstance(op, top.WeightOp):
                continue
            refs = {value.owner.ref for value in op.operands if isinstance(value.owner, top.WeightOp)}
            sizes[shown_name(op)] = (float(sum(_elements(graph, ref) for ref in refs - counted)),)
            counted |= refs
        return sizes

    def whole(self, graph: Graph) -> float:
        """Of all."""
        return _busiest(self.layers(graph).values())


def _busiest(costs: Iterable[LayerCosts]) -> float:
    """What layers cost together: what one needs of a resource is hidden where another one is busy with the other.

    >>> _busiest([(10.0, 1.0), (1.0, 10.0)])
    11.0
    """
    return max((sum(resource) for resource in zip(*costs, strict=True)), default=0.0)


def _elements(graph: Graph, ref: str) -> int:
    count = 1
    for size in graph.weights[ref].shape:
        count *= size
    return count


@dataclass(frozen=True)
class CycleCost:
    """Cycles of a target, by the compiler's own cost model; the whole network is compiled and simulated."""

    target: Target

    def _integers(self, graph: Graph) -> Graph:
        names = [*(port.name for port in graph.inputs), *graph.tensor_names()]
        return quantize_network(graph, dict.fromkeys(names, _RANGE), None, self.target).graph

    def layers(self, graph: Graph) -> dict[str, LayerCosts]:
        """Of each layer, by the name of its result: of its engines, and of loading its weights, which others hide."""
        costs = TargetCostModel(self.target).layers(self._integers(graph))
        return {name: (cost.engine, cost.load) for name, cost in costs.items()}

    def whole(self, graph: Graph) -> float:
        """Of the compiled network."""
        cycles = TargetCostModel(self.target).network(self._integers(graph))
        if cycles is None:
            raise UsageError(
                f"the network does not compile for {self.target.name}, so its cycles cannot be counted",
                fix="Run 'npuc inspect' to see why, or give the budget in macs or bytes",
            )
        return float(cycles)


@dataclass(eq=False)
class CostCache:
    """Costs that were counted; versions of one network whose groups got narrower share them."""

    layers: dict[tuple[str, tuple[int, ...]], LayerCosts] = field(default_factory=dict)
    """From a layer and the lengths of its channel axes."""
    networks: dict[tuple[tuple[str, int], ...], float] = field(default_factory=dict)
    """From the widths of all groups."""


@dataclass(eq=False)
class WidthCosts:
    """What a network costs when its groups have other widths.

    The cycles of a layer depend on the widths of its own tensors only, and are counted once for each; multiply-adds and bytes
    go with the elements of its weights. `estimate` adds them up for each resource and takes the busiest one, scaled so that the
    estimate of the whole network is its cost; `exact` measures the network itself.
    """

    dependencies: DependencyGraph
    measure: CostMeasure
    lanes: int = 1
    """Widths are multiples of it."""
    cache: CostCache = field(default_factory=lambda: CostCache())

    def __post_init__(self) -> None:
        self.shapes = ChannelShapes(self.dependencies)
        self.whole = self.exact({})
        elements = self._elements({}) if isinstance(self.measure, MacCost | ByteCost) else {}
        costs = self.measure.layers(self.dependencies.graph) if elements else {}
        self._per_element = {layer: costs[layer][0] / count for layer, count in elements.items()}
        self._scale = 1.0
        self._scale = self.whole / max(self.estimate({}), 1e-9)

    def choices(self, name: str) -> list[int]:
        """The widths of a group worth trying, largest first."""
        group = self.dependencies.group(name)
        return list(snapped_widths(group.size, self.lanes, group.unit))

    def smallest(self) -> dict[str, int]:
        """The smallest width of every group."""
        return {group.name: self.choices(group.name)[-1] for group in self.dependencies.groups}

    def estimate(self, widths: Widths) -> float:
        """The sum over layers."""
        if isinstance(self.measure, MacCost | ByteCost):
            elements = self._elements(widths)
            return self._scale * sum(self._per_element[layer] * count for layer, count in elements.items())
        signatures = self.shapes.signatures(widths)
        if any((layer, lengths) not in self.cache.layers for layer, lengths in signatures.items()):
            costs = self.measure.layers(self.shapes.network(widths))
            for layer, lengths in signatures.items():
                self.cache.layers[layer, lengths] = costs.get(layer, ())
        priced = (self.cache.layers[entry] for entry in signatures.items())
        return self._scale * _busiest(cost for cost in priced if cost)

    def _elements(self, widths: Widths) -> dict[str, float]:
        """The elements that the cost of a layer goes with: of all its weights, or of the first, which multiplies."""
        first = isinstance(self.measure, MacCost)
        counts = self.shapes.weight_elements(widths)
        return {layer: elements[0] if first else sum(elements) for layer, elements in counts.items()}

    def exact(self, widths: Widths) -> float:
        """The cost of the network of these widths."""
        key = tuple(sorted({**self.shapes.sizes, **widths}.items()))
        if key not in self.cache.networks:
            self.cache.networks[key] = self.measure.whole(self.shapes.network(widths))
        return self.cache.networks[key]


def width_costs(
    dependencies: DependencyGraph,
    kind: CostKind,
    target: Target | None = None,
    snap: bool = True,
    cache: CostCache | None = None,
) -> WidthCosts:
    """The costs of widths; with a target, widths fill the lanes of its array unless `snap` is off."""
    if kind == "cycles" and target is None:
        raise UsageError("a budget in cycles needs a target", fix="Add --target, or give the budget in macs")
    lanes = 1
    if target is not None and snap:
        array = target.compute.array
        lanes = max(array.input_channels, array.output_channels)
    measures: dict[str, CostMeasure] = {"macs": MacCost(), "bytes": ByteCost()}
    if target is not None:
        measures["cycles"] = CycleCost(target)
    return WidthCosts(dependencies, measures[kind], lanes, cache or CostCache())
