"""How samples are cut into runs: rows joined to batches, sequences cut into chunks whose states go on, or a run for a sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.errors import EvaluationDataError
from npuc.evaluate.subject import SubjectEngine, run_samples
from npuc.ir import Graph

F32 = np.float32


def running_sum(rows: int = 2) -> Graph:
    """A network with a state: what it has seen, summed up."""
    x, before = lang.input("x", (rows, 3)), lang.input("before", (1, 3))
    total = before + lang.reduce(x, kind="sum", axes=(0,), keepdims=True)
    graph = lang.build({"total": total, "double": x + x})
    graph.states = {"before": "total"}
    return graph


class Recorded:
    """Runs the network by NumPy, and keeps what it was given."""

    def __init__(self, graph: Graph) -> None:
        self.state = np.zeros((1, 3), F32)
        self.seen: list[list[list[float]]] = []
        self.engine = SubjectEngine(graph, self.run, self.reset)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.seen.append(inputs["x"].tolist())
        self.state = self.state + inputs["x"].sum(axis=0, keepdims=True)
        return {"total": self.state, "double": 2 * inputs["x"]}

    def reset(self) -> None:
        self.state = np.zeros((1, 3), F32)


def rows(first: int, count: int) -> Array:
    return (np.arange(3 * count, dtype=F32) + 3 * first).reshape(count, 3)


def test_a_sequence_goes_through_in_chunks_and_its_outputs_are_joined() -> None:
    made = Recorded(running_sum())
    (found,) = made.engine.run_samples([{"x": rows(0, 6)}])
    assert made.seen == [rows(0, 2).tolist(), rows(2, 2).tolist(), rows(4, 2).tolist()]
    np.testing.assert_array_equal(found["double"], 2 * rows(0, 6))
    assert set(found) == {"double"}  # states are nobody's result


def test_each_sample_begins_anew_unless_it_goes_on() -> None:
    samples = [{"x": rows(0, 2)}, {"x": rows(2, 2)}]
    made = Recorded(running_sum())
    made.engine.run_samples(samples)
    np.testing.assert_array_equal(made.state, rows(2, 2).sum(axis=0, keepdims=True))
    made = Recorded(running_sum())
    made.engine.run_samples(samples, stream=True)
    np.testing.assert_array_equal(made.state, rows(0, 4).sum(axis=0, keepdims=True))


def test_a_sequence_is_a_whole_number_of_chunks() -> None:
    with pytest.raises(
        EvaluationDataError, match="a sequence of 5 rows is no whole number of the model's chunks of 2"
    ):
        Recorded(running_sum()).engine.run_samples([{"x": rows(0, 5)}])


def test_a_network_of_nothing_but_states_shows_them() -> None:
    x, before = lang.input("x", (1, 3)), lang.input("before", (1, 3))
    graph = lang.build({"total": before + x})
    graph.states = {"before": "total"}
    made = SubjectEngine(graph, lambda inputs: {"total": inputs["x"]}, lambda: None)
    assert [list(outputs) for outputs in made.run_samples([{"x": rows(0, 2)}])] == [["total"]]


def table(**shapes: tuple[int, ...]) -> Graph:
    """A network with these inputs."""
    return Graph.empty([(name, lang.input(name, shape).value.type) for name, shape in shapes.items()])


def test_rows_of_samples_are_joined_to_batches_and_given_back() -> None:
    sizes: list[int] = []

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        sizes.append(len(inputs["x"]))
        return {"y": inputs["x"] + inputs["k"]}

    samples: list[dict[str, Array]] = [
        {"x": rows(0, 1), "k": np.array([[100]], F32)},
        {"x": rows(1, 4), "k": np.array([[200]], F32)},  # one k for all rows
    ]
    found = run_samples(run, table(x=(2, 3), k=(2, 1)), samples)
    assert sizes == [2, 2, 2]  # the last batch is filled up
    np.testing.assert_array_equal(found[0]["y"], rows(0, 1) + 100)
    np.testing.assert_array_equal(found[1]["y"], rows(1, 4) + 200)


def test_outputs_without_the_batch_are_named() -> None:
    with pytest.raises(EvaluationDataError, match=r"output 'y' has shape \[3\], without the batch of 2"):
        run_samples(lambda inputs: {"y": np.zeros(3)}, table(x=(2, 3)), [{"x": rows(0, 2)}])


def test_inputs_that_share_no_axis_run_once_a_sample() -> None:
    shapes: Any = {"x": (2, 3), "k": (4,)}
    found = run_samples(
        lambda inputs: {name: inputs[name] for name in shapes},
        table(**shapes),
        [{"x": np.arange(6, dtype=F32), "k": np.arange(4, dtype=F32)}],
    )
    assert {name: value.shape for name, value in found[0].items()} == shapes
    with pytest.raises(
        EvaluationDataError, match="input 'x' takes one run a sample, and has more in this one"
    ):
        run_samples(lambda inputs: {}, table(**shapes), [{"x": np.zeros(12, F32), "k": np.zeros(4, F32)}])
