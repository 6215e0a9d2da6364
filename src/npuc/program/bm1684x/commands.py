"""The commands of the BM1684X that npuc emits, as one table; their bytes, and bytes as commands again.

The chip has two engines with a queue each. The TIU computes on local memory, the GDMA moves tensors between DDR and local
memory. A command is a row of bit fields; most have a short form, and npuc emits those. The commands of an engine run in order and
count from 1 (`cmd_id`); a command starts when the other engine has finished the command `cmd_id_dep`.

Names and places of fields are facts of the chip's register file, which SOPHGO publishes under the 2-clause BSD licence.

    >>> end = encode("TIU_END", cmd_id=9)
    >>> len(end), decode("tiu", end).values["cmd_id"]
    (16, 9)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from npuc.errors import CompileError, FileFormatError

Engine = Literal["tiu", "gdma"]

LANES = 64
LANE_BYTES = 256 * 1024
"""Local memory of a lane."""
BANK_BYTES = 16 * 1024
EU_BYTES = 64
"""Bytes of a lane that are computed with at a time; tensors of the aligned layout begin at multiples of it."""
LOCAL_BASE = 0x0800_0000
"""Local memory as the DMA sees it; lanes follow each other."""
DDR_BASE = 0x1_0000_0000

TYPE_CODES = {"i8": 0, "ui8": 0, "f16": 1, "f32": 2, "i16": 3, "i32": 4, "bf16": 5}
"""Element types in commands; the sign is a bit of its own."""
ALIGNED, COMPACT, STRIDED, TABLE = 0, 1, 3, 4
"""Layouts of operands in local memory."""


@dataclass(frozen=True)
class BitField:
    """Some bits of a command."""

    name: str
    at: int
    bits: int


@dataclass(frozen=True)
class CommandForm:
    """A kind of command."""

    name: str
    engine: Engine
    size: int
    """Bytes."""
    fixed: Mapping[str, int]
    """Fields that tell it from the others."""
    fields: Mapping[str, BitField]
    doc: str

    @cached_property
    def marks(self) -> tuple[tuple[int, int, int], ...]:
        """Where the fixed fields are: bit, mask, value."""
        return tuple(
            (self.fields[name].at, (1 << self.fields[name].bits) - 1, value)
            for name, value in self.fixed.items()
        )


@dataclass(frozen=True)
class Command:
    """A command as it was read."""

    form: CommandForm
    values: Mapping[str, int]

    def __str__(self) -> str:
        shown = {
            name: value
            for name, value in self.values.items()
            if value and name not in self.form.fixed and name not in _QUIET
        }
        words = " ".join(f"{name}={hex(value) if 'addr' in name else value}" for name, value in shown.items())
        return f"{self.form.name} {words}"


_QUIET = frozenset({"cmd_id_en", "localmem_mask_l32", "localmem_mask_h32"})

_TIU = "cmd_short@0:1 cmd_id@1:20 cmd_id_dep@21:20 tsk_typ@41:4 tsk_eu_typ@45:5 "
_SIZES = "res0_n@{0}:16 res0_c@{1}:16 res0_h@{2}:16 res0_w@{3}:16 "
_GDMA = "stride_enable@1:1 nchw_copy@2:1 cmd_short@3:1 cmd_id_en@5:4 cmd_id@9:20 cmd_type@32:4 "


def _sizes(first: int) -> str:
    return _SIZES.format(*range(first, first + 64, 16))


def _form(name: str, engine: Engine, size: int, fixed: Mapping[str, int], text: str, doc: str) -> CommandForm:
    fields = {}
    for word in text.split():
        title, place = word.split("@")
        at, bits = map(int, place.split(":"))
        fields[title] = BitField(title, at, bits)
    return CommandForm(name, engine, size, fixed, fields, doc)


def _short(kind: int) -> dict[str, int]:
    return {"cmd_short": 1, "tsk_typ": kind}


FORMS = (
    _form(
        "CONV", "tiu", 64, _short(0),
        _TIU + "opd0_sign@50:1 opd1_sign@51:1 opd2_sign@52:1 pad_mode@53:2 cmd_id_en@55:4 pwr_step@59:4 res_add@63:1 "
        "kernel_rotate@64:1 res0_prec@65:3 opd0_prec@68:3 opd1_const@71:1 opd2_const@72:1 opd0_up_pad@73:4 opd0_dn_pad@77:4 "
        "opd0_lf_pad@81:4 opd0_rt_pad@85:4 res_op_x_str@89:4 res_op_y_str@93:4 opd3_const@97:1 opd0_str@98:3 res0_addr@101:26 "
        "opd0_x_ins0@128:4 opd0_y_ins0@132:4 opd1_x_ins0@136:4 opd1_y_ins0@140:4 opd0_n_str@144:16 " + _sizes(160)
        + "opd0_c@224:16 opd0_h@240:16 opd0_w@256:16 opd1_h@272:16 opd1_w@288:16 opd0_c_str@304:16 opd0_addr@320:32 "
        "opd1_addr@352:32 opd2_addr@384:32 res1_addr@416:32 opd3_addr@448:32 opd0_h_str@480:16 opd0_w_str@496:16",
        "sums of products over all input channels, as int32; no bias",
    ),
    _form(
        "PORD", "tiu", 64, _short(1),
        _TIU + "kernel_rotate@50:1 opd0_sign@51:1 opd1_sign@52:1 pad_mode@53:2 cmd_id_en@55:4 pwr_step@59:4 opd1_const@63:1 "
        "opd2_const@64:1 opd3_const@65:1 res0_prec@66:3 opd0_prec@69:3 opd0_x_ins0@72:4 opd0_y_ins0@76:4 opd1_x_ins0@80:4 "
        "opd1_y_ins0@84:4 opd0_up_pad@88:4 opd0_dn_pad@92:4 opd0_lf_pad@96:4 opd0_rt_pad@100:4 res_op_x_str@104:4 "
        "res_op_y_str@108:4 opd2_n_str@112:3 opd2_sign@126:1 " + _sizes(128)
        + "opd0_h@192:16 opd0_w@208:16 opd1_h@224:16 opd1_w@240:16 res0_addr@256:32 opd0_addr@288:32 opd1_addr@320:32 "
        "opd2_addr@352:32 res1_addr@384:32 opd3_addr@416:32",
        "depthwise convolution (0), average pool (1), max pool (4)",
    ),
    _form(
        "AR", "tiu", 64, _short(3),
        _TIU + "opd0_const@50:1 opd1_const@51:1 opd2_const@52:1 tsk_opd_num@53:2 cmd_id_en@55:4 pwr_step@59:4 res0_prec@64:3 "
        "opd0_prec@67:3 opd1_prec@70:3 opd2_prec@73:3 opd0_sign@76:1 opd1_sign@77:1 res0_str@78:3 opd0_str@81:3 opd1_str@84:3 "
        "opd2_n_str@87:3 " + _sizes(96) + "res0_addr@160:32 opd0_addr@192:32 opd1_addr@224:32 opd2_addr@256:32 "
        "res0_n_str@288:16 res0_c_str@304:16 opd0_n_str@320:16 opd0_c_str@336:16 opd1_n_str@352:16 opd1_c_str@368:16 "
        "res0_h_str@384:20 res0_w_str@404:20 opd0_h_str@424:20 opd2_sign@444:1 opd0_w_str@448:20 opd1_h_str@468:20 "
        "opd1_w_str@488:20",
        "element-wise arithmetic; tsk_eu_typ says which",
    ),
    _form(
        "RQ", "tiu", 32, _short(4),
        _TIU + "opd0_sign@50:1 opd2_sign@51:1 res0_prec@52:3 cmd_id_en@55:4 pwr_step@59:4 opd1_const@63:1 opd0_prec@64:3 "
        "opd2_n_str@67:6 res0_addr@73:27 opd0_addr@100:27 " + _sizes(128) + "opd1_addr@192:32 opd2_addr@224:32",
        "integer requantization (1): multiplier, shift, rounding, zero point",
    ),
    _form(
        "BC", "tiu", 32, _short(5),
        _TIU + "res0_prec@50:3 cmd_id_en@55:4 pwr_step@59:4 " + _sizes(64)
        + "opd0_c@128:16 opd0_w@144:16 res0_addr@192:32 opd0_addr@224:32",
        "channels and columns exchanged (0)",
    ),
    _form(
        "SG", "tiu", 48, _short(6),
        _TIU + "opd0_str@52:3 cmd_id_en@55:4 pwr_step@59:4 " + _sizes(64) + "opd0_h@128:16 opd0_w@144:16 opd1_c@160:16 "
        "opd1_w@176:16 res0_prec@192:3 res0_addr@195:29 opd0_prec@224:3 opd0_addr@227:29 opd1_prec@256:3 opd1_addr@259:29",
        "elements looked up in a table (13)",
    ),
    _form(
        "TIU_END", "tiu", 16, {"cmd_short": 0, "tsk_typ": 15, "tsk_eu_typ": 31},
        _TIU + "cmd_id_en@55:4 pwr_step@59:4",
        "the last command of the engine",
    ),
    _form(
        "TENSOR", "gdma", 96, {"cmd_short": 0, "cmd_type": 0},
        _GDMA + "cmd_special_function@36:3 fill_constant_en@39:1 src_data_format@40:3 cmd_id_dep@64:20 constant_value@96:32 "
        "src_nstride@128:32 src_cstride@160:32 src_hstride@192:32 src_wstride@224:32 dst_nstride@256:32 dst_cstride@288:32 "
        "dst_hstride@320:32 dst_wstride@352:32 src_nsize@384:16 src_csize@400:16 src_hsize@416:16 src_wsize@432:16 "
        "dst_nsize@448:16 dst_csize@464:16 dst_hsize@480:16 dst_wsize@496:16 src_start_addr_l32@512:32 src_start_addr_h8@544:8 "
        "dst_start_addr_l32@576:32 dst_start_addr_h8@608:8 localmem_mask_l32@704:32 localmem_mask_h32@736:32",
        "a tensor of four axes with strides, from anywhere to anywhere, or filled with a constant",
    ),
    _form(
        "GDMA_END", "gdma", 16, {"cmd_short": 1, "cmd_type": 6},
        _GDMA + "cmd_special_function@36:3 cmd_id_dep@64:20 constant_value@96:32",
        "the last command of the engine",
    ),
)  # fmt: skip
BY_NAME = {form.name: form for form in FORMS}


def encode(name: str, **values: int) -> bytes:
    """The bytes of a command; a value that its field cannot hold is an error."""
    form, bits = BY_NAME[name], 0
    for title, value in (*form.fixed.items(), *values.items()):
        field = form.fields.get(title)
        if field is None:
            raise CompileError(f"a command {name} has no field {title}")
        if not 0 <= value < 1 << field.bits:
            raise CompileError(
                f"a command {name} cannot hold {title}={value}: the field has {field.bits} bits",
                fix="Keep the layer on the CPU: --device LAYER=cpu",
            )
        bits |= int(value) << field.at
    return bits.to_bytes(form.size, "little")


def decode(engine: Engine, data: bytes, at: int = 0) -> Command:
    """The command that begins at a byte; a FileFormatError if there is none that npuc knows."""
    head = int.from_bytes(data[at : at + 16], "little")
    for form in FORMS:
        if form.engine == engine and all(head >> bit & mask == value for bit, mask, value in form.marks):
            if at + form.size > len(data):
                raise FileFormatError(f"a command {form.name} at byte {at} is cut short")
            bits = int.from_bytes(data[at : at + form.size], "little")
            values = {
                field.name: bits >> field.at & ((1 << field.bits) - 1) for field in form.fields.values()
            }
            return Command(form, values)
    raise FileFormatError(
        f"byte {at} of the {engine.upper()} queue begins no command that npuc knows",
        fix="Its commands were made by another compiler, or the file is damaged",
    )


def commands(engine: Engine, data: bytes, count: int) -> Iterator[Command]:
    """So many commands from the first byte on."""
    at = 0
    for _ in range(count):
        command = decode(engine, data, at)
        yield command
        at += command.form.size
