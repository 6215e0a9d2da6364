"""Mean, scale, channel order and layout move from the preprocessing into the network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.errors import PreprocessError
from npuc.images.preprocess import Preprocess
from npuc.ir import Graph, dtype_of, print_graph, shape_of, tensor_type, top
from npuc.ir.passes import run_pipeline
from support.graphs import assert_close, evaluate
from support.passes import kinds

MEAN, SCALE = (123.0, 117.0, 104.0), (0.5, 0.25, 0.125)


def network(preprocess: Preprocess, shape: tuple[int, ...]) -> Graph:
    graph = Graph.empty([("image", tensor_type(shape, "f32"))], preprocess={"image": preprocess.to_dict()})
    op = top.Tanh.make(graph.block.args[0], name="y")
    graph.block.add_op(op)
    graph.set_outputs([("y", op.results[0])])
    return graph


def pixels(*shape: int) -> Array:
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


@pytest.mark.parametrize(
    "layout,shape", [("nchw", (2, 3, 4, 5)), ("nhwc", (2, 4, 5, 3)), ("nchw", (3, 4, 5))]
)
def test_the_network_takes_raw_pixels(layout: Any, shape: tuple[int, ...]) -> None:
    graph = network(Preprocess(mean=MEAN, scale=SCALE, layout=layout), shape)
    after = run_pipeline(graph, "fuse-preprocess")
    port = after.inputs[0]
    assert (port.name, dtype_of(port.type).name, shape_of(port.value)) == ("image", "ui8", shape)
    assert port.preprocess is not None and not Preprocess.from_dict(port.preprocess).has_arithmetic
    raw = pixels(*shape)
    tail = (3,) + (1,) * (2 if layout == "nchw" else 0)
    normal = ((raw - np.reshape(MEAN, tail)) * np.reshape(SCALE, tail)).astype(np.float32)
    expected = evaluate(graph, {"image": normal})["y"]
    assert_close(evaluate(after, {"image": raw})["y"], expected)


def test_pixels_of_another_format_and_layout() -> None:
    graph = network(Preprocess(mean=MEAN, scale=SCALE, pixel_format="bgr"), (1, 3, 4, 5))
    after = run_pipeline(graph, "fuse-preprocess{pixel_format=rgb layout=nhwc}")
    left = Preprocess.from_dict(after.inputs[0].preprocess or {})
    assert (left.pixel_format, left.layout, shape_of(after.inputs[0].value)) == ("rgb", "nhwc", (1, 4, 5, 3))
    raw = pixels(1, 4, 5, 3)
    normal = (raw[..., ::-1].transpose(0, 3, 1, 2) - np.reshape(MEAN, (3, 1, 1))) * np.reshape(
        SCALE, (3, 1, 1)
    )
    expected = evaluate(graph, {"image": normal.astype(np.float32)})["y"]
    assert_close(evaluate(after, {"image": raw})["y"], expected)


def test_geometry_stays_and_a_second_run_changes_nothing() -> None:
    preprocess = Preprocess(resize=(8, 8), crop=(4, 4), mean=(1.0,))
    after = run_pipeline(network(preprocess, (1, 3, 4, 4)), "fuse-preprocess")
    assert Preprocess.from_dict(after.inputs[0].preprocess or {}) == preprocess.geometry()
    assert print_graph(run_pipeline(after, "fuse-preprocess")) == print_graph(after)


def test_without_arithmetic_only_a_cast_is_needed() -> None:
    after = run_pipeline(network(Preprocess(), (1, 3, 4, 4)), "fuse-preprocess")
    assert kinds(after) == {"cast": 1, "tanh": 1}


def test_inputs_without_preprocessing_stay() -> None:
    graph = Graph.empty([("x", tensor_type((1, 3), "f32"))])
    graph.set_outputs([("y", graph.inputs[0].value)])
    assert print_graph(run_pipeline(graph, "fuse-preprocess")) == print_graph(graph)


def test_gray_pixels_cannot_become_rgb() -> None:
    with pytest.raises(PreprocessError, match="gray"):
        run_pipeline(network(Preprocess(), (1, 3, 4, 4)), "fuse-preprocess{pixel_format=gray}")
