"""The formats that npuc imports, in one table, and who reads each.

Everything is named, not imported, so that a format costs nothing until a file of it comes along, and a framework that
is not installed is missed only by its own users.
"""

from __future__ import annotations

import importlib
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuc.errors import FileFormatError, InvalidModelError, NpucError, PluginError, UsageError
from npuc.files import existing_model
from npuc.frontend.sniff import RECOGNIZERS, Recognizer, describe_content
from npuc.plugin_code import fault_of
from npuc.registries import Registry

_LOG = logging.getLogger(__name__)

if TYPE_CHECKING:
    from npuc.frontend.options import ImportOptions
    from npuc.ir import DType, Graph


@dataclass(frozen=True)
class Format:
    """One format. The functions are named as `module:name`."""

    words: str
    """What a file of it is, as in 'an ONNX model'."""
    importer: str
    """`(path, options) -> Graph`."""
    declared: str
    """`(path, options) -> {input name: DType}`, as the file states them, without importing the network."""
    original: str = ""
    """For a plugin's format: the class that runs the original, with the interface of `Original` in `npuc.import_check.original`.
    Those of npuc's own formats are named there."""
    weights: bool = False
    """Whether weights may be in a file of their own, which --weights names."""
    layout: str = "nchw"
    """The order of the axes of an image, unless the user says otherwise."""


_OWN = {
    "onnx": Format(
        "an ONNX model",
        "npuc.frontend.onnx:import_onnx",
        "npuc.frontend.onnx.reader:declared_inputs",
    ),
    "tflite": Format(
        "a TensorFlow Lite model",
        "npuc.frontend.tflite:import_tflite",
        "npuc.frontend.tflite.reader:declared_inputs",
        layout="nhwc",
    ),
    "keras": Format(
        "a Keras model",
        "npuc.frontend.keras:import_keras",
        "npuc.frontend.keras.inputs:declared_inputs",
        weights=True,
        layout="nhwc",
    ),
    "tensorflow": Format(
        "a TensorFlow model",
        "npuc.frontend.tensorflow:import_tensorflow",
        "npuc.frontend.tensorflow.importer:declared_inputs",
        weights=True,
        layout="nhwc",
    ),
    "caffe": Format(
        "a Caffe network",
        "npuc.frontend.caffe:import_caffe",
        "npuc.frontend.caffe.reader:declared_inputs",
        weights=True,
    ),
    "caffemodel": Format(
        "a .caffemodel",
        "npuc.frontend.caffe:import_caffe",
        "npuc.frontend.caffe.reader:declared_inputs",
    ),
    "darknet": Format(
        "a Darknet network",
        "npuc.frontend.darknet:import_darknet",
        "npuc.frontend.darknet.reader:declared_inputs",
        weights=True,
    ),
    "compass": Format(
        "a network in Compass IR",
        "npuc.frontend.compass:import_compass",
        "npuc.frontend.compass.reader:declared_inputs",
        weights=True,
    ),
    "torch-exported": Format(
        "an exported program of PyTorch",
        "npuc.frontend.torch:import_exported",
        "npuc.frontend.torch:exported_inputs",
    ),
    "torchscript": Format(
        "a TorchScript program",
        "npuc.frontend.torch:import_torchscript",
        "npuc.frontend.torch:torchscript_inputs",
    ),
}
_RESERVED = ("mlir", "npu", "other")
"""Kinds of files that are no foreign models."""
FORMATS: Registry[str, Format] = Registry("a format", _OWN)
"""By the kind that `describe_content` tells."""


def add_format(kind: str, form: Format, recognises: Recognizer, *, replace: bool = False) -> None:
    """Register a format that a plugin reads; `recognises` tells a file of it by its path and first bytes."""
    if kind in _RESERVED:
        raise PluginError(f"there is a format '{kind}' already, of npuc", fix="Give yours a name of its own")
    FORMATS.add([kind], form, replace=replace)
    recognizer = (f"looks like {form.words}", recognises)
    RECOGNIZERS.add([kind], recognizer, replace=replace, module=FORMATS.owner(kind))


def foreign(path: Path | str) -> tuple[Path, Format]:
    """A foreign model that exists, and its format."""
    path = existing_model(path)
    content = describe_content(path)
    if content.kind not in FORMATS:
        raise FileFormatError(
            f"{content.words}; that is not a model that npuc imports", where=str(path), fix=content.fix
        )
    return path, FORMATS[content.kind]


def import_foreign(path: Path | str, options: ImportOptions) -> Graph:
    """Import a model of any format as it is, before any simplification."""
    path, form = foreign(path)
    if options.weights is not None and not form.weights:
        raise UsageError(
            f"--weights '{options.weights}': {form.words} has its weights inside",
            where=str(path),
            fix="Leave --weights out; it is for a Caffe .prototxt, a Darknet .cfg, a Keras model or a TensorFlow graph",
        )
    start = time.perf_counter()
    _LOG.info("%s: %s", path, form.words)
    of_plugin = form in [FORMATS.get(kind) for kind in RECOGNIZERS]
    try:
        graph: Graph = named(form.importer)(path, options)
        if of_plugin:
            graph = graph.copy()  # a plugin may keep what it returned, and what comes next works in place
    except InvalidModelError as error:
        if options.weights is not None:
            error.fix = error.fix or f"Check that '{options.weights}' has the weights of this very network"
        raise
    except Exception as error:
        if isinstance(error, NpucError) or not of_plugin:
            raise
        raise fault_of(error) or PluginError(
            f"the importer of {form.words} failed: {type(error).__name__}: {error}", where=str(path)
        ) from error
    count = sum(1 for _ in graph.ops)
    _LOG.info("imported %s: %d ops and weights, %.2f s", path, count, time.perf_counter() - start)
    return graph


def declared_inputs(path: Path | str, options: ImportOptions) -> dict[str, DType]:
    """The element types of a foreign model's inputs by name, as its file states them."""
    path, form = foreign(path)
    types: dict[str, DType] = named(form.declared)(path, options)
    return types


def named(place: str) -> Any:
    """What `module:name` stands for."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
