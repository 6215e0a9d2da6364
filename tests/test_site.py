"""The documentation as a site: every page has its place in the navigation, and links lead to pages of the site."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from support.paths import ROOT

sys.path.insert(0, str(ROOT / "release"))
import site_links
import site_pages

LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s#]+)[^)\s]*\)")


def _outside_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```\s*$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def test_every_page_can_be_reached(tmp_path: Path) -> None:
    site_pages.write_sources(tmp_path)
    nav = (tmp_path / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    pages = {path.name for path in (tmp_path / "docs").glob("*.md")}
    assert pages - set(re.findall(r"[\w.-]+\.md", nav)) == set()
    assert len(re.findall(r"^  - ", nav, re.MULTILINE)) >= 6


def test_links_lead_to_pages_of_the_site(tmp_path: Path) -> None:
    site_pages.write_sources(tmp_path)
    for page in (tmp_path / "docs").glob("*.md"):
        for target in LINK.findall(_outside_blocks(page.read_text())):
            assert "://" in target or (tmp_path / "docs" / target).exists(), f"{page.name}: {target}"


def test_a_page_that_the_index_does_not_name_is_in_no_section() -> None:
    """The one list of pages: what is not linked there has no place, and the first test fails."""
    sections = site_pages.index_sections(
        "## A\n\n- [One](one.md), [two](two.md#x)\n\n## B\n\n- [one again](one.md), [code](../src/x.py)\n"
    )
    assert sections == [("A", [("One", "one.md"), ("two", "two.md")]), ("B", [])]


def test_links_of_the_built_site_are_followed(tmp_path: Path) -> None:
    """A file, an anchor, a picture that are not there, and a page that nobody can reach."""
    (tmp_path / "index.html").write_text(
        '<a href="two.html#there">a</a> <a href="two.html#gone">b</a> <a href="gone.html">c</a> <img src="gone.png">'
        '<a href="https://example.org/x">d</a> <a href="#own">e</a> <p id="own"></p>'
    )
    (tmp_path / "two.html").write_text(
        '<h1 id="there">two</h1><a href="../outside.html">f</a><a href=".">g</a>'
    )
    (tmp_path / "alone.html").write_text('<a href="index.html">h</a>')
    (tmp_path.parent / "outside.html").write_text("")
    found, followed = site_links.problems(tmp_path)
    assert followed == 8
    assert found == [
        "index.html: two.html#gone: no such anchor",
        "index.html: gone.html: no such file",
        "index.html: gone.png: no such file",
        "two.html: ../outside.html: no such file",
        "alone.html: no page leads to it",
    ]
