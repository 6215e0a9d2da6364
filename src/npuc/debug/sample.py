"""Samples for the bring-up of a board: what goes into a model and what comes out, as bare binary files (docs/debugging.md).

Of a compiled model also what each NPU subgraph reads and writes in DRAM, byte for byte as the machine has it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from npuc.arrays import Array
from npuc.debug.dump import drop
from npuc.debug.layers import as_stored
from npuc.files import make_folder, write_atomically
from npuc.format_versions import SAMPLE
from npuc.program.model import ChipSubgraph, NpuSubgraph
from npuc.sim.functional import Simulator
from npuc.tensors import file_names

Quantization = Mapping[str, tuple[float, int]]
"""Scale and zero point by the name of a tensor whose integers are stored."""
INDEX = "sample.json"


class SampleWriter:
    """Writes the inputs and outputs of runs; `finish` writes the index."""

    def __init__(self, folder: Path, model: str) -> None:
        self.folder = make_folder(folder)
        self.model = model
        drop(self.folder / INDEX)
        self._runs: list[dict[str, Any]] = []

    def add(
        self,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        quantization: Quantization | None = None,
        simulator: Simulator | None = None,
    ) -> None:
        """Write a run; with the simulator that it ran in, also what was in DRAM."""
        number = len(self._runs)
        make_folder(self.folder / f"run{number}")
        known = quantization or {}
        run = {
            "inputs": self._write(number, "input", inputs, known),
            "outputs": self._write(number, "output", outputs, known),
        }
        if simulator is not None:
            run["npu"] = self._in_dram(number, simulator)
        self._runs.append(run)

    def _write(
        self, run: int, what: str, tensors: Mapping[str, Array], quantization: Quantization
    ) -> list[dict[str, Any]]:
        stems = file_names(tensors)
        entries = []
        for number, (name, tensor) in enumerate(tensors.items()):
            array = as_stored(tensor)
            scale, zero_point = quantization.get(name, (0.0, 0))
            entries.append(
                {
                    "name": name,
                    "shape": list(array.shape),
                    "dtype": array.dtype.name,
                    "scale": scale,
                    "zero_point": zero_point,
                    **self._file(f"run{run}/{what}{number}-{stems[name]}.bin", array.tobytes()),
                }
            )
        return entries

    def _in_dram(self, run: int, simulator: Simulator) -> list[dict[str, Any]]:
        """What NPU subgraphs read and wrote; their tensors are still there when all have run."""
        entries = []
        for index, subgraph in enumerate(simulator.compiled.subgraphs):
            if isinstance(subgraph, NpuSubgraph | ChipSubgraph):
                ends = {
                    what: self._tensors(f"run{run}/npu{index}-{what}", names, simulator)
                    for what, names in (("input", subgraph.inputs), ("output", subgraph.outputs))
                }
                entries.append(
                    {"subgraph": subgraph.name, "inputs": ends["input"], "outputs": ends["output"]}
                )
        return entries

    def _tensors(self, stem: str, names: Sequence[str], simulator: Simulator) -> list[dict[str, Any]]:
        stems, entries = file_names(names), []
        for number, name in enumerate(names):
            tensor = simulator.compiled.tensor(name)
            data = simulator.segments[tensor.segment][tensor.offset : tensor.offset + tensor.size].tobytes()
            entries.append(
                {
                    "name": name,
                    "shape": list(tensor.shape),
                    "order": list(tensor.order),
                    "dtype": tensor.dtype,
                    "scale": tensor.scale,
                    "zero_point": tensor.zero_point,
                    "segment": tensor.segment,
                    "offset": tensor.offset,
                    **self._file(f"{stem}{number}-{stems[name]}.bin", data),
                }
            )
        return entries

    def _file(self, file: str, data: bytes) -> dict[str, Any]:
        with write_atomically(self.folder / file) as out:
            out.write(data)
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        return {"bytes": len(data), "md5": md5, "file": file}

    def finish(self) -> Path:
        """Write the index."""
        index = {"format": "npuc-sample", "version": SAMPLE.version, "model": self.model, "runs": self._runs}
        with write_atomically(self.folder / INDEX) as out:
            out.write((json.dumps(index, indent=1) + "\n").encode())
        return self.folder / INDEX
