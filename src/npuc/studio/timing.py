"""The time of a compiled model: the figures, the timeline and the memory of `npuc profile`, computed once a file."""

from __future__ import annotations

from typing import Any

from npuc.profile.host import host_times
from npuc.profile.page import page_data
from npuc.profile.report import report_of
from npuc.program.model import CompiledModel
from npuc.sim.cycles import Timeline


def time_of(compiled: CompiledModel, timeline: Timeline) -> dict[str, Any]:
    """What the report of `npuc profile` shows, as data; CPU parts are estimated, not run."""
    report = report_of(compiled, timeline, host_times(compiled, measure=False))
    return page_data(compiled, timeline, report, numbered=True)
