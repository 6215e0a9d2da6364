"""Caffe and Darknet files that mean harm, or are damaged: one sentence each, in bounded time and memory.

Mutations are made from their number alone; `python tests/frontend/test_caffe_darknet_hostile.py NUMBER` runs one again.
"""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from npuc.errors import NpucError
from npuc.flow import import_model
from npuc.frontend.caffe.wire import _encode, _field
from support.hostile.caffe_darknet import CFG, files, mutated
from support.hostile.isolation import command_line, isolated
from support.networks.caffe import layer, net
from support.oracles import darknet as reference

_CHUNKS, _CHUNK = 4, 200
_SLOW, _MIB = 5.0, 300
X = {"x": (1, 3, 8, 8)}


def _conv(parameters: str) -> str:
    return net(X, layer("Convolution", parameters=f"convolution_param {{ {parameters} }}"))


def _model(*fields: bytes) -> bytes:
    return _field(1, b"net") + _field(100, _field(1, b"c") + b"".join(fields))


HOSTILE: dict[str, tuple[str, Callable[[], bytes | str], str]] = {
    "braces without end": ("prototxt", lambda: "layer { " * 20000, "nested more than"),
    "fields without end": ("prototxt", lambda: "layer { } " + "a: 1 " * 200000, "more than"),
    "layers without end": ("prototxt", lambda: "layer { } " * 20000, "20000 layers"),
    "a text that is too long": ("prototxt", lambda: "layer { }" + " " * (17 << 20), "a prototxt of"),
    "digits without end": (
        "prototxt",
        lambda: "layer { a: " + "1" * 900000 + "x }",
        "neither a name nor a value",
    ),
    "quotes without end": ("prototxt", lambda: 'layer { a: "' + "\\" * 900000, "neither a name nor a value"),
    "spaces without end": (
        "prototxt",
        lambda: "layer" + " " * 60000 + "x layer {",
        "where ':' or '{' was expected",
    ),
    "an absurd input": (
        "prototxt",
        lambda: net({"x": (2**31, 2**31, 2**31)}, layer("ReLU")),
        "impossible shape",
    ),
    "a negative input": ("prototxt", lambda: net({"x": (1, -3, 8)}, layer("ReLU")), "impossible shape"),
    "weights without end": (
        "prototxt",
        lambda: _conv("num_output: 2000000000 kernel_size: 1"),
        "random weights",
    ),
    "an absurd kernel": ("prototxt", lambda: _conv("num_output: 4 kernel_size: 2000000000"), "kernel_size"),
    "an absurd result": (
        "prototxt",
        lambda: net(X, *(layer("Tile", "x", "x", "tile_param { tiles: 100000 }", f"t{i}") for i in range(9))),
        "its result has the shape",
    ),
    "too many boxes": (
        "prototxt",
        lambda: net(
            X, layer("PriorBox", "x x", parameters="prior_box_param { " + "min_size: 1 " * 90000 + "}")
        ),
        "90000 sizes",
    ),
    "two generations": ("prototxt", lambda: "layers { } layer { }", "both 'layers' and 'layer'"),
    "a model that ends in a number": ("caffemodel", lambda: _model(b"\x3a\x80"), "middle of a number"),
    "a length beyond the file": (
        "caffemodel",
        lambda: _model() + b"\xa2\x06\xff\xff\xff\xff\x7f",
        "middle of a field",
    ),
    "a group": ("caffemodel", lambda: _model() + b"\x0b", "wire type 3"),
    "fields of one byte": ("caffemodel", lambda: _model() + b"\x28\x00" * 200000, "more than"),
    "an endless number": ("caffemodel", lambda: _model() + b"\x28" + b"\xff" * 20, "middle of a number"),
    "packed bombs": (
        "caffemodel",
        lambda: _field(1, b"net") + _field(100, _field(143, _field(1, _field(1, b"\x01" * 200000)))),
        "200000 bytes",
    ),
    "a blob that is cut off": (
        "caffemodel",
        lambda: (
            _model(_field(2, b"PReLU"), _field(3, b"x"), _field(4, b"y"), _field(7, _field(5, b"abc")))
            + _field(3, b"x")
            + _field(8, b"".join(_encode(8) + _encode(n) for n in (1, 3, 8, 8)))
        ),
        "cut off",
    ),
    "a route that loops": ("cfg", lambda: CFG + "[route]\nlayers=0\n", "not a layer before it"),
    "a route that doubles": (
        "cfg",
        lambda: CFG + "[dropout]\n" + "[route]\nlayers=-1,-1\n" * 60,
        "has the shape",
    ),
    "sections without end": ("cfg", lambda: CFG + "[dropout]\n" * 20000, "more than 8192 sections"),
    "a cfg that is too long": ("cfg", lambda: CFG + "#" * (5 << 20), "a .cfg of"),
    "absurd filters": ("cfg", lambda: CFG + "[convolutional]\nfilters=1000000000\n", "random weights"),
    "an absurd picture": (
        "cfg",
        lambda: "[net]\nwidth=65000\nheight=65000\nchannels=60000\n[avgpool]\n",
        "impossible shape",
    ),
    "a negative picture": ("cfg", lambda: "[net]\nwidth=-8\nheight=8\n[avgpool]\n", "width=-8"),
    "an infinite picture": ("cfg", lambda: "[net]\nwidth=inf\nheight=8\n[avgpool]\n", "width=inf"),
    "no layers": ("cfg", lambda: CFG, "no layers"),
    "no pairs": ("cfg", lambda: CFG + "[avgpool]\nrubbish\n", "not key=value"),
}


def _import(path: str) -> tuple[str, str]:
    try:
        graph = import_model(path)
    except NpucError as error:
        assert error.exit_status == 2, error
        return type(error).__name__, str(error)
    return "", f"{sum(1 for _ in graph.ops)} ops"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_in_words(tmp_path: Path, name: str) -> None:
    suffix, build, words = HOSTILE[name]
    made = build()
    path = tmp_path / f"model.{suffix}"
    path.write_bytes(made if isinstance(made, bytes) else made.encode())
    outcome = isolated(_import, str(path), seconds=20)
    assert not outcome.died, f"the process died: {outcome.died}"
    assert isinstance(outcome.value, tuple), outcome.value
    kind, message = outcome.value
    assert kind and words in message and "\n" not in message and len(message) < 1000, message
    assert outcome.seconds < _SLOW and outcome.mib < _MIB, f"{outcome.seconds:.1f} s, {outcome.mib:.0f} MiB"


@pytest.mark.parametrize("name", ["braces without end", "a route that doubles", "a group"])
def test_the_command_line_says_it_in_one_paragraph(tmp_path: Path, name: str) -> None:
    suffix, build, words = HOSTILE[name]
    made = build()
    path = tmp_path / f"model.{suffix}"
    path.write_bytes(made if isinstance(made, bytes) else made.encode())
    status, _, errors = command_line("import", str(path), "-o", str(tmp_path / "out.mlir"))
    assert status == 2 and words in errors and len(errors.strip().splitlines()) == 1
    assert not (tmp_path / "out.mlir").exists()


def test_weights_that_are_cut_off_name_the_layer(tmp_path: Path) -> None:
    path = tmp_path / "net.cfg"
    path.write_text(CFG + "[convolutional]\nfilters=2\nsize=1\n[convolutional]\nfilters=3\nsize=1\n")
    numbers = reference.Numbers(0)
    reference.run(path.read_text(), np.zeros((1, 4, 8, 8), np.float32), numbers)
    data = numbers.file()
    for cut, words in (
        (len(data) - 4, r"layer 1 \[convolutional\] needs 6 numbers, but 5 are left"),
        (30, r"layer 0 \[convolutional\] needs 8 numbers, but 0 are left"),
        (12, "too short for Darknet weights"),
    ):
        path.with_suffix(".weights").write_bytes(data[:cut])
        with pytest.raises(NpucError, match=words):
            import_model(path)
    path.with_suffix(".weights").write_bytes(data + bytes(8))
    assert "2 numbers at the end" in import_model(path).notes[-1]
    path.with_suffix(".weights").write_bytes(b"\xff" * 200)
    with pytest.raises(NpucError, match="does not look like Darknet weights"):
        import_model(path)


def _check(number: int, folder: Path) -> str:
    kind = ("prototxt", "cfg")[number % 2]
    text, weights = files()[kind]
    which = number // 2 % 4
    path = folder / f"model.{kind}"
    path.write_bytes(mutated(text, number) if which else text)
    other = path.with_suffix(".caffemodel" if kind == "prototxt" else ".weights")
    other.write_bytes(weights if which else mutated(weights, number))
    start = time.perf_counter()
    try:
        import_model(path).verify()
    except NpucError as error:
        if error.exit_status != 2 or "\n" in str(error) or len(str(error)) > 1000:
            return f"mutation {number}: exit status {error.exit_status}, {error}"
    except BaseException:
        return f"mutation {number}: {traceback.format_exc()}"
    seconds = time.perf_counter() - start
    return f"mutation {number}: it took {seconds:.1f} s" if seconds > _SLOW else ""


def _run(begin: int, end: int, log: str) -> list[str]:
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(begin, end):
            Path(log).write_text(str(number))
            problems.append(_check(number, Path(folder)))
    return [problem for problem in problems if problem]


@pytest.mark.parametrize("chunk", range(_CHUNKS))
def test_mutations_are_imported_or_refused(tmp_path: Path, chunk: int) -> None:
    log = tmp_path / "log"
    outcome = isolated(_run, chunk * _CHUNK, (chunk + 1) * _CHUNK, str(log), seconds=120)
    assert not outcome.died, f"the process died ({outcome.died}) at mutation {log.read_text()}"
    assert isinstance(outcome.value, list), outcome.value
    assert not outcome.value, "\n".join(outcome.value[:10])
    assert outcome.mib < 512, f"{outcome.mib:.0f} MiB"


def test_the_originals_are_imported(tmp_path: Path) -> None:
    for kind, (text, weights) in files().items():
        path = tmp_path / f"model.{kind}"
        path.write_bytes(text)
        path.with_suffix(".caffemodel" if kind == "prototxt" else ".weights").write_bytes(weights)
        assert not import_model(path).notes


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(_check(int(sys.argv[1]), Path(place)) or "nothing is wrong")
