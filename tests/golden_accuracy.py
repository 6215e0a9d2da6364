"""Golden accuracies: what `tests/golden_accuracy.yaml` says, measured again.

    python tests/golden_accuracy.py [NAME...]      measure entries (all of them take about ten minutes) and print the figures

The file has for each entry the model, how images become its inputs, the scheme, the data, and figures with a tolerance.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from npuc.calib.sources import DataOptions, open_data
from npuc.evaluate import Confidence, DataLocation, ModelFile, evaluate
from npuc.flow import ImportOptions, compile_network, import_model, quantize_on_data
from npuc.images.preprocess import Preprocess
from npuc.ir import Graph, save_graph
from npuc.quant.config import QuantizationConfig

ROOT = Path(__file__).resolve().parent.parent
FILE = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True)
class Golden:
    """A model with a scheme on data, and what it measures."""

    name: str
    model: str
    scheme: str
    """float; int8: the default; pow2: powers of two, per tensor; npu: int8, compiled for edge-4t."""
    data: str
    figures: Mapping[str, tuple[float, float]]
    """Value and tolerance by name."""
    metrics: tuple[str, ...]
    count: int | None = None
    calibration: str = ""
    calibration_count: int = 64
    input_shape: tuple[int, ...] = ()
    preprocess: Mapping[str, Any] = field(default_factory=dict)
    postprocess: str | None = None
    fast: bool = False
    """Checked in every run of the tests."""


def load() -> list[Golden]:
    """The entries of the file."""
    content = yaml.safe_load(FILE.read_text())
    found = []
    for entry in content["accuracies"]:
        values = content["networks"][entry.pop("network")] | entry
        values["name"] = f"{Path(values['model']).stem} {values['scheme']} {values.get('count') or 'all'}"
        values["metrics"] = tuple(values["metrics"])
        values["figures"] = {name: tuple(pair) for name, pair in values["figures"].items()}
        values["input_shape"] = tuple(values.get("input_shape", ()))
        found.append(Golden(**values))
    return found


def path_of(text: str) -> Path:
    """A path of the file: of the repository, or of the shared folder beside it."""
    return ROOT.parent / text if text.startswith("shared/") else ROOT / text


def present(golden: Golden) -> bool:
    """Whether model and data are here."""
    return path_of(golden.model).exists() and path_of(golden.data).exists()


def measured(golden: Golden) -> dict[str, float]:
    """The figures of an entry as they are now."""
    with tempfile.TemporaryDirectory() as folder:
        report = evaluate(
            ModelFile(
                _model(golden, Path(folder)),
                _options(golden) if golden.scheme == "float" else ImportOptions(),
            ),
            DataLocation(path_of(golden.data)),
            golden.metrics,
            max_count=golden.count,
            preprocess=golden.preprocess or None,
            postprocess=golden.postprocess,
            confidence=Confidence(draws=0),
        )
    return {name: report.value(name) for name in golden.figures}


def _options(golden: Golden) -> ImportOptions:
    path = path_of(golden.model)
    if not golden.input_shape:
        return ImportOptions()
    from npuc.flow import input_names

    (name,) = input_names(path)
    return ImportOptions(input_shapes={name: golden.input_shape})


def _model(golden: Golden, folder: Path) -> Path:
    if golden.scheme == "float":
        return path_of(golden.model)
    graph = _quantized(golden.model, golden.scheme, golden.calibration, golden.calibration_count, golden)
    if golden.scheme != "npu":
        save_graph(graph, folder / "network.mlir")
        return folder / "network.mlir"
    from npuc.program.file import save_compiled
    from npuc.target import load_target

    save_compiled(compile_network(graph, load_target("edge-4t")).model, folder / "network.npu")
    return folder / "network.npu"


_KEPT: dict[tuple[str, str], Graph] = {}


def _quantized(model: str, scheme: str, calibration: str, count: int, golden: Golden) -> Graph:
    key = (model, "int8" if scheme == "npu" else scheme)
    if key not in _KEPT:
        graph = import_model(path_of(model), _with_images(golden))
        config = QuantizationConfig.model_validate({"scheme": _pow2()}) if scheme == "pow2" else None
        source = open_data(graph, path_of(calibration), DataOptions(max_count=count))
        _KEPT[key] = quantize_on_data(graph, source, config, threads=2)[0].graph
    return _KEPT[key]


@cache
def _pow2() -> dict[str, Any]:
    return {"activation_scales": "pow2", "weight_scales": "pow2", "per_channel": False}


def _with_images(golden: Golden) -> ImportOptions:
    from npuc.flow import input_names

    options = _options(golden)
    if not golden.preprocess:
        return options
    (name,) = input_names(path_of(golden.model))
    preprocess = {name: Preprocess.from_dict(golden.preprocess)}
    return ImportOptions(input_shapes=options.input_shapes, preprocess=preprocess)


def _wanted(names: list[str]) -> Iterator[Golden]:
    for golden in load():
        if not names or any(name in golden.name for name in names):
            yield golden


if __name__ == "__main__":
    for one in _wanted(sys.argv[1:]):
        if not present(one):
            print(f"{one.name}: its model or data is not here")
            continue
        for figure, value in measured(one).items():
            wanted, tolerance = one.figures[figure]
            verdict = "as kept" if abs(value - wanted) <= tolerance else f"NOT the {wanted} that is kept"
            print(f"{one.name:32} {figure:6} {value:.4f}  {verdict}", flush=True)
