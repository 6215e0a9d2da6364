"""Samples for the bring-up of a board: inputs and outputs of a model as bare binary files (docs/debugging.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npuc.debug.dump import drop
from npuc.debug.layers import as_stored
from npuc.files import make_folder, write_atomically
from npuc.tensors import file_names

Array = np.ndarray[Any, Any]
INDEX = "sample.json"


class SampleWriter:
    """Writes the inputs and outputs of runs; `finish` writes the index."""

    def __init__(self, folder: Path, model: str) -> None:
        self.folder = make_folder(folder)
        self.model = model
        drop(self.folder / INDEX)
        self._runs: list[dict[str, Any]] = []

    def add(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Write a run."""
        number = len(self._runs)
        make_folder(self.folder / f"run{number}")
        self._runs.append(
            {
                "inputs": self._write(number, "input", inputs),
                "outputs": self._write(number, "output", outputs),
            }
        )

    def _write(self, run: int, what: str, tensors: Mapping[str, Array]) -> list[dict[str, Any]]:
        stems = file_names(tensors)
        found = []
        for number, (name, tensor) in enumerate(tensors.items()):
            array = as_stored(tensor)
            file = f"run{run}/{what}{number}-{stems[name]}.bin"
            data = array.tobytes()
            with write_atomically(self.folder / file) as out:
                out.write(data)
            found.append(
                {
                    "name": name,
                    "shape": list(array.shape),
                    "dtype": array.dtype.name,
                    "bytes": len(data),
                    "file": file,
                }
            )
        return found

    def finish(self) -> Path:
        """Write the index."""
        index = {"format": "npuc-sample", "version": 1, "model": self.model, "runs": self._runs}
        with write_atomically(self.folder / INDEX) as out:
            out.write((json.dumps(index, indent=1) + "\n").encode())
        return self.folder / INDEX
