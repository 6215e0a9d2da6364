"""A compiled model as a C application: sources that run it, the model, a sample, and files that build it all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from npuc.arrays import Array
from npuc.calib.compiled import interface_of
from npuc.calib.random_inputs import random_inputs
from npuc.deploy.c.arrays import data_header, measure, model_source, sample_source
from npuc.deploy.c.kernels import kernel_files, plugin_sources
from npuc.deploy.c.settings import settings_source
from npuc.deploy.c.sources import HOSTED, STANDALONE, runtime_files, template
from npuc.errors import ExportError, InputDataError, OutputError
from npuc.files import make_folder, write_atomically
from npuc.ir import Graph
from npuc.program.host_ops import refusal_of
from npuc.program.model import CompiledModel, CpuSubgraph, HostConversion, NpuSubgraph
from npuc.runtime.states import with_initial_states
from npuc.sim import Simulator

_OF_REALS, _OF_INTEGERS = 1e-5, 0.05
_TABLE_TOP = "| | name | type | shape | bytes | scale, zero point |\n|---|---|---|---|---|---|"


@dataclass(frozen=True)
class _Entry:
    """An entry of the program, and inputs with the outputs that they have to give, in the order of the model."""

    name: str
    """"" for the only one."""
    model: CompiledModel
    interface: Graph
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]


def export_c(
    program: CompiledModel | Mapping[str, CompiledModel],
    file: bytes,
    folder: Path | str,
    sample: Mapping[str, Array] | None = None,
    *,
    standalone: bool = False,
) -> list[Path]:
    """Write an application for a compiled model, or for the entries of a program by name, and the bytes of its file.

    `sample` has raw tensors by the names of inputs, for the entries that take them; without it they are random. `standalone` is
    the form without files, heap and threads. The folder has to be empty or new. Returns the files.
    """
    folder = _usable(Path(folder))
    return _write(folder, application_files(program, file, sample, standalone=standalone))


def application_files(
    program: CompiledModel | Mapping[str, CompiledModel],
    file: bytes,
    sample: Mapping[str, Array] | None = None,
    *,
    standalone: bool = False,
) -> dict[str, bytes]:
    """The files of an application by their names in its folder, for those who change some of them; as `export_c` writes them."""
    models = {"": program} if isinstance(program, CompiledModel) else dict(program)
    if len(models) == 1:
        models = {"": next(iter(models.values()))}
    for model in models.values():
        _refuse_cpu(model)
    interfaces = {name: interface_of(model) for name, model in models.items()}
    samples = _samples(models, interfaces, sample)
    entries = [
        _Entry(name, model, interfaces[name], *_recorded(model, samples[name]))
        for name, model in models.items()
    ]
    return _standalone(entries, file) if standalone else _hosted(entries, file)


def _hosted(entries: Sequence[_Entry], file: bytes) -> dict[str, bytes]:
    models = [entry.model for entry in entries]
    libraries = plugin_sources(models)
    values = {"DEFINES": "", "LIBRARIES": "-lm -lpthread", "CMAKE_LIBRARIES": "m pthread"}
    if libraries:
        values |= {"LIBRARIES": "-lm -lpthread -ldl", "CMAKE_LIBRARIES": "m pthread dl"}
    values["TENSORS"] = _tensors(entries, samples=True)
    values |= _compared(max(_tolerance(entry.model) for entry in entries))
    values |= {"MAKE_DECODERS": template("decoders.mk"), "CMAKE_DECODERS": template("decoders.cmake")}
    files = {name: template(name) for name in ("image.c", "image.h", "decode.c", "top.c", "top.h")}
    files |= {
        name: _filled(template(name), values)
        for name in ("main.c", "Makefile", "CMakeLists.txt", "README.md")
    }
    files["settings.c"] = settings_source([(entry.model, entry.interface) for entry in entries])
    files |= kernel_files(models, libraries)
    data = {"model.npu": file}
    for number, entry in enumerate(entries):
        at = _sample_folder(number)
        data |= {f"{at}/input{i}.bin": value.tobytes() for i, value in enumerate(entry.inputs)}
        data |= {f"{at}/output{i}.bin": value.tobytes() for i, value in enumerate(entry.outputs)}
    return (
        {name: text.encode() for name, text in files.items()} | data | runtime_files(HOSTED, bool(libraries))
    )


def _sample_folder(number: int) -> str:
    """The folder of an entry's sample; names of entries are no names of folders."""
    return f"sample{number or ''}"


def _standalone(entries: Sequence[_Entry], file: bytes) -> dict[str, bytes]:
    models = [entry.model for entry in entries]
    libraries = plugin_sources(models)
    needs = measure(file, models[0].name)
    values = {
        "DEFINES": "-DNPUC_NO_HEAP",
        "LIBRARIES": "-lm",
        "CMAKE_LIBRARIES": "m",
        "MAKE_DECODERS": "",
        "CMAKE_DECODERS": "",
        "MODEL_BYTES": f"{len(file):,}",
        "ARENA_BYTES": f"{needs.arena:,}",
        "LOCAL_BYTES": f"{max(map(_cores, models)) * needs.local + needs.shared:,}",
        "SEGMENT_BYTES": f"{max(sum(s.size for s in model.segments[1:]) for model in models):,}",
        "SCRATCH_BYTES": f"{needs.scratch:,}",
        "TENSORS": _tensors(entries, samples=False),
    } | _compared(max(map(_tolerance, models)))
    files = {name: template(name) for name in ("top.c", "top.h")}
    files |= {name: _filled(template(name), values) for name in ("Makefile", "CMakeLists.txt")}
    files["README.md"] = _filled(template("STANDALONE.md"), values)
    files["main.c"] = _filled(template("standalone.c"), values)
    files |= kernel_files(models, libraries)
    files["data.h"] = data_header(needs, len(entries))
    files["model_data.c"] = model_source(file, needs)
    files["sample_data.c"] = sample_source([(entry.name, entry.inputs, entry.outputs) for entry in entries])
    return {name: text.encode() for name, text in files.items()} | runtime_files(STANDALONE, bool(libraries))


def _cores(model: CompiledModel) -> int:
    return max((len(part.streams) for part in model.subgraphs if isinstance(part, NpuSubgraph)), default=1)


def _cpu_parts(compiled: CompiledModel) -> list[CpuSubgraph]:
    return [part for part in compiled.subgraphs if isinstance(part, CpuSubgraph)]


def _refuse_cpu(compiled: CompiledModel) -> None:
    """`ExportError` for CPU subgraphs with an operator that the C runtime has not, by name."""
    old = [part.name for part in _cpu_parts(compiled) if not part.host]
    if old:
        raise ExportError(
            f"the file has no host operators for what the CPU runs ({', '.join(old)}): an older npuc compiled it",
            where=compiled.name,
            fix="Compile the network again",
        )
    refusals = {part.name: refusal_of(part.host) for part in _cpu_parts(compiled) if refusal_of(part.host)}
    if not refusals:
        return
    first = next(k for k, part in enumerate(compiled.subgraphs) if part.name in refusals)
    if any(isinstance(part, NpuSubgraph) for part in compiled.subgraphs[first:]):
        fix = "'npuc inspect' with the network and the target tells what brings such layers to the NPU"
    else:
        fix = "Cut the network before them (npuc import --outputs) and leave the rest to the application"
    raise ExportError(
        f"the C runtime has no operator for what the CPU runs: {'; '.join(refusals.values())}",
        where=compiled.name,
        fix=f"{fix}. docs/host-ops.md lists the operators",
    )


def _tolerance(compiled: CompiledModel) -> float:
    """How far a sample may be from Python's outputs, as a part of the largest number of an output.

    Reals of the CPU are rounded differently here and in ONNX Runtime. Where integers are made of them, a number between two
    integers may become the other one, and layers on the NPU carry that on.
    """
    cpu = [k for k, part in enumerate(compiled.subgraphs) if isinstance(part, CpuSubgraph)]
    if not cpu:
        return 0.0
    behind = compiled.subgraphs[cpu[0] :]
    integers = any(isinstance(part, NpuSubgraph) for part in behind) or any(
        compiled.tensor(name).scale > 0
        for part in behind
        if isinstance(part, HostConversion)
        for name in part.outputs
    )
    return _OF_INTEGERS if integers else _OF_REALS


def _compared(tolerance: float) -> dict[str, str]:
    """What templates say of the comparison."""
    words = (
        "bit by bit"
        if not tolerance
        else f"within {tolerance:g} of their largest numbers: layers that the CPU runs are rounded differently in Python"
    )
    return {"TOLERANCE": f"{tolerance:g}", "COMPARED": words}


def _samples(
    models: Mapping[str, CompiledModel],
    interfaces: Mapping[str, Graph],
    given: Mapping[str, Array] | None,
) -> dict[str, Mapping[str, Array]]:
    """The inputs of each entry: those that are given where they have its names and shapes, or else random ones."""
    if given is not None and len(models) == 1:
        return {name: _named(model, given) for name, model in models.items()}
    samples: dict[str, Mapping[str, Array]] = {
        name: with_initial_states(models[name], random_inputs(interface))
        for name, interface in interfaces.items()
    }
    if given is None:
        return samples
    fitting = {name: _named(model, given) for name, model in models.items() if _fits(model, given)}
    if not fitting:
        raise InputDataError(
            "no entry of the program takes the tensors of the sample", fix="Choose an entry with --entry"
        )
    return samples | fitting


def _fits(model: CompiledModel, given: Mapping[str, Array]) -> bool:
    tensors = with_initial_states(model, given)
    return all(
        name in tensors and np.shape(tensors[name]) == model.tensor(name).shape for name in model.inputs
    )


def _named(model: CompiledModel, given: Mapping[str, Array]) -> dict[str, Array]:
    tensors = with_initial_states(model, given)
    missing = [name for name in model.inputs if name not in tensors]
    if missing:
        raise InputDataError(f"the sample has no tensor '{missing[0]}'", where=model.name)
    return {name: np.asarray(tensors[name]) for name in model.inputs}


def _recorded(
    model: CompiledModel, sample: Mapping[str, Array]
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """The inputs of a sample and what they give, both in the order of the model."""
    outputs = Simulator(model).run(dict(sample))
    return tuple(sample[name] for name in model.inputs), tuple(outputs[name] for name in model.outputs)


def _filled(text: str, values: Mapping[str, str]) -> str:
    """A template with its @NAMES@ replaced."""
    for name, value in values.items():
        text = text.replace(f" @{name}@", f" {value}" if value else "").replace(f"@{name}@", value)
    return text


def _tensors(entries: Sequence[_Entry], samples: bool) -> str:
    """The inputs and outputs of each entry as tables in Markdown, with the folders of their samples."""
    parts = []
    for number, entry in enumerate(entries):
        if entry.name:
            where = f", sample in `{_sample_folder(number)}/`" if samples else ""
            parts.append(f"## Entry `{_plain(entry.name)}`{where}")
        for title, names in (("Inputs", entry.model.inputs), ("Outputs", entry.model.outputs)):
            parts.append(f"{title}:\n\n{_TABLE_TOP}\n{_table(entry.model, names)}")
    return "\n\n".join(parts)


def _plain(name: str) -> str:
    """A name from a model file as it may stand in a table."""
    return "".join(c if c.isprintable() and c not in "|`" else "_" for c in name)


def _table(compiled: CompiledModel, names: tuple[str, ...]) -> str:
    """Tensors as rows of a table in Markdown."""
    rows = []
    for index, name in enumerate(names):
        tensor = compiled.tensor(name)
        shape = " x ".join(map(str, tensor.shape)) or "scalar"
        step = f"{tensor.scale:.9g}, {tensor.zero_point}" if tensor.scale else "plain"
        rows.append(f"| {index} | `{_plain(name)}` | {tensor.dtype} | {shape} | {tensor.size} | {step} |")
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
