"""The documentation as a site: `make site` writes build/site/html, with search that works offline, in light and dark.

The pages are those of docs/. Their order is that of docs/index.md, which is the one list of all pages: each heading of it is a
section, each link an entry. Pages of the repository's root join them; links to sources become the names of files. The Python API
comes from docstrings. A warning of mkdocs ends the build, and so does a link of the result that leads nowhere (`site_links.py`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import site_links

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "site"
THEME = Path(__file__).resolve().parent / "site_theme"
WORKER = ROOT / "npm" / "node_modules" / "iframe-worker" / "shim" / "index.js"
"""Search in pages that are opened from a disk, where browsers start no workers. The theme would load it from the web."""
_WORKER_ON_THE_WEB = "https://unpkg.com/iframe-worker/shim"
ROOT_PAGES = {
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
}
API = ("npuc", "npuc.flow", "npuc.runtime", "npuc.lang", "npuc.target", "npuc.errors")
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^)\s]+)\)")

CONFIG = """
site_name: npuc
site_description: An open NPU compiler suite
docs_dir: docs
site_dir: html
use_directory_urls: false
theme:
  name: material
  font: false
  features: [navigation.tabs, navigation.top, navigation.indexes, content.code.copy, search.highlight]
  palette:
    - media: "(prefers-color-scheme: light)"
      scheme: default
      primary: indigo
      toggle: {{icon: material/weather-night, name: Dark}}
    - media: "(prefers-color-scheme: dark)"
      scheme: slate
      primary: indigo
      toggle: {{icon: material/weather-sunny, name: Light}}
plugins:
  - search
  - offline
  - mkdocstrings:
      handlers:
        python:
          paths: [{source}]
          options: {{show_root_heading: true, show_source: false, members_order: source, filters: ["!^_"]}}
extra_css: [site.css]
extra_javascript: [site.js]
markdown_extensions: [tables, toc, admonition, footnotes, attr_list]
validation: {{links: {{anchors: warn, unrecognized_links: warn}}, nav: {{omitted_files: warn, not_found: warn}}}}
nav:
{nav}
"""


def index_sections(text: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """The headings of the index with the links below each, pages of docs and of the root; the first place of a page counts."""
    sections: list[tuple[str, list[tuple[str, str]]]] = []
    seen: set[str] = set()
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        entries = []
        for title, target in _LINK.findall(body):
            page = _site_path(target.partition("#")[0])
            if page and page not in seen:
                seen.add(page)
                entries.append((" ".join(title.replace("`", "").split()), page))
        sections.append((heading.strip(), entries))
    return sections


def _site_path(target: str) -> str | None:
    """Where a link of a page of docs leads in the site; None: out of it."""
    if target.startswith("../"):
        return ROOT_PAGES.get(target[3:])
    return target if target.endswith(".md") else None


def _rewritten(text: str, at_root: bool) -> str:
    """Links as the site has them; those to sources become the names of the files."""

    def change(match: re.Match[str]) -> str:
        title, target = match.groups()
        path, mark, anchor = target.partition("#")
        if "://" in target or not path:
            return match[0]
        inside = (
            path if not at_root else path.removeprefix("docs/") if path.startswith("docs/") else f"../{path}"
        )
        if not inside.startswith("../") and (ROOT / "docs" / inside).exists():
            return f"[{title}]({inside}{mark}{anchor})"
        page = _site_path(inside)
        return f"[{title}]({page}{mark}{anchor})" if page else f"{title} (`{inside.removeprefix('../')}`)"

    parts = re.split(r"(^```.*?^```\s*$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(change, part) for part in parts)


def write_sources(out: Path) -> None:
    """The pages and the configuration."""
    pages = out / "docs"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(ROOT / "docs", pages)
    for path in THEME.iterdir():
        shutil.copy(path, pages / path.name)
    for path in pages.glob("*.md"):
        path.write_text(_rewritten(path.read_text(encoding="utf-8"), at_root=False), encoding="utf-8")
    for name, page in ROOT_PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/images/", "](images/")
        (pages / page).write_text(_rewritten(text, at_root=True), encoding="utf-8")
    api = "".join(f"::: {name}\n\n" for name in API)
    (pages / "api.md").write_text(
        f"# The Python API\n\n[What stays](stability.md) is promised.\n\n{api}", encoding="utf-8"
    )
    sections = index_sections((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    known = {page for _, entries in sections for _, page in entries}
    lines = ["  - Home: [index.md, readme.md]" if "readme.md" not in known else "  - Home: index.md"]
    for heading, entries in sections:
        lines.append(f'  - "{heading}":')
        lines += [f'    - "{title}": {page}' for title, page in entries]
        if heading == "Reference":
            lines.append('    - "The Python API": api.md')
    rest = sorted(page for page in ROOT_PAGES.values() if page not in known and page != "readme.md")
    lines += ['  - "The project":', *(f"    - {page}" for page in rest)]
    (out / "mkdocs.yml").write_text(
        CONFIG.format(source=ROOT / "src", nav="\n".join(lines)), encoding="utf-8"
    )


def bring_worker(site: Path) -> None:
    """Let the pages load the worker of the search from the site itself."""
    shutil.copy(WORKER, site / "assets" / "javascripts" / "iframe-worker.js")
    for path in site.glob("*.html"):
        text = path.read_text(encoding="utf-8")
        path.write_text(
            text.replace(_WORKER_ON_THE_WEB, "assets/javascripts/iframe-worker.js"), encoding="utf-8"
        )


def main() -> None:
    """Write the sources, then have mkdocs build them; a warning is an error."""
    if not WORKER.is_file():
        sys.exit("the search of the site needs a package of npm, which is not here: make studio")
    OUT.mkdir(parents=True, exist_ok=True)
    write_sources(OUT)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(OUT / "mkdocs.yml")]
    # An advertisement for another generator is printed as a warning.
    if subprocess.run(command, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}).returncode:
        sys.exit(1)
    bring_worker(OUT / "html")
    pages = len(list((OUT / "html").glob("*.html")))
    print(f"{pages} pages in {(OUT / 'html').relative_to(ROOT)}; open index.html")
    sys.exit(site_links.main([str(OUT / "html")]))


if __name__ == "__main__":
    main()
