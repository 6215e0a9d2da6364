"""A function of one value is said once: its op has one record, and what computes it, reads it and writes it follows that."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npuc
from npuc.export.onnx.registry import RULES as export_rules
from npuc.frontend.onnx.registry import RULES as import_rules
from npuc.ir import tensor_type, top
from npuc.ir.definition import TOP_OPS, TopOp
from npuc.ir.graph import Graph
from npuc.ir.top.activation import AlongAxis
from npuc.ir.top.functions import FUNCTIONS, function_of
from npuc.quant.lowering.registry import find_float_rule, find_rule

SOURCES = Path(npuc.__file__).parent
NOT_OF_REALS = (top.Not,)
PROPERTIES: dict[type[TopOp], dict[str, Any]] = {top.Clip: {"min": -1.0, "max": 2.5}}
KINDS = pytest.mark.parametrize("kind", list(FUNCTIONS), ids=lambda kind: kind.name)


def make(kind: type[TopOp], **properties: Any) -> Any:
    """An op on a network's input."""
    graph = Graph.empty([("x", tensor_type((4,), "f32"))])
    return kind.make(graph.inputs[0].value, name="y", **PROPERTIES.get(kind, {}) | properties)


def test_every_elementwise_op_has_its_record() -> None:
    elementwise = {
        kind
        for kind in TOP_OPS.values()
        if issubclass(kind, top.Unary) and not issubclass(kind, (AlongAxis, *NOT_OF_REALS))
    }
    # Ops that derive from Unary for their type, and compute with more than the value.
    others = {
        kind for kind in elementwise if kind.__module__ not in (top.Relu.__module__, top.Abs.__module__)
    }
    assert elementwise - others == set(FUNCTIONS)


@KINDS
def test_quantizer_and_exporter_follow_the_record(kind: type[TopOp]) -> None:
    op, record = make(kind), FUNCTIONS[kind]
    assert find_rule(op) is not None and find_float_rule(op) is not None
    assert kind in export_rules
    if record.onnx:
        assert ("", record.onnx) in import_rules
    name, constants = function_of(op)
    assert TOP_OPS[f"top.{name}"] is kind and len(constants) == len(record.constants)


@KINDS
def test_torch_computes_the_formula(kind: type[TopOp]) -> None:
    torch = pytest.importorskip("torch")
    from npuc.engine.torch import elementwise
    from npuc.engine.torch.registry import HANDLERS

    assert elementwise is not None
    op, x = make(kind), np.linspace(-3, 3, 61)
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[kind].on_floats(op, x)
    own = HANDLERS[kind](op, torch.from_numpy(x)).numpy()
    by_formula = FUNCTIONS[kind].formula(op, torch.from_numpy(x), torch).numpy()
    np.testing.assert_allclose(own, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(by_formula, expected, rtol=1e-12, atol=1e-12)


@KINDS
def test_integers_never_meet_what_they_cannot_hold(kind: type[TopOp]) -> None:
    values = FUNCTIONS[kind](make(kind), np.array([-2.0, -1.0, -0.0, 0.0, 1.0, 2.0]))
    assert np.isfinite(values).all()


@pytest.mark.parametrize("kind", [kind for kind, record in FUNCTIONS.items() if not record.continuous])
def test_what_is_said_to_jump_does(kind: type[TopOp]) -> None:
    assert _largest_step(kind) > 0.4


@pytest.mark.parametrize("kind", [kind for kind, record in FUNCTIONS.items() if record.continuous])
def test_what_is_said_to_be_continuous_is(kind: type[TopOp]) -> None:
    assert _largest_step(kind) < 0.05


def _largest_step(kind: type[TopOp]) -> float:
    jumps = not FUNCTIONS[kind].continuous
    x = np.linspace(-1.4, 1.4, 20001) if jumps else np.linspace(0.1, 0.99, 20001)
    return float(np.abs(np.diff(FUNCTIONS[kind](make(kind), x))).max())


def test_no_other_module_has_a_table_of_formulas() -> None:
    """A dictionary from ops of functions to lambdas, or a second `sigmoid` of exponentials, is a fact said twice."""
    names = {kind.__name__ for kind in FUNCTIONS}
    second = []
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Dict):
                pairs = zip(node.keys, node.values, strict=True)
                formulas = [k for k, v in pairs if isinstance(v, ast.Lambda) and _attribute(k) in names]
                second += [f"{path.relative_to(SOURCES)}:{node.lineno}"] if formulas else []
    assert second == []


def _attribute(node: ast.expr | None) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def test_a_relu_without_a_limit_has_none() -> None:
    x = np.array([-1.0, 7.0])
    assert FUNCTIONS[top.Relu](make(top.Relu), x).tolist() == [0.0, 7.0]
    assert FUNCTIONS[top.Relu](make(top.Relu, limit=6.0), x).tolist() == [0.0, 6.0]
    assert function_of(make(top.Relu, limit=6.0)) == ("relu", (6.0,))
    assert math.isinf(FUNCTIONS[top.Relu](make(top.Relu), np.array([math.inf]))[0])
