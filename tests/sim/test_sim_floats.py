"""Instructions on bf16, f16 and f32 against the model of their arithmetic, and what the simulator refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.arithmetic.kinds import ROUNDINGS
from npuc.arithmetic.piecewise import evaluate, pieces_of, piecewise_table
from npuc.arrays import Array
from npuc.errors import SimulationError
from npuc.kernels import eltwise
from npuc.kernels.floats import BF16, F16
from npuc.program.isa import NONE
from support.oracles import floats as oracle
from support.programs.instructions import CODES, Draft, machine

SHORT = (BF16, F16)
DTYPES = (*SHORT, np.dtype(np.float32))
FREE = {"lo": int(np.float32(-np.inf).view(np.int32)), "hi": int(np.float32(np.inf).view(np.int32))}
"""An output range that clamps nothing."""


def relu(limit: float = np.inf) -> dict[str, int]:
    """The output range of a relu."""
    return {"lo": 0, "hi": int(np.float32(limit).view(np.int32))}


def drawn(seed: int, shape: tuple[int, ...], dtype: Any) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32).astype(dtype)


def draft() -> Draft:
    return Draft(machine("512KiB"))


def same(d: Draft, expected: Array) -> None:
    """The only result of a program, bit by bit, and no finding of the sanitizer."""
    (got,) = d.run(threads=2)
    assert got.dtype == expected.dtype
    assert got.tobytes() == np.ascontiguousarray(expected).tobytes()
    assert d.sanitize() == []


def types(*names: str, dtype: Any) -> dict[str, int]:
    return {f"{name}_dtype": CODES[np.dtype(dtype)] for name in names}


def window(x: Array, out: tuple[int, int], kernel: int, stride: int, pad: int) -> dict[str, Any]:
    n, h, w, c = x.shape
    return {
        "n": n, "h": h, "w": w, "c": c, "out_h": out[0], "out_w": out[1], "kernel": (kernel, kernel), "stride": (stride, stride),
        "dilation": (1, 1), "pad": (pad, pad),
    }  # fmt: skip


def conv(d: Draft, dtype: Any, groups: int = 1, constant: bool = True, **changes: Any) -> Array:
    """A convolution of 8 to 8 channels, and its result by the model."""
    x, weight = drawn(1, (1, 7, 6, 8), dtype), drawn(2, (8, 8 // groups, 3, 3), dtype)
    bias = np.random.default_rng(3).normal(size=8).astype(np.float32)
    fields: dict[str, Any] = {
        "x": d.put(x), "weight": d.put(weight, constant), "bias": d.put(bias, constant), "y": d.room(2048), "table": NONE,
        "groups": groups, "out_c": 8, "y_stride": 8, "multiplier": NONE, "shift": NONE, **window(x, (4, 3), 3, 2, 1),
        **types("x", "w", "y", dtype=dtype), **relu(1.0),
    }  # fmt: skip
    d.emit("conv", **fields | changes)
    stride = changes.get("y_stride", 8)
    expected = np.zeros((1, 4, 3, stride), dtype)
    expected[..., :8] = oracle.conv(
        x, weight, bias, (2, 2), (1, 1, 1, 1), groups=groups, relu=True, limit=1.0
    )
    if stride == 8:
        d.fetch(fields["y"], expected.shape, dtype)
    return expected


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("constant", [False, True])
def test_convolution(dtype: Any, groups: int, constant: bool) -> None:
    d = draft()
    same(d, conv(d, dtype, groups, constant))


@pytest.mark.parametrize("dtype", DTYPES)
def test_channels_beside_others(dtype: Any) -> None:
    d = draft()
    expected = conv(d, dtype, y_stride=11)
    at = d.room(32)
    # The first pixel, and the second, 11 elements further on.
    y = at - 2048
    d.emit(
        "copy",
        x=y,
        y=at,
        bytes=np.dtype(dtype).itemsize,
        size=(1, 1, 1, 1, 2, 4),
        x_stride=(0, 0, 0, 0, 11, 1),
        y_stride=(0, 0, 0, 0, 4, 1),
    )
    d.fetch(at, (2, 4), dtype)
    same(d, expected.reshape(-1, 11)[:2, :4])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [False, True])
def test_products_of_activations(dtype: Any, transposed: bool) -> None:
    d, a, b = draft(), drawn(1, (2, 5, 9), dtype), drawn(2, (2, 9, 4), dtype)
    y = d.room(256)
    stored = b.swapaxes(1, 2) if transposed else b
    d.emit(
        "matmul", x=d.put(a), b=d.put(stored), y=y, batch=2, m=5, k=9, cols=4, a_step=45, b_step=36, transposed_b=transposed,
        multiplier=NONE, shift=NONE, **types("x", "b", "y", dtype=dtype), **FREE,
    )  # fmt: skip
    d.fetch(y, (2, 5, 4), dtype)
    same(d, oracle.matmul(a, b))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "max", "min"])
def test_two_operands(dtype: Any, name: str) -> None:
    d, a, b = draft(), drawn(1, (6, 8), dtype), drawn(2, (8,), dtype)
    y = d.room(256)
    fields: dict[str, Any] = {
        "x": d.put(a), "b": d.put(b), "y": y, "size": (1, 1, 6, 8), "a_stride": (0, 0, 8, 1), "b_stride": (0, 0, 0, 1),
        **types("x", "y", dtype=dtype),
    }  # fmt: skip
    with np.errstate(all="ignore"):
        wide = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
        exact = wide[name](a.astype(np.float32), b.astype(np.float32))
    if name in ("max", "min"):
        d.emit("minmax", larger=name == "max", **fields)
        expected = exact.astype(dtype)
    else:
        fields |= types("b", dtype=dtype)
        if name == "mul":
            fields |= {"multiplier": NONE, "shift": NONE}
        d.emit(
            "mul" if name == "mul" else "add",
            **fields,
            **relu(),
            **({"subtract": 1} if name == "sub" else {}),
        )
        expected = oracle.finish(exact, dtype, True, 0.0)
    d.fetch(y, (6, 8), dtype)
    same(d, expected)


@pytest.mark.parametrize("dtype", SHORT)
def test_a_function_by_table(dtype: Any) -> None:
    d, x = draft(), drawn(1, (40,), dtype)
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    with np.errstate(all="ignore"):
        entries = np.tanh(every.astype(np.float32)).astype(dtype)
    y = d.room(128)
    d.emit(
        "table",
        x=d.put(x),
        y=y,
        table=d.put(entries, True),
        outer=40,
        channels=1,
        inner=1,
        **types("x", "y", dtype=dtype),
    )
    d.fetch(y, (40,), dtype)
    same(d, entries[x.view(np.uint16)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("average", [False, True])
def test_pools(dtype: Any, average: bool) -> None:
    d, x = draft(), drawn(1, (1, 6, 7, 5), dtype)
    y = d.room(256)
    fields = {"x": d.put(x), "y": y, **window(x, (3, 4), 3, 2, 1), **types("x", "y", dtype=dtype)}
    if average:
        d.emit("avg_pool", multiplier=NONE, shift=NONE, **fields)
        expected = oracle.average_pool(x, (3, 3), (2, 2), (1, 1), (3, 4), False)
    else:
        d.emit("max_pool", **fields)
        padded = np.pad(x.astype(np.float32), ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2]
        expected = windows.max((-1, -2)).astype(dtype)
    d.fetch(y, (1, 3, 4, 5), dtype)
    same(d, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", range(6))
def test_reductions(dtype: Any, mode: int) -> None:
    if mode in (3, 4) and dtype not in SHORT:
        return
    d, x = draft(), drawn(1, (3, 20, 4), dtype)
    y, result = d.room(256), np.int64 if mode in (3, 4) else dtype
    d.emit(
        "reduce", x=d.put(x), y=y, mode=mode, outer=3, reduced=20, inner=4, multiplier=NONE, shift=NONE,
        **types("x", dtype=dtype), **types("y", dtype=result),
    )  # fmt: skip
    last = np.moveaxis(x, 1, -1)
    wide = last.astype(np.float32)
    expected = {
        0: lambda: oracle.reduce_sum(last, False), 1: lambda: wide.max(-1).astype(dtype), 2: lambda: wide.min(-1).astype(dtype),
        3: lambda: wide.argmax(-1), 4: lambda: wide.argmin(-1), 5: lambda: oracle.reduce_sum(last, True),
    }[mode]()  # fmt: skip
    d.fetch(y, (3, 4), result)
    same(d, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax(dtype: Any) -> None:
    d, x = draft(), drawn(1, (5, 30), dtype)
    y = d.room(1024)
    d.emit(
        "softmax",
        x=d.put(x),
        y=y,
        rows=5,
        width=30,
        form=3,
        coarse=NONE,
        fine=NONE,
        **types("x", "y", dtype=dtype),
    )
    d.fetch(y, (5, 30), dtype)
    same(d, oracle.softmax(x))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("form", "center"), [(2, 1), (2, 0), (3, 0)])
def test_norm(dtype: Any, form: int, center: int) -> None:
    d, x = draft(), drawn(1, (5, 30), dtype)
    gain, bias = (drawn(seed, (30,), np.float32) for seed in (2, 3))
    y, epsilon = d.room(1024), 1e-5
    d.emit(
        "norm", x=d.put(x), y=y, rows=5, width=30, form=form, center=center, epsilon=int(np.float32(epsilon).view(np.uint32)),
        row_modulus=1, row_factor=0, column_divisor=1, entries=30, gain=d.put(gain), bias=d.put(bias),
        **types("x", "y", dtype=dtype),
    )  # fmt: skip
    d.fetch(y, (5, 30), dtype)
    same(d, oracle.norm(x, gain, bias, center=bool(center), mean=form == 2, epsilon=epsilon))


FLOATS = (np.float32, BF16, F16)


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("result", FLOATS)
def test_casts_between_floats(source: Any, result: Any) -> None:
    if np.dtype(source) == np.dtype(result):
        return
    d, x = draft(), drawn(1, (50,), source)
    y = d.room(256)
    d.emit("cast", x=d.put(x), y=y, elements=50, **types("x", dtype=source), **types("y", dtype=result))
    d.fetch(y, (50,), result)
    same(d, x.astype(np.float32).astype(result))


@pytest.mark.parametrize("real", FLOATS)
@pytest.mark.parametrize("whole", [np.int8, np.uint8, np.int16])
def test_casts_between_integers_and_floats(real: Any, whole: Any) -> None:
    scale, zero = np.float32(0.037), 0 if whole is np.int16 else 7
    limits = np.iinfo(whole)
    fields = {"scale": int(scale.view(np.int32)), "elements": 50}
    x = drawn(1, (50,), real)
    d = draft()
    y = d.room(256)
    d.emit(
        "cast", x=d.put(x), y=y, zero_point=zero, rounding=0, lo=limits.min, hi=limits.max, **fields,
        **types("x", dtype=real), **types("y", dtype=whole),
    )  # fmt: skip
    d.fetch(y, (50,), whole)
    integers = eltwise.quantize(
        x.astype(np.float32), float(scale), zero, np.dtype(whole), rounding=ROUNDINGS[0]
    )
    same(d, integers)
    d = draft()
    y = d.room(256)
    d.emit(
        "cast",
        x=d.put(integers),
        y=y,
        x_zero_point=zero,
        **fields,
        **types("x", dtype=whole),
        **types("y", dtype=real),
    )
    d.fetch(y, (50,), real)
    same(d, eltwise.dequantize(integers, float(scale), zero).astype(real))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"w_dtype": 0}, "floats of one type and integers do not mix: types 6, 0 and 6"),
        ({"y_dtype": 7}, "floats of one type and integers do not mix: types 6, 6 and 7"),
        ({"lo": 1}, "an output range of floats that is no relu"),
        ({"hi": int(np.float32(-1).view(np.int32))}, "an output range of floats that is no relu"),
        ({"hi": int(np.float32(np.nan).view(np.int32))}, "an output range of floats that is no relu"),
        ({"wide": 1}, "floats have no zero points, no wide sums and no table behind them"),
        ({"x_zero_point": 3}, "floats have no zero points, no wide sums and no table behind them"),
        ({"table": 0}, "floats have no zero points, no wide sums and no table behind them"),
        ({"bias": 2}, "bias, at 2, is not aligned to its 4 bytes"),
    ],
)
def test_what_no_convolution_of_floats_is(changes: dict[str, int], words: str) -> None:
    d = draft()
    conv(d, BF16, **changes)
    with pytest.raises(SimulationError, match=words):
        d.run()


def test_a_weight_that_is_not_finite_is_refused() -> None:
    d = draft()
    conv(d, F16, weight=d.put(np.full((8, 8, 3, 3), np.inf, F16), True))
    with pytest.raises(SimulationError, match="a weight is not finite"):
        d.run()


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("table", {"outer": 4, "channels": 1, "inner": 1, "table": 0}, "f32 has a table of pieces"),
        ("reduce", {"mode": 3, "outer": 1, "reduced": 4, "inner": 1}, "no place of an extreme of f32"),
    ],
)
def test_what_f32_has_no_instruction_for(name: str, fields: dict[str, int], words: str) -> None:
    d = draft()
    d.emit(name, x=d.put(np.zeros(64, np.float32)), y=d.room(64), x_dtype=5, y_dtype=5, **fields)
    with pytest.raises(SimulationError, match=words):
        d.run()


@pytest.mark.parametrize(("x", "y"), [(0, 1), (6, 6), (3, 5), (4, 5), (8, 6)])
def test_what_no_cast_goes_between(x: int, y: int) -> None:
    d = draft()
    d.emit("cast", x=d.put(np.zeros(64, np.int8)), y=d.room(64), elements=4, x_dtype=x, y_dtype=y)
    with pytest.raises(SimulationError, match=r"no cast goes|a type that it cannot have"):
        d.run()


def test_a_function_of_f32_is_a_table_of_polynomials() -> None:
    """Also in place; a directory that leaves the table is refused before anything is read."""
    table = piecewise_table(np.tanh)
    x = np.concatenate([np.linspace(-12, 12, 61), [0, -0.0, np.inf, -np.inf, np.nan, 1e-45]]).astype(
        np.float32
    )
    for damage in (0, 1):
        d = draft()
        entries = table.copy()
        entries[:4].view("<u4")[0] += damage * (pieces_of(table) << 4)
        at = d.put(x)
        fields = {
            "outer": x.size,
            "channels": 1,
            "inner": 1,
            "table": d.put(entries),
            "pieces": pieces_of(table),
        }
        d.emit("table", x=at, y=at, x_dtype=5, y_dtype=5, **fields)
        d.fetch(at, x.shape, np.float32)
        if damage:
            with pytest.raises(SimulationError, match="a parameter makes no sense"):
                d.run()
        else:
            np.testing.assert_array_equal(d.run()[0].view(np.uint32), evaluate(table, x).view(np.uint32))
            assert not d.sanitize()
