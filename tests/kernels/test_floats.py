"""bf16, f16 and f32 against the model in NumPy, bit for bit, on every instruction set and with several thread counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from npuc.arrays import Array
from npuc.kernels import floats, isa, select_isa
from npuc.kernels.blocks import pack, unpack
from npuc.kernels.floats import BF16, F16, F32
from npuc.quant.lowering.floats import round_once
from support.oracles import floats as oracle

SHORT = [BF16, F16]
DTYPES = [*SHORT, F32]
some = settings(max_examples=60, deadline=None, derandomize=True)


def available() -> list[str]:
    before = isa()
    names = [name for name in ("portable", "avx2", "avx512vnni", "neon", "neondot") if select_isa(name)]
    assert select_isa(before)
    return names


ISAS = available()


def same(got: Array, expected: Array, what: str = "") -> None:
    assert got.dtype == expected.dtype and got.shape == expected.shape
    nan = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan, what)
    bits = f"u{expected.itemsize}"
    np.testing.assert_array_equal(got.view(bits)[~nan], expected.view(bits)[~nan], what)


def everywhere(make: Callable[[], Callable[[int], Array]], expected: Array) -> None:
    before = isa()
    try:
        for name in ISAS:
            select_isa(name)
            run = make()
            for threads in (1, 2, 3):
                same(run(threads), expected, f"{name}, {threads} threads")
    finally:
        select_isa(before)


def values(rng: np.random.Generator, shape: Any, dtype: Any, style: str) -> Array:
    """Numbers as networks have them; or of any size; or any bits at all (`finite` ones, or with NaN and infinities)."""
    if style == "usual":
        return rng.normal(size=shape).astype(dtype)
    size = np.dtype(dtype).itemsize
    bits = np.asarray(rng.integers(0, 1 << (8 * size), shape, dtype=f"u{size}")).view(dtype)
    if style == "tiny":  # subnormals and their neighbours
        kept = {BF16: 0x80FF, F16: 0x87FF, F32: 0x80FFFFFF}[np.dtype(dtype)]
        bits = np.asarray(bits.view(f"u{size}") & kept).astype(f"u{size}").view(dtype)
    if style == "any":
        return bits
    return np.where(np.isfinite(bits.astype(np.float32)), bits, np.zeros((), dtype)).astype(dtype)


STYLES = st.sampled_from(["usual", "usual", "finite", "tiny", "any"])


@st.composite
def layers(draw: Any, transposed: bool) -> dict[str, Any]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from(DTYPES))
    style = draw(STYLES)
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    inputs, outputs = draw(st.integers(1, 6)), draw(st.integers(1, 40) if groups == 1 else st.integers(1, 5))
    if draw(st.integers(0, 3)) == 0:
        groups, inputs, outputs = draw(st.integers(2, 37)), 1, 1
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilations = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if transposed:
        pads = [draw(st.integers(0, (e - 1) // 2)) for e in extent] * 2
        size = [draw(st.integers(1, 3)) for _ in range(2)]
    else:
        pads = [draw(st.integers(0, 2)) for _ in range(4)]
        size = [max(1, e - pads[a] - pads[a + 2]) + draw(st.integers(0, 4)) for a, e in enumerate(extent)]
    shape = (groups * inputs, outputs, *kernel) if transposed else (groups * outputs, inputs, *kernel)
    weight = values(rng, shape, dtype, "finite" if style == "any" else style)
    bias = rng.normal(size=groups * outputs).astype(np.float32)
    if draw(st.integers(0, 3)) == 0:
        bias[:] = -0.0
    options = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}
    if transposed:
        options["output_padding"] = tuple(draw(st.integers(0, s - 1)) for s in strides)
    return {
        "x": values(rng, (draw(st.integers(1, 2)), *size, groups * inputs), dtype, style),
        "weight": weight,
        "bias": bias if draw(st.booleans()) else None,
        "relu": draw(st.booleans()),
        "limit": draw(st.sampled_from([0.0, 6.0])),
        "options": options,
    }


def check_layer(layer: dict[str, Any], transposed: bool) -> None:
    x, weight, bias, options = layer["x"], layer["weight"], layer["bias"], layer["options"]
    model = oracle.deconv if transposed else oracle.conv
    expected = model(x, weight, bias, relu=layer["relu"], limit=layer["limit"], **options)

    def make() -> Callable[[int], Array]:
        plan = floats.FloatConvPlan(
            weight, bias, transposed=transposed, relu=layer["relu"], relu_limit=layer["limit"], **options
        )
        return lambda threads: plan.run(x, threads)

    everywhere(make, expected)


@some
@given(layers(transposed=False))
def test_convolution(layer: dict[str, Any]) -> None:
    check_layer(layer, transposed=False)


@some
@given(layers(transposed=True))
def test_transposed_convolution(layer: dict[str, Any]) -> None:
    check_layer(layer, transposed=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_pixels_and_channels(dtype: Any) -> None:
    """More than a tile of rows, a block of pixels and a pair of panels."""
    rng = np.random.default_rng(3)
    x, weight = values(rng, (1, 21, 23, 40), dtype, "usual"), values(rng, (70, 40, 3, 3), dtype, "usual")
    expected = oracle.conv(x, weight, None, pads=(1, 1, 1, 1))
    plan = floats.FloatConvPlan(weight, pads=(1, 1, 1, 1))
    everywhere(lambda: lambda threads: plan.run(x, threads), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_sums_of_a_transposed_convolution(dtype: Any) -> None:
    """Long enough for their order to show."""
    rng = np.random.default_rng(4)
    x, weight = values(rng, (1, 4, 5, 48), dtype, "usual"), values(rng, (48, 17, 3, 3), dtype, "usual")
    options: dict[str, Any] = {"strides": (1, 2), "pads": (1, 1, 1, 1)}
    plan = floats.FloatConvPlan(weight, transposed=True, **options)
    expected = oracle.deconv(x, weight, None, **options)
    everywhere(lambda: lambda threads: plan.run(x, threads), expected)


@some
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(DTYPES),
    STYLES,
    st.tuples(st.integers(1, 30), st.integers(0, 20), st.integers(1, 40)),
    st.sampled_from([((), ()), ((2,), (1,)), ((3, 1), (2,)), ((), (2, 2))]),
    st.booleans(),
)
def test_products_of_activations(
    seed: int, dtype: Any, style: str, size: tuple[int, int, int], batches: Any, transpose: bool
) -> None:
    rng, (m, k, n) = np.random.default_rng(seed), size
    a = values(rng, (*batches[0], m, k), dtype, style)
    b = values(rng, (*batches[1], k, n), dtype, "finite" if style == "any" else style)
    bias = rng.normal(size=n).astype(np.float32) if seed % 2 else None
    stored = np.ascontiguousarray(b.swapaxes(-1, -2)) if transpose else b
    expected = oracle.matmul(a, b, bias)
    everywhere(
        lambda: lambda threads: floats.matmul(a, stored, bias, transpose_b=transpose, threads=threads),
        expected,
    )
    if b.ndim == 2 and k:
        plan = floats.FloatMatMulPlan(b, bias)
        everywhere(lambda: lambda threads: plan.run(a, threads), expected)


def test_the_order_of_a_sum_matters_and_is_kept() -> None:
    """1 + 2^-24 repeated is lost one by one, and would not be if they were added first."""
    x = np.array([1.0] + [2.0**-12] * 64).astype(F16).reshape(1, 1, 1, -1)
    weight = np.array([1.0] + [2.0**-12] * 64).astype(F16).reshape(1, -1, 1, 1)
    bias = np.float32([-1.0])
    assert floats.FloatConvPlan(weight, bias).run(x).item() == 2.0**-24 * 64
    late = floats.FloatConvPlan(weight).run(x).astype(np.float64) - 1
    assert late.item() == 0


@settings(max_examples=2000, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1), st.integers(-30, 30))
def test_a_step_of_the_model_is_a_fused_multiply_add(acc: int, x: int, w: int, near: int) -> None:
    """Also where exponents are close, and where the product is far outside of float32's own range."""
    a, b = np.array([x, w], np.uint16).view(BF16).astype(np.float32)
    c = np.uint32(acc).view(np.float32)
    if near:
        with np.errstate(all="ignore"):
            c = np.float32(a * b) * np.float32(2.0**near) * np.float32(1 + (acc & 0xFFFFFF) / 2**24)
    if not all(map(np.isfinite, (a, b, c))):
        return
    got = oracle.step(np.array(c), np.array(a), np.array(b))
    expected = oracle.round_exact(oracle.exact_step(float(c), float(a), float(b)))
    assert got == expected


@settings(max_examples=2000, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(-60, 60))
def test_a_step_of_f32_is_a_fused_multiply_add(acc: int, x: int, w: int, near: int) -> None:
    """Products of 48 bits: two roundings would differ from one."""
    a, b, c = np.array([x, w, acc], np.uint32).view(np.float32)
    if near:
        with np.errstate(all="ignore"):
            c = np.float32(a * b) * np.float32(2.0**near) * np.float32(1 + (acc & 0xFFFFFF) / 2**24)
    if not all(map(np.isfinite, (a, b, c))):
        return
    got = oracle.fused_step(np.array(c), np.array(a), np.array(b))
    expected = oracle.round_exact(oracle.exact_step(float(c), float(a), float(b)))
    assert got == expected


def test_f32_rounds_a_sum_once_on_every_instruction_set() -> None:
    """1 + 2^-23 + 2^-24 - 2^-70 lies below a midpoint; rounded to float64 first it is the midpoint, and goes up to even."""
    last = np.float32(2.0**-23)
    x = np.float32([1 + last, (1 + last) * 2.0**-24]).reshape(1, 1, 1, 2)
    weight = np.float32([1, 1 - last]).reshape(1, 2, 1, 1)
    everywhere(
        lambda: lambda threads: floats.FloatConvPlan(weight).run(x, threads),
        np.float32(1 + last).reshape(1, 1, 1, 1),
    )
    sums = np.concatenate(
        [x] * 40, -1
    )  # depthwise: one pixel, 80 channels of which each has one product and a bias
    plan = floats.FloatConvPlan(np.full((80, 1, 1, 1), 1 - last), np.full(80, 1 + last), groups=80)
    everywhere(
        lambda: lambda threads: plan.run(sums, threads),
        oracle.conv(sums, np.full((80, 1, 1, 1), 1 - last), np.full(80, 1 + last), groups=80),
    )


@pytest.mark.parametrize("dtype", SHORT)
def test_casts(dtype: Any) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    wide = bits.astype(np.float32)
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        reals = np.concatenate(
            [
                rng.integers(0, 1 << 32, 20_000, dtype=np.uint32).view(np.float32),
                wide,
                np.nextafter(wide, np.float32(np.inf)),
                np.nextafter(wide, np.float32(-np.inf)),
                (wide[:-1] + wide[1:]) / 2,  # ties
            ]
        )
        expected = reals.astype(dtype)
    before = isa()
    try:
        for name in ISAS:
            select_isa(name)
            np.testing.assert_array_equal(floats.cast(bits, np.float32), wide)
            for threads in (1, 2):
                got = floats.cast(reals, dtype, threads=threads)
                same(got, expected)
                nans = got.view(np.uint16)[np.isnan(reals)]
                assert set(nans.tolist()) == {0x7FC0 if dtype == BF16 else 0x7E00}
    finally:
        select_isa(before)


@some
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(DTYPES),
    STYLES,
    st.sampled_from(["add", "sub", "mul", "max", "min"]),
    st.sampled_from(
        [((3, 4), (3, 4)), ((2, 1, 5), (7, 1)), ((1,), (2, 3)), ((2, 3, 4, 17), (17,)), ((), (4,))]
    ),
    st.sampled_from([(False, 0.0), (True, 0.0), (True, 6.0)]),
)
def test_two_operands(seed: int, dtype: Any, style: str, operation: str, shapes: Any, relu: Any) -> None:
    rng = np.random.default_rng(seed)
    a, b = (values(rng, shape, dtype, style) for shape in shapes)
    with np.errstate(all="ignore"):
        x, y = a.astype(np.float32), b.astype(np.float32)
        computed: dict[str, Any] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
        computed |= {"max": oracle.total_order_max, "min": oracle.total_order_min}
        sums = computed[operation](x, y)
    expected = oracle.finish(np.asarray(sums, np.float32), dtype, *relu)
    everywhere(
        lambda: (
            lambda threads: floats.binary(operation, a, b, relu=relu[0], relu_limit=relu[1], threads=threads)
        ),
        expected,
    )


@some
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(DTYPES),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.integers(0, 1),
    st.booleans(),
)
def test_pools(seed: int, dtype: Any, kernel: Any, strides: Any, pad: int, include: bool) -> None:
    rng = np.random.default_rng(seed)
    x = values(rng, (2, 6, 5, 19), dtype, "usual")
    pads = tuple(min(pad, k - 1) for k in kernel)
    out = tuple(
        (size + 2 * p - k) // s + 1 for size, p, k, s in zip((6, 5), pads, kernel, strides, strict=True)
    )
    expected = oracle.average_pool(x, kernel, strides, pads, out, include)
    everywhere(
        lambda: (
            lambda n: floats.average_pool(x, kernel, strides, pads, out, include_pad=include, threads=n)  # type: ignore[arg-type]
        ),
        expected,
    )
    padded = np.pad(x, ((0, 0), (pads[0],) * 2, (pads[1],) * 2, (0, 0)), constant_values=-np.inf)
    largest = np.stack(
        [
            padded[
                :,
                ky : ky + (out[0] - 1) * strides[0] + 1 : strides[0],
                kx : kx + (out[1] - 1) * strides[1] + 1 : strides[1],
            ].astype(np.float32)
            for ky in range(kernel[0])
            for kx in range(kernel[1])
        ]
    ).max(axis=0)
    everywhere(
        lambda: lambda n: floats.largest_pool(x, kernel, strides, pads, out, threads=n),  # type: ignore[arg-type]
        largest.astype(dtype),
    )


@pytest.mark.parametrize("dtype", SHORT)
def test_tables_are_rounded_once(dtype: Any) -> None:
    """Rounding a float64 to float32 first would put some of these on the wrong side of a tie."""
    tie = np.float64(1) + np.float64(2.0) ** (-8 if dtype == BF16 else -11)
    above = tie + 2.0**-40
    unit = 2.0 ** (-7 if dtype == BF16 else -10)
    found = round_once(np.array([tie, above, -above, np.nan, np.inf, 1e300]), dtype).astype(np.float64)
    np.testing.assert_array_equal(found, [1.0, 1 + unit, -1 - unit, np.nan, np.inf, np.inf])
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    with np.errstate(all="ignore"):
        table = round_once(np.tanh(x.astype(np.float64)), dtype)
    everywhere(lambda: lambda threads: floats.lookup(x, table, threads=threads), table)


def test_onnx_runtime_agrees_within_its_own_rounding() -> None:
    """Another implementation, in float32 and in an order of its own."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(1, 24, 9, 9)).astype(BF16)
    w = rng.normal(size=(20, 12, 3, 3)).astype(BF16)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], strides=[2, 1], group=2)
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("x", "w", "y")]
    graph = helper.make_graph([node], "g", infos[:2], infos[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": x.astype(np.float32), "w": w.astype(np.float32)})[0]
    plan = floats.FloatConvPlan(w, pads=(1, 1, 1, 1), strides=(2, 1), groups=2)
    got = plan.run(np.ascontiguousarray(x.transpose(0, 2, 3, 1))).transpose(0, 3, 1, 2).astype(np.float32)
    np.testing.assert_allclose(got, expected, rtol=2.0**-8, atol=1e-4)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="makes no sense"):
        floats.FloatConvPlan(np.full((1, 1, 1, 1), np.inf, F16))
    with pytest.raises(ValueError, match="no convolution"):
        floats.FloatConvPlan(np.ones((3, 1, 1, 1), F16), groups=2)
    with pytest.raises(ValueError, match="bfloat16 or float16"):
        floats.FloatConvPlan(np.ones((1, 1, 1, 1), np.float64))
    plan = floats.FloatConvPlan(np.ones((1, 2, 1, 1), F16))
    with pytest.raises(ValueError, match="prepared for float16"):
        plan.run(np.ones((1, 1, 1, 2), BF16))
    with pytest.raises(ValueError, match="3 channels"):
        plan.run(np.ones((1, 1, 1, 3), F16))
    with pytest.raises(ValueError, match="have no product"):
        floats.matmul(np.ones((2, 3), F16), np.ones((2, 3), F16))


# --- block floating point ------------------------------------------------------------------------------------------------


def held(x: Array, kind: str, threads: int = 1) -> Array:
    """What packed blocks of rows hold."""
    packed = pack(x, kind, threads=threads)
    assert packed.shape == (*x.shape[:-1], -(-x.shape[-1] // 16) * {"mx6": 12, "mx9": 18}[kind])
    return unpack(packed, kind, x.shape[-1], threads=threads)


@pytest.mark.parametrize("kind", ["mx6", "mx9"])
@some
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.sampled_from(["usual", "spread", "bits"]))
def test_block_rounding(kind: str, seed: int, length: int, style: str) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(3, length)).astype(np.float32)
    if style == "spread":
        x *= (2.0 ** rng.integers(-12, 12, x.shape)).astype(np.float32)
    if style == "bits":
        x = rng.integers(0, 1 << 32, x.shape, dtype=np.uint32).view(np.float32)
        x = np.where(np.isfinite(x), x, 0).astype(np.float32)
    expected = np.array([oracle.block_round(row, kind) for row in x]).astype(np.float32)
    np.testing.assert_array_equal(held(x, kind, 1 + seed % 2), expected)
    if style == "usual":  # also of shorter floats
        short = x.astype(BF16)
        rounded = [oracle.block_round(row, kind) for row in short.astype(np.float32)]
        np.testing.assert_array_equal(unpack(pack(short, kind), kind, length), np.float32(rounded))


def test_block_rounding_is_that_of_quark() -> None:
    """Outputs that AMD's Quark publishes in its tests, for rows of four: 30 and 60 are ties of 4-bit magnitudes."""
    x = np.float32(
        [[10, 20, 30, 40], [20, 40, 60, 80], [30, 60, 90, 120], [110, 120, 130, 140], [130, 160, 190, 220]]
    )
    mx6 = [[10, 20, 32, 40], [20, 40, 64, 80], [32, 60, 88, 120], [112, 120, 128, 144], [128, 160, 192, 224]]
    np.testing.assert_array_equal(held(x, "mx6"), np.float32(mx6))
    np.testing.assert_array_equal(held(x, "mx9"), x)


def test_a_block_of_what_is_not_finite_is_read_as_nan() -> None:
    x = np.ones((4, 20), np.float32)
    x[0, 3], x[1, 15], x[2, 16] = np.nan, np.inf, -np.inf
    expected = np.ones((4, 20), np.float32)
    expected[0, :16] = expected[1, :16] = expected[2, 16:] = np.nan
    np.testing.assert_array_equal(held(x, "mx9"), expected)


def test_packed_blocks_have_the_layout_of_the_contract() -> None:
    """1.5 and -0.75 at exponent 0 in the first pair, nothing in the others, whose exponent is lowered."""
    (packed,) = pack(np.float32([[1.5, -0.75]]), "mx9")
    assert packed.tolist() == [127, 0b11111110, 96, 0x80 | 48, *[0] * 14]
    (packed,) = pack(np.float32([[1.5, -0.75]]), "mx6")
    assert packed.tolist() == [127, 0b11111110, 12 | (0x10 | 6) << 5 & 0xFF, (0x10 | 6) << 5 >> 8, *[0] * 8]
