"""Every instruction against graph mode's kernel on random operands, and pieces against the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.arithmetic.requantization import AddScaling
from npuc.arrays import Array
from npuc.errors import SimulationError
from npuc.kernels import (
    ConvPlan,
    Requant,
    eltwise,
    matmul,
    normalization,
    pooling,
    reduction,
    resampling,
    tables,
)
from npuc.kernels import softmax as softmaxes
from npuc.program.isa import COMPRESSED, KINDS, NONE
from npuc.schedule.compression import encode
from npuc.sim import Simulator
from support.programs.instructions import CODES, Draft, machine

SETTINGS = settings(deadline=None, derandomize=True, max_examples=25)
INTEGERS = (np.int8, np.uint8, np.int16)


def drawn(rng: np.random.Generator, shape: Any, dtype: Any) -> Array:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def stage(rng: np.random.Generator, kind: str, count: int, dtype: Any, zero: int, size: int = 30) -> Requant:
    """A stage that brings sums of about 2^size to the range of the type."""
    limits = np.iinfo(dtype)
    bits = max(1, size - np.dtype(dtype).itemsize * 8)
    options: dict[str, Any] = {"zero_point": zero, "lo": limits.min, "hi": limits.max}
    if kind == "float_scale":
        return Requant(kind, scale=rng.uniform(0.5, 2, count).astype(np.float32) / 2.0**bits, **options)
    if kind == "pow2":
        return Requant(kind, shift=rng.integers(bits - 1, bits + 2, count).astype(np.int32), **options)
    return Requant(
        kind,
        multiplier=rng.integers(1 << 30, (1 << 31) - 1, count).astype(np.int32),
        shift=rng.integers(bits + 30, bits + 32, count).astype(np.int32),
        **options,
    )


def window(x: Array, out: Any, kernel: Any, stride: Any, dilation: Any, pad: Any) -> dict[str, Any]:
    n, h, w, c = x.shape
    return {
        "n": n, "h": h, "w": w, "c": c, "out_h": out[0], "out_w": out[1], "kernel": kernel, "stride": stride,
        "dilation": dilation, "pad": pad,
    }  # fmt: skip


@st.composite
def convolutions(draw: Any) -> dict[str, Any]:
    groups = draw(st.sampled_from((1, 1, 2, 4)))
    depthwise = groups > 1 and draw(st.booleans())
    return {
        "seed": draw(st.integers(0, 2**32 - 1)),
        "x_dtype": draw(st.sampled_from(INTEGERS)),
        "y_dtype": draw(st.sampled_from(INTEGERS)),
        "w_dtype": draw(st.sampled_from(("i8", "u8", "i4", "i16"))),
        "groups": groups,
        "channels": groups if depthwise else groups * draw(st.integers(1, 5)),
        "outputs": groups if depthwise else groups * draw(st.integers(1, 9)),
        "kernel": (draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        "stride": (draw(st.integers(1, 2)), draw(st.integers(1, 2))),
        "dilation": (draw(st.integers(1, 2)), draw(st.integers(1, 2))),
        "pad": (draw(st.integers(0, 2)), draw(st.integers(0, 2))),
        "size": (draw(st.integers(5, 9)), draw(st.integers(5, 9))),
        "kind": draw(st.sampled_from(KINDS)),
        "per_channel": draw(st.booleans()),
        "bias": draw(st.booleans()),
        "beside": draw(st.integers(0, 3)),
        "table": draw(st.booleans()),
        "transposed": draw(st.booleans()),
        "constant": draw(st.booleans()),
    }


class ConvCase:
    """A drawn convolution: its graph-mode result, and its instruction over any rows."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        rng = np.random.default_rng(case["seed"])
        self.x = drawn(rng, (1, *case["size"], case["channels"]), case["x_dtype"])
        shape = (case["outputs"], case["channels"] // case["groups"], *case["kernel"])
        if case["w_dtype"] == "i4":
            self.w = rng.integers(-8, 8, shape).astype(np.int8)
            flat = np.append(self.w.reshape(-1), 0) & 15
            self.stored = (flat[: flat.size // 2 * 2 : 2] | flat[1 : flat.size // 2 * 2 : 2] << 4).astype(
                np.uint8
            )
        else:
            self.w = drawn(rng, shape, {"i8": np.int8, "u8": np.uint8, "i16": np.int16}[case["w_dtype"]])
            self.stored = self.w
        self.w_zero = int(rng.integers(0, 256)) if case["w_dtype"] == "u8" else 0
        self.x_zero = int(drawn(rng, (), case["x_dtype"]))
        self.b = rng.integers(-(2**20), 2**20, case["outputs"]) if case["bias"] else None
        count = case["outputs"] if case["per_channel"] else 1
        zero = int(drawn(rng, (), case["y_dtype"]))
        size = 8 * (self.x.dtype.itemsize + self.stored.dtype.itemsize) + 3
        self.rq = stage(rng, case["kind"], count, case["y_dtype"], zero, size)
        transposed = case["transposed"]
        weight = self.w
        if transposed:  # ONNX's order
            g = case["groups"]
            o, i = case["outputs"] // g, case["channels"] // g
            weight = (
                self.w.reshape(g, o, i, *case["kernel"]).swapaxes(1, 2).reshape(g * i, o, *case["kernel"])
            )
        pad = case["pad"]
        self.plan = ConvPlan(
            weight, self.b, x_dtype=case["x_dtype"], y_dtype=case["y_dtype"], requant=self.rq, x_zero_point=self.x_zero,
            weight_zero_point=self.w_zero, strides=case["stride"], pads=(*pad, *pad), dilations=case["dilation"],
            groups=case["groups"], transposed=transposed,
        )  # fmt: skip
        y = self.plan.run(self.x)
        self.table = None
        if case["table"]:
            wide = y.dtype == np.int16
            kind = np.int16 if wide else (np.int8, np.int16)[case["seed"] % 2]
            self.table = drawn(rng, 513 if wide else 256, kind)
            y = (tables.lookup16 if wide else tables.lookup8)(y, self.table)
        self.y = y

    def emit(self, d: Draft, x: Array, pad_top: int, out_h: int, y: int) -> None:
        case, constant = self.case, self.case["constant"]
        wide = self.plan.wide
        bias = NONE if self.b is None else d.put(self.b.astype(np.int64 if wide else np.int32), constant)
        d.emit(
            "conv", x=d.put(x), x_dtype=CODES[x.dtype], x_zero_point=self.x_zero,
            **window(x, (out_h, self.y.shape[2]), case["kernel"], case["stride"], case["dilation"], (pad_top, case["pad"][1])),
            weight=d.put(self.stored, constant), w_dtype={"i8": 0, "u8": 1, "i16": 2, "i4": 4}[case["w_dtype"]],
            w_zero_point=self.w_zero, bias=bias, wide=int(wide), transposed=case["transposed"], groups=case["groups"],
            out_c=case["outputs"], y=y, y_dtype=CODES[self.y.dtype], y_stride=case["outputs"] + case["beside"],
            table=NONE if self.table is None else d.put(self.table, constant), s_dtype=CODES[np.dtype(case["y_dtype"])],
            **d.stage(self.rq, constant),
        )  # fmt: skip

    @property
    def pixel(self) -> int:
        return (self.case["outputs"] + self.case["beside"]) * self.y.dtype.itemsize


def conv_case(case: dict[str, Any]) -> ConvCase | None:
    try:
        made = ConvCase(case)
    except ValueError:  # sums too large for the kind `double_rounding`
        return None
    return made if made.y.size else None


@settings(SETTINGS, max_examples=150)
@given(convolutions())
def test_a_convolution_equals_graph_mode(case: dict[str, Any]) -> None:
    made = conv_case(case)
    if made is None:
        return
    d = Draft()
    n, h, w, _ = made.y.shape
    y = d.room(h * w * made.pixel)
    d.emit("fill", y=y, bytes=1, count=h * w * made.pixel, value=77)
    made.emit(d, made.x, case["pad"][0], h, y)
    d.fetch(y, (n, h, w, case["outputs"] + case["beside"]), made.y.dtype)
    (got,) = d.run(threads=1 + case["seed"] % 2)
    np.testing.assert_array_equal(got[..., : case["outputs"]], made.y)
    assert (got[..., case["outputs"] :].view(np.uint8) == 77).all()


@settings(SETTINGS, max_examples=60)
@given(convolutions(), st.integers(1, 3))
def test_rows_of_a_convolution_equal_the_whole(case: dict[str, Any], rows: int) -> None:
    made = conv_case(case | {"transposed": False})
    if made is None:
        return
    d = Draft(machine("256KiB"))
    _, h, w, _ = made.y.shape
    y = d.room(h * w * made.pixel)
    (kernel, _), (stride, _), (dilation, _), (pad, _) = (
        case[k] for k in ("kernel", "stride", "dilation", "pad")
    )
    for first in range(0, h, rows):
        last = min(first + rows, h)
        top = first * stride - pad
        bottom = (last - 1) * stride - pad + (kernel - 1) * dilation + 1
        low, high = min(max(top, 0), made.x.shape[1] - 1), max(1, min(bottom, made.x.shape[1]))
        made.emit(d, made.x[:, low:high], low - top, last - first, y + first * w * made.pixel)
    d.fetch(y, (1, h, w, case["outputs"] + case["beside"]), made.y.dtype)
    np.testing.assert_array_equal(d.run()[0][..., : case["outputs"]], made.y)


@pytest.mark.parametrize(("first", "count"), [(0, 4), (6, 3), (11, 4), (13, 9), (0, 15)])
def test_prepared_weights_follow_the_constants_and_not_the_address(first: int, count: int) -> None:
    """Three layers at one address, the third with some bytes of the second written over; run twice."""
    rng = np.random.default_rng(1)
    x = drawn(rng, (1, 2, 2, 3), np.int8)
    rq = stage(rng, "single_rounding", 1, np.int8, 0, 14)
    d = Draft()
    at, fields, place = d.put(x), d.stage(rq, True), d.room(64)
    wanted = []
    for layer in range(3):
        if layer < 2:
            w = rng.integers(-20, 20, (5, 3, 1, 1)).astype(np.int8)
            offset = len(d.constants)
            d.constants.extend(w.tobytes() + bytes(1))
        d.load(0, offset, place, w.size)
        if layer == 2:
            d.emit("fill", y=place + first, bytes=1, count=count, value=90)
            w = w.copy()
            w.reshape(-1)[first : first + count] = 90
        y = d.room(2 * 2 * 5)
        d.emit(
            "conv", x=at, x_dtype=0, **window(x, (2, 2), (1, 1), (1, 1), (1, 1), (0, 0)), weight=place, bias=NONE,
            groups=1, out_c=5, y=y, y_stride=5, table=NONE, **fields,
        )  # fmt: skip
        d.fetch(y, (1, 2, 2, 5), np.int8)
        wanted.append(ConvPlan(w, x_dtype=np.int8, y_dtype=np.int8, requant=rq).run(x))
    assert not np.array_equal(wanted[1], wanted[2])
    simulator = Simulator(d.compiled())
    for _ in range(2):
        for got, right in zip(simulator.run(d.arrays()).values(), wanted, strict=True):
            np.testing.assert_array_equal(got, right)


@SETTINGS
@given(st.data())
def test_a_matmul_equals_graph_mode(data: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    a_type, b_type, y_type = (data.draw(st.sampled_from(INTEGERS)) for _ in range(3))
    batch, m, k, n = (data.draw(st.integers(1, 4)) for _ in range(4))
    shared, transposed = data.draw(st.booleans()), data.draw(st.booleans())
    a, b = drawn(rng, (batch, m, k), a_type), drawn(rng, (1 if shared else batch, k, n), b_type)
    b = np.ascontiguousarray(b.swapaxes(1, 2)) if transposed else b
    za, zb, zy = (int(drawn(rng, (), t)) for t in (a_type, b_type, y_type))
    wide = a_type == b_type == np.int16
    kind = data.draw(st.sampled_from([kind for kind in KINDS if not (wide and kind == "double_rounding")]))
    rq = stage(rng, kind, n if data.draw(st.booleans()) else 1, y_type, zy, 8 * (a.itemsize + b.itemsize))
    try:
        right = matmul(a, b, rq, a_zero_point=za, b_zero_point=zb, y_dtype=y_type, transpose_b=transposed)
    except ValueError:
        return
    d = Draft()
    y = d.room(right.nbytes)
    largest = k * max(za - np.iinfo(a_type).min, np.iinfo(a_type).max - za)
    d.emit(
        "matmul", x=d.put(a), x_dtype=CODES[a.dtype], x_zero_point=za, b=d.put(b), b_dtype=CODES[b.dtype], b_zero_point=zb,
        batch=batch, m=m, k=k, cols=n, a_step=m * k, b_step=0 if shared else k * n, transposed_b=transposed,
        wide=largest * max(zb - np.iinfo(b_type).min, np.iinfo(b_type).max - zb) >= 2**31,
        y=y, y_dtype=CODES[right.dtype], **d.stage(rq),
    )  # fmt: skip
    d.fetch(y, right.shape, right.dtype)
    np.testing.assert_array_equal(d.run()[0], right)


def broadcast(rng: np.random.Generator, data: Any, shape: Any, dtype: Any) -> tuple[Array, list[int]]:
    kept = [size if data.draw(st.booleans()) else 1 for size in shape]
    array = drawn(rng, kept, dtype)
    strides = [s // array.itemsize for s in np.broadcast_to(array, shape).strides]
    return array, strides


@settings(SETTINGS, max_examples=60)
@given(st.data())
def test_two_operands_equal_graph_mode(data: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    shape = tuple(data.draw(st.integers(1, 5)) for _ in range(4))
    name = data.draw(st.sampled_from(("add", "mul", "minmax")))
    a_type, b_type, y_type = (data.draw(st.sampled_from(INTEGERS)) for _ in range(3))
    if name == "minmax":
        b_type = y_type = a_type
    (a, a_stride), (b, b_stride) = broadcast(rng, data, shape, a_type), broadcast(rng, data, shape, b_type)
    za, zb, zy = (int(drawn(rng, (), t)) for t in (a_type, b_type, y_type))
    limits = np.iinfo(y_type)
    lo, hi = sorted(int(v) for v in drawn(rng, 2, y_type))
    d = Draft()
    fields: dict[str, Any] = {"size": shape, "a_stride": a_stride, "b_stride": b_stride}
    if name == "add":
        subtract = data.draw(st.booleans())
        kind = data.draw(
            st.sampled_from(("single_rounding", "single_even", "double_rounding", "float_scale", "pow2"))
        )
        left = 20 - 8 * (max(a.itemsize, b.itemsize) - 1)
        scaling = {
            "double_rounding": AddScaling(kind, left, 1 << 30, 31, 3 << 29, 32, 1 << 30, 31 + left),
            "float_scale": AddScaling(kind, 0, 0, 0, 0, 0, 0, 0, 0.75, 0.25),
            "pow2": AddScaling(kind, 0, 0, 2, 0, 1, 0, 3),
        }.get(kind, AddScaling(kind, 0, 1 << 14, 0, 3 << 13, 0, 0, 15))
        right = eltwise.add(
            a, b, scaling, zero_a=za, zero_b=zb, zero_point=zy, lo=lo, hi=hi, dtype=y_type, subtract=subtract
        )  # fmt: skip
        s = scaling
        multipliers = [s.multiplier_a, s.multiplier_b, s.multiplier]
        if kind == "float_scale":
            multipliers = [*np.array([0.75, 0.25], np.float32).view(np.int32), 0]
        fields |= {
            "b_dtype": CODES[b.dtype], "b_zero_point": zb, "kind": KINDS.index(kind), "subtract": subtract, "left": s.left,
            "multiplier": multipliers, "shift": [s.shift_a, s.shift_b, s.shift], "zero_point": zy, "lo": lo, "hi": hi,
        }  # fmt: skip
    elif name == "mul":
        rq = stage(
            rng,
            data.draw(st.sampled_from(("single_rounding", "float_scale", "pow2"))),
            1,
            y_type,
            zy,
            8 * (a.itemsize + b.itemsize),
        )
        right = eltwise.mul(a, b, rq, zero_a=za, zero_b=zb, dtype=y_type)
        fields |= {"b_dtype": CODES[b.dtype], "b_zero_point": zb, **d.stage(rq)}
    else:
        larger = data.draw(st.booleans())
        right = (eltwise.maximum if larger else eltwise.minimum)(a, b, lo=lo, hi=hi)
        fields |= {"larger": larger, "lo": lo, "hi": hi}
    assert limits.min <= right.min()
    right = np.broadcast_to(right, shape)  # an axis along which neither operand moves is repeated
    at_a, at_b = d.put(a), d.put(b)
    in_place = a.shape == right.shape and a.dtype == right.dtype and data.draw(st.booleans())
    y = at_a if in_place else d.room(right.size * right.itemsize)
    d.emit(
        name, x=at_a, x_dtype=CODES[a.dtype], x_zero_point=za, b=at_b, y=y, y_dtype=CODES[right.dtype], **fields
    )  # fmt: skip
    d.fetch(y, shape, right.dtype)
    np.testing.assert_array_equal(d.run()[0], right)


@SETTINGS
@given(st.data())
def test_requant_and_tables_equal_graph_mode(data: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    x_type, y_type = (data.draw(st.sampled_from(INTEGERS)) for _ in range(2))
    outer, channels, inner = (data.draw(st.integers(1, 6)) for _ in range(3))
    x = drawn(rng, (outer, channels, inner), x_type)
    zero, zy = int(drawn(rng, (), x_type)), int(drawn(rng, (), y_type))
    d = Draft()
    at = d.put(x)
    operand = {"x": at, "x_dtype": CODES[x.dtype], "x_zero_point": zero}
    rq = stage(
        rng,
        data.draw(st.sampled_from(("single_rounding", "float_scale", "pow2", "double_rounding"))),
        1,
        y_type,
        zy,
        8 * x.itemsize,
    )
    right = [eltwise.requant(x, rq, zero_point=zero, dtype=y_type)]
    y = d.room(right[0].nbytes)
    d.emit("requant", **operand, elements=x.size, y=y, y_dtype=CODES[right[0].dtype], **d.stage(rq))
    d.fetch(y, x.shape, right[0].dtype)

    y_type = np.dtype(np.int16 if x_type == np.int16 else y_type)
    entries = drawn(rng, (channels, 513 if x_type == np.int16 else 256), y_type)
    one = (tables.lookup16 if x_type == np.int16 else tables.lookup8)(x, entries[0])
    each = (
        np.stack([tables.lookup16(x[:, c], entries[c]) for c in range(channels)], axis=1)
        if x_type == np.int16
        else tables.lookup8_by_channel(x, entries, 1)
    )
    table = d.put(entries)
    for found, sizes in ((one, (outer * channels, 1, inner)), (each, (outer, channels, inner))):
        y = at if found is each and y_type == x.dtype else d.room(found.nbytes)
        d.emit(
            "table", **operand, table=table, y=y, y_dtype=CODES[y_type],
            **dict(zip(("outer", "channels", "inner"), sizes, strict=True)),
        )  # fmt: skip
        d.fetch(y, x.shape, y_type)
        right.append(found)
    for got, wanted in zip(d.run(), right, strict=True):
        np.testing.assert_array_equal(got, wanted)


@SETTINGS
@given(st.data())
def test_pools_equal_graph_mode_whole_and_by_rows(data: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    x_type = data.draw(st.sampled_from(INTEGERS))
    h, w, c = (data.draw(st.integers(4, 8)) for _ in range(3))
    kernel, stride = (tuple(data.draw(st.integers(1, 3)) for _ in range(2)) for _ in range(2))
    pad = tuple(data.draw(st.integers(0, k - 1)) for k in kernel)
    out = tuple((s + 2 * p - k) // t + 1 for s, p, k, t in zip((h, w), pad, kernel, stride, strict=True))
    x = drawn(rng, (1, h, w, c), x_type)
    zero = int(drawn(rng, (), x_type))
    include = data.draw(st.booleans())
    kind = data.draw(st.sampled_from(("double_rounding", "single_rounding", "pow2", "float_scale")))
    rq = stage(rng, kind, kernel[0] * kernel[1], x_type, zero, 8 * x.itemsize + 2)
    wanted = {
        "max_pool": pooling.max_pool(x, kernel, stride, pad, out),
        "avg_pool": pooling.average_pool(
            x, kernel, stride, pad, out, rq, zero_point=zero, include_pad=include
        ),
    }
    d = Draft()
    fields = d.stage(rq)
    for name, right in wanted.items():
        more = fields | {"include_pad": include} if name == "avg_pool" else {}
        for rows in (out[0], 1):
            y = d.room(right.nbytes)
            for first in range(0, out[0], rows):
                top = first * stride[0] - pad[0]
                low, high = max(top, 0), min((first + rows - 1) * stride[0] - pad[0] + kernel[0], h)
                piece = x[:, low:high]
                d.emit(
                    name, x=d.put(piece), x_dtype=CODES[x.dtype], x_zero_point=zero,
                    **window(piece, (rows, out[1]), kernel, stride, (1, 1), (low - top, pad[1])),
                    y=y + first * out[1] * c * x.itemsize, y_dtype=CODES[x.dtype], **more,
                )  # fmt: skip
            d.fetch(y, right.shape, right.dtype)
    got = d.run()
    for i, right in enumerate(right for right in wanted.values() for _ in range(2)):
        np.testing.assert_array_equal(got[i], right)


@SETTINGS
@given(st.data())
def test_reductions_equal_graph_mode(data: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    x = drawn(rng, [data.draw(st.integers(1, 6)) for _ in range(3)], data.draw(st.sampled_from(INTEGERS)))
    zero = int(drawn(rng, (), x.dtype))
    rq = stage(
        rng,
        data.draw(st.sampled_from(("single_rounding", "float_scale", "pow2"))),
        1,
        x.dtype,
        zero,
        8 * x.itemsize + 2,
    )
    last = data.draw(st.booleans())
    wanted = [
        reduction.reduce_sum(x, rq, 1, zero_point=zero),
        reduction.reduce_max(x, 1),
        reduction.reduce_min(x, 1),
        reduction.argmax(x, 1, last=last),
        reduction.argmin(x, 1, last=last).astype(np.int32),
    ]
    d = Draft()
    at, fields = d.put(x), d.stage(rq)
    for mode, right in enumerate(wanted):
        y = d.room(right.nbytes)
        d.emit(
            "reduce", x=at, x_dtype=CODES[x.dtype], x_zero_point=zero, mode=mode, last=last,
            **dict(zip(("outer", "reduced", "inner"), x.shape, strict=True)), y=y, y_dtype=CODES[right.dtype], **fields,
        )  # fmt: skip
        d.fetch(y, right.shape, right.dtype)
    for got, right in zip(d.run(), wanted, strict=True):
        np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("kind", ["single_rounding", "single_even", "double_rounding"])
@pytest.mark.parametrize("x_type", INTEGERS)
def test_a_softmax_equals_graph_mode(kind: str, x_type: Any) -> None:
    x = drawn(np.random.default_rng(3), (5, 11), x_type)
    scale = 1 / 32768 if x_type == np.int16 else 1 / 256
    zero = 0 if x_type == np.int16 else int(np.iinfo(x_type).min)
    p = softmaxes.softmax_parameters(kind, 0.001 if x_type == np.int16 else 0.1, scale, zero, x_type, x_type)
    lo, hi = zero + 3, zero + 90
    right = softmaxes.softmax(x, p, lo=lo, hi=hi)
    d = Draft()
    form = 0 if kind != "double_rounding" else 2 if x_type == np.int16 else 1
    tables_ = [NONE, NONE]
    if form != 1:
        tables_ = [
            d.put(np.array(t, np.int16 if form else np.uint32).view(np.int16 if form else np.int32))
            for t in p.tables
        ]
    y = d.room(right.nbytes)
    d.emit(
        "softmax", x=d.put(x), x_dtype=CODES[x.dtype], rows=5, width=11, form=form, coarse=tables_[0], fine=tables_[1],
        multiplier=p.multiplier, shift=p.left if form == 1 else p.shift, diff_min=p.diff_min,
        rounding=1 if kind == "single_even" else 2, y=y, y_dtype=CODES[x.dtype], zero_point=zero, lo=lo, hi=hi,
    )  # fmt: skip
    d.fetch(y, right.shape, right.dtype)
    np.testing.assert_array_equal(d.run()[0], right)


@pytest.mark.parametrize("x_type", INTEGERS)
def test_norms_equal_graph_mode(x_type: Any) -> None:
    rng = np.random.default_rng(4)
    x = drawn(rng, (4, 10), x_type)
    p = normalization.norm_parameters(
        "single_rounding", 0.05, 0.02, rng.uniform(-1, 1, 10), rng.uniform(-1, 1, 10), 10
    )
    zero = int(drawn(rng, (), x_type))
    limits = np.iinfo(x_type)
    wanted = [
        normalization.layer_norm(x, p, zero_x=zero, zero_point=zero),
        normalization.rms_norm(x, p, zero_x=zero, zero_point=zero),
    ]
    if x_type != np.int16:
        wanted.append(normalization.l2_norm_tflite(x, zero_x=zero))
    d = Draft()
    at, gain, bias = d.put(x), d.put(p.gain), d.put(p.bias)
    for i, right in enumerate(wanted):
        y = d.room(right.nbytes)
        d.emit(
            "norm", x=at, x_dtype=CODES[x.dtype], x_zero_point=zero, rows=4, width=10, form=int(i == 2), center=int(i == 0),
            epsilon=p.epsilon, row_modulus=1, row_factor=0, column_divisor=1, entries=10, gain=gain, bias=bias, shift=p.shift,
            rounding=2, y=y, y_dtype=CODES[x.dtype], zero_point=zero, lo=limits.min, hi=limits.max,
        )  # fmt: skip
        d.fetch(y, right.shape, right.dtype)
    for got, right in zip(d.run(), wanted, strict=True):
        np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("kind", ["single_rounding", "single_even", "double_rounding"])
@pytest.mark.parametrize("x_type", INTEGERS)
def test_a_resize_equals_graph_mode(kind: str, x_type: Any) -> None:
    x = drawn(np.random.default_rng(5), (1, 4, 5, 3), x_type)
    rows, columns = resampling.interpolation(kind, 4, 7), resampling.interpolation(kind, 5, 9)
    right = resampling.resize_bilinear(x, rows, columns, kind)
    d = Draft()
    y = d.room(right.nbytes)
    places = [d.put(np.concatenate([t.low, t.high, t.weight]).astype(np.int32)) for t in (rows, columns)]
    d.emit(
        "resize", x=d.put(x), x_dtype=CODES[x.dtype], n=1, h=4, w=5, c=3, out_h=7, out_w=9, rows=places[0],
        columns=places[1], bits=rows.bits, rounding={"double_rounding": 0, "single_even": 1}.get(kind, 2),
        y=y, y_dtype=CODES[x.dtype],
    )  # fmt: skip
    d.fetch(y, right.shape, right.dtype)
    np.testing.assert_array_equal(d.run()[0], right)


@SETTINGS
@given(st.data())
def test_copy_fill_and_gather(data: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    kind = data.draw(st.sampled_from((np.int8, np.int16, np.int32, np.int64)))
    shape = tuple(data.draw(st.integers(1, 4)) for _ in range(6))
    axes = tuple(data.draw(st.permutations(range(6))))
    x = rng.integers(-100, 100, shape).astype(kind)
    moved = x.transpose(axes)
    d = Draft()
    at, y, filled = d.put(x), d.room(x.nbytes), d.room(5 * x.itemsize)
    strides = [s // x.itemsize for s in moved.strides]
    dense = [s // x.itemsize for s in np.ascontiguousarray(moved).strides]
    d.emit("copy", x=at, y=y, bytes=x.itemsize, size=moved.shape, x_stride=strides, y_stride=dense)
    d.emit("fill", y=filled, bytes=x.itemsize, count=5, value=-3)
    index = rng.integers(0, shape[2], 7).astype(np.int32)
    inner, outer = int(np.prod(shape[3:])), int(np.prod(shape[:2]))
    gathered = d.room(outer * 7 * inner * x.itemsize)
    d.emit(
        "gather", x=at, y=gathered, index=d.put(index), bytes=x.itemsize, outer=outer, x_size=shape[2], y_size=7,
        inner=inner,
    )  # fmt: skip
    d.fetch(y, moved.shape, kind)
    d.fetch(filled, (5,), kind)
    d.fetch(gathered, (*shape[:2], 7, *shape[3:]), kind)
    d.emit(
        "copy", x=at, y=at, bytes=x.itemsize, size=moved.shape, x_stride=strides, y_stride=dense
    )  # reads all first
    d.fetch(at, moved.shape, kind)
    got = d.run()
    for found, right in zip(got, (moved, np.full(5, -3, kind), x[:, :, index], moved), strict=True):
        np.testing.assert_array_equal(found, right)


def test_transfers_move_blocks_of_four_axes() -> None:
    rng = np.random.default_rng(6)
    x = rng.integers(-100, 100, (3, 4, 5, 6)).astype(np.int8)
    d = Draft()
    d.put(x)
    y = d.room(x.size)
    part = x[1:, 1:3, ::2, 2:5]  # 2 x 2 x 3 x 3
    d.emit(
        "load", segment=2, offset=1 * 120 + 1 * 30 + 2, local=y, size=part.shape, far_stride=part.strides[:3],
        near_stride=(18, 9, 3),
    )  # fmt: skip
    d.fetch(y, part.shape, np.int8)
    turned = d.room(64)
    d.emit(  # rows in the other direction
        "load",
        segment=2,
        offset=0,
        local=turned + 18,
        size=(1, 1, 4, 6),
        far_stride=(0, 0, 30),
        near_stride=(0, 0, -6),
    )
    d.fetch(turned, (4, 6), np.int8)
    got = d.run()
    np.testing.assert_array_equal(got[0], part)
    np.testing.assert_array_equal(got[1], x[0, ::-1, 0])


def test_a_compressed_load_decodes_into_local_memory() -> None:
    weights = np.round(np.random.default_rng(7).normal(0, 5, 700)).astype(np.int8)
    stream = encode(weights.view(np.uint8))
    assert stream is not None
    d = Draft()
    d.constants.extend(stream.tobytes())
    at = d.room(weights.size)
    fields = {"segment": 0, "offset": 0, "size": (1, 1, 1, weights.size), "flags": COMPRESSED}
    d.emit("load", local=at, stored=stream.size, **fields)
    d.fetch(at, weights.shape, np.int8)
    simulator = Simulator(d.compiled())
    for _ in range(2):  # what is kept of the first run serves the second
        np.testing.assert_array_equal(simulator.run({})["y0"], weights)
    assert not d.sanitize(allocations=True)
    d.constants[1] ^= 255
    with pytest.raises(SimulationError, match="are no stream of 700 bytes"):
        d.run()


def test_prepared_weights_of_a_stream_are_not_those_of_its_bytes() -> None:
    """Two layers from one place in the constants: once decoded, once the bytes as they are; run twice."""
    rng = np.random.default_rng(2)
    x = drawn(rng, (1, 2, 2, 30), np.int8)
    rq = stage(rng, "single_rounding", 1, np.int8, 0, 14)
    d = Draft()
    at, fields, place = d.put(x), d.stage(rq, True), d.room(192)
    weight = rng.integers(-1, 2, (5, 30, 1, 1)).astype(np.int8)
    stream = encode(weight.reshape(-1).view(np.uint8))
    assert stream is not None
    offset = len(d.constants)
    d.constants.extend(stream.tobytes() + bytes(rng.integers(0, 20, weight.size - stream.size).tolist()))
    plain = np.frombuffer(bytes(d.constants[offset:]), np.int8).reshape(weight.shape)
    wanted = []
    for compressed, w in ((True, weight), (False, plain)):
        load = {"stored": stream.size, "flags": COMPRESSED} if compressed else {}
        d.emit("load", segment=0, offset=offset, local=place, size=(1, 1, 1, w.size), **load)
        y = d.room(2 * 2 * 5)
        d.emit(
            "conv", x=at, x_dtype=0, **window(x, (2, 2), (1, 1), (1, 1), (1, 1), (0, 0)), weight=place, bias=NONE,
            groups=1, out_c=5, y=y, y_stride=5, table=NONE, **fields,
        )  # fmt: skip
        d.fetch(y, (1, 2, 2, 5), np.int8)
        wanted.append(ConvPlan(w, x_dtype=np.int8, y_dtype=np.int8, requant=rq).run(x))
    simulator = Simulator(d.compiled())
    for _ in range(2):
        for got, right in zip(simulator.run(d.arrays()).values(), wanted, strict=True):
            np.testing.assert_array_equal(got, right)


def test_every_run_finds_zeros_in_local_memory() -> None:
    """Also at the end of what another core has touched; only touched bytes are cleared."""
    d = Draft(cores=2)
    at = d.room(64)
    d.room(1000, core=1)
    for core in (0, 1):
        d.fetch(at, (64,), np.int8, core=core)
        d.load(2, 0, at, 64, core=core)
        d.load(2, 0, 4000, 64, core=core)
        d.fetch(4000, (64,), np.int8, core=core)
    d.inputs["x0"] = (np.arange(1, 65, dtype=np.int8), 0)
    d.input.extend(bytes(64))
    simulator = Simulator(d.compiled())
    for _ in range(3):
        before, behind, before_1, behind_1 = simulator.run(d.arrays()).values()
        assert not before.any() and not before_1.any()
        np.testing.assert_array_equal(behind, d.arrays()["x0"])
        np.testing.assert_array_equal(behind_1, d.arrays()["x0"])
