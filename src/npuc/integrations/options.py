"""The options that every integration with a live framework takes: what `npuc compile` has as flags, by the same names.

>>> IntegrationOptions.parse({"target": "edge-1t", "calibrate": 8}).calibrate
8
>>> IntegrationOptions.parse({"accuracy_dorp": 1.0})
Traceback (most recent call last):
npuc.errors.UsageError: [E601] there is no option 'accuracy_dorp'. Did you mean 'accuracy_drop'?
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from npuc.engine.compute_device import check_device
from npuc.errors import UsageError
from npuc.files import writable
from npuc.layer_costs import REFERENCE
from npuc.quant.config import QuantizationConfig
from npuc.target import Target, load_target

if TYPE_CHECKING:
    from npuc.quant.ladder.run import PipelineOptions


def _target(value: Any) -> Any:
    return load_target(value) if isinstance(value, str | Path) else value


def _config(value: Any) -> Any:
    return QuantizationConfig.load(value) if isinstance(value, str | Path) else value


class IntegrationOptions(BaseModel):
    """What a user may ask for; every option has a default."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)

    target: Annotated[Target, BeforeValidator(_target)] = Field(
        default_factory=lambda: load_target(REFERENCE)
    )
    """The machine to compile for: a name, a file, or a `Target`."""
    calibrate: int = Field(default=32, ge=1)
    """How many calls calibrate while the framework computes (torch.compile)."""
    data: Any = None
    """Calibration data that is at hand: it is then converted at the first call (torch.compile)."""
    accuracy_drop: float | None = Field(default=None, ge=0)
    """Percentage points of the samples whose best class may differ from float's; steps are added until that holds."""
    ladder: str | None = None
    """`all`, or steps that reduce the loss of accuracy, separated by commas."""
    method: str | None = None
    """The calibration method; without it, the best of several is kept."""
    scheme: str | None = None
    """The quantization scheme; without it, that of the target."""
    config: Annotated[QuantizationConfig | None, BeforeValidator(_config)] = None
    """A quantization configuration, or its file."""
    level: int = Field(default=2, ge=0, le=3)
    """The effort of the schedule search, as `-O` of `npuc compile`."""
    device: Any = "simulated"
    """The device that runs the program: a name, or a `npuc.runtime.device.Device`."""
    torch_device: str = "cpu"
    """Where calibration and the steps of the ladder compute: `cpu`, `cuda` or `cuda:N`."""
    threads: int | None = Field(default=None, ge=1)
    """Threads of the host for quantization; without it, all cores."""
    cache: bool = True
    """Keep converted networks on disk, in npuc's cache folder (torch.compile)."""
    background: bool = False
    """Convert in a thread, while the framework goes on computing (torch.compile)."""
    fallback: bool = True
    """A graph that cannot be converted stays in the framework, with a warning; false raises the error instead."""
    report: bool | str | Path = False
    """Print the report when a graph has been converted, or write it to this `.json` file."""

    @staticmethod
    def parse(values: Mapping[str, Any], leave_out: tuple[str, ...] = ()) -> IntegrationOptions:
        """The options of a mapping; a name that is none, or one of `leave_out`, is an error with the nearest name."""
        known = [name for name in IntegrationOptions.model_fields if name not in leave_out]
        for name in values:
            if name not in known:
                near = get_close_matches(str(name), known, 1, 0.5)
                fix = f"Did you mean '{near[0]}'?" if near else f"There are {', '.join(known)}"
                raise UsageError(f"there is no option '{name}'", fix=fix)
        try:
            options = IntegrationOptions.model_validate(dict(values))
        except ValidationError as error:
            first = error.errors()[0]
            field = str(first["loc"][0]) if first["loc"] else ""
            raise UsageError(f"option '{field}' cannot be {values.get(field)!r}: {first['msg']}") from error
        if options.scheme is not None and options.config is not None:
            raise UsageError("a configuration states the scheme", fix="Give scheme or config, not both")
        if isinstance(options.report, str | Path):
            writable(options.report)
        check_device(options.torch_device, "option 'torch_device'")
        if options.ladder is not None:
            options.steps()
        return options

    def steps(self) -> tuple[str, ...] | None:
        """The steps of the ladder by name; None for all."""
        from npuc.quant.ladder.run import PipelineOptions

        return None if self.ladder is None else PipelineOptions.names(self.ladder)

    def quantization(self) -> QuantizationConfig | None:
        """The configuration of the quantizer; None leaves all to the target."""
        if self.scheme is not None:
            return QuantizationConfig(scheme=self.scheme)
        return self.config

    def pipeline(self, **goal: Any) -> PipelineOptions | None:
        """What is asked of the ladder, if anything is."""
        from npuc.quant.ladder.run import PipelineOptions

        if self.ladder is None and not goal:
            return None
        return PipelineOptions(self.steps(), self.torch_device, **goal)
