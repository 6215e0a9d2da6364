"""A user's own preprocessing: `package.module:function`, or `path/to/file.py:function`.

The function takes the path of a file and returns the tensor of a sample, or several by input name. It is code that the
user names on the command line; nothing in a model or a data set can name it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from npuc.errors import PreprocessError, UsageError
from npuc.files import existing_file
from npuc.plugin_code import place_of


def load_function(text: str) -> Callable[[Path], Any]:
    """The function that a text names, wrapped so that an exception in it names the sample."""
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
    return wrapped(function, text)


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
