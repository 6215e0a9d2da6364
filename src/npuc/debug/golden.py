"""A golden run: every tensor of a run held against a dump while it runs, and the first layer that differs.

The files of the dump are what a run is held against, not the digests of its index: whoever replaces a file, with what a
board computed or by accident, has to see it. A file that its index does not describe is told as such.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from npuc.arrays import Array
from npuc.debug.dump import Dump, DumpedTensor
from npuc.debug.layers import LayerTensor, as_stored, digest_of

State = Literal["same", "close", "differs", "new"]
"""`close`: reals that a float layer on the CPU computed, which may depend on what is computed around it."""
_MARKS = {"same": "ok     ", "close": "close  ", "differs": "DIFFERS", "new": "new    "}
_CLOSE = 1e-5
"""The part of its largest magnitude by which a tensor of a float layer may be off."""


@dataclass(frozen=True)
class Verdict:
    """A tensor of a golden run."""

    run: int
    name: str
    layer: str
    kind: str
    md5: str
    expected: str | None
    """The MD5 of the elements in the dump's file, or that of the index where already the types differ; None if the dump has no
    such tensor."""
    state: State
    words: str = ""
    """How it differs."""
    changed: str | None = None
    """The file of the dump, if its elements are not those that the index was written for."""

    @property
    def line(self) -> str:
        """A line for the tensor."""
        mark = _MARKS[self.state]
        return f"{mark} {self.md5} {self.kind:16} {self.name}{f': {self.words}' if self.words else ''}"


@dataclass
class GoldenRun:
    """What is known so far."""

    dump: Dump
    verdicts: list[Verdict] = field(default_factory=list)

    def judge(self, run: int, tensor: LayerTensor) -> Verdict:
        """Hold a tensor against the dump."""
        entry = self.dump.find(run, tensor.name)
        here = (run, tensor.name, tensor.layer, tensor.kind, tensor.md5)
        if entry is None:
            verdict = Verdict(*here, None, "new", "the dump does not have it")
        elif (entry.shape, entry.dtype) != (tensor.values.shape, tensor.dtype):
            ours, theirs = _type(tensor.values.shape, tensor.dtype), _type(entry.shape, entry.dtype)
            verdict = Verdict(*here, entry.md5, "differs", f"{ours} here, {theirs} in the dump")
        else:
            stored = as_stored(self.dump.read(entry))
            expected = digest_of(stored)
            state, words = _held_against(self.dump, entry, stored, tensor)
            changed = None if expected == entry.md5 else entry.file
            verdict = Verdict(*here, expected, state, words, changed)
        self.verdicts.append(verdict)
        return verdict

    @property
    def wrong(self) -> list[Verdict]:
        """What differs, the first one first."""
        return [verdict for verdict in self.verdicts if verdict.state == "differs"]

    @property
    def changed(self) -> list[str]:
        """Files of the dump whose elements are not those that its index was written for."""
        return [verdict.changed for verdict in self.verdicts if verdict.changed is not None]

    @property
    def compared(self) -> int:
        """Tensors that both have."""
        return sum(verdict.state != "new" for verdict in self.verdicts)

    def missing(self) -> list[str]:
        """Tensors of the dump that no run has made, each once."""
        computed = {(verdict.run, verdict.name) for verdict in self.verdicts}
        return list(dict.fromkeys(e.name for e in self.dump.index.tensors if (e.run, e.name) not in computed))


def _held_against(dump: Dump, entry: DumpedTensor, expected: Array, tensor: LayerTensor) -> tuple[State, str]:
    """How a tensor compares with its entry and the elements of its file, and the difference in words."""
    if expected.dtype != tensor.values.dtype:
        return (
            "differs",
            f"elements of {tensor.values.dtype} here, of {expected.dtype} in the file of the dump",
        )
    words = ""
    if expected.tobytes() != tensor.values.tobytes():
        values = tensor.values
        known = _both(tensor.computed, dump.computed(entry))
        if known is not None:
            # What one of the two did not compute is not compared.
            words = f"{values.size - int(known.sum())} of {values.size} elements are not computed and not compared"
            values = np.where(known, values, expected)
        if known is None or not _same(values, expected).all():
            state: State = "close" if _is_close(tensor, values, expected) else "differs"
            return state, describe(values, expected)
    if (entry.scale, entry.zero_point) != (tensor.scale, tensor.zero_point):
        return "differs", (
            f"scale {tensor.scale!r} and zero point {tensor.zero_point} here, "
            f"{entry.scale!r} and {entry.zero_point} in the dump"
        )
    return "same", words


def _both(a: Array | None, b: Array | None) -> Array | None:
    return b if a is None else a if b is None else a & b


def _same(values: Array, expected: Array) -> Array:
    return np.asarray((values == expected) | ((values != values) & (expected != expected)))


def _is_close(tensor: LayerTensor, values: Array, expected: Array) -> bool:
    if not tensor.kind.startswith("top.") or tensor.scale or values.dtype.kind != "f":
        return False
    if not np.array_equal(np.isfinite(values), np.isfinite(expected)):
        return False
    finite = np.isfinite(values)
    a, b = values[finite].astype(np.float64), expected[finite].astype(np.float64)
    return bool(np.abs(a - b).max(initial=0) <= _CLOSE * np.abs(b).max(initial=0))


def _type(shape: tuple[int, ...], dtype: str) -> str:
    return "x".join([*map(str, shape), dtype])


def describe(values: Array, expected: Array) -> str:
    """Where two tensors of one shape differ.

    >>> describe(np.array([[1, 2, 3]]), np.array([[1, 5, 4]]))
    '2 of 3 elements, by up to 3, first at [0, 1]: 2 for 5'
    """
    same = _same(values, expected)
    places = np.argwhere(~same)
    if not len(places):
        return "other bits of the same values (a sign of zero, a NaN)"
    kind = np.float64 if "f" in (values.dtype.kind, expected.dtype.kind) else np.int64
    with np.errstate(invalid="ignore"):
        most = np.abs(values.astype(kind) - expected.astype(kind))[~same].max()
    first = tuple(int(at) for at in places[0])
    return (
        f"{len(places)} of {values.size} elements, by up to {most:g}, "
        f"first at {list(first)}: {values[first]:g} for {expected[first]:g}"
    )
