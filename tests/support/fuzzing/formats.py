"""What is fuzzed: for each format its seeds, its reader, damage that knows its structure, and words for a dictionary.

A reader returns or raises an error of the user's (exit status 2, one paragraph). Everything else is a finding.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from npuc.errors import NpucError
from npuc.tensors import write_npz
from support.hostile import caffe_darknet, mutation, tensorflow_files, tflite_models
from support.networks import onnx_zoo
from support.paths import ROOT

GOLDEN = ROOT / "tests" / "golden_files"
Mutator = Callable[[bytes, int], bytes]


@dataclass(frozen=True)
class Format:
    """One format."""

    suffix: str
    seeds: Callable[[], dict[str, bytes]]
    read: Callable[[Path], object]
    """Reads a file of this format."""
    mutate: Mutator | None = None
    """Damage number so and so, with the structure of the format in mind."""
    words: tuple[bytes, ...] = ()
    """For the dictionary."""


def _golden(pattern: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(GOLDEN.glob(pattern))}


def _damage(data: bytes, seed: int) -> bytes:
    return mutation.mutated(data, 2 * seed)


def _sealed(data: bytes, seed: int) -> bytes:
    from support.programs.files import sealed

    damaged = _damage(data, seed)
    return sealed(damaged) if len(damaged) > 64 else damaged


@cache
def _compiled() -> dict[str, bytes]:
    from support.programs.every_instruction import everything
    from support.programs.files import as_bytes, good, good_entries, random_model

    return {
        "good": good(),
        "entries": good_entries(),
        "one-core": as_bytes(random_model(1, count=12, cores=1, target="edge-1t")),
        "every-instruction": as_bytes(everything().compiled()),
        **_golden("*.npu"),
    }


def _onnx_seeds() -> dict[str, bytes]:
    return {name: onnx_zoo.model(name).SerializeToString() for name in onnx_zoo.NAMES if name != "external"}


def _onnx_mutation(data: bytes, seed: int) -> bytes:
    try:
        return mutation.mutated(data, seed)
    except Exception:  # no message any more: only its bytes can be damaged
        return mutation.mutated(data, 2 * seed)


def _tensors() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        write_npz(Path(folder, "a.npz"), {"x": np.ones((2, 3), np.float32), "y": np.arange(4)})
        return {"a.npz": Path(folder, "a.npz").read_bytes(), **_golden("*.npz")}


def _keras() -> dict[str, bytes]:
    from support.networks.keras_files import chain, layer, source, write_keras

    weights = {"c": [np.ones((3, 3, 2, 4), np.float32), np.ones(4, np.float32)]}
    conv = layer("Conv2D", "c", filters=4, kernel_size=[3, 3], activation="relu", padding="same")
    with tempfile.TemporaryDirectory() as folder:
        model = chain(source(6, 6, 2), conv, layer("GlobalAveragePooling2D", "p"))
        return {"model": write_keras(Path(folder, "m.keras"), model, weights).read_bytes()}


def _import(path: Path) -> None:
    from npuc.flow import import_model

    import_model(path).verify()


def _read_npu(path: Path) -> None:
    from npuc.program.disassemble import lines, select
    from npuc.program.file import load_entries

    for model in load_entries(path).values():
        for stream in select(model):
            for _ in lines(model, stream):
                pass


def _read_mlir(path: Path) -> None:
    from npuc.ir import parse_graph

    parse_graph(path.read_text(errors="replace"))


def _read_safetensors(path: Path) -> None:
    from npuc.ir.weights import load_safetensors

    load_safetensors(path)


def _read_target(path: Path) -> None:
    from npuc.target import load_target

    load_target(path)


def _read_table(path: Path) -> None:
    from npuc.calib.table import load_table

    load_table(path)


def _read_listing(path: Path) -> None:
    from npuc.schedule.listing import load_listing

    load_listing(path)


def _read_schedule(path: Path) -> None:
    from npuc.schedule.schedule_file import ScheduleFile

    ScheduleFile.load(path)


def _read_quantization(path: Path) -> None:
    from npuc.quant.config import QuantizationConfig

    QuantizationConfig.load(path)


def _read_tensors(path: Path) -> None:
    from npuc.tensors import TensorFile

    file = TensorFile(path)
    for name in list(file)[:8]:
        file[name]


_NUMBERS = (
    b"0",
    b"-1",
    b"1e30",
    b"nan",
    b"9223372036854775807",
    b"4294967296",
    b"{",
    b"[",
    b"]",
    b'"',
    b"null",
    b"true",
)

FORMATS: dict[str, Format] = {
    "onnx": Format(
        "onnx", _onnx_seeds, _import, _onnx_mutation,
        (b"Conv", b"Loop", b"If", b"axis", b"axes", b"body", b"SAME_UPPER"),
    ),
    "tflite": Format("tflite", tflite_models.files, _import, tflite_models.mutated, (b"TFL3",)),
    "pb": Format(
        "pb", lambda: {"graph": tensorflow_files.files()["graph.pb"]}, _import, _damage,
        (b"Conv2D", b"PartitionedCall", b"While", b"StridedSlice", b"Const"),
    ),
    "keras": Format("keras", _keras, _import, _damage),
    "prototxt": Format(
        "prototxt", lambda: {"net": caffe_darknet.files()["prototxt"][0]}, _import,
        caffe_darknet.mutated, (b"layer {", b"dim:", b"Convolution", *_NUMBERS),
    ),
    "cfg": Format(
        "cfg", lambda: {"net": caffe_darknet.files()["cfg"][0]}, _import, caffe_darknet.mutated,
        (b"[convolutional]", b"[route]", b"[yolo]", b"layers=", *_NUMBERS),
    ),
    "npu": Format("npu", _compiled, _read_npu, _sealed, (b".npu.header", b".npu.tensors", b".npu.lists")),
    "mlir": Format(
        "mlir", lambda: _golden("*.mlir"), _read_mlir, caffe_darknet.mutated,
        (b"top.conv", b"tensor<", b"x", b"!npu.q", b"%", b"->", b"dense<", *_NUMBERS),
    ),
    "safetensors": Format(
        "safetensors", lambda: _golden("*.safetensors"), _read_safetensors,
        caffe_darknet.mutated, (b'"dtype"', b'"shape"', b'"data_offsets"', b"__metadata__", *_NUMBERS),
    ),
    "target": Format(
        "yaml", lambda: _golden("target-*.yaml"), _read_target, caffe_darknet.mutated,
        (b"extends:", b"compute:", b"limits:", b"require:", b"&a", b"*a", b"KiB", b"GB/s", *_NUMBERS),
    ),
    "schedule": Format(
        "yaml", lambda: _golden("schedule-*.yaml"), _read_schedule, caffe_darknet.mutated,
        _NUMBERS,
    ),
    "quantization": Format(
        "yaml", lambda: _golden("quantization-*.yaml"), _read_quantization, caffe_darknet.mutated,
        _NUMBERS,
    ),
    "table": Format("cali", lambda: _golden("*.cali"), _read_table, caffe_darknet.mutated, _NUMBERS),
    "listing": Format(
        "txt", lambda: _golden("schedule-listing-*.txt"), _read_listing, caffe_darknet.mutated,
        _NUMBERS,
    ),
    "npz": Format("npz", _tensors, _read_tensors, _damage),
}  # fmt: skip


def fault(format: Format, path: Path) -> str:
    """What is wrong with how a file is read; empty if nothing is."""
    try:
        format.read(path)
    except NpucError as error:
        text = str(error)
        if error.exit_status != 2 or "\n" in text or len(text) > 1500:
            return f"{type(error).__name__} with exit status {error.exit_status}, {len(text)} characters: {text[:300]}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
