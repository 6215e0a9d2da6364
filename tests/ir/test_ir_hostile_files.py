"""Programs and weight files that are small to write and large to read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from npuc.errors import ParseError, WeightFileError
from npuc.ir.text import parse_graph
from npuc.ir.weights import load_safetensors

EMPTY = '"builtin.module"() ({ }) {a = %s} : () -> ()'


def _aliases(levels: int, times: int, between: str = "\n", equals: str = " = ") -> str:
    lines = [f"#a0{equals}1 : i64"]
    lines += [f"#a{i}{equals}[{','.join([f'#a{i - 1}'] * times)}]" for i in range(1, levels)]
    return between.join([*lines, "\n" + EMPTY % f"#a{levels - 1}"])


@pytest.mark.parametrize(
    ("between", "equals"), [("\n", " = "), (" ", "="), ("\n", "\n="), ("\n", " // why\n\t// = #a\n= ")]
)
def test_aliases_that_double_are_refused(between: str, equals: str) -> None:
    with pytest.raises(ParseError, match="stands for more than 65536 others"):
        parse_graph(_aliases(60, 4, between, equals))


@pytest.mark.parametrize(
    "program", ["builtin.module {", "builtin.module attributes {a = 1} {", '"builtin.module"() ({']
)
def test_a_program_uses_an_alias_as_often_as_it_likes(program: str) -> None:
    """No word of a limit, but that is all: what follows is no program."""
    with pytest.raises(ParseError) as caught:
        parse_graph(f"#a = 1 : i64\n#b = 2 : i64\n{program}\n" + "#a " * 70_000)
    assert "stands for" not in str(caught.value)


def test_aliases_are_fine() -> None:
    """They are read: what is missing is a function."""
    with pytest.raises(Exception) as caught:
        parse_graph(_aliases(3, 4)).verify()
    assert "alias" not in str(caught.value)


@pytest.mark.parametrize("tail", ["", "\n", "\\q", "\\"], ids=repr)
def test_a_string_that_does_not_end_is_refused_at_once(tail: str) -> None:
    """A pattern that backtracks takes 2^n steps over n characters: hours over sixty, so no time needs to be measured."""
    with pytest.raises(ParseError, match="closing string literal"):
        parse_graph(EMPTY % ('"' + "name of a layer " * 2000 + tail))


def _file(folder: Path, header: Any, data: bytes = b"1234") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = folder / "x.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


ENTRY = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b'{"a":[' + b"[]," * 3_000_000 + b"[]]}", "more than any network needs"),
        (b'{"w": %b, "w": %b}' % ((json.dumps(ENTRY).encode(),) * 2), "there twice"),
        ({"w": {**ENTRY, "shape": [1.5]}}, "malformed entry"),
        ({"w": {**ENTRY, "shape": [True]}}, "malformed entry"),
        ({"w": {**ENTRY, "shape": ["1"]}}, "malformed entry"),
        ({"w": {**ENTRY, "shape": [0] * 1000, "data_offsets": [0, 0]}}, "malformed entry"),
        ({"w": {**ENTRY, "data_offsets": [0.5, 4]}}, "malformed entry"),
        ({"w": {**ENTRY, "data_offsets": [0, 4, 8]}}, "malformed entry"),
        ({"w": {**ENTRY, "shape": 7}}, "malformed entry"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, header: Any, words: str) -> None:
    with pytest.raises(WeightFileError, match=words):
        load_safetensors(_file(tmp_path, header))


def test_a_plain_header_is_read(tmp_path: Path) -> None:
    assert load_safetensors(_file(tmp_path, {"w": ENTRY}))["w"].shape == (1,)
