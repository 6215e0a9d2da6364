"""Check the built site: every link leads to a file and an anchor that are there, and every page can be reached from the first.

    python release/site_links.py build/site/html

It reads the HTML as a browser gets it, so that what a theme or a generator adds is checked too. Addresses on the web are not
asked: the site is for offline use, and `make site` must not depend on other machines.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_PLACES = {
    "a": "href",
    "area": "href",
    "link": "href",
    "img": "src",
    "script": "src",
    "source": "src",
    "iframe": "src",
}


@dataclass
class Page(HTMLParser):
    """What one page points to, and the anchors that it has."""

    links: list[tuple[str, str]] = field(default_factory=list)
    """Tags and addresses."""
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep links and anchors."""
        values = dict(attrs)
        self.anchors.update(
            value
            for name in ("id", "name")
            if (value := values.get(name)) is not None and (name == "id" or tag == "a")
        )
        if address := values.get(_PLACES.get(tag, "")):
            self.links.append((tag, address))


def read_page(path: Path) -> Page:
    """The links and anchors of a file."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def problems(site: Path, first: str = "index.html") -> tuple[list[str], int]:
    """What is wrong, a sentence each, and how many links were followed."""
    site = site.resolve()
    # The page for addresses that are not there is served under any of them; its links begin at the root of a server.
    pages = {path: read_page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    found, followed = [], 0
    leads: dict[Path, set[Path]] = {path: set() for path in pages}
    for path, page in pages.items():
        for tag, address in page.links:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            followed += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            where = f"{path.relative_to(site)}: {address}"
            if not target.is_file() or not target.is_relative_to(site):
                found.append(f"{where}: no such file")
            elif target in pages:
                if tag == "a":
                    leads[path].add(target)
                anchor = unquote(parts.fragment)
                if anchor and anchor not in pages[target].anchors:
                    found.append(f"{where}: no such anchor")
    reached, waiting = set(), [site / first]
    while waiting:
        path = waiting.pop()
        if path in leads and path not in reached:
            reached.add(path)
            waiting += leads[path]
    found += [f"{path.relative_to(site)}: no page leads to it" for path in pages if path not in reached]
    return found, followed


def main(arguments: list[str]) -> int:
    """Check the folder that is named."""
    if len(arguments) != 1:
        print("usage: python release/site_links.py FOLDER", file=sys.stderr)
        return 2
    found, followed = problems(Path(arguments[0]))
    for line in found:
        print(line, file=sys.stderr)
    print(f"{followed} links followed, {len(found)} lead nowhere")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
