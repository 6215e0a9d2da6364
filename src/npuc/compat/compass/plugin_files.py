"""Plugin files of Compass: modules `aipubt_*.py` in the folders of AIPUPLUGIN_PATH, in `./plugin`, and in the current folder."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from npuc.compat.compass import VENDOR
from npuc.compat.compass.logger import say
from npuc.compat.modules import provide
from npuc.errors import NpucError, PluginError

PREFIX = "aipubt_"
_WITHOUT_EFFECT = {
    "AIPULIB_PATH": "kernels are npuc's own",
    "ENABLE_TCM": "the target says what memory there is; tcm_size changes it",
}
"""Environment variables of the vendor's tools, and why they mean nothing."""


def load_plugins() -> list[str]:
    """Import every plugin file that is there; the names of the modules."""
    for variable, reason in _WITHOUT_EFFECT.items():
        if os.environ.get(variable):
            say("W", f"{variable} has no effect here: {reason}", "Common")
    for folder in _stated():
        if not folder.is_dir():
            say("W", f"AIPUPLUGIN_PATH names {folder}, which is no folder: it is passed over", "Common")
    files = [
        file for folder in _folders() if folder.is_dir() for file in sorted(folder.glob(f"{PREFIX}*.py"))
    ]
    if not files:
        return []
    provide(VENDOR.modules)
    names: list[str] = []
    for file in files:
        if file.stem not in names:
            _load(file)
            names.append(file.stem)
    return names


def _stated() -> list[Path]:
    return [Path(word) for word in os.environ.get("AIPUPLUGIN_PATH", "").split(":") if word]


def _folders() -> list[Path]:
    return list(dict.fromkeys([*_stated(), Path("plugin"), Path()]))


def _load(file: Path) -> None:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    except NpucError:
        raise
    except Exception as error:
        # The module is the user's own: anything may happen in it.
        raise PluginError(
            f"the plugin cannot be loaded: {type(error).__name__}: {error}", where=str(file)
        ) from error
    finally:
        sys.path.remove(str(file.parent))
