"""`--predef-file`: values of placeholders under the names of a map, which is read and never unpickled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.compat.acuity.predef_file import placeholder_values
from npuc.errors import NpucError


class _Harmful:
    def __reduce__(self) -> Any:
        return os.mkdir, ("made",)


def test_values_under_the_names_of_the_map(tmp_path: Path) -> None:
    path = str(tmp_path / "f.npz")
    np.savez(
        path,
        stage=False,
        rates=np.array([1.5, 2]),
        same=3,
        map={"stage": "net/stage", "rates": "net/rates", "same": "same"},
    )
    assert placeholder_values(path) == {"net/stage": "0", "net/rates": "1.5,2.0", "same": "3"}
    assert placeholder_values(None) == {}


@pytest.mark.parametrize(
    "content", [{"stage": 3}, {"stage": {"a": "b"}}, {1: "x"}, {"stage": _Harmful()}, [1, 2], {}]
)
def test_other_maps_are_refused_and_run_nothing(
    content: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("f.npz", stage=False, map=content)
    with pytest.raises(NpucError, match="no dictionary from names to names"):
        placeholder_values("f.npz")
    assert not Path("made").exists()


def test_a_name_without_a_value(tmp_path: Path) -> None:
    path = str(tmp_path / "f.npz")
    np.savez(path, stage=False, map={"stege": "net/stage"})
    with pytest.raises(NpucError, match="names 'stege', of which the file has no value"):
        placeholder_values(path)
