"""Weights handed to an ONNX Runtime session without copies.

A weight that lies in a file becomes external data at its place there, which ONNX Runtime maps by itself and reads as
far as it needs. One in memory is shared. Only what neither way can carry is copied: elements that lie unaligned in a
file, and in-memory types that NumPy does not have.
"""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

from npuc.engine.tensors import is_native, to_ort
from npuc.export.onnx import ExportedModel, embed
from npuc.ir import FileSlice, Weight

_ROOT = "/"


def attach_weights(exported: ExportedModel, options: Any) -> list[Any]:
    """Make session options and model agree on where the declared weights are.

    Returns what has to stay alive as long as the session.
    """
    mapped = {name: weight for name, weight in exported.external.items() if _in_place(weight)}
    rest = {name: weight for name, weight in exported.external.items() if name not in mapped}
    for tensor in exported.proto.graph.initializer:
        if tensor.name in mapped:
            _locate(tensor, mapped[tensor.name])
    # Locations are relative to a folder; the files may lie anywhere.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", _ROOT)
    embed(exported.proto, {name: weight for name, weight in rest.items() if not is_native(weight.dtype)})
    shared = {
        name: to_ort(weight.array(), weight.dtype) for name, weight in rest.items() if is_native(weight.dtype)
    }
    if shared:
        # The first call lets graph optimizations read the values, the second makes kernels use them in place.
        options.add_external_initializers(list(shared), list(shared.values()))
        for name, value in shared.items():
            options.add_initializer(name, value)
    return list(shared.values())


def _in_place(weight: Weight) -> bool:
    data = weight.data
    return isinstance(data, FileSlice) and data.offset % weight.dtype.itemsize == 0 and data.file.is_current()


def _locate(tensor: TensorProto, weight: Weight) -> None:
    assert isinstance(weight.data, FileSlice)
    path = weight.data.file.path.resolve().relative_to(_ROOT)
    del tensor.external_data[:]
    for key, text in (
        ("location", str(path)),
        ("offset", str(weight.data.offset)),
        ("length", str(weight.nbytes)),
    ):
        tensor.external_data.add(key=key, value=text)
