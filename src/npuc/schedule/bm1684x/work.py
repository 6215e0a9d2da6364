"""Commands with what they read and write, and how they are made: the vocabulary of the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from npuc.program.bm1684x.commands import LANES, STRIDED, TABLE, TYPE_CODES, Engine
from npuc.schedule.bm1684x.layout import LARGEST, LocalTensor, Shape

Space = Literal["local", "coefficients", "activations"]
"""Memories: the lanes, and two regions of DDR."""
Span = tuple[Space, int, int]
"""Bytes of a memory; of local memory, those of every lane."""


def lanes(address: int, size: int) -> Span:
    """So many bytes of every lane."""
    return "local", address, address + size


@dataclass(frozen=True)
class Address:
    """A byte of a memory."""

    space: Space
    offset: int
    lane: int = 0

    def plus(self, offset: int) -> Address:
        """So many bytes further."""
        return Address(self.space, self.offset + offset, self.lane)


@dataclass(frozen=True)
class Issue:
    """A command; that of a DMA has its addresses beside the fields, as DDR has none before the end."""

    form: str
    values: Mapping[str, int]
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]
    layer: int
    source: Address | None = None
    target: Address | None = None

    @property
    def engine(self) -> Engine:
        """Whose queue it goes to."""
        return "tiu" if self.target is None else "gdma"

    @property
    def ddr_bytes(self) -> int:
        """Bytes of DDR that a DMA command reads and writes."""
        if self.target is None or self.source is None:
            return 0
        elements = prod(self.values[f"src_{axis}size"] for axis in "nchw")
        sides = [self.target] if self.values.get("fill_constant_en") else [self.source, self.target]
        itemsize = 4 if self.values["src_data_format"] == TYPE_CODES["i32"] else 1
        return elements * itemsize * sum(side.space != "local" for side in sides)

    @property
    def is_load(self) -> bool:
        """Whether it brings something from DDR to local memory."""
        return (
            self.target is not None
            and self.source is not None
            and self.target.space == "local" != self.source.space
        )


LOOK_UP, LOOK_UP_SLOWLY = 5, 13
"""Elements looked up in a table that every lane has: `tsk_eu_typ` of SG. The fast one needs its operands and its result in
different banks; which it is, is known when all addresses are."""
COPY_FROM_OPERAND, MULTIPLY, ADD, SUBTRACT, MAXIMUM, MINIMUM = 19, 0, 2, 3, 4, 5
AND, ADD_WITHIN, SHIFT = 7, 15, 21
"""Element-wise operations: `tsk_eu_typ` of AR. Sums wrap; ADD_WITHIN stays within the type of its result. SHIFT shifts the first
operand to the left by the second, to the right where that is negative."""
_COMMUTE = frozenset({MULTIPLY, ADD, MAXIMUM, MINIMUM})
FLOOR, HALF_UP = 3, 5
"""Roundings."""


@dataclass(frozen=True)
class Operand:
    """An operand of an element-wise command: a constant, or a place in local memory."""

    address: int
    dtype: str
    strides: Shape | None = None
    """In elements; None: the aligned layout."""
    constant: bool = False
    size: int = 0
    """Bytes of each lane that are read."""


def constant(value: int, dtype: str = "i32") -> Operand:
    """A number."""
    return Operand(value & 0xFFFFFFFF, dtype, constant=True)


def shift_by(places: int) -> Operand:
    """How far a SHIFT goes to the left, as one number."""
    return Operand(places & 0xFF, "i8", constant=True)


class Builder:
    """Collects commands in program order."""

    def __init__(self) -> None:
        self.issues: list[Issue] = []
        self.layer = 0

    def tiu(self, form: str, reads: Sequence[Span], writes: Sequence[Span], **values: int) -> None:
        """A command that computes."""
        self.issues.append(Issue(form, values, tuple(reads), tuple(writes), self.layer))

    def elementwise(
        self,
        operation: int,
        shape: Shape,
        result: Operand,
        first: Operand,
        second: Operand | None = None,
        *,
        right: int = 0,
        rounding: int = FLOOR,
    ) -> None:
        """One AR command: result = first op second; plain operations wrap.

        A product of 32 bits may be shifted `right`: it has 64 bits until then. `rounding` is that of shifts.
        """
        if second is not None and second.strides and not first.strides and operation in _COMMUTE:
            first, second = second, first  # as the vendor's encoder has them: the operand with strides first
        values: dict[str, int] = {"tsk_eu_typ": operation, "tsk_opd_num": 1 if second is None else 2}
        reads: list[Span] = []
        for name, operand in (("opd0", first), ("opd1", second), ("res0", result)):
            if operand is None:
                continue
            values[f"{name}_addr"] = operand.address
            values[f"{name}_prec"] = TYPE_CODES[operand.dtype]
            if name != "res0":
                values[f"{name}_sign"] = 1
                values[f"{name}_const"] = int(operand.constant)
                if not operand.constant:
                    reads.append(("local", operand.address, operand.address + operand.size))
            if operand.strides is not None:
                values[f"{name}_str"] = STRIDED
                for axis, stride in zip("nchw", operand.strides, strict=True):
                    # The vendor refuses a result that stands still along an axis, also along one that has a single step.
                    values[f"{name}_{axis}_str"] = max(stride, 1) if name == "res0" else stride
        values["opd2_n_str"] = rounding if right or operation == SHIFT else 0
        if right:
            values |= {"tsk_opd_num": 3, "opd2_const": 1, "opd2_addr": -right & 0xFF}
        written: Span = ("local", result.address, result.address + result.size)
        self.tiu("AR", reads, [written], **values, **sizes("res0", shape))

    def requantize(
        self,
        shape: Shape,
        source: LocalTensor,
        result: LocalTensor,
        dtype: str,
        parameters: tuple[int, int, int] | int,
    ) -> None:
        """clip(half_up(x * multiplier, shift) + zero point); parameters are numbers, or where the table of channels is."""
        reads: list[Span] = [("local", source.address, source.address + source.size)]
        values = {
            "tsk_eu_typ": 1,
            "opd0_sign": 1,
            "opd2_sign": 1,
            "opd0_prec": TYPE_CODES[dtype],
            "res0_prec": TYPE_CODES["i8"],
            "opd2_n_str": HALF_UP,
        }
        if isinstance(parameters, int):
            values |= {"opd1_addr": parameters}
            reads.append(("local", parameters, parameters + source.lane_rows * 64))
        else:
            multiplier, shift, zero = parameters
            packed = (-shift & 0xFF) | (zero & 0xFFFF) << 16
            values |= {"opd1_const": 1, "opd1_addr": multiplier, "opd2_addr": packed}
        written: Span = ("local", result.address, result.address + result.size)
        addresses = {"opd0_addr": source.address, "res0_addr": result.address}
        self.tiu("RQ", reads, [written], **values, **addresses, **sizes("res0", shape))

    def clip(self, tensor: LocalTensor, low: int, high: int) -> None:
        """Keep the elements of an int8 tensor between two numbers, where they are."""
        place = Operand(tensor.address, "i8", size=tensor.size)
        if low > -128:
            self.elementwise(MAXIMUM, tensor.shape, place, place, constant(low, "i8"))
        if high < 127:
            self.elementwise(MINIMUM, tensor.shape, place, place, constant(high, "i8"))

    def look_up(self, index: LocalTensor, result: LocalTensor, table: int) -> None:
        """Elements of a table of 256, by the bytes of an int8 tensor (1, c, h, w)."""
        _, c, h, w = index.shape
        dtype = {1: "i8", 4: "i32"}[result.itemsize]
        self.tiu(
            "SG", [lanes(table, 256 * result.itemsize), lanes(index.address, index.size)],
            [lanes(result.address, result.size)], tsk_eu_typ=LOOK_UP_SLOWLY, opd0_str=TABLE, opd0_h=1, opd0_w=256,
            opd1_c=c, opd1_w=h * w, res0_addr=result.address, opd0_addr=table, opd1_addr=index.address,
            res0_prec=TYPE_CODES[dtype], opd0_prec=TYPE_CODES[dtype], **sizes("res0", (1, c, 1, h * w)),
        )  # fmt: skip

    def transpose(self, source: LocalTensor, target: LocalTensor) -> None:
        """A matrix (1, rows, 1, columns) with lanes for columns."""
        _, rows, _, columns = source.shape
        reads, writes = lanes(source.address, source.size), lanes(target.address, target.size)
        places = {"opd0_addr": source.address, "res0_addr": target.address}
        self.tiu(
            "BC", [reads], [writes], opd0_c=rows, opd0_w=columns, **places, **sizes("res0", target.shape)
        )

    def move(
        self,
        source: Address,
        target: Address,
        shape: Shape,
        source_strides: Shape,
        target_strides: Shape,
        dtype: str = "i8",
    ) -> None:
        """One DMA command; strides are in elements."""
        (n, c, h, w), (sn, sc, sh, sw), (tn, tc, th, tw) = shape, source_strides, target_strides
        if h > 1 and sh == w * sw and th == w * tw and h * w <= LARGEST:
            # One long run is cheaper than rows.
            (h, w), sh, th = (1, h * w), h * w * sw, h * w * tw
        shape, source_strides, target_strides = (n, c, h, w), (sn, sc, sh, sw), (tn, tc, th, tw)
        size = {"i8": 1, "i32": 4}[dtype]
        values = {
            "stride_enable": 1,
            # Within one memory the vendor states both shapes, and between memories that of the source only.
            "nchw_copy": int((source.space == "local") != (target.space == "local")),
            "src_data_format": TYPE_CODES[dtype],
            "localmem_mask_l32": 0xFFFFFFFF,
            "localmem_mask_h32": 0xFFFFFFFF,
        }
        for side, strides in (("src", source_strides), ("dst", target_strides)):
            for axis, count, stride in zip("nchw", shape, strides, strict=True):
                values[f"{side}_{axis}size"] = count
                values[f"{side}_{axis}stride"] = stride
        read = _span(source, shape, source_strides, size)
        written = _span(target, shape, target_strides, size)
        self.issues.append(Issue("TENSOR", values, (read,), (written,), self.layer, source, target))

    def fill(self, target: Address, shape: Shape, strides: Shape, value: int) -> None:
        """DDR filled with an int8 number."""
        self.move(target, target, shape, strides, strides)
        issue = self.issues.pop()
        values = {**issue.values, "fill_constant_en": 1, "constant_value": value & 0xFF}
        self.issues.append(Issue("TENSOR", values, (), issue.writes, self.layer, target, target))


def sizes(name: str, shape: Shape) -> dict[str, int]:
    """The four sizes of an operand."""
    return {f"{name}_{axis}": count for axis, count in zip("nchw", shape, strict=True)}


def _span(address: Address, shape: Shape, strides: Shape, size: int) -> Span:
    n, c, h, w = shape
    steps = (address.lane + c - 1) // LANES if address.space == "local" else c - 1
    last = (n - 1) * strides[0] + steps * strides[1] + (h - 1) * strides[2] + (w - 1) * strides[3]
    return address.space, address.offset, address.offset + (last + 1) * size
