"""`npuc explore` from the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from npuc.target import load_target


def test_it_finds_machines_and_writes_what_it_found(npuc: Any, model: Path) -> None:
    ways = ("--vary", "lanes=4x4x2,8x8x4", "--vary", "banks=2,4,3", "--vary", "bandwidth=1GB/s,4GB/s")
    done = npuc("explore", model, *ways, "--target", "edge-1t", "--workers", "1", "-o", "out", "--json")
    assert done.status == 0, done.err
    result = json.loads(done.out)
    assert result["machines"] == 8 and result["refused"] == 4 and result["proven"] and result["open"] == 0
    with open("out/machines.csv") as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == 8
    front = [row["machine"] for row in rows if row["state"] == "front"]
    assert sorted(front) == sorted(row["machine"] for row in result["front"])
    for name in front:
        assert load_target(Path(f"out/targets/{name}.yaml")).name == name
    page = Path("out/explore.html").read_text()
    assert "http" not in page.replace("http-equiv", "") and "/*DATA*/" not in page
    compiled = npuc(
        "compile", model, "--target", f"out/targets/{front[0]}.yaml", "--random", "-o", "model.npu"
    )
    assert compiled.status == 0, compiled.err
    again = npuc("explore", model, *ways, "--target", "edge-1t", "--workers", "1", "-o", "out")
    assert "no other machine of the space can be better" in again.out
    assert "4 combinations contradict themselves" in again.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "no space of machines"),
        (("--vary", "cores"), "has no values"),
        (("--vary", "cores=1", "--weight", "1", "--weight", "2"), "as many --weight"),
        (("--vary", "cores=1", "--weight", "-1"), "not a number above 0"),
        (("--vary", "cores=1", "--dask", "tcp://127.0.0.1:9", "--workers", "1"), "contradict each other"),
        (("--space", "space.yaml", "--target", "edge-1t"), "names the base target itself"),
        (("--vary", "cores=1", "--objectives", "beauty"), "no choice of objectives"),
    ],
)
def test_mistakes_are_named(npuc: Any, model: Path, arguments: tuple[str, ...], words: str) -> None:
    done = npuc("explore", model, *arguments)
    assert done.status == 2 and words in " ".join(done.err.split())
