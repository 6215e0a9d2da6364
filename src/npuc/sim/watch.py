"""Instruction mode with a look at the tensors on the way: copies of what instructions write, or other bytes in their place."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from npuc.arrays import Array
from npuc.program.isa import BY_NAME, RECORD
from npuc.sim import calls
from npuc.sim.functional import Simulator

_ENGINE = BY_NAME["barrier"].opcode
"""Opcodes above it are those of engines."""
_INTO_DRAM = [BY_NAME[name].opcode for name in ("store", "custom_global")]
"""Opcodes of what writes results to DRAM."""


@dataclass(frozen=True)
class View:
    """A part of a tensor in a memory, and the instructions of a layer that write it."""

    tensor: int
    layer: int
    core: int
    segment: int
    """-1: local memory."""
    first: int
    last: int
    address: int
    size: int
    byte: int
    """The byte of the tensor that is at `address`."""


@dataclass
class Watched:
    """A tensor as bytes in memory order."""

    size: int
    forced: Array | None = None
    """What takes the place of whatever is written; then nothing is copied."""
    data: Array = field(init=False)
    written: Array = field(init=False)
    """1 for each byte that some instruction has written."""

    def __post_init__(self) -> None:
        held = 0 if self.forced is not None else self.size
        self.data, self.written = np.zeros(held, np.uint8), np.zeros(held, np.uint8)


def run_watched(
    simulator: Simulator,
    index: int,
    tensors: Sequence[Watched],
    views: Sequence[View],
    finished: Callable[[int], bool],
) -> bool:
    """Execute an NPU subgraph; `finished` gets each tensor when it is complete and may end the run by returning True.

    Returns whether it did.
    """
    program, error = simulator.program(index), calls.RawError(core=-1, instruction=-1)
    starts, entries = _entries(program.streams, views)
    left = np.bincount([views[view].tensor for view in entries], minlength=len(tensors)).astype(np.int64)
    raw_tensors = (calls.RawWatchedTensor * max(1, len(tensors)))(
        *(
            calls.RawWatchedTensor(
                tensor.data.ctypes.data,
                tensor.written.ctypes.data,
                None if tensor.forced is None else tensor.forced.ctypes.data,
                tensor.size,
            )
            for tensor in tensors
        )
    )
    raw_views = (calls.RawView * max(1, len(views)))(
        *(calls.RawView(view.tensor, view.segment, view.address, view.size, view.byte) for view in views)
    )
    raised: list[BaseException] = []

    def told(tensor: int) -> int:
        try:
            return int(finished(tensor))
        except BaseException as problem:  # C cannot pass it on
            raised.append(problem)
            return 1

    callback = calls.FINISHED(told)
    pointers = np.array([start.ctypes.data for start in starts], np.uintp)
    watch = calls.RawWatch(
        ctypes.addressof(raw_tensors), ctypes.addressof(raw_views), entries.ctypes.data, pointers.ctypes.data,
        left.ctypes.data, callback,
    )  # fmt: skip
    stopped = ctypes.c_int32()
    status = calls.function("npuc_sim_run_watched")(
        simulator.handle, program.address, simulator.threads, ctypes.addressof(watch), ctypes.addressof(stopped),
        ctypes.addressof(error),
    )  # fmt: skip
    if raised:
        raise raised[0]
    calls.check(
        status, error, program.streams, simulator.compiled.layers, simulator.compiled.subgraphs[index].name
    )
    return bool(stopped.value)


def _entries(streams: Sequence[Array], views: Sequence[View]) -> tuple[list[Array], Array]:
    """For each core where the views of each instruction begin, and the views of all, one after the other."""
    starts: list[Array] = []
    numbers: list[Array] = []
    for core, stream in enumerate(streams):
        records = stream.reshape(-1, RECORD)
        layers = np.ascontiguousarray(records[:, 4:8]).view("<u4").reshape(-1)
        at, which = [], []
        for number, view in enumerate(views):
            if view.core == core:
                opcodes = records[view.first : view.last + 1, 0]
                mask = opcodes > _ENGINE if view.segment < 0 else np.isin(opcodes, _INTO_DRAM)
                mask &= layers[view.first : view.last + 1] == view.layer
                here = view.first + np.flatnonzero(mask)
                at.append(here)
                which.append(np.full(here.size, number, np.int32))
        places = np.concatenate(at) if at else np.zeros(0, np.int64)
        order = np.argsort(places, kind="stable")
        before = sum(part.size for part in numbers)
        counted = np.bincount(places, minlength=len(records))
        starts.append(before + np.concatenate([[0], np.cumsum(counted)]).astype(np.int64))
        numbers.append((np.concatenate(which) if which else np.zeros(0, np.int32))[order])
    return starts, np.ascontiguousarray(np.concatenate(numbers))
