"""A program with several entries: the inputs choose the entry, or its name does, and each has the bits of its model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.calib.sources import random_data
from npuc.codegen.compile_model import compile_model
from npuc.errors import FileFormatError, InputDataError, UsageError
from npuc.flow import network_to_quantize, quantize_network, ranges_from, schemes_of
from npuc.frontend.options import ImportOptions
from npuc.ir import Graph
from npuc.program.combine import combine
from npuc.program.file import save_compiled
from npuc.program.model import CompiledModel
from npuc.runtime import Pool, Runner
from npuc.runtime.entries import cores_of
from npuc.sim import Simulator
from npuc.target import load_target

TARGET = load_target("edge-1t")


@pytest.fixture(scope="module")
def model(root: Path) -> CompiledModel:
    """The digits for one image."""
    return compile_model(quantized(root, 1), TARGET, level=1, name="digits")


@pytest.fixture(scope="module")
def batched(root: Path) -> CompiledModel:
    """The same for four images at a time, with the same ranges: else its weights would be others."""
    return compile_model(quantized(root, 4), TARGET, level=1)


def quantized(root: Path, batch: int) -> Graph:
    single, graph = (
        network_to_quantize(
            root / "examples/digits.onnx", ImportOptions(input_shapes={"image": (rows, 1, 8, 8)})
        )
        for rows in (1, batch)
    )
    ranges = ranges_from(single, random_data(single, 4, 0), schemes_of(single, None, TARGET), "max")
    return quantize_network(graph, ranges, None, TARGET).graph


@pytest.fixture(scope="module")
def expected(model: CompiledModel, images: Array) -> Array:
    """The outputs of the first images, by the simulator alone."""
    simulator = Simulator(model)
    return np.concatenate([simulator.run({"image": image[None]})["logits"] for image in images[:8]])


@pytest.fixture(scope="module")
def program(model: CompiledModel, batched: CompiledModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits for one image and for four at a time."""
    path = tmp_path_factory.mktemp("entries") / "digits.npu"
    save_compiled(combine({"single": model, "batch": batched}).entries, path)
    return path


def test_the_weights_are_stored_once(model: CompiledModel, batched: CompiledModel) -> None:
    combined = combine({"single": model, "batch": batched})
    assert combined.shared["batch"] > 0.9 * batched.weights.size
    assert combined.entries["batch"].weights.size < 1.1 * model.weights.size


@pytest.mark.parametrize("rows", [1, 4, 6, 8])
def test_inputs_of_any_number_of_rows(program: Path, images: Array, expected: Array, rows: int) -> None:
    with Runner(program) as runner:
        assert {name: inputs[0].shape for name, (inputs, _) in runner.entries.items()} == {
            "single": (1, 1, 8, 8),
            "batch": (4, 1, 8, 8),
        }
        np.testing.assert_array_equal(runner.run(images[:rows])["logits"], expected[:rows])
        job = runner.execute_async({"image": images[:rows]})
        np.testing.assert_array_equal(job.result(30)["logits"], expected[:rows])


@pytest.mark.parametrize(("rows", "chosen"), [(1, "single"), (4, "batch"), (8, "batch"), (6, "single")])
def test_the_shape_chooses(
    program: Path, images: Array, rows: int, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    with Runner(program) as runner:
        pick = runner._chosen

        def noted(inputs: object, name: str) -> object:
            entry = pick(inputs, name)
            ran.append(entry.name)
            return entry

        monkeypatch.setattr(runner, "_chosen", noted)
        runner.run(images[:rows])
    assert ran == [chosen]


def test_a_name_chooses(program: Path, images: Array, expected: Array) -> None:
    with Runner(program) as runner:
        np.testing.assert_array_equal(runner.run(images[:1], entry="batch")["logits"], expected[:1])
        with pytest.raises(UsageError, match="no entry 'large'"):
            runner.run(images[:1], entry="large")
        with pytest.raises(
            InputDataError, match=r"single: image \[1, 1, 8, 8\]; batch: image \[4, 1, 8, 8\]"
        ):
            runner.run(np.zeros((1, 1, 9, 9), np.float32))
    with Runner(program, entry="batch") as runner:
        assert list(runner.entries) == ["batch"] and runner.input_tensors[0].shape == (4, 1, 8, 8)
    with pytest.raises(UsageError, match="single, batch"):
        Runner(program, entry="large")


def test_a_pool_of_devices(program: Path, images: Array, expected: Array) -> None:
    with Pool(program, ["simulated", "simulated"]) as pool:
        for rows in (1, 4):
            np.testing.assert_array_equal(pool.run(images[:rows])["logits"], expected[:rows])
        np.testing.assert_array_equal(pool.run(images[:1], entry="batch")["logits"], expected[:1])


def test_damaged_weights_never_run(program: Path, images: Array, tmp_path: Path) -> None:
    data = bytearray(program.read_bytes())
    # Far into the weights, which are the last thing before the headers of sections.
    data[len(data) * 3 // 4] ^= 1
    (tmp_path / "damaged.npu").write_bytes(data)
    with pytest.raises(FileFormatError), Runner(tmp_path / "damaged.npu") as runner:
        runner.run(images[:4])


def test_the_cores_are_chosen_at_load_time(root: Path, images: Array) -> None:
    """One network for one core and for four, in one program."""
    server = load_target("server-32t")
    single = network_to_quantize(
        root / "examples/digits.onnx", ImportOptions(input_shapes={"image": (4, 1, 8, 8)})
    )
    ranges = ranges_from(single, random_data(single, 4, 0), schemes_of(single, None, server), "max")
    graph = quantize_network(single, ranges, None, server).graph
    models = {f"c{cores}": compile_model(graph, server, level=1, cores=cores) for cores in (1, 2, 4)}
    needed = {name: cores_of(model) for name, model in models.items()}
    assert needed["c1"] == 1 and needed["c4"] > 1
    entries = combine(models).entries
    results = []
    for cores in (1, needed["c4"], 4):
        with Runner(entries, cores=cores) as runner:
            (name,) = runner.entries
            assert needed[name] == max(count for count in needed.values() if count <= cores)
            results.append(runner.run(images[:4])["logits"])
    assert all(np.array_equal(results[0], other) for other in results)
    with pytest.raises(UsageError, match="no entry runs on 1 core"):
        Runner({"c4": entries["c4"]}, cores=1)
    with pytest.raises(UsageError):
        Runner(entries, cores=0)
