"""The process that SOPHGO's runtime runs in: a failed assertion of theirs ends it, and not the caller.

It is started by `npuc.runtime.bm1684x` as a script, with the folder of the vendor's libraries on LD_LIBRARY_PATH, and
knows nothing of npuc. What it is request and what it answers are frames: a length of 8 bytes, then JSON or bytes.

    {"load": "x.bmodel", "name": "net"}                              {"ok": true}
    {"run": "net", "inputs": [[1, 3, 4, 4]], "outputs": [48]}        {"ok": true}
    ... the bytes of each input                                      ... the bytes of each output
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
from typing import IO, Any

_Pointer = ctypes.c_void_p


class _Shape(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_int), ("sizes", ctypes.c_int * 8)]


def read_frame(stream: IO[bytes]) -> bytes:
    """The next frame; EOFError if the other side is gone."""
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    (size,) = struct.unpack("<Q", head)
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def write_frame(stream: IO[bytes], data: bytes) -> None:
    """A frame, sent at once."""
    stream.write(struct.pack("<Q", len(data)))
    stream.write(data)
    stream.flush()


class VendorRuntime:
    """The runtime with its functional model of the chip."""

    def __init__(self, folder: str) -> None:
        self._device = ctypes.CDLL(os.path.join(folder, "libbmlib.so.0"), mode=ctypes.RTLD_GLOBAL)
        self._library = ctypes.CDLL(os.path.join(folder, "libbmrt.so.1.0"), mode=ctypes.RTLD_GLOBAL)
        self._device.bm_dev_request.argtypes = [ctypes.POINTER(_Pointer), ctypes.c_int]
        self._device.bm_dev_free.argtypes = [_Pointer]
        library = self._library
        library.bmrt_create.argtypes, library.bmrt_create.restype = [_Pointer], _Pointer
        library.bmrt_destroy.argtypes = [_Pointer]
        library.bmrt_load_bmodel.argtypes = [_Pointer, ctypes.c_char_p]
        library.bmrt_load_bmodel.restype = ctypes.c_bool
        library.bmrt_launch_data.argtypes = [
            _Pointer, ctypes.c_char_p, ctypes.POINTER(_Pointer), ctypes.POINTER(_Shape), ctypes.c_int,
            ctypes.POINTER(_Pointer), ctypes.POINTER(_Shape), ctypes.c_int, ctypes.c_bool,
        ]  # fmt: skip
        library.bmrt_launch_data.restype = ctypes.c_bool
        self._handle = _Pointer()
        if self._device.bm_dev_request(ctypes.byref(self._handle), 0):
            raise OSError("the vendor's runtime finds no device")
        self._runtime = library.bmrt_create(self._handle)

    def load(self, path: str) -> bool:
        """A file."""
        return bool(self._library.bmrt_load_bmodel(self._runtime, path.encode()))

    def run(self, name: str, inputs: list[bytes], shapes: list[list[int]], sizes: list[int]) -> list[bytes]:
        """The outputs of a network."""
        given = [ctypes.create_string_buffer(data, max(len(data), 1)) for data in inputs]
        results = [ctypes.create_string_buffer(max(size, 1)) for size in sizes]
        forms = (_Shape * max(len(given), 1))()
        for form, shape in zip(forms, shapes, strict=False):
            form.rank = len(shape)
            form.sizes[: len(shape)] = shape
        ok = self._library.bmrt_launch_data(
            self._runtime, name.encode(), _pointers(given), forms, len(given),
            _pointers(results), (_Shape * max(len(results), 1))(), len(results), True,
        )  # fmt: skip
        if not ok:
            raise OSError("the vendor's runtime could not run it")
        return [result.raw[:size] for result, size in zip(results, sizes, strict=True)]

    def close(self) -> None:
        """Without it the process does not end well."""
        self._library.bmrt_destroy(self._runtime)
        self._device.bm_dev_free(self._handle)


def _pointers(buffers: list[Any]) -> Any:
    return (_Pointer * max(len(buffers), 1))(*(ctypes.addressof(buffer) for buffer in buffers))


def _answer(runtime: VendorRuntime, request: dict[str, Any], stream: IO[bytes]) -> list[bytes]:
    if "load" in request:
        if not runtime.load(request["load"]):
            raise OSError("the vendor's runtime does not take the file")
        return []
    inputs = [read_frame(stream) for _ in request["inputs"]]
    return runtime.run(request["run"], inputs, request["inputs"], request["outputs"])


def main() -> None:
    """Answer until the other side closes its end."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the vendor's libraries print
    runtime = VendorRuntime(sys.argv[1])
    write_frame(answers, b'{"ok": true}')
    while True:
        try:
            request = json.loads(read_frame(sys.stdin.buffer))
        except EOFError:
            break
        try:
            results = _answer(runtime, request, sys.stdin.buffer)
        except OSError as error:
            write_frame(answers, json.dumps({"ok": False, "why": str(error)}).encode())
            continue
        write_frame(answers, b'{"ok": true}')
        for result in results:
            write_frame(answers, result)
    runtime.close()


if __name__ == "__main__":
    main()
