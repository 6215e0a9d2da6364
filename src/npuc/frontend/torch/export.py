"""torch's own machinery, quiet and with its complaints as npuc's errors: export, trace, decompose."""

from __future__ import annotations

import io
import logging
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._python_dispatch import TorchDispatchMode

from npuc.arrays import ceil_div
from npuc.errors import InvalidModelError, NpucError, ResourceLimitError
from npuc.frontend.torch.registry import kept

_T = TypeVar("_T")
TOO_LONG = "npuc: a loop is too long"
"""What a TorchScript program says that stops itself."""
_MAX_OPS = 1 << 16
"""Calls of ops while a program is traced, four or five for each op of the network."""
_TAKES_APART = ("aten.split", "aten.unbind", "aten.unsafe_split")


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings that torch gives to those who write models."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def guarded(what: str, fix: str | None, work: Callable[[], _T]) -> _T:
    """Do what torch may refuse for any reason."""
    said, warned = io.StringIO(), io.StringIO()
    try:
        with quiet(), torch.no_grad(), redirect_stdout(said), redirect_stderr(warned):
            done = work()
    except (NpucError, MemoryError, RecursionError, KeyboardInterrupt):
        raise
    except GuardOnDataDependentSymNode as error:
        # torch prints the program so far as well, which tells a user nothing.
        raise InvalidModelError(
            f"{what}: its course depends on the values of tensors{_place(error)}",
            fix="Choose with torch.where, or take the part that chooses out of the module",
        ) from error
    except Exception as error:
        if TOO_LONG in str(error):
            raise _too_long("has a loop that is too long", "Trace it with torch.jit.trace instead") from error
        raise InvalidModelError(f"{what}: {_first_words(error)}", fix=fix) from error
    # What the user's own module prints.
    sys.stdout.write(said.getvalue())
    sys.stderr.write(warned.getvalue())
    return done


def _place(error: Exception) -> str:
    """The line of the user's that an error comes from."""
    library = str(Path(torch.__file__).parent), str(Path(__file__).parents[3])
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(library)
    ]
    if not frames:
        return ""
    last = frames[-1]
    return f" ('{(last.line or '')[:80]}', {Path(last.filename).name} line {last.lineno})"


def _too_long(what: str, fix: str) -> ResourceLimitError:
    return ResourceLimitError(f"the program {what}", fix=fix)


def _first_words(error: Exception) -> str:
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def exported(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Export at the shapes of the inputs."""
    return guarded(
        "torch.export cannot trace the model",
        "Make it pass torch.export.export first, or give a trace of it (torch.jit.trace)",
        lambda: torch.export.export(module, args, dict(kwargs), strict=False),
    )


class _Function(torch.nn.Module):  # type: ignore[misc]
    """A function as a module; what it holds stays out of sight of torch.export."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.__dict__["function"] = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class _Counted(TorchDispatchMode):  # type: ignore[misc]
    """Counts the ops of a program that a file holds: a short program may make any number of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += max(1, _parts(str(func.overloadpacket), args))
        if self.count > _MAX_OPS:
            raise RuntimeError(TOO_LONG)
        return func(*args, **(kwargs or {}))


def _parts(op: str, args: Any) -> int:
    """How many tensors an op takes another apart into."""
    if op not in _TAKES_APART or not args:
        return 1
    shape = args[0].shape
    given = args[1] if len(args) > 1 else 0
    last = args[2] if len(args) > 2 else 0
    if op == "aten.unbind":
        return int(shape[given]) if shape else 1
    if isinstance(given, int) and shape:
        return ceil_div(int(shape[last]), max(1, given))
    return 1


class _Counting(_Function):
    """A function whose ops are counted."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self.__dict__["counter"] = _Counted()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with self.counter:
            return self.function(*args, **kwargs)


def of_module(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Export a module as it is for inference; it is left in the mode that it was in."""
    if not isinstance(module, torch.nn.Module):
        if not callable(module):
            raise InvalidModelError(
                f"from_torch takes a module or a function, not {type(module).__name__}",
                fix="Build the model and load its weights first: model.load_state_dict(...)",
            )
        return exported(_Function(module), args, kwargs)
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        return exported(module, args, kwargs)
    finally:
        for part in training:
            part.training = True


def _unoptimized(work: Callable[[], _T]) -> _T:
    """Run TorchScript as it is written: its optimizer looks at the values of constants, and a trace has none."""
    with torch.jit.optimized_execution(False):
        return work()


def traced_script(program: Callable[..., Any], args: tuple[Any, ...], counted: bool = False) -> Any:
    """Trace TorchScript as a function of its inputs; what comes from a file is stopped when it has too many ops."""
    function = _Counting(program) if counted else _Function(program)
    try:
        return guarded(
            "the TorchScript program cannot be traced at these shapes",
            "Check --input-shape; a branch on data cannot be followed",
            lambda: _unoptimized(lambda: torch.export.export(function, args, strict=False)),
        )
    except InvalidModelError as error:
        # What a counter says is lost on its way through the interpreter.
        if counted and function.counter.count > _MAX_OPS:
            fix = "Import the module itself in Python with npuc.from_torch, which has no such limit"
            raise _too_long(f"makes more than {_MAX_OPS} tensors while it is traced", fix) from error
        raise


@cache
def _kept_ops() -> tuple[Any, ...]:
    names = kept()
    return tuple(op for op in torch.export.default_decompositions() if str(op.overloadpacket) in names)


def decomposed(program: Any) -> Any:
    """The program in functional form; ops without a rule are broken down."""

    def work() -> Any:
        table = torch.export.default_decompositions()
        for op in _kept_ops():
            table.pop(op, None)
        return program.run_decompositions(table)

    return guarded("torch cannot decompose the model", None, work)
