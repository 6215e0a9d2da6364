"""Files that are small to write and large to read: each is refused by a count, before it costs time or memory."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npuc.errors import NpucError
from npuc.flow import ImportOptions, import_model
from support.networks import tensorflow_graphs as tensorflow

Records = dict[str, bytes]


def _zip(records: Records) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in records.items():
            archive.writestr(name, data)
    return out.getvalue()


WIDE = b"[" + b"[]," * 5_000_000 + b"[]]"
NODES = [tensorflow.node(f"n{i}", "Relu", [f"n{i - 1}" if i else "x"]) for i in range(66_000)]
NET = "[net]\nwidth=8\nheight=8\nchannels=3\n"
INPUT = 'input: "x" input_shape { dim: 1 dim: 3 dim: 8 dim: 8 }\n'
DETECTION = """input: "l" input_shape { dim: BATCH dim: 8 } input: "c" input_shape { dim: BATCH dim: 6 }
input: "p" input_shape { dim: 1 dim: 2 dim: 8 }
layer { name: "d" type: "DetectionOutput" bottom: "l" bottom: "c" bottom: "p" top: "d"
detection_output_param { num_classes: 3 nms_param { nms_threshold: 0.4 top_k: 400 } keep_top_k: TOP } }"""
TOPS = " ".join(f'top: "t{i}"' for i in range(60_000))
FILES: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "keras: a wide description": (
        "x.keras",
        lambda: _zip({"config.json": WIDE, "metadata.json": b"{}", "model.weights.h5": b""}),
        "bytes of JSON, more than any network needs",
    ),
    "keras: deep metadata do not matter": (
        "x.keras",
        lambda: _zip({"config.json": b"{}", "metadata.json": b"[" * 100_000, "model.weights.h5": b""}),
        "not a readable HDF5 file",
    ),
    "tensorflow: many nodes": (
        "x.pb",
        lambda: tensorflow.graph([tensorflow.placeholder("x", 1, 4), *NODES]),
        "more than 65536 nodes",
    ),
    "tensorflow: many empty fields": (
        "x.pb",
        lambda: tensorflow.graph([tensorflow.placeholder("x", 1, 4)]) + b"\x1a\x00" * (1 << 20),
        "too many fields",
    ),
    "tensorflow: a pipe": ("x.pb", lambda: b"", "is a pipe or a device"),
    "caffe: results of any number": (
        "x.prototxt",
        lambda: DETECTION.replace("TOP", "2000000000").replace("BATCH", "1").encode(),
        "images with 2000000000 results",
    ),
    "caffe: pictures of any number": (
        "x.prototxt",
        lambda: DETECTION.replace("TOP", "10").replace("BATCH", "100000").encode(),
        "100000 images",
    ),
    "darknet: random weights": (
        "x.cfg",
        lambda: (NET + "[convolutional]\nfilters=100000\nsize=31\npad=1\n").encode(),
        "more than 1 GiB of random weights",
    ),
    "caffe: a layer of many results": (
        "x.prototxt",
        lambda: f'{INPUT}layer {{ name: "s" type: "Slice" bottom: "x" {TOPS} }}'.encode(),
        "do not divide into 60000 parts",
    ),
    "darknet: many sections": (
        "x.cfg",
        lambda: (NET + "[convolutional]\nfilters=4\nsize=1\n" * 9000).encode(),
        "more than 8192 sections",
    ),
    "darknet: a loop": ("x.cfg", lambda: f"{NET}[route]\nlayers=0\n".encode(), "is not a layer before it"),
}


def _refused(path: Path, words: str, **options: Any) -> None:
    with pytest.raises(NpucError, match=words) as caught:
        import_model(path, ImportOptions(**options))
    assert str(path) in str(caught.value) and "\n" not in caught.value.paragraph()


@pytest.mark.parametrize("name", FILES)
def test_it_is_refused_by_a_count(tmp_path: Path, name: str) -> None:
    title, make, words = FILES[name]
    if title.endswith(".keras"):
        pytest.importorskip("h5py", reason="h5py, which reads Keras files, is not installed")
    path = tmp_path / title
    if "pipe" in name:
        os.mkfifo(path)
    else:
        path.write_bytes(make())
    _refused(path, words)


# TorchScript, which runs when it is traced

PROGRAMS = {
    "loops in loops": (
        "for i in range(9000):\n  for j in range(9000):\n    x = x + 1\nreturn x",
        "come to more than 262144 ops",
    ),
    "a text that doubles": (
        's = "a"\nfor i in range(60):\n  s = s + s\nreturn x * len(s)',
        "double a list or text",
    ),
    "a list that doubles": (
        "s = [1]\nfor i in range(60):\n  s = s + s\nreturn x * len(s)",
        "double a list or text",
    ),
    "a list that takes itself in": (
        "s = [1]\nfor i in range(60):\n  s.extend(s)\nreturn x * len(s)",
        "double a list or text",
    ),
    "a long list": ("s = [1.0] * 2000000000\nreturn x * len(s)", "unknown or huge length"),
    "a loop over a tensor": (
        "y = torch.zeros([1]).expand([1 << 40])\nn = 0\nfor i in range(y.size(0)):\n  n = n + i\nreturn x * n",
        "a loop that is too long",
    ),
    "a loop over rows": (
        "y = torch.zeros([1 << 20, 4])\nfor row in y:\n  x = x + 1\nreturn x",
        "a loop that is too long",
    ),
    "a tensor taken apart": (
        "y = torch.zeros([1 << 22]).unbind(0)\nreturn x + y[0]",
        "more than 65536 tensors",
    ),
    "a tensor in parts": ("y = torch.zeros([1 << 22]).split(1)\nreturn x + y[0]", "more than 65536 tensors"),
    "a text with longer words": (
        's = "a"\nfor i in range(60):\n  s = s.replace("a", "aa")\nreturn x * len(s)',
        "on text, which may make it of any length",
    ),
    "a list of any length": ("n = 2 ** 31\ns = [1] * int(n)\nreturn x * len(s)", "unknown or huge length"),
}


def _scripted(body: str) -> bytes:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    module = type("Program", (torch.nn.Module,), {})()  # torch compiles a class once
    lines = "\n".join(f"  {line}" for line in body.splitlines())
    scripted = torch.jit.script(module)
    scripted.define(f"def forward(self, x):\n{lines}\n")
    out = io.BytesIO()
    torch.jit.save(scripted, out)
    return out.getvalue()


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_that_grow_are_not_run(tmp_path: Path, name: str) -> None:
    body, words = PROGRAMS[name]
    path = tmp_path / "x.pt"
    path.write_bytes(_scripted(body))
    _refused(path, words, input_shapes={"x": (1, 4)})


def test_plain_lists_and_loops_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    body = "for i in range(x.size(1)):\n  x = x + x[:, i:i + 1]\nfor row in x:\n  x = x + row\n"
    body += "for i in range(20):\n  x = x.reshape([1] + x.size()).reshape(x.size()) + float(len([0] * x.dim()))\nreturn x"
    path.write_bytes(_scripted(body))
    assert import_model(path, ImportOptions(input_shapes={"x": (1, 4)})).outputs


# Tensors that reach beyond their records: torch would read memory that is none of the file's


def _linear() -> Records:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    out = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(300, 2)), out)
    with zipfile.ZipFile(out) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _short(name: str, data: bytes) -> bytes:
    return data[:16] if "/data/" in name else data


def _far(name: str, data: bytes) -> bytes:
    # 300 as a size (BININT2), three times as large.
    return data.replace(b"M\x2c\x01", b"M\x84\x03") if name.endswith("/data.pkl") else data


@pytest.mark.parametrize("change", [_short, _far])
def test_tensors_lie_in_their_records(tmp_path: Path, change: Callable[[str, bytes], bytes]) -> None:
    records = {name: change(name, data) for name, data in _linear().items()}
    assert records != _linear()
    path = tmp_path / "x.pt"
    path.write_bytes(_zip(records))
    _refused(path, "does not lie in the .* bytes of data/", input_shapes={"input": (1, 300)})


def test_a_tensor_made_in_another_way_is_refused(tmp_path: Path) -> None:
    records = _linear()
    name = next(name for name in records if name.endswith("/data.pkl"))
    other = pickle.dumps((), 2)[:2] + b"ctorch._utils\n_rebuild_tensor_v2\n(K\x01tR."
    path = tmp_path / "x.pt"
    path.write_bytes(_zip({**records, name: other}))
    _refused(path, "in a way that torch does not write", input_shapes={"input": (1, 300)})


def test_pickles_are_counted(tmp_path: Path) -> None:
    records = _linear()
    folder = next(iter(records)).partition("/")[0]
    path = tmp_path / "x.pt"
    path.write_bytes(_zip({**records, **{f"{folder}/{i}.pkl": b"\x80\x02N." for i in range(3)}}))
    _refused(path, "holds 5 pickles", input_shapes={"input": (1, 300)})


def test_a_wide_description_of_an_exported_program(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    out = io.BytesIO()
    torch.export.save(torch.export.export(torch.nn.Linear(4, 2), (torch.zeros(1, 4),)), out)
    with zipfile.ZipFile(out) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    name = next(name for name in records if name.endswith("models/model.json"))
    assert json.loads(records[name])
    path = tmp_path / "x.pt2"
    path.write_bytes(_zip({**records, name: WIDE}))
    _refused(path, "bytes of JSON, more than any network needs")
