"""What `npuc run` does layer by layer: dumps and golden runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuc.cli.console import Printer
from npuc.errors import CompareError, UnknownTensorError, UsageError
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.calib.samples import Samples
    from npuc.debug.dump import DumpWriter
    from npuc.debug.golden import GoldenRun, Verdict
    from npuc.debug.layers import Layers, LayerTensor
    from npuc.ir import Graph


def check_options(
    golden: Path | None,
    stop: bool,
    output: Path | None,
    save_sample: Path | None,
    dump_all_tensors: bool,
    fetch: str | None,
    raw: bool,
) -> None:
    """Refuse what does not go with a run by layers."""
    if stop and golden is None:
        raise UsageError("--stop-at-mismatch is for a golden run", fix="Add --golden DIR")
    others = {
        "-o": output,
        "--save-sample": save_sample,
        "--dump-all-tensors": dump_all_tensors,
        "--fetch": fetch,
        "--raw": raw,
    }
    for name, value in others.items():
        if value:
            raise UsageError(
                f"{name} does not go with --dump-layers and --golden, which run layer by layer",
                fix="Run the network once for each",
            )


def run_by_layer(
    printer: Printer,
    model: Path,
    graph: Graph,
    layers: Callable[[], Layers],
    samples: Samples | None,
    dump_layers: Path | None,
    golden: Path | None,
    *,
    stop: bool = False,
    outputs: Sequence[str] = (),
    chosen: Sequence[str] = (),
) -> None:
    """Run a network layer by layer; without samples on those of the golden dump. `graph` has its inputs.

    With `chosen`, names or patterns, only those tensors are stored and compared.
    """
    from npuc.debug.dump import Dump, DumpWriter
    from npuc.debug.golden import GoldenRun

    if dump_layers is not None and golden is not None and dump_layers.resolve() == golden.resolve():
        raise UsageError(
            "--dump-layers and --golden name the same folder", fix="Give the new dump another one"
        )
    golden_run = GoldenRun(Dump(golden)) if golden is not None else None
    batches: Iterator[Mapping[str, Any]]
    if samples is not None:
        batches = (batch.inputs for batch in samples)
    else:
        assert golden_run is not None
        dump = golden_run.dump
        batches = (dump.inputs_for(graph, run) for run in range(dump.index.runs))
    traced = layers()
    writer = DumpWriter(dump_layers, model.name) if dump_layers is not None else None
    watch = _Watch(printer, writer, golden_run, stop, chosen)
    runs = 0
    for inputs in batches:
        watch.run = runs
        runs += 1
        traced.trace(inputs, watch)
        if watch.stopped:
            break
    unmet = [pattern for pattern in chosen if pattern not in watch.met]
    if unmet and not watch.stopped:
        near = get_close_matches(unmet[0], sorted(watch.names), n=3, cutoff=0.4)
        raise UnknownTensorError(
            f"there is no tensor or layer '{unmet[0]}'",
            where=str(model),
            fix=f"The nearest names are {', '.join(near)}" if near else "'npuc show' lists the layers",
        )
    result: dict[str, Any] = {"runs": runs, "tensors": watch.count}
    if writer is not None:
        index = writer.finish(outputs)
        plural = "s" * (index.runs != 1)
        printer.say(f"{counted(watch.count, 'tensor')} of {index.runs} run{plural} written to {dump_layers}")
        result |= {
            "dump": str(dump_layers),
            "index": [entry.model_dump(mode="json") for entry in index.tensors],
        }
    if golden_run is None:
        printer.result(result)
        return
    _conclude(printer, golden_run, result, str(golden), watch.stopped, partial=watch.stopped or bool(chosen))


@dataclass
class _Watch:
    """Stores each tensor as it comes, and compares it with the golden run."""

    printer: Printer
    writer: DumpWriter | None
    golden_run: GoldenRun | None
    stop: bool
    chosen: Sequence[str] = ()
    run: int = 0
    count: int = 0
    stopped: bool = False
    names: set[str] = field(default_factory=set)
    """All tensors and layers that went by."""
    met: set[str] = field(default_factory=set)
    """What was chosen and went by."""

    def __call__(self, tensor: LayerTensor) -> bool:
        # Inputs always: a dump can be run on again.
        if self.chosen and not self._is_chosen(tensor) and tensor.kind != "input":
            return False
        self.count += 1
        if self.writer is not None:
            self.writer.add(self.run, tensor)
        if self.golden_run is not None:
            verdict = self.golden_run.judge(self.run, tensor)
            self.printer.say(verdict.line)
            self.stopped = self.stop and verdict.state == "differs"
        return self.stopped

    def _is_chosen(self, tensor: LayerTensor) -> bool:
        names = {tensor.name, tensor.layer}
        self.names |= names
        matches = [p for p in self.chosen if p in names or any(fnmatchcase(name, p) for name in names)]
        self.met.update(matches)
        return bool(matches)


def _conclude(
    printer: Printer, golden_run: GoldenRun, result: dict[str, Any], folder: str, stopped: bool, partial: bool
) -> None:
    wrong, missing = golden_run.wrong, [] if partial else golden_run.missing()
    printer.result(
        {
            **result,
            "golden": folder,
            "compared": golden_run.compared,
            "different": len(wrong),
            "first": asdict(wrong[0]) if wrong else None,
            "missing": missing,
            "changed": golden_run.changed,
            "verdicts": [asdict(verdict) for verdict in golden_run.verdicts],
        }
    )
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        printer.note(
            f"the dump also has {', '.join(missing[:3])}{more}, which this network does not make "
            "(a layer that is fused with the next one has no tensor of its own)"
        )
    if golden_run.changed:
        files = golden_run.changed
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        verb = "holds other values than it did" if len(files) == 1 else "hold other values than they did"
        printer.note(f"{', '.join(files[:3])}{more} of {folder} {verb} when the dump was written")
    if wrong:
        raise _blame(wrong, golden_run, folder, stopped)
    if not golden_run.compared:
        raise CompareError(
            f"is a dump of another network ({golden_run.dump.index.model}): no tensor in it has the name of one of this network",
            where=folder,
            fix="Dump the network that this one is to be held against",
        )
    close = sum(verdict.state == "close" for verdict in golden_run.verdicts)
    if close:
        printer.note(f"{close} of float layers are close, not the same to the bit")
    printer.say(
        f"all {golden_run.compared} tensors are those of {folder}"
        if golden_run.compared != 1
        else f"the only tensor is that of {folder}"
    )


def _blame(wrong: list[Verdict], golden_run: GoldenRun, folder: str, stopped: bool) -> CompareError:
    first = wrong[0]
    number = "" if stopped else f" ({len(wrong)} of {golden_run.compared} tensors differ)"
    place = f"in run {first.run}: tensor '{first.name}': {first.words}{number}"
    if first.kind == "input":
        return CompareError(
            f"the run is on other data than the dump, '{first.name}' (input) differs {place}",
            where=folder,
            fix="Leave out --input and --random to run on the data of the dump",
        )
    return CompareError(
        f"the first layer that differs is '{first.name}' ({first.kind}), {place}", where=folder
    )
