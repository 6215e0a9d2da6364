"""Several data sources as one data set: concatenated, or one source for each input of the network.

`--data A --data B` gives the samples of A, then those of B. `--data x=A --data y=B` gives samples whose input `x` comes from
A and whose input `y` comes from B, matched by order; a source with a single sample is repeated for all samples of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from npuc.arrays import Array
from npuc.calib.items import Item, merged
from npuc.calib.samples import Samples, joined_samples, load_samples, parse_assignments
from npuc.calib.sources import DataOptions, Source, choose, open_data
from npuc.errors import CalibrationDataError, UsageError
from npuc.ir import Graph
from npuc.ir.states import data_inputs

_LISTS = (".txt", ".lst", ".list", ".csv", ".tsv", ".json")
"""The suffixes of list files; a file with any other suffix is a sample."""


def open_places(graph: Graph, texts: Sequence[str], options: DataOptions | None = None) -> Source:
    """The samples of one or more sources, each written `PATH` or `INPUT=PATH`."""
    options = options or DataOptions()
    names = [port.name for port in graph.inputs]
    places = parse_assignments(texts, names)
    needed = [port.name for port in data_inputs(graph)]
    if len(places) == 1 and (places[0][0] is None or len(needed) == 1):
        return open_data(graph, places[0][1], options)
    if options.annotations is not None:
        raise UsageError("--annotations belongs to one folder of images", fix="Give --data once")
    named = {name for name, _ in places}
    if None in named and len(named) > 1:
        raise UsageError(
            "some of the data has the name of an input before it, and some has not",
            fix=f"Write INPUT=PATH for all of it; the inputs are {', '.join(names)}",
        )
    missing = [name for name in needed if name not in named]
    if None not in named and missing:
        raise UsageError(
            f"there is no data for input '{missing[0]}'", fix=f"Add another one: --data {missing[0]}=PATH"
        )
    unlimited = replace(options, max_count=None)
    opened = [(name, _opened(graph, name, path, unlimited)) for name, path in places]
    notes = opened[0][1].reader.notes
    for _, source in opened[1:]:
        notes.extend(note for note in source.reader.notes if note not in notes)
        source.reader.notes = notes
    parts: dict[str | None, list[Item]] = {}
    for name, source in opened:
        parts.setdefault(name, []).extend(source.items)
    items = _matched(parts) if len(parts) > 1 else next(iter(parts.values()))
    items = choose(items, options.max_count, options.seed)
    return Source(items, len(items), opened[0][1].reader, " and ".join(str(path) for _, path in places))


def _opened(graph: Graph, name: str | None, path: Path, options: DataOptions) -> Source:
    return open_data(graph, path, replace(options, input=name))


def _matched(parts: dict[str | None, list[Item]]) -> list[Item]:
    """Samples merged from the items of each input, matched by order."""
    most = max(len(items) for items in parts.values())
    if any(len(items) not in (1, most) for items in parts.values()):
        counts = ", ".join(f"'{name}' has {len(items)}" for name, items in parts.items())
        raise CalibrationDataError(
            f"the inputs have different numbers of samples: {counts}", fix="Give every input the same number"
        )
    rows = zip(*(items if len(items) == most else items * most for items in parts.values()), strict=True)
    return [merged(", ".join(item.label for item in row), row) for row in rows]


def load_given(graph: Graph, texts: Sequence[str]) -> Samples:
    """The samples of `--input`, each `[INPUT=]PATH`: files of tensors and images, and folders and lists of them."""
    places = parse_assignments(texts, [port.name for port in graph.inputs])
    if not any(path.is_dir() or path.suffix.lower() in _LISTS for _, path in places):
        return load_samples(graph, places)
    source = open_places(graph, texts)
    gathered: dict[str, list[Array]] = {}
    for item in source.items:
        for name, array in item.read().inputs.items():
            gathered.setdefault(name, []).append(array)
    return joined_samples(graph, gathered, source.reader.notes)
