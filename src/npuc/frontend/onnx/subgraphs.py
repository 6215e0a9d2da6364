"""Subgraphs of an ONNX model that plugins take for one node, found before the import.

    onnx_subgraph("/blocks.*/glu", "com.example", "HardGlu")          # by the names of nodes

    onnx_pattern("com.example", "HardGlu(a, b)", '''                  # by what they compute
        gate = HardSigmoid(b)
        y = Mul(a, gate)
    ''')

The node that takes their place has the inputs and outputs of the subgraph and belongs to the plugin's domain; an import rule,
or a kernel for the CPU, gives it a meaning. Tensors keep their names, so that the check against the original still holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from onnx import NodeProto, helper

from npuc.errors import PluginError
from npuc.frontend.onnx.structure import uses

Attributes = Callable[[Sequence[NodeProto]], Mapping[str, Any] | None]
"""The attributes of the new node, of the nodes that it stands for, in their order; None: not this one after all."""

_COMMUTES = {"Add", "Mul", "Max", "Min", "And", "Or", "Xor", "Equal"}


@dataclass(frozen=True)
class _Line:
    result: str
    op_type: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class SubgraphRule:
    """What to look for, and the operator that stands for it."""

    domain: str
    op_type: str
    attributes: Attributes
    name: str = ""
    """A pattern of the leading part of node names, up to a slash; each part that matches is a subgraph."""
    chosen: Callable[[Sequence[NodeProto]], Sequence[str]] | None = None
    """What the new node reads of the nodes of a name."""
    lines: tuple[_Line, ...] = ()
    reads: tuple[str, ...] = ()
    """The names of a pattern that are inputs of the new node."""
    find: Callable[[Sequence[NodeProto]], Sequence[Sequence[NodeProto]]] | None = None
    """What finds the groups of nodes, of those of a graph."""


RULES: list[SubgraphRule] = []
"""In the order in which they are tried."""


def onnx_subgraph(
    name: str,
    domain: str,
    op_type: str,
    attributes: Attributes = lambda nodes: {},
    inputs: Callable[[Sequence[NodeProto]], Sequence[str]] | None = None,
) -> None:
    """Take all nodes below a name for one node: `/blocks.*/glu` is one for each block whose nodes begin with that and a slash.

    `inputs` chooses what the new node reads; without it that is all that the nodes read from outside, weights included, in the
    order in which they read it. Its outputs are what is read outside.
    """
    RULES.append(SubgraphRule(_domain(domain), op_type, attributes, name=name, chosen=inputs))


def onnx_pattern(domain: str, form: str, pattern: str, attributes: Attributes = lambda nodes: {}) -> None:
    """Take nodes that compute a pattern for one node; `form` is what it looks like, `HardGlu(a, b)`.

    A line of the pattern is `result = Operator(argument, ...)`. What no line makes is an input of the new node; the last line
    makes its output. Other results must not be read outside. `_` is any argument, which the new node does not get.
    """
    lines = [_line(text) for text in filter(None, map(str.strip, pattern.splitlines()))]
    head = _line(f"y = {form}")
    results = [line.result for line in lines]
    if not lines or len(set(results)) != len(results):
        raise PluginError(f"the pattern of '{head.op_type}' has no lines, or makes a result twice")
    unused = [name for name in results[:-1] if not any(name in line.arguments for line in lines)]
    if unused:
        raise PluginError(f"the pattern of '{head.op_type}' makes '{unused[0]}', and nothing reads it")
    free = {name for line in lines for name in line.arguments} - {*results, "_"}
    if set(head.arguments) != free or len(set(head.arguments)) != len(head.arguments):
        raise PluginError(
            f"the pattern of '{head.op_type}' reads {', '.join(sorted(free))}, and '{form}' says otherwise",
            fix="Name each once, in the order in which the new node reads them",
        )
    rule = SubgraphRule(_domain(domain), head.op_type, attributes, lines=tuple(lines), reads=head.arguments)
    RULES.append(rule)


def onnx_nodes(
    domain: str,
    op_type: str,
    find: Callable[[Sequence[NodeProto]], Sequence[Sequence[NodeProto]]],
    attributes: Attributes = lambda nodes: {},
    inputs: Callable[[Sequence[NodeProto]], Sequence[str]] | None = None,
) -> SubgraphRule:
    """Take each group of nodes that `find` gives for one node; `npuc.frontend.onnx.node_groups` finds some.

    `inputs` is that of `onnx_subgraph`; the outputs are what is read outside, in the order of the nodes in their group.
    """
    rule = SubgraphRule(_domain(domain), op_type, attributes, find=find, chosen=inputs)
    RULES.append(rule)
    return rule


def _line(text: str) -> _Line:
    match = re.fullmatch(r"(\w+)\s*=\s*(\w+)\(([\w\s,]*)\)", text)
    if match is None:
        raise PluginError(f"'{text}' is no line of a pattern", fix="Write it like 'gate = HardSigmoid(b)'")
    return _Line(match[1], match[2], tuple(filter(None, (part.strip() for part in match[3].split(",")))))


def _domain(domain: str) -> str:
    if domain in ("", "ai.onnx") or domain.startswith("ai.onnx."):
        raise PluginError(
            "a subgraph becomes a node of your own domain, not of ONNX's", fix="Name it like com.example"
        )
    return domain


def join_subgraphs(
    nodes: list[NodeProto], outputs: Sequence[str], opsets: dict[str, int], notes: list[str] | None = None
) -> list[NodeProto]:
    """The nodes of a graph in order, with the subgraphs that rules find as one node each; new domains are added to `opsets`, and
    to `notes` a sentence for each rule that changes nothing."""
    for rule in RULES:
        joined = 0
        groups = _groups(rule, nodes, outputs)
        for group, inputs in groups:
            attributes = rule.attributes(group)
            if attributes is None:
                continue
            nodes = _joined(rule, nodes, group, inputs, attributes, outputs)
            opsets.setdefault(rule.domain, 1)
            joined += 1
        if not joined and notes is not None:
            notes.append(_unused(rule, len(groups)))
    return nodes


def _unused(rule: SubgraphRule, match_count: int) -> str:
    """Why a rule changes nothing: it is easily a name or a pattern that is not quite that of the model."""
    what = (
        f"by the name '{rule.name}'" if rule.name
        else f"by the pattern that ends in {rule.lines[-1].op_type}" if rule.lines
        else "by its function"
    )  # fmt: skip
    if match_count:
        why = f"its attributes leave {'the one match' if match_count == 1 else f'all {match_count} matches'} alone"
    else:
        why = "no node has a name below it" if rule.name else "nothing in this model computes it"
    return f"the subgraph rule for {rule.domain}:{rule.op_type} {what} takes nothing: {why}"


Group = tuple[list[NodeProto], list[str] | None]


def _groups(rule: SubgraphRule, nodes: Sequence[NodeProto], outputs: Sequence[str]) -> list[Group]:
    if rule.find is not None:
        return [(list(group), None) for group in rule.find(nodes)]
    return _named(rule, nodes) if rule.name else _matches(rule, nodes, outputs)


def _named(rule: SubgraphRule, nodes: Sequence[NodeProto]) -> list[Group]:
    groups: dict[str, list[NodeProto]] = {}
    for node in nodes:
        parts = node.name.split("/")
        leading = ("/".join(parts[:end]) for end in range(1, len(parts)))
        name = next((prefix for prefix in leading if prefix and fnmatchcase(prefix, rule.name)), None)
        if name is not None:
            groups.setdefault(name, []).append(node)
    return [(group, None) for group in groups.values()]


def _matches(rule: SubgraphRule, nodes: Sequence[NodeProto], outputs: Sequence[str]) -> list[Group]:
    producer = {name: node for node in nodes for name in node.output if name}
    users: dict[str, int] = {}
    for node in nodes:
        for name in uses(node):
            users[name] = users.get(name, 0) + 1
    users.update({name: users.get(name, 0) + 1 for name in outputs})
    taken: set[int] = set()
    groups: list[Group] = []
    for node in nodes:
        match = _match(rule.lines[-1], node, rule, producer, {}, {})
        if match is None:
            continue
        bound, chosen = match
        group = [chosen[line.result] for line in rule.lines]
        inner = [member.output[0] for member in group[:-1]]
        inside = {name: sum(list(uses(member)).count(name) for member in group) for name in inner}
        if any(id(member) in taken for member in group) or any(users[name] != inside[name] for name in inner):
            continue
        taken.update(id(member) for member in group)
        groups.append((group, [bound[name] for name in rule.reads]))
    return groups


_State = tuple[dict[str, str], dict[str, NodeProto]]


def _match(
    line: _Line,
    node: NodeProto | None,
    rule: SubgraphRule,
    producer: Mapping[str, NodeProto],
    bound: dict[str, str],
    chosen: dict[str, NodeProto],
) -> _State | None:
    """The names that arguments stand for and the nodes of lines, if a node computes a line."""
    if node is None or node.op_type != line.op_type or node.domain not in ("", "ai.onnx"):
        return None
    if len(node.input) != len(line.arguments) or sum(map(bool, node.output)) != 1:
        return None
    by_result = {pattern_line.result: pattern_line for pattern_line in rule.lines}
    orders = [line.arguments]
    if node.op_type in _COMMUTES and len(line.arguments) == 2:
        orders.append(line.arguments[::-1])
    for order in orders:
        state: _State | None = (dict(bound), {**chosen, line.result: node})
        for argument, name in zip(order, node.input, strict=True):
            assert state is not None
            if argument == "_":
                continue
            if argument in state[0]:
                state = state if state[0][argument] == name else None
            elif argument in by_result:
                state[0][argument] = name
                state = _match(by_result[argument], producer.get(name), rule, producer, *state)
            else:
                state[0][argument] = name
            if state is None:
                break
        if state is not None:
            return state
    return None


def _joined(
    rule: SubgraphRule,
    nodes: list[NodeProto],
    group: Sequence[NodeProto],
    inputs: list[str] | None,
    attributes: Mapping[str, Any],
    outputs: Sequence[str],
) -> list[NodeProto]:
    inside = {id(node) for node in group}
    produced = [name for node in group for name in node.output if name]
    outside = {name for node in nodes if id(node) not in inside for name in uses(node)} | set(outputs)
    if inputs is None:
        read = dict.fromkeys(name for node in group for name in uses(node))
        inputs = [name for name in read if name not in produced]
        if rule.chosen is not None:
            inputs = list(rule.chosen(group))
    results = [name for name in produced if name in outside]
    places = [place for place, node in enumerate(nodes) if id(node) in inside]
    after: set[str] = set(produced)
    for node in nodes[places[0] : places[-1] + 1]:
        if id(node) not in inside and not after.isdisjoint(uses(node)):
            after.update(node.output)
    circular = next((name for name in inputs if name in after), None)
    if circular is not None:
        raise PluginError(
            f"the subgraph '{rule.name or rule.op_type}' cannot be one node: it reads '{circular}', which is made of its own "
            "results",
            fix="Take more nodes, or fewer",
        )
    try:
        node = helper.make_node(
            rule.op_type, inputs, results, name=_name(rule, group), domain=rule.domain, **attributes
        )
    except (TypeError, ValueError) as error:
        raise PluginError(
            f"the attributes for '{rule.domain}:{rule.op_type}' are none of ONNX: {error}"
        ) from error
    # Whatever comes between the first and the last of them and reads none of their results can run before.
    rest = [other for other in nodes if id(other) not in inside]
    first = next((i for i, other in enumerate(rest) if not set(results).isdisjoint(uses(other))), len(rest))
    ready = max(
        (i + 1 for i, other in enumerate(rest) if not set(inputs).isdisjoint(other.output)), default=0
    )
    if ready > first:
        early = [other for other in rest[first:ready] if after.isdisjoint(other.output)]
        late = [other for other in rest[first:ready] if not after.isdisjoint(other.output)]
        return [*rest[:first], *early, node, *late, *rest[ready:]]
    return [*rest[:ready], node, *rest[ready:]]


def _name(rule: SubgraphRule, group: Sequence[NodeProto]) -> str:
    if not rule.name:
        return group[-1].name
    return next(
        "/".join(parts[:end])
        for parts in [group[0].name.split("/")]
        for end in range(1, len(parts))
        if fnmatchcase("/".join(parts[:end]), rule.name)
    )


__all__ = ["RULES", "SubgraphRule", "join_subgraphs", "onnx_nodes", "onnx_pattern", "onnx_subgraph"]
