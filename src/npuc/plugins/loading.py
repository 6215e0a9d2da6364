"""Finding and importing plugins, each once; what goes wrong in one is an error that names it.

A plugin is code that the user chose to run: by installing a package, or by naming a file or module. It runs with all the
rights of the user, as any Python package does.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import logging
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from threading import RLock
from typing import Any

from npuc.errors import NpucError, PluginError
from npuc.plugin_code import MODULES

_LOG = logging.getLogger(__name__)

GROUP = "npuc.plugins"
"""The entry points of installed packages that are plugins: `name = "package.module"` or `"package.module:function"`."""

LIBRARIES = (".so", ".dylib")
"""How the names of shared libraries end."""

_LOADED: dict[str, Plugin] = {}
_LOCK = RLock()


@dataclass(frozen=True)
class Plugin:
    """A plugin, by where it comes from."""

    name: str
    """As it was given, or the name of the entry point."""
    source: str
    """The file or module."""
    package: str = ""
    """The installed package that names it, if one does."""


def discover() -> list[Plugin]:
    """The plugins of installed packages, by name; nothing of theirs is imported."""
    if not _may_be_installed():
        return []
    from importlib import metadata

    plugins = [
        Plugin(point.name, point.value, point.dist.name if point.dist is not None else "")
        for point in metadata.entry_points(group=GROUP)
    ]
    return sorted(plugins, key=lambda plugin: (plugin.name, plugin.source))


def _may_be_installed() -> bool:
    """False if no installed package has a plugin; true if one has, or if they cannot be looked through here.

    `importlib.metadata` knows every way in which a package can be installed, and takes 15 ms to load and to read the entry
    points of a hundred packages. Nearly all are installed in folders, and nearly none of them has a plugin.
    """
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_distributions")]
    if finders != [PathFinder]:
        return True
    for folder in sys.path:
        try:
            with os.scandir(folder or ".") as entries:
                names = [
                    entry.name
                    for entry in entries
                    if entry.name.endswith((".dist-info", ".egg-info", ".egg"))
                ]
        except FileNotFoundError:
            continue
        except OSError:
            return True  # an archive, for one
        for name in names:
            if name.endswith(".egg"):
                return True
            try:
                with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                    if GROUP.encode() in file.read():
                        return True
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                return True
    return False


def loaded() -> list[Plugin]:
    """The plugins that were loaded, in order."""
    return list(_LOADED.values())


def load(*names: str | Path, installed: bool = True) -> list[Plugin]:
    """Load the plugins of installed packages (unless `installed` is false) and those named: files, libraries or modules.

    Returns all that are loaded now. What was loaded before is not loaded again.
    """
    with _LOCK:
        if installed:
            for plugin in discover():
                _once(plugin.source, plugin, _imported)
        for name in map(str, names):
            if name.endswith((".py", *LIBRARIES)) or "/" in name or "\\" in name:
                # The whole path: other processes and folders load it again by that.
                path = Path(name).resolve()
                how = _from_library if path.suffix in LIBRARIES else _from_file
                _once(str(path), Plugin(name, str(path)), how)
            else:
                _once(name, Plugin(name, name), _imported)
    return loaded()


def _once(key: str, plugin: Plugin, how: Callable[[Plugin], None]) -> None:
    if key in _LOADED:
        return
    where = f"plugin '{plugin.name}'" + (f" of the package {plugin.package}" if plugin.package else "")
    try:
        how(plugin)
    except NpucError as error:
        raise PluginError(f"{error.message}{_line(error, plugin)}", where=where, fix=error.fix) from error
    except (Exception, SystemExit) as error:
        fix = (
            f"Mend it, or leave it out: pip uninstall {plugin.package}"
            if plugin.package
            else "Mend it, or leave it out"
        )
        raise PluginError(f"it cannot be loaded: {_words(error, plugin)}", where=where, fix=fix) from error
    _LOADED[key] = plugin
    _LOG.info("loaded the plugin %s", plugin.name)


def _imported(plugin: Plugin) -> None:
    """A module; `module:function` is called."""
    name, _, attribute = plugin.source.partition(":")
    MODULES[name] = plugin.name
    try:
        loaded: Any = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise  # a module that the plugin itself wants
        raise PluginError(
            f"there is no module '{name}'",
            fix="Give the path of a .py file, or the name of a module that is installed here",
        ) from error
    for part in attribute.split(".") if attribute else ():
        loaded = getattr(loaded, part)
    if attribute:
        loaded()


def _existing(plugin: Plugin) -> Path:
    path = Path(plugin.source)
    if not path.is_file():
        raise PluginError(
            f"there is no file '{plugin.name}'", fix="Check the spelling and the working directory"
        )
    return path


def _from_library(plugin: Plugin) -> None:
    """A shared library of operators and kernels in C or C++."""
    from npuc.plugins.libraries import register_library

    register_library(_existing(plugin))


def _from_file(plugin: Plugin) -> None:
    path = _existing(plugin)
    # A name of its own, the same every time: formats name their functions by it.
    name = f"npuc_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError(
            f"'{path}' is neither a Python file nor a shared library",
            fix="Plugins are files whose name ends in .py or .so; docs/plugins.md says how C is built",
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    MODULES[name] = plugin.name
    try:
        with _names_for(path):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _names_for(path: Path) -> AbstractContextManager[None]:
    """What a file finds while it is loaded: `caffe`, if it has layers that were written for Caffe."""
    if b"import caffe" not in path.read_bytes():
        return nullcontext()
    from npuc.frontend.caffe.python_layers import caffe_module

    return caffe_module()


def _words(error: BaseException, plugin: Plugin) -> str:
    """What went wrong, and the line of the plugin where it did."""
    text = " ".join(str(error).split()) or "no reason is given"
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {text}"
    return f"{type(error).__name__}: {text}{_line(error, plugin)}"


def _line(error: BaseException, plugin: Plugin) -> str:
    """The last line of the plugin itself on the way to an error."""
    frames = traceback.extract_tb(error.__traceback__)
    stem = (
        plugin.source.partition(":")[0].replace(".", "/")
        if not plugin.source.endswith(".py")
        else plugin.source
    )
    own = [
        frame
        for frame in frames
        if Path(stem).stem in Path(frame.filename).stem and "importlib" not in frame.filename
    ]
    return f" (line {own[-1].lineno} of {Path(own[-1].filename).name})" if own else ""
