"""The options that say how an image becomes an input: a group of commands that import a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuc.cli.command_options import CommandOptions
from npuc.cli.options import INTERPOLATION_HELP
from npuc.errors import UsageError

if TYPE_CHECKING:
    from npuc.frontend.options import ImportOptions

Texts = list[str] | None


def _flag(name: str, metavar: str, words: str) -> Any:
    return typer.Option(name, metavar=metavar, help=words)


class PreprocessingOptions(CommandOptions):
    """How an image becomes a tensor; each value may have `INPUT:` before it."""

    resize_dims: Annotated[Texts, _flag("--resize-dims", "H,W", "Resize the image to this size first.")] = (
        None
    )
    keep_aspect_ratio: Annotated[
        bool,
        typer.Option(
            "--keep-aspect-ratio",
            help="Keep the aspect ratio when resizing, and pad the rest (with --crop: cut it off).",
        ),
    ] = False
    pad_value: Annotated[Texts, _flag("--pad-value", "0..255", "The pixel value of the padding.")] = None
    pad_type: Annotated[
        Texts,
        _flag("--pad-type", "center|corner", "Pad on all sides, or only at the right and at the bottom."),
    ] = None
    crop: Annotated[Texts, _flag("--crop", "H,W", "After resizing, crop the center to this size.")] = None
    mean: Annotated[
        Texts, _flag("--mean", "M,M,M", "Subtract this from each channel (pixels are 0..255).")
    ] = None
    scale: Annotated[Texts, _flag("--scale", "S,S,S", "Then multiply each channel by this.")] = None
    standardize: Annotated[
        Texts,
        _flag(
            "--standardize",
            "image|channel",
            "In place of both: subtract the image's own mean and divide by its deviation, of all channels or of each.",
        ),
    ] = None
    pixel_format: Annotated[
        Texts, _flag("--pixel-format", "rgb|bgr|gray|rgba", "The pixel format that the network takes.")
    ] = None
    channel_format: Annotated[
        Texts, _flag("--channel-format", "nchw|nhwc", "The order of the input's axes.")
    ] = None
    interpolation: Annotated[Texts, _flag("--interpolation", "KIND", INTERPOLATION_HELP)] = None
    fuse_preprocess: Annotated[
        bool,
        typer.Option(
            "--fuse-preprocess",
            help="Make mean and scale (or the standardisation) part of the network, which then takes uint8 pixels; with "
            "--source-size or --source-format all of the preprocessing.",
        ),
    ] = False

    source_size: Annotated[
        Texts,
        _flag(
            "--source-size",
            "H,W",
            "With --fuse-preprocess: the program takes images of this size, and resizes and crops them itself.",
        ),
    ] = None
    source_format: Annotated[
        Texts,
        _flag(
            "--source-format",
            "FORMAT",
            "With --fuse-preprocess: the program takes images in this format: rgb, bgr, gray, rgba, i420, yv12, nv12, "
            "nv21, yuyv or uyvy.",
        ),
    ] = None

    input_layout: Annotated[
        str | None,
        typer.Option(
            metavar="nchw|nhwc",
            help="The order of axes of inputs of rank 4.  [default: as in the model]",
        ),
    ] = None
    output_layout: Annotated[
        str | None,
        typer.Option(
            metavar="nchw|nhwc",
            help="The order of axes of outputs of rank 4.  [default: as in the model]",
        ),
    ] = None

    def apply(self, imported: ImportOptions) -> ImportOptions:
        """Options of an import with what is said here about the ends of the network."""
        for flag, word in (("--input-layout", self.input_layout), ("--output-layout", self.output_layout)):
            if word not in (None, "nchw", "nhwc"):
                raise UsageError(f"{flag} '{word}' is no layout", fix="Write nchw or nhwc")
        return replace(
            imported,
            fuse_preprocess=self.fuse_preprocess,
            input_layout=self.input_layout or "",
            output_layout=self.output_layout or "",
        )

    @property
    def changes_ends(self) -> dict[str, object]:
        """The flags that change the ends of a network, with what was given for them."""
        return {
            "--fuse-preprocess": self.fuse_preprocess,
            "--input-layout": self.input_layout,
            "--output-layout": self.output_layout,
        }

    def fields(self) -> dict[str, Sequence[str]]:
        """Fields of `Preprocess`, each with the texts that were given for it."""
        return {
            "resize": self.resize_dims or [],
            "keep_aspect_ratio": ["yes"] if self.keep_aspect_ratio else [],
            "pad_value": self.pad_value or [],
            "pad_type": self.pad_type or [],
            "crop": self.crop or [],
            "mean": self.mean or [],
            "scale": self.scale or [],
            "pixel_format": self.pixel_format or [],
            "layout": self.channel_format or [],
            "interpolation": self.interpolation or [],
            "standardize": self.standardize or [],
            "source_size": self.source_size or [],
            "source_format": self.source_format or [],
        }
