"""How many faults the tests notice: `make mutate COUNT=100`, or `python tests/mutate.py --rooms evaluate,cli --count 20`.

A seeded sample of small faults (a comparison turned, a number off by one, a condition negated, a statement left out, a default
returned, an operator exchanged) is planted one at a time into a copy of the sources. The tests of a fault are those of the folder
that mirrors its room, and of those the files that execute its line: coverage is measured once a room. `--choose imports` takes
those that import its module, which needs no time to measure. A fault that no test fails for is printed with its line. Some change
nothing (a limit that is never met, a cache); look at each before it counts.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from support.paths import ROOT
from support.tree_copy import environment_of

ROOMS = {
    "arithmetic": "arithmetic", "calib": "calib", "cli": "cli", "codegen": "codegen", "compare": "compare", "debug": "debug",
    "engine": "engine", "evaluate": "evaluate", "explore": "explore", "export": "export", "frontend": "frontend",
    "images": "images", "ir": "ir", "kernels": "kernels", "lang": "lang",
    "metrics": "evaluate", "partition": "partition", "plugins": "plugins",
    "profile": "profile", "program": "program codegen", "quant": "quant", "runtime": "runtime", "schedule": "schedule codegen",
    "sim": "sim", "target": "target", "train": "train", "transform": "transform",
}  # fmt: skip
"""Rooms of npuc, and the folders of tests that are theirs."""
LONGEST = 240
"""Seconds that the tests of a fault may take; a hang is noticed, too."""

_SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """A place in a file, and what becomes of it."""

    path: str
    line: int
    words: str
    number: int
    """Which of the faults of this file."""


def _text(tree: ast.AST) -> bool:
    """Whether it is a string that stands alone: a docstring."""
    return (
        isinstance(tree, ast.Expr)
        and isinstance(tree.value, ast.Constant)
        and isinstance(tree.value.value, str)
    )


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What may become of a node, each with the words for it."""
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare) and type(new.ops[0]) in _SWAPS:
        new.ops[0] = _SWAPS[type(new.ops[0])]()
        yield f"{ast.unparse(node)} -> {ast.unparse(new)}", new
    elif isinstance(new, ast.BinOp | ast.BoolOp) and type(new.op) in _SWAPS:
        new.op = _SWAPS[type(new.op)]()
        yield f"{ast.unparse(node)} -> {ast.unparse(new)}", new
    elif isinstance(new, ast.Constant) and type(new.value) is int:
        new.value += 1
        yield f"{node.value} -> {new.value}", new  # type: ignore[attr-defined]
    elif isinstance(new, ast.Constant) and type(new.value) is bool:
        new.value = not new.value
        yield f"{not new.value} -> {new.value}", new
    elif isinstance(new, ast.If | ast.IfExp | ast.While):
        new.test = ast.UnaryOp(ast.Not(), new.test)
        yield f"if {ast.unparse(node.test)} -> if not ...", new  # type: ignore[attr-defined]
    elif isinstance(new, ast.Return) and new.value is not None:
        new.value = ast.Constant(None)
        yield f"{ast.unparse(node)} -> return None", new
    elif isinstance(new, ast.AugAssign) or (isinstance(new, ast.Expr) and isinstance(new.value, ast.Call)):
        yield f"{ast.unparse(node)} -> left out", ast.Pass()


def _inside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes of function bodies: tables and annotations are left alone, as are docstrings, assertions and what is raised."""

    def walk(node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr) or _text(node):
            return
        yield node
        for child in ast.iter_child_nodes(node):
            yield from walk(child)

    def functions(node: ast.AST) -> Iterator[ast.AST]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                for statement in child.body:
                    yield from walk(statement)
            elif isinstance(child, ast.ClassDef):
                yield from functions(child)

    yield from functions(tree)


def faults_of(path: Path, root: Path) -> list[Fault]:
    """All faults that can be planted into a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = str(path.relative_to(root))
    found = ((node, words) for node in _inside_functions(tree) for words, _ in _changes(node))
    return [
        Fault(name, node.lineno, " ".join(words.split())[:140], k) for k, (node, words) in enumerate(found)
    ]  # type: ignore[attr-defined]


def planted(source: str, number: int) -> str:
    """The source with fault `number`; only the lines of the statement around it are written anew."""
    tree = ast.parse(source)
    count = 0
    for node in list(_inside_functions(tree)):
        for _, new in _changes(node):
            if count == number:
                _replace(tree, node, ast.copy_location(new, node))
                return ast.unparse(ast.fix_missing_locations(tree))
            count += 1
    raise IndexError(number)


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
                return
            if isinstance(value, list) and any(one is old for one in value):
                value[next(k for k, one in enumerate(value) if one is old)] = new
                return


def _pytest(tree: Path, tests: list[str], *options: str, seconds: int = LONGEST) -> tuple[int | None, float]:
    """Exit status of pytest in the copy (None: it took too long), and its seconds."""
    surroundings = environment_of(tree) | {"OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow and not browser",
    ]
    start = time.monotonic()
    try:
        done = subprocess.run(
            [*command, *options, *tests], cwd=tree, env=surroundings, timeout=seconds, capture_output=True
        )
    except subprocess.TimeoutExpired:
        return None, time.monotonic() - start
    return done.returncode, time.monotonic() - start


_TRACER = """
# Which files of tests execute which lines of npuc: one pass over the tests of a room.
import json, os, sys
import pytest

SOURCE, OUT = os.environ["MUTATE_SOURCE"], os.environ["MUTATE_OUT"]
seen, now = {}, ""


def local(frame, event, argument):
    if event == "line":
        seen.setdefault(frame.f_code.co_filename, {}).setdefault(frame.f_lineno, set()).add(now)
    return local


def trace(frame, event, argument):
    return local if frame.f_code.co_filename.startswith(SOURCE) else None


def pytest_runtest_setup(item):
    global now
    now = item.nodeid.split("::")[0]
    sys.settrace(trace)


def pytest_runtest_teardown(item):
    sys.settrace(None)


def pytest_sessionfinish(session):
    kept = {name[len(SOURCE) + 1 :]: {str(k): sorted(v) for k, v in lines.items()} for name, lines in seen.items()}
    with open(OUT, "w") as file:
        json.dump(kept, file)
"""


def coverage(tree: Path, room: str, seconds: int) -> dict[str, dict[str, list[str]]]:
    """File -> line -> files of tests that execute it; empty where the tests of the room did not come to an end in time."""
    out = tree / f"coverage-{room}.json"
    (tree / "sitecustomize").mkdir(exist_ok=True)
    (tree / "sitecustomize" / "mutate_tracer.py").write_text(_TRACER)
    os.environ |= {"MUTATE_SOURCE": str(tree / "src/npuc" / room), "MUTATE_OUT": str(out)}
    tests = [f"tests/{folder}" for folder in ROOMS[room].split() if (tree / "tests" / folder).is_dir()]
    _pytest(tree, tests, "-p", "mutate_tracer", seconds=seconds)
    return json.loads(out.read_text()) if out.exists() else {}


def copy_tree(to: Path) -> None:
    """What tests need of the repository."""
    for name in ("src", "tests", "docs", "examples", "native", "benchmarks", "release"):
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file() and not path.name.startswith(".git"):
            shutil.copyfile(path, to / path.name)
    if (ROOT.parent / "shared").exists():
        (to.parent / "shared").symlink_to((ROOT.parent / "shared").resolve())


def _covering_tests(fault: Fault, lines: dict[str, dict[str, list[str]]], room: str) -> list[str]:
    """The test files for a fault: those that execute its line, the module's own first."""
    module = Path(fault.path)
    covering = lines.get(str(module.relative_to(f"src/npuc/{room}")), {}).get(str(fault.line), [])
    return sorted(covering, key=lambda name: (module.stem not in name, name))


def _named_tests(fault: Fault, tree: Path, room: str) -> list[str]:
    """The test files for a fault without coverage: those of the room's folders that import its module or its package."""
    module = ".".join(Path(fault.path).relative_to("src").with_suffix("").parts).removesuffix(".__init__")
    wanted = (
        f"from {module} import",
        f"import {module}",
        f"from {module.rpartition('.')[0]} import {module.rpartition('.')[2]}",
    )
    files = [
        path for folder in ROOMS[room].split() for path in sorted((tree / "tests" / folder).glob("test_*.py"))
    ]
    found = [path for path in files if any(words in path.read_text(encoding="utf-8") for words in wanted)]
    return [str(path.relative_to(tree)) for path in found]


def main() -> None:
    """Plant faults and print the score of each room."""
    parser = argparse.ArgumentParser(description="Plant faults and see whether the tests notice.")
    parser.add_argument("--count", type=int, default=100, help="faults over all rooms")
    parser.add_argument("--rooms", default="", help=f"some of: {', '.join(ROOMS)}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", type=int, default=3, help="test files for a fault, at most")
    parser.add_argument("--tracing", type=int, default=900, help="seconds for the coverage of a room")
    parser.add_argument(
        "--choose", choices=("coverage", "imports"), default="coverage", help="how tests are chosen"
    )
    args = parser.parse_args()
    rooms = args.rooms.split(",") if args.rooms else list(ROOMS)
    rng = random.Random(args.seed)
    caught: dict[str, list[bool]] = {}
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        tree = Path(folder, "npuc")
        tree.mkdir()
        copy_tree(tree)
        for number, room in enumerate(rooms):
            count = args.count // len(rooms) + (number < args.count % len(rooms))
            faults = [
                f for path in sorted((tree / "src/npuc" / room).rglob("*.py")) for f in faults_of(path, tree)
            ]
            lines = coverage(tree, room, args.tracing) if args.choose == "coverage" else {}
            if args.choose == "coverage" and not lines:
                print(f"{room}: its tests failed or took longer than {args.tracing} s; left out", flush=True)
                continue
            rng.shuffle(faults)
            tried = 0
            for fault in faults:
                if tried == count:
                    break
                tests = _covering_tests(fault, lines, room) if lines else _named_tests(fault, tree, room)
                if not tests:
                    continue  # no test of the room's folder is there: others may be, so it says nothing of the room
                tried += 1
                path = tree / fault.path
                source = path.read_text(encoding="utf-8")
                path.write_text(planted(source, fault.number), encoding="utf-8")
                status, seconds = _pytest(tree, tests[: args.tests])
                path.write_text(source, encoding="utf-8")
                caught.setdefault(room, []).append(status != 0)
                verdict = "noticed" if status else "MISSED "
                print(f"{verdict} {fault.path}:{fault.line} {fault.words} ({seconds:.0f} s)", flush=True)
    for room, results in caught.items():
        print(f"{room:12} {sum(results):3} of {len(results):3}  {sum(results) / len(results):.0%}")
    whole = [one for results in caught.values() for one in results]
    if whole:
        print(f"{'all':12} {sum(whole):3} of {len(whole):3}  {sum(whole) / len(whole):.0%}")


if __name__ == "__main__":
    main()
