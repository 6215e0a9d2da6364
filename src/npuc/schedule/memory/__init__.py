"""Memory planning: buffers with a size and a lifetime get addresses, in as little memory as possible.

`plan` tries heuristics first and then an exact search, and says which of them it was and whether the result is proven to
be the best. The same input gives the same plan: work is counted in steps, not in seconds.
"""

from typing import Any

from npuc.registries import renamed
from npuc.schedule.memory.model import Banks, Buffer, MemoryPlan
from npuc.schedule.memory.planner import plan
from npuc.schedule.memory.svg import plan_svg

__all__ = ["Banks", "Buffer", "MemoryPlan", "plan", "plan_svg"]


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"picture": plan_svg})
