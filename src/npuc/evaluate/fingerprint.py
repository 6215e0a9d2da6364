"""What a run is, in a few digests: the content of its models, the names, sizes and truths of its samples, its options."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from npuc.calib.raw import RAW
from npuc.datasets.sample import SampleEntry
from npuc.evaluate.plan import Plan
from npuc.evaluate.subject import ModelFile


def fingerprints(plan: Plan, entries: Sequence[SampleEntry]) -> dict[str, str]:
    """Digests of models, data and options."""
    return {
        "models": _digest(part for model in plan.models for part in _model(model)),
        "data": _digest(part for entry in entries for part in _entry(entry)),
        "options": _digest(_options(plan)),
    }


def _digest(parts: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]


def _model(model: ModelFile) -> Iterable[Any]:
    path = model.path
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    # Weights lie beside the program.
    files += [path.with_suffix(s) for s in (".safetensors", ".weights", ".caffemodel") if path.suffix != s]
    files += [model.options.weights] if model.options.weights is not None else []
    for file in files:
        if file.is_file():
            yield _content(file)
    yield model.options
    yield model.device
    if model.torch_device != "cpu":
        yield f"torch on {model.torch_device}"
    if model.entry:
        yield model.entry


def _content(path: Path) -> bytes:
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").digest()


def _entry(entry: SampleEntry) -> Iterable[Any]:
    yield entry.name, entry.truth, entry.row
    for path in (entry.path, entry.extra):
        # The same file serves many samples, and its size is cheap to ask for.
        yield None if path is None else path.stat().st_size


def _options(plan: Plan) -> Iterable[Any]:
    yield plan.metrics, plan.read, plan.classes, sorted(plan.preprocess.items()), plan.postprocess
    yield plan.skip_unreadable, plan.version
    if plan.prepare is not None:
        file = Path(plan.prepare.rpartition(":")[0] or plan.prepare)
        for path in (file, Path(plan.prepare)):
            if path.is_file():
                yield _content(path)
        yield plan.prepare if plan.prepare.startswith(RAW) else plan.prepare.rpartition(":")[2]
