"""Rewrites that a plugin brings for a machine: `@target_rewrite("fold-scale", "acme-*")` above a function that changes a network.

A rewrite of the float network runs before calibration, so that what it makes is calibrated; one of the integer network runs
before the partition, so that what it makes is placed and scheduled. Both work on a copy, which is verified: a rewrite
keeps what the network computes, its inputs and its outputs, and changes nothing the second time it is run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol

from npuc.errors import NpucError, PluginFaultError
from npuc.ir.graph import Graph
from npuc.plugin_code import fault_of
from npuc.registries import Registry

Stage = Literal["float", "integer"]
Rewrite = Callable[[Graph, Any], None]
"""Changes a graph in place, for a target."""


class Named(Protocol):
    """A target, as far as it is needed here."""

    @property
    def name(self) -> str:
        """What it is called."""


@dataclass(frozen=True)
class TargetRewrite:
    """A rewrite, the targets that it is for, and when it runs."""

    targets: str
    stage: Stage
    rewrite: Rewrite


REWRITES: Registry[str, TargetRewrite] = Registry("a target rewrite")
"""By name, in the order of registration."""


def target_rewrite(
    name: str, targets: str = "*", *, stage: Stage = "integer", replace: bool = False
) -> Callable[[Rewrite], Rewrite]:
    """Register a rewrite for the targets of a name, or of a pattern with * and ?."""
    if stage not in ("float", "integer"):
        raise PluginFaultError(
            f"the rewrite '{name}' is of the stage '{stage}', and there are float and integer"
        )

    def register(rewrite: Rewrite) -> Rewrite:
        REWRITES.add([name], TargetRewrite(targets, stage, rewrite), replace=replace)
        return rewrite

    return register


def rewritten_for(graph: Graph, target: Named, stage: Stage) -> Graph:
    """The network after all rewrites of a stage that are for a target; the network itself if there are none."""
    chosen = [
        (name, entry)
        for name, entry in REWRITES.items()
        if entry.stage == stage and fnmatchcase(target.name, entry.targets)
    ]
    if not chosen:
        return graph
    ends = _ends(graph)
    graph = graph.copy()
    for name, entry in chosen:
        try:
            entry.rewrite(graph, target)
            graph.verify()
        except Exception as error:
            fault = fault_of(error)
            if fault is None and isinstance(error, NpucError):
                raise PluginFaultError(
                    f"the rewrite '{name}' leaves no sound network: {error.message}"
                ) from error
            raise fault or PluginFaultError(
                f"the rewrite '{name}' fails: {type(error).__name__}: {error}"
            ) from error
        if _ends(graph) != ends:
            raise PluginFaultError(f"the rewrite '{name}' changes the inputs or outputs of the network")
    return graph


def _ends(graph: Graph) -> list[tuple[str, str]]:
    return [(port.name, str(port.value.type)) for port in (*graph.inputs, *graph.outputs)]
