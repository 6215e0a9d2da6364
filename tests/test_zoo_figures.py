"""The page of networks and targets is what the results say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import zoo_figures

    return zoo_figures


def test_the_page_is_made_of_the_results(figures: Any) -> None:
    assert figures.PAGE.read_text() == figures.page(), (
        "python benchmarks/zoo_figures.py --write-docs --minutes 0"
    )


def test_every_result_is_one_of_the_list_and_makes_sense(figures: Any) -> None:
    known = {figures.file_of(*job): job for job in figures.jobs()}
    files = sorted((figures.RESULTS / "zoo").iterdir())
    assert len(files) >= 40 and set(files) <= known.keys()
    for path in files:
        row = json.loads(path.read_text())
        assert (row["network"], row["target"]) == known[path]
        assert 0 < row["buffered bound"] <= row["cycles"], path.name
        assert row["bytes"] >= row["compulsory bytes"] * 0.97 > 0, path.name


def test_what_has_no_result_is_named(figures: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    assert "Not measured yet: micro_speech_int8 on edge-1t, " in figures.page()
