"""One figure for a whole integer network: a worse table has a worse figure, and a user's program may stand behind the outputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.calib.random_inputs import random_inputs
from npuc.calib.table import CalibrationTable, Entry
from npuc.calib.user_function import load_output_function
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import UsageError
from npuc.flow import quantize_network
from npuc.quant.config import QuantizationConfig
from npuc.quant.output_similarity import OutputSimilarity, best_table
from npuc.quant.validation import noise_behind
from npuc.target import load_target
from support.networks.quantized import case_network

GRAPH = case_network("conv")
SAMPLES = [random_inputs(GRAPH, seed=seed) for seed in range(3)]
TARGET = load_target("edge-4t")


def table(factor: float) -> CalibrationTable:
    """Ranges that are `factor` times those of the samples."""
    ranges: dict[str, float] = {}
    for sample in SAMPLES:
        for name, array in {**sample, **FloatEngine(GRAPH, GRAPH.tensor_names()).run(sample)}.items():
            ranges[name] = max(ranges.get(name, 0.0), float(np.abs(array).max()))
    return CalibrationTable.of(Entry(name, factor * t, -factor * t, factor * t) for name, t in ranges.items())


def integers(ranges: CalibrationTable):  # type: ignore[no-untyped-def]
    return quantize_network(GRAPH, ranges, QuantizationConfig(scheme="int8-symmetric"), TARGET).graph


@pytest.mark.parametrize("figure", ["cosine", "snr"])
def test_the_table_of_the_right_ranges_is_the_best(figure: str) -> None:
    tables = {"narrow": table(0.05), "right": table(1.0), "wide": table(20.0)}
    best, figures = best_table(tables, integers, OutputSimilarity(GRAPH, SAMPLES), figure)  # type: ignore[arg-type]
    assert best == "right" and list(figures) == ["narrow", "right", "wide"]
    found, exact = figures["right"], FloatEngine(GRAPH)
    cosines = []
    for sample in SAMPLES:
        x, y = (
            engine.run(sample)["y"].astype(np.float64).ravel()
            for engine in (IntegerEngine(integers(table(1.0))), exact)
        )
        cosines.append(x @ y / np.linalg.norm(x) / np.linalg.norm(y))
    assert found.cosine == pytest.approx(np.mean(cosines), abs=1e-9)
    assert found.least_cosine <= max(cosines)
    assert 0 < figures["narrow"].cosine < found.cosine < 1


def test_a_program_behind_the_outputs_is_what_counts() -> None:
    def sign(outputs: Mapping[str, Array]) -> dict[str, Array]:
        return {"sign": outputs["y"] > 1e9}

    similarity = OutputSimilarity(GRAPH, SAMPLES, sign).of(integers(table(0.05)))
    assert similarity.least_cosine == similarity.cosine == 1, "what the program makes is the same"
    exact = [[FloatEngine(GRAPH).run(sample)["y"]] for sample in SAMPLES]
    wrong = [[row[0] * 1.1] for row in exact]
    assert noise_behind(GRAPH, dict)(wrong, exact) == pytest.approx(0.01, rel=1e-4)
    assert noise_behind(GRAPH, sign)(wrong, exact) == 0
    with pytest.raises(UsageError, match="has other shapes"):
        noise_behind(GRAPH, lambda outputs: {"few": outputs["y"][outputs["y"] > 0.5]})(wrong, exact)


def test_a_function_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "post.py"
    file.write_text(
        "def Pair(o):\n    o['y'] += 1\n    return o['y'], o['y'].sum()\ndef Text(o): return 'x'\n"
    )
    y = np.zeros(3, np.float32)
    made = load_output_function(f"{file}:Pair")({"y": y})
    assert list(made) == ["0", "1"] and made["1"] == 3 and not y.any(), "the outputs themselves are kept"
    with pytest.raises(UsageError, match="returned no arrays of numbers, but str"):
        load_output_function(f"{file}:Text")({"y": y})
