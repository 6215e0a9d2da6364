"""The commands that the page may start: what it asks for by names, as the arguments of an `npuc` command.

The page never writes a command line. It names an action, files of the project and choices; each of them is checked here, so that
no request reaches a file outside of the project or an option that nobody thought of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from npuc.errors import UsageError
from npuc.studio.project import Project

_LEVELS = ("0", "1", "2", "3")
_LADDERS = ("default", "all")
_TARGET = re.compile(r"[A-Za-z0-9][\w.-]{0,99}")


def command_of(project: Project, request: Mapping[str, Any]) -> tuple[str, list[str], list[str]]:
    """A title, the arguments behind `npuc`, and the names of the files that the command writes."""
    actions = {"quantize": _quantize, "compile": _compile}
    action = request.get("action")
    if action not in actions:
        raise UsageError(f"there is no action {str(action)[:40]!r}", fix=f"There are: {', '.join(actions)}")
    return actions[action](project, request)


def _quantize(project: Project, request: Mapping[str, Any]) -> tuple[str, list[str], list[str]]:
    model, output = _file(project, request, "model"), _output(project, request, ".mlir")
    arguments = ["quantize", model, "-o", output, *_data(project, request), *_target(project, request)]
    if request.get("config"):
        arguments += ["--config", _file(project, request, "config")]
    if request.get("ladder"):
        arguments += ["--ladder", _choice(request, "ladder", _LADDERS)]
    return f"quantize {model}", arguments, [output]


def _compile(project: Project, request: Mapping[str, Any]) -> tuple[str, list[str], list[str]]:
    model, output = _file(project, request, "model"), _output(project, request, ".npu")
    arguments = ["compile", model, "-o", output, *_target(project, request, needed=True)]
    arguments += _data(project, request, needed=False)
    if request.get("config"):
        arguments += ["--config", _file(project, request, "config")]
    if request.get("schedule"):
        arguments += ["--schedule", _file(project, request, "schedule")]
    if request.get("level") not in (None, ""):
        arguments += ["-O", _choice(request, "level", _LEVELS)]
    for layer, device in _devices(request):
        arguments += ["--device", f"{layer}={device}"]
    return f"compile {model}", arguments, [output]


def _text(request: Mapping[str, Any], key: str) -> str:
    value = request.get(key)
    if not isinstance(value, str) or not value:
        raise UsageError(f"the request has no '{key}'")
    return value


def _file(project: Project, request: Mapping[str, Any], key: str) -> str:
    """The name of a file of the project; a command reads it relative to the folder, in which it runs."""
    name = _text(request, key)
    project.path(name)
    return f"./{name}"


def _output(project: Project, request: Mapping[str, Any], suffix: str) -> str:
    name = _text(request, "output")
    project.place(name)
    if PurePosixPath(name).suffix != suffix:
        raise UsageError(f"'{name[:100]}' does not end in {suffix}")
    return f"./{name}"


def _data(project: Project, request: Mapping[str, Any], *, needed: bool = True) -> list[str]:
    if request.get("data"):
        return ["--data", _file(project, request, "data")]
    return ["--random"] if needed or request.get("random") is True else []


def _target(project: Project, request: Mapping[str, Any], *, needed: bool = False) -> list[str]:
    if not request.get("target") and not needed:
        return []
    return ["--target", target_named(project, _text(request, "target"))]


def target_named(project: Project, name: str) -> str:
    """A target by its name, or by a file of the project as commands that run there take it: never by another path."""
    if name.endswith((".yaml", ".yml")):
        project.path(name)
        return f"./{name}"
    if not _TARGET.fullmatch(name):
        raise UsageError(f"there is no target '{name[:100]}'")
    return name


def _choice(request: Mapping[str, Any], key: str, choices: tuple[str, ...]) -> str:
    value = str(request[key])
    if value not in choices:
        raise UsageError(f"'{key}' is one of {', '.join(choices)}")
    return value


def _devices(request: Mapping[str, Any]) -> list[tuple[str, str]]:
    devices = request.get("devices") or {}
    if not isinstance(devices, dict) or not all(
        isinstance(layer, str) and layer and not layer.startswith("-") and device in ("cpu", "npu")
        for layer, device in devices.items()
    ):
        raise UsageError("'devices' says cpu or npu for names of layers")
    return sorted(devices.items())
