"""Recipes do what their steps say, in order, and a wrong one is told apart by its own words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npuc.arrays import Array
from npuc.calib.recipe import load_recipe, parse_recipe
from npuc.calib.recipe_steps import (
    CenterCrop,
    Crop,
    Letterbox,
    Normalize,
    Pad,
    Resize,
    ResizeTorch,
    SetOrder,
    Standardize,
    SwapChannels,
    ToGray,
)
from npuc.errors import FileFormatError, PreprocessError
from npuc.images.resampling import resize, taps

RNG = np.random.default_rng(2)

LONG = """
Datatype: Image
GetImage:
  to_float32: false
  channel_order: RGB
Pre-Order: [ResizeTorch, CenterCrop, Normalize, SetOrder]
Pre-processing:
  Normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], to_float_div255: true}
  ResizeTorch: {size: [16, 16], interpolation: bilinear}
  CenterCrop: {size: [8, 8]}
  SetOrder: {shape: CHW}
"""
SHORT = """
GetImage: {channel_order: RGB}
ResizeTorch: {size: [16, 16], interpolation: bilinear}
CenterCrop: {size: [8, 8]}
Normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], to_float: true}
SetOrder: {shape: CHW}
"""


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    Image.fromarray(RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(path)
    return path


@pytest.mark.parametrize("text", [LONG, SHORT])
def test_both_spellings_give_the_tensor_of_the_steps(tmp_path: Path, photo: Path, text: str) -> None:
    (tmp_path / "r.yaml").write_text(text)
    found = load_recipe(tmp_path / "r.yaml")(photo)
    image = np.asarray(Image.open(photo).resize((16, 16), Image.Resampling.BILINEAR))[4:12, 4:12]
    expected = (image.astype(np.float64) / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    assert found.shape == (3, 8, 8) and found.dtype == np.float32
    np.testing.assert_allclose(found, expected.transpose(2, 0, 1), atol=1e-5)


def test_the_default_channel_order_is_bgr(photo: Path) -> None:
    rgb = np.asarray(Image.open(photo))
    np.testing.assert_array_equal(parse_recipe({"GetImage": None})(photo), rgb[:, :, ::-1])
    np.testing.assert_array_equal(parse_recipe({"SetOrder": None})(photo), rgb[:, :, ::-1])
    gray = parse_recipe({"GetImage": {"channel_order": "GRAY", "to_float32": True}})(photo)
    assert gray.shape == (20, 30, 1) and gray.dtype == np.float32


def test_pad() -> None:
    image = np.ones((3, 4, 1), np.uint8)
    centered = Pad(shape=(6, 8), pad_val=7)(image)
    assert centered.shape == (6, 8, 1) and (centered == 1).sum() == 12
    assert centered[1:4, 2:6].all() and (centered[0] == 7).all()
    corner = Pad(size_divisor=4, right_bottom=True)(image)
    assert corner.shape == (4, 4, 1) and corner[:3, :4].all() and not corner[3].any()
    with pytest.raises(PreprocessError, match="cannot be filled up"):
        Pad(shape=(2, 2))(image)


def test_normalize_without_to_float_takes_pixels_as_they_are() -> None:
    found = Normalize(mean=(100.0,), std=(2.0,))(np.full((1, 1, 3), 104, np.uint8))
    np.testing.assert_array_equal(found, np.full((1, 1, 3), 2.0))
    with pytest.raises(PreprocessError, match="2 values of mean for an image of 3 channels"):
        Normalize(mean=(1.0, 2.0), std=(1.0,))(np.zeros((1, 1, 3), np.uint8))


def test_resize_torch_of_one_number_is_the_shorter_side() -> None:
    assert ResizeTorch(size=(10,))(np.zeros((20, 40, 3), np.uint8)).shape == (10, 20, 3)
    assert ResizeTorch(size=(10,))(np.zeros((40, 20, 1), np.float32)).shape == (20, 10, 1)


@pytest.mark.parametrize(
    "scale,keep,shape",
    [(0.5, False, (10, 20)), ((8, 8), False, (8, 8)), ((8, 8), True, (4, 8)), ((30, 100), True, (30, 60))],
)
def test_resize_sizes(scale: Any, keep: bool, shape: tuple[int, int]) -> None:
    image = np.zeros((20, 40, 3), np.uint8)
    assert Resize(img_scale=scale, keep_ratio=keep)(image).shape[:2] == shape


def resize_by_hand(image: Array, height: int, width: int) -> Array:
    """Bilinear with half-pixel centers, no filter, one pixel at a time."""
    result = np.zeros((height, width, image.shape[2]))
    for y in range(height):
        for x in range(width):
            sy = (y + 0.5) * image.shape[0] / height - 0.5
            sx = (x + 0.5) * image.shape[1] / width - 0.5
            y0, x0 = int(np.floor(sy)), int(np.floor(sx))
            for dy, wy in ((0, 1 - (sy - y0)), (1, sy - y0)):
                for dx, wx in ((0, 1 - (sx - x0)), (1, sx - x0)):
                    row = min(max(y0 + dy, 0), image.shape[0] - 1)
                    column = min(max(x0 + dx, 0), image.shape[1] - 1)
                    result[y, x] += wy * wx * image[row, column]
    return result


@pytest.mark.parametrize("size", [(5, 7), (20, 9), (3, 30)])
def test_resize_is_bilinear_without_a_filter(size: tuple[int, int]) -> None:
    image = RNG.integers(0, 256, (11, 13, 3), dtype=np.uint8)
    expected = np.floor(resize_by_hand(image, *size) + 0.5)
    assert np.abs(resize(image, *size, "bilinear").astype(int) - expected).max() <= 1


def test_area_is_the_mean_of_a_block() -> None:
    image = RNG.random((8, 12, 2)).astype(np.float32)
    expected = image.reshape(4, 2, 4, 3, 2).mean(axis=(1, 3))
    np.testing.assert_allclose(resize(image, 4, 4, "area"), expected, rtol=1e-5)


@pytest.mark.parametrize("kind", ["nearest", "bilinear", "bicubic", "area", "lanczos"])
@pytest.mark.parametrize("sizes", [(7, 3), (3, 7), (5, 5), (1, 4), (10, 1)])
def test_weights_sum_to_one_and_the_same_size_is_the_same_image(kind: str, sizes: tuple[int, int]) -> None:
    indices, weights = taps(*sizes, kind)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-12)
    assert indices.min() >= 0 and indices.max() < sizes[0]
    image = RNG.integers(0, 256, (5, 6, 3), dtype=np.uint8)
    np.testing.assert_array_equal(resize(image, 5, 6, kind), image)


def test_center_crop_and_order() -> None:
    image = np.arange(48).reshape(4, 4, 3)
    assert CenterCrop(size=(2, 2))(image)[0, 0, 0] == image[1, 1, 0]
    with pytest.raises(PreprocessError, match="5 x 5 cannot be cut out of an image of 4 x 4"):
        CenterCrop(size=(5, 5))(image)
    assert SetOrder()(image).shape == (4, 4, 3)
    assert SetOrder(shape="BCHW")(image).shape == (1, 3, 4, 4)
    assert SetOrder(shape="BHW")(image[:, :, :1]).shape == (1, 4, 4)
    assert SetOrder(shape="BHWC")(image).shape == SetOrder(shape="BHW")(image).shape == (1, 4, 4, 3)
    with pytest.raises(PreprocessError, match="no place for 2 channels"):
        SetOrder(shape="BHW")(image[:, :, :2])


def test_a_recipe_takes_pixels_that_are_decoded_already(photo: Path) -> None:
    recipe = parse_recipe({"GetImage": {"to_float32": True}, "SetOrder": {"shape": "BHWC"}})
    pixels = np.asarray(Image.open(photo).convert("RGB"))[:, :, ::-1]
    np.testing.assert_array_equal(recipe(pixels), recipe(photo))
    assert recipe(pixels).dtype == np.float32 and recipe(pixels[:, :, 0]).shape == (1, *pixels.shape[:2], 1)
    for wrong in (np.zeros(3), np.zeros((0, 2, 3)), np.array([["a"]])):
        with pytest.raises(PreprocessError, match="is not an image"):
            recipe(wrong)


@pytest.mark.parametrize(
    "content,words",
    [
        ({}, "a recipe is a list of steps"),
        ([], "a recipe is a list of steps"),
        ({"Resise": {}}, "there is no step 'Resise'. Did you mean 'Resize'"),
        ({"CenterCrop": {"sizes": [1, 1]}}, "CenterCrop has no parameter 'sizes'"),
        ({"CenterCrop": None}, "CenterCrop: size"),
        ({"CenterCrop": 3}, "NAME: VALUE"),
        ({"Normalize": {"mean": [0], "std": [0]}}, "Normalize: std: each value has to be above 0"),
        ({"SetOrder": {}, "CenterCrop": {"size": [1, 1]}}, "SetOrder has to be the last step"),
        ({"CenterCrop": {"size": [1, 1]}, "GetImage": {}}, "GetImage has to be the first step"),
        ({"GetImage": {"channel_order": "xyz"}}, "'xyz' is not rgb, bgr, gray or rgba"),
        ({"Pre-Order": ["Pad"], "Pre-processing": {}}, "Pre-Order has 'Pad' without Pre-processing"),
        ({"Pre-Order": [], "Pre-processing": {"Pad": {}}}, "does not have 'Pad'"),
        ({"Datatype": "Sound"}, "Datatype: Sound is not supported"),
    ],
)
def test_a_wrong_recipe_is_told_apart(content: Any, words: str) -> None:
    with pytest.raises(PreprocessError) as caught:
        parse_recipe(content)
    assert words in caught.value.paragraph()


def test_a_file_that_is_not_yaml_names_itself(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("a: [")
    with pytest.raises(PreprocessError, match=r"r\.yaml: is not YAML"):
        load_recipe(tmp_path / "r.yaml")
    (tmp_path / "r.yaml").write_text("!!python/object/apply:os.system ['true']")
    with pytest.raises(PreprocessError, match="is not YAML"):
        load_recipe(tmp_path / "r.yaml")


def test_a_letterbox_is_opencvs_resize_with_a_border() -> None:
    cv2 = pytest.importorskip("cv2")
    image = RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8)
    boxed = Letterbox(size=(24, 24), pad_val=7, interpolation="bilinear-exact")(image)
    inside = cv2.resize(image, (24, 16), interpolation=cv2.INTER_LINEAR_EXACT)
    np.testing.assert_array_equal(boxed, np.pad(inside, ((4, 4), (0, 0), (0, 0)), constant_values=7))
    corner = Letterbox(size=(24, 24), right_bottom=True, interpolation="bilinear-exact")(image)
    np.testing.assert_array_equal(corner[:16], inside)
    assert (corner[16:] == 114).all()


def test_crop_swap_gray_and_standardize() -> None:
    image = RNG.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    np.testing.assert_array_equal(Crop(size=(2, 3), top=4, left=5)(image), image[4:6, 5:8])
    with pytest.raises(PreprocessError, match="columns 6 to 9 are not in an image of 6 x 8"):
        Crop(size=(2, 3), left=6)(image)
    np.testing.assert_array_equal(SwapChannels()(image), image[:, :, ::-1])
    gray = np.asarray(Image.fromarray(image).convert("L"))
    np.testing.assert_array_equal(ToGray()(image)[:, :, 0], gray)
    np.testing.assert_array_equal(ToGray(channel_order="bgr")(image[:, :, ::-1])[:, :, 0], gray)
    whole = Standardize()(image)
    assert abs(whole.mean()) < 1e-6 and abs(whole.std() - 1) < 1e-6 and whole.dtype == np.float32
    each = Standardize(per_channel=True)(image)
    np.testing.assert_allclose(each.std(axis=(0, 1)), 1, atol=1e-5)
    assert not Standardize()(np.full((2, 2, 3), 9, np.uint8)).any()


def test_steps_are_chained_from_a_cameras_bytes_to_a_tensor(tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2")
    data = RNG.integers(0, 256, (36, 32), dtype=np.uint8)
    data.tofile(tmp_path / "frame.nv12")
    text = """
GetImage: {yuv: nv12, size: [24, 32], channel_order: rgb}
CenterCrop: {size: [20, 20]}
Resize: {img_scale: [10, 12], interpolation: bilinear-exact}
SwapChannels: {}
Normalize: {mean: [1, 2, 3], std: [4, 5, 6]}
SetOrder: {shape: CHW}
"""
    (tmp_path / "r.yaml").write_text(text)
    tensor = load_recipe(tmp_path / "r.yaml")(tmp_path / "frame.nv12")
    rgb = cv2.cvtColor(data, cv2.COLOR_YUV2RGB_NV12)[2:22, 6:26]
    expected = cv2.resize(rgb, (12, 10), interpolation=cv2.INTER_LINEAR_EXACT)[:, :, ::-1].astype(np.float32)
    np.testing.assert_allclose(tensor, ((expected - [1, 2, 3]) / [4, 5, 6]).transpose(2, 0, 1), atol=0.3)
    (tmp_path / "short.nv12").write_bytes(b"abc")
    with pytest.raises(FileFormatError, match="has 3 bytes"):
        load_recipe(tmp_path / "r.yaml")(tmp_path / "short.nv12")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"yuv": "nv12"}, "yuv and size go together"),
        ({"yuv": "nv12", "size": [3, 4]}, "has even sides"),
        ({"yuv": "yuyv", "size": [3, 5]}, "has an even width"),
        ({"yuv": "nv12", "size": [4, 4], "channel_order": "rgba"}, "no alpha"),
    ],
)
def test_raw_bytes_need_a_size_that_their_format_has(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PreprocessError, match=words):
        parse_recipe({"GetImage": options})
