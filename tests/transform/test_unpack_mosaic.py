"""Bytes of a sensor as four colours, against the definition of their packing."""

from __future__ import annotations

import numpy as np
import pytest

from npuc import lang
from npuc.engine import FloatEngine
from npuc.errors import PreprocessError
from npuc.ir.passes import run_pipeline


def packed(pixels: np.ndarray) -> np.ndarray:
    """12-bit pixels as bytes: the upper parts of two, then the lower parts of both."""
    first, second = pixels[:, 0::2], pixels[:, 1::2]
    parts = [first >> 4, second >> 4, (first & 15) | ((second & 15) << 4)]
    return np.stack(parts, -1).reshape(len(pixels), -1).astype(np.uint8)


@pytest.mark.parametrize("order", ["rggb", "grbg", "gbrg", "bggr"])
def test_colours_come_out_where_they_were_packed(order: str) -> None:
    rng = np.random.default_rng(0)
    red, blue, *greens = rng.integers(0, 4096, (4, 3, 5))
    pixels = np.zeros((6, 10), np.int64)
    left = list(greens)  # the green beside the red is the second channel
    beside = order[:2] if "r" in order[:2] else order[2:]
    for place, colour in enumerate(order):
        row, column = divmod(place, 2)
        in_row_of_red = order[2 * row : 2 * row + 2] == beside
        plane = red if colour == "r" else blue if colour == "b" else left[0 if in_row_of_red else 1]
        pixels[row::2, column::2] = plane
    graph = lang.build({"y": lang.relu(lang.input("x", [1, 4, 3, 5]), name="y")})
    result = run_pipeline(graph.copy(), f"unpack-mosaic{{order={order}}}")
    y = FloatEngine(result).run({"x": packed(pixels)[None, None]})["y"]
    np.testing.assert_array_equal(y, np.stack([red, greens[0], blue, greens[1]])[None])


def test_what_it_cannot_take_apart_is_told() -> None:
    graph = lang.build({"y": lang.relu(lang.input("x", [1, 3, 4, 4]), name="y")})
    with pytest.raises(PreprocessError, match="no input has the four colours"):
        run_pipeline(graph.copy(), "unpack-mosaic")
    with pytest.raises(PreprocessError, match="no order 'rgbg'"):
        run_pipeline(graph.copy(), "unpack-mosaic{order=rgbg}")
