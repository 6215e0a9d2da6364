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
        help="The data: a folder of images or of .npy, .npz or raw .bin files; one such file; a list of samples, "
        "one per line (text or .json); or what a plugin's data set reads. Repeat the option to use several in"
        " turn, or write INPUT=PATH for each input of the network.",
    ),
]
Random = Annotated[
    bool, typer.Option("--random", help="Use random data. Only to try things out: the ranges mean nothing.")
]
Preprocess = Annotated[
    str | None,
    typer.Option(
        metavar="RECIPE.yaml|FILE.py:FUNCTION|raw:TYPE[:SHAPE]",
        help="How a file becomes a tensor, instead of the preprocessing stored in the network: a recipe, a Python "
        "function, or the element type and shape of raw .bin files, such as raw:uint8:224,224,3.",
    ),
]
Annotations = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.json",
        help="COCO annotations of the images: samples are then chosen so that all classes are about equally "
        "frequent.",
    ),
]
Dataset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The kind of data set that --data is, one of npuc's or of a plugin (docs/evaluation.md describes "
        "them).",
    ),
]
MaxCount = Annotated[int | None, typer.Option("--max-count", min=1, help="Use at most this many samples.")]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="The seed for choosing samples at random, or for random data. Without it, the first samples are used.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Stop with an error if a sample cannot be used, instead of skipping it."),
]


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
        from npuc.datasets.data import DataLocation
        from npuc.evaluate.unlabelled import dataset_source, plugin_dataset

        place = DataLocation(Path(data[0]), annotations)
        name = dataset or (plugin_dataset(place) if place.path.exists() else None)
        if name is not None:
            return dataset_source(graph, place, name, preprocess, max_count, seed)
    return open_places(graph, data, DataOptions(preprocess, annotations, max_count, seed))
