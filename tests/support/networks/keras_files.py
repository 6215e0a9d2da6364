"""Keras files, written by hand: `.h5` and `.keras` from a description and weights, without Keras."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from npuc.arrays import Array
from npuc.frontend.keras.weights import snake_case


def layer(kind: str, name: str, /, *inbound: str, **config: Any) -> dict[str, Any]:
    """A layer of a Functional model of Keras 2, called once."""
    nodes = [[[item, 0, 0, {}] for item in inbound]] if inbound else []
    return {"class_name": kind, "name": name, "config": {"name": name, **config}, "inbound_nodes": nodes}


def functional(layers: Sequence[Mapping[str, Any]], outputs: Sequence[str]) -> dict[str, Any]:
    """A Functional model of Keras 2."""
    inputs = [[item["name"], 0, 0] for item in layers if item["class_name"] == "InputLayer"]
    config = {
        "name": "model",
        "layers": list(layers),
        "input_layers": inputs,
        "output_layers": [[name, 0, 0] for name in outputs],
    }
    return {"class_name": "Functional", "config": config}


def chain(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """A Sequential model of Keras 2."""
    return {"class_name": "Sequential", "config": {"name": "model", "layers": list(layers)}}


def source(*sizes: int | None, name: str = "x", dtype: str = "float32") -> dict[str, Any]:
    """An input layer; the batch is open."""
    return layer("InputLayer", name, batch_input_shape=[None, *sizes], dtype=dtype)


def write_h5(
    path: Path, model: Mapping[str, Any], weights: Mapping[str, Sequence[Array]], version: str = "2.4.0"
) -> Path:
    """An `.h5` file: the description is an attribute, weights are lists by layer."""
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(model)
        file.attrs["keras_version"] = version
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = [name.encode() for name in weights] or np.zeros(0, "S1")
        for name, arrays in weights.items():
            inner = group.create_group(name)
            titles = [f"{name}/w{i}:0" for i in range(len(arrays))]
            inner.attrs["weight_names"] = [title.encode() for title in titles] or np.zeros(0, "S1")
            for title, array in zip(titles, arrays, strict=True):
                inner[title] = array
    return path


def write_keras(
    path: Path, model: Mapping[str, Any], weights: Mapping[str, Sequence[Array]], version: str = "3.8.0"
) -> Path:
    """A `.keras` file: a zip archive, with weights by class and number."""
    held, counts = io.BytesIO(), dict[str, int]()
    with h5py.File(held, "w") as file:
        for item in model["config"]["layers"]:
            kind = snake_case(item["class_name"])
            number = counts.get(kind, 0)
            counts[kind] = number + 1
            place = f"layers/{kind}{f'_{number}' if number else ''}/vars"
            group = file.create_group(place)
            for i, array in enumerate(weights.get(item["config"]["name"], ())):
                group[str(i)] = array
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps(model))
        archive.writestr("metadata.json", json.dumps({"keras_version": version}))
        archive.writestr("model.weights.h5", held.getvalue())
    return path
