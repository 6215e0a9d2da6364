"""LSTM and GRU on integers: docs/arithmetic-recurrent.md.

Weights are directions x rows x width, the rows of one gate after the other; `multiplier_x`, `multiplier_h`, `shift` and
`bias` have one entry a row. `to` is the type of the outputs and of the state that the products read. The tables have 513
entries.
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


class Recurrent(NpuOp):
    """Shared by both; `lo` and `hi` limit the outputs, `direction` is forward, reverse or bidirectional."""

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    GATES: ClassVar[int]
    PARAMETERS: ClassVar[int]

    x = operand()
    weight = operand()
    recurrence = operand()
    multiplier_x = operand()
    multiplier_h = operand()
    shift = operand()
    bias = operand()
    sigmoid = operand()
    tanh = operand()
    initial_h = optional_operand()
    lo: int = integer()
    hi: int = integer()
    direction: str = text("forward")
    parameters: tuple[int, ...] = integers()
    parts = results()

    def infer(self) -> Sequence[Attribute]:
        """The whole sequence (sequence x directions x batch x hidden), then the last state."""
        x, recurrence = shape_of(self.x), shape_of(self.recurrence)
        quantized(self.x)
        require(len(x) == 3, "x needs rank 3: sequence x batch x input")
        require(len(recurrence) == 3, "the recurrence weight needs rank 3: directions x rows x hidden")
        hidden = recurrence[2]
        whole = tensor_type((x[0], recurrence[0], x[1], hidden), self.to)
        last = tensor_type((recurrence[0], x[1], hidden), self.to)
        return [whole, last]

    def check(self) -> None:
        """Every constant fits the weights, the initial state the outputs."""
        require(isinstance(self.to, QuantType), "the result must be quantized")
        assert isinstance(self.to, QuantType)
        least, most = self.to.dtype.limits
        require(least <= self.lo <= self.hi <= most, f"limits {self.lo} to {self.hi}")
        directions = {"forward": 1, "reverse": 1, "bidirectional": 2}.get(self.direction, 0)
        require(directions > 0, f"unknown direction '{self.direction}'")
        x, hidden = shape_of(self.x), shape_of(self.recurrence)[2]
        rows = self.GATES * hidden
        require(shape_of(self.weight) == (directions, rows, x[2]), "the weight does not fit")
        require(shape_of(self.recurrence) == (directions, rows, hidden), "the recurrence weight does not fit")
        for value in (self.multiplier_x, self.multiplier_h, self.shift, self.bias):
            require(shape_of(value) == (directions, rows), "constants need one entry a row")
        for value in (self.sigmoid, self.tanh):
            require(shape_of(value) == (513,), "tables have 513 entries")
        require(len(self.parameters) == self.PARAMETERS, f"{self.name} has {self.PARAMETERS} parameters")
        if self.initial_h is not None:
            state_type = tensor_type((directions, x[1], hidden), self.to)
            require(self.initial_h.type == state_type, "the initial state does not fit")


@npu_op
class LSTM(Recurrent):
    """Long short-term memory, gates in the order input, forget, cell, output; parameters: multiplier, shift of the output.

    `cell` is the type of the cell state, i16 with a scale of 2^-f, zero point 0; a third result is the last cell state.
    """

    name = "npu.lstm"
    GATES: ClassVar[int] = 4
    PARAMETERS: ClassVar[int] = 2
    cell_tanh = operand()
    initial_c = optional_operand()
    cell: Attribute = element_type()

    def infer(self) -> Sequence[Attribute]:
        """Whole sequence, last hidden state, last cell state."""
        whole, last = super().infer()
        return [whole, last, tensor_type(shape_of(last), self.cell)]

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
        require(shape_of(self.cell_tanh) == (513,), "tables have 513 entries")
        if self.initial_c is not None:
            require(
                quant_of(self.initial_c) == kind and shape_of(self.initial_c) == shape_of(self.parts[1]),
                "the initial cell state does not fit",
            )

    @property
    def cell_bits(self) -> int:
        """Bits behind the point of a cell."""
        assert isinstance(self.cell, QuantType)
        return 1 - frexp(self.cell.scale)[1]


@npu_op
class GRU(Recurrent):
    """A gated recurrent unit, gates in the order update, reset, new.

    Parameters: multiplier, shift of the output; multiplier, shift from the initial state to the inner one. `bias_h`, an
    entry a unit, stands behind the reset where `linear_before_reset`.
    """

    name = "npu.gru"
    GATES: ClassVar[int] = 3
    PARAMETERS: ClassVar[int] = 4
    bias_h = optional_operand()
    linear_before_reset: bool = boolean(False)

    def check(self) -> None:
        """A bias behind the reset just where it is read."""
        super().check()
        require((self.bias_h is not None) == self.linear_before_reset, "bias_h goes with linear_before_reset")
        if self.bias_h is not None:
            directions, _, hidden = shape_of(self.recurrence)
            require(shape_of(self.bias_h) == (directions, hidden), "bias_h needs one entry a unit")
