"""The cost volume of optical flow and stereo networks: patches of one image against displaced patches of another."""

from __future__ import annotations

from npuc.arrays import ceil_div
from npuc.frontend.caffe.registry import CaffeContext, rule
from npuc.frontend.layered.context import NoForm
from npuc.ir import Value, top

_MOST_DISPLACEMENTS = 2_500
"""Each is three ops; FlowNet has 21 x 21, and a file is not trusted to ask for a million."""


@rule("Correlation")
def correlation(ctx: CaffeContext) -> Value:
    """MULTIPLY and SUBTRACT of the FlowNet fork, as slices, products and means over channels; at most 2,500 displacements.

    With max_displacement 2 and stride_2 2, r = 1 and the output has 3 x 3 channels: channel 0 compares each patch of the first
    bottom with the one 2 rows above and 2 columns left of it in the second, channel 4 with the one at the same place.
    """
    given = ctx.parameters("correlation_param")
    kernel, pad = given.int("kernel_size"), given.int("pad")
    reach, stride, step = (
        given.int("max_displacement"),
        given.int("stride_1", 1),
        given.int("stride_2", 1),
    )
    if ctx.count != 2 or len(ctx.shape()) != 4 or ctx.shape(0) != ctx.shape(1):
        raise ctx.invalid("it needs two bottoms of one shape (N, C, H, W)")
    if kernel < 1 or kernel % 2 == 0 or min(pad, reach) < 0 or min(stride, step) < 1:
        raise ctx.invalid("kernel_size is odd, pad and max_displacement are 0 or more, strides 1 or more")
    if given.int("single_direction") or given.bool("do_abs"):
        raise NoForm("single_direction and do_abs are not known")
    count, channels, *size = ctx.shape()
    border = reach + kernel // 2
    sizes = [ceil_div(n + 2 * pad - 2 * border, stride) for n in size]
    if min(sizes) < 1:
        raise ctx.invalid(
            f"displacements of {reach} leave nothing of {size[0]} x {size[1]} with a padding of {pad}"
        )
    radius = reach // step
    if (2 * radius + 1) ** 2 > _MOST_DISPLACEMENTS:
        raise NoForm(
            f"it has {(2 * radius + 1) ** 2:,} displacements, and {_MOST_DISPLACEMENTS:,} is the limit"
        )
    first, second = (
        ctx.emit(top.Pad, x, pads=(0, 0, pad, pad, 0, 0, pad, pad)) if pad else x for x in ctx.values()
    )
    # Patches of one element are taken at the stride; larger ones are summed by a mean over windows, which has it.
    apart = stride if kernel == 1 else 1
    area = [n if kernel == 1 else (n - 1) * stride + kernel for n in sizes]

    def patches(x: Value, row: int, column: int) -> Value:
        return ctx.emit(
            top.Slice,
            x,
            offset=(0, 0, reach + row, reach + column),
            steps=(1, 1, apart, apart),
            shape=(count, channels, *area),
        )

    subtract = given.enum("correlation_type", ("MULTIPLY", "SUBTRACT"), "MULTIPLY") == "SUBTRACT"
    still = patches(first, 0, 0)
    costs = []
    for row in range(-radius, radius + 1):
        for column in range(-radius, radius + 1):
            moved = patches(second, row * step, column * step)
            cost = ctx.emit(top.Sub if subtract else top.Mul, still, moved)
            cost = ctx.emit(top.Abs, cost) if subtract else cost
            costs.append(ctx.emit(top.Reduce, cost, kind="mean", axes=[1], keepdims=True))
    volume = costs[0] if len(costs) == 1 else ctx.emit(top.Concat, costs, axis=1)
    if kernel == 1:
        return volume
    return ctx.emit(
        top.AvgPool,
        volume,
        kernel=(kernel, kernel),
        strides=(stride, stride),
        pads=(0, 0, 0, 0),
        dilations=(1, 1),
        ceil_mode=False,
        count_include_pad=False,
    )
