"""One graph of dynamo's, from its first call on: torch computes while calls calibrate, then npuc's program takes its place.

    call 1             torch; is it safe to replace (`counting`)?
    calls 1 .. N       torch; inputs are kept, those with NaN are left out
    call N             the graph is imported with its weights as constants, quantized and compiled
    calls N+1 ..       the program; if a weight was written since, all begins again

A graph whose sizes or numbers vary has a plan for each set of them; rows of a batch that are computed independently share one.
"""

from __future__ import annotations

import itertools
import logging
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from npuc.arrays import Array
from npuc.errors import NpucError, UsageError
from npuc.integrations.conversion import Conversion, convert
from npuc.integrations.conversion_cache import ConversionCache, ConversionKey
from npuc.integrations.options import IntegrationOptions
from npuc.integrations.report import FRAMEWORK, IntegrationReport, ReportedNode, joined
from npuc.integrations.torch.counting import first_run, rows_are_independent
from npuc.integrations.torch.graph import Argument, ArgumentKind, arguments_of, bound, results_of
from npuc.integrations.torch.graph_key import add_graph
from npuc.integrations.torch.live import from_torch
from npuc.integrations.torch.tensors import TensorForm, WeightStamp, array_of, finite
from npuc.runtime import Runner
from npuc.words import counted

_LOG = logging.getLogger(__name__)

INTEGRATION = "torch.compile"
MOST_PLANS = 8
"""Sets of shapes and numbers of one graph that get a program each."""
MOST_BYTES = 1 << 30
"""Calibration inputs that are kept in memory."""
KEPT_BYTES = 64 << 20
"""Calibration inputs that stay in memory for another graph of the same model, such as that of another batch size."""
_NAMED = 4
"""Calls that are named when they are left out."""
_LEAVE_OUT = (
    "Leave it out of the compiled part (torch.compiler.disable), or put it where no program is wanted"
)

_SESSIONS: weakref.WeakSet[GraphSession] = weakref.WeakSet()
_NUMBERS = itertools.count(1)

Sample = dict[str, Array]


class Program:
    """A compiled graph in the place of torch's: the same arguments, the same results."""

    def __init__(
        self,
        runner: Runner,
        inputs: Sequence[tuple[str, int]],
        outputs: Sequence[str],
        forms: Sequence[TensorForm],
        session: GraphSession,
        stamps: Sequence[tuple[int, WeightStamp]],
        rows_vary: bool,
        report: IntegrationReport,
    ) -> None:
        self.runner, self.report = runner, report
        self._inputs, self._outputs, self._forms = tuple(inputs), tuple(outputs), tuple(forms)
        self._shapes = {info.name: info.shape for info in runner.input_tensors}
        self._results = session.results
        self._is_computed = session.results.computed == tuple(range(session.results.count))
        """Results are the program's outputs, in order."""
        self._stamps, self._rows_vary = tuple(stamps), rows_vary

    def is_current(self, args: Sequence[Any]) -> bool:
        """Whether the weights are those that the program was made of."""
        return all(stamp.matches(args[position]) for position, stamp in self._stamps)

    def __call__(self, args: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """Run the program on the arguments of torch's graph."""
        arrays: dict[str, Array] = {}
        rows = None
        for name, position in self._inputs:
            array = array_of(args[position])
            if self._rows_vary:
                rows = len(array) if rows is None else rows
            elif array.shape != self._shapes[name]:
                array = array.reshape(self._shapes[name])
            arrays[name] = array
        outputs = self.runner.run(arrays)
        tensors = [
            form.tensor(outputs[name], rows) for name, form in zip(self._outputs, self._forms, strict=True)
        ]
        if self._is_computed:
            return tuple(tensors)
        return tuple(
            args[argument] if place < 0 else tensors[place]
            for place, argument in zip(self._results.computed, self._results.arguments, strict=True)
        )


@dataclass
class ShapePlan:
    """A graph at one set of shapes and numbers."""

    samples: list[Sample] = field(default_factory=list)
    calls: int = 0
    left_out: list[str] = field(default_factory=list)
    program: Program | None = None
    reason: str = ""
    """Why it stays in torch."""
    is_converting: bool = False
    forms: tuple[TensorForm, ...] = ()

    @property
    def bytes(self) -> int:
        """The memory of the samples."""
        return sum(array.nbytes for sample in self.samples for array in sample.values())


class GraphSession:
    """What stands for a graph of dynamo's: a callable with its arguments that returns a tuple of tensors."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        examples: Sequence[Any],
        options: IntegrationOptions,
        reason: str = "",
        lever: str = _LEAVE_OUT,
    ) -> None:
        self.number = next(_NUMBERS)
        self.module, self.options = module, options
        self.arguments: list[Argument] = arguments_of(module, examples)
        self.results = results_of(module)
        self._live = self._positions(ArgumentKind.LIVE)
        self._weights = self._positions(ArgumentKind.WEIGHT)
        self._sizes = self._positions(ArgumentKind.NUMBER)
        self._floats = self._positions(ArgumentKind.FLOAT)
        self._varies = bool(self._sizes or self._floats)
        self._rows_vary = False
        self._macs: dict[str, int] = {}
        self._plans: dict[Any, ShapePlan] = {}
        self._reason, self._lever = reason, lever
        self._was_run = False
        self._lock = threading.Lock()
        self.weights = tuple(weakref.ref(examples[position]) for position in self._weights)
        _SESSIONS.add(self)

    def _positions(self, kind: ArgumentKind) -> tuple[int, ...]:
        return tuple(argument.position for argument in self.arguments if argument.kind is kind)

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """Compute the graph."""
        # A graph whose guards allow one set of shapes has one plan.
        plan = self._plans.get(self._key(args) if self._varies else ()) if self._was_run else None
        program = plan.program if plan is not None else None
        if program is not None and program.is_current(args):
            return program(args)
        return self._in_torch(args)

    def reset(self) -> None:
        """Forget all programs and samples: the next calls calibrate again."""
        with self._lock:
            self._plans.clear()

    def report(self) -> IntegrationReport:
        """What runs where; a graph without a program is torch's, with the reason."""
        programs = [plan.program.report for plan in self._plans.values() if plan.program is not None]
        if programs:
            return joined(programs)
        plan = next(iter(self._plans.values()), None)
        lever = self._lever
        if self._reason or (plan is not None and plan.reason):
            reason = self._reason or (plan.reason if plan is not None else "")
        else:
            calls = 0 if plan is None else len(plan.samples)
            reason = f"it is being calibrated: {calls} of {counted(self.options.calibrate, 'call')}"
            lever = "Call it more often, or give calibration data (options: data)"
        nodes = [
            ReportedNode(
                node.name, _target_name(node), FRAMEWORK, self._macs.get(node.name, 0), reason, lever
            )
            for node in self.module.graph.nodes
            if node.op in ("call_function", "call_method", "call_module")
        ]
        return IntegrationReport(INTEGRATION, self.options.target.name, tuple(nodes))

    def _key(self, args: Sequence[Any]) -> Any:
        """What one program is for; empty for a graph whose guards allow one set of shapes only."""
        if not self._varies:
            return ()
        rows = args[self._live[0]].shape[0] if self._rows_vary else None
        first = 1 if self._rows_vary else 0
        return (
            tuple(tuple(args[position].shape[first:]) for position in self._live),
            tuple(None if args[position] == rows else args[position] for position in self._sizes),
            tuple(args[position].item() for position in self._floats),
        )

    def _in_torch(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Compute in torch, and take the call for calibration where that is wanted."""
        if self._reason and self._was_run:
            return self._plain(args)
        if not self._lock.acquire(blocking=False):
            return self._plain(args)
        try:
            sample = self._sample(args)
            results = self._plain(args) if self._was_run else self._watched(args)
            if self._reason:
                return results
            plan = self._plan(args)
            if plan.reason or plan.is_converting:
                return results
            if plan.program is not None:
                _LOG.info("torch.compile graph %d: weights changed, calibration begins again", self.number)
                plan.program = None
                plan.samples, plan.calls, plan.left_out = [], 0, []
            plan.forms = self._forms(results)
            self._collect(plan, sample, args)
            if self._is_ready(plan):
                self._start_conversion(plan, args)
            return results
        finally:
            self._lock.release()

    def _plain(self, args: Sequence[Any]) -> tuple[Any, ...]:
        results = self.module.forward(*args)
        return tuple(results) if isinstance(results, tuple | list) else (results,)

    def _watched(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """The first run, which tells whether npuc may compute the graph."""
        run = first_run(self.module, args, self.arguments)
        self._macs = run.macs
        self._was_run = True
        if self._reason:
            return run.results
        if run.side_effect:
            self._stay(run.side_effect)
        elif not all(isinstance(result, torch.Tensor) for result in run.results):
            self._stay("it returns numbers beside its tensors")
        elif not self._live or not self.results.count:
            self._stay("it computes nothing from its inputs")
        elif self._varies:
            self._rows_vary = rows_are_independent(self.module, args, self._live, self._sizes)
        return run.results

    def _stay(self, reason: str) -> None:
        self._reason = reason
        self._warn(reason)

    def _warn(self, reason: str) -> None:
        nodes = sum(node.op.startswith("call") for node in self.module.graph.nodes)
        text = f"graph {self.number} ({counted(nodes, 'node')}) stays in torch: {reason}"
        _LOG.warning("%s", text)
        warnings.warn(f"npuc: {text}", stacklevel=2)

    def _plan(self, args: Sequence[Any]) -> ShapePlan:
        key = self._key(args)
        if key not in self._plans:
            plan = ShapePlan()
            if len(self._plans) >= MOST_PLANS:
                plan.reason = f"it has a program for each of {MOST_PLANS} sets of shapes and numbers already"
                self._warn(plan.reason)
            self._plans[key] = plan
            self._adopt(plan, args)
        return self._plans[key]

    def _adopt(self, plan: ShapePlan, args: Sequence[Any]) -> None:
        """Take over the samples of another graph of the same model, such as one for another batch size."""
        if not self._weights:
            return
        mine = [id(args[position]) for position in self._weights]
        shapes = {self.arguments[position].name: tuple(args[position].shape) for position in self._live}
        for other in sessions():
            if other is self or [id(weight()) for weight in other.weights] != mine:
                continue
            for theirs in other._plans.values():
                if theirs.samples and all(
                    sample.keys() == shapes.keys()
                    and all(_fits(array, shapes[name], self._rows_vary) for name, array in sample.items())
                    for sample in theirs.samples
                ):
                    plan.samples = list(theirs.samples)
                    return

    def _sample(self, args: Sequence[Any]) -> Sample:
        """Copies of the live inputs, made before the graph may write into them."""
        if self._reason:
            return {}
        return {self.arguments[position].name: np.array(array_of(args[position])) for position in self._live}

    def _forms(self, results: Sequence[Any]) -> tuple[TensorForm, ...]:
        forms: dict[int, TensorForm] = {}
        for place, result in zip(self.results.computed, results, strict=True):
            if place >= 0:
                forms.setdefault(place, TensorForm.of(result))
        return tuple(forms[place] for place in range(self.results.count))

    def _collect(self, plan: ShapePlan, sample: Sample, args: Sequence[Any]) -> None:
        plan.calls += 1
        bad = [self.arguments[position].name for position in self._live if not finite(args[position])]
        if bad:
            if len(plan.left_out) < _NAMED:
                plan.left_out.append(
                    f"call {plan.calls} does not calibrate: input '{bad[0]}' has values that are NaN or infinite"
                )
                _LOG.warning("torch.compile graph %d: %s", self.number, plan.left_out[-1])
            if not plan.samples and plan.calls >= 4 * self.options.calibrate:
                plan.reason = (
                    f"none of {plan.calls} calls could calibrate: their inputs have NaN or infinite values"
                )
                self._warn(plan.reason)
        elif all(array.size for array in sample.values()) and self.options.data is None:
            plan.samples.append(sample)

    def _is_ready(self, plan: ShapePlan) -> bool:
        if plan.reason:
            return False
        if self.options.data is not None:
            return True
        return len(plan.samples) >= self.options.calibrate or plan.bytes >= MOST_BYTES

    def _start_conversion(self, plan: ShapePlan, args: Sequence[Any]) -> None:
        plan.is_converting = True
        if not self.options.background:
            self._convert(plan, args)
            return
        # The caller may write the weights while the thread reads them.
        copies = [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in args]
        work = threading.Thread(target=self._convert, args=(plan, args, copies), daemon=True, name="npuc")
        work.start()

    def _convert(self, plan: ShapePlan, args: Sequence[Any], copies: Sequence[Any] | None = None) -> None:
        try:
            with torch.inference_mode(False), torch.no_grad():
                plan.program = self._program(plan, args, copies or args)
            if plan.bytes > KEPT_BYTES:
                plan.samples = []
            self._tell(plan.program.report)
        except Exception as error:
            plan.reason = _words(error)
            if not self.options.fallback and copies is None:
                raise
            self._warn(plan.reason)
        finally:
            plan.is_converting = False

    def _program(self, plan: ShapePlan, args: Sequence[Any], values: Sequence[Any]) -> Program:
        stamps = [(position, WeightStamp.of(args[position])) for position in self._weights]
        values = list(values)
        rows = values[self._live[0]].shape[0] if self._rows_vary else None
        for argument in self.arguments:
            value = values[argument.position]
            if argument.kind is ArgumentKind.NUMBER and self._rows_vary and value == rows:
                values[argument.position] = 1
            elif isinstance(value, torch.Tensor):
                value = value.detach().cpu()
                values[argument.position] = value.clone() if value.is_inference() else value
        examples = tuple(
            values[position][:1] if self._rows_vary else values[position] for position in self._live
        )
        conversion, of_argument = self._conversion(plan, bound(self.module, self.arguments, values), examples)
        mine = [self.arguments[position].name for position in self._live]
        runner = Runner(conversion.model, self.options.device)
        return Program(
            runner,
            [
                (of_argument[name], position)
                for name, position in zip(mine, self._live, strict=True)
                if name in of_argument
            ],
            [info.name for info in runner.output_tensors],
            plan.forms,
            self,
            stamps,
            self._rows_vary,
            conversion.report,
        )

    def _conversion(
        self, plan: ShapePlan, module: torch.fx.GraphModule, examples: tuple[torch.Tensor, ...]
    ) -> tuple[Conversion, dict[str, str]]:
        """The program of a graph, from the cache or converted now; and the inputs of it that the arguments are."""
        mine = [self.arguments[position].name for position in self._live]
        name = f"torch_graph_{self.number}"
        samples = plan.samples if self.options.data is None else list(_given_samples(self.options.data, mine))
        calibrated = counted(len(samples), "call" if self.options.data is None else "sample")
        notes = [f"calibrated on {calibrated}", *plan.left_out]
        kept = ConversionCache.default() if self.options.cache else None
        key = ""
        if kept is not None:
            try:
                key = self._conversion_key(module, examples, samples, notes)
            except TypeError as error:
                _LOG.info("torch.compile graph %d is not kept in the cache: %s", self.number, error)
            entry = kept.read(key, name) if key else None
            if entry is not None:
                return entry.conversion, entry.inputs
        graph = from_torch(module, examples)
        names = [port.name for port in graph.inputs]
        if len(names) == len(mine):
            of_argument = dict(zip(mine, names, strict=True))
        else:
            of_argument = {name: name for name in mine if name in names}
        batches = [{port: sample[argument] for argument, port in of_argument.items()} for sample in samples]
        conversion = convert(graph, batches, self.options, INTEGRATION, name, notes)
        if kept is not None and key:
            kept.write(key, conversion, of_argument)
        return conversion, of_argument

    def _conversion_key(
        self,
        module: torch.fx.GraphModule,
        examples: tuple[torch.Tensor, ...],
        samples: Sequence[Sample],
        notes: Sequence[str],
    ) -> str:
        """The key of all that the program and its report depend on."""
        key = ConversionKey(INTEGRATION, self.options)
        key.add(repr(notes))
        add_graph(key, module, examples)
        key.add_samples(samples)
        return key.text

    def _tell(self, report: IntegrationReport) -> None:
        _LOG.info("%s", report)
        if isinstance(self.options.report, str | Path):  # a file has all graphs
            report = joined([each.report() for each in sessions()])
        report.tell(self.options.report)


def sessions() -> list[GraphSession]:
    """All graphs that are alive, in the order in which dynamo made them."""
    return sorted(_SESSIONS, key=lambda session: session.number)


def _fits(array: Array, shape: tuple[int, ...], rows_vary: bool) -> bool:
    return bool(array.shape[1:] == shape[1:] if rows_vary else array.shape == shape)


def _given_samples(data: Any, names: Sequence[str]) -> Iterator[Sample]:
    """Calibration data of the user as arrays by name: tensors, tuples of them in the order of the inputs, or mappings."""
    for item in data() if callable(data) else data:
        values = item if isinstance(item, tuple | list | Mapping) else (item,)
        if not isinstance(values, Mapping):
            if len(values) != len(names):
                raise UsageError(
                    f"calibration data has {counted(len(values), 'tensor')} a sample, and the graph takes {', '.join(names)}",
                    fix="Give the inputs without labels",
                )
            values = dict(zip(names, values, strict=True))
        elif missing := [name for name in names if name not in values]:
            raise UsageError(
                f"calibration data has no '{missing[0]}'", fix=f"The graph takes {', '.join(names)}"
            )
        yield {name: _plain_array(values[name]) for name in names}


def _plain_array(value: Any) -> Array:
    return array_of(value) if isinstance(value, torch.Tensor) else np.asarray(value)


def _target_name(node: torch.fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def _words(error: Exception) -> str:
    if isinstance(error, NpucError):
        return str(error)
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
