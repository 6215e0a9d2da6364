"""Darknet in plain NumPy, layer by layer as its C code does it: slow, obvious, and a judge for what OpenCV cannot run.

It draws the weights that it needs from a seed, in the order of the file, so a test can write them for others to read.
"""

from __future__ import annotations

import re

import numpy as np

from npuc.arrays import Array


class Numbers:
    """Random weights in the order in which they are asked for."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.given: list[Array] = []

    def take(self, *shape: int, low: float = -1.0, high: float = 1.0) -> Array:
        values = self.rng.uniform(low, high, shape).astype(np.float32)
        self.given.append(values)
        return values

    def file(self, major: int = 0, minor: int = 2) -> bytes:
        """All of them as a `.weights` file."""
        wide = major * 10 + minor >= 2 and major < 1000 and minor < 1000
        header = np.array([major, minor, 0, 77], "<i4").tobytes() + (b"\0\0\0\0" if wide else b"")
        return header + b"".join(array.astype("<f4").tobytes() for array in self.given)


def sections(text: str) -> list[tuple[str, dict[str, str]]]:
    parsed = []
    for kind, body in re.findall(r"\[(\w+)\]([^\[]*)", re.sub(r"[#;].*", "", text)):
        pairs = (line.split("=") for line in body.splitlines() if "=" in line)
        parsed.append((kind, {key.strip(): value.strip() for key, value in pairs}))
    return parsed


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _softplus(x: Array) -> Array:
    return np.logaddexp(0, x)


ACTIVATIONS = {
    "linear": lambda x: x,
    "relu": lambda x: x * (x > 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky": lambda x: np.where(x > 0, x, 0.1 * x),
    "relie": lambda x: np.where(x > 0, x, 0.01 * x),
    "ramp": lambda x: x * (x > 0) + 0.1 * x,
    "logistic": _sigmoid,
    "loggy": lambda x: 2 * _sigmoid(x) - 1,
    "tanh": np.tanh,
    "elu": lambda x: np.where(x >= 0, x, np.exp(x) - 1),
    "selu": lambda x: np.where(x >= 0, 1.0507 * x, 1.0507 * 1.6732 * (np.exp(x) - 1)),
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "hard_mish": lambda x: np.where(x > 0, x, np.where(x > -2, x * x / 2 + x, 0)),
    "swish": lambda x: x * _sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(0.797885 * x + 0.035677 * x**3)),
    "hardtan": lambda x: np.clip(x, -1, 1),
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "normalize_channels": lambda x: np.maximum(x, 0) / (np.maximum(x, 0).sum(1, keepdims=True) + 0.0001),
    "normalize_channels_softmax": lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True),
}


def _windows(x: Array, size: int, stride: int, dilation: int = 1) -> Array:
    """N x C x size x size x rows x columns."""
    span = (size - 1) * dilation + 1
    rows, columns = ((n - span) // stride + 1 for n in x.shape[2:])
    out = np.empty((*x.shape[:2], size, size, rows, columns), x.dtype)
    for j in range(size):
        for i in range(size):
            y, z = j * dilation, i * dilation
            out[:, :, j, i] = x[:, :, y : y + stride * rows : stride, z : z + stride * columns : stride]
    return out


def _convolved(x: Array, weight: Array, stride: int, pad: int, dilation: int, groups: int) -> Array:
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    parts = []
    each, own = x.shape[1] // groups, weight.shape[0] // groups
    for g in range(groups):
        windows = _windows(x[:, g * each : (g + 1) * each], weight.shape[2], stride, dilation)
        parts.append(np.einsum("ncjiyx,ocji->noyx", windows, weight[g * own : (g + 1) * own], optimize=True))
    return np.concatenate(parts, 1)


def _reorg(x: Array, stride: int, reverse: bool) -> Array:
    """`reorg_cpu`, with the shapes that [reorg] calls it with: those of its input, whatever it goes to."""
    n, c, h, w = x.shape
    s = stride
    shape = (n, c // s**2, h * s, w * s) if reverse else (n, c * s**2, h // s, w // s)
    flat, out = x.reshape(n, -1), np.empty((n, c * h * w), x.dtype)
    inner = c // s**2
    for k in range(c):
        for j in range(h):
            for i in range(w):
                at = i + w * (j + h * k)
                offset = k // inner
                other = i * s + offset % s + w * s * (j * s + offset // s + h * s * (k % inner))
                if reverse:
                    out[:, other] = flat[:, at]
                else:
                    out[:, at] = flat[:, other]
    return out.reshape(shape)


def _pooled(x: Array, section: dict[str, str]) -> Array:
    stride = int(section.get("stride", 1))
    size = int(section.get("size", stride))
    padding = int(section.get("padding", size - 1))
    n, c, h, w = x.shape
    rows, columns = (h + padding - size) // stride + 1, (w + padding - size) // stride + 1
    out = np.full((n, c, rows, columns), -np.inf, x.dtype)
    for y in range(rows):
        for z in range(columns):
            top, left = y * stride - padding // 2, z * stride - padding // 2
            part = x[:, :, max(0, top) : top + size, max(0, left) : left + size]
            out[:, :, y, z] = part.max((2, 3))
    return out


def _shortcut(x: Array, add: Array) -> Array:
    """`shortcut_cpu`: pixels are skipped, channels that only one has are left alone."""
    stride = max(1, add.shape[3] // x.shape[3])
    channels = min(x.shape[1], add.shape[1])
    out = x.copy()
    out[:, :channels] += add[:, :channels, ::stride, ::stride][:, :, : x.shape[2], : x.shape[3]]
    return out


def run(text: str, x: Array, numbers: Numbers) -> list[Array]:
    """What every layer gives; heads give what they take."""
    outputs: list[Array] = []
    x = x.astype(np.float64)
    for index, (kind, section) in enumerate(sections(text)[1:]):

        def number(key: str, default: int, section: dict[str, str] = section) -> int:
            return int(section.get(key, default))

        def others(key: str, section: dict[str, str] = section, index: int = index) -> list[Array]:
            given = [int(part) for part in section[key].split(",")]
            return [outputs[index + i if i < 0 else i] for i in given]

        activation = ACTIVATIONS.get(
            section.get(
                "activation", "logistic" if kind in ("convolutional", "connected", "local") else "linear"
            )
        )
        if kind == "convolutional":
            filters, size, groups = number("filters", 1), number("size", 1), number("groups", 1)
            pad = size // 2 if number("pad", 0) else number("padding", 0)
            bias = numbers.take(filters)
            batch = _statistics(numbers, filters) if number("batch_normalize", 0) else None
            weight = numbers.take(filters, x.shape[1] // groups, size, size) / np.float32(1)
            dilation = number("dilation", 1)
            x = _convolved(x, weight, number("stride", 1), pad * dilation, dilation, groups)
            x = _normalized(x, bias, batch)
        elif kind == "connected":
            count = number("output", 1)
            bias = numbers.take(count)
            weight = numbers.take(count, x[0].size)
            batch = _statistics(numbers, count) if number("batch_normalize", 0) else None
            x = _normalized((x.reshape(len(x), -1) @ weight.T)[:, :, None, None], bias, batch)
        elif kind == "batchnorm":
            bias = numbers.take(x.shape[1])
            x = _normalized(x, bias, _statistics(numbers, x.shape[1]))
        elif kind == "local":
            x = _local(
                x, number("filters", 1), number("size", 1), number("stride", 1), number("pad", 0), numbers
            )
        elif kind == "maxpool":
            x = _pooled(x, section)
        elif kind == "avgpool":
            x = x.mean((2, 3), keepdims=True)
        elif kind == "route":
            groups, chosen = number("groups", 1), number("group_id", 0)
            x = np.concatenate([np.split(other, groups, 1)[chosen] for other in others("layers")], 1)
        elif kind == "shortcut":
            x = _summed([x, *others("from")], section, numbers)
        elif kind in ("scale_channels", "sam"):
            x = others("from")[0] * x
        elif kind == "upsample":
            stride = number("stride", 2)
            x = x.repeat(stride, 2).repeat(stride, 3) * float(section.get("scale", 1))
        elif kind == "reorg":
            x = _reorg(x, number("stride", 1), bool(number("reverse", 0)))
        elif kind == "softmax":
            flat = x.reshape(len(x), number("groups", 1), -1) / float(section.get("temperature", 1))
            powers = np.exp(flat - flat.max(2, keepdims=True))
            x = (powers / powers.sum(2, keepdims=True)).reshape(x.shape)
        elif kind == "crop":
            rows, columns = number("crop_height", 1), number("crop_width", 1)
            top, left = (x.shape[2] - rows) // 2, (x.shape[3] - columns) // 2
            x = x[:, :, top : top + rows, left : left + columns]
            x = x if number("noadjust", 0) else x * 2 - 1
        elif kind == "normalization":
            x = _lrn(x, number("size", 5), *(float(section[key]) for key in ("alpha", "beta", "kappa")))
        else:
            assert kind in ("dropout", "cost", "activation", "yolo", "region", "detection"), kind
        assert activation is not None
        x = activation(x)
        outputs.append(x)
    return outputs


def _statistics(numbers: Numbers, count: int) -> tuple[Array, Array, Array]:
    return numbers.take(count, low=0.2, high=0.8), numbers.take(count), numbers.take(count, low=0.5, high=2.0)


def _normalized(x: Array, bias: Array, batch: tuple[Array, Array, Array] | None) -> Array:
    def wide(v: Array) -> Array:
        return v.reshape(1, -1, 1, 1)

    if batch is None:
        return x + wide(bias)
    scale, mean, variance = batch
    return (x - wide(mean)) / (np.sqrt(wide(variance)) + 1e-6) * wide(scale) + wide(bias)


def _summed(values: list[Array], section: dict[str, str], numbers: Numbers) -> Array:
    kind = section.get("weights_type", "none")
    if kind == "none":
        x = values[0]
        for value in values[1:]:
            x = _shortcut(x, value)
        return x
    each = values[0].shape[1] if kind == "per_channel" else 1
    weights = numbers.take(len(values), each).astype(np.float64)
    normalization = section.get("weights_normalization", "none")
    if normalization == "relu":
        weights = np.maximum(weights, 0) / (np.maximum(weights, 0).sum(0) + 0.0001)
    elif normalization == "softmax":
        weights = np.exp(weights - weights.max(0)) / (np.exp(weights - weights.max(0)).sum(0) + 0.0001)
    return sum(w.reshape(1, -1, 1, 1) * v for w, v in zip(weights, values, strict=True))  # type: ignore[no-any-return]


def _lrn(x: Array, size: int, alpha: float, beta: float, kappa: float) -> Array:
    out = np.empty_like(x)
    for k in range(x.shape[1]):
        near = x[:, max(0, k - size // 2) : k + size // 2 + 1]
        out[:, k] = x[:, k] * (kappa + alpha * (near**2).sum(1)) ** -beta
    return out


def _local(x: Array, filters: int, size: int, stride: int, pad: int, numbers: Numbers) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), *((size // 2 * bool(pad),) * 2,) * 2))
    windows = _windows(padded, size, stride)
    rows, columns = windows.shape[4:]
    bias = numbers.take(filters, rows, columns)
    weight = numbers.take(rows, columns, filters, x.shape[1], size, size)
    return np.einsum("ncjiyx,yxocji->noyx", windows, weight) + bias
