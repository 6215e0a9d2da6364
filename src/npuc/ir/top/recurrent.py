"""Recurrent layers, with ONNX's operand layout: x is sequence x batch x input, weights are directions x gates x ..."""

from collections.abc import Sequence
from typing import ClassVar

from xdsl.ir import Attribute, SSAValue

from npuc.ir.definition import (
    AttrSizedOperandSegments,
    TopOp,
    boolean,
    integer,
    integers,
    number,
    numbers,
    operand,
    optional_operand,
    require,
    result,
    results,
    shape_of,
    text,
    texts,
    top_op,
)
from npuc.ir.dtypes import QuantType, dtype_of, element_of, quant_of, tensor_type


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


@top_op
class QuantizedLSTM(TopOp):
    """TFLite's integer LSTM: int8 activations and weights, int16 gates and cells, to the bit of LiteRT's kernel.

    `x` and the result are samples x steps x width, or steps x samples x width if `time_major`; they are reals in steps of
    `x_parameters` and `y_parameters` (scale and zero point), or integers of these types. Weights have a row for each gate (input,
    forget, cell, output; without the first if it is coupled to the second) and cell; `bias` is 2 x rows, of x and of the state.
    `gate_scales` are multiplier and shift of x, then of the state, for each gate. `npuc.arithmetic.quantized_lstm` has the rest.
    """

    name = "top.quantized_lstm"
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    x = operand()
    weight = operand()
    recurrence = operand()
    bias = operand()
    peephole = optional_operand()
    norm_weight = optional_operand()
    norm_bias = optional_operand()
    projection = optional_operand()
    projection_bias = optional_operand()
    time_major: bool = boolean(False)
    x_parameters: tuple[float, ...] = numbers()
    y_parameters: tuple[float, ...] = numbers()
    integer_bits: int = integer()
    cell_clip: int = integer(0)
    first_h: int = integer()
    gate_scales: tuple[int, ...] = integers()
    hidden_scale: tuple[int, ...] = integers()
    peephole_scales: tuple[int, ...] = integers(())
    norm_scales: tuple[int, ...] = integers(())
    projection_scale: tuple[int, ...] = integers(())
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """Outputs for every step, in the order of x; quantized if x is."""
        x, recurrence = shape_of(self.x), shape_of(self.recurrence)
        require(len(x) == 3 and len(recurrence) == 2, "x needs rank 3, weights rank 2")
        quantized = quant_of(self.x) is not None
        kind: Attribute = self.y_type if quantized else element_of(self.x)
        return [tensor_type((*x[:2], recurrence[1]), kind)]

    @property
    def gates(self) -> int:
        """3 or 4."""
        return len(self.gate_scales) // 4

    @property
    def hidden(self) -> int:
        """Cells."""
        return shape_of(self.weight)[0] // max(self.gates, 1)

    @property
    def constants(self) -> tuple[SSAValue | None, ...]:
        """All operands behind x, in order."""
        return (
            self.weight,
            self.recurrence,
            self.bias,
            self.peephole,
            self.norm_weight,
            self.norm_bias,
            self.projection,
            self.projection_bias,
        )

    @property
    def x_type(self) -> QuantType:
        """The integers of x."""
        return QuantType.of("i8", self.x_parameters[0], int(self.x_parameters[1]))

    @property
    def y_type(self) -> QuantType:
        """The integers of the result."""
        return QuantType.of("i8", self.y_parameters[0], int(self.y_parameters[1]))

    def check(self) -> None:
        """All constants fit the gates and the cells."""
        for parameters in (self.x_parameters, self.y_parameters):
            whole = len(parameters) == 2 and parameters[1] == int(parameters[1])
            require(
                whole and parameters[0] > 0 and -128 <= parameters[1] <= 127,
                "a scale and a zero point are needed",
            )
        require(quant_of(self.x) in (None, self.x_type), "x has another type than the layer was made for")
        require(
            self.gates in (3, 4) and len(self.gate_scales) == 4 * self.gates, "scales are for 3 or 4 gates"
        )
        samples = shape_of(self.x)[int(self.time_major)]
        rows, cells, outputs = shape_of(self.weight)[0], self.hidden, shape_of(self.recurrence)[1]
        require(rows == self.gates * cells and cells > 0, f"{rows} rows of {self.gates} gates")
        require(shape_of(self.weight) == (rows, shape_of(self.x)[2]), "the weight does not fit")
        require(shape_of(self.recurrence) == (rows, outputs), "the recurrence weight does not fit")
        require(shape_of(self.bias) == (2, rows), "a bias of x and one of the state are needed for each row")
        require(0 <= self.integer_bits <= 6, f"cells of {self.integer_bits} integer bits")
        require(
            0 <= self.cell_clip <= 32767 and -128 <= self.first_h <= 127, "a clip or a state beyond its type"
        )
        require(len(self.hidden_scale) == 3, "the hidden values need multiplier, shift and zero point")
        others = self.gates - 1
        if self.peephole is not None:
            fits = shape_of(self.peephole) in ((others, 1, cells), (others, samples, cells))
            require(fits and len(self.peephole_scales) == 2 * others, "the peepholes do not fit")
        require((self.norm_weight is None) == (self.norm_bias is None), "a layer norm has weights and biases")
        if self.norm_weight is not None and self.norm_bias is not None:
            fits = shape_of(self.norm_weight) == shape_of(self.norm_bias) == (rows,)
            require(fits and len(self.norm_scales) == 3 * self.gates, "the layer norms do not fit")
        require(
            (self.projection is None) == (self.projection_bias is None), "a projection has weights and biases"
        )
        if self.projection is not None and self.projection_bias is not None:
            fits = shape_of(self.projection) == (outputs, cells) and shape_of(self.projection_bias) == (
                outputs,
            )
            require(fits and len(self.projection_scale) == 4, "the projection does not fit")
        else:
            require(outputs == cells, f"{outputs} outputs of {cells} cells, without a projection")
