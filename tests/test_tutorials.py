"""Tutorials: every command and every Python block of a page is executed, and prints what the page says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tutorials


@pytest.mark.parametrize("page", tutorials.PAGES, ids=lambda page: page.stem)
def test_a_page_prints_what_it_says(page: Path, tmp_path: Path, record_property: Any) -> None:
    now, count = tutorials.executed(page, tmp_path)
    record_property("executed blocks", count)
    assert count >= 3
    assert tutorials.same(page.read_text(encoding="utf-8"), now), now
    names = tutorials.pictures(page)
    assert names
    for name in names:
        kept, made = page.parent / "images" / name, tmp_path / name
        assert tutorials.picture_size(kept) == tutorials.picture_size(made), name


def test_other_output_is_noticed() -> None:
    page = "```console\n$ npuc x\n10 cycles in 0.5 s\n...\nlast\n```\n"
    assert tutorials.same(page, page.replace("0.5 s", "7 s").replace("...\n", "a\nb\n"))
    assert not tutorials.same(page, page.replace("10 cycles", "10 bytes"))
    assert not tutorials.same(page, page.replace("...\nlast", "a\nlist"))
