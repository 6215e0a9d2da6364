"""The commands of the BM1684X as NumPy computes them: slow, obvious, from the fields of a command and the bytes of two memories.

Every tensor is gathered element by element from where its layout says, computed with 64 bits, and scattered again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.program.bm1684x.commands import DDR_BASE, LANE_BYTES, LANES, LOCAL_BASE, STRIDED, Command

Values = Mapping[str, int]
_TYPES: dict[int, np.dtype[Any]] = {0: np.dtype(np.int8), 3: np.dtype("<i2"), 4: np.dtype("<i4")}


@dataclass
class Memories:
    """The bytes of the lanes, (64, 262144), and of DDR from its base on."""

    lanes: Array
    ddr: Array

    def run(self, commands: Iterable[Command]) -> None:
        """Commands one after the other."""
        for command in commands:
            if command.form.name not in ("TIU_END", "GDMA_END"):
                _COMMANDS[command.form.name](self, command.values)

    def read(self, places: tuple[Array, Array], code: int) -> Array:
        """Elements as 64-bit integers."""
        lane, at = places
        dtype = _TYPES[code]
        found = np.stack([self.lanes[lane, at + i] for i in range(dtype.itemsize)], -1)
        return np.ascontiguousarray(found).view(dtype)[..., 0].astype(np.int64)

    def write(self, places: tuple[Array, Array], code: int, values: Array) -> None:
        """Elements of so many bits; what they cannot hold is lost."""
        lane, at = places
        dtype = _TYPES[code]
        data = np.ascontiguousarray(values.astype(dtype))[..., None].view(np.uint8)
        for i in range(dtype.itemsize):
            self.lanes[lane, at + i] = data[..., i]


def _strided(address: int, shape: Sequence[int], strides: Sequence[int], size: int) -> tuple[Array, Array]:
    """Lane and byte of every element: channel c is in lane c mod 64, and every 64 channels are a row further."""
    lane, at = divmod(address, LANE_BYTES)
    n, c, h, w = np.ix_(*map(np.arange, shape))
    row = (lane + c) // LANES
    steps = n * strides[0] + row * strides[1] + h * strides[2] + w * strides[3]
    return np.broadcast_to((lane + c) % LANES, tuple(shape)), np.broadcast_to(at + steps * size, tuple(shape))


def _dense(address: int, shape: Sequence[int], size: int, unit: int = 64) -> tuple[Array, Array]:
    """The aligned layout, or the compact one with a unit of one byte."""
    _, c, h, w = shape
    pitch = -(-h * w * size // unit) * unit // size
    rows = -(-(address // LANE_BYTES + c) // LANES)
    return _strided(address, shape, (rows * pitch, pitch, w, 1), size)


def _sizes(values: Values, name: str = "res0") -> tuple[int, int, int, int]:
    n, c, h, w = (values[f"{name}_{axis}"] for axis in "nchw")
    return n, c, h, w


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _windows(x: Array, values: Values, pad: int) -> Array:
    """What each tap of the kernel sees: (taps, n, c, oh, ow)."""
    sides = [values[f"opd0_{side}_pad"] for side in ("up", "dn", "lf", "rt")]
    padded = np.pad(x, ((0, 0), (0, 0), sides[:2], sides[2:]), constant_values=pad)
    _, _, oh, ow = _sizes(values)
    sy, sx = values["res_op_y_str"], values["res_op_x_str"]
    dy, dx = values["opd1_y_ins0"] + 1, values["opd1_x_ins0"] + 1
    return np.stack(
        [
            padded[:, :, i * dy : i * dy + (oh - 1) * sy + 1 : sy, j * dx : j * dx + (ow - 1) * sx + 1 : sx]
            for i in range(values["opd1_h"])
            for j in range(values["opd1_w"])
        ]
    )


def _conv(memory: Memories, values: Values) -> None:
    n, oc, _, _ = shape = _sizes(values)
    operand = (n, values["opd0_c"], values["opd0_h"], values["opd0_w"])
    strides = [values[f"opd0_{axis}_str"] for axis in "nchw"]
    strided = values["opd0_str"] == STRIDED
    at = values["opd0_addr"]
    x = memory.read(_strided(at, operand, strides, 1) if strided else _dense(at, operand, 1), 0)
    taps, groups = values["opd1_h"] * values["opd1_w"], -(-operand[1] // 64)
    rows = memory.read(_dense(values["opd1_addr"], (1, oc, 1, groups * taps * 64), 1, unit=1), 0)
    weights = (
        rows.reshape(oc, groups, taps, 64).transpose(2, 0, 1, 3).reshape(taps, oc, -1)[..., : operand[1]]
    )
    seen = _windows(x, values, _signed(values["opd3_addr"], 8))
    # Products of 8 bits and sums of fewer than 2^37 of them are exact in float64.
    sums = np.einsum("toc,tnchw->nohw", weights.astype(float), seen.astype(float), optimize=True).astype(
        np.int64
    )
    result = _dense(values["res0_addr"], shape, 4)
    memory.write(result, 4, sums + (memory.read(result, 4) if values["res_add"] else 0))


def _pord(memory: Memories, values: Values) -> None:
    shape = _sizes(values)
    operand = (*shape[:2], values["opd0_h"], values["opd0_w"])
    x = memory.read(_dense(values["opd0_addr"], operand, 1), 0)
    seen = _windows(x, values, _signed(values["opd3_addr"], 8))
    result = _dense(values["res0_addr"], shape, _TYPES[values["res0_prec"]].itemsize)
    if values["tsk_eu_typ"] == 4:
        memory.write(result, values["res0_prec"], seen.max(0))
        return
    kernel = (1, shape[1], values["opd1_h"], values["opd1_w"])
    weights = np.full(kernel, _signed(values["opd1_addr"], 8))
    if not values["opd1_const"]:
        weights = memory.read(_dense(values["opd1_addr"], kernel, 1, unit=1), 0)
    bias = np.full((1, shape[1], 1, 1), _signed(values["opd2_addr"], 32))
    if not values["opd2_const"]:
        bias = memory.read(_dense(values["opd2_addr"], (1, shape[1], 1, 1), 4, unit=1), 4)
    taps = weights.reshape(shape[1], -1).T[:, None, :, None, None]
    memory.write(result, values["res0_prec"], (seen * taps).sum(0) + bias)


def _places(values: Values, name: str) -> tuple[Array, Array]:
    size = _TYPES[values[f"{name}_prec"]].itemsize
    if values[f"{name}_str"] == STRIDED:
        strides = [values[f"{name}_{axis}_str"] for axis in "nchw"]
        return _strided(values[f"{name}_addr"], _sizes(values), strides, size)
    return _dense(values[f"{name}_addr"], _sizes(values), size)


_ARITHMETIC: dict[int, Any] = {
    2: np.add, 3: np.subtract, 4: np.maximum, 5: np.minimum, 7: np.bitwise_and, 15: np.add, 19: lambda a, b: a,
}  # fmt: skip


def _shifted(x: Array, left: Any, rounding: int) -> Array:
    """To the left, or to the right, rounded down (3) or to the nearest, halves up (5)."""
    left = np.broadcast_to(left, x.shape)
    right = np.maximum(-left, 0)
    half = np.where((right > 0) & (rounding == 5), np.int64(1) << np.maximum(right - 1, 0), 0)
    found: Array = ((x + half) >> right) << np.maximum(left, 0)
    return found


def _ar(memory: Memories, values: Values) -> None:
    operands: list[Any] = [0, 0]
    for index in range(min(values["tsk_opd_num"], 2)):
        name = f"opd{index}"
        code = values[f"{name}_prec"]
        if values[f"{name}_const"]:
            bits = 8 * _TYPES[code].itemsize
            operands[index] = np.full(_sizes(values), _signed(values[f"{name}_addr"], bits))
        else:
            operands[index] = memory.read(_places(values, name), code)
    kind, rounding, code = values["tsk_eu_typ"], values["opd2_n_str"], values["res0_prec"]
    if kind == 0:  # 32 bits by 32 bits: 64 before a shift
        found = operands[0] * operands[1]
        if values["tsk_opd_num"] == 3:
            found = _shifted(found, _signed(values["opd2_addr"], 8), rounding)
    elif kind == 21:
        found = _shifted(operands[0], operands[1], rounding)
    else:
        found = _ARITHMETIC[kind](*operands)
    if kind == 15:
        limits = np.iinfo(_TYPES[code])
        found = np.clip(found, limits.min, limits.max)
    memory.write(_places(values, "res0"), code, found)


def _rq(memory: Memories, values: Values) -> None:
    shape = _sizes(values)
    x = memory.read(
        _dense(values["opd0_addr"], shape, _TYPES[values["opd0_prec"]].itemsize), values["opd0_prec"]
    )
    if values["opd1_const"]:
        packed = values["opd2_addr"]
        numbers = np.array([_signed(values["opd1_addr"], 32), _signed(packed, 8), _signed(packed >> 16, 16)])
        multiplier, shift, zero = np.broadcast_to(numbers[:, None, None, None, None], (3, 1, shape[1], 1, 1))
    else:
        table = memory.read(_dense(values["opd1_addr"], (1, shape[1], 1, 3), 4), 4)
        multiplier, shift, zero = (table[..., i : i + 1] for i in range(3))
    # 32 bits by 15 bits: nothing of this leaves 64.
    right = -shift
    half = np.where(right > 0, np.int64(1) << np.maximum(right - 1, 0), 0)
    scaled = (x * multiplier + half) >> np.maximum(right, 0)
    memory.write(_dense(values["res0_addr"], shape, 1), 0, np.clip(scaled + zero, -128, 127))


def _bc(memory: Memories, values: Values) -> None:
    n, c, h, w = _sizes(values)
    x = memory.read(_dense(values["opd0_addr"], (n, w, h, c), 1), 0)
    memory.write(_dense(values["res0_addr"], (n, c, h, w), 1), 0, x.transpose(0, 3, 2, 1))


def _sg(memory: Memories, values: Values) -> None:
    shape, code = _sizes(values), values["res0_prec"]
    index = memory.read(_dense(values["opd1_addr"], shape, 1), 0) & 0xFF
    lane, _ = _dense(values["opd1_addr"], shape, 1)
    size = _TYPES[code].itemsize
    found = memory.read((lane, values["opd0_addr"] + index * size), code)
    memory.write(_dense(values["res0_addr"], shape, size), code, found)


def _tensor(memory: Memories, values: Values) -> None:
    shape = [values[f"src_{axis}size"] for axis in "nchw"]
    size = _TYPES[values["src_data_format"]].itemsize
    sides: dict[str, tuple[Array, Any]] = {}
    for side in ("src", "dst"):
        address = values[f"{side}_start_addr_h8"] << 32 | values[f"{side}_start_addr_l32"]
        strides = [values[f"{side}_{axis}stride"] for axis in "nchw"]
        if address < DDR_BASE:
            lane, at = _strided(address - LOCAL_BASE, shape, strides, size)
            sides[side] = memory.lanes.reshape(-1), lane * LANE_BYTES + at
        else:
            steps = sum(i * s for i, s in zip(np.ix_(*map(np.arange, shape)), strides, strict=True))
            sides[side] = memory.ddr, address - DDR_BASE + np.broadcast_to(steps, tuple(shape)) * size
    constant = values["constant_value"].to_bytes(4, "little")
    source, begin = sides["src"]
    target, end = sides["dst"]
    data = [
        np.full(shape, constant[i]) if values["fill_constant_en"] else source[begin + i] for i in range(size)
    ]
    for i in range(size):
        target[end + i] = data[i]


_COMMANDS: dict[str, Any] = {
    "CONV": _conv, "PORD": _pord, "AR": _ar, "RQ": _rq, "BC": _bc, "SG": _sg, "TENSOR": _tensor,
}  # fmt: skip
