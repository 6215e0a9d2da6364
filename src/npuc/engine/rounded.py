"""What rounding some tensors alone does to the outputs of a float network.

The program is exported once; for each set of tensors, a quantize and a dequantize node (or, of a short float, two casts) are
put behind each of them and the rest computes in float. Noise is error over signal at the outputs, their mean: independent
roundings add up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from npuc.arithmetic.dtypes import DType
from npuc.arrays import Array
from npuc.engine.floating import session_options
from npuc.engine.weights import attach_weights
from npuc.export.onnx import ALL_TENSORS, to_onnx
from npuc.ir import Graph
from npuc.ir.dtypes import QuantType


def output_noise(
    graph: Graph,
    sets: Sequence[Collection[str]],
    types: Mapping[str, QuantType | DType],
    samples: Sequence[Mapping[str, Array]],
    threads: int = 1,
    measure: Callable[[Sequence[Sequence[Array]], Sequence[Sequence[Array]]], float] | None = None,
) -> Iterator[float]:
    """For each set of tensors, by name, the noise at the outputs if only those are rounded to their types.

    `measure` makes one figure of the outputs that were found and the exact ones, samples x outputs; without it, their mean.
    """
    measure = measure or relative_noise
    exported = to_onnx(graph, ALL_TENSORS)
    names = dict(exported.fetched)
    outputs = [port.name for port in graph.outputs]
    kept = [info for info in exported.proto.graph.output if info.name in outputs]
    del exported.proto.graph.output[:]
    exported.proto.graph.output.extend(kept)

    def run(proto: ModelProto) -> list[list[Array]]:
        import onnxruntime as ort

        options = session_options(threads, optimize=False)
        held = attach_weights(exported, options)
        session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        results = [session.run(outputs, dict(sample)) for sample in samples]
        del session, held
        return results

    exact = run(exported.proto)
    for chosen in sets:
        rounded = {names[name]: types[name] for name in chosen if names.get(name, name) not in outputs}
        yield measure(run(_rounding(exported.proto, rounded)), exact)


def _rounding(model: ModelProto, types: Mapping[str, QuantType | DType]) -> ModelProto:
    """The same model with tensors rounded on their way to those that read them."""
    changed = ModelProto()
    changed.CopyFrom(model)
    nodes: list[NodeProto] = []
    own = _unused(model)
    for name, kind in types.items():
        if isinstance(kind, DType):
            continue
        scale = numpy_helper.from_array(np.array(kind.scale, np.float32), f"{own}{name}/scale")
        zero = numpy_helper.from_array(np.array(kind.zero_point, kind.dtype.numpy), f"{own}{name}/zero_point")
        changed.graph.initializer.extend([scale, zero])
    for node in changed.graph.node:
        for place, name in enumerate(node.input):
            if name in types:
                node.input[place] = f"{own}{name}/rounded"
        nodes.append(node)
        for name in node.output:
            if name in types:
                ends = [f"{own}{name}/scale", f"{own}{name}/zero_point"]
                steps, rounded = f"{own}{name}/steps", f"{own}{name}/rounded"
                kind = types[name]
                if isinstance(kind, DType):
                    nodes.append(helper.make_node("Cast", [name], [steps], to=kind.onnx))
                    nodes.append(helper.make_node("Cast", [steps], [rounded], to=TensorProto.FLOAT))
                    continue
                nodes.append(helper.make_node("QuantizeLinear", [name, *ends], [steps]))
                nodes.append(helper.make_node("DequantizeLinear", [steps, *ends], [rounded]))
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    return changed


def _unused(model: ModelProto) -> str:
    """A beginning that no name of the model has: networks may have tensors and weights of any name."""
    names = {name for node in model.graph.node for name in (*node.input, *node.output)}
    names |= {value.name for value in (*model.graph.input, *model.graph.initializer)}
    own = "rounding:"
    while any(name.startswith(own) for name in names):
        own += ":"
    return own


def relative_noise(results: Sequence[Sequence[Array]], exact: Sequence[Sequence[Array]]) -> float:
    """Error over signal of outputs, sample by sample, the mean of the outputs."""
    ratios = []
    for index in range(len(exact[0]) if exact else 0):
        if exact[0][index].dtype.kind != "f":
            continue
        pairs = [
            (got[index].astype(np.float64), want[index].astype(np.float64))
            for got, want in zip(results, exact, strict=True)
        ]
        signal = sum(float(np.square(want).sum()) for _, want in pairs)
        error = sum(float(np.square(got - want).sum()) for got, want in pairs)
        if signal > 0:
            ratios.append(error / signal)
    return float(np.mean(ratios)) if ratios else 0.0
