"""Whether a program keeps the rules of the chip: alignment, lanes, ranges, memories, overlaps, and waits.

The vendor's functional model accepts misaligned addresses, results that overwrite operands and missing waits, which silicon would
not. So each command is decoded again from its bytes, and what it reads and writes is derived from its fields alone,
independently of what the scheduler believed. The rules of alignment and lanes are those that the vendor's own encoder asserts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from npuc.arrays import ceil_div
from npuc.program.bm1684x.bmodel import Bmodel
from npuc.program.bm1684x.commands import (
    DDR_BASE,
    EU_BYTES,
    LANE_BYTES,
    LANES,
    LOCAL_BASE,
    STRIDED,
    Command,
)
from npuc.program.bm1684x.listing import streams
from npuc.schedule.bm1684x.memory import share_bank
from npuc.schedule.bm1684x.work import LOOK_UP

Values = Mapping[str, int]
Area = tuple[Literal["local", "ddr"], int, int]
"""Bytes of every lane, or of DDR by their addresses."""
_SIZES = {0: 1, 1: 2, 2: 4, 3: 2, 4: 4, 5: 2}
"""Bytes of element types."""


@dataclass(frozen=True)
class Violation:
    """A rule that a command breaks."""

    engine: str
    number: int
    rule: str
    words: str

    def __str__(self) -> str:
        return f"{self.engine.upper()} command {self.number}: {self.words} [{self.rule}]"


class Broken(Exception):
    """A rule is broken: its name and the words for it."""

    def __init__(self, rule: str, words: str) -> None:
        super().__init__(words)
        self.rule, self.words = rule, words


@dataclass(frozen=True)
class Access:
    """What a command reads and writes."""

    reads: tuple[Area, ...]
    writes: tuple[Area, ...]


def check_program(model: Bmodel) -> list[Violation]:
    """All rules that the commands of a program break; none if it is right."""
    violations: list[Violation] = []
    accesses: dict[str, list[Access | None]] = {}
    queues: dict[str, list[Command]] = {str(engine): queue for engine, queue in streams(model).items()}
    for engine, queue in queues.items():
        accesses[engine] = []
        for number, command in enumerate(queue, 1):
            if command.values["cmd_id"] != number:
                words = f"it has the number {command.values['cmd_id']}, and it is the {number}th"
                violations.append(Violation(engine, number, "count", words))
            try:
                accesses[engine].append(access_of(command, model))
            except Broken as broken:
                accesses[engine].append(None)
                violations.append(Violation(engine, number, broken.rule, broken.words))
    violations += _waits(queues, accesses)
    return violations


def access_of(command: Command, model: Bmodel | None = None) -> Access:
    """What a command reads and writes, after its fields have been held to the rules of its kind."""
    form, values = command.form.name, command.values
    if form in ("TIU_END", "GDMA_END"):
        return Access((), ())
    if form == "TENSOR":
        return _tensor(values, model)
    access = _TIU[form](values)
    for _, low, high in (*access.reads, *access.writes):
        if high > LANE_BYTES or low < 0:
            raise Broken("lane", f"it reaches byte {high:,} of a lane, which has {LANE_BYTES:,}")
    return access


def _place(address: int) -> tuple[int, int]:
    """Lane and byte of a local address."""
    if address >= LANES * LANE_BYTES:
        raise Broken("address", f"the address 0x{address:x} is outside of local memory")
    return divmod(address, LANE_BYTES)


def _aligned(address: int, to: int, what: str) -> None:
    if address % to:
        raise Broken("alignment", f"its {what} is at 0x{address:x}, no multiple of {to}")


def _shape(values: Values, name: str = "res0") -> tuple[int, int, int, int]:
    n, c, h, w = (values[f"{name}_{axis}"] for axis in "nchw")
    if min(n, c, h, w) < 1:
        raise Broken("size", f"its {name} has the sizes {n} x {c} x {h} x {w}")
    return n, c, h, w


def _dense(address: int, shape: Sequence[int], size: int, aligned: bool = True) -> Area:
    """The bytes of a tensor of the aligned or compact layout."""
    lane, at = _place(address)
    n, c, h, w = shape
    pitch = h * w * size
    if aligned:
        pitch = ceil_div(pitch, EU_BYTES) * EU_BYTES
    rows = ceil_div(lane + c, LANES)
    return "local", at, at + (n * rows - 1) * pitch + h * w * size


def _strided(address: int, shape: Sequence[int], strides: Sequence[int], size: int) -> Area:
    lane, at = _place(address)
    n, c, h, w = shape
    steps = (n - 1, ceil_div(lane + c, LANES) - 1, h - 1, w - 1)
    last = sum(step * stride for step, stride in zip(steps, strides, strict=True))
    return "local", at, at + (last + 1) * size


def _same_lane(values: Values, *names: str) -> None:
    lanes = {name: values[f"{name}_addr"] // LANE_BYTES for name in names}
    if len(set(lanes.values())) > 1:
        words = ", ".join(f"{name} on lane {lane}" for name, lane in lanes.items())
        raise Broken("lanes", f"its operands begin on different lanes: {words}")


def _apart(writes: Area, reads: Sequence[Area], same: Sequence[Area] = ()) -> None:
    """The result overwrites no operand, unless it takes exactly the place of one that is read element by element."""
    for area in reads:
        if area in same and area == writes:
            continue
        if area[0] == writes[0] and area[1] < writes[2] and writes[1] < area[2]:
            raise Broken(
                "overlap",
                f"its result, bytes {writes[1]:,} to {writes[2]:,}, overwrites an operand at {area[1]:,}",
            )


def _window(values: Values, shape: tuple[int, int, int, int]) -> None:
    for axis, size, count, low, high in (
        ("y", "h", shape[2], "up", "dn"),
        ("x", "w", shape[3], "lf", "rt"),
    ):
        stride = values[f"res_op_{axis}_str"]
        if stride < 1:
            raise Broken("stride", f"its stride along {size} is {stride}")
        extent = (values[f"opd1_{size}"] - 1) * (values[f"opd1_{axis}_ins0"] + 1) + 1
        there = values[f"opd0_{size}"] + values[f"opd0_{low}_pad"] + values[f"opd0_{high}_pad"]
        if there < extent or (there - extent) // stride + 1 != count:
            raise Broken(
                "window",
                f"its {there} positions along {size} are not those of {count} windows",
            )


def _conv(values: Values) -> Access:
    shape = _shape(values)
    x, w, y = (values[name] for name in ("opd0_addr", "opd1_addr", "res0_addr"))
    strided = values["opd0_str"] == STRIDED
    if not strided:
        _aligned(x, EU_BYTES, "operand")
    if x >= LANE_BYTES:
        raise Broken("lanes", "its operand does not begin on lane 0")
    _aligned(w, EU_BYTES, "weights")
    _aligned(y, 4 * _SIZES[values["res0_prec"]], "result")
    _same_lane(values, "opd1", "res0")
    _window(values, shape)
    operand = (shape[0], values["opd0_c"], values["opd0_h"], values["opd0_w"])
    if min(operand) < 1:
        raise Broken("size", f"its operand has the sizes {operand}")
    strides = tuple(values[f"opd0_{axis}_str"] for axis in "nchw")
    given = _strided(x, operand, strides, 1) if strided else _dense(x, operand, 1)
    line = ceil_div(operand[1], 64) * 64 * values["opd1_h"] * values["opd1_w"]
    weights = _dense(w, (1, shape[1], 1, line), 1, aligned=False)
    result = _dense(y, shape, _SIZES[values["res0_prec"]])
    _apart(result, (given, weights))
    sums = (result,) if values["res_add"] else ()
    return Access((given, weights, *sums), (result,))


def _pord(values: Values) -> Access:
    shape = _shape(values)
    x, y = values["opd0_addr"], values["res0_addr"]
    _aligned(x, EU_BYTES, "operand")
    _aligned(y, EU_BYTES, "result")
    _window(values, shape)
    reads = [_dense(x, (*shape[:2], values["opd0_h"], values["opd0_w"]), 1)]
    together = ["opd0", "res0"]
    if values["tsk_eu_typ"] == 0:
        if not values["opd1_const"]:
            kernel = (1, shape[1], values["opd1_h"], values["opd1_w"])
            reads.append(_dense(values["opd1_addr"], kernel, 1, aligned=False))
            together.append("opd1")
        if not values["opd2_const"]:
            _aligned(values["opd2_addr"], 4, "bias")
            reads.append(_dense(values["opd2_addr"], (1, shape[1], 1, 1), 4, aligned=False))
            together.append("opd2")
    _same_lane(values, *together)
    result = _dense(y, shape, _SIZES[values["res0_prec"]])
    _apart(result, reads)
    return Access(tuple(reads), (result,))


def _operand(values: Values, name: str, shape: tuple[int, int, int, int]) -> Area:
    size, address = _SIZES[values[f"{name}_prec"]], values[f"{name}_addr"]
    if values[f"{name}_str"] == STRIDED:
        _aligned(address, size, name)
        return _strided(address, shape, [values[f"{name}_{axis}_str"] for axis in "nchw"], size)
    _aligned(address, EU_BYTES, name)
    return _dense(address, shape, size)


def _ar(values: Values) -> Access:
    shape = _shape(values)
    names = ["opd0", "opd1"][: values["tsk_opd_num"]]
    there = [name for name in names if not values[f"{name}_const"]]
    result = _operand(values, "res0", shape)
    reads = [_operand(values, name, shape) for name in there]
    _same_lane(values, "res0", *there)
    plain = [
        area
        for name, area in zip(there, reads, strict=True)
        if values[f"{name}_prec"] == values["res0_prec"] and values[f"{name}_str"] == values["res0_str"]
    ]
    _apart(result, reads, plain)
    return Access(tuple(reads), (result,))


def _rq(values: Values) -> Access:
    shape = _shape(values)
    if values["opd0_prec"] not in (3, 4):
        raise Broken("type", "a requantization reads int16 or int32")
    for name, what in (("opd0", "operand"), ("res0", "result")):
        _aligned(values[f"{name}_addr"], EU_BYTES, what)
    reads = [_dense(values["opd0_addr"], shape, _SIZES[values["opd0_prec"]])]
    _same_lane(values, "opd0", "res0")
    if not values["opd1_const"]:
        _aligned(values["opd1_addr"], EU_BYTES, "table")
        _same_lane(values, "opd0", "opd1")
        reads.append(_dense(values["opd1_addr"], (1, shape[1], 1, 3), 4))
    result = _dense(values["res0_addr"], shape, _SIZES[values["res0_prec"]])
    _apart(result, reads)
    return Access(tuple(reads), (result,))


def _sg(values: Values) -> Access:
    shape = _shape(values)
    for name, what in (("opd0", "table"), ("opd1", "operand"), ("res0", "result")):
        _aligned(values[f"{name}_addr"], EU_BYTES, what)
    if values["opd0_prec"] != values["res0_prec"]:
        raise Broken("type", "its table has entries of another type than its result")
    size = _SIZES[values["res0_prec"]]
    reads = [
        _dense(values["opd0_addr"], (1, 1, 1, values["opd0_w"]), size),
        _dense(values["opd1_addr"], (shape[0], values["opd1_c"], 1, values["opd1_w"]), 1),
    ]
    _same_lane(values, "opd0", "opd1", "res0")
    result = _dense(values["res0_addr"], shape, size)
    _apart(result, reads)
    together = [area[1:] for area in (*reads, result)]
    if values["tsk_eu_typ"] == LOOK_UP and any(
        share_bank(a, b) for i, a in enumerate(together) for b in together[:i]
    ):
        raise Broken(
            "banks", "two of its operands and result have bytes in one bank, and it reads all at once"
        )
    return Access(tuple(reads), (result,))


def _bc(values: Values) -> Access:
    shape = _shape(values)
    for name, what in (("opd0", "operand"), ("res0", "result")):
        _aligned(values[f"{name}_addr"], EU_BYTES, what)
    if max(values["opd0_addr"], values["res0_addr"]) >= LANE_BYTES:
        raise Broken("lanes", "its operand or result does not begin on lane 0")
    if (values["opd0_c"], values["opd0_w"]) != (shape[3], shape[1]):
        raise Broken("size", "its result is not its operand transposed")
    given = _dense(values["opd0_addr"], (shape[0], values["opd0_c"], shape[2], values["opd0_w"]), 1)
    result = _dense(values["res0_addr"], shape, 1)
    _apart(result, (given,))
    return Access((given,), (result,))


_TIU = {"BC": _bc, "CONV": _conv, "PORD": _pord, "AR": _ar, "RQ": _rq, "SG": _sg}


def _tensor(values: Values, model: Bmodel | None) -> Access:
    shape = _shape({f"src_{axis}": values[f"src_{axis}size"] for axis in "nchw"}, "src")
    size = _SIZES[values["src_data_format"]]
    areas = []
    for side in ("src", "dst"):
        strides = [values[f"{side}_{axis}stride"] for axis in "nchw"]
        if not 0 < strides[3] * size <= 128:
            raise Broken("stride", f"its {side} has {strides[3] * size} bytes from one element to the next")
        areas.append(_side(values, side, shape, strides, size, model))
    fills = values["fill_constant_en"]
    if not fills:
        _apart(areas[1], areas[:1])
    return Access(() if fills else (areas[0],), (areas[1],))


def _side(
    values: Values, side: str, shape: Sequence[int], strides: Sequence[int], size: int, model: Bmodel | None
) -> Area:
    address = values[f"{side}_start_addr_h8"] << 32 | values[f"{side}_start_addr_l32"]
    if address < DDR_BASE:
        area = _strided(address - LOCAL_BASE, shape, strides, size)
        if area[2] > LANE_BYTES:
            raise Broken("lane", f"it reaches byte {area[2]:,} of a lane, which has {LANE_BYTES:,}")
        return area
    last = sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True))
    end = address + (last + 1) * size
    if model is not None:
        constants = (model.coefficients_at, model.coefficients_at + len(model.coefficients))
        room = (model.activations_at, model.activations_at + model.activations)
        regions = [room] if side == "dst" else [constants, room]
        if not any(low <= address and end <= high for low, high in regions):
            raise Broken("ddr", f"its {side}, 0x{address:x} to 0x{end:x}, is outside of what it may touch")
    return "ddr", address, end


def _meet(a: Access, b: Access) -> bool:
    pairs = ((a.writes, b.reads), (a.reads, b.writes), (a.writes, b.writes))
    return any(
        area[0] == other[0] and area[1] < other[2] and other[1] < area[2]
        for areas, others in pairs
        for area in areas
        for other in others
    )


def _waits(
    queues: Mapping[str, Sequence[Command]], accesses: Mapping[str, Sequence[Access | None]]
) -> Iterator[Violation]:
    """Commands of two engines that touch the same bytes, and of which none waits for the other.

    A command is done before another of the other engine begins if that one, or one before it in its queue, waits for it or for a
    later one. What neither order holds for may happen at the same time.
    """
    tiu, gdma = queues["tiu"], queues["gdma"]
    waited = {name: _levels(queue) for name, queue in queues.items()}
    for name, queue in queues.items():
        other = len(queues["gdma" if name == "tiu" else "tiu"])
        for number, command in enumerate(queue, 1):
            if command.values["cmd_id_dep"] > other:
                yield Violation(name, number, "wait", "it waits for a command that never comes")
    for number in range(1, len(gdma) + 1):
        mine = accesses["gdma"][number - 1]
        if mine is None:
            continue
        # TIU commands that are not done before this one begins, and that do not wait for it.
        for at in range(waited["gdma"][number - 1] + 1, len(tiu) + 1):
            if waited["tiu"][at - 1] >= number:
                break
            theirs = accesses["tiu"][at - 1]
            if theirs is not None and _meet(mine, theirs):
                words = f"it touches bytes of TIU command {at}, and neither waits for the other"
                yield Violation("gdma", number, "race", words)
                break


def _levels(queue: Sequence[Command]) -> list[int]:
    """For each command, the last of the other engine that is done before it begins."""
    level, levels = 0, []
    for command in queue:
        level = max(level, command.values["cmd_id_dep"])
        levels.append(level)
    return levels
