"""Threads and forks: docs/stability.md says for every public class what may be done with it, and each is used so."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

import promised_names
from support import shared_objects
from support.paths import ROOT

TABLE = re.findall(
    r"^\| (`.*?) \| (.*?) \| (.*?) \|$",
    (ROOT / "docs/stability.md").read_text(encoding="utf-8").partition("| Python |")[2].partition("| C |")[0],
    re.MULTILINE,
)
ROW_OF = {
    name: (threads, fork) for names, threads, fork in TABLE for name in re.findall(r"`([A-Z]\w*)`", names)
}


def _classes() -> dict[str, type]:
    """The public classes by name; errors are values, and are not counted."""
    found = {}
    for package in promised_names.PACKAGES:
        module = import_module(package)
        for name in module.__all__:
            if inspect.isclass(thing := getattr(module, name)):
                found[name] = thing
    return found


CLASSES = _classes()
RECORDS = sorted(name for name, (threads, _) in ROW_OF.items() if threads.startswith("records"))
USED = sorted(set(CLASSES) - set(RECORDS))


@cache
def _verdicts() -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "support.shared_objects", *USED],
        cwd=ROOT / "tests",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return dict(json.loads(line) for line in done.stdout.splitlines())


def test_every_public_class_is_in_the_table() -> None:
    assert set(ROW_OF) == set(CLASSES)
    assert sum(len(re.findall(r"`[A-Z]\w*`", names)) for names, _, _ in TABLE) == len(ROW_OF), "one row each"


def test_the_table_says_what_the_cases_do() -> None:
    for name in USED:
        threads, fork = ROW_OF[name]
        assert threads.startswith("one thread at a time") == (name in shared_objects.EACH), name
        assert fork.startswith("make a new one") == (name in shared_objects.NEW_IN_CHILD), name


@pytest.mark.parametrize("name", USED)
def test_threads_and_a_forked_child_get_the_same_results(name: str) -> None:
    assert _verdicts()[name] == ""


@pytest.mark.parametrize("name", RECORDS)
def test_fields_of_a_record_cannot_be_assigned(name: str) -> None:
    kind: Any = CLASSES[name]
    if issubclass(kind, BaseModel):
        assert kind.model_config["frozen"]
        record = kind.model_construct()
        field = next(iter(kind.model_fields))
    elif issubclass(kind, tuple):
        record, field = kind(*range(len(kind._fields))), kind._fields[0]
    else:
        record, field = object.__new__(kind), dataclasses.fields(kind)[0].name
    with pytest.raises((AttributeError, ValidationError)):
        setattr(record, field, None)


def test_a_job_of_the_parent_is_waited_for_in_vain() -> None:
    """What the table says of jobs: a child neither hangs without a limit nor gets a result that is not its own."""
    code = """
import os, signal, sys, time
from pathlib import Path
from support.shared_objects import GOLDEN, _inputs
from npuc.errors import JobTimeoutError
from npuc.runtime import Runner, SimulatedDevice
signal.alarm(60)
runner = Runner(GOLDEN, SimulatedDevice(fault=lambda number: time.sleep(0.5)))
job = runner.execute_async(_inputs(runner.input_tensors))
child = os.fork()
if not child:
    signal.alarm(60)
    try:
        job.result(1.5)
    except JobTimeoutError:
        os._exit(0)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
job.result(30)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=ROOT / "tests", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
