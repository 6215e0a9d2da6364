"""Random networks on machines with little memory: instruction mode gives the bits of graph mode, and no schedule races."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.ir import Graph, Value, npu, shape_of, tensor_type, top
from npuc.quant import SCHEMES, quantize
from npuc.target import Target
from support.networks.backend import NETWORKS, SIZES, drawn_network, machine
from support.networks.drawn_schemes import INTEGER, drawn_scheme
from support.programs.equal_modes import check

COUNT, PORTION = NETWORKS, 20
CORES = ((1, 0), (1, 0), (1, 0), (2, 0), (3, 32 << 10))
"""Cores, and bytes of shared memory."""


def program(seed: int) -> tuple[Graph, Target]:
    """A quantized network and a machine."""
    graph, ranges = drawn_network(seed)
    random = np.random.default_rng(seed)
    scheme = drawn_scheme(seed, random)
    size = SIZES[random.integers(len(SIZES))]
    made = quantize(graph, ranges, scheme)
    if seed % 3 == 0:
        give_integers(made)
    return made, machine(size, *CORES[random.integers(len(CORES))])


def give_integers(graph: Graph) -> None:
    """Make integers the outputs, where they are dequantized ones: what the NPU leaves there it may have to read again."""
    outputs: dict[Value, str] = {}
    for port in graph.outputs:
        owner = port.value.owner
        value = owner.x if isinstance(owner, npu.Dequantize) else port.value
        fresh = value not in outputs and not isinstance(value.owner, npu.Quantize)
        outputs[value if fresh else port.value] = port.name
    graph.set_outputs([(name, value) for value, name in outputs.items()])
    for op in list(graph.block.ops):
        if isinstance(op, npu.Dequantize) and op.y.first_use is None:
            op.detach()
            op.erase()
    graph.verify()


@pytest.mark.parametrize("first", range(0, COUNT, PORTION))
def test_random_networks_give_the_same_bits(first: int) -> None:
    compiled = 0
    for seed in range(first, first + PORTION):
        graph, target = program(seed)
        for level in (0, 2):
            try:
                compiled += check(graph, target, level) is not None
            except Exception as error:
                raise AssertionError(f"network {seed} at -O{level}") from error
    assert compiled >= 0.8 * 2 * PORTION


@pytest.mark.parametrize("scheme", INTEGER)
def test_lengths_of_channels_in_every_arithmetic(scheme: str) -> None:
    graph = Graph.empty([("x", tensor_type((1, 100, 7, 2), "f32"))])
    op = top.L2Norm.make(graph.inputs[0].value, axis=1, name="y")
    graph.block.add_op(op)
    graph.set_outputs([("y", op.y)])
    made = quantize(graph, dict.fromkeys("xy", (-1.0, 1.0)), SCHEMES[scheme])
    assert check(made, machine(512 << 10), 0) is not None


def residual(graph: Graph) -> dict[str, tuple[float, float]]:
    """Two convolutions around which their operand goes, a pool, and an output in the middle; ranges."""
    random = np.random.default_rng(5)

    def add(kind: Any, *operands: Any, **properties: Any) -> Any:
        op = kind.make(*operands, **properties)
        graph.block.add_op(op)
        return op.results[0]

    def conv(x: Any, name: str, channels: int, **properties: Any) -> Any:
        array = random.uniform(-0.1, 0.1, (channels, shape_of(x)[1], 3, 3)).astype(np.float32)
        weight = graph.add_weight(f"{name}/w", array)
        graph.block.add_op(weight)
        window = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), **properties}
        return add(top.Conv, x, weight.results[0], None, **window, name=name)

    a = conv(graph.inputs[0].value, "a", 8, relu=True)
    b = conv(a, "b", 8, pads=(2, 1, 2, 1), dilations=(2, 1))
    c = add(top.Add, a, b, name="c")
    d = add(top.MaxPool, c, kernel=(3, 2), strides=(2, 2), pads=(1, 0, 1, 0), dilations=(1, 1), name="d")
    graph.set_outputs([("b", b), ("d", d)])
    return dict.fromkeys("xabcd", (-1.0, 1.0))


def test_memory_shrinks_until_tiles_are_one_row() -> None:
    graph = Graph.empty([("x", tensor_type((1, 4, 11, 96), "f32"))])
    made = quantize(graph, residual(graph), SCHEMES["int8"])
    finest = set()
    for size in (64, 32, 16, 12, 10, 9, 8, 7, 6, 5, 4, 3):
        for level in (0, 2):
            done = check(made, machine(size << 10), level)
            assert done is not None
            for part in done.parts:
                for group in part.scheduled.schedule_decisions.decisions.groups:
                    rows = part.network.layers[group.last - 1].outputs[0].rows
                    if group.tiles > rows // 2 > 1:
                        finest.add((level, part.network.layers[group.last - 1].kind))
    assert finest >= {(0, "conv"), (0, "add"), (2, "conv"), (2, "add")}
