"""`npuc.compile`: the whole way in one call, with the bits of the stages one by one."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import npuc
from npuc.codegen import compile_model
from npuc.errors import UsageError
from npuc.flow import CompiledNetwork, compile_network, network_to_quantize, quantize_on_data
from npuc.garbage import collected_seldom
from npuc.partition import partition
from npuc.target import load_target
from support.networks.small_onnx import image_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    onnx.save(image_model(), str(path))
    return path


def samples(model: Path) -> list[dict[str, np.ndarray]]:
    from npuc.calib.random_inputs import random_inputs

    return [random_inputs(network_to_quantize(model), seed) for seed in range(3)]


def test_a_file_becomes_a_program_in_one_call(model: Path, tmp_path: Path) -> None:
    from npuc.calib.sources import open_data
    from npuc.program.file import load_compiled

    data = samples(model)
    done = npuc.compile(model, data, target="edge-4t")
    assert isinstance(done, CompiledNetwork) and done.quantized is not None
    done.save(tmp_path / "net.npu")
    assert load_compiled(tmp_path / "net.npu").outputs == done.model.outputs
    target = load_target("edge-4t")
    graph = network_to_quantize(model)
    quantized, _ = quantize_on_data(graph, open_data(graph, data), target=target)
    staged = compile_network(quantized.graph, target, name="net")
    assert np.array_equal(staged.model.weights, done.model.weights)
    again = npuc.compile(quantized.graph, target=target)
    assert again.quantized is None
    for name, value in done.run(data[0]).items():
        np.testing.assert_array_equal(value, again.run(data[0])[name])


def test_a_float_network_needs_data_and_a_target_that_there_is(model: Path) -> None:
    with pytest.raises(UsageError, match="no ranges"):
        npuc.compile(model, target="edge-4t")
    with pytest.raises(npuc.errors.UnknownTargetError):
        npuc.compile(model, target="edge-9t")


def test_garbage_is_collected_seldom_during_a_compilation_and_as_before_after_it(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def watched(*arguments: Any) -> Any:
        seen.append(gc.get_threshold()[0])
        return partition(*arguments)

    monkeypatch.setattr(compile_model, "partition", watched)
    before = gc.get_threshold()
    npuc.compile(model, samples(model), target="edge-4t")
    assert gc.get_threshold() == before and seen and min(seen) == 1_000_000 > before[0]


def test_the_collector_is_put_back_when_the_last_of_two_compilations_ends() -> None:
    before = gc.get_threshold()
    first, second = collected_seldom(), collected_seldom()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold()[0] == 1_000_000
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before
