"""A code generator for a machine that has nothing in common with npuc's own, on the same schedule; and its interpreter.

The row machine executes one instruction after the other. Its accumulator is one row of pixels, its multiplier takes one row
of a kernel at a time, and its weights lie as (rows, columns, inputs, outputs), then biases, multipliers and shifts. It has no
queues, no semaphores and no strided transfers. All it shares with npuc's machine is what the target says: the local memory,
the cores, and the arithmetic of the kind `single_rounding`.

    get  OBJECT BYTE ADDRESS SIZE     DRAM to local memory; t3 is tensor 3, c0 the first block of constants
    put  OBJECT BYTE ADDRESS SIZE     local memory to DRAM
    bias at= out= width=              the accumulator begins with the biases, or with zeros if they are at -1
    mac  x= w= ...                    it gets one row of x times one row of the kernel
    rq   m= s= ... y=                 requantized, it is written to local memory
    max  x= y= ... first=             one row of a window of a pool
    add  a= b= y= ...                 a row of a sum
    sync                              all cores come here before any goes on

The generator reads the schedule without npuc's instructions: steps, tiles, buffers, and the record of what each layer computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.program.instruction import Place, TypedInstruction
from npuc.program.instructions import Copy
from npuc.schedule import Schedule
from npuc.schedule.artifact import (
    BarrierStep,
    ComputeStep,
    CoreSchedule,
    LoadStep,
    StoreStep,
)
from npuc.schedule.layers import LayerOp, Rows, Tile
from npuc.schedule.moves import Block
from npuc.schedule.rules.elementwise import AddOp, MaxPoolOp
from npuc.schedule.rules.linear import ConvOp

# The code generator


def generate(schedule: Schedule) -> tuple[list[list[str]], dict[str, Array]]:
    """The program of each core, and the constants in the layout of this machine."""
    constants = {
        f"c{number}": _constants(schedule.layers[block.layer].op, block.channels, block.size)
        for number, block in enumerate(schedule.constants)
    }
    return [list(_program(schedule, core)) for core in schedule.cores], constants


def _constants(op: LayerOp | None, channels: Rows, size: int) -> Array:
    assert isinstance(op, ConvOp)
    part = slice(*channels) if channels[1] else slice(None)
    weight, parameters = op.weights.arrays["weight"], op.weights.requantization.parameters
    biases = [op.weights.arrays["bias"][part]] if "bias" in op.weights.arrays else []
    stage = [
        np.broadcast_to(parameters[name].reshape(-1), weight.shape[0])[part]
        for name in ("multiplier", "shift")
    ]
    blocks = [weight[part].transpose(2, 3, 1, 0), *(array.astype(np.int32) for array in (*biases, *stage))]
    block = np.frombuffer(b"".join(np.ascontiguousarray(array).tobytes() for array in blocks), np.uint8)
    assert block.size <= size  # the room that the schedule has for it
    return block


def _program(schedule: Schedule, core: CoreSchedule) -> Iterator[str]:
    for step in core.steps:
        match step:
            case BarrierStep():
                yield "sync"
            case LoadStep() | StoreStep():
                loads = isinstance(step, LoadStep)
                near = core.buffers[step.buffer].address + step.offset
                if isinstance(step, LoadStep) and step.tensor < 0:
                    yield f"get c{step.constants} 0 {near} {step.size}"
                    continue
                far = step.source if isinstance(step, LoadStep) else step.target
                for far_start, other, size in _runs(step.block, step.size):
                    word = "get" if loads else "put"
                    yield f"{word} t{step.tensor} {far + far_start} {near + other} {size}"
            case ComputeStep():
                op = schedule.layers[step.layer].op
                at = {slot: core.buffers[number].address for slot, number in step.operands.items()}
                if step.tile is None:  # rows at the seam of two tiles are copied aside
                    yield from (
                        line for issued in step.instructions for line in _moves(issued.instruction, at)
                    )
                else:
                    yield from _RULES[type(op)](op, step.tile, at)


def _moves(copy: TypedInstruction, at: Mapping[str, int]) -> Iterator[str]:
    """A copy between views of local memory as dense runs."""
    assert isinstance(copy, Copy) and isinstance(copy.x, Place) and isinstance(copy.y, Place)
    assert copy.x_stride[-1] == copy.y_stride[-1] == 1 or copy.size[-1] == 1
    for place in product(*map(range, copy.size[:-1])):
        x, y = (
            sum(map(int.__mul__, place, strides)) * copy.bytes for strides in (copy.x_stride, copy.y_stride)
        )
        source, target = at[copy.x.slot] + copy.x.offset + x, at[copy.y.slot] + copy.y.offset + y
        yield f"move x={source} y={target} size={copy.size[-1] * copy.bytes}"


def _runs(block: Block | None, size: int) -> Iterator[tuple[int, int, int]]:
    """A transfer as dense runs: bytes in DRAM, in local memory, and how many."""
    if block is None:
        yield 0, 0, size
        return
    for place in product(*map(range, block.size[:3])):
        far, near = (sum(map(int.__mul__, place, strides)) for strides in (block.far, block.near))
        yield far, near, block.size[3]


def _conv(op: ConvOp, tile: Tile, at: Mapping[str, int]) -> Iterator[str]:
    x, y, window, requantization = op.x, op.y, op.window, op.weights.requantization
    assert requantization.kind == "single_rounding" and op.groups == 1 and op.weights.zero_point == 0
    (_, inputs, height, width), (_, outputs, _, out_w) = x.shape, y.shape
    (kh, kw), (sh, sw), (dh, dw), (up, left) = window.kernel, window.stride, window.dilation, window.pad
    c0, c1 = tile.channels
    out, biased = c1 - c0, "bias" in op.weights.arrays
    biases = at["const"] + kh * kw * inputs * out
    stage = biases + (4 * out if biased else 0)
    for row in range(*tile.rows):
        yield f"bias at={biases if biased else -1} out={out} width={out_w}"
        for tap in range(kh):
            line = row * sh - up + tap * dh
            if 0 <= line < height:
                address = at["in0"] + (line - tile.inputs[0][0]) * width * inputs
                kernel = at["const"] + tap * kw * inputs * out
                yield (
                    f"mac x={address} w={kernel} width={width} in={inputs} out={out} kw={kw} stride={sw} step={dw} "
                    f"pad={left} zero={x.zero_point}"
                )
        target = at["out0"] + (row - tile.output[0]) * out_w * outputs + c0
        yield (
            f"rq m={stage} s={stage + 4 * out} zero={y.zero_point} lo={requantization.lo} hi={requantization.hi} "
            f"y={target} pixel={outputs}"
        )


def _pool(op: MaxPoolOp, tile: Tile, at: Mapping[str, int]) -> Iterator[str]:
    (_, c, height, width), out_w, window = op.x.shape, op.y.shape[3], op.window
    for row in range(*tile.rows):
        first = 1
        for tap in range(window.kernel[0]):
            line = row * window.stride[0] - window.pad[0] + tap
            if 0 <= line < height:
                address = at["in0"] + (line - tile.inputs[0][0]) * width * c
                target = at["out0"] + (row - tile.output[0]) * out_w * c
                yield (
                    f"max x={address} y={target} width={width} c={c} out={out_w} kw={window.kernel[1]} "
                    f"stride={window.stride[1]} pad={window.pad[1]} first={first}"
                )
                first = 0


def _add(op: AddOp, tile: Tile, at: Mapping[str, int]) -> Iterator[str]:
    a, b, y, (m_a, m_b, _), (_, _, shift) = op.a, op.b, op.y, op.multiplier, op.shift
    assert op.kind == "single_rounding" and a.shape == b.shape == y.shape
    size = y.shape[3] * y.shape[1]
    for row in range(*tile.rows):
        starts = [at[f"in{i}"] + (row - tile.inputs[i][0]) * size for i in range(2)]
        target = at["out0"] + (row - tile.output[0]) * size
        yield (
            f"add a={starts[0]} b={starts[1]} y={target} size={size} ma={m_a} mb={m_b} s={shift} za={a.zero_point} "
            f"zb={b.zero_point} zero={y.zero_point} lo={op.lo} hi={op.hi}"
        )


_RULES: dict[type, Callable[..., Iterator[str]]] = {ConvOp: _conv, MaxPoolOp: _pool, AddOp: _add}

# The interpreter, which knows the instructions above and nothing of schedules


def run(programs: Sequence[Sequence[str]], objects: dict[str, Array], local_memory: int) -> int:
    """Execute the programs of all cores on objects in DRAM; how many instructions that were."""
    cores = [_Core(local_memory) for _ in programs]
    waiting = [iter(program) for program in programs]
    done = 0
    while waiting:
        reached = []
        for core, lines in zip(cores, waiting, strict=True):
            for line in lines:
                done += 1
                if line == "sync":
                    reached.append(lines)
                    break
                core.execute(line, objects)
        assert len(reached) in (0, len(cores)), "some cores wait for a barrier that others do not come to"
        waiting = reached
    return done


class _Core:
    def __init__(self, size: int) -> None:
        self.memory = np.full(size, 0x55, np.uint8)  # what nobody wrote is no zero
        self.row = np.zeros((0, 0), np.int64)

    def execute(self, line: str, objects: dict[str, Array]) -> None:
        name, *words = line.split()
        if name in ("get", "put"):
            far, (byte, near, size) = objects[words[0]], map(int, words[1:])
            far_bytes, other = far[byte : byte + size], self.memory[near : near + size]
            if name == "get":
                other[: far_bytes.size] = far_bytes
            else:
                far_bytes[:] = other
            return
        numbers = {key: int(value) for key, value in (word.split("=") for word in words)}
        getattr(self, f"_{name}")(numbers)

    def _move(self, numbers: dict[str, int]) -> None:
        x, y, size = numbers["x"], numbers["y"], numbers["size"]
        self.memory[y : y + size] = self.memory[x : x + size].copy()

    def _int8(self, at: int, *shape: int) -> Array:
        return self.memory[at : at + int(np.prod(shape))].view(np.int8).reshape(shape).astype(np.int64)

    def _int32(self, at: int, count: int) -> Array:
        return self.memory[at : at + 4 * count].copy().view("<i4").astype(np.int64)

    def _write(self, at: int, values: Array) -> None:
        self.memory[at : at + values.size] = values.astype(np.int8).view(np.uint8).reshape(-1)

    def _bias(self, n: Mapping[str, int]) -> None:
        biases = np.zeros(n["out"], np.int64) if n["at"] < 0 else self._int32(n["at"], n["out"])
        self.row = np.tile(biases, (n["width"], 1))

    def _mac(self, n: Mapping[str, int]) -> None:
        x = self._int8(n["x"], n["width"], n["in"]) - n["zero"]
        w = self._int8(n["w"], n["kw"], n["in"], n["out"])
        for pixel in range(len(self.row)):
            for tap in range(n["kw"]):
                at = pixel * n["stride"] - n["pad"] + tap * n["step"]
                if 0 <= at < n["width"]:
                    self.row[pixel] += x[at] @ w[tap]

    def _rq(self, n: Mapping[str, int]) -> None:
        width, out = self.row.shape
        multiplier, shift = self._int32(n["m"], out), self._int32(n["s"], out)
        values = _rounded(self.row * multiplier, shift) + n["zero"]
        for pixel in range(width):
            self._write(n["y"] + pixel * n["pixel"], np.clip(values[pixel], n["lo"], n["hi"]))

    def _max(self, n: Mapping[str, int]) -> None:
        x = self._int8(n["x"], n["width"], n["c"])
        least = np.full((n["out"], n["c"]), -128)
        row = least if n["first"] else self._int8(n["y"], n["out"], n["c"])
        for pixel in range(n["out"]):
            low = pixel * n["stride"] - n["pad"]
            for at in range(max(low, 0), min(low + n["kw"], n["width"])):
                row[pixel] = np.maximum(row[pixel], x[at])
        self._write(n["y"], row)

    def _add(self, n: Mapping[str, int]) -> None:
        a, b = self._int8(n["a"], n["size"]) - n["za"], self._int8(n["b"], n["size"]) - n["zb"]
        values = _rounded(a * n["ma"] + b * n["mb"], np.int64(n["s"])) + n["zero"]
        self._write(n["y"], np.clip(values, n["lo"], n["hi"]))


def _rounded(values: Array, shift: Any) -> Array:
    """Divided by a power of two, halves upwards."""
    rounded: Array = (values + (np.int64(1) << (shift - 1))) >> shift
    return rounded
