"""ONNX models as compiled models that run on the CPU alone, and what the C runtime makes of them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx

from npuc.arrays import Array
from npuc.codegen.host_ops import host_section
from npuc.codegen.host_ops.builder import DTYPES
from npuc.native import library
from npuc.program.file import save_compiled
from npuc.program.model import CompiledModel, CpuSubgraph, Segment, Tensor
from npuc.target import load_target

_TARGET = load_target("edge-4t")


def _port(info: onnx.ValueInfoProto, segment: int) -> Tensor:
    shape = tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type))
    size = prod(shape) * dtype.itemsize
    return Tensor(info.name, shape, tuple(range(len(shape))), DTYPES[dtype], 0.0, 0, segment, 0, size)


def cpu_model(proto: onnx.ModelProto) -> CompiledModel:
    """A model of one CPU subgraph."""
    infos = [*proto.graph.input, *proto.graph.output]
    tensors = [_port(info, number) for number, info in enumerate(infos, 2)]
    inputs, outputs = tensors[: len(proto.graph.input)], tensors[len(proto.graph.input) :]
    raw = proto.SerializeToString(deterministic=True)
    subgraph = CpuSubgraph(
        "cpu0",
        raw,
        tuple(tensor.name for tensor in inputs),
        tuple(tensor.name for tensor in outputs),
        {},
        host_section(raw, inputs, outputs),
    )
    return CompiledModel(
        name=proto.graph.name,
        target=_TARGET.to_dict(),
        fingerprint=_TARGET.fingerprint,
        segments=(
            Segment("weights", "weights", 0),
            Segment("workspace", "workspace", 0),
            *(Segment(tensor.name, "io", tensor.size) for tensor in tensors),
        ),
        weights=np.zeros(0, np.uint8),
        tensors=tuple(tensors),
        inputs=subgraph.inputs,
        outputs=subgraph.outputs,
        layers=(),
        subgraphs=(subgraph,),
    )


def file_of(model: CompiledModel) -> bytes:
    """The bytes of its file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.npu"
        save_compiled(model, path)
        return path.read_bytes()


def run_in_c(file: bytes, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> str:
    """Run a file by `npu.h`; results are written over `outputs`. Returns the error, empty if there is none."""
    core = library()
    core.npu_error.restype = ctypes.c_char_p
    core.npu_free.restype = None
    aligned = np.frombuffer(file, np.uint8).copy()
    handle = ctypes.c_void_p()
    status = core.npu_load_memory(
        ctypes.c_void_p(aligned.ctypes.data), ctypes.c_size_t(aligned.size), ctypes.byref(handle)
    )
    if status == 0:
        dense = [np.ascontiguousarray(value) for value in inputs.values()]
        pointers = [
            (ctypes.c_void_p * max(1, len(arrays)))(*(array.ctypes.data for array in arrays))
            for arrays in (dense, list(outputs.values()))
        ]
        status = core.npu_run(handle, *pointers)
    words: bytes = core.npu_error()
    core.npu_free(handle)
    return f"{status}: {words.decode()}" if status else ""
