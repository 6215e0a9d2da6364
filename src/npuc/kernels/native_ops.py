"""Operators of plugins in C and C++ (native/include/npu_plugin.h), called through the native core.

The core loads the library, checks its record, and guards every call: sizes are compared, outputs are written between guard bytes,
and a crash is announced with the name of the operator. Here arrays and attributes become what the core takes, and back. An
`isolated` kernel runs in a process of its own (`npuc.kernels.isolation`), so that a crash is an error like any other.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from npuc.arithmetic.dtypes import dtype_of
from npuc.arrays import Array
from npuc.errors import PluginError, PluginFaultError
from npuc.native import library
from npuc.program.layout import TENSOR_DTYPES

if TYPE_CHECKING:
    from npuc.kernels.isolation import Isolated

_MOST_AXES = 8
_ERROR_BYTES = 512
_CODES = {name: code for code, name in enumerate(TENSOR_DTYPES) if name != "i4"}
"""`npu_dtype` of native/include/npu.h."""
_NAMES = {code: name for name, code in _CODES.items()}

TensorShape = tuple[str, tuple[int, ...]]
"""The name of an element type, and a shape."""


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.c_int64 * _MOST_AXES),
    )


class _Attribute(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("integers", ctypes.POINTER(ctypes.c_int64)),
        ("reals", ctypes.POINTER(ctypes.c_double)),
        ("text", ctypes.c_char_p),
    )


class _Call(ctypes.Structure):
    _fields_ = (
        ("inputs", ctypes.POINTER(_Tensor)),
        ("outputs", ctypes.POINTER(_Tensor)),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("input_count", ctypes.c_int32),
        ("output_count", ctypes.c_int32),
        ("attribute_count", ctypes.c_int32),
        ("state", ctypes.c_void_p),
        ("error", ctypes.c_char * _ERROR_BYTES),
    )


class _Op(ctypes.Structure):
    _fields_ = (
        ("domain", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        *((name, ctypes.c_void_p) for name in ("shape", "start", "forward", "stop")),
    )


class _Kernel(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p))


class _Plugin(ctypes.Structure):
    _fields_ = (
        ("abi", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("ops", ctypes.POINTER(_Op)),
        ("op_count", ctypes.c_int32),
        ("kernels", ctypes.POINTER(_Kernel)),
        ("kernel_count", ctypes.c_int32),
    )


@dataclass(frozen=True)
class NativeOp:
    """An operator of a library."""

    path: str
    domain: str
    name: str
    address: int = field(repr=False)

    @property
    def where(self) -> str:
        """For errors."""
        return f"plugin '{Path(self.path).name}'"


@dataclass(frozen=True)
class NativePlugin:
    """What a library has."""

    name: str
    ops: tuple[NativeOp, ...]
    kernels: tuple[tuple[str, int], ...]
    """Names of kernels of custom instructions, and the addresses of their functions."""


@cache
def _core() -> ctypes.CDLL:
    core = library()
    core.npu_load_plugin.argtypes = [ctypes.c_char_p]
    core.npu_plugin_of.argtypes, core.npu_plugin_of.restype = [ctypes.c_char_p], ctypes.POINTER(_Plugin)
    core.npu_op_infer.argtypes = core.npu_op_run.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Call)]
    core.npu_op_stop.argtypes, core.npu_op_stop.restype = [ctypes.c_void_p, ctypes.POINTER(_Call)], None
    core.npu_error.restype = ctypes.c_char_p
    return core


def _reason() -> str:
    words: bytes = _core().npu_error()
    return words.decode(errors="replace")


def load_native(path: Path) -> NativePlugin:
    """Load a library; `PluginError` if it is none, of another version, or not sound."""
    core, place = _core(), str(path.resolve())
    if core.npu_load_plugin(place.encode()):
        raise PluginError(
            _reason(), fix="native/include/npu_plugin.h has an example; docs/plugins.md says how to build it"
        )
    record = core.npu_plugin_of(place.encode()).contents
    ops = []
    for index in range(record.op_count):
        op = record.ops[index]
        address = ctypes.addressof(record.ops.contents) + index * ctypes.sizeof(_Op)
        ops.append(NativeOp(place, op.domain.decode(), op.name.decode(), address))
    kernels = tuple(
        (record.kernels[i].name.decode(), int(record.kernels[i].function)) for i in range(record.kernel_count)
    )
    return NativePlugin(record.name.decode(), tuple(ops), kernels)


def _fill(tensor: Any, dtype: str, shape: Sequence[int], op: NativeOp) -> None:
    if dtype not in _CODES or len(shape) > _MOST_AXES:
        raise PluginFaultError(
            f"'{op.domain}:{op.name}' gets a tensor of {dtype} and {len(shape)} axes, which plugins in C have no form for",
            where=op.where,
        )
    tensor.dtype, tensor.rank = _CODES[dtype], len(shape)
    tensor.shape[: len(shape)] = list(shape)


def _attributes(values: Mapping[str, Any], op: NativeOp) -> Any:
    rows = (_Attribute * max(len(values), 1))()
    for row, (name, value) in zip(rows, values.items(), strict=False):
        row.name = name.encode()
        several = list(value) if isinstance(value, list | tuple) else [value]
        if isinstance(value, str):
            row.kind, row.count, row.text = 2, 1, value.encode()
        elif all(isinstance(item, int) for item in several):
            row.kind, row.count, row.integers = 0, len(several), (ctypes.c_int64 * len(several))(*several)
        elif all(isinstance(item, int | float) for item in several):
            row.kind, row.count, row.reals = 1, len(several), (ctypes.c_double * len(several))(*several)
        else:
            raise PluginFaultError(
                f"the attribute '{name}' of '{op.domain}:{op.name}' is neither numbers nor a text, and plugins in C get no other",
                where=op.where,
            )
    return rows


def _call(op: NativeOp, inputs: Sequence[TensorShape], attributes: Mapping[str, Any], outputs: int) -> Any:
    call = _Call()
    call.inputs, call.outputs = (_Tensor * max(len(inputs), 1))(), (_Tensor * max(outputs, 1))()
    for index, (dtype, shape) in enumerate(inputs):
        _fill(call.inputs[index], dtype, shape, op)
    call.attributes = _attributes(attributes, op)
    call.input_count, call.output_count, call.attribute_count = len(inputs), outputs, len(attributes)
    return call


def infer(
    op: NativeOp,
    inputs: Sequence[TensorShape],
    attributes: Mapping[str, Any],
    outputs: int,
    arrays: Sequence[Array] = (),
) -> list[TensorShape]:
    """The types and shapes of the results of an operator, of inputs whose `arrays` may be known."""
    call = _call(op, inputs, attributes, outputs)
    _bind(call.inputs, arrays)
    if _core().npu_op_infer(op.address, call):
        raise PluginFaultError(_reason(), where=op.where)
    tensors = [call.outputs[index] for index in range(outputs)]
    return [(_NAMES[tensor.dtype], tuple(tensor.shape[: tensor.rank])) for tensor in tensors]


def _bind(tensors: Any, arrays: Sequence[Array]) -> None:
    for index, array in enumerate(arrays):
        tensors[index].data, tensors[index].size = array.ctypes.data, array.nbytes


class NativeNode:
    """A node of a session: its state lives from the first run to the end of the session."""

    def __init__(self, op: NativeOp, outputs: int = 1) -> None:
        self._op, self._outputs = op, outputs
        self._state: int | None = None

    def __call__(self, arrays: Sequence[Array], attributes: Mapping[str, Any]) -> list[Array]:
        """The results; `PluginFaultError` if the operator fails."""
        op = self._op
        given = [np.ascontiguousarray(array) for array in arrays]
        shapes = [(dtype_of(array.dtype).name, array.shape) for array in given]
        inferred = infer(op, shapes, attributes, self._outputs, given)
        results = [np.empty(shape, dtype_of(dtype).numpy) for dtype, shape in inferred]
        call = _call(op, shapes, attributes, len(results))
        for index, (dtype, shape) in enumerate(inferred):
            _fill(call.outputs[index], dtype, shape, op)
        _bind(call.inputs, given)
        _bind(call.outputs, results)
        call.state = self._state
        failed = _core().npu_op_run(op.address, call)
        self._state = call.state
        if failed:
            raise PluginFaultError(_reason(), where=op.where)
        return results

    def __del__(self) -> None:
        if self._state is not None:
            call = _Call(state=self._state)
            self._state = None
            _core().npu_op_stop(self._op.address, call)


@dataclass(frozen=True)
class NativeKernel:
    """The kernel of a custom op: every node of a session gets one with a state of its own (`instance`)."""

    op: NativeOp
    isolated: Isolated | None = None
    c_source: str = ""
    """The source of its library, for `npuc export c`; empty if it is not known."""

    def instance(self, outputs: int) -> Any:
        """The kernel of a node."""
        return NativeNode(self.op, outputs) if self.isolated is None else self.isolated.node(self.op, outputs)

    def __call__(self, arrays: Sequence[Array], attributes: Mapping[str, Any]) -> list[Array]:
        """One call without a state that stays."""
        results: list[Array] = self.instance(1)(arrays, attributes)
        return results
