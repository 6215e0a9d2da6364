"""Networks that make images, maps and boxes of an image."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from support.networks.torch_zoo.parts import Attention, Basic, cbr, network


@network(1, 3, 32, 32)
class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([cbr(3, 8), cbr(8, 16), cbr(16, 32)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.join = nn.ModuleList([cbr(32, 16), cbr(16, 8)])
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down[0](x)
        b = self.down[1](F.max_pool2d(a, 2))
        c = self.down[2](F.max_pool2d(b, 2))
        c = self.join[0](torch.cat([self.up[0](c), b], 1))
        return self.out(self.join[1](torch.cat([self.up[1](c), a], 1)))


class _Pyramid(nn.Module):
    def __init__(self, c: int = 16) -> None:
        super().__init__()
        self.stages = nn.ModuleList([cbr(3, 8, 3, 2), cbr(8, 16, 3, 2), cbr(16, 32, 3, 2)])
        self.lateral = nn.ModuleList([nn.Conv2d(n, c, 1) for n in (8, 16, 32)])
        self.smooth = nn.ModuleList([nn.Conv2d(c, c, 3, padding=1) for _ in range(3)])

    def forward(self, x: Tensor) -> list[Tensor]:
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        up = self.lateral[2](features[2])
        outs = [self.smooth[2](up)]
        for i in (1, 0):
            up = self.lateral[i](features[i]) + F.interpolate(up, size=features[i].shape[-2:], mode="nearest")
            outs.insert(0, self.smooth[i](up))
        return outs


@network(1, 3, 32, 32)
class FPN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pyramid = _Pyramid()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.pyramid(x))


@network(1, 3, 32, 32)
class RetinaNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pyramid = _Pyramid()
        self.classes = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3 * 4, 3, padding=1)
        )
        self.boxes = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3 * 4, 3, padding=1)
        )

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        levels = self.pyramid(x)
        flat = lambda t: t.permute(0, 2, 3, 1).reshape(t.shape[0], -1, 4)  # noqa: E731
        return {
            "scores": torch.cat([flat(self.classes(level)) for level in levels], 1).sigmoid(),
            "boxes": torch.cat([flat(self.boxes(level)) for level in levels], 1),
        }


@network(1, 3, 32, 32)
class SSD(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = cbr(3, 16, 3, 4), cbr(16, 24, 3, 2)
        self.classes = nn.ModuleList([nn.Conv2d(16, 8, 3, padding=1), nn.Conv2d(24, 8, 3, padding=1)])
        self.boxes = nn.ModuleList([nn.Conv2d(16, 8, 3, padding=1), nn.Conv2d(24, 8, 3, padding=1)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        maps = [self.a(x)]
        maps.append(self.b(maps[0]))
        scores = [
            c(m).permute(0, 2, 3, 1).flatten(1).unflatten(1, (-1, 4))
            for c, m in zip(self.classes, maps, strict=True)
        ]
        boxes = [
            b(m).permute(0, 2, 3, 1).flatten(1).unflatten(1, (-1, 4))
            for b, m in zip(self.boxes, maps, strict=True)
        ]
        return F.softmax(torch.cat(scores, 1), -1), torch.cat(boxes, 1)


class _C3(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.a, self.b = cbr(c, c // 2, 1, act=nn.SiLU), cbr(c, c // 2, 1, act=nn.SiLU)
        self.m = nn.Sequential(cbr(c // 2, c // 2, 1, act=nn.SiLU), cbr(c // 2, c // 2, act=nn.SiLU))
        self.c = cbr(c, c, 1, act=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        return self.c(torch.cat((y + self.m(y), self.b(x)), 1))


@network(1, 3, 32, 32)
class Yolo(nn.Module):
    """Decoded: the centre of the cell is added, and sizes are scaled by anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            cbr(3, 16, 3, 2, act=nn.SiLU), _C3(16), cbr(16, 32, 3, 2, act=nn.SiLU), _C3(32)
        )
        self.head = nn.Conv2d(32, 3 * 7, 1)
        self.register_buffer("anchors", torch.tensor([[10.0, 13.0], [16.0, 30.0], [33.0, 23.0]]))

    def forward(self, x: Tensor) -> Tensor:
        y = self.head(self.body(x))
        n, _, h, w = y.shape
        y = y.view(n, 3, 7, h, w).permute(0, 1, 3, 4, 2).contiguous().sigmoid()
        gy, gx = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack((gx, gy), 2).view(1, 1, h, w, 2).float()
        xy = (y[..., :2] * 2.0 - 0.5 + grid) * 4.0
        wh = (y[..., 2:4] * 2) ** 2 * self.anchors.view(1, 3, 1, 1, 2)
        return torch.cat((xy, wh, y[..., 4:]), -1).view(n, -1, 7)


@network(1, 3, 32, 32)
class CenterNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            cbr(3, 16, 3, 2), cbr(16, 16, 3, 2), nn.ConvTranspose2d(16, 16, 4, 2, 1), nn.ReLU()
        )
        self.heat, self.size = nn.Conv2d(16, 3, 1), nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.body(x)
        heat = self.heat(y).sigmoid().clamp(1e-4, 1 - 1e-4)
        peak = (F.max_pool2d(heat, 3, 1, 1) == heat).float()
        return heat * peak, self.size(y)


@network(1, 3, 16, 16)
class SuperResolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 16, 5, padding=2), nn.Conv2d(16, 16, 3, padding=1)
        self.c, self.act, self.shuffle = nn.Conv2d(16, 12, 3, padding=1), nn.PReLU(16), nn.PixelShuffle(2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.a(F.pad(x, (1, 1, 1, 1), mode="reflect"))[..., 1:-1, 1:-1])
        y = self.shuffle(self.c(y + F.leaky_relu(self.b(y), 0.2)))
        return y + F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


@network(1, 32, 1, 1)
class Dcgan(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.ConvTranspose2d(32, 32, 4, 1, 0, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(True),
            nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(True),
            nn.ConvTranspose2d(16, 3, 4, 2, 1),
            nn.Tanh(),
        )


@network(1, 1, 16, 16)
class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            cbr(1, 8, 3, 2), cbr(8, 16, 3, 2), nn.Flatten(), nn.Linear(256, 12), nn.ELU()
        )
        self.decoder = nn.Sequential(
            nn.Linear(12, 256), nn.ReLU(), nn.Unflatten(1, (16, 4, 4)), nn.Upsample(scale_factor=2), cbr(16, 8),
            nn.ConvTranspose2d(8, 1, 3, 2, 1, output_padding=1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x))


@network(1, 3, 32, 32)
class HRNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.low = cbr(3, 8, 3, 2), cbr(8, 16, 3, 2)
        self.a, self.b = Basic(8, 8), Basic(16, 16)
        self.up, self.down, self.head = (
            cbr(16, 8, 1, act=None),
            cbr(8, 16, 3, 2, act=None),
            nn.Conv2d(24, 5, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        high = self.stem(x)
        low = self.b(self.low(high))
        high = self.a(high)
        grown = F.interpolate(self.up(low), scale_factor=2, mode="bilinear", align_corners=True)
        high, low = F.relu(high + grown), F.relu(low + self.down(high))
        return self.head(torch.cat((high, F.interpolate(low, high.shape[2:], mode="bilinear")), 1))


@network(1, 3, 32, 32)
class BiFPN(nn.Module):
    """Weighted sums: the weights are normalized by the network."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList([cbr(3, 16, 3, 2), cbr(16, 16, 3, 2), cbr(16, 16, 3, 2)])
        self.weight = nn.Parameter(torch.rand(3, 2) + 0.2)
        self.convs = nn.ModuleList(cbr(16, 16, 3, g=16, act=nn.SiLU) for _ in range(3))

    def forward(self, x: Tensor) -> list[Tensor]:
        p = []
        for stage in self.stages:
            x = stage(x)
            p.append(x)
        w = F.relu(self.weight)
        w = w / (w.sum(1, keepdim=True) + 1e-4)
        mid = self.convs[0](w[0, 0] * p[1] + w[0, 1] * F.interpolate(p[2], scale_factor=2))
        top = self.convs[1](w[1, 0] * p[0] + w[1, 1] * F.interpolate(mid, scale_factor=2))
        low = self.convs[2](w[2, 0] * p[2] + w[2, 1] * F.max_pool2d(mid, 3, 2, 1))
        return [top, mid, low]


@network(1, 3, 24, 24)
class PSPNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(cbr(3, 16, 3, 2), cbr(16, 16))
        self.pools = nn.ModuleList(nn.Sequential(nn.AdaptiveAvgPool2d(n), cbr(16, 4, 1)) for n in (2, 3, 6))
        self.out = nn.Sequential(nn.Dropout2d(0.1), nn.Conv2d(28, 4, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        grown = [
            F.interpolate(pool(y), y.shape[2:], mode="bilinear", align_corners=False) for pool in self.pools
        ]
        return F.interpolate(self.out(torch.cat([y, *grown], 1)), scale_factor=2, mode="bilinear")


@network(1, 3, 32, 32)
class DeepLab(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(cbr(3, 16, 3, 2), cbr(16, 16, 3, 2))
        self.branches = nn.ModuleList([cbr(16, 8, 1), cbr(16, 8, 3, d=2), cbr(16, 8, 3, d=4)])
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 8, 1), nn.ReLU())
        self.project, self.out = cbr(32, 16, 1), nn.Conv2d(16, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        pooled = F.interpolate(self.pool(y), size=y.shape[-2:], mode="bilinear", align_corners=False)
        y = self.project(torch.cat([branch(y) for branch in self.branches] + [pooled], 1))
        return self.out(F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)).argmax(1)


@network(1, 4, 12, 12)
class Diffusion(nn.Module):
    """A block of a diffusion network: group norm, SiLU, attention over pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.n1, self.c1 = (
            nn.Conv2d(4, 16, 3, padding=1),
            nn.GroupNorm(4, 16),
            nn.Conv2d(16, 16, 3, padding=1),
        )
        self.n2, self.attn, self.end = nn.GroupNorm(4, 16), Attention(16), nn.Conv2d(16, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.start(x)
        x = x + self.c1(F.silu(self.n1(x)))
        y = self.attn(self.n2(x).flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, (12, 12))
        return self.end(x + y)


@network(1, 2, 16, 16)
class StyleTransfer(nn.Module):
    """Instance norm, reflected borders, Mish."""

    def __init__(self) -> None:
        super().__init__()
        self.pad, self.a, self.na = (
            nn.ReflectionPad2d(2),
            nn.Conv2d(2, 12, 5),
            nn.InstanceNorm2d(12, affine=True),
        )
        self.b, self.nb = (
            nn.Conv2d(12, 12, 3, 2, 1, padding_mode="replicate"),
            nn.InstanceNorm2d(12, affine=True),
        )
        self.up, self.out = nn.UpsamplingNearest2d(scale_factor=2), nn.Conv2d(12, 2, 3, padding="same")

    def forward(self, x: Tensor) -> Tensor:
        y = F.mish(self.na(self.a(self.pad(x))))
        return torch.tanh(self.out(self.up(F.softplus(self.nb(self.b(y))))))
