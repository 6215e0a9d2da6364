"""What a network is made of, and where the time of a compiled one goes.

The module can be called: `npuc.profile("model.npu")` is `npuc.profile.profile("model.npu")`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npuc.program.model import CompiledModel

__all__ = ["profile"]


def profile(model: CompiledModel | Path | str, *, host: bool = True) -> dict[str, Any]:
    """The figures of a compiled model by layer, by group and of the whole: what `npuc profile --json` prints.

    With `host`, subgraphs of the CPU are run and timed on this machine.
    """
    from npuc.profile.host import host_times
    from npuc.profile.report import report_of
    from npuc.program.file import load_compiled
    from npuc.sim.cycles import simulate

    compiled = load_compiled(model) if isinstance(model, str | Path) else model
    return report_of(compiled, simulate(compiled), host_times(compiled, measure=host)).as_dict()


class _Callable(ModuleType):
    """`npuc.profile` is a package and a function: a package is what Python puts under that name once it is imported."""

    def __call__(self, model: CompiledModel | Path | str, *, host: bool = True) -> dict[str, Any]:
        return profile(model, host=host)


sys.modules[__name__].__class__ = _Callable
