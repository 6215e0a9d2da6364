"""The shared TensorFlow Lite models against LiteRT's reference kernels, on real inputs: for the tests and the counts.

Images are photographs of the shared data, resized; what listens to sound gets noise with the shape of a spectrogram.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import tflite
from PIL import Image

from npuc.arrays import Array
from npuc.engine import FloatEngine, IntegerEngine
from npuc.export.tflite.model import TYPES, TFLiteModel, TFLiteOperator, TFLiteTensor, serialize
from npuc.flow import Quantized, import_model, quantize_network
from npuc.frontend.tflite.reader import read
from npuc.ir import dtype_of, shape_of

INTEGER = (
    "ad_int8", "hello_world_int8", "kws_int8", "micro_speech_int8", "mobilenet_v1_025_128_uint8", "mobilenet_v2_224_ptq",
    "resnet8_int8", "vww_int8",
)  # fmt: skip
FLOAT = (
    "ad_float", "kws_float", "mediapipe_face_short_f16", "mediapipe_palm_lite_f16", "resnet8_float", "vww_float",
)  # fmt: skip


def images(shared: Path, shape: tuple[int, ...], count: int) -> Iterator[Array]:
    """Photographs as pixels of 0..255: small ones for a small network."""
    folder = "cifar10" if shape[1] <= 32 else "imagenet"
    for path in sorted((shared / "data" / folder / "val").iterdir())[:count]:
        with Image.open(path) as image:
            pixels = image.convert("RGB").resize((shape[2], shape[1]), Image.Resampling.BILINEAR)
            yield np.asarray(pixels, np.float32)[None]


def spectrograms(shape: tuple[int, ...], count: int) -> Iterator[Array]:
    """Smooth noise in frames and bands, between -1 and 1."""
    rng = np.random.default_rng(0)
    size = int(np.prod(shape))
    for _ in range(count):
        walk = np.cumsum(rng.standard_normal(size))
        tone = np.sin(np.arange(size) * rng.uniform(0.01, 0.5)) * rng.uniform(0, 2)
        values = walk / np.abs(walk).max() + tone + 0.3 * rng.standard_normal(size)
        yield (values / np.abs(values).max()).reshape(shape).astype(np.float32)


def samples(shared: Path, path: Path, count: int) -> Iterator[Array]:
    """Inputs of a model, in its own type and quantization."""
    model = read(path)
    tensor = model.main.tensors[model.main.inputs[0]]
    image = len(tensor.shape) == 4 and tensor.shape[3] == 3
    given = tensor.quantization if tensor.is_quantized else None
    for reals in images(shared, tensor.shape, count) if image else spectrograms(tensor.shape, count):
        if given is None:
            # MLPerf Tiny's ResNet takes pixels as they are, the others scaled ones.
            yield reals if not image or "resnet8" in path.name else reals / np.float32(255)
        elif image:
            yield (reals - (128 if tensor.dtype.name == "i8" else 0)).astype(tensor.dtype.numpy)
        else:
            least, most = tensor.dtype.limits
            steps = np.round(reals * 110) + (least + most + 1) // 2
            yield np.clip(steps, least, most).astype(tensor.dtype.numpy)


class LiteRt:
    """A model in LiteRT's reference kernels."""

    def __init__(self, model: Path | bytes) -> None:
        runtime = import_module("ai_edge_litert.interpreter")
        source = {"model_path": str(model)} if isinstance(model, Path) else {"model_content": model}
        self._interpreter = runtime.Interpreter(
            **source, experimental_op_resolver_type=runtime.OpResolverType.BUILTIN_REF, num_threads=1
        )
        self._interpreter.allocate_tensors()

    def run(self, x: Array) -> list[Array]:
        """The outputs, in the order of the file."""
        self._interpreter.set_tensor(self._interpreter.get_input_details()[0]["index"], x)
        self._interpreter.invoke()
        return [self._interpreter.get_tensor(o["index"]) for o in self._interpreter.get_output_details()]


@dataclass
class Judged:
    """One model; `equal` of `compared` outputs have LiteRT's bits, the worst has `cosine`."""

    path: Path
    compared: int = 0
    equal: int = 0
    inputs: int = 0
    cosine: float = 1.0

    @property
    def operators(self) -> int:
        """How many operators the file has."""
        return len(read(self.path).main.operators)

    @cached_property
    def integer(self) -> Quantized:
        """The integer network."""
        return quantize_network(import_model(self.path))

    def run(self, shared: Path, count: int, judge: bytes | None = None) -> Judged:
        """Compare on `count` inputs; a `judge` is run in place of the file."""
        graph = import_model(self.path)
        engine: Any = IntegerEngine(self.integer.graph) if graph.arithmetic else FloatEngine(graph, threads=1)
        original = LiteRt(judge or self.path)
        (port,) = graph.inputs
        for x in samples(shared, self.path, count):
            assert x.shape == shape_of(port.value) and x.dtype == dtype_of(port.type).numpy
            self.inputs += 1
            for actual, expected in zip(engine.run({port.name: x}).values(), original.run(x), strict=True):
                assert actual.shape == expected.shape and actual.dtype == expected.dtype
                self.compared += 1
                self.equal += bool(np.array_equal(actual, expected))
                self.cosine = min(self.cosine, _cosine(actual, expected))
        return self


def _cosine(a: Array, b: Array) -> float:
    a, b = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
    norm = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / norm if norm else 1.0


def float_twin(path: Path) -> bytes:
    """A model whose weights alone are integers, with those weights as float: what its file says, and no more."""
    model = read(path)
    twins = []
    for t in model.main.tensors:
        data = None if t.weight is None else t.weight.array()
        given = t.quantization
        if data is not None and given is not None and data.dtype == np.int8:
            spread = [-1 if i == given.axis else 1 for i in range(data.ndim)] if not given.per_tensor else []
            data = data.astype(np.float32) * given.scale.reshape(spread)
        name = t.dtype.name if data is None else dtype_of(data.dtype).name
        assert name in TYPES
        twins.append(TFLiteTensor(t.name, t.shape, name, None, data))
    operators = []
    for op in model.main.operators:
        number = op.view.number("BuiltinOptionsType")
        table = next((k for k, n in vars(tflite.BuiltinOptions).items() if n == number and number), "")
        view = op.options(table) if table else None
        fields: dict[str, Any] = {}
        for entry in vars(import_module(f"tflite.{table}")) if table else ():
            if view is not None and entry.startswith(f"{table}Add"):
                key = entry.removeprefix(f"{table}Add")
                several = hasattr(getattr(import_module(f"tflite.{table}"), table), f"{key}AsNumpy")
                fields[key] = view.integers(key) if several else view.number(key)
        inputs = [twins[i] if i >= 0 else None for i in op.inputs]
        operators.append(TFLiteOperator(op.name, 1, inputs, [twins[i] for i in op.outputs], table, fields))
    inputs, outputs = model.port_names
    return bytes(
        serialize(
            TFLiteModel(
                twins,
                operators,
                dict(zip(inputs, (twins[i] for i in model.main.inputs), strict=True)),
                dict(zip(outputs, (twins[i] for i in model.main.outputs), strict=True)),
            )
        )
    )
