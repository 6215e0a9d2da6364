"""npuc as an execution provider of ONNX Runtime: models run in ORT's own sessions, on the NPU as far as it can.

    import onnxruntime
    from npuc.integrations import onnxruntime as npuc_ort

    session = npuc_ort.session("model.onnx", {"target": "edge-4t", "calibration": "samples.npz"})
    outputs = session.run(None, {"input": x})
    print(npuc_ort.report(session))

`register` makes the provider known to ORT, after which its own calls work, too: `get_ep_devices`, `add_provider_for_devices`.
docs/onnxruntime.md has the options, the cache, compiled models and the use from C++.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Mapping
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, finalize

from npuc import native
from npuc.errors import FileMissingError, MissingExtraError, NativeLibraryError, UsageError
from npuc.integrations.report import IntegrationReport

__all__ = ["PROVIDER", "library_path", "register", "report", "session", "unregister"]

PROVIDER = "NpucExecutionProvider"
"""The name of the provider, as sessions list it."""
REGISTRATION = "npuc"
"""The name under which the library is registered."""
_LEAST = (1, 23, 1)
"""1.23.0 wants copy kernels of a plugin for every node that stays with the CPU, and has no way to get them."""
_LOCK = threading.Lock()
_REPORTS: WeakKeyDictionary[Any, Path] = WeakKeyDictionary()
_NUMBERS = count()
_KEPT: list[Any] = []
"""What the library holds a pointer to, for as long as the process lives."""


def library_path() -> Path:
    """The plugin library, for `onnxruntime.register_execution_provider_library` and for programs in C and C++."""
    path = native.find().with_name("libnpuc_ort.so").absolute()
    if not path.is_file():
        raise NativeLibraryError(
            f"{path.name} is not in the installed package; looked at {path}",
            fix="Install npuc again; the execution provider is there on Linux",
        )
    return path


def _runtime() -> Any:
    """The package onnxruntime, of a release that has plugins."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError(
            "the execution provider runs inside of ONNX Runtime, and onnxruntime is not installed",
            fix="Install it with: pip install 'npuc[ort-provider]'",
        ) from error
    version = tuple(int(part) for part in re.findall(r"\d+", onnxruntime.__version__)[:3])
    if version < _LEAST:
        raise MissingExtraError(
            f"execution providers in libraries of their own need ONNX Runtime 1.23.1, and this is {onnxruntime.__version__}",
            fix="Install it with: pip install 'npuc[ort-provider]'",
        )
    return onnxruntime


def register() -> str:
    """Make the provider known to ONNX Runtime, and npuc its compiler in this process; the name of the provider.

    >>> register()
    'NpucExecutionProvider'
    """
    runtime = _runtime()
    with _LOCK:
        path = library_path()
        if not any(device.ep_name == PROVIDER for device in runtime.get_ep_devices()):
            runtime.register_execution_provider_library(REGISTRATION, str(path))
        if not _KEPT:
            _KEPT.append(_set_compiler(path))
    return PROVIDER


def _set_compiler(path: Path) -> Any:
    """Let the library call npuc in this process instead of starting the command."""
    prototype = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t
    )

    def compile_folder(folder: bytes, why: Any, room: int) -> int:
        from npuc.integrations.onnxruntime.compile_request import run_request

        def tell(text: str) -> None:
            words = text.encode()[: room - 1] + b"\0"
            ctypes.memmove(why, words, len(words))

        return run_request(folder.decode(), tell)

    function = prototype(compile_folder)
    setter = ctypes.CDLL(str(path)).npuc_ort_set_compiler
    setter.argtypes, setter.restype = [prototype], None
    setter(function)
    return function


def unregister() -> None:
    """Take the provider from ONNX Runtime; sessions that use it go on."""
    runtime = _runtime()
    with _LOCK:
        if any(device.ep_name == PROVIDER for device in runtime.get_ep_devices()):
            runtime.unregister_execution_provider_library(REGISTRATION)


def session(
    model: str | Path | bytes,
    options: Mapping[str, Any] | None = None,
    session_options: Any = None,
) -> Any:
    """An `onnxruntime.InferenceSession` with the provider, for a model file or its bytes.

    `options` are those of the provider (docs/onnxruntime.md), `session_options` ORT's own. A mistake in either is an error: ORT
    by itself would make a session without the provider.
    """
    runtime = _runtime()
    register()
    if not isinstance(model, bytes) and not Path(model).is_file():
        raise FileMissingError("there is no such model", where=str(model))
    texts = {name: str(value) for name, value in (options or {}).items()}
    own = None if "report" in texts else _report_folder(os.getpid()) / f"report{next(_NUMBERS)}.json"
    if own is not None:
        texts["report"] = str(own)
    settings = session_options or runtime.SessionOptions()
    device = next(device for device in runtime.get_ep_devices() if device.ep_name == PROVIDER)
    settings.add_provider_for_devices([device], texts)
    # Integer nodes that stay with the CPU saturate on processors without VNNI unless they are told not to.
    settings.add_session_config_entry("session.x64quantprecision", "1")
    try:
        inference_session = runtime.InferenceSession(
            model if isinstance(model, bytes) else str(model), settings, enable_fallback=0
        )
    except Exception:
        if own is not None:
            own.unlink(missing_ok=True)
        raise
    if own is not None:
        finalize(inference_session, own.unlink, missing_ok=True)
    _REPORTS[inference_session] = Path(texts["report"])
    return inference_session


@cache
def _report_folder(process: int) -> Path:
    """Where a process has the reports of its sessions. One folder for all: to remove one may take longer than a warm start."""
    folder = Path(tempfile.mkdtemp(prefix="npuc-report-"))

    def remove() -> None:
        # A forked child ends without those of its parent.
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def report(session: Any) -> IntegrationReport:
    """What of a session runs on the NPU, and why the rest does not.

    The session is one of `session`, or was made with the provider option `report`, which names the file to write it to.
    """
    if not hasattr(session, "get_provider_options"):
        raise UsageError(
            f"a report is that of a session, and {session!r} is none",
            fix="Make one with npuc.integrations.onnxruntime.session(model, options)",
        )
    path = _REPORTS.get(session)
    if path is None:
        stated = session.get_provider_options().get(PROVIDER, {}).get("report")
        path = None if stated is None else Path(stated)
    if path is None:
        raise UsageError(
            "nothing is known of this session",
            fix="Make it with npuc.integrations.onnxruntime.session, or give the provider option report",
        )
    if not path.is_file():
        raise UsageError(
            "there is no report: its file cannot be written, or the session has a compiled model, or nothing could be compiled",
            fix="The log of the session (SessionOptions.log_severity_level = 1) has the reason",
        )
    return IntegrationReport.from_json(json.loads(path.read_text(encoding="utf-8")))
