"""What slides over space: convolutions, pooling, resizing, sampling."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from npuc.engine.torch.registry import fused, handles
from npuc.ir import shape_of, top

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_DECONV = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
_GRID = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}


def _border(begin: Any, end: Any) -> list[int]:
    """Pads in the order of `F.pad`: the last axis first."""
    return [int(pad) for pair in reversed(list(zip(begin, end, strict=True))) for pad in pair]


@handles(top.Conv)
def conv(op: Any, x: Any, weight: Any, bias: Any) -> Any:
    """Cross-correlation."""
    rank = x.dim() - 2
    begin, end = op.pads[:rank], op.pads[rank:]
    padding = begin
    if begin != end:
        x, padding = F.pad(x, _border(begin, end)), (0,) * rank
    y = _CONV[rank](x, weight, bias, op.strides, padding, op.dilations, op.group)
    return fused(op, y)


@handles(top.Deconv)
def deconv(op: Any, x: Any, weight: Any, bias: Any) -> Any:
    """Transposed convolution; the bias also reaches what output padding adds."""
    rank = x.dim() - 2
    y = _DECONV[rank](x, weight, None, op.strides, 0, 0, op.group, op.dilations)
    begin = [-pad for pad in op.pads[:rank]]
    end = [more - pad for pad, more in zip(op.pads[rank:], op.output_padding, strict=True)]
    y = F.pad(y, _border(begin, end))
    return fused(op, y if bias is None else y + bias.reshape(-1, *(1,) * rank))


def _windows(op: Any, x: Any, begin: Any, end: Any, fill: float) -> list[Any]:
    """x under each position of the kernel, for all windows at once; windows may reach beyond the padding."""
    sizes = shape_of(op.y)[2:]
    reach = [
        (size - 1) * stride + (kernel - 1) * dilation + 1
        for size, stride, kernel, dilation in zip(sizes, op.strides, op.kernel, op.dilations, strict=True)
    ]
    padded = F.pad(x, _border(begin, end), value=fill)
    missing = [max(0, want - have) for want, have in zip(reach, padded.shape[2:], strict=True)]
    padded = F.pad(padded, _border([0] * len(missing), missing), value=fill)
    windows = []
    for position in product(*(range(kernel) for kernel in op.kernel)):
        index: list[Any] = [slice(None), slice(None)]
        for at, size, stride, dilation in zip(position, sizes, op.strides, op.dilations, strict=True):
            start = at * dilation
            index.append(slice(start, start + (size - 1) * stride + 1, stride))
        windows.append(padded[tuple(index)])
    return windows


@handles(top.MaxPool)
def max_pool(op: Any, x: Any) -> Any:
    """Padding never wins."""
    rank = x.dim() - 2
    begin, end = op.pads[:rank], op.pads[rank:]
    small = all(2 * pad <= kernel for pad, kernel in zip(begin, op.kernel, strict=True))
    if rank == 2 and begin == end and small and not op.ceil_mode:
        return F.max_pool2d(x, op.kernel, op.strides, begin, op.dilations)
    return torch.stack(_windows(op, x, begin, end, float("-inf"))).amax(0)


@handles(top.AvgPool)
def avg_pool(op: Any, x: Any) -> Any:
    """The mean of the real positions, or of all."""
    rank = x.dim() - 2
    begin, end = op.pads[:rank], op.pads[rank:]
    if rank == 2 and not any(op.pads) and not op.ceil_mode and set(op.dilations) == {1}:
        return F.avg_pool2d(x, op.kernel, op.strides)
    ones = torch.ones_like(x[:1, :1])
    if op.count_include_pad:
        ones, inner = F.pad(ones, _border(begin, end), value=1.0), (0,) * rank
        counts = sum(_windows(op, ones, inner, inner, 0.0))
    else:
        counts = sum(_windows(op, ones, begin, end, 0.0))
    return sum(_windows(op, x, begin, end, 0.0)) / counts


@handles(top.Resize)
def resize(op: Any, x: Any) -> Any:
    """Separable: one matrix an axis."""
    if op.antialias:
        raise NotImplementedError("resize with antialias")
    for axis, (old, new) in enumerate(zip(tuple(x.shape), op.sizes, strict=True)):
        factor = op.scales[axis] if op.scales else new / old
        if new == shape_of(op.x)[axis] and (factor == 1 or not op.scales):
            continue
        matrix = torch.as_tensor(_matrix(op, old, new, factor), dtype=x.dtype, device=x.device)
        x = torch.tensordot(x, matrix, dims=([axis], [1])).movedim(-1, axis)
    return x


def _matrix(op: Any, old: int, new: int, factor: float) -> Any:
    """What each new position takes of each old one."""
    positions = _coordinates(op.coordinates, np.arange(new, dtype=np.float64), old, new, factor)
    matrix = np.zeros((new, old))
    rows = np.arange(new)
    if op.mode == "nearest":
        nearest = {
            "round_prefer_floor": np.ceil(positions - 0.5),
            "round_prefer_ceil": np.floor(positions + 0.5),
            "floor": np.floor(positions),
            "ceil": np.ceil(positions),
        }[op.rounding]
        matrix[rows, np.clip(nearest, 0, old - 1).astype(int)] = 1.0
        return matrix
    low = np.floor(positions)
    part = positions - low
    taps = (
        {0: 1 - part, 1: part}
        if op.mode == "linear"
        else {tap: _cubic(np.abs(part - tap), op.cubic_coefficient) for tap in (-1, 0, 1, 2)}
    )
    for tap, share in taps.items():
        at = low + tap
        inside = (at >= 0) & (at < old) if op.exclude_outside else np.ones(new, bool)
        np.add.at(matrix, (rows, np.clip(at, 0, old - 1).astype(int)), share * inside)
    return matrix / matrix.sum(1, keepdims=True) if op.exclude_outside else matrix


def _coordinates(mode: str, x: Any, old: int, new: int, factor: float) -> Any:
    if mode == "align_corners":
        return x * ((old - 1) / (new - 1)) if new > 1 else x * 0
    if mode == "asymmetric":
        return x / factor
    if mode == "pytorch_half_pixel":
        return (x + 0.5) / factor - 0.5 if new > 1 else x * 0
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) / factor
    if mode == "half_pixel_symmetric":
        adjustment = new / (factor * old)
        return old / 2 * (1 - adjustment) + (x + 0.5) / factor - 0.5
    return (x + 0.5) / factor - 0.5


def _cubic(d: Any, a: float) -> Any:
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


@handles(top.GridSample)
def grid_sample(op: Any, x: Any, grid: Any) -> Any:
    """Points of a grid."""
    return F.grid_sample(x, grid, _GRID[op.mode], op.padding, op.align_corners)
