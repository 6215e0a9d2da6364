"""A recurrent layer whose states go in and out, for tests of streams: in chunks and as a whole sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc import lang
from npuc.arrays import Array
from npuc.codegen.compile_model import compile_program
from npuc.flow import schemes_of
from npuc.ir import Graph
from npuc.ir.states import set_states
from npuc.program.model import CompiledModel
from npuc.quant import quantize
from npuc.quant.config import QuantizationConfig
from npuc.target import load_target

EDGE = load_target("edge-4t")
INPUTS, HIDDEN, CHUNK, CHUNKS = 5, 6, 3, 4
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def network(cell: str, steps: int, packed: bool = False) -> Graph:
    """A layer with its states as inputs and outputs; `packed`, h and c of an LSTM are one tensor."""
    random = np.random.default_rng(7)
    rows = GATES[cell] * HIDDEN

    def normal(*shape: int) -> Array:
        return (random.normal(size=shape) / shape[-1] ** 0.5).astype(np.float32)

    x = lang.input("x", (steps, 1, INPUTS))
    weights = normal(1, rows, INPUTS), normal(1, rows, HIDDEN), 0.3 * normal(1, 2 * rows)
    op: Any = {"lstm": lang.lstm, "gru": lang.gru, "rnn": lang.rnn}[cell]
    if packed:
        state = lang.input("state", (2, 1, HIDDEN))
        states = list(lang.split(state, axis=0, sizes=(1, 1)))
    else:
        states = [lang.input(name, (1, 1, HIDDEN)) for name in ("h", "c")[: 1 + (cell == "lstm")]]
    named = dict(zip(("initial_h", "initial_c"), states, strict=False))
    y, *last = op(x, *weights, hidden=HIDDEN, **named)
    ends = {"h_out": last[0], **({"c_out": last[1]} if cell == "lstm" else {})}
    if packed:
        ends = {"state_out": lang.concat(last, axis=0)}
    return lang.build({"y": y, **ends})


STATES = {
    ("lstm", False): {"h": "h_out", "c": "c_out"},
    ("lstm", True): {"state": "state_out"},
    ("gru", False): {"h": "h_out"},
    ("rnn", False): {"h": "h_out"},
}


def integers(cell: str, steps: int, packed: bool = False) -> Graph:
    """Quantized, with the same types however many steps it has."""
    graph = network(cell, steps, packed)
    set_states(graph, STATES[cell, packed])
    names = [*graph.tensor_names(), *(port.name for port in graph.inputs)]
    ranges = {name: (-2.0, 2.0) if name == "x" else (-0.9, 0.8) for name in names}
    config = QuantizationConfig()
    return quantize(graph, ranges, schemes_of(graph, config, EDGE))


def compiled(cell: str, steps: int, packed: bool = False) -> CompiledModel:
    """As a program."""
    return compile_program(integers(cell, steps, packed), EDGE).model


def sequence(seed: int = 3) -> Array:
    """Time x batch x features, as many steps as all chunks have."""
    return np.random.default_rng(seed).uniform(-2, 2, (CHUNK * CHUNKS, 1, INPUTS)).astype(np.float32)
