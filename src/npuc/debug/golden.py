"""A golden run: every tensor of a run held against a dump while it runs, and the first layer that differs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from npuc.debug.dump import Dump, DumpedTensor
from npuc.debug.layers import LayerTensor

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Verdict:
    """A tensor of a golden run."""

    run: int
    name: str
    layer: str
    kind: str
    md5: str
    expected: str | None
    """The MD5 of the dump; None if the dump has no such tensor."""
    state: Literal["same", "differs", "new"]
    words: str = ""
    """How it differs."""

    @property
    def line(self) -> str:
        """A line for the tensor."""
        mark = {"same": "ok     ", "differs": "DIFFERS", "new": "new    "}[self.state]
        return f"{mark} {self.md5} {self.kind:16} {self.name}{f': {self.words}' if self.words else ''}"


@dataclass
class GoldenRun:
    """What is known so far."""

    dump: Dump
    verdicts: list[Verdict] = field(default_factory=list)

    def judge(self, run: int, tensor: LayerTensor) -> Verdict:
        """Hold a tensor against the dump."""
        entry = self.dump.find(run, tensor.name)
        md5 = tensor.md5
        if entry is None:
            verdict = self._verdict(run, tensor, md5, None, "new", "the dump does not have it")
        elif (words := _difference(self.dump, entry, tensor, md5)) is None:
            verdict = self._verdict(run, tensor, md5, entry.md5, "same", "")
        else:
            verdict = self._verdict(run, tensor, md5, entry.md5, "differs", words)
        self.verdicts.append(verdict)
        return verdict

    @staticmethod
    def _verdict(
        run: int,
        tensor: LayerTensor,
        md5: str,
        expected: str | None,
        state: Literal["same", "differs", "new"],
        words: str,
    ) -> Verdict:
        return Verdict(run, tensor.name, tensor.layer, tensor.kind, md5, expected, state, words)

    @property
    def wrong(self) -> list[Verdict]:
        """What differs, the first one first."""
        return [one for one in self.verdicts if one.state == "differs"]

    @property
    def compared(self) -> int:
        """Tensors that both have."""
        return sum(one.state != "new" for one in self.verdicts)

    def missing(self) -> list[str]:
        """Tensors of the dump that no run has made."""
        seen = {(one.run, one.name) for one in self.verdicts}
        return [e.name for e in self.dump.index.tensors if (e.run, e.name) not in seen]


def _difference(dump: Dump, entry: DumpedTensor, tensor: LayerTensor, md5: str) -> str | None:
    """How a tensor differs from its entry, in words; None if it does not."""
    if entry.shape != tensor.values.shape or entry.dtype != tensor.dtype:
        return (
            f"{_type(tensor.values.shape, tensor.dtype)} here, {_type(entry.shape, entry.dtype)} in the dump"
        )
    if entry.md5 != md5:
        return describe(tensor.values, dump.read(entry))
    if (entry.scale, entry.zero_point) != (tensor.scale, tensor.zero_point):
        return (
            f"scale {tensor.scale!r} and zero point {tensor.zero_point} here, "
            f"{entry.scale!r} and {entry.zero_point} in the dump"
        )
    return None


def _type(shape: tuple[int, ...], dtype: str) -> str:
    return "x".join([*map(str, shape), dtype])


def describe(values: Array, expected: Array) -> str:
    """Where two tensors of one shape differ.

    >>> describe(np.array([[1, 2, 3]]), np.array([[1, 5, 4]]))
    '2 of 3 elements, by up to 3, first at [0, 1]: 2 for 5'
    """
    same = (values == expected) | ((values != values) & (expected != expected))
    places = np.argwhere(~same)
    if not len(places):
        return "other bits of the same values (a sign of zero, a NaN), or the dump's file is not the one of its index"
    kind = np.float64 if "f" in (values.dtype.kind, expected.dtype.kind) else np.int64
    with np.errstate(invalid="ignore"):
        most = np.abs(values.astype(kind) - expected.astype(kind))[~same].max()
    first = tuple(int(at) for at in places[0])
    return (
        f"{len(places)} of {values.size} elements, by up to {most:g}, "
        f"first at {list(first)}: {values[first]:g} for {expected[first]:g}"
    )
