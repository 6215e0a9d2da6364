"""Every vector kernel gives the same bits with every instruction set that this machine has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from npuc.arithmetic.requantization import add_parameters, scaling
from npuc.arrays import Array
from npuc.kernels import eltwise, isa, pooling, reduction, resampling, select_isa, softmax, tables
from npuc.kernels import normalization as norms
from npuc.kernels.requant import Requant
from support.kernel_strategies import DTYPES, KINDS, array


def stage(kind: str, real: float, dtype: Any, bits: int = 31) -> Requant:
    s = scaling(kind, 2.0 ** round(np.log2(real)) if kind == "pow2" else real, bits=bits)
    limits = np.iinfo(dtype)
    return Requant(s.kind, s.multiplier, s.shift, s.scale, 3, lo=int(limits.min), hi=int(limits.max))


def cases() -> Iterator[tuple[str, Callable[[], Array]]]:
    for dtype in DTYPES:
        name = np.dtype(dtype).name
        x, other = array(1, (2, 9, 11, 37), dtype), array(2, (2, 9, 11, 37), dtype)
        width = 16 if dtype is np.int16 else 8
        for kind in KINDS:
            scales = (0.5, 0.25, 0.5) if kind == "pow2" else (0.31, 0.17, 0.4)
            for bits in (31, 15, 7):
                p = add_parameters(kind, *scales, bits=bits, width=width)
                label = f"{name}-{kind}-{bits}"
                yield f"add-{label}", lambda x=x, other=other, p=p: eltwise.add(x, other, p)
                rq = stage(kind, 0.01, dtype, bits)
                yield f"mul-{label}", lambda x=x, other=other, rq=rq: eltwise.mul(x, other, rq)
                yield f"requant-{label}", lambda x=x, rq=rq: eltwise.requant(x, rq)
            rq = stage(kind, 1 / 9, dtype)
            same = Requant(rq.kind, rq.multiplier, rq.shift, rq.scale, 0, lo=rq.lo, hi=rq.hi)
            yield (
                f"average-{name}-{kind}",
                lambda x=x, rq=same: pooling.average_pool(x, (3, 3), (1, 1), (1, 1), (9, 11), rq),
            )
            yield f"sum-{name}-{kind}", lambda x=x, rq=rq: reduction.reduce_sum(x, rq, (1, 2))
        yield f"max-{name}", lambda x=x: pooling.max_pool(x, (3, 3), (2, 2), (1, 1), (5, 6))
        yield f"minimum-{name}", lambda x=x, other=other: eltwise.minimum(x, other)
        yield f"largest-{name}", lambda x=x: reduction.reduce_max(x, 0)
        yield f"dequantize-{name}", lambda x=x: eltwise.dequantize(x, 0.1, 3)
        real = np.random.default_rng(0).normal(size=1000).astype(np.float32)
        for rounding in ("half_away", "half_even"):
            yield (
                f"quantize-{name}-{rounding}",
                lambda r=rounding, d=dtype, v=real: eltwise.quantize(v, 0.01, 1, d, rounding=r),
            )
        for kind in ("double_rounding", "single_rounding", "single_even"):
            rows, columns = resampling.interpolation(kind, 9, 14), resampling.interpolation(kind, 11, 7)
            yield (
                f"resize-{name}-{kind}",
                lambda x=x, a=rows, b=columns, k=kind: resampling.resize_bilinear(x, a, b, k),
            )
        p = norms.norm_parameters("single_rounding", 0.1, 0.02, 1.0, 0.0, 37)
        yield f"norm-{name}", lambda x=x, p=p: norms.layer_norm(x, p)
        s = softmax.softmax_parameters("single_rounding", 0.05, 1 / 128, 0, dtype, dtype)
        yield f"softmax-{name}", lambda x=x, s=s: softmax.softmax(x, s)
    x8, x16 = array(4, (1000,), np.int8), array(4, (1000,), np.int16)
    yield "table8", lambda: tables.lookup8(x8, array(5, (256,), np.int8))
    yield "table8-16", lambda: tables.lookup8(x8, array(5, (256,), np.int16))
    yield "table16", lambda: tables.lookup16(x16, array(5, (513,), np.int16))


CASES = dict(cases())


@pytest.mark.parametrize("name", CASES)
def test_the_instruction_set_does_not_change_the_result(name: str) -> None:
    before = isa()
    results = {}
    try:
        for choice in ("portable", "avx2", "avx512vnni", "neon", "neondot"):
            if select_isa(choice):
                results[choice] = CASES[name]()
    finally:
        select_isa(before)
    for result in results.values():
        np.testing.assert_array_equal(result, results["portable"])
