"""Converted networks, kept on disk: a program that starts again takes them from here instead of converting anew.

An entry is a compiled model whose metadata holds the report and the key of the conversion. The key is a hash of all that the
result depends on: the network with its weights, the samples, the target, the options, the code of npuc and the versions of the
packages that compute for it. A file is checked when it is read, as every compiled model is, and appears whole or not at all; what
is damaged or of another key is passed over, and a folder that cannot be written costs time only. Entries lie in `conversions` of
npuc's cache folder (`NPUC_CACHE`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from npuc import __version__, native
from npuc.arrays import Array
from npuc.errors import NpucError
from npuc.integrations.conversion import Conversion
from npuc.integrations.options import IntegrationOptions
from npuc.integrations.report import IntegrationReport
from npuc.program.file import load_compiled, save_compiled
from npuc.schedule.cache import Cache

_LOG = logging.getLogger(__name__)
_ENTRY = "conversion"
"""Where the metadata of an entry has what belongs to the cache."""
_PACKAGES = ("numpy", "onnxruntime", "torch")
"""Whose sums of floats are the ranges of a calibration."""
FROM_CACHE = "the program was converted by an earlier process and comes from the cache"


class ConversionKey:
    """A hash that grows: every part is added with its kind and length, so that no two sequences of parts are alike."""

    def __init__(self, integration: str, options: IntegrationOptions) -> None:
        self._hash = sha256()
        config = options.quantization()
        for text in (
            integration, npuc_code(), packages(), repr(options.target.to_dict()),
            "" if config is None else config.model_dump_json(), options.method, options.ladder,
            options.accuracy_drop, options.level, options.torch_device, options.threads,
        ):  # fmt: skip
            self.add(repr(text))

    def add(self, text: str) -> None:
        """A text."""
        data = text.encode()
        self._hash.update(b"text %d\n" % len(data) + data)

    def add_array(self, array: Array) -> None:
        """An array with its type and shape."""
        self.add(f"{array.dtype.str} {array.shape}")
        self._hash.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def add_samples(self, samples: Iterable[Mapping[str, Array]]) -> None:
        """Calibration data."""
        for number, sample in enumerate(samples):
            self.add(f"sample {number}")
            for name, array in sample.items():
                self.add(name)
                self.add_array(array)

    @property
    def text(self) -> str:
        """The key as a name of a file."""
        return self._hash.hexdigest()


@dataclass(frozen=True)
class CachedConversion:
    """What an entry has."""

    conversion: Conversion
    inputs: dict[str, str]
    """Of the framework's arguments, the inputs of the program."""


class ConversionCache:
    """The entries in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @staticmethod
    def default() -> ConversionCache | None:
        """In the user's cache folder; None where that is off, or where plugins may change what a conversion gives."""
        from npuc.plugins.loading import loaded

        own = Cache.default()
        return None if own is None or loaded() else ConversionCache(own.folder / "conversions")

    def read(self, key: str, name: str) -> CachedConversion | None:
        """The conversion of a key, as a model of this name."""
        path = self._path(key)
        if not path.is_file():
            return None
        try:
            model = load_compiled(path)
            metadata = dict(model.metadata)
            entry = metadata.pop(_ENTRY)
            if entry["key"] != key:
                raise ValueError("it is of another key")
            report = IntegrationReport.from_json(entry["report"])
            inputs = {str(argument): str(port) for argument, port in entry["inputs"].items()}
            if not set(inputs.values()) <= set(model.inputs):
                raise ValueError("it names inputs that the program has not")
        except (NpucError, KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            _LOG.warning("the entry %s of the cache is passed over: %s", path, error)
            return None
        report = replace(report, notes=(*report.notes, FROM_CACHE))
        return CachedConversion(Conversion(replace(model, name=name, metadata=metadata), report), inputs)

    def write(self, key: str, conversion: Conversion, inputs: Mapping[str, str]) -> None:
        """Keep a conversion."""
        entry = {"key": key, "report": conversion.report.as_json(), "inputs": dict(inputs)}
        model = replace(conversion.model, metadata={**conversion.model.metadata, _ENTRY: entry})
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_compiled(model, path)
        except (NpucError, OSError) as error:
            _LOG.warning("the cache cannot be written, the network is converted again next time: %s", error)

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.npu"


@cache
def npuc_code() -> str:
    """A hash of npuc: another version, or other sources of one, may convert otherwise."""
    code_hash = sha256(__version__.encode())
    package = Path(native.__file__).parent
    for path in sorted(package.rglob("*.py")):
        code_hash.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    code_hash.update(native.find().read_bytes())
    return code_hash.hexdigest()


@cache
def packages() -> tuple[str, ...]:
    """The packages that compute for npuc, with their versions; one that is not there has none."""

    def installed(name: str) -> str:
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            return name

    return tuple(map(installed, _PACKAGES))


def plain(value: Any) -> str:
    """A value as a text that says all of it, in tuples, lists and dictionaries; `TypeError` for one that has no such text.

    >>> plain((1, [2.5, None], {"a": "b"}))
    "(1, [2.5, None], {'a': 'b'})"
    """
    if value is None or value is ... or type(value) in (bool, int, float, complex, str, bytes):
        return repr(value)
    if type(value) in (tuple, list):
        inner = ", ".join(map(plain, value))
        return f"({inner})" if type(value) is tuple else f"[{inner}]"
    if type(value) is dict:
        return "{" + ", ".join(f"{plain(key)}: {plain(each)}" for key, each in value.items()) + "}"
    if type(value) is slice:
        return f"slice({plain(value.start)}, {plain(value.stop)}, {plain(value.step)})"
    raise TypeError(f"a {type(value).__name__} has no text of its own")
