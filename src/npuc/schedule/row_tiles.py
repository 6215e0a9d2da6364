"""Groups of tiles of rows (`tiles.py`): what each tile loads, computes, keeps for the next one, and stores."""

from __future__ import annotations

from collections.abc import Mapping

from npuc.program.instruction import Place
from npuc.program.instructions import Copy
from npuc.schedule.decisions import Group
from npuc.schedule.layers import InstructionTemplate, Rows, Tensor
from npuc.schedule.steps import Buffer, Compute
from npuc.schedule.work_builder import WorkBuilder


def row_tiles(
    builder: WorkBuilder, number: int, group: Group, ahead: dict[tuple[int, Rows], Buffer | None]
) -> None:
    """This core's tiles of a group; `ahead` are constants that are on their way already."""
    layers = builder.network.layers
    resident_out = number < len(builder.decisions.resident) and builder.decisions.resident[number]
    constants: dict[tuple[int, Rows], Buffer | None] = dict(ahead)
    kept: dict[Tensor, Buffer] = {}
    done: dict[Tensor, int] = {}
    for tensor in (tensor for layer in layers[group.first : group.last] for tensor in layer.outputs):
        buffer = _kept(builder, tensor, group, resident_out)
        if buffer is not None:
            kept[tensor], done[tensor] = buffer, 0
    seams: dict[Tensor, Buffer] = {}
    leaving: list[Buffer] = []
    share = builder.share_of(group)
    for tile in share:
        builder.tile_number = tile
        behind = group.keeps_seams and tile > share.start
        rows = builder.grouping.tile_rows(group.first, group.last, group.tiles, tile, behind)
        assert rows is not None
        here: dict[Tensor, Buffer] = {}
        before, seams = seams, {}
        away: list[Buffer] = []
        keep = {}
        if group.keeps_seams and tile + 1 in share:
            keep = builder.grouping.seam(group.first, group.last, group.tiles, tile)
        for index in range(group.first, group.last):
            if builder.grouping.is_loaded(index, group.first, group.last):
                continue
            layer = layers[index]
            operands = []
            for tensor in layer.inputs:
                storage = tensor.storage
                operands.append(_tile_operand(builder, storage, index, rows, here, kept, before))
            y = layer.outputs[0]
            needed = rows[y]
            if y in kept:
                # Rows that an earlier tile made are still there.
                needed = builder.tiler.expanded(layer, (max(needed[0], done[y]), max(needed[1], done[y])))
                done[y] = max(done[y], needed[1])
                buffer = kept[y]
            else:
                buffer = builder.work.buffer(
                    f"{y.name}[{needed[0]}:{needed[1]}]", (needed[1] - needed[0]) * y.row_size, needed
                )
                here[y] = buffer
                if y in before:
                    _copy_rows(builder, index, y, before[y], buffer)
                    needed = builder.tiler.expanded(
                        layer, (before[y].rows[1], max(needed[1], before[y].rows[1]))
                    )
            if needed[0] >= needed[1]:
                _keep_seams(builder, index, group, keep, here, seams)
                continue
            scratch = builder.scratch(layer, needed)
            cuts = builder.tiler.channel_cuts(layer)
            for channels in cuts:
                key = (index, channels)
                if not group.resident_weights or key not in constants:
                    constants[key] = builder.constants(index, channels)
                builder.tile(index, needed, channels, operands, [buffer], constants[key], scratch)
            if group.keeps_seams:
                for stored in leaving:  # on its way out while the next tile begins
                    stored.touch(len(builder.work.steps) - 1)
                leaving = []
            own = _own_rows(builder, y, group, tile)
            if own is not None and group.keeps_seams:
                # What is made here, as no other tile makes it.
                first, last = (y.rows * end // group.tiles for end in (share.start, share.stop))
                own = max(needed[0], first), min(needed[1], last)
            if own is not None:
                builder.store(index, y, buffer, own)
                if y in builder.part and not builder.needed_in_dram(y):
                    _exchange(builder, index, y, buffer, own)
                away.append(buffer)
            _keep_seams(builder, index, group, keep, here, seams)
        leaving = [buffer for buffer in away if buffer not in kept.values()]
    builder.tile_number = 0
    if builder.cores == 1:
        builder.whole.update(kept)


def _kept(builder: WorkBuilder, tensor: Tensor, group: Group, resident_out: bool) -> Buffer | None:
    """An object for a result of a group that stays for later ones: whole, or with this core's rows; None if it leaves."""
    rows = 0, tensor.rows
    if builder.cores > 1:
        if not builder.spread.stays(tensor):
            return None
        rows = builder.spread.tensor(tensor).held[builder.core]
    else:
        crosses = any(use >= group.last for use in builder.grouping.uses.get(tensor, ()))
        if not (crosses and resident_out) or builder.grouping.is_spilled(tensor, group.last):
            return None
    name = tensor.name if rows == (0, tensor.rows) else f"{tensor.name}[{rows[0]}:{rows[1]}]"
    buffer = builder.work.buffer(name, (rows[1] - rows[0]) * tensor.row_size, rows)
    if builder.cores > 1:
        buffer.is_made = True
        builder.part[tensor] = buffer
    return buffer


def _exchange(builder: WorkBuilder, index: int, tensor: Tensor, buffer: Buffer, own: Rows) -> None:
    """Store the rows of a tile that other cores lack."""
    for low, high in builder.spread.tensor(tensor).stores[builder.core]:
        rows = max(low, own[0]), min(high, own[1])
        if rows[0] < rows[1]:
            builder.store_rows(index, tensor, buffer, rows)


def _keep_seams(
    builder: WorkBuilder,
    index: int,
    group: Group,
    keep: Mapping[Tensor, Rows],
    here: Mapping[Tensor, Buffer],
    seams: dict[Tensor, Buffer],
) -> None:
    """Put rows for the next tile aside, of operands of a layer that no later one of the group reads."""
    for tensor in dict.fromkeys(tensor.storage for tensor in builder.network.layers[index].inputs):
        last = max(use for use in builder.grouping.uses[tensor] if use < group.last)
        if tensor not in keep or tensor not in here or last != index:
            continue
        low, high = keep[tensor]
        if (low, high) == here[tensor].rows:
            seams[tensor] = here[tensor]  # all of it
            continue
        name = f"{tensor.name}[{low}:{high}]/seam"
        seams[tensor] = builder.work.buffer(name, (high - low) * tensor.row_size, (low, high))
        _copy_rows(builder, index, tensor, here[tensor], seams[tensor])


def _copy_rows(builder: WorkBuilder, index: int, tensor: Tensor, source: Buffer, target: Buffer) -> None:
    """The rows of a tensor that two buffers have, from one to the other."""
    low, high = max(source.rows[0], target.rows[0]), min(source.rows[1], target.rows[1])
    size = (high - low) * tensor.row_size
    at, to = ((low - buffer.rows[0]) * tensor.row_size for buffer in (source, target))
    count = size // tensor.itemsize
    sizes, strides = (1, 1, 1, 1, 1, count), (0, 0, 0, 0, 0, 1)
    copy = Copy(Place("from", at), Place("to", to), tensor.itemsize, sizes, strides, strides)
    template = InstructionTemplate(copy, (("from", at, at + size),), (("to", to, to + size),))
    step = len(builder.work.steps)
    slots = {"from": source, "to": target}
    builder.work.steps.append(Compute(index, (template,), slots, tile_number=builder.tile_number))
    for buffer in slots.values():
        buffer.touch(step)


def _own_rows(builder: WorkBuilder, tensor: Tensor, group: Group, tile: int) -> Rows | None:
    """The rows of a result of a group that a tile is to store."""
    leaves = tensor in builder.outputs or any(
        use >= group.last for use in builder.grouping.uses.get(tensor, ())
    )
    if not leaves:
        return None
    return tensor.rows * tile // group.tiles, tensor.rows * (tile + 1) // group.tiles


def _tile_operand(
    builder: WorkBuilder,
    tensor: Tensor,
    index: int,
    rows: dict[Tensor, Rows],
    here: dict[Tensor, Buffer],
    kept: dict[Tensor, Buffer],
    before: Mapping[Tensor, Buffer],
) -> Buffer:
    for place in (kept, here, builder.whole):
        if tensor in place:
            return place[tensor]
    if tensor in builder.part and builder.spread.finds(tensor, index):
        if tensor not in builder.complete:
            builder.complete.add(tensor)
            for lacking in builder.spread.tensor(tensor).lacks[builder.core]:
                builder.load_rows(index, tensor, builder.part[tensor], lacking)
        return builder.part[tensor]
    low, high = rows[tensor]
    if tensor in before and before[tensor].rows == (low, high):
        here[tensor] = before[tensor]
        return before[tensor]
    buffer = builder.work.buffer(f"{tensor.name}[{low}:{high}]", (high - low) * tensor.row_size, (low, high))
    here[tensor] = buffer
    low = before[tensor].rows[1] if tensor in before else low
    maker = builder.grouping.producers[tensor]
    if low < high and builder.group_of[maker] == builder.group_of[index] and maker in builder.grouping.turns:
        builder.load_turned(maker, tensor, buffer, (low, high))
    elif low < high:
        builder.load_rows(index, tensor, buffer, (low, high))
    if tensor in before:  # behind the load, from whose issue on there is room
        _copy_rows(builder, index, tensor, before[tensor], buffer)
    return buffer
