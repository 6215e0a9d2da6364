"""A model on a device with memory for one job: inputs in, subgraphs in turn, outputs out.

Arrays of the caller take the place of the model's memory where their type and layout allow it; all others are copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from npuc.arithmetic.dtypes import dtype_of
from npuc.arrays import Array
from npuc.errors import DeviceError, EngineError, NpucError
from npuc.host import HostSubgraphs, TensorConversion, to_integers, to_reals
from npuc.program.model import ChipSubgraph, CompiledModel, Conversion, CpuSubgraph, NpuSubgraph, Tensor
from npuc.runtime import record
from npuc.runtime.device import Device, LoadedModel
from npuc.runtime.tensors import ModelPort, ModelPorts


class RunContext:
    """Runs one job at a time."""

    def __init__(
        self, model: CompiledModel, ports: ModelPorts, device: Device, host: HostSubgraphs, threads: int
    ) -> None:
        self._model, self._ports, self._host, self._threads = model, ports, host, threads
        self._device = device.name
        self._loaded = self._load(device)
        self._tensors = {tensor.name: tensor for tensor in model.tensors}
        try:
            self._own = {name: self._view(tensor) for name, tensor in self._tensors.items()}
        except DeviceError:
            self._guard(self._loaded.close)
            raise
        self._memory = dict(self._own)
        """Every tensor in its logical shape; during a job some of them are arrays of the caller."""
        self._bound: list[int] = []
        self._lent: list[str] = []
        """Tensors whose memory is the caller's."""
        self._inputs = frozenset(model.inputs)
        self._steps = [step for number in range(len(model.subgraphs)) for step in self._steps_of(number)]
        self._cycles: int | None = None

    def run(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> tuple[dict[str, Array], int | None]:
        """Outputs, in the arrays that are given for them or else in new ones, and the cycles of the device.

        All arrays have the shapes and types that the ports state.
        """
        self._cycles = None
        try:
            for port in self._ports.inputs:
                self._put(port, inputs[port.info.name])
            results: dict[str, Array] = {}
            late = []
            for port in self._ports.outputs:
                if not self._lend(port, outputs, results):
                    late.append(port)
            for step in self._steps:
                step()
            for port in late:
                self._get(port, results[port.info.name])
        finally:
            for name in self._lent:
                self._memory[name] = self._own[name]
            self._lent.clear()
            for segment in self._bound:
                self._guard(self._loaded.bind, segment, None)
            self._bound.clear()
        return results, self._cycles

    def close(self) -> None:
        """Free the memory of the device."""
        self._own.clear()
        self._memory.clear()
        self._steps.clear()
        self._guard(self._loaded.close)

    @record.spans("load", lambda self, device: self._model.name, lambda self, device: {"device": device.name})
    def _load(self, device: Device) -> LoadedModel:
        loaded: LoadedModel = self._guard(device.load, self._model, self._threads)
        return loaded

    def _put(self, port: ModelPort, value: Array) -> None:
        tensor = port.tensor
        if port.quantized:
            self._own[tensor.name][...] = to_integers(value, tensor, "half_away", self._threads)
        elif port.host and value.dtype == port.info.dtype:
            self._use(tensor.name, value)
        elif not self._bind(port, value):
            self._own[tensor.name][...] = value

    def _lend(self, port: ModelPort, given: Mapping[str, Array], results: dict[str, Array]) -> bool:
        """Provide the array of an output; False if the result has to be copied there in the end."""
        name, kind = port.info.name, port.info.dtype
        out = given.get(name)
        if out is None:
            out = np.empty(port.info.shape, kind)
        results[name] = out
        if port.quantized or out.dtype != kind or port.tensor.name in self._inputs:
            return False
        if port.host:
            self._use(port.tensor.name, out)
            return True
        return self._bind(port, out)

    def _get(self, port: ModelPort, out: Array) -> None:
        value = self._memory[port.tensor.name]
        out[...] = to_reals(value, port.tensor, self._threads) if port.quantized else value

    def _bind(self, port: ModelPort, array: Array) -> bool:
        """Have the device work in the caller's memory, if that looks as the device wants it."""
        dense = array.transpose(port.tensor.order)
        if not (port.own_segment and array.dtype == port.info.dtype and array.size and array.flags.writeable):
            return False
        # Kernels of plugins that work in global memory get addresses of it, which are multiples of their elements.
        if not (dense.flags.c_contiguous and dense.flags.aligned and port.tensor.segment not in self._bound):
            return False
        memory = dense.reshape(-1).view(np.uint8)
        if not self._guard(self._loaded.bind, port.tensor.segment, memory):
            return False
        self._bound.append(port.tensor.segment)
        self._use(port.tensor.name, array)
        return True

    def _use(self, name: str, array: Array) -> None:
        """Until the end of the job, the memory of a tensor is the caller's."""
        self._memory[name] = array
        self._lent.append(name)

    def _steps_of(self, number: int) -> list[Any]:
        subgraph = self._model.subgraphs[number]
        if isinstance(subgraph, NpuSubgraph | ChipSubgraph):
            return [partial(self._on_device, number)]
        if isinstance(subgraph, CpuSubgraph):
            return [partial(self._on_host, number, subgraph)]
        return [
            partial(self._convert, conversion, TensorConversion(conversion, self._model, self._threads))
            for conversion in subgraph.conversions
            if conversion not in self._ports.skipped
        ]

    def _on_device(self, number: int) -> None:
        cycles = self._execute(number)
        if cycles is not None:
            self._cycles = (self._cycles or 0) + cycles

    @record.spans(
        "npu",
        lambda self, number: self._model.subgraphs[number].name,
        lambda self, number: {"device": self._device},
        lambda cycles: {"cycles": cycles},
    )
    def _execute(self, number: int) -> int | None:
        cycles: int | None = self._guard(self._loaded.execute, number)
        return cycles

    @record.spans(
        "cpu",
        lambda self, number, subgraph: subgraph.name,
        lambda self, number, subgraph: {"layers": list(subgraph.reasons)},
    )
    def _on_host(self, number: int, subgraph: CpuSubgraph) -> None:
        outputs = self._host.run(
            number, {name: np.asarray(self._memory[name], order="C") for name in subgraph.inputs}
        )
        for name, value in outputs.items():
            self._write(name, value, subgraph.name)

    @record.spans("cpu", lambda self, conversion, turned: f"convert to {conversion.result}")
    def _convert(self, conversion: Conversion, turned: TensorConversion) -> None:
        turned.write(self._memory[conversion.source], self._memory[conversion.result])

    def _write(self, name: str, value: Array, where: str) -> None:
        place = self._memory[name]
        if value.shape != place.shape or value.dtype != place.dtype:
            raise EngineError(
                f"gives '{name}' as {value.dtype.name} of {value.shape}, not {place.dtype.name} of {place.shape}",
                where=where,
            )
        place[...] = value

    def _view(self, tensor: Tensor) -> Array:
        memory = self._guard(lambda: self._loaded.segments[tensor.segment])
        bytes_ = memory[tensor.offset : tensor.offset + tensor.size]
        if bytes_.nbytes != tensor.size:
            raise DeviceError(
                f"its driver gives {memory.nbytes} bytes for segment '{self._model.segments[tensor.segment].name}', and tensor "
                f"'{tensor.name}' ends at byte {tensor.offset + tensor.size}",
                where=f"device '{self._device}'",
            )
        shape = tuple(tensor.shape[axis] for axis in tensor.order)
        back = sorted(range(len(shape)), key=tensor.order.__getitem__)
        view: Array = bytes_.view(dtype_of(tensor.dtype).numpy).reshape(shape).transpose(back)
        return view

    def _guard(self, function: Any, *arguments: Any) -> Any:
        """Call the driver; whatever it raises that npuc does not know is a failure of the device."""
        try:
            return function(*arguments)
        except NpucError:
            raise
        except Exception as error:
            words = str(error) or type(error).__name__
            raise DeviceError(f"it failed: {words}", where=f"device '{self._device}'") from error
