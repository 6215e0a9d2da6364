"""A compiled model as a `.tflite` file of one operator, which carries the program: any LiteRT application can ship and run it.

The operator is a custom one, `npuc`, with the bytes of the `.npu` file as its options; the delegate takes it, and without the
delegate a runtime refuses the file ("unresolved custom op: npuc").
"""

from __future__ import annotations

from pathlib import Path

from npuc.errors import ExportError
from npuc.export.tflite.model import (
    TYPES,
    TFLiteModel,
    TFLiteOperator,
    TFLiteQuantization,
    TFLiteTensor,
    serialize,
)
from npuc.files import existing_file, write_atomically
from npuc.program.file import load_entries
from npuc.program.model import CompiledModel, CpuSubgraph

OPERATOR = "npuc"


def export_custom_op(program: Path | str, output: Path | str) -> None:
    """Write a `.npu` file as a `.tflite` file with one custom operator."""
    path = existing_file(program)
    entries = load_entries(path)
    if len(entries) > 1:
        raise ExportError(
            f"{path} has {len(entries)} entries, and an operator runs one",
            fix="Write one of them alone: npuc combine --extract NAME",
        )
    (model,) = entries.values()
    cpu = [part for part in model.subgraphs if isinstance(part, CpuSubgraph)]
    if cpu:
        layer, reason = next(iter(cpu[0].reasons.items()), (cpu[0].name, ""))
        raise ExportError(
            f"the delegate runs NPU subgraphs, and '{layer}' of {path} runs on the CPU{f': {reason}' if reason else ''}",
            fix="Give LiteRT the whole model, and the delegate what the NPU can run of it: npuc export litert MODEL.tflite",
        )
    if model.states:
        raise ExportError(f"{path} carries states from run to run, which an operator of LiteRT cannot")
    with write_atomically(output) as handle:
        handle.write(serialize(_one_operator(model, path.read_bytes())))


def _one_operator(model: CompiledModel, program: bytes) -> TFLiteModel:
    tensors = {name: _tensor(model, name) for name in (*model.inputs, *model.outputs)}
    inputs = {name: tensors[name] for name in model.inputs}
    outputs = {name: tensors[name] for name in model.outputs}
    operator = TFLiteOperator(OPERATOR, 1, list(inputs.values()), list(outputs.values()), custom=program)
    return TFLiteModel(list(tensors.values()), [operator], inputs, outputs)


def _tensor(model: CompiledModel, name: str) -> TFLiteTensor:
    tensor = model.tensor(name)
    if tensor.dtype not in TYPES:
        raise ExportError(f"'{name}' has elements of the type {tensor.dtype}, which TFLite has no form for")
    quantization = TFLiteQuantization((tensor.scale,), (tensor.zero_point,)) if tensor.scale else None
    return TFLiteTensor(name, tensor.shape, tensor.dtype, quantization)
