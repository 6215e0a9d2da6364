"""One layer by itself, on the operands that a dump has: does it give the result that the dump has?

So a layer is tried again without the network before it: on another version of npuc, in graph mode what ran in instruction
mode, with other weights. In a compiled model the instructions of the layer run where they are, in the middle of their
program; what the program writes of the layer's operands is replaced by what the dump has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches

import numpy as np
import onnx

from npuc.arrays import Array
from npuc.debug.compiled import (
    CompiledLayers,
    Snapshot,
    is_joined,
    shown,
    snapshot_of,
    unviewed,
    viewed,
    views_of,
)
from npuc.debug.dump import Dump
from npuc.debug.layers import LayerTensor, as_stored
from npuc.debug.opening import Opened
from npuc.engine.integer import prepare
from npuc.errors import CompareError, EngineError, UnknownTensorError, UsageError
from npuc.host import Session
from npuc.ir import Graph, layer_name, shape_of, top
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import dtype_of, quant_of
from npuc.program.disassemble import layer_called
from npuc.program.model import ChipSubgraph, CpuSubgraph, HostConversion, NpuSubgraph, Tensor
from npuc.sim import memory
from npuc.sim.watch import Watched, run_watched


def run_layer(opened: Opened, name: str, dump: Dump, run: int = 0, threads: int = 1) -> list[LayerTensor]:
    """The results of the layer that makes the tensor `name` (or is called so), from the operands in a dump."""
    if opened.kind == "dump":
        raise UsageError(
            f"{opened.path} is a dump, and a layer of a model is to run",
            fix="Give the model, then --dump DIR",
        )
    if not 0 <= run < dump.index.runs:
        raise UsageError(f"the dump has runs 0 to {dump.index.runs - 1}, and {run} is asked for")
    operands = _Operands(dump, run)
    if opened.compiled is not None:
        return _in_compiled(CompiledLayers(opened.compiled, threads), name, operands)
    assert opened.graph is not None
    return _in_graph(opened.graph, name, operands, threads)


class _Operands:
    """The tensors of a run of a dump, in the types that a layer wants."""

    def __init__(self, dump: Dump, run: int) -> None:
        self.dump, self.run = dump, run

    def __call__(self, name: str, dtype: str, shape: Sequence[int], layer: str) -> Array:
        entry = self.dump.find(self.run, name)
        if entry is None:
            raise CompareError(
                f"the dump has no tensor '{name}', which layer '{layer}' reads",
                where=str(self.dump.folder),
                fix="Dump the network again, or that of which this one is made",
            )
        if entry.dtype != dtype or (tuple(shape) != entry.shape and -1 not in shape):
            expected, dumped = (
                "x".join([*map(str, size), kind])
                for size, kind in ((shape, dtype), (entry.shape, entry.dtype))
            )
            raise CompareError(
                f"layer '{layer}' reads '{name}' as {expected}, and the dump has {dumped}",
                where=str(self.dump.folder),
            )
        return self.dump.read(entry).astype(dtype_of(dtype).numpy)


def _unknown(name: str, known: Sequence[str]) -> UnknownTensorError:
    near = get_close_matches(name, known, n=5, cutoff=0.4)
    fix = f"The nearest names are: {', '.join(near)}" if near else "'npuc show' lists the names of a program"
    return UnknownTensorError(f"there is no layer '{name}' that could be run", fix=fix)


def _in_graph(graph: Graph, name: str, operands: _Operands, threads: int) -> list[LayerTensor]:
    names = graph.distinct_names()
    ops = [op for op in graph.ops if isinstance(op, TensorOp) and not isinstance(op, top.WeightOp)]
    op = next((op for op in ops if any(names[value] == name for value in op.results)), None)
    op = op or next((op for op in ops if layer_name(op) == name), None)
    if op is None and (node := graph.origins.nodes.get(name)) is not None:
        op = next((op for op in ops if any(names[value] == node for value in op.results)), None)
    if op is None:
        raise _unknown(name, [names[value] for op in ops for value in op.results])
    label = layer_name(op) or op.name
    arrays = []
    for value in op.operands:
        constant = graph.constant(value)
        if constant is None:
            kind = dtype_of(value.type).name
            constant = operands(names[value], kind, shape_of(value), label)
        arrays.append(constant)
    results = []
    for value, array in zip(op.results, prepare(op, graph, threads)(arrays), strict=True):
        scheme = quant_of(value)
        scale, zero = (scheme.scale, scheme.zero_point) if scheme is not None else (0.0, 0)
        kind = dtype_of(value.type).name
        results.append(LayerTensor(names[value], label, op.name, kind, scale, zero, as_stored(array)))
    return results


def _in_compiled(layers: CompiledLayers, name: str, operands: _Operands) -> list[LayerTensor]:
    tensors = layers.info.tensors
    runnable = [n for n, tensor in enumerate(tensors) if tensor.subgraph >= 0]
    chosen = next((n for n in runnable if tensors[n].name == name), None)
    called = layer_called(layers.compiled, name)
    if chosen is None:
        chosen = next((n for n in runnable if name == tensors[n].layer or called == tensors[n].name), None)
    if chosen is None and operands.dump.find(operands.run, name) is not None:
        raise UnknownTensorError(
            f"the compiled model has no tensor '{name}': the layer is fused with the one behind it",
            where=layers.compiled.name,
            fix="Run that one, or this one of the .mlir file",
        )
    if chosen is None:
        raise _unknown(name, [tensors[n].name for n in runnable])
    traced = tensors[chosen]
    results = [
        n
        for n in runnable
        if (tensors[n].subgraph, tensors[n].layer, tensors[n].kind, tensors[n].inputs)
        == (traced.subgraph, traced.layer, traced.kind, traced.inputs)
    ]
    given = {
        n: operands(tensors[n].name, tensors[n].dtype, tensors[n].shape, traced.layer) for n in traced.inputs
    }
    if traced.view_of is not None:
        return [shown(traced, viewed(traced, Snapshot(given[traced.view_of])))]
    subgraph = layers.compiled.subgraphs[traced.subgraph]
    if isinstance(subgraph, ChipSubgraph):
        raise CompareError(
            f"'{traced.name}' is made by subgraph '{subgraph.name}', which the chip runs as a whole",
            where=layers.compiled.name,
            fix="Run the layer of the .mlir file, or the whole model",
        )
    work: Callable[..., list[LayerTensor]]
    if isinstance(subgraph, NpuSubgraph):
        work = _on_npu
    elif isinstance(subgraph, HostConversion):
        work = _on_host
    else:
        work = _on_cpu
    return work(layers, results, given)


def _on_npu(layers: CompiledLayers, results: list[int], given: dict[int, Array]) -> list[LayerTensor]:
    tensors = layers.info.tensors
    index = tensors[results[0]].subgraph
    forced: dict[int, Array] = {}
    for number, array in given.items():
        while (base := tensors[number].view_of) is not None:
            array, number = unviewed(tensors[number], array, tensors[base]), base
        tensor = tensors[number]
        if tensor.places and tensor.subgraph == index:
            forced[number] = np.ascontiguousarray(array.transpose(tensor.order)).reshape(-1).view(np.uint8)
        else:
            memory.write(layers.simulator.segments, _in_dram(layers, number), array)
    watched = [*forced, *results]
    held = [Watched(tensors[n].size, forced.get(n)) for n in watched]
    left = set(range(len(forced), len(watched)))

    def finished(place: int) -> bool:
        left.discard(place)
        return not left

    run_watched(layers.simulator, index, held, views_of(tensors, watched), finished)
    layer_tensors = []
    for n, snapshot in zip(watched, held, strict=True):
        tensor = tensors[n]
        if n in results and is_joined(tensor):
            array = memory.read(layers.simulator.segments, _in_dram(layers, n))
            layer_tensors.append(shown(tensor, Snapshot(array)))
        elif n in results:
            layer_tensors.append(shown(tensor, snapshot_of(tensor, snapshot)))
    return layer_tensors


def _in_dram(layers: CompiledLayers, number: int) -> Tensor:
    """The place in DRAM through which a tensor comes from another subgraph."""
    tensor = layers.info.tensors[number]
    if tensor.memory is None:
        raise CompareError(
            f"'{tensor.name}' does not come to this layer through DRAM", where=layers.compiled.name
        )
    return layers.compiled.tensor(tensor.memory)


def _on_host(layers: CompiledLayers, results: list[int], given: dict[int, Array]) -> list[LayerTensor]:
    simulator, tensors = layers.simulator, layers.info.tensors
    for number, array in given.items():
        memory.write(simulator.segments, _in_dram(layers, number), array)
    simulator.step(tensors[results[0]].subgraph)
    return [_from_dram(layers, number) for number in results]


def _from_dram(layers: CompiledLayers, number: int) -> LayerTensor:
    tensor = layers.info.tensors[number]
    return shown(
        tensor, Snapshot(memory.read(layers.simulator.segments, layers.compiled.tensor(tensor.memory or "")))
    )


def _on_cpu(layers: CompiledLayers, results: list[int], given: dict[int, Array]) -> list[LayerTensor]:
    tensors = layers.info.tensors
    subgraph = layers.compiled.subgraphs[tensors[results[0]].subgraph]
    assert isinstance(subgraph, CpuSubgraph)
    called = {
        number: tensors[number].onnx if tensors[number].onnx is not None else _in_dram(layers, number).name
        for number in (*given, *results)
    }
    inputs = {str(called[number]): array for number, array in given.items()}
    outputs = [str(called[number]) for number in results]
    types = {str(called[n]): dtype_of(tensors[n].dtype).onnx for n in given}
    try:
        proto = onnx.ModelProto.FromString(subgraph.model)
    except Exception as error:
        raise EngineError(f"its model cannot be read: {error}", where=subgraph.name) from error
    _cut(proto, types, outputs)
    session = Session(proto.SerializeToString(), subgraph.name, layers.simulator.threads)
    arrays = session.run(outputs, inputs)
    return [shown(tensors[n], Snapshot(arrays[name])) for n, name in zip(results, outputs, strict=True)]


def _cut(proto: onnx.ModelProto, inputs: dict[str, int], outputs: list[str]) -> None:
    """Leave only the nodes between some tensors and others."""
    needed, kept = set(outputs), []
    for node in reversed(proto.graph.node):
        if any(name in needed for name in node.output):
            kept.append(node)
            needed.update(name for name in _reads(node) if name not in inputs)
    graph = onnx.GraphProto(name=proto.graph.name)
    graph.node.extend(reversed(kept))
    graph.initializer.extend(
        initializer for initializer in proto.graph.initializer if initializer.name in needed
    )
    for name, kind in inputs.items():
        graph.input.add(name=name).type.tensor_type.elem_type = kind
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    proto.graph.CopyFrom(graph)


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """What a node reads, also in graphs inside it."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _reads(inner)
            yield from (output.name for output in graph.output)
