"""How many faults the tests notice: `make mutate COUNT=100`, or `python tests/mutate.py --rooms evaluate,cli --count 20`.

Once, and again for files of tests that change, every test runs with probes in npuc's functions, which tell the statements that it
runs (`build/mutate`; about the time of `make test` on one core; what is done is kept when it is stopped). Then a seeded sample of
small faults is planted, one at a time, and each is judged by tests that run its statement, in a process of their own that ends at
the first failure. A fault that no test fails for is printed with its line. Faults that change nothing that a test could see are
listed, each with its reason, in `tests/equivalent_faults.yaml`; they do not count. Verdicts are kept as long as the source file
(and, for a missed fault, the tests) stay the same, so that a run which `--minutes` has stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections import Counter
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))
from support.faults.judging import Verdicts, judge
from support.faults.planting import Fault, faults_of
from support.faults.records import NPUC, Map, Project, is_recorded, record
from support.paths import ROOT

EQUIVALENT = ROOT / "tests" / "equivalent_faults.yaml"
ROOMS = (
    "arithmetic", "calib", "cli", "codegen", "compare", "debug", "engine", "evaluate", "explore", "export", "frontend", "images",
    "ir", "kernels", "lang", "metrics", "partition", "plugins", "profile", "program", "quant", "runtime", "schedule", "sim",
    "target", "transform",
)  # fmt: skip
"""Packages of npuc in which faults are planted. Tests of the others (compat, studio, integrations, train, and small ones) need
other programs or too much time, and are not recorded."""
TESTS = (
    "evaluate", "target", "arithmetic", "program", "ir", "lang", "compare", "partition", "profile", "debug", "explore", "images",
    "plugins", "calib", "runtime", "engine", "sim", "schedule", "kernels", "transform", "export", "codegen", "cli", "quant",
    "frontend", ".",
)  # fmt: skip
"""Folders of tests, in the order in which they are recorded."""
LONG = (
    "test_mutate", "test_notebooks", "test_release", "test_site", "test_tutorials", "test_walkthroughs", "test_zoo_list",
    "test_golden_accuracy", "test_fuzz_cases", "test_native_abi",
)  # fmt: skip
"""Files of tests beside the folders that are not recorded: they build, start many processes or test no package."""


def files_of(name: str) -> list[str]:
    """The files of tests in a folder; `.` is that of those which belong to no package."""
    files = (path for path in (ROOT / "tests" / name).glob("test_*.py") if path.stem not in LONG)
    return sorted(path.relative_to(ROOT).as_posix() for path in files)


def record_tests(project: Project, names: list[str], seconds: float) -> None:
    """Record the files of tests that have no record, a folder in a process."""
    for name in names:
        files = files_of(name)
        missing = [path for path in files if not is_recorded(project, path)]
        if missing:
            record(project, missing, seconds)
        left = [path for path in missing if not is_recorded(project, path)]
        print(f"recorded tests/{name}: {len(files) - len(left)} of {len(files)} files", flush=True)


def equivalent_faults() -> dict[str, str]:
    """Faults that change nothing that a test could see, with the reason."""
    document: dict[str, str] = yaml.safe_load(EQUIVALENT.read_text(encoding="utf-8"))
    return document


def sample(room: str, count: int, seed: int) -> list[Fault]:
    """The first `count` faults of a room in an order that only the seed and the room's own sources decide."""
    faults = [fault for path in NPUC.sources(room) for fault in faults_of(path, ROOT)]
    random.Random(f"{seed}:{room}").shuffle(faults)
    return faults[:count]


def interval(noticed: int, of: int) -> tuple[float, float]:
    """Wilson's interval of a share at 95 %."""
    if of == 0:
        return 0.0, 1.0
    z2, share = 1.96**2, noticed / of
    middle = share + z2 / (2 * of)
    half = math.sqrt(z2 * (share * (1 - share) / of + z2 / (4 * of * of)))
    return (middle - half) / (1 + z2 / of), (middle + half) / (1 + z2 / of)


def score(counts: dict[str, Counter[str]]) -> list[str]:
    """The lines that the command ends with, from the counts of each room by outcome."""
    rows = {**counts, "all": Counter[str]()}
    for of_room in counts.values():
        rows["all"].update(of_room)
    lines = [f"{'':12} noticed    of  score  95 % interval  unclear  equivalent"]
    for name, row in rows.items():
        seen, of = row["noticed"], row["noticed"] + row["missed"]
        low, high = interval(seen, of)
        share = f"{seen / of:5.0%}" if of else "    -"
        lines.append(
            f"{name:12} {seen:7} {of:5}  {share}  {low:5.0%} to {high:4.0%} {row['unclear']:8} {row['equivalent']:11}"
        )
    return lines


def main() -> None:
    """Plant faults and print the score of each room."""
    parser = argparse.ArgumentParser(description="Plant faults and see whether the tests notice.")
    parser.add_argument("--count", type=int, default=100, help="faults over all rooms")
    parser.add_argument("--rooms", default=",".join(ROOMS), help=f"some of: {', '.join(ROOMS)}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=30, help="CPU seconds of tests for a fault, as recorded, at most"
    )
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="plant no more after these; the next run goes on"
    )
    parser.add_argument(
        "--record", default=",".join(TESTS), help="folders of tests to record first; `none` for none"
    )
    parser.add_argument("--record-seconds", type=float, default=3600, help="for one folder of tests, at most")
    parser.add_argument("--only-record", action="store_true", help="record, and plant nothing")
    args = parser.parse_args()
    if args.record != "none":
        record_tests(NPUC, args.record.split(","), args.record_seconds)
    if args.only_record:
        return
    end = time.monotonic() + 60 * args.minutes
    rooms = args.rooms.split(",")
    samples = {room: sample(room, -(-args.count // len(rooms)), args.seed) for room in rooms}
    turns = [
        (room, fault)
        for turn in zip(*samples.values(), strict=False)
        for room, fault in zip(rooms, turn, strict=True)
    ]
    equivalent, tests = equivalent_faults(), Map(NPUC)
    verdicts = Verdicts(NPUC.folder / "verdicts.json")
    counts: dict[str, Counter[str]] = {room: Counter() for room in rooms}
    for number, (room, fault) in enumerate(turns[: args.count]):
        if time.monotonic() > end:
            print(f"stopped after {number} of {args.count} faults; the next run goes on")
            break
        if fault.key in equivalent:
            counts[room]["equivalent"] += 1
            continue
        verdict = judge(NPUC, fault, tests.judges(fault), verdicts, args.seconds)
        counts[room][verdict.outcome] += 1
        print(f"{verdict.outcome:8} {fault.path}:{fault.line} {fault.words}  [{verdict.by}]", flush=True)
    print("\n".join(score(counts)))


if __name__ == "__main__":
    main()
