"""A TFLite model as plain objects, and its bytes.

The schema is that of the `tflite` package. Weights are copied once, into the flatbuffer, at addresses that are
multiples of 16; the same model gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import flatbuffers
import numpy as np
import tflite

from npuc.arrays import Array
from npuc.errors import OutputError

VERSION = 3
"""Of the schema."""
IDENTIFIER = b"TFL3"
LIMIT = (1 << 31) - (1 << 20)
"""A flatbuffer is addressed by signed 32-bit offsets."""
_ALIGN = 16

TYPES: dict[str, int] = {
    "f32": tflite.TensorType.FLOAT32,
    "f16": tflite.TensorType.FLOAT16,
    "f64": tflite.TensorType.FLOAT64,
    "i8": tflite.TensorType.INT8,
    "ui8": tflite.TensorType.UINT8,
    "i16": tflite.TensorType.INT16,
    "ui16": tflite.TensorType.UINT16,
    "i32": tflite.TensorType.INT32,
    "ui32": tflite.TensorType.UINT32,
    "i64": tflite.TensorType.INT64,
    "i1": tflite.TensorType.BOOL,
}
"""npuc's element types to TFLite's."""


@dataclass(frozen=True)
class TFLiteQuantization:
    """Scales and zero points: one, or one an entry of `axis`."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int = 0


@dataclass(eq=False)
class TFLiteTensor:
    """A tensor; one with `data` is constant."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    quantization: TFLiteQuantization | None = None
    data: Array | None = None


@dataclass(eq=False)
class TFLiteOperator:
    """One operator; `options` has the fields of the schema's table `<table>`.

    A `code` that the schema does not have is the name of a custom operator, whose options are the bytes in `custom`.
    """

    code: str
    version: int
    inputs: Sequence[TFLiteTensor | None]
    outputs: Sequence[TFLiteTensor]
    table: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    custom: bytes = b""


@dataclass(eq=False)
class TFLiteModel:
    """One graph; `inputs` and `outputs` map the names of the signature to tensors."""

    tensors: list[TFLiteTensor] = field(default_factory=list)
    operators: list[TFLiteOperator] = field(default_factory=list)
    inputs: dict[str, TFLiteTensor] = field(default_factory=dict)
    outputs: dict[str, TFLiteTensor] = field(default_factory=dict)

    def weight_bytes(self) -> int:
        """The bytes of all constants and of the options of custom operators."""
        constants = sum(tensor.data.nbytes for tensor in self.tensors if tensor.data is not None)
        return constants + sum(len(op.custom) for op in self.operators)


def serialize(model: TFLiteModel) -> memoryview:
    """The bytes of a `.tflite` file."""
    size = model.weight_bytes() + 64 * (len(model.tensors) + len(model.operators))
    if size > LIMIT:
        raise OutputError(
            f"a model of {size} bytes does not fit a TFLite file, which holds 2 GB",
            fix="Use weights of fewer bits, or split the network",
        )
    return _Writer(model, size).run()


class _Writer:
    """Writes tables from the leaves up, as flatbuffers are."""

    def __init__(self, model: TFLiteModel, size: int) -> None:
        self.model = model
        # Room for all of it at once: a builder that grows copies what it has.
        self.builder = flatbuffers.Builder(size + size // 8 + 4096)
        self.places = {id(tensor): index for index, tensor in enumerate(model.tensors)}

    def run(self) -> memoryview:
        """The whole file."""
        model = self.model
        constants = [tensor.data for tensor in model.tensors if tensor.data is not None]
        # Buffer 0 is the empty one of all tensors that are computed.
        buffers = [self._buffer(None), *(self._buffer(data) for data in constants)]
        numbers = iter(range(1, len(buffers)))
        tensors = [self._tensor(t, 0 if t.data is None else next(numbers)) for t in model.tensors]
        codes = list(dict.fromkeys((op.code, op.version) for op in model.operators))
        operators = [self._operator(op, codes.index((op.code, op.version))) for op in model.operators]
        subgraph = self.table(
            "SubGraph",
            Tensors=self.offsets(tensors),
            Inputs=self.integers([self.places[id(t)] for t in model.inputs.values()]),
            Outputs=self.integers([self.places[id(t)] for t in model.outputs.values()]),
            Operators=self.offsets(operators),
            Name=self.builder.CreateString("main"),
        )
        root = self.table(
            "Model",
            Version=VERSION,
            OperatorCodes=self.offsets([self._code(*code) for code in codes]),
            Subgraphs=self.offsets([subgraph]),
            Description=self.builder.CreateString("npuc"),
            Buffers=self.offsets(buffers),
            SignatureDefs=self.offsets([self._signature()]),
        )
        self.builder.Finish(root, IDENTIFIER)
        return memoryview(self.builder.Bytes)[self.builder.Head() :]

    # Vectors and tables

    def table(self, name: str, **fields: Any) -> int:
        """A table of the schema; fields that are None are left out."""
        module = import_module(f"tflite.{name}")
        getattr(module, f"{name}Start")(self.builder)
        for key, value in fields.items():
            if value is not None:
                getattr(module, f"{name}Add{key}")(self.builder, value)
        return int(getattr(module, f"{name}End")(self.builder))

    def offsets(self, values: Sequence[int]) -> int:
        """A vector of tables."""
        self.builder.StartVector(4, len(values), 4)
        for value in reversed(values):
            self.builder.PrependUOffsetTRelative(value)
        return int(self.builder.EndVector())

    def integers(self, values: Sequence[float], dtype: Any = np.int32) -> int:
        """A vector of numbers."""
        return int(self.builder.CreateNumpyVector(np.asarray(values, dtype)))

    def _buffer(self, data: Array | None) -> int:
        if data is None:
            return self.table("Buffer")
        return self.table("Buffer", Data=self._raw(np.ascontiguousarray(data).reshape(-1).view(np.uint8)))

    def _raw(self, raw: Array) -> int:
        """A vector of bytes at a multiple of 16."""
        builder = self.builder
        builder.StartVector(1, raw.size, _ALIGN)
        builder.head = builder.Head() - raw.size
        builder.Bytes[builder.Head() : builder.Head() + raw.size] = raw.data
        return int(builder.EndVector())

    def _tensor(self, tensor: TFLiteTensor, buffer: int) -> int:
        quantization = None
        if tensor.quantization is not None:
            scheme = tensor.quantization
            quantization = self.table(
                "QuantizationParameters",
                Scale=self.integers(scheme.scales, np.float32),
                ZeroPoint=self.integers(scheme.zero_points, np.int64),
                QuantizedDimension=scheme.axis,
            )
        return self.table(
            "Tensor",
            Shape=self.integers(tensor.shape),
            Name=self.builder.CreateString(tensor.name),
            Type=TYPES[tensor.dtype],
            Buffer=buffer,
            Quantization=quantization,
            HasRank=True,
        )

    def _code(self, code: str, version: int) -> int:
        number = getattr(tflite.BuiltinOperator, code, tflite.BuiltinOperator.CUSTOM)
        custom = number == tflite.BuiltinOperator.CUSTOM
        # The old field holds what fits it, for old readers.
        return self.table(
            "OperatorCode",
            DeprecatedBuiltinCode=min(number, 127),
            CustomCode=self.builder.CreateString(code) if custom else None,
            Version=version,
            BuiltinCode=number,
        )

    def _operator(self, op: TFLiteOperator, code: int) -> int:
        options = None
        if op.table:
            fields = {
                key: self.integers(value) if isinstance(value, tuple) else value
                for key, value in op.options.items()
            }
            options = self.table(op.table, **fields)
        custom = self._raw(np.frombuffer(op.custom, np.uint8)) if op.custom else None
        return self.table(
            "Operator",
            OpcodeIndex=code,
            Inputs=self.integers([-1 if t is None else self.places[id(t)] for t in op.inputs]),
            Outputs=self.integers([self.places[id(t)] for t in op.outputs]),
            BuiltinOptionsType=getattr(tflite.BuiltinOptions, op.table) if op.table else None,
            BuiltinOptions=options,
            CustomOptions=custom,
        )

    def _signature(self) -> int:
        def ports(named: Mapping[str, TFLiteTensor]) -> int:
            return self.offsets(
                [
                    self.table(
                        "TensorMap",
                        Name=self.builder.CreateString(name),
                        TensorIndex=self.places[id(tensor)],
                    )
                    for name, tensor in named.items()
                ]
            )

        return self.table(
            "SignatureDef",
            Inputs=ports(self.model.inputs),
            Outputs=ports(self.model.outputs),
            SignatureKey=self.builder.CreateString("serving_default"),
            SubgraphIndex=0,
        )
