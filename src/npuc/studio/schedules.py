"""Schedules on the page: the groups and tiles of a schedule file, and a file that fixes what was changed.

What is written states only the groups that were changed, and perhaps limits; the compiler searches for the rest, as with any
schedule file. So a changed tile count does not carry along decisions that were right for the old one.
"""

from __future__ import annotations

from typing import Any

import yaml
from pydantic import ValidationError

from npuc.errors import UsageError
from npuc.format_versions import SCHEDULE_FILE
from npuc.schedule.schedule_file import GroupEntry, ScheduleFile

_LIMITS = ("cores", "local_memory", "max_halo")


def schedule_rows(file: ScheduleFile) -> dict[str, Any]:
    """The groups of a file by subgraph, with all their fields."""
    return {
        "target": file.target or "",
        "limits": {name: getattr(file, name) for name in _LIMITS if getattr(file, name) is not None},
        "subgraphs": [
            {"name": name, "groups": [group.model_dump() for group in entry.groups]}
            for name, entry in file.subgraphs.items()
        ],
    }


def schedule_text(schedule: Any) -> str:
    """The text of a schedule file of what the page asks for: {target, limits, subgraphs: [{name, groups}]}."""
    if not isinstance(schedule, dict):
        raise UsageError("a schedule is an object of groups")
    subgraphs: dict[str, Any] = {}
    for part in _list(schedule, "subgraphs"):
        if not isinstance(part, dict) or not isinstance(part.get("name"), str):
            raise UsageError("a subgraph has a name and groups")
        groups = [_group(group) for group in _list(part, "groups")]
        if groups:
            subgraphs[part["name"]] = {"groups": groups}
    limits = schedule.get("limits") or {}
    if not isinstance(limits, dict) or any(name not in _LIMITS for name in limits):
        raise UsageError(f"limits are {', '.join(_LIMITS)}")
    document = {
        "version": SCHEDULE_FILE.version,
        **(
            {"target": schedule["target"]}
            if isinstance(schedule.get("target"), str) and schedule["target"]
            else {}
        ),
        **limits,
        **({"subgraphs": subgraphs} if subgraphs else {}),
    }
    if not subgraphs and not limits:
        raise UsageError("there is no change to save")
    try:
        ScheduleFile.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"the schedule does not fit, at '{where[:100]}': {first['msg']}") from error
    text = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True)
    return f"# Written by npuc studio; npuc compile --schedule takes it.\n{text}"


def _list(record: dict[str, Any], key: str) -> list[Any]:
    value = record.get(key, [])
    if not isinstance(value, list):
        raise UsageError(f"'{key}' is a list")
    return value


def _group(group: Any) -> dict[str, Any]:
    """A group without what is at its default."""
    try:
        return GroupEntry.model_validate(group).model_dump(exclude_defaults=True)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise UsageError(f"field '{field[:60]}' of a group: {first['msg']}") from error
