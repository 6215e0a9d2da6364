"""`.npu` files: what goes in comes out, the same model gives the same bytes, and nothing in a file is believed."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.errors import FileFormatError, FileMissingError, InternalError, InvalidModelError, WrongTargetError
from npuc.format_versions import NPU_FILE
from npuc.program import elf, isa, layout
from npuc.program.checks import Surroundings, check_stream
from npuc.program.file import load_compiled, save_compiled, section_list
from npuc.program.file_writer import make_sections
from npuc.program.model import CompiledModel, CpuSubgraph, NpuSubgraph, Segment, Tensor, records
from npuc.program.records import Record
from npuc.target import load_target
from support.paths import ROOT, TESTS
from support.programs.files import (
    LAYERS,
    SEGMENTS,
    TENSORS,
    as_bytes,
    build_driver,
    good,
    parse,
    random_model,
    read_in_c,
    saved,
    sealed,
)
from support.programs.instructions import as_stream


def same(one: CompiledModel, other: CompiledModel) -> None:
    """Equal in every field; arrays byte for byte."""
    for field in fields(CompiledModel):
        here, there = getattr(one, field.name), getattr(other, field.name)
        if field.name == "weights":
            assert np.array_equal(here, there)
        elif field.name == "subgraphs":
            for a, b in zip(here, there, strict=True):
                if isinstance(a, NpuSubgraph):
                    assert all(np.array_equal(s, t) for s, t in zip(a.streams, b.streams, strict=True))
                    a, b = replace(a, streams=()), replace(b, streams=())
                assert a == b
        else:
            assert here == there, field.name


@pytest.mark.parametrize("seed,cores,target", [(0, 2, "server-32t"), (1, 1, "edge-1t"), (2, 4, "server-32t")])
def test_what_is_saved_is_loaded(tmp_path: Path, seed: int, cores: int, target: str) -> None:
    model = random_model(seed, cores=cores, target=target)
    loaded = load_compiled(saved(tmp_path / "m.npu", model), load_target(target))
    same(model, loaded)
    assert isinstance(loaded.tensors[0].shape[0], int)


def test_a_model_without_weights_layers_or_subgraphs(tmp_path: Path) -> None:
    empty = random_model(
        segments=(Segment("weights", "weights", 0), Segment("workspace", "workspace", 0)),
        weights=np.zeros(0, np.uint8), tensors=(), inputs=(), outputs=(), layers=(), subgraphs=(), metadata={},
    )  # fmt: skip
    same(empty, load_compiled(saved(tmp_path / "m.npu", empty)))


def test_weights_and_streams_are_views_of_the_file(tmp_path: Path) -> None:
    loaded = load_compiled(saved(tmp_path / "m.npu"))
    first = loaded.subgraphs[0]
    assert isinstance(first, NpuSubgraph)
    whole = loaded.weights
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    for array in (loaded.weights, *first.streams):
        assert not array.flags.writeable and not array.flags.owndata
        assert np.shares_memory(array, whole)
    assert loaded.weights.ctypes.data % 4096 == 0
    assert all(stream.ctypes.data % 64 == 0 for stream in first.streams)


def test_the_same_model_gives_the_same_bytes_under_any_hash_seed(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); from support.programs.files import *;"
        "m = random_model(metadata={n: {n + k: 1 for k in {'a', 'b', 'c', 'd'}} for n in {'x', 'y', 'z'}});"
        "saved(Path(sys.argv[2]), m)"
    )
    found = []
    for seed in ("1", "2"):
        path = tmp_path / f"{seed}.npu"
        command = [sys.executable, "-c", script, str(TESTS), str(path)]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": seed})
        found.append(path.read_bytes())
    assert found[0] == found[1]


def test_a_model_that_no_reader_takes_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "m.npu"
    good_model = random_model()
    bad: list[CompiledModel] = [
        replace(good_model, layers=LAYERS[:1]),
        replace(good_model, inputs=("nowhere",)),
        replace(good_model, weights=good_model.weights[:-1]),
        replace(good_model, tensors=(*TENSORS, TENSORS[0])),
        replace(good_model, tensors=(*TENSORS, replace(TENSORS[0], name="n", dtype="string"))),
        replace(good_model, tensors=(*TENSORS, replace(TENSORS[0], name="n", shape=(1,) * 9))),
        replace(good_model, tensors=(*TENSORS, replace(TENSORS[0], name="n", zero_point=1 << 40))),
        replace(good_model, fingerprint=1 << 64),
        replace(good_model, metadata={"x": float("nan")}),
        replace(good_model, segments=SEGMENTS[:1]),
        replace(good_model, segments=(SEGMENTS[1], SEGMENTS[0], *SEGMENTS[2:])),
    ]
    for model in bad:
        with pytest.raises(InternalError, match="cannot be written"):
            save_compiled(model, path)
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidModelError, match="has a zero byte in it"):
        save_compiled(replace(good_model, name="zero\0byte"), path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [256, -1, np.int64(256), np.int64(-1), 1 << 64, 0.5])
def test_a_value_that_does_not_fit_its_field_is_not_cut_down(value: Any) -> None:
    kind = Record("kind", "", (isa.Field("a", "u1", "", 4), isa.Field("b", "u1", "", 4)))
    assert kind.make([([1, 2, 3, 4], [0, 0, 255, 0])]).tobytes() == bytes((1, 2, 3, 4, 0, 0, 255, 0))
    with pytest.raises((OverflowError, ValueError)):
        kind.make([([0] * 4, [0] * 4), ([0] * 4, [0, 0, value, 0])])


def test_another_machine_is_refused_by_name(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.npu")
    with pytest.raises(WrongTargetError) as caught:
        load_compiled(path, load_target("edge-4t"))
    words = caught.value.paragraph()
    assert "server-32t" in words and "edge-4t" in words
    assert (
        load_target("server-32t").fingerprint_text in words
        and load_target("edge-4t").fingerprint_text in words
    )


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(FileMissingError):
        load_compiled(tmp_path / "absent.npu")
    for number, data in enumerate((b"", b"x", b"\x7fELF" + bytes(200), b"PK\3\4" * 100)):
        path = tmp_path / f"{number}.npu"
        path.write_bytes(data)
        with pytest.raises(FileFormatError):
            load_compiled(path)
    with pytest.raises(FileFormatError, match="not one for npuc"):
        load_compiled(Path(sys.executable).resolve())


@pytest.mark.skipif(not shutil.which("readelf"), reason="binutils are not installed")
def test_readelf_likes_it(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.npu")
    done = subprocess.run(["readelf", "-aW", str(path)], capture_output=True, text=True, check=True)
    # It does not know our machine; that it says so is all it may complain about.
    assert not done.stderr, done.stderr
    assert ".npu.text.0.1" in done.stdout and "front.core1" in done.stdout
    assert len(re.findall(r"^  LOAD ", done.stdout, re.MULTILINE)) == len(SEGMENTS)


def test_an_unknown_section_is_passed_over(driver: Path) -> None:
    out = io.BytesIO()
    sections, loads = make_sections(random_model())
    more = elf.Section(".vendor.notes", np.frombuffer(b"anything", np.uint8), alignment=1)
    elf.write(out, [*sections, more], loads)
    same(random_model(), parse(out.getvalue()))
    assert read_in_c(driver, [out.getvalue()]) == ["ok"]


@pytest.mark.parametrize(
    ("names", "sound"),
    [
        ("host.2", True),
        ("host.0 host.2 host.4294967295", True),
        ("host.2 host.02 host.4294967296 host.2.0 host.", True),
        ("host.2 host.2", False),
        ("host.2 host.0", False),
        ("host.0 other host.2", False),
    ],
)
def test_host_operators_are_in_the_order_of_their_subgraphs(driver: Path, names: str, sound: bool) -> None:
    sections, loads = make_sections(random_model())
    sections += [elf.Section(f".npu.{name}", np.zeros(8, np.uint8), alignment=8) for name in names.split()]
    out = io.BytesIO()
    elf.write(out, sections, loads)
    assert (read_in_c(driver, [out.getvalue()]) == ["ok"]) is sound
    if sound:
        assert isinstance(
            subgraph := parse(out.getvalue()).subgraphs[2], CpuSubgraph
        ) and subgraph.host == bytes(8)
    else:
        with pytest.raises(FileFormatError, match="not in order"):
            parse(out.getvalue())


@pytest.mark.parametrize(
    "section", [".npu.text.0.0", ".npu.onnx.2", ".npu.tensors", ".npu.lists", ".npu.weights"]
)
def test_a_section_out_of_line_is_refused_by_both(driver: Path, section: str) -> None:
    sections, loads = make_sections(random_model())
    place = next(k for k, one in enumerate(sections) if one.name == section)
    # A section of one byte before it; those behind it have other numbers then.
    odd = elf.Section(".odd", np.zeros(1, np.uint8), alignment=1)
    sections = [*sections[:place], odd, replace(sections[place], alignment=1), *sections[place + 1 :]]
    table = next(one for one in sections if one.name == ".npu.subgraphs").data
    table["first"] += (table["kind"] != 2) & (table["first"] > place)
    out = io.BytesIO()
    elf.write(out, sections, loads)
    with pytest.raises(FileFormatError):
        parse(out.getvalue())
    assert read_in_c(driver, [out.getvalue()]) != ["ok"]
    sections[place + 1] = replace(sections[place + 1], alignment=layout.PAGE)
    out = io.BytesIO()
    elf.write(out, sections, loads)
    same(random_model(), parse(out.getvalue()))
    assert read_in_c(driver, [out.getvalue()]) == ["ok"]


# Crafted files: the checksum is right, one field is not.


def crafted(section: str, row: int, field: str, value: Any) -> bytes:
    """The good file with one field of one record changed."""
    data = bytearray(good())
    found = next(s for s in elf.read(np.frombuffer(good(), np.uint8), "").sections if s.name == section)
    if section in layout.TABLES:
        kind = layout.TABLES[section].dtype
    else:
        opcode = int(found.data[row * isa.RECORD])
        kind = isa.BY_OPCODE[opcode].dtype if opcode in isa.BY_OPCODE else isa.INSTRUCTIONS[0].dtype
    at = found.offset + row * kind.itemsize
    record = np.frombuffer(bytes(data[at : at + kind.itemsize]), kind).copy()
    if isinstance(value, dict):
        for index, part in value.items():
            record[field][0][index] = part
    else:
        record[field] = value
    data[at : at + kind.itemsize] = record.tobytes()
    return sealed(data)


_TEXT, _LAST = ".npu.text.0.0", ".npu.text.3.0"
_ROWS = {name: row for row, name in enumerate(each.name for each in isa.INSTRUCTIONS if each.queue != "any")}
"""Where the first stream has an instruction: it begins with one of each."""
_BIG = (1 << 64) - 1
CRAFTED: list[tuple[str, int, str, Any]] = [
    (".npu.header", 0, "version", layout.VERSION + 1),
    (".npu.header", 0, "isa", 99),
    (".npu.header", 0, "record", 80),
    (".npu.header", 0, "cores", 0),
    (".npu.header", 0, "cores", 1),
    (".npu.header", 0, "local_bytes", 0),
    (".npu.header", 0, "local_bytes", 0xFFFFFFFF),
    (".npu.header", 0, "local_bytes", _BIG),
    (".npu.header", 0, "shared_bytes", 1 << 49),
    (".npu.header", 0, "name", 0xFFFFFFFF),
    (".npu.header", 0, "name", 2),
    (".npu.header", 0, "first_input", 1000),
    (".npu.header", 0, "inputs", 0xFFFFFFFF),
    (".npu.header", 0, "outputs", 1000),
    (".npu.segments", 0, "kind", 1),
    (".npu.segments", 2, "kind", 0),
    (".npu.segments", 0, "size", 4095),
    (".npu.segments", 1, "size", _BIG),
    (".npu.segments", 1, "address", 64),
    (".npu.segments", 1, "alignment", 0),
    (".npu.segments", 3, "name", 0xFFFFFFFF),
    (".npu.tensors", 0, "segment", 4),
    (".npu.tensors", 0, "segment", 255),
    (".npu.tensors", 0, "offset", 64),
    (".npu.tensors", 0, "offset", _BIG - 63),
    (".npu.tensors", 1, "offset", 641),
    (".npu.tensors", 0, "size", _BIG),
    (".npu.tensors", 0, "size", 3071),
    (".npu.tensors", 0, "dtype", 14),
    (".npu.tensors", 0, "dtype", 3),
    (".npu.tensors", 0, "rank", 9),
    (".npu.tensors", 0, "rank", 3),
    (".npu.tensors", 0, "rank", 5),
    (".npu.tensors", 0, "shape", {0: 0}),
    (".npu.tensors", 0, "shape", {0: 0xFFFFFFFF, 1: 0xFFFFFFFF, 2: 0xFFFFFFFF}),
    (".npu.tensors", 0, "shape", {0: 1 << 31, 1: 1 << 31, 2: 4}),
    (".npu.tensors", 0, "order", {0: 1}),
    (".npu.tensors", 0, "order", {0: 4}),
    (".npu.tensors", 0, "scale", float("nan")),
    (".npu.tensors", 0, "scale", float("inf")),
    (".npu.tensors", 0, "scale", -1.0),
    (".npu.subgraphs", 0, "kind", 1),
    (".npu.subgraphs", 0, "kind", 3),
    (".npu.subgraphs", 0, "first", 0),
    (".npu.subgraphs", 0, "first", 2),
    (".npu.subgraphs", 0, "first", 0xFFFFFFFF),
    (".npu.subgraphs", 0, "count", 0),
    (".npu.subgraphs", 0, "count", 5),
    (".npu.subgraphs", 0, "count", 3),
    (".npu.subgraphs", 0, "inputs", 0xFFFFFFFF),
    (".npu.subgraphs", 1, "first", 1),
    (".npu.subgraphs", 1, "count", 0),
    (".npu.subgraphs", 1, "first_input", 0),
    (".npu.subgraphs", 2, "count", 0),
    (".npu.subgraphs", 2, "first", 5),
    (".npu.conversions", 0, "source", 0),
    (".npu.conversions", 0, "result", 99),
    (".npu.conversions", 0, "rounding", 3),
    (".npu.conversions", 0, "reserved", 1),
    (".npu.layers", 1, "name", 0xFFFFFFFF),
    (".npu.layers", 1, "reserved", 1),
    (".npu.allocations", 0, "subgraph", 1),
    (".npu.allocations", 0, "subgraph", 77),
    (".npu.allocations", 0, "core", 2),
    (".npu.allocations", 0, "address", 0xFFFFFFF0),
    (".npu.allocations", 0, "size", 0xFFFFFFFF),
    (".npu.allocations", 0, "first", 20),
    (".npu.allocations", 0, "last", 28),
    (".npu.allocations", 0, "name", 3),
    (_TEXT, 0, "opcode", 0),
    (_TEXT, 0, "opcode", 200),
    (_TEXT, 0, "opcode", 8),
    (_TEXT, 0, "queue", 1),
    (_TEXT, 0, "queue", 4),
    (_TEXT, 0, "flags", 2),
    (_TEXT, 0, "layer", len(LAYERS)),
    (_TEXT, 0, "wait", {0: 1}),
    (_TEXT, 5, "wait", {3: 2}),
    (_TEXT, 5, "wait", {1: 0xFFFFFFFF}),
    (_TEXT, 0, "segment", 4),
    (_TEXT, 0, "segment", 254),
    (_TEXT, 1, "segment", 0),
    (_TEXT, 0, "offset", 1 << 48),
    (_TEXT, 0, "offset", _BIG),
    (_TEXT, 0, "local", 0xFFFFFFFF),
    (_TEXT, 0, "size", {3: 0}),
    (_TEXT, 0, "size", {0: 0xFFFFFFFF, 1: 0xFFFFFFFF, 2: 0xFFFFFFFF, 3: 0xFFFFFFFF}),
    (_TEXT, 0, "far_stride", {0: (1 << 63) - 1}),
    (_TEXT, 0, "far_stride", {0: -(1 << 63)}),
    (_TEXT, 0, "near_stride", {1: -(1 << 31)}),
    (_TEXT, 0, "near_stride", {1: (1 << 31) - 1}),
    (_TEXT, _ROWS["conv"], "x_dtype", 11),
    (_TEXT, _ROWS["conv"], "kind", 5),
    (_TEXT, _ROWS["conv"], "wide", 2),
    (_TEXT, _ROWS["conv"], "weight", 1 << 30),
    (_TEXT, _ROWS["copy"], "bytes", 3),
    (_TEXT, _ROWS["softmax"], "rounding", 3),
    (_TEXT, 20, "number", 2),
    (_TEXT, 24, "number", 1),
]  # fmt: skip


@pytest.fixture(scope="module")
def verdicts_in_c(driver: Path) -> list[str]:
    return read_in_c(driver, [crafted(*case) for case in CRAFTED])


@pytest.mark.parametrize("number", range(len(CRAFTED)))
def test_a_crafted_field_is_refused_by_both_readers(number: int, verdicts_in_c: list[str]) -> None:
    data = crafted(*CRAFTED[number])
    assert data != good()
    with pytest.raises(FileFormatError) as caught:
        parse(data)
    assert "checksum" not in caught.value.message
    # Python also compares the header with the target beside it, which C does not read.
    if "JSON" not in caught.value.message:
        assert verdicts_in_c[number] != "ok" and "checksum" not in verdicts_in_c[number]


def test_base_addresses_that_overlap_are_refused_by_both(driver: Path) -> None:
    segments = list(SEGMENTS)
    segments[1] = replace(segments[1], address=0x10000)
    segments[2] = replace(segments[2], address=0x10000 + 64)
    clash = as_bytes(random_model(segments=tuple(segments)))
    segments[2] = replace(segments[2], address=0x10000 + 100_032)
    segments[3] = replace(segments[3], address=(1 << 64) - 64)
    apart = as_bytes(random_model(segments=tuple(segments)))
    segments[3] = replace(segments[3], address=(1 << 64) - 64, size=65)
    beyond = as_bytes(random_model(segments=tuple(segments)))
    verdicts = read_in_c(driver, [clash, apart, beyond])
    assert verdicts == ["a segment overlaps another", "ok", "a segment has an impossible address"]
    assert parse(apart).segments[2].address == 0x10000 + 100_032
    for data, words in ((clash, "'image' at 0x10040 overlaps 'workspace'"), (beyond, "impossible address")):
        with pytest.raises(FileFormatError, match=words):
            parse(data)


def _spliced(section: str, new: bytes) -> bytes:
    """The good file with a section's bytes replaced; headers move along."""
    sections, loads = make_sections(random_model(count=20))
    out = io.BytesIO()
    changed = [replace(s, data=np.frombuffer(new, np.uint8)) if s.name == section else s for s in sections]
    elf.write(out, changed, loads)
    return out.getvalue()


@pytest.mark.parametrize(
    "section,new",
    [
        (layout.META, b"[]"),
        (layout.META, b"{}"),
        (layout.META, b'{"metadata": {}, "reasons": {"2": {"a": 1}}}'),
        (layout.META, b'{"metadata": {}, "reasons": {"2": []}}'),
        (layout.META, b'{"metadata": {"x": NaN}, "reasons": {}}'),
        (layout.META, b'{"metadata": {"x": "\\ud800"}, "reasons": {}}'),
        (layout.META, b"[" * 100_000),
        (layout.META, b'{"metadata": {"x": ' + b"9" * 10_000 + b'}, "reasons": {}}'),
        (layout.META, b"\xff"),
        (layout.META, b""),
        (layout.TARGET, b"{}"),
        (layout.TARGET, b'{"name": "edge-4t"}'),
    ],
)
def test_bad_json_is_refused(section: str, new: bytes) -> None:
    with pytest.raises(FileFormatError, match="JSON"):
        parse(_spliced(section, new))


@pytest.mark.parametrize(
    "new", [b"", b"a\0", b"\0a", b"\0\xff\0", b"\0\xed\xa0\x80\0", b"\0\xc0\x80\0", b"\0\xf4\x90\x80\x80\0"]
)
def test_bad_strings_are_refused_by_both(driver: Path, new: bytes) -> None:
    data = _spliced(layout.STRINGS, new)
    with pytest.raises(FileFormatError, match="string"):
        parse(data)
    assert read_in_c(driver, [data]) == ["its strings are damaged"]


def test_a_target_in_the_file_that_is_not_that_of_the_header() -> None:
    import json

    other = json.dumps(load_target("edge-4t").to_dict()).encode()
    with pytest.raises(FileFormatError, match="not the machine in the header"):
        parse(_spliced(layout.TARGET, other))


# Streams


def _around(**changes: Any) -> Surroundings:
    fields: dict[str, Any] = {"layers": 1, "segments": [1000, 1000], "local_bytes": 4096, "shared_bytes": 0}
    return Surroundings(**(fields | changes))


def _load(**changes: Any) -> Array:
    made = records("load", 1)
    made["segment"], made["size"] = 1, [1, 1, 1, 8]
    for name, value in changes.items():
        made[name] = value
    return as_stream(made)


@pytest.mark.parametrize(
    "changes,words",
    [
        ({"offset": 992}, ""),
        ({"offset": 993}, "leaves its segment"),
        ({"local": 4088}, ""),
        ({"local": 4089}, "leaves local memory"),
        # Strides of axes with one element mean nothing.
        ({"far_stride": [1 << 60, -(1 << 60), 1 << 62], "near_stride": [1 << 30, -(1 << 30), 0]}, ""),
        ({"size": [1, 1, 125, 8], "far_stride": [0, 0, 8]}, ""),
        ({"size": [1, 1, 126, 8], "far_stride": [0, 0, 8]}, "leaves its segment"),
        ({"size": [1, 1, 125, 8], "far_stride": [0, 0, -8], "offset": 992}, ""),
        ({"size": [1, 1, 125, 8], "far_stride": [0, 0, -8], "offset": 991}, "leaves its segment"),
        ({"size": [2, 1, 1, 8], "far_stride": [-500, 0, 0], "offset": 500}, ""),
        ({"size": [1, 2, 1, 8], "near_stride": [0, -1, 0]}, "leaves local memory"),
        ({"segment": 255}, "segment that does not exist"),
        ({"size": [1, 0, 1, 8]}, "moves nothing"),
    ],
)
def test_the_block_of_a_transfer_is_inside_both_memories(changes: dict[str, Any], words: str) -> None:
    stream = _load(**changes)
    if words:
        with pytest.raises(ValueError, match=words):
            check_stream(stream, _around())
    else:
        check_stream(stream, _around())


@pytest.mark.parametrize("stride", [1 << 62, -(1 << 62), -(1 << 63), (1 << 63) - 1])
@pytest.mark.parametrize("axis", range(3))
def test_strides_that_wrap_around_are_refused_by_both(driver: Path, stride: int, axis: int) -> None:
    # Four steps of 2 to the 62nd are none in 64 bits.
    size, strides = [1, 1, 1, 8], [0, 0, 0]
    size[axis], strides[axis] = 5, stride
    stream = _load(size=size, far_stride=strides)
    with pytest.raises(ValueError, match="leaves its segment"):
        check_stream(stream, _around())
    only = NpuSubgraph("only", (stream,), ("image",), ("scores",))
    assert read_in_c(driver, [as_bytes(random_model(subgraphs=(only,)))]) == [
        "an instruction leaves its segment"
    ]


@pytest.mark.parametrize(
    "changes,words",
    [
        ({}, ""),
        ({"x": 992, "x_bytes": 1 << 20}, "leaves its segment"),
        ({"x": 1 << 63}, "leaves its segment"),
        ({"y_bytes": (1 << 64) - 8}, "leaves its segment"),
        ({"b_segment": 9}, ""),  # there is no b
        ({"x_bytes": 0}, "has an operand without bytes"),
        ({"y_bytes": 0, "y_segment": 9}, "has an operand without bytes"),
        ({"b_bytes": 8, "b_segment": 9}, "names a segment that does not exist"),
        ({"y_segment": 0}, "stores among the weights"),
        ({"workspace_bytes": 8}, "stores among the weights"),
        ({"workspace_bytes": 8, "workspace_segment": 1, "workspace": 1 << 20}, "leaves its segment"),
        ({"local_workspace": 1 << 30}, "has a bad field"),
        ({"bytes": 3}, "has a bad field"),
    ],
)
def test_operands_in_global_memory_are_inside_their_segments(
    driver: Path, changes: dict[str, Any], words: str
) -> None:
    made = records("custom_global", 1)
    made["x_segment"], made["x_bytes"], made["y_segment"], made["y_bytes"], made["bytes"] = 1, 8, 1, 8, 1
    made["queue"], made["x"] = isa.QUEUES.index("vector"), 992
    for name, value in changes.items():
        made[name] = value
    stream = as_stream(made)
    if not words:
        check_stream(stream, _around())
        return
    with pytest.raises(ValueError, match=words):
        check_stream(stream, _around())
    only = NpuSubgraph("only", (stream,), ("image",), ("scores",))
    assert read_in_c(driver, [as_bytes(random_model(subgraphs=(only,)))]) == [f"an instruction {words}"]


def test_the_shared_memory_is_a_segment_where_there_is_one() -> None:
    check_stream(_load(segment=255, offset=56), _around(shared_bytes=64))
    with pytest.raises(ValueError, match="leaves its segment"):
        check_stream(_load(segment=255, offset=57), _around(shared_bytes=64))


def test_waits_count_what_came_before_in_the_queue() -> None:
    first, second = _load(), _load()
    second[:, 8] = 1
    assert check_stream(np.concatenate([first, second]), _around()) == (0, 0, 0, 0)
    second[:, 8] = 2
    with pytest.raises(ValueError, match="instruction 1 waits for a later instruction"):
        check_stream(np.concatenate([first, second]), _around())


def test_cores_meet_at_the_same_barriers(driver: Path) -> None:
    model = random_model()
    first = model.subgraphs[0]
    assert isinstance(first, NpuSubgraph)
    uneven = replace(first, streams=(first.streams[0], first.streams[1][:-1]))
    data = as_bytes(replace(model, subgraphs=(uneven, *model.subgraphs[1:])))
    with pytest.raises(FileFormatError, match="do not meet at the same barriers"):
        parse(data)
    assert read_in_c(driver, [data]) == ["the cores of a subgraph do not meet at the same barriers"]


def test_every_byte_wide_choice_of_the_instruction_set_has_a_rule() -> None:
    """A new field of one byte that nobody checks fails here; `segment`, `bits` and `bytes` have checks of their own."""
    from npuc.program.checks import CHOICES

    named = {
        field.name
        for instruction in isa.INSTRUCTIONS
        for field in instruction.fields
        if field.type == "u1" and field.name not in ("bits", "bytes", "kernel")
        if not re.fullmatch(r"(\w+_)?segment", field.name)
    }
    assert named == set(CHOICES)


def test_types_of_tensors_are_those_of_the_ir() -> None:
    from npuc.ir.dtypes import dtype_of

    for name, bits in zip(layout.TENSOR_DTYPES, layout.TENSOR_BITS, strict=True):
        assert bits == (4 if name == "i4" else 8 * dtype_of(name).itemsize)


def test_a_scalar_and_a_packed_tensor(tmp_path: Path) -> None:
    more = (
        Tensor("scalar", (), (), "i64", 0.0, 0, 1, 0, 8),
        Tensor("packed", (3, 3), (1, 0), "i4", 0.5, 1, 1, 64, 5),
    )
    model = random_model(tensors=(*TENSORS, *more))
    same(model, load_compiled(saved(tmp_path / "m.npu", model)))
    short = random_model(tensors=(*TENSORS, replace(more[1], size=4)))
    with pytest.raises(InternalError, match="does not fit its size"):
        save_compiled(short, tmp_path / "short.npu")


def test_an_empty_model_of_the_cpu_is_refused(tmp_path: Path) -> None:
    model = random_model()
    cpu = model.subgraphs[2]
    assert isinstance(cpu, CpuSubgraph)
    broken = replace(model, subgraphs=(*model.subgraphs[:2], replace(cpu, model=b""), model.subgraphs[3]))
    with pytest.raises(InternalError, match="is empty"):
        save_compiled(broken, tmp_path / "m.npu")


def test_the_c_reader_takes_every_version_from_the_oldest_to_its_own(tmp_path: Path) -> None:
    newest = layout.VERSION + 2
    shutil.copytree(ROOT / "native/include", tmp_path / "include")
    header = tmp_path / "include/npuc/file.h"
    text, count = re.subn(r"(#define NPUC_FILE_VERSION) \d+", rf"\1 {newest}", header.read_text())
    assert count == 1
    header.write_text(text)
    later = build_driver(tmp_path, f"-I{tmp_path / 'include'}")

    file = saved(tmp_path / "a.npu")
    offset = next(first for name, first, _ in section_list(file) if name == ".npu.header")

    def of_version(version: int) -> bytes:
        data = bytearray(file.read_bytes())
        data[offset : offset + 4] = version.to_bytes(4, "little")
        return sealed(data)

    refused = "it is of another version of the format"
    oldest = NPU_FILE.oldest
    verdicts = read_in_c(later, [of_version(version) for version in range(oldest - 1, newest + 2)])
    assert verdicts[0] == verdicts[-1] == refused
    assert set(verdicts[1:-1]) == {"ok"} and len(verdicts) == newest - oldest + 3
