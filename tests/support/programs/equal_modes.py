"""Instruction mode against graph mode: the same bits, no races, no wait for what comes later, no time below the bound."""

from __future__ import annotations

import numpy as np

from npuc.calib.random_inputs import random_inputs
from npuc.codegen.compile_model import Compilation, CompileOptions, compile_program
from npuc.engine import IntegerEngine
from npuc.errors import CompileError
from npuc.ir import Graph
from npuc.program.isa import HEAD, QUEUES, RECORD
from npuc.program.model import NpuSubgraph
from npuc.schedule.bounds import bounds
from npuc.schedule.layers import Layer
from npuc.schedule.network import Network
from npuc.sim import Simulator, sanitize, simulate
from npuc.target import Target


def check(graph: Graph, target: Target, level: int) -> Compilation | None:
    """Compile and compare; None if a layer fits nowhere, which has to be said in words."""
    try:
        done = compile_program(graph, target, CompileOptions(level=level))
    except CompileError as error:
        assert "local memory" in error.message and error.fix
        return None
    inputs = random_inputs(graph, 1)
    expected = IntegerEngine(graph, raw=True).run(inputs)
    got = Simulator(done.model).run(inputs)
    for name, value in expected.items():
        assert got[name].dtype == value.dtype
        np.testing.assert_array_equal(got[name], value, err_msg=name)
    assert [str(finding) for finding in sanitize(done.model, inputs)] == []
    for subgraph in done.model.subgraphs:
        if isinstance(subgraph, NpuSubgraph):
            check_waits(subgraph)
    timeline = simulate(done.model)
    for part, times in zip(done.parts, timeline.subgraphs, strict=True):
        if needs_all(part.network):
            assert times.total >= bounds(part.network, target).buffered
    return done


def check_waits(subgraph: NpuSubgraph) -> None:
    """No instruction waits for a later one, or for more than a queue has."""
    dtype = np.dtype(
        {
            "names": ["queue", "wait"],
            "formats": ["u1", ("<u4", (4,))],
            "offsets": _offsets(),
            "itemsize": RECORD,
        }
    )
    for stream in subgraph.streams:
        head = np.ascontiguousarray(stream).view(dtype).reshape(-1)
        before = np.cumsum(head["queue"][:, None] == np.arange(len(QUEUES)), 0)
        assert (head["wait"][1:] <= before[:-1]).all()
        assert not head["wait"][:1].any()


def _offsets() -> list[int]:
    offsets, at = {}, 0
    for field in HEAD:
        size = np.dtype(field.type).itemsize
        offsets[field.name] = at = -(-at // size) * size
        at += size * field.count
    return [offsets["queue"], offsets["wait"]]


def needs_all(net: Network) -> bool:
    """Whether every row of every operand is needed; otherwise a schedule may leave some out, and beat the bound."""
    return all(_covers(layer) for layer in net.layers)


def _covers(layer: Layer) -> bool:
    if layer.kind in ("slice", "split", "pad"):
        return False
    if not layer.by_rows:
        return True
    read: list[set[int]] = [set() for _ in layer.inputs]
    for row in range(0, layer.outputs[0].rows, layer.granule):
        for rows, (low, high) in zip(read, layer.operand_rows((row, row + layer.granule)), strict=True):
            rows.update(range(low, high))
    return all(len(rows) >= tensor.rows for rows, tensor in zip(read, layer.inputs, strict=True))
