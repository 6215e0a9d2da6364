"""Which instructions a transfer waits for, against a list of every byte that it touches."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from npuc.program.isa import QUEUES
from npuc.schedule.assemble import Assembler, Dram
from npuc.schedule.layers import Tensor
from npuc.schedule.moves import Block
from npuc.schedule.steps import Buffer, Load, Store, Work

BLOCK = 64
SIZE = 64 * BLOCK
"""Bytes of the tensor that is stored row by row and loaded in blocks."""
STORES, LOADS = QUEUES.index("store"), QUEUES.index("load")


def waits_of(record: np.ndarray) -> list[int]:
    """The semaphores in the head of a record: opcode, queue, flags, layer, then one number of four bytes a queue."""
    return record[8 : 8 + 4 * len(QUEUES)].view("<u4").tolist()


def bytes_of(at: int, block: Block) -> set[int]:
    """Every byte of the far side of a transfer."""
    steps = product(*(range(n) for n in block.size[:3]))
    return {
        at + sum(i * stride for i, stride in zip(index, block.far, strict=True)) + byte
        for index in steps
        for byte in range(block.size[3])
    }


def assembled(at: int, block: Block, stores_first: bool) -> tuple[list[list[int]], list[list[int]]]:
    """Waits of 64 stores, each of one block of the tensor, and of one load of it, before or behind them."""
    tensor = Tensor("t", (1, SIZE), "i8", 1)
    row, target = Buffer("row", BLOCK, (0, 1)), Buffer("target", SIZE, (0, 1))
    stores = [Store(0, row, 0, BLOCK, tensor, k * BLOCK) for k in range(SIZE // BLOCK)]
    load = Load(
        0, target, 0, SIZE, tensor, at, len(stores), issue=len(stores) if stores_first else 0, block=block
    )
    assembler = Assembler(["layer"], 0, 1 << 16, Dram({tensor: (1, 0)}, {}, SIZE), {row: 0, target: BLOCK})
    stream = assembler.assemble(Work(steps=[*stores], loads=[load]))
    own = [record for record in stream if record[1] == LOADS]
    assert len(own) == 1 and len(stream) == 1 + len(stores)
    return [waits_of(record) for record in stream if record[1] == STORES], [waits_of(own[0])]


@st.composite
def blocks(draw: st.DrawFn) -> tuple[int, Block]:
    """A block with strides of both signs that stays in the tensor."""
    size = (*(draw(st.integers(1, 4)) for _ in range(3)), draw(st.integers(1, 100)))
    far = tuple(draw(st.integers(-300, 300)) for _ in range(3))
    ends = [(n - 1) * stride for n, stride in zip(size, far, strict=False)]
    low, high = sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends) + size[3]
    at = draw(st.integers(-low, SIZE - high))
    return at, Block(size, far, (1, 1, 1))  # type: ignore[arg-type]


@given(blocks())
@example((10 * BLOCK, Block((1, 1, 4, BLOCK), (0, 0, -BLOCK), (1, 1, BLOCK))))
@example((10 * BLOCK, Block((2, 2, 2, 1), (-4 * BLOCK, BLOCK, -2 * BLOCK), (1, 1, 1))))
@example((SIZE - 1, Block((1, 1, SIZE, 1), (0, 0, -1), (0, 0, 1))))
def test_a_load_waits_for_the_last_store_to_its_bytes(case: tuple[int, Block]) -> None:
    """Strides of both signs: no store that reaches it is missed, and none behind its last byte is waited for."""
    at, block = case
    touched = bytes_of(at, block)
    _, loads = assembled(at, block, stores_first=True)
    assert loads[0][STORES] == max(touched) // BLOCK + 1


@given(blocks())
@example((10 * BLOCK, Block((1, 1, 4, BLOCK), (0, 0, -BLOCK), (1, 1, BLOCK))))
@example((SIZE - 1, Block((1, 1, SIZE, 1), (0, 0, -1), (0, 0, 1))))
def test_stores_wait_for_a_load_of_their_bytes_before_them(case: tuple[int, Block]) -> None:
    """From the block of its least byte to that of its greatest; others may go ahead."""
    at, block = case
    touched = bytes_of(at, block)
    stores, _ = assembled(at, block, stores_first=False)
    waiting = [k for k, waits in enumerate(stores) if waits[LOADS]]
    assert waiting == list(range(min(touched) // BLOCK, max(touched) // BLOCK + 1))


@pytest.mark.parametrize("stride", [-BLOCK, BLOCK])
def test_a_slice_backwards_touches_what_lies_before_its_first_byte(stride: int) -> None:
    """Example: four rows of 64 bytes from byte 640 on are rows 10, 9, 8, 7 backwards and 10 to 13 forwards."""
    block = Block((1, 1, 4, BLOCK), (0, 0, stride), (0, 0, BLOCK))
    stores, _ = assembled(10 * BLOCK, block, stores_first=False)
    expected = [7, 8, 9, 10] if stride < 0 else [10, 11, 12, 13]
    assert [k for k, waits in enumerate(stores) if waits[LOADS]] == expected
