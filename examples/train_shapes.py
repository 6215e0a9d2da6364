"""Train `shapes.onnx`, a small detector of circles, squares and triangles with the head of YOLOX.

    pip install npuc[torch] && python examples/train_shapes.py

The pictures are drawn while it trains (`shapes.py`), so that no picture is seen twice; a few minutes on two cores. Input `image`,
float32 1×3×96×96, RGB of 0..255; outputs `fine` (1×8×12×12, stride 8) and `coarse` (1×8×6×6, stride 16): the center and the
logarithm of the size of a box in strides, its objectness, and the scores of three classes, all before the sigmoid.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from shapes import CLASSES, SIZE, Box, scene
from torch import nn
from torch.nn import functional

SEED = 7
STEPS = 1600
BATCH = 16
STRIDES = (8, 16)
LARGE = 29.0
"""Shapes from this size on belong to the coarse head."""


class Block(nn.Sequential):
    """A convolution, its batch norm, an activation."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, groups: int = 1, kernel: int = 3) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(outputs),
            nn.SiLU(),
        )


class Detector(nn.Module):
    """A pyramid of two levels, the coarse one read back by the fine one."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(Block(3, 16, 2), Block(16, 24, 2), Block(24, 24))
        self.fine = nn.Sequential(Block(24, 40, 2), Block(40, 40))
        self.coarse = nn.Sequential(Block(40, 64, 2), Block(64, 64))
        self.join = Block(40 + 64, 40, kernel=1)
        channels = 5 + len(CLASSES)
        self.fine_head = nn.Sequential(Block(40, 40), nn.Conv2d(40, channels, 1))
        self.coarse_head = nn.Sequential(Block(64, 64), nn.Conv2d(64, channels, 1))
        for head in (self.fine_head, self.coarse_head):
            nn.init.constant_(head[-1].bias[4:5], -4.0)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both heads."""
        fine = self.fine(self.stem(image * (1 / 255) - 0.5))
        coarse = self.coarse(fine)
        wide = functional.interpolate(coarse, scale_factor=2.0, mode="nearest")
        joined = self.join(torch.cat([fine, wide], 1))
        return self.fine_head(joined), self.coarse_head(coarse)


def targets(boxes: list[Box], level: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What a head should say for one picture: 8 numbers a cell, and which cells have a box (those next to its center)."""
    stride = STRIDES[level]
    cells = SIZE // stride
    values = torch.zeros(5 + len(CLASSES), cells, cells)
    taken = torch.zeros(cells, cells, dtype=torch.bool)
    for kind, x1, y1, x2, y2 in boxes:
        if (x2 - x1 >= LARGE) != (level == 1):
            continue
        x, y, size = (x1 + x2) / 2 / stride, (y1 + y2) / 2 / stride, (x2 - x1) / stride
        for row in range(cells):
            for column in range(cells):
                if abs(column + 0.5 - x) <= 0.75 and abs(row + 0.5 - y) <= 0.75:
                    taken[row, column] = True
                    values[:, row, column] = 0
                    values[:5, row, column] = torch.tensor(
                        [x - column, y - row, np.log(size), np.log(size), 1.0]
                    )
                    values[5 + kind, row, column] = 1.0
    return values, taken


def loss(output: torch.Tensor, wanted: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
    """Objectness everywhere; boxes and classes where there is one."""
    objectness = functional.binary_cross_entropy_with_logits(output[:, 4], wanted[:, 4], reduction="sum")
    rows, truths = output.permute(0, 2, 3, 1)[taken], wanted.permute(0, 2, 3, 1)[taken]
    boxes = functional.smooth_l1_loss(rows[:, :4], truths[:, :4], reduction="sum", beta=0.1)
    classes = functional.binary_cross_entropy_with_logits(rows[:, 5:], truths[:, 5:], reduction="sum")
    return (objectness + 4 * boxes + classes) / max(int(taken.sum()), 1)


def main() -> None:
    """Train and write the model."""
    parser = argparse.ArgumentParser(description="Train the detector of shapes.")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent, help="where to write")
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args()
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    model = Detector().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=given.steps)
    for step in range(given.steps):
        scenes = [scene(rng) for _ in range(BATCH)]
        images = torch.from_numpy(np.stack([image for image, _ in scenes])).permute(0, 3, 1, 2).float()
        total = torch.zeros(())
        for level, output in enumerate(model(images)):
            wanted = [targets(boxes, level) for _, boxes in scenes]
            total = total + loss(
                output, torch.stack([w for w, _ in wanted]), torch.stack([t for _, t in wanted])
            )
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        schedule.step()
        if step % 200 == 0 or step == given.steps - 1:
            print(f"step {step}: loss {total.item():.3f}", flush=True)
    path = given.output / "shapes.onnx"
    torch.onnx.export(
        model.eval(),
        (torch.zeros(1, 3, SIZE, SIZE),),
        str(path),
        dynamo=False,
        opset_version=17,
        input_names=["image"],
        output_names=["fine", "coarse"],
    )
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
