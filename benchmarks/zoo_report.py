"""docs/zoo.md: the table of `sweep_zoo.py --write-docs`."""

from __future__ import annotations

import re
from collections import Counter
from textwrap import wrap
from typing import Any

import sweep_zoo
from sweep_zoo import CALIBRATION, HELD_OUT, LOST, Report, Verdict, verdict
from zoo_models import BUILDERS, entries

Pair = tuple[dict[str, Any], Report]


def page(pairs: list[Pair], targets: tuple[str, ...]) -> str:
    """The whole page."""
    verdicts = {
        (entry["name"], target): verdict(report, target) for entry, report in pairs for target in targets
    }
    trained = sum("package" in entry for entry, _ in pairs)
    commits = Counter(report["commit"] for _, report in pairs)
    sources = ", ".join(f"{count} at {commit}" for commit, count in commits.most_common())
    words = Counter(each.word for each in verdicts.values())
    low = [each for each in verdicts.values() if each.low]
    unwarned = sum(bool(each.unwarned) for each in low)
    fail = "fails" if words["FAILED"] == 1 else "fail"
    prose = (
        f"{len(pairs)} networks, {trained} of them trained (from wheels of the package index), the others built by timm, "
        "torchvision, ultralytics and transformers with seeded weights that are calibrated on images "
        "(`benchmarks/zoo_models.py` says how). The list, `benchmarks/zoo.yaml`, was committed before the run. Each "
        "goes through the commands as a user types them: `npuc import`, which compares it with its own framework; "
        f"for {targets[0]} `npuc compile --data`; for {', '.join(targets[1:])} `npuc quantize --data` and `npuc compile`; then "
        f"`npuc sim --sanitize`. {CALIBRATION} samples calibrate, {HELD_OUT} others compare the program with float, **slice by "
        "slice** (`npuc.compare.slices`): the figure is that of the worst slice of any output, beside the mean of the slices.",
        f"Results by commit: {sources}." + _not_reached(pairs),
        f"Of {len(verdicts)} programs, {words['ok']} are made and pass the sanitizer, {words['refused']} are refused with a "
        f"reason, {words['FAILED']} {fail}. {len(low)} have a slice below {LOST:g} dB; npuc announced {len(low) - unwarned} of "
        f"them with a warning (marked †){_unannounced(unwarned)}.",
        "Columns: layers on the NPU + on the CPU, cycles, and decibels of the worst slice / the mean of slices on "
        "held-out samples. `=` marks networks whose outputs are integers, with the share of equal elements. Seconds are "
        "those of all commands together, on a shared core.",
    )
    lines = [
        "# Networks that nobody prepared",
        "",
        "Written by `python benchmarks/sweep_zoo.py --write-docs` from the results of a run; do not edit.",
        "",
        *(line for paragraph in prose for line in (*wrap(paragraph, 118, break_long_words=False), "")),
        *_tables(pairs, targets, verdicts),
        *_stopped(pairs, targets, verdicts),
        *_low(pairs, targets, verdicts),
        *_cpu(pairs, targets),
    ]
    # Where this machine keeps its files is nobody's business.
    return re.sub(r"[^\s'`]*/build/zoo/(models|work)/", "", "\n".join(lines).rstrip() + "\n")


def _not_reached(pairs: list[Pair]) -> str:
    """The networks of the list without a result, so that nobody takes the table for the whole."""
    known = {entry["name"] for entry, _ in pairs}
    rest = [entry["name"] for entry in entries() if entry["name"] not in known]
    if not rest:
        return ""
    return f" The list has {len(known) + len(rest)}; not run yet, for want of time: {', '.join(rest)}."


def _unannounced(count: int) -> str:
    return f", and was silent about {count} (marked ‡)" if count else ""


def _tables(pairs: list[Pair], targets: tuple[str, ...], verdicts: dict[Any, Verdict]) -> list[str]:
    lines = []
    for title, chosen in (
        ("Trained", [pair for pair in pairs if "package" in pair[0]]),
        ("Built", [pair for pair in pairs if "package" not in pair[0]]),
    ):
        columns = [f"{target}: layers | cycles | dB" for target in targets]
        lines += [f"## {title}", "", f"| network | source | {' | '.join(columns)} | s |"]
        lines += ["|---|---|" + "--:|--:|--:|" * len(targets) + "--:|"]
        for entry, report in chosen:
            cells = [_cells(report, target, verdicts[entry["name"], target]) for target in targets]
            about = f"{entry['name']}: {entry['about']}" if "about" in entry else entry["name"]
            lines.append(f"| {about} | {_source(entry)} | {' | '.join(cells)} | {report['seconds']:.0f} |")
        lines.append("")
    return lines


def _source(entry: dict[str, Any]) -> str:
    if "package" in entry:
        suffix = entry["file"].rsplit(".", 1)[-1]
        return f"{entry['package'].replace('==', ' ')}, {suffix}, {entry['licence']}"
    package = next(key for key in BUILDERS if key in entry)
    size = next(iter(entry["inputs"].values()))["shape"]
    return f"{package}, {entry['export']}, {'×'.join(map(str, size[1:]))}"


def _cells(report: Report, target: str, verdict: Verdict) -> str:
    if verdict.word != "ok":
        return f"{verdict.word} | | "
    part = report["targets"][target]
    mark = "‡" if verdict.unwarned else "†" if verdict.low else ""
    figures = part["figures"]
    if verdict.worst is None:
        equal = list(figures["equal"].values())
        decibels = f"= {min(equal):.1%}" if equal else "no signal"
    else:
        decibels = f"{verdict.worst:.1f}{mark} / {verdict.mean:.1f}"
    return f"{part['npu_layers']} + {len(part['cpu_layers'])} | {part['cycles']:,} | {decibels}"


def _stopped(pairs: list[Pair], targets: tuple[str, ...], verdicts: dict[Any, Verdict]) -> list[str]:
    rows = []
    for entry, _ in pairs:
        by_reason: dict[str, list[str]] = {}
        for target in targets:
            verdict = verdicts[entry["name"], target]
            if verdict.word != "ok":
                by_reason.setdefault(f"{verdict.word}, {verdict.reason}", []).append(target)
        rows += [f"- **{entry['name']}** ({', '.join(on)}): {reason}" for reason, on in by_reason.items()]
    return ["## Refused or failed", "", *rows, ""] if rows else []


def _low(pairs: list[Pair], targets: tuple[str, ...], verdicts: dict[Any, Verdict]) -> list[str]:
    rows = []
    for entry, report in pairs:
        for target in targets:
            verdict = verdicts[entry["name"], target]
            if not verdict.low:
                continue
            figures = report["targets"][target]["figures"]["slices"]
            named = ", ".join(f"`{name}` {figures[name]:.1f} dB" for name in verdict.low[:3])
            more = f" and {len(verdict.low) - 3} more" if len(verdict.low) > 3 else ""
            words = sweep_zoo.warnings(report["targets"][target])
            told = words[0] if words and not verdict.unwarned else "nothing was said"
            rows.append(f"- **{entry['name']}** ({target}): {named}{more}. {told}")
    return [f"## Slices below {LOST:g} dB, and what npuc said", "", *rows, ""] if rows else []


def _cpu(pairs: list[Pair], targets: tuple[str, ...]) -> list[str]:
    reasons: dict[str, set[str]] = {}
    for entry, report in pairs:
        for target in targets:
            for reason in report["targets"].get(target, {}).get("cpu_layers", {}).values():
                reasons.setdefault(f"{target}: {reason}", set()).add(entry["name"])
    rows = sorted(reasons.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    told = [f"- {reason} ({', '.join(sorted(names))})" for reason, names in rows]
    return ["## Why layers are on the CPU", "", *told, ""] if told else []
