"""Small TensorFlow Lite models for tests, and LiteRT's reference kernels to judge what was made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tflite

from npuc.arrays import Array
from npuc.engine import FloatEngine, IntegerEngine
from npuc.export.tflite.model import (
    TYPES,
    TFLiteModel,
    TFLiteOperator,
    TFLiteQuantization,
    TFLiteTensor,
    _Writer,
    serialize,
)
from npuc.export.tflite.versions import version
from npuc.flow import quantize_network
from npuc.frontend.tflite import import_tflite
from npuc.frontend.tflite.reader import read
from npuc.ir import Graph, dtype_of
from npuc.transform import canonicalize

Scales = tuple[float | Sequence[float], int] | tuple[float | Sequence[float], int, int]


def _quantization(given: Scales | None) -> TFLiteQuantization | None:
    if given is None:
        return None
    scales = tuple(given[0]) if isinstance(given[0], Sequence) else (given[0],)
    return TFLiteQuantization(scales, (given[1],) * len(scales), given[2] if len(given) > 2 else 0)


class Net:
    """Appends operators to a model; `data` gives its bytes."""

    def __init__(self) -> None:
        self.model = TFLiteModel()

    def _tensor(self, *fields: Any) -> TFLiteTensor:
        tensor = TFLiteTensor(*fields)
        self.model.tensors.append(tensor)
        return tensor

    def input(
        self, name: str, shape: Sequence[int], dtype: str = "f32", scales: Scales | None = None
    ) -> TFLiteTensor:
        """An input; `scales` are its scale and zero point."""
        tensor = self._tensor(name, tuple(shape), dtype, _quantization(scales))
        self.model.inputs[name] = tensor
        return tensor

    def constant(self, array: Array, scales: Scales | None = None) -> TFLiteTensor:
        """A constant; `scales` are its scale or scales, its zero point, and the axis of the scales."""
        array = np.asarray(array)
        name = f"constant{len(self.model.tensors)}"
        return self._tensor(name, array.shape, dtype_of(array.dtype).name, _quantization(scales), array)

    def op(
        self,
        code: str,
        inputs: Sequence[TFLiteTensor | None],
        dtypes: str | Sequence[str] = "f32",
        table: str = "",
        scales: Scales | None = None,
        shape: Sequence[int] = (1,),
        **options: Any,
    ) -> Any:
        """An operator; its outputs have the types given, and shapes that LiteRT finds out (a slice needs its own)."""
        several = [dtypes] if isinstance(dtypes, str) else dtypes
        start = len(self.model.tensors)
        outputs = [
            self._tensor(f"{code.lower()}{start + i}", tuple(shape), dtype, _quantization(scales))
            for i, dtype in enumerate(several)
        ]
        first = next(tensor for tensor in inputs if tensor is not None)
        self.model.operators.append(
            TFLiteOperator(code, version(code, first.dtype), inputs, outputs, table, options)
        )
        return outputs[0] if isinstance(dtypes, str) else outputs

    def data(self, outputs: Mapping[str, TFLiteTensor] | TFLiteTensor) -> bytes:
        """The bytes of the model."""
        return bytes(serialize(self.ended(outputs)))

    def ended(self, outputs: Mapping[str, TFLiteTensor] | TFLiteTensor) -> TFLiteModel:
        """The model with its outputs."""
        self.model.outputs = {"y": outputs} if isinstance(outputs, TFLiteTensor) else dict(outputs)
        return self.model


def run_litert(data: bytes, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of LiteRT's reference kernels by their names in the signature."""
    import pytest

    runtime = pytest.importorskip("ai_edge_litert.interpreter")
    kinds = runtime.OpResolverType
    # Some operators have one kernel only, which is not among the reference ones.
    kind = kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES if _lacks_reference(data) else kinds.BUILTIN_REF
    interpreter = runtime.Interpreter(model_content=data, experimental_op_resolver_type=kind, num_threads=1)
    outputs: dict[str, Array] = dict(interpreter.get_signature_runner()(**inputs))
    return outputs


_NO_REFERENCE = {"ELU", "CEIL", "ROUND", "LOCAL_RESPONSE_NORMALIZATION"}
"""The last has one, whose window ends a channel too early."""


def _lacks_reference(data: bytes) -> bool:
    return any(op.name in _NO_REFERENCE for op in read(data).main.operators)


def assert_close(data: bytes, inputs: Mapping[str, Array], tolerance: float = 1e-5) -> Graph:
    """The import computes what LiteRT does, as it is and in canonical form; returns the latter."""
    expected = run_litert(data, inputs)
    raw = import_tflite(data)
    canonical = canonicalize(raw)
    for graph in (raw, canonical):
        actual = FloatEngine(graph, threads=1).run(inputs)
        assert set(actual) == set(expected)
        for name, array in expected.items():
            assert actual[name].dtype == array.dtype and actual[name].shape == array.shape, name
            if array.dtype.kind == "f":
                scale = max(1.0, float(np.abs(array).max(initial=0)))
                np.testing.assert_allclose(actual[name], array, rtol=tolerance, atol=tolerance * scale)
            else:
                np.testing.assert_array_equal(actual[name], array)
    return canonical


def assert_same_bits(data: bytes, inputs: Mapping[str, Array]) -> Graph:
    """The integer network computes what LiteRT's reference kernels do, bit for bit, and all of it; returns it."""
    expected = run_litert(data, inputs)
    done = quantize_network(canonicalize(import_tflite(data)))
    actual = IntegerEngine(done.graph).run(inputs)
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype
        np.testing.assert_array_equal(actual[name], array, err_msg=name)
    left = [(layer.name, layer.reason) for layer in done.outcome.layers if not layer.integer]
    # What only moves plain integers has nothing to compute.
    assert all(reason.endswith("only float32 is quantized") for _, reason in left), left
    return done.graph


class Writer(_Writer):
    """Writes what the exporter does not: variables, sparse tensors, intermediates and custom operators."""

    def __init__(
        self,
        model: TFLiteModel,
        sparsity: Mapping[str, Any] = {},
        variables: Sequence[str] = (),
        types: Mapping[str, int] = {},
        open_batch: Sequence[str] = (),
        intermediates: Mapping[str, Sequence[TFLiteTensor]] = {},
    ) -> None:
        super().__init__(model, 1 << 16)
        self.intermediates = intermediates
        self.inside: Sequence[TFLiteTensor] = ()
        self.open_batch = open_batch
        self.sparsity = sparsity
        self.variables = variables
        self.types = types

    def _tensor(self, tensor: TFLiteTensor, buffer: int) -> int:
        write_sparsity = self.sparsity.get(tensor.name)
        sparse = None if write_sparsity is None else write_sparsity(self)
        quantization = None
        if tensor.quantization is not None:
            quantization = self.table(
                "QuantizationParameters",
                Scale=self.integers(tensor.quantization.scales, np.float32),
                ZeroPoint=self.integers(tensor.quantization.zero_points, np.int64),
                QuantizedDimension=tensor.quantization.axis,
            )
        return self.table(
            "Tensor",
            Shape=self.integers(tensor.shape),
            ShapeSignature=self.integers(
                (-1, *tensor.shape[1:]) if tensor.name in self.open_batch else tensor.shape
            ),
            Name=self.builder.CreateString(tensor.name),
            Type=self.types.get(tensor.name, TYPES[tensor.dtype]),
            Buffer=buffer,
            Quantization=quantization,
            IsVariable=tensor.name in self.variables,
            Sparsity=sparse,
            HasRank=True,
        )

    def table(self, name: str, **fields: Any) -> int:
        if name == "Operator" and self.inside:
            fields["Intermediates"] = self.integers([self.places[id(t)] for t in self.inside])
        return super().table(name, **fields)

    def _code(self, code: str, version: int) -> int:
        if hasattr(tflite.BuiltinOperator, code):
            return super()._code(code, version)
        custom = self.builder.CreateString(code)
        return self.table(
            "OperatorCode", DeprecatedBuiltinCode=32, BuiltinCode=32, CustomCode=custom, Version=1
        )

    def _operator(self, op: TFLiteOperator, code: int) -> int:
        if hasattr(tflite.BuiltinOperator, op.code):
            self.inside = self.intermediates.get(op.code, ())
            return super()._operator(op, code)
        return self.table(
            "Operator",
            OpcodeIndex=code,
            Inputs=self.integers([self.places[id(t)] for t in op.inputs if t is not None]),
            Outputs=self.integers([self.places[id(t)] for t in op.outputs]),
            CustomOptions=self.builder.CreateByteVector(op.options["custom"]),
        )
