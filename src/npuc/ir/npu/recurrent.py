"""LSTM, GRU and simple recurrent layers on integers: docs/arithmetic-recurrent.md.

Weights are directions x rows x width, the rows of one gate after the other; `multiplier_x`, `multiplier_h`, `shift` and
`bias` have one entry a row. `to` is the type of the outputs and of the state that the products read. The tables have 513
entries: that of the gates (not of a simple layer), that of new values, and of an LSTM that of cells.
"""

from collections.abc import Sequence
from math import frexp
from typing import ClassVar

from xdsl.ir import Attribute

from npuc.arithmetic.requantization import is_power_of_two
from npuc.ir.definition import (
    AttrSizedOperandSegments,
    boolean,
    element_type,
    integer,
    integers,
    operand,
    optional_operand,
    require,
    results,
    shape_of,
    text,
)
from npuc.ir.dtypes import QuantType, quant_of, tensor_type
from npuc.ir.npu.definition import NpuOp, npu_op, quantized

STATE = QuantType.of("i16", 2.0**-15, 0)
"""The inner state of a GRU."""


class Recurrent(NpuOp):
    """Shared by all; `lo` and `hi` limit the outputs, `direction` is forward, reverse or bidirectional.

    Arguments of gates are clamped to ±`limit`; 32768 is 16 bits. `parameters`: multiplier, shift of the output.
    """

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    GATES: ClassVar[int]
    TABLES: ClassVar[int]

    x = operand()
    weight = operand()
    recurrence = operand()
    multiplier_x = operand()
    multiplier_h = operand()
    shift = operand()
    bias = operand()
    tables = operand()
    initial_h = optional_operand()
    lo: int = integer()
    hi: int = integer()
    direction: str = text("forward")
    limit: int = integer(32768)
    parameters: tuple[int, ...] = integers()
    parts = results()

    def infer(self) -> Sequence[Attribute]:
        """The whole sequence (sequence x directions x batch x hidden), then the last state."""
        x, recurrence = shape_of(self.x), shape_of(self.recurrence)
        quantized(self.x)
        require(len(x) == 3, "x needs rank 3: sequence x batch x input")
        require(len(recurrence) == 3, "the recurrence weight needs rank 3: directions x rows x outputs")
        width = recurrence[2]
        whole = tensor_type((x[0], recurrence[0], x[1], width), self.to)
        last = tensor_type((recurrence[0], x[1], width), self.to)
        return [whole, last]

    @property
    def hidden(self) -> int:
        """Units of a direction."""
        return shape_of(self.recurrence)[1] // self.GATES

    @property
    def width(self) -> int:
        """Outputs of a direction: its units, unless they are projected."""
        return self.hidden

    def check(self) -> None:
        """Every constant fits the weights, the initial state the outputs."""
        require(isinstance(self.to, QuantType), "the result must be quantized")
        assert isinstance(self.to, QuantType)
        least, most = self.to.dtype.limits
        require(least <= self.lo <= self.hi <= most, f"limits {self.lo} to {self.hi}")
        require(0 <= self.limit <= 32768, f"arguments of gates up to {self.limit}")
        directions = {"forward": 1, "reverse": 1, "bidirectional": 2}.get(self.direction, 0)
        require(directions > 0, f"unknown direction '{self.direction}'")
        x, width = shape_of(self.x), self.width
        rows = self.GATES * self.hidden
        require(shape_of(self.weight) == (directions, rows, x[2]), "the weight does not fit")
        require(shape_of(self.recurrence) == (directions, rows, width), "the recurrence weight does not fit")
        for value in (self.multiplier_x, self.multiplier_h, self.shift, self.bias):
            require(shape_of(value) == (directions, rows), "constants need one entry a row")
        require(
            shape_of(self.tables) == (self.TABLES, 513), f"{self.TABLES} tables of 513 entries are needed"
        )
        require(len(self.parameters) == 2, f"{self.name} has 2 parameters")
        if self.initial_h is not None:
            state_type = tensor_type((directions, x[1], width), self.initial_type)
            require(self.initial_h.type == state_type, "the initial state does not fit")

    @property
    def initial_type(self) -> Attribute:
        """The type of the initial state."""
        return self.to


@npu_op
class RNN(Recurrent):
    """A simple recurrent layer: one function of the sums, by the table."""

    name = "npu.rnn"
    GATES: ClassVar[int] = 1
    TABLES: ClassVar[int] = 1


@npu_op
class LSTM(Recurrent):
    """Long short-term memory, gates in the order input, forget, cell, output.

    `cell` is the type of the cell state, i16 with a scale of 2^-f, zero point 0; a third result is the last cell state.
    `peephole`, directions x (3 * hidden), is of the input, forget and output gate; `multiplier_c` goes with it. If the gates are
    `coupled`, the forget gate is 1 less the input gate. A `projection`, directions x outputs x hidden, with `multiplier_p` and
    `shift_p`, an entry an output, makes the outputs of what the units give.
    """

    name = "npu.lstm"
    GATES: ClassVar[int] = 4
    TABLES: ClassVar[int] = 3
    initial_c = optional_operand()
    peephole = optional_operand()
    multiplier_c = optional_operand()
    projection = optional_operand()
    multiplier_p = optional_operand()
    shift_p = optional_operand()
    cell: Attribute = element_type()
    coupled: bool = boolean(False)

    def infer(self) -> Sequence[Attribute]:
        """Whole sequence, last hidden state, last cell state."""
        whole, last = super().infer()
        directions, batch, _ = shape_of(last)
        return [whole, last, tensor_type((directions, batch, self.hidden), self.cell)]

    @property
    def width(self) -> int:
        """Outputs of a direction: its units, unless they are projected."""
        return self.hidden if self.projection is None else shape_of(self.projection)[1]

    def check(self) -> None:
        """The cell's scale is a power of two."""
        super().check()
        kind = self.cell
        require(
            isinstance(kind, QuantType) and kind.dtype.name == "i16" and kind.zero_point == 0,
            "a cell state is i16 with zero point 0",
        )
        assert isinstance(kind, QuantType)
        require(is_power_of_two(kind.scale) and 2.0**-15 <= kind.scale <= 1, "a cell's scale is 2^-15 to 1")
        if self.initial_c is not None:
            require(
                quant_of(self.initial_c) == kind and shape_of(self.initial_c) == shape_of(self.parts[2]),
                "the initial cell state does not fit",
            )
        require((self.peephole is None) == (self.multiplier_c is None), "multiplier_c goes with peepholes")
        directions = shape_of(self.recurrence)[0]
        for value in (self.peephole, self.multiplier_c):
            if value is not None:
                require(
                    shape_of(value) == (directions, 3 * self.hidden), "peepholes need three entries a unit"
                )
        projected = [self.projection, self.multiplier_p, self.shift_p]
        require(len({value is None for value in projected}) == 1, "a projection has multipliers and shifts")
        if self.projection is not None and self.multiplier_p is not None and self.shift_p is not None:
            shape = (directions, self.width, self.hidden)
            require(shape_of(self.projection) == shape, "the projection does not fit")
            for value in (self.multiplier_p, self.shift_p):
                require(shape_of(value) == shape[:2], "a projection needs one entry an output")

    @property
    def cell_bits(self) -> int:
        """Bits behind the point of a cell."""
        assert isinstance(self.cell, QuantType)
        return 1 - frexp(self.cell.scale)[1]


@npu_op
class GRU(Recurrent):
    """A gated recurrent unit, gates in the order update, reset, new.

    `state` is the type of the last state: that of the outputs, or `STATE`, the one that it is computed in; an initial state
    is of `STATE`. `bias_h`, an entry a unit, stands behind the reset where `linear_before_reset`.
    """

    name = "npu.gru"
    GATES: ClassVar[int] = 3
    TABLES: ClassVar[int] = 2
    bias_h = optional_operand()
    linear_before_reset: bool = boolean(False)
    state: Attribute = element_type()

    def infer(self) -> Sequence[Attribute]:
        """Whole sequence, last state."""
        whole, last = super().infer()
        return [whole, tensor_type(shape_of(last), self.state)]

    def check(self) -> None:
        """A bias behind the reset just where it is read."""
        super().check()
        require(self.state in (self.to, STATE), "the last state has the type of the outputs, or i16 in 2^-15")
        require((self.bias_h is not None) == self.linear_before_reset, "bias_h goes with linear_before_reset")
        if self.bias_h is not None:
            directions, _, hidden = shape_of(self.recurrence)
            require(shape_of(self.bias_h) == (directions, hidden), "bias_h needs one entry a unit")

    @property
    def initial_type(self) -> Attribute:
        """The type of the initial state."""
        return STATE
