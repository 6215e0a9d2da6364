"""Probes in the functions of a module: which statements ran, at the price of one stored byte for each straight run of statements.

    def most(values):                      def most(values):
        best = values[0]                       __npuc_hits__[7] = 1; best = values[0]
        for value in values:        ->         for value in values:
            if value > best:                       __npuc_hits__[8] = 1
                best = value                       if value > best:
        return best                                    __npuc_hits__[9] = 1; best = value
                                               __npuc_hits__[10] = 1; return best

`__npuc_hits__` is a file mapped into memory, so that processes that a test starts leave their marks in it as well. A probe has a
name (`path:function:k`), which stays when other parts of the sources change.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass

HITS = "__npuc_hits__"
_LEAVES = (
    ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match, ast.AsyncFor, ast.AsyncWith, ast.FunctionDef, ast.AsyncFunctionDef,
    ast.ClassDef,
)  # fmt: skip
"""Statements after which the next one may not run, or belongs to other lines than the one before."""


@dataclass(frozen=True)
class Probe:
    """A place from which statements run one after the other."""

    name: str
    line: int


def instrument(tree: ast.Module, path: str, base: int = 0) -> list[Probe]:
    """Put probes into the functions of a tree, numbered from `base` in the order of lines; the list of them."""
    probes: list[Probe] = []
    counts: Counter[str] = Counter()

    def probe(function: str, statement: ast.stmt) -> ast.stmt:
        mark = ast.parse(f"{HITS}[{base + len(probes)}] = 1").body[0]
        for node in ast.walk(mark):
            ast.copy_location(node, statement)
        probes.append(Probe(f"{path}:{function}:{counts[function]}", statement.lineno))
        counts[function] += 1
        return mark

    def body(statements: list[ast.stmt], function: str) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        due = True
        for number, statement in enumerate(statements):
            words = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if (
                due
                and function
                and not (number == 0 and words)
                and not isinstance(statement, ast.Global | ast.Nonlocal)
            ):
                made.append(probe(function, statement))
                due = False
            within(statement, function)
            made.append(statement)
            due = due or isinstance(statement, _LEAVES)
        return made

    def within(statement: ast.AST, function: str) -> None:
        name = function
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{names[-1]}.{statement.name}" if names else statement.name
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(f"{names[-1]}.{statement.name}" if names else statement.name)
        if isinstance(statement, ast.ClassDef):
            name = ""
        for field in ("body", "orelse", "handlers", "finalbody", "cases"):
            parts = getattr(statement, field, None)
            if not isinstance(parts, list):
                continue
            if field in ("handlers", "cases"):
                for part in parts:
                    part.body = body(part.body, name)
            else:
                setattr(statement, field, body(parts, name))
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.pop()

    names: list[str] = []
    within(tree, "")
    ast.fix_missing_locations(tree)
    return probes
