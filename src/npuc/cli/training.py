"""Options that commands of `npuc train` share: which samples, how long and how fast to train, and where the network goes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuc.cli import calibration_data as given
from npuc.cli import options
from npuc.cli.command_options import CommandOptions
from npuc.errors import UsageError
from npuc.files import writable

if TYPE_CHECKING:
    from npuc.cli.console import Printer
    from npuc.ir import Graph
    from npuc.train import TrainingData, TrainingOptions

Text = str | None


class SampleOptions(CommandOptions):
    """Which samples, and how images become inputs."""

    data: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            help="Samples with classes: a folder, a list of files and labels, an .npz file, as for 'npuc eval'.",
        ),
    ]
    dataset: Annotated[
        Text, typer.Option(metavar="NAME", help="The kind of data set.  [default: recognized from --data]")
    ] = None
    annotations: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The list of files and labels, or a file of labels.")
    ] = None
    images: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder of the images, if not beside the labels.")
    ] = None
    classes: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The names of the classes, in the order of the model's scores."),
    ] = None
    label_offset: Annotated[int, typer.Option(help="A number to add to every label.")] = 0
    mean: Annotated[
        Text, typer.Option(metavar="M,M,M", help="Subtract this from each channel (pixels are 0..255).")
    ] = None
    scale: Annotated[Text, typer.Option(metavar="S,S,S", help="Then multiply each channel by this.")] = None
    pixel_format: Annotated[
        Text, typer.Option(metavar="rgb|bgr|gray|rgba", help="The pixel format that the network takes.")
    ] = None
    max_count: given.MaxCount = None

    def load(self, graph: Graph, printer: Printer) -> TrainingData:
        """Read the samples for the inputs of a network."""
        from npuc.datasets.data import DataLocation
        from npuc.train import load_data

        texts = {"mean": self.mean, "scale": self.scale, "pixel_format": self.pixel_format}
        fields = options.preprocess_fields({name: text for name, text in texts.items() if text is not None})
        place = DataLocation(self.data, self.annotations, self.images, self.classes, self.label_offset)
        return load_data(
            graph,
            place,
            dataset=self.dataset,
            preprocess=fields or None,
            max_count=self.max_count,
            note=printer.note,
        )

    def split(self, graph: Graph, count: int | None, printer: Printer) -> tuple[TrainingData, TrainingData]:
        """Read the samples, and hold back the last `count` of them; without a number 500, or a tenth if there are few."""
        data = self.load(graph, printer)
        return data.split(min(500, max(1, len(data) // 10)) if count is None else count)


def require_network_file(path: Path | None) -> None:
    """An error before the training if the result could not be written after it."""
    if path is None:
        return
    if path.suffix not in (".mlir", ".onnx"):
        raise UsageError(f"{path} is neither .mlir nor .onnx", fix="Give the file one of these endings")
    writable(path)


def write_network(graph: Graph, path: Path) -> None:
    """A float network in the format that the ending of the path names."""
    if path.suffix == ".onnx":
        from npuc.export.onnx.file import export_onnx

        export_onnx(graph, path)
    else:
        from npuc.ir import save_graph

        save_graph(graph, path)


KerasCopy = Annotated[
    Path | None,
    typer.Option(
        "--keras",
        metavar="FILE.keras|.h5",
        help="Also write the trained float weights into a copy of the Keras file that MODEL is.",
    ),
]


def require_keras_copy(model: Path, path: Path | None, weights: Path | None = None) -> None:
    """An error before the training if a copy of the Keras file could not be written after it."""
    if path is None:
        return
    from npuc.train.keras import require_keras_copy as require

    if weights is not None:
        raise UsageError(
            "--keras writes a copy of MODEL, and its weights are in another file",
            fix="Save both as one file in Keras, or leave --keras out",
        )
    require(model, path)
    writable(path)


class TrainingRunOptions(CommandOptions):
    """How long and how fast."""

    epochs: Annotated[int, typer.Option(min=0, help="Epochs of training; after each step of a method.")] = 2
    batch: Annotated[int, typer.Option(min=1, help="Samples in a batch.")] = 128
    rate: Annotated[float, typer.Option(help="The learning rate, which decays to zero along a cosine.")] = (
        0.01
    )
    optimizer: Annotated[str, typer.Option(metavar="sgd|adamw", help="The optimizer.")] = "sgd"
    loss: Annotated[
        str,
        typer.Option(
            metavar="labels|distillation|both",
            help="Learn from labels, from the outputs of the network before (no labels needed), or from both.",
        ),
    ] = "labels"
    augment: Annotated[bool, typer.Option("--augment", help="Flip and crop images at random.")] = False
    ema: Annotated[float, typer.Option(help="The decay of a moving average of the weights; 0 is none.")] = 0.0
    device: Annotated[str, typer.Option(metavar="cpu|cuda", help="Where networks are trained.")] = "cpu"
    seed: Annotated[int, typer.Option(min=0, help="The seed of all that is random.")] = 0

    def training(self) -> TrainingOptions:
        """The options of the training loop."""
        from npuc.train import TrainingOptions

        return TrainingOptions.checked(
            epochs=self.epochs,
            batch=self.batch,
            rate=self.rate,
            optimizer=self.optimizer,
            loss=self.loss,
            augment=self.augment,
            ema=self.ema,
            device=self.device,
            seed=self.seed,
        )
