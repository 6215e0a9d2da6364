"""The entries of a program: networks, batch sizes or resolutions over one set of weights, chosen by name or by the inputs.

An input chooses by its shape: first an entry that takes just that, then one that takes it as a batch of another size. Of
several batch sizes, the one that leaves the fewest rows to be filled up is taken, and of equals the largest:

    entries of 1 and 4 rows      4 rows: the second   8 rows: the second, twice   6 rows: the first, six times
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arrays import ceil_div
from npuc.errors import InputDataError, UsageError
from npuc.images.preprocess import Preprocess
from npuc.program.model import CompiledModel, NpuSubgraph
from npuc.runtime.inputs import is_image, preprocessing_of
from npuc.runtime.tensors import ModelPort, ModelPorts, ports_of
from npuc.words import counted


@dataclass(frozen=True)
class Entry:
    """A model that a runner can run."""

    name: str
    model: CompiledModel
    ports: ModelPorts
    preprocessing: Mapping[str, Preprocess]

    @classmethod
    def of(cls, name: str, model: CompiledModel, raw: bool, raw_outputs: bool | None) -> Entry:
        """The entry of a model, for reals or for raw integers."""
        return cls(name, model, ports_of(model, raw, raw_outputs), preprocessing_of(model))


def cores_of(model: CompiledModel) -> int:
    """The cores that a model needs: the most that one of its subgraphs has streams for."""
    return max((len(part.streams) for part in model.subgraphs if isinstance(part, NpuSubgraph)), default=1)


def within_cores(models: Mapping[str, CompiledModel], cores: int) -> dict[str, CompiledModel]:
    """The entries that so many cores can run; of those that take the same inputs, the one that uses the most cores."""
    best: dict[tuple[Any, ...], str] = {}
    for name, model in models.items():
        taken = tuple((port, model.tensor(port).shape) for port in model.inputs)
        if cores_of(model) <= cores and (
            taken not in best or cores_of(model) > cores_of(models[best[taken]])
        ):
            best[taken] = name
    if not best:
        needed = ", ".join(f"{name} {cores_of(model)}" for name, model in models.items())
        raise UsageError(
            f"no entry runs on {counted(cores, 'core')}; they need: {needed}",
            fix="Compile one with --cores, and add it with npuc combine",
        )
    chosen = set(best.values())
    return {name: model for name, model in models.items() if name in chosen}


def entry_for(entries: Mapping[str, Entry], inputs: Any) -> Entry:
    """The entry that inputs are for; what is wrong with them is for that entry to say, if there is but one."""
    if len(entries) == 1:
        return next(iter(entries.values()))
    possible = []
    for entry in entries.values():
        rows = _padded_rows(entry, inputs)
        if rows is not None:
            possible.append((rows, -(entry.ports.batch or 0), entry))
    if not possible:
        taken = "; ".join(
            f"{entry.name}: "
            + ", ".join(f"{port.info.name} {list(port.info.shape)}" for port in entry.ports.inputs)
            for entry in entries.values()
        )
        raise InputDataError(f"no entry of the program takes these inputs. They take {taken}")
    return min(possible, key=lambda choice: choice[:2])[2]


def _padded_rows(entry: Entry, inputs: Any) -> int | None:
    """How many rows are filled up to run the entry on these inputs, -1 if they have its shapes; None if it does not take them."""
    values = _by_port(entry, inputs)
    if values is None:
        return None
    batch, exact, padding = entry.ports.batch, True, 0
    for port, value in values:
        info = port.info
        if is_image(value, info, entry.preprocessing) or isinstance(value, list | tuple):
            continue
        shape = np.shape(value)
        if shape == info.shape:
            continue
        if batch is None or not shape or shape[1:] != info.shape[1:]:
            return None
        exact, padding = False, max(padding, ceil_div(shape[0], batch) * batch - shape[0])
    return -1 if exact else padding


def _by_port(entry: Entry, inputs: Any) -> list[tuple[ModelPort, Any]] | None:
    """The inputs that are given, and what they are for; states may be left out. None if they are others."""
    ports = entry.ports.inputs
    carried = {state.input for state in entry.model.states}
    if isinstance(inputs, Mapping):
        names = {port.info.name for port in ports}
        if not names - carried <= set(inputs) <= names:
            return None
        return [(port, inputs[port.info.name]) for port in ports if port.info.name in inputs]
    given = [port for port in ports if port.info.name not in carried]
    if isinstance(inputs, list | tuple) and len(inputs) in (len(ports), len(given)):
        return list(zip(ports if len(inputs) == len(ports) else given, inputs, strict=True))
    return [(given[0], inputs)] if len(given) == 1 else None
