"""The cycles of commands are those that the vendor's library gives: its figures, noted once, and the timeline of both engines."""

from __future__ import annotations

import pytest

from npuc.schedule.bm1684x.cycles import cycles_of, timeline
from npuc.schedule.bm1684x.layout import LocalTensor, Shape, dense_strides
from npuc.schedule.bm1684x.order import ordered
from npuc.schedule.bm1684x.work import ADD, Address, Builder, Issue, Operand, lanes, sizes

DDR, LOCAL = Address("activations", 0), Address("local", 0)


def transfer(source: Address, target: Address, shape: Shape, strides: Shape | None = None) -> Issue:
    """A tensor between DDR and lanes."""
    build = Builder()
    far, near = strides or dense_strides(shape), LocalTensor(0, shape).strides
    sides = (far, near) if source.space != "local" else (near, far)
    build.move(source, target, shape, *sides)
    return build.issues[0]


@pytest.mark.parametrize(
    ("shape", "load", "store"),
    [
        ((1, 64, 1, 64), 1213, 1599), ((1, 64, 1, 68), 606, None), ((1, 64, 1, 132), 404, None),
        ((1, 64, 1, 192), 404, 533), ((1, 64, 1, 256), 303, 399), ((1, 64, 1, 1280), 1516, 1999),
        ((1, 64, 1, 65535), 77647, 102352), ((1, 1, 1, 16), 18, 24), ((1, 1, 1, 4096), 303, 399), ((1, 42, 1, 100), 398, None),
        ((1, 16, 1, 576), 227, 299), ((1, 32, 1, 576), 341, 449),
    ],
)  # fmt: skip
def test_transfers(shape: Shape, load: int, store: int | None) -> None:
    assert cycles_of(transfer(DDR, LOCAL, shape)) == load
    if store is not None:
        assert cycles_of(transfer(LOCAL, DDR, shape)) == store


@pytest.mark.parametrize(
    ("w", "rows", "columns"), [(1, 9706, 9706), (4, 9706, 19412), (16, 2426, 38824), (64, 2426, 155296)]
)
def test_short_runs_are_dear(w: int, rows: int, columns: int) -> None:
    """Rows that are apart, and elements that are."""
    shape = (1, 16, 32, w)
    assert cycles_of(transfer(DDR, LOCAL, shape, (16 * 64 * w, 64 * w, 2 * w, 1))) == rows
    assert cycles_of(transfer(DDR, LOCAL, shape, (16 * 128 * w, 128 * w, 4 * w, 2))) == columns


def command(form: str, shape: Shape, **values: int) -> Issue:
    build = Builder()
    build.tiu(form, [lanes(0, 64)], [lanes(1 << 17, 64)], **values, **sizes("res0", shape))
    return build.issues[0]


def test_commands_that_compute() -> None:
    window = {"opd1_h": 3, "opd1_w": 3, "res_op_y_str": 1, "res_op_x_str": 1}
    assert cycles_of(command("CONV", (1, 70, 14, 12), opd0_c=20, res0_prec=4, **window)) == 756
    assert cycles_of(command("RQ", (1, 70, 14, 12), opd0_prec=4, opd0_addr=0, res0_addr=1 << 17)) == 22
    assert cycles_of(command("PORD", (1, 64, 32, 32), res0_prec=4, **window)) == 576
    strided = {**window, "res_op_y_str": 2, "res_op_x_str": 2}
    assert cycles_of(command("PORD", (1, 64, 16, 16), res0_prec=0, **strided)) == 108
    assert cycles_of(command("SG", (1, 64, 1, 256))) == 256


@pytest.mark.parametrize(("target", "wanted"), [(1 << 17, 22), (0, 44)])
def test_a_sum_in_place_takes_twice_as_long(target: int, wanted: int) -> None:
    build = Builder()
    bias = Operand(1 << 16, "i32", (0, 1, 0, 0), size=8)
    build.elementwise(
        ADD, (1, 70, 14, 12), Operand(target, "i32", size=1536), Operand(0, "i32", size=1536), bias
    )
    assert cycles_of(build.issues[0]) == wanted


def test_engines_wait_for_each_other() -> None:
    build = Builder()
    build.move(DDR, LOCAL, (1, 64, 1, 256), (0, 256, 256, 1), (256, 256, 256, 1))
    build.elementwise(
        ADD,
        (1, 64, 1, 256),
        Operand(4096, "i8", size=256),
        Operand(0, "i8", size=256),
        Operand(512, "i8", size=256),
    )
    build.move(DDR, Address("local", 8192), (1, 64, 1, 256), (0, 256, 256, 1), (256, 256, 256, 1))
    time = timeline(ordered(build.issues))
    assert time.spans == ((0, 303), (303, 307), (303, 606)) and time.total == 606
    assert time.busy == {"tiu": 4, "gdma": 606}
