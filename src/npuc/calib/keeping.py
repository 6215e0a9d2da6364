"""Calibration samples for later use: the first are kept in memory, the others are read again where possible.

Evaluating a quantized network needs the calibration data a second time. The first samples are always kept, further ones up
to a limit of memory; the rest is read again if the data set can be read twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from npuc.arrays import Array
from npuc.calib.feeding import Feeder
from npuc.calib.sources import Source
from npuc.ir import Graph

Sample = Mapping[str, Array]

_MOST_BYTES = 256 << 20
"""The memory limit of the samples beyond those that are always kept."""


@dataclass
class Keeper:
    """Receives every sample of a calibration through `keep`, and provides them afterwards."""

    graph: Graph
    source: Source
    always: int
    first: list[Sample] = field(default_factory=list)
    """Those that are always kept."""
    _more: list[Sample] = field(default_factory=list)
    _held: int = 0
    _seen: int = 0

    def keep(self, inputs: Sample) -> None:
        """Receive the inputs of one run; a copy is kept if the limits allow."""
        self._seen += 1
        size = sum(array.nbytes for array in inputs.values())
        fits = len(self.first) + len(self._more) == self._seen - 1 and self._held + size <= _MOST_BYTES
        if len(self.first) < self.always:
            self.first.append({name: np.array(array) for name, array in inputs.items()})
        elif fits:
            self._held += size
            self._more.append({name: np.array(array) for name, array in inputs.items()})

    def others(self) -> Iterator[Sample]:
        """The samples beyond the first: those in memory, then those that can be read again."""
        yield from self._more
        held = len(self.first) + len(self._more)
        if self._seen > held and isinstance(self.source.items, Sequence):
            for batch in islice(Feeder(self.graph, self.source).batches(), held, None):
                yield batch.inputs
