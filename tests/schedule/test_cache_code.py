"""A cached schedule is of the code that found it: the scheduler, the instruction set, and the simulator behind its costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuc import native
from npuc.schedule import cache


@pytest.mark.parametrize(
    "name", ["grouping.py", "isa.py", "instructions.py", "cycles.py", "machine.py", native.find().name]
)
def test_the_hash_covers_what_a_schedule_depends_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cache.code.__wrapped__()
    read_bytes = Path.read_bytes

    def changed(path: Path) -> bytes:
        return read_bytes(path) + (b"#" if path.name == name else b"")

    monkeypatch.setattr(Path, "read_bytes", changed)
    assert cache.code.__wrapped__() != before


def test_the_hash_is_the_same_again() -> None:
    assert cache.code.__wrapped__() == cache.code()
