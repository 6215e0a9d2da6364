"""Every model of every framework folder, whole and at its own size: imported, compiled, the same bits in both modes.

The folders are listed, not the models, so a model that is added there is tested from then on.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tf_models import MODELS, require_equal_modes

from npuc.calib.random_inputs import random_inputs
from npuc.flow import ImportOptions, import_model
from npuc.frontend.formats import foreign

_ROOT = Path(__file__).resolve().parents[3] / "shared" / "models"
_FOLDERS = ("pytorch", "keras", "tensorflow", "caffe", "darknet")
_SUFFIXES = {".pt", ".pt2", ".keras", ".h5", ".pb", ".prototxt", ".cfg"}
# What a file does not say of itself.
_OPTIONS = {
    **{model.path: model.options for model in MODELS.values()},
    "pytorch/cifar10_resnet20.torchscript.pt": ImportOptions(input_shapes={"x": (1, 3, 32, 32)}),
}


def _models() -> list[str]:
    found = []
    for folder in _FOLDERS:
        for path in sorted((_ROOT / folder).rglob("*")):
            alone = path.suffix == ".caffemodel" and not path.with_suffix(".prototxt").exists()
            if path.name == "saved_model.pb":
                found.append(path.parent)
            elif path.suffix in _SUFFIXES or alone:
                found.append(path)
    return [str(path.relative_to(_ROOT)) for path in found]


@pytest.mark.slow
def test_the_folders_are_there(shared: Path) -> None:
    assert {name.split("/")[0] for name in _models()} == set(_FOLDERS)


@pytest.mark.slow
@pytest.mark.parametrize("name", _models())
def test_it_compiles_whole_and_both_modes_agree(name: str) -> None:
    path = _ROOT / name
    assert foreign(path)[0] == path
    graph = import_model(path, _OPTIONS.get(name, ImportOptions()))
    inputs = random_inputs(graph)
    assert all(np.ptp(array) > 0 for array in inputs.values())
    require_equal_modes(graph, inputs)
