"""The originals of imports from Caffe and Darknet, run by OpenCV's dnn module where that is installed.

Neither framework is maintained; OpenCV reads the same files with its own reader. It gets the bytes of the files or, for a
network that was imported with random weights, the same random weights. Only the input size is changed, and detection heads
are set to keep all boxes.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import OriginalError
from npuc.frontend.caffe import importer as caffe
from npuc.frontend.caffe.reader import read as read_caffe
from npuc.frontend.caffe.text import written
from npuc.frontend.caffe.wire import encode_model
from npuc.frontend.darknet import importer as darknet
from npuc.frontend.darknet.reader import HEADS, INPUT
from npuc.frontend.darknet.reader import read as read_darknet
from npuc.frontend.darknet.weights import encode
from npuc.frontend.options import ImportOptions
from npuc.frontend.ports import input_constant
from npuc.frontend.sniff import describe_content
from npuc.ir import Graph, dtype_of, is_static, result_names, shape_of


def _bytes(data: bytes) -> Array:
    """The content of a file in the form that OpenCV expects; it would take a string for a file name."""
    return np.frombuffer(data, np.uint8)


class _OpenCvOriginal:
    """A network read by OpenCV; a tensor is identified by its layer and the index among the layer's outputs."""

    runtime = "OpenCV"
    mixed = 0

    def __init__(
        self,
        path: Path,
        graph: Graph,
        input_types: Mapping[str, Any],
        options: ImportOptions,
        threads: int | None = None,
    ) -> None:
        """`input_types` are the types of the inputs at import, before preprocessing was fused into the graph."""
        self._path = path
        try:
            self._cv2 = importlib.import_module("cv2")
        except ImportError as error:
            raise OriginalError(
                "OpenCV, which would run the original, is not installed (pip install 'npuc[opencv]')"
            ) from error
        if threads:
            self._cv2.setNumThreads(threads)
        # OpenCV also raises its messages as exceptions.
        self._cv2.utils.logging.setLogLevel(self._cv2.utils.logging.LOG_LEVEL_SILENT)
        self._constants: dict[str, Array] = {}
        self.random: set[str] = set()
        """No layer that is imported is random."""
        try:
            self._net, places, inputs = self._read(options, input_types)
        except (self._cv2.error, ValueError, TypeError) as error:
            raise self._failed("read", error) from error
        if any(name not in inputs for name in input_types):
            raise OriginalError(
                "OpenCV runs networks from their inputs, and the import begins after them", where=str(path)
            )
        self._net.enableFusion(False)
        self._net.enableWinograd(False)
        known = set(self._net.getLayerNames())
        self._places = {name: place for name, place in places.items() if place[0] in known}
        self._shapes = {
            name: shape_of(value)
            for op in graph.ops
            for name, value in zip(result_names(op), op.results, strict=True)
            if is_static(value)
        }
        self._shapes.update(
            {port.name: shape_of(port.value) for port in graph.outputs if is_static(port.value)}
        )
        strange = [port.name for port in graph.outputs if port.name not in self._places]
        if strange:
            raise OriginalError(f"OpenCV has no layer for the output '{strange[0]}'", where=str(path))
        surviving = set(graph.tensor_names())
        self.comparable = [name for name in self._places if name in surviving]
        """The tensors of the original that the graph has too, in order."""

    def _read(
        self, options: ImportOptions, types: Mapping[str, Any]
    ) -> tuple[Any, dict[str, tuple[str, int]], list[str]]:
        raise NotImplementedError

    def _failed(self, what: str, error: Exception) -> OriginalError:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return OriginalError(
            f"OpenCV cannot {what} it: {lines[0] if lines else type(error).__name__}", where=str(self._path)
        )

    def run(self, inputs: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
        """The values of some of its outputs and comparable tensors."""
        layers = list(dict.fromkeys(self._places[name][0] for name in names))
        try:
            for name, array in {**self._constants, **inputs}.items():
                self._net.setInput(np.ascontiguousarray(array, np.float32), name)
            blobs = dict(zip(layers, self._net.forwardAndRetrieve(layers), strict=True))
        except (self._cv2.error, ValueError) as error:
            raise self._failed("run", error) from error
        result = {}
        for name in names:
            layer, place = self._places[name]
            array = np.array(blobs[layer][place])
            shape = self._shapes.get(name)
            # OpenCV drops axes of size 1 in some layers.
            same = shape is not None and array.size == np.prod(shape, dtype=np.int64)
            result[name] = array.reshape(shape) if shape is not None and same else array
        return result


class CaffeOriginal(_OpenCvOriginal):
    """A `.prototxt` with its `.caffemodel`."""

    def _read(
        self, options: ImportOptions, types: Mapping[str, Any]
    ) -> tuple[Any, dict[str, tuple[str, int]], list[str]]:
        source = read_caffe(self._path, options)
        is_text = describe_content(self._path).kind == "caffe"
        text = self._path.read_bytes() if is_text else written(source.net, ("blobs",)).encode()
        if source.blobs.file is None:
            caffe.imported(source, options)
            weights = encode_model(
                {layer: [blobs[i] for i in sorted(blobs)] for layer, blobs in source.blobs.arrays.items()}
            )
        else:
            weights = source.blobs.file.read_bytes()
        for name, value in options.constants.items():
            shape = options.input_shapes.get(name) or source.network.inputs[name]
            self._constants[name] = input_constant(name, value, shape, dtype_of("f32"))
        net = self._cv2.dnn.readNetFromCaffe(_bytes(text), _bytes(weights))
        known = set(net.getLayerNames())
        # OpenCV names some layers after their output blob.
        places = {
            name: (maker.layer if maker.layer in known else maker.blob, maker.place)
            for name, maker in source.makers.items()
        }
        aliases = {a: places[name] for a, name in source.network.aliases.items() if name in places}
        return net, {**aliases, **places}, list(source.network.inputs)


_ACTIVATIONS = frozenset({"relu", "leaky", "mish", "swish", "logistic", "tanh", "relu6", "hardswish"})


class DarknetOriginal(_OpenCvOriginal):
    """A `.cfg` with its `.weights`."""

    def _read(
        self, options: ImportOptions, types: Mapping[str, Any]
    ) -> tuple[Any, dict[str, tuple[str, int]], list[str]]:
        source = read_darknet(self._path, options)
        if source.weights.path is None:
            full_import = ImportOptions(
                input_shapes={name: shape_of(kind) for name, kind in types.items() if name == INPUT}
            )
            darknet.imported(source, full_import)
            weights = encode(source.weights.taken.values())
        else:
            weights = source.weights.path.read_bytes()
        text = self._path.read_text(errors="replace")
        heads = "|".join(sorted(HEADS))
        text = re.sub(r"(?m)^[ \t]*(thresh|nms_threshold)\s*=.*$", "", text)
        text = re.sub(rf"(?im)^[ \t]*\[({heads})\]", r"[\1]\nthresh=0\nnms_threshold=0", text)
        if INPUT in types and len(shape_of(types[INPUT])) == 4:
            _, _, height, width = shape_of(types[INPUT])
            text = re.sub(r"(?m)^[ \t]*(width|height)\s*=.*$", "", text)
            text = re.sub(
                r"(?im)^[ \t]*\[(net|network)\]", rf"[net]\nwidth={width}\nheight={height}", text, count=1
            )
        regions = [layer.outputs[0] for layer in source.network.layers if layer.kind == "region"]
        if any(name in options.outputs for name in regions):
            raise OriginalError(
                "OpenCV drops boxes of a [region] that overlap, and cannot be told not to; without that head in --outputs, "
                "what goes into it is compared",
                where=str(self._path),
            )
        net = self._cv2.dnn.readNetFromDarknet(_bytes(text.encode()), _bytes(weights))
        last: dict[int, str] = {}
        for name in net.getLayerNames():
            kind, _, number = name.rpartition("_")
            if number.isdigit():
                # An activation bears the number of the layer after its own.
                last[int(number) - (kind in _ACTIVATIONS)] = name
        places = {
            layer.outputs[0]: (last[index], 0)
            for layer in source.network.layers
            if (index := int(layer.name.partition("_")[0])) in last
        }
        return net, places, [INPUT]
