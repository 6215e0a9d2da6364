"""Coverage-guided fuzzing of all that reads files: `make fuzz MINUTES=10`, or `python tests/fuzz.py --runs 1000 --only onnx,npu`.

The C runtime is fuzzed by libFuzzer (clang) with address and undefined-behaviour checks, the readers in Python by Atheris. Seeds
are made here; corpora stay in build/fuzz/corpus, so that a later run goes on. A finding becomes a file of tests/fuzz_cases, which
tests/test_fuzz_cases.py reads from then on: mend the reader until it passes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from npuc.native import library
from support.fuzzing.formats import FORMATS, Format
from support.paths import ROOT

FUZZ = ROOT / "build" / "fuzz"
CASES = ROOT / "tests" / "fuzz_cases"
RUNTIME = "runtime"
"""The C runtime: .npu files, loaded and run."""
CHECKS = "-fsanitize={},address,undefined"
LONGEST = 25
"""Seconds that one file may take."""


@dataclass(frozen=True)
class Result:
    """What one target did."""

    name: str
    executions: int
    seconds: float
    corpus: int
    findings: tuple[str, ...]
    ended: str = ""
    """Why it did not come to its end; empty if it did."""


def build_runtime() -> Path:
    """The C runtime with libFuzzer's coverage and checks; clang needs two minutes for it, once."""
    native, program = FUZZ / "native", FUZZ / "npu_file"
    flags = f"-O1 -g {CHECKS.format('fuzzer-no-link')} -fno-sanitize-recover=all -Wno-unused-command-line-argument"
    options = [f"-DCMAKE_C_FLAGS={flags}", "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_C_COMPILER=clang"]
    options.append("-DNPUC_AVX512_OPTIONS=-fno-sanitize=all;-fno-sanitize=fuzzer-no-link")
    cmake = str(Path(sys.executable).parent / "cmake")
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([cmake, "-S", str(ROOT), "-B", str(native), "-G", "Unix Makefiles", *options], **quiet)  # type: ignore[call-overload]
    subprocess.run([cmake, "--build", str(native), "--target", "npuc", "--parallel", "2"], **quiet)  # type: ignore[call-overload]
    sources = [ROOT / "tests/support/fuzzing/npu_file.c"]
    sources += [ROOT / "native/src" / name for name in ("sha256.c", "sha256_ni.c")]
    command = ["clang", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", CHECKS.format("fuzzer")]
    command += ["-fno-sanitize-recover=all", f"-I{ROOT / 'native/include'}", f"-I{ROOT / 'native/src'}"]
    command += [*map(str, sources), f"-L{native}", "-lnpuc", "-Wl,-rpath,$ORIGIN/native", "-o", str(program)]
    subprocess.run(command, check=True)
    return program


def write_seeds(name: str, format: Format) -> tuple[Path, Path]:
    """The corpus with its seeds, and the dictionary."""
    corpus = FUZZ / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for seed, data in format.seeds().items():
        (corpus / f"seed-{seed.replace('/', '-')}").write_bytes(data)
    words = FUZZ / f"{name}.dict"
    lines = ("".join(f"\\x{byte:02x}" for byte in word) for word in format.words)
    words.write_text("".join(f'"{line}"\n' for line in lines))
    return corpus, words


def _limits(runs: int, seconds: int) -> list[str]:
    return [f"-runs={runs}"] if runs else [f"-max_total_time={seconds}"]


def _executions(text: str) -> int:
    """The last count that libFuzzer printed."""
    counts = re.findall(r"^(?:#|Done )(\d+)", text, re.MULTILINE)
    return int(counts[-1]) if counts else 0


def fuzz(name: str, runs: int, seconds: int, seed: int) -> Result:
    """Fuzz one target."""
    in_c = name == RUNTIME
    format = FORMATS["npu" if in_c else name]
    corpus, words = write_seeds(name, format)
    findings = FUZZ / "findings" / name
    shutil.rmtree(findings, ignore_errors=True)
    findings.mkdir(parents=True)
    options = [f"-dict={words}"] if format.words else []
    options += [
        f"-seed={seed}",
        f"-timeout={LONGEST}",
        "-rss_limit_mb=8192",
        "-max_len=70000",
    ]
    options += [f"-artifact_prefix={findings}/", "-print_final_stats=0", *_limits(runs, seconds)]
    if in_c:
        command = [
            str(FUZZ / "npu_file"),
            str(corpus),
            *options,
            "-use_value_profile=0",
            "-malloc_limit_mb=4096",
        ]
    else:
        command = [
            sys.executable,
            "-m",
            "support.fuzzing.python_target",
            name,
            str(corpus),
            str(findings),
            *options,
        ]
    surroundings = os.environ | {
        "ASAN_OPTIONS": "allocator_may_return_null=1:max_allocation_size_mb=256:detect_leaks=0",
        # From its folder, not as installed in editable form: Atheris watches what Python's own finder finds.
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests"), str(FUZZ / "site")]),
        "NPUC_LIBRARY": library()._name,
        "OMP_NUM_THREADS": "1",
    }
    log = FUZZ / f"{name}.log"
    start = time.monotonic()
    with log.open("wb") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=surroundings, cwd=FUZZ)
    text = log.read_text(errors="replace")
    told = tuple(line for line in text.splitlines() if line.startswith("FINDING"))
    ended = "" if done.returncode == 0 else f"exit status {done.returncode}, see {log.relative_to(ROOT)}"
    kept = len(list(corpus.iterdir()))
    return Result(name, _executions(text), time.monotonic() - start, kept, told, ended)


def triage(name: str) -> list[Path]:
    """Findings as test cases: each file under the name of its format."""
    suffix = "npu" if name == RUNTIME else FORMATS[name].suffix
    CASES.mkdir(exist_ok=True)
    made = []
    for found in sorted((FUZZ / "findings" / name).iterdir()):
        if found.name.startswith("slow-unit"):
            continue  # below the limit on time, and on a loaded machine perhaps not slow at all
        stem = found.stem.split("-", 1)[-1][:12]
        case = CASES / f"{name}-{stem}.{suffix}"
        shutil.copyfile(found, case)
        made.append(case)
    return made


def main() -> None:
    """Fuzz every target and print what was done."""
    parser = argparse.ArgumentParser(description="Fuzz all that reads files.")
    parser.add_argument("--minutes", type=float, default=10, help="of all targets together")
    parser.add_argument("--runs", type=int, default=0, help="executions of each target, instead of minutes")
    parser.add_argument("--only", default="", help=f"some of: {', '.join((RUNTIME, *FORMATS))}")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    names = args.only.split(",") if args.only else [RUNTIME, *FORMATS]
    FUZZ.mkdir(parents=True, exist_ok=True)
    if RUNTIME in names:
        build_runtime()
    # The runtime gets half of the time: it is what a device runs, and a thousand times as fast.
    shares = {name: (len(names) if name == RUNTIME else 1) for name in names}
    failed = False
    print(f"{'target':14} {'executions':>10} {'seconds':>8} {'corpus':>7}  findings")
    for name in names:
        seconds = max(1, int(args.minutes * 60 * shares[name] / sum(shares.values())))
        result = fuzz(name, args.runs, seconds, args.seed)
        cases = triage(name)
        failed |= bool(cases) or bool(result.ended)
        said = result.ended or (f"{len(cases)}" if cases else "none")
        print(
            f"{name:14} {result.executions:10,} {result.seconds:8.0f} {result.corpus:7}  {said}", flush=True
        )
        for line in (*result.findings, *(f"  test case: {case.relative_to(ROOT)}" for case in cases)):
            print(f"  {line}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
