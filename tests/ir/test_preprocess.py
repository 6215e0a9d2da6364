"""Preprocessing descriptions: what fits, what does not, and the way through the IR."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.errors import PreprocessError
from npuc.images.preprocess import CHANNELS, Preprocess
from npuc.ir import Graph, parse_graph, print_graph, tensor_type

sizes = st.none() | st.tuples(st.integers(1, 500), st.integers(1, 500))
values = st.floats(-1e6, 1e6, allow_nan=False)


@st.composite
def descriptions(draw: st.DrawFn) -> Preprocess:
    pixel_format = draw(st.sampled_from(sorted(CHANNELS)))
    counts = st.sampled_from([0, 1, CHANNELS[pixel_format]])
    numbers = counts.flatmap(lambda n: st.lists(values, min_size=n, max_size=n))
    factors = counts.flatmap(lambda n: st.lists(values.filter(bool), min_size=n, max_size=n))
    resize = draw(sizes)
    crop = draw(sizes)
    if resize and crop:
        crop = (min(crop[0], resize[0]), min(crop[1], resize[1]))
    return Preprocess.from_dict(
        {
            "resize": resize,
            "crop": crop,
            "keep_aspect_ratio": draw(st.booleans()),
            "pad_value": draw(st.integers(0, 255)),
            "pad_type": draw(st.sampled_from(["center", "corner"])),
            "mean": draw(numbers),
            "scale": draw(factors),
            "pixel_format": pixel_format,
            "layout": draw(st.sampled_from(["nchw", "nhwc"])),
            "interpolation": draw(st.sampled_from(["bilinear", "bicubic", "nearest"])),
        }
    )


@settings(deadline=None, derandomize=True, max_examples=60)
@given(descriptions())
def test_it_survives_the_way_through_the_text_of_the_ir(preprocess: Preprocess) -> None:
    graph = Graph.empty([("x", tensor_type((1, 3, 4, 4), "f32"))], preprocess={"x": preprocess.to_dict()})
    graph.set_outputs([("y", graph.inputs[0].value)])
    again = parse_graph(print_graph(graph)).inputs[0].preprocess
    assert again is not None
    assert Preprocess.from_dict(again) == preprocess


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"mean": [1, 2]}, "3 channels"),
        ({"scale": [1, 2, 3], "pixel_format": "gray"}, "1 channels"),
        ({"pixel_format": "cmyk"}, "rgb"),
        ({"layout": "chw"}, "nchw"),
        ({"resize": [0, 5]}, "resize"),
        ({"resize": [1 << 20, 5]}, "resize"),
        ({"crop": [9, 9], "resize": [8, 8]}, "crop"),
        ({"pad_value": 256}, "255"),
        ({"mean": [float("nan")]}, "finite"),
        ({"mean": [float("inf")]}, "finite"),
        ({"scale": [0.5, 0, 0.5]}, "a factor of 0"),
        ({"size": 3}, "size"),
    ],
)
def test_nonsense_is_refused_in_words(options: dict[str, Any], word: str) -> None:
    with pytest.raises(PreprocessError) as caught:
        Preprocess.from_dict(options)
    assert word in str(caught.value)


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({}, (1, 4, 8, 8)),
        ({}, (1, 8, 8, 3)),
        ({"layout": "nhwc"}, (1, 3, 8, 8)),
        ({"pixel_format": "gray"}, (1, 3, 8, 8)),
        ({"crop": (7, 8)}, (1, 3, 8, 8)),
        ({"resize": (7, 9)}, (1, 3, 8, 8)),
        ({}, (3, 8)),
        ({}, (1, 3, -1, 8)),
    ],
)
def test_it_must_fit_the_input(options: dict[str, Any], shape: tuple[int, ...]) -> None:
    with pytest.raises(PreprocessError):
        Preprocess.from_dict(options).check(shape)


def test_a_resize_beyond_the_input_implies_a_crop() -> None:
    assert Preprocess(resize=(256, 300)).steps((1, 3, 224, 224)) == ((256, 300), (224, 224))
    assert Preprocess(resize=(224, 224)).steps((1, 3, 224, 224)) == ((224, 224), None)
    assert Preprocess(crop=(224, 224)).steps((3, 224, 224)) == ((224, 224), (224, 224))
    assert Preprocess(layout="nhwc").steps((1, 5, 6, 3)) == ((5, 6), None)


def test_arithmetic_is_told_from_geometry() -> None:
    both = Preprocess(mean=(1.0,), scale=(0.5,), resize=(9, 9))
    assert both.has_arithmetic and not both.geometry().has_arithmetic
    assert both.geometry().resize == (9, 9)
    assert not Preprocess(mean=(0.0,), scale=(1.0, 1.0, 1.0)).has_arithmetic
    assert both.arithmetic() == ((1.0,) * 3, (0.5,) * 3)
