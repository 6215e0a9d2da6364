"""Where programs come from: a live module, a `.pt2` file, a TorchScript file. All end as the same decomposed ATen graph.

`torch.export` traces at fixed shapes, and `run_decompositions` makes the result functional and breaks down every op that
npuc has no rule for. TorchScript is traced in the same way, as a function of its inputs: its loops and branches are gone
then, and the rules see the same ops as for a live module.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

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
    runnable: Any = field(default=None, compare=False)
    """The program as torch runs it, from a list of inputs to a list of outputs: the judge of an import."""

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of the original for inputs in order."""
        with torch.no_grad():
            found = torch.utils._pytree.tree_leaves(self.runnable(list(inputs)))
        return [item for item in found if isinstance(item, torch.Tensor | bool | int | float)]


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
    shapes = options.input_shapes
    held = _user_inputs(program)
    for name, shape in shapes.items():
        if name in held and name not in opened and tuple(held[name].shape) != tuple(shape):
            raise UsageError(
                f"--input-shape: '{name}' is fixed to {'x'.join(map(str, held[name].shape))} in the file",
                fix="Export it again with dynamic_shapes, or at the shape that is wanted",
            )
    missing = [name for name in opened if name not in shapes]
    if missing:
        flags = " ".join(f"--input-shape {name}={_hint(held[name])}" for name in missing)
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
    return of_program(program)


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
    names = _script_inputs(module)
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
            return _of_script(module, inputs, counted=True)
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
    return {name: dtype_of("f32") for name in _script_inputs(load_script(path))}


def _script_inputs(module: Any) -> list[str]:
    function = module if isinstance(module, torch.jit.ScriptFunction) else module.forward
    return [a.name for a in function.schema.arguments if a.name != "self" and not a.has_default_value()]


def _of_script(module: Any, inputs: tuple[Any, ...], counted: bool = False) -> Program:
    program = of_program(traced_script(module, inputs, counted))
    tensors = [] if isinstance(module, torch.jit.ScriptFunction) else _state(module)
    paths = {_key(tensor): path for path, tensor in reversed(tensors)}
    owners = {
        node: paths[_key(tensor)] for node, tensor in program.constants.items() if _key(tensor) in paths
    }
    names = _script_inputs(module)
    inputs_by_name = {
        node: names[i] if i < len(names) else own for i, (node, own) in enumerate(program.inputs.items())
    }
    return Program(
        program.graph,
        program.constants,
        owners,
        inputs_by_name,
        program.outputs,
        program.notes,
        lambda given: module(*given),
    )


def _state(module: Any) -> list[tuple[str, Any]]:
    return [*module.named_parameters(), *module.named_buffers()]


def _bounded(name: str, shape: Any) -> tuple[int, ...]:
    if any(n < 0 for n in shape) or prod(shape) > _MAX_INPUT:
        raise ResourceLimitError(f"the input '{name}' has the impossible shape {list(shape)}")
    return tuple(shape)


def _user_inputs(program: Any) -> dict[str, Any]:
    """The inputs that a user gives, as torch's fake tensors, or plain values."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    found: dict[str, Any] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.USER_INPUT:
            argument = spec.arg
            tensor = isinstance(argument, TensorArgument)
            found[argument.name] = nodes[argument.name].meta["val"] if tensor else argument.value
    return found


def _open_inputs(program: Any) -> list[str]:
    """The inputs with a dimension that is not a number."""
    return [
        name
        for name, val in _user_inputs(program).items()
        if isinstance(val, torch.Tensor) and not all(isinstance(n, int) for n in val.shape)
    ]


def _hint(val: Any) -> str:
    return ",".join(str(n) if isinstance(n, int) else "1" for n in val.shape)


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
        program.graph, constants, owners, inputs, outputs, tuple(notes), lambda given: _called(whole, given)
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
    found: list[tuple[str, Any]] = []
    written: list[str] = []
    notes = []
    for spec in program.graph_signature.output_specs:
        if spec.kind == OutputKind.USER_OUTPUT:
            title = next(titles, "")
            if isinstance(spec.arg, TensorArgument):
                found.append((title, nodes[spec.arg.name]))
            elif isinstance(getattr(spec.arg, "value", None), bool | int | float):
                found.append((title, spec.arg.value))
        elif spec.target:
            written.append(spec.target)
    if written:
        notes.append(
            f"the model writes to {', '.join(repr(name) for name in written[:4])}"
            f"{' and others' if len(written) > 4 else ''} as it runs; a network here has no memory, so every run is "
            "the first"
        )
    return found, notes


def _titles(spec: Any) -> list[str]:
    """Names of outputs that are entries of a dictionary; others have none of their own."""
    tree = torch.utils._pytree
    count = spec.num_leaves
    whole = tree.tree_unflatten(list(range(count)), spec)
    found = [""] * count
    for path, index in tree.tree_flatten_with_path(whole)[0]:
        parts = [str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", "")))) for key in path]
        if any(hasattr(key, "key") or hasattr(key, "name") for key in path):
            found[index] = ".".join(parts)
    return found
