"""Draw pictures of circles, squares and triangles, with the boxes around them: data for a detector.

    python examples/shapes.py FOLDER [--count 40] [--seed 1]

writes `FOLDER/images/0000.png` (96 × 96 pixels) and `FOLDER/labels/0000.txt` in YOLO's form: class, center x, center y, width and
height of each box, relative to the picture. The same seed gives the same pictures.
"""

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

SIZE = 96
CLASSES = ("circle", "square", "triangle")

Box = tuple[int, float, float, float, float]
"""A class, and the sides x1, y1, x2, y2 in pixels."""


def scene(rng: np.random.Generator) -> tuple[npt.NDArray[np.uint8], list[Box]]:
    """A picture with one to four shapes that do not hide each other, on a noisy slope of two colours."""
    corners = rng.uniform(0, 255, (2, 3))
    slope = np.linspace(0, 1, SIZE)[:, None] * rng.uniform(0.3, 1) + np.linspace(0, 1, SIZE) * rng.uniform(
        0, 0.3
    )
    ground = corners[0] + (corners[1] - corners[0]) * slope[..., None]
    image = Image.fromarray(np.clip(ground, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    boxes: list[Box] = []
    for _ in range(int(rng.integers(1, 5))):
        size = float(rng.uniform(16, 44))
        x, y = rng.uniform(1, SIZE - 1 - size, 2)
        kind = int(rng.integers(len(CLASSES)))
        box = (kind, float(x), float(y), float(x + size), float(y + size))
        if any(_touch(box, other) for other in boxes):
            continue
        behind = ground[int(y + size / 2), int(x + size / 2)]
        colour = rng.uniform(0, 255, 3)
        while np.abs(colour - behind).max() < 90:
            colour = rng.uniform(0, 255, 3)
        _draw_shape(draw, box, (int(colour[0]), int(colour[1]), int(colour[2])))
        boxes.append(box)
    noisy = np.asarray(image, np.float64) + rng.normal(0, 6, (SIZE, SIZE, 3))
    return np.clip(noisy, 0, 255).astype(np.uint8), boxes


def _touch(a: Box, b: Box) -> bool:
    return a[1] < b[3] and b[1] < a[3] and a[2] < b[4] and b[2] < a[4]


def _draw_shape(draw: ImageDraw.ImageDraw, box: Box, colour: tuple[int, int, int]) -> None:
    kind, x1, y1, x2, y2 = box
    if CLASSES[kind] == "circle":
        draw.ellipse((x1, y1, x2, y2), fill=colour)
    elif CLASSES[kind] == "square":
        draw.rectangle((x1, y1, x2, y2), fill=colour)
    else:
        draw.polygon([((x1 + x2) / 2, y1), (x2, y2), (x1, y2)], fill=colour)


def main() -> None:
    """Draw and write."""
    parser = argparse.ArgumentParser(description="Draw pictures of shapes, with the boxes around them.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    for name in ("images", "labels"):
        (given.folder / name).mkdir(parents=True, exist_ok=True)
    shapes = 0
    for number in range(given.count):
        image, boxes = scene(rng)
        Image.fromarray(image).save(given.folder / "images" / f"{number:04}.png")
        lines = [
            f"{kind} {(x1 + x2) / 2 / SIZE:.5f} {(y1 + y2) / 2 / SIZE:.5f} {(x2 - x1) / SIZE:.5f} {(y2 - y1) / SIZE:.5f}\n"
            for kind, x1, y1, x2, y2 in boxes
        ]
        (given.folder / "labels" / f"{number:04}.txt").write_text("".join(lines))
        shapes += len(boxes)
    print(f"{given.count} pictures with {shapes} shapes in {given.folder}")


if __name__ == "__main__":
    main()
