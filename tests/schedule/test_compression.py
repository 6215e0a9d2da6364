"""The weight codec against its oracle, and on streams that are not sound."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.arrays import Array
from npuc.errors import InputDataError
from npuc.native import library
from npuc.schedule.compression import StoredConstants, decode, digest, encode, encoded_size
from npuc.schedule.constants import Constants
from npuc.schedule.layers import Layer, LayerOp
from support.oracles import weight_codec as oracle


@st.composite
def blocks(draw: st.DrawFn) -> tuple[Array, list[int]]:
    """Bytes of several parts, each with a spread of its own."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        size = draw(st.sampled_from((1, 7, 64, 500, 3000)))
        spread = draw(st.sampled_from((0.0, 0.3, 2.0, 20.0, 500.0)))
        center = draw(st.sampled_from((0, 128, 255)))
        made = center + np.round(random.laplace(0, spread, size)).astype(np.int64)
        if draw(st.booleans()):
            made[random.random(size) < 0.9] = center
        parts.append((made & 255).astype(np.uint8))
    return np.concatenate(parts), np.cumsum([part.size for part in parts]).tolist()


@settings(deadline=None, derandomize=True, max_examples=150)
@given(blocks(), st.sampled_from((0, 1, 2, 16)))
def test_what_is_encoded_comes_back(block: tuple[Array, list[int]], contexts: int) -> None:
    data, ends = block
    stream = encode(data, ends, contexts)
    assert encoded_size(data, ends, contexts) == (0 if stream is None else stream.size)
    if stream is None:
        return
    assert stream.size < data.size
    assert decode(stream, data.size).tobytes() == data.tobytes()
    assert oracle.decode(stream.tobytes(), data.size) == data.tobytes()


@pytest.mark.parametrize("spread", [1.0, 6.0, 25.0])
def test_it_comes_within_a_hundredth_of_huffmans_codes(spread: float) -> None:
    random = np.random.default_rng(1)
    data = np.clip(np.round(random.normal(0, spread, 20000)), -128, 127).astype(np.int8).view(np.uint8)
    stream = encode(data)
    assert stream is not None
    least = oracle.huffman_bits(data.tolist()) / 8
    assert least <= stream.size <= 1.01 * least + 8


def test_mostly_zeros_come_near_the_entropy() -> None:
    random = np.random.default_rng(2)
    data = (
        np.where(random.random(50000) < 0.95, 0, random.integers(-4, 5, 50000)).astype(np.int8).view(np.uint8)
    )
    shares = np.bincount(data, minlength=256) / data.size
    entropy = -sum(p * np.log2(p) for p in shares if p) * data.size / 8
    stream = encode(data)
    assert stream is not None
    assert stream.size < 1.25 * entropy
    assert stream.size < oracle.huffman_bits(data.tolist()) / 16
    assert [method for method, _ in oracle.sections(stream.tobytes(), data.size)] == [oracle.RUNS]
    assert decode(stream, data.size).tobytes() == data.tobytes()


def test_codes_have_at_most_fifteen_bits() -> None:
    counts, before = [1, 1], 1
    while len(counts) < 22:  # Fibonacci: each rarer value has a longer code
        before = counts[-1] + counts[-2]
        counts.append(before)
    data = np.repeat(np.arange(len(counts), dtype=np.uint8), counts)
    np.random.default_rng(3).shuffle(data)
    stream = encode(data)
    assert stream is not None
    assert oracle.decode(stream.tobytes(), data.size) == data.tobytes()
    assert decode(stream, data.size).tobytes() == data.tobytes()


def test_noise_and_short_pieces_stay_as_they_are() -> None:
    random = np.random.default_rng(4)
    assert encode(random.integers(0, 256, 5000).astype(np.uint8)) is None
    assert encode(np.arange(12, dtype=np.uint8)) is None
    assert encode(np.zeros(0, np.uint8)) is None


def test_parts_with_one_spread_share_a_table() -> None:
    random = np.random.default_rng(5)
    alike = np.round(random.normal(0, 5, 4000)).astype(np.int8).view(np.uint8)
    stream = encode(alike, [2000, 4000])
    assert stream is not None
    assert list(oracle.sections(stream.tobytes(), 4000)) == [(oracle.CODED, 4000)]
    mixed = np.concatenate([alike[:2000], random.integers(0, 256, 2000).astype(np.uint8)])
    stream = encode(mixed, [2000, 4000])
    assert stream is not None
    assert list(oracle.sections(stream.tobytes(), 4000)) == [(oracle.CODED, 2000), (oracle.RAW, 2000)]


def _sample(contexts: int) -> tuple[Array, Array]:
    random = np.random.default_rng(6)
    zeros = np.where(random.random(900) < 0.9, 0, random.integers(-9, 9, 900))
    spread = np.repeat([1.5, 30], 450) if contexts else 6  # large weights have large neighbours
    parts = [
        np.clip(np.round(random.normal(0, spread, 900)), -128, 127),
        zeros,
        random.integers(-128, 128, 100),
    ]
    data = np.concatenate(parts).astype(np.int8).view(np.uint8)
    stream = encode(data, [900, 1800, 1900], contexts)
    assert stream is not None
    kinds = {method for method, _ in oracle.sections(stream.tobytes(), data.size)}
    assert kinds == {oracle.RAW, *([oracle.CONTEXTS] if contexts else [oracle.CODED, oracle.RUNS])}
    return data, stream


def _verdict(stream: Array, size: int) -> bytes | None:
    """What the decoder makes of a stream; guards stand at both ends of the memory that it writes to."""
    memory, stream = np.full(size + 128, 0xA5, np.uint8), stream.copy()
    function = library().npuc_weights_decode
    function.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
    status = function(stream.ctypes.data, stream.size, memory.ctypes.data + 64, size)
    assert (memory[:64] == 0xA5).all()
    assert (memory[64 + size :] == 0xA5).all()
    return None if status else memory[64 : 64 + size].tobytes()


def _expected(stream: Array, size: int) -> bytes | None:
    try:
        return oracle.decode(stream.tobytes(), size)
    except oracle.Damaged:
        return None


def _damaged(contexts: int) -> Iterator[tuple[Array, int]]:
    """Streams that something has happened to, and streams of anything, with the bytes that they are asked for."""
    data, sound = _sample(contexts)
    random = np.random.default_rng(7)
    for trial in range(600):
        stream, size = sound.copy(), data.size
        for _ in range(random.integers(1, 4)):
            at = random.integers(stream.size if trial % 3 else 90)
            stream[at] = random.integers(256) if trial % 2 else stream[at] ^ (1 << random.integers(8))
        match trial % 5:
            case 1:
                stream = stream[: random.integers(1, stream.size)]
            case 2:
                stream = np.concatenate([stream, random.integers(0, 256, 3).astype(np.uint8)])
            case 3:
                size += int(random.integers(-3, 4))
        yield stream, size
    for _ in range(600):
        size = int(random.integers(1, 300))
        head = (size << 2 | int(random.integers(4))).to_bytes(4, "little")
        yield np.frombuffer(head + random.bytes(int(random.integers(200))), np.uint8), size


@pytest.mark.parametrize("contexts", [0, 16])
def test_damaged_streams_get_the_verdict_of_the_oracle(contexts: int) -> None:
    verdicts = []
    for stream, size in _damaged(contexts):
        wanted = _expected(stream, size)
        assert _verdict(stream, size) == wanted
        verdicts.append(wanted is None)
    assert 50 < sum(verdicts[:600]) < 600 < sum(verdicts)


def test_the_decoder_stays_inside_its_memory(root: Path, tmp_path: Path) -> None:
    program = tmp_path / "decode_streams"
    sources = [root / "native/src" / name for name in ("weights.c", "weight_contexts.c")]
    sources.append(root / "tests/schedule/decode_streams.c")
    flags = [
        "-std=c11",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-DNPUC_NO_HEAP",
        f"-I{root / 'native/include'}",
    ]
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run(["gcc", *flags, *checks, *map(str, sources), "-o", str(program)], check=True)
    streams = [*_damaged(0), *_damaged(16)]
    given_ = b"".join(struct.pack("<qq", one.size, size) + one.tobytes() for one, size in streams)
    surroundings = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    done = subprocess.run([str(program)], input=given_, capture_output=True, env=surroundings, timeout=120)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    refused = [line != "0" for line in done.stdout.decode().split()]
    assert refused == [_expected(one, size) is None for one, size in streams]


class Stored(LayerOp):
    """A layer that is nothing but a constant."""

    def __init__(self, data: Array) -> None:
        self.block = Constants({"weight": data})

    @property
    def shared_constants(self) -> Constants:
        return self.block


def test_a_block_is_kept_as_it_is_unless_that_saves_memory() -> None:
    flat, noise = np.zeros(640, np.int8), np.random.default_rng(9).integers(-128, 128, 640).astype(np.int8)
    made = {
        name: Layer(name, "conv", (), (), Stored(data))
        for name, data in (("flat", flat), ("noise", noise), ("short", flat[:60]))
    }  # fmt: skip
    stored = StoredConstants()
    assert stored.size(made["flat"], (0, 0), 0) < 64
    assert stored.stream(made["noise"], (0, 0), 0) is None
    assert stored.size(made["noise"], (0, 0), 0) == 640
    assert stored.stream(made["short"], (0, 0), 0) is None
    assert digest([made["flat"]]) != digest([made["short"]])


def test_a_stream_that_is_none_is_an_error() -> None:
    with pytest.raises(InputDataError, match="no compressed constants"):
        decode(np.zeros(10, np.uint8), 100)


def test_real_weights_come_near_their_entropy(shared: Path) -> None:
    from npuc.flow import import_model, quantize_network
    from npuc.partition import partition
    from npuc.schedule.network import build_network
    from npuc.target import load_target

    graph = quantize_network(import_model(shared / "models" / "tflite" / "ad_int8.tflite")).graph
    stored = entropy = 0.0
    for part in partition(graph, load_target("ethos-u65-256-like")).parts:
        if part.device != "npu":
            continue
        network = build_network(graph, part.ops, part.inputs, part.outputs)
        for layer in network.layers:
            stored += network.stored.size(layer, (0, layer.channels), 0)
            for array in layer.constants((0, layer.channels)).values():
                shares = np.bincount(np.ascontiguousarray(array).view(np.uint8).reshape(-1)) / array.nbytes
                entropy -= sum(p * np.log2(p) for p in shares if p) * array.nbytes / 8
    assert entropy < stored < 1.03 * entropy
