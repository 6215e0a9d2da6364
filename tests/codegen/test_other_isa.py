"""A second code generator, for a machine with another instruction set, consumes the same schedule: see row_machine.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.engine.integer import IntegerEngine
from npuc.flow import quantize_network
from npuc.ir import Graph, result_names, top
from npuc.target import load_target
from support.programs import row_machine


def network() -> Graph:
    """Strides, padding, a pool, and a branch that joins again."""
    rng = np.random.default_rng(5)

    def weights(*shape: int) -> Array:
        return rng.uniform(-1, 1, shape).astype(np.float32)

    x = lang.input("x", (1, 3, 40, 28))
    y = lang.conv(x, weights(16, 3, 3, 3), weights(16), strides=2, pads=1, relu=True, name="stem")
    y = lang.max_pool(y, kernel=3, strides=1, pads=1, name="pool")
    left = lang.conv(y, weights(16, 16, 3, 3), pads=1, name="left")
    right = lang.conv(y, weights(16, 16, 1, 1), name="right")
    return lang.build({"y": lang.conv(left + right, weights(24, 16, 1, 1), weights(24), name="head")})


def integers(target: Any) -> Graph:
    graph = network()
    ranges = {port.name: (-1.0, 1.0) for port in graph.inputs}
    for op in graph.ops:
        if not isinstance(op, top.WeightOp):
            ranges |= dict.fromkeys(result_names(op), (-6.0, 6.0))
    return quantize_network(graph, ranges, None, target).graph


def in_memory(tensor: Any, logical: Array) -> Array:
    """A tensor as it lies in DRAM."""
    return np.ascontiguousarray(logical.transpose(tensor.order)).view(np.uint8).reshape(-1).copy()


@pytest.mark.parametrize(
    "target, level, local_memory",
    [("edge-1t", 0, None), ("edge-1t", 2, None), ("edge-1t", 1, 9216), ("server-32t", 1, None)],
)
def test_another_machine_computes_the_integers_of_the_engine(
    target: str, level: int, local_memory: int | None
) -> None:
    machine = load_target(target)
    graph = integers(machine)
    done = compile_program(graph, machine, CompileOptions(level, local_memory=local_memory))
    (part,) = done.parts
    schedule = part.schedule
    given, wanted = part.network.inputs[0], part.network.outputs[0]
    values = np.random.default_rng(1).uniform(-1, 1, (1, 3, 40, 28)).astype(np.float32)
    engine = IntegerEngine(graph, [given.name, wanted.name], raw=True).run({"x": values})

    programs, constants = row_machine.generate(schedule)
    objects = {f"t{n}": np.zeros(int(np.prod(one.shape)), np.uint8) for n, one in enumerate(schedule.tensors)}
    by_name = {one.name: n for n, one in enumerate(schedule.tensors)}
    x, y = by_name[given.name], by_name[wanted.name]
    objects[f"t{x}"] = in_memory(schedule.tensors[x], engine[given.name])
    row_machine.run(programs, {**objects, **constants}, schedule.memory)

    assert objects[f"t{y}"].tobytes() == in_memory(schedule.tensors[y], engine[wanted.name]).tobytes()
    assert len(np.unique(objects[f"t{y}"])) > 20
    if local_memory is not None:
        assert max(group.tiles for group in schedule.groups) > 1
    assert len(programs) == (4 if target == "server-32t" else 1)


def test_its_listing_is_its_own() -> None:
    machine = load_target("edge-1t")
    graph = integers(machine)
    (part,) = compile_program(graph, machine, CompileOptions(1)).parts
    (lines,), _ = row_machine.generate(part.schedule)
    names = {line.split()[0] for line in lines}
    assert names == {"get", "put", "bias", "mac", "rq", "max", "add"}
    # Four convolutions of twenty rows each.
    assert sum(line.startswith("rq") for line in lines) == 20 * 4
    assert lines[0].startswith("get c0 0 ")
