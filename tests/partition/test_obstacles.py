"""What stands against an op is data: every rule has its words once, is used, and gets the facts that its words name."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import npuc
from npuc.inspect.inspection import inspect_graph
from npuc.ir import top
from npuc.partition import ObstacleRule
from npuc.target import load_target
from support.graphs import build

SOURCES = Path(npuc.__file__).parent


def uses() -> Iterator[tuple[ObstacleRule, ast.Call]]:
    """Every rule that the sources make an obstacle of, with the call."""
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in ("Obstacle.of", "_no"):
                for part in ast.walk(node.args[0]):
                    if isinstance(part, ast.Attribute) and ast.unparse(part.value) == "ObstacleRule":
                        yield ObstacleRule[part.attr], node


def named(rule: ObstacleRule) -> set[str]:
    """The facts that the words of a rule name."""
    return {name for text in (rule.reason, rule.lever) for _, name, _, _ in Formatter().parse(text) if name}


def test_every_rule_is_used_and_has_a_key_of_its_own() -> None:
    assert {rule for rule, _ in uses()} == set(ObstacleRule)
    assert len({rule.key for rule in ObstacleRule}) == len(ObstacleRule)


def test_every_use_brings_the_facts_that_the_words_name() -> None:
    for rule, call in uses():
        given = {keyword.arg for keyword in call.keywords}
        assert None in given or named(rule) <= given, f"{rule.key}: {named(rule)} are needed, not {given}"


def test_reasons_have_no_full_stop_and_levers_are_requests() -> None:
    for rule in ObstacleRule:
        assert not rule.reason.endswith(".") and not rule.lever.endswith(".")


def test_an_obstacle_is_data_for_tools() -> None:
    graph = build({"x": (1, 16, 8, 8)}, lambda b, x: b(top.Tanh, x, name="y"))
    target = load_target("dpuczdx8g-b4096-like")
    report, _ = inspect_graph(graph, target)
    [layer] = [layer for layer in report.layers if layer.device == "cpu"]
    assert layer.obstacle["rule"] and layer.obstacle["target"] == target.name
    assert json.loads(json.dumps(layer.obstacle)) == layer.obstacle
