"""A project as one file: the page, and the answers to what it would ask the server.

Answers are compressed, and the file stays below twice the size of the files that it is about, and 2 MiB: what everybody looks at
comes first, then single tensors and instructions, and at last the further channels of tensors, as far as there is room.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from npuc import __version__
from npuc.errors import NpucError, UsageError
from npuc.studio.images import MOST_MODELS
from npuc.studio.instructions import WINDOW
from npuc.studio.model_explorer.graph import node_data
from npuc.studio.page import exported_page, packed
from npuc.studio.project import ProjectFile, sample_among
from npuc.studio.ranges import STATISTICS_SUFFIX
from npuc.studio.studio import FORMS, ImageQuestion, Sample, Studio

PAGE_BYTES = 2 << 20
"""Of an exported file, beside twice the size of its data."""
_USUAL_TARGET = "edge-4t"
"""The machine that layers are placed on where no program names one; the page begins with it, too."""


class _Answers:
    """What an exported page can be asked, and how much room there is for more."""

    def __init__(self, room: int) -> None:
        self.room, self.left_out = room, 0
        self.packed: dict[str, str] = {}

    def add(self, path: str, answer: Any, **parameters: str) -> bool:
        """Add an answer if there is room for it."""
        key, text = _key(path, **parameters), packed(answer)
        # In the page `<` is six characters.
        size = len(json.dumps(key).replace("<", "\\u003c")) + len(text) + 4
        if size > self.room:
            self.left_out += 1
            return False
        if key not in self.packed:
            self.packed[key] = text
            self.room -= size
        return True


def export(
    studio: Studio, names: Sequence[str], decode: str = "", tell: Callable[[str], None] = lambda words: None
) -> str:
    """The page about these files: graphs, profiles, every model against the second one, ranges, schedules, programs, images.

    `decode` says how outputs become boxes, as `npuc eval --postprocess` takes it; `tell` is told what had no room.
    """
    files = [file for file in studio.project.files() if file.name in names]
    models = [file for file in files if file.kind in ("model", "network", "program")]
    if not models:
        raise UsageError(
            "there is no model to show", fix="Name the models: npuc studio MODEL... --export FILE.html"
        )
    shown = sorted(models, key=lambda file: names.index(file.name))
    room = 2 * sum(file.bytes for file in files) + PAGE_BYTES - len(exported_page({}).encode()) - 1024
    answers = _Answers(room)
    start = {"a": shown[0].name}
    if len(shown) > 1:
        start["b"] = shown[1].name
        start["sample"] = sample_among(files, names)
    project = {
        "name": studio.project.folder.name,
        "version": __version__,
        "files": [file.as_json() for file in files],
        "jobs": [],
        "state": "exported",
    }
    answers.add("project", project)
    _views(studio, shown, answers)
    pairs = _compared(studio, shown, start, answers)
    _changes(studio, files, start, answers)
    start |= _images(studio, files, shown, start, decode, answers)
    for file in shown:
        _constants(studio, file.name, answers)
        if file.kind == "program":
            _listing(studio, file.name, answers)
    for pair, tensors in pairs:
        _tensors(studio, pair, tensors, answers)
    if answers.left_out:
        tell(
            "not everything had room in twice the size of the files: some instructions or channels of tensors are left out"
        )
    return exported_page({"answers": answers.packed, "start": start})


def _views(studio: Studio, shown: Sequence[ProjectFile], answers: _Answers) -> None:
    """Graphs, profiles and placements."""
    machines = [studio.time(file.name)["target"] for file in shown if file.kind == "program"]
    placed = []
    for file in shown:
        for form in FORMS:
            answers.add("graph", studio.graph(file.name, form).as_json(), file=file.name, form=form)
        if file.kind == "program":
            answers.add("time", studio.time(file.name), file=file.name)
            continue
        for machine in dict.fromkeys(machines or [_USUAL_TARGET]):
            # A machine that was given as a file may have no name here.
            with suppress(NpucError):
                answers.add("placement", studio.placement(file.name, machine), file=file.name, target=machine)
                placed.append(machine)
    answers.add("targets", {"targets": list(dict.fromkeys(placed))})


def _compared(
    studio: Studio, shown: Sequence[ProjectFile], start: dict[str, str], answers: _Answers
) -> list[tuple[dict[str, str], list[str]]]:
    """Every model against the second, and how much layers matter; of each pair that can be compared, its tensors."""
    pairs = []
    sample = start.get("sample", "")
    for file in shown:
        pair = {"reference": start.get("b", ""), "other": file.name, "sample": sample}
        with suppress(NpucError):
            names = [file.name, pair["reference"]]
            answers.add("sensitivity", studio.sensitivity(names, Sample(sample)), **pair)
        if not pair["reference"] or file.name == pair["reference"]:
            continue
        with suppress(NpucError):  # two networks that have nothing in common
            rows = studio.compare(pair["reference"], file.name, Sample(sample))
            answers.add("compare", rows, **pair)
            pairs.append((pair, [row["name"] for row in rows["layers"]]))
    return pairs


def _tensors(studio: Studio, pair: dict[str, str], tensors: Sequence[str], answers: _Answers) -> None:
    """Tensors of two forms: the first channel of each, then the others, while there is room."""
    counts = {}
    question = pair["reference"], pair["other"], Sample(pair["sample"])
    for name in tensors:
        tensor = studio.tensor(*question, name, 0)
        counts[name] = tensor["channels"]
        answers.add("tensor", tensor, **pair, name=name)
    for name, count in counts.items():
        for channel in range(1, count):
            if not answers.add(
                "tensor", studio.tensor(*question, name, channel), **pair, name=name, channel=str(channel)
            ):
                return


def _changes(studio: Studio, files: Sequence[ProjectFile], start: dict[str, str], answers: _Answers) -> None:
    """What the page shows where it changes things: ranges, schedules, and programs as points."""
    names = {file.name for file in files}
    for file in files:
        stem = file.name.removesuffix(".cali")
        if file.kind == "table" and (statistics := stem + STATISTICS_SUFFIX) in names:
            ranges = studio.ranges(file.name, statistics)
            answers.add("ranges", ranges, table=file.name, stats=statistics)
            for row in ranges["rows"]:
                answers.add(
                    "range", studio.range(statistics, row["name"]), stats=statistics, name=row["name"]
                )
        if file.name.endswith(".schedule.yaml"):
            with suppress(NpucError):
                answers.add("schedule", studio.schedule(file.name), file=file.name)
    sample = start.get("sample", "")
    for file in files:
        if file.kind == "model" and any(other.kind == "program" for other in files):
            answers.add(
                "frontier", studio.frontier(file.name, sample, names), reference=file.name, sample=sample
            )


def _images(
    studio: Studio,
    files: Sequence[ProjectFile],
    shown: Sequence[ProjectFile],
    start: dict[str, str],
    decode: str,
    answers: _Answers,
) -> dict[str, str]:
    """Each image through the models; what the page begins with, so that it asks the same."""
    begins: dict[str, str] = {}
    for file in files:
        if file.kind == "image":
            labels = next((other.name for other in files if other.kind == "labels"), "")
            question = ImageQuestion(file.name, _shown_together(shown, start), decode=decode, labels=labels)
            models = _compact(question.models)
            with suppress(NpucError):
                answer = studio.image(question)
                answers.add("picture", answer, file=file.name, models=models, decode=decode, labels=labels)
                begins = {"models": models, "decode": decode, "labels": labels}
    return begins


def _constants(studio: Studio, name: str, answers: _Answers) -> None:
    """Histograms and maps of constants, in every form."""
    for form in FORMS:
        for node in studio.graph(name, form).nodes:
            if node.tensors and (node.parameters or node.kind == "Constant"):
                layer = node.tensors[0]
                answers.add("node", studio.node(name, form, layer), file=name, form=form, layer=layer)


def _listing(studio: Studio, name: str, answers: _Answers) -> None:
    """All instructions of a program, in the windows that the page asks for."""
    for part, counts in enumerate(studio.stream_lengths(name)):
        for core, count in enumerate(counts):
            for first in range(0, count, WINDOW):
                window = studio.instructions(name, part, core, first)
                place = {"part": str(part), "core": str(core), "first": str(first)}
                if not answers.add("instructions", window, file=name, **place):
                    return


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
