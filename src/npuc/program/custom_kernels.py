"""The kernels of custom instructions: what the instruction `custom` means, by the name that it carries.

A plugin gives a kernel twice: as a Python function, which the simulators, graph mode and CPU subgraphs call, and as C, which
an exported application is built with. Both see dense blocks of bytes and the numbers that the compiler wrote; both have to give
the same bits, which the sample of the application proves.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array, ceil_div
from npuc.errors import EngineError, PluginError
from npuc.native import library
from npuc.plugin_code import fault_of
from npuc.program.isa import BY_NAME, CUSTOM, KERNEL_NAME, KERNEL_PARAMETERS
from npuc.program.model import CompiledModel, NpuSubgraph
from npuc.registries import Registry

_WORD, _ALIGNED = 4, 16
_GUARD, _UNDEFINED = 64, 0xCD
"""Bytes before and behind a workspace that a kernel must not write, and what is in one before it writes."""


@dataclass(frozen=True)
class KernelCall:
    """What a kernel gets: bytes, which it views as the types that its parameters say; it fills `y`."""

    x: Array
    y: Array
    parameters: tuple[int, ...]
    """As many as an instruction has; those that the compiler did not state are 0."""
    b: Array | None = None
    constants: Array | None = None
    workspace: Array | None = None
    """Bytes that it may use as it likes, in the memory that its operands are in; what is in them at first is undefined."""
    local_workspace: Array | None = None
    """The same in local memory, of a kernel that works in global memory."""

    def real(self, index: int) -> float:
        """A parameter that the compiler stated as a real number, as float32.

        >>> KernelCall(np.zeros(0), np.zeros(0), encode_parameters([7, 0.5])).real(1)
        0.5
        """
        return float(np.int32(self.parameters[index]).view(np.float32))

    def constant(self, index: int) -> Array:
        """The bytes of one of the constants, where the compiler stated several (`pack_constants`)."""
        if self.constants is not None and self.constants.size >= _WORD:
            count = int(self.constants[:_WORD].view("<i4")[0])
            end = _WORD * (1 + 2 * (index + 1))
            if 0 <= index < count and end <= self.constants.size:
                offset, size = self.constants[end - 2 * _WORD : end].view("<i4").tolist()
                if 0 <= offset <= self.constants.size - size and size >= 0:
                    return self.constants[offset : offset + size]
        raise ValueError(f"there is no constant {index}")

    def text(self, index: int) -> str:
        """One of the constants, as text."""
        return self.constant(index).tobytes().decode()


def encode_parameters(values: Sequence[int | float]) -> tuple[int, ...]:
    """The numbers of an instruction: integers as they are, reals as the bits of a float32.

    >>> encode_parameters([3, 1.0])
    (3, 1065353216)
    """
    return tuple(
        int(np.float32(value).view(np.int32)) if isinstance(value, float | np.floating) else int(value)
        for value in values
    )


def pack_constants(values: Sequence[Array | str]) -> Array:
    """Several tensors and texts as the constants of one instruction, for `KernelCall.constant` and `npu_kernel_constant` in C.

    32-bit numbers: how many there are, then the offset and the size of each; the bytes, each at a multiple of 16. A text is
    UTF-8 with a zero behind it, which its size does not count.

    >>> KernelCall(np.zeros(0), np.zeros(0), (), None, pack_constants([np.int8([1, 2]), "half"])).text(1)
    'half'
    """
    blocks = [
        (value.encode(), 1) if isinstance(value, str) else (np.ascontiguousarray(value).tobytes(), 0)
        for value in values
    ]
    at = _ALIGNED * ceil_div(_WORD * (1 + 2 * len(blocks)), _ALIGNED)
    table, content = [len(blocks)], bytearray(at)
    for block, zeros in blocks:
        table += [len(content), len(block)]
        content += block + bytes(zeros)
        content += bytes(-len(content) % _ALIGNED)
    numbers = np.array(table, "<i4").tobytes()
    content[: len(numbers)] = numbers
    return np.frombuffer(bytes(content), np.uint8)


@dataclass(frozen=True)
class Kernel:
    """A kernel as it is registered."""

    name: str
    function: Callable[[KernelCall], None]
    c_source: str = ""
    """C11 with a function `int32_t NAME(const npu_kernel_call *call)` (npu_kernel.h); empty if there is none."""
    in_record: bool = False
    """Whether the source is a library's, whose record says which function is the kernel (npu_plugin.h)."""

    @property
    def c_name(self) -> str:
        """The name of the function in C."""
        return re.sub(r"[^0-9A-Za-z_]", "_", self.name)


KERNELS: Registry[str, Kernel] = Registry("a kernel")
"""By name."""


class _RawCall(ctypes.Structure):
    """`npu_kernel_call` of native/include/npu_kernel.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "b", "constants", "y")),
        *((f"{name}_bytes", ctypes.c_int64) for name in ("x", "b", "constant", "y")),
        ("parameters", ctypes.POINTER(ctypes.c_int32)),
        ("bytes", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("workspace", "local_workspace")),
        *((f"{name}_bytes", ctypes.c_int64) for name in ("workspace", "local_workspace")),
    )


_Callback = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(_RawCall))
_ALIVE: list[Any] = []
_FAILED = threading.local()


def register(
    name: str,
    function: Callable[[KernelCall], None],
    c_source: str | Path = "",
    *,
    replace: bool = False,
    address: int = 0,
    module: str | None = None,
) -> None:
    """Give the custom instruction of a name its meaning, in Python, and in C as text or as the path of a file.

    The simulators call `function`, or the C function at an `address` (`npu_kernel`) of a library, whose source it then is;
    `module` is who registers it.
    """
    if not re.fullmatch(rf"[0-9A-Za-z_.\-]{{1,{KERNEL_NAME - 1}}}", name):
        raise PluginError(
            f"'{name}' cannot be the name of a kernel",
            fix=f"Names have up to {KERNEL_NAME - 1} letters, digits, underscores, dots and dashes",
        )
    if not replace:
        KERNELS.require_free(name)
    try:
        source = c_source.read_text() if isinstance(c_source, Path) else c_source
    except OSError as error:
        raise PluginError(
            f"the C source of the kernel '{name}' cannot be read: {error.strerror}",
            fix=f"It is {error.filename}",
        ) from error
    kernel = Kernel(name, function, source, in_record=bool(address))
    callback = _Callback(lambda raw: _called(kernel, raw.contents))
    core = library()
    core.npu_register_kernel.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    status = core.npu_register_kernel(name.encode(), address or ctypes.cast(callback, ctypes.c_void_p))
    if status:
        raise PluginError(f"the kernel '{name}' is one too many: the simulator holds 64")
    _ALIVE.append(callback)  # the core keeps the address for good
    KERNELS.add([name], kernel, replace=replace, module=module)


def run(
    name: str,
    x: Array,
    b: Array | None,
    constants: Array | None,
    y: Array,
    parameters: Sequence[int],
    workspace: int = 0,
    local_workspace: int = 0,
) -> None:
    """Call a kernel on whole tensors in memory order, with workspaces of so many bytes; it fills `y`."""
    filled = (*parameters, *(0,) * (KERNEL_PARAMETERS - len(parameters)))
    blocks = [np.full(size + 2 * _GUARD, _UNDEFINED, np.uint8) for size in (workspace, local_workspace)]
    inner = [block[_GUARD:-_GUARD] if block.size > 2 * _GUARD else None for block in blocks]
    call = KernelCall(_raw(x), _raw(y), filled, None if b is None else _raw(b), constants, *inner)
    try:
        KERNELS[name].function(call)
    except Exception as error:
        raise fault_of(error) or EngineError(
            f"the kernel '{name}' failed: {type(error).__name__}: {error}"
        ) from error
    for block in blocks:
        if not (block[:_GUARD] == _UNDEFINED).all() or not (block[-_GUARD:] == _UNDEFINED).all():
            size = block.size - 2 * _GUARD
            raise EngineError(f"the kernel '{name}' writes beyond the {size} bytes of its workspace")


def native_function(name: str, address: int) -> Callable[[KernelCall], None]:
    """A kernel in C, by the address of its function, as a function of Python."""
    function = _Callback(address)

    def call_native(call: KernelCall) -> None:
        blocks = {"x": call.x, "b": call.b, "constants": call.constants, "y": call.y}
        spaces = {"workspace": call.workspace, "local_workspace": call.local_workspace}
        blocks |= spaces
        raw = _RawCall(**{key: block.ctypes.data for key, block in blocks.items() if block is not None})
        raw.x_bytes, raw.y_bytes = call.x.nbytes, call.y.nbytes
        raw.b_bytes = 0 if call.b is None else call.b.nbytes
        raw.constant_bytes = 0 if call.constants is None else call.constants.nbytes
        for key, block in spaces.items():
            setattr(raw, f"{key}_bytes", 0 if block is None else block.nbytes)
        raw.parameters = (ctypes.c_int32 * KERNEL_PARAMETERS)(*call.parameters)
        raw.bytes = 1
        if status := function(ctypes.byref(raw)):
            raise EngineError(f"the kernel '{name}' refuses its operands with status {status}")

    return call_native


def failure() -> Exception | None:
    """What a kernel in Python raised last in this thread, once."""
    error: Exception | None = getattr(_FAILED, "error", None)
    _FAILED.error = None
    return error


def names_in(model: CompiledModel) -> list[str]:
    """The kernels that a compiled model needs, by name."""
    kernels: set[str] = set()
    streams = [stream for part in model.subgraphs if isinstance(part, NpuSubgraph) for stream in part.streams]
    for custom in map(BY_NAME.__getitem__, CUSTOM):
        for stream in streams:
            chosen = stream[stream[:, 0] == custom.opcode]
            names = np.ascontiguousarray(chosen).view(custom.dtype).reshape(-1)["kernel"]
            kernels.update(shown(name) for name in np.unique(names, axis=0))
    return sorted(kernels)


def shown(name: Array) -> str:
    """The name of a kernel, of the bytes in an instruction."""
    return name.astype(np.uint8).tobytes().rstrip(b"\0").decode("ascii", "backslashreplace")


def _raw(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


def _called(kernel: Kernel, raw: _RawCall) -> int:
    try:
        call = KernelCall(
            _at(raw.x, raw.x_bytes),
            _at(raw.y, raw.y_bytes, writable=True),
            tuple(raw.parameters[:KERNEL_PARAMETERS]),
            _at(raw.b, raw.b_bytes) if raw.b else None,
            _at(raw.constants, raw.constant_bytes) if raw.constants else None,
            _at(raw.workspace, raw.workspace_bytes, writable=True) if raw.workspace else None,
            _at(raw.local_workspace, raw.local_workspace_bytes, writable=True)
            if raw.local_workspace
            else None,
        )
        kernel.function(call)
    except Exception as error:
        _FAILED.error = error
        return 1
    return 0


def _at(address: int, size: int, writable: bool = False) -> Array:
    array = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
    array.flags.writeable = writable
    return array
