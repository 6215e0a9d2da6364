"""CIFAR-10 as the benchmarks of training read it: training images that train, some that choose, and the validation set.

Everything is chosen on the last 3,000 training images; the 1,000 validation images are for the final figures.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

SHARED = Path(os.environ.get("NPUC_SHARED", Path(__file__).resolve().parents[2] / "shared"))
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
HELD = 3000


def normalized(pixels: Any) -> Any:
    """Images from bytes (N, 3, H, W)."""
    mean, deviation = (part.astype(np.float32)[:, None, None] for part in (MEAN, STD))
    return np.ascontiguousarray((pixels.astype(np.float32) / 255 - mean) / deviation, np.float32)


def training_data(folder: Path, count: int | None = None) -> tuple[Any, Any]:
    """What is trained on, of the sheets of 10,000 images that are in the folder, and the images that choose."""
    from PIL import Image

    from npuc.train.data import TrainingData

    Image.MAX_IMAGE_PIXELS = None
    labels = np.array([int(line) for line in (folder / "labels.txt").read_text().split()], np.int64)
    images, classes = [], []
    for number in (1, 2, 3):
        path = folder / f"batch_{number}.webp"
        if path.exists():
            sheet = np.asarray(Image.open(path).convert("RGB")).reshape(100, 32, 100, 32, 3)
            images.append(sheet.transpose(0, 2, 4, 1, 3).reshape(-1, 3, 32, 32))
            classes.append(labels[10_000 * (number - 1) : 10_000 * number])
    border = tuple(float(value) for value in -MEAN / STD)
    whole = TrainingData((normalized(np.concatenate(images)),), np.concatenate(classes), border)
    train, held = whole.split(HELD)
    return (train if count is None else train[:count]), held


def validation_data() -> tuple[Any, Any]:
    """The 1,000 validation images and their classes."""
    from PIL import Image

    folder = SHARED / "data" / "cifar10"
    rows = [line.split() for line in (folder / "val.txt").read_text().splitlines() if line.strip()]
    images = [np.asarray(Image.open(folder / "val" / Path(name).name).convert("RGB")) for name, _ in rows]
    labels = np.array([int(label) for _, label in rows])
    return normalized(np.stack(images).transpose(0, 3, 1, 2)), labels


def resnet20() -> Path:
    """The network that cells start from."""
    folder = os.environ.get("NPUC_MODELS")
    return Path(folder or SHARED / "models" / "onnx") / "cifar10_resnet20.onnx"
