"""Weights of convolutions in DDR without the zeros that fill up their input channels, and how lanes get the zeros back.

A convolution reads its input channels in groups of 64, and the last group is filled up with zeros: of 16 channels three quarters
of the weights are zeros. The DMA brings the others close together, and copies in the lanes put them where the command reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

from npuc.arrays import ceil_div
from npuc.program.bm1684x.commands import LANES
from npuc.schedule.bm1684x.work import COPY_FROM_OPERAND, Builder, Operand, constant

_WORTH = 4
"""Weights are packed if at least one in so many would be a zero that fills up."""


@dataclass(frozen=True)
class PackedWeights:
    """Rows of weights, one for each output channel: groups of input channels, in each the positions of the kernel."""

    inputs: int
    taps: int

    @property
    def worth(self) -> bool:
        """Whether it saves much."""
        filled = ceil_div(self.inputs, LANES) * LANES
        return (filled - self.inputs) * _WORTH >= filled

    @property
    def packed_line(self) -> int:
        """Bytes of a row in DDR."""
        return self.inputs * self.taps

    @property
    def line(self) -> int:
        """Bytes of a row as the command reads it."""
        return ceil_div(self.inputs, LANES) * LANES * self.taps

    def emit(self, build: Builder, outputs: int, source: int, target: int) -> None:
        """Weights of so many output channels to where the command reads them."""
        rows = ceil_div(outputs, LANES)
        whole, rest = divmod(self.inputs, LANES)
        if whole:
            self._copy(build, (outputs, 1, whole * LANES * self.taps), source, target, rows, 0)
        at = whole * LANES * self.taps
        width = LANES * self.taps
        last = (rows - 1) * self.line + width
        filled = Operand(target + at, "i8", self._strides(self.line, rows, width), size=last)
        build.elementwise(COPY_FROM_OPERAND, (1, outputs, 1, width), filled, constant(0, "i8"))
        self._copy(build, (outputs, self.taps, rest), source + at, target + at, rows, LANES)

    def _copy(
        self, build: Builder, shape: tuple[int, int, int], source: int, target: int, rows: int, step: int
    ) -> None:
        outputs, taps, width = shape
        sides = []
        for address, line, pitch in ((source, self.packed_line, width), (target, self.line, step or width)):
            last = (rows - 1) * line + (taps - 1) * pitch + width
            sides.append(Operand(address, "i8", self._strides(line, rows, pitch), size=last))
        build.elementwise(COPY_FROM_OPERAND, (1, outputs, taps, width), sides[1], sides[0])

    def _strides(self, line: int, rows: int, pitch: int) -> tuple[int, int, int, int]:
        return 0, line if rows > 1 else 0, pitch, 1
