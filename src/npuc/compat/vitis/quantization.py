"""Settings of Vitis AI's quantizers as npuc's own: schemes, range methods, samples.

Every quantizer of the vendor ends in the same integers: 8 bits, powers of two, one scale a tensor, as the DPU computes. That is
the scheme of the preset; options change single fields of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.sources import Source, open_data, random_data
from npuc.compat.vitis.targets import B4096
from npuc.errors import CalibrationDataError
from npuc.flow import Quantized, network_to_quantize, quantize_network, quantize_on_data
from npuc.frontend.options import ImportOptions
from npuc.ir import Graph, result_names, shape_of, top
from npuc.ir.definition import TopOp
from npuc.quant.config import QuantizationConfig
from npuc.quant.from_target import scheme_for
from npuc.quant.patterns import layer_names
from npuc.quant.prequantized import is_quantized
from npuc.target import Target, load_target


def dpu_scheme(**changes: Any) -> dict[str, Any]:
    """The integers of the DPU, with changes to single fields of the scheme."""
    return scheme_for(load_target(B4096)).to_dict() | changes


def dpu_settings(**changes: Any) -> tuple[QuantizationConfig, Target | None]:
    """A configuration for the DPU and its target, whose limits say what stays float; another arithmetic has no target."""
    if not changes:
        return QuantizationConfig(), load_target(B4096)
    return QuantizationConfig(scheme=dpu_scheme(**changes)), None


def quantized_by(
    graph: Graph,
    samples: Iterable[Mapping[str, Array]] | None,
    config: QuantizationConfig,
    *,
    target: Target | None = None,
    method: str | None = None,
    correct: bool = True,
    warn: Callable[[str], None] | None = None,
) -> Quantized:
    """Quantize a float network on samples; on random ones where there are none, and without any if it brings its own scales."""
    if is_quantized(graph):
        return quantize_network(graph, None, None, target)
    source: Source = random_data(graph) if samples is None else open_data(graph, samples)
    return quantize_on_data(graph, source, config, target, method, correct=correct, warn=warn)[0]


def single_rows(graph: Graph, batches: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Array]]:
    """Batches as the network takes them: where it was imported for one row, a batch is as many samples as it has rows."""
    shapes = {port.name: shape_of(port.value) for port in graph.inputs}
    empty = True
    for batch in batches:
        empty = False
        if not isinstance(batch, Mapping):
            raise CalibrationDataError(
                f"a sample is a {type(batch).__name__}, and has to be a dictionary of arrays by the names of the inputs"
            )
        arrays = {str(name): np.asarray(value) for name, value in batch.items()}
        _check_sample(arrays, shapes)
        rows = {len(array) for array in arrays.values() if array.ndim}
        single = all(
            name in shapes and shapes[name][:1] == (1,) and array.shape[1:] == shapes[name][1:]
            for name, array in arrays.items()
        )
        if not single or len(rows) != 1:
            yield arrays
            continue
        yield from (
            {name: array[row : row + 1] for name, array in arrays.items()} for row in range(rows.pop())
        )
    if empty:
        raise CalibrationDataError(
            "there is no calibration data: the first sample is missing already",
            fix="A data reader is used up by one run: make a new one for each",
        )


def _check_sample(arrays: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse names and shapes that are not those of the inputs, in the words of who wrote the reader."""
    if set(arrays) != set(shapes):
        raise CalibrationDataError(
            f"a sample has {_quoted(arrays)}, and the inputs of the model are {_quoted(shapes)}",
            fix="Give a dictionary with the name of each input",
        )
    for name, array in arrays.items():
        if array.dtype.kind not in "fiub":
            raise CalibrationDataError(
                f"input '{name}' is given {array.dtype}, and has to be an array of numbers",
                fix="Read and scale images in the function that gives the data",
            )
        shape = shapes[name]
        if array.shape != shape[1:] and (array.ndim != len(shape) or array.shape[1:] != shape[1:]):
            raise CalibrationDataError(
                f"input '{name}' is given shape {list(array.shape)}, and the model takes {list(shape)}",
                fix="Give arrays of that shape, with any number of rows",
            )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "nothing"


def network_of(path: Path | str, input_shapes: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
    """The network of a model file, ready to be quantized."""
    return network_to_quantize(path, ImportOptions(input_shapes=dict(input_shapes or {})))


def float_layers(
    graph: Graph, keeps_integers: Callable[[str], bool], floats: Collection[str] = ()
) -> tuple[str, ...]:
    """The layers of which no original node is to be quantized, and those that have one of the nodes `floats`.

    A layer has the nodes that were fused into it: a convolution that is to be quantized stays so, whatever is said of its relu.
    """
    aliases = graph.layer_aliases()
    return tuple(
        result_names(op)[0]
        for op in graph.ops
        if isinstance(op, TopOp) and not isinstance(op, top.WeightOp) and op.results
        if not any(keeps_integers(name) for name in layer_names(op, aliases))
        or not set(floats).isdisjoint(layer_names(op, aliases))
    )


def layers_outside(graph: Graph, first: tuple[str, ...], last: tuple[str, ...]) -> tuple[str, ...]:
    """The layers that some tensors are made of, and those that are made of some others: what is not between them."""
    before = [value for name in first if (value := graph.find(name)) is not None]
    reached: set[Any] = set()
    while before:
        owner = before.pop().owner
        if isinstance(owner, TopOp) and owner not in reached and not isinstance(owner, top.WeightOp):
            before += list(owner.operands)
            reached.add(owner)
    outside = {op for op in reached if op.results and result_names(op)[0] not in first}
    behind = {value for name in last if (value := graph.find(name)) is not None}
    for op in graph.ops:
        if isinstance(op, TopOp) and behind.intersection(op.operands):
            outside.add(op)
            behind.update(op.results)
    return tuple(result_names(op)[0] for op in graph.ops if op in outside)
