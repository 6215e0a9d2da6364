"""`npuc objdump` and `npuc relocate`, and the libraries behind them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npuc.cli.app import run_command
from npuc.errors import AddressError, UnknownTensorError, UsageError
from npuc.program.disassemble import Selection, lines, printable, select, values
from npuc.program.file import load_compiled, save_compiled
from npuc.program.isa import BY_OPCODE, NONE, QUEUES
from npuc.program.model import CompiledModel, NpuSubgraph, records
from npuc.program.relocate import addresses_text, read_addresses, relocate
from support.programs.files import SEGMENTS, random_model, saved
from support.programs.instructions import as_stream


def npuc(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    status = run_command([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return status, captured.out, captured.err


def _one_by_one() -> CompiledModel:
    """A stream whose lines are known."""
    load, conv, store, barrier = (
        records("load", 1),
        records("conv", 1),
        records("store", 1),
        records("barrier", 1),
    )
    load["segment"], load["offset"], load["local"], load["size"] = 2, 0x40, 0x1200, [1, 1, 2, 48]
    load["far_stride"], load["near_stride"] = [0, 0, 96], [0, 0, 48]
    conv["queue"], conv["layer"], conv["wait"] = 2, 1, [1, 0, 0, 0]
    for name in ("bias", "shift", "table"):
        conv[name] = NONE
    conv["x"], conv["y"], conv["weight"], conv["multiplier"] = 0x1200, 0x8000, 0x100, 0x200
    conv["y_dtype"], conv["w_dtype"], conv["kernel"], conv["h"], conv["zero_point"] = 1, 4, [3, 3], 2, -3
    store["queue"], store["segment"], store["local"], store["size"] = 1, 255, 0x8000, [1, 1, 1, 64]
    store["wait"], store["layer"] = [1, 0, 1, 0], 1
    barrier["queue"], barrier["number"] = 3, 1
    stream = np.concatenate([as_stream(part) for part in (load, conv, store, barrier)])
    return random_model(subgraphs=(NpuSubgraph("only", (stream,), ("image",), ("scores",)),))


def test_instructions_read_like_assignments() -> None:
    model = _one_by_one()
    (stream,) = select(model)
    assert list(lines(model, stream)) == [
        "     0 load   conv1       %0x1200 = load image+0x40 size=[2,48] far=[96] near=[48]",
        "     1 matrix conv1/relu  %0x8000:ui8 = conv x=%0x1200:i8 h=2 kernel=[3,3] weight=%0x100:i4 kind=double_rounding "
        "multiplier=%0x200 zero_point=-3 s_dtype=i8  wait load>=1",
        "     2 store  conv1/relu  shared+0x0 = store %0x8000 size=[64]  wait load>=1 matrix>=1",
        "     3 vector conv1       barrier number=1",
    ]
    assert stream.counts() == {
        "queues": {"load": 1, "store": 1, "matrix": 1, "vector": 1},
        "opcodes": {"load": 1, "store": 1, "barrier": 1, "conv": 1},
    }


def test_values_have_every_field_of_the_table() -> None:
    model = random_model(count=5000)
    stream = select(model)[0]
    found = list(values(model, stream))
    assert [one["index"] for one in found] == list(range(len(stream.records)))
    for one, record in zip(found, stream.records, strict=True):
        instruction = BY_OPCODE[int(record[0])]
        view = record.view(instruction.dtype)[0]
        assert one["op"] == instruction.name and one["queue"] == QUEUES[int(view["queue"])]
        assert one["fields"] == {field.name: view[field.name].tolist() for field in instruction.fields}


def test_every_line_of_a_long_stream_is_of_its_instruction() -> None:
    model = random_model(count=5000)
    stream = select(model)[0]
    texts = list(lines(model, stream))
    assert len(texts) == len(stream.records)
    for number in range(0, len(texts), 97):
        part = replace(stream, records=stream.records[number : number + 1], places=np.array([number]))
        assert list(lines(model, part)) == [texts[number]]


@pytest.mark.parametrize(
    "selection,subgraphs,cores",
    [
        (Selection(), {0, 3}, {0, 1}),
        (Selection(subgraph="front"), {0}, {0, 1}),
        (Selection(subgraph="3"), {3}, {0}),
        (Selection(core=1), {0}, {1}),
        (Selection(subgraph="odd"), set(), set()),
    ],
)
def test_streams_are_selected(selection: Selection, subgraphs: set[int], cores: set[int]) -> None:
    found = select(random_model(), selection)
    assert {stream.subgraph for stream in found} == subgraphs
    assert {stream.core for stream in found} == cores


def test_instructions_are_selected() -> None:
    model = random_model()
    whole = select(model)[0]
    for queue in QUEUES:
        part = select(model, Selection(queue=queue))[0]
        assert set(part.counts()["queues"]) == {queue}
        assert np.array_equal(whole.records[part.places], part.records)
    layer = select(model, Selection(layer="pool"))[0]
    assert 0 < len(layer.records) < len(whole.records)
    assert {one["layer"] for one in values(model, layer)} == {"pool"}


def test_names_that_are_not_there() -> None:
    model = random_model()
    with pytest.raises(UsageError, match="no subgraph 'nowhere'"):
        select(model, Selection(subgraph="nowhere"))
    with pytest.raises(UsageError, match="no queue 'fast'"):
        select(model, Selection(queue="fast"))
    with pytest.raises(UnknownTensorError) as caught:
        select(model, Selection(layer="conv2"))
    assert "conv1" in caught.value.paragraph()


def test_objdump_prints_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "m.npu")
    status, out, _ = npuc(capsys, "objdump", path)
    assert status == 0
    for words in (
        ".npu.weights",
        "workspace",
        "1×3×32×32 i8",
        "tile 1",
        "nms: has no form",
        "größe/π",
        "convert middle",
    ):
        assert words in out, words
    model = load_compiled(path)
    for stream in select(model):
        assert all(line in out for line in lines(model, stream))
    status, out, _ = npuc(capsys, "objdump", path, "--no-instructions", "--core", 0)
    assert status == 0 and " = conv " not in out and "conv " in out


def test_objdump_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "m.npu")
    status, out, _ = npuc(capsys, "objdump", path, "--json", "--queue", "matrix")
    found = json.loads(out)
    assert status == 0 and found["segments"][0]["name"] == "weights"
    assert [subgraph["device"] for subgraph in found["subgraphs"]] == ["npu", "host", "cpu", "npu"]
    assert {one["queue"] for stream in found["streams"] for one in stream["instructions"]} == {"matrix"}


def test_objdump_of_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.npu"
    path.write_bytes(b"no ELF")
    status, _, err = npuc(capsys, "objdump", path)
    assert status == 2 and "error[E102]" in err


def test_names_cannot_drive_a_terminal() -> None:
    assert printable("a\x1b[2Jb\n") == "a\\x1b[2Jb\\n"
    assert printable("größe/π") == "größe/π"


# Addresses


def test_a_dump_gives_the_same_file_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, ini, moved = saved(tmp_path / "m.npu"), tmp_path / "a.ini", tmp_path / "moved.npu"
    assert npuc(capsys, "relocate", path, "--dump", ini)[0] == 0
    assert npuc(capsys, "relocate", path, ini, "-o", moved)[0] == 0
    assert moved.read_bytes() == path.read_bytes()


def test_a_model_is_moved_and_nothing_else_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, ini, moved = saved(tmp_path / "m.npu"), tmp_path / "a.ini", tmp_path / "moved.npu"
    ini.write_text("[weights]\naddress = 0x80000000\n[scores]\naddress = 4096\nsize = 40\n")
    status, out, _ = npuc(capsys, "relocate", path, ini, "-o", moved)
    assert status == 0 and "0x80000000" in out
    before, after = load_compiled(path), load_compiled(moved)
    assert [segment.address for segment in after.segments] == [0x80000000, 0, 0, 4096]
    assert replace(after.segments[0], address=0) == before.segments[0]
    assert after.tensors == before.tensors and np.array_equal(after.weights, before.weights)
    # Moving it back gives the first file again; the result may replace its own source.
    ini.write_text("[weights]\naddress = 0\n[scores]\naddress = 0\n")
    assert npuc(capsys, "relocate", moved, ini, "-o", moved)[0] == 0
    assert moved.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "text,words",
    [
        ("[nowhere]\naddress = 0\n", "no segment of this name.*It has: weights, workspace, image, scores"),
        (
            "[weights]\naddress = 0x1001\n",
            "'weights' is at 0x1001, which is not a multiple of 64.*0x1000 and 0x1040",
        ),
        (
            "[weights]\naddress = 0x1000\n[image]\naddress = 0x1fc0\n",
            "'image' at 0x1fc0 overlaps 'weights'.*0x2000",
        ),
        ("[weights]\naddress = -64\n", "outside 64 bits"),
        ("[weights]\naddress = 0xffffffffffffffc0\n", "outside 64 bits"),
        ("[weights]\naddress = here\n", "address is no number"),
        ("[weights]\naddress = " + "9" * 5000 + "\n", "address is no number"),
        ("[weights]\nsize = 12\n", "size is 12, but the model has 4096"),
        ("[weights]\nalignment = 128\n", "alignment is 128, but the model has 64"),
        ("[weights]\nadress = 0\n", "no key 'adress'.*address, size, alignment"),
        ("[weights]\naddress = 0\n[weights]\naddress = 0\n", "not an ini file"),
        ("address = 0\n", "not an ini file"),
        ("[DEFAULT]\naddress = 0\n", "no segment of this name"),
    ],
)
def test_bad_addresses_are_refused_in_words(tmp_path: Path, text: str, words: str) -> None:
    ini = tmp_path / "a.ini"
    ini.write_text(text)
    model = random_model()
    with pytest.raises(AddressError) as caught:
        relocate(model, read_addresses(ini, model))
    import re

    assert re.search(words, caught.value.paragraph(), re.DOTALL), caught.value.paragraph()


def test_a_segment_may_end_with_the_last_byte_of_all_addresses(tmp_path: Path) -> None:
    highest = (1 << 64) - SEGMENTS[0].size
    save_compiled(relocate(random_model(), {"weights": highest}), tmp_path / "m.npu")
    assert load_compiled(tmp_path / "m.npu").segments[0].address == highest


def test_addresses_that_are_no_text(tmp_path: Path) -> None:
    ini = tmp_path / "a.ini"
    ini.write_bytes(b"\xff\xfe")
    with pytest.raises(AddressError, match="not a text file"):
        read_addresses(ini, random_model())


def test_odd_names_of_segments_survive_the_ini_file(tmp_path: Path) -> None:
    names = ("weights", "DEFAULT", "weights", "x;y #z %s ]=[0]\n")
    segments = tuple(
        replace(s, name=n, address=4096 << 8 * k)
        for k, (s, n) in enumerate(zip(SEGMENTS, names, strict=True))
    )
    model = random_model(segments=segments)
    ini = tmp_path / "a.ini"
    ini.write_text(addresses_text(model))
    labels = ("weights", "DEFAULT", "weights#2", "x;y #z %s ]=[0]\\n")
    found = read_addresses(ini, model)
    assert found == {label: segment.address for label, segment in zip(labels, segments, strict=True)}
    assert relocate(random_model(segments=segments), found).segments == segments


def test_relocate_wants_to_know_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "m.npu")
    assert "nothing is asked for" in npuc(capsys, "relocate", path)[2]
    assert "belong together" in npuc(capsys, "relocate", path, "-o", tmp_path / "x.npu")[2]
    assert "belong together" in npuc(capsys, "relocate", path, tmp_path / "a.ini")[2]
