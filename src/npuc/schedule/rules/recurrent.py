"""LSTM, GRU and simple recurrent layers: one instruction a direction, which goes through all steps in local memory.

TFLite's integer LSTM has an instruction of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from npuc.arrays import Array
from npuc.ir import Graph, dtype_of, npu, shape_of, top
from npuc.ir.lstm_parameters import lstm_parameters
from npuc.kernels.recurrent import GATES, RecurrentParameters
from npuc.program.instruction import Address
from npuc.program.instructions import QuantizedLstm, Recurrent
from npuc.schedule.constants import Constants
from npuc.schedule.layers import InstructionTemplate, Layer, LayerOp, Place, Rows, Tensor, Tile, aligned
from npuc.schedule.rules import NotHere, Tensors, layers_as
from npuc.schedule.rules.common import ABSENT, DTYPES, is_natural, result, source, turned
from npuc.schedule.rules.weights import stored_weights

_NATURAL = (0, 1, 2, 3)


@dataclass(frozen=True)
class RecurrentOp(LayerOp):
    """All directions of a recurrent layer.

    An instruction gives the steps of its direction with those of the other between them. Where memory has another order, the
    outputs are brought there from scratch memory.
    """

    x: Tensor
    y: Tensor
    initial: tuple[Tensor | None, Tensor | None]
    """What the hidden state and the inner one begin with, unless it is a constant."""
    last: tuple[Tensor | None, Tensor | None]
    """What they end with."""
    blocks: Constants
    """The constants of the directions, one block each, by their number; `first_h` and `first_state` where they are constants."""
    parameters: RecurrentParameters = field(compare=False, repr=False)
    """Of the first direction; the others differ in their constants only."""
    weight_type: str
    reverse: tuple[bool, ...]
    lo: int
    hi: int

    @property
    def shared_constants(self) -> Constants:
        """The blocks of all directions."""
        return self.blocks

    @cached_property
    def in_order(self) -> bool:
        """Whether the outputs have the order of the instruction in memory."""
        return is_natural(self.y)

    def scratch(self, rows: Rows) -> int:
        """The outputs in the order of the instruction."""
        return 0 if self.in_order else aligned(self.y.size)

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """An instruction a direction, perhaps with a copy behind them."""
        templates = [self._direction(number) for number in range(len(self.reverse))]
        if not self.in_order:
            templates.append(turned(self.y, _NATURAL, Place("scratch"), Place("out0"), back=True))
        return templates

    def _direction(self, number: int) -> InstructionTemplate:
        p, x, y = self.parameters, self.x, self.y
        steps, batch, inputs = x.shape
        outputs = batch * p.width
        block = self.blocks.places[str(number)]
        reads = [("in0", 0, x.size), ("const", block, block + self.blocks[str(number)].nbytes)]
        writes: list[tuple[str, int, int]] = []

        def place(tensor: Tensor | None, slot: str, spans: list[tuple[str, int, int]]) -> Address:
            if tensor is None:
                return ABSENT
            size = batch * tensor.shape[-1] * tensor.itemsize
            spans.append((slot, number * size, (number + 1) * size))
            return Place(slot, number * size)

        def begin(index: int, name: str) -> Address:
            if name in self.blocks:
                size = self.blocks[name].nbytes // len(self.reverse)
                start = self.blocks.places[name] + number * size
                reads.append(("const", start, start + size))
                return Place("const", start)
            return place(self.initial[index], _slot("in", self.initial, index), reads)

        first_h, first_state = begin(0, "first_h"), begin(1, "first_state")
        last_h, last_state = (
            place(tensor, _slot("out", self.last, index), writes) for index, tensor in enumerate(self.last)
        )
        slot = "out0" if self.in_order else "scratch"
        at = number * outputs * y.itemsize
        stride = len(self.reverse) * outputs
        writes.append((slot, at, at + ((steps - 1) * stride + outputs) * y.itemsize))
        instruction = Recurrent(
            source=source(x),
            steps=steps,
            batch=batch,
            inputs=inputs,
            hidden=p.hidden,
            gates=GATES[p.cell],
            reverse=int(self.reverse[number]),
            linear_before_reset=int(p.linear_before_reset),
            coupled=int(p.coupled),
            peephole=int(p.peephole is not None),
            cell_bits=p.cell_bits,
            w_dtype=DTYPES[self.weight_type],
            limit=p.limit,
            constants=Place("const", block),
            first_h=first_h,
            first_state=first_state,
            last_h=last_h,
            last_state=last_state,
            result=result(y, at, slot),
            y_stride=stride,
            multiplier=p.out_multiplier,
            shift=p.out_shift,
            zero_point=y.zero_point,
            lo=self.lo,
            hi=self.hi,
            projected=0 if p.projection is None else p.width,
        )
        return InstructionTemplate(instruction, tuple(reads), tuple(writes))


def _slot(kind: str, states: tuple[Tensor | None, ...], index: int) -> str:
    """The name of a state: operands and results are numbered in their order, as far as they are there, behind x and y."""
    return f"{kind}{1 + sum(state is not None for state in states[:index])}"


def constant_block(p: RecurrentParameters, weight_type: str) -> Array:
    """The constants of a direction in the order of docs/arithmetic-recurrent.md."""
    matrices = [p.w, p.r, *([] if p.projection is None else [p.projection])]
    weights = np.concatenate([matrix.reshape(-1) for matrix in matrices])
    parts = [
        p.bias.astype("<i8"),
        *([] if p.bias_h is None else [p.bias_h.astype("<i8")]),
        *(array.astype("<i4") for array in (p.multiplier_x, p.multiplier_h, p.shift)),
        *(array.astype("<i4") for array in (p.multiplier_c, p.multiplier_p, p.shift_p) if array is not None),
        p.tables.astype("<i2"),
        *([] if p.peephole is None else [p.peephole.astype("<i2")]),
        stored_weights(weights.astype("i1" if weight_type == "i8" else "<i2"), weight_type),
    ]
    return np.concatenate([np.ascontiguousarray(part).view(np.uint8).reshape(-1) for part in parts])


@layers_as(npu.LSTM, npu.GRU, npu.RNN)
def recurrent(op: npu.LSTM | npu.GRU | npu.RNN, graph: Graph, tensor: Tensors) -> Layer:
    """Whole: a step needs the state that the one before it leaves."""
    from npuc.engine.handlers.recurrent import direction_parameters, result_parts  # few networks need them

    if graph.constant(op.x) is not None:
        raise NotHere("its sequence is a constant")
    x, y = tensor(op.x), tensor(op.parts[0])
    initial_c = op.initial_c if isinstance(op, npu.LSTM) else None
    begin = (None, op.initial_h) if isinstance(op, npu.GRU) else (op.initial_h, initial_c)
    initial: list[Tensor | None] = [None, None]
    constants: dict[str, Array] = {}
    for index, (name, value) in enumerate(zip(("first_h", "first_state"), begin, strict=True)):
        array = graph.constant(value)
        if array is not None:
            constants[name] = np.ascontiguousarray(array)
        elif value is not None:
            initial[index] = tensor(value)
    last: list[Tensor | None] = [None, None]
    for part, value in zip(result_parts(op)[1:], op.parts[1:], strict=True):
        last[part - 1] = tensor(value)
    directions = shape_of(op.weight)[0]
    layers = [direction_parameters(op, graph, number) for number in range(directions)]
    weight_type = dtype_of(op.weight.type).name
    blocks = {str(number): constant_block(layer, weight_type) for number, layer in enumerate(layers)}
    computed = RecurrentOp(
        x=x,
        y=y,
        initial=(initial[0], initial[1]),
        last=(last[0], last[1]),
        blocks=Constants({**blocks, **constants}),
        parameters=layers[0],
        weight_type=weight_type,
        reverse=tuple(op.direction == "reverse" or number == 1 for number in range(directions)),
        lo=op.lo,
        hi=op.hi,
    )
    inputs = (x, *(entry for entry in initial if entry is not None))
    outputs = tuple(tensor(value) for value in op.parts)
    return Layer(y.name, layers[0].cell, inputs, outputs, computed, source=op)


@dataclass(frozen=True)
class QuantizedLstmOp(LayerOp):
    """TFLite's integer LSTM: one instruction, whatever the order of samples and steps."""

    x: Tensor
    y: Tensor
    blocks: Constants
    template: QuantizedLstm
    """The instruction, its addresses relative to the tensors."""

    @property
    def shared_constants(self) -> Constants:
        """One block."""
        return self.blocks

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """The instruction."""
        reads = (("in0", 0, self.x.size), ("const", 0, self.blocks["layer"].nbytes))
        return [InstructionTemplate(self.template, reads, (("out0", 0, self.y.size),))]


@layers_as(top.QuantizedLSTM)
def quantized_lstm(op: top.QuantizedLSTM, graph: Graph, tensor: Tensors) -> Layer:
    """Whole: a step needs the state that the one before it leaves."""
    if graph.constant(op.x) is not None:
        raise NotHere("its sequence is a constant")
    x, y = tensor(op.x), tensor(op.y)
    if not is_natural(x) or not is_natural(y):
        raise NotHere("its sequence has another order of axes in memory")
    layer = lstm_parameters(op, graph)
    steps, batch = x.shape[:2] if op.time_major else (x.shape[1], x.shape[0])
    inputs = x.shape[2]
    blocks = Constants({"layer": layer.constant_block()})
    template = QuantizedLstm(
        x=Place("in0", 0),
        y=Place("out0", 0),
        constants=Place("const", blocks.places["layer"]),
        steps=steps,
        batch=batch,
        inputs=inputs,
        cells=layer.cells,
        outputs=layer.outputs,
        x_step=inputs * (batch if op.time_major else 1),
        x_sample=inputs * (1 if op.time_major else steps),
        y_step=layer.outputs * (batch if op.time_major else 1),
        y_sample=layer.outputs * (1 if op.time_major else steps),
        coupled=int(layer.is_coupled),
        norm=int(layer.norm is not None),
        projected=int(layer.projection is not None),
        integer_bits=layer.integer_bits,
        peephole_rows=layer.peephole_rows,
        cell_clip=layer.cell_clip,
        first_h=layer.first_h,
    )
    return Layer(y.name, "lstm", (x,), (y,), QuantizedLstmOp(x, y, blocks, template), source=op)
