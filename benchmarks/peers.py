"""What the benchmarks share: where models and data are, ONNX Runtime's quantizer, and peers in venvs of their own.

Models and images are read in place from `../shared`; what is made on the way is kept under `build/bench`. A peer with
dependencies of its own is a script beside this file, `peer_NAME.py MODEL.onnx SAMPLES.npy RESULT.onnx SCHEME VARIANT`, that
runs in a venv under `build`; the venv is made the first time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
import onnxruntime as ort
from onnx import helper

from npuc.arrays import Array

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
MODELS = SHARED / "models" / "onnx"
DATA = SHARED / "data"
CACHE = ROOT / "build" / "bench"

_PER_CHANNEL = 13
"""The opset that DequantizeLinear has an axis from."""


_PATIENCE = 3600
"""Seconds that a peer may take."""


@dataclass(frozen=True)
class Peer:
    """A quantizer in a venv of its own."""

    name: str
    folder: str
    """Of the venv, below `build`."""
    packages: tuple[str, ...]

    @property
    def python(self) -> Path:
        """The interpreter of the venv."""
        return ROOT / "build" / self.folder / "bin" / "python"

    def install(self) -> str | None:
        """Make the venv if it is not there; what went wrong, or None."""
        stamp = ROOT / "build" / self.folder / "installed"
        if stamp.exists():
            return None
        print(f"installing {self.name} in build/{self.folder}", file=sys.stderr, flush=True)
        pip = [str(self.python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        for command in ([sys.executable, "-m", "venv", str(stamp.parent)], [*pip, *self.packages]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                return (done.stderr.strip() or "no message").splitlines()[-1]
        stamp.touch()
        return None

    def quantize(self, source: Path, target: Path, samples: list[Array], scheme: str, variant: str) -> None:
        """Write its result; `SystemExit` with its last words if it has none."""
        stacked = target.with_suffix(f".{os.getpid()}.npy")
        temporary = target.with_suffix(f".{os.getpid()}.onnx")
        np.save(stacked, np.concatenate(samples))
        script = Path(__file__).with_name(f"peer_{self.name}.py")
        command = [str(self.python), str(script), *map(str, (source, stacked, temporary)), scheme, variant]
        try:
            # Some leave files where they are run.
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_PATIENCE, cwd=target.parent
            )
            if done.returncode:
                raise SystemExit((done.stderr.strip() or f"status {done.returncode}").splitlines()[-1])
            os.replace(temporary, target)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"no result after {_PATIENCE} s") from None
        finally:
            stacked.unlink()
            temporary.unlink(missing_ok=True)


PEERS = {
    peer.name: peer
    for peer in (
        Peer("nncf", "bench-venv", ("nncf==3.4.0", "openvino==2026.4.1", "onnx", "onnxruntime")),
        # Any other torch than this one pulls several GB of CUDA.
        Peer("aimet", "peers/aimet", ("aimet-onnx==2.42.0", "torch==2.13.0")),
        Peer("quark", "peers/quark", ("amd-quark==0.13", "torch==2.13.0", "onnx", "onnxruntime")),
    )
}


def session(model: Path | bytes, threads: int, spinning: bool = True) -> ort.InferenceSession:
    """ONNX Runtime with all its optimizations on the CPU; threads that spin while they wait are quicker if alone."""
    options = ort.SessionOptions()
    if not spinning:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    source = str(model) if isinstance(model, Path) else model
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def fixed(source: Path, shape: tuple[int, ...], target: Path) -> Path:
    """A model with the shape of its input stated, prepared for quantization as ONNX Runtime's guide says."""
    from onnxruntime.quantization.shape_inference import quant_pre_process
    from onnxruntime.tools.onnx_model_utils import make_input_shape_fixed

    if target.exists():
        return target
    model = onnx.load(source)
    if next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")) < _PER_CHANNEL:
        model = onnx.version_converter.convert_version(model, _PER_CHANNEL)
    # Some files state an operator set twice, or shapes that hold for another input size.
    sets = {entry.domain: entry for entry in model.opset_import}
    model = helper.make_model(model.graph, opset_imports=list(sets.values()), ir_version=model.ir_version)
    del model.graph.value_info[:]
    # Weights among the inputs could change with every call: nothing would be folded, and AIMET asks for them as data.
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [entry for entry in model.graph.input if entry.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    make_input_shape_fixed(model.graph, model.graph.input[0].name, list(shape))
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_suffix(f".{os.getpid()}.onnx")
    stated = target.with_suffix(f".{os.getpid()}.stated.onnx")
    onnx.save(model, stated)
    with quiet():
        quant_pre_process(str(stated), str(temporary), skip_symbolic_shape=True)
    stated.unlink()
    os.replace(temporary, target)
    return target


def quantize_ort(
    source: Path,
    target: Path,
    samples: Iterable[Array],
    method: str = "MinMax",
    signed: bool = False,
    weight_bits: int = 8,
) -> Path:
    """`onnxruntime.quantization.quantize_static`, QDQ, per channel; activations unsigned unless stated."""
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_suffix(f".{os.getpid()}.onnx")
    name = onnx.load(source, load_external_data=False).graph.input[0].name
    with quiet():
        quantize_static(
            str(source),
            str(temporary),
            _reader(name, samples),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8 if signed else QuantType.QUInt8,
            weight_type=QuantType.QInt4 if weight_bits == 4 else QuantType.QInt8,
            calibrate_method=CalibrationMethod[method],
        )
    os.replace(temporary, target)
    return target


def _reader(name: str, samples: Iterable[Array]) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self._samples: Iterator[Array] = iter(samples)

        def get_next(self) -> dict[str, Array] | None:
            sample = next(self._samples, None)
            return None if sample is None else {name: sample}

    return Reader()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the advice of ONNX Runtime's tools off the screen."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
            yield
    finally:
        logging.disable(previous)
