"""Quantization-aware training of Keras models: trained in torch, written back as Keras weights and compiled to a program.

qat = npuc.keras.prepare_qat("model.keras", (images, labels), target="edge-4t")
npuc.train.fit(qat.module, (images, labels), options=npuc.train.TrainingOptions(epochs=5))
qat.write_back("trained.keras")          # the float network, opened by keras.models.load_model
qat.compile().save("trained.npu")        # the integers
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npuc.errors import UsageError
from npuc.files import existing_model
from npuc.flow import compile_network, network_to_quantize
from npuc.frontend.keras.variables import require_same_kind, write_variables
from npuc.frontend.options import ImportOptions
from npuc.frontend.sniff import describe_content
from npuc.integrations.keras import keras_package, require_model
from npuc.ir import Graph
from npuc.program.model import CompiledModel
from npuc.quant.config import QuantizationConfig
from npuc.target import Target, load_target
from npuc.train.keras_weights import keras_variables
from npuc.train.qat.module import QatModule
from npuc.train.qat.options import QatOptions
from npuc.train.qat.prepare import prepare, trained_form


@dataclass
class KerasQat:
    """A Keras model in quantization-aware training."""

    module: QatModule
    """The torch module to train: by `npuc.train.fit`, or in a loop of yours."""
    source: Path
    """The file that the network came from."""
    target: Target | None
    config: QuantizationConfig | None
    _folder: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False)
    """Holds the file of a live model."""

    def export(self) -> Graph:
        """The integer network with the parameters as they are."""
        return self.module.export()

    def compile(self) -> CompiledModel:
        """The program for the machine: `npuc.runtime.Runner` runs it, `npuc.program.file.save_compiled` writes it."""
        if self.target is None:
            raise UsageError(
                "the module was prepared for no machine", fix="Give prepare_qat a target, or compile export()"
            )
        return compile_network(self.export(), self.target, name=self.source.stem).model

    def write_back(self, path: Path | str) -> None:
        """Write a copy of the Keras file with the trained float weights; see `write_keras`."""
        write_keras(self.source, self.module.to_float(), path, target=self.target, config=self.config)

    def to_keras(self) -> Any:
        """A live Keras model with the trained float weights."""
        models = keras_package().models
        with tempfile.TemporaryDirectory(prefix="npuc-") as folder:
            file = Path(folder) / f"trained{self.source.suffix}"
            self.write_back(file)
            return models.load_model(file, compile=False)


def prepare_qat(
    model: Any,
    data: Any,
    *,
    target: Target | str | None = "edge-4t",
    config: QuantizationConfig | Path | str | None = None,
    method: str | None = None,
    options: QatOptions | None = None,
    threads: int | None = None,
) -> KerasQat:
    """Quantization-aware training of a live Keras model, or of a `.keras` or `.h5` file, which needs no Keras.

    The arguments are those of `npuc.train.prepare`.

    >>> qat = prepare_qat("model.keras", (images, labels), target="edge-4t")  # doctest: +SKIP
    """
    folder = None
    if isinstance(model, Path | str):
        source = existing_model(model)
        _require_keras_file(source)
    else:
        require_model(
            model,
            "prepare_qat takes a Keras model or the path of one",
            "Give a live model, or a .keras or .h5 file",
        )
        folder = tempfile.TemporaryDirectory(prefix="npuc-")
        source = Path(folder.name) / "model.keras"
        model.save(source)
    machine = load_target(target) if isinstance(target, str) else target
    chosen = QuantizationConfig.load(config) if isinstance(config, Path | str) else config
    module = prepare(
        network_to_quantize(source),
        data,
        target=machine,
        config=chosen,
        method=method,
        options=options,
        threads=threads,
    )
    return KerasQat(module, source, machine, chosen, folder)


def write_keras(
    source: Path | str,
    trained: Graph,
    path: Path | str,
    *,
    target: Target | str | None = None,
    config: QuantizationConfig | Path | str | None = None,
    imported_as: ImportOptions | None = None,
) -> None:
    """Write a copy of a Keras file with the weights of the float network that it was trained to.

    Only variables of layers change: inference of the copy in Keras is the function of `trained`. `target` and `config` are those
    for which the network was brought into form, `imported_as` the options of its import.
    """
    source = require_keras_copy(source, path)

    def network(file: Path) -> Graph:
        graph = network_to_quantize(file, imported_as)
        return trained_form(graph, target, config)[0]

    write_variables(source, path, keras_variables(source, network, trained))


def require_keras_copy(source: Path | str, path: Path | str) -> Path:
    """The source, if it is a Keras file of which a copy can be written to the path; asked before long work."""
    source = existing_model(source)
    _require_keras_file(source)
    require_same_kind(source, Path(path))
    return source


def _require_keras_file(path: Path) -> None:
    content = describe_content(path)
    if content.kind != "keras":
        raise UsageError(f"{path} is no Keras model", fix="Give a .keras or .h5 file that model.save wrote")
