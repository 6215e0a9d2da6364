"""Where programs come from: a live module, a `.pt2` file, a TorchScript file. All end as the same decomposed ATen graph.

`torch.export` traces at fixed shapes, and `run_decompositions` makes the result functional and breaks down every op that
npuc has no rule for. TorchScript is traced in the same way, as a function of its inputs: its loops and branches are gone
then, and the rules see the same ops as for a live module.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument

from npuc.errors import (
    DynamicShapeError,
    InvalidModelError,
    ResourceLimitError,
    UnknownTensorError,
    UsageError,
)
from npuc.frontend.options import ImportOptions
from npuc.frontend.ports import input_constant, open_batch_note
from npuc.frontend.torch.convert import dtype_from
from npuc.frontend.torch.export import decomposed, exported, of_module, traced_script
from npuc.frontend.torch.exported_file import load_exported
from npuc.frontend.torch.script_file import load_script
from npuc.ir import DType, dtype_of

_MAX_INPUT = 1 << 31
"""Elements of an input that a program is traced with."""


@dataclass(frozen=True)
class Program:
    """A decomposed program: a graph of ATen ops, and what its placeholders stand for."""

    graph: Any
    constants: dict[Any, Any]
    """Placeholder to real tensor: parameters, buffers, constants."""
    owners: dict[Any, str]
    """Placeholder to the path of the parameter or buffer."""
    inputs: dict[Any, str]
    """Placeholder to the name of the input."""
    outputs: list[tuple[str, Any]]
    """Name (empty where the model gives none) and node, or number."""
    notes: tuple[str, ...] = ()
    numbers: frozenset[str] = frozenset()
    """Inputs that are no tensors, and were given a value (`--constant`) when the program was traced."""
    runnable: Any = field(default=None, compare=False)
    """The program as torch runs it, from a list of inputs to a list of outputs: the judge of an import."""

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of the original for inputs in order."""
        with torch.no_grad():
            leaves = torch.utils._pytree.tree_leaves(self.runnable(list(inputs)))
        return [item for item in leaves if isinstance(item, torch.Tensor | bool | int | float)]


def of_live(module: Any, example_inputs: Any, example_kwargs: Mapping[str, Any]) -> Program:
    """A module, a function, a ScriptModule or an ExportedProgram, at the shapes of its example inputs."""
    args = example_inputs if isinstance(example_inputs, tuple) else _as_tuple(example_inputs)
    program = _of_live(module, args, example_kwargs)
    # The model goes on to live: what it does to its weights later is not the graph's concern.
    copies: dict[int, Any] = {}
    for node, tensor in program.constants.items():
        program.constants[node] = copies.setdefault(id(tensor), tensor.clone())
    return program


def _of_live(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Program:
    if isinstance(module, torch.export.ExportedProgram):
        return of_program(module if not _open_inputs(module) else exported(module.module(), args, kwargs))
    if isinstance(module, torch.jit.ScriptModule):
        # As its file would hold it: without the Python class that it was made of.
        saved = io.BytesIO()
        torch.jit.save(module, saved)
        saved.seek(0)
        return _of_script(torch.jit.load(saved, map_location="cpu"), args)
    if isinstance(module, torch.jit.ScriptFunction):
        return _of_script(module, args)
    return of_program(of_module(module, args, kwargs))


def _as_tuple(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, list) else (given,)


def of_exported_file(path: Path, options: ImportOptions) -> Program:
    """A `.pt2` file; open dimensions are fixed by the options."""
    program = load_exported(path)
    opened = _open_inputs(program)
    held = _user_inputs(program)
    batches = _open_batches(program, held, opened, options)
    shapes = {**options.input_shapes, **batches}
    for name, shape in shapes.items():
        if name in held and name not in opened and tuple(held[name].shape) != tuple(shape):
            raise UsageError(
                f"--input-shape: '{name}' is fixed to {'x'.join(map(str, held[name].shape))} in the file",
                fix="Export it again with dynamic_shapes, or at the shape that is wanted",
            )
    missing = [name for name in opened if name not in shapes]
    if missing:
        flags = " ".join(f"--input-shape {name}={_hint(program, held[name])}" for name in missing)
        words = ", ".join(f"'{name}' is {_words(held[name])}" for name in missing)
        raise DynamicShapeError(f"npuc compiles static shapes, and the input {words}", fix=f"Add {flags}")
    if opened:
        flat = [
            torch.zeros(_bounded(name, shapes.get(name, tuple(val.shape))), dtype=val.dtype)
            if isinstance(val, torch.Tensor)
            else val
            for name, val in held.items()
        ]
        args, kwargs = torch.utils._pytree.tree_unflatten(flat, program.call_spec.in_spec)
        program = exported(program.module(), args, kwargs)
    static_program = of_program(program)
    notes = [open_batch_note(name, shape[0]) for name, shape in batches.items()]
    return replace(static_program, notes=(*notes, *static_program.notes))


def _open_batches(
    program: Any, held: Mapping[str, Any], opened: Sequence[str], options: ImportOptions
) -> dict[str, tuple[int, ...]]:
    """Shapes for inputs whose first dimension alone is open: 1 there, or what another input of the same batch was given."""
    sizes: dict[str, int] = {}
    for name, shape in options.input_shapes.items():
        if name in opened:
            sizes |= {str(n): size for n, size in zip(held[name].shape, shape, strict=False)}
    shapes: dict[str, tuple[int, ...]] = {}
    for name in opened:
        first, *rest = held[name].shape
        batch = sizes.get(str(first), 1)
        possible = all(isinstance(n, int) for n in rest) and _lowest(program, first) <= batch
        if name not in options.input_shapes and possible:
            shapes[name] = (batch, *rest)
    return shapes


def exported_input_types(path: Path, options: ImportOptions) -> dict[str, DType]:
    """The inputs of a `.pt2` file."""
    held = _user_inputs(load_exported(path))
    return {
        name: dtype_from(val.dtype) or dtype_of("f32")
        for name, val in held.items()
        if isinstance(val, torch.Tensor)
    }


def of_script_file(path: Path, options: ImportOptions) -> Program:
    """A TorchScript file, at the shapes that the options give."""
    module = load_script(path)
    signature = _signature(module, options.constants)
    names = signature.tensors
    for name in options.input_shapes:
        if name not in names:
            raise UnknownTensorError(
                f"--input-shape: there is no input '{name}'", fix=f"The inputs are: {', '.join(names)}"
            )
    missing = [name for name in names if name not in options.input_shapes]
    if missing:
        flags = " ".join(f"--input-shape {name}=1,3,224,224" for name in missing)
        raise DynamicShapeError(
            f"TorchScript does not say which shape the input '{missing[0]}' has", fix=f"Add {flags}"
        )
    shapes = [_bounded(name, options.input_shapes[name]) for name in names]
    faults: list[InvalidModelError] = []
    for dtypes in _guesses(len(names)):
        inputs = tuple(torch.zeros(shape, dtype=dtype) for shape, dtype in zip(shapes, dtypes, strict=True))
        try:
            return _of_script(module, inputs, signature, counted=True)
        except InvalidModelError as error:
            faults.append(error)
    raise faults[0]


def _guesses(count: int) -> list[tuple[Any, ...]]:
    """Element types to try, for TorchScript does not say: all float, then one or all of them integer."""
    real: list[Any] = [torch.float32] * count
    single = [(*real[:i], torch.int64, *real[i + 1 :]) for i in range(min(count, 8))]
    return list(dict.fromkeys([tuple(real), *single, (torch.int64,) * count]))


def script_input_types(path: Path, options: ImportOptions) -> dict[str, DType]:
    """The inputs of a TorchScript file, which does not state types."""
    return {name: dtype_of("f32") for name in _signature(load_script(path), options.constants).tensors}


@dataclass(frozen=True)
class _Signature:
    """The arguments of a TorchScript program: tensors are inputs, numbers have one value for good."""

    tensors: tuple[str, ...]
    numbers: Mapping[str, bool | int | float] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    """All arguments without a default."""

    def call(self, module: Any, tensors: Sequence[Any]) -> Any:
        """Run the program on its tensors."""
        given = {**dict(zip(self.tensors, tensors, strict=False)), **self.numbers}
        positional = [given.pop(name) for name in self.order if name in given]
        return module(*positional, **given)


_NUMBERS: dict[str, Any] = {"IntType": int, "FloatType": float, "BoolType": bool, "NumberType": float}
_NUMBER_WORDS = {"IntType": "an integer", "BoolType": "a boolean"}


def _signature(module: Any, constants: Mapping[str, str]) -> _Signature:
    """The arguments that a program needs, and the optional ones that the user gives a value for."""
    function = isinstance(module, torch.jit.ScriptFunction)
    # The first argument of a method is its module, whatever it is called.
    arguments = module.schema.arguments if function else module.forward.schema.arguments[1:]
    tensors: list[str] = []
    numbers: dict[str, bool | int | float] = {}
    for argument in arguments:
        kind = argument.type.getElementType() if argument.type.kind() == "OptionalType" else argument.type
        if argument.has_default_value() and argument.name not in constants:
            continue
        if kind.kind() == "TensorType":
            tensors.append(argument.name)
        elif kind.kind() not in _NUMBERS:
            raise InvalidModelError(
                f"the input '{argument.name}' is a {kind.annotation_str}; npuc takes tensors and numbers",
                fix="Wrap it in a module that takes each tensor as an argument of its own, and script that",
            )
        elif argument.name not in constants:
            raise UsageError(
                f"the input '{argument.name}' is {_NUMBER_WORDS.get(kind.kind(), 'a number')}, not a tensor",
                fix=f"Add --constant {argument.name}=VALUE with the value that it shall have",
            )
        else:
            value = input_constant(argument.name, constants[argument.name], (), dtype_of(np.float64))
            numbers[argument.name] = _NUMBERS[kind.kind()](value.item())
    order = tuple(argument.name for argument in arguments if not argument.has_default_value())
    return _Signature(tuple(tensors), numbers, order)


def _of_script(
    module: Any, inputs: tuple[Any, ...], signature: _Signature | None = None, counted: bool = False
) -> Program:
    scripted = isinstance(module, torch.jit.ScriptModule)
    signature = signature or _signature(module, {})
    written = _written(module) if scripted else []
    # What a program writes to while it is traced holds no numbers, so a module with memory is traced as a copy.
    traced = deepcopy(module) if written else module
    if scripted:
        traced.eval()
        module.eval()
    program = of_program(traced_script(lambda *tensors: signature.call(traced, tensors), inputs, counted))
    tensors = _state(traced) if scripted else []
    paths = {_key(tensor): path for path, tensor in reversed(tensors)}
    owners = {
        node: paths[_key(tensor)] for node, tensor in program.constants.items() if _key(tensor) in paths
    }
    names = signature.tensors
    inputs_by_name = {
        node: names[i] if i < len(names) else own for i, (node, own) in enumerate(program.inputs.items())
    }
    return Program(
        program.graph,
        program.constants,
        owners,
        inputs_by_name,
        program.outputs,
        (*program.notes, *_memory_note(written)),
        frozenset(signature.numbers),
        lambda given: signature.call(deepcopy(module) if written else module, given),
    )


def _written(module: Any) -> list[str]:
    """The attributes that a program changes as it runs."""
    graph = module.inlined_graph
    return sorted({node.s("name") for node in graph.findAllNodes("prim::SetAttr", recurse=True)})


def _state(module: Any) -> list[tuple[str, Any]]:
    return [*module.named_parameters(), *module.named_buffers()]


def _bounded(name: str, shape: Any) -> tuple[int, ...]:
    if any(n < 0 for n in shape) or prod(shape) > _MAX_INPUT:
        raise ResourceLimitError(f"the input '{name}' has the impossible shape {list(shape)}")
    return tuple(shape)


def _user_inputs(program: Any) -> dict[str, Any]:
    """The inputs that a user gives, as torch's fake tensors, or plain values."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    inputs: dict[str, Any] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.USER_INPUT:
            argument = spec.arg
            tensor = isinstance(argument, TensorArgument)
            inputs[argument.name] = nodes[argument.name].meta["val"] if tensor else argument.value
    return inputs


def _open_inputs(program: Any) -> list[str]:
    """The inputs with a dimension that is not a number."""
    return [
        name
        for name, val in _user_inputs(program).items()
        if isinstance(val, torch.Tensor) and not all(isinstance(n, int) for n in val.shape)
    ]


def _hint(program: Any, val: Any) -> str:
    return ",".join(str(n if isinstance(n, int) else max(1, _lowest(program, n))) for n in val.shape)


def _lowest(program: Any, size: Any) -> int:
    """The least that an open dimension may be."""
    bounds = program.range_constraints.get(getattr(getattr(size, "node", None), "expr", None))
    return 1 if bounds is None else int(bounds.lower)


def _words(val: Any) -> str:
    return "x".join(str(n) if isinstance(n, int) else "?" for n in val.shape)


def _key(tensor: Any) -> tuple[Any, ...]:
    """What two views of the same parameter have in common."""
    return (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)


def of_program(program: Any) -> Program:
    """Decompose an exported program, and sort out its placeholders and results."""
    whole = program
    program = decomposed(program)
    nodes = {node.name: node for node in program.graph.nodes}
    constants: dict[Any, Any] = {}
    owners: dict[Any, str] = {}
    inputs: dict[Any, str] = {}
    tensors: dict[tuple[Any, ...], Any] = {}
    paths: dict[int, str] = {}
    for spec in program.graph_signature.input_specs:
        if not isinstance(spec.arg, TensorArgument):
            if spec.kind != InputKind.USER_INPUT:
                raise InvalidModelError(f"the model holds '{spec.arg.name}', which is no tensor")
            continue
        node = nodes[spec.arg.name]
        if spec.kind == InputKind.USER_INPUT:
            inputs[node] = node.name
            continue
        tensor = program.state_dict.get(spec.target, program.constants.get(spec.target))
        if not isinstance(tensor, torch.Tensor):
            raise InvalidModelError(f"the model does not hold the values of '{spec.target}'")
        tensor = tensor.detach()
        tensor = tensors.setdefault(_key(tensor), tensor) if tensor.numel() else tensor
        constants[node] = tensor
        if spec.kind != InputKind.CONSTANT_TENSOR:
            owners[node] = paths.setdefault(id(tensor), spec.target)
    outputs, notes = _outputs(program, nodes)
    return Program(
        program.graph,
        constants,
        owners,
        inputs,
        outputs,
        tuple(notes),
        runnable=lambda given: _called(whole, given),
    )


def _called(program: Any, given: Sequence[Any]) -> Any:
    """Run an exported program on its tensor inputs; what else it was exported with is filled in."""
    values = iter(given)
    flat = [
        next(values) if isinstance(spec.arg, TensorArgument) else spec.arg.value
        for spec in program.graph_signature.input_specs
        if spec.kind == InputKind.USER_INPUT
    ]
    args, kwargs = torch.utils._pytree.tree_unflatten(flat, program.call_spec.in_spec)
    return program.module()(*args, **kwargs)


def _outputs(program: Any, nodes: Mapping[str, Any]) -> tuple[list[tuple[str, Any]], list[str]]:
    titles = iter(_titles(program.call_spec.out_spec))
    outputs: list[tuple[str, Any]] = []
    written: list[str] = []
    for spec in program.graph_signature.output_specs:
        if spec.kind == OutputKind.USER_OUTPUT:
            title = next(titles, "")
            if isinstance(spec.arg, TensorArgument):
                outputs.append((title, nodes[spec.arg.name]))
            elif isinstance(getattr(spec.arg, "value", None), bool | int | float):
                outputs.append((title, spec.arg.value))
        elif spec.target:
            written.append(spec.target)
    return outputs, _memory_note(written)


def _memory_note(written: Sequence[str]) -> list[str]:
    """What is said of a model with memory."""
    if not written:
        return []
    return [
        f"the model writes to {', '.join(repr(name) for name in written[:4])}"
        f"{' and others' if len(written) > 4 else ''} as it runs; a network here has no memory, so every run is "
        "the first"
    ]


def _titles(spec: Any) -> list[str]:
    """Names of outputs that are entries of a dictionary; others have none of their own."""
    tree = torch.utils._pytree
    count = spec.num_leaves
    whole = tree.tree_unflatten(list(range(count)), spec)
    titles = [""] * count
    for path, index in tree.tree_flatten_with_path(whole)[0]:
        parts = [str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", "")))) for key in path]
        if any(hasattr(key, "key") or hasattr(key, "name") for key in path):
            titles[index] = ".".join(parts)
    return titles
