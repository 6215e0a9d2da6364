"""TFLite's integer LSTM as data: the integers that its kernel computes with, and how an instruction has them in memory.

docs/arithmetic-recurrent.md has the formulas. Rows of weights and biases are gate * cells + cell; gates are in the order input,
forget, cell, output, the first left out where it is coupled to the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from npuc.arrays import Array


class Multiplier(NamedTuple):
    """A real number as `multiplier * 2^-shift`, a multiplier of 31 bits."""

    multiplier: int
    shift: int


@dataclass(frozen=True, eq=False)
class NormParameters:
    """The layer norms of all gates: weights (int16) and biases (int32) of all rows; for each gate the scale of its weights,
    and what stands for no variance."""

    weight: Array
    bias: Array
    scales: tuple[Multiplier, ...]
    guards: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class PeepholeParameters:
    """What gates read of cells: weights (int16) of gates x samples x cells, of all gates but that of new values. There is one
    sample for all, or one for each."""

    weight: Array
    scales: tuple[Multiplier, ...]


@dataclass(frozen=True, eq=False)
class ProjectionParameters:
    """From what the units give to the outputs: weights (int8) of outputs x cells; `clip` is the largest output, 0 none."""

    weight: Array
    bias: Array
    scale: Multiplier
    zero_point: int
    clip: int


@dataclass(frozen=True, eq=False)
class QuantizedLstm:
    """A layer."""

    weight: Array
    """Rows x inputs, int8."""
    recurrence: Array
    """Rows x outputs, int8."""
    bias_x: Array
    """Of all rows (int32), with what the zero point of the input adds."""
    bias_h: Array
    scales_x: tuple[Multiplier, ...]
    """One a gate."""
    scales_h: tuple[Multiplier, ...]
    integer_bits: int
    """Those of a cell."""
    cell_clip: int
    """The largest cell; 0 is no limit."""
    first_h: int
    """What the state begins with: its zero point. Cells begin with 0."""
    hidden: Multiplier
    hidden_zero_point: int
    peephole: PeepholeParameters | None = None
    norm: NormParameters | None = None
    projection: ProjectionParameters | None = None

    @property
    def gates(self) -> int:
        """4, or 3 if the input gate is 1 less the forget gate."""
        return len(self.scales_x)

    @property
    def is_coupled(self) -> bool:
        """Whether the input gate is 1 less the forget gate."""
        return self.gates == 3

    @property
    def cells(self) -> int:
        """Units of the layer."""
        return len(self.weight) // self.gates

    @property
    def outputs(self) -> int:
        """Elements of the state that is the output."""
        return int(self.recurrence.shape[1])

    @property
    def peephole_rows(self) -> int:
        """Samples that have peepholes of their own; 1 if all have the same, 0 without."""
        return 0 if self.peephole is None else int(self.peephole.weight.shape[1])

    def constants(self) -> dict[str, Array]:
        """All numbers as the kernel takes them, in the order of an instruction's constants."""
        peephole, norm, projection = self.peephole, self.norm, self.projection
        arrays: dict[str, Array | None] = {
            "scales_x": _words(self.scales_x),
            "scales_h": _words(self.scales_h),
            "scales_c": None if peephole is None else _words(peephole.scales),
            "norm_scales": None
            if norm is None
            else _words([(*scale, guard) for scale, guard in zip(norm.scales, norm.guards, strict=True)]),
            "hidden": _words([(*self.hidden, self.hidden_zero_point)]),
            "projected": None
            if projection is None
            else _words([(*projection.scale, projection.zero_point, projection.clip)]),
            "bias_x": self.bias_x.astype("<i4"),
            "bias_h": self.bias_h.astype("<i4"),
            "norm_bias": None if norm is None else norm.bias.astype("<i4"),
            "projection_bias": None if projection is None else projection.bias.astype("<i4"),
            "norm_weight": None if norm is None else norm.weight.astype("<i2"),
            "peephole": None if peephole is None else peephole.weight.astype("<i2"),
            "w": self.weight.astype("i1"),
            "r": self.recurrence.astype("i1"),
            "projection": None if projection is None else projection.weight.astype("i1"),
        }
        return {name: np.ascontiguousarray(array) for name, array in arrays.items() if array is not None}

    def constant_block(self) -> Array:
        """The constants of an instruction, in bytes."""
        return np.concatenate([array.reshape(-1).view(np.uint8) for array in self.constants().values()])


def _words(rows: object) -> Array:
    return np.array(rows, "<i4").reshape(-1)
