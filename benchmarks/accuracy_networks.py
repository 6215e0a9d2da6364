"""The networks of the accuracy benchmark with their data: what calibrates, what is measured, and what is true of it.

Calibration and measurement never share a sample. A set without a part for calibration (COCO) gives its first images for
that; the others, with their boxes, are measured. `swapped` has it the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_letters, digits
from typing import Any
from zlib import crc32

import numpy as np
from peers import CACHE, DATA, MODELS, fixed
from PIL import Image, ImageDraw, ImageFont

from npuc.arrays import Array
from npuc.datasets.data import DataLocation
from npuc.datasets.formats.boxes import yolo
from npuc.datasets.geometry import ImageView
from npuc.datasets.sample import Boxes, Observation
from npuc.evaluate.decoding import Decoder
from npuc.files import write_atomically
from npuc.images.loading import load_image
from npuc.images.preprocess import Preprocess
from npuc.metrics.builtin.detection import CocoPrecision

FOLDER = CACHE / "accuracy"
COCO_CALIBRATION = 40
"""The first images of a set without a part for calibration serve for that, the others for measuring."""


@dataclass(frozen=True)
class Case:
    """One sample to measure on."""

    read: Callable[[], Array]
    label: int = -1
    """Its class, -1 without."""
    boxes: Boxes | None = None
    """What is in the image, for detectors."""
    path: Path | None = None


@dataclass(frozen=True)
class Network:
    """A network with its data."""

    name: str
    file: str
    shape: tuple[int, ...]
    data: str
    preprocess: Preprocess
    text: bool = False
    """Words are written on the images, for networks that look for them."""
    decoder: str = ""
    """How its outputs become boxes, for detectors whose boxes are known."""
    is_swapped: bool = False
    """Whether the images that calibrate and those that are measured have changed places."""

    def swapped(self) -> Network:
        """The network calibrated on the images that are measured, and measured on those that calibrate."""
        return replace(self, is_swapped=not self.is_swapped)

    @property
    def labelled(self) -> bool:
        """Whether there are classes to count."""
        return (DATA / self.data / "val.txt").exists()

    @property
    def metric(self) -> str:
        """What is counted: top-1, mAP, or nothing."""
        return "top-1" if self.labelled else "mAP" if self.decoder else ""

    @property
    def float_file(self) -> Path:
        """The file that all tools start from."""
        return fixed(MODELS / f"{self.file}.onnx", self.shape, FOLDER / f"{self.name}.float.onnx")

    def calibration(self, count: int) -> list[Array]:
        """Samples to calibrate with."""
        return [self._read(path) for path in self.calibrating[:count]]

    @property
    def calibrating(self) -> list[Path]:
        """The images that there are to calibrate with."""
        files = sorted((DATA / self.data / ("calib" if self.labelled else "images")).iterdir())
        return files if self.labelled else files[self._half(self.is_swapped)]

    def measured(self, count: int | None = None) -> list[Case]:
        """Other samples: all, or so many evenly spread over those that there are."""
        folder = DATA / self.data
        if self.labelled:
            pairs = [line.split() for line in (folder / "val.txt").read_text().splitlines() if line.strip()]
            cases = [self._case(folder / "val" / name, int(label)) for name, label in pairs]
        else:
            entries = sorted(yolo(DataLocation(folder)).entries, key=lambda entry: entry.name)
            entries = entries[self._half(not self.is_swapped)]
            cases = [self._case(entry.path, -1, entry.truth) for entry in entries if entry.path is not None]
        count = min(count or len(cases), len(cases))
        return [cases[k * len(cases) // count] for k in range(count)]

    def found(self, case: Case, outputs: Mapping[str, Array]) -> dict[str, Any]:
        """What a detector's outputs say about an image, in the form that `CocoPrecision` counts."""
        assert case.path is not None
        with Image.open(case.path) as image:
            view = ImageView(image.height, image.width, self.shape, self.preprocess)
        decoder = Decoder.parse(self.decoder)
        observation = Observation(
            case.path.name, outputs, case.boxes, view=view,
            detections=lambda: decoder.detect(outputs, view, case.path.name if case.path else ""),
        )  # fmt: skip
        return CocoPrecision().observe(observation)

    @staticmethod
    def _half(second: bool) -> slice:
        """Of a set without a part for calibration, the images that calibrate, or the others."""
        return slice(COCO_CALIBRATION, None) if second else slice(COCO_CALIBRATION)

    def _case(self, path: Path, label: int, boxes: Boxes | None = None) -> Case:
        return Case(lambda: self._read(path), label, boxes, path)

    def _read(self, path: Path) -> Array:
        return load_image(with_text(path) if self.text else path, self.preprocess, self.shape)


def with_text(path: Path) -> Path:
    """An image with a few words on it, the same ones each time."""
    target = FOLDER / "text" / f"{path.stem}.png"
    if target.exists():
        return target
    rng = np.random.default_rng(crc32(path.name.encode()))
    image = Image.open(path).convert("RGB")
    draw = ImageDraw.Draw(image)
    for _ in range(6):
        word = "".join(rng.choice(list(ascii_letters + digits), rng.integers(4, 12)))
        font = ImageFont.load_default(int(rng.integers(image.height // 16, image.height // 7)))
        x, y = rng.random() * 0.6 * image.width, rng.random() * 0.85 * image.height
        colours = [tuple(int(c) for c in rng.integers(0, 256, 3)) for _ in range(2)]
        draw.text((x, y), word, colours[0], font, stroke_width=2, stroke_fill=colours[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(target) as file:
        image.save(file, "PNG")
    return target


_MEAN, _SCALE = (123.675, 116.28, 103.53), (1 / 58.395, 1 / 57.12, 1 / 57.375)
_CROPPED: dict[str, Any] = {"resize": (256, 256), "keep_aspect_ratio": True, "interpolation": "bicubic"}
_LETTERBOX: dict[str, Any] = {
    "keep_aspect_ratio": True,
    "pad_value": 114,
    "pad_type": "corner",
    "pixel_format": "bgr",
}

NETWORKS = {
    network.name: network
    for network in (
        Network(
            "mobilenet_v2", "mobilenet_v2", (1, 3, 224, 224), "imagenet",
            Preprocess(mean=_MEAN, scale=_SCALE, **_CROPPED),
        ),
        Network(
            "squeezenet", "squeezenet_v1.1", (1, 3, 227, 227), "imagenet",
            Preprocess(mean=(104.0, 117.0, 123.0), pixel_format="bgr", **_CROPPED),
        ),
        Network(
            "resnet20", "cifar10_resnet20", (1, 3, 32, 32), "cifar10", Preprocess(mean=_MEAN, scale=_SCALE)
        ),
        Network(
            "vit", "../transformers/cifar10_vit", (1, 3, 32, 32), "cifar10", Preprocess(mean=_MEAN, scale=_SCALE)
        ),
        Network(
            "yolox_nano", "yolox_nano", (1, 3, 416, 416), "coco", Preprocess(**_LETTERBOX), decoder="yolox:activated=1"
        ),
        Network(
            "fastestdet", "fastestdet", (1, 3, 352, 352), "coco",
            Preprocess(pixel_format="bgr", scale=(1 / 255,)), decoder="fastestdet",
        ),
        Network(
            "ultraface", "ultraface_rfb_320", (1, 3, 240, 320), "coco", Preprocess(mean=(127.0,), scale=(1 / 128,))
        ),
        Network("yunet", "yunet_n_320", (1, 3, 320, 320), "coco", Preprocess(pixel_format="bgr")),
        Network(
            "ppocr_det", "ppocrv3_text_det", (1, 3, 320, 320), "coco", Preprocess(mean=_MEAN, scale=_SCALE), text=True
        ),
    )
}  # fmt: skip
