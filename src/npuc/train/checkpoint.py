"""Checkpoints of training: one safetensors file, written whole or not at all, without pickle.

Tensors are those of the module, of the optimizer and of moving averages, each under a prefix; everything else is JSON in the
metadata of the file. Resuming from it gives the numbers of a run that was never interrupted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from npuc.errors import FileFormatError
from npuc.extras import require_torch
from npuc.files import existing_file, write_atomically
from npuc.ir import Graph

_VERSION = 1
_KEY = "npuc_training"
_SEPARATOR = "//"


@dataclass
class Checkpoint:
    """Groups of tensors by name, and plain values."""

    state: dict[str, Any] = field(default_factory=dict)
    """What JSON can say: epoch, history, options."""
    tensors: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Group (`module`, `optimizer`, `average`, `best`) to name to tensor."""


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint in place of the one that is there."""
    require_torch("checkpoints of training hold tensors of PyTorch, and torch is not installed")
    from safetensors.torch import save

    flat = {
        f"{group}{_SEPARATOR}{name}": tensor.detach().cpu().contiguous().clone()
        for group, tensors in checkpoint.tensors.items()
        for name, tensor in tensors.items()
    }
    metadata = {_KEY: json.dumps({"version": _VERSION, **checkpoint.state}, sort_keys=True)}
    with write_atomically(path) as out:
        out.write(save(flat, metadata))


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; `FileFormatError` if it is another file."""
    require_torch("checkpoints of training hold tensors of PyTorch, and torch is not installed")
    from safetensors import SafetensorError, safe_open

    tensors: dict[str, dict[str, Any]] = {}
    try:
        with safe_open(existing_file(path), "pt") as file:
            state = json.loads((file.metadata() or {})[_KEY])
            for key in file.keys():  # noqa: SIM118 (it is no mapping)
                group, _, name = key.partition(_SEPARATOR)
                tensors.setdefault(group, {})[name] = file.get_tensor(key)
    except (SafetensorError, KeyError, ValueError) as error:
        raise FileFormatError(
            "is no checkpoint of a training run",
            where=str(path),
            fix="Name another file, or delete it to begin anew",
        ) from error
    if not isinstance(state, dict) or state.pop("version", None) != _VERSION:
        raise FileFormatError(
            "is a checkpoint of another version of npuc", where=str(path), fix="Delete it to begin anew"
        )
    return Checkpoint(state, tensors)


def fingerprint(graph: Graph, *more: Any) -> str:
    """A digest of a network's weights and of whatever else decides a result."""
    digest = hashlib.sha256(repr(more).encode())
    for ref in graph.used_weights():
        digest.update(ref.encode())
        digest.update(np.ascontiguousarray(graph.weights.array(ref)).tobytes())
    return digest.hexdigest()[:16]


def optimizer_state(optimizer: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state of an optimizer as tensors by name, and the rest as plain values."""
    whole = optimizer.state_dict()
    tensors: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for index, values in whole["state"].items():
        for name, value in values.items():
            kept = tensors if hasattr(value, "detach") else plain
            kept[f"{index}.{name}"] = value
    return tensors, {"state": plain, "groups": whole["param_groups"]}


def restore_optimizer(optimizer: Any, tensors: Mapping[str, Any], plain: Mapping[str, Any]) -> None:
    """Put back what `optimizer_state` gave."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in [*tensors.items(), *plain["state"].items()]:
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": plain["groups"]})
