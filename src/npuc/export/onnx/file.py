"""An exported model as files: one `.onnx`, or an `.onnx` and its external data where protobuf's 2 GB do not suffice.

The same program gives the same bytes. Weights in external data are streamed from where they lie.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO

from onnx import ModelProto, TensorProto

from npuc.errors import OutputError
from npuc.export.onnx.model import ExportedModel, embed, to_onnx
from npuc.files import write_atomically
from npuc.ir import Graph, Weight
from npuc.ir.weights import write_weight

_LIMIT = (1 << 31) - (1 << 20)
_PAGE = 4096
_ALIGN = 64


def export_onnx(graph: Graph, path: Path | str, external_data: bool | None = None) -> list[Path]:
    """Write a program as `path`; returns the files that were written.

    Weights are in the file itself, or in `path` + ".data" beside it if `external_data` is true or they are too large.
    """
    return write_onnx(to_onnx(graph), Path(path), external_data)


def write_onnx(exported: ExportedModel, path: Path, external_data: bool | None = None) -> list[Path]:
    """Write an exported model; returns the files that were written."""
    size = exported.proto.ByteSize() + sum(weight.nbytes for weight in exported.external.values())
    if external_data is None:
        external_data = size > _LIMIT
    elif not external_data and size > _LIMIT:
        raise OutputError(
            f"a model of {size} bytes does not fit one ONNX file",
            where=str(path),
            fix="Write it with external data",
        )
    if not external_data:
        embed(exported.proto, exported.external)
        _write(exported.proto, path)
        return [path]
    data = path.with_name(path.name + ".data")
    with write_atomically(data) as out:
        _write_data(exported.proto, exported.external, out, data.name)
    _write(exported.proto, path)
    return [path, data]


def _write_data(proto: ModelProto, external: dict[str, Weight], out: IO[bytes], location: str) -> None:
    position = 0
    for tensor in proto.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        weight = external[tensor.name]
        # A tensor that starts on a page can be mapped by itself.
        gap = -position % (_PAGE if weight.nbytes >= _PAGE else _ALIGN)
        out.write(bytes(gap))
        position += gap
        del tensor.external_data[:]
        for key, text in (("location", location), ("offset", str(position)), ("length", str(weight.nbytes))):
            tensor.external_data.add(key=key, value=text)
        write_weight(out, weight)
        position += weight.nbytes


def _write(proto: ModelProto, path: Path) -> None:
    with write_atomically(path) as out:
        out.write(proto.SerializeToString(deterministic=True))
