"""What a device is to the runtime, and where devices are found.

A vendor's driver is a class with the methods of `Device`; it needs nothing of npuc but these names. It is registered under
a name by `register_device`, or by a package with an entry point in the group `npuc.devices`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, runtime_checkable

from npuc.arrays import Array
from npuc.errors import DeviceError, UnknownDeviceError, UsageError
from npuc.program.model import CompiledModel
from npuc.registries import Lenient, Registry

GROUP = "npuc.devices"
"""The group of entry points that packages with drivers use."""


class LoadedModel(Protocol):
    """A model in the memory of a device, for one job at a time. Calls come from one thread at a time."""

    @property
    def segments(self) -> Sequence[Array]:
        """DRAM as the host sees it: the bytes of every segment of the model. Segment 0 holds the constants."""

    def bind(self, segment: int, memory: Array | None) -> bool:
        """Use the caller's bytes for a segment until it is bound again; None: the device's own. False: cannot be."""

    def execute(self, subgraph: int) -> int | None:
        """Run an NPU subgraph of the model and return when it is done: its cycles, or None if they are not counted."""

    def close(self) -> None:
        """Free the memory."""


@runtime_checkable
class Device(Protocol):
    """An NPU. `load` may be called from several threads, and what it returned may run at the same time."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def load(self, model: CompiledModel, threads: int) -> LoadedModel:
        """Put a model into memory; `threads` is how many the host may use. `WrongTargetError` if it is not for this NPU."""

    def close(self) -> None:
        """Let go of the hardware."""


Factory = Callable[[], Device]

DEVICES: Registry[str, Factory] = Registry(
    "a device", provider=("npuc.runtime.simulated", "npuc.runtime.bm1684x"), lenient=Lenient.ALL
)
"""By name."""


def register_device(name: str, factory: Factory, *, replace: bool = False) -> None:
    """Make a device known by a name; `replace` if the name may stand for another one already.

    >>> from npuc.runtime import SimulatedDevice
    >>> register_device("slow", lambda: SimulatedDevice(timing=True))
    >>> "slow" in device_names()
    True
    """
    if not name:
        raise UsageError("a device needs a name")
    DEVICES.add([name], factory, replace=replace)


def device_names() -> list[str]:
    """All devices that can be asked for by name."""
    return sorted(set(DEVICES) | {point.name for point in entry_points(group=GROUP)})


def open_device(device: str | Device) -> Device:
    """A device by its name; a device is returned as it is."""
    if not isinstance(device, str):
        if not isinstance(device, Device):
            raise UsageError(
                f"{device!r} is neither the name of a device nor a device",
                fix="Give one of either kind; npuc.runtime.Pool takes several",
            )
        return device
    factory = DEVICES.get(device)
    if factory is None:
        factory = _from_package(device)
    try:
        return factory()
    except DeviceError:
        raise  # the driver says it itself
    except Exception as error:
        raise DeviceError(f"it cannot be opened: {error}", where=f"device '{device}'") from error


def _from_package(name: str) -> Factory:
    points: Sequence[EntryPoint] = tuple(entry_points(group=GROUP, name=name))
    if not points:
        raise UnknownDeviceError(
            f"there is no device '{name}'",
            fix=f"There are: {', '.join(device_names())}. Is the package with its driver installed?",
        )
    try:
        factory: Factory = points[0].load()
    except Exception as error:
        raise DeviceError(
            f"its driver, {points[0].value}, cannot be loaded: {error}", where=f"device '{name}'"
        ) from error
    return factory
