"""A compiled model as a C application: sources that run it, the model, a sample, and files that build it all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from npuc.arrays import Array
from npuc.calib.compiled import interface_of
from npuc.calib.random_inputs import random_inputs
from npuc.deploy.c.arrays import data_header, measure, model_source, sample_source
from npuc.deploy.c.kernels import kernel_files
from npuc.deploy.c.settings import settings_source
from npuc.deploy.c.sources import HOSTED, STANDALONE, runtime_files, template
from npuc.errors import ExportError, InputDataError, OutputError
from npuc.files import make_folder, write_atomically
from npuc.ir import Graph
from npuc.program.model import CompiledModel, CpuSubgraph, NpuSubgraph
from npuc.runtime.states import with_initial_states
from npuc.sim import Simulator


@dataclass(frozen=True)
class RecordedSample:
    """Inputs, and the outputs that they have to give, in the order of the model."""

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]


def export_c(
    compiled: CompiledModel,
    file: bytes,
    folder: Path | str,
    sample: Mapping[str, Array] | None = None,
    *,
    standalone: bool = False,
) -> list[Path]:
    """Write an application for a compiled model and the bytes of its file; returns the files.

    `sample` has raw tensors by the names of inputs; without it they are random. `standalone` is the form without files,
    heap and threads. The folder has to be empty or new.
    """
    folder = _usable(Path(folder))
    _refuse_cpu(compiled)
    interface = interface_of(compiled)
    taken = _take_sample(compiled, interface, sample)
    if standalone:
        return _write(folder, _standalone(compiled, file, taken))
    return _write(folder, _hosted(compiled, file, interface, taken))


def _hosted(
    compiled: CompiledModel, file: bytes, interface: Graph, sample: RecordedSample
) -> dict[str, bytes]:
    kernels = kernel_files(compiled)
    values = {"DEFINES": "", "LIBRARIES": "-lm -lpthread", "CMAKE_LIBRARIES": "m pthread"} | _tables(compiled)
    files = {name: template(name) for name in ("main.c", "image.c", "image.h", "top.c", "top.h")}
    files |= {name: _filled(template(name), values) for name in ("Makefile", "CMakeLists.txt", "README.md")}
    files["settings.c"] = settings_source(compiled, interface)
    files |= kernels
    data = {"model.npu": file}
    data |= {f"sample/input{i}.bin": value.tobytes() for i, value in enumerate(sample.inputs)}
    data |= {f"sample/output{i}.bin": value.tobytes() for i, value in enumerate(sample.outputs)}
    return {name: text.encode() for name, text in files.items()} | data | runtime_files(HOSTED)


def _standalone(compiled: CompiledModel, file: bytes, sample: RecordedSample) -> dict[str, bytes]:
    kernels = kernel_files(compiled)
    needs = measure(file, compiled.name)
    cores = max(
        (len(subgraph.streams) for subgraph in compiled.subgraphs if isinstance(subgraph, NpuSubgraph)),
        default=1,
    )
    values = {
        "DEFINES": "-DNPUC_NO_HEAP",
        "LIBRARIES": "-lm",
        "CMAKE_LIBRARIES": "m",
        "MODEL_BYTES": f"{len(file):,}",
        "ARENA_BYTES": f"{needs.arena:,}",
        "LOCAL_BYTES": f"{cores * needs.local + needs.shared:,}",
        "SEGMENT_BYTES": f"{sum(segment.size for segment in compiled.segments[1:]):,}",
        "SCRATCH_BYTES": f"{needs.scratch:,}",
    } | _tables(compiled)
    files = {name: template(name) for name in ("top.c", "top.h")}
    files |= {name: _filled(template(name), values) for name in ("Makefile", "CMakeLists.txt")}
    files["README.md"] = _filled(template("STANDALONE.md"), values)
    files["main.c"] = template("standalone.c")
    files |= kernels
    files["data.h"] = data_header(needs)
    files["model_data.c"] = model_source(file, needs)
    files["sample_data.c"] = sample_source(sample.inputs, sample.outputs)
    return {name: text.encode() for name, text in files.items()} | runtime_files(STANDALONE)


def _refuse_cpu(compiled: CompiledModel) -> None:
    on_cpu = [part for part in compiled.subgraphs if isinstance(part, CpuSubgraph)]
    if not on_cpu:
        return
    groups: dict[str, list[str]] = {}
    for subgraph in on_cpu:
        for layer, reason in (subgraph.reasons or {subgraph.name: "no reason is stated"}).items():
            groups.setdefault(reason, []).append(f"'{layer}'")
    count = sum(map(len, groups.values()))
    words = "; ".join(f"{', '.join(layers)} ({reason})" for reason, layers in groups.items())
    first = compiled.subgraphs.index(on_cpu[0])
    if any(isinstance(part, NpuSubgraph) for part in compiled.subgraphs[first:]):
        fix = "'npuc inspect' with the network and the target tells what brings such layers to the NPU"
    else:
        fix = "Cut the network before them (npuc import --outputs) and leave the rest to the application"
    run = "1 layer runs" if count == 1 else f"{count} layers run"
    raise ExportError(
        f"the C runtime has no ONNX Runtime, and {run} there, on the CPU: {words}",
        where=compiled.name,
        fix=fix,
    )


def _take_sample(
    compiled: CompiledModel, interface: Graph, given: Mapping[str, Array] | None
) -> RecordedSample:
    tensors = with_initial_states(compiled, random_inputs(interface) if given is None else given)
    missing = [name for name in compiled.inputs if name not in tensors]
    if missing:
        raise InputDataError(f"the sample has no tensor '{missing[0]}'", where=compiled.name)
    inputs = {name: np.asarray(tensors[name]) for name in compiled.inputs}
    outputs = Simulator(compiled).run(inputs)
    return RecordedSample(tuple(inputs.values()), tuple(outputs[name] for name in compiled.outputs))


def _filled(text: str, values: Mapping[str, str]) -> str:
    """A template with its @NAMES@ replaced."""
    for name, value in values.items():
        text = text.replace(f" @{name}@", f" {value}" if value else "").replace(f"@{name}@", value)
    return text


def _tables(compiled: CompiledModel) -> dict[str, str]:
    return {"INPUTS": _table(compiled, compiled.inputs), "OUTPUTS": _table(compiled, compiled.outputs)}


def _table(compiled: CompiledModel, names: tuple[str, ...]) -> str:
    """Tensors as rows of a table in Markdown."""
    rows = []
    for index, name in enumerate(names):
        tensor = compiled.tensor(name)
        shape = " x ".join(map(str, tensor.shape)) or "scalar"
        step = f"{tensor.scale:.9g}, {tensor.zero_point}" if tensor.scale else "plain"
        plain = "".join(c if c.isprintable() and c not in "|`" else "_" for c in name)
        rows.append(f"| {index} | `{plain}` | {tensor.dtype} | {shape} | {tensor.size} | {step} |")
    return "\n".join(rows)


def _usable(folder: Path) -> Path:
    """The folder, if it is new or empty."""
    if folder.exists() and not folder.is_dir():
        raise OutputError("is a file, not a folder", where=str(folder), fix="Choose another folder with -o")
    if folder.is_dir() and any(folder.iterdir()):
        raise OutputError(
            "is not empty, and an application starts in a folder of its own",
            where=str(folder),
            fix="Choose a new folder with -o",
        )
    return folder


def _write(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    written = []
    for name, content in sorted(files.items()):
        path = folder / name
        make_folder(path.parent)
        with write_atomically(path) as out:
            out.write(content)
        written.append(path)
    return written
