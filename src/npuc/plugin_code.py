"""Whose fault an exception is: what a plugin's code raises is the plugin's, with its file and line.

npuc calls the code of plugins in every stage: import rules, inference of types, float and integer kernels, claims, passes, data
sets, metrics, steps of the ladder. An exception that comes out of it is found by its traceback, however many layers of npuc have
turned it into an error of their own since. What npuc's own classes say on purpose (`NoIntegerForm`, an error of the catalogue) is
no fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType, TracebackType

from npuc.errors import NpucError, PluginError, PluginFaultError

MODULES: dict[str, str] = {}
"""The modules that are code of plugins, with all below them, and the plugin's name as the user gave it."""


def is_plugin(module: str) -> str | None:
    """The plugin that a module belongs to, or None.

    >>> MODULES["acme_npuc"] = "acme"
    >>> is_plugin("acme_npuc.rules"), is_plugin("acme")
    ('acme', None)
    >>> del MODULES["acme_npuc"]
    """
    while module:
        if module in MODULES:
            return MODULES[module]
        module = module.rpartition(".")[0]
    return None


def fault_of(error: BaseException) -> PluginFaultError | None:
    """The error to report in place of one that comes from a plugin's code; None if it does not."""
    for link in _chain(error):
        if isinstance(link, PluginFaultError):
            return link
        if isinstance(link, PluginError):
            return None  # it names the plugin already
        if type(link).__module__.partition(".")[0] in ("npuc", "xdsl"):
            continue
        place = _last_plugin_frame(link.__traceback__)
        if place is not None:
            plugin, line = place
            return _fault(link, plugin, line, error)
    return None


def place_of(error: BaseException, modules: tuple[str, ...]) -> str:
    """The last line of some modules on the way to an error: ` (line 3 of prepare.py)`; empty if there is none."""
    place = ""
    for frame, line in _walk(error.__traceback__):
        if frame.f_globals.get("__name__") in modules:
            place = f" (line {line} of {_file_name(frame.f_code.co_filename)})"
    return place


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and those that it was made of."""
    visited: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in visited:
        visited.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _last_plugin_frame(trace: TracebackType | None) -> tuple[str, str] | None:
    place = None
    for frame, line in _walk(trace):
        plugin = is_plugin(str(frame.f_globals.get("__name__") or ""))
        if plugin is not None:
            name = frame.f_code.co_name
            where = f", in {name}" if name.isidentifier() else ""
            place = plugin, f"line {line} of {_file_name(frame.f_code.co_filename)}{where}"
    return place


def _walk(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """The frames of a traceback and their lines; the module that does it is slow to import."""
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _file_name(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


def _fault(cause: BaseException, plugin: str, line: str, error: BaseException) -> PluginFaultError:
    text = " ".join(str(cause).split())
    words = f"{type(cause).__name__}: {text}" if text else type(cause).__name__
    called = f"; it was called for {error.where}" if isinstance(error, NpucError) and error.where else ""
    fault = PluginFaultError(
        f"its code failed at {line}: {words}{called}",
        where=f"plugin '{plugin}'",
        fix="Mend it, or leave it out (NPUC_TRACEBACK=1 shows the whole way there)",
    )
    fault.__cause__ = cause
    return fault
