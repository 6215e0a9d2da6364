"""Devices: by name, from packages, and a driver that knows nothing of npuc but the interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.errors import DeviceError, UnknownDeviceError, UsageError, WrongTargetError
from npuc.program.model import CompiledModel
from npuc.registries import isolated
from npuc.runtime import Device, Runner, SimulatedDevice, device_names, open_device, register_device
from npuc.sim import Simulator


class Board:
    """A driver as a vendor would write it: it cannot work in the caller's memory, and it counts."""

    def __init__(self) -> None:
        self.closed = 0
        self.open: list[Part] = []

    @property
    def name(self) -> str:
        return "board"

    def load(self, model: CompiledModel, threads: int) -> Part:
        self.open.append(Part(self, model))
        return self.open[-1]

    def close(self) -> None:
        self.closed += 1


class Part:
    def __init__(self, board: Board, model: CompiledModel) -> None:
        self.board, self.simulator = board, Simulator(model)

    @property
    def segments(self) -> Sequence[Array]:
        return self.simulator.segments

    def bind(self, segment: int, memory: Array | None) -> bool:
        return False

    def execute(self, subgraph: int) -> int | None:
        self.simulator.step(subgraph)
        return 7

    def close(self) -> None:
        self.board.open.remove(self)


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    with isolated():
        yield


def test_a_driver(integers: CompiledModel, model: CompiledModel, images: Array, expected: Array) -> None:
    board = Board()
    assert isinstance(board, Device) and isinstance(SimulatedDevice(), Device)
    for one in (integers, model):
        with Runner(one, board, workers=2) as runner:
            job = runner.execute_async(images[:3])
            np.testing.assert_array_equal(job.result(60)["logits"], expected[:3])
            assert job.cycles == 21 and job.device == "board" and len(board.open) == 1
        assert board.open == [] and board.closed == 0  # the device is the caller's


def test_a_device_that_is_opened_by_name_is_closed(model: CompiledModel, images: Array) -> None:
    board = Board()
    register_device("board", lambda: board)
    assert "board" in device_names() and open_device("board") is board
    runner = Runner(model, "board")
    runner.run(images[:1])
    runner.close()
    runner.close()
    assert board.closed == 1


def test_a_driver_may_refuse_a_model(model: CompiledModel, images: Array) -> None:
    class Other(Board):
        def load(self, model: CompiledModel, threads: int) -> Part:
            raise WrongTargetError("is for another NPU")

    with Runner(model, Other()) as runner:
        for _ in range(2):
            with pytest.raises(WrongTargetError):
                runner.run(images[:1])


def test_a_driver_that_fails_to_load(model: CompiledModel, images: Array) -> None:
    class Broken(Board):
        def load(self, model: CompiledModel, threads: int) -> Part:
            raise MemoryError

    with Runner(model, Broken(), workers=1) as runner:
        for _ in range(3):
            with pytest.raises(DeviceError, match="device 'board': it failed: MemoryError"):
                runner.run(images[:1])


def test_a_device_that_failed_is_loaded_again(model: CompiledModel, images: Array) -> None:
    class Flaky(Board):
        loads = 0

        def load(self, model: CompiledModel, threads: int) -> Part:
            self.loads += 1
            part = super().load(model, threads)
            if self.loads == 1:
                part.execute = lambda subgraph: 1 // 0  # type: ignore[method-assign]
            return part

    board = Flaky()
    with Runner(model, board, workers=1) as runner:
        with pytest.raises(DeviceError, match="division"):
            runner.run(images[:1])
        assert board.open == []
        runner.run(images[:1])
        runner.run(images[:1])
        assert board.loads == 2


def test_a_driver_whose_memory_is_too_short(model: CompiledModel, images: Array, expected: Array) -> None:
    """It is told in words, what was loaded is freed, and the next job finds a sound device."""

    class Short(Part):
        @property
        def segments(self) -> Sequence[Array]:
            return [one[: one.size // 2] for one in super().segments]

    class Careless(Board):
        loads = 0

        def load(self, model: CompiledModel, threads: int) -> Part:
            self.loads += 1
            self.open.append(Short(self, model) if self.loads == 1 else Part(self, model))
            return self.open[-1]

    board = Careless()
    with Runner(model, board, workers=1) as runner:
        with pytest.raises(
            DeviceError, match=r"device 'board': its driver gives \d+ bytes for segment '\w+', and tensor"
        ):
            runner.run(images[:1])
        assert board.open == []
        np.testing.assert_array_equal(runner.run(images[:1])["logits"], expected[:1])


def test_unknown_names(model: CompiledModel) -> None:
    with pytest.raises(UnknownDeviceError, match=r"There are: .*simulated"):
        Runner(model, "nonesuch")
    with pytest.raises(UsageError):
        register_device("", SimulatedDevice)

    def broken() -> Device:
        raise RuntimeError("no board here")

    register_device("broken", broken)
    with pytest.raises(DeviceError, match="device 'broken': it cannot be opened: no board here"):
        Runner(model, "broken")

    def told() -> Device:
        raise DeviceError("its firmware is too old", where="device 'told'")

    register_device("told", told)
    with pytest.raises(DeviceError, match=r"^\[E506\] device 'told': its firmware is too old\.$"):
        Runner(model, "told")


def test_devices_of_packages(
    model: CompiledModel, tmp_path: Path, images: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vendor_driver.py").write_text(
        "from npuc.runtime import SimulatedDevice\ndef board(): return SimulatedDevice(name='vendor')\n"
    )
    info = tmp_path / "vendor_driver-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor-driver\nVersion: 1.0\n")
    points = "[npuc.devices]\nvendor = vendor_driver:board\nlost = vendor_driver:nothing\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert {"vendor", "lost"} <= set(device_names())
    with Runner(model, "vendor") as runner:
        runner.run(images[:1])
        assert runner.device == "vendor"
    with pytest.raises(DeviceError, match="vendor_driver:nothing, cannot be loaded"):
        Runner(model, "lost")
