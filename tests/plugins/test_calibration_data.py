"""A plugin's data set calibrates: found by what the data looks like, or by its name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuc.cli.app import run_command
from npuc.lang import build, conv, input

_READING = """
import numpy as np
from npuc.plugins.api import DataSet, Entry, Loaded, dataset


def read(entry):
    words = entry.path.read_text().splitlines()[entry.row].split()
    return Loaded(tensors=np.array(words[1:], np.float32).reshape(8, 8, 3))


@dataset('rows', matches=lambda place: place.path.suffix == '.lines')
def rows(place):
    count = len(place.path.read_text().splitlines())
    return DataSet('classification', [Entry(f'row{k}', 1, place.path, k) for k in range(count)], read)
"""


def test_a_data_set_of_a_plugin_calibrates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    from npuc.flow import save_graph

    save_graph(build({"y": conv(input("x", (1, 3, 8, 8)), weight, name="stem", relu=True)}), Path("m.mlir"))
    lines = [" ".join(["1", *(f"{value:.4f}" for value in rng.random(192))]) for _ in range(5)]
    Path("some.lines").write_text("\n".join(lines) + "\n")
    Path("reading.py").write_text(_READING)

    def said(*words: str) -> tuple[int, str]:
        status = run_command(
            [words[0], "m.mlir", "--plugin", "reading.py", "--data", "some.lines", *words[1:]]
        )
        captured = capsys.readouterr()
        return status, captured.out + captured.err

    status, text = said("calibrate", "-o", "a.cali")
    assert status == 0 and "from 5 samples" in text and "permuted" in text
    status, text = said("calibrate", "--dataset", "rows", "--max-count", "3")
    assert status == 0 and "from 3 samples" in text
    status, text = said("calibrate", "--dataset", "row")
    assert status == 2 and "Did you mean 'rows'?" in text
    assert said("calib-data", "-o", "ready")[0] == 0 and len(list(Path("ready").iterdir())) == 5
    assert said("quantize")[0] == 0
