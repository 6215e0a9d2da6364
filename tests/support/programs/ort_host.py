"""A C++ program with ONNX Runtime and npuc's execution provider in it, and no Python (tests/integrations/ort_host.cpp)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npuc.integrations import onnxruntime as provider
from support.paths import ROOT

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class HostRun:
    """What the program said and computed."""

    status: int
    said: str
    outputs: list[Array]
    """Of the first run, as bytes on the last axis; none if it failed."""


class OrtHost:
    """The program, built in a folder."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime

        self._program = folder / "ort_host"
        flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror"]
        source = ROOT / "tests/integrations/ort_host.cpp"
        words = ["g++", *flags, str(source), "-o", str(self._program), "-ldl", "-pthread"]
        subprocess.run(words, check=True)
        self._runtime = next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.1*"))

    def run(
        self,
        model: Path,
        inputs: Sequence[Array],
        folder: Path,
        options: Mapping[str, str],
        *,
        dimensions: Mapping[str, int] | None = None,
        threads: int = 1,
        runs: int = 1,
        environment: Mapping[str, str] | None = None,
    ) -> HostRun:
        """Run a model `runs` times in each of several threads; `folder` is for its tensors."""
        for index, array in enumerate(inputs):
            array.tofile(folder / f"input_{index}.bin")
            (folder / f"input_{index}.shape").write_text(" ".join(map(str, array.shape)))
        for path in folder.glob("output_*"):
            path.unlink()
        files = [self._program, self._runtime, provider.library_path(), model, folder]
        settings = [f"{name}={value}" for name, value in options.items()]
        sizes = [f"dimension:{name}={size}" for name, size in (dimensions or {}).items()]
        done = subprocess.run(
            [*map(str, files), str(threads), str(runs), *settings, *sizes],
            capture_output=True,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        count = len(list(folder.glob("output_*.bin"))) if done.returncode == 0 else 0
        return HostRun(done.returncode, done.stdout + done.stderr, [_output(folder, i) for i in range(count)])


def _output(folder: Path, index: int) -> Array:
    shape = [int(size) for size in (folder / f"output_{index}.shape").read_text().split()]
    data = np.fromfile(folder / f"output_{index}.bin", np.uint8)
    return data.reshape(*shape, -1) if data.size else np.empty((*shape, 0), np.uint8)


def assert_same(host: HostRun, expected: Sequence[Array]) -> None:
    """The program succeeded, and its outputs have the shapes and bits of Python's."""
    assert host.status == 0, host.said
    assert len(host.outputs) == len(expected)
    for index, (data, array) in enumerate(zip(host.outputs, expected, strict=True)):
        assert data.shape[:-1] == array.shape
        values = np.ascontiguousarray(data).reshape(-1).view(array.dtype).reshape(array.shape)
        np.testing.assert_array_equal(values, array, err_msg=f"output {index}")


def npuc_command(folder: Path) -> Path:
    """The command of the npuc that is tested."""
    command = folder / "npuc"
    command.write_text(f"#!{sys.executable}\nimport sys\nfrom npuc.cli import main\nsys.exit(main())\n")
    command.chmod(0o755)
    return command
