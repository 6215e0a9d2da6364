"""The options of commands that climb the ladder of accuracy, and what they print on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuc.cli import options
from npuc.cli.console import Printer, json_text, shorten
from npuc.errors import UsageError

if TYPE_CHECKING:
    from npuc.datasets.data import DataLocation
    from npuc.ir import Graph
    from npuc.quant.ladder.measurements import Goal, GoalResult
    from npuc.quant.ladder.run import PipelineOptions

_POINTS = 8
"""Points of the frontier that are measured for a plot of it."""

Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="[INPUT=]PATH",
        help="Calibration data: a folder of images or of .npy or .npz files, one such file, or a list of samples, "
        "one per line. With --accuracy-drop: a labelled data set, as for 'npuc eval'. Repeat the option to "
        "use several in turn, or write INPUT=PATH for each input of the network.",
    ),
]
Calib = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[INPUT=]PATH",
        help="Calibration data, if --data is a labelled data set (--accuracy-drop). Otherwise the same as --data.",
    ),
]
Ladder = Annotated[
    str | None,
    typer.Option(
        metavar="all|default|STEP,...",
        help="Steps that reduce the loss of accuracy: equalize, smooth, ranges, positions, gptq, adaquant, round, mixed. Each"
        " is kept only if it helps.",
    ),
]
AccuracyDrop = Annotated[
    float | None,
    typer.Option(
        metavar="LOSS",
        min=0.0,
        help="The loss of the metric that is allowed on the labelled --data (in percentage points if the metric is"
        " in percent). Steps are added until it is reached, at as few cycles as possible; a fifth of the "
        "samples is held back to confirm the result.",
    ),
]
ExpectedDrop = Annotated[
    float | None,
    typer.Option(
        metavar="POINTS",
        min=0.0,
        help="End the ladder as soon as no more than so many points of top-1 are expected to be lost, judging by the"
        " decibels of the outputs; needs no labels. With --plan: name the step after which that is expected.",
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[:OPTION=VALUE]",
        help="The metric of --accuracy-drop; see 'npuc eval'.  [default: that of the data set]",
    ),
]
Decoding = Annotated[
    str | None,
    typer.Option(
        metavar="KIND[:NAME=VALUE,...]",
        help="How the outputs are decoded to boxes for the metric; see 'npuc eval'.",
    ),
]
EvalCount = Annotated[int | None, typer.Option(min=1, help="Measure on at most this many labelled samples.")]
Frontier = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.svg|FILE.json",
        help="Plot (or list) accuracy against cycles for everything that was measured.",
    ),
]


@dataclass
class LadderOptions:
    """What the options say about the ladder, and the way that was taken."""

    ladder: Ladder = None
    torch_device: options.TorchDevice = None
    accuracy_drop: AccuracyDrop = None
    expected_drop: ExpectedDrop = None
    metric: Metric = None
    postprocess: Decoding = None
    eval_count: EvalCount = None
    frontier: Frontier = None
    path: list[dict[str, Any]] = field(default_factory=list)
    """For the result as JSON."""

    def given(self) -> dict[str, Any]:
        """The options by their names."""
        return {
            f"--{name.replace('_', '-')}": value
            for name, value in vars(self).items()
            if name != "path" and value is not None
        }

    @property
    def requested(self) -> bool:
        """Whether there is anything to climb."""
        return self.accuracy_drop is not None or self.ladder not in (None, "default")

    def check(self, *, planned: bool = False) -> None:
        """Mistakes that can be told before any work; `planned` says that a plan was asked for."""
        from npuc.files import writable

        if self.accuracy_drop is None:
            for name in ("--metric", "--postprocess", "--eval-count", "--frontier"):
                if name in self.given():
                    raise UsageError(
                        f"{name} goes with --accuracy-drop", fix="Add --accuracy-drop LOSS, such as 0.5"
                    )
        if self.expected_drop is not None and self.accuracy_drop is not None:
            raise UsageError(
                "--expected-drop is for data without labels, and --accuracy-drop measures on labels",
                fix="Give one of them",
            )
        if self.expected_drop is not None and not self.requested and not planned:
            raise UsageError(
                "--expected-drop says when the ladder ends, and there is none",
                fix="Add --ladder all, or --plan",
            )
        if self.frontier is not None:
            if self.frontier.suffix not in (".svg", ".json"):
                raise UsageError(
                    f"--frontier '{self.frontier}' is neither an .svg nor a .json file",
                    fix="Name it FILE.svg",
                )
            writable(self.frontier)
        if self.torch_device is not None:
            from npuc.engine.compute_device import check_device

            check_device(self.torch_device, "--torch-device")
        self.steps()
        if self.metric is not None:
            from npuc.metrics.measuring import parse_metric

            parse_metric(self.metric)

    def steps(self) -> tuple[str, ...] | None:
        """The steps that are named; None for all."""
        if self.ladder is None or self.ladder == "default":
            return None
        from npuc.quant.ladder.run import PipelineOptions

        return PipelineOptions.names(self.ladder)

    def _enough(self) -> float:
        """The decibels at which the ladder ends."""
        if self.expected_drop is None:
            return inf
        from npuc.quant.ladder.plan import enough_for

        return enough_for(self.expected_drop)

    def pipeline_options(
        self,
        printer: Printer,
        graph: Graph,
        data: DataLocation | None,
        machine: str,
        *,
        preprocess: str | None,
        workers: int | None,
    ) -> PipelineOptions:
        """What the ladder is asked for; measures the float network if there is a goal."""
        from npuc.quant.ladder.run import PipelineOptions

        steps, device = self.steps(), self.torch_device or "cpu"
        if self.accuracy_drop is None or data is None:
            return PipelineOptions(
                steps,
                device,
                enough=self._enough(),
                report=lambda step_result: self._say(printer, step_result, None),
            )
        from npuc.evaluate.goal import accuracy_goal

        goal = accuracy_goal(
            graph,
            data,
            self.accuracy_drop,
            self.metric,
            max_count=self.eval_count,
            preprocess=preprocess,
            postprocess=self.postprocess,
            workers=workers,
            warn=printer.note,
        )
        held = f", {goal.held_back} are held back and confirm" if goal.held_back else ""
        printer.say(
            f"  {'goal':8} {goal.metric} {goal.shown(goal.exact)} in float, at most {goal.drop:g}{goal.unit} "
            f"{'more' if goal.lower_is_better else 'less'}; {goal.samples} samples steer{held}"
        )
        return PipelineOptions(
            steps,
            device,
            goal,
            points=_POINTS if self.frontier is not None else 0,
            report=lambda event: self._say(printer, event, goal),
            finished=self._drawn(printer, goal, machine),
        )

    def _say(self, printer: Printer, event: Any, goal: Goal | None) -> None:
        from npuc.quant.ladder.measurements import GoalCheck, Measurement
        from npuc.quant.ladder.sequence import StepResult

        if isinstance(event, GoalCheck) and goal is not None:
            verdict = "confirmed" if event.met else "not confirmed"
            printer.say(
                f"  {'ladder':8} {shorten(event.measurement.words, 60)}: {event.words(goal)}, {verdict} ({event.seconds:.1f} s)"
            )
            low, high = event.loss.interval
            held = {"lost": event.loss.value, "low": low, "high": high, "samples": goal.held_back}
            self.path.append({"words": event.measurement.words, "held_back": held, "confirmed": event.met})
            return
        if isinstance(event, Measurement) and goal is not None:
            cycles = "does not compile" if event.cycles is None else f"{event.cycles:,} cycles"
            verdict = "enough" if event.met else "not enough"
            figure = (
                f"{goal.metric} {goal.shown(event.figure)} ({goal.shown(event.figure - goal.exact, '+')})"
            )
            printer.say(
                f"  {'ladder':8} {shorten(event.words, 60)}: {figure}, {cycles}, {event.sqnr:.2f} dB, {verdict} "
                f"({event.seconds:.1f} s)"
            )
            known = ("words", "figure", "lost", "met", "cycles", "seconds", "sqnr")
            self.path.append({name: getattr(event, name) for name in known})
            return
        printer.say(f"  {'ladder':8} {event}")
        if isinstance(event, StepResult):
            # `doubt` is what older readers of the JSON know the standard error by.
            self.path.append({**vars(event), "doubt": event.standard_error})

    def _drawn(self, printer: Printer, goal: Goal, machine: str) -> Callable[[GoalResult], None]:
        def draw(result: GoalResult) -> None:
            best = result.best
            cycles = "does not compile" if best.cycles is None else f"{best.cycles:,} cycles"
            cycles += f" {'for' if best.cycles is None else 'on'} {machine}"
            what = best.candidate.notes[-1] if best.candidate.notes else best.words
            check = result.check_of(best)
            drop = "" if check is None else f", {check.words(goal)}"
            printer.say(f"  {'chosen':8} {what}: {goal.metric} {goal.shown(best.figure)}{drop}, {cycles}")
            if check is not None and not goal.allows(check.loss.interval[1]):
                tried = (
                    f", and {len(result.checks)} networks were tried on them"
                    if len(result.checks) > 1
                    else ""
                )
                printer.note(
                    f"{goal.held_back} held-back samples are few: the drop on others may be "
                    f"{goal.shown(check.loss.interval[1])}{goal.unit} (95 % interval "
                    f"{goal.shown(check.loss.interval[0])} to {goal.shown(check.loss.interval[1])}){tried}; more labelled "
                    "samples say more"
                )
            if check is None and len(result.measurements) > 1:
                printer.note(
                    f"it was chosen among {len(result.measurements)} networks by the samples that measure it, which flatters it: "
                    "'npuc eval' on other samples shows what it is worth"
                )
            if self.frontier is None:
                return
            from npuc.files import write_atomically
            from npuc.quant.mixed_precision.drawing import frontier_data, frontier_svg

            svg = self.frontier.suffix == ".svg"
            text = (
                frontier_svg(result, goal, machine)
                if svg
                else json_text(frontier_data(result, goal, machine)) + "\n"
            )
            with write_atomically(self.frontier) as out:
                out.write(text.encode())
            printer.say(f"  {'frontier':8} {self.frontier}")

        return draw
