"""The commands of the BM1684X and its files: bytes and back, fields that are too large, files that lie."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from npuc.errors import CompileError, FileFormatError
from npuc.program.bm1684x.bmodel import COEFFICIENTS, HEADER, Bmodel, BmodelTensor, read_bmodel, write_bmodel
from npuc.program.bm1684x.commands import FORMS, CommandForm, commands, decode, encode
from npuc.program.bm1684x.flatbuffer import Table, TableWriter
from npuc.program.bm1684x.listing import lines

AT = COEFFICIENTS + 4096


def model() -> Bmodel:
    """A file with one command of each engine before the ends."""
    tiu = encode("AR", cmd_id=1, tsk_eu_typ=19, res0_n=1) + encode("TIU_END", cmd_id=2)
    gdma = encode("TENSOR", cmd_id=1, src_csize=3) + encode("GDMA_END", cmd_id=2)
    return Bmodel(
        "net", (BmodelTensor("x", "i8", AT, (1, 3, 4, 4), 48, 0.5),), (BmodelTensor("y", "i8", AT + 64, (1, 7), 7),),
        bytes(range(64)), AT, 4096, tiu + bytes(-len(tiu) % 128), 2, gdma + bytes(-len(gdma) % 128), 2,
    )  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_fields_do_not_overlap_and_lie_inside(form: CommandForm) -> None:
    taken: set[int] = set()
    for field in form.fields.values():
        bits = set(range(field.at, field.at + field.bits))
        assert not taken & bits and max(bits) < 8 * form.size
        taken |= bits


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_what_is_encoded_is_decoded(form: CommandForm) -> None:
    rng = np.random.default_rng(len(form.name))
    for _ in range(200):
        values = {
            field.name: int.from_bytes(rng.bytes(8), "little") % (1 << field.bits)
            for field in form.fields.values()
            if field.name not in form.fixed
        }
        found = decode(form.engine, encode(form.name, **values))
        assert found.form is form and found.values == {**values, **form.fixed}


def test_a_number_that_does_not_fit_names_its_field() -> None:
    with pytest.raises(CompileError, match=r"CONV cannot hold opd0_up_pad=16: the field has 4 bits"):
        encode("CONV", opd0_up_pad=16)
    with pytest.raises(CompileError, match="res0_n=-1"):
        encode("RQ", res0_n=-1)
    with pytest.raises(CompileError, match="no field nothing"):
        encode("RQ", nothing=0)


def test_what_is_no_command_is_refused() -> None:
    with pytest.raises(FileFormatError, match="begins no command"):
        decode("tiu", b"\xff" * 64)
    with pytest.raises(FileFormatError, match="is cut short"):
        list(commands("tiu", encode("CONV")[:40], 1))


def test_a_file_is_read_as_it_was_written() -> None:
    written = write_bmodel(model())
    assert read_bmodel(written) == model() and write_bmodel(model()) == written
    assert (len(written) - len(model().coefficients)) % 64 == 0
    text = "\n".join(lines(model()))
    assert (
        "x i8[1x3x4x4]" in text
        and "AR cmd_id=1 tsk_eu_typ=19 res0_n=1" in text
        and "GDMA: 2 commands" in text
    )


def test_hostile_files_are_refused() -> None:
    """Cut anywhere, or with any four bytes of header and FlatBuffer replaced: an error of npuc's, or a model."""
    written = write_bmodel(model())
    flat = struct.unpack_from("<I", written, 8)[0]
    for end in [*range(0, 400, 7), HEADER + flat - 1, len(written) - 1]:
        with pytest.raises(FileFormatError):
            read_bmodel(written[:end])
    rng = np.random.default_rng(2)
    refused = 0
    for at in range(0, 1100, 2):
        for value in (0, 0xFFFFFFFF, 0x7FFFFFFF, int(rng.integers(0, 1 << 32))):
            damaged = bytearray(written)
            struct.pack_into("<I", damaged, at, value)
            try:
                found = read_bmodel(bytes(damaged))
                list(lines(found))
            except FileFormatError:
                refused += 1
    assert refused > 300


def test_other_chips_and_wrong_coefficients_are_refused() -> None:
    with pytest.raises(FileFormatError, match="for the chip BM1690"):
        read_bmodel(write_bmodel(replace(model(), chip="BM1690")))
    damaged = bytearray(write_bmodel(model()))
    damaged[-70] ^= 1
    with pytest.raises(FileFormatError, match="checksum"):
        read_bmodel(bytes(damaged))


def test_a_flatbuffer_has_defaults_for_what_is_not_there() -> None:
    writer = TableWriter()
    inner = writer.table({1: ("u64", 1 << 40), 0: writer.numbers("i32", [-1, 5])})
    table = Table.root(writer.finish(writer.table({2: writer.tables([inner]), 5: ("span", (3, 9))})))
    (found,) = table.tables(2, 4)
    assert found.number("u64", 1) == 1 << 40 and found.numbers("i32", 0, 4) == (-1, 5)
    assert (
        table.span(5) == (3, 9) and table.span(1) == (0, 0) and table.text(7) == "" and table.table(0) is None
    )
    with pytest.raises(ValueError, match="longer"):
        table.tables(2, 0)
