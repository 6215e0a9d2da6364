"""Networks that say what an image shows."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from support.networks.torch_zoo.parts import Basic, Head, SqueezeExciteBlock, cbr, network


@network(1, 3, 32, 32)
class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(cbr(3, 16, 7, 2), nn.MaxPool2d(3, 2, 1))
        self.layers = nn.Sequential(Basic(16, 16), Basic(16, 32, 2))
        self.head = Head(32)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(self.stem(x)))


class _Bottleneck(nn.Module):
    def __init__(self, i: int, w: int, o: int, g: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(cbr(i, w, 1), cbr(w, w, 3, g=g), cbr(w, o, 1, act=None))
        self.down = cbr(i, o, 1, act=None)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x).add_(self.down(x)))


@network(1, 3, 24, 24)
class Bottleneck(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(cbr(3, 16, 3, 2), _Bottleneck(16, 8, 32), _Bottleneck(32, 8, 32), Head(32))


@network(1, 3, 24, 24)
class ResNeXt(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            cbr(3, 16, 3, 2), _Bottleneck(16, 16, 32, g=4), _Bottleneck(32, 16, 32, g=8), Head(32)
        )


class _Inverted(nn.Module):
    def __init__(self, i: int, o: int, s: int, act: type[nn.Module] = nn.ReLU6, se: bool = False) -> None:
        super().__init__()
        w = i * 4
        parts = [cbr(i, w, 1, act=act), cbr(w, w, 3, s, g=w, act=act)]
        if se:
            parts.append(SqueezeExciteBlock(w, nn.Hardsigmoid))
        self.body = nn.Sequential(*parts, cbr(w, o, 1, act=None))
        self.skip = s == 1 and i == o

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.skip else self.body(x)


@network(1, 3, 32, 32)
class InvertedResidual(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(cbr(3, 8, 3, 2, act=nn.ReLU6), _Inverted(8, 8, 1), _Inverted(8, 16, 2), Head(16))


@network(1, 3, 32, 32)
class MobileNetV3(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            cbr(3, 8, 3, 2, act=nn.Hardswish),
            _Inverted(8, 8, 1, nn.Hardswish, se=True),
            _Inverted(8, 16, 2, nn.Hardswish, se=True),
            Head(16),
        )


@network(1, 3, 24, 24)
class SqueezeExcite(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            cbr(3, 16, 3, 2, act=nn.SiLU),
            SqueezeExciteBlock(16),
            cbr(16, 16, act=nn.SiLU),
            SqueezeExciteBlock(16),
            Head(16),
        )


@network(1, 3, 24, 24)
class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = cbr(3, 8, 3, 2)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(8 + 8 * i), nn.ReLU(), nn.Conv2d(8 + 8 * i, 8, 3, padding=1))
            for i in range(3)
        )
        self.transition = nn.Sequential(nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 16, 1), nn.AvgPool2d(2))
        self.head = Head(16)

    def forward(self, x: Tensor) -> Tensor:
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return self.head(self.transition(torch.cat(features, 1)))


@network(1, 3, 24, 24)
class Inception(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = cbr(3, 16, 3, 2)
        self.one = cbr(16, 8, 1)
        self.three = nn.Sequential(cbr(16, 8, 1), cbr(8, 8))
        self.five = nn.Sequential(cbr(16, 4, 1), cbr(4, 8, 5))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), cbr(16, 8, 1))
        self.head = Head(32)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.head(torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], dim=1))


class _Shuffle(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        h = c // 2
        self.body = nn.Sequential(cbr(h, h, 1), cbr(h, h, 3, g=h, act=None), cbr(h, h, 1))

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, 1)
        y = torch.cat((a, self.body(b)), 1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


@network(1, 3, 24, 24)
class ShuffleNet(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(cbr(3, 16, 3, 2), _Shuffle(16), nn.ChannelShuffle(4), _Shuffle(16), Head(16))


class _Ghost(nn.Module):
    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        self.a, self.b, self.o = (
            cbr(i, (o + 1) // 2, 1),
            cbr((o + 1) // 2, (o + 1) // 2, 3, g=(o + 1) // 2),
            o,
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        return torch.cat([y, self.b(y)], 1)[:, : self.o]


@network(1, 3, 24, 24)
class GhostNet(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(cbr(3, 12, 3, 2), _Ghost(12, 15), _Ghost(15, 16), Head(16))


class _Rep(nn.Module):
    def __init__(self, c: int, branches: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(c)
        self.branches = nn.ModuleList(cbr(c, c, 3, act=None) for _ in range(branches))
        self.one = cbr(c, c, 1, act=None)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x) + self.one(x)
        for branch in self.branches:
            y = y + branch(x)
        return F.relu(y)


@network(1, 3, 24, 24)
class RepVgg(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(cbr(3, 16, 3, 2), _Rep(16, 1), _Rep(16, 1), Head(16))


@network(1, 3, 24, 24)
class MobileOne(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(cbr(3, 16, 3, 2), _Rep(16, 3), SqueezeExciteBlock(16), _Rep(16, 2), Head(16))


@network(1, 1, 25, 10)
class KeywordDsCnn(nn.Sequential):
    def __init__(self) -> None:
        blocks = [nn.Sequential(cbr(16, 16, 3, g=16), cbr(16, 16, 1)) for _ in range(2)]
        super().__init__(
            nn.Conv2d(1, 16, (10, 4), (2, 2), (4, 1)), nn.BatchNorm2d(16), nn.ReLU(), *blocks, Head(16, 12)
        )


@network(1, 3, 24, 24)
class CBAM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = cbr(3, 16, 3, 2), Head(16)
        self.mlp = nn.Sequential(nn.Linear(16, 4), nn.ReLU(), nn.Linear(4, 16))
        self.spatial = nn.Conv2d(2, 1, 7, padding=3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x)
        gate = torch.sigmoid(self.mlp(y.mean((2, 3))) + self.mlp(y.amax((2, 3))))
        y = y * gate[:, :, None, None]
        maps = torch.cat((y.mean(1, keepdim=True), y.max(1, keepdim=True)[0]), 1)
        return self.head(y * torch.sigmoid(self.spatial(maps)))


@network(1, 3, 16, 16)
class NonLocal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = cbr(3, 16, 3, 2), Head(16)
        self.theta, self.phi, self.g = (nn.Conv2d(16, 8, 1) for _ in range(3))
        self.out = nn.Sequential(nn.Conv2d(8, 16, 1), nn.BatchNorm2d(16))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        n, _, h, w = x.shape
        theta, phi, g = (conv(x).flatten(2) for conv in (self.theta, self.phi, self.g))
        weights = torch.softmax(torch.bmm(theta.transpose(1, 2), phi), -1)
        y = torch.bmm(weights, g.transpose(1, 2)).transpose(1, 2).reshape(n, 8, h, w)
        return self.head(x + self.out(y))


@network(1, 3, 16, 16, more=((1, 3, 16, 16),))
class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(cbr(3, 8, 3, 2), cbr(8, 16, 3, 2), Head(16, 8))

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        a, b = F.normalize(self.body(left), dim=1), F.normalize(self.body(right), dim=1)
        return (a - b).pow(2).sum(1), F.cosine_similarity(a, b)
