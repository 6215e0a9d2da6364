"""The eleven public instances fit their capacity."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path

import pytest

from npuc.schedule.memory import Buffer, plan

CAPACITY = 1 << 20


@pytest.mark.parametrize("letter", "ABCDEFGHIJK")
def test_a_public_instance_fits(shared: Path, letter: str) -> None:
    path = shared / "memory-planning" / f"{letter}.{CAPACITY}.csv"
    if not path.is_file():
        pytest.skip("the public instances are not here")
    with path.open(newline="") as file:
        rows = [{k: int(v) for k, v in row.items()} for row in csv.DictReader(file)]
    buffers = [Buffer(str(r["id"]), r["size"], r["lower"], r["upper"]) for r in rows]
    found = plan(buffers, CAPACITY, steps=1_000_000_000)
    assert found.size <= CAPACITY
    for time in sorted({b.start for b in buffers}):
        spans = sorted(
            (found.addresses[b.name], found.addresses[b.name] + b.size)
            for b in buffers
            if b.start <= time < b.end
        )
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
