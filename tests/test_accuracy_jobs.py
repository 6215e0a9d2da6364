"""Jobs of the accuracy benchmark: a result of the same protocol is not made again, and rows are made of what is committed."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.paths import ROOT, SHARED

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])


def result(job: Any, tool: str, hits: list[bool], sqnr: float, **notes: Any) -> dict[str, Any]:
    return {
        "protocol": asdict(job), "tool": tool, "metric": "top-1", "float": 50.0, "figure": 100 * float(np.mean(hits)),
        "to float": [0.0, 0.0], "same": 100.0, "cosine": 1.0, "sqnr": sqnr,
        "slices": {"mean": sqnr, "worst": ["y", sqnr], "worst sample": sqnr},
        "hits": np.packbits(np.array(hits)).tobytes().hex(), "draws": None, "notes": notes,
    }  # fmt: skip


def job(entry: str = "npuc") -> Any:
    from accuracy_job import Protocol

    return Protocol("resnet20", "w8a8", entry, 64, 8)


def test_a_job_is_done_if_its_result_has_the_same_protocol(tmp_path: Path) -> None:
    from accuracy_job import done

    (tmp_path / f"{job().name}.json").write_text(json.dumps(result(job(), "npuc", [True] * 8, 30.0)))
    known = done(job(), tmp_path)
    assert known is not None and known["figure"] == 100.0
    assert done(replace(job(), images=16), tmp_path) is None and done(job("ladder"), tmp_path) is None
    assert job("ladder").name != replace(job("ladder"), seed=1).name
    assert done(replace(job(), device="cuda"), tmp_path) == known


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not there")
def test_all_samples_are_used_unless_fewer_are_asked_for() -> None:
    from accuracy_job import protocol

    full = protocol("resnet20", "w8a8", "npuc")
    assert (full.calibration, full.images) == (200, 1000)
    some = protocol("yolox_nano", "w8a8", "npuc", 64, 8)
    assert (some.calibration, some.images) == (40, 8), "the other images of COCO are measured"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not there")
def test_two_folds_measure_every_image_by_a_network_that_was_not_calibrated_on_it() -> None:
    from accuracy_folds import halves

    first, second = halves("yolox_nano")
    calibrated = [[path.name for path in network.calibrating] for network in (first, second)]
    measured = [[case.path.name for case in network.measured() if case.path] for network in (first, second)]
    assert calibrated[0] == measured[1] and calibrated[1] == measured[0]
    assert len({*calibrated[0], *calibrated[1]}) == 80


def test_differences_are_paired_and_a_peer_that_is_ahead_is_named() -> None:
    from accuracy_report import difference, table, verdict

    ours = result(job(), "npuc", [True, False] * 4, 30.0)
    theirs = result(job("MinMax"), "ort", [True] * 8, 25.0)
    apart = difference(ours, theirs)
    assert apart is not None and apart == pytest.approx((-50.0, 50 / 8**0.5))
    assert verdict({"npuc": ours, "ort": theirs}).startswith("top-1 -50.0")
    assert verdict({"npuc": ours}) == "no peer was run"
    better = result(job("MinMax"), "ort", [True, False] * 4, 31.0)
    assert verdict({"npuc": ours, "ort": better}) == "-1.0 dB to ONNX Runtime"
    text = table({("resnet20", "w8a8"): [ours, theirs]}, [("resnet20", "w8a8"), ("vit", "pow2")])
    assert "| resnet20 (8, 64) | w8a8 |" in text and "Rows that were not run: vit pow2." in text
    assert (
        "npuc is first in 0 of 1 rows" in text
        and "- resnet20 w8a8: top-1 -50.0 ± 17.7 to ONNX Runtime" in text
    )


def test_the_table_has_worst_cases_more_bits_and_seeds() -> None:
    from accuracy_report import table

    made = [
        result(replace(job("ladder"), seed=seed), "ladder", [True] * 8, 30.0 + seed, wide=[3, 9], finer=2)
        for seed in (0, 1)
    ]
    text = table({("resnet20", "w8a8"): [*made, result(job("nncf"), "nncf", [True] * 8, 29.0)]}, [])
    assert "npuc is first in 1 of 1 rows" in text and "It is behind" not in text
    row = next(line for line in text.splitlines() if line.startswith("| resnet20 | w8a8 |")).split("|")
    assert [cell.strip() for cell in row[4:]] == [
        "30.0, 30.0", "", "29.0, 29.0", "", "", "3 of 9 layers 16-bit activations, 2 layers 8-bit weights",
        "100.0, 100.0; 30.0, 31.0 dB", "",
    ]  # fmt: skip


def test_what_plans_expect_is_read_out_of_the_lines_of_steps() -> None:
    from plan_data import pairs, steps

    lines = [
        "default: 10.00 dB (2.0 s)",
        "gptq: 10.00 to 13.00 dB, kept (4.0 s)",
        "round: 13.00 to 12.00 dB, no gain, left out (9.0 s)",
    ]
    made = result(job("ladder"), "ladder", [True] * 8, 13.0, steps=lines)
    assert [(step["step"], step["gain"], step["time"]) for step in steps([made])] == [
        ("gptq", 3.0, 2.0),
        ("round", 0.0, 4.5),
    ]
    assert pairs([made, result(job("MinMax"), "ort", [True] * 8, 20.0)])[0]["sqnr"] == 13.0


def test_committed_results_are_those_that_plans_and_pages_show() -> None:
    from accuracy_job import RESULTS
    from plan_data import FILE, earlier_pairs, pairs, steps

    committed = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    assert len(committed) > 10 and all(set(made["protocol"]) == set(asdict(job())) for made in committed)
    assert json.loads(FILE.read_text()) == {
        "pairs": [*pairs(committed), *earlier_pairs()],
        "steps": steps(committed),
    }


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not there")
def test_the_page_has_the_table_of_the_committed_results() -> None:
    from accuracy_networks import NETWORKS
    from accuracy_report import table
    from bench_accuracy import SCHEMES, committed, rows

    text = table(rows(committed()), [(name, scheme) for name in NETWORKS for scheme in SCHEMES])
    assert text.strip() in (ROOT / "docs" / "quantization.md").read_text()


def test_the_default_that_is_behind_plain_ranges_is_named() -> None:
    from bench_default import violations

    kept = {"default": [30.0, 20.0, -2.0], "max": [30.05, 20.3, 3.0]}
    made = {"on calibration": kept, "on unseen": kept}
    assert violations(made) == [
        "worst slice on calibration data 20.0 dB, not 20.3",
        "worst slice of the worst sample on calibration data 0.0 dB, not 3.0",
    ]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not there")
def test_the_page_has_the_tables_of_folds_and_of_the_default() -> None:
    import accuracy_folds
    import bench_default

    page = (ROOT / "docs" / "quantization.md").read_text()
    assert accuracy_folds.table().strip() in page and bench_default.table().strip() in page
