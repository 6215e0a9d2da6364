"""A compiled model as an ONNX file for ONNX Runtime: one EPContext node that carries the program.

A program in C, C++ or another language opens the file in a session with npuc's provider library; neither Python nor npuc's
compiler takes part. ONNX Runtime writes such files itself, too (`ep.context_enable`), with CPU nodes around compiled parts.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from npuc import __version__, native
from npuc.arithmetic.dtypes import dtype_of
from npuc.errors import ExportError
from npuc.files import write_atomically
from npuc.integrations.onnxruntime import PROVIDER
from npuc.program.file import load_entries
from npuc.program.model import CompiledModel

_DOMAIN = "com.microsoft"
_MOST = (1 << 31) - (1 << 20)
"""A protocol buffer has at most 2 GiB."""


def context_data(program: bytes, inputs: int, outputs: int) -> bytes:
    """What an EPContext node carries (native/ort/ort_context.h has the format)."""
    head = [
        "npuc-ort-context 1",
        "batched 0",
        " ".join(["inputs", *map(str, range(inputs))]),
        " ".join(["outputs", *map(str, range(outputs))]),
    ]
    return "".join(f"{line}\n" for line in head).encode() + b"\n" + program


def export_context(path: Path | str, output: Path | str) -> Path:
    """Write the model that runs a `.npu` file in ONNX Runtime."""
    path, output = Path(path), Path(output)
    entries = load_entries(path)
    if len(entries) != 1:
        raise ExportError(
            f"the program has {len(entries)} entries, and a node of ONNX Runtime has one",
            where=str(path),
            fix="Export the programs that it was combined of",
        )
    program = path.read_bytes()
    if len(program) > _MOST:
        raise ExportError(
            "the program has more than 2 GiB, which is what an ONNX file can hold", where=str(path)
        )
    _require_runnable(program, path)
    (model,) = entries.values()
    node = helper.make_node(
        "EPContext",
        list(model.inputs),
        list(model.outputs),
        name=model.name,
        domain=_DOMAIN,
        ep_cache_context=context_data(program, len(model.inputs), len(model.outputs)),
        embed_mode=1,
        main_context=1,
        source=PROVIDER,
        partition_name=model.name,
        ep_sdk_version=__version__,
    )
    graph = helper.make_graph(
        [node], model.name, _described(model, model.inputs), _described(model, model.outputs)
    )
    proto = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(_DOMAIN, 1)],
        producer_name="npuc",
        producer_version=__version__,
    )
    proto.ir_version = 8
    with write_atomically(output) as out:
        out.write(proto.SerializeToString(deterministic=True))
    return output


def _described(model: CompiledModel, names: tuple[str, ...]) -> list[onnx.ValueInfoProto]:
    described = []
    for name in names:
        tensor = model.tensor(name)
        kind = dtype_of(tensor.dtype).onnx
        if not kind or kind == TensorProto.UNDEFINED:
            raise ExportError(f"ONNX has no elements of type {tensor.dtype}", where=f"tensor '{name}'")
        described.append(helper.make_tensor_value_info(name, kind, tensor.shape))
    return described


def _require_runnable(program: bytes, path: Path) -> None:
    """Ask the C runtime, which is what executes the node."""
    core = native.library()
    aligned = np.frombuffer(program, np.uint8).copy()  # NumPy aligns to 16 bytes, the reader wants 8
    handle = ctypes.c_void_p()
    core.npu_error.restype = ctypes.c_char_p
    status = core.npu_load_memory(
        ctypes.c_void_p(aligned.ctypes.data), ctypes.c_size_t(aligned.size), ctypes.byref(handle)
    )
    words = core.npu_error().decode(errors="replace")
    core.npu_free.restype = None
    core.npu_free(handle)
    if status != 0:
        raise ExportError(
            words,
            where=str(path),
            fix="Compile with --npu-only to see which layers need the CPU, or use the provider on the original model: ONNX "
            "Runtime then runs them",
        )
