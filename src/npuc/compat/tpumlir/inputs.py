"""Inputs of a network from the files that commands name: an image, an .npz file, or .npy files and images by position."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from npuc.arrays import Array
from npuc.calib.samples import load_samples
from npuc.compat.arguments import comma_list
from npuc.compat.tpumlir.names import names_of
from npuc.errors import UsageError
from npuc.files import existing_file
from npuc.ir import Graph, Value, dtype_of, top, value_name
from npuc.ir.states import data_inputs
from npuc.tensors import TensorFile


def read_inputs(graph: Graph, text: str, option: str) -> dict[str, Array]:
    """The inputs of one run; of a batch, one sample is repeated."""
    paths = [existing_file(word) for word in comma_list(text)]
    ports = [port.name for port in data_inputs(graph)]
    if not paths:
        raise UsageError(f"{option} names no file")
    if len(paths) == 1 and len(ports) > 1 and paths[0].suffix != ".npz":
        raise UsageError(
            f"{option} names one file, and the network has {len(ports)} inputs",
            fix="Give an .npz file with all of them, or a file for each, between commas",
        )
    if len(paths) > 1 and len(paths) != len(ports):
        raise UsageError(
            f"{option} names {len(paths)} files, and the network has {len(ports)} inputs: {', '.join(ports)}"
        )
    places: list[tuple[str | None, Path]] = (
        [(None, paths[0])] if len(paths) == 1 else list(zip(ports, paths, strict=True))
    )
    samples = load_samples(graph, places, option)
    return dict(next(iter(samples)).inputs)


def as_float(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Tensors as files of this layer hold them: float32, unless they are integers of more than 16 bits or truth values."""
    return {
        name: array.astype(np.float32) if array.dtype.kind in "fiu" and array.dtype.itemsize < 4 else array
        for name, array in ((name, np.asarray(tensor)) for name, tensor in tensors.items())
    }


def real_tensors(graph: Graph, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Tensors of a network that brings its own quantization: integers as the reals that they stand for, each once."""
    reals = dict(tensors)
    scales: dict[Value, tuple[Array, Array]] = {}
    for op in graph.ops:
        if isinstance(op, top.Quantize | top.Dequantize):
            scale, zero_point = graph.constant(op.scale), graph.constant(op.zero_point)
            quantized = op.results[0] if isinstance(op, top.Quantize) else op.x
            if scale is not None and scale.size == 1:
                scales[quantized] = scale, np.zeros(1) if zero_point is None else zero_point
            if isinstance(op, top.Dequantize) and value_name(op.x) in reals:
                reals.pop(value_name(op.results[0]), None)
        elif op.operands and op.operands[0] in scales:
            # What only moves integers keeps their scale.
            scales.update(
                (value, scales[op.operands[0]]) for value in op.results if not dtype_of(value.type).is_float
            )
    for value, (scale, zero_point) in scales.items():
        name = value_name(value)
        if name in reals and reals[name].dtype.kind in "iu":
            reals[name] = (reals[name].astype(np.float32) - np.float32(zero_point)) * np.float32(scale)
    return reals


def read_reference(graph: Graph, path: str) -> dict[str, Array]:
    """The tensors of a reference file by npuc's names."""
    tensors = TensorFile(existing_file(path))
    names = names_of(graph)
    return {names.npuc_name(name): tensors[name] for name in tensors}
