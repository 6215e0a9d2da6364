"""The table is text that a person can edit, and it reads back as the same numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.calib.table import CalibrationTable, Entry, format_table, load_table, parse_table, save_table
from npuc.errors import FileFormatError, UnknownTensorError
from npuc.ir import top
from support.graphs import build

NAMES = st.text(min_size=1, max_size=12)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.tuples(NAMES, FLOATS, FLOATS, FLOATS), unique_by=lambda row: row[0], max_size=5))
def test_a_table_reads_back_exactly(rows: list[tuple[str, float, float, float]]) -> None:
    entries = [Entry(name, abs(t), min(a, b), max(a, b), "kl:bins=512") for name, t, a, b in rows]
    table = CalibrationTable.of(entries, ["method: kl", "samples: 3"])
    again = parse_table(format_table(table))
    assert list(again.values()) == entries
    assert again == table
    assert format_table(again) == format_table(table)


def test_a_table_of_another_tool_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cali"
    path.write_text(
        "# work_mode:calibration\n###\n# op_name    threshold    min    max\n"
        "images 1.0000080 0.0 1.0000080\nx2_Conv 59.6 -59.6 52.5\n"
    )
    table = load_table(path)
    assert table["x2_Conv"] == Entry("x2_Conv", 59.6, -59.6, 52.5, "given")


def test_one_changed_range_is_one_changed_line() -> None:
    rows = [Entry("a", 1.0, -1.0, 1.0, "max"), Entry("a much longer name/with/slashes", 2.0, 0.0, 2.0, "max")]
    before = format_table(CalibrationTable.of(rows)).splitlines()
    after = format_table(
        CalibrationTable.of([rows[0], Entry(rows[1].name, 1.5, 0.0, 1.5, "kl")])
    ).splitlines()
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1


@pytest.mark.parametrize(
    "line,words",
    [
        ("x 1.0 0.0", "3 columns in place of 4 or 5"),
        ("x 1.0 0.0 1.0 kl more", "6 columns"),
        ("x one 0.0 1.0", "threshold 'one' is not a number"),
        ("x 1.0 nan 1.0", "a number is not finite"),
        ("x 1.0 2.0 1.0", "min 2.0 is above max 1.0"),
        ("x -1.0 0.0 1.0", "the threshold -1.0 is below 0"),
        ("first 1.0 0.0 1.0", "tensor 'first' is there twice"),
        ('"open 1.0 0.0 1.0', "the quoted name does not end"),
    ],
)
def test_an_error_names_the_line(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "t.cali"
    path.write_text(f"# comment\nfirst 1 0 1 max\n\n{line}\n")
    with pytest.raises(FileFormatError) as caught:
        load_table(path)
    assert words in caught.value.message and caught.value.where == f"{path}, line 4"


def test_an_empty_or_binary_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "t.cali"
    for content in (b"", b"# only a comment\n", b"\xff\xfe\x00"):
        path.write_bytes(content)
        with pytest.raises(FileFormatError):
            load_table(path)


def test_names_are_checked_against_the_network(tmp_path: Path) -> None:
    graph = build({"x": (1, 3)}, lambda b, x: b(top.Relu, b(top.Relu, x, name="hidden"), name="out"))
    table = CalibrationTable.of([Entry("x", 1.0, 0.0, 1.0), Entry("hidden", 1.0, 0.0, 1.0)])
    assert table.check(graph) == ["out"]
    save_table(CalibrationTable.of([*table.values(), Entry("hiden", 1.0, 0.0, 1.0)]), tmp_path / "t")
    with pytest.raises(UnknownTensorError, match=r"'hiden', which is no tensor.*nearest names are: hidden"):
        load_table(tmp_path / "t").check(graph)
