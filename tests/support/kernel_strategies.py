"""Hypothesis strategies that the kernel tests share: types, zero points, output stages, arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from npuc.arithmetic.kinds import Kind
from npuc.arithmetic.requantization import scaling
from npuc.arrays import Array
from npuc.kernels.requant import Requant

KINDS = tuple(Kind)
DTYPES = (np.int8, np.uint8, np.int16)
EXACT = settings(deadline=None, derandomize=True, max_examples=150)

kinds = st.sampled_from(KINDS)
dtypes = st.sampled_from(DTYPES)
seeds = st.integers(0, 2**32 - 1)


def array(seed: int, shape: tuple[int, ...], dtype: Any) -> Array:
    """Uniform integers of the whole range of a type, with many at its ends."""
    random = np.random.default_rng(seed)
    limits = np.iinfo(dtype)
    values = random.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    ends = random.choice(np.array([limits.min, limits.max, 0], dtype), shape)
    return np.where(random.random(shape) < 0.15, ends, values).astype(dtype)


@st.composite
def zero_points(draw: Any, dtype: Any, symmetric: bool = False) -> int:
    """A zero point of a type: 0, an end, or anything."""
    limits = np.iinfo(dtype)
    if symmetric:
        return 0
    return int(draw(st.one_of(st.just(0), st.integers(int(limits.min), int(limits.max)))))


@st.composite
def ranges(draw: Any, dtype: Any) -> tuple[int, int]:
    """An output range: mostly the whole type."""
    limits = np.iinfo(dtype)
    whole = int(limits.min), int(limits.max)
    if draw(st.integers(0, 3)):
        return whole
    ends = sorted(draw(st.tuples(st.integers(*whole), st.integers(*whole))))
    return ends[0], ends[1]


@st.composite
def multipliers(draw: Any, kind: str) -> float:
    """A real multiplier, powers of two for `pow2`."""
    if kind == "pow2":
        return float(2.0 ** draw(st.integers(-20, 3)))
    return float(draw(st.floats(1e-7, 30.0)))


@st.composite
def output_stages(draw: Any, dtype: Any, kind: str | None = None, entries: int = 1) -> Requant:
    """An output stage of any kind with real multipliers of any size."""
    chosen = kind or draw(kinds)
    bits = draw(st.sampled_from((31, 15, 7)))
    real = [draw(multipliers(chosen)) for _ in range(entries)]
    s = scaling(chosen, real, bits=bits)
    lo, hi = draw(ranges(dtype))
    zero = draw(zero_points(dtype))
    return Requant(
        kind=chosen,
        multiplier=s.multiplier,
        shift=s.shift,
        scale=s.scale,
        zero_point=zero,
        lo=lo,
        hi=hi,
    )


def stage_arguments(rq: Requant) -> tuple[Any, Any]:
    """Multiplier (or scale) and shift as the oracle takes them."""
    if rq.kind == "float_scale":
        return rq.scale, np.zeros(1, np.int32)
    return np.ones(1, np.int32) if rq.multiplier is None else rq.multiplier, rq.shift
