"""ONNX Runtime sessions with the vendor's execution provider: npuc's own provider takes its place.

    import onnxruntime
    session = onnxruntime.InferenceSession(...)         # with the folder of 'npuc compat install vitis' on PYTHONPATH

    from onnxruntime_vitisai import InferenceSession    # anywhere
    session = InferenceSession("model.onnx", providers=["VitisAIExecutionProvider"],
                               provider_options=[{"config_file": "vaip_config.json", "cacheDir": "cache", "cacheKey": "model"}])

ONNX Runtime itself drops names of providers that it was not built with, so the class has to come from here: the installed folder
has an `onnxruntime` that is the one of this machine with this class in place of its own (`onnxruntime_build`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime

from npuc.compat.vitis.notices import unknown_option, without_effect
from npuc.compat.vitis.targets import B4096, resolve_target
from npuc.errors import FileFormatError, UsageError
from npuc.files import make_folder, read_short
from npuc.integrations import onnxruntime as provider

__all__ = ["InferenceSession"]

NAME = "VitisAIExecutionProvider"
_LARGEST_FILE = 1 << 20


def InferenceSession(
    path_or_bytes: Any,
    sess_options: Any = None,
    providers: Sequence[Any] | None = None,
    provider_options: Sequence[Mapping[str, Any]] | None = None,
    **kwargs: Any,
) -> Any:
    """A session; with the vendor's provider among `providers`, npuc compiles what its target can run."""
    names = [entry[0] if isinstance(entry, tuple) else entry for entry in providers or ()]
    if NAME not in names:
        return plain_session()(path_or_bytes, sess_options, providers, provider_options, **kwargs)
    others = [name for name in names if name not in (NAME, "CPUExecutionProvider")]
    if others:
        without_effect(
            f"the provider {others[0]}", "what npuc does not take runs in the CPUExecutionProvider"
        )
    if kwargs:
        raise UsageError(
            f"{', '.join(kwargs)} cannot be given beside {NAME}",
            fix="State them in SessionOptions, or leave them out",
        )
    place = names.index(NAME)
    stated = (providers or ())[place]
    if provider_options and len(provider_options) != len(names):
        raise UsageError(f"provider_options has {len(provider_options)} entries for {len(names)} providers")
    options = stated[1] if isinstance(stated, tuple) else (provider_options or [{}] * len(names))[place]
    return provider.session(path_or_bytes, translated(options), sess_options)


def plain_session() -> Any:
    """ONNX Runtime's own class."""
    return getattr(onnxruntime, "PlainInferenceSession", onnxruntime.InferenceSession)


def translated(options: Mapping[str, Any]) -> dict[str, str]:
    """Options of the vendor's provider as those of npuc's.

    >>> translated({"cacheDir": "/tmp/cache", "cacheKey": "net"})["cache_key"]
    'net'
    """
    own: dict[str, str] = {"target": _target(options.get("config_file"))}
    folder = options.get("cacheDir") or os.environ.get("XLNX_CACHE_DIR")
    if folder:
        own["cache_dir"] = str(make_folder(Path(str(folder))))
    if options.get("cacheKey"):
        own["cache_key"] = str(options["cacheKey"])
    if os.environ.get("XLNX_ENABLE_CACHE") == "0":
        own["cache"] = "off"
    for name in options.keys() - {"config_file", "cacheDir", "cacheKey"}:
        unknown_option(name, NAME)
    return own


def _target(path: Any) -> str:
    """The target that a configuration file names; the vendor's own file names none, and the B4096 is taken."""
    if path is None:
        return B4096
    if not isinstance(path, str | Path):
        raise UsageError(f"config_file is a {type(path).__name__}, and has to be a path")
    try:
        content = json.loads(read_short(path, _LARGEST_FILE, "vaip_config.json", FileFormatError))
    except ValueError as error:
        raise FileFormatError(f"is not JSON: {error}", where=str(path)) from error
    named = content.get("target") or content.get("fingerprint") if isinstance(content, dict) else None
    return resolve_target(named).name if isinstance(named, str) else B4096
