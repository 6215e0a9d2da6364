"""A project as one file: the page, and the answers to what it would ask the server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from npuc import __version__
from npuc.errors import NpucError, UsageError
from npuc.studio.images import MOST_MODELS
from npuc.studio.instructions import WINDOW
from npuc.studio.model_explorer.graph import node_data
from npuc.studio.page import exported_page
from npuc.studio.project import ProjectFile
from npuc.studio.studio import FORMS, ImageQuestion, Sample, Studio

MOST_TENSORS = 400
"""Tensors of which the exported page shows values: each takes up to 100 KB."""
MOST_INSTRUCTIONS = 1024
"""Instructions of a program that it lists: each takes about a KB."""


def export(studio: Studio, names: Sequence[str], decode: str = "") -> str:
    """The page about these files: each graph, each profile, the first file against the second, and what they make of an image.

    `decode` says how outputs become boxes, as `npuc eval --postprocess` takes it.
    """
    files = [file for file in studio.project.files() if file.name in names]
    models = [file for file in files if file.kind in ("model", "network", "program")]
    if not models:
        raise UsageError(
            "there is no model to show", fix="Name the models: npuc studio MODEL... --export FILE.html"
        )
    shown = sorted(models, key=lambda file: names.index(file.name))
    answers: dict[str, Any] = {
        "project": {
            "name": studio.project.folder.name,
            "version": __version__,
            "files": [file.as_json() for file in files],
            "jobs": [],
            "state": "exported",
        },
        "targets": {"targets": []},
    }
    machines = [studio.time(file.name)["target"] for file in shown if file.kind == "program"]
    for file in shown:
        if machines and file.kind != "program":
            # A machine that was given as a file may have no name here.
            with suppress(NpucError):
                placed = studio.placement(file.name, machines[0])
                answers[_key("placement", file=file.name, target=machines[0])] = placed
                answers["targets"] = {"targets": machines[:1]}
    for file in shown:
        for form in FORMS:
            graph = studio.graph(file.name, form)
            answers[_key("graph", file=file.name, form=form)] = graph.as_json()
            for node in graph.nodes:
                if node.parameters and node.tensors:
                    layer = node.tensors[0]
                    answers[_key("node", file=file.name, form=form, layer=layer)] = studio.node(
                        file.name, form, layer
                    )
        if file.kind == "program":
            answers[_key("time", file=file.name)] = studio.time(file.name)
            answers |= _listing(studio, file.name)
    start = {"a": shown[0].name}
    if len(shown) > 1:
        start["b"] = shown[1].name
        sample = next((file.name for file in files if file.kind in ("image", "tensors")), "")
        start["sample"] = sample
        answers |= _comparison(studio, shown[0].name, shown[1].name, sample)
    for file in files:
        if file.kind == "image":
            labels = next((other.name for other in files if other.kind == "labels"), "")
            question = ImageQuestion(file.name, _shown_together(shown, start), decode=decode, labels=labels)
            with suppress(NpucError):
                key = _key(
                    "picture", file=file.name, models=_compact(question.models), decode=decode, labels=labels
                )
                answers[key] = studio.image(question)
                start |= {"models": _compact(question.models), "decode": decode, "labels": labels}
    return exported_page({"answers": answers, "start": start})


def _listing(studio: Studio, name: str) -> dict[str, Any]:
    """All instructions of a program as the page asks for them, if there are few."""
    answers: dict[str, Any] = {}
    for part, counts in enumerate(studio.stream_lengths(name)):
        for core, count in enumerate(counts):
            for first in range(0, count, WINDOW):
                if len(answers) * WINDOW >= MOST_INSTRUCTIONS:
                    return answers
                key = _key("instructions", file=name, part=str(part), core=str(core), first=str(first))
                answers[key] = studio.instructions(name, part, core, first)
    return answers


def layer_data(studio: Studio, names: Sequence[str]) -> dict[str, Any]:
    """Data of layers for Model Explorer: of two forms the SQNR of the first against the second, of a program its time."""
    kinds = {file.name: file.kind for file in studio.project.files()}
    models = [name for name in names if kinds.get(name) in ("model", "network", "program")]
    if not models:
        raise UsageError(
            "there is no model to write data of", fix="Name it: npuc studio MODEL --node-data FILE.json"
        )
    graph = PurePosixPath(models[0]).stem
    if len(models) > 1:
        sample = next((name for name in names if kinds.get(name) in ("image", "tensors")), "")
        rows = studio.compare(models[1], models[0], Sample(sample))["layers"]
        # JSON has no infinity, and a tensor that is exact has no error to paint.
        known = {row["name"]: row["sqnr"] for row in rows if not isinstance(row["sqnr"], str)}
        return node_data(graph, f"SQNR in dB against {models[1]}", known)
    layers = studio.time(models[0])["layers"]
    return node_data(graph, "time in µs", {layer["name"]: layer["microseconds"] for layer in layers})


def _comparison(studio: Studio, other: str, reference: str, sample: str) -> dict[str, Any]:
    """What the page asks about two forms; nothing if they cannot be compared, such as two networks."""
    pair = {"reference": reference, "other": other, "sample": sample}
    try:
        rows = studio.compare(reference, other, Sample(sample))
    except NpucError:
        return {}
    answers = {_key("compare", **pair): rows}
    for row in rows["layers"][:MOST_TENSORS]:
        tensor = studio.tensor(reference, other, Sample(sample), row["name"], 0)
        answers[_key("tensor", **pair, name=row["name"])] = tensor
    return answers


def _shown_together(shown: Sequence[ProjectFile], start: dict[str, str]) -> tuple[str, ...]:
    """The models that an image is shown to: the one that others are held against first."""
    names = [start.get("b", ""), *(file.name for file in shown)]
    return tuple(dict.fromkeys(filter(None, names)))[:MOST_MODELS]


def _compact(names: Sequence[str]) -> str:
    """As `JSON.stringify` of the page has it."""
    return json.dumps(list(names), separators=(",", ":"), ensure_ascii=False)


def _key(path: str, **parameters: str) -> str:
    """The same as `keyOf` of the page.

    >>> _key("graph", form="canonical", file="a.onnx", sample="")
    'graph?file=a.onnx&form=canonical'
    """
    named = [f"{name}={value}" for name, value in sorted(parameters.items()) if value != ""]
    return path + ("?" + "&".join(named) if named else "")
