"""Resizing and sampling of images."""

from __future__ import annotations

import numpy as np

from npuc.frontend.torch.registry import NoTopForm, Outcome, rule
from npuc.frontend.torch.scope import TorchContext
from npuc.ir import shape_of, top

_MODES = {
    "nearest": "nearest",
    "linear": "linear",
    "bilinear": "linear",
    "trilinear": "linear",
    "bicubic": "cubic",
}


@rule(
    *(f"aten.upsample_nearest{n}d" for n in (1, 2, 3)), *(f"aten._upsample_nearest_exact{n}d" for n in (1, 2, 3)),
    "aten.upsample_linear1d", "aten.upsample_bilinear2d", "aten.upsample_trilinear3d", "aten.upsample_bicubic2d",
    "aten._upsample_bilinear2d_aa", "aten._upsample_bicubic2d_aa",
    limits="antialiasing on the CPU",
)  # fmt: skip
def upsample(ctx: TorchContext) -> Outcome:
    """To the size of the result; factors are kept where torch computes coordinates with them."""
    x = ctx.value("input" if "input" in ctx.args else "self")
    shape, sizes = shape_of(x), ctx.result_shape
    spatial = len(shape) - 2
    name = ctx.op.removeprefix("aten.").lstrip("_").removeprefix("upsample_")
    antialias = name.endswith("_aa")
    kind = next(value for key, value in _MODES.items() if name.startswith(key))
    scales = _factors(ctx, shape, sizes, spatial)
    if kind == "nearest":
        exact = "exact" in name
        return ctx.emit(
            top.Resize,
            x,
            sizes=sizes,
            scales=scales,
            mode="nearest",
            coordinates="half_pixel" if exact else "asymmetric",
            rounding="round_prefer_ceil" if exact else "floor",
        ).y
    corners = ctx.flag("align_corners")
    coordinates = "align_corners" if corners else "half_pixel"
    return ctx.emit(
        top.Resize,
        x,
        sizes=sizes,
        scales=() if corners else scales,
        mode=kind,
        coordinates=coordinates,
        cubic_coefficient=-0.5 if antialias else -0.75,
        antialias=antialias,
        exclude_outside=antialias,
    ).y


def _factors(
    ctx: TorchContext, shape: tuple[int, ...], sizes: tuple[int, ...], spatial: int
) -> tuple[float, ...]:
    """The factors that the model states, if they are not sizes / input sizes."""
    given = ctx.args.get("scale_factors")
    if given is None:
        keys = ("scales",) if "scales" in ctx.args else ("scales_d", "scales_h", "scales_w")[-spatial:]
        several = [ctx.args.get(key) for key in keys]
        given = [item for item in several if item is not None]
    if not given or len(given) != spatial:
        return ()
    factors = [float(item) for item in given]
    plain = [n / m for n, m in zip(sizes[2:], shape[2:], strict=True)]
    return () if np.allclose(factors, plain, rtol=1e-12, atol=0) else (1.0, 1.0, *factors)


@rule("aten.grid_sampler", "aten.grid_sampler_2d", "aten.grid_sampler_3d")
def grid_sampler(ctx: TorchContext) -> Outcome:
    """Sampled at the points of a grid."""
    mode = ("linear", "nearest", "cubic")[ctx.integer("interpolation_mode")]
    padding = ("zeros", "border", "reflection")[ctx.integer("padding_mode")]
    if mode == "cubic" and padding != "zeros":
        raise NoTopForm("it samples cubically beyond the edge")
    return ctx.emit(
        top.GridSample,
        ctx.value("input"),
        ctx.value("grid"),
        mode=mode,
        padding=padding,
        align_corners=ctx.flag("align_corners"),
    ).y
