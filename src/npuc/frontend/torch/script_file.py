"""TorchScript files: looked through before torch compiles them.

TorchScript is a language of its own, and its programs may call any op that torch knows. A file is refused if its code
calls ops that touch files or run Python, if it loops without a bound, or if its pickles name anything but its own
classes. The rest cannot do more than compute.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from npuc.errors import FileFormatError, InvalidModelError, ResourceLimitError
from npuc.frontend.sniff import CHECKPOINT_FIX
from npuc.frontend.torch.archive import Archive, read_archive
from npuc.frontend.torch.export import TOO_LONG, guarded
from npuc.frontend.torch.pickles import STORAGES, check_pickle, check_tensors

_GLOBALS = frozenset(
    {
        "torch._utils._rebuild_tensor_v2",
        "torch._utils._rebuild_parameter",
        "collections.OrderedDict",
        "torch.device",
        *STORAGES,
        *(f"torch.jit._pickle.{name}" for name in (
            "build_intlist", "build_tensorlist", "build_doublelist", "build_boollist", "build_tensor_from_id",
            "restore_type_tag",
        )),
    }
)  # fmt: skip
_CALL = re.compile(r"\btorch\.([A-Za-z_][\w.]*)\s*\(")
_SPECIAL = re.compile(r"\bops\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)")
_FORBIDDEN = frozenset(
    {
        "save",
        "load",
        "from_file",
        "set_data",
        "_save_parameter",
        "read",
        "write",
        "manual_seed",
        "fork",
        "wait",
    }
)
_PRIM = frozenset(
    {
        "data", "NumToTensor", "min", "max", "dtype", "device", "unchecked_cast", "unchecked_unwrap_optional",
        "TupleConstruct", "TupleUnpack", "ListConstruct", "is_cuda", "is_quantized", "shape", "RaiseException",
        "rangelist", "layout", "requires_grad", "itemsize", "type", "Print", "annotate", "is_cpu", "is_nested",
    }
)  # fmt: skip
_TRACE_FIX = "Trace it with torch.jit.trace instead"
_WHILE = re.compile(r"^\s*while\b", re.MULTILINE)
_RANGE = re.compile(r"\brange\(([^)]*)\)")
_MAX_TRIPS = 1 << 14
_MAX_STEPS = 1 << 18
"""Ops that run when all loops are written out."""
_OPEN_TRIPS = 1 << 10
"""What a loop of a length that only the data tell is counted as, and the longest that it may be."""
_MAX_RANK = 16
"""The same of a loop over the axes of a tensor."""
LIMITED = f"""
def limited(count: int, most: int) -> int:
    if count > most:
        raise RuntimeError("{TOO_LONG}")
    return count
"""
_MAX_DOUBLINGS = 16
_MAX_PICKLES = 4
_GROWING = frozenset({"replace", "center", "zfill", "rjust", "ljust", "expandtabs"})
_SMALL = ("prim::ListConstruct", "prim::Constant", "aten::size", "aten::slice", "aten::dim", "aten::len")


def load_script(path: Path) -> Any:
    """The ScriptModule that a file holds."""
    archive = read_archive(path)
    if not any(name.startswith("code/") for name in archive.records):
        raise FileFormatError("is a PyTorch checkpoint, not a model", where=str(path), fix=CHECKPOINT_FIX)
    check_script(archive)
    module = guarded(
        "torch cannot read the TorchScript program",
        "Export it again with the torch that is installed here",
        lambda: torch.jit.load(archive.packed(), map_location="cpu"),
    )
    graph = guarded("the TorchScript program has no forward", None, lambda: _inlined(module))
    _check_graph(graph)
    _limit_loops(graph)
    return module


def _inlined(module: Any) -> Any:
    """The graph that torch runs, with what it calls written out in place."""
    graph = module.graph
    torch._C._jit_pass_inline(graph)
    return graph


def _limit_loops(graph: Any) -> None:
    """Let loops that are not of a fixed length stop the run where they would be longer than they are counted as."""
    limited = torch.jit.CompilationUnit(LIMITED).limited.graph
    for loop in graph.findAllNodes("prim::Loop"):
        count = loop.inputsAt(0)
        if count.node().kind() != "prim::Constant":
            with graph.insert_point_guard(loop):
                most = graph.insertConstant(_trips(count.node()))
                (bounded,) = graph.insertGraph(limited, [count, most])
            loop.replaceInput(0, bounded)


def check_script(archive: Archive) -> None:
    """Refuse a program that could do more than compute."""
    # Where each line came from, and what a program was traced with: of no use here.
    for name in [n for n in archive.records if n.endswith(".debug_pkl") or n.startswith("traced_inputs")]:
        del archive.records[name]
    pickles = sum(name.endswith(".pkl") for name in archive.records)
    if pickles > _MAX_PICKLES:
        raise InvalidModelError(f"the archive holds {pickles} pickles; torch writes two")
    for name, data in archive.records.items():
        if name.endswith(".pkl"):
            check_pickle(data, _GLOBALS, ("__torch__.",), f"the record {name}")
            check_tensors(data, archive.records, name.removesuffix(".pkl"), f"the record {name}")
        elif name.startswith("code/") and name.endswith(".py"):
            _check_code(name, data)


def _check_code(name: str, data: bytes) -> None:
    try:
        code = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidModelError(f"the record {name} is not text") from error
    code = re.sub(r"\"(\\.|[^\"\\\n])*\"|'(\\.|[^'\\\n])*'", "''", code)
    for call in _CALL.findall(code):
        last = call.rpartition(".")[2]
        if call.partition(".")[0] in ("classes", "jit", "hub", "utils") or last in _FORBIDDEN:
            raise InvalidModelError(f"the program calls 'torch.{call}', which does more than compute")
    for namespace, op in _SPECIAL.findall(code):
        if (namespace != "aten" and not (namespace == "prim" and op in _PRIM)) or op in _FORBIDDEN:
            raise InvalidModelError(
                f"the program calls '{namespace}.{op}', which npuc does not let a file call",
                fix="Import the live module with npuc.from_torch, where its custom ops are loaded",
            )
    if "setstate__" in code or "getstate__" in code:
        raise InvalidModelError("the program runs code of its own when it is loaded (__setstate__)")
    _check_loops(code)


def _check_loops(code: str) -> None:
    if _WHILE.search(code):
        raise InvalidModelError("the program has a while loop, which may not end", fix=_TRACE_FIX)
    for bounds in _RANGE.findall(code):
        for number in re.findall(r"\d+", bounds):
            if int(number[:12]) > _MAX_TRIPS:
                raise InvalidModelError(f"the program has a loop of {number[:12]} rounds")


def _check_graph(graph: Any) -> None:
    """The same once more on what torch made of the text: what the ops are, how often a loop runs, and what may grow."""
    steps = doublings = 0
    stack = [(graph, 1)]
    while stack:
        block, rounds = stack.pop()
        for node in block.nodes():
            namespace, _, op = node.kind().partition("::")
            if namespace not in ("aten", "prim") or op in _FORBIDDEN or op in ("PythonOp", "CallFunction"):
                raise InvalidModelError(f"the program calls '{node.kind()}', which does more than compute")
            if op in _GROWING and node.outputsAt(0).type().kind() == "StringType":
                raise InvalidModelError(
                    f"the program calls '{node.kind()}' on text, which may make it of any length"
                )
            steps += rounds
            doublings += rounds * _grows(node)
            trips = _trips(next(iter(node.inputs())).node()) if node.kind() == "prim::Loop" else 1
            stack.extend((inner, rounds * trips) for inner in node.blocks())
        if steps > _MAX_STEPS or rounds > _MAX_STEPS:
            raise ResourceLimitError(
                f"the loops of the program come to more than {_MAX_STEPS} ops", fix=_TRACE_FIX
            )
        if doublings > _MAX_DOUBLINGS:
            raise ResourceLimitError(
                f"the program may double a list or text more than {_MAX_DOUBLINGS} times", fix=_TRACE_FIX
            )


def _trips(count: Any) -> int:
    """How often a loop may run: as often as it says, or what `_limit_loops` holds it to."""
    if count.kind() == "prim::Constant":
        trips = int(count.output().toIValue() or 0)
        if trips > _MAX_TRIPS:
            raise InvalidModelError(
                "the program has a loop of unknown length, which may not end", fix=_TRACE_FIX
            )
        return max(1, trips)
    return min(max(1, _most(count)), _OPEN_TRIPS)


def _most(node: Any) -> int:
    """The largest value that an integer of the program has where it loops over what it is given: axes, entries of a list."""
    kind, given = node.kind(), [value.node() for value in node.inputs()]
    if kind == "prim::Constant":
        value = node.output().toIValue()
        return value if isinstance(value, int) else _OPEN_TRIPS
    if kind == "aten::len":
        if given[0].kind() == "prim::ListConstruct":
            return len(list(given[0].inputs()))
        return _MAX_RANK if given[0].kind() == "aten::size" else _OPEN_TRIPS
    if kind == "aten::dim":
        return _MAX_RANK
    if kind == "aten::__range_length":
        # From the first to the second, by the third.
        return _most(given[1])
    if kind in ("aten::sub", "aten::floordiv") and given[1].kind() == "prim::Constant":
        return _most(given[0])
    return _OPEN_TRIPS


def _grows(node: Any) -> bool:
    """True if an op may make a list or text twice as long as the longest it takes."""
    kind = node.kind()
    if kind not in (
        "aten::add",
        "aten::add_",
        "aten::mul",
        "aten::mul_",
        "aten::extend",
        "aten::format",
        "aten::join",
    ):
        return False
    given = list(node.inputs())
    if not any(value.type().kind() in ("ListType", "StringType") for value in given):
        return False
    if kind.startswith("aten::mul"):
        times = next(value for value in given if value.type().kind() == "IntType")
        listed = next(value for value in given if value.type().kind() != "IntType")
        fixed = _maker(times) == "prim::Constant"
        known = int(times.toIValue()) <= _OPEN_TRIPS if fixed else _maker(times) in ("aten::dim", "aten::len")
        if not known or not _is_new(listed):
            raise ResourceLimitError("the program makes a list of unknown or huge length", fix=_TRACE_FIX)
        return False
    if kind in ("aten::extend", "aten::add_"):
        return not _is_new(given[1])
    return all(_maker(value) not in _SMALL for value in given)


def _is_new(value: Any) -> bool:
    """True for a list that is written down where it is used, and nowhere else: nobody can have made it longer."""
    return _maker(value) == "prim::ListConstruct" and len(value.uses()) == 1


def _maker(value: Any) -> str:
    return str(value.node().kind())
