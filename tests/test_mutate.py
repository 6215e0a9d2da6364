"""The tool that plants faults: what it plants, and that a fault of this kind is noticed by a test."""

from __future__ import annotations

from pathlib import Path

import mutate

SOURCE = '''
LIMIT = 3

def most(values):
    """The largest."""
    best = values[0]
    for value in values:
        if value > best and value is not None:
            best = value
    note(best)
    return best + 0
'''


def test_the_faults_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    faults = mutate.faults_of(tmp_path / "a.py", tmp_path)
    words = [fault.words for fault in faults]
    assert "value > best -> value >= best" in words
    assert "note(best) -> left out" in words
    assert "return best + 0 -> return None" in words
    assert "best + 0 -> best - 0" in words
    assert not any("3" in one for one in words)  # a table is left alone
    assert all(fault.path == "a.py" and fault.line > 4 for fault in faults)


def test_each_fault_changes_the_source_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    made = {mutate.planted(SOURCE, fault.number) for fault in mutate.faults_of(tmp_path / "a.py", tmp_path)}
    assert len(made) == len(mutate.faults_of(tmp_path / "a.py", tmp_path))
    for one in made:
        compile(one, "a.py", "exec")


def test_rooms_have_tests() -> None:
    for room, folders in mutate.ROOMS.items():
        assert (mutate.ROOT / "src/npuc" / room).is_dir(), room
        assert all((mutate.ROOT / "tests" / folder).is_dir() for folder in folders.split()), room
