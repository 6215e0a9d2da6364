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
        help="A folder of pictures, .npy or .npz files, one such file, or a list file with one sample a line. Several are "
        "taken one after the other; with the name of an input before it, each for its input.",
    ),
]
Random = Annotated[
    bool, typer.Option("--random", help="Random data, for a smoke run: the ranges mean nothing.")
]
Preprocess = Annotated[
    str | None,
    typer.Option(
        metavar="RECIPE.yaml|FILE.py:FUNCTION",
        help="How a file becomes a tensor, in place of the preprocessing that the network has.",
    ),
]
Annotations = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.json", help="COCO annotations of the pictures, for a choice balanced over the classes."
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
) -> Source:
    """The data that the options name."""
    from npuc.calib.several import open_places
    from npuc.calib.sources import DataOptions, random_data

    if random:
        if data or preprocess is not None or annotations is not None:
            raise UsageError("--random goes with no other data or preprocessing")
        return random_data(graph, max_count, seed)
    if not data:
        raise UsageError(
            "there is no data to calibrate with", fix="Give --data PATH, or --random for a smoke run"
        )
    return open_places(graph, data, DataOptions(preprocess, annotations, max_count, seed))
