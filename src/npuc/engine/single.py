"""One float op as a program of its own in ONNX Runtime.

Graph mode runs the ops that stayed float so, and range selection the consumers of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable

from npuc.arrays import Array
from npuc.engine.floating import FloatEngine
from npuc.ir import Graph, Value, top
from npuc.ir.definition import TopOp

Step = Callable[[list[Array]], list[Array]]


def single_op(op: TopOp, graph: Graph, threads: int) -> Step:
    """A function of the operands' arrays that runs one op; constant operands are taken from the graph."""
    inputs = [(f"x{i}", v) for i, v in enumerate(op.operands) if graph.constant(v) is None]
    single = Graph.empty([(name, value.type) for name, value in inputs], graph.weights)
    known: dict[Value, Value] = {
        value: argument for (_, value), argument in zip(inputs, single.block.args, strict=True)
    }
    operands = []
    for value in op.operands:
        owner = value.owner
        if value not in known:
            assert isinstance(owner, top.WeightOp)
            copy = top.WeightOp.of(owner.ref, owner.output.type)
            single.block.add_op(copy)
            known[value] = copy.output
        operands.append(known[value])
    clone = type(op).create(
        operands=operands,
        result_types=[value.type for value in op.results],
        properties=op.properties,
        location=op.location,
    )
    single.block.add_op(clone)
    names = [f"y{i}" for i in range(len(op.results))]
    single.set_outputs(list(zip(names, clone.results, strict=True)))
    engine = FloatEngine(single, threads=threads)
    places = [i for i, value in enumerate(op.operands) if graph.constant(value) is None]

    def run(arrays: list[Array]) -> list[Array]:
        results = engine.run({name: arrays[i] for (name, _), i in zip(inputs, places, strict=True)})
        return [results[name] for name in names]

    return run
