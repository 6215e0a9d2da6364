"""SOPHGO's functional model of the BM1684X, where `make peers-sophgo` has put it; tests skip where it is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.codegen.compile_model import Compilation
from npuc.engine.integer import IntegerEngine
from npuc.ir import Graph
from npuc.runtime import Runner
from npuc.runtime.bm1684x import vendor_libraries
from support.paths import ROOT


def libraries() -> Path:
    """The folder of the vendor's libraries."""
    peers = ROOT / "build" / "peers" / "sophgo"
    if "NPUC_SOPHGO" not in os.environ and peers.is_dir():
        os.environ["NPUC_SOPHGO"] = str(peers)
    found = vendor_libraries()
    if found is None:
        pytest.skip("SOPHGO's libraries are not here: make peers-sophgo")
    return found


def assert_equal_on_chip(
    graph: Graph, done: Compilation, inputs: Mapping[str, Array], distinct: int = 3
) -> None:
    """What the vendor's runtime computes is what graph mode computes, to the bit."""
    libraries()
    wanted = IntegerEngine(graph).run(dict(inputs))
    with Runner(done.model, "bm1684x-model", workers=1) as runner:
        found = runner.run(dict(inputs))
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
        assert len(np.unique(value)) >= distinct, f"{name} is nearly constant"


def judge(**request: Any) -> dict[str, Any]:
    """What the vendor's libraries say; `support.bm1684x.judge` has the requests."""
    script = ROOT / "tests" / "support" / "bm1684x" / "judge.py"
    done = subprocess.run(
        [sys.executable, str(script), str(libraries())], input=json.dumps(request), capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.stdout, f"the vendor's process ended with status {done.returncode}: {done.stderr[-1500:]}"
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
