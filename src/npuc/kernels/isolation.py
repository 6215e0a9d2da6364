"""Operators of a plugin in a process of their own: a crash there is an error here, and the next run begins with a new process.

The process is Python with this module (`python -m npuc.kernels.isolation LIBRARY`). Messages on its pipes are a line of JSON and
the bytes of the arrays that it lists, so that nothing but numbers crosses:

    {"node": 1, "domain": "d", "name": "n", "outputs": 1, "attributes": {}, "arrays": [["f32", [2, 3]]]}
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from math import prod
from pathlib import Path
from threading import Lock
from typing import IO, Any

import numpy as np

from npuc.arithmetic.dtypes import dtype_of
from npuc.arrays import Array
from npuc.errors import NpucError, PluginFaultError
from npuc.kernels.native_ops import NativeNode, NativeOp, load_native


def _send(stream: IO[bytes], header: dict[str, Any], arrays: Sequence[Array]) -> None:
    header["arrays"] = [[dtype_of(array.dtype).name, list(array.shape)] for array in arrays]
    stream.write(json.dumps(header).encode() + b"\n")
    for array in arrays:
        stream.write(np.ascontiguousarray(array).tobytes())
    stream.flush()


def _receive(stream: IO[bytes]) -> tuple[dict[str, Any], list[Array]] | None:
    """The next message, or None at the end of the stream."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    header: dict[str, Any] = json.loads(line)
    arrays = []
    for name, shape in header.pop("arrays"):
        kind = dtype_of(name).numpy
        data = stream.read(prod(shape) * kind.itemsize)
        if len(data) < prod(shape) * kind.itemsize:
            return None
        arrays.append(np.frombuffer(data, kind).reshape(shape))
    return header, arrays


class Isolated:
    """The process of a library; made at first use, and again after a crash."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count()

    def node(self, op: NativeOp, outputs: int) -> _IsolatedNode:
        """The kernel of a node, with a state of its own in the process."""
        return _IsolatedNode(self, op, outputs, next(self._numbers))

    def call(self, op: NativeOp, header: dict[str, Any], arrays: Sequence[Array]) -> list[Array]:
        """The results of a call; `PluginFaultError` if the operator fails or the process ends."""
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "npuc.kernels.isolation", str(self._path)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            process = self._process
            assert process.stdin is not None and process.stdout is not None
            try:
                _send(process.stdin, header, arrays)
                answer = _receive(process.stdout)
            except (OSError, ValueError):
                answer = None
            if answer is None:
                self._end(process)
                raise PluginFaultError(
                    f"its process {_ended(process.returncode)} in '{op.domain}:{op.name}'; states are lost, and the next run "
                    "begins with a new process",
                    where=op.where,
                )
        said, results = answer
        if said.get("error"):
            raise PluginFaultError(said["error"], where=op.where)
        return results

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        self._process = None
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __del__(self) -> None:
        if self._process is not None:
            self._end(self._process)


def _ended(status: int | None) -> str:
    """How a process ended, in words.

    >>> _ended(-11), _ended(3)
    ('crashed (SIGSEGV)', 'ended with status 3')
    """
    if status is not None and status < 0:
        return f"crashed ({signal.Signals(-status).name})"
    return f"ended with status {status}"


class _IsolatedNode:
    def __init__(self, process: Isolated, op: NativeOp, outputs: int, number: int) -> None:
        self._process, self._op, self._outputs, self._number = process, op, outputs, number

    def __call__(self, arrays: Sequence[Array], attributes: Mapping[str, Any]) -> list[Array]:
        op = self._op
        header = {
            "node": self._number, "domain": op.domain, "name": op.name, "outputs": self._outputs, "attributes": dict(attributes),
        }  # fmt: skip
        return self._process.call(op, header, list(arrays))


def serve(path: Path, requests: IO[bytes], answers: IO[bytes]) -> None:
    """The other end: run operators until the requests end."""
    ops = {(op.domain, op.name): op for op in load_native(path).ops}
    nodes: dict[int, NativeNode] = {}
    while (request := _receive(requests)) is not None:
        header, arrays = request
        results: list[Array] = []
        error = ""
        try:
            op = ops[header["domain"], header["name"]]
            node = nodes.setdefault(header["node"], NativeNode(op, header["outputs"]))
            results = node(arrays, header["attributes"])
        except NpucError as fault:
            error = fault.message
        _send(answers, {"error": error}, results)


if __name__ == "__main__":
    own = sys.stdout.buffer
    sys.stdout = sys.stderr  # what a plugin prints does not end up between messages
    serve(Path(sys.argv[1]), sys.stdin.buffer, own)
