"""What a user may say about an import, whatever the format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npuc.images.preprocess import Preprocess


@dataclass(frozen=True)
class ImportOptions:
    """What a user may say about an import."""

    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Static shapes for inputs, by name."""
    inputs: tuple[str, ...] = ()
    """Tensors at which the network begins; empty for the model's own inputs."""
    outputs: tuple[str, ...] = ()
    """Tensors at which the network ends; empty for the model's own outputs."""
    weights: Path | None = None
    """The file of the weights, for formats that keep them apart; unless given, the one beside the model is taken."""
    constants: Mapping[str, str] = field(default_factory=dict)
    """Values for inputs that are to become constants, by name, as numbers with commas between."""
    preprocess: Mapping[str, Preprocess] = field(default_factory=dict)
    """Preprocessing that belongs to an input, by name."""
    fuse_preprocess: bool = False
    """Make the arithmetic of the preprocessing part of the network; of an input with a source, all of it."""
    input_layout: str = ""
    """The order of axes of inputs of rank 4, `nchw` or `nhwc`; empty: as in the model."""
    output_layout: str = ""
    """The order of axes of outputs of rank 4, `nchw` or `nhwc`; empty: as in the model."""
    postprocess: str = ""
    """What is appended to the outputs (`npuc.frontend.postprocess`): a kind, and options behind a colon."""
