"""The output stage of an integer op, as a value: what turns an exact accumulator into a quantized output.

`y = sat(zero_point + rq(acc), lo, hi)`; docs/arithmetic.md defines the kinds of `rq`. A `Requant` is checked when
it is made, so that a kernel can trust it: parameters of the right type and number, in the ranges where formulas hold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import MAX_SHIFT, Kind, kind_named
from npuc.arrays import Array


@dataclass(frozen=True, eq=False)
class Requant:
    """An output stage; parameters have one entry, or one for each output channel.

    Which of `multiplier`, `shift` and `scale` there are is the kind's: `Kind.parameters`.

    >>> Requant("single_rounding", multiplier=3 << 29, shift=32, lo=-128, hi=127).count
    1
    """

    kind: Kind
    multiplier: Array | None = None
    shift: Array | None = None
    scale: Array | None = None
    zero_point: int = 0
    lo: int = field(kw_only=True)
    hi: int = field(kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", kind_named(self.kind))
        if not self.lo <= self.hi:
            raise ValueError(f"the output range {self.lo}..{self.hi} is empty")
        self._set("multiplier", np.int32, self.kind.has_multiplier)
        self._set("shift", np.int32, self.kind.has_shift)
        self._set("scale", np.float32, self.kind.has_scale)
        sizes = {len(p) for p in (self.multiplier, self.shift, self.scale) if p is not None}
        if len(sizes) != 1:
            raise ValueError(f"multiplier and shift have {' and '.join(map(str, sorted(sizes)))} entries")
        if self.multiplier is not None and self.multiplier.min() < 0:
            raise ValueError(f"a multiplier is negative: {self.multiplier.min()}")
        if self.shift is not None:
            lowest = self.kind.least_shift
            if self.shift.min() < lowest or self.shift.max() > MAX_SHIFT:
                raise ValueError(
                    f"a shift of {self.kind} is outside {lowest}..{MAX_SHIFT}: "
                    f"{self.shift.min()}..{self.shift.max()}"
                )
        if self.scale is not None and not (np.isfinite(self.scale).all() and self.scale.min() >= 0):
            raise ValueError("a scale is negative or not finite")

    def _set(self, name: str, dtype: Any, used: bool) -> None:
        """Make a parameter a dense array of its own type; the dataclass is frozen for everybody else."""
        given = getattr(self, name)
        if not used:
            object.__setattr__(self, name, None)
            return
        if given is None:
            raise ValueError(f"a requantization of kind {self.kind} needs a {name}")
        array = np.asarray(given).reshape(-1)
        exact = np.ascontiguousarray(array, dtype)
        if not len(exact):
            raise ValueError(f"the {name} of a requantization is empty")
        if dtype is np.int32 and not np.array_equal(exact, array):
            raise ValueError(f"a {name} does not fit int32")
        exact.flags.writeable = False
        object.__setattr__(self, name, exact)

    @property
    def count(self) -> int:
        """Entries of the parameters: 1, or the output channels."""
        parameters = self.scale if self.kind.has_scale else self.shift
        assert parameters is not None
        return len(parameters)
