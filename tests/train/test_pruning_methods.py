"""Pruning methods: criteria, statistics taken anew, sensitivities, and the three ways to a slim network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from npuc import lang  # noqa: E402
from npuc.arrays import Array  # noqa: E402
from npuc.engine.floating import FloatEngine  # noqa: E402
from npuc.errors import UsageError  # noqa: E402
from npuc.ir import Graph, top  # noqa: E402
from npuc.train import TrainableNetwork, TrainingData, TrainingOptions  # noqa: E402
from npuc.train.loop import predictions  # noqa: E402
from npuc.train.pruning import PruningOptions, advise, prune, sensitivity  # noqa: E402
from npuc.train.pruning.batch_norms import channel_moments, folded, recalibrated, with_batch_norms  # noqa: E402
from npuc.train.pruning.budget import Budget, MacCost  # noqa: E402
from npuc.train.pruning.criteria import importance  # noqa: E402
from npuc.train.pruning.groups import DependencyGraph  # noqa: E402
from npuc.train.pruning.iterative import prune_iteratively  # noqa: E402
from npuc.train.pruning.kernels import kernel_choices, kernel_masks, with_kernels  # noqa: E402
from npuc.train.pruning.once_for_all import Subnet, SuperNet, train_super_net  # noqa: E402
from npuc.train.pruning.prepared import PruningTask  # noqa: E402
from npuc.train.pruning.scoring import Scorer, weight_salience  # noqa: E402
from npuc.train.pruning.sensitivities import Sensitivity, measure_sensitivity, plot_sensitivity  # noqa: E402
from npuc.train.pruning.slimming import slim  # noqa: E402


def _array(seed: int, *shape: int) -> Array:
    values = np.random.default_rng(seed).normal(size=shape) / np.sqrt(max(1, np.prod(shape[1:])))
    return values.astype(np.float32)


def _network(first: Array | None = None, second: Array | None = None, bias: Array | None = None) -> Graph:
    """Two convolutions and a linear layer, for four classes."""
    x = lang.input("x", (1, 3, 8, 8))
    first = _array(1, 8, 3, 3, 3) if first is None else first
    second = _array(2, 12, 8, 3, 3) if second is None else second
    y = lang.conv(
        x, first, np.zeros(8, np.float32) if bias is None else bias, pads=1, relu=True, name="first"
    )
    y = lang.conv(y, second, _array(5, 12), pads=1, relu=True, name="second")
    y = lang.reshape(lang.avg_pool(y, kernel=8, strides=8), shape=(1, 12))
    return lang.build({"y": lang.matmul(y, 4 * _array(3, 12, 4), _array(4, 4), name="head")})


def _data(graph: Graph, count: int = 96) -> TrainingData:
    """Random images, with the classes that the network gives them."""
    images = np.random.default_rng(9).normal(size=(count, 3, 8, 8)).astype(np.float32)
    plain = TrainingData((images,))
    return TrainingData((images,), predictions(TrainableNetwork(graph), plain).argmax(1).numpy())


def _task(graph: Graph, budget: str = "macs=0.6", **fields: Any) -> PruningTask:
    train, held = _data(graph).split(32)
    options = {"samples": 32, "candidates": 6, "steps": 2, "population": 4, "generations": 2}
    pruning = PruningOptions(**{**options, **fields.pop("options", {})})
    training = TrainingOptions(epochs=1, batch=16, rate=0.01)
    return PruningTask(graph, train, held, Budget.parse(budget), None, pruning, training, **fields)


def _prune(method: Any, **more: Any) -> Any:
    graph = _network()
    train, held = _data(graph).split(32)
    options = PruningOptions(samples=32, candidates=6, steps=2, population=4, generations=2)
    training = TrainingOptions(epochs=1, batch=16, rate=0.01)
    arguments = {"budget": "macs=0.6", "options": options, "training": training, **more}
    return prune(graph, train, held, method=method, **arguments)


# Criteria.


def test_magnitude_drops_the_smallest_channel() -> None:
    weight = _array(1, 8, 3, 3, 3)
    weight[5] *= 0.01
    dependencies = DependencyGraph(_network(weight))
    for criterion in ("l1", "l2"):
        assert int(np.argmin(importance(dependencies, criterion)["first"])) == 5


def test_the_geometric_median_drops_what_others_can_replace() -> None:
    """A channel that is like the others goes, though a channel with smaller weights is there."""
    weight = np.tile(_array(1, 1, 3, 3, 3), (8, 1, 1, 1)) + 0.01 * _array(2, 8, 3, 3, 3)
    weight[6] = -0.5 * weight[0]
    dependencies = DependencyGraph(_network(weight))
    assert int(np.argmin(importance(dependencies, "l2")["first"])) == 6
    assert int(np.argmax(importance(dependencies, "geometric_median")["first"])) == 6


def test_taylor_drops_what_the_loss_does_not_feel() -> None:
    """A channel with large weights that nobody reads has no gradient."""
    first, second = _array(1, 8, 3, 3, 3), _array(2, 12, 8, 3, 3)
    first[2] *= 5
    second[:, 2] = 0
    graph = _network(first, second)
    dependencies = DependencyGraph(graph)
    assert int(np.argmax(importance(dependencies, "l2")["first"])) == 2
    scores = importance(dependencies, "taylor", lambda: weight_salience(graph, _data(graph)))
    assert int(np.argmin(scores["first"])) == 2
    with pytest.raises(UsageError, match="'taylor' needs data"):
        importance(dependencies, "taylor")


def test_batch_norm_scales_are_a_criterion_where_there_are_batch_norms() -> None:
    graph = _network()
    live = with_batch_norms(graph, _data(graph))
    scores = importance(DependencyGraph(live), "batch_norm")
    scale = live.weights.array("first.batch_norm.scale")
    assert np.argsort(scores["first.conv"]).tolist() == np.argsort(scale).tolist()
    with pytest.raises(UsageError, match="the channels of 'first' have no batch norm: it was folded"):
        importance(DependencyGraph(graph), "batch_norm")


# Statistics.


def test_batch_norms_that_are_put_back_change_nothing() -> None:
    graph = _network()
    data = _data(graph)
    live = with_batch_norms(graph, data)
    assert sum(isinstance(op, top.BatchNorm) for op in live.ops) == 2
    again = folded(live, graph)
    x = {"x": data.inputs[0][:1]}
    expected = FloatEngine(graph).run(x)["y"]
    for other in (live, again):
        np.testing.assert_allclose(FloatEngine(other).run(x)["y"], expected, atol=1e-5)
    assert again.tensor_names() == graph.tensor_names()
    assert again.used_weights() == graph.used_weights()


def test_statistics_taken_anew_mend_what_a_removed_constant_channel_shifted() -> None:
    """A channel that is constant only shifts what reads it: without it, and with restored means, nothing is lost."""
    first, bias = _array(1, 8, 3, 3, 3), np.zeros(8, np.float32)
    first[3], bias[3] = 0, 4
    second = np.zeros((12, 8, 3, 3), np.float32)
    second[:, :, 1, 1] = _array(2, 12, 8)
    graph = _network(first, second, bias)
    data = _data(graph)
    dependencies = DependencyGraph(graph)
    narrow = slim(dependencies, {"first": [3]})
    scorer = Scorer(graph, data)
    mended = recalibrated(narrow, data, channel_moments_without(graph, data, "first", 3))
    assert scorer.of(narrow).divergence > 0.05
    assert scorer.of(mended).divergence < 1e-6


def channel_moments_without(graph: Graph, data: TrainingData, layer: str, channel: int) -> Any:
    moments = channel_moments(graph, data)
    mean, deviation = moments[layer]
    moments[layer] = np.delete(mean, channel), np.delete(deviation, channel)
    return moments


# Sensitivity.


def test_a_group_that_nobody_reads_is_insensitive(tmp_path: Path) -> None:
    second = _array(2, 12, 8, 3, 3)
    second[:, 4:] = 0
    first = _array(1, 8, 3, 3, 3)
    first[4:] *= 0.1
    graph = _network(first, second)
    path = tmp_path / "sensitivity.json"
    result = sensitivity(graph, _data(graph), path=path)
    halves = {
        name: group.points[min(group.points, key=lambda k: abs(k - group.size // 2))]
        for name, group in result.groups.items()
    }
    assert halves["first"].divergence < 1e-6 < 1e-3 < halves["second"].divergence
    assert result.base.score == 1.0
    assert json.loads(path.read_text()) == result.as_json()
    assert plot_sensitivity(result).count("<polyline") == 2
    harm = result.harm()
    assert harm("second", 12) == 0 < harm("second", 6) <= harm("second", 2)


def test_sensitivities_go_on_where_they_were_interrupted(tmp_path: Path) -> None:
    graph = _network()
    data = _data(graph)
    dependencies = DependencyGraph(graph)
    scores = importance(dependencies)
    whole = measure_sensitivity(dependencies, Scorer(graph, data), scores)
    path = tmp_path / "sensitivity.json"

    class Killed(Scorer):
        left = 3

        def masked(self, masks: Any) -> Any:
            if not self.left:
                raise KeyboardInterrupt
            Killed.left -= 1
            return super().masked(masks)

    with pytest.raises(KeyboardInterrupt):
        measure_sensitivity(dependencies, Killed(graph, data), scores, path=path)
    assert sum(len(group.points) for group in Sensitivity.load(path).groups.values()) == 3
    assert (
        measure_sensitivity(dependencies, Scorer(graph, data), scores, path=path).as_json() == whole.as_json()
    )
    other = _network(_array(7, 8, 3, 3, 3))
    with pytest.raises(UsageError, match="sensitivities of another network"):
        measure_sensitivity(DependencyGraph(other), Scorer(other, data), scores, path=path)


# Methods.


@pytest.mark.parametrize("method", ["iterative", "one-step", "once-for-all"])
def test_every_method_meets_its_budget(method: Any) -> None:
    result = _prune(method)
    assert result.ratio <= 0.6
    assert MacCost().whole(result.graph) == result.cost
    assert result.score > 0.3
    assert result.base == 1.0
    assert json.loads(json.dumps(result.as_json()))["method"] == method
    assert TrainableNetwork(result.graph)(torch.zeros(2, 3, 8, 8)).shape == (2, 4)


def test_a_killed_run_ends_with_the_same_network(tmp_path: Path) -> None:
    whole = _prune("iterative")

    def kill(line: str) -> None:
        if line.startswith("step 1"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _prune("iterative", work_dir=tmp_path / "run", report=kill)
    lines: list[str] = []
    again = _prune("iterative", work_dir=tmp_path / "run", report=lines.append)
    assert lines[0] == "1 of 2 steps were done before"
    assert again.as_json() == whole.as_json()
    for ref in whole.graph.used_weights():
        np.testing.assert_array_equal(again.graph.weights.array(ref), whole.graph.weights.array(ref))
    with pytest.raises(UsageError, match="a run of another network, other data or other options"):
        _prune("iterative", work_dir=tmp_path / "run", budget="macs=0.5")


@pytest.mark.parametrize("method", ["one-step", "once-for-all"])
def test_training_that_was_killed_goes_on_in_every_method(method: Any, tmp_path: Path) -> None:
    training = TrainingOptions(epochs=3, batch=16, rate=0.01)
    whole = _prune(method, training=training)
    done: list[str] = []

    def kill(line: str) -> None:
        done.append(line)
        if line.startswith("epoch 2/3"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _prune(method, training=training, work_dir=tmp_path / "run", report=kill)
    lines: list[str] = []
    again = _prune(method, training=training, work_dir=tmp_path / "run", report=lines.append)
    epochs = [line for line in lines if line.startswith("epoch")]
    assert len(epochs) == 1
    assert epochs[0].startswith("epoch 3/3")
    assert again.as_json() == whole.as_json()
    for ref in whole.graph.used_weights():
        np.testing.assert_array_equal(again.graph.weights.array(ref), whole.graph.weights.array(ref))


def test_one_step_finds_the_channels_that_nobody_needs() -> None:
    # Half of the channels of the first layer are zero: without them, and without training, the network says what it said.
    first = _array(1, 8, 3, 3, 3)
    first[[1, 3, 4, 6]] = 0
    graph = _network(first)
    train, held = _data(graph).split(32)
    options = PruningOptions(samples=32, candidates=20)
    training = TrainingOptions(epochs=0)
    result = prune(
        graph, train, held, budget="macs=0.6", method="one-step", options=options, training=training
    )
    shares = {name: width / result.sizes[name] for name, width in result.widths.items()}
    assert min(shares, key=lambda name: shares[name]) == "first"
    assert result.score == max(entry["score"] for entry in result.history) == 1


def test_functions_of_the_user_measure_and_calibrate() -> None:
    """The measure prefers a wide first layer: so does the candidate that wins."""
    calibrated: list[Graph] = []

    def calibrate(graph: Graph) -> Graph:
        calibrated.append(graph)
        return graph

    def width(graph: Graph) -> float:
        return float(DependencyGraph(graph).group("first").size)

    result = _prune("one-step", eval_fn=width, calibration_fn=calibrate)
    assert calibrated
    assert result.widths["first"] == max(entry["widths"]["first"] for entry in result.history)


def test_excluded_layers_keep_their_channels() -> None:
    result = _prune("iterative", exclude=["first"], budget="macs=0.8")
    assert "first" not in result.widths
    assert DependencyGraph(result.graph).group("first").size == 8


def test_an_impossible_budget_is_refused_by_every_method() -> None:
    for method in ("iterative", "one-step", "once-for-all"):
        with pytest.raises(UsageError, match="cannot be met"):
            _prune(method, budget="macs=0.001")
    with pytest.raises(UsageError, match="'twice' is no method"):
        _prune("twice")


# Once for all.


def test_smaller_kernels_compute_what_zeros_around_them_do() -> None:
    graph = _network()
    assert kernel_choices(graph) == {"first": [3, 1], "second": [3, 1]}
    kernels = {"second": 1}
    small = with_kernels(graph, kernels)
    (mask,) = kernel_masks(graph, kernels).values()
    zeroed = _network(second=_array(2, 12, 8, 3, 3) * mask)
    x = {"x": _data(graph).inputs[0][:1]}
    np.testing.assert_allclose(FloatEngine(small).run(x)["y"], FloatEngine(zeroed).run(x)["y"], atol=1e-5)


def test_a_super_net_trains_its_smallest_subnet_too() -> None:
    """The sandwich rule: without training, the smallest subnet is worse than after it."""
    graph = _network()
    task = _task(graph, "macs=0.3")
    untrained = train_super_net(_untrained(task))
    trained = train_super_net(_with_epochs(task, 6))
    smallest = Subnet({"first": 3, "second": 5}, {"first": 3, "second": 3})
    scorer = task.scorer(graph)
    before, after = (scorer.of(net.subnet(smallest)).divergence for net in (untrained, trained))
    assert after < before


def test_the_masks_of_a_step_are_those_of_its_subnets() -> None:
    """Masks are put together of those of single widths and kernels, at addresses that never change."""
    net = SuperNet(_task(_network()))
    net.draw_subnets()
    smallest, *others = net._narrow
    places = [tensor.data_ptr() for tensor in others[0].values()]
    for ref, mask in net.masks(net.smallest).items():
        np.testing.assert_array_equal(smallest[ref].numpy(), np.broadcast_to(mask, smallest[ref].shape))
    before = {ref: tensor.clone() for ref, tensor in others[0].items()}
    for _ in range(8):
        net.draw_subnets()
    assert any(not torch.equal(before[ref], tensor) for ref, tensor in others[0].items())
    assert [tensor.data_ptr() for tensor in others[0].values()] == places


def test_elastic_widths_end_where_the_budget_allows_it() -> None:
    graph = _network()
    half = SuperNet(_task(graph, "macs=0.6", options={"least_width": 0.5})).smallest.widths
    assert half == {"first": 4, "second": 6}
    less = SuperNet(_task(graph, "macs=0.15", options={"least_width": 0.5})).smallest.widths
    assert less["first"] < 4


def test_only_the_last_step_trains_long() -> None:
    lines: list[str] = []
    task = _with_epochs(_task(_network(), options={"epochs_between": 1}, report=lines.append), 3)
    prune_iteratively(task)
    assert [line.split()[1] for line in lines if line.startswith("epoch")] == ["1/1", "1/3", "2/3", "3/3"]


def _with_epochs(task: PruningTask, epochs: int) -> PruningTask:
    from dataclasses import replace

    return replace(task, training=TrainingOptions(epochs=epochs, batch=16, rate=0.02))


def _untrained(task: PruningTask) -> PruningTask:
    return _with_epochs(task, 0)


# Advice.


def test_advice_depends_on_the_data_and_on_what_can_be_removed() -> None:
    graph = _network()
    assert advise(graph, samples=100).method == "one-step"
    assert advise(graph, samples=5_000).method == "iterative"
    x = lang.input("x", (1, 3, 8, 8))
    only = lang.build({"y": lang.conv(x, _array(1, 4, 3, 3, 3), pads=1)})
    advice = advise(only)
    assert advice.method is None
    assert "no channel of the network can be removed" in advice.words[0]
