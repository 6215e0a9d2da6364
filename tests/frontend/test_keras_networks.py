"""Networks that Keras itself built and saved, in every form that it has: imported, compared with Keras, compiled.

`keras_zoo.py` builds them in the Python of the judge, once for all tests here.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from npuc.engine import FloatEngine
from npuc.flow import import_model
from npuc.ir import Graph, top
from support import judges
from support.judges.tf_models import Array, cosine, judge_python, require_equal_modes

_ZOO = Path(judges.__file__).with_name("keras_zoo.py")
NAMES = re.findall(r"@network\ndef (\w+)", _ZOO.read_text())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all networks."""
    folder = tmp_path_factory.mktemp("networks")
    done = subprocess.run(
        [judge_python(), str(_ZOO), str(folder)], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


def _samples(folder: Path, name: str, graph: Graph) -> tuple[dict[str, Array], list[Array]]:
    """Inputs by the names that the import gives them, and the outputs that Keras gave, in order."""
    held = np.load(folder / f"{name}.npz")
    given = {
        int(key.split(":")[1]): (key.split(":", 2)[2], held[key]) for key in held if key.startswith("in:")
    }
    by_name = {title: array for title, array in given.values()}
    inputs = {port.name: by_name.get(port.name, given[index][1]) for index, port in enumerate(graph.inputs)}
    count = sum(key.startswith("out:") for key in held)
    return inputs, [held[f"out:{index}"] for index in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("form", [".keras", ".h5", ""], ids=["keras", "h5", "saved_model"])
@pytest.mark.parametrize("name", NAMES)
def test_it_gives_what_keras_gives_and_compiles(built: Path, name: str, form: str) -> None:
    graph = import_model(built / f"{name}{form}")
    assert not any(isinstance(op, top.Onnx) for op in graph.ops)
    inputs, wanted = _samples(built, name, graph)
    found = FloatEngine(graph, threads=1).run(inputs)
    assert len(graph.outputs) == len(wanted)
    for port, output in zip(graph.outputs, wanted, strict=True):
        assert cosine(found[port.name], output) >= 0.99999, port.name
        np.testing.assert_allclose(found[port.name], output, rtol=1e-3, atol=1e-4)
    if form != ".h5":
        require_equal_modes(graph, inputs)
