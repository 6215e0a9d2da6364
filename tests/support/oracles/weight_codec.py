"""The weight codec as docs/weight-compression.md has it, bit by bit, with nothing clever."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator

RAW, CODED, RUNS = range(3)


class Damaged(Exception):
    """A stream that stands for nothing."""


class _Bits:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, 8 * at

    def take(self, count: int) -> int:
        value = 0
        for k in range(count):
            if self.at >= 8 * len(self.data):
                raise Damaged("the stream ends too early")
            value |= (self.data[self.at // 8] >> self.at % 8 & 1) << k
            self.at += 1
        return value


def _lengths(bits: _Bits, runs: bool) -> tuple[dict[int, int], int]:
    """Symbol to the length of its code, and the value of runs."""
    first, count = bits.take(8), bits.take(8) + 1
    value = bits.take(8) if runs else 0
    symbols = [(first + k) % 256 for k in range(count)] + (list(range(256, 264)) if runs else [])
    lengths, length = {}, 6
    for symbol in symbols:
        ones = 0
        while ones < 4 and bits.take(1):
            ones += 1
        if ones == 3:
            continue
        length = bits.take(4) if ones == 4 else length + {0: 0, 1: 1, 2: -1}[ones]
        if not 1 <= length <= 15:
            raise Damaged(f"a code of {length} bits")
        lengths[symbol] = length
    return lengths, value


def codes(lengths: dict[int, int]) -> dict[str, int]:
    """Canonical codes: shorter ones first, of one length by symbol, counting up."""
    by_bits, code, before = {}, 0, 0
    for symbol in sorted(lengths, key=lambda s: (lengths[s], s)):
        code <<= lengths[symbol] - before
        before = lengths[symbol]
        if code >> before:
            raise Damaged("more codes than there are")
        by_bits[format(code, f"0{before}b")] = symbol
        code += 1
    if code != 1 << before:
        raise Damaged("fewer codes than there are")
    return by_bits


def decode(stream: bytes, size: int) -> bytes:
    """What a stream stands for."""
    decoded, at = bytearray(), 0
    while len(decoded) < size:
        if at + 4 > len(stream):
            raise Damaged("no head")
        head = int.from_bytes(stream[at : at + 4], "little")
        method, length, at = head & 3, head >> 2, at + 4
        if not 1 <= length <= size - len(decoded):
            raise Damaged(f"a section of {length} bytes")
        if method == RAW:
            if at + length > len(stream):
                raise Damaged("the stream ends too early")
            decoded += stream[at : at + length]
            at += length
        elif method in (CODED, RUNS):
            bits = _Bits(stream, at)
            decoded += _coded(bits, method == RUNS, length)
            while bits.at % 8:
                if bits.take(1):
                    raise Damaged("something in the last byte")
            at = bits.at // 8
        else:
            raise Damaged(f"method {method}")
    if at != len(stream):
        raise Damaged("something behind the end")
    return bytes(decoded)


def _coded(bits: _Bits, runs: bool, length: int) -> bytes:
    lengths, value = _lengths(bits, runs)
    if not lengths:
        raise Damaged("no symbols")
    if len(lengths) == 1:
        (symbol,) = lengths
        if symbol >= 256:
            raise Damaged("nothing but a run")
        return bytes([symbol]) * length
    known, decoded = codes(lengths), bytearray()
    while len(decoded) < length:
        code = ""
        while code not in known:
            code += str(bits.take(1))
        symbol = known[code]
        order = symbol - 255
        decoded += bytes([symbol]) if symbol < 256 else bytes([value]) * (2**order + bits.take(order))
        if len(decoded) > length:
            raise Damaged("a run too long")
    return bytes(decoded)


def huffman_bits(symbols: list[int]) -> int:
    """The fewest bits that codes of whole bits take for some symbols."""
    heap = list(Counter(symbols).values())
    heapq.heapify(heap)
    bits = 0
    while len(heap) > 1:
        both = heapq.heappop(heap) + heapq.heappop(heap)
        bits += both
        heapq.heappush(heap, both)
    return bits


def sections(stream: bytes, size: int) -> Iterator[tuple[int, int]]:
    """Method and length of each section of a sound stream."""
    done, at = 0, 0
    while done < size:
        head = int.from_bytes(stream[at : at + 4], "little")
        yield head & 3, head >> 2
        at += 4
        if head & 3 == RAW:
            at += head >> 2
        else:
            bits = _Bits(stream, at)
            _coded(bits, head & 3 == RUNS, head >> 2)
            at = -(-bits.at // 8)
        done += head >> 2
