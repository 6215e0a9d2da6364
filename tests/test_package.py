"""`import npuc`: nothing is loaded, and everything is there at first use."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module

import pytest

import npuc


def test_packages_are_there_at_first_use() -> None:
    code = (
        "import sys, npuc; assert 'numpy' not in sys.modules;"
        "assert npuc.runtime.Runner and npuc.flow.import_model and npuc.lang.conv;"
        "assert {'runtime', 'flow', 'from_torch'} <= set(dir(npuc))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("before", "after"), [(None, "1"), ("0", "0")])
def test_onnx_runtime_reports_nothing_unless_the_user_says_so(before: str | None, after: str) -> None:
    name = "ORT_DISABLE_TELEMETRY"
    environment = {key: value for key, value in os.environ.items() if key != name}
    environment |= {name: before} if before is not None else {}
    code = f"import os, npuc; print(os.environ['{name}'])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == after


def test_the_help_names_what_there_is() -> None:
    assert npuc.__doc__ is not None
    named = [
        word.removeprefix("npuc.").strip(",") for word in npuc.__doc__.split() if word.startswith("npuc.")
    ]
    assert "runtime" in named and set(named) <= set(dir(npuc))


def test_what_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(npuc, "nothing")


def test_old_names_of_modules_are_imported_with_a_warning() -> None:
    code = (
        "import warnings; warnings.simplefilter('error');"
        "import npuc.program.file as new; warnings.simplefilter('ignore');"
        "import npuc.codegen.file as old; from npuc.export.c import application;"
        "assert old is new and old.__spec__.name == 'npuc.program.file';"
        "import npuc.deploy.c.application as same; assert application is same"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = "import warnings; warnings.simplefilter('error'); import npuc.codegen.file"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=False)
    assert "FutureWarning: npuc.codegen.file is now npuc.program.file" in done.stderr


@pytest.mark.parametrize(
    ("module", "former", "now"),
    [
        ("calib.ranges", "Candidate", "RangeCandidate"),
        ("compare", "Figures", "OutputFigures"),
        ("compare", "judge", "measure_outputs"),
        ("compare.layers", "Figures", "TensorFigures"),
        ("compare.layers", "Meter", "ErrorMeter"),
        ("compare.tensors", "Statistics", "TensorSummary"),
        ("compare.tensors", "statistics", "summarize"),
        ("layer_costs", "Pricing", "TargetCostModel"),
        ("quant.accuracy", "Accuracy", "OutputAccuracy"),
        ("quant.ladder", "Workshop", "QuantizationContext"),
        ("quant.validation", "OutputJudge", "OutputValidator"),
    ],
)
def test_former_names_work_with_a_warning(module: str, former: str, now: str) -> None:
    owner = import_module(f"npuc.{module}")
    with pytest.warns(FutureWarning, match=f"{former} is now {now}"):
        assert getattr(owner, former) is getattr(owner, now)


def test_a_module_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        __import__("npuc.codegen.nothing")
