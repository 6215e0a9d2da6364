"""The judge of Keras and TensorFlow imports: runs models with TensorFlow, in a Python of its own.

    python tf_judge.py JOBS.json

A job is an object with `model` (a path), `inputs` and `outputs` (.npz files: arrays `N/NAME` by sample and tensor), and for
frozen graphs `fetch` (the tensors to give back). Outputs of Keras models and signatures are numbered.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import keras
import numpy as np
import tensorflow as tf


def _samples(path: str) -> list[dict[str, Any]]:
    samples: dict[int, dict[str, Any]] = {}
    for key, value in np.load(path).items():
        number, _, name = key.partition("/")
        samples.setdefault(int(number), {})[name] = value
    return [samples[number] for number in sorted(samples)]


class OldDepthwise(keras.layers.DepthwiseConv2D):
    """Keras 2.4 wrote down a setting that Keras 3 does not take."""

    def __init__(self, *args: Any, groups: int = 1, **kwargs: Any) -> None:
        assert groups == 1
        super().__init__(*args, **kwargs)


def _keras(path: Path, samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    model = keras.models.load_model(
        str(path), compile=False, custom_objects={"DepthwiseConv2D": OldDepthwise}
    )
    results = []
    for sample in samples:
        arrays = list(sample.values())
        outputs = model(arrays if len(arrays) > 1 else arrays[0], training=False)
        several = outputs if isinstance(outputs, list | tuple) else [outputs]
        results.append({str(i): np.asarray(y) for i, y in enumerate(several)})
    return results


def _session(path: Path, samples: list[dict[str, Any]], fetch: list[str]) -> list[dict[str, Any]]:
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session(graph=graph) as session:
        inputs, outputs = {}, {name: f"{name}:0" for name in fetch}
        if path.is_dir():
            # The loader of TensorFlow 1 restores variables only, whatever objects the file once belonged to.
            meta = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(path))
            signature = meta.signature_def["serving_default"]
            inputs = {name: info.name for name, info in signature.inputs.items()}
            outputs = {name: info.name for name, info in signature.outputs.items()}
        else:
            definition = tf.compat.v1.GraphDef()
            definition.ParseFromString(path.read_bytes())
            tf.compat.v1.import_graph_def(definition, name="")
        names = sorted(outputs)
        results = []
        for sample in samples:
            feed = {inputs.get(name, f"{name}:0"): array for name, array in sample.items()}
            values = session.run([outputs[name] for name in names], feed)
            results.append(dict(zip(names, values, strict=True)))
        return results


def main(table: Path) -> None:
    """Run every job."""
    for job in json.loads(table.read_text()):
        path, samples = Path(job["model"]), _samples(job["inputs"])
        is_keras = path.suffix in (".h5", ".keras")
        results = _keras(path, samples) if is_keras else _session(path, samples, job.get("fetch", []))
        entries = {f"{i}/{name}": value for i, result in enumerate(results) for name, value in result.items()}
        np.savez(job["outputs"], **entries)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
