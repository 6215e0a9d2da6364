"""What the studio answers: questions about the files of a project, each with plain data.

The server and the exported file ask the same object, so that both show the same. What is expensive is kept for the files that
were looked at last, under their name, size and time of change: a file that is written again is read again. What answers a
question is imported when it is asked, so that the page is there before the compiler is.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from npuc.errors import FileMissingError, NpucError, UsageError
from npuc.frontend.onnx.reader import OnnxSource, read
from npuc.frontend.sniff import describe_content
from npuc.studio.graphs import StudioGraph
from npuc.studio.originals import graph_of_file, operands_of_file
from npuc.studio.project import Project

if TYPE_CHECKING:
    from npuc.arrays import Array
    from npuc.calib.sources import Source
    from npuc.calib.statistics import Statistics
    from npuc.debug.opening import Opened
    from npuc.ir import Graph
    from npuc.program.model import CompiledModel
    from npuc.sim.cycles import Timeline
    from npuc.studio.numbers import Comparison

_KEPT = 12
"""Answers that are kept: opened files, graphs, comparisons."""
_KEPT_SMALL = 500
"""Answers of a few numbers that are kept."""
FORMS = ("original", "imported", "canonical")
"""How a float model is shown: as its file states it, as the importer left it, or as quantization takes it, with batch norms
folded and layers fused. Only ONNX has an original of its own; other formats are shown as imported."""

T = TypeVar("T")


@dataclass(frozen=True)
class Sample:
    """What a comparison runs on: a file of the project, or random numbers from a seed."""

    file: str = ""
    seed: int = 0


@dataclass(frozen=True)
class ImageQuestion:
    """An image, and the models that it is shown to, as the page asks for it."""

    image: str
    models: tuple[str, ...]
    prepare: Mapping[str, Any] = field(default_factory=dict)
    """Fields of preprocessing that were chosen in the page."""
    recipe: str = ""
    decode: str = ""
    labels: str = ""

    @property
    def key(self) -> Hashable:
        """What makes it differ from others with the same files."""
        return self.models, json.dumps(dict(self.prepare), sort_keys=True), self.decode


class Studio:
    """A project that is looked at."""

    def __init__(self, project: Project, threads: int = 1) -> None:
        self.project, self.threads = project, threads
        self._kept: dict[bool, OrderedDict[Hashable, Any]] = {True: OrderedDict(), False: OrderedDict()}
        self._lock = threading.Lock()
        self._computing: dict[Hashable, threading.RLock] = {}

    def graph(self, name: str, form: str = "canonical") -> StudioGraph:
        """A model as nodes and edges."""
        return self._once(("graph", form), [name], lambda: self._graph(name, form))

    def node(self, name: str, form: str, layer: str) -> dict[str, Any]:
        """What a layer reads: tensors by name and type, constants with a histogram and their first map."""
        if form == "original" and self._has_original(name):
            operands = operands_of_file(self._source_file(name), layer)
        else:
            from npuc.studio.networks import operands_of_network

            opened = self._opened(name, form)
            if opened.compiled is not None or opened.graph is None:
                return {"operands": []}
            operands = operands_of_network(opened.graph, layer)
        if operands is None:
            raise UsageError(f"no layer makes a tensor '{layer[:100]}'")
        return {"operands": operands}

    def time(self, name: str) -> dict[str, Any]:
        """The profile of a compiled model."""
        from npuc.studio.timing import time_of

        compiled = self._program(name)
        return self._once("time", [name], lambda: time_of(compiled, self._timeline(name)))

    def instructions(self, name: str, part: int, core: int, first: int) -> dict[str, Any]:
        """Some instructions of a compiled model: lines, times, what they waited for, where their operands lie."""
        from npuc.studio.instructions import instructions

        return instructions(self._program(name), self._timeline(name), part, core, first)

    def stream_lengths(self, name: str) -> list[list[int]]:
        """How many instructions each core has, for each part of the NPU."""
        from npuc.program.model import NpuSubgraph

        parts = self._program(name).subgraphs
        return [[len(stream) for stream in part.streams] for part in parts if isinstance(part, NpuSubgraph)]

    def _timeline(self, name: str) -> Timeline:
        from npuc.sim import simulate

        compiled = self._program(name)
        return self._once("timeline", [name], lambda: simulate(compiled))

    def _program(self, name: str) -> CompiledModel:
        compiled = self._opened(name).compiled
        if compiled is None:
            raise UsageError(
                f"'{name}' is not compiled", fix="Compile it first: npuc compile MODEL --target NAME"
            )
        return compiled

    def placement(self, name: str, target: str) -> dict[str, Any]:
        """On which device each layer would run, with the reason and the lever."""
        from npuc.inspect.inspection import inspect_graph, load_for_inspection
        from npuc.target import load_target

        machine = load_target(target)

        def inspect() -> dict[str, Any]:
            inspection, _ = inspect_graph(load_for_inspection(self.project.model(name)), machine)
            return inspection.as_json()

        return self._once(("placement", target), [name], inspect)

    def compare(self, reference: str, other: str, sample: Sample) -> dict[str, Any]:
        """The error of every layer of one form against another."""
        files = [reference, other, *([sample.file] if sample.file else [])]
        comparison = self._comparison(reference, other, sample)
        return self._once(("rows", sample.seed), files, lambda: {"layers": comparison.rows()})

    def sensitivity(self, names: Sequence[str], sample: Sample) -> dict[str, Any]:
        """What the rounding of each layer alone costs at the outputs: of the float network among some models, in decibels.

        Its integers are those of an integer network among them, or, without one, int8 with the ranges of the sample.
        """
        from npuc.quant.prequantized import is_quantized
        from npuc.studio.sensitivity import SAMPLES, sensitivities, with_eight_bits

        given = {name: self._opened(name) for name in dict.fromkeys(filter(None, names))}
        exact = next((name for name, opened in given.items() if opened.kind == "float"), None)
        integer = next((name for name, opened in given.items() if opened.kind == "integer"), None)
        graph = given[exact].graph if exact is not None else None
        if exact is None or graph is None or is_quantized(graph):
            raise UsageError(
                "sensitivity is measured in the float network",
                fix="Choose it above, alone or beside this one",
            )

        def measure() -> dict[str, Any]:
            rounded = None if integer is None else given[integer].graph
            if rounded is None:
                rounded = with_eight_bits(graph, self._source(graph, sample, SAMPLES))
            layers = sensitivities(graph, rounded, self._inputs(graph, sample, SAMPLES), self.threads)
            return {"layers": layers, "types": integer or "int8", "sample": sample.file}

        files = [exact, *filter(None, (integer, sample.file))]
        return self._once(("sensitivity", sample.seed), files, measure)

    def tensor(self, reference: str, other: str, sample: Sample, name: str, channel: int) -> dict[str, Any]:
        """One tensor in both."""
        return self._comparison(reference, other, sample).tensor(name, channel)

    def image(self, question: ImageQuestion) -> dict[str, Any]:
        """One image through several models: what each is given, and what it says."""
        from npuc.studio.images import ImageRun, read_labels, run_image

        models = {name: self.project.model(name) for name in question.models}
        request = ImageRun(
            self.project.sample(question.image),
            models,
            dict(question.prepare),
            self.project.configuration(question.recipe) if question.recipe else None,
            self._decoding(question.decode),
            read_labels(self.project.labels(question.labels)) if question.labels else (),
        )
        files = [question.image, *question.models, *filter(None, (question.recipe, question.labels))]
        return self._once(("picture", question.key), files, lambda: run_image(request))

    def _decoding(self, text: str) -> str:
        """How outputs become boxes; a file that it names is one of the project."""
        kind, _, rest = text.partition(":")
        parts = []
        for part in filter(None, rest.split(",")):
            name, _, value = part.partition("=")
            place = str(self.project.sample(value)) if name.strip() == "priors" else value
            if "," in place:
                raise UsageError(f"'{value[:100]}' is in a folder with a comma in its name")
            parts.append(f"{name}={place}")
        return f"{kind}:{','.join(parts)}" if parts else kind

    def ranges(self, table: str, statistics: str) -> dict[str, Any]:
        """The ranges of a calibration table over the values that they are for."""
        from npuc.calib.table import load_table
        from npuc.studio.ranges import range_rows

        return {"rows": range_rows(self._statistics(statistics), load_table(self.project.table(table)))}

    def range(self, statistics: str, name: str) -> dict[str, Any]:
        """The histogram of one tensor, and what methods would choose."""
        from npuc.studio.ranges import range_details

        tensor = self._statistics(statistics).get(name)
        if tensor is None or not tensor.count:
            raise FileMissingError(f"there are no statistics of a tensor '{name[:100]}'")
        return self._once(("range", name), [statistics], lambda: range_details(tensor), small=True)

    def edited_table(self, table: str, changes: Any) -> str:
        """The text of a calibration table with some ranges changed."""
        from npuc.calib.table import format_table, load_table
        from npuc.studio.ranges import edited

        return format_table(edited(load_table(self.project.table(table)), changes))

    def schedule(self, name: str) -> dict[str, Any]:
        """The groups of a schedule file."""
        from npuc.schedule.schedule_file import ScheduleFile
        from npuc.studio.schedules import schedule_rows

        return schedule_rows(ScheduleFile.load(self.project.configuration(name)))

    def frontier(self, reference: str, sample: str, only: Collection[str] | None = None) -> dict[str, Any]:
        """Programs of the project: cycles, metrics, and distance from a float network; others are named, and why."""
        points, left_out = [], []
        files = self.project.files()
        names = {file.name for file in files}
        for file in files:
            if file.kind != "program" or (only is not None and file.name not in only):
                continue
            try:
                figures = self._point(file.name, reference, sample)
            except NpucError as error:
                left_out.append({"file": file.name, "why": error.message})
                continue
            configuration = f"{file.name.removesuffix('.npu')}.yaml"
            known = {"configuration": configuration} if configuration in names else {}
            points.append({"file": file.name, **figures, **known})
        return {"points": points, "left_out": left_out}

    def _point(self, name: str, reference: str, sample: str) -> dict[str, Any]:
        from npuc.studio.frontier import point

        def measure() -> dict[str, Any]:
            compiled = self._program(name)
            cycles = self._timeline(name).total
            data = self.project.sample(sample) if sample else None
            where = str(compiled.target.get("name", ""))
            return point(self.project.model(name), self.project.model(reference), data, cycles, where)

        files = [name, reference, *([sample] if sample else [])]
        return self._once("point", files, measure, small=True)

    def _statistics(self, name: str) -> Statistics:
        from npuc.calib.statistics import load_statistics

        path = self.project.statistics(name)
        return self._once("statistics", [name], lambda: load_statistics(path))

    def _comparison(self, reference: str, other: str, sample: Sample) -> Comparison:
        from npuc.studio.numbers import Comparison

        files = [reference, other, *([sample.file] if sample.file else [])]

        def begin() -> Comparison:
            # As `npuc diff` opens them: the reference is the network as it was given.
            first, second = self._opened(reference, "imported"), self._opened(other, "imported")
            if second.graph is None:
                raise UsageError(f"'{other}' is a dump", fix="npuc diff compares with a dump")
            return Comparison(first, second, self._inputs(second.graph, sample)[0], self.threads)

        return self._once(("comparison", sample.seed), files, begin)

    def _source(self, graph: Graph, sample: Sample, count: int) -> Source:
        from npuc.calib.sources import DataOptions, open_data, random_data

        if sample.file:
            return open_data(graph, self.project.sample(sample.file), DataOptions(max_count=count))
        return random_data(graph, count, sample.seed)

    def _inputs(self, graph: Graph, sample: Sample, count: int = 1) -> list[dict[str, Array]]:
        from npuc.calib.feeding import Feeder

        source = self._source(graph, sample, count)
        return [dict(batch.inputs) for batch in Feeder(graph, source, strict=True).batches()]

    def _opened(self, name: str, form: str = "canonical") -> Opened:
        from npuc.debug.opening import open_layers

        path = self.project.model(name)
        # A file of npuc has one form, and what has no original is shown as imported.
        read_as = "canonical" if form == "canonical" or path.suffix in (".mlir", ".npu") else "imported"
        return self._once(("opened", read_as), [name], lambda: open_layers(path, _loader(read_as)))

    def _has_original(self, name: str) -> bool:
        path = self.project.model(name)
        return not path.is_dir() and describe_content(path).kind == "onnx"

    def _source_file(self, name: str) -> OnnxSource:
        path = self.project.model(name)
        return self._once("source", [name], lambda: read(path))

    def _graph(self, name: str, form: str) -> StudioGraph:
        if form not in FORMS:
            raise UsageError(f"there is no form '{form[:20]}'", fix=f"There are: {', '.join(FORMS)}")
        if form == "original" and self._has_original(name):
            return graph_of_file(self._source_file(name))
        from npuc.studio.networks import graph_of_network, graph_of_program

        opened = self._opened(name, form)
        if opened.compiled is not None:
            return graph_of_program(opened.compiled)
        if opened.graph is None:
            raise UsageError(f"'{name}' is a dump, which has no graph")
        return graph_of_network(opened.graph, opened.kind)

    def _once(self, key: Hashable, files: list[str], compute: Callable[[], T], *, small: bool = False) -> T:
        """The answer for these files as they are now, computed if it is not known; who asks the same meanwhile waits for it."""
        states = []
        for name in files:
            state = self.project.path(name).stat()
            states.append((name, state.st_mtime_ns, state.st_size))
        whole, kept = (key, *states), self._kept[small]
        with self._lock:
            computing = self._computing.setdefault(whole, threading.RLock())
        with computing:
            with self._lock:
                if whole in kept:
                    kept.move_to_end(whole)
                    known: T = kept[whole]
                    return known
            try:
                answer = compute()
                with self._lock:
                    kept[whole] = answer
                    while len(kept) > (_KEPT_SMALL if small else _KEPT):
                        kept.popitem(last=False)
                return answer
            finally:
                with self._lock:
                    self._computing.pop(whole, None)


def _loader(form: str) -> Callable[[Path], Graph]:
    """How a model file is read; a file of npuc is shown as it is."""

    from npuc.flow import load_model, network_to_quantize

    def load(path: Path) -> Graph:
        return load_model(path) if form == "imported" or path.suffix == ".mlir" else network_to_quantize(path)

    return load
