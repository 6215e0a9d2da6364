"""A quicker start of the command: what Python does while modules are loaded, and a command does not need.

Half of the time of a small command is spent on loading. Three parts of that bring nothing: the collector of cycles looks
through everything that was just loaded again and again, though none of it is garbage; `dataclass` writes and compiles
five methods or so for every class, 3,400 in all, of which a command calls one in nine; and pydantic asks every installed
package for plugins of its own. So the collector waits for more objects, a method is compiled when it is first called, and
pydantic has no plugins.

Only the program does this, for its own process, and late methods are for classes of npuc and xDSL alone, which are most of them:
other packages may look at signatures of theirs. This leans on how the library of Python 3.11 and 3.12 is written; where it is
written otherwise, classes are made as ever.
"""

from __future__ import annotations

import dataclasses
import gc
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_COLLECT_EVERY = 1_000_000
"""Objects that are made, less those that are gone, between two looks for garbage; Python's own number is 700, and npuc with
all that it needs comes to 200,000."""

_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"

_KNOWN = ("name", "args", "body", "globals", "locals", "return_type")
"""The parameters of the function behind `dataclass` that makes a method out of text."""

_PACKAGES = ("npuc", "xdsl")
"""Whose classes get their methods late."""


@contextmanager
def quick_start() -> Iterator[None]:
    """For the time of a command: collect seldom, compile methods of dataclasses when they are called, no pydantic plugins."""
    before = gc.get_threshold()
    plugins = os.environ.get(_PLUGINS)
    os.environ.setdefault(_PLUGINS, "1")
    gc.set_threshold(_COLLECT_EVERY, *before[1:])
    create: Any = getattr(dataclasses, "_create_fn", None)
    known = create is not None and tuple(inspect.signature(create).parameters) == _KNOWN
    if known:
        setattr(dataclasses, "_create_fn", _deferring(create))  # noqa: B010 (no public name)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if plugins is None:
            os.environ.pop(_PLUGINS, None)
        if known:
            setattr(dataclasses, "_create_fn", create)  # noqa: B010


def _deferring(create: Callable[..., Any]) -> Callable[..., Any]:
    """Make stand-ins for methods: the first call compiles the method, and puts it into the class in their place."""

    def deferred(name: str, *text: Any, **scope: Any) -> Any:
        module = str((scope.get("globals") or {}).get("__name__", ""))
        if module.partition(".")[0] not in _PACKAGES:
            return create(name, *text, **scope)

        def stand_in(self: Any, /, *arguments: Any, **keywords: Any) -> Any:
            method = create(name, *text, **scope)
            method.__qualname__ = stand_in.__qualname__
            for cls in type(self).__mro__:
                if cls.__dict__.get(name) is stand_in:
                    type.__setattr__(cls, name, method)
            return method(self, *arguments, **keywords)

        stand_in.__name__ = name
        return stand_in

    return deferred
