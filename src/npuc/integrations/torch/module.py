"""A torch module that was compiled ahead of time: an `nn.Module` with a program for the NPU in it.

    compiled = npuc.torch.compile_module(model, samples, target="edge-4t")
    compiled(image)                       # what model(image) gives, from the NPU
    compiled.save("model.npu")            # an ordinary compiled model, which `npuc run` takes, too
    compiled = npuc.torch.load("model.npu")

The file and the `state_dict` hold the program and a description of arguments and results as plain data: no pickle, no code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from npuc.arrays import Array
from npuc.engine import FloatEngine
from npuc.errors import FileFormatError, InputDataError, UsageError
from npuc.integrations.conversion import convert
from npuc.integrations.options import IntegrationOptions
from npuc.integrations.report import IntegrationReport
from npuc.integrations.signature import CallSignature, saved_report, signature_of, with_signature
from npuc.integrations.structure import Form, described, rebuilt
from npuc.integrations.torch.counting import rows_are_independent
from npuc.integrations.torch.live import from_torch
from npuc.integrations.torch.tensors import TensorForm, array_of
from npuc.ir import Graph
from npuc.program.file import compiled_bytes, load_compiled, parse_compiled, save_compiled
from npuc.program.model import CompiledModel
from npuc.runtime import Runner
from npuc.words import counted

INTEGRATION = "npuc.torch.compile_module"
_WITHOUT = ("calibrate", "data", "cache", "background", "fallback")
"""Options of torch.compile that mean nothing ahead of time."""
_CLOSE = 0.999
"""The cosine between the results of torch and of the import, at the least."""


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
        form, tensors = described((args, kwargs), _is_tensor)
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
    args, kwargs = _call_of(head[0])
    form, tensors = described((args, kwargs), _is_tensor)
    call = _flat_call(module, form)
    with torch.no_grad(), _InferenceMode(module):
        results, leaves = described(_called(module, args, kwargs), _is_tensor)
        rows_vary = _rows_vary(call, tensors)
    if _is_plain(results, leaves):
        graph = from_torch(module, args, kwargs)
    else:
        graph = from_torch(_TensorResults(module, form), tuple(tensors))
    if len(graph.inputs) != len(tensors):
        raise UsageError(
            f"the network has {counted(len(graph.inputs), 'input')}, and the arguments have {counted(len(tensors), 'tensor')}",
            fix="Leave out arguments that the module does not use",
        )
    names = [port.name for port in graph.inputs]
    first = dict(zip(names, map(array_of, tensors), strict=True))
    outputs = _outputs(graph, first, leaves)
    conversion = convert(
        graph,
        (
            dict(zip(names, map(array_of, _tensors_of(item, form)), strict=True))
            for item in chain(head, samples)
        ),
        parsed,
        INTEGRATION,
        type(module).__name__,
    )
    signature = CallSignature(
        form,
        results,
        tuple(names),
        tuple(outputs),
        tuple(tuple(leaf.shape) for leaf in leaves),
        tuple(str(leaf.dtype).removeprefix("torch.") for leaf in leaves),
        rows_vary,
    )
    model = with_signature(conversion, signature)
    conversion.report.tell(parsed.report)
    return NpuModule(model, parsed.device)


def load(path: Path | str, device: Any = "simulated") -> NpuModule:
    """The module of a file that `save` wrote; any other compiled model takes its inputs in order and returns a tuple."""
    return NpuModule(load_compiled(path), device)


def _from_bytes(data: bytes, device: Any) -> NpuModule:
    return NpuModule(parse_compiled(np.frombuffer(data, np.uint8), "the module"), device)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _call_of(item: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A sample as arguments of `forward`."""
    if isinstance(item, Mapping):
        return (), {key: _as_tensor(value) for key, value in item.items()}
    if isinstance(item, tuple | list):
        return tuple(map(_as_tensor, item)), {}
    return (_as_tensor(item),), {}


def _as_tensor(value: Any) -> Any:
    return torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value


def _tensors_of(item: Any, form: Form) -> list[torch.Tensor]:
    args, kwargs = _call_of(item)
    own, tensors = described((args, kwargs), _is_tensor)
    if own != form:
        raise UsageError("samples of the calibration data have different structures")
    return tensors


def _called(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return module(*args, **kwargs)
    except (TypeError, RuntimeError) as error:
        raise UsageError(
            f"the module does not take a sample of the calibration data: {error}",
            fix="A sample is a tensor with its batch axis, a tuple of the arguments of forward, or a mapping of them; labels do "
            "not belong into it. The rows of one tensor are samples by tensor.split(1)",
        ) from error


class _TensorResults(torch.nn.Module):  # type: ignore[misc]
    """A module that returns the tensors of another one's results, each once: networks have neither numbers nor twins."""

    def __init__(self, module: Any, form: Form) -> None:
        super().__init__()
        self.module = module
        self._form = form

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the module."""
        args, kwargs = rebuilt(self._form, tensors)
        leaves = described(self.module(*args, **kwargs), _is_tensor)[1]
        return tuple({id(leaf): leaf for leaf in leaves}.values())


def _is_plain(results: Form, leaves: Sequence[torch.Tensor]) -> bool:
    """Whether results are different tensors and nothing else."""
    return "value" not in _words(results) and len({id(leaf) for leaf in leaves}) == len(leaves)


def _words(form: Form) -> set[str]:
    [(word, content)] = form.items()
    parts = [pair[1] for pair in content] if word == "dict" else content if word in ("tuple", "list") else ()
    return {word}.union(*(_words(part) for part in parts))


class _InferenceMode:
    """A module in inference, and then in the mode that it was in."""

    def __init__(self, module: Any) -> None:
        parts = module.modules() if isinstance(module, torch.nn.Module) else ()
        self._training = [part for part in parts if part.training]

    def __enter__(self) -> None:
        for part in self._training:
            part.training = False

    def __exit__(self, *_: object) -> None:
        for part in self._training:
            part.training = True


def _flat_call(module: Any, form: Form) -> Callable[..., list[Any]]:
    def call(*tensors: torch.Tensor) -> list[Any]:
        args, kwargs = rebuilt(form, tensors)
        return described(module(*args, **kwargs), _is_tensor)[1]

    return call


def _rows_vary(call: Callable[..., list[Any]], tensors: Sequence[torch.Tensor]) -> bool:
    """Whether rows of a batch are independent, by a run of two rows and more."""
    if not tensors or any(tensor.dim() == 0 for tensor in tensors):
        return False
    batch = list(tensors)
    if len(tensors[0]) < 2:
        batch = [torch.cat([tensor, tensor.flip(-1)]) for tensor in tensors]
    positions = range(len(batch))
    try:
        return rows_are_independent(call, batch, positions, ())
    except Exception:
        # A module with a fixed batch, such as one that was traced.
        return False


def _outputs(graph: Graph, inputs: Mapping[str, Array], leaves: Sequence[torch.Tensor]) -> list[str]:
    """For each tensor of the results, the output of the network: checked on a sample, in float."""
    outputs = FloatEngine(graph).run(inputs)
    names = [port.name for port in graph.outputs]
    unique = list({id(leaf): leaf for leaf in leaves}.values())
    if len(names) == len(leaves):
        chosen = names
    elif len(names) == len(unique):
        of_leaf = {id(leaf): name for leaf, name in zip(unique, names, strict=True)}
        chosen = [of_leaf[id(leaf)] for leaf in leaves]
    else:
        raise UsageError(
            f"the module returns {counted(len(leaves), 'tensor')}, and the network {counted(len(names), 'output')}",
            fix="Return each tensor once, and no arguments as they are",
        )
    for name, leaf in zip(chosen, leaves, strict=True):
        ours, theirs = np.ravel(outputs[name]).astype(np.float64), np.ravel(array_of(leaf)).astype(np.float64)
        size = float(np.linalg.norm(ours) * np.linalg.norm(theirs))
        if ours.shape != theirs.shape or (size and float(ours @ theirs) / size < _CLOSE):
            raise UsageError(
                f"output '{name}' of the imported network is not what torch computes",
                fix="Report it with the model; 'npuc import' on an exported program shows the first layer that differs",
            )
    return chosen
