"""Where float networks are computed: in ONNX Runtime on the CPU, or in torch on a GPU.

    with computing_on("cuda"):
        quantized, table = quantize_on_data(graph, source, target=target)

Calibration, range search and the steps of the ladder ask `float_engine` for an engine, so that the whole of quantization follows
the device. A network that torch cannot run whole is computed by the float engine on the CPU, with a line in the log that names
the layer. On a GPU, products are full float32 (no TF32), so that results differ from the CPU's by the order of sums alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from npuc.arrays import Array
from npuc.engine.floating import ALL_TENSORS, FloatEngine
from npuc.errors import EngineError, UsageError
from npuc.export.onnx import Fetch
from npuc.extras import require_torch
from npuc.ir import Graph

_LOG = logging.getLogger(__name__)
_DEVICE: ContextVar[str] = ContextVar("compute_device", default="cpu")


def check_device(name: str, option: str = "the device") -> None:
    """Refuse a device that is none, or that is not here; `option` is what the user called it."""
    if name == "cpu":
        return
    kind, _, number = name.partition(":")
    if kind != "cuda" or (number and not number.isdigit()):
        raise UsageError(f"{option} cannot be '{name}'", fix="It is cpu, cuda or cuda:N")
    torch = require_torch(f"{option} needs torch")
    if not torch.cuda.is_available() or int(number or 0) >= torch.cuda.device_count():
        raise UsageError(f"there is no '{name}' here", fix=f"Leave {option} out to compute on the CPU")


@contextmanager
def computing_on(device: str) -> Iterator[None]:
    """Compute float networks on this device: `cpu`, `cuda` or `cuda:N`."""
    check_device(device)
    token = _DEVICE.set(device)
    try:
        yield
    finally:
        _DEVICE.reset(token)


def compute_device() -> str:
    """The device that is in force."""
    return _DEVICE.get()


def float_engine(
    graph: Graph, fetch: Fetch = (), threads: int | None = None, spin: bool = True
) -> FloatEngine | GpuEngine:
    """The engine for a float network on the device that is in force; arguments are those of `FloatEngine`."""
    if _DEVICE.get() == "cpu":
        return FloatEngine(graph, fetch, threads, spin=spin)
    try:
        return GpuEngine(graph, fetch, threads, _DEVICE.get())
    except EngineError as error:
        _LOG.warning("computed on the CPU: %s", error.message)
        return FloatEngine(graph, fetch, threads, spin=spin)


class GpuEngine:
    """Runs a network with torch on a GPU, and on the CPU from the first op on that torch turns out not to have."""

    def __init__(self, graph: Graph, fetch: Fetch, threads: int | None, device: str) -> None:
        from npuc.engine.torch import TorchEngine

        names = graph.tensor_names() if fetch == ALL_TENSORS else list(fetch)
        self._make_fallback: Callable[[], FloatEngine] = lambda: FloatEngine(graph, fetch, threads)
        self._engine: Any = TorchEngine(graph, fetch=names, device=device)
        self._is_torch = True

    def run(self, inputs: Mapping[str, Array] | Array) -> dict[str, Array]:
        """The outputs, and what was asked for."""
        if self._is_torch:
            flags: Any = require_torch().backends.cudnn.flags
            try:
                # Convolutions would be rounded to 10 bits of mantissa by default.
                with flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
                    outputs: dict[str, Array] = self._engine.run(inputs)
                return outputs
            except (EngineError, RuntimeError) as error:
                _LOG.warning("computed on the CPU: %s", str(error).splitlines()[0])
                self._engine, self._is_torch = self._make_fallback(), False
        outputs = self._engine.run(inputs)
        return outputs
