"""What a caller gets wrong is said in words, by an error of npuc, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.errors import FileFormatError, InputDataError, NpucError, ShutdownError, UsageError
from npuc.program.model import CompiledModel
from npuc.runtime import Pipeline, Pool, Runner, SimulatedDevice, Stage

X = np.zeros((1, 1, 8, 8), np.float32)
Use = Callable[[CompiledModel], Any]


def _run(*arguments: Any) -> Use:
    def use(model: CompiledModel) -> None:
        with Runner(model, workers=1) as runner:
            runner.run(*arguments)

    return use


def _closed(kind: Callable[[CompiledModel], Any], call: str) -> Use:
    def use(model: CompiledModel) -> None:
        one = kind(model)
        one.close()
        getattr(one, call)(X)

    return use


@pytest.mark.parametrize(
    ("use", "kind", "words"),
    [
        (lambda model: Runner(model, None), UsageError, "None is neither the name of a device nor"),
        (lambda model: Runner(model, ["simulated"]), UsageError, "npuc.runtime.Pool takes several"),
        (lambda model: Runner(model, SimulatedDevice), UsageError, "neither the name of a device nor"),
        (lambda model: Runner(model, workers=0), UsageError, "workers is 0, and must be at least 1"),
        (lambda model: Runner(model, workers="2"), UsageError, "workers is '2', and must be a whole number"),
        (lambda model: Runner(model, workers=1.5), UsageError, "must be a whole number"),
        (lambda model: Runner(model, threads=1 << 20), UsageError, "must be at most 1024"),
        (
            lambda model: Pool(model, "simulated"),
            UsageError,
            "a pool takes a list of devices, not 'simulated'",
        ),
        (lambda model: Pool(model, []), UsageError, "a pool needs a device"),
        (lambda model: Pool(model, ["simulated"], workers=0), UsageError, "workers is 0"),
        (lambda model: Pipeline(len), UsageError, "is no stage of a pipeline"),
        (lambda model: Pipeline(Stage(3)), UsageError, "is no stage of a pipeline"),  # type: ignore[arg-type]
        (_run([[1, 2], [3]]), InputDataError, "input 'image' is no array"),
        (_run(X, np.zeros((1, 10), np.float32)), InputDataError, "outputs are given by name"),
        (_run(X, [np.zeros((1, 10), np.float32)]), InputDataError, "Write {'logits': array}"),
        (_run(X, {"logits": np.zeros((1, 9), np.float32)}), InputDataError, r"and is float32 of \[1, 9\]"),
        (_run(X, {"logits": [0.0] * 10}), InputDataError, "and is none"),
        (_closed(lambda model: Runner(model), "run"), ShutdownError, "it is closed"),
        (_closed(lambda model: Runner(model), "execute_async"), ShutdownError, "it is closed"),
        (_closed(lambda model: Pool(model, ["simulated"]), "execute_async"), ShutdownError, "it is closed"),
    ],
)
def test_it_is_said_in_words(model: CompiledModel, use: Use, kind: type[NpucError], words: str) -> None:
    with pytest.raises(kind, match=words):
        use(model)


def test_whole_numbers_of_any_kind_will_do(model: CompiledModel) -> None:
    with Runner(model, workers=np.int64(1), threads=np.int32(1)) as runner:  # type: ignore[arg-type]
        assert runner.run(X)["logits"].shape == (1, 10)


def test_a_network_that_is_not_compiled(root: Path) -> None:
    with pytest.raises(FileFormatError, match=r"is not a compiled model.*npuc compile"):
        Runner(root / "examples/digits.onnx")
