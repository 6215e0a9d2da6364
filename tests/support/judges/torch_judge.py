"""An import from torch and torch itself on the same inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from npuc.arrays import Array
from npuc.engine import FloatEngine
from npuc.frontend.torch import import_module
from npuc.frontend.torch.convert import to_array
from npuc.ir import Graph


def outputs_of(module: Any, inputs: tuple[Any, ...]) -> list[Array]:
    """What torch computes, flat."""
    if isinstance(module, torch.nn.Module):
        module.eval()
    with torch.no_grad():
        leaves = torch.utils._pytree.tree_leaves(module(*inputs))
    return [to_array(torch.as_tensor(item)) for item in leaves]


def named(graph: Graph, inputs: tuple[Any, ...]) -> dict[str, Array]:
    """Inputs by the names of the graph."""
    return {port.name: to_array(x) for port, x in zip(graph.inputs, inputs, strict=True)}


def close(name: str, ours: Any, theirs: Any, rtol: float) -> None:
    """Equal to a part of the largest value; integers and booleans exactly."""
    assert ours.shape == theirs.shape, name
    assert ours.dtype == theirs.dtype, name
    if theirs.dtype.kind != "f":
        assert np.array_equal(ours, theirs), name
        return
    limit = rtol * max(1e-6, float(np.abs(theirs[np.isfinite(theirs)]).max(initial=0)))
    assert np.allclose(ours, theirs, rtol=0, atol=limit, equal_nan=True), (
        f"{name}: {np.abs(ours - theirs).max()} is more than {limit}"
    )


def compare(module: Any, inputs: tuple[Any, ...], rtol: float = 1e-5) -> Graph:
    """Import, run both, and compare every output; the graph, as imported."""
    graph = import_module(module, inputs)
    ours = FloatEngine(graph, threads=1).run(named(graph, inputs))
    theirs = outputs_of(module, inputs)
    assert len(ours) == len(theirs)
    for (name, a), b in zip(ours.items(), theirs, strict=True):
        close(name, a, b, rtol)
    return graph
