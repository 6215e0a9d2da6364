"""What this machine has of what npuc can use, what is missing, and how to get it."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

import npuc
from npuc import native
from npuc.errors import NativeLibraryError
from npuc.plugins import discover


@dataclass(frozen=True)
class CheckResult:
    """One thing that was looked for."""

    name: str
    found: str
    """Its version or size; empty if it is missing."""
    needed: bool
    use: str
    """What it is for."""
    fix: str = ""
    """How to get it, if it is missing."""

    @property
    def status(self) -> str:
        """ok, missing (npuc needs it) or absent (something optional does)."""
        return "ok" if self.found else "missing" if self.needed else "absent"


_PACKAGES = (
    ("xdsl", "the IR"),
    ("onnx", "the ONNX importer and exporter"),
    ("onnxruntime", "the float engine"),
    ("numpy", "tensors"),
    ("ml_dtypes", "bfloat16, float8 and int4"),
    ("safetensors", "weight files"),
    ("pydantic", "preprocessing and targets"),
    ("typer", "the command line"),
    ("rich", "progress bars"),
    ("pillow", "images as inputs"),
    ("pyyaml", "target files"),
)

_EXTRAS = (
    ("torch", "torch", "PyTorch models, the torch engine"),
    ("h5py", "keras", "Keras models"),
    ("tensorflow", "tensorflow", "checking imports from Keras and TensorFlow"),
    ("opencv-python-headless", "opencv", "checking imports from Caffe and Darknet"),
    ("cryptography", "sign", "signed programs"),
    ("distributed", "cluster", "evaluation on a Dask cluster"),
    ("scikit-learn", "train", "training the demo model again"),
    ("pytest", "test", "the test suite"),
    ("hypothesis", "test", "the property tests"),
    ("onnxslim", "bench", "the import benchmark's peer"),
    ("ruff", "lint", "checking and formatting the sources"),
    ("mypy", "lint", "checking the types"),
)

_PROGRAMS = (
    ("dot", "drawings of networks ('npuc show --graph')", "apt install graphviz"),
    ("gcc", "building the native core from source", "apt install gcc"),
    ("cmake", "building the native core from source", "pip install cmake"),
)


def examine() -> list[CheckResult]:
    """Look at everything, in the order in which it is printed."""
    return [*_machine(), *_packages(), *_programs(), *_plugins()]


def _machine() -> Iterator[CheckResult]:
    yield CheckResult("python", platform.python_version(), True, "everything")
    yield CheckResult("npuc", npuc.__version__, True, "everything")
    try:
        yield CheckResult(
            "native core", f"{native.version()}, ABI {native.ABI_VERSION}", True, "the integer engine"
        )
    except NativeLibraryError as error:
        yield CheckResult("native core", "", True, "the integer engine", error.paragraph())
    yield CheckResult("system", f"{platform.system()} {platform.machine()}", False, "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield CheckResult("processor cores", str(cores), False, "")
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        yield CheckResult("memory", f"{total / 2**30:.1f} GiB", False, "")
    except (ValueError, OSError):
        pass


def _packages() -> Iterator[CheckResult]:
    for name, use in _PACKAGES:
        yield CheckResult(name, _version(name), True, use, "pip install --force-reinstall npuc")
    for name, extra, use in _EXTRAS:
        yield CheckResult(name, _version(name), False, use, f"pip install 'npuc[{extra}]'")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _programs() -> Iterator[CheckResult]:
    for name, use, fix in _PROGRAMS:
        yield CheckResult(name, shutil.which(name) or "", False, use, fix)


def _plugins() -> Iterator[CheckResult]:
    for plugin in discover():
        yield CheckResult(
            f"plugin {plugin.name}", plugin.source, False, f"whatever {plugin.package or 'it'} adds"
        )
