"""The tool that plants faults: what it plants, and its verdicts on faults that tests notice, miss, or cannot judge."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

import mutate
from support.faults.judging import Verdict, Verdicts, chosen, judge
from support.faults.planting import Fault, faults_of, planted
from support.faults.records import Map, Project, RecordedTest, is_recorded, record

SOURCE = '''
LIMIT = 3

def most(values, start: int = 5):
    """The largest."""
    best: Literal[7] = values[0]
    for value in values:
        if value > best and value is not None:
            best = value
    note(best)
    if best < 0:
        return None
    return best + 0
'''


def test_the_faults_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    faults = faults_of(tmp_path / "a.py", tmp_path)
    words = [fault.words for fault in faults]
    assert "value > best -> value >= best" in words
    assert "note(best) -> left out" in words
    assert "return best + 0 -> return None" in words
    assert "best + 0 -> best - 0" in words
    assert "return None -> return None" not in words
    assert not any(
        number in one for one in words for number in "357"
    )  # tables, defaults and annotations are left alone
    assert all(fault.path == "a.py" and fault.line > 4 for fault in faults)
    keys = [fault.key for fault in faults]
    assert len(set(keys)) == len(keys)
    assert "a.py most: 0 -> 1" in keys and "a.py most: 0 -> 1 (3)" in keys


def test_each_fault_changes_the_source_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    faults = faults_of(tmp_path / "a.py", tmp_path)
    made = [ast.unparse(planted(SOURCE.encode(), fault.number)) for fault in faults]
    plain = ast.unparse(ast.parse(SOURCE)).splitlines()
    assert len(set(made)) == len(faults)
    for one in made:
        assert sum(a != b for a, b in zip(one.splitlines(), plain, strict=True)) == 1


def test_what_numpy_takes_alike_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f(x):\n    return x[1].reshape(-1), x.reshape(-1, 4)\n")
    keys = [fault.words for fault in faults_of(tmp_path / "a.py", tmp_path)]
    assert keys[1:] == ["1 -> 2", "1 -> 2", "4 -> 5"]


SMALL = """
def clamp(value, low, high):
    if value < low:
        return low
    if value > high:
        return high
    return value

def spin(value):
    while value > 0:
        value -= 1
    return value

def table():
    return ["a", "b"]
"""
TESTS = """
import pathlib
import sys
sys.path.insert(0, "src")
from small.code import clamp, spin, table

NAMES = sorted(table())
MARK = pathlib.Path("mark")

def test_low():
    assert clamp(-1, 0, 5) == 0

def test_middle():
    assert clamp(3, 0, 5) == 3

def test_spin():
    assert spin(2) <= 0

def test_table():
    assert len(table()) == 2

def test_that_passes_once():
    again = MARK.exists()
    MARK.touch()
    assert clamp(4, 0, 5) == 4 and not again
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A package of three functions, whose tests leave out what lies above the range."""
    root = tmp_path_factory.mktemp("small")
    (root / "src/small").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "pytest.ini").write_text("[pytest]\n")
    (root / "src/small/code.py").write_text(SMALL)
    (root / "tests/test_code.py").write_text(TESTS)
    project = Project(root, "src/small", root / "build")
    record(project, ["tests/test_code.py"], 60)
    assert is_recorded(project, "tests/test_code.py")
    return project


def fault_of(project: Project, words: str) -> Fault:
    (found,) = [
        fault for fault in faults_of(project.root / "src/small/code.py", project.root) if fault.words == words
    ]
    return found


def names(project: Project, words: str) -> set[str]:
    return {test.name.partition("::")[2] for test in Map(project).judges(fault_of(project, words))}


def verdict_of(project: Project, words: str) -> Verdict:
    fault = fault_of(project, words)
    return judge(project, fault, Map(project).judges(fault), Verdicts(project.folder / "verdicts.json"), 30)


def test_the_tests_that_run_a_statement_judge_it(small: Project) -> None:
    assert names(small, "return low -> return None") == {"test_low"}
    assert names(small, "value > high -> value >= high") == {"test_middle", "test_that_passes_once"}
    assert names(small, "value -= 1 -> left out") == {"test_spin"}
    # no test runs it: those that run the statement before it
    assert names(small, "return high -> return None") == {"test_middle", "test_that_passes_once"}


def test_a_fault_that_a_test_fails_for_is_noticed(small: Project) -> None:
    verdict = verdict_of(small, "return low -> return None")
    assert (verdict.outcome, verdict.by) == ("noticed", "tests/test_code.py::test_low")
    kept = Verdicts(small.folder / "verdicts.json").known
    assert verdict in kept.values()


def test_a_fault_that_all_tests_pass_with_is_missed(small: Project) -> None:
    # one of its two tests fails from the second time on, with the fault and without it: it judges nothing
    assert verdict_of(small, "value > high -> value >= high").outcome == "missed"
    assert verdict_of(small, "return high -> return None").outcome == "missed"


def test_what_is_no_failure_of_a_test_is_no_verdict(small: Project) -> None:
    """The file of tests cannot be imported; a test is gone; a file is gone."""
    verdict = verdict_of(small, "return ['a', 'b'] -> return None")
    assert (verdict.outcome, verdict.by) == ("unclear", "pytest ends with status 4")
    fault = fault_of(small, "return low -> return None")
    for gone in ("tests/test_code.py::test_gone", "tests/test_gone.py::test_low"):
        verdicts = Verdicts(small.folder / "other.json")
        verdict = judge(small, fault, [RecordedTest(gone, gone.partition("::")[0], 0.1)], verdicts, 30)
        assert (verdict.outcome, verdict.by) == ("unclear", "pytest ends with status 4")
        verdicts.path.unlink()


def test_more_tests_for_a_fault_that_was_missed(small: Project) -> None:
    """Only tests that were not asked before run again."""
    fault = fault_of(small, "value < low -> value <= low")
    everything = {test.name: test for test in Map(small).judges(fault)}
    verdicts = Verdicts(small.folder / "more.json")
    first = judge(small, fault, [everything["tests/test_code.py::test_middle"]], verdicts, 30)
    assert (first.outcome, first.by) == ("missed", "1 tests pass")
    second = judge(small, fault, list(everything.values()), verdicts, 30)
    assert (second.outcome, second.by) == ("missed", f"{len(everything)} tests pass")
    assert judge(small, fault, [], verdicts, 30) == second


def test_tests_of_the_own_folder_and_of_many_files_come_first() -> None:
    tests = [RecordedTest(f"tests/a/test_a.py::test_{k}", "tests/a/test_a.py", 0.1) for k in range(70)]
    tests += [
        RecordedTest("tests/b/test_b.py::test", "tests/b/test_b.py", 1.0),
        RecordedTest("tests/c/test_c.py::test", "tests/c/test_c.py", 99),
    ]
    picked = [test.path for test in chosen(tests, "tests/b/", 5)]
    assert (
        picked[0] == "tests/b/test_b.py"
        and picked.count("tests/a/test_a.py") == 40
        and "tests/c/test_c.py" not in picked
    )


def test_the_score_has_an_interval() -> None:
    low, high = mutate.interval(81, 263)  # Newcombe 1998, example of Wilson's method without correction
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    lines = mutate.score({"quant": Counter(noticed=9, missed=1, unclear=2), "sim": Counter(equivalent=1)})
    assert lines[1].split() == ["quant", "9", "10", "90%", "60%", "to", "98%", "2", "0"]
    assert lines[2].split()[:4] == ["sim", "0", "0", "-"]
    assert lines[3].split()[:4] == ["all", "9", "10", "90%"]


def test_rooms_and_folders_of_tests_exist() -> None:
    assert all((mutate.ROOT / "src/npuc" / room).is_dir() for room in mutate.ROOMS)
    assert all((mutate.ROOT / "tests" / name).is_dir() for name in mutate.TESTS)
    keys = {fault.key for path in {key.split(" ")[0] for key in mutate.equivalent_faults()}
            for fault in faults_of(mutate.ROOT / path, mutate.ROOT)}  # fmt: skip
    assert set(mutate.equivalent_faults()) <= keys
