"""The runtime ships without the compiler: it loads neither the IR nor target files, nor what those need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from npuc import flow, lang
from npuc.program.file import save_compiled
from npuc.quant.config import QuantizationConfig
from npuc.target import load_target

HEAVY = (
    "xdsl",
    "pydantic",
    "onnx",
    "onnxruntime",
    "torch",
    "PIL",
    "npuc.ir",
    "npuc.target",
    "npuc.schedule",
    "npuc.quant",
)


def _loaded(code: str) -> list[str]:
    ending = f"import sys; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; {ending}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_importing_the_runtime_loads_no_compiler() -> None:
    assert _loaded("import npuc.runtime") == []


@pytest.mark.parametrize("on_cpu", [False, True])
def test_a_model_runs_without_the_compiler(on_cpu: bool, tmp_path: Path) -> None:
    x = lang.input("x", (1, 2, 4, 4))
    y = lang.conv(x, np.ones((3, 2, 1, 1), np.float32), name="y")
    graph = lang.build({"y": lang.erf(y, name="z") if on_cpu else y})
    config = QuantizationConfig(layers={"z": "float"}) if on_cpu else None
    made = flow.quantize_network(
        graph, {"x": (-1, 1), "y": (-2, 2), "z": (-1, 1)}, config, load_target("edge-4t")
    )
    save_compiled(flow.compile_network(made.graph, load_target("edge-4t")).model, tmp_path / "m.npu")
    code = (
        "import numpy as np; from npuc.runtime import Runner;"
        f"Runner({str(tmp_path / 'm.npu')!r}).run(np.zeros((1, 2, 4, 4), np.float32))"
    )
    # ONNX Runtime is there only where a CPU subgraph needs it.
    assert _loaded(code) == (["onnxruntime"] if on_cpu else [])


def test_an_image_without_pillow_is_a_sentence(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['PIL'] = None; from npuc.errors import MissingExtraError;"
        "from npuc.runtime.inputs import _image_loading\n"
        "try: _image_loading()\nexcept MissingExtraError as error: print(error.paragraph())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install pillow" in done.stdout, done.stderr
