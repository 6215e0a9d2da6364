"""A compiled model that runs: at once, in the background, from many threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import DeviceError, InputDataError, UsageError
from npuc.host import HostSubgraphs
from npuc.program.file import load_entries, named_entry, open_entries
from npuc.program.model import CompiledModel
from npuc.runtime import record
from npuc.runtime.context import RunContext
from npuc.runtime.counts import check_counts
from npuc.runtime.device import Device, open_device
from npuc.runtime.entries import Entry, entry_for, within_cores
from npuc.runtime.inputs import arrays_of, check_outputs, chunks_of, rows_for, rows_of
from npuc.runtime.job import Callback, Job
from npuc.runtime.process import Resident, watch
from npuc.runtime.resource_pool import ResourcePool
from npuc.runtime.states import RunnerStates
from npuc.runtime.tensors import ModelPorts, TensorInfo
from npuc.runtime.worker_pool import WorkerPool

QUEUE = 1024
"""Jobs of `execute_async` that may wait in a runner."""


class Runner(Resident):
    """Runs a compiled model on a device; any number of threads may use it.

    `model` is a file, a compiled model, or several by name: the entries of a program. Each run takes the entry that fits
    the shapes of its inputs, or the one that it names; with `entry`, the runner has that one alone. `cores` is how many cores
    of the device it may use: of entries for the same inputs, the one for the most cores that are not too many is taken.
    `device` is a name or a `Device`. `raw` takes and gives the integers of the NPU instead of reals;
    `raw_outputs` says so of the outputs alone. `workers` is how many
    jobs run at once, each with memory of its own that is made when it is first needed; `threads` is how many threads one
    job may use on the host. The weights of a file are compared with their checksums by the first run, all else at once;
    `verify` false leaves checksums out. With `key`, the file of a public key or its bytes, only a file that it signed is run.

    A model with states (`npuc compile --state`) carries them from run to run until `reset`: they may be left out of the inputs,
    and runs take turns. A runner is one stream; another stream has a runner of its own. States are not carried where inputs
    and outputs have different forms (`raw_outputs`).

    >>> with Runner("model.npu") as runner:  # doctest: +SKIP
    ...     scores = runner.run("cat.jpg")["scores"]
    """

    def __init__(
        self,
        model: CompiledModel | Mapping[str, CompiledModel] | Path | str,
        device: str | Device = "simulated",
        *,
        entry: str = "",
        cores: int | None = None,
        raw: bool = False,
        raw_outputs: bool | None = None,
        workers: int | None = None,
        threads: int = 1,
        queue: int = QUEUE,
        verify: bool = True,
        key: Path | str | bytes | None = None,
    ) -> None:
        self._workers = min(4, os.cpu_count() or 1) if workers is None else workers
        check_counts(
            ("workers", self._workers, 1), ("queue", queue, 1), ("cores", 1 if cores is None else cores, 1),
            threads=threads,
        )  # fmt: skip
        self._prove: Callable[[], None] | None = None
        """Compares the weights with their checksums; None once they have been."""
        where = str(model) if isinstance(model, Path | str) else "the program"
        if key is not None and not isinstance(model, Path | str):
            raise UsageError("a key is for a file, and a model in memory has no signature")
        if isinstance(model, CompiledModel):
            models: Mapping[str, CompiledModel] = {model.name: model}
        elif isinstance(model, Mapping):
            models = model
        elif verify:
            models, self._prove = open_entries(model, key)
        else:
            models = load_entries(model, verify=False, key=key)
        if entry:
            models = {entry: named_entry(models, entry, where)}
        if cores is not None:
            models = within_cores(models, cores)
        self._entries = {name: Entry.of(name, each, raw, raw_outputs) for name, each in models.items()}
        self._first = next(iter(self._entries.values()))
        self._raw = raw
        self._carries = raw_outputs in (None, raw)
        if self._carries and any(each.model.states for each in self._entries.values()):
            self._workers = 1
        self._device = open_device(device)
        self._threads, self._queue = threads, queue
        self._closed = False
        self._start_anew()
        self._owned = isinstance(device, str)
        watch(self)

    @property
    def model(self) -> CompiledModel:
        """The model, its weights compared with their checksums: the first call, or the first run, does that.

        Of a program with several entries it is the first, as are `input_tensors` and `output_tensors`.
        """
        return self._proven(self._first)

    @property
    def entries(self) -> dict[str, tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]]:
        """The entries that can be run, by name: what each takes, and what it gives."""
        return {
            name: (entry.ports.input_tensors, entry.ports.output_tensors)
            for name, entry in self._entries.items()
        }

    @property
    def device(self) -> str:
        """The name of the device."""
        return self._device.name

    @property
    def input_tensors(self) -> tuple[TensorInfo, ...]:
        """What `run` takes, in order."""
        return self._first.ports.input_tensors

    @property
    def output_tensors(self) -> tuple[TensorInfo, ...]:
        """What `run` gives, in order."""
        return self._first.ports.output_tensors

    @property
    def states(self) -> dict[str, Array]:
        """What the next run begins with, by the names of the inputs that are states; copies."""
        return self._states[self._first.name].values()

    def reset(self) -> None:
        """Begin a new stream: the next run, of every entry, has states of zero."""
        for states in self._states.values():
            states.reset()

    def run(
        self, inputs: Any, outputs: Mapping[str, Array] | None = None, *, entry: str = ""
    ) -> dict[str, Array]:
        """Run the model now; outputs by name.

        `inputs` is a mapping of names, a sequence in the order of `input_tensors`, or the one input itself. An input is an
        array of the tensor's shape or with any other number of rows, or, if the model says how to prepare it, an image: the
        name of a file, a Pillow image, an array of height x width x channels, or a list of these. `outputs` has arrays that
        results are written to; they are also returned. `entry` names the entry of a program to run; without it, the shapes
        of the inputs choose.
        """
        return self._run(inputs, outputs, entry)[0]

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
        """Queue a run and return at once; arrays must be left alone until the job is done.

        Jobs of one `client` begin in the order they came; clients take turns. If the queue is full this waits for room,
        `timeout` seconds at most. `callback(job)` is called when the job is done or has failed.
        """
        job = Job(inputs, outputs, callback, entry)
        with self._lock:
            if self._started < self._workers and not self._closed:
                self._started += 1
                self._worker_pool.add_worker(self.device, self._work)
        self._worker_pool.submit(job, client, timeout)
        return job

    def wait(self, job: Job, timeout: float | None = None) -> dict[str, Array]:
        """The outputs of a job, its error, or `JobTimeoutError` after `timeout` seconds (the job goes on)."""
        return job.result(timeout)

    def close(self, *, wait: bool = True, timeout: float | None = None) -> None:
        """Take no more jobs and free all memory. Jobs are finished first or, with `wait` false, end with `ShutdownError`.

        A device cannot be stopped in the middle of a run: this waits for it, at most `timeout` seconds; what is still
        running then ends with `ShutdownError` as well, and its memory is freed when the device comes back.
        """
        with self._lock:
            self._closed = True
        idle = self._worker_pool.close(wait, timeout)
        for contexts in self._contexts.values():
            idle = contexts.close(timeout if idle else 0) and idle
        if self._owned and idle:
            self._owned = False
            self._device.close()

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(wait=kind is None)

    def _start_anew(self) -> None:
        """Without workers and contexts, which are made when they are needed; a device is its opener's."""
        self._owned = False
        self._states = {
            name: RunnerStates(entry.model.states if self._carries else (), entry.ports)
            for name, entry in self._entries.items()
        }
        where = f"the runner of '{self._first.model.name}'"
        self._proving, self._lock = Lock(), Lock()
        self._contexts: dict[str, ResourcePool[RunContext]] = {
            name: ResourcePool(self._context_maker(entry), RunContext.close, self._workers, where)
            for name, entry in self._entries.items()
        }
        self._worker_pool = WorkerPool(self._queue, where)
        self._started = 0
        if self._closed:
            self.close()

    def _context_maker(self, entry: Entry) -> Callable[[], RunContext]:
        host = HostSubgraphs(entry.model, self._threads)
        return lambda: RunContext(self._proven(entry), entry.ports, self._device, host, self._threads)

    def _proven(self, entry: Entry) -> CompiledModel:
        with self._proving:
            if self._prove is not None:
                self._prove()
                self._prove = None
        return entry.model

    def _chosen(self, inputs: Any, name: str) -> Entry:
        if not name:
            return entry_for(self._entries, inputs)
        if name not in self._entries:
            known = ", ".join(self._entries)
            raise UsageError(f"the program has no entry '{name}'", fix=f"It has: {known}")
        return self._entries[name]

    def _work(self, job: Job) -> bool:
        try:
            job._end(*self._run(job.inputs, job.outputs, job.entry))
        except Exception as error:
            job._end(error=error)
        return True

    @record.spans("cpu", lambda self, *_: "prepare inputs")
    def _arrays(self, entry: Entry, inputs: Any) -> dict[str, Array]:
        return arrays_of(inputs, entry.ports, entry.preprocessing, self._raw)

    @record.spans("run", lambda self, *_: self._first.model.name, lambda self, *_: {"device": self.device})
    def _run(
        self, inputs: Any, outputs: Mapping[str, Array] | None, name: str = ""
    ) -> tuple[dict[str, Array], int | None]:
        entry = self._chosen(inputs, name)
        states = self._states[entry.name]
        if not states:
            return self._run_once(entry, inputs, outputs)
        with states.turn:
            results, cycles = self._run_once(entry, states.completed(inputs), outputs)
            states.keep(results)
        return results, cycles

    def _run_once(
        self, entry: Entry, inputs: Any, outputs: Mapping[str, Array] | None
    ) -> tuple[dict[str, Array], int | None]:
        arrays = self._arrays(entry, inputs)
        rows = rows_of(arrays, entry.ports)
        if rows is not None and self._states[entry.name]:
            raise InputDataError("a model with states takes the rows that it was compiled for, and no others")
        outputs = {} if outputs is None else outputs
        check_outputs(outputs, entry.ports.outputs, rows)
        contexts = self._contexts[entry.name]
        context = contexts.take()
        try:
            outcome = (
                context.run(arrays, outputs)
                if rows is None
                else self._rows(context, entry.ports, arrays, outputs, rows)
            )
        except DeviceError:
            contexts.drop(context)
            raise
        except BaseException:
            contexts.give(context)
            raise
        contexts.give(context)
        return outcome

    def _rows(
        self,
        context: RunContext,
        ports: ModelPorts,
        arrays: Mapping[str, Array],
        outputs: Mapping[str, Array],
        rows: int,
    ) -> tuple[dict[str, Array], int | None]:
        """A batch in runs of the model's own size."""
        batch = ports.batch
        assert batch is not None
        results = {
            info.name: outputs[info.name]
            if info.name in outputs
            else np.empty((rows, *info.shape[1:]), info.dtype)
            for info in ports.output_tensors
        }
        cycles: int | None = None
        for chunk in chunks_of(rows, batch):
            full = chunk.count == batch
            places = {
                name: output[chunk.first : chunk.first + chunk.count] for name, output in results.items()
            }
            chunk_outputs, more = context.run(
                {name: rows_for(array, chunk, batch) for name, array in arrays.items()},
                places if full else {},
            )
            if not full:
                for name, place in places.items():
                    place[...] = chunk_outputs[name][: chunk.count]
            if more is not None:
                cycles = (cycles or 0) + more
        return results, cycles
