"""Networks that nobody prepared, the whole way through the command line, and compared with float by slice.

For each network of zoo.yaml: `npuc import`; for the first target `npuc compile --data`, for the others `npuc quantize --data` and
`npuc compile` of its result; `npuc sim --sanitize` of each program; and then the outputs of each on held-out samples against
those of the float network, slice by slice (zoo_compare.py). Every command is a process of its own with a limit of time and
memory (zoo_process.py), so that what a user would see is what is checked.

The verdict is `ok`, `refused` (an error with a reason and a fix; npuc's own fault, E901, is none), or `FAILED` (a crash, a limit,
a finding of the sanitizer, an import that does not agree with the original). A slice below 15 dB has to be announced: a note of
the command that quantized has to say so, with the name of the slice or of its output. Otherwise it counts as UNWARNED.

Results lie in build/zoo/results, one file a network, with the commit that made them: those of this commit and these options are
not made again (`--any-commit` keeps those of others, too). `--write-docs` writes docs/zoo.md from them.

    python benchmarks/zoo_models.py            # once: fetch and build the networks
    python benchmarks/sweep_zoo.py [--models A,B] [--targets edge-4t,ethos-u65-256-like] [--jobs 2] [--limit 10] [--write-docs]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zoo_data
import zoo_process
from zoo_models import ROOT, entries, file_of

from npuc.ir import dtype_of

WORK = ROOT / "build" / "zoo" / "work"
RESULTS = ROOT / "build" / "zoo" / "results"
TARGETS = "edge-4t,ethos-u65-256-like"
CALIBRATION, HELD_OUT = 8, 4
LOST = 15.0
_SECONDS = {"import": 240, "quantize": 600, "compile": 600, "sim": 240, "compare": 300}
_KEPT = 6000
"""Characters of what a command printed that are kept."""
_ANNOUNCES = re.compile(r"is only -?[\d.]+ dB above its error|(is|are) below \d+ dB(, too| in the worst of)")
"""What `npuc.quant.accuracy` says of a slice that is lost."""

Report = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """What results depend on."""

    commit: str
    targets: tuple[str, ...]
    patience: float = 1.0

    @property
    def key(self) -> dict[str, Any]:
        """What has to be equal for a result to be kept."""
        return {"targets": list(self.targets), "calibration": CALIBRATION, "held_out": HELD_OUT}


# One network.


def step(kind: str, command: list[str], options: Options) -> Report:
    """Run a command within its limits."""
    done = zoo_process.run(command, _SECONDS[kind] * options.patience)
    shown = " ".join(part if part.startswith("-") else Path(part).name for part in ("npuc", *command))
    report: Report = {"command": shown, "status": done.status, "seconds": round(done.seconds, 1)}
    report["messages"] = done.err[-_KEPT:]
    if done.status == 0:
        try:
            report["result"] = json.loads(done.out)
        except ValueError:
            report |= {"status": 1, "messages": f"stdout is not JSON: {done.out[:200]}"}
    return report


def npuc(*arguments: str | Path) -> list[str]:
    """The arguments of a command of npuc."""
    return [str(argument) for argument in arguments]


def sweep(entry: dict[str, Any], options: Options) -> Report:
    """Take one network all the way."""
    folder = WORK / entry["name"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    report: Report = {"name": entry["name"], "commit": options.commit, "options": options.key, "targets": {}}
    network = folder / "network.mlir"
    told = step(
        "import", npuc("import", file_of(entry), "-o", network, "--json", *entry.get("import", [])), options
    )
    report["import"] = told
    if told["status"]:
        return report
    summary = told["result"]["summary"]
    told["result"] = {
        key: summary[key] for key in ("inputs", "outputs", "cpu", "parameters", "macs", "ops", "kinds")
    } | {"check": _checked(told["result"].get("check"))}
    write_samples(entry, summary["inputs"], folder)
    for target in options.targets:
        report["targets"][target] = for_target(entry, network, target, folder, options)
    compiled = [folder / f"{name}.npu" for name in options.targets if (folder / f"{name}.npu").exists()]
    if compiled:
        script = str(Path(__file__).with_name("zoo_compare.py"))
        command = [script, str(network), str(folder / "held_out"), *map(str, compiled)]
        told = step("compare", command, options)
        report["compare"] = {key: value for key, value in told.items() if key != "result"}
        for target in options.targets:
            report["targets"][target]["figures"] = told.get("result", {}).get(f"{target}.npu")
    shutil.rmtree(folder)
    return report


def _checked(check: Report | None) -> dict[str, Any]:
    return (
        {"passed": None, "reason": "no check"}
        if check is None
        else {k: check[k] for k in ("passed", "reason")}
    )


def write_samples(entry: dict[str, Any], inputs: list[dict[str, str]], folder: Path) -> None:
    """Samples with the names and types of the network's inputs."""
    names = [port["name"] for port in inputs]
    types = [dtype_of(port["type"].rsplit("x", 1)[-1]).numpy for port in inputs]
    for part, count in (("calibration", CALIBRATION), ("held_out", HELD_OUT)):
        zoo_data.write(folder / part, names, zoo_data.samples(entry, part, count), types)


def for_target(entry: dict[str, Any], network: Path, target: str, folder: Path, options: Options) -> Report:
    """Quantize, compile and sanitize for one target; the first target in one command, the others in two."""
    report: Report = {}
    to = folder / f"{target}.npu"
    data = [] if entry.get("quantized") else ["--data", folder / "calibration"]
    common = ["--target", target, "--threads", "1", "--json"]
    if target == options.targets[0]:
        report["compile"] = step("compile", npuc("compile", network, *data, *common, "-o", to), options)
    else:
        integer = folder / f"{target}.mlir"
        report["quantize"] = step(
            "quantize", npuc("quantize", network, *data, *common, "-o", integer), options
        )
        report["quantize"].pop("result", None)
        if report["quantize"]["status"]:
            return report
        report["compile"] = step("compile", npuc("compile", integer, *common, "-o", to), options)
    if report["compile"]["status"]:
        to.unlink(missing_ok=True)
        return report
    result = report["compile"].pop("result")
    parts = result["subgraphs"]
    report["npu_layers"] = sum(len(part["layers"]) for part in parts if part["device"] == "npu")
    report["cpu_layers"] = {
        name: part.get("reasons", {}).get(name, "")
        for part in parts
        if part["device"] == "cpu"
        for name in part["layers"]
    }
    report["cycles"] = result["cycles"]
    report["sim"] = step("sim", npuc("sim", to, "--sanitize", "--json"), options)
    report["sim"].pop("result", None)
    return report


# Verdicts.


@dataclass(frozen=True)
class Verdict:
    """What became of a network on a target."""

    word: str
    """ok, refused or FAILED"""
    reason: str = ""
    worst: float | None = None
    """Decibels of the worst slice over all held-out samples."""
    mean: float | None = None
    low: tuple[str, ...] = ()
    """Slices below 15 dB."""
    unwarned: tuple[str, ...] = ()
    """Those of them that no warning names."""


def verdict(report: Report, target: str) -> Verdict:
    """Judge a network on a target."""
    if report["import"]["status"]:
        return _stopped("import", report["import"])
    if report["import"]["result"]["check"]["passed"] is False:
        return Verdict("FAILED", f"import: {report['import']['result']['check']['reason']}")
    result = report["targets"][target]
    for kind in ("quantize", "compile", "sim"):
        if kind in result and result[kind]["status"]:
            return _stopped(kind, result[kind])
    if report["compare"]["status"]:
        return Verdict("FAILED", f"compare: {last_line(report['compare']['messages'])}")
    figures = result["figures"]
    slices = figures["slices"]
    low = tuple(sorted((name for name in slices if slices[name] < LOST), key=lambda name: slices[name]))
    words = warnings(result)
    named = {name for name in low if any(_names(line, name, figures["tensors"]) for line in words)}
    return Verdict(
        "ok",
        worst=min(slices.values(), default=None),
        mean=figures["mean"] if slices else None,
        low=low,
        unwarned=tuple(name for name in low if name not in named),
    )


def _stopped(kind: str, told: Report) -> Verdict:
    message = error_of(told["messages"])
    refused = told["status"] in (1, 2) and re.match(r"error\[E\d+\]", message) and "E901" not in message
    return Verdict("refused" if refused and kind != "sim" else "FAILED", f"{kind}: {message}")


def error_of(messages: str) -> str:
    """The error that a command ended with, or its last line."""
    lines = messages.strip().splitlines()
    first = next((index for index, line in enumerate(lines) if line.startswith("error")), None)
    return last_line(messages) if first is None else " ".join(lines[first:])


def last_line(messages: str) -> str:
    """The last line that is not empty."""
    return (messages.strip() or "no message").splitlines()[-1]


def warnings(report: Report) -> list[str]:
    """Lines about accuracy that the commands of a target printed as warnings."""
    lines = [
        line
        for kind in ("quantize", "compile")
        if kind in report
        for line in report[kind]["messages"].splitlines()
    ]
    return [line for line in lines if line.startswith(("note:", "warning:")) and _ANNOUNCES.search(line)]


def _names(line: str, part: str, tensors: list[str]) -> bool:
    """Whether a warning names a slice, or the output that it is of."""
    slice_name = part.split(" (in ")[0]
    return slice_name in line or any(tensor in line for tensor in tensors if tensor in part)


# The page.


def write_docs(options: Options) -> None:
    """Write docs/zoo.md from the results."""
    from zoo_report import page

    reports = [(entry, load(entry)) for entry in entries()]
    text = page([(entry, report) for entry, report in reports if report is not None], options.targets)
    (ROOT / "docs" / "zoo.md").write_text(text)


# All of them.


def load(entry: dict[str, Any]) -> Report | None:
    """The result of a network, if there is one."""
    path = RESULTS / f"{entry['name']}.json"
    report: Report | None = json.loads(path.read_text()) if path.exists() else None
    return report


def commit() -> str:
    """The commit of the compiler, with a mark if its sources differ from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=ROOT).stdout.strip()

    changed = git("status", "--porcelain", "--", "src", "native")
    return git("rev-parse", "--short=10", "HEAD") + ("+changes" if changed else "")


def run(entry: dict[str, Any], options: Options) -> Report:
    """Sweep a network, store the result, print a line for each target."""
    start = time.perf_counter()
    report = sweep(entry, options)
    report["seconds"] = round(time.perf_counter() - start, 1)
    RESULTS.mkdir(parents=True, exist_ok=True)
    temporary = RESULTS / f"{entry['name']}.part"
    temporary.write_text(json.dumps(report, indent=1))
    os.replace(temporary, RESULTS / f"{entry['name']}.json")
    return report


def line(report: Report, target: str) -> str:
    """A verdict as one line."""
    judgement = verdict(report, target)
    head = f"{report['name']:30} {target:20} {judgement.word:8}"
    if judgement.word != "ok":
        return f"{head} {judgement.reason[:300]}"
    part = report["targets"][target]
    decibels = (
        "" if judgement.worst is None else f"worst {judgement.worst:6.1f} mean {judgement.mean:6.1f} dB"
    )
    words = (
        f" UNWARNED {', '.join(judgement.unwarned)}"
        if judgement.unwarned
        else " warned"
        if judgement.low
        else ""
    )
    return (
        f"{head} {decibels:32} {part['npu_layers']:4} NPU {len(part['cpu_layers']):3} CPU {part['cycles']:12,} cycles"
        f" {report['seconds']:6.1f} s{words}"
    )


def main() -> int:
    """Sweep."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--models", default="")
    parser.add_argument("--targets", default=TARGETS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=int, default=0, help="take at most so many that have no result yet")
    parser.add_argument("--patience", type=float, default=1.0, help="multiply the time limits")
    parser.add_argument("--again", action="store_true", help="make results anew")
    parser.add_argument("--any-commit", action="store_true", help="keep results of other commits")
    parser.add_argument("--write-docs", action="store_true")
    arguments = parser.parse_args()
    os.environ["NPUC_CACHE"] = str(ROOT / "build" / "zoo" / "cache")
    zoo_process.start()
    options = Options(commit(), tuple(arguments.targets.split(",")), arguments.patience)
    chosen = entries(arguments.models)
    missing = [entry["name"] for entry in chosen if not file_of(entry).exists()]
    if missing:
        print(f"no files for {', '.join(missing)}: run benchmarks/zoo_models.py first", file=sys.stderr)
    chosen = [entry for entry in chosen if entry["name"] not in missing]
    kept, todo = [], []
    for entry in chosen:
        old = load(entry)
        same = old is not None and old["options"] == options.key
        if same and not arguments.again and (arguments.any_commit or old["commit"] == options.commit):
            kept.append(old)
        else:
            todo.append(entry)
    # The small ones first: what a run has no time for is the fewest.
    todo.sort(key=lambda entry: file_of(entry).stat().st_size)
    todo = todo[: arguments.limit] if arguments.limit else todo
    reports = list(kept)
    for report in kept:
        for target in options.targets:
            print(line(report, target), flush=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for done in as_completed([pool.submit(run, entry, options) for entry in todo]):
            report = done.result()
            reports.append(report)
            for target in options.targets:
                print(line(report, target), flush=True)
    verdicts = [verdict(report, target) for report in reports for target in options.targets]
    failed = sum(each.word == "FAILED" for each in verdicts)
    refused = sum(each.word == "refused" for each in verdicts)
    unwarned = sum(bool(each.unwarned) for each in verdicts)
    print(
        f"{len(reports)} networks, {len(verdicts)} programs: {failed} failed, {refused} refused, "
        f"{unwarned} with a slice below {LOST:g} dB that nobody announced, {len(missing)} without a file"
    )
    if arguments.write_docs:
        write_docs(options)
    return int(bool(failed or unwarned or missing))


if __name__ == "__main__":
    sys.exit(main())
