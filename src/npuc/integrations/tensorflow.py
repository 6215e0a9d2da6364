"""TensorFlow: a SavedModel as a compiled callable with the signature of the original.

npuc reads a SavedModel without TensorFlow. Where TensorFlow is installed, it computes the original on a sample, which the import
is compared with, and results are its tensors; where not, the float engine does, and results are arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.engine import FloatEngine
from npuc.errors import UsageError
from npuc.flow import import_model
from npuc.frontend.options import ImportOptions
from npuc.integrations.function import (
    CompiledFunction,
    ToTensor,
    batches_of,
    compiled_function,
    load_function,
)
from npuc.ir import Graph, shape_of

INTEGRATION = "npuc.tensorflow.compile"


def compile(saved_model: Path | str, data: Any, **options: Any) -> CompiledFunction:
    """Quantize a SavedModel (its signature `serving_default`) on data and compile it.

    `data` is an array of samples, or an iterable of batches: arrays, or mappings by the names of the signature. The result takes
    the inputs by name, or the only one by place, and returns the outputs by name.

    >>> compiled = compile("saved_model/", images[:64], target="edge-4t")  # doctest: +SKIP
    """
    graph = import_model(saved_model)
    names = sorted(port.name for port in graph.inputs)
    original, note = _original(Path(saved_model), graph)
    return compiled_function(
        graph,
        original,
        _calls(data, names),
        lambda network, arrays: names,
        options,
        INTEGRATION,
        Path(saved_model).stem,
        _to_tensor(),
        [note],
    )


def load(path: Path | str, device: Any = "simulated") -> CompiledFunction:
    """The callable of a file that `save` wrote. Without TensorFlow, its results are arrays."""
    return load_function(path, _to_tensor(), device)


def _calls(data: Any, names: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], dict[str, Array]]]:
    """Calibration data as calls by name."""
    for item in batches_of(data):
        if isinstance(item, tuple) and len(item) == 2 and len(names) == 1:
            item = item[0]
        if not isinstance(item, Mapping):
            values = item if isinstance(item, tuple | list) else (item,)
            if len(values) != len(names) or len(names) > 1:
                raise UsageError(
                    f"a sample does not say which input is which of {', '.join(names)}",
                    fix="Give mappings by these names",
                )
            item = {names[0]: values[0]}
        if sorted(item) != list(names):
            raise UsageError(
                f"the model takes {', '.join(names)}, and a sample has {', '.join(map(str, item))}"
            )
        yield (), {name: np.asarray(item[name]) for name in names}


def _tensorflow() -> Any:
    """TensorFlow, or None."""
    try:
        import tensorflow
    except ImportError:
        return None
    return tensorflow


def _to_tensor() -> ToTensor | None:
    tensorflow = _tensorflow()
    return None if tensorflow is None else tensorflow.convert_to_tensor


def _original(path: Path, graph: Graph) -> tuple[Callable[..., dict[str, Array]], str]:
    """The model as its own framework computes it, or the float engine where that is not to be had."""
    tensorflow = _tensorflow()
    if tensorflow is not None:
        try:
            folder = path if path.is_dir() else path.parent
            model = tensorflow.saved_model.load(str(folder))
            function = model.signatures["serving_default"]
        except Exception as error:
            why = f"TensorFlow cannot load it: {(str(error).strip() or type(error).__name__).splitlines()[0]}"
        else:

            def computed(**arrays: Array) -> dict[str, Array]:
                assert model is not None  # its variables live as long as it does
                tensors = {name: tensorflow.constant(array) for name, array in arrays.items()}
                return {name: np.asarray(value) for name, value in sorted(function(**tensors).items())}

            return computed, "compared with TensorFlow on a sample"
    else:
        why = "TensorFlow is not installed"

    @cache
    def engine(rows: int) -> FloatEngine:
        shapes = {port.name: (rows, *shape_of(port.value)[1:]) for port in graph.inputs}
        return FloatEngine(import_model(path, ImportOptions(input_shapes=shapes)))

    def by_engine(**arrays: Array) -> dict[str, Array]:
        return dict(sorted(engine(len(next(iter(arrays.values())))).run(arrays).items()))

    return by_engine, f"not compared with TensorFlow ({why})"
