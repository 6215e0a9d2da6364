"""The weight codec as docs/weight-compression.md has it, bit by bit, with nothing clever."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator

RAW, CODED, RUNS, CONTEXTS = range(4)
NOTHING, EARLIER, POSITION, MAGNITUDE = range(4)


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
        elif method == CONTEXTS:
            made, at = _contexts(_Bits(stream, at), length)
            decoded += made
        else:
            bits = _Bits(stream, at)
            decoded += _coded(bits, method == RUNS, length)
            at = _whole_bytes(bits)
    if at != len(stream):
        raise Damaged("something behind the end")
    return bytes(decoded)


def _whole_bytes(bits: _Bits) -> int:
    """The byte behind the bits; what is left of theirs is empty."""
    while bits.at % 8:
        if bits.take(1):
            raise Damaged("something in the last byte")
    return bits.at // 8


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


def _frequencies(bits: _Bits, width: int) -> list[int]:
    """How often each symbol occurs in 2^14."""
    first, count, steps, rice = bits.take(width), bits.take(width) + 1, bits.take(2), bits.take(2)
    if steps > 2:
        raise Damaged("steps of less than a quarter")
    levels: dict[int, int] = {}
    level = 3 << steps
    for i in range(count):
        ones = 0
        while bits.take(1):
            ones += 1
            if ones > 127:
                raise Damaged("a level from nowhere")
        code = ones << rice | bits.take(rice)
        if code == 3:
            continue
        level += {0: 0, 1: 1, 2: -1}[code] if code < 3 else -(code // 2) if code % 2 else code // 2
        if not 0 <= level < 16 << steps:
            raise Damaged(f"a level of {level}")
        levels[(first + i) % (1 << width)] = level
    if not levels:
        raise Damaged("no symbols")
    quarters = {symbol: one << (2 - steps) for symbol, one in levels.items()}
    weights = [
        int(2 ** (16 - quarters[s] % 4 / 4) + 0.5) >> quarters[s] // 4 if s in quarters else 0
        for s in range(1 << width)
    ]
    ends = [sum(weights[:s]) * (2**14 - len(levels)) // sum(weights) for s in range(len(weights) + 1)]
    return [(s in levels) + ends[s + 1] - ends[s] for s in range(len(weights))]


def _signed(symbol: int, width: int) -> int:
    return symbol - (1 << width) if symbol >> (width - 1) else symbol


def _feature(feature: int, parameter: int, before: list[int], width: int) -> int:
    """What the symbols before one say of it."""
    if feature == EARLIER:
        earlier = before[-parameter] if len(before) >= parameter else 0
        return _signed(earlier, width) + (1 << width - 1)
    if feature == POSITION:
        return len(before) % parameter
    if feature == MAGNITUDE:
        total = sum(abs(_signed(symbol, width)) for symbol in before[-8:])
        return min(255, total // 4 if width == 8 else total)
    return 0


def _contexts(bits: _Bits, length: int) -> tuple[bytes, int]:
    """The bytes of a section, and where the next begins."""
    width = 4 if bits.take(1) else 8
    feature, parameter = bits.take(2), 1
    if feature in (EARLIER, POSITION):
        parameter = bits.take(12) + 1
    tables = bits.take(4) + 1
    if (feature == POSITION and parameter > 256) or (feature == NOTHING and tables > 1):
        raise Damaged("an impossible feature")
    table_of: list[int] = [] if tables > 1 else [0] * 256
    if tables > 1:
        intervals = bits.take(5) + 1
        for k in range(intervals):
            last, table = bits.take(8) if k < intervals - 1 else 255, bits.take(4)
            if last < len(table_of) or table >= tables:
                raise Damaged("an interval that is none")
            table_of += [table] * (last + 1 - len(table_of))
    frequencies = [_frequencies(bits, width) for _ in range(tables)]
    data, at = bits.data, _whole_bytes(bits)
    state, at = int.from_bytes(data[at : at + 4], "little"), at + 4
    if not 2**23 <= state < 2**31 or at > len(data):
        raise Damaged("no state")
    symbols: list[int] = []
    for _ in range(length * 8 // width):
        counts = frequencies[table_of[_feature(feature, parameter, symbols, width)]]
        slot, symbol, start = state % 2**14, 0, 0
        while start + counts[symbol] <= slot:
            start += counts[symbol]
            symbol += 1
        state = counts[symbol] * (state >> 14) + slot - start
        while state < 2**23:
            if at >= len(data):
                raise Damaged("the stream ends too early")
            state, at = state << 8 | data[at], at + 1
        symbols.append(symbol)
    if state != 2**23:
        raise Damaged("a state that no stream begins with")
    if width == 8:
        return bytes(symbols), at
    return bytes(low | high << 4 for low, high in zip(symbols[::2], symbols[1::2], strict=True)), at


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
        elif head & 3 == CONTEXTS:
            at = _contexts(_Bits(stream, at), head >> 2)[1]
        else:
            bits = _Bits(stream, at)
            _coded(bits, head & 3 == RUNS, head >> 2)
            at = -(-bits.at // 8)
        done += head >> 2
