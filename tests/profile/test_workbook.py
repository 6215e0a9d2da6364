"""Workbooks: what openpyxl, a reader of others, finds in them."""

from __future__ import annotations

import io
import warnings
from typing import Any
from zipfile import ZipFile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.profile.compare import compare
from npuc.profile.report import Report, report_of
from npuc.profile.sheets import compare_sheets, report_sheets
from npuc.profile.workbook import Column, Sheet, write_workbook
from npuc.program.model import CompiledModel
from npuc.sim import simulate

openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed")


def written(*sheets: Sheet) -> bytes:
    out = io.BytesIO()
    write_workbook(out, sheets)
    return out.getvalue()


def opened(*sheets: Sheet) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return openpyxl.load_workbook(io.BytesIO(written(*sheets)))


def rows(sheet: Any) -> list[tuple[Any, ...]]:
    return list(sheet.iter_rows(values_only=True))


def test_text_is_text_and_numbers_are_numbers() -> None:
    columns = (Column("a"), Column("b", "whole"), Column("c", "real"), Column("d", "percent"))
    data = [
        ["=1+1", 3, 0.1, 0.5],
        [" <x> & 'y' ", 10**15, float("inf"), None],
        ["007", -1, float("nan"), 1.0],
    ]
    book = opened(Sheet("One", columns, data), Sheet('<T&"wo>', columns[:1], []))
    assert book.sheetnames == ["One", '<T&"wo>']
    sheet = book["One"]
    assert rows(sheet) == [
        ("a", "b", "c", "d"), ("=1+1", 3, 0.1, 0.5), (" <x> & 'y' ", 10**15, "inf", None), ("007", -1, None, 1),
    ]  # fmt: skip
    assert [cell.data_type for cell in sheet[2]] == ["s", "n", "n", "n"]
    assert [cell.number_format for cell in sheet[2]] == ["General", "#,##0", "#,##0.000", "0.0%"]
    assert sheet["A1"].font.bold and sheet.freeze_panes == "A2" and sheet.auto_filter.ref == "A1:D4"


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), min_size=1, max_size=5))
def test_any_text_comes_back(texts: list[str]) -> None:
    from openpyxl.utils.escape import unescape

    (_, *found) = rows(opened(Sheet("s", (Column("x"),), [[text] for text in texts])).active)
    # Line ends become plain ones in XML, and openpyxl leaves it to its users to read escapes.
    assert [unescape(one or "") for (one,) in found] == [text.replace("\r\n", "\n") for text in texts]


def test_the_same_tables_are_the_same_bytes() -> None:
    sheet = Sheet("s", (Column("x"),), [["a"]] * 3)
    assert written(sheet) == written(sheet)
    with ZipFile(io.BytesIO(written(sheet))) as archive:
        assert archive.testzip() is None and {one.date_time[0] for one in archive.infolist()} == {1980}


def test_many_columns_and_long_texts() -> None:
    sheet = opened(Sheet("x" * 40, [Column(str(i)) for i in range(800)], [["y" * 40_000] * 800])).active
    assert sheet.title == "x" * 31 and sheet.max_column == 800 and sheet.dimensions == "A1:ADT2"
    assert len(sheet["ADT2"].value) == 32_767


@pytest.fixture(scope="module")
def report(compiled: CompiledModel) -> Report:
    return report_of(compiled, simulate(compiled))


def test_a_report_has_the_figures_of_its_json(report: Report) -> None:
    found = report.as_dict()
    book = opened(*report_sheets(found))
    summary = dict(rows(book["Summary"])[1:])
    assert summary["model"] == "digits" and summary["cycles"] == found["summary"]["cycles"]
    assert summary["bounds roofline"] == report.bounds["roofline"]
    heading, *layers = rows(book["Layers"])
    assert len(layers) == len(found["layers"]) == 10
    for row, layer in zip(layers, found["layers"], strict=True):
        named = dict(zip(heading, row, strict=True))
        assert named["layer"] == layer["name"]
        for key in ("cycles", "share", "limited_by", "gops", "weights_in", "on_chip", "group"):
            assert named[key] == pytest.approx(layer[key])
        assert named["charged matrix"] == layer["charged"]["matrix"]
    assert sum(row[heading.index("share")] for row in layers) == pytest.approx(1)
    assert len(rows(book["Groups"])) == 1 + len(found["groups"])


def test_two_models_in_a_workbook(report: Report) -> None:
    found = compare(report, report)
    book = opened(*compare_sheets(found))
    summary = {name: values for name, *values in rows(book["Summary"])}
    assert summary["cycles"][2] == 1 and summary["model"] == ["digits", "digits", None]
    heading, *layers = rows(book["Layers"])
    assert heading[-2:] == ("A limited by", "B limited by") and len(layers) == 10
    assert all(row[3] == 0 and row[4] in (1, None) for row in layers)


def test_parts_on_the_cpu_have_a_sheet_where_there_are_any(report: Report) -> None:
    found = report.as_dict()
    assert "CPU" not in [sheet.name for sheet in report_sheets(found | {"host": []})]
    parts = [
        {"name": "cpu1", "layers": ["a", "b"], "seconds": 0.25},
        {"name": "cpu3", "layers": ["c"], "seconds": None},
    ]
    book = opened(*report_sheets(found | {"host": parts}))
    assert rows(book["CPU"]) == [
        ("subgraph", "layers", "milliseconds"),
        ("cpu1", "a, b", 250.0),
        ("cpu3", "c", None),
    ]
