"""CRC-32C (Castagnoli), the checksum of TensorFlow's checkpoints, in NumPy.

The data is cut into lanes that are computed side by side, one byte of each at a time; then neighbours are joined:
crc(a + b) is crc(a), moved on by as many zero bytes as b has, xor crc(b). Moving on is linear, so it is four tables.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from npuc.arrays import Array

_POLYNOMIAL = 0x82F63B78
_LANE = 1024


@cache
def _table() -> Array:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


@cache
def _numbers() -> list[int]:
    """The table as plain integers: for few bytes they are quicker."""
    return [int(entry) for entry in _table()]


def _step(states: Array, octets: Array) -> Array:
    stepped: Array = _table()[(states ^ octets) & 0xFF] ^ (states >> np.uint32(8))
    return stepped


@cache
def _shift(doublings: int) -> Array:
    """Four tables that move a state on by `_LANE << doublings` zero bytes."""
    if doublings:
        half = _shift(doublings - 1)
        once = [_moved(half[i], half) for i in range(4)]
        return np.stack(once)
    tables = np.stack([np.arange(256, dtype=np.uint32) << np.uint32(8 * i) for i in range(4)])
    zero = np.zeros((), np.uint32)
    for _ in range(_LANE):
        tables = _step(tables, zero)
    return tables


def _moved(states: Array, tables: Array) -> Array:
    result: Array = np.zeros_like(states)
    for i in range(4):
        result = result ^ tables[i][(states >> np.uint32(8 * i)) & 0xFF]
    return result


def crc32c(data: bytes | memoryview) -> int:
    """The checksum of some bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    octets = np.frombuffer(data, np.uint8)
    if octets.size < _LANE:
        table, state = _numbers(), 0xFFFFFFFF
        for octet in octets.tolist():
            state = table[(state ^ octet) & 0xFF] ^ (state >> 8)
        return state ^ 0xFFFFFFFF
    # Zeros in front of a state of zero change nothing, so that all lanes can be full; and a state of ones at the start
    # is the first four bytes inverted.
    lead = np.zeros(-octets.size % _LANE, np.uint8)
    lanes = np.concatenate([lead, octets[:4] ^ np.uint8(0xFF), octets[4:]]).reshape(-1, _LANE)
    states = np.zeros(len(lanes), np.uint32)
    for column in np.ascontiguousarray(lanes.T):
        states = _step(states, column)
    doublings = 0
    while states.size > 1:
        if states.size % 2:
            states = np.concatenate([np.zeros(1, np.uint32), states])
        states = _moved(states[::2], _shift(doublings)) ^ states[1::2]
        doublings += 1
    return int(states[0]) ^ 0xFFFFFFFF


def unmasked(stored: int) -> int:
    """The checksum behind the mask that the files put over it."""
    turned = (stored - 0xA282EAD8) & 0xFFFFFFFF
    return ((turned >> 17) | (turned << 15)) & 0xFFFFFFFF
