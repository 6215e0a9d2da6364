"""Jobs in the background: order, callbacks, waiting, failing devices and closing, under load and one by one."""

from __future__ import annotations

import gc
import logging
import threading
import time
from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.errors import (
    DeviceError,
    InputDataError,
    JobCancelledError,
    JobTimeoutError,
    QueueFullError,
    ShutdownError,
    UsageError,
)
from npuc.program.model import CompiledModel
from npuc.runtime import Job, Pool, Runner, SimulatedDevice

WAIT = 60
"""Seconds that are never reached unless something hangs."""


class Gate:
    """A fault that holds executions until it is opened."""

    def __init__(self) -> None:
        self.opened, self.entered = threading.Event(), threading.Event()

    def __call__(self, number: int) -> None:
        self.entered.set()
        assert self.opened.wait(WAIT)


def fail_at(*numbers: int) -> Any:
    def fault(number: int) -> None:
        if number in numbers:
            raise OSError("the link is down")

    return fault


def always(number: int) -> None:
    raise OSError("the link is down")


def test_many_threads_on_one_runner(model: CompiledModel, images: Array, expected: Array) -> None:
    wrong: list[Any] = []

    def client(first: int) -> None:
        try:
            for k in range(50):
                at = (first + k) % 32
                image = images[at : at + 1]
                job = runner.execute_async(image) if k % 2 else None
                found = runner.wait(job, WAIT) if job else runner.run(image)
                if not np.array_equal(found["logits"], expected[at : at + 1]):
                    wrong.append((first, k))
        except BaseException as error:
            wrong.append(error)

    with Runner(model, workers=3) as runner:
        threads = [threading.Thread(target=client, args=(4 * n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
    assert wrong == []


def test_many_runners(model: CompiledModel, images: Array, expected: Array) -> None:
    before = threading.active_count()
    runners = [Runner(model, workers=1) for _ in range(20)]
    jobs = [runner.execute_async(images[k : k + 1]) for k, runner in enumerate(runners)]
    for k, (runner, job) in enumerate(zip(runners, jobs, strict=True)):
        np.testing.assert_array_equal(runner.wait(job, WAIT)["logits"], expected[k : k + 1])
    for runner in runners:
        runner.close()
    assert threading.active_count() == before


def test_memory_is_given_back(model: CompiledModel, images: Array) -> None:
    from npuc.runtime.context import RunContext

    gc.collect()
    before = sum(isinstance(one, RunContext) for one in gc.get_objects())
    for _ in range(3):
        with Runner(model, workers=2) as runner:
            for job in [runner.execute_async(images[:1]) for _ in range(6)]:
                job.result(WAIT)
    del runner, job
    gc.collect()
    assert sum(isinstance(one, RunContext) for one in gc.get_objects()) == before


def test_callbacks(model: CompiledModel, images: Array, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Job] = []

    def bad(job: Job) -> None:
        raise ValueError("of the callback's own")

    with caplog.at_level(logging.ERROR, "npuc.runtime"), Runner(model, workers=1) as runner:
        first = runner.execute_async(images[:1], callback=bad)
        second = runner.execute_async(images[:1], callback=seen.append)
        failing = runner.execute_async({"x": 1}, callback=seen.append)
        runner.wait(first, WAIT)
        runner.wait(second, WAIT)
        with pytest.raises(InputDataError):
            runner.wait(failing, WAIT)
    assert seen == [second, failing] and "a callback of a job failed" in caplog.text
    second.add_callback(seen.append)
    assert seen[-1] is second
    assert second.device == "simulated" and second.queued <= second.started <= second.finished
    assert isinstance(failing.error(), InputDataError) and second.error() is None
    assert second.inputs is None  # a finished job keeps only its results


def test_outputs_of_a_job_go_where_the_caller_wants(
    model: CompiledModel, images: Array, expected: Array
) -> None:
    with Runner(model) as runner:
        places = [np.zeros((1, 10), np.float32) for _ in range(8)]
        jobs = [runner.execute_async(images[k : k + 1], {"logits": place}) for k, place in enumerate(places)]
        for k, job in enumerate(jobs):
            assert job.result(WAIT)["logits"] is places[k]
            np.testing.assert_array_equal(places[k], expected[k : k + 1])


def test_waiting_too_short(model: CompiledModel, images: Array, expected: Array) -> None:
    gate = Gate()
    with Runner(model, SimulatedDevice(fault=gate), workers=1) as runner:
        job = runner.execute_async(images[:1])
        with pytest.raises(JobTimeoutError, match=r"after 0\.05 s"):
            runner.wait(job, 0.05)
        assert not job.done()
        gate.opened.set()
        np.testing.assert_array_equal(runner.wait(job, WAIT)["logits"], expected[:1])


def test_cancelling(model: CompiledModel, images: Array) -> None:
    gate = Gate()
    with Runner(model, SimulatedDevice(fault=gate), workers=1) as runner:
        running = runner.execute_async(images[:1])
        assert gate.entered.wait(WAIT)
        waiting = runner.execute_async(images[:1])
        assert waiting.cancel() and not running.cancel()
        gate.opened.set()
        running.result(WAIT)
        with pytest.raises(JobCancelledError):
            waiting.result(WAIT)


def test_a_full_queue(model: CompiledModel, images: Array) -> None:
    gate = Gate()
    with Runner(model, SimulatedDevice(fault=gate), workers=1, queue=2) as runner:
        runner.execute_async(images[:1])
        assert gate.entered.wait(WAIT)
        jobs = [runner.execute_async(images[:1]) for _ in range(2)]
        with pytest.raises(QueueFullError, match=r"after 0\.05 s"):
            runner.execute_async(images[:1], timeout=0.05)
        gate.opened.set()
        for job in jobs:
            job.result(WAIT)


def test_a_device_that_fails_in_the_middle(model: CompiledModel, images: Array, expected: Array) -> None:
    with Runner(model, SimulatedDevice(fault=fail_at(2)), workers=1) as runner:
        jobs = [runner.execute_async(images[k : k + 1]) for k in range(5)]
        for k, job in enumerate(jobs):
            if k == 2:
                with pytest.raises(DeviceError, match="device 'simulated': it failed: the link is down"):
                    job.result(WAIT)
            else:
                np.testing.assert_array_equal(job.result(WAIT)["logits"], expected[k : k + 1])


@pytest.mark.parametrize("workers", [1, 2])
def test_all_threads_get_on_after_failures(model: CompiledModel, images: Array, workers: int) -> None:
    """A context that is dropped leaves its place to whoever waits."""
    counts = {"good": 0, "failed": 0}
    lock = threading.Lock()

    def client() -> None:
        for _ in range(10):
            try:
                runner.run(images[:1])
                key = "good"
            except DeviceError:
                key = "failed"
            with lock:
                counts[key] += 1

    with Runner(model, SimulatedDevice(fault=fail_at(*range(0, 60, 3))), workers=workers) as runner:
        threads = [threading.Thread(target=client) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
    assert counts == {"good": 40, "failed": 20}


def test_closing_finishes_what_was_begun(model: CompiledModel, images: Array) -> None:
    runner = Runner(model, workers=2)
    jobs = [runner.execute_async(images[:1]) for _ in range(20)]
    runner.close()
    assert all(job.state == "done" for job in jobs)


def test_closing_with_jobs_in_flight(model: CompiledModel, images: Array) -> None:
    gate = Gate()
    runner = Runner(model, SimulatedDevice(fault=gate), workers=1)
    running = runner.execute_async(images[:1])
    assert gate.entered.wait(WAIT)
    waiting = [runner.execute_async(images[:1]) for _ in range(3)]
    threading.Timer(0.05, gate.opened.set).start()
    runner.close(wait=False)
    for job in (running, *waiting):
        with pytest.raises(ShutdownError):
            job.result(0)
    with pytest.raises(ShutdownError):
        runner.execute_async(images[:1])


def test_closing_does_not_wait_for_a_hanging_device(model: CompiledModel, images: Array) -> None:
    gate = Gate()
    runner = Runner(model, SimulatedDevice(fault=gate), workers=1)
    jobs = [runner.execute_async(images[:1]) for _ in range(2)]
    assert gate.entered.wait(WAIT)
    begin = time.monotonic()
    runner.close(timeout=0.05)
    assert time.monotonic() - begin < WAIT / 2
    for job in jobs:
        with pytest.raises(ShutdownError):
            job.result(0)
    gate.opened.set()


def test_an_error_in_the_block_does_not_wait_for_jobs(model: CompiledModel, images: Array) -> None:
    gate = Gate()
    with pytest.raises(KeyError), Runner(model, SimulatedDevice(fault=gate), workers=1) as runner:
        running, waiting = (runner.execute_async(images[:1]) for _ in range(2))
        assert gate.entered.wait(WAIT)
        threading.Timer(0.05, gate.opened.set).start()
        raise KeyError
    for job in (running, waiting):
        assert isinstance(job.error(), ShutdownError)


def test_a_runner_can_be_closed_by_a_callback(model: CompiledModel, images: Array) -> None:
    runner = Runner(model, workers=1)
    job = runner.execute_async(images[:1], callback=lambda job: runner.close())
    job.result(WAIT)
    runner.close(timeout=WAIT)
    with pytest.raises(ShutdownError):
        runner.run(images[:1])


def test_a_pool_uses_all_devices(model: CompiledModel, images: Array, expected: Array) -> None:
    gates = [Gate(), Gate()]
    devices = [SimulatedDevice(fault=gate, name=f"npu{n}") for n, gate in enumerate(gates)]
    with Pool(model, devices) as pool:
        assert pool.devices == ("npu0", "npu1") and pool.input_tensors[0].name == "image"
        jobs = [pool.execute_async(images[k : k + 1]) for k in range(6)]
        assert all(gate.entered.wait(WAIT) for gate in gates)
        for gate in gates:
            gate.opened.set()
        for k, job in enumerate(jobs):
            np.testing.assert_array_equal(pool.wait(job, WAIT)["logits"], expected[k : k + 1])
        assert {job.device for job in jobs} == {"npu0", "npu1"}


def test_clients_of_a_pool_take_turns(model: CompiledModel, images: Array) -> None:
    gate, order = Gate(), list[str]()
    with Pool(model, [SimulatedDevice(fault=gate)]) as pool:
        pool.execute_async(images[:1])
        assert gate.entered.wait(WAIT)
        jobs = [
            pool.execute_async(images[:1], client=client, callback=lambda job, c=client: order.append(c))  # type: ignore[misc]
            for client in ("a", "a", "a", "a", "b", "b", "c")
        ]
        gate.opened.set()
        for job in jobs:
            job.result(WAIT)
    assert order == ["a", "b", "c", "a", "b", "a", "a"]


def test_a_pool_has_a_limit(model: CompiledModel, images: Array) -> None:
    gate = Gate()
    with Pool(model, [SimulatedDevice(fault=gate)], limit=1) as pool:
        pool.execute_async(images[:1])
        assert gate.entered.wait(WAIT)
        pool.execute_async(images[:1])
        assert len(pool) == 1
        with pytest.raises(QueueFullError, match="the pool of 'digits'"):
            pool.execute_async(images[:1], timeout=0.02)
        gate.opened.set()


def test_a_job_is_tried_on_another_device(model: CompiledModel, images: Array, expected: Array) -> None:
    devices = [SimulatedDevice(fault=always, name="bad"), SimulatedDevice(name="good")]
    with Pool(model, devices, retries=3, failures=3) as pool:
        jobs = [pool.execute_async(images[k : k + 1]) for k in range(32)]
        for k, job in enumerate(jobs):
            np.testing.assert_array_equal(job.result(WAIT)["logits"], expected[k : k + 1])
            assert job.device == "good"


def test_without_retries_a_job_fails_with_its_device(model: CompiledModel, images: Array) -> None:
    with Pool(model, [SimulatedDevice(fault=fail_at(0))]) as pool:
        with pytest.raises(DeviceError, match="the link is down"):
            pool.run(images[:1])
        pool.run(images[:1])
        assert pool.devices == ("simulated",)


def test_only_failures_in_a_row_count(model: CompiledModel, images: Array) -> None:
    with Pool(model, [SimulatedDevice(fault=fail_at(0, 2, 4))], failures=2) as pool:
        jobs = [pool.execute_async(images[:1]) for _ in range(6)]
        pool.wait(jobs[-1], WAIT)
        assert [job.state for job in jobs] == ["failed", "done"] * 3
        assert pool.devices == ("simulated",)


def test_no_device_is_left(model: CompiledModel, images: Array) -> None:
    devices = [SimulatedDevice(fault=always, name=name) for name in ("a", "b")]
    with Pool(model, devices, failures=2) as pool:
        jobs: list[Job] = []
        with pytest.raises(DeviceError, match="no device is left"):
            while True:
                jobs.append(pool.execute_async(images[:1]))
        for job in jobs:
            with pytest.raises(DeviceError):
                job.result(WAIT)
        assert pool.devices == ()


def test_a_pool_closes_with_jobs_in_flight(model: CompiledModel, images: Array) -> None:
    gate = Gate()
    pool = Pool(model, [SimulatedDevice(fault=gate)])
    jobs = [pool.execute_async(images[:1]) for _ in range(3)]
    assert gate.entered.wait(WAIT)
    threading.Timer(0.05, gate.opened.set).start()
    pool.close(wait=False)
    assert all(isinstance(job.error(), ShutdownError) for job in jobs)
    with pytest.raises(ShutdownError):
        pool.run(images[:1])


@pytest.mark.parametrize("options", [{"limit": 0}, {"retries": -1}, {"failures": 0}])
def test_bad_options_of_a_pool(model: CompiledModel, options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="at least"):
        Pool(model, ["simulated"], **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="needs a device"):
        Pool(model, [])
