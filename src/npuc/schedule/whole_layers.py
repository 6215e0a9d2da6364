"""Layers that run whole: each computes all of its result, part by part, from operands that are in local memory."""

from __future__ import annotations

from npuc.arrays import ceil_div
from npuc.schedule.moves import Block
from npuc.schedule.steps import Store
from npuc.schedule.work_builder import LOAD_PARTS, WorkBuilder


def whole_layer(builder: WorkBuilder, index: int) -> None:
    """A layer whose operands and result are whole in local memory; what is read from DRAM later is stored as it is made."""
    layer = builder.network.layers[index]
    if layer.sums:
        _summed(builder, index)
        return
    channel_cuts = builder.tiler.channel_cuts(layer)
    # The constants of the first tile come before the operands: work begins with the first rows of those.
    constants = builder.constants(index, channel_cuts[0])
    arriving = any(tensor.storage not in builder.whole for tensor in layer.inputs)
    operands = [builder.operand(tensor.storage, index) for tensor in layer.inputs]
    results = [builder.result(layer, position, index) for position in range(len(layer.outputs))]
    rows = builder.tiler.whole(layer)
    parts = LOAD_PARTS if arriving else None
    row_cuts = builder.tiler.row_cuts(layer, rows, parts) if len(channel_cuts) == 1 else [rows]
    scratch = builder.scratch(layer, rows)
    for channels in channel_cuts:
        if channels != channel_cuts[0]:
            constants = builder.constants(index, channels)
        for part in row_cuts:
            builder.tile(index, part, channels, operands, results, constants, scratch)
            if len(channel_cuts) == 1 and len(layer.outputs) == 1:
                builder.store(index, layer.outputs[0], results[0], part)
    if len(channel_cuts) > 1 or len(layer.outputs) > 1:
        for tensor, buffer in zip(layer.outputs, results, strict=True):
            builder.store(index, tensor, buffer, (0, tensor.rows))


def _summed(builder: WorkBuilder, index: int) -> None:
    """Parts of the input channels, which come with their weights, one after the other."""
    layer = builder.network.layers[index]
    x = layer.inputs[0].storage
    sums = before = None
    for low, high in builder.tiler.channel_cuts(layer):
        constants = builder.constants(index, (low, high))
        operand = builder.whole.get(x)
        if operand is None:
            size = (high - low) * x.itemsize
            operand = builder.work.buffer(f"{x.name}[{low}:{high}]", size, (low, high))
            builder.load(index, x, operand, 0, size, low * x.itemsize)
        if high == layer.channels:
            results = [builder.result(layer, 0, index)]
        else:
            sums = builder.work.buffer(f"{layer.name}/sums[:{high}]", layer.sum_size)
            results = []
        more = {"before": before, "after": None if results else sums}
        builder.tile(index, (0, 1), (low, high), [operand], results, constants, None, more)
        before = sums
    builder.store(index, layer.outputs[0], results[0], (0, layer.outputs[0].rows))


def own_channels(builder: WorkBuilder, index: int) -> None:
    """The output channels of a layer that are this core's."""
    layer = builder.network.layers[index]
    lanes = builder.tiler.costs.target.compute.array.output_channels
    share = ceil_div(layer.channels, builder.cores * lanes) * lanes
    low, high = min(builder.core * share, layer.channels), min((builder.core + 1) * share, layer.channels)
    if low == high:
        return
    size = layer.constant_size((low, high))
    step = max(
        ceil_div(high - low, max(ceil_div(size, builder.tiler.choices.chunk), 1) * lanes) * lanes, lanes
    )
    cuts = [(c, min(c + step, high)) for c in range(low, high, step)]
    constants = builder.constants(index, cuts[0])
    operands = [builder.operand(tensor.storage, index) for tensor in layer.inputs]
    y = layer.outputs[0]
    result = builder.work.buffer(y.name, y.size, (0, y.rows))
    for cut in cuts:
        if cut != cuts[0]:
            constants = builder.constants(index, cut)
        builder.tile(index, (0, y.rows), cut, operands, [result], constants, None)
    step_number = len(builder.work.steps)
    pixel = y.shape[1] if len(y.shape) == 4 else y.shape[-1]
    pixels = y.size // (pixel * y.itemsize)
    stride, run = pixel * y.itemsize, (high - low) * y.itemsize
    block = Block((1, 1, pixels, run), (0, 0, stride), (0, 0, stride))
    start = low * y.itemsize
    builder.work.steps.append(Store(index, result, start, (pixels - 1) * stride + run, y, start, block))
    result.touch(step_number)
    builder.work.stored[y] = step_number + 1
    builder.spill(y, step_number)
