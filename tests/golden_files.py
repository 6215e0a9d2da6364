"""Golden files: one small file of every format and version that npuc has written, to be read for ever.

    python tests/golden_files.py           name the files of today's versions that are missing
    python tests/golden_files.py --write   write them; a file that is there is never written again
    python tests/golden_files.py --add     add to the forms what writers write in addition, if readers of this version take it

A format whose version is raised gets new files beside the old ones, with the new version in their names; the old ones
stay, and test_golden_files.py reads them all. In `forms` is what each writer writes, place by place (`support/file_forms.py`):
it must go on being written until the version is raised, and what is new has to be added there on purpose. The network is built
here and has a layer on the CPU, so that a compiled model has streams, conversions and ONNX in it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from npuc import format_versions as versions
from npuc import lang
from npuc.arrays import Array
from npuc.calib.collection import collect
from npuc.calib.statistics import ObserverOptions, save_statistics
from npuc.calib.table import CalibrationTable, Entry, save_table
from npuc.codegen.compile_model import Compilation, CompileOptions
from npuc.debug.compiled import CompiledLayers
from npuc.debug.dump import DumpWriter
from npuc.distribute.journal import open_journal
from npuc.flow import compile_network, quantize_network
from npuc.ir import Graph, result_names, save_graph, top
from npuc.program.combine import combine
from npuc.program.file import save_compiled
from npuc.program.model import CompiledModel, NpuSubgraph
from npuc.quant.config import QuantizationConfig
from npuc.schedule.cache import Cache
from npuc.schedule.candidates import Tiling
from npuc.schedule.listing import save_listing
from npuc.schedule.schedule_file import describe
from npuc.sim import memory
from npuc.sim.functional import Simulator
from npuc.target import Target, load_target
from support.file_forms import file_tables, form, host_tables

FOLDER = Path(__file__).parent / "golden_files"
TARGET = FOLDER / "target-v1.yaml"
KEY = "golden"
"""The key of the cache entry."""
CANDIDATES = {"fits": Tiling(4, 1200.5, 4096.0), "does not fit": None}
JOURNAL = {"models": "m", "data": "d", "options": "o"}


def network() -> Graph:
    """Three layers on the NPU, one on the CPU."""
    rng = np.random.default_rng(14)
    x = lang.input("image", (1, 3, 8, 8))
    weights = rng.uniform(-1, 1, (4, 3, 3, 3)).astype(np.float32)
    y = lang.conv(x, weights, pads=1, relu=True, name="stem")
    y = y + lang.conv(y, rng.uniform(-1, 1, (4, 4, 1, 1)).astype(np.float32), name="block")
    y = lang.reduce(y, kind="mean", axes=(2, 3), keepdims=False, name="pool")
    return lang.build({"scores": lang.softmax(y, axis=1, name="softmax")})


def image() -> Array:
    """What the network is run on."""
    return np.linspace(-1, 1, 192, dtype=np.float32).reshape(1, 3, 8, 8)


def integer_network(target: Target) -> Graph:
    """The network with integers, but for `softmax`, which stays float."""
    graph = network()
    ranges = {port.name: (-1.0, 1.0) for port in graph.inputs}
    for op in graph.ops:
        if not isinstance(op, top.WeightOp):
            ranges |= dict.fromkeys(result_names(op), (-4.0, 4.0))
    config = QuantizationConfig(layers={"softmax": "float"})
    return quantize_network(graph, ranges, config, target).graph


def compilation(target: Target) -> Compilation:
    """The network, compiled, with `softmax` as floats on the CPU."""
    return compile_network(integer_network(target), target, CompileOptions(2), "golden")


@cache
def compiled() -> Compilation:
    """That for the machine of the golden target file."""
    return compilation(load_target(TARGET))


def results(model: CompiledModel) -> dict[str, Array]:
    """What the model computes: its outputs, and the integers that NPU subgraphs leave in DRAM."""
    simulator = Simulator(model)
    found = dict(simulator.run({"image": image()}))
    for part in model.subgraphs:
        if isinstance(part, NpuSubgraph):
            found |= {name: memory.read(simulator.segments, model.tensor(name)) for name in part.outputs}
    return found


def _target(path: Path) -> None:
    data = {"version": versions.TARGET_FILE.version, **load_target("edge-1t").to_dict(), "name": "golden"}
    path.write_text(yaml.safe_dump(data, sort_keys=False))


def _network(path: Path) -> None:
    save_graph(integer_network(load_target(TARGET)), path)


def _program(path: Path) -> None:
    save_compiled(compiled().model, path)


def _entries(path: Path) -> None:
    """The program twice, the second time without a search: two schedules over the same weights."""
    target = load_target(TARGET)
    plain = compile_network(integer_network(target), target, CompileOptions(0), "golden").model
    save_compiled(combine({"searched": compiled().model, "plain": plain}).entries, path)


def _results(path: Path) -> None:
    np.savez_compressed(path, **results(compiled().model))  # type: ignore[arg-type]


def _schedule(path: Path) -> None:
    found = {
        part.name: (part.scheduled.schedule_decisions, [layer.name for layer in part.network.layers])
        for part in compiled().parts
    }
    path.write_text(describe(found, "golden"))


def _listing(path: Path) -> None:
    save_listing(compiled().parts[0].schedule, path)


def _cache_entry(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kept = Cache(Path(folder))
        kept.write(KEY, compiled().parts[0].scheduled.schedule_decisions)
        shutil.copy(next(Path(folder).glob("schedules/*/*.json")), path)


def _candidates(path: Path) -> None:
    target = load_target(TARGET)
    with tempfile.TemporaryDirectory() as folder:
        kept = Cache(Path(folder))
        found = kept.candidates(target)
        for name, tiling in CANDIDATES.items():
            found.add(name, tiling)
        kept.add_candidates(target, found)
        shutil.copy(next(Path(folder).glob("candidates/*.json")), path)


def table() -> CalibrationTable:
    """A calibration table."""
    entries = [Entry("image", 1.0, -1.0, 1.0, "max"), Entry("a tensor", 0.1, 0.0, 0.1, "kl")]
    return CalibrationTable.of(entries, ["golden"])


def _statistics(path: Path) -> None:
    options = ObserverOptions(bins=64)
    save_statistics(collect(network(), [{"image": image()}], options=options), path)


def _quantization(path: Path) -> None:
    data = {
        "version": versions.QUANTIZATION_CONFIG.version,
        "scheme": "int8",
        "types": {"softmax": "float"},
        "layers": {"stem": {"weight": "i16"}},
        "ladder": {"adaquant": {"iterations": 50}},
        "widen": False,
    }
    path.write_text(yaml.safe_dump(data, sort_keys=False))


def _dump(path: Path) -> None:
    model = compiled().model
    writer = DumpWriter(path, "golden.npu")

    def visit(tensor: Any) -> bool:
        writer.add(0, tensor)
        return False  # go on

    CompiledLayers(model).trace({"image": image()}, visit)
    writer.finish(model.outputs)


def _journal(path: Path) -> None:
    journal = open_journal(path, JOURNAL, 3)
    journal.add(0, ['{"top1": 1}', '{"top1": 0}'])
    journal.close()


FILES: dict[str, tuple[versions.FormatVersion, Callable[[Path], None]]] = {
    "target-v{}.yaml": (versions.TARGET_FILE, _target),
    "network-v{}.mlir": (versions.PROGRAM_TEXT, _network),
    "program-v{}.npu": (versions.NPU_FILE, _program),
    "entries-v{}.npu": (versions.NPU_FILE, _entries),
    "results-of-program-v{}.npz": (versions.NPU_FILE, _results),
    "host-operators-v{}.npu": (versions.HOST_SECTION, _program),
    "schedule-v{}.yaml": (versions.SCHEDULE_FILE, _schedule),
    "schedule-listing-v{}.txt": (versions.SCHEDULE_LISTING, _listing),
    "cache-schedule-v{}.json": (versions.SCHEDULE_CACHE, _cache_entry),
    "cache-candidates-v{}.json": (versions.SCHEDULE_CACHE, _candidates),
    "table-v{}.cali": (versions.CALIBRATION_TABLE, lambda path: save_table(table(), path)),
    "statistics-v{}.npz": (versions.STATISTICS, _statistics),
    "quantization-v{}.yaml": (versions.QUANTIZATION_CONFIG, _quantization),
    "dump-v{}": (versions.DUMP, _dump),
    "journal-v{}.jsonl": (versions.JOURNAL, _journal),
}
"""Name, with a place for the version, to format and writer; in the order in which they are written."""


def wanted() -> dict[Path, Callable[[Path], None]]:
    """The files of today's versions, and what writes each."""
    return {FOLDER / name.format(kind.version): write for name, (kind, write) in FILES.items()}


TABLES: dict[str, tuple[versions.FormatVersion, Callable[[], list[str]]]] = {
    "tables-v{}.npu": (versions.NPU_FILE, file_tables),
    "host-tables-v{}.npu": (versions.HOST_SECTION, host_tables),
}
"""Forms that are tables of records rather than files."""


def forms() -> dict[Path, list[str]]:
    """The form of everything that is written today, by where it is kept."""
    kept = FOLDER / "forms"
    found = {kept / f"{name.format(kind.version)}.form": tables() for name, (kind, tables) in TABLES.items()}
    with tempfile.TemporaryDirectory() as folder:
        for path, write in wanted().items():
            new = Path(folder, path.name)
            write(new)
            found[kept / f"{path.name}.form"] = form(new)
    return found


def keep_forms(add: bool) -> None:
    """Write forms that are not there; `add`: also lines that are new in those that are. No line is ever taken away."""
    for path, lines in forms().items():
        known = path.read_text().splitlines() if path.exists() else []
        if add or not known:
            path.parent.mkdir(exist_ok=True)
            path.write_text("\n".join(sorted({*known, *lines})) + "\n")


def main() -> None:
    """Write what is missing."""
    FOLDER.mkdir(exist_ok=True)
    for path, write in wanted().items():
        if not path.exists():
            print(path.relative_to(FOLDER.parent))
            if "--write" in sys.argv[1:]:
                write(path)
    if {"--write", "--add"} & set(sys.argv[1:]):
        keep_forms("--add" in sys.argv[1:])


if __name__ == "__main__":
    main()
