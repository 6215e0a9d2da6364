"""Convolution, transposed convolution and matmul against the NumPy model, bit for bit, on every instruction set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.arithmetic.kinds import Kind
from npuc.arrays import Array
from npuc.kernels import ConvPlan, MatMulPlan, Requant, isa, matmul, select_isa
from support.oracles import gemm as oracle

RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "int32": (-(2**31), 2**31 - 1)}
KINDS = tuple(Kind)


def available() -> list[str]:
    before = isa()
    names = [name for name in ("portable", "avx2", "avx512vnni", "neon", "neondot") if select_isa(name)]
    assert select_isa(before)
    return names


ISAS = available()
thorough = settings(max_examples=250, deadline=None, derandomize=True)


@contextmanager
def using(name: str) -> Iterator[None]:
    before = isa()
    assert select_isa(name)
    try:
        yield
    finally:
        select_isa(before)


def everywhere(make: Callable[[], Callable[[int], Array]], expected: Array) -> None:
    """Every instruction set, each also with what another one prepared, and several thread counts give `expected`."""
    for prepared in ISAS:
        with using(prepared):
            run = make()
        for used in ISAS:
            with using(used):
                for threads in (1, 2, 3):
                    got = run(threads)
                    assert got.dtype == expected.dtype
                    np.testing.assert_array_equal(got, expected, f"{prepared} / {used}, {threads} threads")


# --- what may come ---------------------------------------------------------------------------------------------------


@st.composite
def arrays(draw: Any, shape: tuple[int, ...], lo: int, hi: int) -> Array:
    """Random integers; or only the extreme ones, or one value throughout."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    style = draw(st.sampled_from(["any", "any", "extreme", "lo", "hi"]))
    if style == "any":
        return rng.integers(lo, hi, shape, endpoint=True)
    if style == "extreme":
        return rng.choice(np.array([lo, hi]), shape)
    return np.full(shape, lo if style == "lo" else hi)


@st.composite
def requants(draw: Any, dtype: str, channels: int, size: float, kinds: tuple[str, ...] = KINDS) -> Requant:
    """An output stage for accumulators of about `size`: mostly one that fits, sometimes any that is allowed."""
    lo, hi = RANGES[dtype]
    kind = draw(st.sampled_from(kinds))
    count = draw(st.sampled_from([1, channels]))
    zero_point = draw(st.one_of(st.just(0), st.integers(lo, hi)))
    if draw(st.booleans()):  # a fused activation
        lo = max(lo, zero_point)
        hi = draw(st.integers(lo, hi))
    fit = max(0.0, np.log2(max(size, 1.0)) - (7 if dtype != "int16" else 14))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    wild = draw(st.integers(0, 4)) == 0
    if kind == "float_scale":
        scale = 2.0 ** (rng.uniform(-60, 60, count) if wild else rng.uniform(-fit - 2, -fit + 2, count))
        return Requant(kind, scale=scale.astype(np.float32), zero_point=zero_point, lo=lo, hi=hi)
    if kind == "pow2":
        shift = (
            rng.integers(-31, 63, count) if wild else np.int64(np.round(rng.uniform(fit - 2, fit + 2, count)))
        )
        return Requant(kind, shift=shift, zero_point=zero_point, lo=lo, hi=hi)
    bits = 31 if kind == "double_rounding" else draw(st.sampled_from([31, 15, 7]))
    multiplier = rng.integers(2 ** (bits - 1), 2**bits, count)
    shift = (
        rng.integers(0, 63, count)
        if wild
        else np.int64(np.round(bits + rng.uniform(fit - 2, fit + 2, count)))
    )
    if wild:
        multiplier = rng.choice(np.array([0, 1, 2**30, 2**31 - 1]), count)
    return Requant(
        kind, multiplier=multiplier, shift=np.clip(shift, 0, 62), zero_point=zero_point, lo=lo, hi=hi
    )


@st.composite
def layers(draw: Any, transposed: bool) -> dict[str, Any]:
    """A convolution with its input, everything drawn."""
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    inputs, outputs = draw(st.integers(1, 9)), draw(st.integers(1, 40) if groups == 1 else st.integers(1, 6))
    if draw(st.integers(0, 3)) == 0:  # depthwise
        groups, inputs, outputs = draw(st.integers(2, 37)), 1, 1
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilations = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if transposed:
        pads = [draw(st.integers(0, e - 1)) // 2 for e in extent] * 2
        size = [draw(st.integers(1, 4)) for _ in range(2)]
    else:
        pads = [draw(st.integers(0, 3)) for _ in range(4)]
        size = [draw(st.integers(max(1, e - pads[i] - pads[i + 2]), e + 5)) for i, e in enumerate(extent)]
    dtype = draw(st.sampled_from(["int8", "uint8", "int16"]))
    lo, hi = RANGES[dtype]
    zero_point = draw(st.one_of(st.just(0), st.integers(lo, hi)))
    x = draw(arrays((draw(st.integers(1, 2)), *size, inputs * groups), lo, hi)).astype(dtype)
    weight_dtype = draw(st.sampled_from(["int8", "int8", "uint8", "int16"]))
    weight_zero_point = draw(st.integers(0, 255)) if weight_dtype == "uint8" else 0
    shape = (inputs * groups, outputs, *kernel) if transposed else (outputs * groups, inputs, *kernel)
    weight = draw(arrays(shape, *RANGES[weight_dtype])).astype(weight_dtype)
    bias = draw(st.one_of(st.none(), arrays((outputs * groups,), -(2**20), 2**20)))
    options: dict[str, Any] = {
        "x_zero_point": zero_point,
        "weight_zero_point": weight_zero_point,
        "strides": strides,
        "pads": pads,
        "dilations": dilations,
        "groups": groups,
    }
    if transposed:
        options["output_padding"] = draw(
            st.tuples(st.integers(0, strides[0] - 1), st.integers(0, strides[1] - 1))
        )
    return {"x": x, "weight": weight, "bias": bias, "options": options, "outputs": outputs * groups}


def check_layer(data: Any, layer: dict[str, Any], transposed: bool) -> None:
    x, weight, bias, options = layer["x"], layer["weight"], layer["bias"], layer["options"]
    acc = (oracle.deconv if transposed else oracle.conv)(x, weight, bias, **options)
    if transposed and min(acc.shape) < 1:
        return
    largest = max(abs(RANGES[x.dtype.name][i] - options["x_zero_point"]) for i in (0, 1))
    centred = np.abs(weight.astype(np.int64) - options["weight_zero_point"])
    worst = int(centred.sum()) * largest + 2**20
    size = float(np.abs(acc).max(initial=1))
    if worst < 2**31 and data.draw(st.booleans()):
        y_dtype, requant = "int32", None
    else:
        y_dtype = data.draw(st.sampled_from(["int8", "uint8", "int16"]))
        kinds = KINDS if worst < 2**31 else KINDS[1:]
        requant = data.draw(requants(y_dtype, layer["outputs"], size, kinds))
    expected = oracle.finish(acc, requant, y_dtype)

    def make() -> Callable[[int], Array]:
        plan = ConvPlan(
            weight, bias, x_dtype=x.dtype, y_dtype=y_dtype, requant=requant, transposed=transposed, **options
        )
        return lambda threads: plan.run(x, threads)

    everywhere(make, expected)


@thorough
@given(st.data())
def test_convolutions(data: Any) -> None:
    check_layer(data, data.draw(layers(transposed=False)), transposed=False)


@thorough
@given(st.data())
def test_transposed_convolutions(data: Any) -> None:
    check_layer(data, data.draw(layers(transposed=True)), transposed=True)


@thorough
@given(st.data())
def test_products_of_two_activations(data: Any) -> None:
    m, k, n = (data.draw(st.integers(1, limit)) for limit in (20, 40, 40))
    batch_a, batch_b = data.draw(
        st.sampled_from([((), ()), ((3,), (3,)), ((2, 1), (1, 3)), ((), (2,)), ((3,), ()), ((2, 2), (1, 1))])
    )
    operands, zero_points = [], []
    for shape in ((*batch_a, m, k), (*batch_b, k, n)):
        dtype = data.draw(st.sampled_from(["int8", "uint8", "int16"]))
        operands.append(data.draw(arrays(shape, *RANGES[dtype])).astype(dtype))
        zero_points.append(data.draw(st.one_of(st.just(0), st.integers(*RANGES[dtype]))))
    a, b = operands
    acc = oracle.matmul(a, b, *zero_points)
    largest = [
        max(abs(limit - z) for limit in RANGES[o.dtype.name])
        for o, z in zip(operands, zero_points, strict=True)
    ]
    worst = k * largest[0] * largest[1]
    y_dtype = data.draw(st.sampled_from(["int8", "uint8", "int16"]))
    requant = data.draw(requants(y_dtype, n, float(np.abs(acc).max()), KINDS if worst < 2**31 else KINDS[1:]))
    if worst < 2**31 and data.draw(st.booleans()):
        y_dtype, requant = "int32", None
    transposed = data.draw(st.booleans())
    given_b = np.ascontiguousarray(b.swapaxes(-1, -2)) if transposed else b

    def run(threads: int) -> Array:
        return matmul(
            a, given_b, requant, a_zero_point=zero_points[0], b_zero_point=zero_points[1], y_dtype=y_dtype,
            transpose_b=transposed, threads=threads,
        )  # fmt: skip

    everywhere(lambda: run, oracle.finish(acc, requant, y_dtype))


# --- edges, one by one -----------------------------------------------------------------------------------------------


EDGES = [
    0,
    1,
    -1,
    2**30,
    -(2**30),
    2**31 - 1,
    1 - 2**31,
    2**31 - 2**23,
    3,
    -3,
    5,
    -5,
    6,
    -6,
    2**24 + 1,
    -(2**24) - 1,
]
WIDE_EDGES = [*EDGES, -(2**31), 2**31, 2**32 + 1, -(2**33) - 5, 2**46 + 2**20, -(2**46)]


@pytest.mark.parametrize("edges", [EDGES, WIDE_EDGES], ids=["narrow", "wide"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_output_stage_at_its_edges(kind: str, edges: list[int]) -> None:
    """Accumulators at the ends of their width, ties of both signs, multipliers and shifts at theirs.

    With weights of 0 the accumulators are the biases, one a channel.
    """
    if kind == "double_rounding" and edges is WIDE_EDGES:
        pytest.skip("`double_rounding` is defined on 32 bits")
    x, bias = np.zeros((1, 1, 1, 4), np.int8), np.array(edges, np.int64)
    weight = np.zeros((len(edges), 4, 1, 1), np.int8)
    for shift in (0, 1, 2, 3, 15, 30, 31, 32, 33, 46, 60, 61, 62):
        for multiplier in (0, 1, 3, 2**30, 2**30 + 1, 2**31 - 1):
            scale = np.float32(multiplier * 2.0**-shift)
            for dtype, zero_point in (("int8", 0), ("int8", -128), ("uint8", 255), ("int16", 7)):
                lo, hi = RANGES[dtype]
                rq = Requant(kind, multiplier, shift, scale, zero_point, lo=lo, hi=hi)
                expected = oracle.finish(bias.reshape(1, 1, 1, -1), rq, dtype)
                for name in ISAS:
                    with using(name):
                        plan = ConvPlan(weight, bias, x_dtype=np.int8, y_dtype=dtype, requant=rq)
                        assert plan.wide == (edges is WIDE_EDGES)
                        np.testing.assert_array_equal(
                            plan.run(x), expected, f"{name} {kind} {multiplier} {shift} {dtype} {zero_point}"
                        )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("depthwise", [False, True])
def test_extreme_operands(dtype: str, depthwise: bool) -> None:
    """All operands at the same end, the largest sums there are."""
    groups, inputs = (19, 1) if depthwise else (1, 19)
    outputs = 19 if depthwise else 33
    for x_value in RANGES[dtype]:
        for w_value in (-128, 127):
            for zero_point in RANGES[dtype]:
                x = np.full((1, 5, 5, 19), x_value, dtype)
                weight = np.full((outputs, inputs, 3, 3), w_value, np.int8)
                options = {"x_zero_point": zero_point, "pads": (1, 1, 1, 1), "groups": groups}
                expected = oracle.conv(x, weight, None, **options).astype(np.int32)  # type: ignore[arg-type]

                def make(
                    weight: Array = weight, x: Array = x, options: Any = options
                ) -> Callable[[int], Array]:
                    plan = ConvPlan(weight, x_dtype=x.dtype, **options)
                    return lambda threads: plan.run(x, threads)

                everywhere(make, expected)


@pytest.mark.parametrize("channels", [63, 64, 65, 127, 128, 130, 192, 257])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_depthwise_layers_wider_than_a_block(dtype: str, channels: int) -> None:
    """Threads divide blocks of 64 channels, few lines and many channels; the last block may be of any width.

    Every channel has weights, a bias and a multiplier of its own, so that no channel can stand for another one.
    """
    rng = np.random.default_rng(channels)
    lo, hi = RANGES[dtype]
    weight = rng.integers(-128, 128, (channels, 1, 3, 3)).astype(np.int8)
    bias = rng.integers(-5000, 5000, channels)
    multiplier = rng.integers(2**30, 2**31, channels)
    rq = Requant(
        "single", multiplier, np.full(channels, 42 if dtype != "int16" else 50), None, 3, lo=lo, hi=hi
    )
    for height, width in ((1, 1), (2, 3), (1, 40)):
        x = rng.integers(lo, hi, (1, height, width, channels), endpoint=True).astype(dtype)
        options: dict[str, Any] = {"x_zero_point": 5, "pads": (1, 1, 1, 1), "groups": channels}
        expected = oracle.finish(oracle.conv(x, weight, bias, **options), rq, dtype)

        def make(x: Array = x, options: Any = options) -> Callable[[int], Array]:
            plan = ConvPlan(weight, bias, x_dtype=x.dtype, y_dtype=dtype, requant=rq, **options)
            return lambda threads: plan.run(x, threads)

        everywhere(make, expected)


def test_sixteen_bit_sums_beyond_32_bits() -> None:
    """i16 x i16: pairs of products that no 32-bit register holds, and weights whose blocks differ in size."""
    rng = np.random.default_rng(3)
    for weight_range in ((-32768, -32768), (32767, 32767), (-32768, 32767), (-127, 127), (-3000, 3000)):
        x = rng.choice(np.array([-32768, 32767], np.int16), (1, 3, 3, 70))
        weight = rng.integers(*weight_range, (18, 70, 3, 3), endpoint=True).astype(np.int16)
        bias = rng.integers(-(2**40), 2**40, 18)
        rq = Requant("single_rounding", 2**30 + 12345, 60, lo=-32768, hi=32767, zero_point=100)
        acc = oracle.conv(x, weight, bias, pads=(1, 1, 1, 1), x_zero_point=-5)
        assert np.abs(acc).max() > 2**31

        def make(
            weight: Array = weight, x: Array = x, bias: Array = bias, rq: Requant = rq
        ) -> Callable[[int], Array]:
            plan = ConvPlan(
                weight,
                bias,
                x_dtype=np.int16,
                y_dtype=np.int16,
                requant=rq,
                pads=(1, 1, 1, 1),
                x_zero_point=-5,
            )
            assert plan.wide
            return lambda threads: plan.run(x, threads)

        everywhere(make, oracle.finish(acc, rq, np.int16))


@pytest.mark.parametrize("channels", [1, 15, 16, 17, 31, 32, 33, 49, 65])
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32"])
def test_the_last_channel_of_a_wide_tile(dtype: str, channels: int) -> None:
    """Sums of 64 bits, of every number of channels around a panel: the last is written, and nothing behind it.

    Every channel has weights, a bias and a multiplier of its own. The output lies between guards: an element too many of the last
    pixel would change the second one (of other pixels, it is written over by the next pixel).
    """
    rng = np.random.default_rng(channels)
    x = rng.integers(-32768, 32767, (2, 3, 5, 6), endpoint=True).astype(np.int16)
    weight = rng.integers(-32768, 32767, (channels, 6, 3, 3), endpoint=True).astype(np.int16)
    bias = rng.integers(-(2**40), 2**40, channels)
    lo, hi = (-(2**31), 2**31 - 1) if dtype == "int32" else RANGES[dtype]
    shift = {"int8": 62, "int16": 55, "int32": 40}[dtype]
    rq = Requant(
        "single_rounding", rng.integers(2**30, 2**31, channels), np.full(channels, shift), lo=lo, hi=hi
    )
    options: dict[str, Any] = {"pads": (1, 1, 1, 1), "x_zero_point": -5}
    expected = oracle.finish(oracle.conv(x, weight, bias, **options), rq, dtype)
    assert len(np.unique(expected)) > 2
    for name in ISAS:
        with using(name):
            plan = ConvPlan(weight, bias, x_dtype=np.int16, y_dtype=dtype, requant=rq, **options)
            assert plan.wide
            for threads in (1, 3):
                memory = np.full(expected.size + 200, 77, dtype)
                plan.run(x, threads, memory[100:-100].reshape(expected.shape))
                np.testing.assert_array_equal(memory[100:-100].reshape(expected.shape), expected, name)
                assert (memory[:100] == 77).all() and (memory[-100:] == 77).all(), name


@pytest.mark.parametrize("channels", [16, 64, 65, 130])
@pytest.mark.parametrize("kernel", [1, 3])
def test_larger_layers(channels: int, kernel: int) -> None:
    """Many tiles, blocks and tasks, against int64 matrix products."""
    rng = np.random.default_rng(channels)
    for dtype in (np.int8, np.uint8):
        x = rng.integers(*RANGES[np.dtype(dtype).name], (1, 41, 23, channels), endpoint=True).astype(dtype)
        weight = rng.integers(-128, 127, (channels + 5, channels, kernel, kernel), endpoint=True).astype(
            np.int8
        )
        expected = oracle.conv(x, weight, None, x_zero_point=3, pads=(kernel // 2,) * 4).astype(np.int32)

        def make(weight: Array = weight, x: Array = x) -> Callable[[int], Array]:
            plan = ConvPlan(weight, x_dtype=x.dtype, x_zero_point=3, pads=(kernel // 2,) * 4)
            return lambda threads: plan.run(x, threads)

        everywhere(make, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(("inputs", "outputs", "kernel"), [(16, 50, 1), (6, 48, 3), (7, 9, 1)])
def test_whole_tiles_through_every_output_stage(
    kind: str, dtype: str, inputs: int, outputs: int, kernel: int
) -> None:
    """Enough pixels for the largest tiles, in place and gathered, with panels that are full and that are not."""
    rng = np.random.default_rng(inputs)
    x = rng.integers(*RANGES[dtype], (1, 7, 9, inputs), endpoint=True).astype(dtype)
    weight = rng.integers(-128, 127, (outputs, inputs, kernel, kernel), endpoint=True).astype(np.int8)
    check_stage(kind, x, weight, {"x_zero_point": 9, "pads": (kernel // 2,) * 4})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "strides", "dilations", "pads", "size"),
    [
        (16, 16, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), (32, 32)),
        (4, 40, (3, 3), (1, 1), (2, 1), (2, 1, 2, 1), (9, 8)),  # lines apart
        (8, 33, (5, 2), (2, 2), (1, 1), (0, 0, 3, 1), (11, 15)),  # steps, and a border at one side
        (12, 7, (1, 3), (1, 1), (1, 1), (3, 2, 0, 4), (5, 6)),  # lines that are all border
        (64, 64, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), (33, 60)),  # more than a task keeps
        (4, 5, (3, 4), (1, 3), (1, 1), (0, 9, 0, 9), (4, 4)),  # windows that are all border
    ],
)
def test_windows_in_an_image_with_its_border(
    kind: str,
    dtype: str,
    inputs: int,
    outputs: int,
    kernel: Any,
    strides: Any,
    dilations: Any,
    pads: Any,
    size: Any,
) -> None:
    """Lines of windows that are whole groups of four bytes, and lines of outputs that are tiles of four pixels."""
    rng = np.random.default_rng(inputs)
    x = rng.integers(*RANGES[dtype], (2, *size, inputs), endpoint=True).astype(dtype)
    weight = rng.integers(-128, 127, (outputs, inputs, *kernel), endpoint=True).astype(np.int8)
    check_stage(
        kind, x, weight, {"x_zero_point": 9, "strides": strides, "dilations": dilations, "pads": pads}
    )


def check_stage(kind: str, x: Array, weight: Array, options: dict[str, Any]) -> None:
    """A layer with an output stage of a kind, its channels' multipliers all different."""
    rng, outputs, dtype = np.random.default_rng(len(weight)), len(weight), x.dtype.name
    bias = rng.integers(-5000, 5000, outputs)
    acc = oracle.conv(x, weight, bias, **options)
    exponent = int(np.log2(np.abs(acc).max())) - 7 + rng.integers(0, 2, outputs)
    multiplier = rng.integers(2**30, 2**31, outputs)
    rq = Requant(
        kind,
        multiplier,
        exponent if kind == "pow2" else 31 + exponent,
        np.float32(multiplier * 2.0 ** (-31 - exponent)),
        3,
        lo=RANGES[dtype][0],
        hi=100,
    )

    def make() -> Callable[[int], Array]:
        plan = ConvPlan(weight, bias, x_dtype=dtype, y_dtype=dtype, requant=rq, **options)
        return lambda threads: plan.run(x, threads)

    expected = oracle.finish(acc, rq, dtype)
    assert len(np.unique(expected)) > 20
    everywhere(make, expected)


def test_a_fully_connected_layer_over_any_leading_axes() -> None:
    rng = np.random.default_rng(5)
    x = rng.integers(0, 255, (2, 3, 21), endpoint=True).astype(np.uint8)
    weight = rng.integers(-8, 7, (21, 50), endpoint=True).astype(np.int8)
    bias = rng.integers(-1000, 1000, 50)
    expected = (oracle.matmul(x, weight, 128) + bias).astype(np.int32)

    def make() -> Callable[[int], Array]:
        plan = MatMulPlan(weight, bias, x_dtype=np.uint8, x_zero_point=128)
        return lambda threads: plan.run(x, threads)

    everywhere(make, expected)


def test_outputs_go_where_they_are_asked_to() -> None:
    plan = ConvPlan(np.ones((2, 3, 1, 1), np.int8), x_dtype=np.int8)
    out = np.empty((1, 4, 4, 2), np.int32)
    assert plan.run(np.ones((1, 4, 4, 3), np.int8), out=out) is out
    assert (out == 3).all()
    with pytest.raises(ValueError, match="dense, writeable int32"):
        plan.run(np.ones((1, 4, 4, 3), np.int8), out=np.empty((1, 4, 4, 3), np.int32))


def test_calls_from_several_threads_at_once() -> None:
    from concurrent.futures import ThreadPoolExecutor

    rng = np.random.default_rng(8)
    x = rng.integers(-128, 127, (1, 30, 30, 32)).astype(np.int8)
    plan = ConvPlan(
        rng.integers(-128, 127, (32, 32, 3, 3)).astype(np.int8), x_dtype=np.int8, pads=(1, 1, 1, 1)
    )
    expected = plan.run(x)
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: plan.run(x, threads=2), range(40)):
            np.testing.assert_array_equal(got, expected)


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight": np.ones((4, 3, 1), np.int8)}, "4 dimensions"),
        ({"weight": np.ones((4, 3, 1, 1), np.float32)}, "must be integers"),
        ({"weight": np.full((4, 3, 1, 1), 40000)}, "16 bits"),
        ({"weight": np.ones((4, 3, 1, 1), np.int8), "bias": np.ones(3, np.int32)}, "4 output channels"),
        ({"weight": np.ones((4, 3, 1, 1), np.int8), "groups": 3}, "no convolution"),
        ({"weight": np.ones((4, 3, 1, 1), np.int8), "strides": (0, 1)}, "no convolution"),
        ({"weight": np.ones((4, 3, 1, 1), np.int8), "x_zero_point": 128}, "no convolution"),
        ({"weight": np.ones((4, 3, 1, 1), np.int8), "x_dtype": np.float32}, "x must be"),
        ({"weight": np.full((4, 3, 99, 99), 30000, np.int16), "x_dtype": np.int16}, "beyond int32"),
    ],
)
def test_a_layer_that_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConvPlan(**{"x_dtype": np.int8, **options})


def test_an_input_that_does_not_fit_is_refused() -> None:
    plan = ConvPlan(np.ones((4, 3, 3, 3), np.int8), x_dtype=np.int8)
    with pytest.raises(ValueError, match="4 channels"):
        plan.run(np.ones((1, 8, 8, 4), np.int8))
    with pytest.raises(ValueError, match="prepared for int8"):
        plan.run(np.ones((1, 8, 8, 3), np.uint8))
    with pytest.raises(ValueError, match="leaves no output"):
        plan.run(np.ones((1, 2, 8, 3), np.int8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "triple"}, "no requantization kind"),
        ({"kind": "single_rounding", "multiplier": 1}, "needs a shift"),
        ({"kind": "single_rounding", "multiplier": -1, "shift": 3}, "negative"),
        ({"kind": "single_rounding", "multiplier": 2**31, "shift": 3}, "int32"),
        ({"kind": "single_rounding", "multiplier": 1, "shift": 63}, "outside 0..62"),
        ({"kind": "double_rounding", "multiplier": 1, "shift": -1}, "outside 0..62"),
        ({"kind": "single_rounding", "multiplier": [1, 2], "shift": [1, 2, 3]}, "2 and 3 entries"),
        ({"kind": "float_scale", "scale": np.inf}, "not finite"),
        ({"kind": "pow2", "shift": 3, "lo": 5, "hi": 4}, "empty"),
    ],
)
def test_an_output_stage_that_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Requant(**{"lo": -128, "hi": 127, **options})


def test_an_output_range_wider_than_the_type_is_refused() -> None:
    rq = Requant("pow2", shift=1, lo=-129, hi=127)
    with pytest.raises(ValueError, match="does not fit int8"):
        ConvPlan(np.ones((1, 1, 1, 1), np.int8), x_dtype=np.int8, y_dtype=np.int8, requant=rq)
