"""Tutorials are executed, block by block; `python tests/tutorials.py --write` writes what they print into the pages.

In a block `console`, a line `$ command` is run, and the lines below it are what it prints; `...` stands for lines that are left
out. A block after `<!-- file: NAME -->` is a file, after `<!-- append: NAME -->` more lines of it. A block `python` is run, and
a block `text` after it is what it prints. The pictures of a page are files that its blocks write. Figures are not compared: a
better schedule has others.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent))
from support.paths import ROOT

PAGES = sorted((ROOT / "docs").glob("tutorial-*.md"))
_BLOCK = re.compile(r"(?:^<!-- (file|append): (\S+) -->\n+)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PICTURE = re.compile(r"!\[[^\]]+\]\(images/([\w.-]+)\)")


def _run(command: list[str] | str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    surroundings = os.environ | {
        "PATH": path,
        "COLUMNS": "120",
        "NO_COLOR": "1",
        "NPUC_CACHE": str(folder / "cache"),
    }
    done = subprocess.run(
        command,
        shell=isinstance(command, str),
        cwd=folder,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode:
        raise AssertionError(f"{command} ended with {done.returncode}: {done.stderr[-1500:]}")
    return "".join(line.rstrip() + "\n" for line in done.stdout.strip("\n").splitlines())


def _console(text: str, folder: Path) -> str:
    made = []
    for part in re.split(r"^(?=\$ )", text, flags=re.MULTILINE):
        if part.startswith("$ "):
            command = part.partition("\n")[0][2:]
            made.append(f"$ {command}\n{_run(command, folder)}")
    return "\n".join(made)


def executed(page: Path, folder: Path) -> tuple[str, int]:
    """The page with what its blocks print now, and how many blocks were executed."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    text, count, printed = page.read_text(encoding="utf-8"), 0, ""

    def block(match: re.Match[str]) -> str:
        nonlocal count, printed
        way, name, kind, body = match.groups()
        if name:
            with (folder / name).open("a" if way == "append" else "w", encoding="utf-8") as file:
                file.write(body)
            new = body
        elif kind == "console":
            printed_now = _console(body, folder)
            new = body if "\n...\n" in body and same(body, printed_now) else printed_now
        elif kind == "python":
            printed, new = _run([sys.executable, "-c", body], folder), body
        elif kind == "text" and printed:
            new, printed = printed, ""
        else:
            return match[0]
        count += 1
        first = match.start(4) - match.start()
        return match[0][:first] + new + match[0][first + len(body) :]

    return _BLOCK.sub(block, text), count


def pictures(page: Path) -> list[str]:
    """The names of a page's pictures in docs/images, which its blocks write under the same names."""
    return _PICTURE.findall(page.read_text(encoding="utf-8"))


def picture_size(path: Path) -> tuple[int, int] | None:
    """Width and height of a picture of pixels; an SVG file, which has none, is read as XML."""
    if path.suffix == ".svg":
        ElementTree.parse(path)
        return None
    with Image.open(path) as image:
        return image.size


def same(written: str, now: str) -> bool:
    """Whether a page says what its blocks print, but for figures, and for the lines that `...` stands for."""

    def plain(text: str) -> str:
        return re.sub(
            r" +", " ", re.sub(r"\d[\d.,]*", "N", re.sub(r"^\.\.\.$", "<more>", text, flags=re.MULTILINE))
        )

    pattern = re.escape(plain(written)).replace("<more>" + re.escape("\n"), r"(?:.*\n)*?")
    return re.fullmatch(pattern, plain(now)) is not None


def main() -> None:
    """Execute all pages."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true", help="write what is printed into the pages")
    parser.add_argument("--only", default="", help="part of the name of a page")
    given, blocks = parser.parse_args(), 0
    for page in (page for page in PAGES if given.only in page.name):
        with tempfile.TemporaryDirectory() as folder:
            now, count = executed(page, Path(folder))
            blocks += count
            right = same(page.read_text(encoding="utf-8"), now)
            print(f"{page.name}: {count} blocks, {'as written' if right else 'other output'}", flush=True)
            if given.write:
                page.write_text(now, encoding="utf-8")
                for name in pictures(page):
                    shutil.copy(Path(folder) / name, page.parent / "images" / name)
    print(f"{blocks} blocks executed")


if __name__ == "__main__":
    main()
