"""Networks that take images in other colours than they were made for, against the formula of the colours."""

from __future__ import annotations

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.engine import FloatEngine
from npuc.errors import PreprocessError, UnknownTensorError
from npuc.images.kernels import rgb_from_yuv
from npuc.ir import Graph, dtype_of, shape_of
from npuc.transform.camera_inputs import PLANAR, with_rgb_input, with_yuv_input
from npuc.transform.image_ops import BT601_LIMITED, ColourMatrix

SIZE = (4, 6)


def network(shape: tuple[int, ...]) -> Graph:
    """What comes in, out again."""
    return lang.build({"y": lang.neg(lang.neg(lang.input("x", shape)))})


def planes_of(data: Array, yuv: str) -> tuple[Array, Array, Array]:
    """Y, U and V of every pixel, of the bytes of an image."""
    height, width = SIZE
    luma, rest = data[: height * width].reshape(height, width), data[height * width :]
    u, v = rest.reshape(2, -1) if yuv in ("i420", "yv12") else rest.reshape(-1, 2).T
    u, v = (v, u) if yuv in ("yv12", "nv21") else (u, v)
    wide = [plane.reshape(height // 2, width // 2).repeat(2, 0).repeat(2, 1) for plane in (u, v)]
    return luma, wide[0], wide[1]


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("yuv", PLANAR)
def test_a_row_of_bytes_becomes_the_pixels_of_bt709(yuv: str, layout: str) -> None:
    graph = with_yuv_input(network((1, 3, *SIZE) if layout == "nchw" else (1, *SIZE, 3)), "x", layout, yuv)
    port = graph.inputs[0]
    assert (dtype_of(port.type).name, shape_of(port.value)) == ("ui8", (1, 36))
    data = np.random.default_rng(0).integers(0, 256, 36).astype(np.uint8)
    y, u, v = (plane.astype(np.float64) for plane in planes_of(data, yuv))
    kr, kb = 0.2126, 0.0722  # what BT.709 takes of red and blue for the luma
    red, blue = y + 2 * (1 - kr) * (v - 128), y + 2 * (1 - kb) * (u - 128)
    green = (y - kr * red - kb * blue) / (1 - kr - kb)
    expected = np.clip(np.stack([red, green, blue]), 0, 255)
    result = FloatEngine(graph).run({"x": data[None]})["y"][0]
    result = result if layout == "nchw" else result.transpose(2, 0, 1)
    np.testing.assert_allclose(result, expected, atol=2e-3)


def test_other_colours_are_those_that_are_stated() -> None:
    graph = with_yuv_input(network((1, 3, *SIZE)), "x", "nchw", "nv12", BT601_LIMITED)
    data = np.random.default_rng(1).integers(16, 236, 36).astype(np.uint8)
    result = FloatEngine(graph).run({"x": data[None]})["y"][0].transpose(1, 2, 0)
    np.testing.assert_allclose(result, rgb_from_yuv(data, *SIZE, "nv12"), atol=1.1)  # OpenCV's own rounding


def test_pixels_become_the_bytes_of_i420() -> None:
    graph = with_rgb_input(network((2, 36)), "x", SIZE)
    assert shape_of(graph.inputs[0].value) == (2, *SIZE, 3)
    rgb = np.random.default_rng(2).integers(0, 256, (2, *SIZE, 3)).astype(np.uint8)
    red, green, blue = rgb.astype(np.float64).transpose(3, 0, 1, 2)
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    u, v = (blue - y) / (2 * (1 - 0.0722)) + 128, (red - y) / (2 * (1 - 0.2126)) + 128
    corners = [plane[:, ::2, ::2] for plane in (u, v)]
    expected = np.concatenate([plane.reshape(2, -1) for plane in (y, *corners)], axis=1)
    result = FloatEngine(graph).run({"x": rgb})["y"]
    np.testing.assert_allclose(result, np.clip(expected, 0, 255), atol=2e-3)


def test_what_is_no_such_input() -> None:
    with pytest.raises(UnknownTensorError, match="no input 'z'"):
        with_yuv_input(network((1, 3, *SIZE)), "z", "nchw")
    with pytest.raises(PreprocessError, match="takes no image of three channels"):
        with_yuv_input(network((1, 4, *SIZE)), "x", "nchw")
    with pytest.raises(PreprocessError, match="has even sides, and this one is 3 x 6"):
        with_yuv_input(network((1, 3, 3, 6)), "x", "nchw")
    with pytest.raises(PreprocessError, match="takes no image of three channels in yuyv format"):
        with_yuv_input(network((1, 3, *SIZE)), "x", "nchw", "yuyv")
    with pytest.raises(PreprocessError, match="does not take the 36 bytes"):
        with_rgb_input(network((1, 35)), "x", SIZE)
    with pytest.raises(PreprocessError, match="of ui8 gets no conversion"):
        with_yuv_input(with_yuv_input(network((1, 3, *SIZE)), "x", "nchw"), "x", "nchw")


def test_a_matrix_is_what_the_formula_says() -> None:
    swap = ColourMatrix(((0, 0, 1), (0, 1, 0), (1, 0, 0)), before=(1, 2, 3), after=(10, 20, 30))
    pixel = np.array([50.0, 60.0, 70.0])
    np.testing.assert_allclose(swap.weights @ pixel + swap.bias, [77, 78, 79])
