"""Small Keras and TensorFlow models of every kind, and damage to one of their files: always the same by its number."""

from __future__ import annotations

import io
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import h5py
import numpy as np

from support.hostile import mutation
from support.networks import tensorflow_graphs as b
from support.networks.keras_files import chain, layer, source, write_h5, write_keras
from support.networks.tensorflow_graphs import Function, Type, const, graph, node, placeholder


@cache
def files() -> dict[str, bytes]:
    """Small models of every kind."""
    kernel = np.ones((3, 3, 2, 4), np.float32)
    nodes = [
        placeholder("x", -1, 6, 5, 2),
        const("k", kernel),
        node("conv", "Conv2D", ["x", "k"], strides=[1, 2, 2, 1], padding="SAME", data_format="NHWC"),
        node("relu", "Relu6", ["conv"]),
        const("shape", [1, -1], "int32"),
        node("flat", "Reshape", ["relu", "shape"]),
        const("begin", [0, 1], "int32"),
        const("end", [1, 9], "int32"),
        const("step", [1, 2], "int32"),
        node("cut", "StridedSlice", ["flat", "begin", "end", "step"], begin_mask=1),
        node("call", "PartitionedCall", ["cut"], f=Function("f")),
        const("axis", 1, "int32"),
        node("y", "ConcatV2", ["call", "cut", "axis"]),
    ]
    body = b.function("f", ["a"], {"r": "s:softmax:0"}, [node("s", "Softmax", ["a"])])
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        weights = {
            "c": [kernel, np.ones(4, np.float32)],
            "b": [np.ones(4, np.float32)] * 4,
            "l": [np.ones((4, 8), np.float32), np.ones((2, 8), np.float32), np.ones(8, np.float32)],
        }
        model = chain(
            source(6, 6, 2),
            layer("Conv2D", "c", filters=4, kernel_size=[3, 3], activation="relu", padding="same"),
            layer("BatchNormalization", "b", axis=[3], epsilon=0.001),
            layer("Reshape", "r", target_shape=[36, 4]),
            layer("LSTM", "l", units=2, return_sequences=False),
        )
        h5 = write_h5(folder / "m.h5", model, weights).read_bytes()
        keras = write_keras(
            folder / "m.keras", model, {k: v for k, v in weights.items() if k != "l"}
        ).read_bytes()
        variables = {"w": np.ones((3, 2), np.float32)}
        inner = [
            placeholder("x", -1, 3),
            node("w", "VarHandleOp", dtype=Type(1), shared_name="w"),
            node("r", "ReadVariableOp", ["w"]),
            node("y", "MatMul", ["x", "r"]),
        ]
        saved = b.write_saved_model(folder / "s", graph(inner), {"x": "x:0"}, {"y": "y:0"}, variables)
        return {
            "graph.pb": graph(nodes, [body]),
            "model.h5": h5,
            "model.keras": keras,
            "saved_model.pb": (saved / "saved_model.pb").read_bytes(),
            "variables/variables.index": (saved / "variables" / "variables.index").read_bytes(),
            "variables/variables.data-00000-of-00001": (
                saved / "variables" / "variables.data-00000-of-00001"
            ).read_bytes(),
        }


def written(folder: Path, name: str, number: int) -> Path:
    """A mutation of one file, with the others around it as they are."""
    originals = files()
    if name == "model.h5" and number % 2:
        # The library checks little of a description in an attribute: damage that, and leave the rest readable.
        path = folder / name
        path.write_bytes(originals[name])
        with h5py.File(path, "a") as file:
            text = str(file.attrs["model_config"]).encode()
            file.attrs["model_config"] = (
                mutation.mutated(text, 2 * number).replace(b"\0", b"").decode("latin-1")
            )
        return path
    if name == "model.keras" and number % 2:
        held = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(originals[name])) as old, zipfile.ZipFile(held, "w") as new:
            for member in old.namelist():
                data = old.read(member)
                new.writestr(
                    member, mutation.mutated(data, 2 * number) if member != "metadata.json" else data
                )
        (folder / name).write_bytes(held.getvalue())
        return folder / name
    data = mutation.mutated(originals[name], 2 * number)
    if not name.startswith(("variables", "saved")):
        (folder / name).write_bytes(data)
        return folder / name
    (folder / "variables").mkdir(exist_ok=True)
    for other, content in originals.items():
        if other.startswith(("variables", "saved")):
            (folder / other).write_bytes(data if other == name else content)
    return folder / "saved_model.pb"
