"""Every known model of every framework folder, whole and at its own size: imported, compiled, the same bits in both modes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuc.calib.random_inputs import random_inputs
from npuc.flow import ImportOptions, import_model
from npuc.frontend.formats import foreign
from support.judges.tf_models import MODELS, require_equal_modes
from support.shared_models import SHARED_MODELS, known

_FOLDERS = ("pytorch", "keras", "tensorflow", "caffe", "darknet")
# What a file does not say of itself.
_OPTIONS = {
    **{model.path: model.options for model in MODELS.values()},
    "pytorch/cifar10_resnet20.torchscript.pt": ImportOptions(input_shapes={"x": (1, 3, 32, 32)}),
}


def _models() -> list[str]:
    return [path.relative_to(SHARED_MODELS).as_posix() for path in known(_FOLDERS)]


@pytest.mark.slow
def test_the_folders_are_there(shared: Path) -> None:
    assert {name.split("/")[0] for name in _models()} == set(_FOLDERS)


@pytest.mark.slow
@pytest.mark.parametrize("name", _models())
def test_it_compiles_whole_and_both_modes_agree(name: str) -> None:
    path = SHARED_MODELS / name
    assert foreign(path)[0] == path
    graph = import_model(path, _OPTIONS.get(name, ImportOptions()))
    inputs = random_inputs(graph)
    assert all(np.ptp(array) > 0 for array in inputs.values())
    require_equal_modes(graph, inputs)
