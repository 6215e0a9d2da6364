"""Small faults in Python sources: a comparison turned, a number off by one, a condition negated, a statement left out, nothing
returned, an operator exchanged. Only bodies of functions: tables, annotations, docstrings, assertions and what is raised stay.

    if value > best:      ->      if value >= best:
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

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
    key: str
    """File, function and words: a name that stays when other functions change."""


def _is_docstring(tree: ast.AST) -> bool:
    """Whether it is a string that stands alone."""
    return (
        isinstance(tree, ast.Expr)
        and isinstance(tree.value, ast.Constant)
        and isinstance(tree.value.value, str)
    )


def _is_reshape(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether it is `array.reshape(-1)`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "reshape"
        and [ast.unparse(argument) for argument in node.args] == ["-1"]
    )


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _change(node: ast.AST) -> tuple[str, ast.AST] | None:
    """What becomes of a node, with the words for it."""
    new = copy.copy(node)
    if isinstance(new, ast.Compare) and type(new.ops[0]) in _SWAPS:
        new.ops = [_SWAPS[type(new.ops[0])](), *new.ops[1:]]
        return f"{ast.unparse(node)} -> {ast.unparse(new)}", new
    if isinstance(new, ast.BinOp | ast.BoolOp) and type(new.op) in _SWAPS:
        new.op = _SWAPS[type(new.op)]()
        return f"{ast.unparse(node)} -> {ast.unparse(new)}", new
    if isinstance(new, ast.Constant) and type(new.value) is int:
        new.value += 1
        return f"{new.value - 1} -> {new.value}", new
    if isinstance(new, ast.Constant) and type(new.value) is bool:
        new.value = not new.value
        return f"{not new.value} -> {new.value}", new
    if isinstance(new, ast.If | ast.IfExp | ast.While):
        words = f"if {ast.unparse(new.test)} -> if not ..."
        new.test = ast.copy_location(ast.UnaryOp(ast.Not(), new.test), new.test)
        return words, new
    if isinstance(new, ast.Return) and not (new.value is None or _is_none(new.value)):
        new.value = ast.copy_location(ast.Constant(None), new.value)
        return f"{ast.unparse(node)} -> return None", new
    if isinstance(new, ast.AugAssign) or (isinstance(new, ast.Expr) and isinstance(new.value, ast.Call)):
        return f"{ast.unparse(node)} -> left out", ast.Pass()
    return None


def _inside_functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Nodes of function bodies in which faults are planted, each with the name of its function."""

    def walk(name: str, node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
        if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.arguments) or _is_docstring(node):
            return
        if _is_reshape(node):  # NumPy takes any negative number as it takes -1
            yield name, node
            node = node.func
        yield name, node
        kept = getattr(node, "annotation", None), getattr(node, "returns", None)
        for child in ast.iter_child_nodes(node):
            if not any(child is one for one in kept):
                yield from walk(name, child)

    def functions(prefix: str, node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                for statement in child.body:
                    yield from walk(prefix + child.name, statement)
            elif isinstance(child, ast.ClassDef):
                yield from functions(f"{prefix}{child.name}.", child)

    yield from functions("", tree)


def faults_of(path: Path, root: Path) -> list[Fault]:
    """All faults that can be planted into a file."""
    name, faults, seen = path.relative_to(root).as_posix(), [], Counter[str]()
    for function, node in _inside_functions(ast.parse(path.read_bytes())):
        change = _change(node)
        if change is not None:
            words = " ".join(change[0].split())[:140]
            key = f"{name} {function}: {words}"
            seen[key] += 1
            again = f" ({seen[key]})" if seen[key] > 1 else ""
            faults.append(Fault(name, node.lineno, words, len(faults), key + again))  # type: ignore[attr-defined]
    return faults


def planted(source: bytes, number: int) -> ast.Module:
    """The syntax tree of a source with fault `number`; lines keep their numbers."""
    tree = ast.parse(source)
    changes = ((node, _change(node)) for _, node in list(_inside_functions(tree)))
    node, change = [(node, change) for node, change in changes if change is not None][number]
    _replace(tree, node, ast.copy_location(change[1], node))
    return ast.fix_missing_locations(tree)


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
                return
            if isinstance(value, list) and any(one is old for one in value):
                value[next(k for k, one in enumerate(value) if one is old)] = new
                return
