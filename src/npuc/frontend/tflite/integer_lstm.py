"""UNIDIRECTIONAL_SEQUENCE_LSTM on integers: what the model states, as the integers of LiteRT's kernel.

Activations and weights are int8, cells int16 with a power of two for a scale, gates int16. The layer is one
`top.quantized_lstm`, which has the bits of LiteRT wherever it runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np

from npuc.arithmetic.quantized_lstm import (
    Multiplier,
    NormParameters,
    PeepholeParameters,
    ProjectionParameters,
    QuantizedLstm,
)
from npuc.arithmetic.requantization import quantize_multiplier
from npuc.arrays import Array
from npuc.errors import InvalidModelError, UnsupportedOpError
from npuc.frontend.tflite.reader import TfliteTensor
from npuc.frontend.tflite.scope import TfliteContext
from npuc.frontend.tflite.view import FlatbufferView
from npuc.ir import Value, top

_F32 = np.float32
_INPUTS, _STATE, _CELL = (20, 24), 18, 19
_WEIGHT, _RECURRENCE, _PEEPHOLE, _BIAS, _NORM = 1, 5, (9, 10, None, 11), 12, 20
_PROJECTION, _PROJECTION_BIAS = 16, 17
_INTERMEDIATES = 5
_GATE_SCALE = _F32(2.0**-12)
_MOST_INTEGER_BITS = 6
_GUARD = _F32(10000)


@dataclass(frozen=True, eq=False)
class _Gate:
    """One gate: its products with the input and with the state, its peepholes and its layer norm, where it has them."""

    weight: Array
    recurrence: Array
    bias_x: Array
    """With what the zero point of the input adds."""
    bias_h: Array
    scale_x: Multiplier
    scale_h: Multiplier
    peephole: tuple[Array, Multiplier] | None
    norm: tuple[Array, Array, Multiplier, int] | None


def integer_lstm(ctx: TfliteContext, options: FlatbufferView) -> Value:
    """The whole sequence of outputs, as reals."""
    return _LstmReader(ctx, options).run()


class _LstmReader:
    def __init__(self, ctx: TfliteContext, options: FlatbufferView) -> None:
        self.ctx = ctx
        self.options = options
        self.time_major = bool(options.number("TimeMajor"))

    def run(self) -> Value:
        ctx = self.ctx
        self._require_form()
        with np.errstate(
            over="ignore", under="ignore"
        ):  # such a scale has no multiplier, which is an error of its own
            layer = self._layer()
        (x_scale, x_zero), (y_scale, y_zero) = (
            self._quantization(tensor) for tensor in (ctx.tensor(0), ctx.output())
        )

        def stored(array: Array | None, name: str) -> Value | None:
            return None if array is None else ctx.literal(np.ascontiguousarray(array), name)

        peephole, norm, projection = layer.peephole, layer.norm, layer.projection
        return ctx.emit(
            top.QuantizedLSTM,
            ctx.real(0),
            stored(layer.weight, "weight"),
            stored(layer.recurrence, "recurrence"),
            stored(np.stack([layer.bias_x, layer.bias_h]).astype(np.int32), "bias"),
            stored(None if peephole is None else peephole.weight, "peephole"),
            stored(None if norm is None else norm.weight, "norm_weight"),
            stored(None if norm is None else norm.bias, "norm_bias"),
            stored(None if projection is None else projection.weight, "projection"),
            stored(None if projection is None else projection.bias.astype(np.int32), "projection_bias"),
            time_major=self.time_major,
            x_parameters=(float(x_scale), float(x_zero)),
            y_parameters=(float(y_scale), float(y_zero)),
            integer_bits=layer.integer_bits,
            cell_clip=layer.cell_clip,
            first_h=layer.first_h,
            gate_scales=[
                n for pair in zip(layer.scales_x, layer.scales_h, strict=True) for by in pair for n in by
            ],
            hidden_scale=(*layer.hidden, layer.hidden_zero_point),
            peephole_scales=[] if peephole is None else [n for by in peephole.scales for n in by],
            norm_scales=[]
            if norm is None
            else [n for by, guard in zip(norm.scales, norm.guards, strict=True) for n in (*by, guard)],
            projection_scale=()
            if projection is None
            else (*projection.scale, projection.zero_point, projection.clip),
        ).y

    # What is refused

    def _require_form(self) -> None:
        ctx = self.ctx
        for tensor in (ctx.tensor(0), ctx.output()):
            if tensor.type_name != "INT8":
                raise UnsupportedOpError(
                    f"{ctx.label} has no form in npuc: '{tensor.name}' is {tensor.type_name}, and LiteRT's integer kernel "
                    "has int8 activations only",
                    fix="Convert the model with int8 activations, or keep the layer float",
                )
        if len(ctx.op.inputs) not in _INPUTS:
            raise self._invalid(f"it has {len(ctx.op.inputs)} inputs, not 20 or 24")
        count = len(ctx.op.intermediates)
        if count != _INTERMEDIATES:
            known = " (12 are the form with 8-bit gates, which LiteRT has for the operator LSTM alone)"
            raise UnsupportedOpError(
                f"{ctx.label} has no form in npuc: it has {count} intermediates, and LiteRT's integer kernel needs 5"
                f"{known if count == 12 else ''}",
                fix="Convert the model anew, with a converter that quantizes the layer to int8 with 16-bit cells",
            )
        for index in (_STATE, _CELL):
            if not ctx.tensor(index).is_variable:
                raise ctx.refuse(f"it begins with the state '{ctx.tensor(index).name}'")

    def _invalid(self, why: str) -> InvalidModelError:
        return InvalidModelError(f"{self.ctx.label}: {why}")

    # The layer

    def _layer(self) -> QuantizedLstm:
        ctx = self.ctx
        if ctx.rank(0) != 3:
            raise self._invalid(f"its input has rank {ctx.rank(0)}, not 3")
        steps, batch, inputs = (ctx.shape(0)[axis] for axis in ((0, 1, 2) if self.time_major else (1, 0, 2)))
        outer, inner = self._shape(_WEIGHT + 3), self._shape(_RECURRENCE + 3)
        if len(outer) != 2 or len(inner) != 2:
            raise self._invalid("its weights are not matrices")
        cells, outputs = outer[0], inner[1]
        if not min(steps, batch, inputs, cells, outputs):
            raise self._invalid("one of its sizes is 0")
        self.sizes = inputs, cells, outputs
        self.batch = batch
        self.has_projection = ctx.has(_PROJECTION)
        self.has_norms = ctx.has(_NORM + 1)
        self._require_all_or_none()
        if not self.has_projection and cells != outputs:
            raise self._invalid(f"it has {cells} cells and {outputs} outputs, and no projection")
        self._state_sizes()
        cell_scale = self._cell_scale()
        hidden, zero = self._quantization(self._intermediate(4))
        coupled = not ctx.has(_WEIGHT)
        gates = tuple(self._gate(index, cell_scale) for index in range(coupled, 4))
        real = 2.0**-15 / float(hidden) * 2.0**-15
        clip = self._clip("CellClip", self._scale(_CELL), 32767)
        projection = self._projection(hidden, zero)
        # LiteRT takes the zero point away where a projection follows, and adds it where none does.
        zero = zero if projection is None else -zero
        peepholes = [gate.peephole for gate in gates if gate.peephole is not None]
        norms = [gate.norm for gate in gates if gate.norm is not None]
        return QuantizedLstm(
            weight=np.concatenate([gate.weight for gate in gates]),
            recurrence=np.concatenate([gate.recurrence for gate in gates]),
            bias_x=np.concatenate([gate.bias_x for gate in gates]),
            bias_h=np.concatenate([gate.bias_h for gate in gates]),
            scales_x=tuple(gate.scale_x for gate in gates),
            scales_h=tuple(gate.scale_h for gate in gates),
            integer_bits=15 + cell_scale,
            cell_clip=clip,
            first_h=self._quantization(ctx.tensor(_STATE))[1],  # a variable begins with its zero point
            hidden=_multiplier(_F32(real)),
            hidden_zero_point=zero,
            peephole=PeepholeParameters(
                np.stack([np.atleast_2d(weight) for weight, _ in peepholes]), tuple(by for _, by in peepholes)
            )
            if peepholes
            else None,
            norm=NormParameters(
                np.concatenate([weight for weight, *_ in norms]),
                np.concatenate([bias for _, bias, *_ in norms]),
                tuple(by for *_, by, _ in norms),
                tuple(guard for *_, guard in norms),
            )
            if norms
            else None,
            projection=projection,
        )

    def _require_all_or_none(self) -> None:
        ctx, coupled = self.ctx, not self.ctx.has(_WEIGHT)
        if ctx.has(_RECURRENCE) == coupled or ctx.has(_BIAS) == coupled:
            raise self._invalid("some constants of its input gate are there, and others not")
        own = [
            ctx.has(index) for gate, index in enumerate(_PEEPHOLE) if index is not None and gate >= coupled
        ]
        if any(own) and not all(own):
            raise self._invalid("some gates have peepholes, and others not")
        norms = [ctx.has(_NORM + gate) for gate in range(coupled, 4)]
        if any(norms) and not all(norms):
            raise self._invalid("some gates have a layer norm, and others not")
        if ctx.has(_PROJECTION_BIAS) and not self.has_projection:
            raise self._invalid("it has the bias of a projection, and no projection")

    def _state_sizes(self) -> None:
        """The states are as large as the batch that the file declares."""
        _, cells, outputs = self.sizes
        declared = self.ctx.tensor(0).shape
        batch = declared[1 if self.time_major else 0] if len(declared) == 3 else self.batch
        for index, width in ((_STATE, outputs), (_CELL, cells)):
            tensor = self.ctx.tensor(index)
            if np.prod(tensor.shape, dtype=object) != batch * width:
                raise self._invalid(
                    f"its state '{tensor.name}' has the shape {list(tensor.shape)}, not {[batch, width]}"
                )

    def _cell_scale(self) -> int:
        """The exponent of the scale of a cell."""
        tensor = self.ctx.tensor(_CELL)
        if tensor.type_name != "INT16":
            raise self._invalid(f"its cells '{tensor.name}' are {tensor.type_name}, not INT16")
        exact = log2(float(self._quantization(tensor)[0]))
        exponent = round(exact)
        if abs(exact - exponent) > 1e-3:
            raise self._invalid(f"the scale of its cells '{tensor.name}' is no power of two")
        if not -15 <= exponent <= _MOST_INTEGER_BITS - 15:
            raise self._invalid(
                f"the scale of its cells '{tensor.name}' is 2^{exponent}, and LiteRT's kernel has 2^-15 to 2^-9"
            )
        return exponent

    def _gate(self, index: int, cell_scale: int) -> _Gate:
        ctx = self.ctx
        inputs, cells, outputs = self.sizes
        weight = self._constant(_WEIGHT + index, "INT8", (cells, inputs))
        recurrence = self._constant(_RECURRENCE + index, "INT8", (cells, outputs))
        bias = self._constant(_BIAS + index, "INT32", (cells,))
        (scale_x, zero_x), (scale_h, zero_h) = (self._quantization(ctx.tensor(i)) for i in (0, _STATE))
        scale = self._quantization(self._intermediate(index))[0] if self.has_norms else _GATE_SCALE
        peephole, norm, own = None, None, _PEEPHOLE[index]
        if own is not None and ctx.has(own):
            real = 2.0**cell_scale * float(self._scale(own)) / float(scale)
            peephole = self._spread(self._constant(own, "INT16", (cells,))), _multiplier(_F32(real))
        if self.has_norms:
            by = self._scale(_NORM + index)
            guard = max(1, int(_GUARD * by))
            if guard >= 1 << 29:
                raise self._invalid("the scale of a layer norm is too large")
            norm = self._constant(_NORM + index, "INT16", (cells,)), bias, _multiplier(by), guard
            bias = np.zeros_like(bias)
        return _Gate(
            weight,
            recurrence,
            self._effective(weight, bias, -zero_x),
            self._effective(recurrence, np.zeros_like(bias), -zero_h),
            _multiplier(self._scale(_WEIGHT + index) * scale_x / scale),
            _multiplier(self._scale(_RECURRENCE + index) * scale_h / scale),
            peephole,
            norm,
        )

    def _spread(self, weight: Array) -> Array:
        """Peepholes as LiteRT applies them: with a projection, to as many cells as there are outputs.

        Batch-major samples are run one by one. Time-major ones are run at once, and their cells counted through.
        """
        _, cells, outputs = self.sizes
        if not self.has_projection or outputs == cells:
            return weight
        if outputs > cells:
            raise self.ctx.refuse(
                "it has peepholes and more outputs than cells, where LiteRT reads beyond them"
            )
        samples = self.batch if self.time_major else 1
        spread = np.zeros(samples * cells, np.int16)
        spread[: samples * outputs] = np.tile(weight[:outputs], samples)
        return spread.reshape(samples, cells)

    def _projection(self, hidden: Any, hidden_zero: int) -> ProjectionParameters | None:
        if not self.has_projection:
            return None
        ctx = self.ctx
        _, cells, outputs = self.sizes
        weight = self._constant(_PROJECTION, "INT8", (outputs, cells))
        bias = np.zeros(outputs, np.int32)
        if ctx.has(_PROJECTION_BIAS):
            bias = self._constant(_PROJECTION_BIAS, "INT32", (outputs,))
        scale, zero = self._quantization(ctx.tensor(_STATE))
        return ProjectionParameters(
            weight,
            self._effective(weight, bias, hidden_zero),
            _multiplier(self._scale(_PROJECTION) * hidden / scale),
            zero,
            self._clip("ProjClip", self._quantization(ctx.output())[0], 127),
        )

    def _effective(self, weight: Array, bias: Array, zero: int) -> Array:
        """A bias with the share of a zero point; no sum may leave 32 bits."""
        wide = weight.astype(np.int64)
        effective_bias: Array = bias.astype(np.int64) + zero * wide.sum(axis=1)
        if (np.abs(effective_bias) + 128 * np.abs(wide).sum(axis=1)).max() >= 1 << 31:
            raise self.ctx.refuse("its sums can leave 32 bits")
        return effective_bias

    def _clip(self, name: str, scale: Any, most: int) -> int:
        limit = _F32(self.options.number(name))
        if not limit >= 0:
            raise self._invalid(f"its {name} is {limit:g}")
        return int(min(limit / scale, _F32(most)))

    # Tensors

    def _intermediate(self, index: int) -> TfliteTensor:
        return self.ctx.scope.tensors[self.ctx.op.intermediates[index]]

    def _shape(self, index: int) -> tuple[int, ...]:
        return tuple(self.ctx.known(index, "weights").shape)

    def _constant(self, index: int, type_name: str, shape: tuple[int, ...]) -> Array:
        array, tensor = self.ctx.known(index, "weights"), self.ctx.tensor(index)
        if tensor.type_name != type_name or array.shape != shape:
            raise self._invalid(
                f"'{tensor.name}' is {tensor.type_name} of the shape {list(array.shape)}, not {type_name} of {list(shape)}"
            )
        return array

    def _scale(self, index: int) -> Any:
        return self._quantization(self.ctx.tensor(index))[0]

    def _quantization(self, tensor: TfliteTensor) -> tuple[Any, int]:
        """The scale (float32) and the zero point of a tensor."""
        given = tensor.quantization
        if given is None:
            raise self._invalid(f"'{tensor.name}' has no scale")
        if not given.per_tensor:
            raise self.ctx.refuse(f"'{tensor.name}' has a scale for each channel")
        zero = int(given.zero_point.reshape(-1)[0])
        if not -128 <= zero <= 127:
            raise self._invalid(f"'{tensor.name}' has the zero point {zero}")
        return _F32(given.scale.reshape(-1)[0]), zero


def _multiplier(real: Any) -> Multiplier:
    return Multiplier(*quantize_multiplier(float(real)))
