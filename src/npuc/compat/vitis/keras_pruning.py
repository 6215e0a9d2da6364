"""`tf_nndct.pruning`: the vendor's iterative pruning of Keras models, on npuc's channels of Keras models.

runner = IterativePruningRunner(model, tf.TensorSpec((1, 28, 28, 1), tf.float32))
runner.ana(evaluate)
sparse = runner.prune(ratio=0.2)        # zeros that fit leaves zeros
...                                     # train, load the weights into the model, make a runner again
slim = runner.get_slim_model()          # the channels of .vai/latest_spec are gone
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from npuc.compat.vitis.notices import refusal
from npuc.compat.vitis.pruning_runner import FOLDER, PruningRunner
from npuc.errors import UsageError
from npuc.integrations.keras import keras_package, require_model
from npuc.train.keras_channels import KerasChannels

__all__ = ["IterativePruningRunner"]


class IterativePruningRunner(PruningRunner[KerasChannels]):
    """Analyses a model once, and prunes it further and further, with training by the user in between."""

    def __init__(self, model: Any, input_specs: Any) -> None:
        require_model(
            model,
            "a pruning runner is made of a Keras model",
            "pytorch_nndct.get_pruning_runner takes torch modules",
        )
        self.model = model
        super().__init__(str(model.name), KerasChannels(model, _shapes(model, input_specs)))

    def ana(
        self, eval_fn: Callable[[Any], Any], excludes: Sequence[Any] | None = None, forced: bool = False
    ) -> None:
        """Measure how the score of `eval_fn(model)` falls when each group of channels alone gets narrower."""
        self._analyse(self._channels.excluding(_names(self.model, excludes)), eval_fn, forced)

    def prune(
        self,
        ratio: float | None = None,
        threshold: float | None = None,
        spec_path: Path | str | None = None,
        excludes: Sequence[Any] | None = None,
        mode: str = "sparse",
    ) -> Any:
        """The model without a share of its multiply-adds; `mode` sparse keeps its shapes, with zeros that stay zeros."""
        channels = self._channels.excluding(_names(self.model, excludes))
        return self._iterative(channels, "ratio", ratio, threshold, spec_path, mode)

    def get_slim_model(self, spec_path: Path | str | None = None) -> Any:
        """The model without the channels that the latest specification, or a given one, removes."""
        path = FOLDER / "latest_spec" if spec_path is None else Path(spec_path)
        if not path.is_file():
            raise refusal(
                "OPTIMIZER_NO_ANA_RESULT_ERROR",
                f"{path} does not exist",
                "Call prune first, or give spec_path",
            )
        return self._channels.slim(self._saved(path, self._channels))


def _shapes(model: Any, specs: Any) -> list[tuple[int, ...]]:
    """The shapes of the inputs; they have to fit those of the model."""
    given = list(specs) if isinstance(specs, list | tuple) else [specs]
    if len(given) != len(model.inputs) or not all(hasattr(spec, "shape") for spec in given):
        raise UsageError(
            f"input_specs has to be a tf.TensorSpec for each of the {len(model.inputs)} inputs of the model",
            fix="Such as tf.TensorSpec((1, 28, 28, 1), tf.float32)",
        )
    shapes = []
    for spec, tensor in zip(given, model.inputs, strict=True):
        shape = tuple(1 if at == 0 and size is None else size for at, size in enumerate(spec.shape))
        own = tuple(tensor.shape)
        fits = len(shape) == len(own) and all(
            size is not None and other in (None, size) for size, other in zip(shape, own, strict=True)
        )
        if not fits:
            raise UsageError(
                f"input_specs states {list(spec.shape)}, and input '{tensor.name}' of the model is {list(own)}"
            )
        shapes.append(tuple(int(size) for size in shape))
    return shapes


def _names(model: Any, excludes: Sequence[Any] | None) -> list[str]:
    """Layers of the model, given as such or by their names, as names."""
    layer = keras_package().layers.Layer
    return [str(item.name) if isinstance(item, layer) else str(item) for item in excludes or ()]
