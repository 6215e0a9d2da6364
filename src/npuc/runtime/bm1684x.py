"""The BM1684X as SOPHGO's own runtime and functional model execute it: the device `bm1684x-model`.

The libraries are in the wheel `tpu_mlir`, which npuc neither needs nor brings: `make peers-sophgo` unpacks what is used of it
into build/peers/sophgo, and the variable NPUC_SOPHGO names another folder. They run in a process of their own (`bm1684x_child`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arithmetic.dtypes import dtype_of
from npuc.arrays import Array
from npuc.errors import DeviceError, WrongTargetError
from npuc.program.bm1684x.bmodel import Bmodel, read_bmodel
from npuc.program.model import ChipSubgraph, CompiledModel, NpuSubgraph
from npuc.runtime.bm1684x_child import read_frame, write_frame
from npuc.runtime.device import register_device

NAME = "bm1684x-model"
FOLDERS = ("build/peers/sophgo/tpu_mlir/lib",)
"""Where the libraries are looked for, from the folder that npuc is started in."""
_NEEDED = ("libbmrt.so.1.0", "libbmlib.so.0", "libcmodel.so")


def vendor_libraries() -> Path | None:
    """The folder of the vendor's libraries, or None if there is none."""
    named = os.environ.get("NPUC_SOPHGO")
    places = [Path(named), Path(named) / "tpu_mlir" / "lib"] if named else list(map(Path, FOLDERS))
    for place in places:
        if all((place / name).is_file() for name in _NEEDED):
            return place.resolve()
    return None


class VendorProcess:
    """SOPHGO's runtime in a process of its own."""

    def __init__(self, libraries: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="npuc-bm1684x-")
        self._log = open(Path(self._folder.name) / "log", "w+b")  # noqa: SIM115
        environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
        child = Path(__file__).with_name("bm1684x_child.py")
        self._process = subprocess.Popen(
            [sys.executable, str(child), str(libraries)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            cwd=self._folder.name,
        )
        self._files = 0
        self._read()

    def load(self, data: bytes) -> None:
        """The bytes of a `.bmodel` file."""
        path = Path(self._folder.name) / f"{self._files}.bmodel"
        self._files += 1
        path.write_bytes(data)
        self._ask({"load": str(path)})
        path.unlink()

    def run(self, name: str, inputs: Sequence[Array], sizes: Sequence[int]) -> list[bytes]:
        """The bytes of the outputs of a network that was loaded."""
        shapes = [list(array.shape) for array in inputs]
        self._ask({"run": name, "inputs": shapes, "outputs": list(sizes)}, inputs)
        return [self._frame() for _ in sizes]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(30)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()
        self._folder.cleanup()

    def _ask(self, request: Mapping[str, Any], arrays: Sequence[Array] = ()) -> None:
        assert self._process.stdin is not None
        try:
            write_frame(self._process.stdin, json.dumps(request).encode())
            for array in arrays:
                write_frame(self._process.stdin, np.ascontiguousarray(array).tobytes())
        except OSError as error:
            raise self._ended() from error
        self._read()

    def _read(self) -> None:
        answer = json.loads(self._frame())
        if not answer["ok"]:
            raise DeviceError(answer["why"], where=f"device '{NAME}'")

    def _frame(self) -> bytes:
        assert self._process.stdout is not None
        try:
            return read_frame(self._process.stdout)
        except EOFError as error:
            raise self._ended() from error

    def _ended(self) -> DeviceError:
        """The process ended by itself: a failed assertion of the vendor's, with what it printed."""
        status = self._process.wait()
        self._log.seek(0)
        printed = self._log.read().decode(errors="replace").splitlines()
        telling = [line for line in printed if "ssert" in line or "ASSERT" in line] or printed[-3:]
        words = "; ".join(line.strip() for line in telling)[:600]
        return DeviceError(
            f"the vendor's process ended with status {status}: {words}", where=f"device '{NAME}'"
        )


class Bm1684xDevice:
    """The functional model of the chip behind the vendor's runtime."""

    def __init__(self) -> None:
        self.name = NAME
        libraries = vendor_libraries()
        if libraries is None:
            raise DeviceError(
                "the libraries of SOPHGO's wheel tpu_mlir 1.30.2 are not here",
                where=f"device '{NAME}'",
                fix="Run 'make peers-sophgo', or name the folder of the unpacked wheel in NPUC_SOPHGO",
            )
        self._libraries = libraries

    def load(self, model: CompiledModel, threads: int) -> Bm1684xModel:
        """All of its programs in a process of the vendor's."""
        for part in model.subgraphs:
            if isinstance(part, NpuSubgraph):
                raise WrongTargetError(
                    f"the model is for {model.target['name']}, and this device runs programs of the BM1684X",
                    fix="Compile it with --target bm1684x, or run it on the device 'simulated'",
                )
        return Bm1684xModel(model, VendorProcess(self._libraries))

    def close(self) -> None:
        """Each model has a process of its own, which ends with it."""


class Bm1684xModel:
    """A model in the vendor's process; its tensors lie in this one."""

    def __init__(self, model: CompiledModel, process: VendorProcess) -> None:
        self._model, self._process = model, process
        self._own = [np.zeros(segment.size, np.uint8) for segment in model.segments]
        self._bound = list(self._own)
        self._programs: dict[int, Bmodel] = {}
        for number, part in enumerate(model.subgraphs):
            if isinstance(part, ChipSubgraph):
                self._programs[number] = read_bmodel(part.program, part.name)
                process.load(part.program)

    @property
    def segments(self) -> Sequence[Array]:
        """What the host sees: inputs, outputs, and what subgraphs exchange."""
        return self._own

    def bind(self, segment: int, memory: Array | None) -> bool:
        """Any memory of this process will do."""
        self._bound[segment] = self._own[segment] if memory is None else memory
        return True

    def execute(self, subgraph: int) -> int | None:
        """Send the inputs, run, and get the outputs."""
        part, program = self._model.subgraphs[subgraph], self._programs[subgraph]
        inputs = [self._bytes(name) for name in part.inputs]
        arrays = [
            array.view(dtype_of(port.dtype).numpy).reshape(port.shape)
            for array, port in zip(inputs, program.inputs, strict=True)
        ]
        sizes = [port.size for port in program.outputs]
        results = self._process.run(program.name, arrays, sizes)
        for name, data in zip(part.outputs, results, strict=True):
            self._bytes(name)[:] = np.frombuffer(data, np.uint8)
        return None

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _bytes(self, name: str) -> Array:
        tensor = self._model.tensor(name)
        return self._bound[tensor.segment][tensor.offset : tensor.offset + tensor.size]


register_device(NAME, Bm1684xDevice)
