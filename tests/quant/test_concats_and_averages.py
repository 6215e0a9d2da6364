"""Fields of a scheme for concats and averages: whose scale operands have, and by what averages divide."""

from __future__ import annotations

import numpy as np
import pytest

from npuc import lang
from npuc.engine import FloatEngine, IntegerEngine
from npuc.flow import quantize_network
from npuc.ir import Graph, npu, result_names
from npuc.ir.dtypes import quant_of
from npuc.quant.config import QuantizationConfig
from npuc.quant.from_target import misfit
from npuc.quant.scheme import SCHEMES, Scheme
from npuc.target import load_target

RANDOM = np.random.default_rng(0)


def joined() -> Graph:
    """Two concats of a large and a small part; the second is an output."""
    x = lang.input("x", (1, 4, 6, 6))
    weight = RANDOM.normal(0, 0.2, (4, 4, 1, 1)).astype(np.float32)
    large, small = lang.conv(x, 8 * weight, name="large"), lang.conv(x, weight, name="small")
    inner = lang.concat([large, small], axis=1, name="inner")
    mixed = lang.conv(inner, RANDOM.normal(0, 0.1, (4, 8, 1, 1)).astype(np.float32), name="mixed")
    other = lang.conv(x, 0.02 * weight, name="other")
    return lang.build({"y": lang.concat([mixed, other], axis=1, name="outer")})


RANGES = {"x": 4.0, "large": 16.0, "small": 2.0, "inner": 16.0, "mixed": 8.0, "other": 0.06, "outer": 8.0}


def scales(aligned: str) -> dict[str, float]:
    """The scales of the convolutions of an integer network."""
    graph = joined()
    ranges = {name: (-reach, reach) for name, reach in RANGES.items()}
    config = QuantizationConfig(scheme="pow2", options={"aligned_concats": aligned})
    done = quantize_network(graph, ranges, config).graph
    x = RANDOM.normal(0, 1, (1, 4, 6, 6)).astype(np.float32)
    exact, given = FloatEngine(graph).run({"x": x})["y"], IntegerEngine(done).run({"x": x})["y"]
    # A step of the coarsest tensor on the way, however its operands were rounded.
    np.testing.assert_allclose(given, exact, atol=8 / 64)
    kinds = {result_names(op)[0]: quant_of(op.results[0]) for op in done.ops if isinstance(op, npu.Conv)}
    return {name: kind.scale for name, kind in kinds.items() if kind is not None}


def test_operands_of_a_concat_have_its_scale_or_their_own() -> None:
    everywhere, outputs, nowhere = (scales(aligned) for aligned in ("all", "outputs", "none"))
    assert everywhere["large"] == everywhere["small"] and everywhere["mixed"] == everywhere["other"]
    assert outputs["small"] == outputs["large"] / 8 and outputs["mixed"] == outputs["other"]
    assert nowhere["small"] == nowhere["large"] / 8 and nowhere["other"] == nowhere["mixed"] / 128


@pytest.mark.parametrize("kernel", [7, 4])
def test_averages_divide_exactly_on_request(kernel: int) -> None:
    """49 elements of one value have it as their mean; with the reciprocal 84 / 4096, some results are a step away."""
    x = lang.input("x", (1, 1, kernel, kernel))
    graph = lang.build({"y": lang.avg_pool(x, kernel=kernel, strides=kernel, name="mean")})
    found = {}
    for exact in (False, True):
        config = QuantizationConfig(scheme="pow2", options={"exact_averages": exact})
        engine = IntegerEngine(quantize_network(graph, {"x": (-1.0, 1.0), "mean": (-1.0, 1.0)}, config).graph)
        levels = np.arange(-128, 128, dtype=np.float32) / 128
        means = [
            engine.run({"x": np.full((1, 1, kernel, kernel), level, np.float32)})["y"].item()
            for level in levels
        ]
        found[exact] = float(np.abs(np.array(means) - levels).max())
    assert found[True] == 0
    assert (found[False] > 0) == (kernel == 7)


def test_a_machine_without_such_multipliers_says_so() -> None:
    scheme = Scheme(**{**SCHEMES["pow2"].to_dict(), "exact_averages": True})
    assert "averages divide by" in (misfit(scheme, load_target("dpuczdx8g-b4096-like")) or "")
    assert misfit(SCHEMES["pow2"], load_target("dpuczdx8g-b4096-like")) is None
