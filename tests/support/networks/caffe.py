"""Small Caffe networks for tests: text in, the imported network and the judge's results out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.engine import FloatEngine
from npuc.frontend.caffe import importer
from npuc.frontend.caffe.reader import read
from npuc.frontend.options import ImportOptions
from npuc.import_check.original_opencv import CaffeOriginal

Shapes = Mapping[str, Sequence[int]]


def net(inputs: Shapes, *layers: str) -> str:
    """A prototxt: inputs with shapes, and layers as the text between their braces."""
    heads = [
        f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ '
        + " ".join(f"dim: {size}" for size in shape)
        + " } } }"
        for name, shape in inputs.items()
    ]
    return "\n".join([*heads, *(f"layer {{ {layer} }}" for layer in layers)])


def layer(kind: str, bottoms: str = "x", tops: str = "y", parameters: str = "", name: str = "") -> str:
    """The text of one layer; bottoms and tops are words."""
    ends = "".join(f' bottom: "{b}"' for b in bottoms.split()) + "".join(f' top: "{t}"' for t in tops.split())
    return f'name: "{name or tops.split()[0]}" type: "{kind}"{ends} {parameters}'


def sample(shapes: Shapes, seed: int = 0) -> dict[str, Array]:
    """Random inputs."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(tuple(shape)).astype(np.float32) for name, shape in shapes.items()}


def run(
    folder: Path, text: str, inputs: Mapping[str, Array], **options: Any
) -> tuple[dict[str, Array], dict[str, dict[int, Array]]]:
    """The results of the import, and the random weights that it used, by layer."""
    path = folder / "net.prototxt"
    path.write_text(text)
    chosen = ImportOptions(**options)
    source = read(path, chosen)
    graph = importer.imported(source, chosen)
    graph.verify()
    return FloatEngine(graph, threads=1).run(inputs), source.blobs.arrays


def judged(
    folder: Path, text: str, inputs: Mapping[str, Array], **options: Any
) -> tuple[dict[str, Array], ...]:
    """Our results and OpenCV's."""
    path = folder / "net.prototxt"
    path.write_text(text)
    chosen = ImportOptions(**options)
    graph = importer.import_caffe(path, chosen)
    ours = FloatEngine(graph, threads=1).run(inputs)
    types = {port.name: port.type for port in graph.inputs}
    return ours, CaffeOriginal(path, graph, types, chosen, 1).run(inputs, list(ours))


def assert_close(ours: Mapping[str, Array], theirs: Mapping[str, Array], tolerance: float = 2e-5) -> None:
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        assert ours[name].shape == array.shape, name
        scale = max(1.0, float(np.abs(array).max()))
        np.testing.assert_allclose(ours[name], array, rtol=0, atol=tolerance * scale, err_msg=name)
