"""A runner gives the bits of the simulator, whatever form inputs and outputs have."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npuc.arrays import Array
from npuc.errors import (
    EngineError,
    FileFormatError,
    InputDataError,
    PreprocessError,
    ShutdownError,
    UsageError,
)
from npuc.images.loading import load_image
from npuc.images.preprocess import Preprocess
from npuc.program.file import save_compiled
from npuc.program.model import CompiledModel, Conversion, HostConversion, Segment
from npuc.runtime import Runner, SimulatedDevice
from npuc.sim import Simulator, simulate
from npuc.target import load_target


def test_reals_in_and_out(model: CompiledModel, images: Array, expected: Array) -> None:
    with Runner(model) as runner:
        for image, logits in zip(images[:8], expected, strict=False):
            np.testing.assert_array_equal(runner.run({"image": image[None]})["logits"][0], logits)


def test_inputs_by_name_place_or_alone(model: CompiledModel, images: Array, expected: Array) -> None:
    with Runner(model) as runner:
        one = images[:1]
        for inputs in ({"image": one}, [one], (one,), one, one.astype(np.float64)):
            np.testing.assert_array_equal(runner.run(inputs)["logits"], expected[:1])


def test_tensors_are_described(model: CompiledModel) -> None:
    with Runner(model) as reals, Runner(model, raw=True) as raw:
        (given,), (integer,) = reals.input_tensors, raw.input_tensors
        assert (given.name, given.shape, given.dtype, given.layout) == (
            "image",
            (1, 1, 8, 8),
            np.float32,
            "NCHW",
        )
        assert (integer.name, integer.shape, integer.dtype, integer.layout) == (
            "image",
            (1, 1, 8, 8),
            np.int8,
            "NHWC",
        )
        assert given.scale == integer.scale > 0 and given.zero_point == integer.zero_point
        assert raw.output_tensors[0].dtype == np.int8 and reals.output_tensors[0].dtype == np.float32


def test_raw_integers_are_those_behind_the_reals(
    model: CompiledModel, images: Array, expected: Array
) -> None:
    with Runner(model, raw=True) as runner:
        (into,), (out,) = runner.input_tensors, runner.output_tensors
        steps = np.floor(np.abs(images[:1] / np.float32(into.scale)) + 0.5) * np.sign(images[:1])
        q = np.clip(steps + into.zero_point, -128, 127).astype(np.int8)
        found = runner.run(q)["logits"]
        assert found.dtype == np.int8
        reals = (found.astype(np.float32) - np.float32(out.zero_point)) * np.float32(out.scale)
        np.testing.assert_array_equal(reals, expected[:1])
        with pytest.raises(InputDataError, match="takes int8, not float32"):
            runner.run(images[:1])
        with pytest.raises(InputDataError, match="takes int8, not int16"):
            runner.run(q.astype(np.int16))


def test_a_model_of_integers_takes_reals_too(
    integers: CompiledModel, model: CompiledModel, images: Array, expected: Array
) -> None:
    with Runner(integers) as runner, Runner(integers, raw=True) as raw, Runner(model, raw=True) as judge:
        assert runner.input_tensors[0].dtype == np.float32 and raw.input_tensors[0].dtype == np.int8
        np.testing.assert_array_equal(runner.run(images[:5])["logits"], expected[:5])
        q = np.random.default_rng(0).integers(-128, 128, (1, 1, 8, 8)).astype(np.int8)
        np.testing.assert_array_equal(raw.run(q)["logits"], judge.run(q)["logits"])


def test_layers_on_the_cpu(mixed: CompiledModel, images: Array, expected: Array) -> None:
    with Runner(mixed) as runner:
        np.testing.assert_array_equal(runner.run(images[:4])["logits"], expected[:4])


def test_a_failure_of_onnx_runtime_is_told(mixed: CompiledModel, images: Array) -> None:
    parts = tuple(
        replace(one, model=b"no model") if hasattr(one, "model") else one for one in mixed.subgraphs
    )
    with Runner(replace(mixed, subgraphs=parts)) as runner:
        for _ in range(2):
            with pytest.raises(EngineError, match="ONNX Runtime"):
                runner.run(images[:1])


@pytest.mark.parametrize("rows", [1, 3, 4, 6, 9])
def test_batches_of_any_size(batched: CompiledModel, images: Array, rows: int) -> None:
    simulator = Simulator(batched)
    whole = np.concatenate([simulator.run({"image": images[k : k + 4]})["logits"] for k in range(0, 12, 4)])
    with Runner(batched) as runner:
        assert runner.input_tensors[0].shape[0] == 4
        np.testing.assert_array_equal(runner.run(images[:rows])["logits"], whole[:rows])
        out = np.full((rows, 10), np.nan, np.float32)
        assert runner.run(images[:rows], {"logits": out})["logits"] is out
        np.testing.assert_array_equal(out, whole[:rows])


def test_no_rows(model: CompiledModel, images: Array) -> None:
    with Runner(model) as runner:
        assert runner.run(images[:0])["logits"].shape == (0, 10)


def test_outputs_go_where_the_caller_wants(model: CompiledModel, images: Array, expected: Array) -> None:
    with Runner(model) as runner:
        out = np.zeros((1, 10), np.float32)
        strided = np.zeros((1, 20), np.float32)[:, ::2]
        for place in (out, strided):
            assert runner.run(images[:1], {"logits": place})["logits"] is place
            np.testing.assert_array_equal(place, expected[:1])
        again = runner.run(images[1:2])["logits"]
        np.testing.assert_array_equal(out, expected[:1])  # a later run has memory of its own
        np.testing.assert_array_equal(again, expected[1:2])


def test_arrays_of_the_caller_are_not_kept(model: CompiledModel, images: Array) -> None:
    with Runner(model) as runner:
        given, out = images[:1].copy(), np.zeros((1, 10), np.float32)
        watched = [weakref.ref(one) for one in (given, out)]
        runner.run(given, {"logits": out})
        del given, out
        gc.collect()
        assert [one() for one in watched] == [None, None]


@pytest.mark.parametrize("raw", [False, True])
def test_an_input_may_be_an_output(model: CompiledModel, images: Array, raw: bool) -> None:
    through = replace(model, outputs=(*model.outputs, "image"))
    with Runner(through, raw=raw) as runner:
        assert runner.input_tensors[0].dtype == np.float32
        out = np.full((1, 1, 8, 8), np.nan, np.float32)
        np.testing.assert_array_equal(runner.run(images[:1], {"image": out})["image"], images[:1])


def test_an_output_that_is_used_further_stays_real(
    model: CompiledModel, images: Array, expected: Array
) -> None:
    logits = model.tensor("logits")
    place = Segment("again", "io", 20)
    again = replace(logits, name="again", dtype="i16", scale=0.5, segment=len(model.segments), size=20)
    more = HostConversion("more", (Conversion("logits", "again"),))
    grown = replace(
        model,
        segments=(*model.segments, place),
        tensors=(*model.tensors, again),
        outputs=("logits", "again"),
        subgraphs=(*model.subgraphs, more),
    )
    with Runner(grown, raw=True) as runner:
        assert [one.dtype.name for one in runner.output_tensors] == ["float32", "int16"]
        with Runner(model, raw=True) as source:
            q = np.zeros((1, 1, 8, 8), np.int8)
            wanted = source.run(q)["logits"]
        found = runner.run(q)["logits"]
        info = source.output_tensors[0]
        np.testing.assert_array_equal(
            found, (wanted.astype(np.float32) - np.float32(info.zero_point)) * np.float32(info.scale)
        )


def test_the_device_works_in_the_callers_memory(integers: CompiledModel) -> None:
    class Watching(SimulatedDevice):
        def load(self, model: CompiledModel, threads: int) -> Any:
            loaded = super().load(model, threads)
            own = loaded.bind
            loaded.bind = lambda segment, memory: bound.append((segment, memory)) or own(segment, memory)  # type: ignore[method-assign]
            return loaded

    bound: list[tuple[int, Array | None]] = []
    rng = np.random.default_rng(1)
    q = rng.integers(-128, 128, (1, 1, 8, 8)).astype(np.int8)
    with Runner(integers, raw=True) as judge:
        wanted = judge.run(q)["logits"].copy()
    with Runner(integers, Watching(), raw=True) as runner:
        out = np.zeros((1, 10), np.int8)
        kept = q.copy()
        runner.run(q, {"logits": out})
        np.testing.assert_array_equal(out, wanted)
        np.testing.assert_array_equal(q, kept)
        lent = [memory for _, memory in bound if memory is not None]
        assert [np.shares_memory(*pair) for pair in zip(lent, (q, out), strict=True)] == [True, True]
        assert [memory for _, memory in bound[2:]] == [None, None]  # and has its own again
        q.flags.writeable = False
        bound.clear()
        np.testing.assert_array_equal(runner.run(q)["logits"], wanted)
        assert not any(memory is not None and np.shares_memory(memory, q) for _, memory in bound)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "the model takes image, and nothing is given"),
        ({"image": np.zeros((1, 1, 8, 8), np.float32), "x": 1}, "image, x is given"),
        (np.zeros((1, 1, 8, 9), np.float32), "takes shape"),
        (np.zeros((1, 8, 8), np.float32), "takes shape"),
        (np.zeros((1, 1, 8, 8), np.complex64), "takes float32, not complex64"),
        (None, "takes float32, not object"),
        ([1, 2], "takes shape"),
    ],
)
def test_bad_inputs(model: CompiledModel, inputs: Any, words: str) -> None:
    with Runner(model) as runner, pytest.raises(InputDataError, match=words):
        runner.run(inputs)


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        ({"x": np.zeros((1, 10), np.float32)}, "there is no output 'x'"),
        ({"logits": np.zeros((1, 11), np.float32)}, "has to be float32"),
        ({"logits": np.zeros((1, 10))}, "has to be float32"),
        ({"logits": np.broadcast_to(np.float32(0), (1, 10))}, "cannot be written"),
    ],
)
def test_bad_outputs(model: CompiledModel, images: Array, outputs: Any, words: str) -> None:
    with Runner(model) as runner, pytest.raises(InputDataError, match=words):
        runner.run(images[:1], outputs)


def test_images(model: CompiledModel, tmp_path: Path) -> None:
    how = Preprocess(pixel_format="gray", mean=(10.0,), scale=(1 / 255,))
    pixels = np.random.default_rng(0).integers(0, 256, (20, 31), np.uint8)
    path = tmp_path / "a.png"
    Image.fromarray(pixels).save(path)
    carrying = replace(model, metadata={"preprocess": {"image": how.to_dict()}})
    with Runner(carrying) as runner, Runner(carrying, raw=True) as raw:
        wanted = runner.run(load_image(path, how, (1, 1, 8, 8)))["logits"]
        for image in (path, str(path), Image.open(path), pixels, pixels[:, :, None]):
            np.testing.assert_array_equal(runner.run(image)["logits"], wanted)
        two = runner.run({"image": [path, pixels]})["logits"]
        np.testing.assert_array_equal(two, np.concatenate([wanted, wanted]))
        with pytest.raises(UsageError, match="raw"):
            raw.run(path)
    with Runner(model) as runner, pytest.raises(PreprocessError, match="does not say how"):
        runner.run(path)


def test_from_a_file(model: CompiledModel, images: Array, expected: Array, tmp_path: Path) -> None:
    path = tmp_path / "digits.npu"
    save_compiled(model, path)
    with Runner(path) as runner:
        np.testing.assert_array_equal(runner.run(images[:2])["logits"], expected[:2])
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(FileFormatError, match="checksum"):
        Runner(path)
    with Runner(path, verify=False) as runner:
        np.testing.assert_array_equal(runner.run(images[:2])["logits"], expected[:2])


def test_damaged_weights_never_run(model: CompiledModel, images: Array, tmp_path: Path) -> None:
    path = tmp_path / "digits.npu"
    more = np.zeros(1 << 20, np.uint8)
    more[: model.weights.size] = model.weights
    segments = (replace(model.segments[0], size=more.size), *model.segments[1:])
    save_compiled(replace(model, weights=more, segments=segments), path)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    executed: list[int] = []
    with Runner(path, SimulatedDevice(fault=executed.append)) as runner:  # opens: the weights wait
        for _ in range(2):
            with pytest.raises(FileFormatError, match="checksum"):
                runner.run(images[:1])
        job = runner.execute_async(images[:1])
        with pytest.raises(FileFormatError, match="checksum"):
            job.result(60)
        with pytest.raises(FileFormatError, match="checksum"):
            _ = runner.model
    assert not executed


def test_cycles_and_time(model: CompiledModel, images: Array) -> None:
    with Runner(model, "simulated-timing") as runner:
        job = runner.execute_async(images[:2])
        runner.wait(job, 60)
        assert job.cycles == 2 * simulate(model).total
    seconds = simulate(model).total / load_target("edge-1t").compute.clock
    with Runner(model, SimulatedDevice(timing=True, slowdown=0.05 / seconds)) as runner:
        job = runner.execute_async(images[:1])
        runner.wait(job, 60)
        assert job.finished - job.started >= 0.05


def test_a_closed_runner(model: CompiledModel, images: Array) -> None:
    runner = Runner(model)
    runner.run(images[:1])
    runner.close()
    runner.close()
    with pytest.raises(ShutdownError):
        runner.run(images[:1])
    with pytest.raises(ShutdownError):
        runner.execute_async(images[:1])


@pytest.mark.parametrize("options", [{"workers": 0}, {"threads": 0}, {"queue": 0}])
def test_bad_options(model: CompiledModel, options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        Runner(model, **options)  # type: ignore[arg-type]
