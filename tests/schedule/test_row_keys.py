"""The key under which tiles of a row of layers are kept: the same for the same row under other names, another for another row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from npuc.schedule.candidates import row_key


def tensor() -> Any:
    """A tensor with a place of its own."""
    made = SimpleNamespace()
    made.storage = object()
    return made


def key(wiring: list[tuple[str, list[str], str]], **facts: int) -> str:
    """Of layers as (kind, names of inputs, name of the output); `facts` of tensors, 0 unless they are given."""
    known: dict[str, Any] = {}
    layers = []
    for kind, inputs, output in wiring:
        for name in (*inputs, output):
            known.setdefault(name, tensor())
        layer: Any = SimpleNamespace(inputs=[known[name] for name in inputs], outputs=[known[output]])
        layers.append((layer, kind))
    told = {made.storage: (facts.get(name, 0),) for name, made in known.items()}
    return row_key(layers, told, ("rest",))


CHAIN = [("conv", ["x"], "a"), ("add", ["a", "x"], "b")]


def test_names_do_not_count() -> None:
    assert key(CHAIN) == key([("conv", ["in"], "p"), ("add", ["p", "in"], "q")])


def test_what_reads_what_counts() -> None:
    others = [
        [("conv", ["x"], "a"), ("add", ["a", "a"], "b")],
        [("conv", ["x"], "a"), ("add", ["x", "a"], "b")],
        [("conv", ["x"], "a"), ("add", ["a", "z"], "b")],
        [("conv", ["x"], "a"), ("add", ["a", "x"], "a")],
    ]
    assert len({key(CHAIN), *map(key, others)}) == 1 + len(others)


def test_kinds_and_facts_count() -> None:
    assert len({key(CHAIN), key([("pool", ["x"], "a"), CHAIN[1]]), key(CHAIN, a=1), key(CHAIN, x=1)}) == 4
