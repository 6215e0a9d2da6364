"""One step of TFLite's integer LSTM as an ONNX graph, the body of a `Scan` over the steps: docs/arithmetic-recurrent.md.

All of it is exact: sums of products are float32 or float64 below 2^24 or 2^53, the rest is int64. Arrays of the size of a
layer (`captured`) are not in the graph of a step, but in the graph around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, TensorProto, helper, numpy_helper

from npuc.arithmetic.fixed_point import sigmoid_table, tanh_table
from npuc.arithmetic.quantized_lstm import Multiplier, ProjectionParameters, QuantizedLstm
from npuc.arrays import Array

Input = str | Array | int
SIGMOID, TANH = "sigmoid", "tanh"
_I64, _F32, _F64 = TensorProto.INT64, TensorProto.FLOAT, TensorProto.DOUBLE


def captured(layer: QuantizedLstm) -> dict[str, Array]:
    """The arrays that the graph of a step uses, by name."""
    arrays = {
        "weight": layer.weight.T,
        "recurrence": layer.recurrence.T,
        "bias_x": layer.bias_x.reshape(layer.gates, -1).astype(np.int32),
        "bias_h": layer.bias_h.reshape(layer.gates, -1).astype(np.int32),
        SIGMOID: sigmoid_table(),
        TANH: tanh_table(3),
        "cell_tanh": tanh_table(layer.integer_bits),
    }
    if layer.norm is not None:
        arrays["norm_weight"] = layer.norm.weight.reshape(layer.gates, -1)
        arrays["norm_bias"] = layer.norm.bias.reshape(layer.gates, -1)
    for index, weight in enumerate(() if layer.peephole is None else layer.peephole.weight):
        arrays[f"peephole{index}"] = weight
    if layer.projection is not None:
        arrays["projection"] = layer.projection.weight.T
        arrays["projection_bias"] = layer.projection.bias.astype(np.int32)
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


class _Nodes:
    """Nodes under way. Numbers and arrays among the inputs become constants; names are the step's own, behind its prefix, or
    stand for those of `outer`, which the graph around it has."""

    def __init__(self, prefix: str, outer: Mapping[str, str]) -> None:
        self.prefix, self.outer = prefix, outer
        self.nodes: list[Any] = []
        self.constants: dict[Any, tuple[str, Array]] = {}

    def __call__(self, kind: str, *inputs: Input, name: str = "", **attributes: Any) -> str:
        """The output of a node."""
        return self.several(kind, *inputs, names=[name or f"t{len(self.nodes)}"], **attributes)[0]

    def several(self, kind: str, *inputs: Input, names: list[str], **attributes: Any) -> list[str]:
        """The outputs of a node."""
        outputs = [self.named(name) for name in names]
        self.nodes.append(helper.make_node(kind, [self._input(x) for x in inputs], outputs, **attributes))
        return names

    def named(self, name: str) -> str:
        """A name as the file has it."""
        return self.outer.get(name) or f"{self.prefix}/{name}"

    def _input(self, x: Input) -> str:
        if isinstance(x, str):
            return self.named(x)
        array = np.asarray(x, np.int64) if isinstance(x, int) else x
        key = array.dtype.str, array.shape, array.tobytes()
        return self.constants.setdefault(key, (f"{self.prefix}/k{len(self.constants)}", array))[0]

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

    def normalized(self, x: str, cells: int, scale: Multiplier, guard: int, weight: str, bias: str) -> str:
        """The layer norm of a gate, along the last axis."""
        last = np.array([-1], np.int64)
        mean = self("Div", self("Mul", self("ReduceSum", x, last), 1024), cells)
        squares = self("ReduceSum", self("Mul", x, x), last)
        variance = self("Sub", self("Mul", squares, (1 << 20) // cells), self("Mul", mean, mean))
        variance = self("Div", variance, 1 << 20)
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
        return self.saturated(self.rescaled(y, [scale], 12))


def _power(shift: Array) -> Array:
    return np.asarray(np.int64(1) << np.maximum(shift, 0))


def step(layer: QuantizedLstm, batch: int, prefix: str, outer: Mapping[str, str]) -> GraphProto:
    """The body of the `Scan`: state (int8) and cell (int64, with an axis of 1 in the middle), input; state, cell, output.

    `outer` has the names of the captured arrays in the graph around it.
    """
    n, gates, cells = _Nodes(prefix, outer), layer.gates, layer.cells
    norm, peephole = layer.norm, layer.peephole

    def sums(x: str, matrix: str, weight: Array, bias: str, by: Sequence[Multiplier]) -> str:
        total = n.shaped(n.product(x, matrix, weight), batch, gates, cells)
        return n.rescaled(n("Add", total, n.cast(bias, _I64)), by)

    pre = n.saturated(sums("x", "weight", layer.weight, "bias_x", layer.scales_x))
    of_h = sums("h", "recurrence", layer.recurrence, "bias_h", layer.scales_h)
    each = n.split(n.saturated(n("Add", pre, of_h)), gates)
    names = {key: n.split(n.shaped(n.cast(f"norm_{key}", _I64), 1, gates, cells), gates)
             for key in ("weight", "bias")} if norm is not None else {}  # fmt: skip

    def gate(index: int, cell: str, table: str, peek: int | None = None) -> str:
        y = each[index]
        if peephole is not None and peek is not None:
            weighted_cell = n("Mul", n.shaped(n.cast(f"peephole{peek}", _I64), -1, 1, cells), cell)
            y = n.saturated(n("Add", y, n.rescaled(weighted_cell, [peephole.scales[peek]])))
        if norm is not None:
            given = names["weight"][index], names["bias"][index]
            y = n.normalized(y, cells, norm.scales[index], norm.guards[index], *given)
        return n.looked_up(table, y)

    last = gates - 1
    forget = gate(last - 2, "c", SIGMOID, last - 2)
    let_in = n("Sub", 32767, forget) if layer.is_coupled else gate(0, "c", SIGMOID, 0)
    new = gate(last - 1, "c", TANH)
    kept = n.half_away(n("Mul", forget, "c"), np.asarray(15))
    added = n.half_away(n("Mul", let_in, new), np.asarray(15 + layer.integer_bits))
    high = layer.cell_clip or 32767
    cell = n.limited(n("Add", kept, added), -layer.cell_clip or -32768, high)
    out = gate(last, cell, SIGMOID, last - 1)
    hidden = n.rescaled(n("Mul", out, n.looked_up("cell_tanh", cell)), [layer.hidden])
    hidden = n.limited(n("Add", hidden, layer.hidden_zero_point), -128, 127)
    h = n.shaped(hidden, batch, cells)
    if layer.projection is not None:
        h = _projected(n, n.cast(h, TensorProto.INT8), layer.projection)
    n.cast(h, TensorProto.INT8, "next_h")
    n("Identity", cell, name="next_c")
    n("Identity", "next_h", name="y")

    def port(name: str, kind: int, *shape: int) -> Any:
        return helper.make_tensor_value_info(n.named(name), kind, shape)

    state = (TensorProto.INT8, batch, layer.outputs)
    cell_state = (_I64, batch, 1, cells)
    return helper.make_graph(
        n.nodes,
        "lstm_step",
        [
            port("h", *state),
            port("c", *cell_state),
            port("x", TensorProto.INT8, batch, layer.weight.shape[1]),
        ],
        [port("next_h", *state), port("next_c", *cell_state), port("y", *state)],
        [numpy_helper.from_array(array, name) for name, array in n.constants.values()],
    )


def _projected(n: _Nodes, hidden: str, by: ProjectionParameters) -> str:
    total = n("Add", n.product(hidden, "projection", by.weight), n.cast("projection_bias", _I64))
    y = n.limited(n("Add", n.rescaled(total, [by.scale]), by.zero_point), -128, 127)
    return n.limited(y, -by.clip, by.clip) if by.clip else y
