"""The arithmetic of sliding windows, shared by convolution and pooling.

Pads are ONNX's: all begins, then all ends (`[top, left, bottom, right]` in two dimensions).
"""

from collections.abc import Sequence

from npuc.arrays import ceil_div
from npuc.ir.definition import require


def check_window(rank: int, strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int]) -> None:
    """All parameters have one entry a spatial axis (pads two), and the right sign."""
    require(rank >= 1, "an operand with at least one spatial axis is needed")
    require(len(strides) == rank, f"{len(strides)} strides for {rank} spatial axes")
    require(len(dilations) == rank, f"{len(dilations)} dilations for {rank} spatial axes")
    require(len(pads) == 2 * rank, f"{len(pads)} pads for {rank} spatial axes")
    require(min(strides) >= 1, "strides must be positive")
    require(min(dilations) >= 1, "dilations must be positive")


def window_output(
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    ceil_mode: bool = False,
) -> tuple[int, ...]:
    """Spatial output size of a sliding window.

    >>> window_output((224, 224), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1))
    (112, 112)
    """
    rank = len(size)
    out = []
    for i in range(rank):
        span = (kernel[i] - 1) * dilations[i] + 1
        room = size[i] + pads[i] + pads[i + rank] - span
        require(room >= 0, f"a window of {span} is larger than the padded input of {room + span}")
        count = (ceil_div(room, strides[i]) if ceil_mode else room // strides[i]) + 1
        # A last window that would start in the end padding does not count (as ONNX and PyTorch define ceil mode).
        if ceil_mode and (count - 1) * strides[i] >= size[i] + pads[i]:
            count -= 1
        out.append(count)
    return tuple(out)


def same_pads(
    size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], upper: bool
) -> tuple[int, ...]:
    """Explicit pads for ONNX's SAME_UPPER / SAME_LOWER."""
    begins, ends = [], []
    for length, k, stride, dilation in zip(size, kernel, strides, dilations, strict=True):
        total = max(0, (ceil_div(length, stride) - 1) * stride + (k - 1) * dilation + 1 - length)
        small, large = total // 2, total - total // 2
        begins.append(small if upper else large)
        ends.append(large if upper else small)
    return (*begins, *ends)
