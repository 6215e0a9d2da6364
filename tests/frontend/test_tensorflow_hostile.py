"""Keras and TensorFlow files that mean harm: refused in words, at once, and in bounded memory; and thousands of mutations.

Each mutation is made from its number alone; `python tests/frontend/test_tensorflow_hostile.py NUMBER` runs one again. The
imports run in a worker with a limit on its memory, so that a crash, a hang or a file that lies about its sizes is a
failure like any other.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from npuc.errors import NpucError
from npuc.flow import ImportOptions
from npuc.frontend.formats import import_foreign
from support.hostile.isolation import isolated
from support.hostile.tensorflow_files import files, written
from support.networks import tensorflow_graphs as b
from support.networks.keras_files import chain, functional, layer, source, write_h5, write_keras
from support.networks.tensorflow_graphs import Function, Type, const, graph, node, part, placeholder

_FAST = 8.0
"""Seconds of this process that a refusal may take, with the time to load what it needs: on a fast machine, a quarter of that."""
_SLOW = 10.0
_CHUNKS, _CHUNK = 2, 400

HOSTILE: dict[str, tuple[Callable[[Path], Path], str]] = {}


def hostile(words: str) -> Callable[[Callable[[Path], Path]], Callable[[Path], Path]]:
    """Add a builder, with words that the refusal must have."""

    def register(build: Callable[[Path], Path]) -> Callable[[Path], Path]:
        HOSTILE[build.__name__] = (build, words)
        return build

    return register


def _pb(folder: Path, data: bytes) -> Path:
    path = folder / "model.pb"
    path.write_bytes(data)
    return path


def _dense(folder: Path) -> Path:
    weights = {"d": [np.ones((3, 2), np.float32), np.ones(2, np.float32)]}
    return write_keras(folder / "m.keras", chain(source(3), layer("Dense", "d")), weights)


# Archives


@hostile("would unpack from")
def zip_bomb(folder: Path) -> Path:
    path = folder / "m.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", b'{"a": "' + bytes(60 << 20) + b'"}')
        archive.writestr("model.weights.h5", b"")
    return path


@hostile("would unpack from")
def weight_bomb(folder: Path) -> Path:
    path = folder / "m.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", json.dumps(chain(source(3), layer("ReLU", "r"))))
        archive.writestr("model.weights.h5", bytes(400 << 20))
    return path


@hostile("outside its own folder")
def traversal(folder: Path) -> Path:
    path = _dense(folder)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../../etc/cron.d/x", b"boo")
    return path


@hostile("has no config.json")
def no_description(folder: Path) -> Path:
    path = folder / "m.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model.weights.h5", b"")
    return path


@hostile("nested more than")
def deep_description(folder: Path) -> Path:
    path = folder / "m.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", '{"a":' * 500 + "1" + "}" * 500)
        archive.writestr("model.weights.h5", b"")
    return path


@hostile("not valid JSON")
def endless_description(folder: Path) -> Path:
    path = folder / "m.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "[" * 200_000)
        archive.writestr("model.weights.h5", b"")
    return path


# HDF5


def _h5(folder: Path, change: Callable[[h5py.File], None]) -> Path:
    path = folder / "m.h5"
    write_h5(
        path, chain(source(3), layer("Dense", "d", use_bias=False)), {"d": [np.ones((3, 2), np.float32)]}
    )
    with h5py.File(path, "a") as file:
        change(file)
    return path


@hostile("link to another place or file")
def external_link(folder: Path) -> Path:
    def change(file: h5py.File) -> None:
        del file["model_weights/d/d/w0:0"]
        file["model_weights/d/d/w0:0"] = h5py.ExternalLink("/etc/passwd", "/x")

    return _h5(folder, change)


@hostile("in another file")
def external_storage(folder: Path) -> Path:
    def change(file: h5py.File) -> None:
        del file["model_weights/d/d/w0:0"]
        file.create_dataset("model_weights/d/d/w0:0", (3, 2), "f4", external=[("/etc/passwd", 0, 24)])

    return _h5(folder, change)


@hostile("have only")
def hollow_weights(folder: Path) -> Path:
    def change(file: h5py.File) -> None:
        del file["model_weights/d/d/w0:0"]
        file.create_dataset("model_weights/d/d/w0:0", (1 << 20, 1 << 18), "f4", chunks=(1024, 1024))

    return _h5(folder, change)


@hostile("have only")
def compressed_weights(folder: Path) -> Path:
    def change(file: h5py.File) -> None:
        del file["model_weights/d/d/w0:0"]
        data = np.zeros((1 << 12, 1 << 12), np.float32)
        file.create_dataset(
            "model_weights/d/d/w0:0", data=data, compression="gzip", chunks=(1 << 12, 1 << 10)
        )

    return _h5(folder, change)


@hostile("are no numbers")
def objects_as_weights(folder: Path) -> Path:
    def change(file: h5py.File) -> None:
        del file["model_weights/d/d/w0:0"]
        file["model_weights/d/d/w0:0"] = np.array([b"os.system"] * 6, dtype=h5py.string_dtype())

    return _h5(folder, change)


@hostile("there are no weights")
def weights_that_are_not_there(folder: Path) -> Path:
    def change(file: h5py.File) -> None:
        del file["model_weights/d/d/w0:0"]

    return _h5(folder, change)


# Descriptions


@hostile("never run")
def code(folder: Path) -> Path:
    program = {"class_name": "__lambda__", "config": {"code": "Y3Jhc2g="}}
    return write_h5(folder / "m.h5", chain(source(3), layer("Lambda", "l", function=program)), {})


@hostile("more than 32 deep")
def models_in_models(folder: Path) -> Path:
    model = chain(source(3), layer("ReLU", "r"))
    for number in range(40):
        inner = {**model, "config": {**model["config"], "name": f"m{number}"}}
        model = chain(source(3), inner)
    return write_h5(folder / "m.h5", model, {})


@hostile("layers when its parts are written out")
def doubling_models(folder: Path) -> Path:
    model = chain(source(3), layer("ReLU", "r"))
    for number in range(18):
        name = f"m{number}"
        twice = {**model, "name": name, "config": {**model["config"], "name": name}}
        twice["inbound_nodes"] = [[["x", 0, 0, {}]], [[name, 0, 0, {}]]]
        model = functional([source(3), twice], [name])
        model["config"]["output_layers"] = [[name, 1, 0]]
    return write_h5(folder / "m.h5", model, {})


@hostile("impossible shape")
def negative_input(folder: Path) -> Path:
    return write_h5(folder / "m.h5", chain(source(-5), layer("ReLU", "r")), {})


@hostile("impossible shape")
def enormous_input(folder: Path) -> Path:
    return write_h5(folder / "m.h5", chain(source(1 << 30, 1 << 30), layer("ReLU", "r")), {})


@hostile("makes a tensor of the shape")
def enormous_padding(folder: Path) -> Path:
    return write_h5(folder / "m.h5", chain(source(4, 4, 1), layer("ZeroPadding2D", "z", padding=1 << 38)), {})


@hostile("a window, a stride or a dilation below 1")
def no_stride(folder: Path) -> Path:
    conv = layer("Conv2D", "c", strides=[0, 0], use_bias=False)
    model = chain(source(4, 4, 1), conv)
    return write_h5(folder / "m.h5", model, {"c": [np.ones((1, 1, 1, 1), np.float32)]})


@hostile("more than 10000")
def many_layers(folder: Path) -> Path:
    return write_h5(folder / "m.h5", chain(source(3), *(layer("ReLU", f"r{i}") for i in range(20_000))), {})


@hostile("its slope is inf, not a number")
def endless_slope(folder: Path) -> Path:
    return write_h5(
        folder / "m.h5", chain(source(3), layer("LeakyReLU", "r", negative_slope=float("inf"))), {}
    )


@hostile("two members of one name")
def two_descriptions(folder: Path) -> Path:
    path = _dense(folder)
    with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr("config.json", b"{}")
    return path


@hostile("depends on itself")
def layers_in_a_circle(folder: Path) -> Path:
    model = functional([source(3), layer("ReLU", "a", "b"), layer("ReLU", "b", "a")], ["b"])
    return write_h5(folder / "m.h5", model, {})


# Graphs


@hostile("is cut off")
def truncated_graph(folder: Path) -> Path:
    return _pb(folder, graph([placeholder("x", 1, 3), node("y", "Relu", ["x"])])[:-4])


@hostile("a shape is [-3, 2]")
def negative_constant(folder: Path) -> Path:
    data = b.number(1, 1) + part(2, b.shape([-3, 2])) + part(4, bytes(24))
    entries = part(5, part(1, "dtype") + part(2, b.number(6, 1))) + part(
        5, part(1, "value") + part(2, part(8, data))
    )
    bad = part(1, "k") + part(2, "Const") + entries
    return _pb(folder, graph([placeholder("x", 1, 3), bad, node("y", "MatMul", ["x", "k"])]))


@hostile("repeats one value")
def splat(folder: Path) -> Path:
    data = b.number(1, 1) + part(2, b.shape([1 << 17, 1 << 17])) + part(5, bytes(4))
    entries = part(5, part(1, "dtype") + part(2, b.number(6, 1))) + part(
        5, part(1, "value") + part(2, part(8, data))
    )
    bad = part(1, "k") + part(2, "Const") + entries
    return _pb(folder, graph([placeholder("x", 1, 1 << 17), bad, node("y", "MatMul", ["x", "k"])]))


@hostile("depends on itself")
def circle(folder: Path) -> Path:
    return _pb(
        folder,
        graph(
            [
                placeholder("x", 1),
                node("a", "Add", ["x", "c"]),
                node("c", "Relu", ["a"]),
                node("e", "Abs", ["c"]),
            ]
        ),
    )


@hostile("call each other more than")
def recursion(folder: Path) -> Path:
    first = b.function(
        "f", ["a"], {"r": "c:output:0"}, [node("c", "PartitionedCall", ["a"], f=Function("g"))]
    )
    second = b.function(
        "g", ["a"], {"r": "c:output:0"}, [node("c", "PartitionedCall", ["a"], f=Function("f"))]
    )
    return _pb(
        folder,
        graph([placeholder("x", 2), node("y", "PartitionedCall", ["x"], f=Function("f"))], [first, second]),
    )


@hostile("when its loops and calls are written out")
def doubling_functions(folder: Path) -> Path:
    functions = [b.function("f0", ["a"], {"r": "c:activations:0"}, [node("c", "Relu", ["a"])])]
    for number in range(1, 30):
        inner = Function(f"f{number - 1}")
        nodes = [
            node("c", "PartitionedCall", ["a"], f=inner),
            node("d", "PartitionedCall", ["c:output:0"], f=inner),
        ]
        functions.append(b.function(f"f{number}", ["a"], {"r": "d:output:0"}, nodes))
    return _pb(
        folder,
        graph([placeholder("x", 2), node("y", "PartitionedCall", ["x"], f=Function("f29"))], functions),
    )


@hostile("when its loops and calls are written out")
def endless_loop(folder: Path) -> Path:
    test = b.function("test", ["v"], {"r": "t:output:0"}, [const("t", True, "bool")])
    body = b.function("body", ["v"], {"r": "v"}, [])
    loop = node("y", "While", ["x"], cond=Function("test"), body=Function("body"))
    return _pb(folder, graph([placeholder("x", 2), loop], [test, body]))


@hostile("makes a tensor of the shape")
def enormous_tile(folder: Path) -> Path:
    nodes = [placeholder("x", 1, 3), const("n", [1 << 40, 1], "int64"), node("y", "Tile", ["x", "n"])]
    return _pb(folder, graph(nodes))


@hostile("elements")
def enormous_range(folder: Path) -> Path:
    nodes = [
        placeholder("x", 1),
        *(const(name, value, "int64") for name, value in (("a", 0), ("z", 1 << 50), ("s", 1))),
        node("r", "Range", ["a", "z", "s"]),
        node("c", "Cast", ["r"], DstT=Type(1)),
        node("y", "Add", ["x", "c"]),
    ]
    return _pb(folder, graph(nodes))


@hostile("a list of 4611686018427387904 tensors")
def enormous_list(folder: Path) -> Path:
    nodes = [
        placeholder("x", 2),
        const("s", [2], "int32"),
        const("n", 1 << 62, "int64"),
        node("l", "TensorListReserve", ["s", "n"], element_dtype=Type(1)),
        node("y", "TensorListStack", ["l", "s"]),
    ]
    return _pb(folder, graph(nodes))


@hostile("blocks that overlap")
def index_of_itself(folder: Path) -> Path:
    """An index of variables whose index block names one block again and again."""
    made = b.write_saved_model(folder / "m", graph([placeholder("x", 2)]), {"x": "x:0"}, {"y": "y:0"}, {})
    nodes = [
        placeholder("x", 2),
        node("w", "VarHandleOp"),
        node("r", "ReadVariableOp", ["w"]),
        node("y", "Add", ["x", "r"]),
    ]
    b.write_saved_model(made, graph(nodes), {"x": "x:0"}, {"y": "y:0"}, {"w": np.ones(2, np.float32)})
    index = made / "variables" / "variables.index"
    table = b._block([(b"", b.number(1, 1))])
    handle = b.varint(0) + b.varint(len(table) - 5)
    many = b._block([(f"{n:06}".encode(), handle) for n in range(50_000)])
    footer = b.varint(0) + b.varint(len(table) - 5) + b.varint(len(table)) + b.varint(len(many) - 5)
    index.write_bytes(table + many + footer.ljust(40, b"\0") + bytes.fromhex("57fb808b247547db"))
    return made


@hostile("more than 8192 arguments")
def calls_of_many_arguments(folder: Path) -> Path:
    """Functions that call each other twice, with more arguments than there are steps."""
    names = [f"a{i}" for i in range(9000)]
    functions = [b.function("f0", names, {"r": "c:activations:0"}, [node("c", "Relu", ["a0"])])]
    for number in range(1, 10):
        inner = Function(f"f{number - 1}")
        nodes = [
            node("c", "PartitionedCall", names, f=inner),
            node("d", "PartitionedCall", ["c:output:0"] * len(names), f=inner),
        ]
        functions.append(b.function(f"f{number}", names, {"r": "d:output:0"}, nodes))
    call = node("y", "PartitionedCall", ["x"] * len(names), f=Function("f9"))
    return _pb(folder, graph([placeholder("x", 2), call], functions))


@hostile("when its loops and calls are written out")
def loops_of_many_variables(folder: Path) -> Path:
    names = [f"v{i}" for i in range(4000)]
    test = b.function("test", names, {"r": "t:output:0"}, [const("t", True, "bool")])
    body = b.function("body", names, {f"r{i}": name for i, name in enumerate(names)}, [])
    loop = node("y", "While", ["x"] * len(names), cond=Function("test"), body=Function("body"))
    return _pb(folder, graph([placeholder("x", 2), loop], [test, body]))


@hostile("letters")
def long_names(folder: Path) -> Path:
    """Every function puts a long name before those of the function that it calls."""
    functions = [b.function("f0", ["a"], {"r": "c:activations:0"}, [node("c", "Relu", ["a"])])]
    for number in range(1, 40):
        name = f"{number}" * 900
        call = node(name, "PartitionedCall", ["a"], f=Function(f"f{number - 1}"))
        functions.append(b.function(f"f{number}", ["a"], {"r": f"{name}:output:0"}, [call]))
    call = node("y", "PartitionedCall", ["x"], f=Function("f39"))
    return _pb(folder, graph([placeholder("x", 2), call], functions))


@hostile("is text")
def text_that_is_handed_on(folder: Path) -> Path:
    nodes = [node("x", "Placeholder", [], dtype=Type(7))]
    nodes += [node(f"n{i}", "Decode", [f"n{i - 1}" if i else "x"]) for i in range(20_000)]
    return _pb(folder, graph(nodes))


@hostile("it is nested too deeply")
def loops_after_loops(folder: Path) -> Path:
    """Every loop would look through all nodes for its own."""
    nodes = [placeholder("x", 2), const("t", False, "bool")]
    for i in range(4000):
        nodes += [
            node(f"e{i}", "Enter", [f"o{i - 1}" if i else "x"], frame_name=f"f{i}"),
            node(f"m{i}", "Merge", [f"e{i}", f"i{i}"]),
            node(f"l{i}", "LoopCond", ["t"]),
            node(f"s{i}", "Switch", [f"m{i}", f"l{i}"]),
            node(f"i{i}", "NextIteration", [f"s{i}:1"]),
            node(f"o{i}", "Exit", [f"s{i}"]),
        ]
    return _pb(folder, graph(nodes))


@hostile("an entry of zeros has the shape [1073741824]")
def list_of_zeros(folder: Path) -> Path:
    nodes = [
        placeholder("x", 2),
        const("s", [1 << 30], "int32"),
        const("n", 1000, "int32"),
        node("l", "TensorListReserve", ["s", "n"], element_dtype=Type(1)),
        node("y", "TensorListStack", ["l", "s"]),
    ]
    return _pb(folder, graph(nodes))


@hostile("takes a tensor apart into 1073741824 of them")
def parts(folder: Path) -> Path:
    return _pb(folder, graph([placeholder("x", 1 << 30), node("y", "Unpack", ["x"], axis=0)]))


@hostile("takes a tensor apart into 1073741824 of them")
def equal_parts(folder: Path) -> Path:
    nodes = [
        placeholder("x", 1 << 30),
        const("a", 0, "int32"),
        node("y", "Split", ["a", "x"], num_split=1 << 30),
    ]
    return _pb(folder, graph(nodes))


@hostile("has too many fields")
def attributes_of_many_fields(folder: Path) -> Path:
    """Every node is within the limits; all of them together are not."""
    attribute = part(5, part(1, "a") + part(2, b"\x18\x01" * 100_000))
    nodes = [part(1, f"n{i}") + part(2, "Relu") + part(3, "x") + attribute * 5 for i in range(3)]
    many = [part(1, f"m{i}") + part(2, "Relu") + b"\x1a\x00" * 500_000 for i in range(6)]
    return _pb(folder, graph([placeholder("x", 1, 3), *nodes, *many]))


def _attempt(path: str) -> tuple[str, float]:
    start = time.process_time()
    try:
        import_foreign(path, ImportOptions()).verify()
        words = "imported"
    except NpucError as error:
        words = f"{error.exit_status} {error}"
    return words, time.process_time() - start


@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_refused(tmp_path: Path, name: str) -> None:
    build, words = HOSTILE[name]
    outcome = isolated(_attempt, str(build(tmp_path)), seconds=20)
    assert not outcome.died and isinstance(outcome.value, tuple), outcome
    found, seconds = outcome.value
    assert words in found and found.startswith("2 "), found
    assert "\n" not in found and len(found) < 1200
    assert seconds < _FAST and outcome.mib < 300, (seconds, outcome.mib)


def test_a_long_chain_of_constants_is_not_followed_to_its_end(tmp_path: Path) -> None:
    """A small file, and every node of it would be 4 MiB."""
    nodes = [placeholder("x", 1), const("c0", np.zeros(1 << 20, np.float32)), const("a", [0], "int32")]
    nodes += [node(f"c{i}", "Add", [f"c{i - 1}", f"c{i - 1}"]) for i in range(1, 400)]
    nodes += [node("s", "Prod", ["c399", "a"], T=Type(1)), node("y", "Add", ["x", "s"])]
    outcome = isolated(_attempt, str(_pb(tmp_path, graph(nodes))), seconds=20)
    assert not outcome.died and outcome.value[0] == "imported", outcome
    assert outcome.mib < 300, outcome.mib  # 1.6 GiB if all were kept


# Mutations


def _check(name: str, number: int, folder: Path) -> str:
    """What is wrong with the import of a mutation; empty if nothing is."""
    path = written(folder, name, number)
    start = time.perf_counter()
    try:
        import_foreign(path, ImportOptions()).verify()
    except NpucError as error:
        if error.exit_status != 2 or "\n" in str(error) or len(str(error)) > 1200:
            return f"mutation {number} of {name}: exit status {error.exit_status}, {error}"
    except BaseException:
        return f"mutation {number} of {name}: {traceback.format_exc()}"
    seconds = time.perf_counter() - start
    return f"mutation {number} of {name}: it took {seconds:.1f} s" if seconds > _SLOW else ""


def _run(begin: int, end: int, log: str) -> list[str]:
    problems = []
    names = sorted(files())
    with tempfile.TemporaryDirectory() as folder:
        for number in range(begin, end):
            name = names[number // 2 % len(names)]
            Path(log).write_text(f"{name} {number}")
            problems.append(_check(name, number, Path(folder)))
    return [problem for problem in problems if problem]


@pytest.mark.parametrize("chunk", range(_CHUNKS))
def test_mutations_are_imported_or_refused(tmp_path: Path, chunk: int) -> None:
    log = tmp_path / "log"
    outcome = isolated(_run, chunk * _CHUNK, (chunk + 1) * _CHUNK, str(log), seconds=120)
    assert not outcome.died, f"the process died ({outcome.died}) at mutation {log.read_text()}"
    assert isinstance(outcome.value, list), outcome.value
    assert not outcome.value, "\n".join(outcome.value[:10])
    assert outcome.mib < 512, f"{outcome.mib:.0f} MiB"


if __name__ == "__main__":
    chosen = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as place:
        names = sorted(files())
        print(_check(names[chosen // 2 % len(names)], chosen, Path(place)) or "nothing is wrong")
