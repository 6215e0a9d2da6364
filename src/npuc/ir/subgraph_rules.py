"""Subgraphs that plugins take for one op of theirs, found among ops of `top`, and so in models of every format.

    @top_pattern('''
        gate = hard_sigmoid(b)
        y = mul(a, gate)
    ''')
    def glu(match):
        return HardGlu.make(match["a"], match["b"], slope=match.op("gate").alpha)

    @top_subgraph("blocks.*/glu")                       # all layers below such a name
    def named(match):
        return HardGlu.make(*match.inputs)

The op that a rule makes has a result for each output of the subgraph, of the same type; tensors keep their names. The pass
`claim-custom-ops`, the first of the canonical form, applies the rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from npuc.errors import NpucError, PluginError, PluginFaultError
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import is_static
from npuc.ir.graph import Graph
from npuc.ir.names import layer_name, location, value_name
from npuc.ir.top import WeightOp
from npuc.plugin_code import fault_of

_COMMUTES = {"add", "mul", "max", "min", "equal"}


@dataclass(frozen=True)
class SubgraphMatch:
    """Ops that a rule takes for one."""

    graph: Graph
    ops: tuple[TopOp, ...]
    """In the order of the network."""
    inputs: tuple[SSAValue, ...]
    """What they read from outside, in the order in which they read it; of a pattern, in the order of its free names."""
    outputs: tuple[SSAValue, ...]
    """What is read outside, in the order of the network; of a pattern, as it states them."""
    values: Mapping[str, SSAValue]
    """Of a pattern, the value of each name."""

    def __getitem__(self, name: str) -> SSAValue:
        return self.values[name]

    def op(self, name: str) -> Any:
        """The op that makes the value of a name."""
        return self.values[name].owner


Make = Callable[[SubgraphMatch], TopOp | None]
"""The op that stands for a subgraph; None leaves it as it is."""


@dataclass(frozen=True)
class _Line:
    results: tuple[str, ...]
    kind: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class _Rule:
    make: Make
    title: str
    name: str = ""
    lines: tuple[_Line, ...] = ()
    outputs: tuple[str, ...] = ()

    @property
    def free(self) -> tuple[str, ...]:
        """The names of a pattern that no line makes."""
        results = {name for line in self.lines for name in line.results}
        read = (name for line in self.lines for name in line.arguments)
        return tuple(dict.fromkeys(name for name in read if name not in results and name != "_"))


SUBGRAPH_RULES: list[_Rule] = []
"""In the order in which they are tried."""


def top_pattern(pattern: str, outputs: Sequence[str] = ()) -> Callable[[Make], Make]:
    """Decorate what makes an op of ops that compute a pattern.

    A line is `result = kind(argument, ...)`, or `a, b = kind(...)`, with the name of an op of `top` (docs/ops.md) and a name
    for each of its operands; `_` is any. `outputs` are the results that may be read elsewhere, the last one if none is named;
    others may not.
    """
    lines = tuple(_line(text) for text in filter(None, map(str.strip, pattern.splitlines())))
    results = [name for line in lines for name in line.results]
    if not lines or len(set(results)) != len(results):
        raise PluginError("a pattern has no lines, or makes a result twice")
    chosen = tuple(outputs) or results[-1:]
    unknown = [name for name in chosen if name not in results]
    if unknown:
        raise PluginError(f"a pattern has the output '{unknown[0]}', and no line makes it")
    for before, line in zip(lines[1:], lines, strict=False):
        known = {
            name for other in lines[lines.index(before) :] for name in (*other.results, *other.arguments)
        }
        if known.isdisjoint((*line.results, *line.arguments)):
            raise PluginError(f"nothing joins the line of '{line.results[0]}' with those behind it")

    def register(make: Make) -> Make:
        title = f"the pattern that ends in {lines[-1].kind}"
        SUBGRAPH_RULES.append(_Rule(make, title, lines=lines, outputs=tuple(chosen)))
        return make

    return register


def top_subgraph(name: str) -> Callable[[Make], Make]:
    """Decorate what makes an op of all ops below a name: `blocks.*/glu/...` are one for each block."""

    def register(make: Make) -> Make:
        SUBGRAPH_RULES.append(_Rule(make, f"the name '{name}'", name=name))
        return make

    return register


def _line(text: str) -> _Line:
    match = re.fullmatch(r"([\w\s,]+?)\s*=\s*(\w+)\(([\w\s,]*)\)", text)
    results = _words(match[1]) if match else ()
    if match is None or not results:
        raise PluginError(f"'{text}' is no line of a pattern", fix="Write it like 'gate = hard_sigmoid(b)'")
    return _Line(results, match[2], _words(match[3]))


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def join_subgraphs(graph: Graph) -> int:
    """Put the ops of plugins in the place of the subgraphs that rules find; returns how many were found."""
    joined = 0
    for rule in SUBGRAPH_RULES:
        for match in list(_named(rule, graph) if rule.name else _matches(rule, graph)):
            if all(op.parent is not None for op in match.ops):
                joined += _replace(rule, match)
    return joined


def _named(rule: _Rule, graph: Graph) -> Iterator[SubgraphMatch]:
    groups: dict[str, list[TopOp]] = {}
    for op in _computing(graph):
        parts = layer_name(op).split("/")
        leading = ("/".join(parts[:end]) for end in range(1, len(parts)))
        name = next((prefix for prefix in leading if prefix and fnmatchcase(prefix, rule.name)), None)
        if name is not None:
            groups.setdefault(name, []).append(op)
    for ops in groups.values():
        inside = set(ops)
        read = dict.fromkeys(value for op in ops for value in op.operands if value.owner not in inside)
        outputs = [value for op in ops for value in op.results if _is_read_outside(value, inside)]
        yield SubgraphMatch(graph, tuple(ops), tuple(read), tuple(outputs), {})


def _matches(rule: _Rule, graph: Graph) -> Iterator[SubgraphMatch]:
    places = {op: place for place, op in enumerate(graph.ops)}
    taken: set[TopOp] = set()
    for op in _computing(graph):
        bound = next(_bindings(rule.lines[::-1], {}, op), None)
        if bound is None:
            continue
        ops = {bound[name].owner for line in rule.lines for name in line.results}
        group = sorted((member for member in ops if isinstance(member, TopOp)), key=places.__getitem__)
        outputs = tuple(bound[name] for name in rule.outputs)
        inside = set(group)
        leaks = any(
            value not in outputs and _is_read_outside(value, inside)
            for member in group
            for value in member.results
        )
        if leaks or not taken.isdisjoint(inside) or len(group) != len(rule.lines):
            continue
        taken |= inside
        yield SubgraphMatch(graph, tuple(group), tuple(bound[name] for name in rule.free), outputs, bound)


def _bindings(
    lines: Sequence[_Line], bound: dict[str, SSAValue], op: Operation | None = None
) -> Iterator[dict[str, SSAValue]]:
    """The values that names can stand for, if ops compute these lines; `op` is that of the first."""
    if not lines:
        yield bound
        return
    line, *others = lines
    for candidate in [op] if op is not None else _candidates(line, bound):
        if candidate.name != f"top.{line.kind}" or len(candidate.results) != len(line.results):
            continue
        if len(candidate.operands) != len(line.arguments):
            continue
        orders = [line.arguments]
        if line.kind in _COMMUTES and len(line.arguments) == 2:
            orders.append(line.arguments[::-1])
        for order in orders:
            names = (*line.results, *order)
            state = _bound(bound, names, (*candidate.results, *candidate.operands))
            if state is not None:
                yield from _bindings(others, state)


def _candidates(line: _Line, bound: Mapping[str, SSAValue]) -> Iterable[Operation]:
    for name in line.results:
        if name in bound:
            owner = bound[name].owner
            return [owner] if isinstance(owner, Operation) else []
    users = (use.operation for name in line.arguments if name in bound for use in bound[name].uses)
    return dict.fromkeys(users)


def _bound(
    bound: Mapping[str, SSAValue], names: Sequence[str], values: Sequence[SSAValue]
) -> dict[str, SSAValue] | None:
    state = dict(bound)
    for name, value in zip(names, values, strict=True):
        if name != "_" and state.setdefault(name, value) is not value:
            return None
    return state


def _computing(graph: Graph) -> list[TopOp]:
    return [op for op in graph.ops if isinstance(op, TopOp) and not isinstance(op, WeightOp)]


def _is_read_outside(value: SSAValue, inside: set[TopOp]) -> bool:
    return any(use.operation not in inside for use in value.uses)


def _replace(rule: _Rule, match: SubgraphMatch) -> bool:
    where = layer_name(match.ops[-1])
    try:
        replacement = rule.make(match)
    except NpucError:
        raise
    except Exception as error:
        raise fault_of(error) or PluginFaultError(
            f"'{where}': the plugin that takes {rule.title} fails: {type(error).__name__}: {error}"
        ) from error
    if replacement is None:
        return False
    if [value.type for value in replacement.results] != [value.type for value in match.outputs] and all(
        map(is_static, match.outputs)
    ):
        expected = ", ".join(str(value.type) for value in match.outputs)
        given = ", ".join(str(value.type) for value in replacement.results)
        raise PluginFaultError(
            f"'{where}': the op that a plugin makes of {rule.title} gives {given}, not {expected}"
        )
    Rewriter.insert_op(replacement, InsertPoint.before(_place(rule, match, replacement)))
    replacement.location = location([value_name(value) for value in match.outputs], where)
    for old, new in zip(match.outputs, replacement.results, strict=True):
        old.replace_all_uses_with(new)
    for op in reversed(match.ops):
        match.graph.block.erase_op(op)
    return True


def _place(rule: _Rule, match: SubgraphMatch, replacement: TopOp) -> Operation:
    """The first op before which the new one can stand: what it reads is there, and nothing has read its results."""
    order = {op: place for place, op in enumerate(match.graph.block.ops)}
    inside = set(match.ops)
    owners = [value.owner for value in replacement.operands]
    ready = max((order[owner] + 1 for owner in owners if isinstance(owner, Operation)), default=0)
    users = [
        order[use.operation]
        for value in match.outputs
        for use in value.uses
        if use.operation not in inside and use.operation in order
    ]
    latest = min([*users, order[match.ops[-1]]])
    if ready > latest:
        raise PluginError(
            f"the subgraph of {rule.title} at '{layer_name(match.ops[-1])}' cannot be one op: it reads what is made behind the "
            "first use of its results",
            fix="Take more ops, or fewer",
        )
    return list(match.graph.block.ops)[latest]
