"""A model under evaluation: any file of the pipeline, opened, with the way from a sample to its inputs.

Images become inputs by what the options say, by what the model says, or, for a model that says nothing, by what another
model of the run says about an input of that size; without any of these pixels go in as they are. Every model runs on one
thread: parallel work is done by processes, so that results do not depend on how many there are. A model with states runs a
sample as a sequence, a chunk at a time, from states of zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.items import Reader
from npuc.calib.raw import RawFormat, is_raw
from npuc.calib.samples import batch_size, chunk_size
from npuc.datasets.geometry import ImageView
from npuc.datasets.sample import LoadedSample
from npuc.errors import EvaluationDataError
from npuc.files import existing_model
from npuc.flow import load_model
from npuc.frontend.options import ImportOptions
from npuc.frontend.sniff import describe_content
from npuc.images.loading import guess_preprocess, image_size, image_tensor, load_image
from npuc.images.preprocess import Preprocess
from npuc.ir import Graph, Port, dtype_of, shape_of
from npuc.ir.states import data_inputs, initial_states
from npuc.quant.report import is_integer
from npuc.runtime.states import StreamStates
from npuc.transform.claim_custom_ops import claimed
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.program.model import CompiledModel

Run = Callable[[Mapping[str, Array]], dict[str, Array]]


@dataclass(frozen=True)
class ModelFile:
    """A model as it is asked for."""

    path: Path
    options: ImportOptions = field(default_factory=ImportOptions)
    device: str = "simulated"
    """What runs it if it is compiled."""
    entry: str = ""
    """Of a program with several entries, the one to take; the first unless it is named."""
    torch_device: str = "cpu"
    """What computes it if it is a float network: `cpu`, `cuda` or `cuda:N`."""


@dataclass
class Subject:
    """A model that is open."""

    file: ModelFile
    kind: str
    """float, integer or compiled."""
    graph: Graph
    """Of a compiled model the inputs only."""
    compiled: CompiledModel | None = None
    overrides: dict[str, Preprocess] = field(default_factory=dict)
    prepare: Callable[[Path], Any] | None = None
    """A recipe or a user's function, in place of preprocessing."""
    takes_any: bool = False
    raw: RawFormat | None = None
    """What raw files hold, if that was said."""

    def image_ports(self) -> dict[str, Port]:
        """The inputs that images may be for."""
        return {
            port.name: port
            for port in data_inputs(self.graph)
            if guess_preprocess(shape_of(port.value)) is not None
        }

    def stated(self, port: Port) -> Preprocess | None:
        """What the options or the model itself say about an input."""
        if port.name in self.overrides:
            return self.overrides[port.name]
        return Preprocess.from_dict(port.preprocess) if port.preprocess else None

    def reader(self) -> Reader:
        """What makes tensors of files, with the preprocessing that was settled on."""
        ports = [(port.name, port.type) for port in data_inputs(self.graph)]
        known = {
            port.name: preprocess.to_dict()
            for port in self.graph.inputs
            if (preprocess := self.stated(port)) is not None
        }
        return Reader(Graph.empty(ports, preprocess=known), self.prepare, self.takes_any, self.raw)

    def engine(self) -> SubjectEngine:
        """What runs a batch."""
        if self.compiled is not None:
            from npuc.runtime import Runner
            from npuc.runtime.engine import device_for

            # The simulator executes no programs of a chip; the chip's own device stands in for it.
            device = device_for(self.compiled) if self.file.device == "simulated" else self.file.device
            runner = Runner(self.compiled, device, workers=1, threads=1)
            return SubjectEngine(self.graph, lambda inputs: runner.run(dict(inputs)), runner.reset)
        from npuc.engine import IntegerEngine, computing_on, float_engine

        with computing_on(self.file.torch_device):
            engine = (IntegerEngine if self.kind == "integer" else float_engine)(self.graph, threads=1)
        states = StreamStates(self.graph.states, initial_states(self.graph))

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            outputs = engine.run(states.completed(inputs))
            states.keep(outputs)
            return outputs

        return SubjectEngine(self.graph, run if states else engine.run, states.reset)


@dataclass(frozen=True)
class SubjectEngine:
    """Runs the samples of a data set through one model."""

    graph: Graph
    run: Run
    """A batch, or a chunk of a sequence: states are carried from call to call."""
    reset: Callable[[], None]
    """Begins a new sequence."""

    def run_samples(
        self, samples: Sequence[Mapping[str, Array]], stream: bool = False
    ) -> list[dict[str, Array]]:
        """The outputs of each sample.

        A model without states joins the rows of samples to batches of the size that it has. One with states runs each sample
        as a sequence of its own, or with `stream` goes on where the sample before ended; metrics do not see its states.
        """
        if not self.graph.states:
            return run_samples(self.run, self.graph, samples)
        results = []
        for inputs in samples:
            if not stream:
                self.reset()
            outputs = self._sequence(inputs)
            others = {n: v for n, v in outputs.items() if n not in self.graph.states.values()}
            results.append(others or outputs)
        return results

    def _sequence(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The chunks of one sample, and their outputs joined."""
        size, rows = chunk_size(self.graph), max(map(len, inputs.values()), default=1)
        if size is None:
            shapes = {port.name: shape_of(port.value) for port in data_inputs(self.graph)}
            return _whole(self.run, shapes, inputs)
        if rows % size:
            raise EvaluationDataError(
                f"a sequence of {counted(rows, 'row')} is no whole number of the model's chunks of {size}"
            )
        results = [
            self.run({n: a[row : row + size] if len(a) > size else a for n, a in inputs.items()})
            for row in range(0, rows, size)
        ]
        return {
            name: np.concatenate([np.atleast_1d(outputs[name]) for outputs in results]) for name in results[0]
        }


def open_subject(file: ModelFile) -> Subject:
    """Open a model of any form."""
    path = existing_model(file.path)
    if describe_content(path).kind == "npu":
        from npuc.calib.compiled import interface_of
        from npuc.program.file import load_entries, named_entry

        entries = load_entries(path)
        compiled = named_entry(entries, file.entry if len(entries) > 1 else "", str(path))
        return Subject(file, "compiled", interface_of(compiled), compiled)
    graph = claimed(load_model(path, file.options))
    return Subject(file, "integer" if is_integer(graph) else "float", graph)


def settle_preprocessing(subjects: Sequence[Subject], given: Mapping[str, Any]) -> list[str]:
    """Give every image input its preprocessing; returns what the user should know.

    `given` are fields of `Preprocess` that the options state; they are for all models.
    """
    notes: list[str] = []
    if given:
        for subject in subjects:
            for name, port in subject.image_ports().items():
                subject.overrides[name] = _fitted(given, port)
        return notes
    for subject in subjects:
        for name, port in subject.image_ports().items():
            if subject.prepare is not None or subject.stated(port) is not None:
                continue
            lender = _lender(subjects, port)
            if lender is not None:
                other, preprocess = lender
                subject.overrides[name] = _fitted(preprocess.to_dict(), port)
                notes.append(f"{subject.file.path}: images are prepared as {other.file.path} says")
            else:
                notes.append(
                    f"{subject.file.path}: input '{name}' has no preprocessing attached: images are resized and passed as "
                    "pixels from 0 to 255 (--mean, --scale and their like say otherwise)"
                )
    return notes


def _lender(subjects: Sequence[Subject], port: Port) -> tuple[Subject, Preprocess] | None:
    """A model that says how an image becomes an input of that size and of floats."""
    for subject in subjects:
        for other in subject.image_ports().values():
            own = Preprocess.from_dict(other.preprocess) if other.preprocess else None
            if own is None or not dtype_of(other.type).is_float or not dtype_of(port.type).is_float:
                continue
            guess = guess_preprocess(shape_of(port.value))
            assert guess is not None
            if own.image_size(shape_of(other.value)) == guess.image_size(shape_of(port.value)):
                return subject, own
    return None


def _fitted(values: Mapping[str, Any], port: Port) -> Preprocess:
    """Preprocessing for an input: the layout is the input's own, and pixels stay pixels if it takes integers."""
    guess = guess_preprocess(shape_of(port.value))
    layout: dict[str, Any] = {} if guess is None else {"layout": guess.layout}
    if guess is not None and guess.pixel_format == "gray":
        layout["pixel_format"] = "gray"
    preprocess = Preprocess.from_dict(
        layout | {k: v for k, v in values.items() if k != "layout" or guess is None}
    )
    preprocess = preprocess if dtype_of(port.type).is_float else preprocess.geometry()
    preprocess.check(shape_of(port.value))
    return preprocess


class Feeding:
    """From what was read of a sample to the inputs of one model."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.reader = subject.reader()
        self.ports = self.reader.ports
        self.key = tuple(
            (port.name, shape_of(port.value), dtype_of(port.type).name, repr(port.preprocess))
            for port in self.ports.values()
        )
        """Models with the same key get the same inputs."""

    def inputs(self, loaded: LoadedSample, where: str) -> dict[str, Array]:
        """The tensors, each with its batch axis first."""
        if loaded.path is not None and (self.subject.prepare is not None or is_raw(loaded.path)):
            (item,) = self.reader.items(loaded.path, where)
            return dict(item.read().inputs)
        if loaded.tensors is not None:
            return self.reader.named(loaded.tensors, where)
        if loaded.sound is not None:
            return self.reader.named(self._fitted(loaded.sound, where), where)
        if self.subject.prepare is not None:
            raise EvaluationDataError(
                "a recipe or a function prepares files, and this data set holds pixels",
                where=where,
                fix="Say how to prepare images by --mean, --scale and their like",
            )
        port = self._port(where)
        shape, dtype = shape_of(port.value), dtype_of(port.type).numpy
        preprocess = self.preprocessing(port)
        if loaded.image is not None:
            tensor = image_tensor(loaded.image, preprocess, shape, dtype)
        else:
            assert loaded.path is not None, "a data set reads a file, an image, a sound or tensors"
            tensor = load_image(loaded.path, preprocess, shape, dtype)
        return {port.name: tensor if len(shape) == 4 else tensor[None]}

    def view(self, loaded: LoadedSample) -> ImageView | None:
        """How the image became the input; None if that is not known, or it was none."""
        if self.subject.prepare is not None or loaded.tensors is not None or loaded.sound is not None:
            return None
        if loaded.path is not None and is_raw(loaded.path):
            return None
        (port,) = self.ports.values()
        if loaded.image is not None:
            width, height = loaded.image.size
        else:
            assert loaded.path is not None
            height, width = image_size(loaded.path)
        return ImageView(height, width, shape_of(port.value), self.preprocessing(port))

    def _fitted(self, sound: Array, where: str) -> Array:
        shape = shape_of(self._port(where).value)
        length = int(np.prod(shape, dtype=np.int64))
        samples = np.zeros(length, np.float32)
        samples[: min(length, sound.size)] = sound[:length]
        return samples.reshape(shape)

    def _port(self, where: str) -> Port:
        if len(self.ports) != 1:
            raise EvaluationDataError(
                f"is one image, and the model has {counted(len(self.ports), 'input')}", where=where
            )
        (port,) = self.ports.values()
        return port

    def preprocessing(self, port: Port) -> Preprocess:
        """How an image becomes this input."""
        preprocess = (
            Preprocess.from_dict(port.preprocess)
            if port.preprocess
            else guess_preprocess(shape_of(port.value))
        )
        if preprocess is None:
            raise EvaluationDataError(
                f"input '{port.name}' of shape {list(shape_of(port.value))} does not take an image",
                where=str(self.subject.file.path),
            )
        return preprocess


def run_samples(run: Run, graph: Graph, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
    """The outputs of each sample, whose rows are joined to batches of the size that the model has."""
    size = batch_size(graph)
    shapes = {port.name: shape_of(port.value) for port in graph.inputs}
    if size is None:
        return [_whole(run, shapes, inputs) for inputs in samples]
    if size == 1:
        return [_by_row(run, inputs) for inputs in samples]
    counts = [max(map(len, inputs.values()), default=1) for inputs in samples]
    joined = {
        name: np.concatenate(
            [
                np.repeat(inputs[name], rows, axis=0) if len(inputs[name]) == 1 and rows > 1 else inputs[name]
                for inputs, rows in zip(samples, counts, strict=True)
            ]
        )
        for name in shapes
    }
    total = sum(counts)
    parts: dict[str, list[Array]] = {}
    for start in range(0, total, size):
        keep = min(size, total - start)
        batch = {name: array[start : start + size] for name, array in joined.items()}
        if keep < size:
            batch = {n: np.concatenate([a, np.repeat(a[-1:], size - keep, axis=0)]) for n, a in batch.items()}
        for name, value in run(batch).items():
            array = np.asarray(value)
            if not array.ndim or array.shape[0] != size:
                raise EvaluationDataError(
                    f"output '{name}' has shape {list(array.shape)}, without the batch of {size} that the inputs have",
                    fix="Evaluate with a batch of 1 (--input-shape)",
                )
            parts.setdefault(name, []).append(array[:keep])
    ends = np.cumsum([0, *counts])
    outputs = {name: np.concatenate(rows) for name, rows in parts.items()}
    return [
        {name: array[ends[k] : ends[k + 1]] for name, array in outputs.items()} for k in range(len(samples))
    ]


def _by_row(run: Run, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """A batch of one: each row by itself, so that outputs may have any shape; rows of a sample are joined."""
    rows = max(map(len, inputs.values()), default=1)
    results = [
        run({name: array[row : row + 1] if len(array) > 1 else array for name, array in inputs.items()})
        for row in range(rows)
    ]
    if rows == 1:
        return {name: np.asarray(value) for name, value in results[0].items()}
    return {name: np.concatenate([np.asarray(outputs[name]) for outputs in results]) for name in results[0]}


def _whole(run: Run, shapes: Mapping[str, tuple[int, ...]], inputs: Mapping[str, Array]) -> dict[str, Array]:
    """A model whose inputs share no batch axis: one run a sample."""
    feed = {}
    for name, shape in shapes.items():
        if inputs[name].size != int(np.prod(shape, dtype=np.int64)):
            raise EvaluationDataError(f"input '{name}' takes one run a sample, and has more in this one")
        feed[name] = inputs[name].reshape(shape)
    return {name: np.asarray(value) for name, value in run(feed).items()}
