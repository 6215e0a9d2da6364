"""The list of benchmarks/zoo.yaml is complete: sources, data, licences, and as many networks as promised."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def zoo(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import zoo_models

    return zoo_models


def test_every_network_has_a_source_data_and_a_licence(zoo: Any) -> None:
    import zoo_data

    every = zoo.entries()
    assert len({entry["name"] for entry in every}) == len(every) >= 60
    assert sum("package" in entry for entry in every) >= 15
    for entry in every:
        built = [key for key in zoo.BUILDERS if key in entry]
        if "package" in entry:
            assert not built and "==" in entry["package"] and entry["file"] and entry["licence"], entry[
                "name"
            ]
        else:
            assert len(built) == 1 and entry["export"] in zoo.SUFFIX, entry["name"]
        assert all(spec.get("data", "image") in zoo_data._KINDS for spec in entry["inputs"].values())


def test_samples_have_their_shapes_and_held_out_ones_are_others(zoo: Any) -> None:
    import zoo_data

    seen = set()
    for entry in zoo.entries():
        kinds = {spec.get("data", "image") for spec in entry["inputs"].values()}
        if kinds <= seen or max(np.prod(spec["shape"]) for spec in entry["inputs"].values()) > 200_000:
            continue
        seen |= kinds
        parts = {part: zoo_data.samples(entry, part, 2) for part in ("calibration", "held_out")}
        for made in (*parts["calibration"], *parts["held_out"]):
            shapes = [list(array.shape) for array in made]
            assert shapes == [spec["shape"] for spec in entry["inputs"].values()], entry["name"]
            assert all(np.isfinite(array).all() for array in made)
        assert not np.array_equal(parts["calibration"][1][0], parts["held_out"][1][0]), entry["name"]


def test_a_low_slice_counts_as_announced_only_by_a_warning_with_its_name(zoo: Any) -> None:
    import sweep_zoo

    def report(messages: str) -> Any:
        figures = {
            "slices": {"boxes (in y)": 40.0, "scores (in y)": 3.0},
            "mean": 21.5,
            "tensors": ["y"],
            "equal": {},
        }
        done = {"status": 0, "messages": messages, "seconds": 1.0}
        fine = {"status": 0, "messages": "", "seconds": 1.0}
        return {
            "name": "n",
            "import": {**fine, "result": {"check": {"passed": True, "reason": None}}},
            "targets": {"t": {"compile": done, "sim": fine, "figures": figures}},
            "compare": fine,
        }

    silent = sweep_zoo.verdict(report("note: ranges by mse"), "t")
    assert (silent.word, silent.low, silent.unwarned) == ("ok", ("scores (in y)",), ("scores (in y)",))
    told = sweep_zoo.verdict(
        report("note: 'scores' of the output 'y' is only 3.0 dB above its error: try."), "t"
    )
    assert told.low and not told.unwarned
    failed = report("")
    failed["targets"]["t"]["compile"] = {
        "status": 1,
        "messages": "error[E901]: ValueError: no",
        "seconds": 1.0,
    }
    assert sweep_zoo.verdict(failed, "t").word == "FAILED"
    failed["targets"]["t"]["compile"] = {
        "status": 2,
        "messages": "error[E203]: Add --input-shape.",
        "seconds": 1.0,
    }
    assert sweep_zoo.verdict(failed, "t").word == "refused"
