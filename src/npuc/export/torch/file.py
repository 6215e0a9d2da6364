"""A quantized network as a file of torch: `.pt2` is a program of `torch.export`, `.pt` is TorchScript.

Both hold operators of torch alone. What `.pt2` files are called and in which order their inputs and outputs come stands in their
extra file `npuc.json`.
"""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npuc.errors import ExportError, UsageError
from npuc.export.torch.carried import BUFFER, packed
from npuc.extras import require_torch
from npuc.files import write_atomically
from npuc.ir import Graph, dtype_of, shape_of

NAMES_FILE = "npuc.json"
"""The extra file of a `.pt2` file: names of inputs and outputs in order."""


def export_torch(graph: Graph, path: Path | str, carried: Mapping[str, str] | None = None) -> Path:
    """Write an integer network as `path`, whose suffix says in which form; it computes the integers of graph mode.

    With `carried`, a TorchScript file holds the network itself as well, and these texts (`npuc.export.torch.carried`).
    """
    path = Path(path)
    write = SUFFIXES.get(path.suffix.lower())
    if write is None:
        raise UsageError(
            f"-o {path} does not say what to write",
            fix="Name it .pt2 for a torch.export program, or .pt for TorchScript",
        )
    torch = require_torch("programs of PyTorch are written by PyTorch itself, and torch is not installed")
    from npuc.export.torch.module import QuantizedModule

    module = QuantizedModule(graph).eval()
    if carried is not None:
        module.register_buffer(BUFFER, torch.from_numpy(packed(graph, carried)))
    examples = tuple(
        torch.from_numpy(np.zeros(shape_of(port.value), dtype_of(port.value.type).numpy))
        for port in graph.inputs
    )
    with torch.no_grad():
        module(*examples)  # makes the buffers of all constants, so that tracing finds them
        write(torch, module, examples, path)
    return path


def _program(torch: Any, module: Any, examples: tuple[Any, ...], path: Path) -> None:
    """A program of torch.export."""
    try:
        program = torch.export.export(module, examples, strict=False)
    except (RuntimeError, ValueError, TypeError) as error:
        words = next(iter(str(error).splitlines()), "")[:200]
        raise ExportError(f"torch.export cannot trace the network: {words}", where=str(path)) from error
    names = {
        "inputs": [p.name for p in module.graph.inputs],
        "outputs": [p.name for p in module.graph.outputs],
    }
    _saved(path, lambda file: torch.export.save(program, file, extra_files={NAMES_FILE: json.dumps(names)}))


def _script(torch: Any, module: Any, examples: tuple[Any, ...], path: Path) -> None:
    """TorchScript, by tracing."""
    with warnings.catch_warnings():
        # Shapes are constants of the network, and TorchScript is meant by the one who asks for it.
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(module, examples, check_trace=False)
        _saved(path, lambda file: torch.jit.save(traced, file))


def _saved(path: Path, save: Callable[[str], None]) -> None:
    """Whole or not at all: torch writes to a file of its own, whose bytes are then copied."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, f"network{path.suffix}")  # the archive has this name inside
        save(file)
        with write_atomically(path) as out:
            out.write(Path(file).read_bytes())


SUFFIXES: dict[str, Callable[[Any, Any, tuple[Any, ...], Path], None]] = {".pt2": _program, ".pt": _script}
"""What is written, by the suffix of the file."""
