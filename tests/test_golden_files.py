"""Files of every version that npuc has written are read, and mean what they meant; files of a later npuc are refused.

`golden_files.py` made them. A test that fails here says that users' files of that version are no longer read.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import golden_files
from golden_files import FOLDER
from npuc import format_versions as versions
from npuc.calib.statistics import load_statistics
from npuc.calib.table import load_table
from npuc.codegen.compile_model import CompileOptions
from npuc.codegen.encode import encode_schedule
from npuc.debug.dump import Dump
from npuc.distribute.journal import open_journal
from npuc.engine.integer import IntegerEngine
from npuc.errors import NpucError
from npuc.flow import compile_network
from npuc.ir import load_graph, print_graph
from npuc.program import layout
from npuc.program.debug_info import read_debug_info
from npuc.program.file import load_compiled, load_entries, section_list
from npuc.program.model import NpuSubgraph
from npuc.quant.config import QuantizationConfig
from npuc.runtime import Runner
from npuc.schedule.cache import Cache
from npuc.schedule.decisions import ScheduleDecisions
from npuc.schedule.listing import load_listing
from npuc.schedule.schedule_file import ScheduleFile, resolve
from npuc.target import Target, load_target
from npuc.tensors import TensorFile, write_npz
from support.programs.host_models import run_in_c

VERSION_ATTRIBUTE = ", top.version = 1 : i64"
FINGERPRINT = "0xef41ba0883e0ecb2"
"""Of the golden target, which is that of the preset edge-1t."""


def golden(pattern: str) -> Any:
    """Every version of a file."""
    files = sorted(FOLDER.glob(pattern))
    assert files, pattern
    return pytest.mark.parametrize("path", files, ids=[file.name for file in files])


def test_every_format_has_golden_files_of_its_version() -> None:
    assert [path.name for path in golden_files.wanted() if not path.exists()] == [], (
        "python tests/golden_files.py --write"
    )
    covered = {kind.name for kind, _ in golden_files.FILES.values()}
    inside = {versions.DEBUG_SECTION.name}  # it is in the compiled model
    only_written = {versions.SAMPLE.name}
    assert covered | inside | only_written == {kind.name for kind in versions.FORMATS}


@pytest.fixture(scope="module")
def forms() -> dict[str, list[str]]:
    """What is written today, place by place."""
    return {path.name: lines for path, lines in golden_files.forms().items()}


@pytest.mark.parametrize("name", [*golden_files.FILES, *golden_files.TABLES])
def test_what_is_written_has_the_form_of_its_version(name: str, forms: dict[str, list[str]]) -> None:
    kind, _ = (golden_files.FILES | golden_files.TABLES)[name]
    file = f"{name.format(kind.version)}.form"
    kept = (FOLDER / "forms" / file).read_text().splitlines()
    gone, added = sorted(set(kept) - set(forms[file])), sorted(set(forms[file]) - set(kept))
    assert not gone, (
        f"readers of version {kind.version} look for this: raise it in format_versions.py (if only a choice of the compiler "
        f"for this network changed, write {file} again): {gone}"
    )
    assert not added, (
        f"raise version {kind.version}, or, if its readers take this, python tests/golden_files.py --add: {added}"
    )


@golden("network-v*.mlir")
def test_a_program_as_text(path: Path, tmp_path: Path) -> None:
    graph = load_graph(path)
    assert [port.name for port in graph.inputs] == ["image"] and graph.used_weights()
    found = IntegerEngine(graph, ["stem"], raw=True).run({"image": golden_files.image()})["stem"]
    wanted = IntegerEngine(
        golden_files.integer_network(load_target(golden_files.TARGET)), ["stem"], raw=True
    ).run({"image": golden_files.image()})["stem"]
    np.testing.assert_array_equal(found, wanted)
    # Text of before there was a version: the same without the attribute.
    text = path.read_text()
    assert text.count(VERSION_ATTRIBUTE) == 1
    (tmp_path / path.name).write_text(text.replace(VERSION_ATTRIBUTE, ""))
    shutil.copy(path.with_suffix(".safetensors"), tmp_path)
    without = print_graph(load_graph(tmp_path / path.name))
    assert without == print_graph(graph).replace(VERSION_ATTRIBUTE, "")


@golden("program-v*.npu")
def test_a_compiled_model_gives_the_stored_integers(path: Path) -> None:
    model = load_compiled(path)
    stored = TensorFile(FOLDER / f"results-of-{path.stem}.npz")
    found = golden_files.results(model)
    assert set(found) == set(stored) and any(array.dtype == np.int8 for array in found.values())
    for name, array in found.items():
        assert array.dtype == stored[name].dtype
        if array.dtype.kind == "f":
            np.testing.assert_allclose(array, stored[name], rtol=1e-6)
        else:
            np.testing.assert_array_equal(array, stored[name])
    assert {"image", "stem"} <= {tensor.name for tensor in read_debug_info(model).tensors}


@golden("host-operators-v*.npu")
def test_c_runs_what_the_cpu_runs(path: Path) -> None:
    outputs = {"scores": np.empty((1, 4), np.float32)}
    assert run_in_c(path.read_bytes(), {"image": golden_files.image()}, outputs) == ""
    wanted = golden_files.results(load_compiled(path))["scores"]
    np.testing.assert_allclose(outputs["scores"], wanted, rtol=1e-6)


@golden("entries-v*.npu")
def test_the_entries_of_a_program_give_the_stored_outputs(path: Path) -> None:
    stored = TensorFile(FOLDER / f"results-of-{path.stem.replace('entries', 'program')}.npz")
    for name, model in load_entries(path).items():
        assert name in ("searched", "plain")
        np.testing.assert_allclose(golden_files.results(model)["scores"], stored["scores"], rtol=1e-6)


@golden("program-v*.npu")
def test_a_compiled_model_runs_in_the_runtime(path: Path) -> None:
    stored = TensorFile(FOLDER / f"results-of-{path.stem}.npz")
    with Runner(path) as runner:
        found = runner.run({"image": golden_files.image()})
    np.testing.assert_allclose(found["scores"], stored["scores"], rtol=1e-6)


@golden("target-v*.yaml")
def test_a_target_keeps_its_fingerprint(path: Path) -> None:
    target = load_target(path)
    assert target.fingerprint_text == FINGERPRINT
    data = yaml.safe_load(path.read_text())
    del data["version"]
    assert Target.from_dict(data) == target and "version" not in target.to_dict()


def _stored_program() -> NpuSubgraph:
    """What a search of an earlier day found for the network, and `schedule-v1.yaml` says."""
    (stored,) = [
        one for one in load_compiled(FOLDER / "program-v2.npu").subgraphs if isinstance(one, NpuSubgraph)
    ]
    return stored


def _stated_decisions(path: Path) -> ScheduleDecisions | None:
    (part,) = golden_files.compiled().parts
    entry = ScheduleFile.load(path).for_subgraph(part.name)
    return resolve(entry, part.network, load_target(golden_files.TARGET)).schedule_decisions


@golden("schedule-v*.yaml")
def test_a_schedule_gives_the_same_program_again(path: Path) -> None:
    """Whatever the search would choose today."""
    target = load_target(golden_files.TARGET)
    options = CompileOptions(2, schedule=ScheduleFile.load(path))
    made = compile_network(golden_files.integer_network(target), target, options, "golden")
    (part,) = made.parts
    assert part.scheduled.schedule_decisions == _stated_decisions(path)
    streams = encode_schedule(part.schedule)
    assert [one.tobytes() for one in streams] == [one.tobytes() for one in _stored_program().streams]


@golden("schedule-listing-v*.txt")
def test_a_listing_of_a_schedule_is_encoded_to_the_same_program(path: Path) -> None:
    found = load_listing(path)
    (part,) = golden_files.compiled().parts
    assert (found.name, len(found.layers)) == (part.name, len(part.network.layers))
    stored = _stored_program()
    assert stored.name == found.name
    streams = encode_schedule(found)
    assert [one.tobytes() for one in streams] == [one.tobytes() for one in stored.streams]
    assert found.allocations == stored.allocations


@golden("cache-schedule-v*.json")
def test_a_cache_entry_is_used(path: Path, tmp_path: Path) -> None:
    (part,) = golden_files.compiled().parts
    entry = tmp_path / "schedules" / golden_files.KEY[:2] / f"{golden_files.KEY}.json"
    entry.parent.mkdir(parents=True)
    shutil.copy(path, entry)
    found = Cache(tmp_path).read(golden_files.KEY, part.network, load_target(golden_files.TARGET))
    assert found is not None and found == _stated_decisions(FOLDER / "schedule-v1.yaml")


@golden("cache-candidates-v*.json")
def test_candidates_are_used(path: Path, tmp_path: Path) -> None:
    cache, target = Cache(tmp_path), load_target(golden_files.TARGET)
    entry = cache._of(target)
    entry.parent.mkdir(parents=True)
    shutil.copy(path, entry)
    assert cache.candidates(target).known == golden_files.CANDIDATES


@golden("table-v*.cali")
def test_a_calibration_table(path: Path) -> None:
    assert load_table(path) == golden_files.table()


@golden("statistics-v*.npz")
def test_statistics(path: Path) -> None:
    found = load_statistics(path)
    assert list(found)[:3] == ["image", "stem", "block"] and found.samples == 1
    assert (found["image"].min, found["image"].max, found["image"].count) == (-1.0, 1.0, 192)
    assert found["image"].histogram.sum() == 192


@golden("quantization-v*.yaml")
def test_a_quantization_configuration(path: Path) -> None:
    found = QuantizationConfig.load(path)
    assert found.layers == {"stem": {"weight": "i16"}} and found.types == {"softmax": "float"}
    assert found.ladder.adaquant.iterations == 50 and not found.widen


@golden("dump-v*")
def test_a_dump(path: Path) -> None:
    dump = Dump(path)
    assert dump.index.model == "golden.npu" and dump.index.outputs == ("scores",)
    entry = dump.find(0, "stem")
    assert entry is not None and dump.read(entry).shape == (1, 4, 8, 8) and entry.dtype == "i8"


@golden("journal-v*.jsonl")
def test_a_journal(path: Path, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path / "journal")
    journal = open_journal(tmp_path / "journal", golden_files.JOURNAL, 3)
    journal.close()
    assert journal.done == {0: '{"top1": 1}', 1: '{"top1": 0}'}


def _npu(path: Path) -> Any:
    file = FOLDER / f"program-v{layout.VERSION}.npu"
    data = bytearray(file.read_bytes())
    offset = next(first for name, first, _ in section_list(file) if name == ".npu.header")
    data[offset] = layout.VERSION + 1  # the first field, little-endian
    path.write_bytes(data)
    return lambda: load_compiled(path, verify=False)


def _text(name: str, old: str, new: str, read: Callable[[Path], Any]) -> Callable[[Path], Any]:
    def made(path: Path) -> Any:
        text = (FOLDER / name).read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        return lambda: read(path)

    return made


def _statistics(path: Path) -> Any:
    arrays = dict(TensorFile(FOLDER / "statistics-v1.npz"))
    meta = json.loads(arrays["meta"].tobytes()) | {"version": 2}
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    write_npz(path.with_suffix(".npz"), arrays)
    return lambda: load_statistics(path.with_suffix(".npz"))


def _dump(path: Path) -> Any:
    shutil.copytree(FOLDER / "dump-v1", path)
    index = json.loads((path / "dump.json").read_text()) | {"version": 2, "unheard_of": 1}
    (path / "dump.json").write_text(json.dumps(index))
    return lambda: Dump(path)


YAML = ("version: 1", "version: 2\nunheard_of: 1")
LATER: dict[str, Callable[[Path], Any]] = {
    "program of version 2": _text("network-v1.mlir", "= 1 : i64}", "= 2 : i64}", load_graph),
    "compiled model of version 3, and this npuc reads version 2": _npu,
    "target of version 2": _text("target-v1.yaml", *YAML, load_target),
    "listing of a schedule of version 2": _text(
        "schedule-listing-v1.txt", "listing 1", "listing 2", load_listing
    ),
    "schedule of version 2": _text("schedule-v1.yaml", *YAML, ScheduleFile.load),
    "quantization configuration of version 2": _text("quantization-v1.yaml", *YAML, QuantizationConfig.load),
    "calibration table of version 2": _text("table-v1.cali", "version 1", "version 2", load_table),
    "calibration statistics file of version 2": _statistics,
    "dump of version 2": _dump,
    "journal of an evaluation of version 2": _text(
        "journal-v1.jsonl",
        '"version": 1',
        '"version": 2',
        lambda path: open_journal(path, golden_files.JOURNAL, 3),
    ),
}


@pytest.mark.parametrize("words", LATER)
def test_a_file_of_a_later_npuc_is_refused_by_its_version(words: str, tmp_path: Path) -> None:
    read = LATER[words](tmp_path / "later.yaml")
    with pytest.raises(NpucError) as caught:
        read()
    assert f"is a {words}" in caught.value.message
    assert str(caught.value.fix).startswith("Update npuc, or ")
    assert "later" in str(caught.value.where)


def test_a_cache_entry_of_another_version_is_passed_over(tmp_path: Path) -> None:
    (part,) = golden_files.compiled().parts
    target = load_target(golden_files.TARGET)
    entry = tmp_path / "schedules" / golden_files.KEY[:2] / f"{golden_files.KEY}.json"
    entry.parent.mkdir(parents=True)
    text = (FOLDER / "cache-schedule-v1.json").read_text()
    entry.write_text(text.replace("version 1", "version 2", 1))
    cache = Cache(tmp_path)
    assert cache.read(golden_files.KEY, part.network, target) is None and not cache.problems


@pytest.mark.parametrize("stated", ["two", "0", "1.0", "true", "[1]"])
def test_a_version_is_a_whole_number(stated: str, tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    path.write_text(f"version: {stated}\n")
    for load in (QuantizationConfig.load, ScheduleFile.load, load_target):
        with pytest.raises(NpucError, match=r"is not a whole number from 1 on"):
            load(path)


def test_an_older_version_than_the_oldest_says_what_to_do() -> None:
    with pytest.raises(
        NpucError, match=r"version 1, and this npuc reads version 2\. Compile the model again"
    ):
        versions.NPU_FILE.check(1, "m.npu")


def test_an_heir_has_a_version_of_its_own(tmp_path: Path) -> None:
    shutil.copy(golden_files.TARGET, tmp_path / "base.yaml")
    (tmp_path / "heir.yaml").write_text("extends: ./base.yaml\n")
    assert load_target(tmp_path / "heir.yaml").fingerprint_text == FINGERPRINT
