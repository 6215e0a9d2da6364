"""What a file is, from its first bytes: so that a wrong file is called by its right name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from npuc.archives import AGAIN_FIX, open_zip
from npuc.errors import FileFormatError, PluginError
from npuc.plugin_code import fault_of
from npuc.registries import Registry

_HEAD = 64 << 10
_MAX_MEMBERS = 1 << 14
"""Of a zip archive: as many as a file of torch may have."""


@dataclass(frozen=True)
class Content:
    """The kind of a file: that of a format, `mlir`, `npu` or `other`; what it looks like, and what may help."""

    kind: str
    words: str
    fix: str = "'npuc import --help' names the formats that are imported; most trainers also export ONNX"


CHECKPOINT_FIX = (
    "A checkpoint holds weights and a pickle, not the network. In Python, build the model, load the checkpoint and export "
    "it: torch.export.save(torch.export.export(model.eval(), (example,)), 'model.pt2'), or import it directly with "
    "npuc.from_torch(model, (example,))"
)

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x7fELF", "looks like an ELF file (a compiled program)"),
    (0, b"\x89PNG", "looks like a PNG image"),
    (0, b"\xff\xd8\xff", "looks like a JPEG image"),
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
    (r"(\s*#[^\n]*\n)*\s*node\s*\{", "looks like a TensorFlow graph as text (.pbtxt)"),
    (r"(\s*[#;][^\n]*\n)*\s*\[(net|network)\]", "looks like a Darknet .cfg file"),
    (r"\s*model_name\s*=[^\n]*\n(\w+\s*=[^\n]*\n)*layer_number\s*=", "looks like the text of Compass IR"),
    (r"[\s\S]*?\blayers?\s*+:?\s*+\{", "looks like a Caffe .prototxt file"),
    (r"\s*[{\[]", "looks like JSON"),
)
_PROMISED = {
    ".npu": "a compiled model (.npu)",
    ".tflite": "a TensorFlow Lite model",
    ".h5": "an HDF5 file of Keras",
    ".hdf5": "an HDF5 file of Keras",
    ".keras": "a Keras model",
    ".pb": "a TensorFlow graph",
    ".pt": "a PyTorch program",
    ".pt2": "an exported program of PyTorch",
    ".pth": "a PyTorch program",
    ".cfg": "a Darknet .cfg file",
    ".prototxt": "a Caffe .prototxt file",
    ".caffemodel": "a Caffe model",
}
"""What names promise, of formats that are told by their first bytes."""
_TEXT_KINDS = {
    "looks like a Darknet .cfg file": "darknet",
    "looks like a Caffe .prototxt file": "caffe",
    "looks like the text of Compass IR": "compass",
}


Recognizer = Callable[[Path, bytes], bool]
RECOGNIZERS: Registry[str, tuple[str, Recognizer]] = Registry("a recognizer of the format")
"""By the kind of a format that a plugin brings: what a file of it looks like, and who tells, by the path and the first bytes
(none of a folder). They are asked first."""


def describe_content(path: Path) -> Content:
    """Look at a file that exists."""
    if RECOGNIZERS:
        begins = b""
        if path.is_file():
            with open(path, "rb") as handle:
                begins = handle.read(_HEAD)
        for kind, (words, recognises) in RECOGNIZERS.items():
            try:
                recognized = recognises(path, begins)
            except Exception as error:
                raise fault_of(error) or PluginError(
                    f"what recognises the format '{kind}' failed: {type(error).__name__}: {error}",
                    where=str(path),
                ) from error
            if recognized:
                return Content(kind, words)
    if path.is_dir():
        if (path / "saved_model.pb").is_file():
            return Content("tensorflow", "looks like a SavedModel of TensorFlow")
        return Content("other", "is a folder")
    with open(path, "rb") as handle:
        head = handle.read(_HEAD)
    if not head:
        return Content("other", "is an empty file", AGAIN_FIX)
    if head.startswith(b"PK\x03\x04"):
        return _zip(path)
    if head.startswith(b"\x89HDF"):
        return Content("keras", "looks like an HDF5 file of Keras")
    if head[4:8] == b"TFL3":
        return Content("tflite", "looks like a TensorFlow Lite model")
    if head[:4] == b"\x7fELF" and head[18:20] == b"pn":
        return Content(
            "npu",
            "looks like a compiled model (.npu)",
            "'npuc run', 'npuc show', 'npuc profile' and 'npuc objdump' take it",
        )
    for offset, magic, words in _MAGIC:
        if head[offset : offset + len(magic)] == magic:
            return Content("other", words)
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        return Content(
            "other",
            "looks like a Python pickle, perhaps an old PyTorch checkpoint, which npuc never opens",
            CHECKPOINT_FIX,
        )
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < 1 << 30:
        return Content("other", "looks like a safetensors file", "Give the .mlir file beside it")
    text = _as_text(head)
    if text is not None:
        if re.match(r"\s*(//[^\n]*\s*|#[^\n]*\s*)*\"?(builtin\.)?(module|func\.func)", text):
            return Content("mlir", "looks like MLIR text", "It is already imported: use it as it is")
        for pattern, words in _TEXT:
            if re.match(pattern, text, re.IGNORECASE):
                fix = "Fetch the file itself with 'git lfs pull'" if "LFS" in words else Content.fix
                fix = (
                    "Save it as a binary .pb file (tf.io.write_graph with as_text=False)"
                    if "pbtxt" in words
                    else fix
                )
                return Content(_TEXT_KINDS.get(words, "other"), words, fix)
        if path.suffix == ".mlir":
            return Content("mlir", "is named like MLIR text")
        return Content("other", "looks like plain text")
    if head[:4] == bytes(4) and head[4:8] in (b"\1\0\0\0", b"\2\0\0\0"):
        return Content(
            "other", "looks like Darknet weights", "Give the .cfg file; the weights beside it are found"
        )
    if _is_caffemodel(head):
        return Content("caffemodel", "looks like a Caffe model")
    if _is_tensorflow(head):
        return Content("tensorflow", "looks like a TensorFlow graph")
    # In protobuf, a first field 1 of type bytes starts TensorFlow's GraphDef and Caffe's NetParameter; an ONNX model
    # has an integer there, and its graph in field 7.
    if head[0] == 0x0A:
        return Content("other", "looks like a damaged TensorFlow graph or Caffe model", AGAIN_FIX)
    if path.suffix == ".mlir":
        return Content("mlir", "is named like MLIR text")
    promised = _PROMISED.get(path.suffix.lower())
    if promised is not None and not _begins_like_onnx(head):
        words = (
            f"is named like {promised}, and its content is neither that nor any other format that npuc knows"
        )
        return Content("other", words, AGAIN_FIX)
    return Content("onnx", "looks like an ONNX model")


def _begins_like_onnx(head: bytes) -> bool:
    """Whether the first field is the version of ONNX's IR, as exporters write it: ONNX models have been called .pb, too."""
    return head[:1] == b"\x08" and head[1:2] < b"\x40"


def _is_caffemodel(head: bytes) -> bool:
    """Its fields are a name, and layers in field 2 or 100; TensorFlow's graph begins with a node, which has a name."""
    at = 0
    if head[0] == 0x0A:
        length = head[1] if len(head) > 1 else 0
        if length >= 0x80 or head[2:3] == b"\x0a" or not head[2 : 2 + length].decode("latin-1").isprintable():
            return False
        at = 2 + length
    follows = head[at : at + 2]
    return follows == b"\xa2\x06" or (at > 0 and follows[:1] in (b"\x12", b"\x1a", b"\x20", b"\x22", b"\x42"))


def _is_tensorflow(head: bytes) -> bool:
    """A graph begins with a node, which begins with its name and op; a SavedModel with a 1, and a message with another."""
    _, body = _inside(head, 0x0A)
    length, name = _inside(body, 0x0A)
    if name:
        return name[:length].decode("latin-1").isprintable() and name[length : length + 1] == b"\x12"
    return head[:2] == b"\x08\x01" and _inside(head[2:], 0x12)[1][:1] == b"\x0a"


def _inside(data: bytes, tag: int) -> tuple[int, bytes]:
    """The length after a tag, and what follows it; nothing where there is another tag."""
    length = shift = 0
    if data[:1] == bytes([tag]):
        for at, byte in enumerate(data[1:11], 2):
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return length, data[at:]
    return 0, b""


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
        with open_zip(path, _MAX_MEMBERS) as archive:
            names = archive.namelist()
    except FileFormatError:
        return Content("other", "looks like a damaged zip archive (of PyTorch or Keras, perhaps)", AGAIN_FIX)
    if any(name.endswith(("/models/model.json", "serialized_exported_program.json")) for name in names):
        return Content("torch-exported", "looks like an exported program of PyTorch (.pt2)")
    if any(name.endswith("data.pkl") for name in names):
        if any("/code/" in name for name in names):
            return Content("torchscript", "looks like a TorchScript program")
        return Content("other", "looks like a PyTorch checkpoint", CHECKPOINT_FIX)
    if any(name.endswith("model.weights.h5") for name in names):
        return Content("keras", "looks like a Keras model")
    if all(name.endswith(".npy") for name in names):
        return Content("other", "looks like a NumPy .npz file", "That is data for 'npuc run --input'")
    return Content("other", "looks like a zip archive")
