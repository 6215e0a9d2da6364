"""Recurrent layers, with ONNX's operand layout: x is sequence x batch x input, weights are directions x gates x ..."""

from collections.abc import Sequence
from typing import ClassVar

from xdsl.ir import Attribute

from npuc.ir.definition import (
    AttrSizedOperandSegments,
    TopOp,
    boolean,
    integer,
    number,
    numbers,
    operand,
    optional_operand,
    require,
    results,
    shape_of,
    text,
    texts,
    top_op,
)
from npuc.ir.dtypes import dtype_of, tensor_type


class Recurrent(TopOp):
    """Shared by the recurrent ops. `direction` is forward, reverse or bidirectional; `clip` 0 is none."""

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    GATES: ClassVar[int] = 1

    x = operand()
    weight = operand()
    recurrence = operand()
    bias = optional_operand()
    sequence_lengths = optional_operand()
    initial_h = optional_operand()
    hidden: int = integer()
    direction: str = text("forward")
    activations: tuple[str, ...] = texts(())
    activation_alpha: tuple[float, ...] = numbers(())
    activation_beta: tuple[float, ...] = numbers(())
    clip: float = number(0.0)
    parts = results()

    def infer(self) -> Sequence[Attribute]:
        """The whole sequence (sequence x directions x batch x hidden), then the last state."""
        x = shape_of(self.x)
        require(len(x) == 3, "x needs rank 3: sequence x batch x input")
        require(
            self.direction in ("forward", "reverse", "bidirectional"), f"unknown direction '{self.direction}'"
        )
        directions = 2 if self.direction == "bidirectional" else 1
        gates, width = self.GATES * self.hidden, self.width
        require(shape_of(self.weight) == (directions, gates, x[2]), "the weight does not fit")
        require(
            shape_of(self.recurrence) == (directions, gates, width),
            "the recurrence weight does not fit",
        )
        dtype = dtype_of(self.x.type)
        whole = tensor_type((x[0], directions, x[1], width), dtype)
        last = tensor_type((directions, x[1], width), dtype)
        return [whole, last]

    @property
    def width(self) -> int:
        """Outputs of a direction: its units, unless they are projected."""
        return self.hidden


@top_op
class RNN(Recurrent):
    """A simple recurrent layer."""

    name = "top.rnn"


@top_op
class GRU(Recurrent):
    """A gated recurrent unit; gates in the order z r h."""

    name = "top.gru"
    GATES: ClassVar[int] = 3
    linear_before_reset: bool = boolean(False)


@top_op
class LSTM(Recurrent):
    """Long short-term memory; gates in the order i o f c. A third result is the last cell state.

    `projection`, directions x outputs x hidden, makes the outputs of what the units give; ONNX has none.
    """

    name = "top.lstm"
    GATES: ClassVar[int] = 4
    initial_c = optional_operand()
    peephole = optional_operand()
    projection = optional_operand()
    input_forget: bool = boolean(False)

    def infer(self) -> Sequence[Attribute]:
        """Whole sequence, last hidden state, last cell state."""
        whole, last = super().infer()
        usual = not (self.activations or self.clip or self.input_forget or self.sequence_lengths)
        require(self.projection is None or usual, "a projection goes with the usual gates only")
        directions, batch, _ = shape_of(last)
        return [whole, last, tensor_type((directions, batch, self.hidden), dtype_of(self.x.type))]

    @property
    def width(self) -> int:
        """Outputs of a direction: its units, unless they are projected."""
        if self.projection is None:
            return self.hidden
        shape = shape_of(self.projection)
        require(len(shape) == 3 and shape[2] == self.hidden, "the projection does not fit")
        return shape[1]
