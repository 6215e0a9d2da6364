"""From a file to a checked `ModelProto` and its constant tensors, without copying weights.

`OnnxSource` knows where tensors live: in the message, in the model file itself, or in external data beside it. Paths that
leave the model's folder are refused.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, TypeProto, numpy_helper

from npuc.errors import ExternalDataError, FileFormatError, InvalidModelError, NpucError, UnsupportedTypeError
from npuc.files import existing_file
from npuc.frontend.onnx import wire
from npuc.frontend.options import ImportOptions
from npuc.ir import DType, FileSlice, MappedFile, Weight, dtype_of

_PACKED = {"ui4", "i4", "f4E2M1FN", "ui2", "i2"}


class OnnxSource:
    """A decoded model and the files that its tensors lie in."""

    def __init__(self, model: onnx.ModelProto, path: Path | None, file: MappedFile | None) -> None:
        self.model = model
        self.path = path
        self._files: dict[str, MappedFile] = {wire.SELF: file} if file is not None else {}

    def weight(self, tensor: TensorProto) -> Weight:
        """The constant that a `TensorProto` describes."""
        name = tensor.name or "constant"
        dtype = element_type(tensor.data_type, f"tensor '{name}'")
        shape = tuple(tensor.dims)
        if any(n < 0 for n in shape) or prod(shape) > 1 << 48:
            raise InvalidModelError(f"tensor '{name}' has the impossible shape {list(shape)}")
        if tensor.data_location == TensorProto.EXTERNAL:
            return self._external(tensor, name, dtype, shape)
        try:
            array = numpy_helper.to_array(tensor)
        except Exception as error:  # numpy_helper raises whatever NumPy does
            raise InvalidModelError(f"tensor '{name}' cannot be decoded: {error}") from error
        if array.shape != shape or array.dtype != dtype.numpy:
            raise InvalidModelError(f"tensor '{name}' holds {array.size} values for the shape {list(shape)}")
        return Weight(dtype, shape, _frozen(array))

    def _external(self, tensor: TensorProto, name: str, dtype: DType, shape: tuple[int, ...]) -> Weight:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if not all(isinstance(entry, str) for entry in entries.values()):
            raise ExternalDataError(f"tensor '{name}' is in an external file whose name is not UTF-8 text")
        file = self._file(entries.get("location", ""), name)
        try:
            offset = int(entries.get("offset") or 0)
            length = int(entries["length"]) if entries.get("length") else file.size - offset
        except ValueError as error:
            raise ExternalDataError(
                f"tensor '{name}' has an offset or length that is not a number"
            ) from error
        if offset < 0 or length < 0 or offset + length > file.size:
            raise ExternalDataError(
                f"tensor '{name}' lies at bytes {offset} to {offset + length} of a file of {file.size}",
                where=file.path.name,
            )
        if dtype.name in _PACKED:
            clone = TensorProto()
            clone.CopyFrom(tensor)
            clone.ClearField("external_data")
            clone.data_location = TensorProto.DEFAULT
            clone.raw_data = bytes(file.buffer[offset : offset + length])
            return self.weight(clone)
        expected = prod(shape) * dtype.itemsize
        if length < expected:
            raise ExternalDataError(
                f"tensor '{name}' needs {expected} bytes, but has {length}", where=file.path.name
            )
        return Weight(dtype, shape, FileSlice(file, offset, expected))

    def _file(self, location: str, name: str) -> MappedFile:
        if location in self._files:
            return self._files[location]
        if self.path is None:
            raise ExternalDataError(
                f"tensor '{name}' is in the external file '{location}', but the model was given without a path"
            )
        folder = self.path.parent.resolve()
        try:
            target = (folder / location).resolve()
            inside = bool(location) and not Path(location).is_absolute() and target.is_relative_to(folder)
            present = inside and target.is_file()
        except (OSError, ValueError, RuntimeError) as error:  # too long, a zero byte, links in a circle
            raise ExternalDataError(
                f"tensor '{name}' is in the external file '{location}', which is no path"
            ) from error
        if not inside:
            raise ExternalDataError(
                f"tensor '{name}' is in the external file '{location}', which is not inside the model's folder",
                fix="Only data beside the model is read",
            )
        if not present:
            raise ExternalDataError(
                f"the external file '{location}' of tensor '{name}' is missing",
                fix="Keep it beside the model",
            )
        self._files[location] = MappedFile(target)
        return self._files[location]


def _frozen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array = array.view()
    array.flags.writeable = False
    return array


def element_type(number: int, what: str) -> DType:
    """The element type of an ONNX number."""
    try:
        return dtype_of(number)
    except KeyError as error:
        raise UnsupportedTypeError(f"{what} has the unknown element type {number}") from error


def parse(data: bytes) -> onnx.ModelProto:
    """Decode a serialized model."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError, ValueError) as error:
        raise FileFormatError("is not an ONNX file", fix="A binary .onnx protobuf was expected") from error
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise FileFormatError("holds no ONNX graph", fix="A binary .onnx protobuf was expected")
    check_text(model)
    return model


def check_text(model: onnx.ModelProto) -> None:
    """Refuse names that are not UTF-8: protobuf hands those over as bytes."""
    texts: list[Any] = [entry.domain for entry in model.opset_import]
    nodes = [node for function in model.functions for node in function.node]
    for function in model.functions:
        texts += [function.domain, function.name, *function.input, *function.output, *function.attribute]
        texts += [entry.domain for entry in function.opset_import]
    graphs = [model.graph]
    while graphs or nodes:
        if graphs:
            graph = graphs.pop()
            nodes += graph.node
            texts += [
                info.name for info in (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
            ]
            continue
        node = nodes.pop()
        texts += [node.name, node.op_type, node.domain, *node.input, *node.output]
        for attribute in node.attribute:
            texts += [attribute.name, attribute.ref_attr_name]
            graphs += [attribute.g] if attribute.HasField("g") else []
            graphs += attribute.graphs
    for text in texts:
        if not isinstance(text, str):
            raise InvalidModelError(f"the name {text!r} is not UTF-8 text", fix="The file is damaged")


def declared_inputs(path: Path, options: ImportOptions) -> dict[str, DType]:
    """The element types of the inputs by name, as the file states them."""
    graph = read(path).model.graph
    constants = {tensor.name for tensor in graph.initializer}
    entries = [e for e in graph.input if e.name not in constants and e.name not in options.constants]
    return {entry.name: dtype_of(entry.type.tensor_type.elem_type or 1) for entry in entries}


def read(source: Path | str | bytes | onnx.ModelProto) -> OnnxSource:
    """Decode a model from a path, its bytes, or a message."""
    if isinstance(source, onnx.ModelProto):
        check_text(source)
        return OnnxSource(source, None, None)
    if isinstance(source, bytes):
        return OnnxSource(parse(source), None, None)
    path = existing_file(source)
    try:
        file = MappedFile(path)
        return OnnxSource(parse(wire.strip(file.buffer)), path, file)
    except NpucError as error:
        error.where = error.where or str(path)
        raise


def shape_flag(name: str, tensor: TypeProto.Tensor) -> tuple[str, str]:
    """The flag that would settle an input's shape, and what is open about it."""
    if not tensor.HasField("shape"):
        return f"--input-shape {name}=1,3,224,224", f"the input '{name}' has no shape at all"
    dims = list(tensor.shape.dim)
    image = len(dims) == 4
    channels_last = image and dims[3].HasField("dim_value") and dims[3].dim_value in (1, 3, 4)
    spatial = () if not image else ((1, 2) if channels_last else (2, 3))
    sizes, unknown = [], []
    for axis, dim in enumerate(dims):
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            sizes.append(dim.dim_value)
            continue
        unknown.append(f"{axis} ('{dim.dim_param}')" if dim.dim_param else str(axis))
        sizes.append(224 if axis in spatial else 3 if image and axis == (3 if channels_last else 1) else 1)
    text = ",".join(map(str, sizes))
    plural = "s" if len(unknown) > 1 else ""
    return (
        f"--input-shape {name}={text}",
        f"the input '{name}' has the open dimension{plural} {', '.join(unknown)}",
    )
