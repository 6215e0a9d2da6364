"""One step of TFLite's integer LSTM as an ONNX graph, the body of a `Scan` over the steps: docs/arithmetic-recurrent.md.

`LstmLayer` holds the integers of a layer; `step` writes the graph. All of it is exact: sums of products are float32 or
float64 below 2^24 or 2^53, the rest is int64. Arrays of the size of a layer are not in the graph but captured from
outside under the names of `Layer.captured`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import GraphProto, TensorProto, helper, numpy_helper

from npuc.arrays import Array
from npuc.frontend.tflite.fixed_point import sigmoid_table, tanh_table

Input = str | Array | int
SIGMOID, TANH = "sigmoid", "tanh"
_I64, _F32, _F64 = TensorProto.INT64, TensorProto.FLOAT, TensorProto.DOUBLE


@dataclass(frozen=True)
class Multiplier:
    """A real number as `multiplier * 2^-shift`, a multiplier of 31 bits."""

    multiplier: int
    shift: int


@dataclass(frozen=True, eq=False)
class Norm:
    """The layer norm of a gate: weights (int16), biases (int32), the scale of the weights, what stands for no variance."""

    weight: Array
    bias: Array
    scale: Multiplier
    guard: int


@dataclass(frozen=True, eq=False)
class Gate:
    """One gate: its products with the input and with the state, and its own cell if it has peepholes."""

    weight: Array
    recurrence: Array
    bias_x: Array
    """With what the zero point of the input adds."""
    bias_h: Array
    scale_x: Multiplier
    scale_h: Multiplier
    peephole: tuple[Array, Multiplier] | None = None
    """Weights of batch x cells, or of cells."""
    norm: Norm | None = None


@dataclass(frozen=True, eq=False)
class Projection:
    """From the hidden values to the outputs; `clip` 0 is none."""

    weight: Array
    bias: Array
    scale: Multiplier
    zero_point: int
    clip: int


@dataclass(frozen=True, eq=False)
class LstmLayer:
    """A layer: gates in the order input, forget, cell, output, the first left out where it is 1 - forget."""

    gates: tuple[Gate, ...]
    batch: int
    integer_bits: int
    """Those of a cell."""
    cell_clip: int
    """The largest cell; 0 is no limit."""
    hidden: Multiplier
    hidden_zero_point: int
    projection: Projection | None = None

    @property
    def cells(self) -> int:
        """Units of the layer."""
        return int(self.gates[0].weight.shape[0])

    @property
    def outputs(self) -> int:
        """Elements of the state that is the output."""
        return int(self.gates[0].recurrence.shape[1])

    def captured(self) -> dict[str, Array]:
        """The arrays that the graph of a step uses, by name."""
        arrays = {
            "weight": np.concatenate([gate.weight for gate in self.gates]).T,
            "recurrence": np.concatenate([gate.recurrence for gate in self.gates]).T,
            "bias_x": np.stack([gate.bias_x for gate in self.gates]).astype(np.int32),
            "bias_h": np.stack([gate.bias_h for gate in self.gates]).astype(np.int32),
            SIGMOID: sigmoid_table(),
            TANH: tanh_table(3),
            "cell_tanh": tanh_table(self.integer_bits),
        }
        norms = [gate.norm for gate in self.gates if gate.norm is not None]
        if norms:
            arrays["norm_weight"] = np.stack([norm.weight for norm in norms])
            arrays["norm_bias"] = np.stack([norm.bias for norm in norms])
        for index, gate in enumerate(self.gates):
            if gate.peephole is not None:
                arrays[f"peephole{index}"] = gate.peephole[0]
        if self.projection is not None:
            arrays["projection"] = self.projection.weight.T
            arrays["projection_bias"] = self.projection.bias.astype(np.int32)
        return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


class _Nodes:
    """Nodes under way. Numbers and arrays among the inputs become constants."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[Any, tuple[str, Array]] = {}

    def __call__(self, kind: str, *inputs: Input, name: str = "", **attributes: Any) -> str:
        """The output of a node."""
        return self.several(kind, *inputs, names=[name or f"t{len(self.nodes)}"], **attributes)[0]

    def several(self, kind: str, *inputs: Input, names: list[str], **attributes: Any) -> list[str]:
        """The outputs of a node."""
        self.nodes.append(helper.make_node(kind, [self._input(x) for x in inputs], names, **attributes))
        return names

    def _input(self, x: Input) -> str:
        if isinstance(x, str):
            return x
        array = np.asarray(x, np.int64) if isinstance(x, int) else x
        key = array.dtype.str, array.shape, array.tobytes()
        return self.constants.setdefault(key, (f"k{len(self.constants)}", array))[0]

    def cast(self, x: Input, kind: int, name: str = "") -> str:
        """Another element type."""
        return self("Cast", x, name=name, to=kind)

    def shaped(self, x: str, *shape: int) -> str:
        """The same elements."""
        return self("Reshape", x, np.array(shape, np.int64))

    def split(self, x: str, count: int) -> list[str]:
        """Each entry of axis 1 by itself, the axis kept."""
        if count == 1:
            return [x]
        at = len(self.nodes)
        sizes = np.ones(count, np.int64)
        return self.several("Split", x, sizes, names=[f"t{at}_{i}" for i in range(count)], axis=1)

    # Integers

    def floor(self, x: str, divisor: Input) -> str:
        """x / divisor, rounded down: Mod has the sign of the divisor, and Div truncates what is whole already."""
        return self("Div", self("Sub", x, self("Mod", x, divisor)), divisor)

    def wrapped(self, x: str) -> str:
        """What 32 bits keep."""
        return self("Sub", self("Mod", self("Add", x, 1 << 31), 1 << 32), 1 << 31)

    def limited(self, x: str, low: int, high: int) -> str:
        """Clamped; float32 keeps the order of integers, and small ones as they are."""
        limits = np.asarray(np.float32(low)), np.asarray(np.float32(high))
        return self.cast(self("Clip", self.cast(x, _F32), *limits), _I64)

    def high_product(self, a: str, b: Input) -> str:
        """a * b / 2^31, ties up."""
        return self.floor(self("Add", self("Mul", a, b), 1 << 30), 1 << 31)

    def half_away(self, x: str, shift: Array) -> str:
        """x / 2^shift, ties away from zero."""
        if not shift.any():
            return x
        below = self("Mul", self.cast(self("Less", x, 0), _I64), np.asarray(shift > 0).astype(np.int64))
        half = np.where(shift > 0, _power(shift - 1), 0)
        return self.floor(self("Sub", self("Add", x, half), below), _power(shift))

    def rescaled(self, x: str, by: Sequence[Multiplier], more: int = 0) -> str:
        """x of 32 bits times a number for each entry of axis 1, times 2^more: TFLite's two roundings."""
        shift = np.array([[factor.shift - more] for factor in by], np.int64)
        left, right = np.maximum(31 - shift, 0), np.maximum(shift - 31, 0)
        if left.any():
            x = self.wrapped(self("Mul", x, _power(left)))
        return self.half_away(
            self.high_product(x, np.array([[factor.multiplier] for factor in by], np.int64)), right
        )

    def saturated(self, x: str) -> str:
        """Clamped to 16 bits."""
        return self.limited(x, -32768, 32767)

    def looked_up(self, table: str, x: str) -> str:
        """The entries of a table for 16-bit integers."""
        return self.cast(self("Gather", table, self("Add", x, 32768), axis=0), _I64)

    # Parts of a layer

    def product(self, x: str, matrix: str, weight: Array) -> str:
        """x (8 bits) times a matrix (weights of one sum a row)."""
        most = int(np.abs(weight.astype(np.int64)).sum(axis=1).max(initial=0)) * 128
        kind = _F32 if most < 1 << 24 else _F64
        return self.cast(self("MatMul", self.cast(x, kind), self.cast(matrix, kind)), _I64)

    def inverse_root(self, x: str) -> tuple[str, str]:
        """1 / sqrt(x) for x >= 1 as a multiplier of 31 bits and a shift to the right, by five steps of Newton's method."""
        large = self.cast(self("Less", (1 << 29) - 1, x), _I64)
        v = self("Div", x, self("Add", self("Mul", large, 3), 1))
        steps = np.array([1 << (29 - 2 * k) for k in range(1, 14)], np.int64)
        pairs = self("ReduceSum", self.cast(self("Less", v, steps), _I64), np.array([-1], np.int64))
        shift = self("Sub", self("Add", large, 11), pairs)
        powers = np.int64(1) << np.arange(40, dtype=np.int64)
        v = self("Mul", v, self("Gather", powers, self("Mul", pairs, 2)))
        v = self.floor(v, 2)
        half = self.floor(self("Add", v, 1), 2)
        # Numbers with three integer bits; a product has those of both, and is brought back by a shift to the left.
        y: Input = np.asarray(1 << 28, np.int64)
        for _ in range(5):
            square = self.floor(self("Add", self("Mul", y, y), 1 << 30), 1 << 31)
            cube = self("Mul", self.high_product(square, y), 1 << 6)
            down = self.high_product(half, cube)
            up = self.floor(self("Add", self("Mul", y, 3 << 27), 1 << 30), 1 << 31)
            y = self("Mul", self("Sub", up, down), 8)
        assert isinstance(y, str)
        y = self.high_product(y, 1518500250)
        below = self("Where", self("Less", shift, 0), self("Neg", shift), 0)
        y = self("Mul", y, self("Gather", powers, below))
        shift = self("Add", shift, below)
        is_one = self("Less", x, 2)
        return self("Where", is_one, (1 << 31) - 1, y), self("Where", is_one, 0, shift)

    def normalized(self, x: str, cells: int, norms: Sequence[Norm], weight: str, bias: str) -> str:
        """The layer norm of gates, each along the last axis."""
        last = np.array([-1], np.int64)
        mean = self("Div", self("Mul", self("ReduceSum", x, last), 1024), cells)
        squares = self("ReduceSum", self("Mul", x, x), last)
        variance = self("Sub", self("Mul", squares, (1 << 20) // cells), self("Mul", mean, mean))
        variance = self("Div", variance, 1 << 20)
        guard = np.array([[norm.guard] for norm in norms], np.int64)
        variance = self("Where", self("Less", variance, 1), guard, variance)
        multiplier, shift = self.inverse_root(variance)
        y = self.high_product(self("Sub", self("Mul", x, 1024), mean), multiplier)
        # A shift that is known at run time only.
        power = np.int64(1) << np.arange(40, dtype=np.int64)
        down = self.cast(self("And", self("Less", y, 0), self("Less", 0, shift)), _I64)
        y = self("Sub", self("Add", y, self("Gather", power // 2, shift)), down)
        y = self.floor(y, self("Gather", power, shift))
        y = self.wrapped(self("Add", self("Mul", y, weight), bias))
        half = self("Where", self("Less", 0, y), 512, -512)
        y = self("Div", self("Add", y, half), 1024)
        return self.saturated(self.rescaled(y, [norm.scale for norm in norms], 12))


def _power(shift: Array) -> Array:
    return np.asarray(np.int64(1) << np.maximum(shift, 0))


def step(layer: LstmLayer) -> GraphProto:
    """The body of the `Scan`: state (int8) and cell (int64, with an axis of 1 in the middle), input; state, cell, output."""
    n, gates, batch, cells = _Nodes(), layer.gates, layer.batch, layer.cells
    weights = np.concatenate([gate.weight for gate in gates])
    recurrences = np.concatenate([gate.recurrence for gate in gates])

    def sums(x: str, matrix: str, weight: Array, bias: str, by: Sequence[Multiplier]) -> str:
        total = n.shaped(n.product(x, matrix, weight), batch, len(gates), cells)
        return n.rescaled(n("Add", total, n.cast(bias, _I64)), by)

    pre = n.saturated(sums("x", "weight", weights, "bias_x", [gate.scale_x for gate in gates]))
    of_h = sums("h", "recurrence", recurrences, "bias_h", [gate.scale_h for gate in gates])
    each = n.split(n.saturated(n("Add", pre, of_h)), len(gates))

    norms = [gate.norm for gate in gates]
    has_norms = all(norm is not None for norm in norms)
    names = {key: n.split(n.shaped(n.cast(f"norm_{key}", _I64), 1, len(gates), cells), len(gates))
             for key in ("weight", "bias")} if has_norms else {}  # fmt: skip

    def gate(index: int, cell: str, table: str) -> str:
        y, own, norm = each[index], gates[index].peephole, norms[index]
        if own is not None:
            weighted_cell = n("Mul", n.shaped(n.cast(f"peephole{index}", _I64), -1, 1, cells), cell)
            y = n.saturated(n("Add", y, n.rescaled(weighted_cell, [own[1]])))
        if norm is not None:
            y = n.normalized(y, cells, [norm], names["weight"][index], names["bias"][index])
        return n.looked_up(table, y)

    last = len(gates) - 1
    forget = gate(last - 2, "c", SIGMOID)
    let_in = gate(0, "c", SIGMOID) if last == 3 else n("Sub", 32767, forget)
    new = gate(last - 1, "c", TANH)
    kept = n.half_away(n("Mul", forget, "c"), np.asarray(15))
    added = n.half_away(n("Mul", let_in, new), np.asarray(15 + layer.integer_bits))
    high = layer.cell_clip or 32767
    cell = n.limited(n("Add", kept, added), -layer.cell_clip or -32768, high)
    out = gate(last, cell, SIGMOID)
    hidden = n.rescaled(n("Mul", out, n.looked_up("cell_tanh", cell)), [layer.hidden])
    hidden = n.limited(n("Add", hidden, layer.hidden_zero_point), -128, 127)
    h = n.shaped(hidden, batch, cells)
    if layer.projection is not None:
        h = _projected(n, n.cast(h, TensorProto.INT8), layer.projection)
    n.cast(h, TensorProto.INT8, "next_h")
    n("Identity", cell, name="next_c")
    n("Identity", "next_h", name="y")

    def port(name: str, kind: int, *shape: int) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    state = (TensorProto.INT8, batch, layer.outputs)
    cell_state = (_I64, batch, 1, cells)
    return helper.make_graph(
        n.nodes,
        "lstm_step",
        [port("h", *state), port("c", *cell_state), port("x", TensorProto.INT8, batch, weights.shape[1])],
        [port("next_h", *state), port("next_c", *cell_state), port("y", *state)],
        [numpy_helper.from_array(array, name) for name, array in n.constants.values()],
    )


def _projected(n: _Nodes, hidden: str, by: Projection) -> str:
    total = n("Add", n.product(hidden, "projection", by.weight), n.cast("projection_bias", _I64))
    y = n.limited(n("Add", n.rescaled(total, [by.scale]), by.zero_point), -128, 127)
    return n.limited(y, -by.clip, by.clip) if by.clip else y
