"""The options of commands that read calibration data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuc.errors import UsageError

if TYPE_CHECKING:
    from npuc.calib.sources import Source
    from npuc.ir import Graph

Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        "--calib",
        metavar="[INPUT=]PATH",
        help="A folder of pictures, .npy, .npz or raw .bin files, one such file, a list with one sample a line (text or "
        ".json), or what a plugin's data set reads. Several are taken one after the other; with the name of an input before "
        "it, each for its input.",
    ),
]
Random = Annotated[
    bool, typer.Option("--random", help="Random data, for a smoke run: the ranges mean nothing.")
]
Preprocess = Annotated[
    str | None,
    typer.Option(
        metavar="RECIPE.yaml|FILE.py:FUNCTION|raw:TYPE[:SHAPE]",
        help="How a file becomes a tensor, in place of the preprocessing that the network has; or what raw .bin files hold, "
        "like raw:uint8:224,224,3.",
    ),
]
Annotations = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.json", help="COCO annotations of the pictures, for a choice balanced over the classes."
    ),
]
Dataset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Read the data as this data set of npuc or of a plugin (docs/evaluation.md has their layouts).",
    ),
]
MaxCount = Annotated[int | None, typer.Option("--max-count", min=1, help="Use at most so many samples.")]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0, help="Which random choice, or which random data. Without it, the first samples are taken."
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="A sample that cannot be used is an error.")]


def source(
    graph: Graph,
    data: Sequence[str] | None,
    random: bool,
    preprocess: str | None,
    annotations: Path | None,
    max_count: int | None,
    seed: int | None,
    dataset: str | None = None,
) -> Source:
    """The data that the options name; a data set of a plugin is found by what the data looks like, too."""
    from npuc.calib.several import open_places
    from npuc.calib.sources import DataOptions, random_data

    if random:
        if data or preprocess is not None or annotations is not None or dataset is not None:
            raise UsageError("--random goes with no other data or preprocessing")
        return random_data(graph, max_count, seed)
    if not data:
        raise UsageError(
            "there is no data to calibrate with", fix="Give --data PATH, or --random for a smoke run"
        )
    if dataset is not None and len(data) > 1:
        raise UsageError("--dataset reads one data set", fix="Give --data once")
    if len(data) == 1:
        from npuc.datasets.data import Place
        from npuc.evaluate.unlabelled import dataset_source, plugin_dataset

        place = Place(Path(data[0]), annotations)
        name = dataset or (plugin_dataset(place) if place.path.exists() else None)
        if name is not None:
            return dataset_source(graph, place, name, preprocess, max_count, seed)
    return open_places(graph, data, DataOptions(preprocess, annotations, max_count, seed))
