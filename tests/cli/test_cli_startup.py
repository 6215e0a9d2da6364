"""What `npuc compile` loads: a quantized network needs neither ONNX nor its runtime, and no images."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.networks.tflite_quantized import quantized_network

NOT_NEEDED = (
    "onnx",
    "onnxruntime",
    "PIL",
    "google.protobuf",
    "torch",
    "numpy.ma",
    "npuc.quant.ladder",
    "npuc.calib.collection",
)


def test_a_quantized_network_is_compiled_without_what_it_does_not_need(tmp_path: Path) -> None:
    model = tmp_path / "model.tflite"
    model.write_bytes(quantized_network("i8", softmax=False))
    arguments = [
        "npuc",
        "compile",
        str(model),
        "--target",
        "ethos-u65-256-like",
        "-q",
        "-o",
        str(tmp_path / "model.npu"),
    ]
    code = f"""
import sys
sys.argv = {arguments!r}
from npuc.cli.app import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(*[name for name in {NOT_NEEDED!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (tmp_path / "model.npu").stat().st_size > 0
    assert done.stdout.split() == []
