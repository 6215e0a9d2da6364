"""npuc.torch.compile_module: an nn.Module with a program in it, which saves, loads and runs on several threads."""

from __future__ import annotations

import copy
import io
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import npuc  # noqa: E402
from npuc.errors import FileFormatError, InputDataError, OutputError, UsageError  # noqa: E402
from npuc.program.file import load_compiled  # noqa: E402
from npuc.runtime import Runner  # noqa: E402


class Two(nn.Module):
    """Takes two tensors and a flag, gives a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 4), nn.Linear(3, 4)

    def forward(self, a: Any, b: Any, scale: bool = True) -> Any:
        total = torch.relu(self.left(a) + self.right(b) + 1)
        return {"total": total * 2 if scale else total, "parts": [total.sum(1), scale]}


def samples(rows: int = 1, count: int = 4) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    return [
        {"a": torch.rand(rows, 6, generator=generator), "b": torch.rand(rows, 3, generator=generator)}
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return Two()


@pytest.fixture(scope="module")
def compiled(model: Any) -> Any:
    return npuc.torch.compile_module(model, samples(8, 8), target="edge-4t", method="max", level=0)


def close(found: Any, wanted: Any) -> None:
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    assert float((found - wanted).abs().max()) < 0.03 * float(wanted.abs().max())


def test_it_gives_what_the_module_gives(model: Any, compiled: Any) -> None:
    assert isinstance(compiled, nn.Module) and model.training
    with torch.no_grad():
        for rows in (1, 5):
            sample = samples(rows, 1)[0]
            found, wanted = compiled(**sample), model(**sample)
            assert found.keys() == wanted.keys() and found["parts"][1] is True
            close(found["total"], wanted["total"])
            close(found["parts"][0], wanted["parts"][0])
    assert compiled.report.npu_share > 0.9


def test_it_saves_as_a_compiled_model_and_loads(compiled: Any, tmp_path: Path) -> None:
    compiled.save(tmp_path / "two.npu")
    again = npuc.torch.load(tmp_path / "two.npu")
    sample = samples(2, 1)[0]
    assert torch.equal(again(**sample)["total"], compiled(**sample)["total"])
    assert again.report == compiled.report
    names = [info.name for info in Runner(tmp_path / "two.npu").input_tensors]
    arrays = {name: tensor.numpy() for name, tensor in zip(names, sample.values(), strict=True)}
    outputs = Runner(tmp_path / "two.npu").run(arrays)
    assert any(np.array_equal(array, compiled(**sample)["total"]) for array in outputs.values())


def test_a_state_dict_has_the_program_and_no_pickle(compiled: Any) -> None:
    file = io.BytesIO()
    torch.save(compiled.state_dict(), file)
    file.seek(0)
    again = npuc.torch.NpuModule()
    with pytest.raises(UsageError, match="no program yet"):
        again(torch.zeros(1))
    again.load_state_dict(torch.load(file, weights_only=True))
    sample = samples(1, 1)[0]
    assert torch.equal(again(**sample)["total"], compiled(**sample)["total"])
    assert torch.equal(copy.deepcopy(compiled)(**sample)["total"], compiled(**sample)["total"])
    with pytest.raises(FileFormatError, match="not that of a compiled module"):
        again.set_extra_state({"x": 1})
    damaged = compiled.get_extra_state().clone()
    damaged[len(damaged) // 2] ^= 255
    with pytest.raises(FileFormatError):
        again.set_extra_state(damaged)


def test_other_arguments_are_refused(compiled: Any) -> None:
    sample = samples(1, 1)[0]
    with pytest.raises(InputDataError, match="compiled for other arguments"):
        compiled(sample["a"], sample["b"])
    with pytest.raises(InputDataError, match="takes shape"):
        compiled(a=torch.zeros(1, 7), b=sample["b"])
    with pytest.raises(UsageError, match="gradients are wanted"):
        compiled(a=sample["a"].clone().requires_grad_(), b=sample["b"])


def test_threads_share_it(compiled: Any) -> None:
    given = samples(1, 6)
    wanted = [compiled(**sample)["total"] for sample in given]
    with ThreadPoolExecutor(4) as pool:
        for found, right in zip(
            pool.map(lambda sample: compiled(**sample)["total"], given * 5), wanted * 5, strict=True
        ):
            assert torch.equal(found, right)


def test_rows_that_depend_on_each_other_fix_the_batch() -> None:
    class Centred(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.relu(x - x.mean(0))

    compiled = npuc.torch.compile_module(
        Centred(), [torch.rand(3, 4) for _ in range(2)], method="max", level=0
    )
    with pytest.raises(InputDataError, match=r"takes shape \[3, 4\], and was given \[5, 4\]"):
        compiled(torch.rand(5, 4))


def test_a_file_with_another_signature_is_refused(compiled: Any, tmp_path: Path) -> None:
    from dataclasses import replace

    from npuc.program.file import save_compiled

    compiled.save(tmp_path / "two.npu")
    model = load_compiled(tmp_path / "two.npu")
    signature = json.loads(json.dumps(model.metadata["call_signature"]))
    for change in (
        {"outputs": ["nothing"] * 2},
        {"dtypes": ["load"] * 2},
        {"results": {"tensor": 7}},
        {"results": {"call": "os.system"}},
        {"inputs": []},
        {"shapes": 3},
    ):
        bad = replace(model, metadata={**model.metadata, "call_signature": {**signature, **change}})
        save_compiled(bad, tmp_path / "bad.npu")
        with pytest.raises(FileFormatError, match="signature"):
            npuc.torch.load(tmp_path / "bad.npu")


def test_the_report_is_written(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    linear = npuc.torch.compile_module(nn.Linear(3, 2), [torch.ones(1, 3)], report=file)
    assert json.loads(file.read_text()) == linear.report.as_json() == npuc.torch.report(linear).as_json()


def test_mistakes_are_told(model: Any, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="there is no folder"):  # before the work
        npuc.torch.compile_module(model, [], report=tmp_path / "no/report.json")
    with pytest.raises(UsageError, match="there is no calibration data"):
        npuc.torch.compile_module(model, [])
    with pytest.raises(UsageError, match="labels do not belong"):
        npuc.torch.compile_module(nn.Linear(3, 2), [(torch.zeros(1, 3), torch.zeros(1))])
    with pytest.raises(UsageError, match=r"the module does not take a sample.*tensor\.split\(1\)"):
        npuc.torch.compile_module(
            nn.Sequential(nn.Flatten(), nn.Linear(8, 2)), torch.zeros(4, 2, 2, 2)
        )  # samples without their batch axis
    with pytest.raises(UsageError, match="no option 'calibrate'"):
        npuc.torch.compile_module(model, samples(), calibrate=3)
    with pytest.raises(UsageError, match="Did you mean 'target'"):
        npuc.torch.compile_module(model, samples(), tarfet="edge-4t")
