"""Budgets: what candidates cost, widths that fill the lanes of a machine, and the search for widths under a limit."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.errors import UsageError
from npuc.ir import Graph
from npuc.target import load_target
from npuc.train.pruning.budget import Budget, MacCost, WidthCosts, width_costs
from npuc.train.pruning.groups import DependencyGraph
from npuc.train.pruning.search import capacity_harm, harm_of_importance, search_widths
from npuc.train.pruning.widths import ChannelShapes, dropped

RNG = np.random.default_rng(0)


def _conv(x: Any, out: int, name: str, kernel: int = 3) -> Any:
    weight = RNG.uniform(-1, 1, (out, x.shape[1], kernel, kernel)).astype(np.float32)
    return lang.conv(x, weight, np.zeros(out, np.float32), pads=kernel // 2, relu=True, name=name)


def _chain() -> Graph:
    """Two convolutions with as many multiply-adds each; only the second has a kernel that is expensive to load."""
    x = lang.input("x", (1, 8, 16, 16))
    return lang.build({"y": _conv(_conv(_conv(x, 24, "first"), 24, "second"), 8, "last")})


@pytest.mark.parametrize("kind", ["macs", "bytes", "cycles"])
def test_an_estimate_is_close_to_the_cost(kind: Any) -> None:
    costs = width_costs(DependencyGraph(_chain()), kind, load_target("edge-1t"))
    widths = {"first": 8, "second": 16}
    assert costs.estimate({}) == pytest.approx(costs.whole)
    tolerance = 0.3 if kind == "cycles" else 1e-6
    assert costs.estimate(widths) == pytest.approx(costs.exact(widths), rel=tolerance)
    assert costs.exact(widths) < costs.whole


def test_shapes_are_those_of_the_slim_network() -> None:
    shapes = ChannelShapes(DependencyGraph(_chain()))
    widths = {"first": 5, "second": 7}
    elements = {layer: sum(counts) for layer, counts in shapes.weight_elements(widths).items()}
    assert elements == pytest.approx({"first": 5 * 73, "second": 7 * 46, "last": 8 * 64})


def test_widths_fill_the_lanes_of_the_machine() -> None:
    """On lanes of 8, a width of 20 costs what 24 does: the search keeps the channels that are free."""
    dependencies = DependencyGraph(_chain())
    costs = width_costs(dependencies, "cycles", load_target("edge-1t"))
    assert costs.choices("first") == [24, 16, 8]
    importance = {group.name: np.ones(group.size) for group in dependencies.groups}
    chosen = search_widths(costs, Budget("cycles", 0.7), harm_of_importance(importance))
    assert chosen.ratio <= 0.7
    assert all(width % 8 == 0 for width in chosen.widths.values())


def test_cycles_and_macs_choose_differently_where_lanes_do_not_divide() -> None:
    """Six channels fit into the eight lanes of one pass: the machine gains nothing by making them fewer."""
    x = lang.input("x", (1, 8, 16, 16))
    graph = lang.build({"y": _conv(_conv(_conv(x, 6, "small"), 32, "large"), 8, "last")})
    dependencies = DependencyGraph(graph)
    by_cycles = width_costs(dependencies, "cycles", load_target("edge-1t"))
    assert by_cycles.choices("small") == [6]

    def harm(name: str, keep: int) -> float:
        return (6 - keep) * 1e-3 if name == "small" else 32.0 - keep

    chosen = search_widths(by_cycles, Budget("cycles", 0.7), harm)
    by_macs = width_costs(dependencies, "macs")
    other = search_widths(by_macs, Budget("macs", 0.7), harm)
    assert other.widths["small"] < 6
    assert other.ratio <= 0.7
    assert by_cycles.exact(chosen.widths) < by_cycles.exact(other.widths)


def test_harm_decides_between_groups_of_equal_cost() -> None:
    dependencies = DependencyGraph(_chain())
    costs = WidthCosts(dependencies, MacCost())
    harmless = {"first": np.ones(24), "second": np.r_[np.full(12, 1e-6), np.ones(12)]}
    chosen = search_widths(costs, Budget("macs", 0.8), harm_of_importance(harmless))
    assert chosen.widths["first"] == 24
    assert chosen.widths["second"] < 24


def test_no_group_is_cut_to_its_least_width_because_the_outputs_do_not_feel_it() -> None:
    """Training mends what a cut does to the outputs, and not that a layer is too narrow."""
    costs = WidthCosts(DependencyGraph(_chain()), MacCost())
    measured = {"first": 1e-6, "second": 1.0}

    def divergence(name: str, keep: int) -> float:
        return measured[name] * (24 - keep)

    budget = Budget("macs", 0.5)
    assert search_widths(costs, budget, divergence).widths["first"] < 10
    balanced = search_widths(costs, budget, capacity_harm(costs)).widths
    assert min(balanced.values()) >= 14


def test_widths_are_exchanged_until_no_others_of_that_cost_are_better() -> None:
    """The greedy cut alone misses the best widths, which all widths of three groups have to be tried for."""
    x = lang.input("x", (1, 8, 8, 8))
    y = _conv(_conv(_conv(x, 24, "first"), 40, "second"), 32, "third")
    dependencies = DependencyGraph(lang.build({"y": _conv(y, 8, "last")}))
    costs = WidthCosts(dependencies, MacCost(), lanes=8)
    names = [group.name for group in dependencies.groups]
    vectors = [
        dict(zip(names, widths, strict=True)) for widths in product(*(costs.choices(name) for name in names))
    ]
    for seed in range(6):
        weights = dict(zip(names, np.random.default_rng(seed).uniform(0.2, 1, len(names)), strict=True))

        def harm(name: str, keep: int, weights: dict[str, float] = weights) -> float:
            return weights[name] * (dependencies.group(name).size / keep - 1)

        for share in (0.4, 0.5, 0.6, 0.7):
            chosen = search_widths(costs, Budget("macs", share), harm)
            allowed = [vector for vector in vectors if costs.exact(vector) <= share * costs.whole]
            least = min(sum(harm(name, width) for name, width in vector.items()) for vector in allowed)
            assert chosen.harm == pytest.approx(least)


def test_the_least_important_channels_go() -> None:
    dependencies = DependencyGraph(_chain())
    importance = {"first": np.arange(24), "second": -np.arange(24)}
    assert dropped(dependencies, {"first": 21, "second": 22}, importance) == {
        "first": [0, 1, 2],
        "second": [22, 23],
    }


def test_an_impossible_budget_says_what_is_possible() -> None:
    dependencies = DependencyGraph(_chain())
    costs = width_costs(dependencies, "cycles", load_target("edge-1t"))
    harm = harm_of_importance({group.name: np.ones(group.size) for group in dependencies.groups})
    with pytest.raises(UsageError, match=r"cannot be met: the narrowest network still needs") as caught:
        search_widths(costs, Budget("cycles", 0.05), harm)
    assert "Allow at least cycles=0." in (caught.value.fix or "")
    least = float((caught.value.fix or "").split("cycles=")[1].split(",")[0])
    assert search_widths(costs, Budget("cycles", least), harm).ratio <= least


def test_a_network_without_channels_to_remove_says_so() -> None:
    x = lang.input("x", (1, 4, 8, 8))
    costs = width_costs(DependencyGraph(lang.build({"y": _conv(x, 4, "only")})), "macs")
    with pytest.raises(UsageError, match="no channel of the network can be removed: 'y' is an output"):
        search_widths(costs, Budget("macs", 0.5), lambda name, keep: 0.0)


@pytest.mark.parametrize(
    "text", ["cycles", "cycles=", "cycles=-1", "cycles=0", "speed=0.5", "macs=nan", "macs=inf"]
)
def test_a_budget_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no budget"):
        Budget.parse(text)


def test_a_budget_is_a_share_or_a_number() -> None:
    assert Budget.parse("macs=0.5").absolute(200) == 100
    assert Budget.parse("cycles=50000").absolute(200) == 50000


def test_cycles_need_a_target() -> None:
    with pytest.raises(UsageError, match="needs a target"):
        width_costs(DependencyGraph(_chain()), "cycles")
