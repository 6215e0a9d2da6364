"""Exported C applications of whole networks, proved: `python tests/c_proof.py` (`make prove-c`).

Every model under ../shared/models, of whatever format, is quantized on random data, compiled, and exported in both forms. Each
is built by gcc and by clang with warnings as errors, with address and undefined-behaviour checks, run with them and under
valgrind, and has to give Python's bits every time (with CPU layers, Python's numbers). The standalone form is also linked with
allocators that abort, and none of its objects may name one.

    python tests/c_proof.py [--models mobilenet_v2,caffe,...] [--skip darknet/cfg_only,...] [--list]
                                   [--forms hosted,standalone] [--variants gcc,clang,checks,clang-checks,valgrind]
                                   [--resume JOURNAL] [--six]

A model is picked by its path under ../shared/models, without the suffix, by the last part of that, or by a folder on it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from npuc.deploy.c import export_c
from npuc.errors import NpucError
from npuc.frontend.options import ImportOptions
from npuc.program.file import load_compiled, save_compiled
from npuc.program.host_ops import refusal_of
from npuc.program.model import CompiledModel, CpuSubgraph
from support.cached_compiler import cached
from support.paths import ROOT, SHARED
from support.programs.c_applications import CHECKS, STRICT, TARGET, compiled, surroundings

FORMS = ("hosted", "standalone")
MODELS = SHARED / "models"
SUFFIXES = (".onnx", ".tflite", ".pt", ".pt2", ".pb", ".h5", ".keras", ".cfg", ".prototxt")


def _begins(name: str, *shape: int) -> ImportOptions:
    return ImportOptions(inputs=(name,), input_shapes={name: shape})


def _shape(name: str, *shape: int) -> ImportOptions:
    return ImportOptions(input_shapes={name: shape})


# What a file does not say of itself; smaller images where the network is large, since valgrind runs it; and where what
# no runtime has (text before a spectrum) ends.
OPTIONS = {
    "darknet/cfg_only/efficientnet_b0": _shape("data", 1, 3, 64, 64),
    "darknet/cfg_only/resnet50": _shape("data", 1, 3, 64, 64),
    "darknet/cfg_only/yolov2": _shape("data", 1, 3, 64, 96),
    "darknet/cfg_only/yolov3-spp": _shape("data", 1, 3, 64, 64),
    "darknet/cfg_only/yolov3-tiny": _shape("data", 1, 3, 96, 96),
    "darknet/cfg_only/yolov4": _shape("data", 1, 3, 64, 64),
    "onnx/cifar10_resnet20": _shape("input", 1, 3, 32, 32),
    "onnx/ppocrv3_text_det": _shape("x", 1, 3, 160, 160),
    "onnx/super_resolution": _shape("input", 1, 1, 224, 224),
    "pytorch/cifar10_resnet20.torchscript": _shape("x", 1, 3, 32, 32),
    "tensorflow/cnn_s": _begins("Mfcc", 1, 49, 10),
    "tensorflow/ds_cnn_s": _begins("Mfcc", 1, 49, 10),
    "tensorflow/lstm_s": _begins("Mfcc", 1, 25, 10),
}
SIX = (
    "caffe/wechat_detect", "onnx/shufflenet_v2_int8", "keras/ad", "onnx/mnist", "tflite/hello_world_int8",
    "tflite/micro_speech_int8",
)  # fmt: skip
"""Those that the default tests run by `npu.h`; the CPU has layers of the first two."""
_PATIENCE = 3600
ALLOCATORS = {
    "malloc", "calloc", "realloc", "free", "aligned_alloc", "posix_memalign", "mmap", "sbrk", "brk", "strdup",
}  # fmt: skip
_TRAP = """\
#include <stddef.h>
#include <stdlib.h>
void *malloc(size_t size) { (void)size; abort(); }
void *calloc(size_t count, size_t size) { (void)count; (void)size; abort(); }
void *realloc(void *old, size_t size) { (void)old; (void)size; abort(); }
void *aligned_alloc(size_t at, size_t size) { (void)at; (void)size; abort(); }
void free(void *old) { (void)old; }
"""


@dataclass(frozen=True)
class Variant:
    """A way to build and run an application."""

    name: str
    compiler: str
    flags: str
    before: tuple[str, ...] = ()
    """What the program is run under."""

    @property
    def missing(self) -> str:
        """The tool that is not installed, or nothing."""
        needed = (self.compiler, *self.before[:1])
        return next((tool for tool in needed if shutil.which(tool) is None), "")


VARIANTS = {
    one.name: one
    for one in (
        Variant("gcc", "gcc", "-O2"),
        Variant("clang", "clang", "-O2"),
        Variant("checks", "gcc", CHECKS),
        Variant("clang-checks", "clang", CHECKS),
        Variant("valgrind", "gcc", "-O2 -g", ("valgrind", "-q", "--error-exitcode=9", "--leak-check=full")),
    )
}


class Failed(Exception):
    """An application is not what it should be; the words say how."""


def call(command: Sequence[str], folder: Path) -> str:
    """Run a command that has to succeed, and return what it printed."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=surroundings(), timeout=_PATIENCE
    )
    said = done.stdout + done.stderr
    if done.returncode or "Sanitizer" in said:
        raise Failed(f"{' '.join(command[:3])}: status {done.returncode}: {said[-1500:]}")
    return said


def digest(folder: Path) -> str:
    """Of the contents of a folder."""
    found = sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


class Workshop:
    """Builds applications; the objects of the runtime, which are the same for all models, are compiled once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def prove(self, app: Path, form: str, variant: Variant) -> None:
        """Build and run an application in one way; `Failed` says what is wrong."""
        shutil.rmtree(app / "build", ignore_errors=True)
        (app / "app").unlink(missing_ok=True)
        kept = self._folder / f"{form}-{variant.name}-{digest(app / 'runtime')}"
        if kept.is_dir():
            # New times: objects have to be younger than the sources.
            shutil.copytree(kept, app / "build/runtime", copy_function=shutil.copyfile)
        flags, link = variant.flags, "-fsanitize=address,undefined" if "sanitize" in variant.flags else ""
        if link and form == "hosted" and not kept.is_dir():
            # With checks, these two take longer to compile than all the rest; the kernels have tests of their own.
            slow = [f"build/runtime/src/gemm_{name}.o" for name in ("avx2", "avx512")]
            self._make(app, variant.compiler, "-O1", "", *slow)
        self._make(app, variant.compiler, flags, link)
        said = call([*variant.before, "./app", *(["sample"] if form == "hosted" else [])], app)
        if not any(
            words in said
            for words in ("all outputs have the expected bits", "all outputs are the expected ones")
        ):
            raise Failed(f"the outputs are not the expected ones: {said[-500:]}")
        if not kept.is_dir():
            shutil.copytree(app / "build/runtime", kept)

    def no_allocator(self, app: Path) -> None:
        """A standalone application with allocators that abort runs, and names none."""
        (app / "trap.c").write_text(_TRAP)
        try:
            self.prove(app, "standalone", Variant("trap", "gcc", "-O1 -fno-builtin"))
        finally:
            (app / "trap.c").unlink()
        objects = [str(path) for path in sorted(app.glob("build/**/*.o")) if path.name != "trap.o"]
        used = {line.split()[-1] for line in call(["nm", "-u", *objects], app).splitlines() if " U " in line}
        if "memcpy" not in used or used & ALLOCATORS:
            raise Failed(f"the standalone form names {sorted(used & ALLOCATORS)}")

    def _make(self, app: Path, compiler: str, flags: str, link: str, *targets: str) -> None:
        given = [f"CC={cached(compiler)}", f"CFLAGS={flags}", f"LDFLAGS={link}", f"WARNINGS={STRICT}"]
        said = call(["make", "-s", *given, *targets], app)
        if "warning" in said:
            raise Failed(said[-1500:])


def exported(model: CompiledModel, folder: Path, form: str) -> Path:
    """The application of a model."""
    save_compiled(model, folder / "model.npu")
    file = (folder / "model.npu").read_bytes()
    app = folder / form
    export_c(load_compiled(folder / "model.npu"), file, app, standalone=form == "standalone")
    return app


def model_files() -> dict[str, Path]:
    """Every model under ../shared/models, by its path there without the suffix."""
    found = {}
    for path in sorted(MODELS.rglob("*")):
        alone = path.suffix == ".caffemodel" and not path.with_suffix(".prototxt").exists()
        if path.name == "saved_model.pb":
            found[path.parent.relative_to(MODELS).as_posix()] = path.parent
        elif path.suffix in SUFFIXES or alone:
            found[path.relative_to(MODELS).with_suffix("").as_posix()] = path
    return found


def picked(name: str, words: str) -> bool:
    """Whether a model is among those named: by its path, by the last part of it, or by a folder."""
    ways = {name, name.rpartition("/")[2], *(name[:k] for k, sign in enumerate(name) if sign == "/")}
    return not ways.isdisjoint(words.split(","))


def on_the_npu(name: str, path: Path) -> CompiledModel | str:
    """The compiled model, or why there is no application of it."""
    try:
        model = compiled(path, OPTIONS.get(name, ImportOptions()))
    except NpucError as error:
        return f"not compiled: {error.message}"
    except Exception as error:  # a fault of the compiler: the others go on
        return f"FAULT of the compiler: {type(error).__name__}: {error}"
    refusals = [refusal_of(part.host) for part in model.subgraphs if isinstance(part, CpuSubgraph)]
    if any(refusals):
        return f"no operator in C: {'; '.join(filter(None, refusals))}"
    return model


class Journal:
    """What is proved already, of the C sources as they are; a line for each form of a model."""

    def __init__(self, path: Path | None, variants: Sequence[str]) -> None:
        self._path = path
        self._key = [digest(ROOT / "native"), digest(ROOT / "src/npuc/deploy/c"), *variants]
        lines = path.read_text().splitlines() if path is not None and path.is_file() else []
        self._done = {tuple(entry[:2]) for entry in map(json.loads, lines) if entry[2:] == self._key}

    def has(self, name: str, form: str) -> bool:
        """Whether a form of a model is proved."""
        return (name, form) in self._done

    def note(self, name: str, form: str) -> None:
        """A form of a model is proved."""
        if self._path is not None:
            with open(self._path, "a") as out:
                out.write(json.dumps([name, form, *self._key]) + "\n")


def main() -> int:
    """Prove what is asked for; the exit status is how many forms of networks failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", help="only these")
    parser.add_argument("--skip", default="", help="all but these")
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument(
        "--variants", default="", help="all unless they are named; a missing tool is left out"
    )
    parser.add_argument("--objects", type=Path, help="a folder that keeps the objects of the runtime")
    parser.add_argument("--resume", type=Path, help="a journal: what it has is not done again")
    parser.add_argument("--six", action="store_true", help="only the six that the default tests run")
    parser.add_argument("--list", action="store_true", help="only say which models there are applications of")
    given = parser.parse_args()
    if given.six:
        given.models = ",".join(SIX)
    variants = [VARIANTS[name] for name in (given.variants or ",".join(VARIANTS)).split(",")]
    for variant in variants:
        if variant.missing:
            print(
                f"{variant.name}: {variant.missing} is not installed{'' if given.variants else ', left out'}"
            )
            if given.variants:
                return 2
    variants = [variant for variant in variants if not variant.missing]
    journal = Journal(given.resume, [variant.name for variant in variants])
    failed = proved = 0
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(given.objects or Path(folder) / "objects")
        for name, path in model_files().items():
            if picked(name, given.skip) or (given.models and not picked(name, given.models)):
                continue
            forms = [form for form in given.forms.split(",") if not journal.has(name, form)]
            if not forms:
                continue
            model = on_the_npu(name, path)
            if isinstance(model, str):
                failed += model.startswith("FAULT")
                print(f"{name:44} left out: {model}", flush=True)
                continue
            if given.list:
                print(f"{name:44} {model.weights.size / 1e6:6.1f} MB of constants", flush=True)
                continue
            for form in forms:
                here = Path(folder) / "model"
                here.mkdir()
                words, start = [], time.perf_counter()
                try:
                    app = exported(model, here, form)
                    for variant in variants:
                        begin = time.perf_counter()
                        workshop.prove(app, form, variant)
                        words.append(f"{variant.name} {time.perf_counter() - begin:.0f} s")
                    if form == "standalone":
                        workshop.no_allocator(app)
                        words.append("no allocator")
                    proved += 1
                    journal.note(name, form)
                except (Failed, NpucError, subprocess.TimeoutExpired) as error:
                    words.append(f"FAILED: {error}")
                    failed += 1
                taken = time.perf_counter() - start
                print(f"{name:44} {form:10} {', '.join(words)} ({taken:.0f} s)", flush=True)
                shutil.rmtree(here)
    print(f"{proved} applications proved for {TARGET.name}, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(main())
