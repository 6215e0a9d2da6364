"""Tables as an xlsx workbook: what LibreOffice, Excel and openpyxl read, written with nothing but zipfile.

Strings are inline, numbers are numbers, the first row of a sheet stays in sight and can filter. The same tables give the same
bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Literal
from xml.sax.saxutils import escape
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

Cell = str | int | float | None
Format = Literal["text", "whole", "real", "percent"]

_FORMATS: dict[Format, tuple[int, str | None]] = {
    "text": (0, None),
    "whole": (3, None),  # numbers below 164 are built in: this one is #,##0
    "real": (164, "#,##0.000"),
    "percent": (165, "0.0%"),
}
_HEADER, _FIRST = 1, 2
"""Styles: 0 is plain, then that of headers, then one a format in the order of `_FORMATS`."""
_MOST_ROWS, _MOST_TEXT, _MOST_NAME = 1_048_576, 32_767, 31
_OLDEST = (1980, 1, 1, 0, 0, 0)
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_DECLARATION = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
# What XML cannot hold, and what Excel would read as such an escape.
_ESCAPED = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")


@dataclass(frozen=True)
class Column:
    """A heading, and how the numbers below it look."""

    name: str
    format: Format = "text"


@dataclass(frozen=True)
class Sheet:
    """A table with a name."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]


def write_workbook(out: IO[bytes], sheets: Sequence[Sheet]) -> None:
    """Write sheets; rows and characters that a sheet has no room for are left out."""
    numbered = list(enumerate(sheets, 1))
    parts = {
        "[Content_Types].xml": _content_types(len(sheets)),
        "_rels/.rels": _relations([("officeDocument", "xl/workbook.xml")]),
        "xl/workbook.xml": _workbook(numbered),
        "xl/_rels/workbook.xml.rels": _relations(
            [*(("worksheet", f"worksheets/sheet{number}.xml") for number, _ in numbered), ("styles", "styles.xml")]
        ),
        "xl/styles.xml": _styles(),
        **{f"xl/worksheets/sheet{number}.xml": _worksheet(sheet) for number, sheet in numbered},
    }  # fmt: skip
    with ZipFile(out, "w") as archive:
        for name, text in parts.items():
            entry = ZipInfo(name, _OLDEST)
            entry.compress_type = ZIP_DEFLATED
            archive.writestr(entry, _DECLARATION + text)


def _content_types(count: int) -> str:
    parts = [("/xl/workbook.xml", "sheet.main"), ("/xl/styles.xml", "styles")]
    parts += [(f"/xl/worksheets/sheet{number + 1}.xml", "worksheet") for number in range(count)]
    relations = "application/vnd.openxmlformats-package.relationships+xml"
    return (
        f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" ContentType="{relations}"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        + "".join(f'<Override PartName="{name}" ContentType="{_TYPE}.{kind}+xml"/>' for name, kind in parts)
        + "</Types>"
    )


def _relations(targets: Iterable[tuple[str, str]]) -> str:
    each = (
        f'<Relationship Id="rId{number}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, 1)
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{"".join(each)}</Relationships>'


def _workbook(numbered: Iterable[tuple[int, Sheet]]) -> str:
    sheets = "".join(
        f'<sheet name="{_attribute(sheet.name[:_MOST_NAME])}" sheetId="{number}" r:id="rId{number}"/>'
        for number, sheet in numbered
    )
    return f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>{sheets}</sheets></workbook>'


def _styles() -> str:
    own = [(number, code) for number, code in _FORMATS.values() if code is not None]
    formats = "".join(f'<numFmt numFmtId="{number}" formatCode="{code}"/>' for number, code in own)
    cells = "".join(
        f'<xf numFmtId="{number}" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/>'
        for number, _ in _FORMATS.values()
    )
    plain = '<xf numFmtId="0" fontId="0" fillId="0" borderId="0"'
    return (
        f'<styleSheet xmlns="{_MAIN}"><numFmts count="{len(own)}">{formats}</numFmts>'
        '<fonts count="2"><font><sz val="11"/><name val="Calibri"/></font>'
        '<font><b/><sz val="11"/><name val="Calibri"/></font></fonts>'
        '<fills count="3"><fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/>'
        '</fill><fill><patternFill patternType="solid"><fgColor rgb="FFE4E9F2"/></patternFill></fill></fills>'
        '<borders count="1"><border/></borders>'
        f'<cellStyleXfs count="1">{plain}/></cellStyleXfs><cellXfs count="{_FIRST + len(_FORMATS)}">{plain} xfId="0"/>'
        '<xf numFmtId="0" fontId="1" fillId="2" borderId="0" xfId="0" applyFont="1" applyFill="1"/>'
        f"{cells}</cellXfs>"
        '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>'
    )


def _worksheet(sheet: Sheet) -> str:
    rows = sheet.rows[: _MOST_ROWS - 1]
    styles = [_FIRST + list(_FORMATS).index(column.format) for column in sheet.columns]
    widths = "".join(
        f'<col min="{at}" max="{at}" width="{_width(column, [row[at - 1] for row in rows])}" customWidth="1"/>'
        for at, column in enumerate(sheet.columns, 1)
    )
    lines = [_row(1, [column.name for column in sheet.columns], [_HEADER] * len(styles))]
    lines += [_row(number, row, styles) for number, row in enumerate(rows, 2)]
    last = f"{_letters(len(styles))}{len(rows) + 1}"
    return (
        f'<worksheet xmlns="{_MAIN}"><sheetViews><sheetView workbookViewId="0"><pane ySplit="1" topLeftCell="A2" '
        'activePane="bottomLeft" state="frozen"/></sheetView></sheetViews>'
        f'<cols>{widths}</cols><sheetData>{"".join(lines)}</sheetData><autoFilter ref="A1:{last}"/></worksheet>'
    )


def _row(number: int, cells: Sequence[Cell], styles: Sequence[int]) -> str:
    elements = (
        _cell(f"{_letters(column)}{number}", cell, style)
        for column, (cell, style) in enumerate(zip(cells, styles, strict=True), 1)
    )
    return f'<row r="{number}">{"".join(elements)}</row>'


def _cell(place: str, value: Cell, style: int) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and math.isinf(value):
        value = str(value)
    if isinstance(value, str):
        text = escape(_plain(value))
        return f'<c r="{place}" s="{style}" t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>'
    return f'<c r="{place}" s="{style}"><v>{value!r}</v></c>'


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"_x{ord(match[0]):04X}_", text[:_MOST_TEXT])


def _attribute(text: str) -> str:
    return escape(_plain(text), {'"': "&quot;"})


def _letters(number: int) -> str:
    """The name of a column, from 1.

    >>> _letters(1), _letters(26), _letters(27), _letters(703)
    ('A', 'Z', 'AA', 'AAA')
    """
    text = ""
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("A") + rest) + text
    return text


def _width(column: Column, values: Sequence[Cell]) -> int:
    longest = max((len(value) for value in values if isinstance(value, str)), default=0)
    return min(60, max(len(column.name) + 3, longest + 1, 9))
