"""Float networks on another device: the torch engine in the place of ONNX Runtime, with the same results to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from npuc import lang  # noqa: E402
from npuc.calib.calibration import calibrate  # noqa: E402
from npuc.engine import ALL_TENSORS, FloatEngine, compute_device, computing_on, float_engine  # noqa: E402
from npuc.errors import UsageError  # noqa: E402


def network() -> Any:
    weights = np.linspace(-1, 1, 8 * 3 * 9, dtype=np.float32).reshape(8, 3, 3, 3)
    x = lang.input("x", (1, 3, 8, 8))
    return lang.build({"y": lang.conv(x, weights, pads=1, relu=True, name="stem")})


def samples(count: int = 4) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(count)]


def test_the_cpu_is_the_float_engine() -> None:
    assert isinstance(float_engine(network()), FloatEngine)


@pytest.mark.parametrize(
    "name",
    ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))],
)
def test_torch_agrees_with_the_float_engine(name: str) -> None:
    graph = network()
    gpu = compute_device.GpuEngine(graph, ALL_TENSORS, 1, name)
    cpu = FloatEngine(graph, fetch=ALL_TENSORS, threads=1)
    for sample in samples():
        ours, theirs = gpu.run(sample), cpu.run(sample)
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            np.testing.assert_allclose(ours[key], value, rtol=1e-5, atol=1e-5 * float(np.abs(value).max()))


def test_calibration_follows_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []

    class Watched(compute_device.GpuEngine):
        def __init__(self, graph: Any, fetch: Any, threads: Any, device: str) -> None:
            used.append(device)
            super().__init__(graph, fetch, threads, "cpu")

    monkeypatch.setattr(compute_device, "check_device", lambda name, option="": None)
    monkeypatch.setattr(compute_device, "GpuEngine", Watched)
    graph = network()
    plain = calibrate(graph, samples(), "max")
    with computing_on("cuda:1"):
        table = calibrate(graph, samples(), "max")
    assert used == ["cuda:1"]
    for name in plain:
        assert table[name].threshold == pytest.approx(plain[name].threshold, rel=1e-5)
    assert isinstance(float_engine(graph), FloatEngine)


def test_a_network_that_torch_cannot_run_goes_to_the_cpu(caplog: pytest.LogCaptureFixture) -> None:
    graph = network()
    engine = compute_device.GpuEngine(graph, (), 1, "cpu")

    class Broken:
        def run(self, inputs: Any) -> Any:
            raise RuntimeError("out of memory")

    engine._engine = Broken()
    [sample] = samples(1)
    np.testing.assert_array_equal(engine.run(sample)["y"], FloatEngine(graph, threads=1).run(sample)["y"])
    assert "computed on the CPU: out of memory" in caplog.text


def test_a_device_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="the device cannot be 'gpu'"), computing_on("gpu"):
        pass
    with pytest.raises(UsageError, match="there is no 'cuda:99' here"), computing_on("cuda:99"):
        pass
