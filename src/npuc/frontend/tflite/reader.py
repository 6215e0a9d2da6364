"""From a file to plain tables of tensors and operators, every index and size checked, no weight copied.

`schema` has the fields of the tables, and a `FlatbufferView` reads them with care. After `read`, nothing in the file is followed
any more but the options of operators, and those through a `FlatbufferView` too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from npuc.arrays import Array
from npuc.errors import FileFormatError, InvalidModelError, NpucError, UnsupportedTypeError
from npuc.files import existing_file
from npuc.frontend.options import ImportOptions
from npuc.frontend.support import MAX_ELEMENTS, Names
from npuc.frontend.tflite.schema import BuiltinOperator, BuiltinOptions, BuiltinOptions2, TensorType
from npuc.frontend.tflite.sparse import densify
from npuc.frontend.tflite.view import FlatbufferView, damaged
from npuc.ir import DType, FileSlice, MappedFile, Weight, dtype_of

MAGIC = b"TFL3"
_TYPES = {
    "FLOAT32": "f32", "FLOAT16": "f16", "FLOAT64": "f64", "BFLOAT16": "bf16", "INT8": "i8", "UINT8": "ui8",
    "INT16": "i16", "UINT16": "ui16", "INT32": "i32", "UINT32": "ui32", "INT64": "i64", "UINT64": "ui64",
    "BOOL": "i1", "INT4": "i4",
}  # fmt: skip
_TYPE_NAMES = {n: name for name, n in vars(TensorType).items() if isinstance(n, int)}
OPERATORS: dict[int, str] = {n: name for name, n in vars(BuiltinOperator).items() if isinstance(n, int)}
"""Builtin operators: number to name."""
_MAX_RANK = 16


@dataclass(frozen=True)
class TfliteQuantization:
    """real = scale * (q - zero_point): one of each, or one an entry of `axis`."""

    scale: Array
    zero_point: Array
    axis: int

    @property
    def per_tensor(self) -> bool:
        """True if one scale serves all of a tensor."""
        return self.scale.size == 1


@dataclass(frozen=True)
class TfliteTensor:
    """A tensor as the file declares it."""

    index: int
    name: str
    shape: tuple[int, ...]
    type_name: str
    quantization: TfliteQuantization | None
    weight: Weight | None
    """Its value, if it is constant."""
    is_variable: bool = False
    is_open: bool = False
    """Whether the file leaves the first dimension open; the shape has 1 there then."""

    @property
    def dtype(self) -> DType:
        """The element type; `UnsupportedTypeError` for strings, resources and the like."""
        if self.type_name not in _TYPES:
            raise UnsupportedTypeError(
                f"the tensor '{self.name}' has elements of the type {self.type_name}, which npuc has no form for"
            )
        return dtype_of(_TYPES[self.type_name])

    @property
    def is_quantized(self) -> bool:
        """True if its integers stand for reals."""
        return self.quantization is not None and self.type_name in ("INT8", "UINT8", "INT16", "INT4", "INT32")


@dataclass(frozen=True)
class TfliteOperator:
    """One operator: its name, the tensors it reads (-1: left out) and makes, and its options."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    view: FlatbufferView
    custom: bytes = b""
    intermediates: tuple[int, ...] = ()
    """Tensors that nobody reads: their quantization is that of sums inside the operator."""

    def options(self, kind: str) -> FlatbufferView | None:
        """The builtin options, if they are of a kind."""
        for number, field_name, union in (
            ("BuiltinOptionsType", "BuiltinOptions", BuiltinOptions),
            ("BuiltinOptions2Type", "BuiltinOptions2", BuiltinOptions2),
        ):
            type_code = getattr(union, kind, None)
            if type_code is not None and self.view.number(number) == type_code:
                return self.view.union(field_name, kind)
        return None


@dataclass(frozen=True)
class TfliteSubgraph:
    """Tensors, operators in order, inputs and outputs by index."""

    tensors: tuple[TfliteTensor, ...]
    operators: tuple[TfliteOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class TfliteModel:
    """A model: its main subgraph, and the names that its first signature gives inputs and outputs."""

    main: TfliteSubgraph
    input_names: dict[int, str] = field(default_factory=dict)
    output_names: dict[int, str] = field(default_factory=dict)

    @cached_property
    def port_names(self) -> tuple[list[str], list[str]]:
        """The names of inputs and outputs: the signature's where it has one, else the tensors' own."""
        tensors = self.main.tensors
        taken = {tensor.name: tensor.index for tensor in tensors}

        def names(indices: tuple[int, ...], given: dict[int, str]) -> list[str]:
            unique_names = []
            for index in indices:
                name = given.get(index, "")
                # A signature's name that another tensor has would mean two things.
                free = name and taken.get(name, index) == index and name not in unique_names
                unique_names.append(name if free else tensors[index].name)
            return unique_names

        return names(self.main.inputs, self.input_names), names(self.main.outputs, self.output_names)


class _TfliteReader:
    def __init__(self, data: Any, file: MappedFile | None) -> None:
        self.data = data
        self.file = file
        if len(data) < 8 or bytes(data[4:8]) != MAGIC:
            raise damaged("it does not begin like one")
        self.model = FlatbufferView.root(data)
        self.places = [self._place(view) for view in self.model.views("Buffers", "buffer")]

    def run(self) -> TfliteModel:
        codes = [self._operator_name(view) for view in self.model.views("OperatorCodes", "operator code")]
        subgraphs = self.model.views("Subgraphs", "subgraph")
        if not subgraphs:
            raise FileFormatError("holds no subgraph", fix="A .tflite model was expected")
        main = self._subgraph(subgraphs[0], codes)
        inputs: dict[int, str] = {}
        outputs: dict[int, str] = {}
        for signature in self.model.views("SignatureDefs", "signature"):
            if signature.number("SubgraphIndex") != 0:
                continue
            for kind, names_by_index in (("Inputs", inputs), ("Outputs", outputs)):
                for entry in signature.views(kind, "signature entry"):
                    names_by_index[int(entry.number("TensorIndex"))] = entry.text("Name")
            break
        return TfliteModel(main, inputs, outputs)

    def _place(self, view: FlatbufferView) -> tuple[int, int]:
        """Offset and length of a buffer; files beyond 2 GB have it after the flatbuffer."""
        offset, size = view.number("Offset"), view.number("Size")
        if offset > 1:
            if offset + size > len(self.data):
                raise damaged(f"{view.what} leads out of the file")
            return int(offset), int(size)
        return view.place("Data")

    def _operator_name(self, view: FlatbufferView) -> tuple[str, str]:
        number = max(view.number("BuiltinCode"), view.number("DeprecatedBuiltinCode"))
        name = OPERATORS.get(number, f"operator {number}")
        return name, view.text("CustomCode") if name == "CUSTOM" else ""

    def _subgraph(self, view: FlatbufferView, codes: list[tuple[str, str]]) -> TfliteSubgraph:
        names = Names()
        tensors = []
        for index, entry in enumerate(view.views("Tensors", "tensor")):
            tensors.append(self._tensor(entry, index, names.unique(entry.text("Name") or f"tensor {index}")))
        operators = []
        for entry in view.views("Operators", "operator"):
            code = entry.number("OpcodeIndex")
            if not 0 <= code < len(codes):
                raise damaged(f"{entry.what} has the operator code {code} of {len(codes)}")
            name, custom = codes[code]
            options = entry.numbers("CustomOptions").tobytes() if name == "CUSTOM" else b""
            operators.append(
                TfliteOperator(
                    custom or name,
                    self._indices(entry, "Inputs", len(tensors), optional=True),
                    self._indices(entry, "Outputs", len(tensors)),
                    entry,
                    options,
                    self._indices(entry, "Intermediates", len(tensors)),
                )
            )
        inputs = self._indices(view, "Inputs", len(tensors))
        outputs = self._indices(view, "Outputs", len(tensors))
        return TfliteSubgraph(tuple(tensors), tuple(operators), inputs, outputs)

    def _indices(
        self, view: FlatbufferView, name: str, count: int, optional: bool = False
    ) -> tuple[int, ...]:
        indices = view.integers(name)
        low = -1 if optional else 0
        if any(not low <= index < count for index in indices):
            raise damaged(f"{view.what} names a tensor that is not among its {count}")
        return indices

    def _tensor(self, view: FlatbufferView, index: int, name: str) -> TfliteTensor:
        shape = view.integers("Shape")
        if len(shape) > _MAX_RANK or min(shape, default=0) < 0 or prod(shape) > MAX_ELEMENTS:
            raise InvalidModelError(f"the tensor '{name}' has the impossible shape {list(shape[:_MAX_RANK])}")
        number = view.number("Type")
        type_name = _TYPE_NAMES.get(number, f"type {number}")
        quantization = self._quantization(view, name, shape)
        buffer = view.number("Buffer")
        if not 0 <= buffer < max(len(self.places), 1):
            raise damaged(f"the tensor '{name}' has the buffer {buffer} of {len(self.places)}")
        place = self.places[buffer] if self.places else (0, 0)
        sparsity = view.view("Sparsity")
        weight = None
        if place[1] and type_name in _TYPES:
            weight = self._weight(name, dtype_of(_TYPES[type_name]), shape, place, sparsity)
        is_open = view.integers("ShapeSignature")[:1] == (-1,) and shape[:1] == (1,)
        return TfliteTensor(
            index, name, shape, type_name, quantization, weight, bool(view.number("IsVariable")), is_open
        )

    def _quantization(
        self, view: FlatbufferView, name: str, shape: tuple[int, ...]
    ) -> TfliteQuantization | None:
        given = view.view("Quantization")
        if given is None:
            return None
        scale = given.numbers("Scale").astype(np.float32)
        if not scale.size:
            return None
        zero = given.numbers("ZeroPoint").astype(np.int64)
        axis = int(given.number("QuantizedDimension"))
        if not zero.size:
            zero = np.zeros(scale.size, np.int64)
        if zero.size == 1:
            zero = np.broadcast_to(zero, scale.shape)
        if not (np.isfinite(scale).all() and (scale >= 0).all()):
            raise InvalidModelError(f"the tensor '{name}' has a scale that is not a positive number")
        if zero.size != scale.size:
            raise InvalidModelError(
                f"the tensor '{name}' has {scale.size} scales and {zero.size} zero points"
            )
        if scale.size > 1 and (not 0 <= axis < len(shape) or shape[axis] != scale.size):
            raise InvalidModelError(f"the tensor '{name}' of shape {list(shape)} has {scale.size} scales")
        if not scale.any():
            return None
        return TfliteQuantization(scale, zero, axis)

    def _weight(
        self,
        name: str,
        dtype: DType,
        shape: tuple[int, ...],
        place: tuple[int, int],
        sparsity: FlatbufferView | None,
    ) -> Weight:
        offset, length = place
        if sparsity is not None:
            values = _values(self.data[offset : offset + length], dtype)
            return Weight.of(densify(values, shape, sparsity, name))
        count = prod(shape)
        expected = (count + 1) // 2 if dtype.name == "i4" else count * dtype.itemsize
        if length != expected:
            raise InvalidModelError(
                f"the tensor '{name}' of shape {list(shape)} needs {expected} bytes, but its buffer has {length}"
            )
        if dtype.name == "i4":
            flat = _values(self.data[offset : offset + length], dtype)[:count]
            return Weight.of(flat.reshape(shape))
        if self.file is not None and dtype.name != "i1":
            return Weight(dtype, shape, FileSlice(self.file, offset, length))
        flat = _values(self.data[offset : offset + length], dtype)
        return Weight(dtype, shape, flat.reshape(shape))


def _values(data: Any, dtype: DType) -> Array:
    """The elements in some bytes; 4-bit ones lie two in a byte, the first in the low half."""
    raw = np.frombuffer(bytes(data), np.uint8)
    if dtype.name == "i4":
        pairs = np.stack([raw << 4, raw], axis=-1).reshape(-1).view(np.int8) >> 4
        return pairs.astype(ml_dtypes.int4)
    if dtype.name == "i1":
        truths: Array = raw != 0
        return truths
    return raw[: len(raw) // dtype.itemsize * dtype.itemsize].view(dtype.numpy)


def declared_inputs(path: Path, options: ImportOptions) -> dict[str, DType]:
    """The element types of the inputs by name, as the file states them."""
    model = read(path)
    inputs = zip(model.port_names[0], model.main.inputs, strict=True)
    return {name: model.main.tensors[i].dtype for name, i in inputs if name not in options.constants}


def read(source: Path | str | bytes) -> TfliteModel:
    """Decode a model from a path or its bytes."""
    if isinstance(source, bytes):
        return _TfliteReader(source, None).run()
    path = existing_file(source)
    try:
        file = MappedFile(path)
        return _TfliteReader(file.buffer, file).run()
    except NpucError as error:
        error.where = error.where or str(path)
        raise
