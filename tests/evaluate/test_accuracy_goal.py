"""A metric as a goal: some samples steer, others are held back and say what the choice is worth."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.datasets.data import DataLocation, find_dataset
from npuc.datasets.sample import SampleEntry
from npuc.evaluate import Observation, evaluate, metric
from npuc.evaluate.goal import FEWEST, accuracy_goal, held_back, unlabelled
from npuc.ir import Graph
from npuc.metrics.measuring import parse_metric
from npuc.quant.ladder.measurements import POINTS

_COUNT = 150


def entries(count: int) -> list[SampleEntry]:
    return [SampleEntry(f"{index // 10}/{index}.png", index // 10) for index in range(count)]


def test_a_fifth_is_held_back_whatever_the_order_of_the_samples() -> None:
    some = entries(500)
    held = held_back(some)
    assert len(held) == 100 and held == held_back(some[::-1])
    # A fifth of every class, and not every fifth sample.
    positions = [index for index, entry in enumerate(some) if entry.name in held]
    assert Counter(some[index].truth for index in positions) == dict.fromkeys(range(50), 2)
    assert len({index % 5 for index in positions}) == 5


def test_a_rare_class_is_in_both_parts() -> None:
    some = [SampleEntry(f"{index}.wav", int(index < 5)) for index in range(120)]
    held = held_back(some)
    assert sum(entry.truth for entry in some if entry.name in held) == 1


def test_samples_without_classes_are_split_too() -> None:
    some = [SampleEntry(f"{index}.wav", "a text") for index in range(120)]
    assert len(held_back(some)) == 24 and held_back(some) == held_back(some[::-1])


def test_few_samples_all_steer() -> None:
    assert held_back(entries(FEWEST - 1)) == frozenset()
    assert len(held_back(entries(FEWEST))) == FEWEST // 5


def network(flaw: float = 0.0) -> Graph:
    """Scores of two classes; a flaw favours class 1 for samples whose third number is not 0."""
    x = lang.input("x", (1, 3))
    return lang.build({"y": lang.matmul(x, np.float32([[1, 0], [0, 1], [0, flaw]]))})


def data_set(folder: Path, count: int = _COUNT) -> DataLocation:
    """The third number marks the samples that are held back."""
    labels = np.arange(count) % 2
    x = np.zeros((count, 3), np.float32)
    x[np.arange(count), labels] = 1
    np.savez(folder / "val.npz", x=x, labels=labels)
    place = DataLocation(folder / "val.npz")
    listed = find_dataset(place).open(place).entries
    held = held_back(listed)
    x[:, 2] = [entry.name in held for entry in listed]
    np.savez(folder / "val.npz", x=x, labels=labels)
    return place


def test_what_is_held_back_has_no_part_in_the_figure_that_steers(tmp_path: Path) -> None:
    place = data_set(tmp_path)
    goal = accuracy_goal(network(), place, 1.0, "top1")
    assert (goal.samples, goal.held_back, goal.unit, goal.exact) == (120, 30, POINTS, 100.0)
    flawed = network(10.0)
    # All that steers is right, and half of what is held back is wrong.
    assert goal.measure(flawed) == 100.0 and goal.confirm is not None
    loss = goal.confirm(flawed)
    labels = np.load(place.path)["labels"]
    marked = np.load(place.path)["x"][:, 2] > 0
    assert loss.value == pytest.approx(100 * np.mean(labels[marked] == 0))
    low, high = loss.interval
    assert 20 < low < loss.value < high < 80 and loss.spread == max(high - loss.value, loss.value - low)
    assert goal.confirm(network()).value == 0.0
    # One of 30 is more than what may be lost, and no proof that it is.
    assert goal.confirmed_by(100 / 30) and not goal.confirmed_by(200 / 30)


def test_a_network_is_not_calibrated_on_what_is_held_back(tmp_path: Path) -> None:
    place = data_set(tmp_path)
    found = list(unlabelled(network(), place))
    assert len(found) == 120 and not any(sample["x"][0, 2] for sample in found)


def test_few_samples_are_said_to_flatter(tmp_path: Path) -> None:
    notes: list[str] = []
    goal = accuracy_goal(network(), data_set(tmp_path), 5.0, "top1", max_count=60, warn=notes.append)
    assert goal.confirm is None and (goal.samples, goal.held_back) == (60, 0)
    assert any(note.startswith("60 labelled samples are too few") for note in notes)


def test_a_part_that_has_no_figure_confirms_nothing(tmp_path: Path) -> None:
    place = data_set(tmp_path)
    x = np.load(place.path)["x"]
    x[:, 2] = 0
    np.savez(place.path, x=x, labels=(np.arange(_COUNT) < 2).astype(np.int64))
    notes: list[str] = []
    goal = accuracy_goal(network(), place, 0.1, "auc", warn=notes.append)
    # The two samples of the rare class steer.
    assert goal.confirm is None and goal.samples == _COUNT
    assert any("has no figure of its own" in note for note in notes)


def test_only_some_samples_are_measured(tmp_path: Path) -> None:
    place = data_set(tmp_path)
    names = [entry.name for entry in find_dataset(place).open(place).entries]
    report = evaluate([network()], place, ["top1"], max_count=10, only=[names[3], names[7], names[20]])
    assert report.samples == 2


def test_metrics_say_which_way_is_better(tmp_path: Path) -> None:
    assert parse_metric("wer").kind.lower_is_better and parse_metric("cer:blank=1").kind.lower_is_better
    assert not parse_metric("top1").kind.lower_is_better

    @metric("misses", unit="%", lower_is_better=True)
    def misses(seen: Observation) -> float:
        scores: Any = next(iter(seen.outputs.values())).reshape(-1)
        return float(scores.argmax() != seen.truth)

    goal = accuracy_goal(network(), data_set(tmp_path), 1.0, "misses")
    assert goal.lower_is_better and goal.confirm is not None
    assert goal.met_by(0.5) and not goal.met_by(2.0)
    # More misses are a loss: the sign is that of the metric.
    loss = goal.confirm(network(10.0))
    assert 20 < loss.interval[0] < loss.value < loss.interval[1]
    figure = evaluate([network()], data_set(tmp_path), ["misses"]).figures[0]
    assert figure.lower_is_better
