"""Models as qubee takes them, files or objects of the frameworks, as networks of npuc."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from npuc.compat.qubee.notices import note, wrong
from npuc.errors import FileFormatError, NpucError, UnknownTensorError, UsageError
from npuc.files import existing_model
from npuc.flow import expanded, input_names, network_to_quantize
from npuc.frontend.options import ImportOptions
from npuc.frontend.sniff import describe_content
from npuc.ir import Graph

_BACKENDS = {
    "onnx": ("onnx",),
    "torchscript": ("torchscript", "torch-exported"),
    "torch": ("torchscript", "torch-exported"),
    "tf1": ("tensorflow", "keras", "tflite"),
    "tf2": ("tensorflow", "keras", "tflite"),
    "tf": ("tensorflow", "keras", "tflite"),
    "keras": ("keras", "tensorflow", "tflite"),
}
"""What files a backend reads."""
_FRAMEWORKS = {"onnx": "onnx", "torchscript": "torch", "torch": "torch"}
_UNNAMED = "temporary"

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ImportedModel:
    """A network, and what the user calls it."""

    graph: Graph
    nickname: str
    path: str
    """The file, as the user wrote it; for an object, a word that stands for it."""
    framework: str
    """`onnx`, `tf` or `torch`."""
    input_shapes: Mapping[str, Shape]
    folder: TemporaryDirectory[str] | None = None
    """Where an object was written to be read; its weights may still be there."""


def import_model(
    model: Any, backend: str = "onnx", input_shape: Any = None, example_input: Any = None
) -> ImportedModel:
    """The network of a file or of a model object."""
    if backend not in _BACKENDS:
        raise wrong("backend", backend, "onnx, torchscript, tf1 or tf2")
    if isinstance(model, str | Path):
        return _from_file(Path(model), backend, input_shape, example_input)
    if _is_of("torch", model, "nn", "Module"):
        return _from_torch(model, input_shape, example_input)
    folder = TemporaryDirectory(prefix="qubee-")
    if _is_of("onnx", model, "ModelProto"):
        path = Path(folder.name) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        imported = _from_file(path, "onnx", input_shape, example_input)
    elif any(_is_of(name, model, "Model") for name in ("keras", "tensorflow.keras")):
        path = Path(folder.name) / "model.keras"
        model.save(path)
        imported = _from_file(path, "keras", input_shape, example_input)
    else:
        raise UsageError(
            f"model is a {type(model).__name__}",
            fix="Give the path of a file, a torch.nn.Module, an onnx.ModelProto or a Keras model",
        )
    return ImportedModel(imported.graph, _UNNAMED, "MODEL", imported.framework, imported.input_shapes, folder)


def _is_of(package: str, model: Any, *names: str) -> bool:
    """Whether an object is of a class of a package, which is then imported already."""
    kind: Any = sys.modules.get(package)
    for name in names:
        kind = getattr(kind, name, None)
    return isinstance(kind, type) and isinstance(model, kind)


def _from_file(path: Path, backend: str, input_shape: Any, example_input: Any) -> ImportedModel:
    path = existing_model(_graph_file(path))
    content = describe_content(path)
    if content.kind not in _BACKENDS[backend]:
        fitting = next((name for name, kinds in _BACKENDS.items() if content.kind in kinds), None)
        raise FileFormatError(
            f"backend='{backend}' does not read it: it {content.words}",
            where=str(path),
            fix=f"Give backend='{fitting}'"
            if fitting
            else "Give an ONNX, TorchScript, TensorFlow or Keras model",
        )
    last = backend.startswith("tf") or backend == "keras"
    names = input_names(path)
    shapes = _example_shapes(example_input, names) or _shapes(input_shape, names, channels_last=last)
    try:
        graph = network_to_quantize(path, ImportOptions(input_shapes=shapes))
    except NpucError as error:
        odd = [list(shape) for shape in shapes.values() if len(shape) != 4]
        if input_shape is not None and odd:
            error.fix = f"input_shape={input_shape!r} gives an input of {odd[0]}; images are (height, width, channels)"
        raise
    for words in graph.notes:
        note(words)
    framework = _FRAMEWORKS.get(backend, "tf")
    return ImportedModel(graph, path.stem or _UNNAMED, str(path), framework, shapes)


def _graph_file(path: Path) -> Path:
    """The frozen graph in a folder that holds no SavedModel."""
    if path.is_dir() and not (path / "saved_model.pb").exists():
        graphs = sorted(path.glob("*.pb"))
        if len(graphs) == 1:
            return graphs[0]
    return path


def _from_torch(module: Any, input_shape: Any, example_input: Any) -> ImportedModel:
    import torch

    from npuc.integrations.torch.live import from_torch

    if example_input is None and input_shape is None:
        raise UsageError(
            "a PyTorch model has no shapes of its own",
            fix="Give input_shape=(height, width, channels), or example_input",
        )
    if example_input is not None:
        example = tuple(example_input) if isinstance(example_input, tuple | list) else (example_input,)
    else:
        listed = list(input_shape.values()) if isinstance(input_shape, Mapping) else [input_shape]
        example = tuple(torch.zeros(channels_first(shape)) for shape in listed)
    training = module.training
    graph = expanded(from_torch(module.eval(), example))
    module.train(training)
    shapes = {port.name: tuple(tensor.shape) for port, tensor in zip(graph.inputs, example, strict=False)}
    return ImportedModel(graph, _UNNAMED, "MODEL.pt", "torch", shapes)


def channels_first(shape: Any) -> Shape:
    """Height × width × channels as one image of channels × height × width; another rank gets a batch axis."""
    sides = _sides(shape)
    return (1, sides[2], sides[0], sides[1]) if len(sides) == 3 else (1, *sides)


def _sides(shape: Any) -> Shape:
    if not isinstance(shape, Sequence) or isinstance(shape, str) or not shape:
        raise wrong("input_shape", shape, "(height, width, channels), or a dictionary of such by input")
    if not all(isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in shape):
        raise wrong("input_shape", shape, "whole numbers above 0: (height, width, channels)")
    return tuple(shape)


def _shapes(input_shape: Any, names: Sequence[str], *, channels_last: bool) -> dict[str, Shape]:
    """Shapes by input, as the network has them."""
    if input_shape is None:
        return {}
    if isinstance(input_shape, Mapping):
        given = {_input_called(str(name), names): shape for name, shape in input_shape.items()}
    elif len(names) == 1:
        given = {names[0]: input_shape}
    else:
        raise UsageError(
            f"input_shape is one shape, and the model has {len(names)} inputs",
            fix=f"Give a dictionary with {', '.join(names)}",
        )
    return {
        name: (1, *_sides(shape)) if channels_last else channels_first(shape) for name, shape in given.items()
    }


def _input_called(name: str, names: Sequence[str]) -> str:
    """The input that a name stands for; names of TensorFlow may have a prefix and an index."""
    plain = name.removesuffix(":0")
    for own in names:
        if own in (name, plain) or own.removesuffix(":0") in (plain, f"serving_default_{plain}"):
            return own
    raise UnknownTensorError(
        f"input_shape names '{name}', which is not an input", fix=f"The inputs are {', '.join(names)}"
    )


def _example_shapes(example_input: Any, names: Sequence[str]) -> dict[str, Shape]:
    """The shapes of example inputs, in the order of the inputs."""
    if example_input is None:
        return {}
    tensors = example_input if isinstance(example_input, tuple | list) else (example_input,)
    if len(tensors) != len(names) or not all(hasattr(tensor, "shape") for tensor in tensors):
        raise UsageError(
            f"example_input has {len(tensors)} tensors, and the model has {len(names)} inputs",
            fix=f"Give a tensor for each of {', '.join(names)}",
        )
    return {name: tuple(map(int, tensor.shape)) for name, tensor in zip(names, tensors, strict=True)}
