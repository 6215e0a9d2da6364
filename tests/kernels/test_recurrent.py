"""Recurrent layers against the slow model, bit for bit, and against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.kernels import recurrent
from npuc.kernels.recurrent import RecurrentParameters
from support.kernel_strategies import array, dtypes, seeds, zero_points
from support.oracles import recurrent as oracle_recurrent

CELLS = [("lstm", False), ("gru", False), ("gru", True), ("rnn", False)]


def layer(
    seed: int,
    cell: tuple[str, bool],
    inputs: int,
    hidden: int,
    scale_x: float,
    scale_h: float,
    spread: float = 1.0,
    most: int = 127,
    **options: Any,
) -> tuple[RecurrentParameters, dict[str, Any]]:
    """A random layer and its real numbers."""
    random = np.random.default_rng(seed)
    rows = recurrent.GATES[cell[0]] * hidden
    outputs = options.pop("outputs", 0)
    w, r = (random.integers(-most, most + 1, (rows, width)) for width in (inputs, outputs or hidden))
    if outputs:
        options |= {"projection": random.integers(-most, most + 1, (outputs, hidden))}
        options |= {"scale_p": spread / most / hidden**0.5 * random.uniform(0.5, 2, outputs)}
    real = {
        "scale_w": spread / most / inputs**0.5 * random.uniform(0.5, 2, rows),
        "scale_r": spread / most / hidden**0.5 * random.uniform(0.5, 2, rows),
        "bias_w": random.normal(size=rows) * 0.3,
        "bias_r": random.normal(size=rows) * 0.3,
    }
    p = recurrent.recurrent_parameters(
        cell[0], w, r, scale_x=scale_x, scale_h=scale_h, linear_before_reset=cell[1], **real, **options
    )
    return p, real | {"w": w * real["scale_w"][:, None], "r": r * real["scale_r"][:, None]}


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    st.sampled_from(CELLS),
    dtypes,
    dtypes,
    st.sampled_from((1, 3, 200)),
    st.integers(1, 5),
    seeds,
    st.booleans(),
    st.floats(0.01, 50),
    st.sampled_from((127, 32767)),
    st.booleans(),
    st.sampled_from((0.0, 0.7, 20.0)),
    st.data(),
)
def test_a_sequence_matches_the_model(
    cell: tuple[str, bool],
    source: Any,
    target: Any,
    inputs: int,
    hidden: int,
    seed: int,
    reverse: bool,
    spread: float,
    most: int,
    more: bool,
    clip: float,
    data: Any,
) -> None:
    zero_x = data.draw(zero_points(source, source is np.int16))
    zero_h = data.draw(zero_points(target, target is np.int16))
    limits = np.iinfo(target)
    options: dict[str, Any] = {"clip": clip}
    if more and cell[0] == "lstm":
        peephole = np.random.default_rng(seed + 3).normal(size=3 * hidden) * spread
        options |= {"peephole": peephole, "coupled": bool(seed % 2), "outputs": seed % 4}
    scales = 2 / np.iinfo(source).max, 1 / int(limits.max)
    p, _ = layer(seed, cell, inputs, hidden, *scales, spread, most, **options)
    if not recurrent.has_room(p, 2 * int(np.iinfo(source).max), 2 * int(limits.max)):
        return
    x, h = array(seed, (3, 2, inputs), source), array(seed + 1, (2, p.width), target)
    state = array(seed + 2, (2, hidden), np.int16)
    y, last, end = recurrent.run_recurrent(
        x, p, h, state, zero_x=zero_x, zero_h=zero_h, dtype=target, reverse=reverse
    )
    step = oracle_recurrent.STEPS[cell[0]]
    for b in range(2):
        now, inner = (h[b].astype(int) - zero_h).tolist(), state[b].tolist()
        if cell[0] == "gru":
            first = np.clip(np.array(oracle_recurrent.first_h(p, inner)) + zero_h, limits.min, limits.max)
            now = (first - zero_h).tolist()
        for t in reversed(range(3)) if reverse else range(3):
            out, inner = step(p, (x[t, b].astype(int) - zero_x).tolist(), now, inner)
            clamped = np.clip(np.array(out) + zero_h, limits.min, limits.max)
            np.testing.assert_array_equal(y[t, b], clamped)
            now = (clamped - zero_h).tolist()
        np.testing.assert_array_equal(last[b] - np.int64(zero_h), now)
        np.testing.assert_array_equal(end[b], inner)


def real_run(cell: tuple[str, bool], x: Any, real: dict[str, Any], hidden: int) -> Any:
    def sigmoid(v: Any) -> Any:
        return 1 / (1 + np.exp(-v))

    h, c, out = np.zeros((x.shape[1], hidden)), np.zeros((x.shape[1], hidden)), []
    for step in x:
        of_x, of_h = step @ real["w"].T + real["bias_w"], h @ real["r"].T + real["bias_r"]
        if cell[0] == "lstm":
            i, f, g, o = np.split(of_x + of_h, 4, -1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        elif cell[0] == "rnn":
            h = np.tanh(of_x + of_h)
        else:
            z, r = np.split(sigmoid((of_x + of_h)[:, : 2 * hidden]), 2, -1)
            if cell[1]:
                new = np.tanh(of_x[:, 2 * hidden :] + r * of_h[:, 2 * hidden :])
            else:
                behind = (r * h) @ real["r"][2 * hidden :].T + real["bias_r"][2 * hidden :]
                new = np.tanh(of_x[:, 2 * hidden :] + behind)
            h = (1 - z) * new + z * h
        out.append(h)
    return np.stack(out)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_a_sequence_stays_near_float(cell: tuple[str, bool], dtype: Any) -> None:
    most = int(np.iinfo(dtype).max)
    p, real = layer(7, cell, 20, 16, 2 / most, 1 / most)
    x = array(3, (12, 2, 20), dtype)
    y, _, _ = recurrent.run_recurrent(x, p, dtype=dtype)
    error = np.abs(y / most - real_run(cell, x * (2 / most), real, 16)).max()
    assert error <= (2 / 127 if dtype is np.int8 else 2.0**-9)


def test_threads_do_not_change_the_result() -> None:
    p, _ = layer(7, CELLS[0], 20, 16, 0.02, 1 / 127)
    x = array(3, (5, 6, 20), np.int8)
    one, two = (recurrent.run_recurrent(x, p, threads=threads) for threads in (1, 2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_no_layer_is_refused_in_words() -> None:
    p, _ = layer(7, CELLS[0], 4, 3, 0.02, 1 / 127)
    with pytest.raises(ValueError, match=r"x must be \(steps, batch, 4\)"):
        recurrent.run_recurrent(np.zeros((2, 1, 5), np.int8), p)
    with pytest.raises(ValueError, match=r"h must be int8 of \(1, 3\)"):
        recurrent.run_recurrent(np.zeros((2, 1, 4), np.int8), p, np.zeros((2, 3), np.int8))
    with pytest.raises(ValueError, match="zero point 0"):
        recurrent.run_recurrent(np.zeros((2, 1, 4), np.int16), p, zero_x=3)
    numbers: dict[str, Any] = {
        "scale_w": 1.0,
        "scale_r": 1.0,
        "bias_w": 0.0,
        "bias_r": 0.0,
        "scale_x": 1.0,
        "scale_h": 1.0,
    }
    with pytest.raises(ValueError, match="no cell 'elman'"):
        recurrent.recurrent_parameters("elman", np.zeros((4, 2)), np.zeros((4, 1)), **numbers)
    with pytest.raises(ValueError, match="cannot have the shapes"):
        recurrent.recurrent_parameters("gru", np.zeros((4, 2), int), np.zeros((4, 1), int), **numbers)
    with pytest.raises(ValueError, match="magnitude up to 32767"):
        recurrent.recurrent_parameters("gru", np.full((3, 2), 40000), np.zeros((3, 1), int), **numbers)
