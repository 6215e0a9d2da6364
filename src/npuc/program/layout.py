"""The tables of a `.npu` file, in one place: every record, every field, what it means.

The C header native/include/npuc/file.h is made from this; `file.py` and native/src/file.c read and write by it. Names are
places in the section `.npu.strings`; tensors are numbers of the tensor table; lists of tensors are ranges of `.npu.lists`.
"""

from __future__ import annotations

from npuc.arithmetic.blocks import BLOCK_FORMATS
from npuc.format_versions import NPU_FILE
from npuc.program.isa import DTYPES, Field
from npuc.program.records import Record

VERSION = NPU_FILE.version
"""Raised when a reader of an older version would misread a file."""
ALIGNMENT = 64
"""Of base addresses of segments and of tensors in them."""
PAGE = 4096
"""Of the weights in the file, so that they can be mapped."""
MOST_AXES = 8
LARGEST = 1 << 48
"""No segment is larger, so that sums of sizes cannot overflow."""
SEGMENT_KINDS = ("weights", "workspace", "io")
SUBGRAPH_KINDS = ("npu", "cpu", "host", "chip")
TENSOR_DTYPES = (*(name for name in DTYPES if name not in BLOCK_FORMATS), "i1", "ui16", "ui32", "ui64", "f64")
"""Element types by their code: those of the machine, then those that only the CPU has."""
TENSOR_BITS = (8, 8, 16, 32, 4, 32, 16, 16, 64, 8, 16, 32, 64, 64)
"""Bits of an element, by code."""

HEADER = Record(
    "file_header",
    "Section .npu.header: one record.",
    (
        Field("version", "u4", "NPUC_FILE_VERSION"),
        Field("isa", "u4", "version of the instruction set"),
        Field("record", "u4", "bytes of an instruction"),
        Field("cores", "u4", "of the target"),
        Field("fingerprint", "u8", "of the target"),
        Field("local_bytes", "u8", "local memory of a core"),
        Field("shared_bytes", "u8", "shared memory; 0 if there is none"),
        Field("name", "u4", "of the model"),
        Field("target", "u4", "its name"),
        Field("first_input", "u4", "the inputs of the model: first in .npu.lists"),
        Field("inputs", "u4", "and how many"),
        Field("first_output", "u4", "the outputs"),
        Field("outputs", "u4", ""),
    ),
)
SEGMENT = Record(
    "file_segment",
    "Section .npu.segments: segment 0 holds the weights, 1 the workspace, then inputs and outputs.",
    (
        Field("name", "u4", ""),
        Field("kind", "u4", "an npuc_segment_kind"),
        Field("size", "u8", "bytes"),
        Field("address", "u8", "base address; 0: the loader decides"),
        Field("alignment", "u8", "of the base address"),
    ),
)
TENSOR = Record(
    "file_tensor",
    "Section .npu.tensors: tensors in DRAM, dense.",
    (
        Field("name", "u4", ""),
        Field("segment", "u4", ""),
        Field("offset", "u8", "first byte in the segment"),
        Field("size", "u8", "bytes"),
        Field("scale", "f8", "real value of a step; 0 if the elements are plain"),
        Field("zero_point", "i4", ""),
        Field("dtype", "u2", "an npuc_tensor_dtype"),
        Field("rank", "u2", "axes"),
        Field("shape", "u4", "logical: N x C x H x W for rank 4", MOST_AXES),
        Field("order", "u1", "the axes of shape from the outermost in memory to the innermost", MOST_AXES),
    ),
)
SUBGRAPH = Record(
    "file_subgraph",
    "Section .npu.subgraphs, in the order in which they run.",
    (
        Field("name", "u4", ""),
        Field("kind", "u4", "an npuc_subgraph_kind"),
        Field(
            "first",
            "u4",
            "NPU: section of core 0, others follow; CPU: of the model; host: in .npu.conversions; chip: of its program",
        ),
        Field("count", "u4", "NPU: cores with instructions; CPU and chip: 1; host: conversions"),
        Field("first_input", "u4", "first in .npu.lists"),
        Field("inputs", "u4", "and how many"),
        Field("first_output", "u4", ""),
        Field("outputs", "u4", ""),
    ),
)
CONVERSION = Record(
    "file_conversion",
    "Section .npu.conversions: what the host makes of reals or integers between subgraphs, by the tensors' own scales.",
    (
        Field("source", "u4", "a tensor"),
        Field("result", "u4", "a tensor of the same shape"),
        Field("rounding", "u4", "an index of half_away, half_even, half_up"),
        Field("reserved", "u4", "0"),
    ),
)
LAYER = Record(
    "file_layer",
    "Section .npu.layers: what `layer` of an instruction counts.",
    (Field("name", "u4", ""), Field("reserved", "u4", "0")),
)
ALLOCATION = Record(
    "file_allocation",
    "Section .npu.allocations: places in local memory and when they are in use.",
    (
        Field("name", "u4", ""),
        Field("subgraph", "u4", ""),
        Field("core", "u4", ""),
        Field("address", "u4", ""),
        Field("size", "u4", "bytes"),
        Field("first", "u4", "the first instruction of the stream that may touch it"),
        Field("last", "u4", "the last one"),
        Field("reserved", "u4", "0"),
    ),
)
STATE = Record(
    "file_state",
    "Section .npu.states, which a file may have: an input that takes what an output gave in the run before.",
    (
        Field("input", "u4", "a tensor: an input of the model"),
        Field("output", "u4", "a tensor of the same type and shape: an output of the model"),
    ),
)
ENTRY = Record(
    "file_entry",
    "Section .npu.entries, of a program with several entries: what they are called, the one of the plain tables first.",
    (Field("name", "u4", "in the strings of the first entry"), Field("reserved", "u4", "0")),
)
SIGNATURE_RECORD = Record(
    "file_signature",
    "Section .npu.signature: who vouches for the file. The signature is that of the file with zeros in its own place.",
    (
        Field("algorithm", "u4", "1: Ed25519"),
        Field("reserved", "u4", "0"),
        Field("key", "u1", "the public key", 32),
        Field(
            "signature", "u1", "of the text of docs/file-format.md and the last digest of the checksums", 64
        ),
    ),
)
TABLES = {
    ".npu.header": HEADER,
    ".npu.segments": SEGMENT,
    ".npu.tensors": TENSOR,
    ".npu.subgraphs": SUBGRAPH,
    ".npu.conversions": CONVERSION,
    ".npu.layers": LAYER,
    ".npu.allocations": ALLOCATION,
}
STRINGS, LISTS, WEIGHTS = ".npu.strings", ".npu.lists", ".npu.weights"
TARGET, META = ".npu.target", ".npu.meta"
STATES = ".npu.states"
"""A table that a file may have."""
DEBUG = ".npu.debug"
"""A section that a file may have and that no runtime reads."""
SIGNATURE = ".npu.signature"
"""A section that a signed file has."""
NEEDED = (*TABLES, STRINGS, LISTS, WEIGHTS, TARGET, META)
"""The sections that are in every file, each once."""
ENTRIES = ".npu.entries"
"""A section that a program with several entries has."""
COMMON = (WEIGHTS, TARGET)
"""The sections that the entries of a program share; of all others each has its own."""
MOST_ENTRIES = 256
MOST_STATES = 4096
MOST_STREAM_TENSORS = 1 << 16
"""Inputs and outputs of a model with states. Both are looked through for each state by a reader that allocates nothing, so they
bound the time that a hostile file can take."""


def section_of(name: str, entry: int) -> str:
    """The name of an entry's own section: the first entry has the plain names.

    >>> section_of(".npu.header", 0), section_of(".npu.header", 2)
    ('.npu.header', '.npu.e2.header')
    """
    return name if entry == 0 else f".npu.e{entry}{name[len('.npu') :]}"


def text_section(subgraph: int, core: int, entry: int = 0) -> str:
    """The name of the section of a core's instructions."""
    return section_of(f".npu.text.{subgraph}.{core}", entry)


def host_section(subgraph: int, entry: int = 0) -> str:
    """The name of the section of a CPU subgraph's host operators, which a file may do without."""
    return section_of(f".npu.host.{subgraph}", entry)


def chip_section(subgraph: int, entry: int = 0) -> str:
    """The name of the section of a subgraph of a chip: the file that its own runtime reads."""
    return section_of(f".npu.chip.{subgraph}", entry)


def model_section(subgraph: int, entry: int = 0) -> str:
    """The name of the section of a CPU subgraph."""
    return section_of(f".npu.onnx.{subgraph}", entry)
