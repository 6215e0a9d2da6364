"""What `npuc run` does layer by layer: dumps and golden runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuc.cli.console import Printer
from npuc.errors import CompareError, UsageError

if TYPE_CHECKING:
    from npuc.calib.samples import Samples
    from npuc.debug.golden import GoldenRun
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
    samples: Samples | None,
    dump_layers: Path | None,
    golden: Path | None,
    *,
    stop: bool = False,
    threads: int | None = None,
) -> None:
    """Run a network layer by layer; without samples on those of the golden dump."""
    import os

    from npuc.debug.dump import Dump, DumpWriter
    from npuc.debug.golden import GoldenRun
    from npuc.debug.layers import layer_tensors
    from npuc.engine import IntegerEngine
    from npuc.quant.report import is_integer

    if not is_integer(graph):
        raise UsageError(
            f"--dump-layers and --golden are for integer networks, and {model} is a float one",
            fix="Use --dump-all-tensors -o FILE.npz, and 'npuc tensors compare'",
        )
    if dump_layers is not None and golden is not None and dump_layers.resolve() == golden.resolve():
        raise UsageError(
            "--dump-layers and --golden name the same folder", fix="Give the new dump another one"
        )
    judge = GoldenRun(Dump(golden)) if golden is not None else None
    writer = DumpWriter(dump_layers, model.name) if dump_layers is not None else None
    engine = IntegerEngine(graph, threads=threads or len(os.sched_getaffinity(0)))
    batches: Iterator[Mapping[str, Any]]
    if samples is not None:
        batches = (batch.inputs for batch in samples)
    else:
        assert judge is not None
        dump = judge.dump
        batches = (dump.inputs(run) for run in range(dump.index.runs))
    runs = count = 0
    stopped = False
    for run, inputs in enumerate(batches):
        runs += 1
        for tensor in layer_tensors(engine, inputs):
            count += 1
            if writer is not None:
                writer.add(run, tensor)
            if judge is not None:
                verdict = judge.judge(run, tensor)
                printer.say(verdict.line)
                stopped = stop and verdict.state == "differs"
            if stopped:
                break
        if stopped:
            break
    result: dict[str, Any] = {"runs": runs, "tensors": count}
    if writer is not None:
        index = writer.finish()
        plural = "s" * (index.runs != 1)
        printer.say(f"{count} tensors of {index.runs} run{plural} written to {dump_layers}")
        result |= {
            "dump": str(dump_layers),
            "index": [entry.model_dump(mode="json") for entry in index.tensors],
        }
    if judge is None:
        printer.result(result)
        return
    _conclude(printer, judge, result, str(golden), stopped)


def _conclude(printer: Printer, judge: GoldenRun, result: dict[str, Any], folder: str, stopped: bool) -> None:
    wrong, missing = judge.wrong, [] if stopped else judge.missing()
    printer.result(
        {
            **result,
            "golden": folder,
            "compared": judge.compared,
            "different": len(wrong),
            "first": asdict(wrong[0]) if wrong else None,
            "missing": missing,
            "verdicts": [asdict(one) for one in judge.verdicts],
        }
    )
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        printer.note(f"the dump also has {', '.join(missing[:3])}{more}, which this network does not make")
    if wrong:
        first = wrong[0]
        number = "" if stopped else f" ({len(wrong)} of {judge.compared} tensors differ)"
        raise CompareError(
            f"the first layer that differs is '{first.layer}' ({first.kind}), in run {first.run}: "
            f"tensor '{first.name}': {first.words}{number}",
            where=folder,
        )
    if not judge.compared:
        raise CompareError("no tensor of the dump has the name of one of this network", where=folder)
    printer.say(f"all {judge.compared} tensors are those of {folder}")
