"""Tutorials are executed, block by block; `python tests/tutorials.py --write` writes what they print into the pages.

In a block `console`, a line `$ command` is run, and the lines below it are what it prints; `...` stands for lines that are left
out. A block after `<!-- file: NAME -->` is a file. A block `python` is run, and a block `text` after it is what it prints.
Figures are not compared: a better schedule has others.
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

sys.path.insert(0, str(Path(__file__).resolve().parent))
from support.paths import ROOT

PAGES = sorted((ROOT / "docs").glob("tutorial-*.md"))
_BLOCK = re.compile(r"(?:^<!-- file: (\S+) -->\n+)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


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
        name, kind, body = match.groups()
        if name:
            (folder / name).write_text(body, encoding="utf-8")
            new = body
        elif kind == "console":
            new = _console(body, folder)
        elif kind == "python":
            printed, new = _run([sys.executable, "-c", body], folder), body
        elif kind == "text" and printed:
            new, printed = printed, ""
        else:
            return match[0]
        count += 1
        first = match.start(3) - match.start()
        return match[0][:first] + new + match[0][first + len(body) :]

    return _BLOCK.sub(block, text), count


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
    write, blocks = parser.parse_args().write, 0
    for page in PAGES:
        with tempfile.TemporaryDirectory() as folder:
            now, count = executed(page, Path(folder))
        blocks += count
        print(
            f"{page.name}: {count} blocks, {'as written' if same(page.read_text(), now) else 'other output'}"
        )
        if write:
            page.write_text(now, encoding="utf-8")
    print(f"{blocks} blocks executed")


if __name__ == "__main__":
    main()
