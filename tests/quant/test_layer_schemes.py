"""What layers get is a record: it can be asked, changed, compared and printed, and every signature takes the same one."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import npuc
from npuc.ir import Graph, top
from npuc.ir.text import print_graph
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.lower import quantize
from npuc.quant.scheme import SCHEMES, Scheme
from support.graphs import build

RANGES = {name: (-1.0, 1.0) for name in ("x", "a", "b")}


def network() -> Graph:
    """Two layers, a and b."""
    return build({"x": (1, 4)}, lambda b, x: b(top.Tanh, b(top.Relu, x, name="a"), name="b"))


def test_one_scheme_a_function_and_a_record_say_the_same() -> None:
    graph = network()
    one = LayerSchemes.of(graph, SCHEMES["int8"])
    assert one == LayerSchemes.of(graph) == LayerSchemes.of(graph, lambda op: SCHEMES["int8"])
    assert LayerSchemes.of(graph, one) is one
    texts = {
        print_graph(quantize(graph, RANGES, given)) for given in (None, SCHEMES["int8"], one, one.__call__)
    }
    assert len(texts) == 1


def test_changes_are_new_records() -> None:
    graph = network()
    first, second = graph.ops
    one = LayerSchemes.of(graph, SCHEMES["int8"])
    wide = one.changed(lambda op, scheme: replace(scheme, activation="i16") if op is second else scheme)
    part = wide.as_float([first])
    assert (one(first), one(second)) == (SCHEMES["int8"], SCHEMES["int8"])
    second_scheme = wide(second)
    assert second_scheme is not None and second_scheme.activation == "i16"
    assert part(first) is None and part(second) == second_scheme
    # What is float stays so.
    assert part.changed(lambda op, scheme: SCHEMES["int16"])(first) is None
    assert part(object()) is None


def test_layers_are_printed_by_scheme() -> None:
    graph = network()
    first, _ = graph.ops
    assert str(LayerSchemes.of(graph, SCHEMES["pow2"]).as_float([first])).splitlines() == [
        "float",
        "  1 layer: a",
        "pow2: i8 power_of_two activations, i8 power_of_two weights per tensor, pow2, narrow_weights False",
        "  1 layer: b",
    ]


def test_a_scheme_says_every_field_that_is_not_as_usual() -> None:
    others = {"bias_bits": 24, "max_shift": 40, "table_entries": 0, "narrow_activations": True}
    words = Scheme(**others).words  # type: ignore[arg-type]
    assert all(f"{name} {value}" in words for name, value in others.items())
    assert Scheme().words.count(",") == 2, "usual values are not worth words"


def test_no_signature_takes_a_function_in_its_place() -> None:
    """`SchemeOf` is for what callers may give; from there on it is a record."""
    allowed = {"layer_schemes.py", "lower.py", "prequantized.py", "tuning.py", "context.py"}
    for path in (Path(npuc.__file__).parent / "quant").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.arg) and node.annotation is not None:
                text = ast.unparse(node.annotation)
                assert "[Any], Scheme | None]" not in text, f"{path.name}:{node.lineno}: {text}"
                assert "SchemeOf" not in text or path.name in allowed, f"{path.name}:{node.lineno}: {text}"
