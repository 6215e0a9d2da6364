"""Ops of TensorFlow, one by one, against what TensorFlow gives for them (`tf_ops.py` builds and runs them)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from npuc.engine import FloatEngine
from npuc.frontend.options import ImportOptions
from npuc.frontend.tensorflow import import_tensorflow
from support import judges
from support.judges.tf_models import cosine, judge_python

_LOOSE = {"out/bicubic": 5e-3}
"""TensorFlow takes the weights of a cubic from a table of 1,024."""


@pytest.mark.slow
def test_ops_give_what_tensorflow_gives(tmp_path: Path) -> None:
    script = Path(judges.__file__).with_name("tf_ops.py")
    done = subprocess.run(
        [judge_python(), str(script), str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    held = dict(np.load(tmp_path / "ops.npz"))
    names = tuple(name for name in held if name.startswith("out/"))
    assert len(names) >= 70
    graph = import_tensorflow(tmp_path / "ops.pb", ImportOptions(outputs=names))
    found = FloatEngine(graph, threads=1).run({port.name: held[port.name] for port in graph.inputs})
    for name in names:
        wanted = held[name]
        assert found[name].dtype == wanted.dtype, name
        assert cosine(found[name], wanted) >= 0.99999, name
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=_LOOSE.get(name, 1e-4), err_msg=name)
