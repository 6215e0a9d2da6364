"""The postprocess file: what `inference` does with outputs, and what an application does behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from npuc.compat.acuity.input_meta import read_yaml
from npuc.compat.acuity.layers import attached_names
from npuc.errors import FileFormatError, UsageError
from npuc.files import existing_file
from npuc.ir import Graph, shape_of

TASKS = ("print_topn", "dump_result", "classification_classic")
_FILE_TYPES = ("TENSOR", "NPY", "QTENSOR")


@dataclass(frozen=True)
class Postprocess:
    """What is done with outputs."""

    top: int = 5
    """How many entries are printed; 0 prints none."""
    file_type: str = "TENSOR"
    """The form of the files; empty writes none."""


def of_task(name: str) -> Postprocess:
    """What a value of --postprocess means."""
    return Postprocess(0 if name == "dump_result" else 5, "" if name == "print_topn" else "TENSOR")


def default_postprocess(graph: Graph) -> str:
    """The text of a postprocess file."""
    attached = attached_names(graph)
    entries = [
        {
            "lid": attached[port.name],
            "postproc_params": {
                "add_postproc_node": False,
                "perm": list(range(len(shape_of(port.value)))),
                "force_float32": True,
            },
        }
        for port in graph.outputs
    ]
    content = {
        "postprocess": {
            "acuity_postprocs": {"print_topn": {"topn": 5}, "dump_results": {"file_type": "TENSOR"}},
            "app_postprocs": entries,
        }
    }
    return yaml.safe_dump(content, sort_keys=False)


def read_postprocess(path: str, graph: Graph) -> Postprocess:
    """Read a postprocess file."""
    file = existing_file(path)
    content = read_yaml(file, "a postprocess file")
    stated = content.get("postprocess") if isinstance(content, Mapping) else None
    if not isinstance(stated, Mapping):
        raise FileFormatError(
            "has no 'postprocess'",
            where=str(file),
            fix="'pegasus generate postprocess-file' writes such a file",
        )
    _check_application(stated.get("app_postprocs") or [], file, graph)
    tasks = stated.get("acuity_postprocs") or {}
    if not isinstance(tasks, Mapping):
        raise FileFormatError("acuity_postprocs is no mapping", where=str(file))
    unknown = [name for name in tasks if name not in ("print_topn", "dump_results")]
    if unknown:
        raise FileFormatError(
            f"there is no postprocess '{unknown[0]}'",
            where=str(file),
            fix="There are: print_topn, dump_results",
        )
    top, kind = 0, ""
    if "print_topn" in tasks:
        top = (tasks["print_topn"] or {}).get("topn", 5)
    if "dump_results" in tasks:
        kind = str((tasks["dump_results"] or {}).get("file_type", "TENSOR")).upper()
    if type(top) is not int or top < 0:
        raise FileFormatError(f"print_topn.topn {top!r} is no whole number", where=str(file))
    if kind and kind not in _FILE_TYPES:
        raise FileFormatError(
            f"dump_results.file_type {kind} is none of {', '.join(_FILE_TYPES)}", where=str(file)
        )
    return Postprocess(top, kind)


def _check_application(entries: Any, file: Path, graph: Graph) -> None:
    """Refuse what an application would do behind the outputs and does not here."""
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise FileFormatError("app_postprocs is no list of outputs", where=str(file))
    known = attached_names(graph).values()
    for entry in entries:
        if entry.get("lid") not in known:
            raise UsageError(
                f"app_postprocs names '{entry.get('lid')}', which is no output of the network",
                where=str(file),
                fix=f"Its outputs are {', '.join(known)}",
            )
        perm = (entry.get("postproc_params") or {}).get("perm")
        if isinstance(perm, list) and perm != sorted(perm):
            raise UsageError(
                f"perm {perm} of {entry['lid']} is not supported: outputs have the axes of the model",
                where=str(file),
            )
