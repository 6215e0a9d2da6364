"""TensorFlow Lite models with one integer LSTM, of random weights and any form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tflite import ActivationFunctionType as Fused

from npuc.arrays import Array
from npuc.export.tflite.model import TFLiteTensor
from support.networks.tflite import Net, Writer

CODE = "UNIDIRECTIONAL_SEQUENCE_LSTM"


@dataclass(frozen=True)
class Lstm:
    """What a layer has; `change` replaces tensors by their index among the inputs, or takes them away."""

    steps: int = 5
    batch: int = 2
    inputs: int = 3
    cells: int = 4
    outputs: int = 0
    """Of a projection; 0 is none."""
    coupled: bool = False
    peephole: bool = False
    norm: bool = False
    projection_bias: bool = True
    time_major: bool = False
    cell_clip: float = 0.0
    projection_clip: float = 0.0
    cell_scale: float = 2.0**-11
    x_scales: tuple[float, int] = (0.02, 5)
    state_scales: tuple[float, int] = (1 / 128, 0)
    hidden_scales: tuple[float, int] = (1 / 128, 0)
    weight_scale: float = 0.02
    intermediates: int = 5
    activation: int = Fused.TANH
    seed: int = 0
    variables: tuple[str, ...] = ("state", "cells")
    change: dict[int, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the input."""
        first = (self.steps, self.batch) if self.time_major else (self.batch, self.steps)
        return (*first, self.inputs)

    def feed(self, seed: int = 0) -> dict[str, Array]:
        """A random input."""
        return {"x": np.random.default_rng(seed).integers(-128, 128, self.shape).astype(np.int8)}

    def data(self, behind: Any = None, before: Any = None) -> bytes:
        """The bytes of the model; `before` and `behind` put more around the layer."""
        rng, net = np.random.default_rng(self.seed), Net()
        outputs = self.outputs or self.cells

        def integers(kind: Any, *shape: int) -> Array:
            info = np.iinfo(kind)
            return rng.integers(-info.max, info.max + 1, shape).astype(kind)

        given: list[TFLiteTensor | None] = [net.input("x", self.shape, "i8", self.x_scales)] + [None] * 23
        for gate in range(1 if self.coupled else 0, 4):
            scale = self.weight_scale * float(rng.uniform(0.5, 1.5))
            given[1 + gate] = net.constant(integers(np.int8, self.cells, self.inputs), (scale, 0))
            given[5 + gate] = net.constant(integers(np.int8, self.cells, outputs), (scale * 0.7, 0))
            # With a layer norm, the scale of a bias is 2^-10 of the weights' own.
            bias = rng.integers(-(1 << 14), 1 << 14, self.cells)
            if self.norm:
                bias = rng.integers(-(1 << 22), 1 << 22, self.cells)
                given[20 + gate] = net.constant(integers(np.int16, self.cells), (2e-5 * (1 + gate), 0))
            given[12 + gate] = net.constant(bias.astype(np.int32), (scale * self.x_scales[0], 0))
            if self.peephole and gate != 2:
                place = {0: 9, 1: 10, 3: 11}[gate]
                given[place] = net.constant(integers(np.int16, self.cells), (3e-5, 0))
        if self.outputs:
            given[16] = net.constant(integers(np.int8, outputs, self.cells), (0.01, 0))
            if self.projection_bias:
                given[17] = net.constant(rng.integers(-2000, 2000, outputs).astype(np.int32), (1e-4, 0))
        given[18] = net._tensor("state", (self.batch, outputs), "i8", None)
        given[19] = net._tensor("cells", (self.batch, self.cells), "i16", None)
        for tensor, scales in ((given[18], self.state_scales), (given[19], (self.cell_scale, 0))):
            assert tensor is not None
            tensor.quantization = net.constant(np.zeros(1, np.int8), scales).quantization
        if before is not None:
            given[0] = before(net, given[0])
        for index, change in self.change.items():
            given[index] = change(net, given[index]) if callable(change) else change
        inside = [
            net._tensor(f"inside{i}", (1,), "i16" if i < 4 else "i8", None) for i in range(self.intermediates)
        ]
        for i, tensor in enumerate(inside):
            scales = self.hidden_scales if i == 4 else (2.0**-12 * (1 + 0.3 * i), 0)
            tensor.quantization = net.constant(np.zeros(1, np.int8), scales).quantization
        y = net.op(
            CODE,
            given,
            "i8",
            "UnidirectionalSequenceLSTMOptions",
            self.state_scales,
            FusedActivationFunction=self.activation,
            TimeMajor=self.time_major,
            CellClip=self.cell_clip,
            ProjClip=self.projection_clip,
        )
        if behind is not None:
            y = behind(net, y)
        writer = Writer(net.ended(y), variables=self.variables, intermediates={CODE: inside})
        return bytes(writer.run())
