"""Constants as a machine with a weight decoder keeps them in DRAM (docs/weight-compression.md).

A block of constants, all that a layer needs for some output channels, is loaded as one, so it is encoded as one. A block
that would not take fewer blocks of memory stays as it is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import InputDataError
from npuc.native import library
from npuc.schedule.layers import Layer, Rows, aligned

_MOST_PARTS = 16
"""`NPUC_WEIGHTS_PARTS` of native/include/npuc/weights.h."""
_P, _I, _L = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64


@cache
def _function(name: str, result: Any, *types: Any) -> Any:
    function = getattr(library(), name)
    function.argtypes, function.restype = types, result
    return function


def encode(data: Array, ends: Sequence[int] = (), contexts: int = 0) -> Array | None:
    """The stream of some bytes; None if it is no shorter than they are.

    `ends` are where parts end that may be distributed differently, the last of them the end of all; `contexts` the tables that
    the decoder chooses from by neighbours, 0 if it knows none.
    """
    stream = np.empty(data.size, np.uint8)
    size = _encode(data, ends, contexts, stream.ctypes.data)
    return stream[:size].copy() if size else None


def encoded_size(data: Array, ends: Sequence[int] = (), contexts: int = 0) -> int:
    """The bytes of the stream that `encode` would make; 0 if it would make none."""
    return _encode(data, ends, contexts, None)


def _encode(data: Array, ends: Sequence[int], contexts: int, into: int | None) -> int:
    data = np.ascontiguousarray(data, np.uint8)
    cuts = np.array([*ends[: _MOST_PARTS - 1], *ends[-1:]] if ends else [data.size], np.int64)
    block = data.ctypes.data, data.size, cuts.ctypes.data, len(cuts)
    if not contexts:
        return int(_function("npuc_weights_encode", _L, _P, _L, _P, _I, _P, _L)(*block, into, data.size))
    function = _function("npuc_weights_encode_contexts", _L, _P, _L, _P, _I, _I, _P, _L)
    return int(function(*block, contexts, into, data.size))


def decode(stream: Array, size: int) -> Array:
    """The bytes that a stream stands for."""
    stream = np.ascontiguousarray(stream, np.uint8)
    data = np.empty(size, np.uint8)
    status = _function("npuc_weights_decode", _I, _P, _L, _P, _L)(
        stream.ctypes.data, stream.size, data.ctypes.data, size
    )
    if status:
        raise InputDataError(f"{stream.size} bytes are no compressed constants of {size} bytes")
    return data


@dataclass
class StoredConstants:
    """The constants of layers in DRAM. A search asks for sizes over and over, and in the end for some of the streams.

    `contexts` are the tables of the machine's decoder (`Costs.decoder_contexts`).
    """

    _sizes: dict[tuple[Layer, Rows, int], int] = field(default_factory=dict)

    def stream(self, layer: Layer, channels: Rows, contexts: int) -> Array | None:
        """The stream of a block; None if it stays as it is."""
        if not self.compressed(layer, channels, contexts):
            return None
        return encode(*_parts(layer, channels), contexts)

    def compressed(self, layer: Layer, channels: Rows, contexts: int) -> int:
        """Bytes of the stream of a block; 0 if it stays as it is."""
        key = layer, channels, contexts
        if key not in self._sizes:
            data, ends = _parts(layer, channels)
            size = encoded_size(data, ends, contexts)
            self._sizes[key] = size if aligned(size) < aligned(data.size) else 0
        return self._sizes[key]

    def size(self, layer: Layer, channels: Rows, contexts: int) -> int:
        """Bytes of a block in DRAM."""
        return self.compressed(layer, channels, contexts) or layer.constant_size(channels)


def _parts(layer: Layer, channels: Rows) -> tuple[Array, list[int]]:
    """The bytes of a block, and where each constant ends."""
    constants = layer.constants(channels)
    return constants.packed(), [*list(constants.places.values())[1:], constants.size]


def digest(layers: Sequence[Layer]) -> str:
    """A hash of all constants: how far they shrink decides how long they take."""
    constants_hash = blake2b(digest_size=16)
    for layer in layers:
        constants_hash.update(layer.constants((0, layer.channels)).packed().tobytes())
    return constants_hash.hexdigest()
