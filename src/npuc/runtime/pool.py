"""One model on several devices: a queue, fair order between clients, and what happens when a device fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any

from npuc.arrays import Array
from npuc.errors import DeviceError, UsageError
from npuc.program.file import load_entries
from npuc.program.model import CompiledModel
from npuc.runtime.counts import check_counts
from npuc.runtime.device import Device
from npuc.runtime.job import Callback, Job
from npuc.runtime.process import Resident, watch
from npuc.runtime.runner import Runner
from npuc.runtime.tensors import TensorInfo
from npuc.runtime.worker_pool import WorkerPool


class Pool(Resident):
    """Gives each job to the first device that is free.

    At most `limit` jobs wait. A job whose device fails is tried again up to `retries` times, before all others. A device
    that fails `failures` times in a row gets no more jobs; when none is left, all jobs end with `DeviceError`.
    """

    def __init__(
        self,
        model: CompiledModel | Mapping[str, CompiledModel] | Path | str,
        devices: Sequence[str | Device],
        *,
        raw: bool = False,
        workers: int = 1,
        threads: int = 1,
        limit: int = 64,
        retries: int = 0,
        failures: int = 3,
    ) -> None:
        if isinstance(devices, str) or not isinstance(devices, Sequence):
            raise UsageError(
                f"a pool takes a list of devices, not {devices!r}", fix="Write [...] around a device"
            )
        if not devices:
            raise UsageError("a pool needs a device")
        check_counts(
            ("workers", workers, 1), ("limit", limit, 1), ("retries", retries, 0), ("failures", failures, 1),
            threads=threads,
        )  # fmt: skip
        if isinstance(model, Path | str):
            model = load_entries(model)
        models = [model] if isinstance(model, CompiledModel) else list(model.values())
        if any(each.states for each in models):
            raise UsageError(
                "a pool gives each run to the first device that is free, and the model carries states from run to run",
                fix="Use a Runner, one for each stream",
            )
        self._runners: list[Runner] = []
        try:
            for device in devices:
                self._runners.append(Runner(model, device, raw=raw, workers=workers, threads=threads))
        except BaseException:
            self._close_runners(0)
            raise
        self._limit, self._retries, self._most = limit, retries, failures
        self._workers, self._where = workers, f"the pool of '{self._runners[0].model.name}'"
        self._failures = [0] * len(self._runners)
        """Of each device in a row."""
        self._closed = self._started = False
        self._start_anew()
        watch(self)

    @property
    def input_tensors(self) -> tuple[TensorInfo, ...]:
        """What a job takes, in order."""
        return self._runners[0].input_tensors

    @property
    def output_tensors(self) -> tuple[TensorInfo, ...]:
        """What a job gives, in order."""
        return self._runners[0].output_tensors

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices that still get jobs."""
        with self._lock:
            return tuple(
                runner.device
                for runner, count in zip(self._runners, self._failures, strict=True)
                if count < self._most
            )

    def __len__(self) -> int:
        """Jobs that wait."""
        return len(self._worker_pool)

    def execute_async(
        self,
        inputs: Any,
        outputs: Mapping[str, Array] | None = None,
        *,
        callback: Callback | None = None,
        client: str = "",
        timeout: float | None = None,
        entry: str = "",
    ) -> Job:
        """Queue a job, as `Runner.execute_async` does; `QueueFullError` if there is no room within `timeout` seconds."""
        job = Job(inputs, outputs, callback, entry)
        with self._lock:
            if not self._started and not self._closed:
                self._started = True
                self._add_worker()
        self._worker_pool.submit(job, client, timeout)
        return job

    def wait(self, job: Job, timeout: float | None = None) -> dict[str, Array]:
        """The outputs of a job, its error, or `JobTimeoutError` after `timeout` seconds (the job goes on)."""
        return job.result(timeout)

    def run(
        self, inputs: Any, outputs: Mapping[str, Array] | None = None, *, client: str = "", entry: str = ""
    ) -> dict[str, Array]:
        """Queue a job and wait for it."""
        return self.execute_async(inputs, outputs, client=client, entry=entry).result()

    def close(self, *, wait: bool = True, timeout: float | None = None) -> None:
        """As `Runner.close`, for all devices."""
        with self._lock:
            self._closed = True
        idle = self._worker_pool.close(wait, timeout)
        self._close_runners(timeout if idle else 0)

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(wait=kind is None)

    def _start_anew(self) -> None:
        """Without workers, which are hired for the first job."""
        self._lock = Lock()
        self._worker_pool = WorkerPool(self._limit, self._where)
        self._started = False
        if self._closed:
            self.close()

    def _add_worker(self) -> None:
        for number, runner in enumerate(self._runners):
            for _ in range(self._workers):
                self._worker_pool.add_worker(runner.device, partial(self._work, number))

    def _close_runners(self, timeout: float | None) -> None:
        for runner in self._runners:
            runner.close(wait=False, timeout=timeout)

    def _work(self, number: int, job: Job) -> bool:
        """Do a job on a device; False if the device gets no more."""
        try:
            outcome = self._runners[number]._run(job.inputs, job.outputs, job.entry)
        except DeviceError as error:
            return self._failed(number, job, error)
        except Exception as error:
            job._end(error=error)
        else:
            job._end(*outcome)
        with self._lock:
            if self._failures[number] < self._most:
                self._failures[number] = 0
            return self._failures[number] == 0

    def _failed(self, number: int, job: Job, error: DeviceError) -> bool:
        with self._lock:
            self._failures[number] += 1
            usable = self._failures[number] < self._most
            left = any(count < self._most for count in self._failures)
        if left and job.attempts <= self._retries and job._again():
            self._worker_pool.put_back(job)
        else:
            job._end(error=error)
        if not left:
            self._worker_pool.abort(DeviceError("no device is left that works", where=error.where))
        return usable
