"""Sections of the weight codec that look at neighbours: what they find, what they cost, and that they come back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.arithmetic.dtypes import pack_integers
from npuc.arrays import Array
from npuc.schedule.compression import decode, encode, encoded_size
from support.oracles import weight_codec as oracle

SIZE = 30_000


def markov(random: np.random.Generator, size: int) -> Array:
    """Weights that are like the one before."""
    noise = random.normal(0, 12, size)
    made = np.zeros(size)
    for i in range(1, size):
        made[i] = 0.9 * made[i - 1] + noise[i]
    return made


def by_position(random: np.random.Generator, size: int) -> Array:
    """Kernels of 3 x 3 with large weights in the middle."""
    return np.asarray(random.normal(0, 1, size) * np.resize([1, 4, 1, 4, 40, 4, 1, 4, 1], size))


def by_channel(random: np.random.Generator, size: int) -> Array:
    """Runs of large weights and of small ones."""
    return np.asarray(random.normal(0, 1, size) * np.repeat(random.choice([2, 30], size), 50)[:size])


def alone(random: np.random.Generator, size: int) -> Array:
    """Weights that know nothing of each other."""
    return np.asarray(random.laplace(0, 12, size))


def as_bytes(made: Array) -> Array:
    """Real numbers as 8-bit integers."""
    return np.clip(np.round(made), -128, 127).astype(np.int8).view(np.uint8)


def as_nibbles(made: Array) -> Array:
    """Real numbers as packed 4-bit integers."""
    return np.asarray(pack_integers(np.clip(np.round(made / 6), -8, 7), 4))


def entropy(data: Array, before: Array | None = None) -> float:
    """Bytes of symbols at the entropy of their shares, or of their shares behind each symbol before them."""
    if before is None:
        counts = np.bincount(data)
        return float(-sum(n * np.log2(n / data.size) for n in counts if n) / 8)
    return sum(entropy(data[before == value]) for value in np.unique(before))


def symbols(data: Array, bits: int) -> Array:
    """The weights of a block."""
    return data if bits == 8 else np.stack([data & 15, data >> 4], 1).reshape(-1)


def kinds(stream: Array, size: int) -> list[int]:
    """The method of each section."""
    return [method for method, _ in oracle.sections(stream.tobytes(), size)]


@pytest.mark.parametrize("form", [as_bytes, as_nibbles])
@pytest.mark.parametrize(
    ("made", "saved"), [(markov, 0.1), (by_position, 0.1), (by_channel, 0.03), (alone, -0.001)]
)
def test_what_neighbours_say_is_saved(
    made: Callable[[np.random.Generator, int], Array], saved: float, form: Callable[[Array], Array]
) -> None:
    data = form(made(np.random.default_rng(1), SIZE))
    plain, stream = encode(data), encode(data, (), 16)
    assert plain is not None and stream is not None
    assert kinds(stream, data.size) == [oracle.CONTEXTS]
    assert stream.size < (1 - saved) * plain.size
    assert decode(stream, data.size).tobytes() == data.tobytes()


@pytest.mark.parametrize(("form", "bits", "size"), [(as_bytes, 8, 400_000), (as_nibbles, 4, 20_000)])
@pytest.mark.parametrize("made", [markov, alone])
def test_it_comes_within_a_twentieth_of_the_conditional_entropy(
    made: Callable[[np.random.Generator, int], Array], form: Callable[[Array], Array], bits: int, size: int
) -> None:
    data = form(made(np.random.default_rng(2), size))
    every = symbols(data, bits)
    assert encoded_size(data, (), 16) <= 1.05 * entropy(every[1:], every[:-1])


def test_more_tables_are_no_worse_and_one_is_enough_for_fractions_of_bits() -> None:
    data = as_bytes(markov(np.random.default_rng(3), SIZE))
    sizes = [encoded_size(data, (), tables) for tables in (0, 1, 2, 4, 8, 16)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[1] < 1.003 * entropy(data) + 100 < sizes[0] + 100


def test_a_machine_with_few_tables_gets_no_more() -> None:
    data = as_bytes(markov(np.random.default_rng(4), SIZE))
    for most in (2, 3, 16):
        stream = encode(data, (), most)
        assert stream is not None
        head = int.from_bytes(stream[4:8].tobytes(), "little")
        assert head & 7 == 2 * oracle.EARLIER and (head >> 3 & 4095) == 0  # bytes, by the one before
        assert (head >> 15 & 15) < most


@st.composite
def blocks(draw: st.DrawFn) -> Array:
    """Blocks of all kinds: neighbours that matter or do not, words, few values, noise."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.sampled_from((64, 65, 200, 1500, 5000)))
    kind = draw(
        st.sampled_from(("markov", "position", "channel", "words", "nibbles", "few", "noise", "zeros"))
    )
    words = random.integers(-(2**20), 2**20, size // 4 + 1).astype("<i4").view(np.uint8)
    choices = {
        "markov": as_bytes(markov(random, size)),
        "position": as_bytes(by_position(random, size)),
        "channel": as_bytes(by_channel(random, size)),
        "words": words[:size],
        "nibbles": as_nibbles(markov(random, 2 * size)),
        "few": random.choice([3, 250], size, p=[0.99, 0.01]).astype(np.uint8),
        "noise": random.integers(0, 256, size).astype(np.uint8),
        "zeros": np.zeros(size, np.uint8),
    }
    return choices[kind]


@settings(deadline=None, derandomize=True, max_examples=120)
@given(blocks(), st.sampled_from((1, 3, 16)))
def test_every_block_comes_back_and_is_made_twice_the_same(data: Array, tables: int) -> None:
    stream = encode(data, (), tables)
    plain = encode(data)
    if stream is None:
        assert plain is None
        return
    assert plain is None or stream.size <= plain.size
    assert encoded_size(data, (), tables) == stream.size
    again = encode(data.copy(), (), tables)
    assert again is not None and again.tobytes() == stream.tobytes()
    assert decode(stream, data.size).tobytes() == data.tobytes()
    assert oracle.decode(stream.tobytes(), data.size) == data.tobytes()


def test_a_stream_is_the_same_on_every_machine() -> None:
    """The encoder decides with whole numbers: no compiler and no C library changes a byte."""
    from hashlib import sha256

    data = (np.arange(6000) ** 2 % 251 * np.resize([1, 3, 7], 6000) % 64).astype(np.uint8)
    stream = encode(data, (), 16)
    assert stream is not None
    assert sha256(stream.tobytes()).hexdigest()[:16] == "119935df93f06db3"
