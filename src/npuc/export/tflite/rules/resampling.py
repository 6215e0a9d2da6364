"""Resize: RESIZE_NEAREST_NEIGHBOR, RESIZE_BILINEAR, or taking rows and columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind
from npuc.export.tflite.emitter import TFLiteEmitter
from npuc.export.tflite.layout import CHANNELS_LAST
from npuc.export.tflite.registry import SCHEME, NoTFLiteForm, exports
from npuc.export.tflite.rules.movement import nearest_step, take
from npuc.ir import npu, shape_of, top
from npuc.ir.dtypes import quant_of

_MODES = ((False, False), (False, True), (True, False))
"""align_corners and half_pixel_centers."""


@exports(top.Resize)
def resize(op: top.Resize, emit: TFLiteEmitter) -> None:
    """Nearest neighbours, or a bilinear resize of reals."""
    shape = shape_of(op.x)
    if op.mode == "linear" and len(shape) == 4 and op.sizes[:2] == shape[:2] and not op.antialias:
        _bilinear(op, emit)
    elif op.mode == "nearest":
        _nearest(op, emit)
    else:
        raise NoTFLiteForm(f"TFLite has no {op.mode} interpolation of this kind")


def _nearest(op: top.Resize, emit: TFLiteEmitter) -> None:
    shape = shape_of(op.x)
    maps = [[int(i) for i in index] for index in op.nearest_maps()]
    still = [index == list(range(size)) for index, size in zip(maps, shape, strict=True)]
    if len(shape) == 4 and still[0] and still[1]:
        for align, half in _MODES:
            if all(nearest_step(shape[i], op.sizes[i], align, half) == maps[i] for i in (2, 3)):
                _write(op, emit, "RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions", align, half)
                return
    order = emit.common_order(op.x)
    source = emit.tensor(op.x, order)
    moving = [axis for axis in range(len(shape)) if not still[axis]]
    if not moving:
        emit.reshape(source, emit.result(op.y, order))
    for axis in moving:
        place = order.index(axis)
        size = (*source.shape[:place], len(maps[axis]), *source.shape[place + 1 :])
        out = emit.result(op.y, order) if axis == moving[-1] else emit.like(op.x, size, "resized")
        take(emit, source, maps[axis], out, place)
        source = out


@exports(npu.ResizeBilinear)
def resize_bilinear(op: npu.ResizeBilinear, emit: TFLiteEmitter) -> None:
    """TFLite's blending of integers."""
    if op.kind is not Kind.DOUBLE_ROUNDING:
        raise NoTFLiteForm(f"it blends as kind '{op.kind}'", SCHEME)
    kind = quant_of(op.x)
    if kind is not None and kind.dtype.name == "ui8":
        raise NoTFLiteForm("LiteRT blends uint8 in floating point", SCHEME)
    _bilinear(op, emit)


def _bilinear(op: Any, emit: TFLiteEmitter) -> None:
    shape = shape_of(op.x)
    coordinates = op.coordinates
    if op.scales and any(
        not np.isclose(scale, out / size, rtol=1e-6)
        for scale, out, size in zip(op.scales, op.sizes, shape, strict=True)
    ):
        raise NoTFLiteForm("its factors are not those of its sizes")
    if coordinates == "pytorch_half_pixel" and min(op.sizes[2:]) > 1:
        coordinates = "half_pixel"
    if coordinates not in ("half_pixel", "align_corners", "asymmetric"):
        raise NoTFLiteForm(f"TFLite has no '{coordinates}' coordinates")
    _write(
        op,
        emit,
        "RESIZE_BILINEAR",
        "ResizeBilinearOptions",
        coordinates == "align_corners",
        coordinates == "half_pixel",
    )


def _write(op: Any, emit: TFLiteEmitter, code: str, table: str, align: bool, half: bool) -> None:
    emit.operator(
        code,
        [emit.tensor(op.x, CHANNELS_LAST), emit.integers(op.sizes[2:])],
        [emit.result(op.y, CHANNELS_LAST)],
        table,
        AlignCorners=align,
        HalfPixelCenters=half,
    )
