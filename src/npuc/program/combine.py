"""Several compiled models as the entries of one program, with the weights that they have in common stored once.

Loads, and kernels that work in global memory, name bytes of segment 0, so weights can lie elsewhere if those say so. The weights
of a model are cut into blocks, each the bytes that they reach together; a block whose bytes the program has already, at an
address with the same remainder of a DRAM burst, is shared, and all others are put behind. The first model keeps its weights as
they are:

    first    | conv1 | conv2 | head |
    second   | conv1 | conv2 | other |      conv1 and conv2 are found in the first
    program  | conv1 | conv2 | head | other |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from npuc.arrays import Array
from npuc.errors import UsageError
from npuc.program.isa import BY_NAME, RECORD
from npuc.program.layout import ALIGNMENT, MOST_ENTRIES
from npuc.program.model import CompiledModel, NpuSubgraph, Segment, Tensor
from npuc.program.transfers import reach

_LOAD, _KERNEL = BY_NAME["load"], BY_NAME["custom_global"]
_OPERANDS = ("x", "b")
"""What a kernel reads."""
_TRIED = 16
"""Rows of a block that are looked up, and places that are compared for the rarest of them."""


@dataclass(frozen=True)
class Combined:
    """The entries of a program, and what they share."""

    entries: dict[str, CompiledModel]
    shared: dict[str, int]
    """Of each entry: bytes of its weights that it has in common with those before it."""


def combine(models: Mapping[str, CompiledModel]) -> Combined:
    """Models for one target as entries, by name, of one program; each computes what it did before."""
    _check(models)
    pool = _Weights()
    moved: dict[str, CompiledModel] = {}
    shared: dict[str, int] = {}
    for name, model in models.items():
        starts, ends = blocks_of(model)
        if not moved:
            pool.begin(model.weights, starts, ends)
            moved[name], shared[name] = model, 0
            continue
        places, common = pool.place(model.weights, starts, ends)
        moved[name], shared[name] = _moved(model, starts, places), common
    weights = pool.bytes()
    segment = Segment("weights", "weights", weights.size, _address(models))
    entries = {
        name: replace(model, weights=weights, segments=(segment, *model.segments[1:]))
        for name, model in moved.items()
    }
    return Combined(entries, shared)


def extract(entry: CompiledModel) -> CompiledModel:
    """An entry of a program as a model of its own, without the weights that only the others use."""
    starts, ends = blocks_of(entry)
    pool = _Weights()
    places, _ = pool.place(entry.weights, starts, ends)
    weights = pool.bytes()
    segment = replace(entry.segments[0], size=weights.size)
    return replace(_moved(entry, starts, places), weights=weights, segments=(segment, *entry.segments[1:]))


def _check(models: Mapping[str, CompiledModel]) -> None:
    if not 1 <= len(models) <= MOST_ENTRIES or "" in models:
        raise UsageError(f"a program has 1 to {MOST_ENTRIES} entries, each with a name")
    (name, first), *others = models.items()
    for other_name, other in others:
        if (other.fingerprint, other.target) != (first.fingerprint, first.target):
            raise UsageError(
                f"entry '{other_name}' is for {other.target['name']} (fingerprint 0x{other.fingerprint:016x}), and '{name}' "
                f"for {first.target['name']} (0x{first.fingerprint:016x})",
                fix="Compile all of them for the same target",
            )


def _address(models: Mapping[str, CompiledModel]) -> int:
    """The base address of the weights, where a model states one."""
    stated = {name: model.segments[0].address for name, model in models.items() if model.segments[0].address}
    if len(set(stated.values())) > 1:
        words = ", ".join(f"'{name}' at {address:#x}" for name, address in stated.items())
        raise UsageError(
            f"the weights of a program have one address, and these have several: {words}",
            fix="Relocate them to one address, or combine them before they are relocated",
        )
    return next(iter(stated.values()), 0)


def _weight_operands(stream: Array, name: str) -> Array:
    """Which instructions of a stream are kernels that have an operand of this name among the weights."""
    kernels: Array = np.flatnonzero(stream[:, 0] == _KERNEL.opcode)
    records = stream[kernels].view(_KERNEL.dtype)[:, 0]
    of_weights: Array = kernels[(records[f"{name}_segment"] == 0) & (records[f"{name}_bytes"] != 0)]
    return of_weights


def _weight_loads(stream: Array) -> Array:
    """Which instructions of a stream load weights."""
    loads: Array = np.flatnonzero(stream[:, 0] == _LOAD.opcode)
    of_weights: Array = loads[stream[loads].view(_LOAD.dtype)[:, 0]["segment"] == 0]
    return of_weights


def blocks_of(model: CompiledModel) -> tuple[Array, Array]:
    """The blocks of the weights that are loaded together: where each begins, and where it ends; in order, apart."""
    firsts = [np.array([tensor.offset for tensor in model.tensors if tensor.segment == 0], np.int64)]
    lasts = [np.array([t.offset + t.size for t in model.tensors if t.segment == 0], np.int64)]
    for stream in _streams(model):
        low, high = reach(stream[_weight_loads(stream)].view(_LOAD.dtype)[:, 0])
        firsts.append(low)
        lasts.append(high)
        for name in _OPERANDS:
            records = stream[_weight_operands(stream, name)].view(_KERNEL.dtype)[:, 0]
            firsts.append(records[name].astype(np.int64))
            lasts.append((records[name] + records[f"{name}_bytes"]).astype(np.int64))
    low, high = np.concatenate(firsts), np.concatenate(lasts)
    order = np.argsort(low, kind="stable")
    low, high = low[order], np.maximum.accumulate(high[order])
    begins: Array = np.flatnonzero(np.append(True, low[1:] >= high[:-1])[: low.size])
    return low[begins], high[np.append(begins[1:] - 1, high.size - 1)[: begins.size]]


def _streams(model: CompiledModel) -> list[Array]:
    return [stream for part in model.subgraphs if isinstance(part, NpuSubgraph) for stream in part.streams]


class _Weights:
    """The weights of a program under construction."""

    def __init__(self) -> None:
        self._parts: list[Array] = []
        self._size = 0
        self._known: dict[tuple[int, bytes], int] = {}
        """Where a block of these bytes lies, by its remainder."""

    def begin(self, weights: Array, starts: Array, ends: Array) -> None:
        """Take the first model's weights as they are."""
        self._append(np.asarray(weights, np.uint8), 0)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            self._known.setdefault((start % ALIGNMENT, weights[start:end].tobytes()), start)

    def place(self, weights: Array, starts: Array, ends: Array) -> tuple[Array, int]:
        """Where blocks of another model lie now, and how many of their bytes were there already."""
        present = self.bytes()
        index = _RowIndex(present)
        places, common = [], 0
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            block = weights[start:end]
            key = start % ALIGNMENT, block.tobytes()
            at = self._known.get(key)
            if at is None:
                at = index.find(block, start % ALIGNMENT)
            if at is None:
                at = self._size + (start - self._size) % ALIGNMENT
                self._append(block, at)
            else:
                common += block.size
            self._known.setdefault(key, at)
            places.append(at)
        return np.array(places, np.int64), common

    def bytes(self) -> Array:
        """All of them so far."""
        whole: Array = np.concatenate(self._parts) if self._parts else np.zeros(0, np.uint8)
        self._parts = [whole]
        return whole

    def _append(self, block: Array, at: int) -> None:
        self._parts += [np.zeros(at - self._size, np.uint8), block]
        self._size = at + block.size


class _RowIndex:
    """Finds blocks inside of bytes, by a hash of rows of `ALIGNMENT` bytes."""

    def __init__(self, data: Array) -> None:
        self._data = data
        keys = _hash_rows(data)
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def find(self, block: Array, remainder: int) -> int | None:
        """Where the bytes of a block are, at an address of that remainder; None if they are not there, or too short to tell."""
        before = -remainder % ALIGNMENT
        rows = _hash_rows(block[before : before + _TRIED * ALIGNMENT])
        if not rows.size:
            return None
        first = np.searchsorted(self._keys, rows, "left")
        counts = np.searchsorted(self._keys, rows, "right") - first
        rarest = int(np.argmin(counts))
        for row in self._order[first[rarest] : first[rarest] + min(int(counts[rarest]), _TRIED)].tolist():
            at = (row - rarest) * ALIGNMENT - before
            if 0 <= at <= self._data.size - block.size and np.array_equal(
                self._data[at : at + block.size], block
            ):
                return int(at)
        return None


def _hash_rows(data: Array) -> Array:
    """64 bits of every whole row; different rows may have the same ones."""
    words = (
        np.ascontiguousarray(data[: data.size // ALIGNMENT * ALIGNMENT])
        .view("<u8")
        .reshape(-1, ALIGNMENT // 8)
    )
    factors = np.uint64(0x9E3779B97F4A7C15) * (
        2 * np.arange(1, ALIGNMENT // 8 + 1, dtype=np.uint64) + np.uint64(1)
    )
    keys: Array = ((words ^ (words >> np.uint64(29))) * factors).sum(axis=1, dtype=np.uint64)
    return keys


def _moved(model: CompiledModel, starts: Array, places: Array) -> CompiledModel:
    """The model with blocks of its weights at other places; its weights themselves are left to the caller."""

    def shift(offset: Array) -> Array:
        block = np.searchsorted(starts, offset, "right") - 1
        shifted: Array = places[block] - starts[block]
        return shifted

    def tensor(old: Tensor) -> Tensor:
        if old.segment:
            return old
        return replace(old, offset=old.offset + int(shift(np.array(old.offset))))

    def stream(old: Array) -> Array:
        moved = np.array(old)
        loads = _weight_loads(moved)
        records = moved[loads].view(_LOAD.dtype)[:, 0]
        records["offset"] = (records["offset"].astype(np.int64) + shift(reach(records)[0])).astype(np.uint64)
        moved[loads] = records.view(np.uint8).reshape(-1, RECORD)
        for name in _OPERANDS:
            kernels = _weight_operands(moved, name)
            records = moved[kernels].view(_KERNEL.dtype)[:, 0]
            start = records[name].astype(np.int64)
            records[name] = (start + shift(start)).astype(np.uint64)
            moved[kernels] = records.view(np.uint8).reshape(-1, RECORD)
        return moved

    return replace(
        model,
        tensors=tuple(map(tensor, model.tensors)),
        subgraphs=tuple(
            replace(part, streams=tuple(map(stream, part.streams))) if isinstance(part, NpuSubgraph) else part
            for part in model.subgraphs
        ),
    )
