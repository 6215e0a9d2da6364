"""`qubee.utils`: a PyTorch model as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from npuc.compat.qubee.models import channels_first
from npuc.compat.qubee.notices import note, wrong
from npuc.export.onnx import export_onnx
from npuc.extras import require_torch
from npuc.files import writable

__all__ = ["convert_pytorch_to_onnx"]


def convert_pytorch_to_onnx(model: Any, input_shape_hwc: Any, save_path: Path | str) -> Path | str:
    """Write a module as ONNX, for one image of height × width × channels, or for several inputs of such shapes; the path."""
    torch = require_torch()
    from npuc.integrations.torch.live import from_torch

    if not isinstance(model, torch.nn.Module):
        raise wrong("model", type(model).__name__, "a torch.nn.Module")
    several = isinstance(input_shape_hwc, list | tuple) and any(
        isinstance(shape, list | tuple) for shape in input_shape_hwc
    )
    shapes = input_shape_hwc if several else [input_shape_hwc]
    example = tuple(torch.zeros(channels_first(shape)) for shape in shapes)
    path = writable(Path(save_path))
    training = model.training
    graph = from_torch(model.eval(), example)
    model.train(training)
    export_onnx(graph, path)
    note(f"{type(model).__name__} -> {path}")
    return save_path
