"""Layers that work from DRAM to DRAM: instructions that work there, and movements in blocks (`moves.py`)."""

from __future__ import annotations

from npuc.schedule.layers import Tensor
from npuc.schedule.moves import copies_of, moves
from npuc.schedule.steps import Compute, Load, Store
from npuc.schedule.work_builder import WorkBuilder


def layer_in_dram(builder: WorkBuilder, index: int) -> None:
    """An instruction that reads and writes DRAM; only its constants and scratch memory are local."""
    layer = builder.network.layers[index]
    tile = builder.tiler.tile(layer, builder.tiler.whole(layer), (0, 0))
    local = {"const": builder.constants(index, (0, 0)), "scratch": builder.scratch(layer, tile.rows)}
    slots = {name: buffer for name, buffer in local.items() if buffer is not None}
    far = {f"in{i}": tensor.storage for i, tensor in enumerate(layer.inputs)}
    far |= {f"out{i}": tensor for i, tensor in enumerate(layer.outputs)}
    if layer.op.workspace:
        far["workspace"] = Tensor(f"{layer.name}/workspace", (layer.op.workspace,), "u8", 1)
        builder.work.workspaces[far["workspace"]] = index
    step = len(builder.work.steps)
    builder.work.steps.append(Compute(index, tuple(layer.templates(tile)), slots, tile, far=far))
    for buffer in slots.values():
        buffer.touch(step)
    for tensor in far.values():
        builder.spill(tensor, step)
    for tensor in layer.outputs:
        builder.work.stored[tensor] = step + 1


def moved_in_blocks(builder: WorkBuilder, index: int) -> None:
    """Each block comes in, is turned if it has to be, and goes out."""
    layer = builder.network.layers[index]
    copies = copies_of(layer)
    assert copies is not None
    y = layer.outputs[0]
    for number, move in enumerate(moves(copies, builder.grouping.capacity // 8)):
        tensor = layer.inputs[move.operand].storage
        step = len(builder.work.steps)
        first = builder.work.buffer(f"{y.name}/block{number}", move.bytes)
        ready = builder.work.stored.get(tensor, 0)
        builder.work.loads.append(
            Load(index, first, 0, move.bytes, tensor, move.source, step, ready, block=move.load)
        )
        builder.spill(tensor, step)
        last = first
        if move.turn is not None:
            last = builder.work.buffer(f"{y.name}/turned{number}", move.bytes)
            builder.work.steps.append(Compute(index, (move.turn,), {"in0": first, "out0": last}))
            first.touch(step)
            last.touch(step)
        step = len(builder.work.steps)
        builder.work.steps.append(Store(index, last, 0, move.bytes, y, move.target, move.store))
        last.touch(step)
        builder.work.stored[y] = step + 1
        builder.spill(y, step)
