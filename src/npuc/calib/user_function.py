"""A user's own functions: `package.module:function`, or `path/to/file.py:function`.

One that prepares a sample takes the path of a file and returns its tensor, or several by input name. One that goes on from
the outputs of a network takes them by name, and returns what they are judged by. They are code that the user names on the
command line; nothing in a model or a data set can name them.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from npuc.arrays import Array
from npuc.errors import PreprocessError, UsageError
from npuc.files import existing_file
from npuc.plugin_code import place_of


def load_function(text: str) -> Callable[[Path], Any]:
    """The function that a text names, wrapped so that an exception in it names the sample."""
    return wrapped(_function(text), text)


def load_output_function(text: str) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """The function that a text names, which makes of the outputs of a network, by name, what they are judged by.

    It may return one array, a list of arrays or a mapping; what it raises, and a result that holds no numbers, is an error that
    names the function.
    """
    function = _function(text)

    def judged(outputs: Mapping[str, Array]) -> dict[str, Array]:
        try:
            results = function({name: np.array(array) for name, array in outputs.items()})
            if isinstance(results, list | tuple):
                results = {str(index): array for index, array in enumerate(results)}
            named = results if isinstance(results, Mapping) else {"": results}
            arrays = {str(name): np.asarray(array) for name, array in named.items()}
        except Exception as error:
            raise UsageError(
                f"the function '{text}' failed on the outputs {', '.join(outputs)}: {type(error).__name__}: {error}"
                f"{place_of(error, (function.__module__,))}"
            ) from error
        if not arrays or any(array.dtype.kind not in "fiub" for array in arrays.values()):
            raise UsageError(
                f"the function '{text}' returned no arrays of numbers, but {type(results).__name__}",
                fix="Return the outputs, changed: a dict of arrays",
            )
        return arrays

    return judged


def _function(text: str) -> Callable[..., Any]:
    place, separator, name = text.rpartition(":")
    if not separator or not place or not name.isidentifier():
        raise UsageError(f"'{text}' names no function", fix="Write FILE.py:FUNCTION, or MODULE:FUNCTION")
    try:
        module = _from_file(existing_file(place)) if place.endswith(".py") else importlib.import_module(place)
    except (ImportError, SyntaxError) as error:
        raise UsageError(f"'{place}' cannot be imported: {error}") from error
    except UsageError:
        raise
    except Exception as error:
        if type(error).__module__ == "npuc.errors":
            raise
        raise UsageError(f"'{place}' failed when it was imported: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"'{place}' has no function '{name}'")
    return cast("Callable[..., Any]", function)


def wrapped(function: Callable[[str], Any], label: str) -> Callable[[Path], Any]:
    """The function, taking a path; what it raises becomes an error of the sample."""

    def prepare(path: Path) -> Any:
        try:
            return function(str(path))
        except Exception as error:
            raise PreprocessError(
                f"the preprocessing function '{label}' failed: {type(error).__name__}: {error}"
                f"{place_of(error, (function.__module__,))}",
                where=str(path),
            ) from error

    return prepare


def _from_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"_npuc_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"'{path}' cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
