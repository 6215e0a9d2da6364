"""The commands that the page may start: what it asks for by names, as the arguments of an `npuc` command.

The page never writes a command line. It names an action, files of the project and choices; each of them is checked here, so that
no request reaches a file outside of the project or an option that nobody thought of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from npuc.errors import UsageError
from npuc.studio.project import Project
from npuc.studio.ranges import STATISTICS_SUFFIX
from npuc.target import available

_LEVELS = ("0", "1", "2", "3")
_LADDERS = ("default", "all")
_METHODS = ("mse", "max", "percentile", "kl", "aciq")


def command_of(project: Project, request: Mapping[str, Any]) -> tuple[str, list[str], list[str]]:
    """A title, the arguments behind `npuc`, and the names of the files that the command writes."""
    actions = {"quantize": _quantize, "compile": _compile, "calibrate": _calibrate}
    action = request.get("action")
    if action not in actions:
        raise UsageError(f"there is no action {str(action)[:40]!r}", fix=f"There are: {', '.join(actions)}")
    return actions[action](project, request)


def _quantize(project: Project, request: Mapping[str, Any]) -> tuple[str, list[str], list[str]]:
    model = _model(project, request)
    # What the command writes beside its output goes through the same check: a link there may lead out.
    output = _output(project, request, ".mlir", beside=(".safetensors", ".quant.yaml"))
    arguments = ["quantize", model, "-o", output, *_ranges(project, request), *_target(request)]
    if request.get("config"):
        arguments += ["--config", _file(project, request, "config")]
    if request.get("ladder"):
        arguments += ["--ladder", _choice(request, "ladder", _LADDERS)]
    return f"quantize {request['output']}", arguments, [output]


def _compile(project: Project, request: Mapping[str, Any]) -> tuple[str, list[str], list[str]]:
    model = _model(project, request)
    output = _output(project, request, ".npu", beside=(".schedule.yaml",))
    arguments = ["compile", model, "-o", output, *_target(request, needed=True)]
    arguments += _ranges(project, request, needed=False)
    if request.get("config"):
        arguments += ["--config", _file(project, request, "config")]
    if request.get("schedule"):
        arguments += ["--schedule", _file(project, request, "schedule")]
    arguments += ["--save-schedule", f"{output.removesuffix('.npu')}.schedule.yaml"]
    if request.get("level") not in (None, ""):
        arguments += ["-O", _choice(request, "level", _LEVELS)]
    for layer, device in _devices(request):
        arguments += ["--device", f"{layer}={device}"]
    return f"compile {request['output']}", arguments, [output]


def _calibrate(project: Project, request: Mapping[str, Any]) -> tuple[str, list[str], list[str]]:
    model = _model(project, request)
    output = _output(project, request, ".cali", beside=(STATISTICS_SUFFIX,))
    statistics = output.removesuffix(".cali") + STATISTICS_SUFFIX
    arguments = ["calibrate", model, *_data(project, request), "-o", output, "--save-stats", statistics]
    if request.get("method"):
        arguments += ["--method", _choice(request, "method", _METHODS)]
    return f"calibrate {request['model']}", arguments, [output]


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


def _model(project: Project, request: Mapping[str, Any]) -> str:
    name = _text(request, "model")
    project.model(name)
    return f"./{name}"


def _output(project: Project, request: Mapping[str, Any], suffix: str, beside: Sequence[str] = ()) -> str:
    name = _text(request, "output")
    if PurePosixPath(name).suffix != suffix:
        raise UsageError(f"'{name[:100]}' does not end in {suffix}")
    for ending in (suffix, *beside):
        project.place(name.removesuffix(suffix) + ending)
    return f"./{name}"


def _data(project: Project, request: Mapping[str, Any], *, needed: bool = True) -> list[str]:
    if request.get("data"):
        name = _text(request, "data")
        project.sample(name)
        if "=" in name:
            raise UsageError(
                f"'{name[:100]}' has a '=', which --data would read as INPUT=PATH", fix="Rename it"
            )
        return ["--data", f"./{name}"]
    return ["--random"] if needed or request.get("random") is True else []


def _ranges(project: Project, request: Mapping[str, Any], *, needed: bool = True) -> list[str]:
    """Where ranges come from: a calibration table, or data."""
    if request.get("table"):
        name = _text(request, "table")
        project.table(name)
        return ["--table", f"./{name}"]
    return _data(project, request, needed=needed)


def _target(request: Mapping[str, Any], *, needed: bool = False) -> list[str]:
    if not request.get("target") and not needed:
        return []
    return ["--target", target_named(_text(request, "target"))]


def target_named(name: str) -> str:
    """The name of a target that npuc knows. A path is not taken: a target file extends others, wherever they are."""
    if all(file.name != name for file in available()):
        raise UsageError(f"there is no target '{name[:100]}'", fix="'npuc targets list' shows what there is")
    return name


def _choice(request: Mapping[str, Any], key: str, choices: tuple[str, ...]) -> str:
    value = str(request[key])
    if value not in choices:
        raise UsageError(f"'{key}' is one of {', '.join(choices)}")
    return value


def _devices(request: Mapping[str, Any]) -> list[tuple[str, str]]:
    devices = request.get("devices") or {}
    if not isinstance(devices, dict) or not all(
        isinstance(layer, str)
        and layer.isprintable()
        and layer[:1] not in ("", "-")
        and device in ("cpu", "npu")
        for layer, device in devices.items()
    ):
        raise UsageError("'devices' says cpu or npu for names of layers")
    return sorted(devices.items())
