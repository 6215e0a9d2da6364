"""The output stage of an integer op, as a value: what turns an exact accumulator into a quantized output.

`y = sat(zero_point + rq(acc), lo, hi)`; docs/arithmetic.md defines the five kinds of `rq`. A `Requant` is checked when
it is made, so that a kernel can trust it: parameters of the right type and number, in the ranges where formulas hold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

KINDS = ("double", "single", "single_even", "pow2", "float")
"""In the order of `npuc_requant_kind`."""

MAX_SHIFT = 62
MIN_POW2_SHIFT = -31


@dataclass(frozen=True, eq=False)
class Requant:
    """An output stage; parameters have one entry, or one for each output channel.

    `double`, `single` and `single_even` have `multiplier` and `shift`, `pow2` has `shift`, `float` has `scale`.

    >>> Requant("single", multiplier=3 << 29, shift=32, lo=-128, hi=127).count
    1
    """

    kind: str
    multiplier: Array | None = None
    shift: Array | None = None
    scale: Array | None = None
    zero_point: int = 0
    lo: int = field(kw_only=True)
    hi: int = field(kw_only=True)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"there is no requantization kind {self.kind!r}; there are {', '.join(KINDS)}")
        if not self.lo <= self.hi:
            raise ValueError(f"the output range {self.lo}..{self.hi} is empty")
        needed = {"double": 2, "single": 2, "single_even": 2, "pow2": 1, "float": 0}[self.kind]
        self._set("multiplier", np.int32, needed == 2)
        self._set("shift", np.int32, needed >= 1)
        self._set("scale", np.float32, self.kind == "float")
        sizes = {len(p) for p in (self.multiplier, self.shift, self.scale) if p is not None}
        if len(sizes) != 1:
            raise ValueError(f"multiplier and shift have {' and '.join(map(str, sorted(sizes)))} entries")
        if self.multiplier is not None and self.multiplier.min() < 0:
            raise ValueError(f"a multiplier is negative: {self.multiplier.min()}")
        if self.shift is not None:
            lowest = MIN_POW2_SHIFT if self.kind == "pow2" else 0
            if self.shift.min() < lowest or self.shift.max() > MAX_SHIFT:
                raise ValueError(
                    f"a shift of {self.kind} is outside {lowest}..{MAX_SHIFT}: "
                    f"{self.shift.min()}..{self.shift.max()}"
                )
        if self.scale is not None and not (np.isfinite(self.scale).all() and self.scale.min() >= 0):
            raise ValueError("a scale is negative or not finite")

    def _set(self, name: str, dtype: Any, wanted: bool) -> None:
        """Make a parameter a dense array of its own type; the dataclass is frozen for everybody else."""
        given = getattr(self, name)
        if not wanted:
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
        parameters = self.scale if self.kind == "float" else self.shift
        assert parameters is not None
        return len(parameters)
