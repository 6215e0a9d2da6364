"""Slices of outputs, found on the float network, and figures by slice that no strong part can hide."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from npuc.compare import OutputFigures, Slice, find_slices, measure_outputs
from npuc.compare.figures import BEST
from npuc.compare.slices import channel_runs
from npuc.ir import Graph, top
from support.graphs import build

_WINDOW: dict[str, Any] = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}


def _conv(b: Any, x: Any, channels: int, name: str, inputs: int = 3) -> Any:
    weight = np.ones((channels, inputs, 1, 1), np.float32)
    return b(top.Conv, x, weight, np.zeros(channels, np.float32), name=name, **_WINDOW)


def _detector(b: Any, x: Any) -> Any:
    boxes = b(top.Reshape, _conv(b, x, 4, "boxes"), shape=(1, 4, 16), name="flat_boxes")
    scores = b(top.Reshape, _conv(b, x, 6, "logits"), shape=(1, 6, 16), name="flat_logits")
    scores = b(top.Sigmoid, scores, name="scores")
    return b(top.Concat, [boxes, scores], axis=1, name="joined")


def _only(graph: Graph, outputs: Any = ()) -> list[tuple[str, tuple[tuple[int, int, int], ...]]]:
    (found,) = find_slices(graph, outputs).values()
    return [(one.name, one.bounds) for one in found]


def test_the_inputs_of_the_last_concat_are_slices() -> None:
    graph = build({"x": (1, 3, 4, 4)}, _detector)
    assert _only(graph) == [("flat_boxes", ((1, 0, 4),)), ("scores", ((1, 4, 10),))]


def test_the_concat_is_found_through_what_only_moves_elements() -> None:
    def moved(b: Any, x: Any) -> Any:
        turned = b(top.Permute, _detector(b, x), order=(0, 2, 1), name="turned")
        return b(top.Reshape, turned, shape=(16, 10), name="rows")

    assert _only(build({"x": (1, 3, 4, 4)}, moved)) == [
        ("flat_boxes", ((1, 0, 4),)),
        ("scores", ((1, 4, 10),)),
    ]

    def flat(b: Any, x: Any) -> Any:
        return b(top.Reshape, _detector(b, x), shape=(160,), name="flat")

    assert _only(build({"x": (1, 3, 4, 4)}, flat)) == [
        ("flat_boxes", ((0, 0, 64),)),
        ("scores", ((0, 64, 160),)),
    ]

    def cut(b: Any, x: Any) -> Any:
        sizes: dict[str, Any] = {"offset": (0, 2, 0), "steps": (1, 1, 1), "shape": (1, 5, 16)}
        return b(top.Slice, _detector(b, x), name="cut", **sizes)

    assert _only(build({"x": (1, 3, 4, 4)}, cut)) == [("flat_boxes", ((1, 0, 2),)), ("scores", ((1, 2, 5),))]


def test_a_concat_of_concats_is_cut_along_both() -> None:
    """As YOLOv5 does: boxes and scores of a level side by side, then level after level."""

    def levels(b: Any, x: Any) -> Any:
        found = []
        for level in range(2):
            parts = [_conv(b, x, n, f"{part}{level}") for part, n in (("box", 4), ("score", 2))]
            both = b(top.Concat, parts, axis=1, name=f"both{level}")
            both = b(top.Permute, both, order=(0, 2, 3, 1), name=f"last{level}")
            found.append(b(top.Reshape, both, shape=(1, 16, 6), name=f"rows{level}"))
        return b(top.Concat, found, axis=1, name="all")

    assert _only(build({"x": (1, 3, 4, 4)}, levels)) == [
        ("box0", ((1, 0, 16), (2, 0, 4))),
        ("score0", ((1, 0, 16), (2, 4, 6))),
        ("box1", ((1, 16, 32), (2, 0, 4))),
        ("score1", ((1, 16, 32), (2, 4, 6))),
    ]


def test_without_a_concat_runs_of_channels_of_like_ranges_are_slices() -> None:
    graph = build({"x": (1, 3, 4, 4)}, lambda b, x: _conv(b, x, 5, "head"))
    sizes = np.array([600.0, 0.0, 500.0, 1.0, 0.9])[None, :, None, None] * np.ones((1, 1, 4, 4))
    assert _only(graph, [{"y": sizes}]) == [("y[:, 0:3]", ((1, 0, 3),)), ("y[:, 3:5]", ((1, 3, 5),))]
    assert _only(graph) == [("y", ())]


def test_what_a_sigmoid_made_is_one_slice() -> None:
    graph = build({"x": (1, 3, 4, 4)}, lambda b, x: b(top.Sigmoid, _conv(b, x, 5, "head"), name="s"))
    rare = np.array([0.9, 1e-4, 0.8, 1e-3, 0.9])[None, :, None, None] * np.ones((1, 1, 4, 4))
    assert _only(graph, [{"y": rare}]) == [("y", ())]


def test_ranges_that_scatter_make_few_runs() -> None:
    scattered = 10.0 ** np.random.default_rng(0).uniform(-6, 2, size=1000)
    runs = channel_runs(scattered)
    assert len(runs) <= 8 and runs[0][0] == 0 and runs[-1][1] == 1000
    assert all(a[1] == b[0] for a, b in pairwise(runs))


def _figures(signal: list[list[float]], error: list[list[float]]) -> OutputFigures:
    slices = tuple(Slice("y", f"part{i}", ((1, i, i + 1),)) for i in range(len(signal[0])))
    return OutputFigures(slices, np.stack([np.array(signal), np.array(error)], axis=-1).astype(float))


def test_a_lost_slice_is_not_hidden_by_a_strong_one() -> None:
    graph = build({"x": (1, 3, 4, 4)}, _detector)
    exact = {"y": np.concatenate([np.full((1, 4, 16), 600.0), np.full((1, 6, 16), 0.5)], axis=1)}
    found = {"y": np.concatenate([np.full((1, 4, 16), 601.0), np.zeros((1, 6, 16))], axis=1)}
    figures = measure_outputs(lambda inputs: found, [{}], [exact], find_slices(graph))
    (boxes, scores) = figures.by_slice.values()
    assert boxes == pytest.approx(55.6, abs=0.1) and scores == pytest.approx(0.0)
    assert [one.name for one, _ in figures.lost] == ["scores"]
    assert figures.worst is not None and figures.worst.slice.name == "scores"
    assert figures.score == pytest.approx((figures.mean + 0.0) / 2)


def test_one_wrecked_sample_is_the_worst() -> None:
    figures = _figures([[100.0]] * 20, [[1.0]] * 19 + [[200.0]])
    assert figures.mean > 9 and figures.worst is not None
    assert (figures.worst.sample, round(figures.worst.sqnr, 1)) == (19, -3.0)


def test_no_signal_gives_no_nonsense() -> None:
    """A picture without text: errors count against the usual signal; a slice that is always zero does not count."""
    figures = _figures([[100.0, 0.0], [0.0, 0.0]], [[1.0, 5.0], [0.01, 5.0]])
    assert list(figures.by_slice) == [figures.slices[0]]
    assert figures.worst is not None and figures.worst.sqnr == pytest.approx(20.0)
    nothing = _figures([[0.0]], [[1.0]])
    assert not nothing.has_signal and nothing.worst is None and nothing.mean == BEST and not nothing.lost


def test_an_exact_slice_does_not_lift_the_mean_beyond_reason() -> None:
    assert _figures([[1.0, 1.0]], [[0.0, 1.0]]).mean == pytest.approx(BEST / 2)


def test_nan_and_infinity_in_the_reference_do_not_count() -> None:
    exact, found = {"y": np.array([np.nan, 1.0, np.inf])}, {"y": np.array([3.0, 1.0, np.nan])}
    figures = measure_outputs(lambda inputs: found, [{}], [exact], {"y": (Slice("y", "y"),)})
    assert figures.mean == BEST
