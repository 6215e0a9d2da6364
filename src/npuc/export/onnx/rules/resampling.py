"""Resampling in space."""

import numpy as np

from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.registry import exports
from npuc.ir import shape_of, top


@exports(top.Resize)
def resize(op: top.Resize, emit: Emitter) -> None:
    """Resize by the factors that the model states if they give these sizes, by the sizes otherwise."""
    factors = np.array(op.scales, np.float32)
    stated = (
        len(factors) > 0 and tuple((factors * np.array(shape_of(op.x), np.float32)).astype(int)) == op.sizes
    )
    nearest, cubic = op.mode == "nearest", op.mode == "cubic"
    emit(
        "Resize",
        op.x,
        None,
        factors if stated else None,
        None if stated else emit.ints(*op.sizes),
        to=op.y,
        mode=op.mode,
        coordinate_transformation_mode=op.coordinates,
        nearest_mode=op.rounding if nearest else None,
        cubic_coeff_a=op.cubic_coefficient if cubic else None,
        exclude_outside=1 if op.exclude_outside else None,
        antialias=1 if op.antialias else None,
    )


@exports(top.GridSample)
def grid_sample(op: top.GridSample, emit: Emitter) -> None:
    """GridSample."""
    emit(
        "GridSample",
        op.x,
        op.grid,
        to=op.y,
        mode=op.mode,
        padding_mode=op.padding,
        align_corners=int(op.align_corners),
    )
