"""npuc inside of LiteRT (TensorFlow Lite): an external delegate that takes the quantized operators of a model.

    >>> from ai_edge_litert.interpreter import Interpreter                          # doctest: +SKIP
    >>> from npuc.integrations import litert                                        # doctest: +SKIP
    >>> npu = litert.delegate("net.tflite", target="edge-4t")                       # doctest: +SKIP
    >>> interpreter = Interpreter("net.tflite", experimental_delegates=[npu])       # doctest: +SKIP

Outputs have the bits of LiteRT's reference kernels. What the NPU cannot run stays with LiteRT; `report` says what and why. The
library itself (`library_path`) needs no Python: `load_delegate(library_path(), {"model": ..., "target": ...})` of any runtime,
and LiteRT's C++ tools with `--external_delegate_path`, take it as well.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuc import native
from npuc.errors import MissingExtraError, UsageError
from npuc.files import existing_file
from npuc.integrations.litert.custom_op import export_custom_op
from npuc.integrations.litert.pieces import Pieces, plan_pieces, require_pieces

if TYPE_CHECKING:
    from npuc.integrations.report import IntegrationReport

__all__ = [
    "Pieces",
    "delegate",
    "export_custom_op",
    "library_path",
    "plan_pieces",
    "report",
    "require_pieces",
]

_RUNTIMES = ("ai_edge_litert.interpreter", "tflite_runtime.interpreter", "tensorflow.lite.experimental")


def library_path() -> Path:
    """The delegate, `libnpuc_delegate.so`, for `load_delegate` and `--external_delegate_path`."""
    return native.find("npuc_delegate")


def delegate(
    model: Path | str | None = None,
    *,
    target: str | None = None,
    program: Path | str | None = None,
    cache_dir: Path | str | None = None,
    report: Path | str | None = None,
    profile: Path | str | None = None,
) -> Any:
    """A delegate for the `experimental_delegates` of an interpreter.

    `model` is the `.tflite` file that the interpreter has: what the NPU can run of it is compiled for `target` when the
    interpreter is made, and kept in `cache_dir`. `program` is a `.npu` file that was made ahead (`npuc export litert`). With
    neither, operators that carry their program are taken. `report` and `profile` say where it is written what runs where, and how
    long the pieces took: `log` is stderr, `off` nowhere, anything else a file.
    """
    if model is not None and program is not None:
        raise UsageError("'model' is compiled, and 'program' is compiled already", fix="Give one of them")
    if model is not None and target is None:
        raise UsageError(
            "a model that is compiled needs a target", fix="Give target=NAME, from 'npuc targets list'"
        )
    given = {
        "model": None if model is None else existing_file(model),
        "program": None if program is None else existing_file(program),
        "target": target, "cache_dir": cache_dir, "report": report, "profile": profile,
        "compiler": _command() if model is not None else None,
    }  # fmt: skip
    options = {key: os.fspath(value) for key, value in given.items() if value is not None}
    try:
        return _load_delegate()(os.fspath(library_path()), options)
    except ValueError as error:
        raise UsageError(str(error).rpartition("npuc: ")[2]) from error


def report(model: Path | str, target: str) -> IntegrationReport:
    """What of a `.tflite` model the NPU takes, and why not the rest; the model is compiled for it."""
    from npuc.target import load_target

    return plan_pieces(existing_file(model), load_target(target)).report


def _command() -> str:
    """The `npuc` command of this Python, or the one of the search path."""
    beside = Path(sys.executable).with_name("npuc")
    return str(beside) if beside.is_file() else "npuc"


def _load_delegate() -> Callable[[str, dict[str, str]], Any]:
    """The `load_delegate` of the runtime that is installed."""
    for name in _RUNTIMES:
        try:
            load: Callable[[str, dict[str, str]], Any] = import_module(name).load_delegate
            return load
        except (ImportError, AttributeError):
            continue
    raise MissingExtraError(
        "no LiteRT runtime is installed", fix="Install one: pip install ai-edge-litert (or tflite-runtime)"
    )
