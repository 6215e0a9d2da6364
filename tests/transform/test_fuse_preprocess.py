"""Mean, scale, channel order and layout move from the preprocessing into the network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npuc.arrays import Array
from npuc.errors import PreprocessError
from npuc.images.kernels import YUV_FORMATS, resize_image, rgb_from_yuv
from npuc.images.loading import image_tensor
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


def prepared(raw: Array, how: Preprocess, size: tuple[int, int], shape: tuple[int, ...]) -> Array:
    """What the host makes of an image in a source format, step by step."""
    source = how.source_format or how.pixel_format
    image = rgb_from_yuv(raw, *size, source) if source in YUV_FORMATS else raw
    if source == "rgba":
        image = image[:, :, :3]
    if how.pixel_format == "gray" and source != "gray":
        image = (image[:, :, ::-1] if source == "bgr" else image) @ np.array([0.299, 0.587, 0.114])
        image = np.clip(np.rint(image), 0, 255).astype(np.uint8)[:, :, None]
    if source == "gray" and how.pixel_format != "gray":
        image = np.repeat(image, 3, axis=2)
    at = how.placement(shape, *size)
    image = resize_image(np.ascontiguousarray(image), at.height, at.width, how.interpolation)
    rows, columns = how.image_size(shape)
    placed = np.full((rows, columns, image.shape[2]), how.pad_value, np.uint8)
    for y in range(rows):
        for x in range(columns):
            if 0 <= y - at.top < at.height and 0 <= x - at.left < at.width:
                placed[y, x] = image[y - at.top, x - at.left]
    if (source == "bgr") != (how.pixel_format == "bgr") and how.channels == 3:
        placed = placed[:, :, ::-1]
    mean, scale = how.arithmetic()
    normal = ((placed - np.array(mean)) * np.array(scale)).astype(np.float32)
    return (normal.transpose(2, 0, 1) if how.layout == "nchw" else normal)[None]


SOURCES = [
    ("rgb", Preprocess(source_size=(20, 30), mean=MEAN, scale=SCALE, interpolation="opencv-linear")),
    ("bgr", Preprocess(source_size=(19, 31), interpolation="opencv-nearest")),
    ("rgba", Preprocess(source_size=(9, 30), interpolation="opencv-nearest-exact", pixel_format="bgr")),
    ("gray", Preprocess(source_size=(30, 20), interpolation="opencv-linear", mean=(3.0,))),
    ("rgb", Preprocess(source_size=(20, 30), interpolation="opencv-linear", pixel_format="gray")),
    ("bgr", Preprocess(source_size=(20, 30), interpolation="opencv-linear", pixel_format="gray")),
    (
        "rgb",
        Preprocess(
            source_size=(20, 30), keep_aspect_ratio=True, pad_value=114, interpolation="opencv-linear"
        ),
    ),
    (
        "rgb",
        Preprocess(
            source_size=(20, 30),
            keep_aspect_ratio=True,
            pad_type="corner",
            pad_value=9,
            interpolation="opencv-linear",
        ),
    ),
    (
        "bgr",
        Preprocess(
            source_size=(40, 30), resize=(20, 20), crop=(12, 16), interpolation="opencv-linear", layout="nhwc"
        ),
    ),
    (
        "nv12",
        Preprocess(
            source_size=(24, 32), keep_aspect_ratio=True, resize=(18, 20), interpolation="opencv-linear"
        ),
    ),
    ("nv21", Preprocess(source_size=(24, 32), interpolation="opencv-linear", pixel_format="bgr", mean=MEAN)),
    ("i420", Preprocess(source_size=(24, 32), interpolation="opencv-linear")),
    ("yv12", Preprocess(interpolation="opencv-linear", scale=SCALE)),
    ("yuyv", Preprocess(source_size=(23, 32), interpolation="opencv-nearest")),
    ("uyvy", Preprocess(interpolation="opencv-linear", layout="nhwc")),
    ("nv12", Preprocess(source_size=(24, 32), interpolation="opencv-linear", pixel_format="gray")),
]


@pytest.mark.parametrize(
    ("source", "stated"), SOURCES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_network_takes_the_bytes_of_a_source(source: str, stated: Preprocess) -> None:
    how = replace(stated, source_format=source)
    shape = (1, how.channels, 12, 16) if how.layout == "nchw" else (1, 12, 16, how.channels)
    size = how.source_size or (12, 16)
    graph = network(how, shape)
    after = run_pipeline(graph, "fuse-preprocess")
    port = after.inputs[0]
    assert dtype_of(port.type).name == "ui8"
    raw = pixels(*shape_of(port.value))
    if source in YUV_FORMATS:  # colours that a camera can see, so that nothing is cut off
        raw = (96 + raw % 64).astype(np.uint8)
    factor = max(how.arithmetic()[1])
    expected = prepared(raw[0], how, size, shape)
    # The host rounds to whole pixels behind each step, the float network does not.
    before_tanh = last_operand(after, raw)
    np.testing.assert_allclose(before_tanh, expected, atol=2.01 * factor)
    assert abs(float((before_tanh - expected).mean())) < 0.3 * factor


def last_operand(graph: Graph, raw: Array) -> Array:
    """What the only layer of the network behind its preprocessing takes."""
    copy = graph.copy()
    (tanh,) = [op for op in copy.ops if isinstance(op, top.Tanh)]
    copy.block.erase_op(copy.terminator)
    copy.set_outputs([("x", tanh.operands[0])])
    return evaluate(copy, {"image": raw})["x"]


def test_what_is_left_tells_how_photos_become_such_bytes() -> None:
    how = Preprocess(source_size=(24, 32), source_format="nv12", mean=MEAN)
    port = run_pipeline(network(how, (1, 3, 12, 16)), "fuse-preprocess").inputs[0]
    left = Preprocess.from_dict(port.preprocess or {})
    assert (left.yuv, left.image_size(shape_of(port.value)), shape_of(port.value)) == (
        "nv12",
        (24, 32),
        (1, 36, 32),
    )
    photo = np.zeros((50, 70, 3), np.uint8) + np.array([200, 100, 50], np.uint8)
    bytes_ = image_tensor(Image.fromarray(photo), left, shape_of(port.value), np.uint8)
    assert bytes_.shape == (1, 36, 32) and bytes_.dtype == np.uint8
    np.testing.assert_allclose(rgb_from_yuv(bytes_[0], 24, 32, "nv12")[5, 5], [200, 100, 50], atol=2)


@pytest.mark.parametrize(
    ("how", "shape", "words"),
    [
        (Preprocess(source_size=(5, 4), source_format="nv12"), (1, 3, 4, 4), "has even sides"),
        (Preprocess(source_size=(5, 4), interpolation="bicubic"), (1, 3, 4, 4), "no integer form"),
        (Preprocess(source_size=(5, 4)), (3, 4, 4), "rank 3"),
        (
            Preprocess(source_format="gray", pixel_format="rgba"),
            (1, 4, 4, 4),
            "gray format cannot become rgba",
        ),
    ],
)
def test_sources_that_no_ops_serve(how: Preprocess, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(PreprocessError, match=words):
        run_pipeline(network(how, shape), "fuse-preprocess")


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
