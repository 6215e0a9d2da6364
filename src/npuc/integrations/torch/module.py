"""A torch module that was compiled ahead of time: an `nn.Module` with a program for the NPU in it.

    compiled = npuc.torch.compile_module(model, samples, target="edge-4t")
    compiled(image)                       # what model(image) gives, from the NPU
    compiled.save("model.npu")            # an ordinary compiled model, which `npuc run` takes, too
    compiled = npuc.torch.load("model.npu")

The file and the `state_dict` hold the program and a description of arguments and results as plain data: no pickle, no code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from npuc.errors import FileFormatError, InputDataError, UsageError
from npuc.integrations.conversion import convert
from npuc.integrations.options import IntegrationOptions
from npuc.integrations.report import IntegrationReport
from npuc.integrations.signature import CallSignature, saved_report, signature_of, with_signature
from npuc.integrations.structure import described, rebuilt
from npuc.integrations.torch.calls import arguments_of, import_call, is_tensor
from npuc.integrations.torch.tensors import TensorForm, array_of
from npuc.program.file import compiled_bytes, load_compiled, parse_compiled, save_compiled
from npuc.program.model import CompiledModel
from npuc.runtime import Runner

INTEGRATION = "npuc.torch.compile_module"
_WITHOUT = ("calibrate", "data", "cache", "background", "fallback")
"""Options of torch.compile that mean nothing ahead of time."""


class NpuModule(torch.nn.Module):  # type: ignore[misc]
    """A compiled module; any number of threads may call it. Without a program, `load_state_dict` brings one."""

    def __init__(self, model: CompiledModel | None = None, device: Any = "simulated") -> None:
        super().__init__()
        self._device = device
        self._runner: Runner | None = None
        self._signature: CallSignature | None = None
        self._positional = -1
        self._forms: dict[torch.device, tuple[TensorForm, ...]] = {}
        """Of the results, by the device of the arguments."""
        if model is not None:
            self._use(model)

    def _use(self, model: CompiledModel) -> None:
        runner = Runner(model, self._device)
        self._runner, self._signature = runner, signature_of(runner)
        self._positional, self._forms = self._signature.positional_tensors, {}

    @property
    def program(self) -> CompiledModel:
        """The compiled model."""
        return self._loaded()[0].model

    @property
    def report(self) -> IntegrationReport:
        """What runs where, and why."""
        return saved_report(self.program)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program; arguments and results are those of the original module."""
        # Dynamo must not look inside, and what keeps it out costs more than all that is done here: so only it pays for that.
        run = self._run_untraced if torch.compiler.is_compiling() else self._run
        return run(args, kwargs)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _run_untraced(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._run(args, kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        runner, signature = self._loaded()
        tensors = self._tensors(signature, args, kwargs)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            raise UsageError(
                "gradients are wanted of a compiled module, and it has none",
                fix="Call it inside torch.no_grad(), or train the original",
            )
        arrays = {
            name: array_of(tensor) for name, tensor in zip(signature.inputs, tensors, strict=True) if name
        }
        rows = signature.rows(runner, arrays)
        outputs = runner.run(arrays)
        forms = self._forms_on(signature, tensors[0].device if tensors else torch.device("cpu"))
        results = [
            form.tensor(outputs[name], rows) for name, form in zip(signature.outputs, forms, strict=True)
        ]
        return rebuilt(signature.results, results)

    def _tensors(
        self, signature: CallSignature, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Sequence[torch.Tensor]:
        """The tensors of the arguments, which have to be those that were compiled for."""
        if len(args) == self._positional and not kwargs and all(type(arg) is torch.Tensor for arg in args):
            return args
        form, tensors = described((args, kwargs), is_tensor)
        if form != signature.arguments:
            raise InputDataError(
                "the module was compiled for other arguments",
                fix=f"It takes {rebuilt(signature.arguments, signature.inputs)} (args, kwargs)",
            )
        return tensors

    def _forms_on(self, signature: CallSignature, device: torch.device) -> tuple[TensorForm, ...]:
        forms = self._forms.get(device)
        if forms is None:
            forms = self._forms[device] = tuple(
                TensorForm(getattr(torch, dtype), shape, device, False)
                for shape, dtype in zip(signature.shapes, signature.dtypes, strict=True)
            )
        return forms

    def _loaded(self) -> tuple[Runner, CallSignature]:
        if self._runner is None or self._signature is None:
            raise UsageError(
                "the module has no program yet", fix="Use load_state_dict, or npuc.torch.load(path)"
            )
        return self._runner, self._signature

    def save(self, path: Path | str) -> None:
        """Write the compiled model; `npuc.torch.load`, `npuc run` and the runtimes take the file."""
        save_compiled(self.program, path)

    def get_extra_state(self) -> torch.Tensor:
        """The program as bytes, for `state_dict`."""
        return torch.frombuffer(bytearray(compiled_bytes(self.program)), dtype=torch.uint8)

    def set_extra_state(self, state: Any) -> None:
        """Take the program of a `state_dict`; its checksums are compared."""
        if not isinstance(state, torch.Tensor) or state.dtype is not torch.uint8:
            raise FileFormatError("the state_dict is not that of a compiled module")
        self._use(parse_compiled(np.array(state.cpu().numpy()), "the state_dict"))

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_bytes, (compiled_bytes(self.program), self._device)

    def __deepcopy__(self, memo: Any) -> NpuModule:
        return NpuModule(self.program, self._device)

    def extra_repr(self) -> str:
        """What `print` shows."""
        if self._runner is None:
            return "no program"
        return f"{self._runner.model.name} for {self._runner.model.target.get('name')}"


def compile_module(module: Any, data: Iterable[Any], **options: Any) -> NpuModule:
    """Quantize a module on data and compile it; the result stands in its place.

    A sample of `data` is a tensor, a tuple of the arguments of `forward`, or a mapping of them by name; the shapes of the
    first one are compiled. The options are those of `torch.compile(backend="npuc")` without the ones that say when to convert.

    >>> compiled = compile_module(model, [torch.randn(1, 3, 32, 32) for _ in range(32)], target="edge-4t")  # doctest: +SKIP
    """
    parsed = IntegrationOptions.parse(options, _WITHOUT)
    samples = iter(data() if callable(data) else data)
    head = list(islice(samples, 2))
    if not head:
        raise UsageError("there is no calibration data", fix="Give some typical inputs, 32 or more")
    call = import_call(module, *arguments_of(head[0]))
    conversion = convert(
        call.graph, map(call.arrays, chain(head, samples)), parsed, INTEGRATION, type(module).__name__
    )
    model = with_signature(conversion, call.signature)
    conversion.report.tell(parsed.report)
    return NpuModule(model, parsed.device)


def load(path: Path | str, device: Any = "simulated") -> NpuModule:
    """The module of a file that `save` wrote; any other compiled model takes its inputs in order and returns a tuple."""
    return NpuModule(load_compiled(path), device)


def _from_bytes(data: bytes, device: Any) -> NpuModule:
    return NpuModule(parse_compiled(np.frombuffer(data, np.uint8), "the module"), device)
