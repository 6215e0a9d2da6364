"""Preprocessing inside a compiled program: from the bytes of a camera on the NPU alone, with the bits of graph mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npuc import lang
from npuc.arrays import Array
from npuc.calib.sources import open_data, random_data
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import PreprocessError
from npuc.flow import compile_network, expanded, quantize_network, ranges_from, schemes_of
from npuc.images.kernels import rgb_from_yuv
from npuc.images.loading import load_image, standardized
from npuc.images.preprocess import Preprocess
from npuc.ir import Graph, npu
from npuc.ir.passes import run_pipeline
from npuc.program.model import NpuSubgraph
from npuc.runtime.runner import Runner
from npuc.target import load_target
from npuc.transform import CANONICAL
from support.programs.equal_modes import check

NORMAL: dict[str, Any] = {"mean": (123.7, 116.3, 103.5), "scale": (0.0171, 0.0175, 0.0174)}
SOURCES: list[tuple[str, dict[str, Any]]] = [
    ("rgb", {**NORMAL}),
    ("bgr", {"source_size": (40, 52), **NORMAL}),
    ("rgba", {"source_size": (41, 53), "interpolation": "opencv-nearest"}),
    ("gray", {"source_size": (20, 22), "scale": (1 / 255,)}),
    ("rgb", {"source_size": (40, 52), "keep_aspect_ratio": True, "pad_value": 114, **NORMAL}),
    ("bgr", {"source_size": (40, 52), "resize": (30, 40), "crop": (24, 32), "scale": (1 / 255,)}),
    ("rgb", {"source_size": (40, 52), "pixel_format": "gray", "scale": (1 / 255,)}),
    ("nv12", {"source_size": (40, 52), **NORMAL}),
    ("nv21", {"source_size": (40, 52), "pixel_format": "bgr", "scale": (1 / 255,)}),
    ("i420", {"source_size": (40, 52), "scale": (1 / 255,)}),
    ("yv12", {"scale": (1 / 255,)}),
    ("yuyv", {"source_size": (31, 52), "keep_aspect_ratio": True, "scale": (1 / 255,)}),
    ("uyvy", {"pixel_format": "gray", "scale": (1 / 255,)}),
    ("bgr", {"source_size": (40, 52), "standardize": "image"}),
    ("rgb", {"standardize": "channel"}),
]
IDS = [f"{source}-{number}" for number, (source, _) in enumerate(SOURCES)]


def network(source: str, how: dict[str, Any]) -> Graph:
    """A small network of images of 24 x 32 that takes the bytes of a source."""
    preprocess = Preprocess(source_format=source, **{"interpolation": "opencv-linear", **how})
    rng = np.random.default_rng(0)
    x = lang.input("image", (1, preprocess.channels, 24, 32), preprocess=preprocess)
    kernel = rng.normal(0, 0.3, (8, preprocess.channels, 3, 3)).astype(np.float32)
    y = lang.relu(lang.conv(x, lang.constant(kernel), strides=(2, 2), pads=(1, 1, 1, 1)))
    last = rng.normal(0, 0.3, (4, 8, 1, 1)).astype(np.float32)
    graph = lang.build({"y": lang.conv(y, lang.constant(last))})
    return expanded(run_pipeline(graph, f"fuse-preprocess,{CANONICAL}"))


def integers(graph: Graph, target: Any) -> Graph:
    ranges = ranges_from(graph, random_data(graph, 4, 0), schemes_of(graph, None, target), "max")
    return quantize_network(graph, ranges, None, target).graph


@pytest.mark.parametrize(("source", "how"), SOURCES, ids=IDS)
def test_all_of_it_runs_on_the_npu(source: str, how: dict[str, Any]) -> None:
    target = load_target("edge-4t")
    graph = network(source, how)
    made = integers(graph, target)
    done = check(made, target, 2)
    assert done is not None
    on_npu = [part for part in done.model.subgraphs if isinstance(part, NpuSubgraph)]
    assert len(on_npu) == 1 and dict(done.partition.reasons) == {}
    assert done.model.tensor("image").dtype == "ui8"
    inputs = {"image": pixels(made)}
    real, ours = FloatEngine(graph).run(inputs)["y"], IntegerEngine(made).run(inputs)["y"]
    assert np.vdot(real, ours) > 0.998 * np.linalg.norm(real) * np.linalg.norm(ours)


def pixels(graph: Graph) -> Array:
    """A smooth picture in bytes that any format takes."""
    shape = tuple(graph.inputs[0].type.get_shape())  # type: ignore[attr-defined]
    rng = np.random.default_rng(3)
    return (rng.integers(60, 200, shape) // 2 + 50).astype(np.uint8)


def test_pixels_are_taken_as_they_are_and_resized_in_whole_pixels() -> None:
    """Between the input and the first layer that computes, integers are the pixels: a scale of 1, a zero point of 0."""
    made = integers(network("rgb", {"source_size": (40, 52), **NORMAL}), load_target("edge-4t"))
    kinds = {str(op.results[0].type) for op in made.ops if op.name in ("npu.resize", "npu.reinterpret")}
    assert kinds and all("ui8" in kind and "1.0" in kind for kind in kinds), kinds
    assert not any(isinstance(op, npu.Quantize) for op in made.ops)


@pytest.mark.parametrize("source", ["nv12", "yuyv", "i420"])
def test_converted_colours_are_whole_pixels_near_opencvs(source: str) -> None:
    """The weights of the conversion have 8 bits: a colour is within 3 levels of the host's, and within 1 on average."""
    x = lang.input("image", (1, 3, 40, 52), preprocess=Preprocess(source_format=source))
    graph = run_pipeline(lang.build({"y": lang.max_pool(x, kernel=1)}), "fuse-preprocess")
    made = integers(graph, load_target("edge-4t"))
    frame = pixels(made)
    ours = IntegerEngine(made).run({"image": frame})["y"][0].transpose(1, 2, 0)
    apart = np.abs(ours - rgb_from_yuv(frame[0], 40, 52, source).astype(float))
    assert np.array_equal(ours, np.rint(ours)) and apart.max() <= 3 and apart.mean() < 1, (
        apart.max(),
        apart.mean(),
    )


def test_a_machine_without_unsigned_bytes_leaves_the_conversion_to_the_cpu() -> None:
    target = load_target("aries-like")
    assert not target.arithmetic.activations.formats.get("u8")
    made = integers(network("rgb", {"scale": (1 / 255,)}), target)
    assert any(op.name == "top.cast" for op in made.ops)


@pytest.mark.parametrize("source", ["nv12", "yuyv", "bgr"])
def test_photos_become_the_bytes_of_the_source(source: str, tmp_path: Path) -> None:
    """Where data are read and in a runner, a photo of any size is what the camera would have seen."""
    target = load_target("edge-4t")
    graph = network(source, {"source_size": (40, 52), "scale": (1 / 255,)})
    photo = np.zeros((90, 70, 3), np.uint8) + np.array([180, 90, 60], np.uint8)
    photo[30:60, 20:50] = (20, 200, 220)
    Image.fromarray(photo).save(tmp_path / "photo.png")
    ranges = ranges_from(graph, open_data(graph, tmp_path), schemes_of(graph, None, target), "max")
    made = quantize_network(graph, ranges, None, target).graph
    left = Preprocess.from_dict(made.inputs[0].preprocess or {})
    frame = load_image(tmp_path / "photo.png", left, tuple(made.inputs[0].type.get_shape()), np.uint8)  # type: ignore[attr-defined]
    with Runner(compile_network(made, target).model) as runner:
        outputs = [runner.run(form)["y"] for form in (str(tmp_path / "photo.png"), photo, frame)]
    np.testing.assert_array_equal(outputs[0], outputs[1])
    np.testing.assert_array_equal(outputs[0], outputs[2])
    np.testing.assert_array_equal(outputs[0], IntegerEngine(made).run({"image": frame})["y"])


@pytest.mark.parametrize("way", ["image", "channel"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_a_standardised_image_is_that_of_the_host(way: Any, layout: Any) -> None:
    preprocess = Preprocess(standardize=way, layout=layout)
    shape = (2, 3, 10, 12) if layout == "nchw" else (2, 10, 12, 3)
    graph = lang.build({"y": lang.relu(lang.input("image", shape, preprocess=preprocess))})
    graph = run_pipeline(graph, "fuse-preprocess")
    images = np.random.default_rng(0).integers(0, 256, (2, 10, 12, 3), np.uint8)
    images[1, :, :, 0] = 7  # a flat channel
    host = standardized(images, per_channel=way == "channel")
    turned = images if layout == "nhwc" else images.transpose(0, 3, 1, 2)
    ours = FloatEngine(graph).run({"image": np.ascontiguousarray(turned)})["y"]
    ours = ours if layout == "nhwc" else ours.transpose(0, 2, 3, 1)
    np.testing.assert_allclose(ours, np.maximum(host, 0), atol=1e-4)
    axes = (1, 2) if way == "channel" else (1, 2, 3)
    deviation = np.maximum(images.std(axis=axes, keepdims=True), 1 / np.sqrt(120))
    np.testing.assert_allclose(host, (images - images.mean(axis=axes, keepdims=True)) / deviation, atol=1e-5)


def test_what_cannot_be_standardised() -> None:
    with pytest.raises(PreprocessError, match="leaves nothing to mean and scale"):
        Preprocess(standardize="image", mean=(1.0,))
    with pytest.raises(PreprocessError, match="'all' is none of image, channel"):
        Preprocess.from_dict({"standardize": "all"})
    x = lang.input("image", (3, 8, 8), preprocess=Preprocess(standardize="image"))
    with pytest.raises(PreprocessError, match="rank 3"):
        run_pipeline(lang.build({"y": lang.relu(x)}), "fuse-preprocess")
