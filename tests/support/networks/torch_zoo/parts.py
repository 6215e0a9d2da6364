"""What the networks of the zoo are made of, and how they get their weights.

Batch norms get the statistics that the module's own activations have on random data, so that networks neither die nor
explode. Everything is seeded by the name.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ZOO: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {}


def network(*shape: int, more: tuple[tuple[int, ...], ...] = (), integers: int = 0) -> Callable[[Any], Any]:
    """Register a module class with the shapes of its inputs; `integers` is a vocabulary for integer inputs."""

    def register(cls: Any) -> Any:
        def build() -> tuple[nn.Module, tuple[Tensor, ...]]:
            generator = torch.Generator().manual_seed(zlib.crc32(cls.__name__.encode()))
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(zlib.crc32(cls.__name__.encode()))
                module = cls()
                inputs = tuple(_sample(size, generator, integers) for size in (shape, *more))
                _settle(module, (shape, *more), generator, integers)
            return module.eval(), inputs

        ZOO[cls.__name__] = build
        return cls

    return register


def _sample(shape: tuple[int, ...], generator: torch.Generator, integers: int) -> Tensor:
    if integers:
        return torch.randint(0, integers, shape, generator=generator)
    return torch.randn(shape, generator=generator)


def _settle(module: nn.Module, shapes: Any, generator: torch.Generator, integers: int) -> None:
    norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    for norm in norms:
        norm.momentum = None
        with torch.no_grad():
            norm.weight.uniform_(0.6, 1.4)
            norm.bias.normal_(0.0, 0.2)
    module.train()
    with torch.no_grad():
        for _ in range(2):
            module(*(_sample((4 * shape[0], *shape[1:]), generator, integers) for shape in shapes))


def cbr(
    i: int, o: int, k: int = 3, s: int = 1, g: int = 1, act: type[nn.Module] | None = nn.ReLU, d: int = 1
):
    """Convolution, batch norm, activation."""
    parts: list[nn.Module] = [
        nn.Conv2d(i, o, k, s, d * (k // 2), dilation=d, groups=g, bias=False),
        nn.BatchNorm2d(o),
    ]
    return nn.Sequential(*parts, *([act()] if act else []))


class Head(nn.Module):
    """Global average and a linear layer."""

    def __init__(self, channels: int, classes: int = 10) -> None:
        super().__init__()
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Basic(nn.Module):
    def __init__(self, i: int, o: int, s: int = 1) -> None:
        super().__init__()
        self.a, self.b = cbr(i, o, 3, s), cbr(o, o, act=None)
        self.down = cbr(i, o, 1, s, act=None) if s != 1 or i != o else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.b(self.a(x)) + self.down(x))


class SqueezeExciteBlock(nn.Module):
    def __init__(self, c: int, gate: type[nn.Module] = nn.Sigmoid) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.a, self.b, self.gate = nn.Conv2d(c, c // 4, 1), nn.Conv2d(c // 4, c, 1), gate()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.b(F.relu(self.a(self.pool(x)))))


class Attention(nn.Module):
    def __init__(self, c: int, heads: int = 2, causal: bool = False) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.heads, self.causal = heads, causal

    def forward(self, x: Tensor) -> Tensor:
        n, t, c = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(n, t, c))
