"""What a file is, from its first bytes: so that a wrong file is called by its right name."""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

_HEAD = 64 << 10


@dataclass(frozen=True)
class Content:
    """The kind of a file: `onnx`, `tflite`, `mlir`, `npu` or `other`; what it looks like, and what may help."""

    kind: str
    words: str
    fix: str = "'npuc import --help' names the formats that are imported; most trainers also export ONNX"


_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89HDF", "looks like an HDF5 file (Keras weights or model)"),
    (0, b"\x7fELF", "looks like an ELF file (a compiled program)"),
    (0, b"\x89PNG", "looks like a PNG picture"),
    (0, b"\xff\xd8\xff", "looks like a JPEG picture"),
    (0, b"\x93NUMPY", "looks like a NumPy array (.npy)"),
    (0, b"ML\xefR", "looks like MLIR bytecode"),
    (0, b"GGUF", "looks like a GGUF model"),
    (0, b"ORTM", "looks like an ORT-format model"),
    (4, b"ORTM", "looks like an ORT-format model"),
    (0, b"\x1f\x8b", "looks like a gzip archive"),
    (0, b"BZh", "looks like a bzip2 archive"),
    (0, b"\xfd7zXZ", "looks like an xz archive"),
    (0, b"%PDF", "looks like a PDF document"),
)

_TEXT: tuple[tuple[str, str], ...] = (
    (r"version https://git-lfs", "is a Git LFS pointer"),
    (r"\s*<(!doctype|html|\?xml)", "looks like a web page or XML"),
    (r"\s*\[(net|network)\]", "looks like a Darknet .cfg file"),
    (r"[\s\S]*?\blayers?\s*\{", "looks like a Caffe .prototxt file"),
    (r"\s*[{\[]", "looks like JSON"),
)


def describe_content(path: Path) -> Content:
    """Look at a file that exists."""
    if path.is_dir():
        return Content("other", "is a folder")
    with open(path, "rb") as handle:
        head = handle.read(_HEAD)
    if not head:
        return Content("other", "is an empty file")
    if head.startswith(b"PK\x03\x04"):
        return _zip(path)
    if head[4:8] == b"TFL3":
        return Content("tflite", "looks like a TensorFlow Lite model")
    if head[:4] == b"\x7fELF" and head[18:20] == b"pn":
        return Content(
            "npu", "looks like a compiled model (.npu)", "'npuc run', 'npuc sim' and 'npuc objdump' take it"
        )
    for offset, magic, words in _MAGIC:
        if head[offset : offset + len(magic)] == magic:
            return Content("other", words)
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        return Content("other", "looks like a Python pickle, which npuc never opens")
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < 1 << 30:
        return Content("other", "looks like a safetensors file", "Give the .mlir file beside it")
    text = _as_text(head)
    if text is not None:
        if re.match(r"\s*(//[^\n]*\s*|#[^\n]*\s*)*\"?(builtin\.)?(module|func\.func)", text):
            return Content("mlir", "looks like MLIR text", "It is already imported: use it as it is")
        for pattern, words in _TEXT:
            if re.match(pattern, text, re.IGNORECASE):
                fix = "Fetch the file itself with 'git lfs pull'" if "LFS" in words else Content.fix
                return Content("other", words, fix)
        if path.suffix == ".mlir":
            return Content("mlir", "is named like MLIR text")
        return Content("other", "looks like plain text")
    # In protobuf, a first field 1 of type bytes starts TensorFlow's GraphDef and Caffe's NetParameter; an ONNX model
    # has an integer there, and its graph in field 7.
    if head[0] == 0x0A:
        return Content("other", "looks like a TensorFlow graph or a Caffe model")
    if path.suffix == ".mlir":
        return Content("mlir", "is named like MLIR text")
    return Content("onnx", "looks like an ONNX model")


def _as_text(head: bytes) -> str | None:
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:
            return None
        text = head[: error.start].decode()
    controls = sum(1 for char in text[:4096] if ord(char) < 32 and char not in "\t\n\r\f")
    return None if controls else text


def _zip(path: Path) -> Content:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()[:200]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return Content("other", "looks like a damaged zip archive")
    if any(name.endswith("data.pkl") for name in names):
        return Content("other", "looks like a PyTorch file", "Export the model with torch.onnx.export first")
    if any(name.endswith("model.weights.h5") for name in names):
        return Content("other", "looks like a Keras model")
    if all(name.endswith(".npy") for name in names):
        return Content("other", "looks like a NumPy .npz file", "That is data for 'npuc run --input'")
    return Content("other", "looks like a zip archive")
