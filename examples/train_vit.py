"""Train `digits_vit.onnx`, a small vision transformer on scikit-learn's 8×8 handwritten digits.

    pip install npuc[torch,train] && python examples/train_vit.py

An image is 16 patches of 2 × 2 pixels, each a token of 32 numbers; two blocks of attention (4 heads) and of a GELU network
follow, then the mean of the tokens, and a linear layer. It trains on what `train_digits.py` trains on, and leaves out the same
200 samples (`digits_samples.npz`). Input `image`, float32 1×1×8×8 of 0..16; output `logits`, float32 1×10. About a minute on
two cores.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

SEED = 20240517
HELD_OUT = 200
EPOCHS = 60
BATCH = 32
WIDTH, HEADS, BLOCKS, TOKENS = 32, 4, 2, 16


class Attention(nn.Module):
    """Each token reads from all tokens, weighted by a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """N × tokens × width in and out."""

        def heads(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.reshape(-1, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2)

        query, key, value = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
        weights = torch.softmax(query @ key.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5, -1)
        return self.out((weights @ value).transpose(1, 2).reshape(-1, TOKENS, WIDTH))


class Block(nn.Module):
    """Attention and a small network, each after a layer norm and beside a short cut."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.wide, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """N × tokens × width in and out."""
        x = x + self.attention(self.norm1(x))
        return x + self.narrow(functional.gelu(self.wide(self.norm2(x))))


class VisionTransformer(nn.Module):
    """Patches, positions, blocks, mean, classes."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, 2, 2)
        self.positions = nn.Parameter(torch.randn(1, TOKENS, WIDTH) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Scores of ten digits."""
        x = self.patches(image * (1 / 16)).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def main() -> None:
    """Train, report the accuracy on the held-out samples, and write the model."""
    parser = argparse.ArgumentParser(description="Train a small vision transformer on scikit-learn's digits.")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent, help="where to write")
    given = parser.parse_args()
    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.target))
    images = torch.from_numpy(digits.images[order].astype(np.float32))[:, None]
    labels = torch.from_numpy(digits.target[order].astype(np.int64))
    torch.manual_seed(SEED)
    model = VisionTransformer().train()
    steps = (len(images) - HELD_OUT) // BATCH * EPOCHS
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _ in range(EPOCHS):
        chosen = torch.randperm(len(images) - HELD_OUT) + HELD_OUT
        for part in chosen[: len(chosen) // BATCH * BATCH].split(BATCH):
            loss = functional.cross_entropy(model(images[part]), labels[part], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        right = int((model(images[:HELD_OUT]).argmax(1) == labels[:HELD_OUT]).sum())
    print(f"held out: {right} of {HELD_OUT} right")
    path = given.output / "digits_vit.onnx"
    torch.onnx.export(
        model,
        (torch.zeros(1, 1, 8, 8),),
        str(path),
        dynamo=False,
        opset_version=17,
        input_names=["image"],
        output_names=["logits"],
    )
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
