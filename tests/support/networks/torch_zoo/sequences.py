"""Networks of sequences, tokens, windows, points and graphs."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from support.networks.torch_zoo.parts import Attention, Head, cbr, network


class _Block(nn.Module):
    def __init__(self, c: int, causal: bool = False) -> None:
        super().__init__()
        self.n1, self.attn, self.n2 = nn.LayerNorm(c), Attention(c, causal=causal), nn.LayerNorm(c)
        self.mlp = nn.Sequential(nn.Linear(c, 2 * c), nn.GELU(), nn.Linear(2 * c, c))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.n1(x))
        return x + self.mlp(self.n2(x))


@network(1, 3, 32, 32)
class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 32, 8, 8)
        self.token = nn.Parameter(torch.randn(1, 1, 32) * 0.5)
        self.position = nn.Parameter(torch.randn(1, 17, 32) * 0.2)
        self.blocks = nn.Sequential(_Block(32), _Block(32))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


@network(1, 12, 32)
class TransformerEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        for parameter in self.encoder.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_normal_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x)


@network(1, 12, integers=50)
class CausalDecoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(50, 32), nn.Embedding(16, 32)
        self.blocks = nn.Sequential(_Block(32, causal=True), _Block(32, causal=True))
        self.norm = nn.LayerNorm(32)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.position(torch.arange(tokens.shape[1]))
        return F.linear(self.norm(self.blocks(x)), self.embed.weight)  # tied weights


class _RMS(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(c))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


@network(1, 8, integers=40)
class Llama(nn.Module):
    """Rotary positions, grouped queries, gated feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        c = 32
        self.embed = nn.Embedding(40, c)
        self.n1, self.n2, self.n3 = _RMS(c), _RMS(c), _RMS(c)
        self.q, self.k, self.v = (
            nn.Linear(c, c, False),
            nn.Linear(c, c // 2, False),
            nn.Linear(c, c // 2, False),
        )
        self.o, self.gate, self.up = nn.Linear(c, c, False), nn.Linear(c, 48, False), nn.Linear(c, 48, False)
        self.down, self.head = nn.Linear(48, c, False), nn.Linear(c, 40, False)
        angle = torch.arange(8)[:, None] * 10000.0 ** (-torch.arange(0, 8, 2) / 8)[None]
        self.register_buffer("cos", torch.cat((angle, angle), -1).cos())
        self.register_buffer("sin", torch.cat((angle, angle), -1).sin())

    def rotate(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat((-b, a), -1) * self.sin

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        n, t, c = x.shape
        y = self.n1(x)
        q = self.rotate(self.q(y).view(n, t, 4, 8).transpose(1, 2))
        k = self.rotate(self.k(y).view(n, t, 2, 8).transpose(1, 2)).repeat_interleave(2, 1)
        v = self.v(y).view(n, t, 2, 8).transpose(1, 2).repeat_interleave(2, 1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(8)
        hidden = torch.triu(torch.ones(t, t, dtype=torch.bool), 1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        x = x + self.o((weights @ v).transpose(1, 2).reshape(n, t, c))
        y = self.n2(x)
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return self.head(self.n3(x))


class _Window(nn.Module):
    def __init__(self, c: int, size: int, shift: int, image: int) -> None:
        super().__init__()
        self.size, self.shift = size, shift
        self.norm, self.qkv, self.out = nn.LayerNorm(c), nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.bias = nn.Parameter(torch.randn((2 * size - 1) ** 2, 2) * 0.3)
        place = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")).flatten(1)
        apart = (place[:, :, None] - place[:, None, :] + size - 1).permute(1, 2, 0)
        self.register_buffer("index", apart[..., 0] * (2 * size - 1) + apart[..., 1])
        mask = None
        if shift:
            label = torch.zeros(image, image)
            cuts = (slice(0, -size), slice(-size, -shift), slice(-shift, None))
            for number, (h, w) in enumerate((h, w) for h in cuts for w in cuts):
                label[h, w] = number
            parts = (
                label.view(image // size, size, image // size, size).transpose(1, 2).reshape(-1, size * size)
            )
            mask = (parts[:, None] != parts[:, :, None]) * -100.0
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        n, h, w, c = x.shape
        s = self.size
        y = self.norm(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = y.view(n, h // s, s, w // s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, s * s, c)
        q, k, v = self.qkv(y).view(-1, s * s, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * (c // 2) ** -0.5
        scores = scores + self.bias[self.index.view(-1)].view(s * s, s * s, 2).permute(2, 0, 1)
        if self.mask is not None:
            scores = scores.view(n, -1, 2, s * s, s * s) + self.mask[None, :, None]
            scores = scores.view(-1, 2, s * s, s * s)
        y = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, s * s, c))
        y = y.view(n, h // s, w // s, s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        return x + y


@network(1, 3, 32, 32)
class Swin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 24, 4, 4)
        self.a, self.b = _Window(24, 4, 0, 8), _Window(24, 4, 2, 8)
        self.merge, self.norm, self.head = nn.Linear(96, 32, False), nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.b(self.a(self.patch(x).permute(0, 2, 3, 1)))
        x = torch.cat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1)
        return self.head(self.norm(self.merge(x)).mean((1, 2)))


class _ConvNeXtBlock(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.dw, self.norm = nn.Conv2d(c, c, 7, padding=3, groups=c), nn.LayerNorm(c)
        self.a, self.b = nn.Linear(c, 2 * c), nn.Linear(2 * c, c)
        self.scale = nn.Parameter(torch.full((c,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.dw(x).permute(0, 2, 3, 1))
        y = self.scale * self.b(F.gelu(self.a(y), approximate="tanh"))
        return x + y.permute(0, 3, 1, 2)


@network(1, 3, 32, 32)
class ConvNeXt(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 24, 4, 4), _ConvNeXtBlock(24), _ConvNeXtBlock(24), Head(24))


class _Mix(nn.Module):
    def __init__(self, t: int, c: int) -> None:
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.tokens = nn.Sequential(nn.Linear(t, 2 * t), nn.GELU(), nn.Linear(2 * t, t))
        self.channels = nn.Sequential(nn.Linear(c, 2 * c), nn.GELU(), nn.Linear(2 * c, c))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.n2(x))


@network(1, 3, 32, 32)
class MlpMixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 32, 8, 8)
        self.blocks, self.head = nn.Sequential(_Mix(16, 32), _Mix(16, 32)), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.patch(x).flatten(2).transpose(1, 2)).mean(1))


@network(1, 10, 12)
class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.fc = nn.LSTM(12, 16, 2, batch_first=True), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        y, (h, _) = self.lstm(x)
        return self.fc(y[:, -1] + h[0])


@network(1, 8, 12)
class BiLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.fc = nn.LSTM(12, 8, bidirectional=True, batch_first=True), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.lstm(x)[0])


@network(8, 1, 12)
class Gru(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru, self.fc = nn.GRU(12, 16), nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        y, h = self.gru(x)
        return self.fc(torch.cat((y[-1], h[-1]), -1))


class _Causal(nn.Module):
    def __init__(self, i: int, o: int, d: int) -> None:
        super().__init__()
        self.conv, self.d = nn.Conv1d(i, o, 3, dilation=d), d

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pad(x, (2 * self.d, 0)))


@network(1, 8, 40)
class TCN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = _Causal(8, 16, 1), _Causal(16, 16, 2), _Causal(16, 16, 4)
        self.match, self.fc = nn.Conv1d(8, 16, 1), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.match(x) + F.relu(self.b(F.relu(self.a(x)))))
        return self.fc(F.relu(y + self.c(y))[:, :, -1])


@network(1, 8, 32)
class WaveNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Conv1d(8, 16, 1)
        self.filters = nn.ModuleList(_Causal(16, 16, 2**i) for i in range(3))
        self.gates = nn.ModuleList(_Causal(16, 16, 2**i) for i in range(3))
        self.skips = nn.ModuleList(nn.Conv1d(16, 16, 1) for _ in range(3))
        self.end = nn.Conv1d(16, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.start(x)
        total = torch.zeros_like(x)
        for f, g, s in zip(self.filters, self.gates, self.skips, strict=True):
            y = s(torch.tanh(f(x)) * torch.sigmoid(g(x)))
            total, x = total + y, x + y
        return self.end(F.relu(total))


@network(1, 1, 16, 48)
class CRNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cnn = nn.Sequential(cbr(1, 8), nn.MaxPool2d(2), cbr(8, 16), nn.MaxPool2d((2, 1)), cbr(16, 16, 3))
        self.rnn, self.fc = nn.LSTM(64, 12, bidirectional=True), nn.Linear(24, 11)

    def forward(self, x: Tensor) -> Tensor:
        y = self.cnn(x)
        y = y.permute(3, 0, 1, 2).flatten(2)
        return F.log_softmax(self.fc(self.rnn(y)[0]), dim=2)


@network(1, 12, 24)
class Conformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        c = 24
        self.f1 = nn.Sequential(nn.LayerNorm(c), nn.Linear(c, 48), nn.SiLU(), nn.Linear(48, c))
        self.attn_norm, self.attn = nn.LayerNorm(c), nn.MultiheadAttention(c, 4, batch_first=True)
        self.norm, self.point = nn.LayerNorm(c), nn.Conv1d(c, 2 * c, 1)
        self.depth, self.bn = nn.Conv1d(c, c, 5, padding=2, groups=c), nn.BatchNorm1d(c)
        self.out, self.last = nn.Conv1d(c, c, 1), nn.LayerNorm(c)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.f1(x)
        y = self.attn_norm(x)
        x = x + self.attn(y, y, y)[0]
        y = F.glu(self.point(self.norm(x).transpose(1, 2)), dim=1)
        x = x + self.out(F.silu(self.bn(self.depth(y)))).transpose(1, 2)
        return self.last(x)


@network(1, 3, 64)
class PointNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.align = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.fc_align = nn.Linear(16, 9)
        self.body = nn.Sequential(
            nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 32, 1), nn.ReLU()
        )
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        turn = self.fc_align(self.align(x).max(-1)[0]).view(-1, 3, 3) + torch.eye(3)
        y = self.body(torch.bmm(turn, x))
        return self.head(torch.max(y, 2)[0])


@network(1, 16, 6)
class GraphConvolution(nn.Module):
    """A fixed adjacency, normalized in the network."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("edges", (torch.rand(16, 16) > 0.6).float() + torch.eye(16))
        self.a, self.b = nn.Linear(6, 12), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        degree = self.edges.sum(1).rsqrt()
        spread = degree[:, None] * self.edges * degree[None]
        return self.b(
            torch.einsum("ij,njk->nik", spread, F.relu(torch.einsum("ij,njk->nik", spread, self.a(x))))
        )
